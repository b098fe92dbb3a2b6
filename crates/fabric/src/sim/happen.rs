//! What happens in a simulated world when something is due: see [`super::world`].
//!
//! 1. A piece, an acknowledgement or a refusal goes along a link. Where the link is cut it is held
//!    by its connection, which begins to wear out.
//! 2. A piece that arrives is written under the connection's grant, unless the connection is
//!    severed. The last piece of a write sends an acknowledgement back.
//! 3. A failure, or the end of the writer's patience, ends all writes of the connection.
//! 4. What makes a connection is in [`super::connect`].

use std::ops::Range;

use argosy_base::ServerId;

use super::world::{ConnectionId, Event, World};
use crate::{FabricError, WriteCompletion};

impl Event {
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::Land(id, ..) | Self::Acknowledge(id, _) | Self::Fail(id, _) => Some(*id),
            Self::Snap(id) | Self::Forget(id) => Some(*id),
            Self::Ring(..) | Self::Connect(..) => None,
        }
    }
}

impl World {
    pub(super) fn happen(&mut self, event: Event) {
        let event = match event {
            Event::Ring(from, to) => return self.happen_ring(from, to),
            Event::Connect(id, leg) => return self.happen_connect(id, leg),
            event => event,
        };
        let id = event.connection().expect("all others have one");
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let (from, to) = (connection.from, connection.to);
        let link = match event {
            Event::Land(..) => Some((from, to)),
            Event::Acknowledge(..) | Event::Fail(..) => Some((to, from)),
            Event::Snap(_) | Event::Forget(_) | Event::Ring(..) | Event::Connect(..) => None,
        };
        if link.is_some_and(|(from, to)| self.is_cut(from, to)) {
            self.counters.held += 1;
            self.connection(id).at_cut.held.push(event);
            self.wear(id);
            return;
        }
        match event {
            Event::Land(_, seq, part) => self.land(id, seq, part),
            Event::Acknowledge(_, seq) => self.acknowledge(id, seq),
            Event::Fail(_, error) => self.fail(id, &error),
            Event::Snap(_) => self.snap(id),
            Event::Forget(_) => drop(self.connections.remove(&id)),
            Event::Ring(..) | Event::Connect(..) => {}
        }
    }

    pub(super) fn happen_ring(&mut self, from: ServerId, to: ServerId) {
        if self.is_cut(from, to) {
            self.counters.rings.lost += 1;
        } else if let Some(server) = self.servers.get_mut(&to) {
            server.rings = server.rings.wrapping_add(1);
        }
    }

    fn land(&mut self, id: ConnectionId, seq: u64, part: Range<usize>) {
        let connection = self.connection(id);
        if connection.severed {
            return;
        }
        let Some(write) = connection.writes.get_mut(&seq) else {
            return;
        };
        let (at, bytes) = (write.offset + part.start, &write.bytes[part]);
        if connection
            .memory
            .write_checked(connection.access, at, bytes)
            .is_err()
        {
            // Revoked behind the fabric's back, by its owner.
            return self.sever(id);
        }
        write.pieces_left -= 1;
        let whole = write.pieces_left == 0;
        let first = connection
            .writes
            .iter()
            .find(|(_, write)| write.pieces_left > 0);
        let overtakes = first.is_some_and(|(first, _)| *first < seq);
        if whole && !connection.closed {
            let due = self.now + self.delay();
            self.schedule(due, Event::Acknowledge(id, seq));
        }
        self.counters.overtaken += u64::from(overtakes);
    }

    fn acknowledge(&mut self, id: ConnectionId, seq: u64) {
        let connection = self.connection(id);
        let writer = connection.from;
        if connection.writes.remove(&seq).is_some() {
            let result = Ok(());
            connection.ended.push_back(WriteCompletion { seq, result });
            self.happen_ring(writer, writer);
        }
    }

    /// The target lets nothing land any more, and says so.
    pub(super) fn sever(&mut self, id: ConnectionId) {
        if std::mem::replace(&mut self.connection(id).severed, true) {
            return;
        }
        let due = self.now + self.delay();
        self.schedule(due, Event::Fail(id, FabricError::Revoked));
    }

    /// Nothing is heard from the target: the writer will give up.
    pub(super) fn wear(&mut self, id: ConnectionId) {
        if std::mem::replace(&mut self.connection(id).at_cut.wearing, true) {
            return;
        }
        let due = self.now + self.random.span(self.settings.break_max);
        self.schedule(due, Event::Snap(id));
    }

    fn snap(&mut self, id: ConnectionId) {
        let connection = self.connection(id);
        connection.at_cut.wearing = false;
        let healed = connection.at_cut.held.is_empty() && !connection.severed;
        if !healed && connection.failed.is_none() {
            self.counters.connections.broken += 1;
            self.fail(id, &FabricError::Broken);
        }
    }

    /// The writer learns that no write will succeed any more.
    fn fail(&mut self, id: ConnectionId, error: &FabricError) {
        let connection = self.connection(id);
        connection.severed = true;
        connection.at_cut.held.clear();
        if connection.failed.is_some() {
            return;
        }
        connection.failed = Some(error.clone());
        let writer = connection.from;
        let mut landed = 0;
        let mut failed = 0;
        for (seq, write) in std::mem::take(&mut connection.writes) {
            landed += u64::from(write.pieces_left == 0);
            failed += 1;
            let result = Err(error.clone());
            connection.ended.push_back(WriteCompletion { seq, result });
        }
        self.counters.landed_failed += landed;
        if *error == FabricError::Revoked {
            self.counters.revoked += failed;
        }
        self.happen_ring(writer, writer);
    }
}
