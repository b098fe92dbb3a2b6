//! Which segments of the large log may be victims of garbage collection, kept up from edit to edit.
//!
//! A sealed segment is *settled* once all of its values are in the levels: no LSN in it is at or above the one from
//! which replay begins. LSNs rise along the log, so the settled segments are a front part of it, without its last
//! segment. An edit settles segments behind that part, changes what points into some, and takes some away: that is
//! what [`SettledLogs::follow`] looks at, however long the log is. It is made anew where an edit was missed.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{EditSeq, SegmentNumber};

use super::truncation::LastLsns;
use crate::edit::{Edit, LogSegment};
use crate::names::logs::LARGE_LOG;
use crate::shared::work;
use crate::version::Version;

/// A segment of the large log that may be a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) number: SegmentNumber,
    pub(crate) ordinal: u64,
    /// Bytes that levels point to.
    pub(crate) refs: u64,
}

/// See the module documentation. 48 bytes a segment, and half as much for nodes: 4 MB for 100 GB of large values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettledLogs {
    segment_bytes: u64,
    /// The version that it belongs to.
    seq: Option<EditSeq>,
    all: BTreeMap<SegmentNumber, Settled>,
    /// The same by what points to them.
    by_refs: BTreeSet<(u64, SegmentNumber)>,
    /// Those before this ordinal are settled, and no others.
    end: u64,
    /// Bytes of them that no level points to.
    dead: u64,
}

/// Whether all values of `segment` are in the levels of `version`.
pub(crate) fn is_settled(segment: &LogSegment, version: &Version, lasts: &LastLsns) -> bool {
    segment.end.is_some() && lasts.get(segment.number) < version.replay_from()
}

/// How many segments of the large log, at its end, are not settled. Takes time by how many these are.
pub(crate) fn unsettled(version: &Version, lasts: &LastLsns) -> usize {
    let chain = version.log(LARGE_LOG);
    let behind = chain.iter().rev().enumerate();
    let mut settled =
        behind.filter(|(back, entry)| *back > 0 && is_settled(&entry.segment, version, lasts));
    settled.next().map_or(chain.len(), |(back, _)| back)
}

impl SettledLogs {
    /// Of a region whose segments have so many bytes; of no version yet.
    pub(crate) fn new(segment_bytes: u64) -> Self {
        Self {
            segment_bytes,
            ..Self::default()
        }
    }

    /// Follows `edit`, which led to `version`, where it belongs to the version before.
    pub(crate) fn follow(&mut self, edit: &Edit, version: &Version, lasts: &LastLsns) {
        if self.seq.map(EditSeq::next) != Some(version.seq()) || edit.checkpoint {
            return;
        }
        for (log, number) in &edit.logs.removed {
            if *log == LARGE_LOG {
                self.take(*number);
            }
        }
        for touched in &edit.references {
            if let Some(settled) = self.take(touched.number) {
                let refs = version.log_refs(settled.number);
                self.put(Settled { refs, ..settled });
            }
        }
        self.settle(version, lasts);
    }

    /// Makes sure that it belongs to `version`.
    pub(crate) fn catch_up(&mut self, version: &Version, lasts: &LastLsns) {
        if self.seq != Some(version.seq()) {
            *self = Self::new(self.segment_bytes);
        }
        self.settle(version, lasts);
        debug_assert!(
            work::apart(|| self.is_exact(version, lasts)),
            "of {}",
            version.seq()
        );
    }

    /// Whether it is what it would be if it were made anew.
    fn is_exact(&self, version: &Version, lasts: &LastLsns) -> bool {
        let mut anew = Self::new(self.segment_bytes);
        anew.settle(version, lasts);
        anew.all == self.all && anew.by_refs == self.by_refs && anew.dead == self.dead
    }

    /// Takes in what has settled behind.
    fn settle(&mut self, version: &Version, lasts: &LastLsns) {
        let chain = version.log(LARGE_LOG);
        let first = chain.partition_point(|segment| segment.ordinal < self.end);
        let more = chain.range(first..chain.len().saturating_sub(1));
        let more = more.map(|entry| entry.segment);
        for segment in more.take_while(|segment| is_settled(segment, version, lasts)) {
            self.end = segment.ordinal + 1;
            self.put(Settled {
                number: segment.number,
                ordinal: segment.ordinal,
                refs: version.log_refs(segment.number),
            });
        }
        self.seq = Some(version.seq());
    }

    const fn dead_in(&self, settled: &Settled) -> u64 {
        self.segment_bytes.saturating_sub(settled.refs)
    }

    pub(crate) fn put(&mut self, settled: Settled) {
        self.dead += self.dead_in(&settled);
        self.by_refs.insert((settled.refs, settled.number));
        self.all.insert(settled.number, settled);
        self.end = self.end.max(settled.ordinal + 1);
    }

    fn take(&mut self, number: SegmentNumber) -> Option<Settled> {
        let settled = self.all.remove(&number)?;
        self.by_refs.remove(&(settled.refs, number));
        self.dead -= self.dead_in(&settled);
        Some(settled)
    }

    /// Segment `number`, if it is settled.
    pub(crate) fn get(&self, number: SegmentNumber) -> Option<&Settled> {
        self.all.get(&number)
    }

    /// Those into which some pointers lead, for at most `most` bytes: where that is least first.
    pub(crate) fn pointed_to(&self, most: u64) -> impl Iterator<Item = &Settled> {
        let first = (1, SegmentNumber(0));
        let last = (most.max(1), SegmentNumber(u64::MAX));
        let found = self.by_refs.range(first..=last);
        let found = found.inspect(|_| work::add(1));
        found.map(|(_, number)| &self.all[number])
    }

    /// The ordinal behind the last of them.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of them that no level points to.
    pub(crate) const fn dead(&self) -> u64 {
        self.dead
    }
}
