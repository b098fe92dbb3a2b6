//! What holds of every version, by name.

use std::collections::{BTreeMap, BTreeSet};

use super::{LevelEntry, LogEntry, Run, Version};
use crate::addresses::Addressing;
use crate::edit::LEVELS_MAX;
use crate::names::Form;
use crate::names::logs::{LARGE_LOG, LOGS};

/// A rule that a version breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the version breaks a rule: {0}")]
pub struct Violation(pub &'static str);

/// A rule: its name, and whether a version keeps it.
type Rule = (&'static str, fn(&Version) -> bool);

/// The rules, in the order in which they are checked.
const RULES: [Rule; 17] = [
    (
        "levels are bounded and the last is not empty",
        levels_bounded,
    ),
    (
        "L1's runs rise, and lower levels have run 0 only",
        runs_rise,
    ),
    (
        "runs are sorted, without overlap or empty ranges",
        runs_sorted,
    ),
    (
        "runs know their segments by number, and their sums",
        runs_counted,
    ),
    (
        "a run has a tree with its index as long as it has leaves of one",
        trees_whole,
    ),
    ("chains of logs rise", chains_rise),
    ("sealed log segments come before the tail", tails_last),
    ("every segment has one place, and is stored", table_exact),
    ("segment numbers are below the mark", below_mark),
    (
        "pointers that count are no more than segments hold",
        uses_bounded,
    ),
    (
        "uncounted parts are apart from what readers see",
        uncounted_apart,
    ),
    (
        "levels point into segments of the large or medium log",
        refs_held,
    ),
    ("what levels point to is added up", refs_added_up),
    (
        "segments of the large log are known into which nothing points",
        unreferenced_exact,
    ),
    (
        "evacuated segments are gone, and pointed to",
        evacuated_exact,
    ),
    (
        "the medium log has what is pointed to, and no more",
        medium_exact,
    ),
    (
        "segments are known by place where pointers hold places",
        places_exact,
    ),
];

/// Checks every rule.
pub(super) fn check(version: &Version) -> Result<(), Violation> {
    match RULES.iter().find(|(_, holds)| !holds(version)) {
        Some((name, _)) => Err(Violation(name)),
        None => Ok(()),
    }
}

fn all_runs(version: &Version) -> impl Iterator<Item = &Run> {
    version.levels.iter().flat_map(|level| &level.runs)
}

fn all_logs(version: &Version) -> impl Iterator<Item = &LogEntry> {
    version.logs.iter().flat_map(|log| log.iter())
}

fn levels_bounded(version: &Version) -> bool {
    version.levels.len() <= usize::from(LEVELS_MAX)
        && version.levels.last().is_none_or(|l| !l.runs.is_empty())
}

fn runs_rise(version: &Version) -> bool {
    let mut levels = version.levels.iter();
    let first = levels.next();
    first.is_none_or(|l1| l1.runs.is_sorted_by(|a, b| a.id < b.id))
        && levels.all(|level| {
            matches!(
                &level.runs[..],
                [] | [Run {
                    id: crate::edit::RunId(0),
                    ..
                }]
            )
        })
}

fn runs_sorted(version: &Version) -> bool {
    all_runs(version).all(|run| {
        let ranges = run.segments.iter().map(|entry| &entry.segment.range);
        !run.segments.is_empty()
            && ranges.clone().all(|range| !range.is_empty())
            && ranges.is_sorted_by(|a, b| a.to.as_ref().is_some_and(|to| *to <= b.from))
    })
}

fn runs_counted(version: &Version) -> bool {
    all_runs(version).all(Run::is_counted)
}

fn trees_whole(version: &Version) -> bool {
    all_runs(version).all(|run| {
        let numbers = run.index().iter().map(|entry| entry.segment.number);
        run.is_whole() && numbers.is_sorted_by(|a, b| a < b)
    })
}

fn chains_rise(version: &Version) -> bool {
    LOGS.iter().all(|log| {
        let chain = version.log(*log).iter().map(|entry| &entry.segment);
        chain.clone().all(|segment| segment.log == *log)
            && chain.is_sorted_by(|a, b| {
                a.ordinal < b.ordinal
                    && (a.base_lsn <= b.base_lsn || a.end == Some(0))
                    && a.epoch <= b.epoch
            })
    })
}

fn tails_last(version: &Version) -> bool {
    version.logs.iter().all(|chain| {
        let sealed = chain.iter().map(|entry| entry.segment.end.is_some());
        sealed.is_sorted_by(|a, b| a >= b)
    })
}

/// The bounds of a segment that lost its middle all lie in one run.
fn table_exact(version: &Version) -> bool {
    let mut named = BTreeMap::new();
    let runs_once = all_runs(version).all(|run| {
        let entries: BTreeMap<_, _> = run
            .entries()
            .map(|entry| (entry.segment.number, &entry.stored))
            .collect();
        entries
            .into_iter()
            .all(|(number, stored)| named.insert(number, stored).is_none())
    });
    let logs_once =
        all_logs(version).all(|entry| named.insert(entry.segment.number, &entry.stored).is_none());
    let medium_once = version
        .medium_log()
        .iter()
        .all(|(number, entry)| named.insert(*number, &entry.stored).is_none());
    let uncounted_once = version
        .uncounted
        .iter()
        .filter(|(_, rest)| !rest.in_level)
        .all(|(number, rest)| named.insert(*number, &rest.parts[0].stored).is_none());
    let numbers_agree = named
        .iter()
        .all(|(number, stored)| stored.number() == *number);
    runs_once
        && logs_once
        && medium_once
        && uncounted_once
        && numbers_agree
        && named.keys().eq(version.table.keys())
}

fn below_mark(version: &Version) -> bool {
    let numbers = version.table.keys().rev();
    let last = numbers.copied().find(|number| !number.is_own());
    last.is_none_or(|last| last < version.mark())
}

/// Parts that were consumed count in the segments still, and not in the uses.
fn uses_bounded(version: &Version) -> bool {
    let entries = all_runs(version).flat_map(|run| &run.segments);
    let uncounted = version.uncounted.values().flat_map(|rest| &rest.parts);
    let held: BTreeMap<_, _> = entries
        .chain(uncounted)
        .map(|entry| &entry.segment)
        .map(|segment| (segment.number, segment.large_bytes + segment.medium_bytes))
        .collect();
    let live: u64 = version.log_uses().values().map(|used| used.live()).sum();
    let sound = |used: &super::LogUse| used.dropped <= used.total;
    version.log_uses().values().all(sound) && live <= held.values().sum()
}

fn uncounted_apart(version: &Version) -> bool {
    version.uncounted.iter().all(|(number, rest)| {
        let mut entries = all_runs(version).flat_map(|run| &run.segments);
        let seen: Vec<_> = entries
            .by_ref()
            .filter(|entry| entry.segment.number == *number)
            .collect();
        !rest.parts.is_empty()
            && rest.in_level != seen.is_empty()
            && rest.parts.iter().all(|part| {
                let overlaps =
                    |entry: &&LevelEntry| entry.segment.range.overlaps(&part.segment.range);
                part.segment.number == *number && !seen.iter().any(overlaps)
            })
    })
}

fn refs_held(version: &Version) -> bool {
    let large = version.log(LARGE_LOG).iter();
    let held: BTreeSet<_> = large.map(|entry| entry.segment.number).collect();
    version.log_uses().iter().all(|(number, used)| {
        version.medium_log().contains_key(number)
            || version.is_evacuated(*number) && used.live() > 0
            || held.contains(number)
    })
}

fn refs_added_up(version: &Version) -> bool {
    let medium = version.medium_log().values();
    let medium: u64 = medium.map(|entry| u64::from(entry.segment.len)).sum();
    version.pointers.sums == version.refs_of_all() && version.medium_bytes() == medium
}

fn unreferenced_exact(version: &Version) -> bool {
    let large = version.log(LARGE_LOG).iter();
    let numbers = large.map(|entry| entry.segment.number);
    let wanted: BTreeSet<_> = numbers
        .filter(|number| version.log_refs(*number) == 0)
        .collect();
    version.unreferenced().eq(wanted)
}

fn evacuated_exact(version: &Version) -> bool {
    let fits = version.addresses().evacuates() || version.evacuated.is_empty();
    let mut all = version.evacuated.keys();
    fits && all.all(|number| version.stored(*number).is_none() && version.log_refs(*number) > 0)
}

fn medium_exact(version: &Version) -> bool {
    version.medium_log().iter().all(|(number, entry)| {
        entry.segment.number == *number
            && entry.segment.form == Form::Medium
            && version.log_refs(*number) > 0
    })
}

fn places_exact(version: &Version) -> bool {
    version.places.are_those_of(&version.table)
}
