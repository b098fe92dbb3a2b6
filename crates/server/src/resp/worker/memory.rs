//! What a thread does about connections that hold much, or ask for much: a few of them take part in a round. At its end
//! those are ended that hold most where all hold too much, and large ones wait for each other where all hold much.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::Instant;

use super::{ROUND_BYTES, TURNS_MAX, Worker};
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
        for slot in &self.touched[done..] {
            if let Some(connection) = self.slots.get_mut(*slot) {
                connection.again = true;
                connection.put_off = connection.session.output().is_empty();
            }
        }
        self.touched.rotate_left(done);
        true
    }

    /// The connection in `slot` takes part in the next round, or in a later one if it takes turns.
    pub(super) fn touch(&mut self, slot: usize) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let takes_turns = !connection.is_small || connection.goes_on;
        match (connection.touched, takes_turns) {
            // Who has become small waits for no turn.
            (Touched::No | Touched::Later, false) => {
                connection.touched = Touched::Now;
                self.touched.push(slot);
            }
            (Touched::No, true) => {
                connection.touched = Touched::Later;
                self.later.push_back(slot);
            }
            (Touched::Now, _) | (Touched::Later, true) => {}
        }
    }

    /// Those take part in this round, of those that take turns, that do so in any case: one, and where memory is scarce
    /// all that may, since what they hold has to be written.
    pub(super) fn give_first_turns(&mut self) {
        let first = match self.parts.front.is_pressed() {
            true => TURNS_MAX,
            false => 1,
        };
        while self.turns < first && self.give_turn() {}
    }

    /// The next of those that take turns takes part in this round, if there is one, and room for it.
    pub(super) fn give_turn(&mut self) -> bool {
        if self.turns == TURNS_MAX || self.made > ROUND_BYTES {
            return false;
        }
        while let Some(slot) = self.later.pop_front() {
            // Others have closed, or become small since.
            let connection = self.slots.get_mut(slot);
            if let Some(connection) = connection.filter(|of| of.touched == Touched::Later) {
                (connection.touched, connection.has_turn) = (Touched::Now, true);
                self.turns += 1;
                self.touched.push(slot);
                return true;
            }
        }
        false
    }

    /// Whether the connection in `slot` was put off. It is among the first of the next round then, or takes a turn if
    /// it has asked for much: who asks for little waits for nobody's many requests.
    pub(super) fn wait_for_next(&mut self, slot: usize) -> bool {
        let Some(connection) = self.slots.get_mut(slot).filter(|of| of.put_off) else {
            return false;
        };
        connection.has_turn = false;
        match connection.session.input_bytes() > LITTLE_BYTES {
            true => {
                connection.touched = Touched::Later;
                self.later.push_back(slot);
            }
            false => self.touched.push(slot),
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
        if let Some(left_out) = self.ended_lines.line(self.now) {
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
