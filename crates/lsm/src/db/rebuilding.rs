//! Whose turn it is to rebuild memtables from the logs (I9).
//!
//! A server may be promoted in many regions at one time. What their logs hold goes into memtables again and stays there
//! until it is flushed. That may be more than all memtables have, together with all that the cache gives. So promotions
//! stand in line:
//!
//! ```text
//!  in line ──it is the first, and may go──▶ promised ──rebuilt──▶ unflushed ──flushed──▶ over
//! ```
//!
//! 1. The first in line goes once there is room for what it rebuilds beside what is promised to others.
//! 2. Where nobody's turn lasts there will be no more room: the first goes.
//! 3. It goes, too, when it has been the first for [`PATIENCE`]. A region that cannot flush, because it lacks a member
//!    or the device is full, does not hold up the others for good.
//! 4. Where the first does not ask for twice that time, since it cannot be promoted now, it goes to the end of the
//!    line.
//! 5. A turn lasts until everything is flushed that was rebuilt in it, or until the copy is not to be promoted any
//!    more.
//!
//! The first in line asks again every [`LOOK_AGAIN`], since room comes from others, too; each other one is woken when
//! it is the first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::Instant;
use argosy_device::Waker;
use parking_lot::{Mutex, MutexGuard};

/// How long the first in line waits for room. Longer than a group waits for a member that is missing.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How soon the first in line looks for room again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// One that waits.
struct Waiting {
    number: u64,
    waker: Waker,
}

#[derive(Default)]
struct State {
    /// The first in front.
    waiting: VecDeque<Waiting>,
    /// Since when the first has been that, as far as somebody has asked.
    first_since: Option<Instant>,
    /// Bytes that are to be rebuilt by those whose turn it is.
    promised: usize,
    /// How many turns last.
    lasting: usize,
    /// The number of the next to come.
    next: u64,
}

impl State {
    fn is_first(&self, number: u64) -> bool {
        self.waiting
            .front()
            .is_some_and(|first| first.number == number)
    }

    /// The first, which does not ask, goes to the end of the line.
    fn pass_first(&mut self) -> Option<Waker> {
        self.waiting.rotate_left(1);
        self.another_is_first()
    }

    /// Another one is the first now, who is to be woken.
    fn another_is_first(&mut self) -> Option<Waker> {
        self.first_since = None;
        self.waiting.front().map(|first| Arc::clone(&first.waker))
    }
}

/// The promotions of a server. See the module documentation.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Line")
            .field("waiting", &state.waiting.len())
            .field("promised", &state.promised)
            .field("lasting", &state.lasting)
            .finish()
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Stands at the end of the line, and is woken by `waker` when it is the first.
    pub(super) fn join(self: &Arc<Self>, waker: &Waker) -> Turn {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(Waiting {
            number,
            waker: Arc::clone(waker),
        });
        Turn {
            line: Arc::clone(self),
            number,
            promised: None,
        }
    }
}

/// A place in the line, or the turn of whoever had it. Leaves the line, or ends the turn, when it is dropped.
pub(super) struct Turn {
    line: Arc<Line>,
    number: u64,
    /// Bytes that are still to be rebuilt; `None` while it stands in line.
    promised: Option<usize>,
}

impl Turn {
    /// Takes the turn for `bytes` bytes, where `room` bytes are free but for what is promised. Returns how long it is
    /// to wait before it asks again; `None` where it is its turn.
    pub(super) fn take(&mut self, bytes: usize, room: usize, now: Instant) -> Option<Duration> {
        if self.promised.is_some() {
            return None;
        }
        let mut state = self.line.state();
        let since = *state.first_since.get_or_insert(now);
        if !state.is_first(self.number) {
            let is_stuck = since + 2 * PATIENCE <= now;
            let next = is_stuck.then(|| state.pass_first()).flatten();
            drop(state);
            wake(next);
            return Some(PATIENCE);
        }
        let has_room = state.promised.saturating_add(bytes) <= room;
        if !has_room && state.lasting > 0 && now < since + PATIENCE {
            return Some(LOOK_AGAIN);
        }
        state.waiting.pop_front();
        state.promised += bytes;
        state.lasting += 1;
        self.promised = Some(bytes);
        let next = state.another_is_first();
        drop(state);
        wake(next);
        None
    }

    /// What was promised is in memtables now, which are counted.
    pub(super) fn is_rebuilt(&mut self) {
        let promised = self.promised.replace(0).unwrap_or_default();
        self.line.state().promised -= promised;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.line.state();
        let was_first = state.is_first(self.number);
        match self.promised {
            None => state.waiting.retain(|other| other.number != self.number),
            Some(promised) => {
                state.promised -= promised;
                state.lasting -= 1;
            }
        }
        let first = match (self.promised, was_first) {
            (None, true) => state.another_is_first(),
            (None, false) => None,
            // There is room.
            (Some(_), _) => state.waiting.front().map(|first| Arc::clone(&first.waker)),
        };
        drop(state);
        wake(first);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A line, and how often each who stands there was woken.
    #[derive(Default)]
    struct Test {
        line: Arc<Line>,
        woken: Vec<Arc<AtomicUsize>>,
    }

    impl Test {
        fn join(&mut self) -> Turn {
            let woken = Arc::<AtomicUsize>::default();
            self.woken.push(Arc::clone(&woken));
            let waker: Waker = Arc::new(move || {
                woken.fetch_add(1, Ordering::Relaxed);
            });
            self.line.join(&waker)
        }

        fn woken(&self) -> Vec<usize> {
            let taken = |woken: &Arc<AtomicUsize>| woken.swap(0, Ordering::Relaxed);
            self.woken.iter().map(taken).collect()
        }
    }

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn they_go_in_order_while_there_is_room() {
        let mut test = Test::default();
        let [mut a, mut b, mut c, mut d] = std::array::from_fn(|_| test.join());
        assert_eq!(
            b.take(10, 100, at(0)),
            Some(PATIENCE),
            "it is not the first"
        );
        assert_eq!(a.take(60, 100, at(0)), None);
        assert_eq!(a.take(60, 0, at(0)), None, "it has its turn");
        assert_eq!(test.woken(), [0, 1, 0, 0]);
        assert_eq!(b.take(40, 100, at(0)), None, "beside what is promised");
        assert_eq!(test.woken(), [0, 0, 1, 0]);
        assert_eq!(c.take(1, 100, at(0)), Some(LOOK_AGAIN), "there is no room");
        assert_eq!(d.take(0, 100, at(0)), Some(PATIENCE));
        a.is_rebuilt();
        // What was promised is counted among all memtables.
        assert_eq!(c.take(1, 40, at(1)), Some(LOOK_AGAIN));
        assert_eq!(c.take(1, 41, at(1)), None);
        assert_eq!(test.woken(), [0, 0, 0, 1]);
        assert_eq!(d.take(1, 41, at(1)), Some(LOOK_AGAIN));
        drop(a);
        assert_eq!(test.woken(), [0, 0, 0, 1], "there may be room");
        assert_eq!(d.take(59, 100, at(1)), None);
    }

    #[test]
    fn where_no_turn_lasts_the_first_goes() {
        let mut test = Test::default();
        let [mut a, mut b] = std::array::from_fn(|_| test.join());
        assert_eq!(a.take(1000, 0, at(0)), None, "it is alone");
        assert_eq!(b.take(1, 0, at(0)), Some(LOOK_AGAIN));
        a.is_rebuilt();
        assert_eq!(b.take(1, 0, at(1)), Some(LOOK_AGAIN), "it is not flushed");
        drop(a);
        assert_eq!(b.take(1, 0, at(2)), None);
    }

    #[test]
    fn the_first_waits_for_a_time_and_each_has_its_own() {
        let mut test = Test::default();
        let [mut a, mut b, mut c] = std::array::from_fn(|_| test.join());
        assert_eq!(a.take(1, 0, at(0)), None);
        assert_eq!(b.take(1, 0, at(1000)), Some(LOOK_AGAIN));
        assert_eq!(b.take(1, 0, at(10_999)), Some(LOOK_AGAIN));
        assert_eq!(b.take(1, 0, at(11_000)), None);
        assert_eq!(c.take(1, 0, at(11_000)), Some(LOOK_AGAIN));
        assert_eq!(c.take(1, 0, at(20_999)), Some(LOOK_AGAIN));
        assert_eq!(c.take(1, 0, at(21_000)), None);
        drop((a, b, c));
        assert_eq!(
            format!("{:?}", test.line),
            "Line { waiting: 0, promised: 0, lasting: 0 }"
        );
    }

    #[test]
    fn one_that_does_not_ask_holds_up_nobody() {
        let mut test = Test::default();
        let [mut a, mut b] = std::array::from_fn(|_| test.join());
        assert_eq!(b.take(1, 1, at(0)), Some(PATIENCE));
        assert_eq!(b.take(1, 1, at(19_999)), Some(PATIENCE));
        assert_eq!(test.woken(), [0, 0]);
        assert_eq!(b.take(1, 1, at(20_000)), Some(PATIENCE));
        assert_eq!(test.woken(), [0, 1]);
        assert_eq!(a.take(1, 1, at(20_000)), Some(PATIENCE), "it is behind");
        assert_eq!(b.take(1, 1, at(20_000)), None);
        assert_eq!(a.take(1, 2, at(20_000)), None);
    }

    #[test]
    fn who_leaves_the_line_lets_the_next_go() {
        let mut test = Test::default();
        let [a, mut b, c] = std::array::from_fn(|_| test.join());
        drop(c);
        assert_eq!(test.woken(), [0, 0, 0]);
        drop(a);
        assert_eq!(test.woken(), [0, 1, 0]);
        assert_eq!(b.take(1, 1, at(0)), None);
        drop(b);
        assert_eq!(
            format!("{:?}", test.line),
            "Line { waiting: 0, promised: 0, lasting: 0 }"
        );
    }
}
