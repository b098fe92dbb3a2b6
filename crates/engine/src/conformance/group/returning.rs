//! Copies that come back: what was a primary becomes a backup of another one, with its process or without, and with
//! more than the others have.
//!
//! In each case a primary has records, edits and segments of which the backup that takes over knows nothing. The group
//! goes on with what that one has. The copy that comes back fetches what it lacks and nothing else, has in the end what
//! all have, and can be promoted itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::{Direction, Epoch, Instant, KeyRange, Outcome};

use super::courier::{Between, Fall, Group};
use super::{Met, holds};
use crate::conformance::{Machine, STEPS_MAX, collect, value_of};
use crate::{
    EngineError, Scan, Service, Settings, Snapshot, Store, WindowRoom, WriteBatch, WriteOptions,
};

const FALLS: [Fall; 3] = [Fall::Demoted, Fall::Killed, Fall::PowerLost];

/// One of them, as `seed` decides.
const fn fall_of(seed: u64) -> Fall {
    match seed % 3 {
        0 => Fall::Demoted,
        1 => Fall::Killed,
        _ => Fall::PowerLost,
    }
}

/// Runs the cases of this module.
pub(super) fn run(settings: &dyn Settings, writes: u64, seed: u64) -> Met {
    let mut met = Met::default();
    for fall in FALLS {
        for seed in seed..seed + 2 {
            met = met.and(primary_comes_back(settings, writes, seed, fall));
            met = met.and(primary_comes_back_and_leads(settings, writes, seed, fall));
            met = met.and(copy_misses_two_epochs(settings, writes, seed, fall));
        }
        for builds in 0..3 {
            met = met.and(builders_come_back(
                settings,
                writes,
                seed + builds,
                builds,
                fall,
            ));
        }
    }
    for seed in seed..seed + 2 {
        for fall in FALLS {
            met = met.and(cut_of_which_nobody_hears(settings, writes, seed, fall));
        }
        for fall in [Fall::Killed, Fall::PowerLost] {
            met = met.and(primaries_that_know_nothing_of_each_other(
                settings, writes, seed, fall,
            ));
        }
        met = met.and(device_fails_meanwhile(settings, writes, seed));
    }
    demoted_store_serves_no_more(settings, writes, seed);
    alone(settings, writes);
    met
}

/// Three members that build no levels of their own.
fn three(settings: &dyn Settings, seed: u64) -> Group {
    let mut group = Group::new(settings, seed);
    group.add_backup(settings);
    group.add_backup(settings);
    group
}

/// The primary gets more than the others have: edits and segments, then records, of which some come to one backup.
fn branch_off(group: &mut Group, seed: u64, told: usize) {
    group.work_alone(30 + 40 * (seed % 3));
    if seed.is_multiple_of(2) {
        group.write_to_one(1 + seed % 3, told);
    }
    group.write_alone(1 + 7 * (seed % 4));
    group.work_alone(5);
}

fn primary_comes_back(settings: &dyn Settings, writes: u64, seed: u64, fall: Fall) -> Met {
    let mut group = three(settings, seed);
    group.send_ahead(50);
    group.write_some(writes);
    branch_off(&mut group, seed, 1);
    group.fail_over(0, fall);
    group.write_some(writes / 2);
    group.levels_are_equal();
    group.keeps_nothing_else();
    group.write_some(10);
    let met = group.met();
    let killed = seed.is_multiple_of(2);
    holds(
        group.lose_primary(0, killed),
        &format!("a primary that came back, {fall:?}"),
    );
    met
}

/// The primary becomes one again, two epochs later; before that the others have each been one.
fn primary_comes_back_and_leads(
    settings: &dyn Settings,
    writes: u64,
    seed: u64,
    fall: Fall,
) -> Met {
    let mut group = three(settings, seed);
    group.write_some(writes / 2);
    for (round, index) in (0..).zip([0, 1, 0, 0, 1]) {
        branch_off(&mut group, seed + round, 1 - index);
        group.fail_over(index, fall_of(seed + round));
        group.write_some(writes / 4);
    }
    branch_off(&mut group, seed, 0);
    group.fail_over(0, fall);
    group.write_some(writes / 4);
    group.levels_are_equal();
    group.keeps_nothing_else();
    let met = group.met();
    holds(
        group.lose_primary(1, true),
        "one of three that all have led",
    );
    met
}

/// A primary comes back when others have led twice since; meanwhile a backup was away, too.
fn copy_misses_two_epochs(settings: &dyn Settings, writes: u64, seed: u64, fall: Fall) -> Met {
    let mut group = three(settings, seed);
    group.add_backup(settings);
    group.write_some(writes / 2);
    group.take_away(2);
    group.write_some(writes / 4);
    branch_off(&mut group, seed, 1);
    group.fail_over(0, fall);
    group.write_some(5);
    group.take_away(0);
    group.write_some(writes / 4);
    branch_off(&mut group, seed + 1, 0);
    group.fail_over(0, Fall::Demoted);
    group.write_some(writes / 2);
    group.bring_back();
    group.write_some(writes / 4);
    group.levels_are_equal();
    group.keeps_nothing_else();
    group.write_some(3);
    let met = group.met();
    holds(
        group.lose_primary(2, false),
        "a copy that has missed two epochs",
    );
    met
}

/// The primary falls, opens with what it has, makes its cut, and falls before anybody has that. It may have cut a log
/// that goes on in the others.
fn cut_of_which_nobody_hears(settings: &dyn Settings, writes: u64, seed: u64, fall: Fall) -> Met {
    goes_on_after(settings, writes, seed, fall, Between::Unheard)
}

/// The primary serves alone for a while, and is given up. The one that takes over gives out the same numbers.
fn primaries_that_know_nothing_of_each_other(
    settings: &dyn Settings,
    writes: u64,
    seed: u64,
    fall: Fall,
) -> Met {
    goes_on_after(settings, writes, seed, fall, Between::Alone)
}

/// The primary's device fails while it becomes a backup. Nothing panics, and the device is as good as after a loss of
/// power.
fn device_fails_meanwhile(settings: &dyn Settings, writes: u64, seed: u64) -> Met {
    let fall = Fall::DeviceFailed(seed % 2);
    goes_on_after(settings, writes, seed, fall, Between::Nothing)
}

fn goes_on_after(
    settings: &dyn Settings,
    writes: u64,
    seed: u64,
    fall: Fall,
    between: Between,
) -> Met {
    let mut group = three(settings, seed);
    group.write_some(writes / 2 + seed);
    if seed.is_multiple_of(2) {
        branch_off(&mut group, seed, 1);
    }
    // Otherwise the last writes are in windows only: without power it has less than the others.
    group.fail_over_after(0, fall, between);
    group.write_some(writes / 2);
    group.levels_are_equal();
    group.keeps_nothing_else();
    branch_off(&mut group, seed + 1, 1);
    group.fail_over(0, Fall::Demoted);
    group.write_some(writes / 4);
    group.levels_are_equal();
    let met = group.met();
    let what = format!("a primary that came back after {between:?}, {fall:?}");
    holds(group.lose_primary(0, true), &what);
    met
}

/// Some members build levels of their own while they are backups.
fn builders_come_back(
    settings: &dyn Settings,
    writes: u64,
    seed: u64,
    builds: u64,
    fall: Fall,
) -> Met {
    let mut group = match builds {
        0 => Group::new(settings, seed),
        _ => Group::new_builder(settings, seed),
    };
    group.add_builder(settings);
    match builds {
        1 => group.add_backup(settings),
        _ => group.add_builder(settings),
    }
    group.write_some(writes / 2);
    for (round, index) in (0..).zip([0, 1, 0]) {
        branch_off(&mut group, seed + round, 1 - index);
        group.fail_over(index, fall);
        group.write_some(writes / 4);
        group.levels_are_equal();
    }
    group.keeps_nothing_else();
    group.write_some(10);
    let met = group.met();
    holds(group.lose_primary(0, false), "a builder that came back");
    met
}

/// A snapshot and a scan that are held.
struct Held {
    snapshot: Box<dyn Snapshot>,
    scan: Box<dyn Scan>,
}

impl Held {
    fn of(store: &dyn Store) -> Self {
        let snapshot = store.snapshot();
        let scan = snapshot.scan(&KeyRange::all(), Direction::Up);
        let mut scan = scan.expect("a store that serves");
        let first = scan.next().expect("a store that serves");
        assert!(first.is_some(), "there are pairs");
        Self { snapshot, scan }
    }

    /// They show nothing any more.
    fn are_over(&mut self) {
        is_over(self.snapshot.get(b"key0001"));
        is_over(self.snapshot.get_many(&[b"key0001", b"key0002"]));
        is_over(
            self.snapshot
                .scan(&KeyRange::all(), Direction::Down)
                .map(drop),
        );
        is_over(self.scan.next());
        is_over(self.scan.next());
    }
}

fn is_over<T>(result: Result<T, EngineError>) {
    match result.map(drop) {
        Err(error @ EngineError::NotServing) => {
            assert_eq!(error.outcome(), Outcome::NotApplied);
        }
        other => panic!("the store serves no more, and does this: {other:?}"),
    }
}

/// Whoever holds a store that is a copy again, or a snapshot of it, is told so, and keeps nothing in use but what the
/// snapshot sees.
fn demoted_store_serves_no_more(settings: &dyn Settings, writes: u64, seed: u64) {
    let mut group = three(settings, seed);
    group.write_some(writes);
    let store = group.store();
    let mut held = Held::of(&*store);
    group.fail_over(0, Fall::Demoted);
    held.are_over();
    refuses(&store);
    group.write_some(writes);
    held.are_over();
    refuses(&store);
    drop(held);
    group.levels_are_equal();
    // The store is held.
    group.keeps_nothing_else();
    refuses(&store);
}

fn refuses(store: &Arc<dyn Store>) {
    let last = store.last_lsn();
    let mut batch = WriteBatch::new();
    batch.put(b"key0001", b"new").expect("within the limits");
    is_over(store.write(&batch, WriteOptions::default()));
    is_over(store.get(b"key0001"));
    is_over(store.get_many(&[b"key0001"]));
    is_over(store.outline(b"key0001", crate::Reach::Memory));
    is_over(store.step(Instant::default()));
    is_over(store.snapshot().get(b"key0001"));
    is_over(
        store
            .snapshot_of_all()
            .scan(&KeyRange::all(), Direction::Up)
            .map(drop),
    );
    assert!(
        Arc::clone(store).demote(Vec::new()).is_err(),
        "it is a copy already"
    );
    assert!(store.close().is_ok(), "there is nothing to make durable");
    assert_eq!(store.last_lsn(), last);
}

/// Counts how often windows got memory and gave it back.
#[derive(Default)]
struct Room {
    taken: AtomicU64,
    gave_back: AtomicU64,
}

impl WindowRoom for Room {
    fn take(&self) -> bool {
        self.taken.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn gave_back(&self) {
        self.gave_back.fetch_add(1, Ordering::Relaxed);
    }
}

/// A store without backups is demoted and promoted again and again, in the midst of its work. It loses nothing, and
/// keeps nothing that belongs to nobody.
fn alone(settings: &dyn Settings, writes: u64) {
    let mut machine = Machine::new(settings, writes);
    let mut copy = machine.open();
    let room = Arc::new(Room::default());
    let (mut pairs, mut now) = (super::Pairs::new(), 0_u64);
    for epoch in 1..6 {
        let service = Service {
            epoch: Epoch(epoch),
            since: Epoch(epoch),
            room: Some(Arc::<Room>::clone(&room)),
            ..Service::default()
        };
        let promoted = copy.promote(service);
        let store = promoted.unwrap_or_else(|no| panic!("{}", no.error)).store;
        assert_eq!(store.edit().cut_epoch(), Epoch(epoch));
        let held = store.snapshot();
        let seen = collect(held.as_ref(), &KeyRange::all());
        assert!(seen.into_iter().eq(pairs.clone()), "epoch {epoch} has all");
        for number in 0..writes {
            let key = format!("key{:04}", number * 7 % 300).into_bytes();
            let value = value_of(number + u64::from(epoch), 40 << (number % 6));
            let mut batch = WriteBatch::new();
            batch.put(&key, &value).expect("within the limits");
            let taken = (0..STEPS_MAX).any(|_| {
                now += 20_000_000;
                let taken = store.write(&batch, WriteOptions::default()).is_ok();
                let step = store.step(Instant::from_nanos(now));
                step.expect("a device without faults");
                taken
            });
            assert!(taken, "there is room");
            pairs.insert(key, value);
        }
        let last = store.last_lsn();
        let demoted = Arc::clone(&store).demote(machine.renew_windows());
        copy = demoted.unwrap_or_else(|no| panic!("{}", no.error));
        assert_eq!(copy.position().lsn, last, "all that was written");
        is_over(held.get(b"key0001"));
        let [taken, gave_back] = [&room.taken, &room.gave_back].map(|n| n.load(Ordering::Relaxed));
        // An engine that takes memory for good asks for none.
        let asks = gave_back > 0;
        assert_eq!(gave_back, if asks { taken + u64::from(epoch) } else { 0 });
        drop((held, store));
        let used = machine.used();
        machine.end(argosy_device::Crash::Kill);
        drop(copy);
        copy = machine.open();
        assert_eq!(used, machine.used(), "segments in use, epoch {epoch}");
        assert_eq!(copy.position().lsn, last, "and in windows");
    }
}
