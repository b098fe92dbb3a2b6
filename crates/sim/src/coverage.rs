//! What has happened in a run, or in many: a run of seeds that shows nothing is noticed.

use std::collections::BTreeMap;
use std::fmt;

use argosy_base::AddressMode;
use argosy_lsm::Settings;
use argosy_lsm::settings::Compaction;

/// What must have happened at least once in a run of many seeds.
pub const NEEDED: [&str; 75] = [
    "operations",
    "forwarded operations",
    "conditions that failed",
    "values compared, equal",
    "values compared, other",
    "increments",
    "pairs that expire",
    "pairs that have expired",
    "clocks set back",
    "values in chunks",
    "values in parts",
    "values in parts looked up again",
    "ranges removed",
    "ingests into what is bound",
    "ingests of unknown outcome",
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
    "segments evacuated",
    "requests that waited for garbage",
    "values that escaped collection",
    "trees with several heights",
    "shipments",
    "offers of checkpoints",
    "bytes caught up",
    "adoptions",
    "segments compared",
    "segments scrubbed",
    "medium segments compared",
    "pointers rewritten",
    "writes refused for space",
    "deletes on a full device",
    "recovered when full, logical",
    "recovered when full, rewrite",
    "recovered when full, build-index",
    "recovered when full, alone",
    "recovered when full, small backup",
    "writes that failed",
    "syncs that failed",
    "reads that failed",
    "devices that failed, alone",
    "devices without room beneath",
    "reads on a device that has failed",
];

/// Devices of which a write or a sync failed, with copies elsewhere, by [mode](mode_of).
pub const FAILED: [&str; 8] = [
    "devices that failed (send-index, partial, logical)",
    "devices that failed (send-index, partial, rewrite)",
    "devices that failed (send-index, whole-level, logical)",
    "devices that failed (send-index, whole-level, rewrite)",
    "devices that failed (build-index, partial, logical)",
    "devices that failed (build-index, partial, rewrite)",
    "devices that failed (build-index, whole-level, logical)",
    "devices that failed (build-index, whole-level, rewrite)",
];

/// Regions that a primary opened, by [mode](mode_of).
pub const PROMOTIONS: [&str; 8] = [
    "promotions (send-index, partial, logical)",
    "promotions (send-index, partial, rewrite)",
    "promotions (send-index, whole-level, logical)",
    "promotions (send-index, whole-level, rewrite)",
    "promotions (build-index, partial, logical)",
    "promotions (build-index, partial, rewrite)",
    "promotions (build-index, whole-level, logical)",
    "promotions (build-index, whole-level, rewrite)",
];

/// Histories that a primary took over from a backup before that, by [mode](mode_of); with build-index,
/// what the backup had built.
pub const ADOPTIONS: [&str; 8] = [
    "adoptions (send-index, partial, logical)",
    "adoptions (send-index, partial, rewrite)",
    "adoptions (send-index, whole-level, logical)",
    "adoptions (send-index, whole-level, rewrite)",
    "adoptions (build-index, partial, logical)",
    "adoptions (build-index, partial, rewrite)",
    "adoptions (build-index, whole-level, logical)",
    "adoptions (build-index, whole-level, rewrite)",
];

/// Values that flushes put into the medium log, by [mode](mode_of); with build-index, backups' too.
pub const MEDIUM_WRITTEN: [&str; 8] = [
    "medium values put apart (send-index, partial, logical)",
    "medium values put apart (send-index, partial, rewrite)",
    "medium values put apart (send-index, whole-level, logical)",
    "medium values put apart (send-index, whole-level, rewrite)",
    "medium values put apart (build-index, partial, logical)",
    "medium values put apart (build-index, partial, rewrite)",
    "medium values put apart (build-index, whole-level, logical)",
    "medium values put apart (build-index, whole-level, rewrite)",
];

/// Values that merges took out of the medium log, likewise.
pub const MEDIUM_PLACED: [&str; 8] = [
    "medium values put in place (send-index, partial, logical)",
    "medium values put in place (send-index, partial, rewrite)",
    "medium values put in place (send-index, whole-level, logical)",
    "medium values put in place (send-index, whole-level, rewrite)",
    "medium values put in place (build-index, partial, logical)",
    "medium values put in place (build-index, partial, rewrite)",
    "medium values put in place (build-index, whole-level, logical)",
    "medium values put in place (build-index, whole-level, rewrite)",
];

/// Segments of the medium log that merges freed, likewise.
pub const MEDIUM_FREED: [&str; 8] = [
    "medium segments freed (send-index, partial, logical)",
    "medium segments freed (send-index, partial, rewrite)",
    "medium segments freed (send-index, whole-level, logical)",
    "medium segments freed (send-index, whole-level, rewrite)",
    "medium segments freed (build-index, partial, logical)",
    "medium segments freed (build-index, partial, rewrite)",
    "medium segments freed (build-index, whole-level, logical)",
    "medium segments freed (build-index, whole-level, rewrite)",
];

/// Parts of sorted pairs that were ingested, by [mode](mode_of); with build-index, through the log.
pub const INGESTED: [&str; 8] = [
    "parts ingested (send-index, partial, logical)",
    "parts ingested (send-index, partial, rewrite)",
    "parts ingested (send-index, whole-level, logical)",
    "parts ingested (send-index, whole-level, rewrite)",
    "parts ingested (build-index, partial, logical)",
    "parts ingested (build-index, partial, rewrite)",
    "parts ingested (build-index, whole-level, logical)",
    "parts ingested (build-index, whole-level, rewrite)",
];

/// The place of a mode in [`PROMOTIONS`], [`ADOPTIONS`] and what is counted of medium pairs.
#[must_use]
pub fn mode_of(builds: bool, engine: &Settings) -> usize {
    let whole = engine.compaction == Compaction::WholeLevel;
    let rewrite = engine.addresses == AddressMode::Rewrite;
    4 * usize::from(builds) + 2 * usize::from(whole) + usize::from(rewrite)
}

/// Everything that must have happened.
fn needed() -> impl Iterator<Item = &'static str> {
    let modes = [
        PROMOTIONS,
        ADOPTIONS,
        MEDIUM_WRITTEN,
        MEDIUM_PLACED,
        MEDIUM_FREED,
        INGESTED,
        FAILED,
    ];
    NEEDED.into_iter().chain(modes.into_iter().flatten())
}

/// Runs that ended early, since a copy that had been away had no room for what it had to fetch
/// beside what it had. May happen, seldom.
pub const NO_ROOM_TO_RETURN: &str = "runs without room to return";

/// Servers with a region that had to be opened while there was no room beneath, and stays closed until they
/// are started anew.
pub const NO_ROOM_TO_OPEN: &str = "servers without room to open a region";

/// What may happen, and is counted over many seeds all the same.
const KNOWN: [&str; 3] = [
    NO_ROOM_TO_RETURN,
    NO_ROOM_TO_OPEN,
    "small devices that did not fill",
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
        let mut known = needed().chain(KNOWN);
        if let Some(name) = known.find(|known| *known == name) {
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
        needed().filter(|name| self.get(name) == 0)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in needed() {
            writeln!(f, "{:>12}  {name}", self.get(name))?;
        }
        let others = self
            .0
            .iter()
            .filter(|(name, _)| needed().all(|other| other != **name));
        for (name, count) in others {
            writeln!(f, "{count:>12}  {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_that_never_was_is_missing() {
        let mut coverage = Coverage::default();
        needed().for_each(|name| coverage.add(name, 1));
        assert_eq!(coverage.missing().count(), 0);
        let mut places: Vec<usize> = Vec::new();
        for builds in [false, true] {
            for compaction in [Compaction::Partial, Compaction::WholeLevel] {
                for addresses in AddressMode::ALL {
                    let engine = Settings {
                        compaction,
                        addresses,
                        ..Settings::default()
                    };
                    places.push(mode_of(builds, &engine));
                }
            }
        }
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 7]);
        let mut without = Coverage::default();
        let left_out = PROMOTIONS[6];
        let others = needed().filter(|name| *name != left_out);
        others.for_each(|name| without.add_named(name, 2));
        assert_eq!(without.missing().collect::<Vec<_>>(), [left_out]);
    }
}
