//! Writes that wait for the device, while a merge goes no further.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{DeviceSegment, RegionId, ServerId};
use argosy_device::{
    Counters, Device, DeviceError, FormatOptions, Io, MemoryDevice, Read, Store, StoreSettings,
    Ticket, Waker,
};
use argosy_engine::scrub::{Pace as ScrubPace, Scrubber};
use argosy_engine::{Store as _, WriteBatch, WriteOptions};
use argosy_lsm::Lsm;
use argosy_memory::AnonymousWindows;

use crate::pace::Pace;
use crate::stepper::{self, tests::tiny};

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device whose reads wait while it is held.
struct Held {
    inner: MemoryDevice,
    /// Whether it is held, and how many reads wait.
    state: Mutex<(bool, u64)>,
    changed: Condvar,
    syncs: AtomicU64,
}

impl Held {
    fn new() -> Arc<Self> {
        let inner = MemoryDevice::eager(512 * SEGMENT_SIZE as u64, 1);
        let options = FormatOptions {
            device_id: 1,
            cluster_id: 1,
            server: ServerId(0),
            created_by: "test".to_owned(),
        };
        Store::format(&inner, &options).unwrap();
        Arc::new(Self {
            inner,
            state: Mutex::default(),
            changed: Condvar::new(),
            syncs: AtomicU64::new(0),
        })
    }

    fn hold(&self, held: bool) {
        self.state.lock().unwrap().0 = held;
        self.changed.notify_all();
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Returns once a read waits.
    fn wait_for_read(&self) {
        let state = self.state.lock().unwrap();
        let waited = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| state.1 == 0);
        assert!(!waited.unwrap().1.timed_out(), "nothing is read");
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            state = self.changed.wait(state).unwrap();
        }
        state.1 -= 1;
    }
}

impl Device for Held {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.pass();
        self.inner.read(at, buffer)
    }

    fn read_together(&self, reads: &mut [Read<'_>]) {
        self.pass();
        self.inner.read_together(reads);
    }

    fn submit(&self, io: Io) -> Ticket {
        if matches!(io, Io::Sync) {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.submit(io)
    }

    fn discard(&self, segment: DeviceSegment) {
        self.inner.discard(segment);
    }

    fn set_waker(&self, waker: Waker) {
        self.inner.set_waker(waker);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// Has the threads end, also where the test fails.
struct End<'a>(&'a Held, &'a Pace);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.hold(false);
        self.1.stop();
    }
}

fn put(engine: &Lsm, pace: &Pace, key: u64) {
    let mut batch = WriteBatch::new();
    let key = format!("{:05}", key * 7919 % 4000);
    batch.put(key.as_bytes(), [b'v'; 500]).unwrap();
    let attempt = || match engine.write(&batch, WriteOptions::default()) {
        Ok(_) => Ok(Some(())),
        Err(argosy_engine::EngineError::Busy(_)) => Ok(None),
        Err(error) => Err(error),
    };
    let written = pace.until_room(PATIENCE, attempt, |ended| ended);
    assert_eq!(written.unwrap(), Some(()), "there is no room for {key}");
    pace.wrote();
}

/// Whoever puts, and waits until that is durable, is told after two syncs at most, although the background thread is in
/// the middle of a merge, and stays there.
#[test]
fn a_merge_holds_up_no_sync() {
    let device = Held::new();
    let store = Store::open(Arc::<Held>::clone(&device), &StoreSettings::default()).unwrap();
    let windows = AnonymousWindows::new();
    let settings = tiny().with(|of| {
        of.cache_bytes = 0;
        // Flushes that nobody asks for would be counted, too.
        of.logs.flush_interval = Duration::from_secs(3600);
    });
    let engine = Arc::new(Lsm::open(&store, RegionId(0), &windows, &settings, None).unwrap());
    let pace = Arc::new(Pace::default());
    engine.set_waker({
        let pace = Arc::clone(&pace);
        Arc::new(move || pace.ring())
    });
    store.set_waker({
        let pace = Arc::clone(&pace);
        Arc::new(move || pace.device_done())
    });
    let off = ScrubPace {
        period: Duration::ZERO,
        ..ScrubPace::default()
    };
    let chores = stepper::Chores {
        scrubber: Arc::new(parking_lot::Mutex::new(Scrubber::new(off))),
        sweeping: Arc::default(),
        uses: Arc::default(),
        store,
        memory: None,
    };
    std::thread::scope(|threads| {
        let _end = End(&device, &pace);
        threads.spawn(|| super::make_durable(&engine, &pace));
        threads.spawn(|| stepper::background(&engine, &pace, &chores));
        let durable = || pace.until_durable(engine.last_lsn(), PATIENCE, || false);
        (0..2000).for_each(|key| put(&engine, &pace, key));
        durable().unwrap();
        let drained = || Ok((engine.background_pending() == 0).then_some(()));
        let drained = pace.until_room(PATIENCE, drained, |ended| ended);
        assert_eq!(drained.unwrap(), Some(()));
        device.hold(true);
        engine.compact_now();
        device.wait_for_read();
        for key in 0..20 {
            let before = device.syncs();
            put(&engine, &pace, key);
            durable().unwrap();
            let syncs = device.syncs() - before;
            assert!((1..=2).contains(&syncs), "{syncs}");
        }
        assert!(engine.is_compacting());
        assert!(device.state.lock().unwrap().1 > 0, "the merge went on");
        device.hold(false);
        let merged = || Ok((!engine.is_compacting()).then_some(()));
        let merged = pace.until_room(PATIENCE, merged, |ended| ended);
        assert_eq!(merged.unwrap(), Some(()));
    });
    engine.close().unwrap();
}
