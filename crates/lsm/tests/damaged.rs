//! Bits that flip, in every kind of block that docs/formats.md knows: whoever reads gets what was written,
//! or an error that names the damage, and `inspect verify` finds it.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::blocks::{Blocks, CATALOG, KINDS, OLD_HEADER, SUPERBLOCK, WITNESS, blocks};
use crate::common::judge::{Pairs, Verdict, judge, problems};
use crate::common::{Machine, REGION, mixed, tiny, tiny_whole};
use argosy_base::{AddressMode, Instant, Moment};
use argosy_device::{Crash, Device, MemoryDevice, Store, StoreSettings};
use argosy_engine::Store as _;
use argosy_engine::conformance::{Choices, Host};
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::pins::Pins;
use argosy_lsm::{Lsm, Settings};
use argosy_memory::AnonymousWindows;

/// Bits that are flipped in blocks of each kind.
const FLIPS: u64 = 8;

/// A device with levels, logs with something in them, and a pin; and what was written to it.
struct Loaded {
    device: Arc<MemoryDevice>,
    settings: Settings,
    model: Pairs,
    blocks: Blocks,
}

fn write(machine: &mut Machine, engine: &Lsm, model: &mut Pairs, numbers: std::ops::Range<u64>) {
    for number in numbers {
        machine.write_mixed(engine, model, number);
    }
}

fn loaded(settings: Settings, seed: u64) -> Loaded {
    let settings = mixed(settings).with(|of| of.cache_bytes = 0);
    let mut machine = Machine::new(settings.clone(), 512, seed);
    let device: Arc<dyn Device> = machine.device.clone();
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    let pins = Pins::open(&store, REGION, &settings).unwrap();
    let engine = Lsm::open(&store, REGION, &machine.windows, &settings, None).unwrap();
    machine.store = Some(Arc::clone(&store));
    let mut model = Pairs::new();
    write(&mut machine, &engine, &mut model, 0..1200);
    let last = engine.last_lsn();
    let version = loop {
        match engine.version_with(last) {
            Some(version) => break version,
            None => machine.step(&engine),
        };
    };
    pins.add("kept", &version, Moment(0)).unwrap();
    drop(version);
    write(&mut machine, &engine, &mut model, 1200..2500);
    // The manifest is to end with an edit without which something is missing.
    let (stats, mut next) = (engine.stats(), 2500);
    while engine.stats().work.flushes == stats.work.flushes {
        write(&mut machine, &engine, &mut model, next..next + 1);
        next += 1;
    }
    let made = engine.stats().levels;
    while engine.stats().levels == made {
        machine.step(&engine);
    }
    // And what that edit freed is gone, as after a second without a write.
    for now in [0, 2_000_000_000].map(Instant::from_nanos) {
        while store.give_back_freed(now) {}
    }
    engine.close().unwrap();
    drop((pins, store));
    machine.end(engine, Crash::PowerLoss);
    let blocks = blocks(&machine.device, &settings);
    Loaded {
        device: machine.device,
        settings,
        model,
        blocks,
    }
}

impl Loaded {
    fn copy(&self) -> Arc<MemoryDevice> {
        Arc::new(self.device.crash_clone(Crash::Kill, 1))
    }

    fn judge(&self, device: &Arc<MemoryDevice>, what: &str) -> Verdict {
        judge(
            device,
            &AnonymousWindows::new(),
            &self.settings,
            &|_| self.model.clone(),
            what,
        )
    }
}

/// How often what became of it.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    hit: u64,
    /// Every answer was right.
    right: u64,
    /// Some were errors.
    told: u64,
    /// The device was not opened.
    refused: u64,
}

fn worlds() -> impl Iterator<Item = (u64, Settings)> {
    let modes = AddressMode::ALL.into_iter().enumerate();
    modes.flat_map(|(at, addresses)| {
        let seed = 2 * at as u64;
        [(seed, tiny()), (seed + 1, tiny_whole())].map(|(seed, settings)| {
            let settings = settings.with(|of| of.layout.addresses = addresses);
            (seed, settings)
        })
    })
}

#[test]
fn a_whole_device_answers_everything() {
    for (seed, settings) in worlds() {
        let loaded = loaded(settings, seed);
        assert_eq!(problems(&loaded.device, &loaded.settings), [""; 0]);
        let verdict = loaded.judge(&loaded.copy(), "whole");
        assert!(matches!(verdict, Verdict::Right), "{verdict:?}");
    }
}

/// And every kind is hit.
#[test]
fn a_flipped_bit_in_any_kind_of_block_is_never_a_wrong_answer() {
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    for (seed, settings) in worlds() {
        let loaded = loaded(settings, seed);
        let mut choices = Choices::new(seed);
        for (kind, places) in &loaded.blocks {
            for _ in 0..FLIPS {
                let place = choices.below(places.len() as u64);
                let place = &places[usize::try_from(place).unwrap()];
                let at = place.start + choices.below(place.end - place.start);
                let bit = u32::try_from(choices.below(8)).unwrap();
                let hurt = loaded.copy();
                hurt.flip_bit(at, bit);
                let what = format!("seed {seed}, {kind}, bit {bit} of byte {at} of {place:?}");
                let found = problems(&hurt, &loaded.settings);
                assert!(!found.is_empty(), "{what}: verify finds nothing");
                let count = counts.entry(kind).or_default();
                count.hit += 1;
                match loaded.judge(&hurt, &what) {
                    Verdict::Right => count.right += 1,
                    Verdict::Told(..) => count.told += 1,
                    Verdict::Refused(_) => count.refused += 1,
                }
            }
        }
    }
    let hit: BTreeSet<&str> = counts.keys().copied().collect();
    assert_eq!(hit, BTreeSet::from(KINDS));
    for (kind, counts) in &counts {
        assert_eq!(counts.hit, counts.right + counts.told + counts.refused);
        // What there are two copies of, what only `verify` reads, and what has nothing but one thing to say.
        let spared = [
            SUPERBLOCK,
            CATALOG,
            WITNESS,
            OLD_HEADER,
            "footer of a medium segment",
        ]
        .contains(kind);
        assert!(spared == (counts.right == counts.hit), "{kind}: {counts:?}");
    }
}

/// Levels point into a log that goes on: it may not be cut in front of what they need.
#[test]
fn no_log_is_cut_in_front_of_what_the_levels_point_to() {
    for (seed, settings) in worlds() {
        let cut = find_cut(seed, loaded(settings, seed + 20));
        assert_eq!(cut, None, "seed {seed}");
    }
}

#[test]
fn a_log_that_is_cut_in_front_of_it_is_found() {
    let cuts = worlds().filter_map(|(seed, mut settings)| {
        settings.mutants.forget_points = true;
        find_cut(seed, loaded(settings, seed + 20))
    });
    assert!(cuts.count() > 0);
}

#[test]
fn pointers_to_what_no_edit_declares_durable_are_found() {
    let found = worlds().flat_map(|(seed, mut settings)| {
        settings.mutants.forget_unsealed = true;
        let loaded = loaded(settings, seed);
        problems(&loaded.device, &loaded.settings)
    });
    let wanted = "edits declare durable only what lies in front of byte";
    assert!(found.filter(|problem| problem.contains(wanted)).count() > 0);
}

/// Flips bits of what is known to be durable of logs that are not sealed. Returns what was opened although keys of
/// levels are lost, if anything was.
fn find_cut(seed: u64, loaded: Loaded) -> Option<String> {
    let device: Arc<dyn Device> = loaded.device.clone();
    let store = Store::open_read_only(device).unwrap();
    let mut entries = store.regions().into_iter();
    let entry = entries.find(|entry| entry.region == REGION).unwrap();
    let region = InspectedRegion::read(&store, &entry, &loaded.settings);
    let version = region.version.unwrap();
    let mut refused = 0;
    for point in version.log_points() {
        let place = version.stored(point.number).unwrap().place();
        for at in (64..point.to).step_by(997) {
            let copy = loaded.copy();
            copy.flip_bit(place.start() + u64::from(at), 3);
            let what = format!("seed {seed}: byte {at} of {}", point.number);
            match loaded.judge(&copy, &what) {
                Verdict::Refused(_) => refused += 1,
                Verdict::Right => {}
                Verdict::Told(keys, first) => {
                    return Some(format!("{what}: {keys} keys are lost: {first}"));
                }
            }
        }
    }
    assert!(refused > 0, "seed {seed}: nothing was hit");
    None
}
