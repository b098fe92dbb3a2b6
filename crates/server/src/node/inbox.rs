//! The memory that a peer writes: three words, and a message ring.
//!
//! ```text
//! 0        8       16      24         64              64 + capacity
//! +--------+-------+-------+----------+---------------+
//! | hello  | head  | beat  | zero     | message ring  |
//! +--------+-------+-------+----------+---------------+
//!
//! hello := wish: u32  accept: u32
//! wish   = the session that the writer wants to speak under
//! accept = the owner's session that the writer has made room for
//! head  := how far the writer has read the ring that the owner writes
//! beat  := a number that changes, so that a revoked inbox is noticed
//! ```
//!
//! Words are little-endian and land whole: wish and accept are always of one moment.

use std::sync::Arc;

use argosy_memory::SharedMemory;
use argosy_wire::ring::RingMemory;

pub(super) const HELLO: usize = 0;
pub(super) const HEAD: usize = 8;
pub(super) const BEAT: usize = 16;
pub(super) const RING: usize = 64;

/// The memory of a ring, behind the words of an inbox.
pub(super) struct Inbox(pub(super) Arc<SharedMemory>);

impl RingMemory for Inbox {
    fn load(&self, offset: usize) -> u64 {
        self.0.load_u64(RING + offset)
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read(RING + offset, out);
    }

    fn zero(&self, offset: usize, len: usize) {
        self.0.fill_zero(RING + offset..RING + offset + len);
    }
}

/// What one side last said of sessions; see the module documentation. 0 is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) wish: u32,
    pub(super) accept: u32,
}

impl Hello {
    pub(super) const fn of_word(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        Self {
            wish: u32::from_le_bytes([a, b, c, d]),
            accept: u32::from_le_bytes([e, f, g, h]),
        }
    }

    pub(super) const fn word(self) -> u64 {
        self.wish as u64 | (self.accept as u64) << 32
    }
}

impl Inbox {
    pub(super) fn hello(&self) -> Hello {
        Hello::of_word(self.0.load_u64(HELLO))
    }
}
