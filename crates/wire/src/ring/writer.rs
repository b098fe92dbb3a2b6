//! The writing side of a ring: it lays messages in a private buffer and knows how much room there
//! is. It writes nothing itself; whoever owns it does:
//!
//! 1. [`push`](RingWriter::push) as many messages as there are;
//! 2. while [`next_write`](RingWriter::next_write) gives bytes, write them at the given offset of
//!    the reader's memory, and call [`wrote`](RingWriter::wrote) once the fabric has taken them;
//! 3. hand every head that the reader publishes to [`set_head`](RingWriter::set_head).
//!
//! Invariant: `head <= tail <= head + capacity`, all multiples of [`HEADER_SIZE`].

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use argosy_base::{Epoch, Incarnation, RegionId};

use super::{
    END_SIZE, HEADER_SIZE, Header, KIND_SKIP, RingError, RingShape, end_word, extend, header_bytes,
    header_checksum, low_half, message_size,
};

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The reader has not yet made room. Try again after the next head.
    #[error("the ring is full")]
    Full,
    /// No ring of this size ever has room for it.
    #[error("a payload of {len} bytes is over the ring's limit of {max}")]
    TooLarge {
        /// Bytes of the payload.
        len: usize,
        /// See [`RingShape::payload_max`].
        max: usize,
    },
}

/// A contiguous piece of the private buffer, and where it goes.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Offset in the ring.
    offset: usize,
    /// Where it begins in the buffer.
    from: usize,
    len: usize,
}

/// See the module documentation.
#[derive(Debug)]
pub struct RingWriter {
    shape: RingShape,
    incarnation: u32,
    /// Up to where the reader is known to have made room.
    head: u64,
    /// Where the next message goes.
    tail: u64,
    /// The bytes of all runs, one behind the other. At most the ring's capacity.
    buffer: Vec<u8>,
    runs: VecDeque<Run>,
}

impl RingWriter {
    /// The writer of a ring that has never been written: all of it is zero.
    #[must_use]
    pub fn new(shape: RingShape, incarnation: Incarnation) -> Self {
        Self {
            shape,
            incarnation: low_half(incarnation),
            head: 0,
            tail: 0,
            buffer: Vec::new(),
            runs: VecDeque::new(),
        }
    }

    /// The size of the ring.
    #[must_use]
    pub const fn shape(&self) -> RingShape {
        self.shape
    }

    /// Appends one message, whose payload is `parts` one behind the other.
    ///
    /// # Panics
    /// When the header's kind is 0, which is the ring's own.
    pub fn push(&mut self, header: Header, parts: &[&[u8]]) -> Result<(), PushError> {
        assert_ne!(header.kind, KIND_SKIP, "kind 0 is the ring's own");
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        let max = self.shape.payload_max();
        if payload > max {
            return Err(PushError::TooLarge { len: payload, max });
        }
        let size = message_size(payload);
        let to_end = self.shape.capacity - self.shape.offset(self.tail);
        let skip = if size > to_end { to_end } else { 0 };
        if skip + size > self.room() {
            return Err(PushError::Full);
        }
        if skip > 0 {
            self.append_skip(skip);
        }
        self.append_message(header, parts, payload);
        Ok(())
    }

    /// Whether a message with `payload` bytes would be taken now.
    #[must_use]
    pub fn has_room_for(&self, payload: usize) -> bool {
        let size = message_size(payload);
        let to_end = self.shape.capacity - self.shape.offset(self.tail);
        let skip = if size > to_end { to_end } else { 0 };
        payload <= self.shape.payload_max() && skip + size <= self.room()
    }

    /// The next bytes to write, and the offset in the ring at which they go; `None` when all have
    /// been taken.
    #[must_use]
    pub fn next_write(&self) -> Option<(usize, &[u8])> {
        let run = self.runs.front()?;
        Some((run.offset, &self.buffer[run.from..run.from + run.len]))
    }

    /// What [`next_write`](Self::next_write) gave has been taken by the fabric.
    ///
    /// # Panics
    /// When there was nothing to write.
    pub fn wrote(&mut self) {
        self.runs.pop_front().expect("something was to be written");
        if self.runs.is_empty() {
            self.buffer.clear();
        }
    }

    /// Takes what the reader last published as its head. An older head than one already known
    /// changes nothing; one that the reader cannot have reached is garbage.
    pub fn set_head(&mut self, head: u64) -> Result<(), RingError> {
        if head > self.tail || !head.is_multiple_of(HEADER_SIZE as u64) {
            return Err(RingError::Garbage {
                position: self.tail,
                what: "the reader's head",
                found: head,
            });
        }
        self.head = self.head.max(head);
        Ok(())
    }

    /// Bytes between the reader's head, as far as it is known, and the end of the last message.
    #[must_use]
    pub fn used(&self) -> usize {
        usize::try_from(self.tail - self.head).expect("at most the ring's capacity is in use")
    }

    fn room(&self) -> usize {
        self.shape.capacity - self.used()
    }

    fn append_skip(&mut self, skip: usize) {
        let header = Header {
            kind: KIND_SKIP,
            region: RegionId(0),
            epoch: Epoch(0),
            request: 0,
        };
        let mut bytes = header_bytes(header, length(skip), self.incarnation);
        let sum = header_checksum(header.region, header.epoch, self.tail, &bytes);
        bytes[HEADER_SIZE - 4..].copy_from_slice(&sum.to_le_bytes());
        self.extend_run(HEADER_SIZE);
        self.buffer.extend_from_slice(&bytes);
        self.tail += skip as u64;
    }

    fn append_message(&mut self, header: Header, parts: &[&[u8]], payload: usize) {
        let size = message_size(payload);
        self.extend_run(size);
        let mut bytes = header_bytes(header, length(payload), self.incarnation);
        let mut sum = header_checksum(header.region, header.epoch, self.tail, &bytes);
        for part in parts {
            sum = extend(sum, part);
        }
        bytes[HEADER_SIZE - 4..].copy_from_slice(&sum.to_le_bytes());

        self.buffer.extend_from_slice(&bytes);
        for part in parts {
            self.buffer.extend_from_slice(part);
        }
        let padding = size - HEADER_SIZE - payload - END_SIZE;
        self.buffer.extend_from_slice(&[0; HEADER_SIZE][..padding]);
        self.buffer
            .extend_from_slice(&end_word(self.tail).to_le_bytes());
        self.tail += size as u64;
        debug_assert!(self.used() <= self.shape.capacity);
    }

    /// Makes the next `len` bytes of the buffer part of the last run where they follow it in the
    /// ring, and a new run otherwise.
    fn extend_run(&mut self, len: usize) {
        let offset = self.shape.offset(self.tail);
        match self.runs.back_mut() {
            Some(run) if run.offset + run.len == offset => run.len += len,
            _ => self.runs.push_back(Run {
                offset,
                from: self.buffer.len(),
                len,
            }),
        }
    }
}

fn length(len: usize) -> u32 {
    u32::try_from(len).expect("a ring has at most 2^30 bytes")
}
