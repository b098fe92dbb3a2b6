//! Stores in this process: one client thread, and whatever threads a store has in the background.
//!
//! Ours is [`lsm`]; `rocksdb` is there with the feature `peers`. What a store has to offer is
//! [`Store`], and everything that is measured is measured here, alike for all of them.
//!
//! CPU is that of the whole process, the device's threads among it, less what the load costs by
//! itself: before each workload a part of it is done against nothing (records chosen, keys and
//! values made or verified, the clock read, latencies counted), and that cost per operation is
//! taken off and reported as the client's. Of the rest, what the client's thread has used is the
//! requests', and all else, log flushes and the device's threads among it, is compaction.
//!
//! Device bytes are the process's, by the kernel's count, from the first request of a workload to
//! the end of its drain: no two stores are open at the same time. What a store wrote into the log
//! that it keeps for recovery it counts itself, and a row has the amplification with and without.

pub mod lsm;
#[cfg(feature = "peers")]
pub mod rocksdb;

use std::time::Duration;

use argosy_base::{Clock, Instant};

use crate::clock::ProcessClock;
use crate::data::{Dataset, KEY_BYTES, VALUE_BYTES_MAX};
use crate::driver::{Tally, check_read};
use crate::order::{Asked, Order};
use crate::process::Sample;
use crate::report::{Activities, Latency, Row, ratio, rounded};
use crate::run::{BenchError, Configuration, Event};
use crate::truth::Truth;
use crate::workload::{Operation, Operations, Workload};

pub use lsm::{Embedded, run};

/// How many operations are done against nothing, to learn what the load costs by itself.
const REHEARSAL_OPS: usize = 200_000;

/// Keys and values, in order.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A store in this process, as the client's thread sees it.
pub trait Store {
    /// Writes a pair, waiting where the store is busy. A killed process does not lose it; a loss of
    /// power may.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError>;

    /// Hands the value of `key` to `found`.
    fn get<R>(
        &mut self,
        key: &[u8],
        found: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, BenchError>;

    /// Adds the first `count` pairs at and behind `from` to `found`.
    fn scan(&mut self, from: &[u8], count: u64, found: &mut Pairs) -> Result<(), BenchError>;

    /// Waits until no background work is left.
    fn drain(&mut self) -> Result<(), BenchError>;

    /// What it says of itself.
    fn look(&mut self) -> Result<Look, BenchError>;
}

/// What a [`Store`] says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Bytes that were written so far into logs which are read for recovery only. A log that values
    /// are read from is not among them.
    pub log_bytes: u64,
    /// Bytes in use on the device.
    pub space_bytes: u64,
    /// Levels that hold something, counted to the deepest.
    pub levels: u64,
    /// Flushes and compactions so far.
    pub compactions: u64,
}

/// Loads `config`'s records into `store` and runs its workloads. Hands each row to `tell`.
pub fn run_all(
    store: &mut impl Store,
    config: &Configuration,
    mut tell: impl FnMut(Event),
) -> Result<(), BenchError> {
    let (data, truth) = (config.data(), config.truth());
    config.phases().try_for_each(|phase| {
        let row = measure(store, config, phase.workload, (&data, &truth))?;
        if phase.reported {
            tell(Event::Row(Box::new(row)));
        }
        Ok(())
    })
}

/// Runs one workload, drains, and makes its row.
fn measure(
    store: &mut impl Store,
    config: &Configuration,
    workload: Workload,
    (data, truth): (&Dataset, &Truth),
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
    let before = (store.look()?, Sample::of(std::process::id())?);
    let (began, cpu, client_cpu) = (clock.now(), clock.process_cpu(), clock.thread_cpu());
    let tally = client(store, (data, truth), order.as_ref(), operations, began)?;
    store.drain()?;
    let client_cpu = clock.thread_cpu() - client_cpu;
    let (elapsed, cpu) = (clock.now() - began, clock.process_cpu() - cpu);
    let after = (store.look()?, Sample::of(std::process::id())?);

    let measured = Measured {
        workload,
        elapsed,
        cpu,
        client_cpu,
        generator_nanos,
        tally,
        before,
        after,
    };
    Ok(measured.row(config))
}

/// One workload, over.
struct Measured {
    workload: Workload,
    elapsed: Duration,
    /// Of the process.
    cpu: Duration,
    /// Of the client's thread.
    client_cpu: Duration,
    /// What the load costs by itself, for each operation.
    generator_nanos: u64,
    tally: Tally,
    before: (Look, Sample),
    after: (Look, Sample),
}

impl Measured {
    fn row(&self, config: &Configuration) -> Row {
        let (ops, labels) = (config.ops_of(self.workload), &config.labels);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let engine_nanos = nanos(self.cpu).saturating_sub(self.generator_nanos * ops);
        // What the client's thread has not used was used by the background and the device.
        let background = nanos(self.cpu.saturating_sub(self.client_cpu)).min(engine_nanos);
        let request = engine_nanos - background;
        let activities = Activities::of([request / 1000, 0, background / 1000, 0, 0, 0], ops);
        let ((before, sample_before), (after, sample_after)) = (self.before, self.after);
        let used = sample_after.since(sample_before);
        let log_bytes = after.log_bytes - before.log_bytes;
        let device_bytes = used.read_bytes + used.write_bytes;
        Row {
            workload: self.workload.to_string(),
            mix: config.mix.to_string(),
            sizes: config.sizes.to_string(),
            engine: labels.engine.to_owned(),
            placement: labels.placement.clone(),
            replication: labels.replication.clone(),
            compaction: labels.compaction.to_owned(),
            address_mode: labels.address_mode.to_owned(),
            fabric: labels.fabric.to_owned(),
            options: labels.options.clone(),
            servers: 0,
            replicas: 1,
            regions: 1,
            clients: 1,
            records: config.records,
            ops,
            seconds: rounded(self.elapsed.as_secs_f64(), 3),
            ops_per_second: rounded(ratio(ops, 1) / self.elapsed.as_secs_f64(), 1),
            cpu_us_per_op: rounded(ratio(engine_nanos, ops * 1000), 3),
            client_cpu_us_per_op: rounded(ratio(self.generator_nanos, 1000), 3),
            compaction_cpu_us_per_op: activities.compaction,
            activity_cpu_us_per_op: activities,
            per_server: Vec::new(),
            latency_us: Latency::of(&self.tally.latencies),
            timeline: self.tally.timeline.points(),
            device_read_bytes: used.read_bytes,
            device_write_bytes: used.write_bytes,
            io_amplification: rounded(ratio(device_bytes, self.tally.request_bytes), 3),
            device_log_bytes: Some(log_bytes),
            io_amplification_without_logs: Some(rounded(
                ratio(
                    device_bytes.saturating_sub(log_bytes),
                    self.tally.request_bytes,
                ),
                3,
            )),
            network_bytes: 0,
            network_amplification: 0.0,
            peak_rss_bytes: used.peak_rss_bytes,
            space_bytes: after.space_bytes,
            levels: after.levels,
            compactions: after.compactions - before.compactions,
            errors: self.tally.errors,
        }
    }
}

/// The client thread.
fn client(
    store: &mut impl Store,
    (data, truth): (&Dataset, &Truth),
    order: Option<&Order>,
    operations: Operations<'_>,
    began: Instant,
) -> Result<Tally, BenchError> {
    let clock = ProcessClock;
    let mut tally = Tally::default();
    let mut buffer = vec![0; VALUE_BYTES_MAX];
    let mut sent_at = clock.now();
    for operation in operations {
        let record = operation.record();
        if let Operation::Scan { pairs, .. } = operation {
            let order = order.expect("there where a workload scans");
            tally.request_bytes += scan(store, (data, truth), order, (record, pairs))?;
        } else {
            let key = data.key(record);
            let bytes = (KEY_BYTES + data.value_bytes(record)) as u64;
            if matches!(operation, Operation::Read(_) | Operation::Modify(_)) {
                let floor = truth.begin_read(record);
                store.get(&key, |found| {
                    check_read((data, truth), record, floor, found)
                })??;
                tally.request_bytes += bytes;
            }
            if !matches!(operation, Operation::Read(_)) {
                let version = truth.begin_write(record);
                let value = data.value(record, version, &mut buffer);
                store.put(&key, value)?;
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
    store: &mut impl Store,
    (data, truth): (&Dataset, &Truth),
    order: &Order,
    (record, pairs): (u64, u64),
) -> Result<u64, BenchError> {
    let mark = order.mark();
    let mut found = Pairs::new();
    store.scan(&data.key(record), pairs, &mut found)?;
    let asked = Asked {
        record,
        pairs,
        mark,
    };
    let found = found.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
    Ok(order.check((data, truth), asked, found)?)
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
