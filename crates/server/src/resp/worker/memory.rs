//! What a thread does about connections that hold much, or ask for much: a few of them take part in a round. At its end
//! those are ended that hold most where all hold too much, and large ones wait for each other where all hold much.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::Instant;

use super::{TURNS_MAX, Worker};
use crate::resp::pace::{RATE_BYTES, TURN};
use crate::resp::slots::{Connection, Ended, Touched};

/// Bytes of requests that are little: who has sent more has asked for many things, or sends a long one.
const LITTLE_BYTES: usize = 1 << 10;
/// Why a connection is ended that a client does not move.
const STOOD_STILL: &str = "stood still while the others waited for memory";

/// Whether the connection could be read from, make calls or find that its input has ended, if it may.
fn could_go_on(connection: &Connection) -> bool {
    let session = &connection.session;
    let finds_end = connection.ended == Ended::Input && connection.again;
    session.wants_input() || session.can_go_on() || finds_end
}

impl Worker {
    /// Lets connections wait or go on, as all together hold much or not: see `pace`.
    pub(super) fn keep_pace(&mut self) {
        let pressed = self.parts.front.is_pressed();
        for slot in self.pace.released(pressed) {
            self.go_on(slot);
        }
        if !pressed {
            return;
        }
        if let Some(judgement) = self.pace.judgement(self.now) {
            for slot in self.slots.judge(judgement, RATE_BYTES) {
                self.end_for_memory(slot, STOOD_STILL);
            }
        }
        let slots = &self.slots;
        let still = self.pace.turn(
            self.now,
            |slot, id| slots.moved(slot, id),
            |ran| slots.largest(|slot, open| could_go_on(open) && !ran.contains(&slot)),
        );
        if let Some(slot) = still {
            self.end_for_memory(slot, STOOD_STILL);
        }
        if let Some(runner) = self.pace.runner() {
            self.go_on(runner);
        }
    }

    /// When this thread has to look after its connections' memory, without any event: other threads
    /// may wait for what those hold that stand still.
    pub(super) fn wants_pace_at(&self) -> Option<Instant> {
        let slow = self.parts.front.settings.memory_bytes_slow;
        let holds_much = self.slots.held() > slow / 8;
        let looks = holds_much.then(|| self.now + TURN);
        [looks, self.pace.wants_call_at(self.now)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether the calls of the remaining touched connections, of which `done` are done, have to wait
    /// for the next round, as too much is held. What replies take is written out first, and perhaps
    /// the largest connection ended. They come first then.
    pub(super) fn must_write_first(&mut self, done: usize) -> bool {
        if done == 0 || !self.parts.front.is_over() {
            return false;
        }
        for slot in &self.round.touched()[done..] {
            if let Some(connection) = self.slots.get_mut(*slot) {
                connection.again = true;
                let put_off = connection.session.output().is_empty();
                connection.turn.put_off(put_off);
            }
        }
        self.round.go_on_behind(done);
        true
    }

    /// The connection in `slot` takes part in the next round, or in a later one if it takes turns.
    pub(super) fn touch(&mut self, slot: usize) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let takes_turns = !connection.is_small || connection.goes_on;
        match connection.turn.touch(takes_turns) {
            Touched::Now => self.round.add(slot),
            Touched::Later => self.round.add_later(slot),
            Touched::No => {}
        }
    }

    /// Those take part in this round, of those that take turns, that do so in any case: one, and where memory is scarce
    /// all that may, since what they hold has to be written.
    pub(super) fn give_first_turns(&mut self) {
        let first = match self.parts.front.is_pressed() {
            true => TURNS_MAX,
            false => 1,
        };
        while self.round.turns() < first && self.give_turn() {}
    }

    /// The next of those that take turns takes part in this round, if there is one, and room for it.
    pub(super) fn give_turn(&mut self) -> bool {
        if !self.round.has_turns() {
            return false;
        }
        while let Some(slot) = self.round.next_in_turn() {
            // Others have closed, or become small since.
            let connection = self.slots.get_mut(slot);
            if connection.is_some_and(|it| it.turn.begin()) {
                self.round.give_turn(slot);
                return true;
            }
        }
        false
    }

    /// Whether the connection in `slot` was put off. It is among the first of the next round then, or takes a turn if
    /// it has asked for much: who asks for little waits for nobody's many requests.
    pub(super) fn wait_for_next(&mut self, slot: usize) -> bool {
        let Some(connection) = self.slots.get_mut(slot).filter(|of| of.turn.is_put_off()) else {
            return false;
        };
        let later = connection.session.input_bytes() > LITTLE_BYTES;
        connection.turn.wait(later);
        match later {
            true => self.round.add_later(slot),
            false => self.round.add(slot),
        }
        true
    }

    /// The connection in `slot` waits no more.
    fn go_on(&mut self, slot: usize) {
        if let Some(connection) = self.slots.get_mut(slot)
            && std::mem::replace(&mut connection.waits, false)
        {
            self.touch(slot);
        }
    }

    /// Ends those connections of this thread that hold most, while all together hold too much.
    pub(super) fn evict(&mut self) {
        let front = Arc::clone(&self.parts.front);
        while front.is_over()
            && let Some((slot, _)) = self.slots.largest(|_, _| true)
        {
            self.end_for_memory(slot, "held most");
        }
    }

    /// Ends a connection for the memory that it holds.
    fn end_for_memory(&mut self, slot: usize, why: &str) {
        let front = Arc::clone(&self.parts.front);
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let max = front.settings.memory_bytes_max;
        front.evicted.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.leaving.line(self.now) {
            tracing::warn!(left_out, "resp: a connection is ended: it {why}");
        }
        let told = connection.session.evict(&format!(
            "ERR this connection is closed: all clients together may hold {max} bytes of input and \
             output (maxmemory_clients), and this one {why} (not applied)"
        ));
        if told {
            self.finish_round(slot);
        } else {
            self.close(slot);
        }
        self.slots.count(slot, &front);
    }
}
