//! What a client and a server say to each other in memory that both have mapped.
//!
//! A connection is one piece of shared memory, which the server makes:
//!
//! ```text
//! 0        64       128      192      256               256+requests            +replies
//! +--------+--------+--------+--------+-------------------+-----------------------+
//! | head   | asleep | rings  | parked | requests: a ring  | replies: slots        |
//! +--------+--------+--------+--------+-------------------+-----------------------+
//! ```
//!
//! The client writes `parked` and the two buffers' requests; the server writes the rest. Each word is
//! alone in its cache line. The client manages both buffers; the server only says, in `head`, up to
//! where it has taken requests.
//!
//! 1. The client takes a *slot* of the reply buffer, zeroes the slot's rendezvous word, and lays a
//!    request, which names the slot, behind the last one ([`RequestWriter`]).
//! 2. The server looks at the rendezvous word of the place where the next request must begin. When it
//!    is there, it copies the request out, checks the copy, zeroes the space ([`RequestReader`]), and
//!    publishes `head`: the space may be used again.
//! 3. It writes the answer into the slot ([`write_reply`]): out of order, straight to where the
//!    client waits for it. The client polls the slot's rendezvous word ([`read_reply`]).
//! 4. A slot is taken again only after its answer has come.
//!
//! ```text
//! request := header payload 0* end            (a multiple of 32 bytes, at a multiple of 32)
//!          | header                           (op 0, NOOP, len 0, not at the ring's start: the next
//!                                              request is there)
//!
//! 0     3    4    8        12      16            20          23      24       28     32
//! +-----+----+----+--------+-------+-------------+-----------+-------+--------+------+
//! | len | op | id | region | epoch | slot offset | slot size | flags | crc32c | mark |
//! +-----+----+----+--------+-------+-------------+-----------+-------+--------+------+
//!
//! reply   := header payload 0* end            (as long as it needs, in its slot)
//!
//! 0     3        4    8        12    16                      23      24       28     32
//! +-----+--------+----+--------+-----+-----------------------+-------+--------+------+
//! | len | status | id | needed | map | zero                  | flags | crc32c | mark |
//! +-----+--------+----+--------+-----+-----------------------+-------+--------+------+
//! ```
//!
//! A value of over 1 MiB goes in parts, each as long as the protocol says of it ([`Long`]). A get is
//! answered by [`Status::Long`], or a multi-get, a page or an answer has it in the place of the value; the
//! parts are asked for one by one ([`Op::GetPart`]). One that is not there says that the value has been
//! overwritten: it is looked up again. To write one, the client asks for a version ([`Op::Begin`]), writes
//! the parts ([`Op::PutPart`]), and then, when all have been answered, what stands for it, with a checksum
//! of the whole and on whatever terms ([`Op::Write`] with [`Flags::LONG`]): that makes the value visible.
//!
//! Integers are little-endian. The last 8 bytes of a header are its *rendezvous word*, stored whole
//! and after everything else. `end`, the last 4 bytes of a message, is a mark, too, so that a way of
//! writing that keeps no order can be told from one that has finished. `len` counts the payload.
//! `crc32c` covers the first 24 bytes and the payload, seeded with the direction and, for a request,
//! its position (bytes ever laid in the ring), for a reply, its id: what was left by an earlier lap
//! or answer is not believed. `id` is the client's, and repeated by the reply. `region` and `epoch`
//! say by which region map the client sent the request here; `map` is the fingerprint of the server's,
//! so that a client learns of a new one. `needed` is the length of slot that the answer would have
//! needed, where the slot was too small.
//!
//! Invariants:
//!
//! - All bytes of the ring between the reader's head and the writer's tail that belong to no request
//!   are zero: so nothing that a client once stored as a value can be taken for a request.
//! - Nothing is believed that was not first copied out of the shared memory (I2).
//! - The server zeroes a request before it does anything about it: one that is still there when it has
//!   died had no effect ([`Laid::is_taken`]).
//! - Neither side can make the other read or write outside of the two buffers.

mod body;
mod header;
mod hello;
mod ring;
mod signs;
mod sync;

#[cfg(test)]
mod tests;

pub use body::{
    Long, MULTI_KEYS_MAX, OneValue, PartOf, Values, put_failure, put_keys, put_long, put_pair,
    put_value, read_failure, read_keys, split_pair,
};
pub use header::{
    Flags, HEADER_BYTES, Op, RENDEZVOUS_AT, ReplyHeader, Request, Slot, Status, message_bytes,
    read_reply, write_reply,
};
pub use hello::{Hello, MapRegion, MapServer, Refusal, RegionMap, VERSION, Welcome};
pub use ring::{Laid, LayError, RequestReader, RequestWriter};
pub use signs::{Asleep, Parking, Unrung};

/// Where the server says up to which position it has taken requests.
pub const HEAD_AT: usize = 0;
/// Not zero while the server's thread sleeps, or is about to, and has to be rung for.
pub const ASLEEP_AT: usize = 64;
/// Counts the server's wake-ups of the client; a futex.
pub const RINGS_AT: usize = 128;
/// How many of the client's threads sleep on `rings`, or are about to.
pub const PARKED_AT: usize = 192;
/// Where the requests begin.
pub const REQUESTS_AT: usize = 256;

/// The sizes of a connection's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    requests: usize,
    replies: usize,
}

impl Shape {
    /// The least bytes of either buffer.
    pub const BYTES_MIN: usize = 4 << 10;
    /// The most bytes of either buffer: the longest request, and the longest answer, fit.
    pub const BYTES_MAX: usize = 2 << 20;

    /// Buffers of these sizes; `None` where they are out of bounds or no multiples of
    /// [`BYTES_MIN`](Self::BYTES_MIN).
    #[must_use]
    pub const fn new(requests: usize, replies: usize) -> Option<Self> {
        const fn is_possible(bytes: usize) -> bool {
            bytes >= Shape::BYTES_MIN
                && bytes <= Shape::BYTES_MAX
                && bytes.is_multiple_of(Shape::BYTES_MIN)
        }
        if is_possible(requests) && is_possible(replies) {
            Some(Self { requests, replies })
        } else {
            None
        }
    }

    /// Bytes of the ring of requests.
    #[must_use]
    pub const fn requests(self) -> usize {
        self.requests
    }

    /// Bytes of the buffer of replies.
    #[must_use]
    pub const fn replies(self) -> usize {
        self.replies
    }

    /// Where the replies begin.
    #[must_use]
    pub const fn replies_at(self) -> usize {
        REQUESTS_AT + self.requests
    }

    /// Bytes of the whole memory.
    #[must_use]
    pub const fn bytes(self) -> usize {
        REQUESTS_AT + self.requests + self.replies
    }

    /// Longest payload of a request: with its frame it fills the ring.
    #[must_use]
    pub const fn payload_max(self) -> usize {
        self.requests - HEADER_BYTES - END_BYTES
    }
}

/// Bytes of the mark at the end of a message.
const END_BYTES: usize = 4;

/// The high half of a rendezvous word.
const MARK: u32 = 0x0a15_c11e;

/// The last four bytes of the message numbered `number` (a position, or an id).
const fn end_mark(number: u32) -> u32 {
    number ^ 0x5eed_0a11
}

/// What the other side wrote can never become a message. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {found:#x}")]
pub struct Garbage {
    /// Which field is impossible.
    pub what: &'static str,
    /// Its value.
    pub found: u64,
}
