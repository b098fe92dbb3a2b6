//! Our own engine: clients' threads call it, and one background thread steps it.
//!
//! A write that finds the engine busy waits for the background thread, and the wait is part of its
//! latency.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use argosy_base::{Clock, Direction, KeyRange, Lsn, RegionId, SEGMENT_SIZE, ServerId};
use argosy_device::{
    BootId, FileDevice, FileSettings, FormatOptions, Others, Store as DeviceStore, StoreSettings,
    WindowFiles, WindowFilesOptions,
};
use argosy_engine::{Engine, EngineError, WriteBatch, WriteOptions};
use argosy_lsm::excess::Excess;
use argosy_lsm::{Lsm, Memory, Settings};

use super::{Filters, Look, Pairs, Store, run_all};
use crate::clock::ProcessClock;
use crate::run::{BenchError, Configuration, Event};

/// Longest sleep of either thread before it looks again by itself.
const SLEEP_MAX: Duration = Duration::from_millis(5);

/// Where and how the engine stores.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// An empty directory on the device to be measured.
    pub dir: PathBuf,
    /// An empty directory for log windows, on tmpfs.
    pub windows: PathBuf,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// The engine's settings.
    pub settings: Settings,
    /// Bytes of memory for all that the store has, gaps and all, where it keeps to that.
    pub budget: Option<usize>,
    /// A write is answered once it is durable.
    pub sync: bool,
    /// Has the allocator give back what the calling thread has allocated and others have freed: called once a
    /// second by the store's thread and by each client's where there is a budget.
    pub collect: fn(),
}

/// Loads `config`'s records and runs its workloads. Hands each row to `tell`.
pub fn run(
    embedded: &Embedded,
    config: &Configuration,
    tell: impl FnMut(Event),
) -> Result<(), BenchError> {
    let store = open_store(embedded)?;
    let windows = WindowFiles::open(WindowFilesOptions {
        directory: embedded.windows.clone(),
        fallback: None,
        boot: BootId(1),
        incarnation: store.incarnation(),
        device: store.superblock().device_id,
        others: Others::Refuse,
    })?;
    let engine = Lsm::open(&store, RegionId(1), &windows, &embedded.settings, None)?;
    let excess = embedded.budget.map(|budget| engine.excess(budget));
    let stage = Stage {
        engine,
        excess,
        collect: embedded.collect,
        sync: embedded.sync,
        store,
        pace: Arc::default(),
        stopping: AtomicBool::new(false),
    };
    let pace = Arc::clone(&stage.pace);
    stage.engine.set_waker(Arc::new(move || pace.work.ring()));
    let pace = Arc::clone(&stage.pace);
    stage.store.set_waker(Arc::new(move || pace.work.ring()));
    std::thread::scope(|scope| {
        let background = std::thread::Builder::new()
            .name("background".to_owned())
            .spawn_scoped(scope, || stage.background())
            .map_err(BenchError::Thread)?;
        let result = run_all(&stage, config, tell);
        stage.stopping.store(true, Ordering::Release);
        stage.pace.work.ring();
        let stepped = background.join();
        // What the background met is the cause of what the client met.
        stepped.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        result
    })
}

fn open_store(embedded: &Embedded) -> Result<Arc<DeviceStore>, BenchError> {
    let path = embedded.dir.join("device");
    let device =
        FileDevice::open_or_create(&path, embedded.device_bytes, &FileSettings::default())?;
    let format = FormatOptions {
        device_id: 1,
        cluster_id: 1,
        server: ServerId(0),
        created_by: "argosy bench".to_owned(),
    };
    DeviceStore::format(&device, &format)?;
    let settings = StoreSettings {
        reserve_segments: embedded.settings.reserve_segments(1),
    };
    Ok(DeviceStore::open(Arc::new(device), &settings)?)
}

/// Lets one thread sleep until another has something for it. A ring before the sleep is not lost.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            *rung = true;
            self.changed.notify_one();
        }
    }

    fn wait(&self, timeout: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(rung, timeout, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// Lets threads sleep until another got something done. What is done behind a [`mark`](Self::mark) is not
/// missed.
#[derive(Default)]
struct Room {
    done: Mutex<u64>,
    changed: Condvar,
}

impl Room {
    fn ring(&self) {
        *self.done() += 1;
        self.changed.notify_all();
    }

    fn mark(&self) -> u64 {
        *self.done()
    }

    fn wait_behind(&self, mark: u64, timeout: Duration) {
        let waited = self
            .changed
            .wait_timeout_while(self.done(), timeout, |done| *done == mark);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn done(&self) -> MutexGuard<'_, u64> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What clients and the background thread tell each other.
#[derive(Default)]
struct Pace {
    /// There is work for the background thread.
    work: Bell,
    /// The background thread got something done, or has nothing left to do.
    room: Room,
    /// The last step of the background thread found nothing to do.
    idle: AtomicBool,
    /// A step failed: there will be no more.
    failed: AtomicBool,
}

/// The engine, and its background thread's side of things.
struct Stage {
    engine: Lsm,
    excess: Option<Excess>,
    collect: fn(),
    sync: bool,
    store: Arc<DeviceStore>,
    pace: Arc<Pace>,
    stopping: AtomicBool,
}

impl Stage {
    /// Steps the engine until told to stop.
    fn background(&self) -> Result<(), EngineError> {
        let (clock, pace) = (ProcessClock, &self.pace);
        let mut collected = clock.now();
        while !self.stopping.load(Ordering::Acquire) {
            let now = clock.now();
            if now >= collected + Excess::EVERY {
                self.collect();
                collected = now;
            }
            let stepped = self.engine.step(now);
            let failed = |_: &EngineError| {
                pace.failed.store(true, Ordering::Release);
                pace.room.ring();
            };
            let made = stepped.inspect_err(failed)?.made;
            let was_idle = pace.idle.swap(!made, Ordering::AcqRel);
            // A client that waits for room is not woken for nothing, again and again.
            if made || !was_idle {
                pace.room.ring();
            }
            if !made {
                pace.work.wait(SLEEP_MAX);
            }
        }
        Ok(())
    }

    /// Writes, waiting while the engine is busy.
    fn write(&self, batch: &WriteBatch) -> Result<(), EngineError> {
        // A write that was refused is tried again before its client sleeps: meanwhile there may be room.
        let mut mark = None;
        loop {
            match self.engine.write(batch, WriteOptions::default()) {
                Ok(written) if self.sync => return self.until_durable(written.lsn),
                Ok(_) => return Ok(()),
                Err(EngineError::Busy(_)) => match mark.take() {
                    None => mark = Some(self.pace.room.mark()),
                    Some(mark) => {
                        self.pace.work.ring();
                        self.pace.room.wait_behind(mark, SLEEP_MAX);
                    }
                },
                Err(error) => return Err(error),
            }
        }
    }

    /// Has everything up to `lsn` synced, and waits for it.
    fn until_durable(&self, lsn: Lsn) -> Result<(), EngineError> {
        self.engine.flush_now();
        loop {
            let mark = self.pace.room.mark();
            if self.engine.durable_lsn() >= lsn {
                return Ok(());
            }
            if self.pace.failed.load(Ordering::Acquire) {
                return Err(EngineError::Closed("a background step failed"));
            }
            self.pace.room.wait_behind(mark, SLEEP_MAX);
        }
    }

    /// Waits until the engine has no background work left.
    fn wait_until_drained(&self) -> Result<(), BenchError> {
        let mut idle_looks = 0;
        // A step may find nothing to do because it waits for the device, which rings when it is
        // done: so the engine is asked, and twice.
        while idle_looks < 2 {
            let mut mark = self.pace.room.mark();
            self.pace.idle.store(false, Ordering::Release);
            self.engine.flush_now();
            while !self.pace.idle.load(Ordering::Acquire) {
                if self.pace.failed.load(Ordering::Acquire) {
                    return Err(EngineError::Closed("a background step failed").into());
                }
                self.pace.room.wait_behind(mark, SLEEP_MAX);
                mark = self.pace.room.mark();
            }
            if self.engine.background_pending() == 0 {
                idle_looks += 1;
            } else {
                idle_looks = 0;
                self.pace.room.wait_behind(mark, SLEEP_MAX);
            }
        }
        Ok(())
    }
}

impl Store for Stage {
    type Hand = WriteBatch;

    #[inline]
    fn put(&self, batch: &mut WriteBatch, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        batch.clear();
        batch.put(key, value).map_err(EngineError::Limit)?;
        Ok(self.write(batch)?)
    }

    #[inline]
    fn get<R>(&self, key: &[u8], found: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        let value = self.engine.get(key)?.value;
        Ok(found(value.as_deref()))
    }

    fn scan(&self, from: &[u8], count: u64, found: &mut Pairs) -> Result<(), BenchError> {
        let range = KeyRange {
            from: from.to_vec(),
            to: None,
        };
        let mut scan = self.engine.snapshot().scan(&range, Direction::Up)?;
        scan.expect(usize::try_from(count).unwrap_or(usize::MAX));
        while (found.len() as u64) < count
            && let Some(pair) = scan.next()?
        {
            found.push(pair);
        }
        Ok(())
    }

    fn drain(&self) -> Result<(), BenchError> {
        self.wait_until_drained()
    }

    fn memory(&self) -> Option<Memory> {
        Some(self.engine.memory())
    }

    fn resident(&self, bytes: u64) {
        if let Some(excess) = &self.excess {
            excess.look(bytes);
        }
    }

    fn collect(&self) {
        if self.excess.is_some() {
            (self.collect)();
        }
    }

    fn look(&self) -> Result<Look, BenchError> {
        let stats = self.engine.stats();
        let deepest = stats.levels.iter().filter(|level| level.segments > 0);
        Ok(Look {
            log_bytes: Some(stats.recovery_log_write_bytes),
            space_bytes: u64::from(self.store.used()) * SEGMENT_SIZE as u64,
            levels: deepest
                .map(|level| u64::from(level.level))
                .max()
                .unwrap_or(0),
            compactions: stats.flushes + stats.compactions,
            filters: Some(Filters {
                spared: stats.filter_spared,
                misled: stats.filter_misled,
                bytes: stats.filter_bytes,
            }),
        })
    }
}
