//! An engine on a device in memory, and its ends: closed, killed, without power.
//!
//! Settings are tiny, so that a few thousand operations fill windows, segments and levels. Requests
//! of the device complete one or two at a time between steps, in an order that the seed decides.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

pub(crate) mod blocks;
pub(crate) mod counting;
pub(crate) mod history;
pub(crate) mod judge;
pub(crate) mod sorted;
pub(crate) mod wall;
pub(crate) mod watched;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{AddressMode, Instant, RegionId, SEGMENT_SIZE, ServerId};
use argosy_device::{Crash, Device, FormatOptions, MemoryDevice, Store, StoreSettings};
use argosy_engine::conformance::{Choices, Host};
use argosy_engine::{EngineError, Observer, Progress, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::{Compaction, Lsm, Placement, Settings};
use argosy_memory::AnonymousWindows;

pub(crate) const REGION: RegionId = RegionId(7);

/// Nanoseconds that a step takes on the test's clock.
const STEP_NANOS: u64 = 20_000_000;

/// Settings small enough that the longest value of the conformance suite needs all windows.
pub(crate) fn tiny() -> Settings {
    Settings::tiny().with(|of| {
        of.memtables.bytes = 64 << 10;
        of.layout.segment_bytes = 64 << 10;
    })
}

/// [`tiny`], with levels compacted whole.
pub(crate) fn tiny_whole() -> Settings {
    tiny().with(|of| of.levels.compaction = Compaction::WholeLevel)
}

/// `settings` under which pairs of [`Machine::write_mixed`] lie in leaves, in the medium log and in the large one,
/// and no garbage is collected.
pub(crate) fn mixed(settings: Settings) -> Settings {
    settings.with(|of| {
        of.space.floor_bytes = Some(1 << 30);
        of.memtables.bytes = 16 << 10;
        of.layout.segment_bytes = 32 << 10;
        of.values.small_bytes = 60;
        of.values.medium_log_percent = 400;
    })
}

/// Settings drawn from `choices`, all small.
pub(crate) fn random_settings(choices: &mut Choices) -> Settings {
    let pick = |choices: &mut Choices, from: &[usize]| {
        let index = choices.below(from.len() as u64);
        from[usize::try_from(index).unwrap()]
    };
    let window_bytes = pick(choices, &[8 << 10, 16 << 10, 32 << 10]);
    let placements = [Placement::InPlace, Placement::Separated, Placement::Hybrid];
    Settings::default().with(|of| {
        of.memtables.bytes = pick(choices, &[8 << 10, 24 << 10, 64 << 10]);
        of.memtables.log_bytes = 128 << 10;
        of.cache_bytes = pick(choices, &[0, 16 << 10, 1 << 20]);
        of.layout.node_bytes = pick(choices, &[512, 1024, 4096]);
        of.layout.window_bytes = window_bytes;
        of.layout.segment_bytes =
            (window_bytes * pick(choices, &[1, 2, 3])).max(32 << 10) / window_bytes * window_bytes;
        of.layout.window_slots = pick(choices, &[10, 12, 16]) * (32 << 10) / window_bytes;
        of.levels.growth_factor = u32::try_from(pick(choices, &[2, 4])).unwrap();
        of.levels.l1_runs = pick(choices, &[1, 2, 4]);
        of.levels.l1_runs_max = 6;
        of.values.placement = placements[usize::try_from(choices.below(3)).unwrap()];
        of.values.small_bytes = pick(choices, &[16, 100]);
        of.values.medium_levels_min = pick(choices, &[1, 2, 3]);
        of.values.medium_log_percent = [50, 400, 10][usize::try_from(choices.below(3)).unwrap()];
        of.levels.number_block = 32;
        of.logs.rest_after =
            Duration::from_millis([0, 20, 1 << 20][usize::try_from(choices.below(3)).unwrap()]);
        of.levels.part_bytes = 96 << 10;
        of.levels.step_bytes = 8 << 10;
        of.levels.compaction = match choices.below(2) {
            0 => Compaction::Partial,
            _ => Compaction::WholeLevel,
        };
        of.layout.addresses = AddressMode::ALL[usize::from(choices.chance(50))];
        of.memtables.count_max = pick(choices, &[2, 3, 4]);
        of.values.large_bytes = pick(choices, &[120, 400, 1000]);
        of.space.amplification_max = [110, 150, 300][usize::try_from(choices.below(3)).unwrap()];
        of.space.floor_bytes = choices.chance(50).then_some(256 << 10);
    })
}

/// A machine with a device in memory.
pub(crate) struct Machine {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) windows: AnonymousWindows,
    pub(crate) settings: Settings,
    pub(crate) store: Option<Arc<Store>>,
    pub(crate) choices: Choices,
    pub(crate) now: u64,
}

impl Machine {
    /// A machine with a fresh device of `segments` segments.
    pub(crate) fn new(settings: Settings, segments: u64, seed: u64) -> Self {
        let device = MemoryDevice::eager(segments * SEGMENT_SIZE as u64, seed);
        let options = FormatOptions {
            device_id: 1,
            cluster_id: 1,
            server: ServerId(1),
            created_by: "test".to_owned(),
        };
        Store::format(&device, &options).unwrap();
        Self {
            device: Arc::new(device.lazy()),
            windows: AnonymousWindows::new(),
            settings,
            store: None,
            choices: Choices::new(seed),
            now: 0,
        }
    }

    /// Opens the engine, or says why not. Requests complete as they come while it opens.
    pub(crate) fn try_open(&mut self) -> Result<Lsm, Box<dyn std::error::Error>> {
        let device: Arc<dyn Device> = self.device.clone();
        let settings = StoreSettings {
            reserve_segments: self.settings.reserve_segments(1),
        };
        let store = Store::open(device, &settings)?;
        let lsm = Lsm::open(&store, REGION, &self.windows, &self.settings, None)?;
        self.store = Some(store);
        Ok(lsm)
    }

    /// Opens the engine with an observer.
    pub(crate) fn open_observed(&mut self, observer: Arc<dyn Observer>) -> Lsm {
        let device: Arc<dyn Device> = self.device.clone();
        let store = Store::open(device, &StoreSettings::default()).unwrap();
        let settings = &self.settings;
        let lsm = Lsm::open(&store, REGION, &self.windows, settings, Some(observer)).unwrap();
        self.store = Some(store);
        lsm
    }

    /// One step of the engine, and no request of the device.
    pub(crate) fn try_step(&mut self, engine: &Lsm) -> Result<Progress, EngineError> {
        self.now += STEP_NANOS;
        engine.step(Instant::from_nanos(self.now))
    }

    /// As [`try_step`](Self::try_step), which succeeds.
    pub(crate) fn tick(&mut self, engine: &Lsm) -> Progress {
        self.try_step(engine)
            .unwrap_or_else(|error| panic!("a step failed: {error}"))
    }

    /// Ends the process; `crash` says what becomes of the device.
    pub(crate) fn end(&mut self, engine: Lsm, crash: Crash) {
        drop(engine);
        self.store = None;
        self.device = Arc::new(self.device.crash(crash));
        if crash == Crash::PowerLoss {
            self.windows = AnonymousWindows::new();
        } else {
            self.windows = self.windows.restart();
        }
    }

    /// Makes sure that no device segment is in use but those that the engine's version, its
    /// manifest and the superblock name.
    pub(crate) fn assert_no_leak(&self, engine: &Lsm) {
        let used = self.store.as_ref().expect("the engine is open").used() as usize;
        let reachable = engine.device_segments() + 1;
        assert_eq!(
            used, reachable,
            "segments in use, and segments that something names"
        );
    }
}

impl Machine {
    /// Puts all that is in memtables into the levels, and merges until nothing is due.
    pub(crate) fn settle(&mut self, engine: &Lsm) {
        while !engine.freeze_now() {
            self.step(engine);
        }
        self.step(engine);
        while engine.background_pending() > 0 {
            self.step(engine);
        }
    }

    /// Write `number` of a history of pairs of all sizes, and a delete now and then, and what it makes of
    /// `model`. Returns the pair.
    pub(crate) fn write_mixed(
        &mut self,
        engine: &Lsm,
        model: &mut BTreeMap<Vec<u8>, Vec<u8>>,
        number: u64,
    ) -> (Vec<u8>, Vec<u8>) {
        let key = format!("{:06}", number * 7919 % 3000).into_bytes();
        let len = [20, 80, 100, 1500][usize::try_from(number % 4).unwrap()];
        let mut value = format!("{number}-").into_bytes();
        value.resize(len, b'v');
        let mut batch = WriteBatch::new();
        batch.put(&key, &value).unwrap();
        let gone = format!("{:06}", number % 3000).into_bytes();
        if number.is_multiple_of(9) && gone != key {
            batch.delete(&gone).unwrap();
            model.remove(&gone);
        }
        loop {
            match engine.write(&batch, WriteOptions::default()) {
                Ok(_) => break,
                Err(EngineError::Busy(_)) => {
                    self.step(engine);
                }
                Err(error) => panic!("{error}"),
            }
        }
        model.insert(key.clone(), value.clone());
        self.step(engine);
        (key, value)
    }
}

impl Host for Machine {
    type Engine = Lsm;

    fn open(&mut self) -> Lsm {
        self.try_open()
            .unwrap_or_else(|error| panic!("the engine does not open: {error}"))
    }

    fn step(&mut self, engine: &Lsm) -> bool {
        let mut moved = false;
        for _ in 0..self.choices.below(3) {
            moved |= self.device.run_one();
        }
        let progress = self.tick(engine);
        moved || progress.made || self.device.in_flight() > 0
    }

    fn close(&mut self, engine: Lsm) {
        engine.close().expect("a close");
        // A clean end needs no windows.
        self.end(engine, Crash::PowerLoss);
    }

    fn kill(&mut self, engine: Lsm) {
        self.end(engine, Crash::Kill);
    }
}
