//! What a thread does while all clients together hold much: its large connections wait, all but one.
//!
//! From [`Settings::memory_bytes_slow`](super::front::Settings) on, a thread reads from no *large*
//! connection and carries out none of its requests, but for those of one, the *runner*: the one that
//! holds most of those that could go on, for a turn, and then the next. A connection is large while
//! it holds more than [`FAIR_BYTES`](super::slots::FAIR_BYTES); all others always go on, so whoever
//! asks for little never waits for those who hold much. Between that bound and the last one,
//! `memory_bytes_max`, there is room for the longest request and the longest reply, so a runner comes
//! to an end, gives its memory back, and if that is not enough the next one runs. Replies are written
//! to everyone all the time. So large clients become slower, and nobody is refused.
//!
//! A client that does not send the rest of its request, or does not read its replies, must not hold
//! up the others. While the pressure lasts all connections are judged at the same time, once in each
//! [`TURN`]: those are ended that were their clients' to move at both ends of the turn
//! ([`Connection::client_is_due`](super::slots::Connection::client_is_due)) and moved less than
//! [`RATE_BYTES`] in it. So is a runner that moves less in its turn. However many clients stand still,
//! what they hold is free after two turns.

use std::collections::BTreeSet;
use std::time::Duration;

use argosy_base::Instant;

/// How long a connection has for [`RATE_BYTES`].
pub(super) const TURN: Duration = Duration::from_secs(1);
/// Bytes that a connection whose client is due has to move, in or out, in each turn.
pub(super) const RATE_BYTES: u64 = 64 << 10;
/// How often a thread looks whether its connections may go on, while some wait: other threads may
/// have made room.
const TICK: Duration = Duration::from_millis(10);

/// The large connection that goes on.
#[derive(Clone, Copy, Debug)]
struct Runner {
    slot: usize,
    /// The connection's number: slots are used again.
    id: u64,
    /// When its turn ends.
    until: Instant,
    /// Bytes that it had moved when its turn began.
    moved: u64,
}

/// Who may go on. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Pace {
    runner: Option<Runner>,
    /// Those that had their turn while the others wait.
    ran: BTreeSet<usize>,
    /// Connections that wait.
    waiting: BTreeSet<usize>,
    /// When all are judged next; `None`: there is no pressure.
    judged_at: Option<Instant>,
    /// How many times all were looked at.
    judgements: u64,
}

impl Pace {
    /// Whether the connection in `slot` may be read from and make calls, `pressed` saying whether
    /// all together hold much. If not, it is kept for [`released`](Self::released).
    pub(super) fn may_go_on(&self, slot: usize, is_small: bool, pressed: bool) -> bool {
        !pressed || is_small || self.is_runner(slot)
    }

    /// Whether the connection in `slot` is the runner.
    pub(super) fn is_runner(&self, slot: usize) -> bool {
        self.runner.is_some_and(|runner| runner.slot == slot)
    }

    /// The connection in `slot` waits.
    pub(super) fn hold(&mut self, slot: usize) {
        self.waiting.insert(slot);
    }

    /// Those who waited, once they need not any more.
    pub(super) fn released(&mut self, pressed: bool) -> BTreeSet<usize> {
        if pressed {
            return BTreeSet::new();
        }
        if self.judged_at.take().is_some() {
            // What was seen during this pressure is no evidence in the next one.
            self.judgements += 1;
        }
        self.runner = None;
        self.ran.clear();
        std::mem::take(&mut self.waiting)
    }

    /// When to look again at the latest.
    pub(super) fn wants_call_at(&self, now: Instant) -> Option<Instant> {
        let waits = self.runner.is_some() || !self.waiting.is_empty();
        let tick = waits.then(|| now + TICK);
        [tick, self.judged_at].into_iter().flatten().min()
    }

    /// To be called while there is pressure. Where all connections are to be looked at: under which
    /// number. A connection is ended that was found due under this number and the one before.
    pub(super) fn judgement(&mut self, now: Instant) -> Option<u64> {
        if self.judged_at.is_some_and(|at| now < at) {
            return None;
        }
        self.judged_at = Some(now + TURN);
        self.judgements += 1;
        Some(self.judgements)
    }

    /// Looks at the runner: `moved` says how many bytes the connection in a slot, with this number,
    /// has moved, and `None` where it is gone or large no more. Returns it where its turn is over and
    /// it has moved too little. `largest` is who runs next, some slots left out.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        moved: impl Fn(usize, u64) -> Option<u64>,
        largest: impl Fn(&BTreeSet<usize>) -> Option<(usize, u64)>,
    ) -> Option<usize> {
        if let Some(runner) = self.runner {
            let bytes = moved(runner.slot, runner.id);
            if bytes.is_some() && now < runner.until {
                return None;
            }
            self.runner = None;
            self.ran.insert(runner.slot);
            if bytes.is_some_and(|bytes| bytes - runner.moved < RATE_BYTES) {
                return Some(runner.slot);
            }
        }
        let next = largest(&self.ran).or_else(|| {
            self.ran.clear();
            largest(&self.ran)
        });
        self.runner = next.and_then(|(slot, id)| {
            let moved = moved(slot, id)?;
            let until = now + TURN;
            Some(Runner {
                slot,
                id,
                until,
                moved,
            })
        });
        if let Some(runner) = self.runner {
            self.waiting.remove(&runner.slot);
        }
        None
    }

    /// The slot of the runner.
    pub(super) fn runner(&self) -> Option<usize> {
        self.runner.map(|runner| runner.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// The first of `slots` that may run; a connection's number is ten times its slot.
    fn first_of(slots: &[usize]) -> impl Fn(&BTreeSet<usize>) -> Option<(usize, u64)> {
        move |ran| {
            let slot = slots.iter().find(|slot| !ran.contains(slot))?;
            Some((*slot, *slot as u64 * 10))
        }
    }

    #[test]
    fn one_large_connection_goes_on_at_a_time_and_is_ended_when_it_stands_still() {
        let mut pace = Pace::default();
        assert!(pace.may_go_on(3, false, false), "nobody waits without need");
        assert!(!pace.may_go_on(3, false, true));
        assert!(pace.may_go_on(3, true, true), "who holds little goes on");
        pace.hold(3);
        pace.hold(4);
        let next = first_of(&[3, 4]);
        assert_eq!(pace.turn(at(0), |_, _| Some(0), &next), None);
        assert!(pace.may_go_on(3, false, true) && !pace.may_go_on(4, false, true));
        assert!(pace.wants_call_at(at(0)).is_some());
        // It moves enough, and the other one's turn begins.
        let moved = |_, _| Some(RATE_BYTES);
        assert_eq!(pace.turn(at(999), moved, &next), None);
        assert_eq!(pace.runner(), Some(3));
        assert_eq!(pace.turn(at(1000), moved, &next), None);
        assert_eq!(pace.runner(), Some(4));
        // That one does not.
        assert_eq!(pace.turn(at(2000), moved, &next), Some(4));
        assert_eq!(pace.runner(), None);
        assert!(pace.released(true).is_empty());
        // When all had a turn it begins again.
        assert_eq!(pace.turn(at(2001), moved, &next), None);
        assert_eq!(pace.runner(), Some(3));
        pace.hold(4);
        assert_eq!(pace.released(false), BTreeSet::from([4]));
        assert_eq!(pace.wants_call_at(at(0)), None);
    }

    #[test]
    fn when_a_runner_is_gone_the_next_runs() {
        let mut pace = Pace::default();
        let next = first_of(&[1, 2]);
        assert_eq!(pace.turn(at(0), |_, _| Some(7), &next), None);
        let moved = |_, id| (id == 20).then_some(0);
        assert_eq!(pace.turn(at(0), moved, &next), None);
        assert_eq!(pace.runner(), Some(2));
    }

    #[test]
    fn all_are_judged_once_in_a_turn_while_there_is_pressure() {
        let mut pace = Pace::default();
        assert_eq!(pace.judgement(at(5)), Some(1), "at its beginning");
        assert_eq!(pace.wants_call_at(at(5)), Some(at(1005)));
        assert_eq!(pace.judgement(at(1004)), None);
        assert_eq!(pace.judgement(at(1005)), Some(2));
        assert!(pace.released(false).is_empty());
        assert_eq!(pace.wants_call_at(at(1005)), None);
        // What was seen before the pressure ended counts for nothing.
        assert_eq!(pace.judgement(at(1010)), Some(4));
        assert!(pace.released(true).is_empty());
        assert_eq!(pace.judgement(at(2010)), Some(5));
    }
}
