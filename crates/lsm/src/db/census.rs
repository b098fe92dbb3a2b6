//! What space a region takes, what of it lives, and what is to be done about the rest: pure decisions
//! of [garbage collection](super::gc), made of a version alone.

use std::collections::BTreeSet;

use argosy_base::{LogKind, SegmentNumber};

use super::trim::LastLsns;
use crate::edit::LogSegment;
use crate::settings::Settings;
use crate::version::Version;

/// Merges are asked for where over one in so many of the bytes that levels point to may be overwritten
/// above.
const STALE_SHARE: u64 = 4;

/// What space a region takes, and what of it lives. Pure: made of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) segment_bytes: u64,
    /// Bytes of all segments, of logs and levels.
    pub(crate) allocated: u64,
    /// Bytes of those that logs take for what is in memtables.
    pub(crate) unsettled: u64,
    /// Bytes of level segments in use.
    pub(crate) level_bytes: u64,
    /// Bytes of values that levels point to, overwritten above or not.
    pub(crate) refs: u64,
    /// Those of them that are in the medium log.
    pub(crate) medium_refs: u64,
    /// Bytes of the segments of the medium log.
    pub(crate) medium_bytes: u64,
    /// How many of these may be overwritten above, at most.
    pub(crate) stale: u64,
    /// Sealed segments of the large log all of whose values are in the levels.
    pub(crate) settled: Vec<Settled>,
}

/// A segment of the large log that may be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) number: SegmentNumber,
    pub(crate) ordinal: u64,
    /// Bytes that levels point to.
    pub(crate) refs: u64,
}

impl Census {
    /// That of `version`.
    pub(crate) fn of(version: &Version, lasts: &LastLsns, settings: &Settings) -> Self {
        let segment_bytes = settings.segment_bytes as u64;
        let old = |segment: &LogSegment| {
            segment.end.is_some() && lasts.get(segment.number) < version.replay_from()
        };
        let chain = version.log(LogKind::Large);
        let refs = |entry: &crate::version::LogEntry| version.log_refs(entry.segment.number);
        let medium = version.medium_log().keys();
        let medium_refs = medium.map(|number| version.log_refs(*number)).sum::<u64>();
        let all_refs = chain.iter().map(refs).sum::<u64>() + medium_refs;
        let settled = chain[..chain.len().saturating_sub(1)].iter();
        let settled: Vec<_> = settled.filter(|entry| old(&entry.segment)).collect();
        let logs = chain.len() + version.log(LogKind::Recovery).len();
        let levels = version.levels().iter();
        Self {
            segment_bytes,
            allocated: version.table().len() as u64 * segment_bytes,
            unsettled: (logs - settled.len()) as u64 * segment_bytes,
            level_bytes: levels.map(|level| level.bytes()).sum(),
            refs: all_refs,
            medium_refs,
            medium_bytes: version.medium_log().len() as u64 * segment_bytes,
            stale: stale(version, all_refs),
            settled: settled
                .into_iter()
                .map(|entry| Settled {
                    number: entry.segment.number,
                    ordinal: entry.segment.ordinal,
                    refs: refs(entry),
                })
                .collect(),
        }
    }

    /// Bytes that live, at least.
    pub(crate) const fn live(&self) -> u64 {
        self.refs.saturating_sub(self.stale) + self.level_bytes
    }

    /// Whether much of what levels point to may be overwritten above.
    pub(crate) const fn is_vague(&self) -> bool {
        self.stale * STALE_SHARE > self.refs
    }

    /// Bytes of the medium log that no level points to: merges into the last level free its segments.
    pub(crate) const fn medium_debt(&self) -> u64 {
        self.medium_bytes.saturating_sub(self.medium_refs)
    }

    /// Bytes of settled segments that no level points to.
    pub(crate) fn debt(&self) -> u64 {
        let dead = |settled: &Settled| self.segment_bytes.saturating_sub(settled.refs);
        self.settled.iter().map(dead).sum()
    }
}

/// How many of the `refs` bytes that the levels of `version` point to may be overwritten: every entry
/// hides one older entry at most, and one that hides an entry is newer. Entries count alike.
fn stale(version: &Version, refs: u64) -> u64 {
    let entries = version.runs().map(|(_, run)| {
        let segments = run.whole_segments();
        segments.map(|entry| u64::from(entry.segment.entries)).sum()
    });
    let (mut newer, mut hidden, mut last): (u64, u64, u64) = (0, 0, 0);
    for count in entries {
        hidden += newer.min(count);
        newer += count;
        last = count;
    }
    let hidden = u128::from(hidden.min(newer - last));
    let bytes = u128::from(refs) * hidden / u128::from(newer.max(1));
    u64::try_from(bytes).unwrap_or(refs).min(refs)
}

/// What to do about dead bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nothing.
    #[default]
    Rest,
    /// Merge levels.
    Merge,
    /// Move what lives in this segment.
    Move(SegmentNumber),
}

/// What is wanted of [`choose`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Bytes that are to become free.
    pub(crate) goal: u64,
    /// Most bytes that live in a victim.
    pub(crate) refs_max: u64,
    /// Segments with nothing left to move.
    pub(crate) moved: &'a BTreeSet<SegmentNumber>,
    /// Segments that cannot be moved.
    pub(crate) skipped: &'a BTreeSet<SegmentNumber>,
}

/// Chooses.
pub(crate) fn choose(census: &Census, wanted: &Wanted<'_>, episode: &mut Episode) -> Choice {
    if wanted.goal == 0 {
        episode.end(census);
        return Choice::Rest;
    }
    let settled = census.settled.iter();
    let moved = settled.filter(|segment| wanted.moved.contains(&segment.number));
    let pending = moved.count() as u64 * census.segment_bytes + census.medium_debt();
    if pending >= wanted.goal || census.is_vague() {
        return Choice::Merge;
    }
    let limit = episode.limit(census);
    let candidates = census.settled.iter().filter(|segment| {
        let number = segment.number;
        let known = wanted.moved.contains(&number) || wanted.skipped.contains(&number);
        (1..=wanted.refs_max).contains(&segment.refs) && segment.ordinal < limit && !known
    });
    if let Some(victim) = candidates.min_by_key(|segment| (segment.refs, segment.number)) {
        return Choice::Move(victim.number);
    }
    episode.end(census);
    if pending > 0 {
        Choice::Merge
    } else {
        Choice::Rest
    }
}

/// Which segments may be moved: those that were there when it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Episode {
    /// The first segment behind them, while it lasts.
    limit: Option<u64>,
    /// The least debt since the last one.
    debt: u64,
}

impl Episode {
    /// The first segment that may not be moved; begins an episode where more has died since the last.
    fn limit(&mut self, census: &Census) -> u64 {
        let debt = census.debt();
        if self.limit.is_none() && debt >= self.debt + census.segment_bytes {
            let last = census.settled.last();
            self.limit = last.map(|last| last.ordinal + 1);
        }
        self.debt = self.debt.min(debt);
        self.limit.unwrap_or(0)
    }

    fn end(&mut self, census: &Census) {
        let debt = census.debt();
        self.debt = match self.limit.take() {
            Some(_) => debt,
            None => self.debt.min(debt),
        };
    }
}

/// Most steps of collecting in one step of the background.
const STEPS_MAX: usize = 8;

/// Whether a region collects: begun beyond the bound, ended well below. And how much: the further it
/// is beyond, the more collecting is done between two looks at the logs, so that writers, who wait for
/// these, become slower by and by and not at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressure {
    collecting: bool,
    /// Twice the goal, in quarters of what is allowed beside what lives.
    level: u64,
}

impl Pressure {
    /// Bytes that are to become free.
    pub(crate) fn goal(&mut self, census: &Census, settings: &Settings) -> u64 {
        let bound = settings.space_bound(census.live()) + census.unsettled;
        let slack = (bound - census.live()) / 4;
        self.collecting &= census.allocated + slack > bound;
        self.collecting |= census.allocated > bound;
        let goal = match self.collecting {
            true => census.allocated + slack - bound,
            false => 0,
        };
        self.level = goal.saturating_mul(2) / slack.max(1);
        goal
    }

    /// Steps of collecting that are due in one step of the background.
    pub(crate) fn steps(&self) -> usize {
        usize::try_from(self.level).map_or(STEPS_MAX, |level| level.clamp(1, STEPS_MAX))
    }
}

#[cfg(test)]
#[path = "census_tests.rs"]
mod tests;
