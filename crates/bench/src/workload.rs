//! The workloads: what is done to the chosen records, and how often.

use std::fmt;
use std::str::FromStr;

use crate::chooser::{Chooser, Distribution};
use crate::rng::Rng;
use crate::truth::Truth;

/// Most pairs that a scan asks for. Their number is chosen evenly from 1 on.
pub const SCAN_PAIRS_MAX: u64 = 100;

/// One operation on one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Write a record that was never written.
    Insert(u64),
    /// Read a record, and verify it.
    Read(u64),
    /// Write a record again, with a value of the same size.
    Update(u64),
    /// Read a record and verify it; then write it again.
    Modify(u64),
    /// Read `pairs` pairs from a record's key on, in key order, and verify them.
    Scan {
        /// The record with whose key the scan begins.
        record: u64,
        /// So many pairs, or as many as there are.
        pairs: u64,
    },
}

impl Operation {
    /// The record that it is about.
    #[must_use]
    pub const fn record(self) -> u64 {
        match self {
            Self::Insert(record)
            | Self::Read(record)
            | Self::Update(record)
            | Self::Modify(record)
            | Self::Scan { record, .. } => record,
        }
    }
}

/// What the operations that do not update do instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Scan,
}

/// What the other operations do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Update,
    Insert,
    Modify,
}

/// A workload of YCSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    name: &'static str,
    /// Of a hundred operations, how many only read, and how; the rest change something. `None`
    /// loads every record once.
    shares: Option<(u64, Kind, Change)>,
    distribution: Distribution,
}

/// Every workload.
const WORKLOADS: [Workload; 8] = {
    use Change::{Insert, Modify, Update};
    use Distribution::{Latest, Uniform, Zipf};
    use Kind::{Read, Scan};
    [
        Workload::new("load-a", None, Uniform),
        Workload::new("run-a", Some((50, Read, Update)), Zipf),
        Workload::new("run-b", Some((95, Read, Update)), Zipf),
        Workload::new("run-c", Some((100, Read, Update)), Zipf),
        Workload::new("run-d", Some((95, Read, Insert)), Latest),
        Workload::new("run-e", Some((95, Scan, Insert)), Zipf),
        Workload::new("run-f", Some((50, Read, Modify)), Zipf),
        Workload::new("run-g", Some((0, Read, Update)), Zipf),
    ]
};

impl Workload {
    const fn new(
        name: &'static str,
        shares: Option<(u64, Kind, Change)>,
        distribution: Distribution,
    ) -> Self {
        // What a scan may return is known only where no record changes meanwhile.
        assert!(!matches!(
            shares,
            Some((_, Kind::Scan, Change::Update | Change::Modify))
        ));
        Self {
            name,
            shares,
            distribution,
        }
    }

    /// Whether it inserts records that were not loaded.
    #[must_use]
    pub const fn inserts(self) -> bool {
        matches!(self.shares, Some((_, _, Change::Insert)))
    }

    /// Whether it scans. Then it updates nothing.
    #[must_use]
    pub const fn scans(self) -> bool {
        matches!(self.shares, Some((_, Kind::Scan, _)))
    }

    /// The workload that inserts every record once.
    #[must_use]
    pub const fn load() -> Self {
        WORKLOADS[0]
    }

    /// Whether this is [`load`](Self::load).
    #[must_use]
    pub const fn is_load(self) -> bool {
        self.shares.is_none()
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

/// The operations of one client, in order. What they insert, and what they read of what was just
/// inserted, depends on what all clients have done by then.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    workload: Workload,
    share: Share,
    truth: &'a Truth,
    chooser: Chooser,
    rng: Rng,
    done: u64,
    quota: u64,
}

impl<'a> Operations<'a> {
    /// The operations of `workload` that fall to `share`, on the records of `truth`.
    #[must_use]
    pub fn new(workload: Workload, share: Share, truth: &'a Truth) -> Self {
        let chooser = Chooser::new(workload.distribution, share.records);
        Self {
            workload,
            share,
            truth,
            chooser,
            rng: Rng::new(share.seed, 0),
            done: 0,
            quota: 0,
        }
        .of(0)
    }

    /// The operations of client number `client` of the same share. Costs no more than a copy.
    #[must_use]
    pub fn of(&self, client: u64) -> Self {
        let mut other = self.clone();
        let share = &mut other.share;
        assert!(client < share.clients, "clients are counted from 0");
        share.client = client;
        let total = if self.workload.is_load() {
            share.records
        } else {
            share.operations
        };
        let rest = u64::from(client < total % share.clients);
        other.quota = total / share.clients + rest;
        other.rng = Rng::new(share.seed, client);
        other.done = 0;
        other
    }
}

impl Iterator for Operations<'_> {
    type Item = Operation;

    #[inline]
    fn next(&mut self) -> Option<Operation> {
        if self.done == self.quota {
            return None;
        }
        let turn = self.done;
        self.done += 1;
        let Some((read_percent, kind, change)) = self.workload.shares else {
            // Keys are hashes of records, so counting up loads in random key order.
            let record = turn * self.share.clients + self.share.client;
            return Some(Operation::Insert(record));
        };
        let truth = self.truth;
        let record = self.chooser.next(&mut self.rng, || truth.present());
        if self.rng.below(100) < read_percent {
            return Some(match kind {
                Kind::Read => Operation::Read(record),
                Kind::Scan => {
                    let pairs = 1 + self.rng.below(SCAN_PAIRS_MAX);
                    Operation::Scan { record, pairs }
                }
            });
        }
        Some(match change {
            Change::Update => Operation::Update(record),
            Change::Modify => Operation::Modify(record),
            Change::Insert => Operation::Insert(truth.claim()),
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

    const RECORDS: u64 = 1000;
    const OPERATIONS: u64 = 10_000;

    fn truth() -> Truth {
        Truth::rehearsed(1000, 10_000)
    }

    fn operations<'a>(truth: &'a Truth, name: &str, client: u64) -> Operations<'a> {
        let share = Share {
            client: 0,
            clients: 3,
            records: RECORDS,
            operations: OPERATIONS,
            seed: 5,
        };
        Operations::new(name.parse().unwrap(), share, truth).of(client)
    }

    #[test]
    fn loading_inserts_every_record_once() {
        let (truth, mut seen) = (truth(), vec![0; 1000]);
        for client in 0..3 {
            for operation in operations(&truth, "load-a", client) {
                assert!(matches!(operation, Operation::Insert(_)));
                seen[usize::try_from(operation.record()).unwrap()] += 1;
            }
        }
        assert_eq!(seen, vec![1; 1000]);
    }

    #[test]
    fn every_operation_comes_in_the_share_asked_for() {
        /// In this order: reads, updates, inserts, modifications, scans.
        const EXPECTED: [(&str, [usize; 5]); 7] = [
            ("run-a", [5000, 5000, 0, 0, 0]),
            ("run-b", [9500, 500, 0, 0, 0]),
            ("run-c", [10_000, 0, 0, 0, 0]),
            ("run-d", [9500, 0, 500, 0, 0]),
            ("run-e", [0, 0, 500, 0, 9500]),
            ("run-f", [5000, 0, 0, 5000, 0]),
            ("run-g", [0, 10_000, 0, 0, 0]),
        ];
        for (name, expected) in EXPECTED {
            let (truth, mut counts) = (truth(), [0; 5]);
            for operation in (0..3).flat_map(|client| operations(&truth, name, client)) {
                counts[match operation {
                    Operation::Read(_) => 0,
                    Operation::Update(_) => 1,
                    Operation::Insert(_) => 2,
                    Operation::Modify(_) => 3,
                    Operation::Scan { .. } => 4,
                }] += 1;
            }
            assert_eq!(counts.iter().sum::<usize>(), 10_000);
            for (count, expected) in counts.into_iter().zip(expected) {
                let none = expected == 0 && count == 0;
                let whole = expected == 10_000 && count == 10_000;
                assert!(
                    none || whole || (expected > 0 && count.abs_diff(expected) < 200),
                    "{name}: {counts:?}"
                );
            }
        }
    }

    #[test]
    fn inserts_are_of_new_records_and_what_is_read_is_there() {
        let truth = truth();
        let mut inserted = Vec::new();
        let mut newest_read = 0;
        let clients: Vec<_> = (0..3).map(|n| operations(&truth, "run-d", n)).collect();
        for operation in clients.into_iter().flatten() {
            match operation {
                Operation::Insert(record) => {
                    let version = truth.begin_write(record);
                    inserted.push(record);
                    // Every tenth insert is answered only after the next one.
                    if record % 10 != 0 {
                        truth.end_write(record, version);
                        if record % 10 == 1 && record > RECORDS + 1 {
                            truth.end_write(record - 1, 1);
                        }
                    }
                }
                Operation::Read(record) => {
                    assert!(record < RECORDS || truth.begin_read(record) == 1);
                    newest_read = newest_read.max(record);
                }
                other => panic!("{other:?}"),
            }
        }
        let expected: Vec<_> = (RECORDS..RECORDS + inserted.len() as u64).collect();
        assert_eq!(inserted, expected);
        // Insert 1000 was never answered: the mark stands there.
        assert_eq!((truth.present(), newest_read), (RECORDS, RECORDS - 1));
    }

    #[test]
    fn scans_ask_for_one_to_a_hundred_pairs() {
        let (truth, mut seen) = (truth(), [0_u32; 101]);
        for operation in operations(&truth, "run-e", 0) {
            if let Operation::Scan { record, pairs } = operation {
                assert!(record < RECORDS);
                seen[usize::try_from(pairs).unwrap()] += 1;
            }
        }
        assert_eq!(seen[0], 0);
        assert!(seen[1..].iter().all(|&n| n > 5), "{seen:?}");
    }

    #[test]
    fn a_seed_repeats_itself_and_clients_differ() {
        let truth = truth();
        let take = |client| {
            let all = operations(&truth, "run-a", client);
            all.take(50).collect::<Vec<_>>()
        };
        assert_eq!(take(0), take(0));
        assert_ne!(take(0), take(1));
    }
}
