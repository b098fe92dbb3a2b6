//! Crashes at every few requests of the device, compared with a model of what was written.
//!
//! A history runs on a machine; at many moments the machine is *forked*: a copy of its device and
//! windows, as a kill or a power loss leaves them, is opened, compared, written to, crashed again
//! and compared again, while the original goes on. What must hold:
//!
//! - after a kill, everything that was written is there (I7);
//! - after a power loss, a prefix of the history is there, whole batches, no shorter than what was
//!   durable (I7);
//! - the region is on one side of every edit: no segment of the device is in use that nothing names,
//!   and none is missing (I3).

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{AddressMode, Direction, KeyRange, Lsn};
use argosy_device::{AnonymousWindows, Crash, OpKind, WindowStore};
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{Engine, EngineError, WriteBatch, WriteOptions};
use argosy_lsm::db::Stats;
use argosy_lsm::db::promote::window_name;
use argosy_lsm::{Lsm, Placement, Settings};
use common::{Machine, REGION, random_settings, tiny, tiny_whole};

const SEGMENTS: u64 = 2048;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a batch did: puts, and deletes without a value, those of a range one by one.
type Ops = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Everything that was written, in order: the first and last LSN of each batch, and what it did. What
/// garbage collection moves has LSNs in between.
#[derive(Clone, Debug, Default)]
struct History {
    batches: Vec<(Lsn, Lsn, Ops)>,
    /// The last LSN of all, as far as was looked.
    last: Lsn,
    /// Everything up to here was seen to be durable.
    durable: Lsn,
}

impl History {
    /// The pairs after the batches up to `lsn`, which must not be inside one.
    fn pairs(&self, lsn: Lsn) -> Pairs {
        let inside = |(first, last, _): &(Lsn, Lsn, Ops)| *first <= lsn && lsn < *last;
        assert!(!self.batches.iter().any(inside), "{lsn} is inside a batch");
        let mut pairs = Pairs::new();
        for (key, value) in self
            .batches
            .iter()
            .filter(|(_, last, _)| *last <= lsn)
            .flat_map(|(_, _, ops)| ops)
        {
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
        }
        pairs
    }

    /// Forgets what came after `lsn`.
    fn cut(&mut self, lsn: Lsn) {
        self.batches.retain(|(_, last, _)| *last <= lsn);
        self.last = lsn;
    }
}

/// Writes one random batch, if there is room.
fn write(engine: &Lsm, choices: &mut Choices, history: &mut History) {
    let mut batch = WriteBatch::new();
    let mut ops = Vec::new();
    let pairs = if choices.chance(20) {
        1 + choices.below(6)
    } else {
        1
    };
    for _ in 0..pairs {
        let key = format!("key{:03}", choices.below(300)).into_bytes();
        if choices.chance(20) {
            batch.delete(&key).unwrap();
            ops.push((key, None));
            continue;
        }
        if choices.chance(4) {
            let (first, count) = (choices.below(300), choices.below(40));
            let name = |number: u64| format!("key{number:03}").into_bytes();
            let range = KeyRange::new(name(first), Some(name(first + count)));
            batch.delete_range(&range).unwrap();
            ops.extend((first..first + count).map(|number| (name(number), None)));
            continue;
        }
        let len = match choices.below(20) {
            0 => 20_000,
            1..=3 => 2000,
            4..=6 => 300,
            _ => 20,
        };
        let mut value = vec![0; usize::try_from(choices.below(len)).unwrap()];
        value
            .iter_mut()
            .for_each(|byte| *byte = choices.bits().to_le_bytes()[0]);
        batch.put(&key, &value).unwrap();
        ops.push((key, Some(value)));
    }
    let first = engine.last_lsn().next();
    match engine.write(&batch, WriteOptions::default()) {
        Ok(written) => {
            history.batches.push((first, written.lsn, ops));
            history.last = written.lsn;
        }
        Err(EngineError::Busy(_)) => {}
        Err(error) => panic!("a write failed: {error}"),
    }
}

/// What is there must be what was written, up to the engine's last LSN.
fn compare(engine: &Lsm, history: &History, crash: Crash, what: &str) -> Lsn {
    let lsn = engine.last_lsn();
    match crash {
        Crash::Kill => assert_eq!(lsn, history.last, "{what}: a kill loses nothing"),
        Crash::PowerLoss => {
            assert!(lsn >= history.durable, "{what}: what was durable stays");
            assert!(lsn <= history.last, "{what}: nothing is invented");
        }
    }
    let expected = history.pairs(lsn);
    let snapshot = engine.snapshot();
    let mut scan = snapshot
        .scan(&KeyRange::all(), Direction::Up)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut left = expected.iter();
    while let Some((key, value)) = scan.next().unwrap_or_else(|e| panic!("{what}: {e}")) {
        let (k, v) = left
            .next()
            .unwrap_or_else(|| panic!("{what}: {key:?} is too much"));
        assert!(
            *k == key && *v == value,
            "{what}, {lsn}: found {key:?}, expected {k:?}"
        );
    }
    assert_eq!(left.next().map(|(k, _)| k), None, "{what}: missing");
    for (key, value) in expected.iter().step_by(7) {
        let found = engine.get(key).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(found.value.as_ref() == Some(value), "{what}: get {key:?}");
    }
    lsn
}

/// A copy of the machine as `crash` would leave it now.
fn fork(machine: &Machine, engine: &Lsm, crash: Crash, seed: u64) -> Machine {
    let mut copy = Machine {
        device: Arc::new(machine.device.crash_clone(crash, seed)),
        windows: AnonymousWindows::new(),
        settings: machine.settings.clone(),
        store: None,
        choices: Choices::new(seed),
        now: 0,
    };
    if crash == Crash::Kill {
        for windows in engine.windows() {
            for slot in 0..machine.settings.window_slots {
                let name = window_name(REGION, windows.log(), slot);
                let memory = windows.memory(slot);
                let same = copy.windows.create(name, memory.len()).unwrap();
                same.write(0, &memory.read_vec(0, memory.len()));
            }
        }
        copy.windows = copy.windows.restart();
    }
    copy
}

/// Opens a forked machine, compares, goes on, and crashes it once more.
fn survive(mut machine: Machine, mut history: History, crash: Crash, what: &str) {
    let engine = machine
        .try_open()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let lsn = compare(&engine, &history, crash, what);
    machine.assert_no_leak(&engine);
    history.cut(lsn);
    // Opening made everything durable that it found.
    history.durable = lsn;
    let mut choices = Choices::new(lsn.get());
    for _ in 0..40 {
        write(&engine, &mut choices, &mut history);
        if choices.chance(50) {
            machine.step(&engine);
        }
    }
    history.last = engine.last_lsn();
    let again = [Crash::Kill, Crash::PowerLoss][usize::try_from(choices.below(2)).unwrap()];
    machine.end(engine, again);
    let what = format!("{what}, then {again:?}");
    let engine = machine
        .try_open()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    compare(&engine, &history, again, &what);
    machine.assert_no_leak(&engine);
}

/// Runs a history of `writes`, with a fork at every `every`th request of the device.
fn run(mut machine: Machine, writes: usize, every: u64, seed: u64) -> Stats {
    let mut choices = Choices::new(seed);
    let mut history = History::default();
    let engine = machine.open();
    let mut requests = 0;
    let mut asked = None;
    for number in 0..writes {
        write(&engine, &mut choices, &mut history);
        if choices.chance(3) {
            engine.flush_now();
            asked.get_or_insert(history.last);
        }
        for _ in 0..choices.below(4) {
            if machine.device.run_one() {
                requests += 1;
                if requests % every == 0 {
                    let crash = [Crash::Kill, Crash::PowerLoss][(requests / every % 2) as usize];
                    let what =
                        format!("seed {seed}, write {number}, request {requests}, {crash:?}");
                    history.last = engine.last_lsn();
                    survive(
                        fork(&machine, &engine, crash, requests),
                        history.clone(),
                        crash,
                        &what,
                    );
                }
            }
            machine.tick(&engine);
        }
        if let Some(lsn) = asked
            && engine.durable_lsn() >= lsn
        {
            history.durable = engine.durable_lsn();
            asked = None;
        }
    }
    let stats = engine.stats();
    assert!(stats.flushes > 0, "the history is long enough: {stats:?}");
    stats
}

#[test]
fn crashes_at_every_few_requests() {
    let machine = Machine::new(tiny(), SEGMENTS, 1);
    run(machine, 1500, 3, 1);
}

#[test]
fn crashes_while_levels_are_compacted_whole() {
    let settings = Settings {
        l0_bytes: 16 << 10,
        ..tiny_whole()
    };
    let machine = Machine::new(settings, SEGMENTS, 2);
    run(machine, 1500, 5, 2);
}

#[test]
fn crashes_under_random_settings() {
    for seed in 10..34 {
        let settings = random_settings(&mut Choices::new(seed));
        let machine = Machine::new(settings, SEGMENTS, seed);
        run(machine, 500, 11, seed);
    }
}

/// What is overwritten is collected all the time, and most of what is written is large.
#[test]
fn crashes_while_values_move() {
    for (seed, settings) in [(3, tiny()), (4, tiny_whole())] {
        let settings = Settings {
            l0_log_bytes: 64 << 10,
            segment_bytes: 32 << 10,
            window_bytes: 16 << 10,
            placement: Placement::Separated,
            max_space_amplification: 110,
            space_floor_bytes: Some(256 << 10),
            addresses: AddressMode::ALL[usize::from(seed == 4)],
            ..settings
        };
        let machine = Machine::new(settings, SEGMENTS, seed);
        let stats = run(machine, 1500, 5, seed);
        assert!(stats.gc_moved > 50, "{stats:#?}");
    }
}

/// Opening fails at any request, and the machine crashes then: the next opening succeeds.
#[test]
fn a_crash_while_opening_is_survived() {
    let mut machine = Machine::new(tiny(), SEGMENTS, 5);
    let mut choices = Choices::new(5);
    let mut history = History::default();
    let engine = machine.open();
    for _ in 0..400 {
        write(&engine, &mut choices, &mut history);
        machine.step(&engine);
    }
    history.last = engine.last_lsn();
    for op in [OpKind::Write, OpKind::Sync, OpKind::Read] {
        for count in 0..30 {
            for crash in [Crash::Kill, Crash::PowerLoss] {
                let mut copy = fork(&machine, &engine, crash, count);
                copy.device.fail_after(op, count);
                let what = format!("opening fails at {op} {count} after {crash:?}");
                let history = history.clone();
                match copy.try_open() {
                    Ok(engine) => {
                        compare(&engine, &history, crash, &what);
                        drop(engine);
                    }
                    Err(_) => {
                        copy.store = None;
                        copy.device = Arc::new(copy.device.crash(Crash::Kill));
                        copy.windows = copy.windows.restart();
                        survive(copy, history, crash, &what);
                    }
                }
            }
        }
    }
}

/// A device error closes the engine to writes; reads go on, and a reopened engine has everything.
#[test]
fn an_error_closes_the_engine_to_writes() {
    let mut machine = Machine::new(tiny(), SEGMENTS, 6);
    let mut choices = Choices::new(6);
    let mut history = History::default();
    let engine = machine.open();
    for _ in 0..200 {
        write(&engine, &mut choices, &mut history);
        machine.step(&engine);
    }
    machine.device.fail_after(OpKind::Write, 3);
    let mut failed = false;
    for _ in 0..5000 {
        machine.device.run_all();
        if machine.try_step(&engine).is_err() {
            failed = true;
            break;
        }
        let mut batch = WriteBatch::new();
        batch.put(b"k", &[1; 3000]).unwrap();
        let first = engine.last_lsn().next();
        if let Ok(written) = engine.write(&batch, WriteOptions::default()) {
            let ops = vec![(b"k".to_vec(), Some(vec![1; 3000]))];
            history.batches.push((first, written.lsn, ops));
        }
    }
    assert!(failed, "the failed write was noticed");
    let mut batch = WriteBatch::new();
    batch.put(b"late", b"1").unwrap();
    let refused = engine.write(&batch, WriteOptions::default()).unwrap_err();
    assert!(matches!(refused, EngineError::Closed(_)), "{refused}");
    history.last = engine.last_lsn();
    compare(&engine, &history, Crash::Kill, "after the error");
    machine.end(engine, Crash::Kill);
    let engine = machine.open();
    compare(&engine, &history, Crash::Kill, "reopened");
}
