//! The options of the bench, and their defaults.

use argosy_base::{AddressMode, DurabilityMode};
use argosy_bench::{Mix, PairSizes, Transport, Workload};
use clap::{Args, ValueEnum};

use super::embedded::Peer;
use crate::cli::{parse_address, parse_durability, parse_replication};
use crate::cluster::layout::{Primaries, Replication};
use crate::config::{CompactionName, PlacementName};
use crate::units::Size;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum BenchOutput {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For spreadsheets.
    Csv,
}

/// The load: workloads, sizes of pairs, operations.
#[derive(Args, Clone, Debug)]
pub(super) struct LoadArgs {
    /// Workloads: load-a, run-a, run-b, run-c, run-d, run-e, run-f, run-g [default: load-a,run-a,run-c]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) workload: Vec<Workload>,
    /// Mixes of pair sizes: s, m, l, sd, md, ld [default: s]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) mix: Vec<Mix>,
    /// Instead of --mix: so many of a hundred records are small, the rest half medium, half large
    #[arg(
        long,
        value_name = "PERCENTS",
        value_delimiter = ',',
        conflicts_with = "mix",
        value_parser = clap::value_parser!(u64).range(0..=100)
    )]
    pub(super) small_percent: Vec<u64>,
    /// Bytes of small, medium and large pairs: tebis (33, 148, 1228), talos (33, 123, 1023)
    #[arg(long, value_name = "NAME", default_value_t)]
    pub(super) sizes: PairSizes,
    /// Records to load [default: 1000000]
    #[arg(long, value_name = "N")]
    pub(super) records: Option<u64>,
    /// Operations of each workload that does not load [default: 1000000]
    #[arg(long, value_name = "N")]
    pub(super) ops: Option<u64>,
}

/// The systems to compare.
#[derive(Args, Clone, Debug)]
pub(super) struct SystemArgs {
    /// Where values lie
    #[arg(long, value_enum, value_delimiter = ',', default_value = "hybrid")]
    pub(super) placement: Vec<PlacementName>,
    /// What a compaction takes: a part of a level, or all of it and of the one below
    #[arg(long, value_enum, value_delimiter = ',', default_value = "partial")]
    pub(super) compaction: Vec<CompactionName>,
    /// How members become equal: none, send-index
    #[arg(
        long,
        value_name = "MODES",
        value_delimiter = ',',
        value_parser = parse_replication,
        default_value = "send-index"
    )]
    pub(super) replication: Vec<Replication>,
    /// What pointers inside level segments name, and so who rewrites them: logical, rewrite
    #[arg(
        long,
        value_name = "MODES",
        value_delimiter = ',',
        value_parser = parse_address,
        default_value = "logical"
    )]
    pub(super) address: Vec<AddressMode>,
    /// When writes are acknowledged: last-write, last-flush, sync
    #[arg(
        long,
        value_name = "MODES",
        value_delimiter = ',',
        value_parser = parse_durability,
        default_value = "last-write"
    )]
    pub(super) durability: Vec<DurabilityMode>,
}

/// The cluster of each system.
#[derive(Args, Clone, Debug)]
pub(super) struct ClusterArgs {
    /// Server processes
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(super) servers: usize,
    /// Members of each region, where there is replication [default: 3, or all servers]
    #[arg(long, value_name = "N")]
    pub(super) replicas: Option<usize>,
    /// Regions [default: one for each server]
    #[arg(long, value_name = "N")]
    pub(super) regions: Option<usize>,
    /// Which servers are primaries of regions: all, or server 0 alone
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub(super) layout: Primaries,
}

/// Who asks, and how.
#[derive(Args, Clone, Debug)]
pub(super) struct ClientArgs {
    /// Client threads [default: 4; with --embedded 1]
    #[arg(long, value_name = "N")]
    pub(super) clients: Option<usize>,
    /// How clients reach the servers: native (in shared memory), resp (the Redis protocol)
    #[arg(long, value_name = "HOW", default_value_t)]
    pub(super) client: Transport,
    /// Operations in flight on each client
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(super) pipeline: usize,
}

/// What each engine may take, and how it lays out what it has.
#[derive(Args, Clone, Debug)]
pub(super) struct EngineArgs {
    /// Memtables of each server, divided over the regions it keeps memtables of; up to 3 of each exist
    /// [default: 16MiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) l0_bytes: Option<Size>,
    /// Under build-index: divide that by the regions a server is primary of alone
    #[arg(long)]
    pub(super) l0_per_replica: bool,
    /// How many times larger a level is than the one above
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(2..=64)
    )]
    pub(super) growth_factor: u32,
    /// What the medium log may take, in hundredths of what the levels take; 0: none [default: 200]
    #[arg(long, value_name = "N")]
    pub(super) medium_log_percent: Option<u32>,
    /// Memory of each server
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub(super) memory: Size,
    /// Bytes of a leaf
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(super) node_bytes: Size,
    /// With hybrid placement: pairs of at least as many bytes are in the large log
    #[arg(long, value_name = "SIZE", default_value = "1000")]
    pub(super) large_bytes: Size,
    /// With --embedded: --memory is all that our store may take, log windows and what merges have in hand
    /// among it, as `Builder::memory` is. Else it is memtables and cache, as its peers are told
    #[arg(long, requires = "embedded")]
    pub(super) budget: bool,
    /// With --embedded: a write is answered once the device has synced it
    #[arg(long, requires = "embedded")]
    pub(super) sync: bool,
    /// Size of each server's device
    #[arg(long, value_name = "SIZE", default_value = "64GiB")]
    pub(super) device_bytes: Size,
}

/// Engines in this process.
#[derive(Args, Clone, Debug)]
pub(super) struct StoreArgs {
    /// Call the engine in this process instead of servers, with one background thread
    #[arg(long)]
    pub(super) embedded: bool,
    /// With --embedded: the same with these stores, too, one after the other
    #[arg(
        long,
        value_enum,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "embedded"
    )]
    pub(super) peer: Vec<Peer>,
}

impl LoadArgs {
    pub(super) fn records(&self) -> u64 {
        self.records.unwrap_or(1_000_000)
    }

    pub(super) fn ops(&self) -> u64 {
        self.ops.unwrap_or(1_000_000)
    }

    pub(super) fn workloads(&self) -> Vec<Workload> {
        let named = |names: [&str; 3]| names.map(|name| name.parse().expect("a workload's name"));
        match self.workload.as_slice() {
            [] => named(["load-a", "run-a", "run-c"]).to_vec(),
            asked => asked.to_vec(),
        }
    }

    pub(super) fn named_mixes(&self) -> Vec<Mix> {
        match self.mix.as_slice() {
            [] => vec!["s".parse().expect("a mix's name")],
            asked => asked.to_vec(),
        }
    }
}

impl EngineArgs {
    pub(super) fn l0_bytes(&self) -> Size {
        self.l0_bytes
            .unwrap_or_else(|| Size((self.memory.0 / 8).clamp(64 << 10, 16 << 20)))
    }
}
