//! What a thread of the front end has answered, counted by itself and told to the meter of all
//! threads once a round: counting a request touches nothing that is shared.
//!
//! Durations are taken of one call in so many ([`Sampler`]), from the moment at which the round began
//! in which its request was found to the end of the round in which its answer was written. The thread
//! reads the clock once a round anyway; nothing is read for a request.

use argosy_base::Instant;
use argosy_wire::native::Op;

use crate::meter::{Meter, MeteredOutcome, Op as Call, Sampler, Timed};

/// What clients ask for, by name, in the order of [`Op`]; what asks for nothing is not among them.
const COMMANDS: [&str; 16] = [
    "ping",
    "map",
    "get",
    "put",
    "delete",
    "multi-get",
    "batch",
    "scan",
    "write",
    "look",
    "get-version",
    "snapshot",
    "begin",
    "get-part",
    "put-part",
    "maintain",
];

/// A meter for what native clients ask for.
pub(super) fn meter() -> Meter {
    Meter::new(COMMANDS.to_vec())
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: [[u32; MeteredOutcome::ALL.len()]; COMMANDS.len()],
    /// Something was counted since the meter was told.
    counted: bool,
    sampler: Sampler,
    /// Calls that are timed and were answered in this round: what, and since when.
    ended: Vec<(Timed, Instant)>,
    /// When this round began.
    began: Instant,
}

impl Tally {
    /// A round begins.
    pub(super) const fn begin(&mut self, now: Instant) {
        self.began = now;
    }

    /// Counts the answer to a request.
    #[inline]
    pub(super) const fn count(&mut self, op: Op, outcome: MeteredOutcome) {
        let command = (op as usize).saturating_sub(1);
        self.counts[command][outcome as usize] += 1;
        self.counted = true;
    }

    /// Whether the call that is about to be made is timed.
    #[inline]
    pub(super) const fn wants(&mut self) -> bool {
        self.sampler.wants()
    }

    /// A call that is timed was answered at once.
    pub(super) fn answered_at_once(&mut self, call: Call) {
        self.ended.push((call.into(), self.began));
    }

    /// A call that is timed will be answered later.
    pub(super) fn waits(&mut self, token: u64, call: Call) {
        self.sampler.wait(token, call, self.began);
    }

    /// The answer for `token` has come.
    #[inline]
    pub(super) fn answered(&mut self, token: u64) {
        self.ended.extend(self.sampler.ended(token));
    }

    /// Tells `meter` of the round that ends at `now`.
    pub(super) fn settle(&mut self, meter: &Meter, now: Instant) {
        for (call, since) in self.ended.drain(..) {
            meter.observe(call, now.since(since));
        }
        if !std::mem::take(&mut self.counted) {
            return;
        }
        for (command, counts) in (0..).zip(&mut self.counts) {
            for (outcome, count) in MeteredOutcome::ALL.into_iter().zip(counts) {
                if *count > 0 {
                    meter.add(command, outcome, u64::from(std::mem::take(count)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_told_once_and_timed_from_its_beginning() {
        let (meter, mut tally) = (meter(), Tally::default());
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        tally.begin(at(100));
        assert!(tally.wants());
        tally.answered_at_once(Call::Get);
        tally.count(Op::Get, MeteredOutcome::Ok);
        tally.count(Op::Scan, MeteredOutcome::Busy);
        tally.waits(7, Call::Write);
        tally.settle(&meter, at(130));
        tally.begin(at(130));
        tally.answered(7);
        tally.answered(7);
        tally.settle(&meter, at(150));
        let counted: Vec<_> = meter.counts().filter(|(.., count)| *count > 0).collect();
        assert_eq!(
            counted,
            [
                ("get", MeteredOutcome::Ok, 1),
                ("scan", MeteredOutcome::Busy, 1)
            ]
        );
        let sums: Vec<_> = meter
            .durations()
            .map(|of| (of.cumulative[19], of.sum.as_micros()))
            .collect();
        assert_eq!(sums, [(1, 30), (0, 0), (1, 50), (0, 0), (0, 0)]);
    }

    #[test]
    fn commands_stand_in_the_order_of_operations() {
        let named = [
            (Op::Ping, "ping"),
            (Op::Get, "get"),
            (Op::MultiGet, "multi-get"),
            (Op::Scan, "scan"),
            (Op::Write, "write"),
            (Op::Look, "look"),
            (Op::GetVersion, "get-version"),
            (Op::Snapshot, "snapshot"),
            (Op::PutPart, "put-part"),
            (Op::Maintain, "maintain"),
        ];
        for (op, name) in named {
            assert_eq!(COMMANDS[op as usize - 1], name);
        }
    }
}
