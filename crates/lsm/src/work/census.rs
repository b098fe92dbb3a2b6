//! What space a region takes, what of it lives, and what is to be done about the rest: pure decisions
//! of garbage collection, made of a version alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::SegmentNumber;

use super::admission::Share;
use super::settled::{Settled, SettledLogs, unsettled};
use super::shadowed::{Lowering, ShadowEstimate, Shadowed};
use super::truncation::LastLsns;
use crate::addresses::Addressing;
use crate::names::logs::RECOVERY_LOG;
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
    /// How many of the `refs` are overwritten above, as far as samples tell.
    pub(crate) stale: u64,
    /// Of entries that came into the levels last so many in [`ShadowEstimate::ALL`] shadow an older one.
    pub(crate) shadows: u64,
    /// What a merge into the last level would do.
    pub(crate) merge: Lowering,
    /// Sealed segments of the large log all of whose values are in the levels, where somebody keeps them up.
    pub(crate) settled: Arc<SettledLogs>,
    /// A segment out of which all was moved goes when what was moved is in the levels; otherwise when merges
    /// have dropped the last pointer into it.
    pub(crate) evacuates: bool,
}

impl Census {
    /// The census of `version`. `shadowed` and `settled` describe the same version; `settled` is empty for a copy that
    /// moves no values. The cost grows with what is in memtables, not with the version.
    pub(crate) fn of(
        version: &Version,
        lasts: &LastLsns,
        shadowed: Shadowed,
        settled: Arc<SettledLogs>,
        settings: &Settings,
    ) -> Self {
        let segment_bytes = settings.layout.segment_bytes as u64;
        let medium_refs = version.medium_refs();
        let refs = version.large_refs() + medium_refs;
        let unsettled = unsettled(version, lasts) + version.log(RECOVERY_LOG).len();
        let levels = version.levels().iter();
        Self {
            segment_bytes,
            allocated: version.table().len() as u64 * segment_bytes,
            unsettled: unsettled as u64 * segment_bytes,
            level_bytes: levels.map(|level| level.bytes()).sum(),
            refs,
            medium_refs,
            medium_bytes: version.medium_log().len() as u64 * segment_bytes,
            stale: shadowed.bytes.min(refs),
            shadows: shadowed.newest,
            merge: shadowed.merge,
            evacuates: version.addresses().evacuates(),
            settled,
        }
    }

    /// Bytes that live.
    pub(crate) const fn live(&self) -> u64 {
        self.refs.saturating_sub(self.stale) + self.level_bytes
    }

    /// Whether much of what levels point to may be overwritten above.
    pub(crate) const fn is_vague(&self) -> bool {
        self.stale > self.refs / STALE_SHARE
    }

    /// Whether the active memtable is to be flushed although it is not full: much goes with it, or much of what
    /// it shadows can only be found when it is in the levels.
    fn flushes(&self, wanted: &Wanted<'_>) -> bool {
        let shadows = self.shadows * 2 > ShadowEstimate::ALL;
        let long = (2 * wanted.batch).max(FLUSH_SEGMENTS * self.segment_bytes);
        let many = wanted.unflushed > 0 && wanted.unflushed >= wanted.batch;
        self.evacuates && wanted.active > 0 && (many || shadows && wanted.active >= long)
    }

    /// Bytes of the medium log that no level points to: merges into the last level free its segments.
    pub(crate) const fn medium_debt(&self) -> u64 {
        self.medium_bytes.saturating_sub(self.medium_refs)
    }

    /// Whether a merge into the last level finds or frees a byte for less than it costs to move what lives in
    /// `victim`; where there is none, one of which seven eighths live.
    pub(crate) fn lowers(&self, victim: Option<SegmentNumber>) -> bool {
        let victim = victim.and_then(|victim| self.settled.get(victim));
        let segment = u128::from(self.segment_bytes);
        let refs = victim.map_or(segment / 8 * 7, |victim| u128::from(victim.refs));
        let (costs, frees) = (u128::from(self.merge.costs), u128::from(self.merge.frees));
        frees > 0 && costs * segment.saturating_sub(refs) <= frees * (segment + refs)
    }

    /// Bytes of settled segments that no level points to.
    pub(crate) fn debt(&self) -> u64 {
        self.settled.dead()
    }
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
    /// Bring what was moved into the levels.
    Flush,
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
    /// Bytes of those of them that wait for the active memtable to be flushed.
    pub(crate) unflushed: u64,
    /// From how many of these it is flushed although it is not full.
    pub(crate) batch: u64,
    /// Bytes of logs that it stands for; 0 while another one waits to be flushed.
    pub(crate) active: u64,
    /// The region is beyond its bound, and would not be if it were flushed.
    pub(crate) flushes: bool,
    /// Segments that cannot be moved.
    pub(crate) skipped: &'a BTreeSet<SegmentNumber>,
}

/// Chooses.
pub(crate) fn choose(census: &Census, wanted: &Wanted<'_>, episode: &mut Episode) -> Choice {
    if wanted.goal == 0 {
        episode.end(census);
        return match wanted.flushes && wanted.unflushed > 0 {
            true => Choice::Flush,
            false => Choice::Rest,
        };
    }
    match census.evacuates {
        true => choose_evacuating(census, wanted, episode),
        false => choose_merging(census, wanted, episode),
    }
}

/// Chooses where segments go with a flush. Of those that do the goal knows.
fn choose_evacuating(census: &Census, wanted: &Wanted<'_>, episode: &mut Episode) -> Choice {
    if census.flushes(wanted) {
        return Choice::Flush;
    }
    if let Some(victim) = victim(census, wanted, episode) {
        return Choice::Move(victim.number);
    }
    episode.end(census);
    match () {
        () if wanted.unflushed > 0 => Choice::Flush,
        () if census.stale + census.medium_debt() > 0 => Choice::Merge,
        () => Choice::Rest,
    }
}

/// Chooses where segments wait for merges that drop the last pointer into them.
fn choose_merging(census: &Census, wanted: &Wanted<'_>, episode: &mut Episode) -> Choice {
    let settled = |number: &&SegmentNumber| census.settled.get(**number).is_some();
    let moved = wanted.moved.iter().filter(settled);
    let moved = moved.count() as u64 * census.segment_bytes;
    let waiting = moved + census.medium_debt();
    if waiting >= wanted.goal || census.is_vague() {
        return Choice::Merge;
    }
    if let Some(victim) = victim(census, wanted, episode) {
        return Choice::Move(victim.number);
    }
    episode.end(census);
    match waiting > 0 {
        true => Choice::Merge,
        false => Choice::Rest,
    }
}

/// The segment in which least lives, of those that may be moved.
fn victim(census: &Census, wanted: &Wanted<'_>, episode: &mut Episode) -> Option<Settled> {
    let limit = episode.limit(census);
    let mut candidates = census.settled.pointed_to(wanted.refs_max);
    // Those that are passed over came during the episode, or go with the next flush or merge.
    let chosen = candidates.find(|segment| {
        let number = segment.number;
        let known = wanted.moved.contains(&number) || wanted.skipped.contains(&number);
        segment.ordinal < limit && !known
    });
    chosen.copied()
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
            self.limit = Some(census.settled.end());
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

/// Segments of logs for which a memtable is not flushed before it is full.
const FLUSH_SEGMENTS: u64 = 16;

/// Most steps of garbage collection in one step of the background.
const STEPS_MAX: usize = 8;

/// Steps of garbage collection for one step of the background, where a quarter of what is allowed beside what lives
/// is to become free: more where writers wait for it.
const HASTE: u64 = 2;
const HASTE_EVACUATING: u64 = 6;

/// Most bytes beyond its bound that a region may take for what is in memtables, where segments are evacuated: so
/// many times the floor of its space.
const SPARED: u64 = 3;

/// With every version one in so many of these bytes is allowed no more.
const SPARED_FADES: u64 = 16;

/// Whether a region collects garbage, and how much: the further it has come, the more is done between two looks at
/// the logs.
///
/// Where segments are evacuated the region is kept below its bound: it begins when three quarters are taken of
/// what is allowed beside what lives, and writers become slower from there on
/// ([`admission`](super::admission)). What it takes is told without the segments that go with the next flush.
/// Otherwise it begins beyond the bound, and ends well below.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressure {
    is_collecting: bool,
    /// From where on writers become slower, and where they would have to stop.
    begin: u64,
    bound: u64,
    /// What was allowed for memtables.
    spared: u64,
    /// The goal in quarters of what is allowed beside what lives, times what it is worth.
    level: u64,
    /// See [`Self::batch`].
    batch: u64,
}

impl Pressure {
    /// Bytes that are to become free, where `going` bytes will without more being done.
    pub(crate) fn goal(&mut self, census: &Census, going: u64, settings: &Settings) -> u64 {
        let (live, bound) = (census.live(), settings.space_bound(census.live()));
        let taken = census.allocated.saturating_sub(going);
        let (begin, slack) = match census.evacuates {
            true => {
                let slack = (bound - live) / 4;
                self.bound = bound + self.spare(census, settings);
                (self.bound - slack, slack)
            }
            false => {
                let bound = bound + census.unsettled;
                (bound, (bound - live) / 4)
            }
        };
        self.begin = begin;
        let end = match census.evacuates {
            true => begin - slack / 2,
            false => begin - slack,
        };
        self.is_collecting &= taken > end;
        self.is_collecting |= taken > begin;
        let goal = match self.is_collecting {
            true => taken - end,
            false => 0,
        };
        self.batch = (slack / 2).max(settings.space_floor());
        let haste = match census.evacuates {
            true => HASTE_EVACUATING,
            false => HASTE,
        };
        self.level = goal.saturating_mul(haste) / slack.max(1);
        goal
    }

    /// Bytes that are allowed for what is in memtables. A flush takes them away at once; what is allowed goes by
    /// and by, so that writers do not notice.
    fn spare(&mut self, census: &Census, settings: &Settings) -> u64 {
        let ahead = settings.layout.windows_bytes() as u64;
        let now = census
            .unsettled
            .min(SPARED * settings.space_floor() + ahead);
        self.spared = now.max(self.spared - self.spared.div_ceil(SPARED_FADES));
        self.spared
    }

    /// How far a region that takes `taken` bytes is on its way to where writers have to stop.
    pub(crate) fn owed(&self, taken: u64) -> Share {
        match self.bound {
            // Where segments wait for merges, writers are not slowed.
            0 => Share::default(),
            bound => Share::of(taken, self.begin, bound),
        }
    }

    /// Whether a region that takes `allocated` bytes is beyond its bound.
    pub(crate) const fn is_over(&self, allocated: u64) -> bool {
        self.bound > 0 && allocated > self.bound
    }

    /// From how many bytes of segments out of which all was moved the memtable is flushed for them.
    pub(crate) const fn batch(&self) -> u64 {
        self.batch
    }

    /// Steps of garbage collection that are due in one step of the background.
    pub(crate) fn steps(&self) -> usize {
        usize::try_from(self.level).map_or(STEPS_MAX, |level| level.clamp(1, STEPS_MAX))
    }
}

#[cfg(test)]
#[path = "census_tests.rs"]
mod tests;
