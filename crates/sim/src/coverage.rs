//! What has happened in a run, or in many: a run of seeds that shows nothing is noticed.

use std::collections::BTreeMap;
use std::fmt;

/// What must have happened at least once in a run of many seeds.
pub const NEEDED: [&str; 47] = [
    "operations",
    "forwarded operations",
    "conditions that failed",
    "values in chunks",
    "groups",
    "scan pages",
    "scan pages downwards",
    "snapshots read",
    "unknown outcomes",
    "outcomes proven by order",
    "not applied",
    "reads unavailable",
    "requests busy",
    "kills",
    "kills in the middle",
    "kills of all",
    "deaths while starting",
    "clean stops",
    "starts",
    "power losses",
    "power losses of two",
    "prefixes after power loss",
    "writes lost with power",
    "torn blocks",
    "lost unsynced blocks",
    "lost writes in flight",
    "cuts",
    "stops",
    "stalls",
    "one-sided writes",
    "torn one-sided writes",
    "overtaken pieces",
    "revoked one-sided writes",
    "broken connections",
    "links lost",
    "flushes",
    "compactions",
    "moves",
    "values collected",
    "values that escaped collection",
    "trees with several heights",
    "shipments",
    "offers of checkpoints",
    "bytes caught up",
    "adoptions",
    "segments compared",
    "pointers rewritten",
];

/// Counters by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    /// Adds `count` to a counter.
    pub fn add(&mut self, name: &'static str, count: u64) {
        *self.0.entry(name).or_default() += count;
    }

    /// Adds `count` to a counter of which another process told. One that is not known here is
    /// forgotten.
    pub fn add_named(&mut self, name: &str, count: u64) {
        if let Some(name) = NEEDED.into_iter().find(|needed| *needed == name) {
            self.add(name, count);
        }
    }

    /// All counters that are not zero.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0
            .iter()
            .map(|(name, count)| (*name, *count))
            .filter(|(_, count)| *count > 0)
    }

    /// A counter.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds another run's counters.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }

    /// The needed counters that are zero.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> + '_ {
        NEEDED.into_iter().filter(|name| self.get(name) == 0)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in NEEDED {
            writeln!(f, "{:>12}  {name}", self.get(name))?;
        }
        let others = self.0.iter().filter(|(name, _)| !NEEDED.contains(name));
        for (name, count) in others {
            writeln!(f, "{count:>12}  {name}")?;
        }
        Ok(())
    }
}
