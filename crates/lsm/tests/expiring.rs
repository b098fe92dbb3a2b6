//! Pairs that expire, by a clock that goes, stands still and is set back, over flushes, merges, garbage
//! collection and restarts.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::counting::Counting;
use crate::common::wall::Wall;
use crate::common::{Machine, random_settings, tiny};
use argosy_base::{Clock, Direction, KeyRange, Moment};
use argosy_device::Crash;
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{
    Change, Changed, Condition, EngineError, Expiry, Only, Reach, Seen, Snapshot, Store,
    WriteBatch, WriteOptions, Written,
};
use argosy_lsm::names::logs::RECOVERY_LOG;
use argosy_lsm::{Lsm, Mutants, Placement};

fn open(machine: &mut Machine, wall: &Arc<Wall>) -> Lsm {
    let engine = machine.open();
    engine.set_clock(Arc::clone(wall) as Arc<dyn Clock>);
    engine
}

fn write(
    machine: &mut Machine,
    engine: &Lsm,
    batch: &WriteBatch,
    options: WriteOptions,
) -> Written {
    for _ in 0..100_000 {
        match engine.write(batch, options) {
            Ok(written) => return written,
            Err(EngineError::Busy(_)) => {}
            Err(error) => panic!("a write failed: {error}"),
        }
        machine.step(engine);
    }
    panic!("the engine stays busy");
}

fn put(machine: &mut Machine, engine: &Lsm, key: &[u8], value: &[u8], expiry: Expiry) {
    let mut batch = WriteBatch::new();
    batch.put_until(key, value, expiry).unwrap();
    write(machine, engine, &batch, WriteOptions::default());
}

fn change(machine: &mut Machine, engine: &Lsm, key: &[u8], change: Change) -> Changed {
    let mut batch = WriteBatch::new();
    batch.change(key, change, b"").unwrap();
    let written = write(machine, engine, &batch, WriteOptions::default());
    written.changed.unwrap()
}

fn get(engine: &Lsm, key: &[u8]) -> Option<Vec<u8>> {
    engine.get(key).unwrap().value
}

fn scan(snapshot: &dyn Snapshot) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
    while let Some(pair) = scan.next().unwrap() {
        pairs.push(pair);
    }
    pairs
}

/// Steps until nothing is done any more, with what is in memory in the levels.
fn settle(machine: &mut Machine, engine: &Lsm) {
    engine.freeze_now();
    let mut idle = 0;
    while idle < 50 {
        idle = if machine.step(engine) { 0 } else { idle + 1 };
    }
}

#[test]
fn a_pair_is_gone_from_its_moment_on() {
    let wall = Arc::new(Wall::default());
    wall.set(1000);
    let mut machine = Machine::new(tiny(), 1024, 1);
    let engine = open(&mut machine, &wall);
    put(&mut machine, &engine, b"k", b"old", Expiry::Never);
    assert_eq!(engine.get(b"k").unwrap().expiry, None);
    let last = engine.last_lsn();
    wall.set(2000);
    assert_eq!(get(&engine, b"k").as_deref(), Some(&b"old"[..]));
    assert_eq!(
        engine.last_lsn(),
        last,
        "where nothing expires, time is not told"
    );

    put(&mut machine, &engine, b"k", b"v", Expiry::After(100));
    let found = engine.get(b"k").unwrap();
    assert_eq!(
        (found.expiry, engine.time()),
        (Some(Moment(2100)), Moment(2000))
    );
    let before = engine.snapshot();
    wall.set(2099);
    assert_eq!(get(&engine, b"k").as_deref(), Some(&b"v"[..]));
    wall.set(2100);
    let last = engine.last_lsn();
    let gone = engine.get(b"k").unwrap();
    assert_eq!((gone.value, gone.expiry), (None, None));
    assert!(
        gone.wait.lsn() > last,
        "the answer waits for the record that tells the time"
    );
    assert_eq!(engine.get_within(b"k", Reach::Memory).unwrap().value, None);
    assert_eq!(engine.last_lsn(), gone.wait.lsn(), "it is told once");
    assert_eq!(scan(&*before), [(b"k".to_vec(), b"v".to_vec())]);
    assert_eq!(before.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(scan(&*engine.snapshot()), []);

    // A clock that is set back brings nothing back.
    wall.set(1500);
    assert_eq!((get(&engine, b"k"), engine.time()), (None, Moment(2100)));
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"new").unwrap();
    let absent = WriteOptions {
        condition: Condition::Absent,
        return_previous: true,
    };
    let written = write(&mut machine, &engine, &batch, absent);
    assert_eq!((written.applied, written.previous), (true, vec![None]));
}

/// What a batch is computed on changes when a pair expires, and not when time goes on for others.
#[test]
fn a_pair_that_expires_is_a_change_of_what_was_seen() {
    let wall = Arc::new(Wall::default());
    wall.set(1000);
    let mut machine = Machine::new(tiny(), 1024, 1);
    let engine = open(&mut machine, &wall);
    for below in [false, true] {
        for (key, span) in [(b"k", 100), (b"l", 300)] {
            put(&mut machine, &engine, key, b"v", Expiry::After(span));
        }
        if below {
            settle(&mut machine, &engine);
        }
        let began = wall.get();
        let commit = |machine: &mut Machine, bound, version| {
            let (mut batch, key) = (WriteBatch::new(), b"k");
            batch
                .saw(Seen {
                    key,
                    bound,
                    version,
                })
                .unwrap();
            write(machine, &engine, &batch, WriteOptions::default())
        };
        let there = engine.get(b"k").unwrap().version;
        wall.set(began + 99);
        assert!(commit(&mut machine, true, there).applied);
        wall.set(began + 100);
        let last = engine.last_lsn();
        let refused = commit(&mut machine, true, there);
        assert!(
            !refused.applied && refused.wait.lsn() > last,
            "it tells the time"
        );
        let gone = engine.get(b"k").unwrap().version;
        assert!(commit(&mut machine, false, gone).applied);
        wall.set(began + 300);
        assert_eq!(get(&engine, b"l"), None);
        assert!(
            commit(&mut machine, false, gone).applied,
            "nobody has written it"
        );
        put(&mut machine, &engine, b"k", b"w", Expiry::After(1));
        wall.set(began + 400);
        assert!(
            !commit(&mut machine, false, gone).applied,
            "it was there meanwhile"
        );
    }
}

/// Lets 1,000 pairs expire and has merges remove them. Then writes each key on condition of the version that its pair
/// had. Returns how many of these writes were applied. The others are applied on condition of the version that a read
/// tells now.
fn versions_kept(mutants: Mutants, restarts: bool) -> usize {
    let wall = Arc::new(Wall::default());
    wall.set(1000);
    let settings = tiny().with(|of| of.mutants = mutants);
    let mut machine = Machine::new(settings, 1024, 3);
    let mut engine = open(&mut machine, &wall);
    let key = |number: u32| format!("{number:04}").into_bytes();
    let expires = Expiry::At(Moment(1100));
    for number in 0..3000 {
        put(
            &mut machine,
            &engine,
            &key(number % 1000),
            b"value",
            expires,
        );
    }
    let versions: Vec<_> = (0..1000)
        .map(|number| engine.get(&key(number)).unwrap().version)
        .collect();
    wall.set(1100);
    assert_eq!(get(&engine, &key(0)), None);
    // Not with what is in memory.
    while engine.background_pending() > 0 {
        machine.step(&engine);
    }
    if restarts {
        machine.end(engine, Crash::Kill);
        engine = open(&mut machine, &wall);
    }
    let unwritten = |version| WriteOptions {
        condition: Condition::Version(version),
        ..WriteOptions::default()
    };
    let mut kept = 0;
    for (number, version) in versions.into_iter().enumerate() {
        let key = key(u32::try_from(number).unwrap());
        let mut batch = WriteBatch::new();
        batch.put(&key, b"new").unwrap();
        let written = write(&mut machine, &engine, &batch, unwritten(version));
        if written.applied {
            kept += 1;
            continue;
        }
        let now = engine.get(&key).unwrap();
        assert_eq!(now.value, None);
        let written = write(&mut machine, &engine, &batch, unwritten(now.version));
        assert!(written.applied, "{number}, {now:?}, {restarts}");
    }
    kept
}

/// A pair that is over counts as written, whoever removed it: here merges, by a time that one pair's reader told.
#[test]
fn a_version_ends_with_its_pair() {
    let mistaken = Mutants {
        keep_version: true,
        ..Mutants::default()
    };
    for restarts in [false, true] {
        assert_eq!(versions_kept(Mutants::default(), restarts), 0);
        assert!(versions_kept(mistaken, restarts) > 0);
    }
}

#[test]
fn expiries_are_changed_where_the_key_is_written() {
    let wall = Arc::new(Wall::default());
    wall.set(1000);
    let mut machine = Machine::new(tiny(), 1024, 2);
    let engine = open(&mut machine, &wall);
    let large = vec![7; 3000];
    for value in [b"5".as_slice(), &large] {
        put(&mut machine, &engine, b"k", value, Expiry::Never);
        for below in [false, true] {
            if below {
                settle(&mut machine, &engine);
            }
            let expire = |expiry| Change::Expire(expiry, Only::Any);
            let one = Changed::Number(1);
            let told = change(&mut machine, &engine, b"k", expire(Expiry::After(50)));
            assert_eq!(told, one);
            let expiry = engine.get(b"k").unwrap().expiry;
            assert_eq!(expiry, Some(Moment(wall.get() + 50)));
            let told = change(&mut machine, &engine, b"k", expire(Expiry::Never));
            assert_eq!(told, one);
            let found = engine.get(b"k").unwrap();
            assert_eq!((found.value.as_deref(), found.expiry), (Some(value), None));
        }
    }
    put(&mut machine, &engine, b"n", b"5", Expiry::After(50));
    let sum = change(&mut machine, &engine, b"n", Change::Add(1));
    assert_eq!(sum, Changed::Number(6));
    put(&mut machine, &engine, b"n", b"7", Expiry::Keep);
    assert_eq!(engine.get(b"n").unwrap().expiry, Some(Moment(1050)));
    wall.set(1060);
    let sum = change(&mut machine, &engine, b"n", Change::Add(1));
    assert_eq!(
        sum,
        Changed::Number(1),
        "what has expired counts as nothing"
    );
    assert_eq!(engine.get(b"n").unwrap().expiry, None);
    let past = change(
        &mut machine,
        &engine,
        b"n",
        Change::Expire(Expiry::At(Moment(9)), Only::Any),
    );
    assert_eq!((past, get(&engine, b"n")), (Changed::Number(1), None));
}

#[test]
fn time_is_told_to_those_who_come_later() {
    let wall = Arc::new(Wall::default());
    let mut machine = Machine::new(tiny(), 1024, 3);
    for flushes in [false, true] {
        wall.set(1000);
        let engine = open(&mut machine, &wall);
        put(&mut machine, &engine, b"k", b"old", Expiry::Never);
        settle(&mut machine, &engine);
        let after = Expiry::At(engine.time().after(100));
        put(&mut machine, &engine, b"k", b"v", after);
        put(&mut machine, &engine, b"other", b"v", after);
        settle(&mut machine, &engine);
        wall.set(engine.time().0 + 100);
        assert_eq!(get(&engine, b"k"), None);
        if flushes {
            // The record of the time leaves the log.
            put(&mut machine, &engine, b"more", b"v", Expiry::Never);
            settle(&mut machine, &engine);
        }
        let time = engine.time();
        machine.kill(engine);
        wall.set(10);
        let engine = open(&mut machine, &wall);
        assert_eq!(engine.time(), time);
        assert_eq!((get(&engine, b"k"), get(&engine, b"other")), (None, None));
        machine.close(engine);
    }
}

#[test]
fn merges_make_room_of_what_has_expired() {
    for placement in [Placement::InPlace, Placement::Separated] {
        let settings = tiny().with(|of| {
            of.values.placement = placement;
            of.space.floor_bytes = Some(0);
            of.space.amplification_max = 120;
        });
        let wall = Arc::new(Wall::default());
        wall.set(1000);
        let mut machine = Machine::new(settings, 4096, 4);
        let engine = open(&mut machine, &wall);
        let fresh = machine.store.as_ref().unwrap().used();
        for key in 0..3000u32 {
            let key = key.to_le_bytes();
            put(&mut machine, &engine, &key, &[1; 200], Expiry::After(50));
        }
        settle(&mut machine, &engine);
        let full = machine.store.as_ref().unwrap().used();
        wall.set(2000);
        assert_eq!(get(&engine, &7u32.to_le_bytes()), None);
        // Whatever is written next has levels merged.
        for round in 0..6 {
            for key in 0..1000u32 {
                let key = (1 << 20 | key).to_le_bytes();
                put(&mut machine, &engine, &key, &[round; 20], Expiry::Never);
            }
            settle(&mut machine, &engine);
        }
        engine.compact_now();
        while engine.is_compacting() {
            machine.step(&engine);
        }
        settle(&mut machine, &engine);
        let left = machine.store.as_ref().unwrap().used();
        assert!(left < full, "{fresh} {full} {left}");
        // Nothing of what has expired is left, and nothing was written over it.
        let levels = engine.stats().levels;
        let entries: u64 = levels.iter().map(|level| level.entries).sum();
        assert_eq!(entries, 1000);
        assert_eq!(scan(&*engine.snapshot()).len(), 1000);
    }
}

/// Has the region's time told often, with nothing else written, until that has filled several segments of the log.
fn tell_only_time(machine: &mut Machine, engine: &Lsm, wall: &Wall) {
    let filled = recovery_bytes(engine) + 4 * tiny().layout.segment_bytes as u64;
    let mut moment = 2000;
    while moment < 4000 {
        tell_time(machine, engine, wall, &mut moment);
        if recovery_bytes(engine) >= filled {
            return;
        }
    }
    panic!("the log does not grow");
}

/// Bytes in segments of the recovery log that have ended.
fn recovery_bytes(engine: &Lsm) -> u64 {
    let logs = engine.stats().logs;
    let mut logs = logs.iter();
    let recovery = logs.find(|log| log.log == RECOVERY_LOG);
    recovery.map_or(0, |log| log.bytes)
}

/// Records of nothing but the time leave the log when the region is opened again, and when a device that is full needs
/// the room, although no memtable holds anything.
#[test]
fn records_of_time_leave_the_log() {
    let settings = tiny().with(|of| of.memtables.log_bytes = 1 << 20);
    let wall = Arc::new(Wall::default());
    wall.set(1000);
    let mut machine = Machine::new(settings, 4096, 4);
    let engine = open(&mut machine, &wall);
    put(&mut machine, &engine, b"key", b"value", Expiry::After(50));
    settle(&mut machine, &engine);
    tell_only_time(&mut machine, &engine, &wall);
    assert!(engine.freeze_now());
    settle(&mut machine, &engine);
    assert_eq!(recovery_bytes(&engine), 0);

    tell_only_time(&mut machine, &engine, &wall);
    let time = engine.committed_time();
    machine.end(engine, Crash::Kill);
    let engine = open(&mut machine, &wall);
    while machine.step(&engine) {}
    assert_eq!(recovery_bytes(&engine), 0);
    assert_eq!(engine.committed_time(), time);
    machine.end(engine, Crash::Kill);
    let engine = open(&mut machine, &wall);
    assert_eq!(engine.committed_time(), time);
}

/// A segment that was begun before the last flush, and that records of time have ended since, goes although they are
/// less than a segment.
#[test]
fn a_segment_that_records_of_time_have_ended_leaves_the_log() {
    let settings = tiny().with(|of| of.memtables.log_bytes = 1 << 20);
    let wall = Arc::new(Wall::default());
    wall.set(1000);
    let mut machine = Machine::new(settings, 4096, 4);
    let engine = open(&mut machine, &wall);
    put(&mut machine, &engine, b"key", b"value", Expiry::After(50));
    settle(&mut machine, &engine);
    let mut moment = 2000;
    // A segment is begun.
    tell_until_segment_ends(&mut machine, &engine, &wall, &mut moment);
    settle(&mut machine, &engine);
    let begun = moment;
    tell_until_segment_ends(&mut machine, &engine, &wall, &mut moment);
    let moments = moment - begun;
    // Most of it is filled, and brought into the levels.
    for _ in 0..moments * 3 / 4 {
        tell_time(&mut machine, &engine, &wall, &mut moment);
    }
    put(&mut machine, &engine, b"key", b"value", Expiry::After(50));
    settle(&mut machine, &engine);
    assert_eq!(recovery_bytes(&engine), 0);
    tell_until_segment_ends(&mut machine, &engine, &wall, &mut moment);
    assert!(engine.freeze_now());
    settle(&mut machine, &engine);
    assert_eq!(recovery_bytes(&engine), 0);
    assert!(!engine.freeze_now(), "nothing goes with it any more");
}

/// Has the region's time told until a segment of the recovery log has ended.
fn tell_until_segment_ends(machine: &mut Machine, engine: &Lsm, wall: &Wall, moment: &mut u64) {
    let before = recovery_bytes(engine);
    while recovery_bytes(engine) == before {
        tell_time(machine, engine, wall, moment);
    }
}

/// Has the region's time told, as the next `moment`.
fn tell_time(machine: &mut Machine, engine: &Lsm, wall: &Wall, moment: &mut u64) {
    *moment += 1;
    wall.set(*moment);
    assert!(engine.advance_ttl_clock());
    let mut idle = 0;
    while idle < 10 {
        idle = if machine.step(engine) { 0 } else { idle + 1 };
    }
}

/// Whoever looks at a pair that expires, and finds that it has, has to look again: it may have been renewed
/// before the time went on.
#[test]
fn a_pair_that_is_renewed_while_it_is_read_is_there() {
    let wall = Arc::new(Wall::default());
    let mut machine = Machine::new(tiny(), 256, 3);
    let engine = open(&mut machine, &wall);
    wall.set(50);
    put(&mut machine, &engine, b"k", b"old", Expiry::At(Moment(100)));
    settle(&mut machine, &engine);
    engine.close().unwrap();
    machine.end(engine, Crash::Kill);
    for many in [false, true] {
        let settings = machine.settings.clone().with(|of| of.cache_bytes = 0);
        let (device, engine) = Counting::open(&mut machine, &settings);
        let engine = Arc::new(engine);
        engine.set_clock(Arc::clone(&wall) as Arc<dyn Clock>);
        wall.set(99);
        let (renewing, clock) = (Arc::clone(&engine), Arc::clone(&wall));
        device.on_read(move || {
            let mut batch = WriteBatch::new();
            batch
                .put_until(b"k", b"new", Expiry::At(Moment(900)))
                .unwrap();
            renewing.write(&batch, WriteOptions::default()).unwrap();
            clock.set(101);
        });
        let found = match many {
            false => engine.get(b"k").unwrap(),
            true => engine.get_many(&[b"k"]).unwrap().remove(0),
        };
        assert_eq!(
            found.value.as_deref(),
            Some(&b"new"[..]),
            "together: {many}"
        );
        drop((device, engine));
        machine.windows = machine.windows.restart();
        machine.store = None;
    }
}

/// Each operation of a batch sees what those before it left, moments and all.
#[test]
fn what_is_kept_in_a_batch_is_what_the_batch_left() {
    let wall = Arc::new(Wall::default());
    let mut machine = Machine::new(tiny(), 256, 4);
    let engine = open(&mut machine, &wall);
    wall.set(10);
    put(&mut machine, &engine, b"b", b"1", Expiry::At(Moment(100)));
    let mut batch = WriteBatch::new();
    batch.put_until(b"a", b"1", Expiry::At(Moment(50))).unwrap();
    batch.put_until(b"a", b"2", Expiry::Keep).unwrap();
    batch.delete(b"b").unwrap();
    batch.put_until(b"b", b"2", Expiry::Keep).unwrap();
    batch.put_until(b"c", b"1", Expiry::At(Moment(5))).unwrap();
    batch.put_until(b"c", b"2", Expiry::Keep).unwrap();
    let options = WriteOptions {
        return_previous: true,
        ..WriteOptions::default()
    };
    let written = write(&mut machine, &engine, &batch, options);
    assert_eq!(written.existed, [false, true, true, false, false, false]);
    let expiry = |key: &[u8]| engine.get(key).unwrap().expiry;
    assert_eq!(expiry(b"a"), Some(Moment(50)));
    assert_eq!((expiry(b"b"), expiry(b"c")), (None, None));
    assert_eq!(get(&engine, b"c").as_deref(), Some(&b"2"[..]));
}

/// Who only reads writes nothing but the time, and that only where it makes a difference.
#[test]
fn a_snapshot_writes_the_time_where_something_has_expired() {
    let wall = Arc::new(Wall::default());
    let mut machine = Machine::new(tiny(), 256, 5);
    let engine = Arc::new(open(&mut machine, &wall));
    wall.set(10);
    put(&mut machine, &engine, b"k", b"v", Expiry::At(Moment(100)));
    put(&mut machine, &engine, b"l", b"v", Expiry::At(Moment(200)));
    let last = engine.last_lsn();
    for moment in 20..90 {
        wall.set(moment);
        let snapshot = engine.snapshot_now();
        assert_eq!(scan(&snapshot).len(), 2);
        assert_eq!((snapshot.told(), engine.last_lsn()), (last, last));
    }
    let before = engine.snapshot_now();
    wall.set(150);
    let snapshot = engine.snapshot_now();
    assert_eq!(scan(&snapshot).len(), 1);
    assert_eq!(snapshot.get(b"k").unwrap(), None);
    assert_eq!(engine.last_lsn(), last.next(), "once");
    assert_eq!(snapshot.told(), last.next());
    assert_eq!(scan(&before).len(), 2, "it has one moment");
}

/// What a key is bound to, and until when.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// Compares what was found with the model, which forgets what was found to be gone.
fn check(model: &mut Model, key: &[u8], found: Option<Vec<u8>>, wall: u64, highest: u64) {
    let Some((value, expiry)) = model.get(key) else {
        assert_eq!(found, None, "{key:?} was never written, or gone");
        return;
    };
    match found {
        Some(found) => {
            assert!(found == *value, "{key:?} has another value");
            assert!(expiry.is_none_or(|expiry| expiry > wall), "{key:?} is over");
        }
        None => {
            assert!(
                expiry.is_some_and(|expiry| expiry <= highest),
                "{key:?} is lost"
            );
            model.remove(key);
        }
    }
}

#[test]
fn random_histories() {
    for seed in 0..40 {
        let mut choices = Choices::new(seed);
        let settings = random_settings(&mut choices).with(|of| of.space.floor_bytes = Some(0));
        let wall = Arc::new(Wall::default());
        wall.set(10_000);
        let mut highest = 10_000;
        let mut machine = Machine::new(settings, 4096, seed);
        let mut engine = open(&mut machine, &wall);
        let mut model = Model::new();
        for number in 0..2500u64 {
            let key = format!("k{}", choices.below(60)).into_bytes();
            match choices.below(100) {
                0..45 => {
                    let len = [10, 150, 1500][usize::try_from(choices.below(3)).unwrap()];
                    let value = [&number.to_le_bytes()[..], &vec![7; len]].concat();
                    let span = choices.below(300);
                    let expiry = choices.chance(60).then(|| engine.time().0 + span);
                    let until = expiry.map_or(Expiry::Never, |at| Expiry::At(Moment(at)));
                    put(&mut machine, &engine, &key, &value, until);
                    // What expires at once is a delete.
                    match expiry {
                        Some(_) if span == 0 => drop(model.remove(&key)),
                        expiry => drop(model.insert(key, (value, expiry))),
                    }
                }
                45..75 => {
                    // Where the logs have no room for it, time stands still.
                    let until = model.get(&key).and_then(|(_, expiry)| *expiry);
                    let mut found = get(&engine, &key);
                    while found.is_some() && until.is_some_and(|until| until <= wall.get()) {
                        machine.step(&engine);
                        found = get(&engine, &key);
                    }
                    check(&mut model, &key, found, wall.get(), highest);
                }
                75..80 => {
                    let mut snapshot = engine.snapshot();
                    let mut all: BTreeMap<_, _> = scan(&*snapshot).into_iter().collect();
                    while snapshot.shows_overdue() {
                        machine.step(&engine);
                        snapshot = engine.snapshot();
                        all = scan(&*snapshot).into_iter().collect();
                    }
                    for key in (0..60).map(|key| format!("k{key}").into_bytes()) {
                        let found = all.get(&key).cloned();
                        check(&mut model, &key, found, wall.get(), highest);
                    }
                }
                80..88 => wall.set(wall.get() + choices.below(100)),
                88 => wall.set(wall.get().saturating_sub(choices.below(500))),
                89 => {
                    match choices.chance(50) {
                        true => machine.kill(engine),
                        false => machine.close(engine),
                    }
                    wall.set((wall.get() + choices.below(200)).saturating_sub(100));
                    engine = open(&mut machine, &wall);
                }
                90 => settle(&mut machine, &engine),
                _ => drop(machine.step(&engine)),
            }
            highest = highest.max(wall.get());
        }
    }
}
