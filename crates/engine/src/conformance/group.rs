//! The tests that an engine passes whose regions have copies: a primary and its backups, on devices and windows in
//! memory, with no server in between.
//!
//! The suite is the courier. It writes pieces of the primary's log to the windows of each backup, carries edits and
//! what they name, and tells the primary what all backups have. It knows an engine by its traits alone.
//!
//! A write is *confirmed* once it is in the windows of all backups. Each case builds a group, writes to it, ends some
//! members, and promotes one. The promoted member has to hold a history that ends with a whole write, at or behind the
//! last one that was confirmed; without power, the last one that was durable everywhere.
//!
//! Of a member that is promoted others become backups again, among them the primary that was (`returning`).
//!
//! An engine need not ship segments ahead of their edits, rest, or have levels. What a suite has met of these is
//! [returned](Met): the tests of an engine that does say that it has met them.

mod courier;
mod returning;

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{Epoch, KeyRange};

use self::courier::{Group, Survivor};
use super::{collect, get, value_of};
use crate::{Service, Settings, Store, WriteBatch, WriteOptions};

/// What the region should hold.
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// How the member that is promoted ended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It lives, and takes its windows back.
    Detached,
    /// Its process was killed. Its windows survive.
    Killed,
}

/// What a suite has met of what not every engine does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Segments that were stored ahead of their edit.
    pub ahead: u64,
    /// Backups that built their own levels, which were compared with the writes.
    pub built: u64,
    /// Times that windows rested.
    pub rests: u64,
    /// Finished segments of levels that a copy had which came back, and that were not fetched.
    pub spared: u64,
    /// Writes of a primary that were given up when a backup took over.
    pub dropped: u64,
    /// Primaries that had edits of which the backup that took over did not know.
    pub branched: u64,
    /// Primaries that had work under way when they fell.
    pub busy: u64,
}

impl Met {
    /// Together with what was met `before`.
    const fn and(self, before: Self) -> Self {
        Self {
            ahead: self.ahead + before.ahead,
            built: self.built + before.built,
            rests: self.rests + before.rests,
            spared: self.spared + before.spared,
            dropped: self.dropped + before.dropped,
            branched: self.branched + before.branched,
            busy: self.busy + before.busy,
        }
    }
}

/// Runs every case with engines of `settings`; `writes` is the length of each history, and `seed` decides it.
///
/// # Panics
/// Where the engine breaks the contract.
pub fn run(settings: &dyn Settings, writes: u64, seed: u64) -> Met {
    for end in [End::Detached, End::Killed] {
        for member in 0..2 {
            let group = written(settings, writes, seed);
            backup_holds_what_was_confirmed(group, member, end);
            unconfirmed_writes_are_whole_or_not_there(settings, writes, member, end);
        }
    }
    primary_holds_what_was_confirmed(written(settings, writes, seed));
    for member in [None, Some(0), Some(1)] {
        let group = written(settings, writes, seed);
        members_hold_what_was_durable(group, member);
    }
    late_copy_catches_up(settings, writes, seed);
    detached_copy_goes_on(settings, writes, seed);
    for order in [[0, 1], [1, 0]] {
        primary_adopts(settings, writes, order);
    }
    let mut met = segments_come_ahead(settings, writes, seed);
    met = met.and(backups_build_levels(settings, writes, seed));
    for end in [End::Detached, End::Killed] {
        met = met.and(windows_rest(settings, writes, end));
    }
    met.and(returning::run(settings, writes, seed))
}

/// A group of three with a history.
fn written(settings: &dyn Settings, writes: u64, seed: u64) -> Group {
    let mut group = Group::new(settings, seed);
    group.add_backup(settings);
    group.add_backup(settings);
    group.write_some(writes);
    group.judge(writes);
    group
}

fn backup_holds_what_was_confirmed(group: Group, member: usize, end: End) {
    let survivor = group.lose_primary(member, end == End::Killed);
    holds(survivor, &format!("backup {member}, {end:?}"));
}

/// Writes that are in the windows of one backup may be there in the end, one after the other, and not in part.
fn unconfirmed_writes_are_whole_or_not_there(
    settings: &dyn Settings,
    writes: u64,
    member: usize,
    end: End,
) {
    for seed in 0..4 {
        let mut group = written(settings, writes / 8, seed);
        group.write_to_one(1 + seed, 0);
        let survivor = group.lose_primary(member, end == End::Killed);
        holds(
            survivor,
            &format!("backup {member}, {end:?}, of which one has more"),
        );
    }
}

fn primary_holds_what_was_confirmed(group: Group) {
    holds(group.restart_primary(), "the primary, killed");
}

/// Without power the windows are gone, and what was not durable with them.
fn members_hold_what_was_durable(group: Group, backup: Option<usize>) {
    let survivor = group.lose_power(backup);
    holds(survivor, &format!("backup {backup:?}, without power"));
}

/// A copy that begins when the others have a history gets all of it.
fn late_copy_catches_up(settings: &dyn Settings, writes: u64, seed: u64) {
    let mut group = Group::new(settings, seed);
    group.add_backup(settings);
    group.write_some(writes);
    group.add_backup(settings);
    group.write_some(10);
    holds(group.lose_primary(1, false), "a backup that began late");
}

/// A copy that is detached now and then gets what it has missed.
fn detached_copy_goes_on(settings: &dyn Settings, writes: u64, seed: u64) {
    let mut group = written(settings, writes, seed);
    for _ in 0..4 {
        group.detach(0);
        group.attach(0);
        group.write_some(writes / 4);
    }
    holds(group.lose_primary(0, true), "a backup that was detached");
}

/// A primary that opens without its windows adopts what backups have. Each of them may have more than the other one,
/// and be behind the primary's edits.
fn primary_adopts(settings: &dyn Settings, writes: u64, order: [usize; 2]) {
    for seed in 0..2 {
        let mut group = written(settings, writes / 4 + seed, seed);
        group.write_to_one(1 + seed, usize::try_from(seed % 2).expect("0 or 1"));
        let survivor = group.adopt(order);
        holds(survivor, &format!("a primary that adopts from {order:?}"));
    }
}

/// Finished segments come to backups ahead of the edit that names them, all of them or some.
fn segments_come_ahead(settings: &dyn Settings, writes: u64, seed: u64) -> Met {
    let mut met = Met::default();
    for percent in [50, 100] {
        let mut group = Group::new(settings, seed);
        group.send_ahead(percent);
        group.add_backup(settings);
        group.add_backup(settings);
        group.write_some(writes / 2);
        // What came ahead stays for the next checkpoint, or is fetched.
        group.detach(1);
        group.attach(1);
        group.write_some(writes / 2);
        group.levels_are_equal();
        met = met.and(group.met());
        holds(
            group.lose_primary(1, true),
            "a backup that got segments ahead",
        );
    }
    met
}

/// A backup builds levels of its own, beside one that gets those of the primary.
fn backups_build_levels(settings: &dyn Settings, writes: u64, seed: u64) -> Met {
    let mut met = Met::default();
    for (builds, killed) in [(0, true), (1, false)] {
        let mut group = Group::new(settings, seed);
        for index in 0..2 {
            match index == builds {
                true => group.add_builder(settings),
                false => group.add_backup(settings),
            }
        }
        group.write_some(writes);
        group.levels_are_equal();
        met = met.and(group.met());
        group.write_some(10);
        let survivor = group.lose_primary(builds, killed);
        holds(survivor, "a backup that builds its levels");
    }
    met
}

/// A group is left alone, and written to again.
fn windows_rest(settings: &dyn Settings, writes: u64, end: End) -> Met {
    let mut met = Met::default();
    for seed in 0..2 {
        let mut group = Group::new(settings, seed);
        group.add_backup(settings);
        group.add_backup(settings);
        for round in 0..4 {
            group.write_some(writes / 8 + round);
            group.rest();
            if round == 2 {
                group.detach(0);
                group.attach(0);
            }
        }
        // They wake, and these are in windows alone.
        group.write_some(3);
        met = met.and(group.met());
        let what = format!("a backup that rested, {end:?}");
        holds(group.lose_primary(0, end == End::Killed), &what);
    }
    met
}

/// Promotes a copy, and compares all that it shows with what it has to hold.
fn holds(survivor: Survivor, what: &str) {
    let Survivor { copy, pairs } = survivor;
    let last = copy.position().lsn;
    let service = Service {
        epoch: Epoch(9),
        since: Epoch(9),
        ..Service::default()
    };
    let promoted = copy.promote(service);
    let promoted = promoted.unwrap_or_else(|no| panic!("{what} is not promoted: {}", no.error));
    let store = Shown(promoted.store);
    let seen = collect(store.0.snapshot().as_ref(), &KeyRange::all());
    let expected: Vec<_> = pairs.clone().into_iter().collect();
    assert_eq!(seen.len(), expected.len(), "{what}: pairs");
    assert!(seen == expected, "{what}: a scan sees what was confirmed");
    for (key, value) in &pairs {
        assert!(store.get(key).as_ref() == Some(value), "{what}: {key:?}");
    }
    assert!(store.0.last_lsn() >= last, "{what}: LSNs go on");
    let before = store.0.snapshot();
    let mut batch = WriteBatch::new();
    let (key, value) = (b"new", value_of(1, 50));
    batch.put(key, &value).expect("within the limits");
    let taken = store.0.write(&batch, WriteOptions::default());
    let written = taken.unwrap_or_else(|error| panic!("{what} takes no write: {error}"));
    assert!(written.applied && written.wait.lsn() > last);
    assert_eq!(store.get(key), Some(value), "{what}: what it wrote");
    assert!(collect(before.as_ref(), &KeyRange::all()) == expected);
}

/// A promoted store.
struct Shown(Arc<dyn Store>);

impl Shown {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        get(self.0.as_ref(), key)
    }
}
