//! What has happened in a run, or in many: a run of seeds that shows nothing is noticed.

use std::collections::BTreeMap;
use std::fmt;

use argosy_base::AddressMode;

use crate::cluster::{self, coordination};
use crate::engine::{Compaction, Settings};
use crate::plan::WorldKind;
use crate::{leaving, many, moved, partitions};

/// What must have happened at least once in a run of many seeds.
pub const NEEDED: [&str; 87] = [
    "operations",
    "forwarded operations",
    "clocks set back",
    "values in chunks",
    "values in parts looked up again",
    "bulk loads into what is bound",
    "bulk loads of unknown outcome",
    "flushes that were asked for",
    "compactions that were asked for",
    "maintenance that was not done",
    "scan pages",
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
    "connections refused",
    "connections given up",
    "connections dropped on the way",
    "broken connections",
    "links lost",
    "memory refused",
    "copies left failed",
    "regions that went on beside one",
    "flushes",
    "backups that rested",
    "compactions",
    "moves",
    "requests that waited for garbage collection",
    "values that escaped garbage collection",
    "trees with several heights",
    "shipments",
    "offers of checkpoints",
    "parts of edits",
    "bytes caught up",
    "fetches refused",
    "segments compared",
    "copies recounted",
    "level segments counted",
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
    "copies that damage closed",
    "reads that named damage",
    "bits of levels that flipped",
    "segments repaired",
    "manifests that were spoilt",
    "copies filled anew",
    "members left alone",
    "bits flipped on the way",
    "windows of another boot",
    "slow devices",
    crate::budget::LOOKS,
    crate::budget::USED,
];

/// What must have happened, besides, in a run of many seeds in which groups change.
pub const NEEDED_WHERE_GROUPS_CHANGE: [&str; 10] = [
    coordination::RAISED,
    coordination::RAISED_REFUSED,
    coordination::PROMOTED,
    coordination::REMOVED,
    coordination::ADDED,
    coordination::FILLED,
    coordination::ELECTIONS,
    coordination::OUTAGES,
    coordination::DEMOTED,
    coordination::RETURNED,
];

/// The same, which leases allow: without them no session ends while its server, or its master, goes on.
pub const NEEDED_WITH_LEASES: [&str; 7] = [
    leaving::LEFT,
    leaving::OWED_NOTHING,
    coordination::SESSIONS_ENDED,
    coordination::TWO_PRIMARIES,
    cluster::HALTS,
    moved::ASKED,
    moved::ASKED_BY_OTHERS,
];

/// The modes that regions may be kept in, which `Mode` counts: how copies come to be, how levels are compacted
/// and what pointers hold.
pub const MODES: [&str; 10] = [
    "send-index, partial, logical",
    "send-index, partial, rewrite",
    "send-index, whole-level, logical",
    "send-index, whole-level, rewrite",
    "build-index, partial, logical",
    "build-index, partial, rewrite",
    "build-index, whole-level, logical",
    "build-index, whole-level, rewrite",
    "none, logical",
    "none, rewrite",
];
/// The first of these that have copies.
const REPLICATED: usize = 8;
/// The first of these whose backups are sent levels.
const SENT: usize = 4;

/// A place in [`MODES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mode(usize);

impl Mode {
    /// That of a world of that kind, where backups build levels or not.
    #[must_use]
    pub(crate) fn of(kind: WorldKind, builds: bool, engine: &Settings) -> Self {
        let whole = engine.levels.compaction == Compaction::WholeLevel;
        let rewrite = usize::from(engine.layout.addresses == AddressMode::Rewrite);
        match kind {
            WorldKind::Replicated => {
                Self(4 * usize::from(builds) + 2 * usize::from(whole) + rewrite)
            }
            WorldKind::Killed | WorldKind::Powerless => Self(REPLICATED + rewrite),
        }
    }
}

/// What must have happened so often at least in each mode: an eighth, about, of what 300 seeds make of it in the
/// mode that has least of it.
pub const NEEDED_IN_EACH: [(&str, u64); 28] = [
    ("conditions that failed", 100),
    ("values compared, equal", 20),
    ("values compared, other", 100),
    ("increments", 50),
    ("pairs that expire", 100),
    ("pairs that have expired", 30),
    ("values in parts", 20),
    ("ranges removed", 20),
    ("groups", 300),
    ("scan pages downwards", 800),
    ("snapshots read", 50),
    ("parts bulk-loaded", 20),
    ("values moved by garbage collection", 100),
    ("medium values put apart", 600),
    ("medium values put in place", 600),
    ("medium segments freed", 400),
    ("appends", 30),
    ("overwrites", 10),
    ("fractions added", 30),
    ("expiries changed", 9),
    (EXPIRIES_READ, 5),
    ("versions that held", 1),
    ("versions that did not hold", 20),
    ("leased snapshots read", 200),
    ("leased snapshots read again", 600),
    ("leases renewed", 40),
    ("leases closed", 10),
    ("leases that ended", 10),
];

/// The same, in each mode that has copies.
pub const NEEDED_WITH_COPIES: [(&str, u64); 3] = [
    ("promotions", 5),
    ("adoptions", 1),
    ("devices that failed", 1),
];

/// The same, in each mode in which backups are sent levels: elsewhere no device is damaged.
pub const NEEDED_WITH_SENT_LEVELS: [(&str, u64); 3] = [
    ("flipped bits", 10),
    ("misdirected writes", 1),
    ("devices replaced", 3),
];

/// The same, in each mode in which pointers hold numbers: others evacuate no segments.
pub const NEEDED_WITH_NUMBERS: [(&str, u64); 1] = [("segments evacuated", 7)];

/// What is counted: in one mode, or in all of them together.
type Counter = (&'static str, Option<Mode>);

/// Everything that must have happened, and how often.
fn needed() -> impl Iterator<Item = (Counter, u64)> {
    let together = NEEDED.into_iter().map(|name| ((name, None), 1));
    let in_modes = |modes: usize| {
        move |(name, least): (&'static str, u64)| {
            (0..modes).map(move |mode| ((name, Some(Mode(mode))), least))
        }
    };
    let with_numbers = NEEDED_WITH_NUMBERS.into_iter().flat_map(|(name, least)| {
        let modes = (0..MODES.len()).filter(|mode| MODES[*mode].ends_with("logical"));
        modes.map(move |mode| ((name, Some(Mode(mode))), least))
    });
    let in_each = NEEDED_IN_EACH.into_iter().flat_map(in_modes(MODES.len()));
    let with_copies = NEEDED_WITH_COPIES
        .into_iter()
        .flat_map(in_modes(REPLICATED));
    let sent = NEEDED_WITH_SENT_LEVELS.into_iter().flat_map(in_modes(SENT));
    let everywhere = together.chain(in_each).chain(with_copies);
    everywhere.chain(sent).chain(with_numbers)
}

/// What is counted in each mode.
fn of_modes() -> impl Iterator<Item = &'static str> {
    let all = NEEDED_IN_EACH.into_iter().chain(NEEDED_WITH_COPIES);
    let all = all.chain(NEEDED_WITH_SENT_LEVELS);
    all.chain(NEEDED_WITH_NUMBERS).map(|(name, _)| name)
}

fn in_words((name, mode): Counter) -> String {
    match mode {
        None => name.to_owned(),
        Some(Mode(mode)) => format!("{name} ({})", MODES[mode]),
    }
}

/// Runs that ended early, since a copy that had been away had no room for what it had to fetch
/// beside what it had. May happen, seldom.
pub const NO_ROOM_TO_RETURN: &str = "runs without room to return";

/// Servers with a region that had to be opened while there was no room beneath, and stays closed until they
/// are started anew.
pub const NO_ROOM_TO_OPEN: &str = "servers without room to open a region";

/// Windows of logs in which bits flipped.
pub const WINDOWS_DAMAGED: &str = "windows that were damaged";

/// Answers that told when a pair expires.
pub const EXPIRIES_READ: &str = "expiries read";

/// Segments of logs of which members hold the same records, and other bytes between them.
pub const DAMAGE_BETWEEN_RECORDS: &str = "segments damaged between records";

/// What may happen, and is counted over many seeds all the same.
const KNOWN: [&str; 14] = [
    partitions::EPOCHS,
    moved::STRUCK,
    coordination::CONFLICTS,
    coordination::PROMOTED_CUT,
    "starts refused for damage",
    "damages found by scrubs",
    NO_ROOM_TO_RETURN,
    NO_ROOM_TO_OPEN,
    "small devices that did not fill",
    many::READ,
    many::LEVEL_SEGMENTS,
    many::LOG_SEGMENTS,
    WINDOWS_DAMAGED,
    DAMAGE_BETWEEN_RECORDS,
];

/// Counters by name, and some by mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<Counter, u64>,
    /// That of the run that is counted.
    mode: Option<Mode>,
}

impl Coverage {
    /// Counts a run in this mode.
    #[must_use]
    pub(crate) fn of(mode: Mode) -> Self {
        Self {
            counts: BTreeMap::new(),
            mode: Some(mode),
        }
    }

    /// Adds `count` to a counter, or to that of the run's mode where there is one in each.
    pub fn add(&mut self, name: &'static str, count: u64) {
        let mode = self.mode.filter(|_| of_modes().any(|of| of == name));
        *self.counts.entry((name, mode)).or_default() += count;
    }

    /// Adds `count` to a counter of which another process told [in words](Self::all). One that is not known
    /// here is forgotten.
    pub fn add_named(&mut self, words: &str, count: u64) {
        let groups = NEEDED_WHERE_GROUPS_CHANGE
            .into_iter()
            .chain(NEEDED_WITH_LEASES);
        let known = KNOWN.into_iter().chain(groups).map(|name| (name, None));
        let modes = |name| (0..MODES.len()).map(move |mode| (name, Some(Mode(mode))));
        let together = needed().map(|(counter, _)| counter);
        let mut known = together.chain(of_modes().flat_map(modes)).chain(known);
        if let Some(counter) = known.find(|known| in_words(*known) == words) {
            *self.counts.entry(counter).or_default() += count;
        }
    }

    /// All counters that are not zero, in words.
    pub fn all(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let all = self.counts.iter().filter(|(_, count)| **count > 0);
        all.map(|(counter, count)| (in_words(*counter), *count))
    }

    /// A counter over all modes.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        let of_it = self.counts.iter().filter(|((of, _), _)| *of == name);
        of_it.map(|(_, count)| count).sum()
    }

    /// Adds another run's counters.
    pub fn merge(&mut self, other: &Self) {
        for (counter, count) in &other.counts {
            *self.counts.entry(*counter).or_default() += count;
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counts.get(&counter).copied().unwrap_or(0)
    }

    /// The same of a run of many seeds in which groups change.
    pub fn missing_where_groups_change(&self) -> impl Iterator<Item = &'static str> + '_ {
        let needed = NEEDED_WHERE_GROUPS_CHANGE
            .into_iter()
            .chain(NEEDED_WITH_LEASES);
        needed.filter(|name| self.get(name) == 0)
    }

    /// The needed counters that are too low.
    pub fn missing(&self) -> impl Iterator<Item = String> + '_ {
        let low = needed().filter(|(counter, least)| self.count(*counter) < *least);
        low.map(|(counter, _)| in_words(counter))
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in NEEDED {
            writeln!(f, "{:>12}  {name}", self.count((name, None)))?;
        }
        let listed = |name: &str| NEEDED.contains(&name) || of_modes().any(|of| of == name);
        let others = self.counts.iter().filter(|((name, _), _)| !listed(name));
        for ((name, _), count) in others {
            writeln!(f, "{count:>12}  {name}")?;
        }
        writeln!(f, "In each mode:")?;
        for (mode, name) in MODES.iter().enumerate() {
            writeln!(f, "  {mode}: {name}")?;
        }
        (0..MODES.len()).try_for_each(|mode| write!(f, "{mode:>8}"))?;
        writeln!(f)?;
        for name in of_modes() {
            let count = |mode| self.count((name, Some(Mode(mode))));
            (0..MODES.len()).try_for_each(|mode| write!(f, "{:>8}", count(mode)))?;
            writeln!(f, "  {name}")?;
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
        needed().for_each(|(counter, least)| coverage.add_named(&in_words(counter), least));
        assert_eq!(coverage.missing().count(), 0);
        let ((left_out, mode), _) = needed().last().expect("there are some");
        let mut without = Coverage::default();
        let others = needed().filter(|(counter, _)| *counter != (left_out, mode));
        others.for_each(|(counter, least)| without.add_named(&in_words(counter), least));
        let missing: Vec<_> = without.missing().collect();
        assert_eq!(missing, [in_words((left_out, mode))]);
    }

    #[test]
    fn a_change_of_groups_that_never_was_is_missing() {
        let needed: Vec<_> = NEEDED_WHERE_GROUPS_CHANGE
            .into_iter()
            .chain(NEEDED_WITH_LEASES)
            .collect();
        for left_out in &needed {
            let mut coverage = Coverage::default();
            let others = needed.iter().filter(|name| *name != left_out);
            others.for_each(|name| coverage.add_named(name, 1));
            let missing: Vec<_> = coverage.missing_where_groups_change().collect();
            assert_eq!(missing, [*left_out]);
            coverage.add_named(left_out, 1);
            assert_eq!(coverage.missing_where_groups_change().count(), 0);
        }
    }

    #[test]
    fn what_happens_counts_in_the_mode_of_its_run() {
        let mut places: Vec<Mode> = Vec::new();
        for (kind, builds) in [
            (WorldKind::Replicated, false),
            (WorldKind::Replicated, true),
            (WorldKind::Killed, false),
        ] {
            for compaction in [Compaction::Partial, Compaction::WholeLevel] {
                for addresses in AddressMode::ALL {
                    let engine = Settings::default().with(|of| {
                        of.levels.compaction = compaction;
                        of.layout.addresses = addresses;
                    });
                    places.push(Mode::of(kind, builds, &engine));
                }
            }
        }
        let numbers: Vec<usize> = places.iter().map(|mode| mode.0).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 9]);
        let mut coverage = Coverage::of(Mode(9));
        coverage.add("increments", 2);
        coverage.add("kills", 1);
        let all: Vec<_> = coverage.all().collect();
        assert_eq!(
            all,
            [
                ("increments (none, rewrite)".to_owned(), 2),
                ("kills".to_owned(), 1)
            ]
        );
    }
}
