//! Level segments: the self-contained lower part of a level's B+-tree, or the parts of a tree over a
//! whole run.
//!
//! A compaction merges sorted sources ([`Merge`](crate::merge::Merge)) into a [`SegmentBuilder`],
//! which fills leaves left to right, and puts the index over them, a filter and a footer behind
//! them. The result is written and shipped as it is and never changed (I1). A [`SegmentReader`]
//! holds a segment's index and filter in memory and finds keys in its leaves, most of them in the
//! [`NodeCache`](crate::cache::NodeCache); a [`LevelCursor`] walks through the leaves in key order
//! and reads ahead.
//!
//! Reading order: [`format`](mod@format) (a segment as a whole, and its footer), [`leaf`], `record`,
//! `draft` (a leaf that is being filled), [`index`], [`builder`], [`reader`], [`stand`] (what all cursors
//! share), [`cursor`]; then [`tree`] (index nodes across segments), [`tree_builder`], [`tree_cursor`].
//! [`pointers`] changes the pointers of a finished segment. [`medium`] is another kind of segment: what
//! leaves point to, of pairs that are neither small nor large.
//!
//! Every byte that is read is checked before it is believed (I2): leaves, index, filter and footer
//! carry checksums under the identity of the segment that they belong to, and whatever is counted or
//! pointed at inside them is checked against their bounds once, when they are parsed. What has been
//! parsed can be used without further errors.

pub mod builder;
pub mod cursor;
mod draft;
pub mod format;
pub mod index;
pub mod leaf;
pub mod medium;
pub mod pointers;
pub mod reader;
mod record;
pub mod stand;
pub mod tree;
pub mod tree_builder;
pub mod tree_cursor;
pub mod verify;

use argosy_base::{Epoch, Identity, Kind, Moment, Pointer, RegionId, SegmentNumber};
use argosy_device::{BegunRead, Buffer, DeviceError};
use argosy_engine::EngineError;

pub use builder::{BuiltSegment, Geometry, SegmentBuilder};
pub(crate) use cursor::Opened;
pub use cursor::{LevelCursor, ReadAhead};
pub use format::form_and_refs;
pub use leaf::Leaf;
pub use reader::SegmentReader;
pub use tree::{Form, Tree};

/// Which segment: its number, and the region and the epoch that wrote it. Part of the identity of
/// every byte in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The region that wrote it.
    pub region: RegionId,
    /// Its logical number in that region.
    pub number: SegmentNumber,
    /// The epoch in which it was written.
    pub epoch: Epoch,
}

impl SegmentName {
    /// The identity of what begins at byte `offset` of this segment.
    #[inline]
    #[must_use]
    pub const fn identity(self, kind: Kind, offset: u32) -> Identity {
        Identity {
            kind,
            region: self.region,
            segment: self.number,
            epoch: self.epoch,
            offset,
        }
    }

    /// The checksum of the whole segment, as version edits and shipments state it. `bytes` are all
    /// bytes of the segment, in whole blocks.
    #[must_use]
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        self.identity(Kind::Segment, 0).checksum(bytes)
    }

    /// The error that says that byte `offset` of this segment is not what it should be.
    #[must_use]
    pub const fn corrupt(self, offset: u32, what: &'static str) -> LevelError {
        LevelError::Corrupt {
            segment: self.number,
            offset,
            what,
        }
    }
}

/// What a key of a level is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The value lies in a log.
    Pointer {
        /// Where its record begins.
        at: Pointer,
        /// Bytes of the value, without key and record header.
        value_len: u32,
    },
    /// The key is not bound, and hides what older sources bind it to.
    Tombstone,
    /// As it says until this moment of the region's time; from then on like a tombstone.
    Until(Moment, Lasting<&'a [u8]>),
}

/// What a pair that expires binds its key to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting<B> {
    /// The value itself.
    Inline(B),
    /// The value lies in a log.
    Pointer {
        /// Where its record begins.
        at: Pointer,
        /// Bytes of the value, without key and record header.
        value_len: u32,
    },
}

impl<'a> Entry<'a> {
    /// A copy that owns its bytes.
    #[must_use]
    pub fn to_owned(&self) -> OwnedEntry {
        match *self {
            Entry::Inline(value) => OwnedEntry::Inline(value.to_vec()),
            Entry::Pointer { at, value_len } => OwnedEntry::Pointer { at, value_len },
            Entry::Tombstone => OwnedEntry::Tombstone,
            Entry::Until(expiry, Lasting::Inline(value)) => {
                OwnedEntry::Until(expiry, Lasting::Inline(value.to_vec()))
            }
            Entry::Until(expiry, Lasting::Pointer { at, value_len }) => {
                OwnedEntry::Until(expiry, Lasting::Pointer { at, value_len })
            }
        }
    }

    /// The same pair, expiring at `expiry` or never. A tombstone stays one.
    #[must_use]
    pub const fn until(self, expiry: Option<Moment>) -> Self {
        match (self.lasting(), expiry) {
            (Entry::Inline(value), Some(expiry)) => Entry::Until(expiry, Lasting::Inline(value)),
            (Entry::Pointer { at, value_len }, Some(expiry)) => {
                Entry::Until(expiry, Lasting::Pointer { at, value_len })
            }
            (entry, _) => entry,
        }
    }

    /// The same pair, without expiry.
    #[inline]
    #[must_use]
    pub const fn lasting(self) -> Self {
        match self {
            Entry::Until(_, Lasting::Inline(value)) => Entry::Inline(value),
            Entry::Until(_, Lasting::Pointer { at, value_len }) => Entry::Pointer { at, value_len },
            entry => entry,
        }
    }

    /// Bytes of the value, if there is one.
    #[must_use]
    pub const fn value_len(&self) -> Option<usize> {
        match self.lasting() {
            Entry::Inline(value) => Some(value.len()),
            Entry::Pointer { value_len, .. } => Some(value_len as usize),
            Entry::Tombstone | Entry::Until(..) => None,
        }
    }

    /// When the pair expires, if it does.
    #[inline]
    #[must_use]
    pub const fn expiry(&self) -> Option<Moment> {
        match self {
            Entry::Until(expiry, _) => Some(*expiry),
            _ => None,
        }
    }

    /// Whether the pair has expired at `now`.
    #[inline]
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        self.expiry().is_some_and(|expiry| expiry <= now)
    }

    /// Where the value lies in a log, and how long it is, if it does.
    #[inline]
    #[must_use]
    pub const fn pointer(&self) -> Option<(Pointer, u32)> {
        match *self {
            Entry::Pointer { at, value_len }
            | Entry::Until(_, Lasting::Pointer { at, value_len }) => Some((at, value_len)),
            _ => None,
        }
    }

    /// The same pair, with its value at another place of a log.
    #[inline]
    #[must_use]
    pub const fn moved_to(self, at: Pointer) -> Entry<'a> {
        match self {
            Entry::Pointer { value_len, .. } => Entry::Pointer { at, value_len },
            Entry::Until(expiry, Lasting::Pointer { value_len, .. }) => {
                Entry::Until(expiry, Lasting::Pointer { at, value_len })
            }
            entry => entry,
        }
    }
}

/// An [`Entry`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedEntry {
    /// The value itself.
    Inline(Vec<u8>),
    /// The value lies in a log.
    Pointer {
        /// Where its record begins.
        at: Pointer,
        /// Bytes of the value, without key and record header.
        value_len: u32,
    },
    /// The key is not bound, and hides what older sources bind it to.
    Tombstone,
    /// See [`Entry::Until`].
    Until(Moment, Lasting<Vec<u8>>),
}

impl OwnedEntry {
    /// When the pair expires, if it does.
    #[inline]
    #[must_use]
    pub const fn expiry(&self) -> Option<Moment> {
        match self {
            Self::Until(expiry, _) => Some(*expiry),
            _ => None,
        }
    }

    /// Where the value lies in a log, if it does.
    #[inline]
    pub const fn pointer_mut(&mut self) -> Option<&mut Pointer> {
        match self {
            Self::Pointer { at, .. } | Self::Until(_, Lasting::Pointer { at, .. }) => Some(at),
            _ => None,
        }
    }

    /// The entry, borrowed.
    #[must_use]
    pub fn as_entry(&self) -> Entry<'_> {
        match self {
            Self::Inline(value) => Entry::Inline(value),
            Self::Pointer { at, value_len } => Entry::Pointer {
                at: *at,
                value_len: *value_len,
            },
            Self::Tombstone => Entry::Tombstone,
            Self::Until(expiry, Lasting::Inline(value)) => {
                Entry::Until(*expiry, Lasting::Inline(value))
            }
            Self::Until(expiry, Lasting::Pointer { at, value_len }) => {
                let (at, value_len) = (*at, *value_len);
                Entry::Until(*expiry, Lasting::Pointer { at, value_len })
            }
        }
    }
}

/// Why a level segment could not be read. Variants differ in what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LevelError {
    /// The bytes are not those that were written. Fetch the segment from another member.
    #[error("{segment}, byte {offset}: {what}")]
    Corrupt {
        /// The damaged segment.
        segment: SegmentNumber,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The segment was written by a version of Argosy that this one does not know. Upgrade.
    #[error("{segment} has format {version}; this version reads format {known}", known = format::VERSION)]
    UnknownVersion {
        /// The segment.
        segment: SegmentNumber,
        /// Its format.
        version: u32,
    },
    /// The device failed; see the error's own remedy.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<LevelError> for EngineError {
    fn from(error: LevelError) -> Self {
        match error {
            LevelError::Corrupt {
                segment,
                offset,
                what,
            } => Self::Corrupt {
                segment,
                offset,
                what,
            },
            LevelError::Device(error) => Self::Device(error),
            unknown @ LevelError::UnknownVersion { .. } => Self::Device(DeviceError::Unusable {
                path: "level segment".to_owned(),
                what: unknown.to_string(),
            }),
        }
    }
}

/// Where a segment's bytes come from: a device, through a member's segment table, or memory.
pub trait ReadAt {
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
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        (**self).read_at(offset, out)
    }

    fn begin_read(&self, offset: u32, bytes: Buffer) -> BegunRead {
        (**self).begin_read(offset, bytes)
    }
}

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree_tests;
