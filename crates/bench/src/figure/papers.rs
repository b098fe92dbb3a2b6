//! The figures themselves. Numbers are those of the papers' texts; what only a drawing shows is not
//! here.
//!
//! - *Talos*: Vardoulakis et al., "Using RDMA for Efficient Index Replication in LSM Key-Value
//!   Stores". Values in a log, two servers, each primary of half of the regions.
//! - *Tebis*: Stilianakis et al., "Index Shipping for Efficient Replication in LSM Key-Value Stores
//!   with Hybrid KV Placement". Small and medium pairs in the levels, three servers.

use std::ops::RangeInclusive;

use super::BackupL0::{Own, Shared};
use super::Measure::{
    BackupCpu, BackupReads, Cpu, IndexCpu, IoAmplification, NetworkAmplification, P99, P999, P9999,
    PrimaryIo, Throughput,
};
use super::PointMix::{Named, Small};
use super::{BackupL0, Claim, Figure, FigureCluster, Measure, Point, PointMix, System};

/// The label of regions with one copy.
pub(super) const NONE: &str = "no replication";
/// The label of what all others are set beside.
pub const BUILD: &str = "build-index";
/// The same with reduced L0.
pub(super) const BUILD_RL: &str = "build-index RL";
/// Send-index as we have it.
pub const SEND: &str = "send-index";
/// Send-index as the papers have it: backups rewrite the pointers of what they are sent.
pub const REWRITE: &str = "send-index rewrite";

const fn system(label: &'static str, replication: &'static str, l0: BackupL0) -> System {
    System {
        label,
        replication,
        address: "logical",
        l0,
    }
}

const ALONE: System = system(NONE, "none", Shared);
const SENDING: System = system(SEND, "send-index", Shared);
const REWRITING: System = System {
    address: "rewrite",
    ..system(REWRITE, "send-index", Shared)
};
/// Each replica's memtables are as large as the primary's.
const BUILDING: System = system(BUILD, "build-index", Own);
/// The same memory as the others. Tebis calls this reduced L0, Talos has nothing else.
const BUILDING_SHARED: System = system(BUILD, "build-index", Shared);
const BUILDING_REDUCED: System = system(BUILD_RL, "build-index", Shared);

const TALOS: &[System] = &[ALONE, BUILDING_SHARED, SENDING, REWRITING];
const TEBIS: &[System] = &[ALONE, BUILDING, SENDING, REWRITING];

const fn point(mix: PointMix, growth_factor: u32) -> Point {
    Point { mix, growth_factor }
}

/// All six mixes, with one growth factor.
const fn mixes(growth_factor: u32) -> [Point; 6] {
    [
        point(Named("s"), growth_factor),
        point(Named("m"), growth_factor),
        point(Named("l"), growth_factor),
        point(Named("sd"), growth_factor),
        point(Named("md"), growth_factor),
        point(Named("ld"), growth_factor),
    ]
}

/// Two systems that a claim compares, by their labels.
#[derive(Clone, Copy)]
struct Pair {
    better: &'static str,
    than: &'static str,
}

impl Pair {
    const fn new(better: &'static str, than: &'static str) -> Self {
        Self { better, than }
    }
}

/// The better one of `pair` improves on the other by so much.
const fn claim(
    measure: Measure,
    pair: Pair,
    range: RangeInclusive<f64>,
    at: &'static str,
) -> Claim {
    Claim {
        measure,
        better: pair.better,
        than: Some(pair.than),
        range: (*range.start(), *range.end()),
        workloads: &[],
        growth_factor: None,
        at,
    }
}

const fn of_run_a(growth_factor: u32, claim: Claim) -> Claim {
    Claim {
        workloads: &["run-a"],
        growth_factor: Some(growth_factor),
        ..claim
    }
}

const fn of_load_a(claim: Claim) -> Claim {
    Claim {
        workloads: &["load-a"],
        ..claim
    }
}

const SB: Pair = Pair::new(SEND, BUILD);
const LOAD_RUN: &[&str] = &["load-a", "run-a"];

const OURS: &str = "send-index is ours: pointers hold segment numbers, and backups place what they \
                    are sent as it is; 'send-index rewrite' has the papers' address mode";
const FEW_REGIONS: &str = "one region for each server; the papers have 32 regions";
const NETWORK: &str = "network amplification is that of the bytes between servers; the papers' \
                       includes what clients send and receive";
const ONE_MACHINE: &str = "servers and clients share one machine; CPU is that of the server \
                           processes, the papers' that of all processors of the servers";

/// Every figure.
pub static FIGURES: [Figure; 8] = [
    Figure {
        name: "talos-6",
        title: "throughput, efficiency and amplification by mix of sizes",
        source: "Talos, section 5.1, figure 6",
        sizes: "talos",
        placement: "separated",
        cluster: FigureCluster {
            servers: 2,
            replicas: 2,
            split: false,
        },
        systems: TALOS,
        points: &mixes(4),
        workloads: LOAD_RUN,
        claims: &[
            claim(Throughput, SB, 1.1..=1.7, "5.1"),
            claim(Cpu, SB, 1.2..=1.6, "5.1"),
            claim(IoAmplification, SB, 1.1..=3.0, "5.1"),
            claim(IoAmplification, Pair::new(NONE, BUILD), 1.6..=3.4, "5.1"),
            claim(IoAmplification, Pair::new(NONE, SEND), 1.4..=1.5, "5.1"),
            claim(
                NetworkAmplification,
                Pair::new(BUILD, SEND),
                1.0..=1.2,
                "5.1",
            ),
        ],
        notes: &[OURS, FEW_REGIONS, ONE_MACHINE, NETWORK],
    },
    Figure {
        name: "talos-8",
        title: "CPU by activity",
        source: "Talos, section 5.2, figure 8 (figure 7 for latencies, section 5.1)",
        sizes: "talos",
        placement: "separated",
        cluster: FigureCluster {
            servers: 2,
            replicas: 2,
            split: true,
        },
        systems: &[BUILDING_SHARED, SENDING, REWRITING],
        points: &[point(Named("sd"), 4)],
        workloads: LOAD_RUN,
        claims: &[
            claim(Cpu, SB, 1.36..=1.36, "5.2"),
            claim(IndexCpu, SB, 10.0..=10.0, "5.2"),
            claim(P99, SB, 1.1..=1.5, "5.1"),
            claim(P999, SB, 1.1..=1.5, "5.1"),
            claim(P9999, SB, 1.1..=1.5, "5.1"),
        ],
        notes: &[
            "server 0 is primary of all regions, so that a backup's CPU can be told; in the paper \
             each server has both roles",
            "the paper does not say which mix it profiled",
            OURS,
            ONE_MACHINE,
        ],
    },
    Figure {
        name: "talos-9",
        title: "what send-index gains, by growth factor",
        source: "Talos, section 5.3, figure 9",
        sizes: "talos",
        placement: "separated",
        cluster: FigureCluster {
            servers: 2,
            replicas: 2,
            split: false,
        },
        systems: &[BUILDING_SHARED, SENDING, REWRITING],
        points: &[
            point(Named("sd"), 4),
            point(Named("sd"), 8),
            point(Named("sd"), 12),
            point(Named("sd"), 16),
        ],
        workloads: LOAD_RUN,
        claims: &[
            of_run_a(12, claim(Throughput, SB, 2.1..=2.1, "5.3")),
            of_run_a(16, claim(Throughput, SB, 1.7..=1.7, "5.3")),
            of_run_a(12, claim(Cpu, SB, 2.4..=2.4, "5.3")),
            of_run_a(16, claim(Cpu, SB, 1.9..=1.9, "5.3")),
            // "Decreased by 60 %."
            of_run_a(12, claim(IoAmplification, SB, 2.5..=2.5, "5.3")),
            of_run_a(16, claim(IoAmplification, SB, 2.5..=2.5, "5.3")),
        ],
        notes: &[
            "load-a: the paper's gains stay the same whatever the growth factor",
            "the paper does not say which mix it ran, and names the growth factors 4, 12 and 16",
            OURS,
            FEW_REGIONS,
        ],
    },
    Figure {
        name: "talos-10",
        title: "throughput, efficiency and amplification by percentage of small pairs",
        source: "Talos, section 5.4, figure 10",
        sizes: "talos",
        placement: "separated",
        cluster: FigureCluster {
            servers: 2,
            replicas: 2,
            split: false,
        },
        systems: TALOS,
        points: &[
            point(Small(40), 12),
            point(Small(60), 12),
            point(Small(80), 12),
            point(Small(100), 12),
        ],
        workloads: LOAD_RUN,
        claims: &[
            claim(Throughput, SB, 1.2..=2.3, "5.4"),
            claim(Cpu, SB, 1.2..=2.3, "5.4"),
            Claim {
                than: None,
                ..claim(IoAmplification, Pair::new(BUILD, BUILD), 7.4..=9.3, "5.4")
            },
        ],
        notes: &[OURS, FEW_REGIONS, ONE_MACHINE, NETWORK],
    },
    Figure {
        name: "tebis-8",
        title: "YCSB on small-dominated pairs",
        source: "Tebis, section 5.1, figure 8",
        sizes: "tebis",
        placement: "hybrid",
        cluster: FigureCluster {
            servers: 3,
            replicas: 2,
            split: false,
        },
        systems: TEBIS,
        points: &[point(Named("sd"), 8)],
        workloads: &["load-a", "run-a", "run-b", "run-c", "run-d", "run-e"],
        claims: &[
            Claim {
                workloads: LOAD_RUN,
                ..claim(Throughput, SB, 1.04..=2.24, "5.1")
            },
            Claim {
                workloads: LOAD_RUN,
                ..claim(Cpu, SB, 1.06..=1.9, "5.1")
            },
            Claim {
                workloads: &["run-b", "run-c", "run-d", "run-e"],
                ..claim(Throughput, SB, 1.0..=1.0, "5.1")
            },
        ],
        notes: &[
            "run-b to run-e: the paper calls all three systems similar, without numbers; its ranges \
             for load-a and run-a are those of all mixes (tebis-9)",
            OURS,
            FEW_REGIONS,
            ONE_MACHINE,
        ],
    },
    Figure {
        name: "tebis-9",
        title: "throughput, efficiency and amplification by mix of sizes, two copies",
        source: "Tebis, section 5.1, figure 9",
        sizes: "tebis",
        placement: "hybrid",
        cluster: FigureCluster {
            servers: 3,
            replicas: 2,
            split: false,
        },
        systems: TEBIS,
        points: &mixes(8),
        workloads: LOAD_RUN,
        claims: &[
            claim(Throughput, SB, 1.04..=2.24, "5.1"),
            claim(Cpu, SB, 1.06..=1.9, "5.1"),
            claim(IoAmplification, SB, 1.08..=1.28, "5.1"),
        ],
        notes: &[OURS, FEW_REGIONS, ONE_MACHINE, NETWORK],
    },
    Figure {
        name: "tebis-10",
        title: "what each role costs",
        source: "Tebis, section 5.2, figure 10",
        sizes: "tebis",
        placement: "hybrid",
        cluster: FigureCluster {
            servers: 2,
            replicas: 2,
            split: true,
        },
        systems: &[BUILDING, SENDING, REWRITING],
        points: &[point(Named("s"), 8)],
        workloads: LOAD_RUN,
        claims: &[
            claim(BackupCpu, SB, 1.8..=4.0, "5.2"),
            // "Constant for the primary role."
            claim(PrimaryIo, SB, 1.0..=1.0, "5.2"),
            Claim {
                than: None,
                ..claim(BackupReads, Pair::new(SEND, SEND), 0.0..=0.0, "5.2")
            },
        ],
        notes: &[
            "server 0 is the primary of all regions, server 1 the backup",
            OURS,
            ONE_MACHINE,
        ],
    },
    Figure {
        name: "tebis-12",
        title: "throughput, efficiency and amplification by mix of sizes, three copies",
        source: "Tebis, sections 5.4 and 5.5, figure 12",
        sizes: "tebis",
        placement: "hybrid",
        cluster: FigureCluster {
            servers: 3,
            replicas: 3,
            split: false,
        },
        systems: &[ALONE, BUILDING, BUILDING_REDUCED, SENDING, REWRITING],
        points: &mixes(8),
        workloads: LOAD_RUN,
        claims: &[
            of_load_a(claim(Throughput, SB, 1.05..=2.46, "5.4")),
            of_load_a(claim(Cpu, SB, 1.2..=2.1, "5.4")),
            of_load_a(claim(IoAmplification, SB, 1.11..=1.42, "5.4")),
            claim(Throughput, Pair::new(SEND, BUILD_RL), 1.06..=2.90, "5.5"),
            claim(Cpu, Pair::new(SEND, BUILD_RL), 1.21..=2.78, "5.5"),
            claim(
                IoAmplification,
                Pair::new(SEND, BUILD_RL),
                1.7..=3.27,
                "5.5",
            ),
        ],
        notes: &[
            "build-index RL: memtables of all replicas of a server take what those of its primaries \
             take elsewhere",
            OURS,
            FEW_REGIONS,
            ONE_MACHINE,
            NETWORK,
        ],
    },
];
