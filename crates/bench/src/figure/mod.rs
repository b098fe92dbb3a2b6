//! The papers' comparisons, rerun: what each compares, what it claims, and what was measured.
//!
//! A [`Figure`] is data ([`papers`]): systems that differ in how members become equal, points that
//! differ in the mix of sizes or the growth factor, workloads, and the claims of the paper's text.
//! Whoever runs it starts a system at a time, in this order, so that whatever else the machine does
//! meets all systems alike:
//!
//! ```text
//! for each repetition
//!     for each point (a mix and a growth factor)
//!         for each system: load, run the workloads, drained and measured
//! ```
//!
//! [`outcome`] takes the medians and sets the claims beside them; [`bars`] draws them.
//!
//! A figure runs at a *scale*: the papers load 100 million records, scale 1 is
//! [`RECORDS_AT_SCALE_1`]. What has to shrink with the records does: memtables, and the cache, which
//! is a quarter of a server's own data as in the papers.

pub mod bars;
pub mod outcome;
pub mod papers;
#[cfg(test)]
pub(crate) mod tests;

use crate::data::{Mix, PairSizes};

/// Records that scale 1 loads.
pub const RECORDS_AT_SCALE_1: u64 = 500_000;

/// Records that the papers load.
const RECORDS_OF_PAPERS: u64 = 100_000_000;

/// Memtables of a server in the papers: Tebis, section 4. Talos has 2 million keys over two servers,
/// which comes to about the same.
const L0_BYTES_OF_PAPERS: u64 = 128 << 20;

/// One comparison of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// As it is asked for.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The paper, with section and figure.
    pub source: &'static str,
    /// The sizes of its pairs.
    pub sizes: &'static str,
    /// Where values are placed.
    pub placement: &'static str,
    /// On which cluster.
    pub cluster: FigureCluster,
    /// What it compares, in the order in which it runs.
    pub systems: &'static [System],
    /// On what.
    pub points: &'static [Point],
    /// The workloads, on one load.
    pub workloads: &'static [&'static str],
    /// What the paper says about it.
    pub claims: &'static [Claim],
    /// Where ours differs from the paper's, and what the paper leaves open.
    pub notes: &'static [&'static str],
}

/// The cluster of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FigureCluster {
    /// Servers.
    pub servers: usize,
    /// Members of each region where there is replication.
    pub replicas: usize,
    /// Server 0 is primary of all regions.
    pub split: bool,
}

/// A system of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// As it is called in tables.
    pub label: &'static str,
    /// How members become equal.
    pub replication: &'static str,
    /// What pointers between segments hold.
    pub address: &'static str,
    /// What backups' memtables are, where they have any.
    pub l0: BackupL0,
}

/// Memory of the memtables of backups that build their own index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupL0 {
    /// Each replica's is as large as the primary's.
    Own,
    /// A server's memory for memtables is divided over all its replicas.
    Shared,
}

/// One place on the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The mix of pair sizes.
    pub mix: PointMix,
    /// How many times larger a level is than the one above.
    pub growth_factor: u32,
}

/// The mix of a [`Point`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointMix {
    /// By its name.
    Named(&'static str),
    /// By its percentage of small pairs.
    Small(u64),
}

impl Point {
    /// The mix.
    ///
    /// # Panics
    /// Where there is no such mix: a mistake in [`papers`], which a test would find.
    #[must_use]
    pub fn mix(&self) -> Mix {
        let mix = match self.mix {
            PointMix::Named(name) => name.parse().ok(),
            PointMix::Small(percent) => Mix::of_small(percent),
        };
        mix.expect("papers name mixes that exist")
    }
}

/// Something that a paper says of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// What is compared.
    pub measure: Measure,
    /// The label of the system that is said to be better, by so much.
    pub better: &'static str,
    /// The label of the one that it is compared with; `None` where the paper gives the value of
    /// `better` itself.
    pub than: Option<&'static str>,
    /// The least and the most that the paper found, over all its workloads and points.
    pub range: (f64, f64),
    /// Workloads that are meant; all where there are none.
    pub workloads: &'static [&'static str],
    /// The growth factor that is meant; all where there is none.
    pub growth_factor: Option<u32>,
    /// Where it says so.
    pub at: &'static str,
}

/// What is compared. A ratio is always that of an improvement: above 1 where the first system of a
/// [`Claim`] does better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Operations a second, with the drain.
    Throughput,
    /// CPU of all servers for each operation.
    Cpu,
    /// Device bytes over request bytes.
    IoAmplification,
    /// Bytes between servers over request bytes.
    NetworkAmplification,
    /// 99 % latency.
    P99,
    /// 99.9 % latency.
    P999,
    /// 99.99 % latency.
    P9999,
    /// CPU of the servers that are backups of all regions.
    BackupCpu,
    /// CPU of what gives backups an index: shipping it, rewriting it, and what backups compact.
    IndexCpu,
    /// Device bytes of the server that is primary of all regions, over request bytes.
    PrimaryIo,
    /// Bytes that backups read from devices, over request bytes.
    BackupReads,
}

impl Measure {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Cpu => "CPU efficiency",
            Self::IoAmplification => "I/O amplification",
            Self::NetworkAmplification => "network amplification",
            Self::P99 => "p99 latency",
            Self::P999 => "p99.9 latency",
            Self::P9999 => "p99.99 latency",
            Self::BackupCpu => "CPU of the backup",
            Self::IndexCpu => "CPU of backups' indexes",
            Self::PrimaryIo => "I/O amplification, primary",
            Self::BackupReads => "read amplification, backup",
        }
    }

    /// Whether more is better.
    #[must_use]
    pub const fn rises(self) -> bool {
        matches!(self, Self::Throughput)
    }
}

/// A figure's size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Records to load.
    pub records: u64,
    /// Operations of each other workload: half as many, as in the papers.
    pub ops: u64,
    /// Memtables of a server.
    pub l0_bytes: u64,
}

/// Least records of a figure: below, it says nothing.
const RECORDS_MIN: u64 = 1000;
/// Least memtables of a server.
const L0_BYTES_MIN: u64 = 256 << 10;

impl Scale {
    /// So many times [`RECORDS_AT_SCALE_1`].
    #[must_use]
    pub fn of(percent: u64) -> Self {
        let records = (RECORDS_AT_SCALE_1.saturating_mul(percent) / 100).max(RECORDS_MIN);
        let l0_bytes = u128::from(L0_BYTES_OF_PAPERS) * u128::from(records);
        let l0_bytes = l0_bytes / u128::from(RECORDS_OF_PAPERS);
        Self {
            records,
            ops: records / 2,
            l0_bytes: u64::try_from(l0_bytes)
                .unwrap_or(u64::MAX)
                .max(L0_BYTES_MIN),
        }
    }

    /// A quarter of the data that a server is primary of: its cache in the papers.
    #[must_use]
    pub fn cache_bytes(&self, figure: &Figure, point: &Point) -> u64 {
        let sizes = figure.sizes();
        let primaries = if figure.cluster.split {
            1
        } else {
            figure.cluster.servers as u64
        };
        let pair = point.mix().mean_pair_bytes(sizes);
        self.records.saturating_mul(pair) / primaries / 4
    }
}

impl Figure {
    /// The figure of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        papers::FIGURES.iter().find(|figure| figure.name == name)
    }

    /// The sizes of its pairs.
    ///
    /// # Panics
    /// Where there are none of that name: a mistake in [`papers`], which a test would find.
    #[must_use]
    pub fn sizes(&self) -> PairSizes {
        let sizes = self.sizes.parse();
        sizes.expect("papers name sizes that exist")
    }

    /// What `--figure` takes.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        papers::FIGURES.iter().map(|figure| figure.name).collect()
    }
}
