//! What an engine offers to whoever keeps other copies of its region: the bytes of its logs, in order.

use argosy_base::LogKind;

/// A byte of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// The segment's place in the chain of the log.
    pub ordinal: u64,
    /// The byte in the segment.
    pub offset: u32,
}

impl LogPlace {
    /// The first byte of the segment behind this place's segment.
    #[must_use]
    pub const fn next_segment(self) -> Self {
        Self {
            ordinal: self.ordinal + 1,
            offset: 0,
        }
    }
}

/// Bytes of a log that are to be copied to another member, all of one window, and where they belong there.
///
/// Use one `Piece` again and again: it keeps the memory of its buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The slot of the window. It is the same at every member.
    pub slot: usize,
    /// The header of the window, which belongs at byte 0 of the slot. Empty unless `bytes` are the first of the window.
    pub header: Vec<u8>,
    /// Where `bytes` belong: byte `at` of the slot.
    pub at: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The place behind the last of `bytes`.
    pub next: LogPlace,
}

/// The answer to a request for the next piece of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// The end is reached.
    End,
    /// No member needs the bytes in front of this place, which is behind the requested one. Continue there.
    Skip(LogPlace),
    /// The piece is filled. Write its header, if it has one, and its bytes, and continue at [`Piece::next`].
    Write,
    /// The windows no longer hold these bytes, and they are needed. The member has to fetch their segment.
    Gone,
}

/// An engine whose log other members copy.
pub trait Source: Send + Sync {
    /// Fills `piece` with bytes of `log`, from `from` up to `end` or the end of their window, whichever comes first.
    /// `end` is a place up to which the engine has told its [`Observer`](crate::Observer) that bytes were appended.
    /// `piece` means something only with the answer [`Next::Write`].
    fn piece(&self, log: LogKind, from: LogPlace, end: LogPlace, piece: &mut Piece) -> Next;
}
