//! Flushes of the log that are under way, and which backups have them.
//!
//! A flush is finished when every backup has it durable. A backup that loses its link may have lost
//! what it had flushed, because its log ends earlier by then: it counts again only for what its
//! report covers, and is asked again for the rest once it is live.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use argosy_base::{FlushRange, PerLog, Position, ServerId};

/// The flushes of a region.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushes {
    under_way: VecDeque<Flush>,
    /// Up to where every backup has had each log durable.
    everywhere: PerLog<Flushed>,
}

/// A flush that not every backup has acknowledged.
#[derive(Clone, Debug)]
struct Flush {
    range: FlushRange,
    done: BTreeSet<ServerId>,
}

/// Up to where a log is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flushed {
    /// The segment's place in the chain.
    ordinal: u64,
    /// Byte behind the last that is durable.
    to: u32,
}

impl Flushes {
    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// A flush of `range` begins; no backup has it yet.
    pub(super) fn begin(&mut self, range: FlushRange) {
        self.under_way.push_back(Flush {
            range,
            done: BTreeSet::new(),
        });
    }

    /// Backup `id` has `range` durable.
    pub(super) fn done_at(&mut self, id: ServerId, range: &FlushRange) {
        let mut flushes = self.under_way.iter_mut();
        if let Some(flush) = flushes.find(|flush| flush.range == *range) {
            flush.done.insert(id);
        }
    }

    /// Finishes the first flush, if all of `backups` have it.
    pub(super) fn finish_next(&mut self, backups: usize) -> Option<FlushRange> {
        let is_done = |flush: &mut Flush| flush.done.len() == backups;
        let done = self.under_way.pop_front_if(is_done)?.range;
        let flushed = Flushed {
            ordinal: done.ordinal,
            to: done.to,
        };
        self.everywhere.insert(done.log, flushed);
        Some(done)
    }

    /// Backup `id` reports that it is at `at`: flushes that this does not cover are not done there
    /// any more, even if they once were.
    pub(super) fn forget_lost(&mut self, id: ServerId, at: &Position) {
        for flush in &mut self.under_way {
            if !flush.range.covered_by(at) {
                flush.done.remove(&id);
            }
        }
    }

    /// Backup `id` goes live at `at`: the flushes that this covers, and those that it is asked for again.
    pub(super) fn split_at(
        &mut self,
        id: ServerId,
        at: &Position,
    ) -> (Vec<FlushRange>, Vec<FlushRange>) {
        self.forget_lost(id, at);
        let ranges = self.under_way.iter().map(|flush| flush.range);
        ranges.partition(|range| range.covered_by(at))
    }

    /// Whether a member at `at` lacks log bytes that every backup had durable once. A log ends where
    /// the other lacks a write, so that durable bytes behind it do not count any more; and what was
    /// flushed everywhere is never flushed again.
    pub(super) fn are_lacked_at(&self, at: &Position) -> bool {
        at.logs.iter().any(|(log, at)| {
            let end = Flushed {
                ordinal: at.ordinal,
                to: at.flushed,
            };
            let flushed = self.everywhere.get(log);
            flushed.is_some_and(|flushed| end < *flushed)
        })
    }
}
