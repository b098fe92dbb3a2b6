//! What the background thread of a store does in each step, on a clock of the test's own.

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{RegionId, ServerId};
use argosy_device::{Device, FormatOptions, MemoryDevice, StoreSettings};
use argosy_engine::scrub::Pace as ScrubPace;
use argosy_engine::{WriteBatch, WriteOptions};
use argosy_lsm::Settings;
use argosy_memory::AnonymousWindows;

use super::*;

pub(crate) fn tiny() -> Settings {
    Settings::tiny().with(|of| of.levels.step_bytes = 4 << 10)
}

/// A store that is written in every step, so that hardly one of the engine's is idle, is read as a whole once in the
/// period that was asked for.
#[test]
fn a_store_that_is_written_all_the_time_is_scrubbed() {
    let device = MemoryDevice::eager(512 * SEGMENT_SIZE as u64, 1);
    let options = FormatOptions {
        device_id: 1,
        cluster_id: 1,
        server: ServerId(0),
        created_by: "test".to_owned(),
    };
    Store::format(&device, &options).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    let windows = AnonymousWindows::new();
    let engine = Lsm::open(&store, RegionId(0), &windows, &tiny(), None).unwrap();
    let period = Duration::from_secs(1000);
    let scrub = ScrubPace {
        period,
        ..ScrubPace::default()
    };
    let chores = Chores {
        scrubber: Arc::new(Mutex::new(Scrubber::new(scrub))),
        sweeping: Arc::default(),
        uses: Arc::default(),
        store,
        memory: None,
    };
    let pace = Pace::default();
    let now = |step: u64| Instant::from_nanos(step * 1_000_000_000);
    let mut stepper = Stepper::new(&engine, &pace, &chores, now(0));
    let scrubbed = || chores.scrubber.lock().stats();
    let (mut rests, mut steps) = (0, 0);
    while scrubbed().passes < 3 {
        steps += 1;
        assert!(steps < 4 * period.as_secs(), "{:?}", scrubbed());
        let mut batch = WriteBatch::new();
        let key = format!("{:05}", steps * 7919 % 4000);
        batch.put(key.as_bytes(), [b'v'; 500]).unwrap();
        let written = engine.write(&batch, WriteOptions::default());
        engine.flush_now();
        assert!(written.is_ok() || matches!(written, Err(EngineError::Busy(_))));
        rests += u64::from(stepper.turn(now(steps)).unwrap().is_some());
    }
    assert!(rests * 20 < steps, "{rests} of {steps} steps were idle");
    assert!(scrubbed().segments > 20, "{:?}", scrubbed());
}
