//! What a thread does while all clients together hold much: its connections wait, all but one.
//!
//! From [`Settings::memory_bytes_slow`](super::front::Settings) on, a thread reads from no
//! connection and carries out no request, but for those of one, the *runner*: of its connections
//! the one that holds most, for a turn, and then the next. Between that bound and the last one,
//! `memory_bytes_max`, there is room for the longest request and the longest reply, so a runner
//! comes to an end, gives its memory back, and if that is not enough the next one runs. Replies are
//! written to everyone all the time. So clients become slower, and nobody is refused.
//!
//! A client that does not send the rest of its request, or does not read its replies, must not hold
//! up the others: a runner that moves less than [`RATE_BYTES`] in its [`TURN`] is ended.

use std::collections::BTreeSet;
use std::time::Duration;

use argosy_base::Instant;

/// How long a runner has for [`RATE_BYTES`].
pub(super) const TURN: Duration = Duration::from_secs(1);
/// Bytes that a runner has to move, in or out, in each turn.
pub(super) const RATE_BYTES: u64 = 64 << 10;
/// How often a thread looks whether its connections may go on, while some wait: other threads may
/// have made room.
const TICK: Duration = Duration::from_millis(10);

/// The connection that goes on.
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
    waiting: Vec<usize>,
}

impl Pace {
    /// Whether the connection in `slot` may be read from and make calls, `pressed` saying whether
    /// all together hold much. If not, it is kept for [`released`](Self::released).
    pub(super) fn may_go_on(&self, slot: usize, pressed: bool) -> bool {
        !pressed || self.runner.is_some_and(|runner| runner.slot == slot)
    }

    /// The connection in `slot` waits.
    pub(super) fn hold(&mut self, slot: usize) {
        self.waiting.push(slot);
    }

    /// Those who waited, once they need not any more.
    pub(super) fn released(&mut self, pressed: bool) -> Vec<usize> {
        if pressed {
            return Vec::new();
        }
        self.runner = None;
        self.ran.clear();
        std::mem::take(&mut self.waiting)
    }

    /// When to look again at the latest.
    pub(super) fn wants_call_at(&self, now: Instant) -> Option<Instant> {
        let waits = self.runner.is_some() || !self.waiting.is_empty();
        waits.then(|| now + TICK)
    }

    /// Looks at the runner: `moved` says how many bytes the connection in a slot, with this number,
    /// has moved, and `None` where it is gone or holds nothing. Returns it where its turn is over
    /// and it has moved too little. `largest` is who runs next, some slots left out.
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
            self.waiting.retain(|slot| *slot != runner.slot);
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
    fn one_goes_on_at_a_time_and_is_ended_when_it_stands_still() {
        let mut pace = Pace::default();
        assert!(pace.may_go_on(3, false), "nobody waits without need");
        assert!(!pace.may_go_on(3, true));
        pace.hold(3);
        pace.hold(4);
        let next = first_of(&[3, 4]);
        assert_eq!(pace.turn(at(0), |_, _| Some(0), &next), None);
        assert!(pace.may_go_on(3, true) && !pace.may_go_on(4, true));
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
        assert_eq!(pace.released(false), [4]);
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
}
