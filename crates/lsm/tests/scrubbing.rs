//! What lies on a device and is damaged is found by a pass that reads everything, with the keys that it
//! concerns; and everything else can be taken out of it.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{AddressMode, Instant, RegionId, SegmentNumber};
use argosy_device::{Crash, Device, MemoryDevice, Store};
use argosy_engine::conformance::Host;
use argosy_engine::{EngineError, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::inspect::salvage::{Salvage, salvage};
use argosy_lsm::inspect::{InspectedRegion, LeftWindows};
use argosy_lsm::names::logs::LOGS;
use argosy_lsm::scrub::{Damage, Pace, Pass, ScrubStats, Scrubber, next};
use argosy_lsm::stored::StoredVersion;
use argosy_lsm::{Placement, Settings, Version};

use crate::common::{Machine, mixed, tiny, tiny_whole};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A device with several levels, and what was written to it.
struct Loaded {
    device: Arc<MemoryDevice>,
    settings: Settings,
    model: Model,
    /// Every value that a key ever had.
    ever: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

fn loaded(settings: Settings, seed: u64, rounds: u64) -> Loaded {
    let settings = mixed(settings);
    let mut machine = Machine::new(settings.clone(), 256, seed);
    let engine = machine.open();
    let (mut model, mut ever) = (Model::new(), BTreeMap::<_, BTreeSet<_>>::new());
    for number in 0..rounds {
        let (key, value) = machine.write_mixed(&engine, &mut model, number);
        ever.entry(key).or_default().insert(value);
    }
    machine.close(engine);
    Loaded {
        device: machine.device,
        settings,
        model,
        ever,
    }
}

impl Loaded {
    fn copy(&self) -> Arc<MemoryDevice> {
        Arc::new(self.device.crash_clone(Crash::Kill, 1))
    }

    fn version(&self, device: &Arc<MemoryDevice>) -> Version {
        let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
        let store = Store::open_read_only(device).unwrap();
        InspectedRegion::read(&store, &store.regions()[0], &self.settings)
            .version
            .unwrap()
    }

    /// All damage that a pass finds, and how many bytes it read.
    fn scrub(&self, device: &Arc<MemoryDevice>) -> (Vec<Damage>, u64) {
        let version = self.version(device);
        let (mut pass, mut damages, mut bytes) = (Pass::new(), Vec::new(), 0);
        while let Some(scrubbed) = next(&version, self.settings.layout.log_geometry(), &mut pass) {
            bytes += scrubbed.bytes;
            damages.extend(scrubbed.damages);
        }
        (damages, bytes)
    }

    fn salvage(&self, device: &Arc<MemoryDevice>) -> (Model, Salvage) {
        let version = self.version(device);
        let mut model = Model::new();
        let found = salvage(
            &version,
            &LeftWindows::default(),
            &self.settings,
            &mut |pair| {
                if let Some(range) = pair.range {
                    model.retain(|key, _| !range.contains(key));
                    return Ok::<_, Infallible>(());
                }
                match pair.value {
                    Some((value, _)) => model.insert(pair.key.to_vec(), value.to_vec()),
                    None => model.remove(pair.key),
                };
                Ok::<_, Infallible>(())
            },
        );
        let Ok(found) = found;
        (model, found)
    }

    /// What is salvaged is what was written, but for the keys that `found` tells of: these have an earlier
    /// value, or none.
    fn assert_salvaged(&self, model: &Model, found: &Salvage, what: &str) {
        let ranges: Vec<_> = found.damages.iter().flat_map(|d| d.keys.clone()).collect();
        let of_logs = found.damages.iter().any(|d| d.part.ends_with("log"));
        let all: BTreeSet<_> = model.keys().chain(self.model.keys()).collect();
        for key in all {
            let (got, wanted) = (model.get(key), self.model.get(key));
            if got == wanted {
                continue;
            }
            let named = key.escape_ascii();
            let told = ranges.iter().any(|range| range.contains(key));
            assert!(told || of_logs, "{what}: {named} is wrong: {found:#?}");
            if let Some(value) = got {
                assert!(self.ever[key].contains(value), "{what}: {named} is made up");
            }
        }
    }
}

fn place(version: &Version, number: SegmentNumber) -> u64 {
    version.stored(number).unwrap().place().start()
}

/// Every segment that can be looked at, and how long it is.
fn segments(version: &Version) -> Vec<(SegmentNumber, u32)> {
    let finished = version.finished();
    let mut all: BTreeMap<_, _> = finished
        .map(|entry| (entry.segment.number, entry.segment.len))
        .collect();
    for log in LOGS {
        let sealed = version.log(log).iter().map(|entry| entry.segment);
        all.extend(sealed.filter_map(|s| Some((s.number, s.end.filter(|end| *end > 64)?))));
    }
    all.into_iter().collect()
}

#[test]
fn a_whole_region_is_found_whole_and_can_be_taken_out() {
    for addresses in AddressMode::ALL {
        for settings in [tiny(), tiny_whole()] {
            let loaded = loaded(
                settings.with(|of| {
                    of.layout.addresses = addresses;
                    of.values.medium_levels_min = 1;
                }),
                1,
                3000,
            );
            let version = loaded.version(&loaded.device);
            assert!(!version.medium_log().is_empty(), "{version}");
            let (damages, bytes) = loaded.scrub(&loaded.device);
            assert_eq!(damages, []);
            let all: u64 = segments(&version)
                .iter()
                .map(|(_, len)| u64::from(*len))
                .sum();
            assert!(bytes >= all, "{bytes} of {all}");
            let (model, found) = loaded.salvage(&loaded.device);
            assert_eq!(found.damages, []);
            assert!(model == loaded.model);
        }
    }
}

/// Values are looked up in the order of their keys, in which hardly two lie in the same segment: of each no more is
/// read than it takes.
#[test]
fn what_salvage_reads_goes_by_what_it_finds() {
    const PAIRS: u64 = 2000;
    let settings = tiny().with(|of| of.values.placement = Placement::Separated);
    let mut machine = Machine::new(settings.clone(), 256, 5);
    let engine = machine.open();
    for number in 0..PAIRS {
        let mut batch = WriteBatch::new();
        // Neighbours in time are far apart by their keys.
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        batch.put(key, [7; 600]).unwrap();
        while let Err(error) = engine.write(&batch, WriteOptions::default()) {
            assert!(matches!(error, EngineError::Busy(_)), "{error}");
            machine.step(&engine);
        }
    }
    machine.close(engine);
    let loaded = Loaded {
        device: machine.device,
        settings,
        model: Model::new(),
        ever: BTreeMap::new(),
    };
    let before = loaded.device.counters().read_bytes;
    let (model, found) = loaded.salvage(&loaded.device);
    assert_eq!((model.len() as u64, found.values_lost), (PAIRS, 0));
    let read = loaded.device.counters().read_bytes - before;
    // All segments are read once to be checked; some hundred KiB are the manifest and the levels.
    assert!(read < PAIRS * 16 * 1024, "{read} bytes were read");
}

/// A flipped bit, a sector that was not written, and a block that was meant for another place, in every
/// segment that there is.
#[test]
fn damage_is_found_and_what_is_whole_is_kept() {
    for (seed, settings) in [(2, tiny()), (3, tiny_whole())] {
        let loaded = loaded(settings, seed, 2000);
        let version = loaded.version(&loaded.device);
        let all = segments(&version);
        let mut narrow = 0;
        for (index, (number, len)) in all.iter().enumerate() {
            let other = all[(index + 1) % all.len()].0;
            for (kind, part) in [
                ("bit", 3),
                ("bit", 50),
                ("bit", 97),
                ("torn", 40),
                ("block", 60),
            ] {
                let within = u64::from(len * part / 100);
                let hurt = loaded.copy();
                let at = place(&version, *number) + within;
                let before = bytes_at(&hurt, at, 512);
                match kind {
                    "bit" => hurt.flip_bit(at, 2),
                    "torn" => hurt.poke(at / 512 * 512, &[0; 512]),
                    _ => {
                        let from = place(&version, other) + within;
                        let block = bytes_at(&hurt, from, 512);
                        hurt.poke(at / 512 * 512, &block);
                    }
                }
                if before == bytes_at(&hurt, at, 512) {
                    continue;
                }
                let what = format!("{kind} at {within} of {number}");
                let (damages, _) = loaded.scrub(&hurt);
                let told = damages.iter().find(|damage| damage.number == *number);
                let padding = before.iter().zip(bytes_at(&hurt, at, 512));
                let mut padding = padding.filter(|(a, b)| **a != *b);
                if told.is_none()
                    && version.log_segment(*number).is_some()
                    && padding.all(|(before, _)| *before == 0)
                {
                    // Nobody reads what stands between the records of a log.
                    continue;
                }
                let told = told.unwrap_or_else(|| panic!("{what} is not found: {damages:#?}"));
                assert!(damages.iter().all(|d| d.number == *number), "{damages:#?}");
                let narrowed = |keys: &argosy_base::KeyRange| keys.to.is_some();
                narrow += u32::from(told.keys.len() == 1 && told.keys.iter().all(narrowed));
                let (model, found) = loaded.salvage(&hurt);
                assert!(!found.damages.is_empty(), "{what}");
                loaded.assert_salvaged(&model, &found, &what);
            }
        }
        assert!(narrow > 20, "{narrow} name a range of keys");
    }
}

fn bytes_at(device: &MemoryDevice, at: u64, len: usize) -> Vec<u8> {
    let from = at / 4096 * 4096;
    let mut bytes = argosy_device::Buffer::zeroed(4096);
    device.read(from, &mut bytes).unwrap();
    let at = usize::try_from(at - from).unwrap() / len * len;
    bytes[at..at + len].to_vec()
}

fn stored(version: Version, settings: &Settings) -> StoredVersion {
    StoredVersion::new(Arc::new(version), Arc::default(), settings)
}

#[test]
fn a_scrubber_that_is_off_does_nothing() {
    let pace = Pace {
        period: Duration::ZERO,
        ..Pace::default()
    };
    let version = Version::empty(RegionId(1), AddressMode::Logical);
    let copy = stored(version, &Settings::default());
    let mut scrubber = Scrubber::new(pace);
    for seconds in 0..1_000 {
        let now = Instant::from_nanos(seconds * 1_000_000_000);
        assert_eq!(scrubber.step(&copy, now), (vec![], None));
    }
    assert_eq!(scrubber.stats(), ScrubStats::default());
}

#[test]
fn a_region_without_segments_is_looked_at_now_and_then() {
    let version = Version::empty(RegionId(1), AddressMode::Logical);
    let copy = stored(version, &Settings::default());
    let mut scrubber = Scrubber::new(Pace::default());
    let mut now = Instant::from_nanos(1);
    let nothing_yet = Duration::from_secs(600);
    for steps in 0..10 {
        let (found, idle) = scrubber.step(&copy, now);
        assert_eq!(found, vec![]);
        assert_eq!(idle, Some(nothing_yet), "{steps}");
        now = now + nothing_yet;
    }
    assert_eq!(scrubber.stats().passes, 9);
    assert_eq!(scrubber.stats().bytes, 0);
}

/// A scrubber reads everything once in its period, a segment a step, and no faster than it may; what it
/// finds it tells once.
#[test]
fn a_scrubber_keeps_its_pace() {
    let loaded = loaded(tiny(), 4, 1500);
    let version = loaded.version(&loaded.device);
    let hurt = loaded.copy();
    let level = version.runs().flat_map(|(_, run)| run.entries()).next();
    let segment = &level.unwrap().segment;
    let (victim, len) = (segment.number, segment.len);
    hurt.flip_bit(place(&version, victim) + u64::from(len / 2), 1);
    let hurt_copy = stored(loaded.version(&hurt), &loaded.settings);
    let period = Duration::from_secs(1000);
    let mut scrubber = Scrubber::new(Pace {
        period,
        bytes_per_second_max: 1 << 30,
    });
    let (mut now, mut told, mut reads) = (Instant::from_nanos(0), 0, Vec::new());
    while scrubber.stats().passes < 3 {
        let before = hurt.counters().read_bytes;
        let (found, idle) = scrubber.step(&hurt_copy, now);
        told += found.len();
        reads.push(hurt.counters().read_bytes - before);
        // Nothing before its time.
        let idle = idle.expect("it never ends");
        let early = now + idle / 2;
        if idle > Duration::ZERO {
            let (found, rest) = scrubber.step(&hurt_copy, early);
            assert_eq!(found, []);
            assert!(rest.unwrap() <= idle);
        }
        now = now + idle;
    }
    let stats = scrubber.stats();
    let damages: Vec<_> = scrubber.damages_in(&hurt_copy).collect();
    assert_eq!((told, stats.damages, damages.len()), (1, 1, 1));
    assert_eq!(damages[0].number, victim);
    // What the region no longer has is none of its damage.
    let empty = Version::empty(version.region(), version.addresses());
    let empty = stored(empty, &loaded.settings);
    assert_eq!(scrubber.damages_in(&empty).count(), 0);
    let most = 2 * u64::try_from(loaded.settings.layout.segment_bytes).unwrap();
    assert!(reads.iter().all(|bytes| *bytes <= most), "a segment a step");
    let took = now - Instant::from_nanos(0);
    let slack = period / 2;
    assert!(took <= 3 * period + slack, "{took:?}");
    assert!(took >= 3 * period - slack, "{took:?}");

    // As fast as it may.
    let mut scrubber = Scrubber::new(Pace {
        period: Duration::from_nanos(1),
        bytes_per_second_max: 1 << 16,
    });
    let copy = stored(version, &loaded.settings);
    let mut now = Instant::from_nanos(0);
    while scrubber.stats().passes == 0 {
        let (_, idle) = scrubber.step(&copy, now);
        now = now + idle.unwrap();
    }
    let allowed = (now - Instant::from_nanos(0)).as_secs() << 16;
    let read = scrubber.stats().bytes;
    assert!(read <= allowed + most, "{read} of {allowed}");
}
