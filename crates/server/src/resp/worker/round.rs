//! Which connections a round concerns, which of them take turns, and how much it has made.

use std::collections::VecDeque;

use super::{ROUND_BYTES, TURNS_MAX};

/// A round of a thread. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Connections that this round concerns.
    touched: Vec<usize>,
    /// Connections that take turns and wait for theirs: they are touched, too.
    later: VecDeque<usize>,
    /// Of them, those that have their turn in this round.
    turns: usize,
    /// Bytes of long replies that this round has made, or has to write from earlier ones.
    made: usize,
}

impl Round {
    /// Whether there is something to do without any event.
    pub(super) fn has_work(&self) -> bool {
        !self.touched.is_empty() || !self.later.is_empty()
    }

    /// Begins to make calls.
    pub(super) fn begin(&mut self) {
        (self.made, self.turns) = (0, 0);
    }

    /// The connections that it concerns, in the order of their calls.
    pub(super) fn touched(&self) -> &[usize] {
        &self.touched
    }

    /// The connection in `slot` takes part in it.
    pub(super) fn add(&mut self, slot: usize) {
        self.touched.push(slot);
    }

    /// The connection in `slot` waits for its turn.
    pub(super) fn add_later(&mut self, slot: usize) {
        self.later.push_back(slot);
    }

    /// So many have had their turn.
    pub(super) const fn turns(&self) -> usize {
        self.turns
    }

    /// Whether another one may have its turn.
    pub(super) const fn has_turns(&self) -> bool {
        self.turns < TURNS_MAX && self.has_time()
    }

    /// The next that waits for its turn.
    pub(super) fn next_in_turn(&mut self) -> Option<usize> {
        self.later.pop_front()
    }

    /// The connection in `slot` has its turn.
    pub(super) fn give_turn(&mut self, slot: usize) {
        self.turns += 1;
        self.touched.push(slot);
    }

    /// Whether those that take no turns may make further calls.
    pub(super) const fn has_time(&self) -> bool {
        self.made <= ROUND_BYTES
    }

    /// So many more bytes of long replies have been made.
    pub(super) const fn make(&mut self, bytes: usize) {
        self.made += bytes;
    }

    /// Those that come behind the first `done` come first in the next round.
    pub(super) fn go_on_behind(&mut self, done: usize) {
        self.touched.rotate_left(done);
    }

    /// Ends it. Returns whom it concerned; whoever is touched from now on takes part in the next one.
    pub(super) fn end(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.touched)
    }

    /// Gives the memory back of what [`end`](Self::end) has returned.
    pub(super) fn reuse(&mut self, mut touched: Vec<usize>) {
        touched.clear();
        touched.append(&mut self.touched);
        self.touched = touched;
    }
}
