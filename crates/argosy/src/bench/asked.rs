//! What was asked of the bench, or what it measures where nothing is said.

use argosy_bench::{Mix, Workload};

use super::Bench;
use crate::units::Size;

impl Bench {
    pub(super) fn records(&self) -> u64 {
        self.records.unwrap_or(1_000_000)
    }

    pub(super) fn ops(&self) -> u64 {
        self.ops.unwrap_or(1_000_000)
    }

    pub(super) fn l0_bytes(&self) -> Size {
        self.l0_bytes
            .unwrap_or_else(|| Size((self.memory.0 / 8).clamp(64 << 10, 16 << 20)))
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
