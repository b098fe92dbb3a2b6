//! The engine alone, in this process: one client thread, and one background thread that steps it.
//!
//! CPU is that of the whole process, the device's threads among it, less what the load costs by
//! itself: before each workload a part of it is done against nothing (records chosen, keys and
//! values made or verified, the clock read, latencies counted), and that cost per operation is
//! taken off and reported as the client's. Of the rest, what the client's thread has used is the
//! requests', and all else, log flushes and the device's threads among it, is compaction. A write
//! that finds the engine busy waits for the background thread, and the wait is part of its latency.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use argosy_base::{Clock, Instant, KeyRange, RegionId, SEGMENT_SIZE, ServerId};
use argosy_device::{
    BootId, FileDevice, FileSettings, FormatOptions, Store, StoreSettings, WindowFiles,
    WindowFilesOptions,
};
use argosy_engine::{Engine, EngineError, WriteBatch, WriteOptions};
use argosy_lsm::{Lsm, Settings};

use crate::clock::ProcessClock;
use crate::data::{Dataset, KEY_BYTES, VALUE_BYTES_MAX};
use crate::driver::{Tally, check_read};
use crate::order::{Asked, Order};
use crate::process::Sample;
use crate::report::{Activities, Latency, Row, ratio, rounded};
use crate::run::{BenchError, Configuration, Event};
use crate::truth::Truth;
use crate::workload::{Operation, Operations, Workload};

/// How many operations are done against nothing, to learn what the load costs by itself.
const REHEARSAL_OPS: usize = 200_000;

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
}

/// Loads `config`'s records and runs its workloads. Hands each row to `tell`.
pub fn run(
    embedded: &Embedded,
    config: &Configuration,
    mut tell: impl FnMut(Event),
) -> Result<(), BenchError> {
    let store = open_store(embedded)?;
    let windows = WindowFiles::open(WindowFilesOptions {
        directory: embedded.windows.clone(),
        fallback: None,
        boot: BootId(1),
        incarnation: store.incarnation(),
    })?;
    let engine = Lsm::open(&store, RegionId(1), &windows, &embedded.settings, None)?;
    let stage = Stage {
        engine,
        store,
        pace: Arc::default(),
        stopping: AtomicBool::new(false),
    };
    let pace = Arc::clone(&stage.pace);
    stage.engine.set_waker(Arc::new(move || pace.work.ring()));
    let pace = Arc::clone(&stage.pace);
    stage.store.set_waker(Arc::new(move || pace.work.ring()));
    let (data, truth) = (config.data(), config.truth());
    std::thread::scope(|scope| {
        let background = std::thread::Builder::new()
            .name("background".to_owned())
            .spawn_scoped(scope, || stage.background())
            .map_err(BenchError::Thread)?;
        let result = config.phases().try_for_each(|phase| {
            let row = stage.measure(config, phase.workload, &data, &truth)?;
            if phase.reported {
                tell(Event::Row(Box::new(row)));
            }
            Ok(())
        });
        stage.stopping.store(true, Ordering::Release);
        stage.pace.work.ring();
        let stepped = background.join();
        // What the background met is the cause of what the client met.
        stepped.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        result
    })
}

fn open_store(embedded: &Embedded) -> Result<Arc<Store>, BenchError> {
    let path = embedded.dir.join("device");
    let device =
        FileDevice::open_or_create(&path, embedded.device_bytes, &FileSettings::default())?;
    let format = FormatOptions {
        device_id: 1,
        cluster_id: 1,
        server: ServerId(0),
        created_by: "argosy bench".to_owned(),
    };
    Store::format(&device, &format)?;
    let settings = StoreSettings {
        reserve_segments: embedded.settings.reserve_segments(1),
    };
    Ok(Store::open(Arc::new(device), &settings)?)
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

/// What the two threads tell each other.
#[derive(Default)]
struct Pace {
    /// There is work for the background thread.
    work: Bell,
    /// The background thread got something done, or has nothing left to do.
    room: Bell,
    /// The last step of the background thread found nothing to do.
    idle: AtomicBool,
    /// A step failed: there will be no more.
    failed: AtomicBool,
}

/// The engine, and its background thread's side of things.
struct Stage {
    engine: Lsm,
    store: Arc<Store>,
    pace: Arc<Pace>,
    stopping: AtomicBool,
}

impl Stage {
    /// Steps the engine until told to stop.
    fn background(&self) -> Result<(), EngineError> {
        let (clock, pace) = (ProcessClock, &self.pace);
        while !self.stopping.load(Ordering::Acquire) {
            let stepped = self.engine.step(clock.now());
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

    /// Runs one workload, drains, and makes its row.
    fn measure(
        &self,
        config: &Configuration,
        workload: Workload,
        data: &Dataset,
        truth: &Truth,
    ) -> Result<Row, BenchError> {
        let clock = ProcessClock;
        let (records, more) = config.room();
        let rehearsed = Truth::rehearsed(records, more);
        let generator_nanos = rehearse(data, config.operations(workload, 1, &rehearsed));
        drop(rehearsed);
        truth.present();
        let operations = config.operations(workload, 1, truth).of(0);
        let order = workload.scans().then(|| Order::new(data, truth));
        // Best effort: where the kernel refuses, the peak is that since the process began.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let before = self.look()?;
        let (began, cpu, client_cpu) = (clock.now(), clock.process_cpu(), clock.thread_cpu());
        let tally = self.client((data, truth), order.as_ref(), operations, began)?;
        self.drain()?;
        let client_cpu = clock.thread_cpu() - client_cpu;
        let (elapsed, cpu) = (clock.now() - began, clock.process_cpu() - cpu);
        let after = self.look()?;

        let (ops, labels) = (config.ops_of(workload), &config.labels);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let engine_nanos = nanos(cpu).saturating_sub(generator_nanos * ops);
        // What the client's thread has not used was used by the background and the device.
        let background = nanos(cpu.saturating_sub(client_cpu)).min(engine_nanos);
        let request = engine_nanos - background;
        let activities = Activities::of([request / 1000, 0, background / 1000, 0, 0], ops);
        let used = after.sample.since(before.sample);
        let device_bytes = used.read_bytes + used.write_bytes;
        Ok(Row {
            workload: workload.to_string(),
            mix: config.mix.to_string(),
            sizes: config.sizes.to_string(),
            engine: labels.engine.to_owned(),
            placement: labels.placement.clone(),
            replication: labels.replication.clone(),
            address_mode: labels.address_mode.to_owned(),
            fabric: labels.fabric.to_owned(),
            servers: 0,
            replicas: 1,
            regions: 1,
            clients: 1,
            records: config.records,
            ops,
            seconds: rounded(elapsed.as_secs_f64(), 3),
            ops_per_second: rounded(ratio(ops, 1) / elapsed.as_secs_f64(), 1),
            cpu_us_per_op: rounded(ratio(engine_nanos, ops * 1000), 3),
            client_cpu_us_per_op: rounded(ratio(generator_nanos, 1000), 3),
            compaction_cpu_us_per_op: activities.compaction,
            activity_cpu_us_per_op: activities,
            per_server: Vec::new(),
            latency_us: Latency::of(&tally.latencies),
            timeline: tally.timeline.points(),
            device_read_bytes: used.read_bytes,
            device_write_bytes: used.write_bytes,
            io_amplification: rounded(ratio(device_bytes, tally.request_bytes), 3),
            network_bytes: 0,
            network_amplification: 0.0,
            peak_rss_bytes: used.peak_rss_bytes,
            space_bytes: u64::from(self.store.used()) * SEGMENT_SIZE as u64,
            levels: after.levels,
            compactions: after.compactions - before.compactions,
            errors: tally.errors,
        })
    }

    /// The client thread.
    fn client(
        &self,
        (data, truth): (&Dataset, &Truth),
        order: Option<&Order>,
        operations: Operations<'_>,
        began: Instant,
    ) -> Result<Tally, BenchError> {
        let clock = ProcessClock;
        let (mut tally, mut batch) = (Tally::default(), WriteBatch::new());
        let mut buffer = vec![0; VALUE_BYTES_MAX];
        let mut sent_at = clock.now();
        for operation in operations {
            let record = operation.record();
            if let Operation::Scan { pairs, .. } = operation {
                let order = order.expect("there where a workload scans");
                tally.request_bytes += self.scan((data, truth), order, (record, pairs))?;
            } else {
                let key = data.key(record);
                let bytes = (KEY_BYTES + data.value_bytes(record)) as u64;
                if matches!(operation, Operation::Read(_) | Operation::Modify(_)) {
                    let floor = truth.begin_read(record);
                    let found = self.engine.get(&key)?.value;
                    check_read((data, truth), record, floor, found.as_deref())?;
                    tally.request_bytes += bytes;
                }
                if !matches!(operation, Operation::Read(_)) {
                    let version = truth.begin_write(record);
                    batch.clear();
                    let value = data.value(record, version, &mut buffer);
                    batch.put(&key, value).map_err(EngineError::Limit)?;
                    self.write(&batch)?;
                    truth.end_write(record, version);
                    tally.request_bytes += bytes;
                }
                if let (Some(order), Operation::Insert(_)) = (order, operation) {
                    order.add(data.place(record));
                }
            }
            let now = clock.now();
            tally.operation(began, sent_at, now);
            sent_at = now;
        }
        Ok(tally)
    }

    /// Reads `pairs` pairs from the key of `record` on, and checks them. Returns their bytes.
    fn scan(
        &self,
        (data, truth): (&Dataset, &Truth),
        order: &Order,
        (record, pairs): (u64, u64),
    ) -> Result<u64, BenchError> {
        let mark = order.mark();
        let range = KeyRange {
            from: data.key(record).to_vec(),
            to: None,
        };
        let mut scan = self.engine.snapshot().scan(&range)?;
        let mut found = Vec::new();
        while (found.len() as u64) < pairs
            && let Some(pair) = scan.next()?
        {
            found.push(pair);
        }
        let asked = Asked {
            record,
            pairs,
            mark,
        };
        let found = found.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
        Ok(order.check((data, truth), asked, found)?)
    }

    /// Writes, waiting while the engine is busy.
    fn write(&self, batch: &WriteBatch) -> Result<(), EngineError> {
        loop {
            match self.engine.write(batch, WriteOptions::default()) {
                Ok(_) => return Ok(()),
                Err(EngineError::Busy(_)) => {
                    self.pace.work.ring();
                    self.pace.room.wait(SLEEP_MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the engine has no background work left.
    fn drain(&self) -> Result<(), BenchError> {
        let mut idle_looks = 0;
        // A step may find nothing to do because it waits for the device, which rings when it is
        // done: so the engine is asked, and twice.
        while idle_looks < 2 {
            self.pace.idle.store(false, Ordering::Release);
            self.engine.flush_now();
            while !self.pace.idle.load(Ordering::Acquire) {
                if self.pace.failed.load(Ordering::Acquire) {
                    return Err(EngineError::Closed("a background step failed").into());
                }
                self.pace.room.wait(SLEEP_MAX);
            }
            if self.engine.background_pending() == 0 {
                idle_looks += 1;
            } else {
                idle_looks = 0;
                self.pace.room.wait(SLEEP_MAX);
            }
        }
        Ok(())
    }

    fn look(&self) -> Result<Look, BenchError> {
        let stats = self.engine.stats();
        let deepest = stats.levels.iter().filter(|level| level.segments > 0);
        Ok(Look {
            sample: Sample::of(std::process::id())?,
            levels: deepest
                .map(|level| u64::from(level.level))
                .max()
                .unwrap_or(0),
            compactions: stats.flushes + stats.compactions,
        })
    }
}

/// All counters at one moment.
struct Look {
    sample: Sample,
    levels: u64,
    compactions: u64,
}

/// What the load costs by itself, in nanoseconds of CPU an operation.
fn rehearse(data: &Dataset, operations: Operations<'_>) -> u64 {
    let clock = ProcessClock;
    let truth = Truth::new(1, 0);
    let (mut tally, mut buffer) = (Tally::default(), vec![0; VALUE_BYTES_MAX]);
    let (cpu, mut done, mut checksum) = (clock.thread_cpu(), 0_u64, 0_u8);
    let began = clock.now();
    let mut sent_at = began;
    for operation in operations.of(0).take(REHEARSAL_OPS) {
        let record = operation.record();
        let key = data.key(record);
        // To verify a value costs what it costs to make it.
        let floor = truth.begin_read(0);
        let values = match operation {
            Operation::Scan { pairs, .. } => pairs,
            Operation::Modify(_) => 2,
            _ => 1,
        };
        for value in 0..values {
            let value = data.value(record.wrapping_add(value), floor, &mut buffer);
            checksum ^= key[0] ^ value[value.len() - 1];
            tally.request_bytes += (KEY_BYTES + value.len()) as u64;
        }
        let now = clock.now();
        tally.operation(began, sent_at, now);
        sent_at = now;
        done += 1;
    }
    std::hint::black_box(checksum);
    let nanos = u64::try_from((clock.thread_cpu() - cpu).as_nanos()).unwrap_or(u64::MAX);
    nanos / done.max(1)
}
