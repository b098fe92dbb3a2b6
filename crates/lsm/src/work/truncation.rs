//! Log truncation: which log segments an edit can take away.
//!
//! The *truncation point* is the LSN that replay would begin with. A segment of the recovery log is needed
//! while it holds that LSN or a later one; one
//! of the large log as long, and as long as pointers into it count
//! ([`LogUse`](crate::version::LogUse)), or into one before it with a
//! value that may reach into it: a pointer names the segment in which a value begins. Where garbage collection
//! has moved all that lived in it, and what moved it is in the levels, pointers into it are shadowed, and
//! it is *evacuated*: it goes although levels point into it. With what a
//! segment begins is read from it once, when it would be free otherwise ([`unknown_beginning`]); until
//! then it counts as the rest of a value. The last segment of a chain stays, and so does one that is
//! not sealed. Some more may be kept: a member that is away and builds its own levels comes back by the logs
//! ([`LastLsns::keep`]). An edit is written first and truncates logs afterwards, so that the pointers that it drops
//! and adds are counted. A segment of the medium log goes with the last pointer into it.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{Lsn, SegmentNumber};

use crate::addresses::Addressing;
use crate::edit::{Edit, LogSegment, MEDIUM_LOG, Place, Reference, RunId};
use crate::names::logs::{LARGE_LOG, RECOVERY_LOG};
use crate::version::{LogEntry, Version};

/// The highest LSN in each sealed log segment, as far as it is known.
#[derive(Debug)]
pub(crate) struct LastLsns {
    known: BTreeMap<SegmentNumber, Lsn>,
    /// For segments from before the engine started: the last LSN of the history then.
    before: Lsn,
    /// Whether a segment of the large log begins with the rest of a value, where that was read.
    inside_value: BTreeMap<SegmentNumber, bool>,
    /// Of these, those that could not be read.
    unread: BTreeSet<SegmentNumber>,
    /// Segments of the large log of which all that lived was written again, and the LSN up to which
    /// writes took it out of them.
    moved: BTreeMap<SegmentNumber, Lsn>,
    /// So many segments of the recovery log are kept that replay does not need, and as many of the large log.
    kept: usize,
}

impl LastLsns {
    /// Nothing is known but that all segments end at or below `before`.
    pub(crate) const fn new(before: Lsn) -> Self {
        Self {
            known: BTreeMap::new(),
            before,
            inside_value: BTreeMap::new(),
            unread: BTreeSet::new(),
            moved: BTreeMap::new(),
            kept: 0,
        }
    }

    /// From now on the last `count` segments of the recovery log are kept that replay does not need, and up to as many
    /// of the large log that were written meanwhile, whether or not anything in them lives.
    pub(crate) const fn keep(&mut self, count: usize) {
        self.kept = count;
    }

    /// No LSN in `number` is above `last`.
    pub(crate) fn set(&mut self, number: SegmentNumber, last: Lsn) {
        self.known.insert(number, last);
    }

    /// No LSN in `number` is above this.
    pub(crate) fn get(&self, number: SegmentNumber) -> Lsn {
        self.known.get(&number).copied().unwrap_or(self.before)
    }

    /// Whether large-log segment `number` begins with the rest of a value.
    pub(crate) fn set_inside_value(&mut self, number: SegmentNumber, inside: bool) {
        self.inside_value.insert(number, inside);
    }

    /// The beginning of large-log segment `number` cannot be read. It counts as the rest of a value, so that the
    /// segment stays, until [`look_again`](Self::look_again).
    pub(crate) fn set_unread(&mut self, number: SegmentNumber) {
        self.inside_value.insert(number, true);
        self.unread.insert(number);
    }

    /// What could not be read is unknown again.
    pub(crate) fn look_again(&mut self) {
        for number in std::mem::take(&mut self.unread) {
            self.inside_value.remove(&number);
        }
    }

    /// Nothing in large-log segment `number` lives any more, by writes up to `last`.
    pub(crate) fn set_moved(&mut self, number: SegmentNumber, last: Lsn) {
        self.moved.insert(number, last);
    }

    /// Up to where writes took everything out of segment `number`, if they did.
    pub(crate) fn moved(&self, number: SegmentNumber) -> Option<Lsn> {
        self.moved.get(&number).copied()
    }

    /// Whether all pointers of levels into segment `number` are shadowed by entries of the levels, where these
    /// hold everything below `replay_from`.
    fn is_shadowed(&self, number: SegmentNumber, version: &Version, replay_from: Lsn) -> bool {
        let evacuates = version.addresses().evacuates();
        let moved = self.moved(number).filter(|_| evacuates);
        moved.is_some_and(|last| last < replay_from)
    }

    /// The segment is gone.
    fn forget(&mut self, number: SegmentNumber) {
        self.moved.remove(&number);
        self.known.remove(&number);
        self.inside_value.remove(&number);
        self.unread.remove(&number);
    }
}

/// What keeps segments of the large log of a version.
struct Kept<'a> {
    version: &'a Version,
    lasts: &'a LastLsns,
    /// See [`reach`](argosy_log::value::reach).
    reach: u64,
    /// The levels hold everything below.
    replay_from: Lsn,
}

impl<'a> Kept<'a> {
    /// Those of the segments that `more` names, and of all that levels may not keep, that are sealed and not the
    /// last of the large log; in its order.
    fn candidates(&self, more: impl Iterator<Item = SegmentNumber>) -> Vec<LogSegment> {
        let chain = self.version.log(LARGE_LOG);
        let last = chain.last().map(|last| last.segment.number);
        let moved = self.lasts.moved.keys().copied();
        let all = self.version.unreferenced().chain(moved).chain(more);
        let mut found: Vec<_> = all
            .filter_map(|number| Some(self.version.log_segment(number)?.segment))
            .filter(|segment| segment.log == LARGE_LOG && segment.end.is_some())
            .filter(|segment| Some(segment.number) != last)
            .collect();
        found.sort_unstable_by_key(|segment| segment.ordinal);
        found.dedup();
        found
    }

    /// Whether levels keep segment `number`, into which so many bytes of pointers lead.
    fn is_referenced(&self, number: SegmentNumber, refs: u64) -> bool {
        refs > 0
            && !self
                .lasts
                .is_shadowed(number, self.version, self.replay_from)
    }

    /// Whether a value that begins in a segment that levels keep may reach into `segment`: those between are there,
    /// and none of them begins with a record.
    fn is_entered(&self, segment: &LogSegment, refs: impl Fn(SegmentNumber) -> u64) -> bool {
        let chain = self.version.log(LARGE_LOG);
        let place = chain.partition_point(|other| other.ordinal < segment.ordinal);
        let reach = usize::try_from(self.reach).unwrap_or(usize::MAX);
        let before = chain.range(place.saturating_sub(reach)..place).rev();
        let mut behind = *segment;
        for entry in before {
            let begins = self.lasts.inside_value.get(&behind.number) == Some(&false);
            if begins || entry.segment.ordinal + 1 != behind.ordinal {
                return false;
            }
            behind = entry.segment;
            if self.is_referenced(behind.number, refs(behind.number)) {
                return true;
            }
        }
        false
    }
}

/// A segment of the large log that would be free if it did not begin with the rest of a value, and of
/// which nobody has looked whether it does.
pub(crate) fn unknown_beginning(
    version: &Version,
    reach: u64,
    lasts: &LastLsns,
) -> Option<LogSegment> {
    let replay_from = version.replay_from();
    let kept = Kept {
        version,
        lasts,
        reach,
        replay_from,
    };
    let refs = |number| version.log_refs(number);
    let mut candidates = kept.candidates(std::iter::empty()).into_iter();
    candidates.find(|segment| {
        let number = segment.number;
        !lasts.inside_value.contains_key(&number)
            && lasts.get(number) < replay_from
            && !kept.is_referenced(number, refs(number))
            && kept.is_entered(segment, refs)
    })
}

/// Adds to `edit`, which changes `version` and counts the pointers that it adds and drops, the removals
/// that it makes possible. `reach` is [`reach`](argosy_log::value::reach) of the geometry.
pub(crate) fn truncate_logs(version: &Version, reach: u64, lasts: &mut LastLsns, edit: &mut Edit) {
    let replay_from = edit.numbers.replay_from.unwrap_or(version.replay_from());
    let refs = |number| refs_after(version, edit, number);
    let (mut gone, mut evacuated, mut medium) = (Vec::new(), Vec::new(), Vec::new());
    // It is as long as memtables need it.
    let chain = version.log(RECOVERY_LOG);
    for LogEntry { segment, .. } in chain.range(0..chain.len().saturating_sub(1)) {
        if segment.end.is_some() && lasts.get(segment.number) < replay_from {
            gone.push((RECOVERY_LOG, segment.number));
        }
    }
    gone.truncate(gone.len().saturating_sub(lasts.kept));
    let first_kept = chain.range(gone.len()..chain.len()).next();
    let kept_from = first_kept.map_or(replay_from, |entry| entry.segment.base_lsn);
    let kept = Kept {
        version,
        lasts,
        reach,
        replay_from,
    };
    let touched = edit.references.iter().map(|touched| touched.number);
    let mut large = Vec::new();
    for segment in kept.candidates(touched.clone()) {
        let number = segment.number;
        let referenced = kept.is_referenced(number, refs(number));
        if lasts.get(number) < replay_from && !referenced && !kept.is_entered(&segment, refs) {
            large.push(number);
        }
    }
    // What is kept of the recovery log is of use together with what was written to the large log meanwhile.
    let newer = large.iter().rev();
    let newer = newer.take_while(|number| lasts.get(**number) >= kept_from);
    large.truncate(large.len() - newer.count().min(lasts.kept));
    for number in large {
        gone.push((LARGE_LOG, number));
        evacuated.extend((refs(number) > 0).then_some(number));
    }
    // What nothing pointed to before went before.
    for number in touched {
        if version.medium_log().contains_key(&number) && refs(number) == 0 {
            medium.push(number);
        }
    }
    for (_, number) in &gone {
        lasts.forget(*number);
    }
    edit.logs.removed.extend(gone);
    edit.evacuated.extend(evacuated);
    let place = |number| Place {
        level: MEDIUM_LOG,
        run: RunId(0),
        number,
    };
    edit.removed.extend(medium.into_iter().map(place));
}

/// Bytes to which pointers lead in segment `number` once `edit` is applied to `version`.
fn refs_after(version: &Version, edit: &Edit, number: SegmentNumber) -> u64 {
    let of = |reference: &Reference| reference.number;
    let change = edit.references.binary_search_by_key(&number, of);
    let change = change.ok().map(|at| edit.references[at]);
    let (added, dropped) = change.map_or((0, 0), |change| (change.added, change.dropped));
    (version.log_refs(number) + added).saturating_sub(dropped)
}

#[cfg(test)]
#[path = "truncation_tests.rs"]
mod tests;
