//! Rows: what was measured, and what each figure means.
//!
//! All figures of a row are differences over one workload, from its first request to the end of
//! the drain after its last. `io_amplification` is device bytes read and written, divided by the
//! bytes of keys and values of all requests; `network_amplification` the same of the bytes that
//! servers wrote into each other's memory. `cpu_us_per_op` counts server processes only.

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::driver::Tally;
use crate::memory::MemoryUse;
use crate::run::Configuration;
use crate::timeline::{Interval, Seconds};
use crate::workload::Workload;

/// The schema of [`Report`]'s JSON.
pub const SCHEMA: &str = "argosy.bench.v1";

/// All rows of a benchmark, as `-o json` prints them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// In the order in which they ran.
    pub runs: Vec<Row>,
}

impl Report {
    /// A report of `runs`.
    #[must_use]
    pub const fn new(runs: Vec<Row>) -> Self {
        Self {
            schema: SCHEMA,
            runs,
        }
    }
}

/// One workload on one configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    #[serde(flatten)]
    pub subject: RowSubject,
    /// How much of it.
    #[serde(flatten)]
    pub scale: RowScale,
    /// How fast operations were done.
    #[serde(flatten)]
    pub speed: RowSpeed,
    /// What CPU was used, in microseconds an operation.
    #[serde(flatten)]
    pub cpu: RowCpu,
    /// The same by server.
    pub per_server: Vec<ServerRow>,
    /// How long operations took, and when they were done.
    #[serde(flatten)]
    pub times: RowTimes,
    /// What was read from devices, and written to them.
    #[serde(flatten)]
    pub devices: RowDevices,
    /// What servers sent each other.
    #[serde(flatten)]
    pub network: RowNetwork,
    /// What was resident.
    #[serde(flatten)]
    pub resident: RowMemory,
    /// What the stores hold, and have done.
    #[serde(flatten)]
    pub store: RowStore,
    /// Operations that were answered by an error.
    pub errors: u64,
}

/// Of a [`Row`]: what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct RowSubject {
    /// The workload.
    pub workload: String,
    /// The mix of pair sizes.
    pub mix: String,
    /// The sizes of small, medium and large pairs, by their name.
    pub sizes: String,
    /// The engine.
    pub engine: String,
    /// Where values are placed.
    pub placement: String,
    /// What a compaction takes: "partial" or "whole-level"; "own" of other stores.
    pub compaction: String,
    /// How regions are replicated.
    pub replication: String,
    /// What pointers between segments hold.
    pub address_mode: String,
    /// What carries one-sided writes.
    pub fabric: String,
    /// What else the system was told, in its own words.
    pub options: String,
}

impl RowSubject {
    /// Of a run of `workload`.
    pub(crate) fn of(workload: Workload, config: &Configuration) -> Self {
        let labels = &config.labels;
        Self {
            workload: workload.to_string(),
            mix: config.mix.to_string(),
            sizes: config.sizes.to_string(),
            engine: labels.engine.to_owned(),
            placement: labels.placement.clone(),
            compaction: labels.compaction.to_owned(),
            replication: labels.replication.clone(),
            address_mode: labels.address_mode.to_owned(),
            fabric: labels.fabric.to_owned(),
            options: labels.options.clone(),
        }
    }
}

/// Of a [`Row`]: how much of it.
#[derive(Clone, Debug, Serialize)]
pub struct RowScale {
    /// Server processes; 0 where the engine runs in this process.
    pub servers: usize,
    /// Members of each region.
    pub replicas: usize,
    /// Regions.
    pub regions: usize,
    /// Client threads.
    pub clients: usize,
    /// Records that were loaded.
    pub records: u64,
    /// Operations that were done.
    pub ops: u64,
}

/// Of a [`Row`]: how fast operations were done.
#[derive(Clone, Debug, Serialize)]
pub struct RowSpeed {
    /// From the first request to the end of the drain.
    pub seconds: f64,
    /// `ops / seconds`.
    pub ops_per_second: f64,
}

/// Of a [`Row`]: what CPU was used, in microseconds an operation.
#[derive(Clone, Debug, Serialize)]
pub struct RowCpu {
    /// CPU of all server processes.
    pub cpu_us_per_op: f64,
    /// CPU of the clients, the generator of load among it.
    pub client_cpu_us_per_op: f64,
    /// CPU of all servers' compactions, as they count it.
    pub compaction_cpu_us_per_op: f64,
    /// What `cpu_us_per_op` was used for, as the servers count it.
    pub activity_cpu_us_per_op: Activities,
}

/// Of a [`Row`]: how long operations took, and when they were done.
#[derive(Clone, Debug, Serialize)]
pub struct RowTimes {
    /// Latencies of operations.
    pub latency_us: Latency,
    /// Throughput and latency over time, up to the last reply; the drain is not in it.
    pub timeline: Vec<Interval>,
    /// The slowest second, and the middle one.
    pub second_ops: Seconds,
}

impl RowTimes {
    /// Of what `tally` has.
    pub(crate) fn of(tally: &Tally) -> Self {
        Self {
            latency_us: Latency::of(&tally.latencies),
            timeline: tally.timeline.points(),
            second_ops: tally.timeline.seconds(),
        }
    }
}

/// Of a [`Row`]: what was read from devices, and written to them.
#[derive(Clone, Debug, Serialize)]
pub struct RowDevices {
    /// Bytes read from devices, by the kernel's count.
    pub device_read_bytes: u64,
    /// Bytes written to devices, by the kernel's count.
    pub device_write_bytes: u64,
    /// See the module.
    pub io_amplification: f64,
    /// Bytes of `device_write_bytes` that went into logs which only recovery reads; not known of
    /// servers.
    pub device_log_bytes: Option<u64>,
    /// `io_amplification` without those.
    pub io_amplification_without_logs: Option<f64>,
}

impl RowDevices {
    /// Of so many bytes read and written, so many of these to logs, for requests of `request_bytes`.
    pub(crate) fn of(read: u64, written: u64, log_bytes: Option<u64>, request_bytes: u64) -> Self {
        let amplification = |bytes: u64| rounded(ratio(bytes, request_bytes), 3);
        let all = read + written;
        Self {
            device_read_bytes: read,
            device_write_bytes: written,
            io_amplification: amplification(all),
            device_log_bytes: log_bytes,
            io_amplification_without_logs: log_bytes
                .map(|log_bytes| amplification(all.saturating_sub(log_bytes))),
        }
    }
}

/// Of a [`Row`]: what servers sent each other.
#[derive(Clone, Debug, Serialize)]
pub struct RowNetwork {
    /// Bytes that servers wrote into other servers' memory.
    pub network_bytes: u64,
    /// See the module.
    pub network_amplification: f64,
}

/// Of a [`Row`]: what was resident.
#[derive(Clone, Debug, Serialize)]
pub struct RowMemory {
    /// Peak resident memory of all servers, summed, since they started.
    pub peak_rss_bytes: u64,
    /// What memory was taken by; known of the engine alone.
    pub memory: Option<MemoryUse>,
}

/// Of a [`Row`]: what the stores hold, and have done.
#[derive(Clone, Debug, Serialize)]
pub struct RowStore {
    /// Bytes of the device segments in use when all was drained.
    pub space_bytes: u64,
    /// The deepest level that holds anything.
    pub levels: u64,
    /// Compactions that were committed.
    pub compactions: u64,
    /// Of lookups of a key in a sorted run that does not hold it, the share that the run's filter let pass;
    /// known of the engine alone.
    pub filter_false_positive_rate: Option<f64>,
    /// Bytes of filters in memory when all was drained; likewise.
    pub filter_bytes: Option<u64>,
}

/// One server's part of a row.
#[derive(Clone, Debug, Serialize)]
pub struct ServerRow {
    /// The server.
    pub id: u32,
    /// CPU of this server, over all operations of the run.
    pub cpu_us_per_op: f64,
    /// CPU of this server's compactions, over all operations of the run.
    pub compaction_cpu_us_per_op: f64,
    /// What its CPU was used for.
    pub activity_cpu_us_per_op: Activities,
    /// Bytes read from its device.
    pub device_read_bytes: u64,
    /// Bytes written to its device.
    pub device_write_bytes: u64,
    /// Bytes that it wrote into other servers' memory.
    pub network_bytes: u64,
    /// Its peak resident memory.
    pub peak_rss_bytes: u64,
    /// Compactions that it committed.
    pub compactions: u64,
}

/// Microseconds of CPU an operation, by what they were used for. A server's threads count each of
/// theirs once, so that the sum is `cpu_us_per_op` but for what threads use that serve nobody.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Activities {
    /// Clients' requests.
    pub request: f64,
    /// Shipping records to backups, and writing logs to devices.
    pub log_replication: f64,
    /// Flushing memtables and compacting.
    pub compaction: f64,
    /// Shipping segments and edits to backups, and taking them there.
    pub index_shipping: f64,
    /// Rewriting the pointers of shipped segments.
    pub rewriting: f64,
    /// Anything else.
    pub other: f64,
}

impl Activities {
    /// From microseconds in the order of the fields, over `ops` operations.
    #[must_use]
    pub fn of(micros: [u64; 6], ops: u64) -> Self {
        let [
            request,
            log_replication,
            compaction,
            index_shipping,
            rewriting,
            other,
        ] = micros.map(|micros| rounded(ratio(micros, ops), 3));
        Self {
            request,
            log_replication,
            compaction,
            index_shipping,
            rewriting,
            other,
        }
    }

    /// In the order of the fields.
    #[must_use]
    pub const fn parts(&self) -> [f64; 6] {
        [
            self.request,
            self.log_replication,
            self.compaction,
            self.index_shipping,
            self.rewriting,
            self.other,
        ]
    }

    /// All of them.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.parts().into_iter().sum()
    }
}

/// Latencies, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Half of all operations took at most this long.
    pub p50: f64,
    /// 99 % did.
    pub p99: f64,
    /// 99.9 % did.
    pub p999: f64,
    /// 99.99 % did.
    pub p9999: f64,
    /// All did.
    pub max: f64,
}

impl Latency {
    /// The percentiles of a histogram of nanoseconds.
    #[must_use]
    pub fn of(nanos: &Histogram<u64>) -> Self {
        let at = |quantile| micros(nanos.value_at_quantile(quantile));
        Self {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: micros(nanos.max()),
        }
    }
}

/// Nanoseconds as microseconds, with one digit behind the point.
pub(crate) fn micros(nanos: u64) -> f64 {
    ratio(nanos / 100, 10)
}

/// `a / b`, and zero where `b` is zero.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio for people to read; counts stay below 2^53"
)]
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Rounds to so many digits behind the point: what is printed is what is meant.
#[must_use]
pub fn rounded(x: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (x * scale).round() / scale
}

/// Of each workload, the take with the median throughput.
#[must_use]
pub fn medians(takes: &[Vec<Row>]) -> Vec<Row> {
    let workloads = takes.first().map_or(0, Vec::len);
    (0..workloads)
        .map(|index| {
            let mut rows: Vec<_> = takes.iter().map(|take| &take[index]).collect();
            rows.sort_by(|a, b| a.speed.ops_per_second.total_cmp(&b.speed.ops_per_second));
            rows[rows.len() / 2].clone()
        })
        .collect()
}

/// The columns of the table.
const COLUMNS: [(&str, usize); 20] = [
    ("engine", 7),
    ("workload", 8),
    ("mix", 3),
    ("placement", 9),
    ("compaction", 11),
    ("replication", 11),
    ("address", 7),
    ("kops/s", 8),
    ("cpu us/op", 9),
    ("compact", 7),
    ("client", 6),
    ("p50 us", 8),
    ("p99 us", 9),
    ("p99.9 us", 9),
    ("p99.99 us", 9),
    ("io amp", 7),
    ("no logs", 7),
    ("net amp", 7),
    ("rss MiB", 7),
    ("lv/cmp", 8),
];

/// The table's first line.
#[must_use]
pub fn table_header() -> String {
    let cells: Vec<_> = COLUMNS
        .iter()
        .map(|&(name, width)| format!("{name:>width$}"))
        .collect();
    cells.join(" ")
}

/// The columns of the table of activities.
const ACTIVITY_COLUMNS: [(&str, usize); 15] = [
    ("engine", 7),
    ("workload", 8),
    ("mix", 3),
    ("placement", 9),
    ("replication", 11),
    ("address", 7),
    ("server", 6),
    ("cpu us/op", 9),
    ("request", 8),
    ("log repl", 8),
    ("compaction", 10),
    ("index ship", 10),
    ("rewrite", 8),
    ("other", 8),
    ("sum", 8),
];

/// A table of what CPU was used for, in microseconds an operation: of all servers of each row, and
/// of each server.
#[must_use]
pub fn activity_table(rows: &[Row]) -> String {
    let mut lines = vec![cells(&ACTIVITY_COLUMNS.map(|(name, _)| name.to_owned()))];
    for row in rows {
        lines.push(row.activity_line(
            "all",
            row.cpu.cpu_us_per_op,
            &row.cpu.activity_cpu_us_per_op,
        ));
        lines.extend(row.per_server.iter().map(|server| {
            let id = server.id.to_string();
            row.activity_line(&id, server.cpu_us_per_op, &server.activity_cpu_us_per_op)
        }));
    }
    lines.join("\n")
}

fn cells(texts: &[String]) -> String {
    let padded: Vec<_> = texts
        .iter()
        .zip(ACTIVITY_COLUMNS)
        .map(|(text, (_, width))| format!("{text:>width$}"))
        .collect();
    padded.join(" ")
}

impl Row {
    fn activity_line(&self, server: &str, cpu: f64, activities: &Activities) -> String {
        let names = [
            &self.subject.engine,
            &self.subject.workload,
            &self.subject.mix,
            &self.subject.placement,
            &self.subject.replication,
            &self.subject.address_mode,
        ];
        let mut texts: Vec<_> = names.into_iter().cloned().collect();
        texts.push(server.to_owned());
        let figures = [cpu]
            .into_iter()
            .chain(activities.parts())
            .chain([activities.sum()]);
        texts.extend(figures.map(|figure| format!("{figure:.2}")));
        cells(&texts)
    }
}

impl fmt::Display for Row {
    /// One line of the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let without_logs = self.devices.io_amplification_without_logs;
        let cells = [
            self.subject.engine.clone(),
            self.subject.workload.clone(),
            self.subject.mix.clone(),
            self.subject.placement.clone(),
            self.subject.compaction.clone(),
            self.subject.replication.clone(),
            self.subject.address_mode.clone(),
            format!("{:.1}", self.speed.ops_per_second / 1000.0),
            format!("{:.2}", self.cpu.cpu_us_per_op),
            format!("{:.2}", self.cpu.compaction_cpu_us_per_op),
            format!("{:.2}", self.cpu.client_cpu_us_per_op),
            format!("{:.1}", self.times.latency_us.p50),
            format!("{:.1}", self.times.latency_us.p99),
            format!("{:.1}", self.times.latency_us.p999),
            format!("{:.1}", self.times.latency_us.p9999),
            format!("{:.2}", self.devices.io_amplification),
            without_logs.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            format!("{:.2}", self.network.network_amplification),
            format!("{}", self.resident.peak_rss_bytes >> 20),
            format!("{}/{}", self.store.levels, self.store.compactions),
        ];
        for (place, (cell, (_, width))) in cells.iter().zip(COLUMNS).enumerate() {
            let gap = if place == 0 { "" } else { " " };
            write!(f, "{gap}{cell:>width$}")?;
        }
        if self.errors > 0 {
            write!(f, "  {} errors", self.errors)?;
        }
        Ok(())
    }
}
