//! Reading what the peer writes into the inbox: whole messages, and what is wrong with them.

use argosy_base::{Incarnation, Instant};
use argosy_wire::ring::{Header, RingReader, RingShape};

use super::long::{Joined, Joiner};
use super::{ARRIVAL_MAX, Broken};
use crate::node::inbox::Inbox;

/// How far an inbox has been read.
pub(super) struct Reading {
    reader: RingReader,
    /// A message of which not all has arrived.
    joiner: Joiner,
    /// What made the last read fail.
    garbage: Option<Broken>,
    /// Since when the same message has been arriving.
    partial: Option<Partial>,
    /// How far the inbox has been read, where the fabric did not take the write that tells it.
    head_owed: Option<u64>,
}

/// A message that has begun to arrive.
struct Partial {
    /// Where it is in the ring.
    head: u64,
    since: Instant,
}

impl Reading {
    /// Nothing has been read of what the peer writes in its `session`.
    pub(super) fn new(shape: RingShape, session: u32) -> Self {
        Self {
            reader: RingReader::new(shape, Incarnation(session.into())),
            joiner: Joiner::default(),
            garbage: None,
            partial: None,
            head_owed: None,
        }
    }

    /// The next message that has arrived, its payload in `payload`. After garbage there is none.
    pub(super) fn next(&mut self, inbox: &Inbox, payload: &mut Vec<u8>) -> Option<Header> {
        if self.garbage.is_some() {
            return None;
        }
        loop {
            let broken = match self.reader.next(inbox, payload) {
                Ok(None) => return None,
                Ok(Some(header)) => match self.joiner.take(header, payload) {
                    Joined::Whole => return Some(header),
                    Joined::Part => continue,
                    Joined::Nonsense => Broken::Parts,
                },
                Err(error) => error.into(),
            };
            // The next check returns it.
            self.garbage = Some(broken);
            return None;
        }
    }

    /// Fails where garbage was read, or a message has been arriving for too long.
    pub(super) fn check(&mut self, now: Instant) -> Result<(), Broken> {
        if let Some(broken) = self.garbage.take() {
            return Err(broken);
        }
        let head = self.reader.head();
        self.partial = match self.partial.take() {
            _ if !self.reader.is_partial() => None,
            Some(partial) if partial.head == head => {
                if now.since(partial.since) > ARRIVAL_MAX {
                    return Err(Broken::Stuck);
                }
                Some(partial)
            }
            _ => Some(Partial { head, since: now }),
        };
        Ok(())
    }

    /// How far the peer may write again, where it has to be told.
    pub(super) fn head_to_tell(&mut self) -> Option<u64> {
        self.reader.head_to_publish(true).or(self.head_owed)
    }

    /// The peer was told of `head`, or has to be told of it later.
    pub(super) fn told(&mut self, head: u64, was_told: bool) {
        self.head_owed = (!was_told).then_some(head);
    }

    /// Bytes of the message of which not all has arrived.
    pub(super) fn held_bytes(&self) -> usize {
        self.joiner.held_bytes()
    }
}
