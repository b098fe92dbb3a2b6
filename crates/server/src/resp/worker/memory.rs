//! What a thread does about connections that hold much: a few of them take part in a round. At its end those are ended
//! that hold most where all hold too much, and large ones wait for each other where all hold much.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::Instant;

use super::{LARGE_MAX, Worker};
use crate::resp::pace::{RATE_BYTES, TURN};
use crate::resp::slots::{Connection, Ended, FAIR_BYTES};

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
            }
        }
        self.touched.rotate_left(done);
        true
    }

    /// A few large connections take part in this round.
    pub(super) fn give_turns(&mut self) {
        let few = self.later.len().min(LARGE_MAX);
        for slot in self.later.drain(..few) {
            if let Some(connection) = self.slots.get_mut(slot) {
                connection.has_turn = true;
            }
            self.touched.push(slot);
        }
    }

    /// Whether the connection in `slot` holds so much by now that the rest of its round waits for its turn.
    pub(super) fn postpone(&mut self, slot: usize) -> bool {
        match self.slots.get_mut(slot) {
            Some(connection)
                if !connection.has_turn && connection.session.output().len() > FAIR_BYTES =>
            {
                connection.is_small = false;
                self.later.push_back(slot);
                true
            }
            _ => false,
        }
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
