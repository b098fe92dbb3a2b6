//! What an engine offers to the driver of a region that has other copies: the bytes of its logs, checkpoints, and
//! parts of its segments.

use std::any::Any;
use std::sync::Arc;

use argosy_base::{DeviceSegment, EditSeq, FlushRange, LogId, SegmentNumber, SegmentPart};
use argosy_device::Buffer;

use crate::{Checkpoint, EngineError};

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
    /// The header of the window, which belongs at byte 0 of the slot. Empty unless `bytes` are the first of the window,
    /// or the first behind a [rest](Source::is_at_rest).
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

/// Keeps the segments that a checkpoint names while it is held (I1).
#[derive(Clone)]
pub struct Pin(Arc<dyn Any + Send + Sync>);

impl Pin {
    /// Keeps what `kept` keeps.
    #[must_use]
    pub fn new<T: Any + Send + Sync>(kept: Arc<T>) -> Self {
        Self(kept)
    }

    /// What it keeps, if that is a `T`.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

/// A checkpoint that a member can start from while its segments stay.
pub struct PinnedCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Keeps the segments that it names.
    pub pin: Pin,
}

/// A store as other members copy it. Only the driver of the region calls it.
pub trait Source: Send + Sync {
    /// Fills `piece` with bytes of `log`, from `from` up to `end` or the end of their window, whichever comes first.
    /// `end` is a place up to which the engine has told its [`Observer`](crate::Observer) that bytes were appended.
    /// `piece` means something only with the answer [`Next::Write`].
    fn piece(&self, log: LogId, from: LogPlace, end: LogPlace, piece: &mut Piece) -> Next;

    /// Every other member has made `log` durable up to byte `to` of `segment`. A window may be
    /// reused once its range is durable here and everywhere. Without an observer the engine does
    /// this by itself. Never blocks on a step under way.
    fn flushed_everywhere(&self, log: LogId, segment: SegmentNumber, to: u32);

    /// Every other member has applied all edits up to `seq`. A log segment or a block of segment
    /// numbers is used only once the edit that declared it is durable here and everywhere, so that
    /// any member can make sense of its own windows after a crash. Without an observer the engine
    /// does this by itself. Never blocks on a step under way.
    fn edit_applied_everywhere(&self, seq: EditSeq);

    /// Whether the logs rest: nothing was appended for a while, every member has all of them durable, with marks that
    /// say so, and the windows here have no memory. The windows of the other members need none, either, until more is
    /// appended.
    fn is_at_rest(&self) -> bool {
        false
    }

    /// Whether `range`, whose flush the engine has told its observer, is durable here.
    fn has_flushed(&self, range: &FlushRange) -> bool {
        let _ = range;
        true
    }

    /// Whether a [`checkpoint`](Self::checkpoint) covers all of the logs that every other member
    /// has durable. If not, it will soon: a flush is under way here.
    fn covers_flushed(&self) -> bool {
        true
    }

    /// The present state, for a member to start from.
    fn checkpoint(&self) -> PinnedCheckpoint;

    /// Whether the store keeps more of its logs than it needs, as far as there is room: a member is away that has to
    /// come back by them. A store whose members come back by its levels needs not.
    fn keep_log(&self, keep: bool) {
        let _ = keep;
    }

    /// Reads part of a segment in the form in which it goes to other members: from the present version, or from one
    /// that `pins` keep. `None` where none of them has it.
    ///
    /// A segment of a log goes out only if all of its records that are durable here are whole: the member that
    /// fetches it could not tell before it reads them.
    fn read(&self, part: SegmentPart, pins: &[Pin]) -> Option<Result<Buffer, EngineError>> {
        let _ = (part, pins);
        None
    }

    /// Where the segments of logs that levels point into lie on this member's device. Empty unless pointers hold
    /// places.
    fn places(&self) -> Vec<(SegmentNumber, DeviceSegment)> {
        Vec::new()
    }
}
