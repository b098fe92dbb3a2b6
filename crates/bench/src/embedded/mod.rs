//! Stores in this process: one client thread or several, and whatever threads a store has in the background.
//!
//! Ours is [`lsm`]; the others are there with the feature `peers`. What a store has to offer is
//! [`Contender`], and everything that is measured is measured here, alike for all of them.
//!
//! CPU is that of the whole process, the device's threads among it, less what the load costs by
//! itself: before each workload a part of it is done against nothing (records chosen, keys and
//! values made or verified, answers compared with what may be there, the clock read, latencies
//! counted), and that cost per operation is taken off and reported as the client's. Of the rest, what
//! the client's thread has used is the requests', and all else, log flushes and the device's threads
//! among it, is compaction.
//!
//! Device bytes are the process's, by the kernel's count, from the first request of a workload to
//! the end of its drain: no two stores are open at the same time. What a store wrote into the log
//! that it keeps for recovery it counts itself, and a row has the amplification with and without.

#[cfg(feature = "peers")]
pub mod bf_tree;
#[cfg(feature = "peers")]
pub mod fjall;
pub mod lsm;
#[cfg(feature = "peers")]
pub mod rocksdb;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::{Clock, Instant};
use argosy_client::Pairs;
use argosy_device::SystemClock;
use argosy_embedded::Memory;

use crate::data::{KEY_BYTES, VALUE_BYTES_MAX};
use crate::driver::{Tally, check_read};
use crate::memory::{MemoryUse, TELL_EVERY, own_bytes, watch};
use crate::order::{Asked, Order};
use crate::process::Sample;
use crate::report::{
    Activities, Row, RowCpu, RowDevices, RowMemory, RowNetwork, RowScale, RowSpeed, RowStore,
    RowSubject, RowTimes, ratio, rounded,
};
use crate::run::{BenchError, Configuration, Notice};
use crate::truth::{Records, Truth};
use crate::workload::{Operation, Operations, Workload};

pub use lsm::{EmbeddedOptions, run};

/// How many operations are done against nothing, to learn what the load costs by itself.
const REHEARSAL_OPS: usize = 200_000;
/// So many scans are made in a rehearsal before they are checked: what was just made is nearer to the
/// processor than what an engine returns after much else.
const REHEARSAL_SCANS: usize = 256;

/// A store in this process, as its clients' threads see it.
pub trait Contender: Sync {
    /// What a client keeps from write to write.
    type Hand: Default;

    /// Writes a pair, waiting where the store is busy. A killed process does not lose it; a loss of
    /// power may, unless the store was told to sync what it writes.
    fn put(&self, hand: &mut Self::Hand, key: &[u8], value: &[u8]) -> Result<(), BenchError>;

    /// Hands the value of `key` to `found`.
    fn get<R>(&self, key: &[u8], found: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError>;

    /// Adds the first `count` pairs at and behind `from` to `found`.
    fn scan(&self, from: &[u8], count: u64, found: &mut Pairs) -> Result<(), BenchError>;

    /// Waits until no background work is left.
    fn drain(&self) -> Result<(), BenchError>;

    /// What it says of itself.
    fn look(&self) -> Result<Look, BenchError>;

    /// What it takes of memory, where it knows.
    fn memory(&self) -> Option<Memory> {
        None
    }

    /// It has so many bytes in memory, gaps and all. Told where it knows the above, from time to time.
    fn resident(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Called once a second by each client's thread.
    fn trim_allocator(&self) {}
}

/// What a [`Contender`] says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Bytes that were written so far into logs which are read for recovery only. A log that values
    /// are read from is not among them. `None`: not known.
    pub log_bytes: Option<u64>,
    /// Bytes in use on the device.
    pub space_bytes: u64,
    /// Levels that hold something, counted to the deepest.
    pub levels: u64,
    /// Flushes and compactions so far.
    pub compactions: u64,
    /// What filters did so far, where that is known.
    pub filters: Option<Filters>,
}

/// What filters did, and take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Lookups of a key in a sorted run that does not hold it, of which the filter knew that.
    pub spared: u64,
    /// Those of which it did not.
    pub misled: u64,
    /// Bytes of filters in memory.
    pub bytes: u64,
}

impl Filters {
    /// The share of absent keys that passed since `before`; `None` where none was looked for.
    fn false_positives(&self, before: &Self) -> Option<f64> {
        let (spared, misled) = (self.spared - before.spared, self.misled - before.misled);
        let absent = spared + misled;
        (absent > 0).then(|| rounded(ratio(misled, absent), 6))
    }
}

/// Loads `config`'s records into `store` and runs its workloads. Hands each row to `tell`.
pub fn run_all(
    store: &impl Contender,
    config: &Configuration,
    mut tell: impl FnMut(Notice),
) -> Result<(), BenchError> {
    let own = store.memory().as_ref().map_or(0, own_bytes);
    let (data, truth) = (config.data(), config.truth());
    let records = Records {
        data: &data,
        truth: &truth,
    };
    config.phases().try_for_each(|phase| {
        let row = measure(store, own, config, phase.workload, records)?;
        if phase.reported {
            tell(Notice::Row(Box::new(row)));
        }
        Ok(())
    })
}

/// Runs one workload, drains, and makes its row. The program had `own` bytes before anything was done with the store.
fn measure(
    store: &impl Contender,
    own: u64,
    config: &Configuration,
    workload: Workload,
    records: Records<'_>,
) -> Result<Row, BenchError> {
    let clock = SystemClock;
    let truth = records.truth;
    let order = workload.scans().then(|| Order::new(records.data, truth));
    let (count, more) = config.room();
    let rehearsed = Truth::rehearsed(count, more);
    let operations = config.operations(workload, 1, &rehearsed);
    let order = order.as_ref();
    let generator_nanos = rehearse(records, operations, &rehearsed, order)?;
    truth.present();
    let operations = config.operations(workload, config.clients, truth);
    // Best effort: where the kernel refuses, the peak is that since the process began.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = (store.look()?, Sample::of(std::process::id())?);
    let (began, cpu) = (clock.now(), clock.process_cpu());
    let client_cpu = clock.thread_cpu();
    // What was rehearsed stays until the end: an allocator would keep it for a while, and nobody could say that.
    let versions = truth.memory_bytes() + rehearsed.memory_bytes();
    let load_bytes = || versions + order.map_or(0, Order::memory_bytes);
    let memory = || store.memory().zip(Some(load_bytes()));
    let tell = |bytes| store.resident(bytes);
    let ((tally, others_cpu), (memory, watching)) = watched(own, memory, tell, || {
        let driven = drive(config.clients - 1, &|number| {
            let operations = operations.of(number);
            client(store, records, order, operations, began)
        })?;
        store.drain()?;
        Ok(driven)
    })?;
    let client_cpu = clock.thread_cpu() - client_cpu + others_cpu;
    let (elapsed, cpu) = (clock.now() - began, clock.process_cpu() - cpu - watching);
    let after = (store.look()?, Sample::of(std::process::id())?);

    let measured = Measured {
        workload,
        elapsed,
        cpu,
        client_cpu,
        generator_nanos,
        tally,
        memory,
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
    /// Of the clients' threads.
    client_cpu: Duration,
    /// What the load costs by itself, for each operation.
    generator_nanos: u64,
    tally: Tally,
    memory: Option<MemoryUse>,
    before: (Look, Sample),
    after: (Look, Sample),
}

impl Measured {
    fn row(&self, config: &Configuration) -> Row {
        let ops = config.ops_of(self.workload);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let engine_nanos = nanos(self.cpu).saturating_sub(self.generator_nanos * ops);
        // What the clients' threads have not used was used by the background and the device.
        let background = nanos(self.cpu.saturating_sub(self.client_cpu)).min(engine_nanos);
        let request = engine_nanos - background;
        let activities = Activities::of([request / 1000, 0, background / 1000, 0, 0, 0], ops);
        let ((before, sample_before), (after, sample_after)) = (self.before, self.after);
        let used = sample_after.since(sample_before);
        let log_bytes = after.log_bytes.zip(before.log_bytes);
        let log_bytes = log_bytes.map(|(after, before)| after - before);
        Row {
            subject: RowSubject::of(self.workload, config),
            scale: RowScale {
                servers: 0,
                replicas: 1,
                regions: 1,
                clients: config.clients,
                records: config.records,
                ops,
            },
            speed: RowSpeed {
                seconds: rounded(self.elapsed.as_secs_f64(), 3),
                ops_per_second: rounded(ratio(ops, 1) / self.elapsed.as_secs_f64(), 1),
            },
            cpu: RowCpu {
                cpu_us_per_op: rounded(ratio(engine_nanos, ops * 1000), 3),
                client_cpu_us_per_op: rounded(ratio(self.generator_nanos, 1000), 3),
                compaction_cpu_us_per_op: activities.compaction,
                activity_cpu_us_per_op: activities,
            },
            per_server: Vec::new(),
            times: RowTimes::of(&self.tally),
            devices: RowDevices::of(
                used.read_bytes,
                used.write_bytes,
                log_bytes,
                self.tally.request_bytes,
            ),
            network: RowNetwork {
                network_bytes: 0,
                network_amplification: 0.0,
            },
            resident: RowMemory {
                peak_rss_bytes: used.peak_rss_bytes,
                memory: self.memory,
            },
            store: RowStore {
                space_bytes: after.space_bytes,
                levels: after.levels,
                compactions: after.compactions - before.compactions,
                filter_false_positive_rate: {
                    let before = before.filters.unwrap_or_default();
                    let after = after.filters;
                    after.and_then(|filters| filters.false_positives(&before))
                },
                filter_bytes: after.filters.map(|filters| filters.bytes),
            },
            errors: self.tally.errors,
        }
    }
}

/// Bytes of all files in `dir` and the directories in it. One that goes away meanwhile is not counted.
#[cfg(feature = "peers")]
fn bytes_of(dir: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

/// Runs `work` on this thread, while another looks at what `memory` says; what that cost of CPU is no store's.
fn watched<T>(
    own: u64,
    memory: impl Fn() -> Option<(Memory, u64)> + Send,
    tell: impl Fn(u64) + Send,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<(T, (Option<MemoryUse>, Duration)), BenchError> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = std::thread::Builder::new()
            .name("memory".to_owned())
            .spawn_scoped(scope, || watch(&over, own, memory, tell))
            .map_err(BenchError::Thread)?;
        let done = work();
        over.store(true, Ordering::Release);
        watching.thread().unpark();
        let found = watching.join();
        let found = found.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((done?, found))
    })
}

/// Runs `client` on this thread, and at the same time on `others` more. Returns what they did, and the CPU of
/// the others.
fn drive(
    others: usize,
    client: &(impl Fn(u64) -> Result<Tally, BenchError> + Sync),
) -> Result<(Tally, Duration), BenchError> {
    std::thread::scope(|scope| {
        let timed = |number| {
            let before = SystemClock.thread_cpu();
            let tally = client(number)?;
            Ok::<_, BenchError>((tally, SystemClock.thread_cpu() - before))
        };
        let mut threads = Vec::new();
        for number in (1..).take(others) {
            let thread = std::thread::Builder::new()
                .name(format!("client-{number}"))
                .spawn_scoped(scope, move || timed(number))
                .map_err(BenchError::Thread)?;
            threads.push(thread);
        }
        let (mut tally, mut cpu) = (client(0)?, Duration::ZERO);
        for thread in threads {
            let joined = thread.join();
            let (other, used) = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            tally.add(&other);
            cpu += used;
        }
        Ok((tally, cpu))
    })
}

/// One client's thread.
fn client(
    store: &impl Contender,
    records: Records<'_>,
    order: Option<&Order>,
    operations: Operations<'_>,
    began: Instant,
) -> Result<Tally, BenchError> {
    let Records { data, truth } = records;
    let clock = SystemClock;
    let mut tally = Tally::default();
    let (mut buffer, mut hand) = (vec![0; VALUE_BYTES_MAX], Default::default());
    let mut sent_at = clock.now();
    let mut trimmed_at = sent_at;
    for operation in operations {
        let record = operation.record();
        if let Operation::Scan { pairs, .. } = operation {
            let order = order.expect("there where a workload scans");
            tally.request_bytes += scan(store, records, order, record, pairs)?;
        } else {
            let key = data.key(record);
            let bytes = (KEY_BYTES + data.value_bytes(record)) as u64;
            if matches!(operation, Operation::Read(_) | Operation::Modify(_)) {
                let floor = truth.begin_read(record);
                store.get(&key, |found| check_read(records, record, floor, found))??;
                tally.request_bytes += bytes;
            }
            if !matches!(operation, Operation::Read(_)) {
                let version = truth.begin_write(record);
                let value = data.value(record, version, &mut buffer);
                store.put(&mut hand, &key, value)?;
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
        if now >= trimmed_at + TELL_EVERY {
            store.trim_allocator();
            trimmed_at = now;
        }
    }
    Ok(tally)
}

/// Reads `pairs` pairs from the key of `record` on, and checks them. Returns their bytes.
fn scan(
    store: &impl Contender,
    records: Records<'_>,
    order: &Order,
    record: u64,
    pairs: u64,
) -> Result<u64, BenchError> {
    let mark = order.mark();
    let mut found = Pairs::new();
    store.scan(&records.data.key(record), pairs, &mut found)?;
    let asked = Asked {
        record,
        pairs,
        mark,
    };
    let found = found.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
    Ok(order.check(records, asked, found)?)
}

/// What the load costs by itself, in nanoseconds of CPU an operation. Writes and reads are noted in
/// `rehearsed`, as the load's are in `truth`.
fn rehearse(
    records: Records<'_>,
    operations: Operations<'_>,
    rehearsed: &Truth,
    order: Option<&Order>,
) -> Result<u64, BenchError> {
    let clock = SystemClock;
    let (mut tally, mut buffer) = (Tally::default(), vec![0; VALUE_BYTES_MAX]);
    let (mut done, mut making) = (0_u64, Duration::ZERO);
    let (cpu, began) = (clock.thread_cpu(), clock.now());
    let mut sent_at = began;
    let mut scans: Vec<(Asked, Pairs)> = Vec::new();
    let check = |scans: &mut Vec<(Asked, Pairs)>| {
        let mut checked = 0;
        for (asked, found) in scans.drain(..) {
            let order = order.expect("it was there when they were made");
            let found = found.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
            checked += order.check(records, asked, found)?;
        }
        Ok::<u64, BenchError>(checked)
    };
    for operation in operations.of(0).take(REHEARSAL_OPS) {
        let record = operation.record();
        if let (Operation::Scan { pairs, .. }, Some(order)) = (operation, order) {
            let before = clock.thread_cpu();
            let found = order.found(records, record, pairs);
            making += clock.thread_cpu() - before;
            let mark = order.mark();
            let asked = Asked {
                record,
                pairs,
                mark,
            };
            scans.push((asked, found));
            if scans.len() == REHEARSAL_SCANS {
                tally.request_bytes += check(&mut scans)?;
            }
        } else {
            black_box(records.data.key(record));
            // To verify a value costs what it costs to make it.
            let mut touch = |version| {
                let value = records.data.value(record, version, &mut buffer);
                black_box(value);
                tally.request_bytes += (KEY_BYTES + value.len()) as u64;
            };
            if matches!(operation, Operation::Read(_) | Operation::Modify(_)) {
                let floor = rehearsed.begin_read(record);
                touch(floor);
                black_box(rehearsed.allows(record, floor, floor));
            }
            if !matches!(operation, Operation::Read(_)) {
                let version = rehearsed.begin_write(record);
                touch(version);
                rehearsed.end_write(record, version);
            }
        }
        let now = clock.now();
        tally.operation(began, sent_at, now);
        sent_at = now;
        done += 1;
    }
    tally.request_bytes += check(&mut scans)?;
    let used = (clock.thread_cpu() - cpu).saturating_sub(making);
    let nanos = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
    Ok(nanos / done.max(1))
}
