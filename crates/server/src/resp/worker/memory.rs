//! What a thread does about the memory of its connections at the end of a round: it ends those that
//! hold most where all hold too much, and lets them wait for each other where they hold much.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Worker;
use crate::resp::slots::FAIR_BYTES;

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
        let slots = &self.slots;
        // Those that hold little wait until the others hold less, if there are others.
        let large = slots.largest(|_, held| held > FAIR_BYTES).is_some();
        let least = if large { FAIR_BYTES } else { 0 };
        let still = self.pace.turn(
            self.now,
            |slot, id| slots.moved(slot, id),
            |ran| slots.largest(|slot, held| held > least && !ran.contains(&slot)),
        );
        if let Some(slot) = still.filter(|_| large) {
            self.end_for_memory(slot, "stood still while the others waited for memory");
        }
        if let Some(runner) = self.pace.runner() {
            self.go_on(runner);
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
        // Relaxed: see `Slots::count`.
        while front.memory_bytes.load(Ordering::Relaxed) > front.settings.memory_bytes_max
            && let Some((slot, _)) = self.slots.largest(|_, held| held > FAIR_BYTES)
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
        tracing::warn!("resp: a connection is ended: it {why}");
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
