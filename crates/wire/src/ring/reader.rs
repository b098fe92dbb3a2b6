//! The reading side of a ring: it polls its own memory, and believes nothing of it before it has
//! checked a private copy.
//!
//! Polling an empty ring loads one word and allocates nothing. Whatever is read is zeroed before
//! the head moves past it; the caller publishes the head after that (see
//! [`RingReader::head_to_publish`]), and the write that publishes it must not become visible
//! before the zeros.

use alloc::vec::Vec;

use argosy_base::{Epoch, Incarnation, RegionId};

use super::{
    END_SIZE, HEADER_SIZE, Header, KIND_SKIP, MARK, RingError, RingShape, VERSION, end_word,
    extend, header_checksum, low_half, message_size,
};

/// The memory that a ring lies in. A peer writes it at any time; 8 aligned bytes land whole.
pub trait RingMemory {
    /// The 8 bytes at `offset`, a multiple of 8, as a little-endian number, in one load (acquire).
    fn load(&self, offset: usize) -> u64;

    /// Copies the bytes at `offset`, a multiple of 8, to `out`. They may change meanwhile.
    fn read(&self, offset: usize, out: &mut [u8]);

    /// Zeroes `len` bytes at `offset`, both multiples of 8.
    fn zero(&self, offset: usize, len: usize);
}

impl<M: RingMemory + ?Sized> RingMemory for &M {
    fn load(&self, offset: usize) -> u64 {
        (**self).load(offset)
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        (**self).read(offset, out);
    }

    fn zero(&self, offset: usize, len: usize) {
        (**self).zero(offset, len);
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct RingReader {
    shape: RingShape,
    /// The low half of the incarnation that may write.
    writer: u32,
    /// Where the next message must begin.
    head: u64,
    /// The last head that the caller was given to publish.
    published: u64,
    /// Whether a message has begun to arrive at `head`.
    partial: bool,
}

/// What the first word of a header says.
struct Start {
    kind: u8,
    len: usize,
}

impl RingReader {
    /// The reader of a ring that has never been written, which only `writer` may write.
    #[must_use]
    pub fn new(shape: RingShape, writer: Incarnation) -> Self {
        Self {
            shape,
            writer: low_half(writer),
            head: 0,
            published: 0,
            partial: false,
        }
    }

    /// The size of the ring.
    #[must_use]
    pub const fn shape(&self) -> RingShape {
        self.shape
    }

    /// Takes the next message, if all of it has arrived: its payload replaces what `payload` held.
    /// An error repeats, and `payload` then holds nothing of use.
    pub fn next<M: RingMemory>(
        &mut self,
        memory: &M,
        payload: &mut Vec<u8>,
    ) -> Result<Option<Header>, RingError> {
        loop {
            let word = memory.load(self.shape.offset(self.head));
            if word == 0 {
                return Ok(None);
            }
            self.partial = true;
            let Some(start) = self.check_start(word)? else {
                return Ok(None);
            };
            if start.kind == KIND_SKIP {
                if !self.take_skip(memory, start.len)? {
                    return Ok(None);
                }
            } else {
                return self.take_message(memory, word, &start, payload);
            }
        }
    }

    /// The position up to which everything has been read and zeroed.
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// The head, when it is time to publish it: a quarter of the ring has been read since the last
    /// time, or, when the caller is `idle`, anything at all. A writer whose messages have all been
    /// read has room for any message even if the caller is never idle.
    pub fn head_to_publish(&mut self, idle: bool) -> Option<u64> {
        let unpublished = self.head - self.published;
        let due = if idle {
            1
        } else {
            self.shape.capacity as u64 / 4
        };
        if unpublished < due {
            return None;
        }
        self.published = self.head;
        Some(self.head)
    }

    /// Whether the last [`next`](Self::next) found a message that has begun to arrive. If it stays
    /// so at the same [`head`](Self::head) for longer than a write can take, the writer died or the
    /// bytes are damaged; the caller, who has a clock, decides.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        self.partial
    }

    fn garbage(&self, what: &'static str, found: u64) -> RingError {
        RingError::Garbage {
            position: self.head,
            what,
            found,
        }
    }

    /// Reads the first word of a header, of which some bytes may still be zeros. `None` while they
    /// surely are; what is there must be possible.
    fn check_start(&self, word: u64) -> Result<Option<Start>, RingError> {
        let [mark_low, mark_high, kind, version, ..] = word.to_le_bytes();
        let mark = u16::from_le_bytes([mark_low, mark_high]);
        let arrived = |is: u8, should: u8| is == 0 || is == should;
        let [low, high] = MARK.to_le_bytes();
        if !arrived(mark_low, low) || !arrived(mark_high, high) {
            return Err(self.garbage("a message's mark", u64::from(mark)));
        }
        if !arrived(version, VERSION) {
            return Err(RingError::Version { found: version });
        }
        let to_end = self.shape.capacity - self.shape.offset(self.head);
        // Bytes of the length that are still to arrive can only make it larger.
        let len = usize::try_from(word >> 32).expect("32 bits fit");
        let possible = match kind {
            KIND_SKIP => len <= to_end,
            _ => len <= self.shape.payload_max() && message_size(len) <= to_end,
        };
        if !possible {
            return Err(self.garbage("a message's length", len as u64));
        }
        let whole = mark == MARK && version == VERSION;
        Ok(whole.then_some(Start { kind, len }))
    }

    /// Reads past a skip; `false` if not all of its header has arrived.
    fn take_skip<M: RingMemory>(&mut self, memory: &M, len: usize) -> Result<bool, RingError> {
        let offset = self.shape.offset(self.head);
        if len != self.shape.capacity - offset {
            return Ok(false);
        }
        let mut bytes = [0; HEADER_SIZE];
        memory.read(offset, &mut bytes);
        let sum = header_checksum(RegionId(0), Epoch(0), self.head, &bytes);
        if sum != stored_checksum(&bytes) {
            return Ok(false);
        }
        self.check_writer(&bytes)?;
        memory.zero(offset, HEADER_SIZE);
        self.advance(len);
        Ok(true)
    }

    fn take_message<M: RingMemory>(
        &mut self,
        memory: &M,
        word: u64,
        start: &Start,
        payload: &mut Vec<u8>,
    ) -> Result<Option<Header>, RingError> {
        let offset = self.shape.offset(self.head);
        let size = message_size(start.len);
        if memory.load(offset + size - END_SIZE) != end_word(self.head) {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_SIZE];
        memory.read(offset, &mut bytes);
        if bytes[..8] != word.to_le_bytes() {
            return Ok(None);
        }
        payload.clear();
        payload.resize(start.len, 0);
        memory.read(offset + HEADER_SIZE, payload);

        let header = Header {
            kind: start.kind,
            region: RegionId(u32_at(&bytes, 8)),
            epoch: Epoch(u32_at(&bytes, 12)),
            request: u64::from(u32_at(&bytes, 16)) | u64::from(u32_at(&bytes, 20)) << 32,
        };
        let sum = header_checksum(header.region, header.epoch, self.head, &bytes);
        if extend(sum, payload) != stored_checksum(&bytes) {
            return Ok(None);
        }
        self.check_writer(&bytes)?;
        memory.zero(offset, size);
        self.advance(size);
        Ok(Some(header))
    }

    fn check_writer(&self, header: &[u8; HEADER_SIZE]) -> Result<(), RingError> {
        let found = u32_at(header, 24);
        if found == self.writer {
            Ok(())
        } else {
            Err(RingError::Stranger {
                found,
                expected: self.writer,
            })
        }
    }

    fn advance(&mut self, len: usize) {
        self.head += len as u64;
        self.partial = false;
        debug_assert!(self.head.is_multiple_of(HEADER_SIZE as u64));
    }
}

fn stored_checksum(header: &[u8; HEADER_SIZE]) -> u32 {
    u32_at(header, HEADER_SIZE - 4)
}

#[inline]
fn u32_at(bytes: &[u8; HEADER_SIZE], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
