//! Flushes of the log that are under way, and which backups have them.
//!
//! A flush is finished when every backup has it durable. A backup that loses its link may have lost
//! what it had flushed, because its log ends earlier by then: it counts again only for what its
//! report covers, and is asked again for the rest once it is live.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use argosy_base::{FlushRange, PerLog, Position, ServerId};

use super::{Action, Phase, Primary};

/// A flush that not every backup has acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Flush {
    pub(super) range: FlushRange,
    pub(super) done: BTreeSet<ServerId>,
}

/// Up to where a log is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flushed {
    /// The segment's place in the chain.
    ordinal: u64,
    /// Byte behind the last that is durable.
    to: u32,
}

impl Primary {
    pub(super) fn flush(&mut self, range: FlushRange, actions: &mut Vec<Action>) {
        if self.members.is_empty() {
            let FlushRange {
                log, segment, to, ..
            } = range;
            actions.push(Action::FlushedEverywhere { log, segment, to });
            return;
        }
        self.flushes.push_back(Flush {
            range,
            done: BTreeSet::new(),
        });
        for member in self
            .members
            .values_mut()
            .filter(|member| member.phase == Phase::Live)
        {
            member.flushes.push_back((member.shipped + 1, range));
        }
    }

    pub(super) fn flushed(&mut self, id: ServerId, range: FlushRange, actions: &mut Vec<Action>) {
        let group = self.members.len();
        if !self.members.contains_key(&id) {
            return;
        }
        if let Some(flush) = self.flushes.iter_mut().find(|flush| flush.range == range) {
            flush.done.insert(id);
        }
        while self
            .flushes
            .front()
            .is_some_and(|flush| flush.done.len() == group)
        {
            let done = self
                .flushes
                .pop_front()
                .expect("there is a first one")
                .range;
            let FlushRange {
                log, segment, to, ..
            } = done;
            let ordinal = done.ordinal;
            self.flushed.insert(log, Flushed { ordinal, to });
            actions.push(Action::FlushedEverywhere { log, segment, to });
        }
    }

    /// Backup `id` reports that it is at `at`: flushes that this does not cover are not done there
    /// any more, even if they once were.
    pub(super) fn forget_lost_flushes(&mut self, id: ServerId, at: &Position) {
        for flush in &mut self.flushes {
            if !flush.range.covered_by(at) {
                flush.done.remove(&id);
            }
        }
    }
}

/// Whether a member at `at` lacks log bytes that every backup had durable once. A log ends where
/// the other lacks a write, so that durable bytes behind it do not count any more; and what was
/// flushed everywhere is never flushed again.
pub(super) fn lacks(at: &Position, flushed: &PerLog<Flushed>) -> bool {
    at.logs.iter().any(|(log, at)| {
        let end = Flushed {
            ordinal: at.ordinal,
            to: at.flushed,
        };
        flushed.get(log).is_some_and(|flushed| end < *flushed)
    })
}
