//! The requests of this server's clients for one region that other servers carry out, in the order in which they came:
//! those that are with a server, and the line of those that wait for a primary. A plain structure: no I/O, no clock.
//!
//! Each call has a number, by which the calls of a region are in order. A call waits in the line because the region has
//! no primary, or because its primary cannot be reached or has *refused* it: nothing was done. While there is a line,
//! what comes for the region goes to its end.
//!
//! Rules:
//!
//! 1. The calls of a line are sent in the order of their numbers. The first that is sent under an epoch is a *probe*:
//!    the others follow once it has been answered by anything but a refusal, or after a while without an answer: a
//!    refusal comes at once. After a refusal the next probe comes after a pause, which grows, or under another epoch. A
//!    call that has waited for as long as it may for a primary is sent in any case; a refusal is its answer then.
//! 2. A write that was refused comes back into the line. It is sent again only if no later call of the region was done,
//!    or may have been: who sent both has an order in mind. While a later one is under way, it waits for what becomes
//!    of that; otherwise it fails as *not applied*, which is true.
//! 3. A read that was refused, or whose link broke, comes back, too, and may be sent again at any time.
//! 4. A write whose link broke never comes back: it may have been applied.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Epoch, Instant};

use crate::service::ReplyTo;

/// Pause after a refusal before the next probe; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How long the answer to a probe is waited for before the others follow.
const PROBE_TIME: Duration = Duration::from_millis(100);

/// A request for a region as it travels, and who waits for its answer.
pub(super) struct Call {
    /// Its place in the order in which calls came. Its answer repeats it.
    pub(super) number: u64,
    /// The place of its region in the map, which stays the same while a server runs.
    pub(super) place: usize,
    /// The request. Empty where it is with a server, and there was no room to keep it.
    pub(super) payload: Arc<[u8]>,
    /// Whether it may change something.
    pub(super) write: bool,
    /// Where the answer goes.
    pub(super) reply: ReplyTo,
    /// Until when it may wait for a primary.
    pub(super) until: Instant,
    /// When it is given up, wherever it is.
    pub(super) deadline: Instant,
    /// Why it was refused last.
    pub(super) refused: Option<Box<str>>,
}

impl Call {
    /// Bytes that it holds while it waits.
    pub(super) fn bytes(&self) -> usize {
        let why = self.refused.as_ref().map_or(0, |why| why.len());
        size_of::<Self>() + self.payload.len() + why
    }
}

/// A call whose answer the others wait for, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    number: u64,
    until: Instant,
}

/// What is known of the primary under one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trial {
    epoch: Epoch,
    /// The first call that was sent.
    probe: Option<Probe>,
    /// It has carried something out.
    proven: bool,
    /// The pause after the last refusal, and when it ends.
    pause: Duration,
    next: Instant,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Line {
    /// Those that wait, by number.
    waiting: VecDeque<Call>,
    /// The numbers of those that are with a server, or in hand.
    under_way: BTreeSet<u64>,
    /// The one that a thread is sending.
    in_hand: Option<u64>,
    /// The highest number of a call that was done, or may have been.
    done: u64,
    trial: Trial,
}

impl Line {
    /// Whether what comes now has to wait behind others.
    pub(super) fn is_queueing(&self) -> bool {
        !self.waiting.is_empty() || self.in_hand.is_some()
    }

    /// Whether nothing is to be remembered of the region.
    pub(super) fn is_over(&self) -> bool {
        !self.is_queueing() && self.under_way.is_empty()
    }

    /// Call `number` is sent without having waited.
    pub(super) fn goes(&mut self, number: u64) {
        self.under_way.insert(number);
    }

    /// `call` waits, in its place.
    pub(super) fn put(&mut self, call: Call) {
        self.under_way.remove(&call.number);
        let at = self
            .waiting
            .partition_point(|other| other.number < call.number);
        self.waiting.insert(at, call);
    }

    /// The first call, which may be sent under `epoch` now: it is in hand until it [was sent](Self::sent), is
    /// [put](Self::put_back) back, or [was done](Self::done).
    pub(super) fn take(&mut self, epoch: Epoch, now: Instant) -> Option<Call> {
        let first = self.waiting.front().filter(|_| self.in_hand.is_none())?;
        let later = self.under_way.last().is_some_and(|of| *of > first.number);
        if first.write && later {
            return None;
        }
        if self.trial.epoch != epoch {
            self.trial = Trial {
                epoch,
                ..Trial::default()
            };
        }
        if !self.trial.proven && now < first.until {
            let probed = self.trial.probe.is_some_and(|probe| now < probe.until);
            if probed || now < self.trial.next {
                return None;
            }
            self.trial.probe.get_or_insert(Probe {
                number: first.number,
                until: now + PROBE_TIME,
            });
        }
        let call = self.waiting.pop_front()?;
        self.in_hand = Some(call.number);
        self.under_way.insert(call.number);
        Some(call)
    }

    /// Call `number`, which was in hand, is with a server. A read may have come back meanwhile, and another one may be
    /// in hand by now.
    pub(super) fn sent(&mut self, number: u64) {
        if self.in_hand == Some(number) {
            self.in_hand = None;
        }
    }

    /// What was in hand could not be sent.
    pub(super) fn put_back(&mut self, call: Call) {
        self.in_hand = None;
        self.forget(call.number);
        self.put(call);
    }

    /// The primary of `epoch` carries calls out.
    pub(super) fn prove(&mut self, epoch: Epoch) {
        self.trial.proven |= self.trial.epoch == epoch;
    }

    /// Call `number` was done, or may have been. The writes that came before it and were refused are not sent any more:
    /// they go to `late`.
    pub(super) fn done(&mut self, number: u64, late: &mut Vec<Call>) {
        self.forget(number);
        self.done = self.done.max(number);
        let before = self.waiting.partition_point(|call| call.number < number);
        if self.waiting.range(..before).any(|call| call.write) {
            let behind = self.waiting.split_off(before);
            let (writes, reads) = std::mem::take(&mut self.waiting)
                .into_iter()
                .partition(|call| call.write);
            late.extend::<VecDeque<Call>>(writes);
            self.waiting = reads;
            self.waiting.extend(behind);
        }
    }

    /// Call `number` was refused under `epoch`.
    pub(super) fn refused(&mut self, number: u64, epoch: Epoch, now: Instant) {
        self.forget(number);
        if self.trial.epoch == epoch {
            let trial = &mut self.trial;
            trial.proven = false;
            trial.pause = (trial.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            trial.next = now + trial.pause;
        }
    }

    /// Nobody waits for call `number` any more, or it waits here again.
    pub(super) fn forget(&mut self, number: u64) {
        self.under_way.remove(&number);
        if self.in_hand == Some(number) {
            self.in_hand = None;
        }
        if self.trial.probe.is_some_and(|probe| probe.number == number) {
            self.trial.probe = None;
        }
    }

    /// Whether a call behind `number` was done, or may have been.
    pub(super) const fn was_overtaken(&self, number: u64) -> bool {
        self.done > number
    }

    /// Takes the calls out for which `over` holds.
    pub(super) fn give_up(&mut self, over: impl Fn(&Call) -> bool, given_up: &mut Vec<Call>) {
        if !self.waiting.iter().any(&over) {
            return;
        }
        for call in std::mem::take(&mut self.waiting) {
            match over(&call) {
                true => given_up.push(call),
                false => self.waiting.push_back(call),
            }
        }
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
