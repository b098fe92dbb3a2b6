//! Bytes that a link has written into its peer's memory, by what they were for.

use argosy_base::EditSeq;
use argosy_wire::message::{CONTINUED, Message};
use argosy_wire::ring::message_size;

const CALL: u8 = Message::Call(&[]).kind();
const ANSWER: u8 = Message::Answer(&[]).kind();
const EDIT: u8 = Message::Edit {
    attempt: 0,
    seq: EditSeq(0),
    len: 0,
    bytes: &[],
}
.kind();
const OFFER: u8 = Message::Offer {
    attempt: 0,
    seq: EditSeq(0),
    len: 0,
    bytes: &[],
}
.kind();
const MORE: u8 = Message::More {
    attempt: 0,
    seq: EditSeq(0),
    from: 0,
    bytes: &[],
}
.kind();

/// See the module documentation. All of it only rises, and outlives sessions of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentBytes {
    /// Finished segments that were shipped.
    pub(crate) segments: u64,
    /// What the peer had asked for to catch up.
    pub(crate) fetched: u64,
    /// Version edits and checkpoints.
    pub(crate) edits: u64,
    /// Requests that were forwarded, and answers to such.
    pub(crate) calls: u64,
    /// Everything that went through the message ring: edits, calls, and what frames them.
    ring: u64,
    /// The longest ring message, with its frame; 0 before the first.
    pub(crate) longest: u64,
}

impl SentBytes {
    /// All of it.
    pub(crate) const fn all(&self) -> u64 {
        self.segments + self.fetched + self.ring
    }

    /// Other messages, and what frames all of them. What is queued and not written yet is taken
    /// off it.
    pub(crate) const fn control(&self) -> u64 {
        self.ring.saturating_sub(self.edits + self.calls)
    }

    /// A message of this kind found its place in the ring.
    pub(super) fn queued(&mut self, kind: u8, payload_bytes: usize) {
        self.longest = self.longest.max(message_size(payload_bytes) as u64);
        match kind & !CONTINUED {
            EDIT | OFFER | MORE => self.edits += payload_bytes as u64,
            CALL | ANSWER => self.calls += payload_bytes as u64,
            _ => {}
        }
    }

    /// Bytes were written to a landing slot: one for segments, or one for what was fetched.
    pub(super) fn landed(&mut self, segment: bool, bytes: usize) {
        if segment {
            self.segments += bytes as u64;
        } else {
            self.fetched += bytes as u64;
        }
    }

    /// Bytes of the ring were written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.ring += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_counted_once() {
        let mut sent = SentBytes::default();
        sent.landed(true, 1000);
        sent.landed(false, 200);
        sent.queued(EDIT, 30);
        sent.queued(OFFER, 6);
        sent.queued(MORE, 4);
        sent.queued(CALL | CONTINUED, 3);
        sent.queued(CALL, 2);
        sent.queued(ANSWER, 4);
        sent.queued(u8::MAX, 7);
        sent.wrote(120);
        assert_eq!((sent.segments, sent.fetched), (1000, 200));
        assert_eq!((sent.edits, sent.calls, sent.control()), (40, 9, 71));
        assert_eq!(sent.all(), 1320);
        let parts = sent.segments + sent.fetched + sent.edits + sent.calls + sent.control();
        assert_eq!(parts, sent.all());
        assert_eq!(sent.longest, 96, "30 bytes and 40 of its frame");
    }
}
