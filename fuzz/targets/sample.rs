//! Stores in memory that were written, merged and closed: inputs begin from what lies in them.

use std::sync::Arc;

use argosy_base::{Instant, Moment, RegionId, SEGMENT_SIZE};
use argosy_device::{Buffer, Crash, Device, FormatOptions, MemoryDevice, Store, StoreSettings};
use argosy_engine::{EngineError, Progress, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::pins::Pins;
use argosy_lsm::{Compaction, Lsm, Settings, Version};
use argosy_memory::AnonymousWindows;

pub(super) const REGION: RegionId = RegionId(1);

/// A store whose one region was closed. It has a pin.
pub(super) struct Sample {
    pub(super) device: MemoryDevice,
    pub(super) settings: Settings,
}

/// Settings so small that a few hundred pairs make several levels of each kind of segment.
fn settings(compaction: Compaction) -> Settings {
    Settings::tiny().with(|of| {
        of.layout.window_bytes = 16 << 10;
        of.layout.window_slots = 64;
        of.values.small_bytes = 60;
        of.values.medium_log_percent = 400;
        of.space.floor_bytes = Some(1 << 30);
        of.levels.compaction = compaction;
    })
}

impl Sample {
    /// With levels compacted like that.
    pub(super) fn new(compaction: Compaction) -> Self {
        let settings = settings(compaction);
        let device = MemoryDevice::eager(128 * SEGMENT_SIZE as u64, 1);
        Store::format(&device, &FormatOptions::default()).expect("a new device takes a store");
        let device = Arc::new(device);
        let opened: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&device);
        let store = Store::open(opened, &StoreSettings::default()).expect("a store");
        let pins = Pins::open(&store, REGION, &settings).expect("there are none");
        let windows = AnonymousWindows::new();
        let engine = Lsm::open(&store, REGION, &windows, &settings, None).expect("a region");
        fill(&engine);
        let version = engine.version_with(engine.last_lsn());
        let version = version.expect("all of it is in the levels");
        let pinned = pins.add("kept", &version, Moment(0));
        pinned.expect("there is room");
        engine.close().expect("a close");
        drop((engine, pins, store));
        let device = device.crash_clone(Crash::Kill, 1);
        Self { device, settings }
    }

    /// A copy of the store, from which nothing is written.
    pub(super) fn store(&self) -> Arc<Store> {
        let device: Arc<dyn Device> = Arc::new(self.device.crash_clone(Crash::Kill, 1));
        Store::open_read_only(device).expect("a store")
    }

    /// The region.
    pub(super) fn region(&self) -> InspectedRegion {
        let store = self.store();
        InspectedRegion::read(&store, &store.regions()[0], &self.settings)
    }

    /// What its levels and logs are.
    pub(super) fn version(&self) -> Version {
        self.region().version.expect("it was closed")
    }

    /// `len` bytes from byte `at` of the device on, both whole blocks.
    pub(super) fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = Buffer::zeroed(len);
        self.device.read(at, &mut bytes).expect("it is all there");
        bytes.to_vec()
    }
}

fn fill(engine: &Lsm) {
    let mut now = 0;
    let mut step = || -> Progress {
        now += 20_000_000;
        let progress = engine.step(Instant::from_nanos(now));
        progress.expect("nothing fails here")
    };
    for number in 0..1500u64 {
        let key = format!("{:06}", number * 7919 % 1000);
        let len = [20, 80, 100, 1500][usize::try_from(number % 4).expect("below four")];
        let mut batch = WriteBatch::new();
        let put = batch.put(key.as_bytes(), vec![b'v'; len]);
        put.expect("within the limits");
        if number.is_multiple_of(9) {
            let gone = format!("{:06}", number % 1000);
            batch.delete(gone.as_bytes()).expect("within the limits");
        }
        while let Err(error) = engine.write(&batch, WriteOptions::default()) {
            assert!(matches!(error, EngineError::Busy(_)), "{error}");
            step();
        }
        step();
    }
    while !engine.freeze_now() {
        step();
    }
    step();
    while engine.background_pending() > 0 {
        step();
    }
}
