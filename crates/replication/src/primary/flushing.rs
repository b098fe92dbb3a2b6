//! Flushes of the log that are under way, and which copies have them.
//!
//! A flush is finished when every member has it durable. A member that loses its link may have lost
//! what it had flushed, because its log ends earlier by then: it counts again only for what its
//! report covers, and is asked again for the rest once it is live.
//!
//! A copy that is being filled is asked for the same flushes, and may lag behind: a flush does not wait for it. So
//! while one is being filled, some of the flushes that are finished are remembered, and it is asked for those that it
//! lacks. No window of its may be written anew before what was in there is durable, finished or not
//! ([`Primary::unflushed`](super::Primary::unflushed)).

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{EditSeq, FlushRange, LogId, LogPosition, PerLog, Position, ServerId};

/// Finished flushes that are remembered. What they cover lies in the primary's windows, of which there are few, each of
/// at most a segment; a copy that lacks more than these is offered a checkpoint.
const FINISHED_MAX: usize = 256;

/// The flushes of a region.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushes {
    under_way: VecDeque<Flush>,
    /// Up to where every member has had each log durable.
    everywhere: PerLog<Flushed>,
    /// The last that were finished, the oldest first; none while no copy is being filled.
    finished: VecDeque<FlushRange>,
}

/// A flush that not every member has acknowledged.
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

/// The flushes that a copy that goes live has, and those that it is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Split {
    pub(super) done: Vec<FlushRange>,
    pub(super) asked: Vec<FlushRange>,
}

impl Flushes {
    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether not every member has `range` yet.
    pub(super) fn is_under_way(&self, range: &FlushRange) -> bool {
        self.under_way.iter().any(|flush| flush.range == *range)
    }

    /// A flush of `range` begins; no other copy has it yet.
    pub(super) fn begin(&mut self, range: FlushRange) {
        self.under_way.push_back(Flush {
            range,
            done: BTreeSet::new(),
        });
    }

    /// Server `id` has `range` durable.
    pub(super) fn done_at(&mut self, id: ServerId, range: &FlushRange) {
        let mut flushes = self.under_way.iter_mut();
        if let Some(flush) = flushes.find(|flush| flush.range == *range) {
            flush.done.insert(id);
        }
    }

    /// Finishes the first flush, if `all` of those that count have it. `remember` it where a copy is being filled.
    pub(super) fn finish_next(
        &mut self,
        all: impl Fn(&BTreeSet<ServerId>) -> bool,
        remember: bool,
    ) -> Option<FlushRange> {
        let is_done = |flush: &mut Flush| all(&flush.done);
        let done = self.under_way.pop_front_if(is_done)?.range;
        let flushed = Flushed {
            ordinal: done.ordinal,
            to: done.to,
        };
        self.everywhere.insert(done.log, flushed);
        if !remember {
            self.finished.clear();
            return Some(done);
        }
        if self.finished.len() == FINISHED_MAX {
            self.finished.pop_front();
        }
        self.finished.push_back(done);
        Some(done)
    }

    /// Server `id` has nothing of what it had.
    pub(super) fn forget(&mut self, id: ServerId) {
        for flush in &mut self.under_way {
            flush.done.remove(&id);
        }
    }

    /// Server `id` reports that it is at `at`: flushes that this does not cover are not done there
    /// any more, even if they once were.
    pub(super) fn forget_lost(&mut self, id: ServerId, at: &Position) {
        for flush in &mut self.under_way {
            if !flush.range.covered_by(at) {
                flush.done.remove(&id);
            }
        }
    }

    /// Server `id` goes live at `at`: the flushes that this covers, and those that it is asked for again.
    pub(super) fn split_at(&mut self, id: ServerId, at: &Position) -> Split {
        self.forget_lost(id, at);
        let mut split = Split::default();
        let finished = self.finished.iter().copied();
        // What is finished and is not lacked needs no word.
        let lacked = finished.filter(|range| !range.covered_by(at));
        split.asked.extend(lacked);
        for Flush { range, .. } in &self.under_way {
            match range.covered_by(at) {
                true => split.done.push(*range),
                false => split.asked.push(*range),
            }
        }
        split
    }

    /// Whether a copy at `at` lacks log bytes that every member had durable once, and cannot be asked to flush them:
    /// they are remembered no more. A log ends where the other lacks a write, so that durable bytes behind it do not
    /// count any more.
    pub(super) fn are_lacked_at(&self, at: &Position) -> bool {
        at.logs.iter().any(|(log, at)| {
            let end = Flushed {
                ordinal: at.ordinal,
                to: at.flushed,
            };
            let flushed = self.everywhere.get(log);
            flushed.is_some_and(|flushed| end < *flushed) && !self.goes_on_at(log, at)
        })
    }

    /// Whether the first of the remembered flushes that a copy lacks, which is at `at` in `log`, begins there.
    fn goes_on_at(&self, log: LogId, at: &LogPosition) -> bool {
        let is_lacked = |range: &&FlushRange| {
            range.log == log && (range.ordinal, range.to) > (at.ordinal, at.flushed)
        };
        let is_next = |range: &FlushRange| {
            let here = (at.ordinal, at.flushed);
            let next = (at.ordinal + 1, 0);
            let from = (range.ordinal, range.from);
            from == here || from == next && at.flushed as usize == SEGMENT_SIZE
        };
        self.finished.iter().find(is_lacked).is_some_and(is_next)
    }
}

/// The flushes that a live copy is asked for and has not done, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Owed {
    flushes: VecDeque<OwedFlush>,
}

/// A flush that a copy owes.
#[derive(Clone, Copy, Debug)]
struct OwedFlush {
    range: FlushRange,
    /// Its memory holds the range when this ship is complete.
    ship: u64,
    /// It knows the range's segment when it has applied this edit.
    edit: EditSeq,
    /// It was asked.
    is_sent: bool,
}

/// How far a copy is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// The last ship that is complete there.
    pub(super) ship: u64,
    /// The last edit that it has applied.
    pub(super) edit: EditSeq,
}

impl Owed {
    /// It will be asked for `range` once it has reached `when`.
    pub(super) fn push(&mut self, range: FlushRange, when: Reached) {
        self.flushes.push_back(OwedFlush {
            range,
            ship: when.ship,
            edit: when.edit,
            is_sent: false,
        });
    }

    /// It has reached `at`: the next flush that it is to be asked for.
    pub(super) fn next_due(&mut self, at: Reached) -> Option<FlushRange> {
        let next = self.flushes.iter_mut().find(|owed| !owed.is_sent)?;
        let is_due = next.ship <= at.ship && next.edit <= at.edit;
        next.is_sent = is_due;
        is_due.then_some(next.range)
    }

    /// It says that it has done `range`. Returns whether it was asked to.
    pub(super) fn done(&mut self, range: &FlushRange) -> bool {
        let is_this = |owed: &OwedFlush| owed.is_sent && owed.range == *range;
        let found = self.flushes.iter().position(is_this);
        found.is_some_and(|at| self.flushes.remove(at).is_some())
    }

    /// It is live no more.
    pub(super) fn clear(&mut self) {
        self.flushes.clear();
    }

    /// Whether it has done all that it is asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.flushes.is_empty()
    }

    /// Whether it is still to be asked for any.
    pub(super) fn has_unsent(&self) -> bool {
        self.flushes.iter().any(|owed| !owed.is_sent)
    }

    /// All that it owes.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &FlushRange> {
        self.flushes.iter().map(|owed| &owed.range)
    }

    /// Those of `log` that it owes.
    pub(super) fn of(&self, log: LogId) -> impl Iterator<Item = FlushRange> + '_ {
        let flushes = self.flushes.iter().map(|owed| owed.range);
        flushes.filter(move |range| range.log == log)
    }

    /// The first of them.
    pub(super) fn first(&self, log: LogId) -> Option<FlushRange> {
        self.of(log).next()
    }
}
