//! The workloads: what is done to the chosen records, and how often.

use std::fmt;
use std::str::FromStr;

use crate::chooser::{Chooser, Distribution};
use crate::rng::Rng;

/// One operation on one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Write a record that was never written.
    Insert(u64),
    /// Read a record, and verify it.
    Read(u64),
    /// Write a record again, with a value of the same size.
    Update(u64),
}

impl Operation {
    /// The record that it is about.
    #[must_use]
    pub const fn record(self) -> u64 {
        match self {
            Self::Insert(record) | Self::Read(record) | Self::Update(record) => record,
        }
    }
}

/// A workload of YCSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    name: &'static str,
    /// Of a hundred operations, how many read; the rest update. `None` loads every record once.
    read_percent: Option<u64>,
    distribution: Distribution,
}

/// Every workload. D, E and F need inserts while running, scans and read-modify-write, which the
/// driver does not have yet.
const WORKLOADS: [Workload; 5] = [
    Workload::new("load-a", None, Distribution::Uniform),
    Workload::new("run-a", Some(50), Distribution::Zipf),
    Workload::new("run-b", Some(95), Distribution::Zipf),
    Workload::new("run-c", Some(100), Distribution::Zipf),
    Workload::new("run-g", Some(0), Distribution::Zipf),
];

impl Workload {
    const fn new(
        name: &'static str,
        read_percent: Option<u64>,
        distribution: Distribution,
    ) -> Self {
        Self {
            name,
            read_percent,
            distribution,
        }
    }

    /// The workload that inserts every record once.
    #[must_use]
    pub const fn load() -> Self {
        WORKLOADS[0]
    }

    /// Whether this is [`load`](Self::load).
    #[must_use]
    pub const fn is_load(self) -> bool {
        self.read_percent.is_none()
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = WORKLOADS
            .iter()
            .find(|workload| workload.name.eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| {
            let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
            format!(
                "no workload is called '{name}'; there are {}",
                names.join(", ")
            )
        })
    }
}

/// Which part of a workload one client does.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// This client, from 0.
    pub client: u64,
    /// How many clients there are.
    pub clients: u64,
    /// Records of the data.
    pub records: u64,
    /// Operations of all clients together; loading takes `records` instead.
    pub operations: u64,
    /// The benchmark's seed.
    pub seed: u64,
}

/// The operations of one client, in order.
#[derive(Clone, Debug)]
pub struct Operations {
    workload: Workload,
    share: Share,
    chooser: Chooser,
    rng: Rng,
    done: u64,
    quota: u64,
}

impl Operations {
    /// The operations of `workload` that fall to `share`.
    #[must_use]
    pub fn new(workload: Workload, share: Share) -> Self {
        assert!(share.client < share.clients, "clients are counted from 0");
        let total = if workload.is_load() {
            share.records
        } else {
            share.operations
        };
        let rest = u64::from(share.client < total % share.clients);
        Self {
            workload,
            share,
            chooser: Chooser::new(workload.distribution, share.records),
            rng: Rng::new(share.seed, share.client),
            done: 0,
            quota: total / share.clients + rest,
        }
    }
}

impl Iterator for Operations {
    type Item = Operation;

    #[inline]
    fn next(&mut self) -> Option<Operation> {
        if self.done == self.quota {
            return None;
        }
        let turn = self.done;
        self.done += 1;
        let Some(read_percent) = self.workload.read_percent else {
            // Keys are hashes of records, so counting up loads in random key order.
            let record = turn * self.share.clients + self.share.client;
            return Some(Operation::Insert(record));
        };
        let record = self.chooser.next(&mut self.rng);
        Some(if self.rng.below(100) < read_percent {
            Operation::Read(record)
        } else {
            Operation::Update(record)
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.quota - self.done).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(name: &str, client: u64) -> Operations {
        let share = Share {
            client,
            clients: 3,
            records: 1000,
            operations: 10_000,
            seed: 5,
        };
        Operations::new(name.parse().unwrap(), share)
    }

    #[test]
    fn loading_inserts_every_record_once() {
        let mut seen = vec![0; 1000];
        for client in 0..3 {
            for operation in operations("load-a", client) {
                assert!(matches!(operation, Operation::Insert(_)));
                seen[usize::try_from(operation.record()).unwrap()] += 1;
            }
        }
        assert_eq!(seen, vec![1; 1000]);
    }

    #[test]
    fn reads_and_updates_come_in_the_share_asked_for() {
        for (name, low, high) in [
            ("run-a", 4_800, 5_200),
            ("run-b", 9_400, 9_600),
            ("run-c", 10_000, 10_000),
            ("run-g", 0, 0),
        ] {
            let all: Vec<_> = (0..3).flat_map(|client| operations(name, client)).collect();
            assert_eq!(all.len(), 10_000);
            let reads = all
                .iter()
                .filter(|operation| matches!(operation, Operation::Read(_)))
                .count();
            assert!((low..=high).contains(&reads), "{name}: {reads}");
        }
    }

    #[test]
    fn a_seed_repeats_itself_and_clients_differ() {
        let take = |client| operations("run-a", client).take(50).collect::<Vec<_>>();
        assert_eq!(take(0), take(0));
        assert_ne!(take(0), take(1));
    }
}
