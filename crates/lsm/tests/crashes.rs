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
//!
//! Writes that land at the wrong place are tried one by one, too: what is read, before and after the end of
//! the process, is right, or an error that names the damage.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::judge::{Verdict, judge, problems};
use crate::common::watched::fork;
use crate::common::{Machine, random_settings, tiny, tiny_whole};
use argosy_base::{AddressMode, DeviceSegment, Direction, KeyRange, Lsn, Remedy, SEGMENT_SIZE};
use argosy_device::{Crash, OpKind};
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{EngineError, Store, WriteBatch, WriteOptions};
use argosy_lsm::db::Stats;
use argosy_lsm::names::logs::{LOGS, log_name};
use argosy_lsm::{Lsm, Placement, Settings};

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
    assert!(try_write(engine, choices, history, "a write"));
}

/// As [`write`]; false where the write met damage, or the engine had.
fn try_write(engine: &Lsm, choices: &mut Choices, history: &mut History, what: &str) -> bool {
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
            history.batches.push((first, written.wait.lsn(), ops));
            history.last = written.wait.lsn();
        }
        Err(EngineError::Busy(_)) => {}
        Err(EngineError::Closed(_)) => return false,
        Err(error) => {
            assert_eq!(error.remedy(), Remedy::Repair, "{what} failed: {error}");
            return false;
        }
    }
    true
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
    for number in 0.. {
        if history.batches.len() == writes {
            break;
        }
        assert!(number < 20 * writes, "there is hardly any room");
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
    assert!(
        stats.work.flushes > 0,
        "the history is long enough: {stats:?}"
    );
    let taken = history.batches.len();
    assert!(
        4 * taken >= 3 * writes,
        "there was room for {taken} of {writes} writes"
    );
    stats
}

#[test]
fn crashes_at_every_few_requests() {
    let machine = Machine::new(tiny(), SEGMENTS, 1);
    run(machine, 1500, 3, 1);
}

#[test]
fn crashes_while_levels_are_compacted_whole() {
    let settings = tiny_whole().with(|of| of.memtables.bytes = 16 << 10);
    let machine = Machine::new(settings, SEGMENTS, 2);
    run(machine, 1500, 5, 2);
}

#[test]
fn crashes_under_random_settings() {
    for seed in 10..34 {
        let settings = random_settings(&mut Choices::new(seed));
        let machine = Machine::new(settings, SEGMENTS, seed);
        run(machine, 500, 41, seed);
    }
}

/// What is overwritten is garbage-collected all the time, and most of what is written is large.
#[test]
fn crashes_while_values_move() {
    for (seed, settings) in [(3, tiny()), (4, tiny_whole())] {
        let settings = settings.with(|of| {
            of.memtables.log_bytes = 64 << 10;
            of.layout.segment_bytes = 32 << 10;
            of.layout.window_bytes = 16 << 10;
            of.values.placement = Placement::Separated;
            of.space.amplification_max = 110;
            of.space.floor_bytes = Some(256 << 10);
            of.layout.addresses = AddressMode::ALL[usize::from(seed == 4)];
        });
        let machine = Machine::new(settings, SEGMENTS, seed);
        let stats = run(machine, 1500, 5, seed);
        assert!(stats.gc.moved > 50, "{stats:#?}");
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
        let mut failed = 0;
        for count in 0..30 {
            for crash in [Crash::Kill, Crash::PowerLoss] {
                let mut copy = fork(&machine, &engine, crash, count);
                copy.device.fail_after(op, count);
                let what = format!("opening fails at {op} {count} after {crash:?}");
                let history = history.clone();
                match copy.try_open() {
                    Ok(engine) => {
                        // It needed no more requests than these.
                        copy.device.fail_after(op, u64::MAX);
                        compare(&engine, &history, crash, &what);
                        drop(engine);
                    }
                    Err(_) => {
                        failed += 1;
                        copy.store = None;
                        copy.device = Arc::new(copy.device.crash(Crash::Kill));
                        copy.windows = copy.windows.restart();
                        survive(copy, history, crash, &what);
                    }
                }
            }
        }
        assert!(failed >= 4, "opening failed {failed} times by a {op}");
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
        batch.put(b"k", [1; 3000]).unwrap();
        let first = engine.last_lsn().next();
        if let Ok(written) = engine.write(&batch, WriteOptions::default()) {
            let ops = vec![(b"k".to_vec(), Some(vec![1; 3000]))];
            history.batches.push((first, written.wait.lsn(), ops));
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

/// What was damaged by a write that landed elsewhere.
#[derive(Debug, Default)]
struct Hit {
    /// By what should have been written, and by what was written over: how often.
    missing: BTreeMap<String, u32>,
    over: BTreeMap<String, u32>,
    right: u32,
    told: u32,
    refused: u32,
    /// Histories that ended early, since a merge met the damage.
    noticed: u32,
}

/// What lies in the segment of byte `at`, for an engine that knows it all.
fn owner(machine: &Machine, engine: &Lsm, at: u64) -> String {
    let place = DeviceSegment(u32::try_from(at / SEGMENT_SIZE as u64).unwrap());
    let regions = machine.store.as_ref().unwrap().regions();
    let version = engine.version();
    let logs = LOGS.into_iter().flat_map(|log| version.log(log));
    let mut logs = logs.filter(|entry| entry.stored.place() == place);
    let mut finished = version.finished();
    let finished = finished.find(|entry| entry.stored.place() == place);
    if place.0 == 0 {
        "superblocks and catalog".to_owned()
    } else if regions.iter().any(|entry| entry.manifest.contains(&place)) {
        "manifest".to_owned()
    } else if let Some(entry) = logs.next() {
        log_name(entry.segment.log).to_owned()
    } else if let Some(entry) = finished {
        format!("{:?}", entry.segment.form)
    } else {
        "nothing that is named".to_owned()
    }
}

/// How a history ends in which a write has landed elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    PowerLoss,
    /// The windows survive, and with them what had not to be written yet.
    Kill,
}

/// Runs a history in which one write lands `by` bytes beside its place.
fn misdirect(settings: &Settings, count: u64, by: i64, end: End, hit: &mut Hit) {
    let what = format!("write {count} lands {by} beside, {end:?}");
    let mut machine = Machine::new(settings.clone(), 256, count);
    let mut choices = Choices::new(count);
    let mut history = History::default();
    let engine = machine.open();
    machine.device.misdirect_after(count, by);
    let (mut durable, mut whole) = (vec![Lsn(0)], true);
    for _ in 0..350 {
        if !try_write(&engine, &mut choices, &mut history, &what) {
            whole = false;
            break;
        }
        if choices.chance(10) {
            engine.flush_now();
        }
        for _ in 0..choices.below(10) {
            machine.device.run_one();
        }
        if let Err(error) = machine.try_step(&engine) {
            assert_eq!(error.remedy(), Remedy::Repair, "{what}: {error}");
            whole = false;
            break;
        }
        if engine.durable_lsn() > durable[durable.len() - 1] {
            durable.push(engine.durable_lsn());
        }
    }
    history.last = engine.last_lsn();
    for (key, value) in history.pairs(history.last).iter().step_by(5) {
        match engine.get(key) {
            Ok(found) => assert!(found.value.as_ref() == Some(value), "{what}: {key:?}"),
            Err(error) => assert_eq!(error.remedy(), Remedy::Repair, "{what}: {error}"),
        }
    }
    hit.noticed += u32::from(!whole);
    let clean = end == End::Close && whole && engine.close().is_ok();
    if let Some(misdirected) = machine.device.misdirected() {
        let missing = owner(&machine, &engine, misdirected.at);
        let over = owner(&machine, &engine, misdirected.landed);
        *hit.missing.entry(missing).or_default() += 1;
        *hit.over.entry(over).or_default() += 1;
    }
    let crash = match end {
        End::Kill => Crash::Kill,
        End::Close | End::PowerLoss => Crash::PowerLoss,
    };
    machine.end(engine, crash);
    // What a flush makes durable is told by the flushes after it.
    let least = match clean || end == End::Kill {
        true => history.last,
        false => durable[durable.len().saturating_sub(4)],
    };
    let found = problems(&machine.device, settings);
    let expected = |lsn: Lsn| {
        assert!(lsn >= least, "{what}: {lsn} is there, of {least}");
        history.pairs(lsn)
    };
    let Machine {
        device, windows, ..
    } = &machine;
    match judge(device, windows, settings, &expected, &what) {
        Verdict::Right => hit.right += 1,
        Verdict::Told(_, error) => {
            assert!(!found.is_empty(), "{what}: verify finds nothing of {error}");
            hit.told += 1;
        }
        Verdict::Refused(error) => {
            assert!(!found.is_empty(), "{what}: verify finds nothing of {error}");
            hit.refused += 1;
        }
    }
}

#[test]
fn a_write_that_lands_elsewhere_is_never_a_wrong_answer() {
    let segment = SEGMENT_SIZE as i64;
    let mut hit = Hit::default();
    for settings in [tiny(), tiny_whole()] {
        let settings = settings.with(|of| {
            of.memtables.bytes = 8 << 10;
            of.layout.segment_bytes = 32 << 10;
            of.values.small_bytes = 60;
            of.values.medium_levels_min = 1;
            of.values.medium_log_percent = 400;
            of.space.floor_bytes = Some(1 << 30);
            of.cache_bytes = 0;
        });
        for count in 0..100 {
            for (number, by) in [4096, -4096, segment, -segment, 5 * segment]
                .into_iter()
                .enumerate()
            {
                let end = [End::Close, End::PowerLoss, End::Kill];
                let end = end[usize::try_from((count + number as u64) % 3).unwrap()];
                let count = count * 3 + number as u64 % 3;
                misdirect(&settings, count, by, end, &mut hit);
            }
        }
    }
    let kinds = [
        "superblocks and catalog",
        "manifest",
        "recovery log",
        "large log",
        "SelfContained",
        "Leaves",
        "Index(1)",
        "Medium",
    ];
    for kind in kinds {
        assert!(hit.missing.contains_key(kind), "{kind}: {hit:#?}");
    }
    assert!(
        hit.told > 50 && hit.refused > 20 && hit.noticed > 50,
        "{hit:#?}"
    );
}
