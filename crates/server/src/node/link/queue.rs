//! Messages on their way out: into the ring where it has room, and else into bounded memory until it has.
//!
//! A message that follows one for which there was no room waits behind it; one that refers to what is landing waits
//! until that has landed. What would never find room is refused at once, so that it is in nobody's way.

use argosy_wire::message::LONG_BYTES_MAX;
use argosy_wire::ring::{Header, PushError, RingShape};

use super::deferred::{Admission, CONGESTED_BYTES};
use super::{Behind, Holdings, Link, RING, SendError, State, long, write_to};

/// Messages that wait for room in the ring, or for what is landing, in bytes of payload; over it, the link
/// refuses.
pub(super) const BACKLOG_BYTES_MAX: usize = 16 << 20;
/// A message of at most so many bytes finds room where longer ones do not any more: refusals do.
pub(super) const SHORT_BYTES: usize = 4 << 10;

impl Link {
    /// What it holds of what could grow.
    pub(crate) fn holdings(&self) -> Holdings {
        match &self.state {
            State::Open(open) => Holdings::of_open(open, self.held_bytes()),
            State::Closed(_) => Holdings::of_closed(self.held_bytes()),
        }
    }

    /// Decides about a call of the peer, and keeps it where it has to wait.
    pub(crate) fn admit(&mut self, header: Header, payload: &[u8]) -> Admission {
        match &mut self.state {
            State::Open(open) => open.deferred.admit(header, payload, open.backlog_bytes),
            // Nobody waits for the answer any more.
            State::Closed(_) => Admission::Refused,
        }
    }

    /// The call of the peer that has waited for the longest, once there is room for its answer.
    pub(crate) fn next_deferred(&mut self) -> Option<(Header, Vec<u8>)> {
        match &mut self.state {
            State::Open(open) => open.deferred.next(open.backlog_bytes),
            State::Closed(_) => None,
        }
    }

    /// Has a call of the peer that finds no room at the workers be the next again.
    pub(crate) fn put_call_back(&mut self, header: Header, payload: &[u8]) {
        if let State::Open(open) = &mut self.state {
            open.deferred.put_back(header, payload);
        }
    }

    /// Bytes of memory that hold messages: those that wait to be sent, and one that arrives in parts.
    pub(crate) fn held_bytes(&self) -> usize {
        let waiting = match &self.state {
            State::Open(open) => open.backlog_bytes + open.behind_bytes,
            State::Closed(_) => 0,
        };
        waiting + self.reading.held_bytes()
    }

    /// Whether the peer keeps up: what can wait does so otherwise. `false` while the link is down.
    pub(crate) fn has_room(&self) -> bool {
        match &self.state {
            State::Open(open) => open.backlog_bytes + open.behind_bytes <= CONGESTED_BYTES,
            State::Closed(_) => false,
        }
    }

    /// Longest payload of one ring message, in bytes.
    pub(crate) const fn payload_max(&self) -> usize {
        RingShape::new(self.settings.ring_bytes).payload_max()
    }

    /// Queues a message. It is sent with the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// Nothing of it is sent then, and the link is as it was.
    pub(crate) fn send(&mut self, header: Header, payload: &[u8]) -> Result<(), SendError> {
        let (part_max, max) = (self.payload_max(), LONG_BYTES_MAX);
        let State::Open(open) = &mut self.state else {
            return Err(SendError::Down);
        };
        if payload.len() > max {
            let len = payload.len();
            return Err(SendError::TooLong { len, max });
        }
        let waiting_max = match payload.len() {
            ..=SHORT_BYTES => 2 * BACKLOG_BYTES_MAX,
            _ => BACKLOG_BYTES_MAX,
        };
        let waiting = open.backlog_bytes + open.behind_bytes;
        let full = !open.backlog.is_empty() && waiting + payload.len() > waiting_max;
        if full && !self.mutants.unbounded_backlog() {
            return Err(SendError::Full);
        }
        for (header, part) in long::parts(header, payload, part_max) {
            if open.backlog.is_empty() && open.out.push(header, &[part]).is_ok() {
                self.sent.queued(header.kind, part.len());
            } else {
                open.backlog_bytes += part.len();
                open.backlog.push_back((header, part.to_vec()));
            }
        }
        Ok(())
    }

    /// Queues a message behind those of everything that is landing: what refers to a segment does
    /// not arrive before it.
    ///
    /// # Errors
    /// As [`send`](Self::send); a message that may wait here is not sent in parts.
    pub(crate) fn send_behind(&mut self, header: Header, payload: &[u8]) -> Result<(), SendError> {
        let (len, max) = (payload.len(), self.payload_max());
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        match &mut self.state {
            State::Open(open) if !open.behind.is_empty() => {
                if open.backlog_bytes + open.behind_bytes + len > BACKLOG_BYTES_MAX {
                    return Err(SendError::Full);
                }
                open.behind_bytes += len;
                open.behind.push_back(Behind {
                    write: 0,
                    header,
                    payload: payload.to_vec(),
                });
                Ok(())
            }
            _ => self.send(header, payload),
        }
    }

    /// Sends what was queued. Failures are noticed by the next [`step`](Self::step).
    pub(crate) fn flush(&mut self) {
        let State::Open(open) = &mut self.state else {
            return;
        };
        let mut wrote = false;
        loop {
            while let Some((header, payload)) = open.backlog.front() {
                match open.out.push(*header, &[payload]) {
                    Ok(()) => self.sent.queued(header.kind, payload.len()),
                    Err(PushError::Full) => break,
                    Err(PushError::TooLarge { len, max }) => {
                        // It is refused where it is queued. What it was part of cannot go on without it.
                        tracing::error!(len, max, "a message that is too long was queued");
                        self.troubles.reset_wanted = Some("a message is too long");
                    }
                }
                open.backlog_bytes -= payload.len();
                open.backlog.pop_front();
            }
            let Some((offset, bytes)) = open.out.next_write() else {
                break;
            };
            self.write += 1;
            match write_to(&mut *open.inbox, RING + offset, bytes, self.write) {
                Ok(true) => {}
                // It goes on when a write has ended.
                Ok(false) => break,
                Err(error) => {
                    open.failed = Some(error);
                    break;
                }
            }
            self.sent.wrote(bytes.len());
            open.out.wrote();
            wrote = true;
        }
        if wrote && !self.mutants.forget_ring() {
            self.fabric.notify(self.ends.peer);
        }
    }
}
