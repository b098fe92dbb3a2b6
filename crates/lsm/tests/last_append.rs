//! The last append of the manifest, damaged: it is never taken for a torn one once anything depends on it.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::common::blocks::{LAST_EDITS, WITNESS, blocks, bytes_at};
use crate::common::judge::{Pairs, Verdict, errors, judge, problems};
use crate::common::watched::fork;
use crate::common::{Machine, REGION, tiny};
use argosy_base::{DeviceSegment, Lsn};
use argosy_device::{Crash, Device, MemoryDevice, Store, StoreSettings};
use argosy_engine::conformance::Host;
use argosy_engine::{Store as _, WriteBatch, WriteOptions};
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::{Lsm, Mutants, Settings};
use argosy_memory::AnonymousWindows;

/// Sector that a device writes whole.
const SECTOR: u64 = 512;

/// What may have become of some bytes of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Flip,
    Zero,
}

fn settings(forget_witness: bool) -> Settings {
    tiny().with(|of| {
        of.mutants = Mutants {
            forget_witness,
            ..Mutants::default()
        };
        of.memtables.bytes = 16 << 10;
        of.cache_bytes = 0;
    })
}

fn put(machine: &mut Machine, engine: &Lsm, model: &mut Pairs, number: u64) {
    let key = format!("key {:04}", number * 7919 % 2000).into_bytes();
    let value = format!("value {number}").repeat(5).into_bytes();
    let mut batch = WriteBatch::new();
    batch.put(&key, &value).unwrap();
    while engine.write(&batch, WriteOptions::default()).is_err() {
        machine.step(engine);
    }
    model.insert(key, value);
    machine.step(engine);
}

/// Overwrites what the engine has given away in a copy of its device.
fn overwrite_free(machine: &Machine, device: &MemoryDevice) {
    let store = machine.store.as_ref().unwrap();
    let junk = vec![0xee; machine.settings.layout.segment_bytes];
    for segment in (1..store.total()).map(DeviceSegment) {
        if store.references(segment) == 0 {
            device.poke(segment.start(), &junk);
        }
    }
}

/// A device whose last edit is that of a compaction, with segments written since, which may lie where its inputs did.
fn compacted(settings: &Settings) -> (Arc<MemoryDevice>, Pairs) {
    let mut machine = Machine::new(settings.clone(), 256, 5);
    let engine = machine.open();
    let mut model = Pairs::new();
    let mut next = 0;
    loop {
        for number in next..next + 2500 {
            put(&mut machine, &engine, &mut model, number);
        }
        next += 2500;
        engine.compact_now();
        while engine.is_compacting() || engine.background_pending() > 0 {
            machine.step(&engine);
        }
        engine.flush_and_mark();
        while engine.marked_lsn() < engine.last_lsn() {
            machine.step(&engine);
        }
        while machine.device.run_one() {}
        // The last append may have been a checkpoint, damage to which is no torn tail.
        let device = Arc::new(machine.device.crash_clone(Crash::Kill, 1));
        if blocks(&device, settings).contains_key(LAST_EDITS) {
            break;
        }
    }
    overwrite_free(&machine, &machine.device);
    machine.end(engine, Crash::PowerLoss);
    (machine.device, model)
}

/// Bytes of `range` class by class: each field of a fragment's header, payload, and each sector.
fn classes(range: &Range<u64>) -> Vec<Range<u64>> {
    let fields = [0, 4, 6, 7, 8, 16, 20, 24, 28, 32];
    let fields = fields
        .windows(2)
        .map(|field| range.start + field[0]..range.start + field[1]);
    let sectors = (range.start..range.end).step_by(usize::try_from(SECTOR).unwrap());
    let sectors = sectors.map(|from| from..(from + SECTOR).min(range.end));
    let payload = range.start + 32..range.end;
    let all = [payload, range.clone()]
        .into_iter()
        .filter(|range| !range.is_empty());
    fields.chain(sectors).chain(all).collect()
}

fn hurt(device: &MemoryDevice, at: &Range<u64>, damage: Damage) -> Option<Arc<MemoryDevice>> {
    let device = device.crash_clone(Crash::Kill, 1);
    let bytes = bytes_at(&device, at.start, at.end - at.start);
    match damage {
        Damage::Flip => device.flip_bit(at.start.midpoint(at.end), 2),
        Damage::Zero if bytes.iter().all(|byte| *byte == 0) => return None,
        Damage::Zero => {
            for (at, byte) in (at.start..).zip(bytes) {
                let set = (0..8).filter(|bit| byte & 1 << bit != 0);
                set.for_each(|bit| device.flip_bit(at, bit));
            }
        }
    }
    Some(Arc::new(device))
}

/// Tools go on from the edit before.
fn has_what_was_before(device: &Arc<MemoryDevice>, settings: &Settings, what: &str) {
    let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    let store = Store::open_read_only(device).unwrap();
    let region = InspectedRegion::read(&store, &store.regions()[0], settings);
    assert!(region.lacks_last && region.version.is_some(), "{what}");
}

#[test]
fn a_damaged_last_append_is_told_and_takes_nothing_away() {
    let settings = settings(false);
    let (device, model) = compacted(&settings);
    assert_eq!(problems(&device, &settings), [""; 0]);
    let blocks = blocks(&device, &settings);
    let (mut refused, mut right) = (0, 0);
    for (kind, ranges) in [LAST_EDITS, WITNESS].map(|kind| (kind, &blocks[kind])) {
        for class in ranges.iter().flat_map(classes) {
            for damage in [Damage::Flip, Damage::Zero] {
                let Some(device) = hurt(&device, &class, damage) else {
                    continue;
                };
                let what = format!("{kind}, {damage:?} {class:?}");
                let found = !problems(&device, &settings).is_empty();
                // A block of zeros is a witness that has not been written yet.
                let unwritten =
                    kind == WITNESS && ranges.contains(&class) && damage == Damage::Zero;
                assert_eq!(found, !unwritten, "{what}");
                if kind == LAST_EDITS {
                    has_what_was_before(&device, &settings, &what);
                }
                let none = AnonymousWindows::new();
                match (
                    judge(&device, &none, &settings, &|_| model.clone(), &what),
                    kind,
                ) {
                    (Verdict::Refused(_), LAST_EDITS) => refused += 1,
                    // Nothing but what it says of the one before is lost with it.
                    (Verdict::Right, WITNESS) => right += 1,
                    (verdict, _) => panic!("{what}: {verdict:?}"),
                }
            }
        }
    }
    assert!(refused > 20 && right > 10, "{refused} {right}");
}

/// Without witnesses most of what was there is gone.
#[test]
fn a_forgotten_witness_is_found() {
    let settings = settings(true);
    let (device, model) = compacted(&settings);
    let blocks = blocks(&device, &settings);
    assert!(!blocks.contains_key(WITNESS));
    let last = blocks[LAST_EDITS].last().unwrap();
    let hurt = hurt(&device, last, Damage::Flip).unwrap();
    let mut machine = Machine::new(settings, 256, 5);
    machine.device = hurt;
    let engine = machine.open();
    let told = errors(&engine, &model, "without a witness");
    assert!(
        told.len() > model.len() / 2,
        "{} of {}",
        told.len(),
        model.len()
    );
}

/// What the last edit of a device is.
fn kind_of_last(device: &Arc<MemoryDevice>, settings: &Settings) -> &'static str {
    let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    let store = Store::open_read_only(device).unwrap();
    let region = InspectedRegion::read(&store, &store.regions()[0], settings);
    let edit = &region.edits.last().unwrap().edit;
    match edit {
        edit if edit.numbers.replay_from.is_some() => "flush",
        edit if !edit.removed.is_empty() || !edit.added.is_empty() => "compaction",
        edit if !edit.logs.added.is_empty() => "log segment",
        edit if !edit.logs.removed.is_empty() => "garbage collection",
        edit if !edit.logs.sealed.is_empty() => "seal",
        _ => "numbers",
    }
}

/// Writes go on, and now and then the power goes, a bit of the last append flips, and what the engine has given away
/// is overwritten. Tells how often that was refused and how often the engine opened, by kind of edit, and stops
/// where something durable was gone.
fn lose_power(forget_witness: bool) -> Result<BTreeMap<&'static str, (u32, u32)>, String> {
    let settings = settings(forget_witness).with(|of| of.memtables.log_bytes = 32 << 10);
    let mut machine = Machine::new(settings.clone(), 128, 9);
    let engine = machine.open();
    let mut history: Vec<(Lsn, Vec<u8>, Vec<u8>)> = Vec::new();
    let mut counts = BTreeMap::new();
    for number in 0..6000_u64 {
        let key = format!("key {:04}", number * 7919 % 500).into_bytes();
        let value = format!("value {number}").repeat([5, 30][usize::from(number % 4 == 0)]);
        let mut batch = WriteBatch::new();
        batch.put(&key, value.as_bytes()).unwrap();
        while engine.write(&batch, WriteOptions::default()).is_err() {
            machine.step(&engine);
        }
        history.push((engine.last_lsn(), key, value.into_bytes()));
        machine.step(&engine);
        if number % 2000 == 1999 {
            engine.compact_now();
        }
        if number % 16 != 0 {
            continue;
        }
        let durable = engine.marked_lsn();
        let crashed = Arc::new(machine.device.crash_clone(Crash::PowerLoss, number));
        overwrite_free(&machine, &crashed);
        let kind = kind_of_last(&crashed, &settings);
        let Some(last) = blocks(&crashed, &settings).get(LAST_EDITS).cloned() else {
            continue;
        };
        let range = &last[usize::try_from(number).unwrap() / 16 % last.len()];
        let at = range.start + number * 31 % (range.end - range.start);
        crashed.flip_bit(at, u32::try_from(number % 7).unwrap());
        let found = Cell::new(Lsn(0));
        let expected = |lsn: Lsn| {
            found.set(lsn);
            let until = history.iter().take_while(|(at, ..)| *at <= lsn);
            until
                .map(|(_, key, value)| (key.clone(), value.clone()))
                .collect()
        };
        let what = format!("{kind}, write {number}");
        let none = AnonymousWindows::new();
        let judged = catch_unwind(AssertUnwindSafe(|| {
            judge(&crashed, &none, &settings, &expected, &what)
        }));
        let count: &mut (u32, u32) = counts.entry(kind).or_default();
        match judged {
            Ok(Verdict::Refused(_)) => count.0 += 1,
            Ok(Verdict::Right) if found.get() >= durable => count.1 += 1,
            Ok(verdict) => {
                return Err(format!("{what}: {verdict:?}, {} of {durable}", found.get()));
            }
            Err(_) => return Err(format!("{what}: wrong")),
        }
    }
    Ok(counts)
}

#[test]
fn a_damaged_last_append_loses_nothing_durable_whatever_it_says() {
    let counts = lose_power(false).unwrap();
    let kinds: Vec<_> = counts.keys().copied().collect();
    for kind in ["flush", "compaction", "log segment"] {
        assert!(kinds.contains(&kind), "{counts:?}");
    }
    let all = counts
        .values()
        .fold((0, 0), |all, some| (all.0 + some.0, all.1 + some.1));
    assert!(all.0 > 50 && all.1 > 5, "{counts:?}");
}

#[test]
fn a_forgotten_witness_loses_what_was_durable() {
    assert!(lose_power(true).is_err());
}

/// Of what was bulk-loaded nothing but the manifest says that it is there.
#[test]
fn a_damaged_last_append_takes_no_bulk_loaded_part_away() {
    let settings = settings(false);
    let mut machine = Machine::new(settings.clone(), 256, 9);
    let engine = machine.open();
    while machine.step(&engine) {}
    let (mut model, mut refused) = (Pairs::new(), 0);
    for part in 0..20_u64 {
        let key = |pair| format!("part {part:02} pair {pair}").into_bytes();
        let pairs = (0..9).map(|pair| (key(pair), b"value".repeat(20)));
        let pairs: Vec<_> = pairs.collect();
        model.extend(pairs.iter().cloned());
        engine.bulk_load(pairs).unwrap();
        while engine.bulk_loads_ended().is_empty() {
            machine.step(&engine);
        }
        let crashed = Arc::new(machine.device.crash_clone(Crash::PowerLoss, part));
        overwrite_free(&machine, &crashed);
        let Some(last) = blocks(&crashed, &settings).get(LAST_EDITS).cloned() else {
            continue;
        };
        crashed.flip_bit(last[0].start + 40, 1);
        let none = AnonymousWindows::new();
        let what = format!("part {part}");
        match judge(&crashed, &none, &settings, &|_| model.clone(), &what) {
            Verdict::Refused(_) => refused += 1,
            // It was the append of a later edit.
            Verdict::Right => {}
            verdict @ Verdict::Told(..) => panic!("{what}: {verdict:?}"),
        }
    }
    assert!(refused > 10, "{refused}");
}

/// A crash between an append and its witness leaves an edit that is there: opening it makes up for the witness.
#[test]
fn an_append_that_was_found_is_witnessed_before_it_is_relied_on() {
    let settings = settings(false);
    let mut machine = Machine::new(settings.clone(), 256, 9);
    let engine = machine.open();
    let mut model = Pairs::new();
    let (mut without, mut number) = (0, 0);
    while without < 5 {
        put(&mut machine, &engine, &mut model, number);
        number += 1;
        let crashed = Arc::new(machine.device.crash_clone(Crash::Kill, number));
        let found = blocks(&crashed, &settings);
        if found.contains_key(WITNESS) || !found.contains_key(LAST_EDITS) {
            continue;
        }
        without += 1;
        let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&crashed);
        let store = Store::open(device, &StoreSettings::default());
        let store = store.unwrap();
        let entry = store.regions()[0].clone();
        let storage = argosy_lsm::Storage::open(&store, &entry, &settings).unwrap();
        let found = blocks(&crashed, &settings);
        assert!(found.contains_key(WITNESS), "{REGION}: {number}");
        drop(storage);
    }
    drop(engine);
}

/// Kills a copy, and flips a bit of its last append: it is refused, or all that was written is there. Says whether it
/// was refused; `None` where damage to its last append is always told.
fn damage_killed(machine: &Machine, engine: &Lsm, written: &Pairs) -> Result<Option<bool>, String> {
    let last = engine.last_lsn();
    let killed = fork(machine, engine, Crash::Kill, last.0);
    overwrite_free(machine, &killed.device);
    let blocks = blocks(&killed.device, &machine.settings);
    let Some(append) = blocks.get(LAST_EDITS).and_then(|appends| appends.last()) else {
        return Ok(None);
    };
    killed.device.flip_bit(append.start + 40, 1);
    let found = Cell::new(Lsn(0));
    let expected = |lsn: Lsn| {
        found.set(lsn);
        written.clone()
    };
    let what = format!("killed at {last}");
    let judged = catch_unwind(AssertUnwindSafe(|| {
        judge(
            &killed.device,
            &killed.windows,
            &machine.settings,
            &expected,
            &what,
        )
    }));
    match judged {
        Ok(Verdict::Refused(_)) => Ok(Some(true)),
        Ok(Verdict::Right) => Ok(Some(false)),
        Ok(verdict) => Err(format!("{what}: {verdict:?}")),
        Err(_) => Err(format!("{what}, found up to {}", found.get())),
    }
}

/// Writes as much as the logs take, and kills copies with a damaged last append before each request of the device
/// ends. Tells how many were refused and how many opened, and stops where something that was written was gone.
fn outrun(provide_early: bool) -> Result<(u32, u32), String> {
    let settings = settings(false).with(|of| {
        of.mutants = Mutants {
            provide_early,
            ..Mutants::default()
        };
        of.layout.segment_bytes = 32 << 10;
        of.layout.window_slots = 4;
    });
    let mut machine = Machine::new(settings, 256, 9);
    let engine = machine.open();
    let (mut refused, mut opened) = (0, 0);
    let mut written = Pairs::new();
    while written.len() < 600 {
        let number = written.len();
        let key = format!("key {:04}", number * 7919 % 1000).into_bytes();
        let value = format!("value {number}").repeat(60).into_bytes();
        let mut batch = WriteBatch::new();
        batch.put(&key, &value).unwrap();
        if engine.write(&batch, WriteOptions::default()).is_ok() {
            written.insert(key, value);
            continue;
        }
        machine.tick(&engine);
        if machine.device.in_flight() > 0 {
            match damage_killed(&machine, &engine, &written)? {
                Some(true) => refused += 1,
                Some(false) => opened += 1,
                None => {}
            }
            machine.device.run_one();
        }
    }
    Ok((refused, opened))
}

/// Before its edit has a witness, no log goes on in a segment.
#[test]
fn a_damaged_last_append_takes_no_log_segment_away_that_was_written() {
    let (refused, opened) = outrun(false).unwrap();
    assert!(refused > 30 && opened > 50, "{refused} {opened}");
}

#[test]
fn a_log_that_goes_on_early_loses_what_was_written() {
    let wrong = outrun(true).expect_err("a damaged append shows it");
    assert!(wrong.contains("found up to"), "{wrong}");
}
