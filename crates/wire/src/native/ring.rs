//! The ring of requests: how the client lays them, and how the server takes them.

use alloc::vec::Vec;

use argosy_base::{Epoch, RegionId, Shared};

use super::header::{COVERED, Way, checksum_in, has_end, message_checksum, put_end, rendezvous};
use super::{Flags, Garbage, HEADER_BYTES, Op, REQUESTS_AT, Request, Shape, Slot, message_bytes};

/// Why a request was not laid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayError {
    /// The server has not made room yet. Look at its head again.
    #[error("the ring of requests is full")]
    Full,
    /// No ring of this size ever has room for it.
    #[error("a request of {len} bytes is over the ring's limit of {max}")]
    TooLarge {
        /// Bytes of the payload.
        len: usize,
        /// See [`Shape::payload_max`].
        max: usize,
    },
}

/// Where a request was laid, and the sign that it has not been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    at: usize,
    word: u64,
}

impl Laid {
    /// Whether the server has taken it out of the ring. It zeroes a request before it does anything
    /// about it: so one that was not taken when the server died never had an effect.
    #[must_use]
    pub fn is_taken(self, memory: &impl Shared) -> bool {
        // What is laid here later has another position, and so another checksum.
        memory.load(self.at) != self.word
    }
}

/// The client's side of the ring.
#[derive(Debug)]
pub struct RequestWriter {
    shape: Shape,
    /// Up to where the server is known to have made room.
    head: u64,
    /// Where the next request goes.
    tail: u64,
}

impl RequestWriter {
    /// The writer of a ring that is all zero.
    #[must_use]
    pub const fn new(shape: Shape) -> Self {
        Self {
            shape,
            head: 0,
            tail: 0,
        }
    }

    /// Lays `request`, whose payload is `parts` one behind the other.
    ///
    /// # Errors
    /// See [`LayError`]; then no request was laid.
    pub fn push(
        &mut self,
        memory: &impl Shared,
        request: Request,
        parts: &[&[u8]],
    ) -> Result<Laid, LayError> {
        let len = parts.iter().map(|part| part.len()).sum();
        let max = self.shape.payload_max();
        if len > max {
            return Err(LayError::TooLarge { len, max });
        }
        let bytes = message_bytes(len);
        let to_end = self.shape.requests() - offset_of(self.tail, self.shape);
        if bytes > to_end {
            self.make_room(memory, to_end)?;
            self.lay_noop(memory, to_end);
        }
        self.make_room(memory, bytes)?;
        let at = REQUESTS_AT + offset_of(self.tail, self.shape);
        let header = request.encode(len);
        let checksum = message_checksum(Way::ToServer, self.tail, &header, parts);
        let mut to = at + HEADER_BYTES;
        for part in parts {
            memory.write(to, part);
            to += part.len();
        }
        put_end(memory, at, bytes, number_of(self.tail));
        memory.write(at, &header);
        let laid = Laid {
            at: at + COVERED,
            word: rendezvous(checksum),
        };
        memory.store(laid.at, laid.word);
        self.tail += bytes as u64;
        Ok(laid)
    }

    /// Whether every request has been taken by the server.
    pub fn is_taken(&mut self, memory: &impl Shared) -> bool {
        self.look(memory);
        self.head == self.tail
    }

    fn lay_noop(&mut self, memory: &impl Shared, to_end: usize) {
        let noop = Request {
            op: Op::Noop,
            flags: Flags::default(),
            id: 0,
            region: RegionId(0),
            epoch: Epoch(0),
            slot: Slot::default(),
        };
        let at = REQUESTS_AT + offset_of(self.tail, self.shape);
        let header = noop.encode(0);
        memory.write(at, &header);
        let checksum = message_checksum(Way::ToServer, self.tail, &header, &[]);
        memory.store(at + COVERED, rendezvous(checksum));
        self.tail += to_end as u64;
    }

    fn make_room(&mut self, memory: &impl Shared, bytes: usize) -> Result<(), LayError> {
        let needed = (self.tail + bytes as u64).saturating_sub(self.shape.requests() as u64);
        if self.head < needed {
            self.look(memory);
        }
        if self.head < needed {
            return Err(LayError::Full);
        }
        Ok(())
    }

    /// Looks how far the server has come. A head that it cannot have reached is not believed.
    fn look(&mut self, memory: &impl Shared) {
        let head = memory.load(super::HEAD_AT);
        if head <= self.tail {
            self.head = self.head.max(head);
        }
    }
}

/// What a reader has found: a copy of its header, and where the rest is.
struct Found {
    at: usize,
    header: [u8; COVERED],
    checksum: u32,
    request: Request,
    /// Bytes of its payload.
    len: usize,
    /// Bytes that it takes.
    bytes: usize,
    /// Bytes to the next one.
    skipped: usize,
}

/// The server's side of the ring.
#[derive(Debug)]
pub struct RequestReader {
    shape: Shape,
    /// Where the next request must begin.
    head: u64,
    /// The head that the client was told.
    published: u64,
}

impl RequestReader {
    /// The reader of a ring that is all zero.
    #[must_use]
    pub const fn new(shape: Shape) -> Self {
        Self {
            shape,
            head: 0,
            published: 0,
        }
    }

    /// Whether there is something to take, or [`Garbage`]. A request that is there in part is none yet:
    /// its client rings when all of it is there.
    #[must_use]
    pub fn has_next(&self, memory: &impl Shared) -> bool {
        !matches!(self.find(memory), Ok(None))
    }

    /// What is at the place where the next request must begin, if all of it is there.
    #[inline]
    fn find(&self, memory: &impl Shared) -> Result<Option<Found>, Garbage> {
        let offset = offset_of(self.head, self.shape);
        let at = REQUESTS_AT + offset;
        let word = memory.load(at + COVERED);
        if word == 0 {
            return Ok(None);
        }
        let checksum = checksum_in(word)?;
        let mut header = [0; COVERED];
        memory.read(at, &mut header);
        let (request, len) = Request::decode(&header, self.shape)?;
        let to_end = self.shape.requests() - offset;
        let (bytes, skipped) = match request.op {
            // So at most one is skipped for each request.
            Op::Noop if len != 0 || offset == 0 => {
                return Err(Garbage {
                    what: "the place or the length of a NOOP",
                    found: self.head,
                });
            }
            Op::Noop => (HEADER_BYTES, to_end),
            _ => (message_bytes(len), message_bytes(len)),
        };
        if bytes > to_end {
            return Err(Garbage {
                what: "a request's length",
                found: len as u64,
            });
        }
        if request.op != Op::Noop && !has_end(memory, at, bytes, number_of(self.head)) {
            return Ok(None);
        }
        Ok(Some(Found {
            at,
            header,
            checksum,
            request,
            len,
            bytes,
            skipped,
        }))
    }

    /// Takes the next request, if all of it is there: its payload replaces what `payload` held.
    ///
    /// # Errors
    /// [`Garbage`]; it repeats.
    pub fn next(
        &mut self,
        memory: &impl Shared,
        payload: &mut Vec<u8>,
    ) -> Result<Option<Request>, Garbage> {
        while let Some(found) = self.find(memory)? {
            payload.clear();
            payload.resize(found.len, 0);
            memory.read(found.at + HEADER_BYTES, payload);
            let checksum = message_checksum(Way::ToServer, self.head, &found.header, &[payload]);
            if checksum != found.checksum {
                return Err(Garbage {
                    what: "a request's checksum",
                    found: found.checksum.into(),
                });
            }
            memory.zero(found.at, found.bytes);
            self.head += found.skipped as u64;
            if found.request.op != Op::Noop {
                return Ok(Some(found.request));
            }
        }
        Ok(None)
    }

    /// Tells the client how far the server has come, if that is news.
    pub fn publish(&mut self, memory: &impl Shared) {
        if self.published != self.head {
            self.published = self.head;
            memory.store(super::HEAD_AT, self.head);
        }
    }
}

/// Where in the ring `position` lies.
#[inline]
fn offset_of(position: u64, shape: Shape) -> usize {
    let offset = position % shape.requests() as u64;
    usize::try_from(offset).expect("below the ring's size")
}

/// The number in the end mark of the request at `position`.
#[inline]
fn number_of(position: u64) -> u32 {
    let low = (position / HEADER_BYTES as u64) & u64::from(u32::MAX);
    u32::try_from(low).expect("masked")
}
