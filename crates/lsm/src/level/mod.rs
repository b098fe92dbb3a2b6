//! Level segments: the self-contained lower part of a level's B+-tree, or the parts of a tree over a
//! whole run.
//!
//! A compaction merges sorted sources ([`Merge`](crate::merge::Merge)) into a [`SegmentBuilder`],
//! which fills leaves left to right, and puts the index over them, a filter and a footer behind
//! them. The result is written and shipped as it is and never changed (I1). A [`SegmentReader`]
//! holds a segment's index and filter in memory, and leads to the leaf that may have a key. How segments are read
//! through the cache is in [`read`](crate::read).
//!
//! Reading order: [`format`](mod@format) (a segment as a whole, and its footer), [`leaf`], `record`,
//! `draft` (a leaf that is being filled), [`index`], [`builder`], [`reader`], [`stand`] (a
//! position in a leaf); then [`tree`] (index nodes across segments), [`tree_builder`].
//! [`pointers`] changes the pointers of a finished segment. [`medium`] is another kind of segment: what
//! leaves point to, of pairs that are neither small nor large.
//!
//! Every byte that is read is checked before it is believed (I2): leaves, index, filter and footer
//! carry checksums under the identity of the segment that they belong to, and whatever is counted or
//! pointed at inside them is checked against their bounds once, when they are parsed. What has been
//! parsed can be used without further errors.

pub(crate) mod builder;
mod draft;
pub(crate) mod format;
pub(crate) mod index;
pub mod leaf;
pub mod medium;
pub mod pointers;
pub(crate) mod reader;
mod record;
pub(crate) mod stand;
pub(crate) mod tree;
pub(crate) mod tree_builder;
pub mod verify;

use argosy_base::SegmentNumber;
use argosy_device::{BegunRead, Buffer};

use crate::names::LevelError;

pub use builder::{BuiltSegment, SegmentBuilder, SegmentGeometry};
pub use format::form_and_refs;
pub use leaf::Leaf;
pub use reader::SegmentReader;

/// Where a segment's bytes come from: a device, through a member's segment table, or memory.
pub trait ReadAt {
    /// Whether it reads at all. Without, [`LevelError::NotInMemory`] is all that it answers, and what it is asked for
    /// was not missed.
    fn may_read(&self) -> bool {
        true
    }

    /// Fills `out` with the segment's bytes from byte `offset` on. Both `offset` and the length of
    /// `out` are whole blocks, and `out` is aligned as a [`Buffer`] is.
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError>;

    /// Begins to do so, where the source is able to. `bytes` come back, filled, when that is
    /// [fetched](BegunRead::finish).
    fn begin_read(&self, offset: u32, bytes: Buffer) -> BegunRead {
        let _ = offset;
        BegunRead::later(bytes)
    }
}

impl<F: Fn(u32, &mut [u8]) -> Result<(), LevelError>> ReadAt for F {
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        self(offset, out)
    }
}

/// A whole segment in memory, such as one that has just been built.
impl ReadAt for Buffer {
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        let from = offset as usize;
        match self.get(from..).and_then(|rest| rest.get(..out.len())) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(LevelError::Corrupt {
                segment: SegmentNumber(0),
                offset,
                what: "the buffer ends before the segment does",
            }),
        }
    }
}

impl<R: ReadAt + ?Sized> ReadAt for std::sync::Arc<R> {
    fn may_read(&self) -> bool {
        (**self).may_read()
    }

    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        (**self).read_at(offset, out)
    }

    fn begin_read(&self, offset: u32, bytes: Buffer) -> BegunRead {
        (**self).begin_read(offset, bytes)
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]
pub(crate) mod testing;
