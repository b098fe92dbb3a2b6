//! The right of one server to write into another's memory.
//!
//! A server *grants* a memory to one peer, and sends it the [`Descriptor`] in a message. The peer connects with the
//! descriptor, and with nothing else: a right that was taken back, or is another peer's, is of no use to it.

use crate::{Incarnation, ServerId};

/// Names one piece of a server's memory. What the number means is for the server to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryKey(pub u64);

/// One grant of a memory, and what a peer needs to find the memory. It travels in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// The memory.
    pub key: MemoryKey,
    /// The number of the grant: not 0, and never that of another grant of the same server.
    pub grant: u64,
}

/// A grant, with its grantee and the server's start that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its number; see [`Descriptor::grant`].
    pub number: u64,
    /// Who may write.
    pub to: ServerId,
    /// The start of the server that grants it.
    pub by: Incarnation,
}
