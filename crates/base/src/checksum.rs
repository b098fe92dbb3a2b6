//! The checksum of everything that is stored or sent: CRC-32C, seeded with the identity of what it
//! covers, so that a block that is intact but *stale* or *misplaced* is found as surely as a
//! damaged one (invariant I2).
//!
//! ```text
//! identity := kind: u8  zero: [u8; 3]  region: u32  segment: u64  epoch: u32  offset: u32
//! checksum := crc32c(identity bytes ++ covered bytes)
//! ```

#[cfg(debug_assertions)]
use core::sync::atomic::{AtomicBool, Ordering};

use crate::ids::{Epoch, RegionId, SegmentNumber};

/// What a checksum covers. DO NOT CHANGE THE VALUES: they are part of stored checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A superblock copy.
    Superblock = 1,
    /// A copy of the catalog.
    Catalog = 2,
    /// A manifest record.
    Manifest = 3,
    /// A log segment's header.
    LogHeader = 4,
    /// A log record.
    LogRecord = 5,
    /// A leaf of a level.
    Leaf = 6,
    /// The index of a level segment.
    Index = 7,
    /// The filter of a level segment.
    Filter = 8,
    /// The footer of a level segment.
    Footer = 9,
    /// A whole segment, as it is shipped.
    Segment = 10,
    /// The header of a log window.
    Window = 11,
    /// A message between servers.
    Message = 12,
    /// A file of the coordinator.
    Coordinator = 13,
    /// A message between a client and a server.
    Client = 14,
    /// A value in a medium segment, with its key in front.
    Medium = 15,
    /// The mark of a copy that is whole.
    Whole = 16,
    /// The record that a server has stopped and owes nothing.
    Stopped = 17,
}

/// What a checksummed range of bytes is, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What the bytes are.
    pub kind: Kind,
    /// The region that owns them; 0 where no region does.
    pub region: RegionId,
    /// The segment they lie in; 0 where there is none.
    pub segment: SegmentNumber,
    /// The epoch that wrote them; 0 where there is none.
    pub epoch: Epoch,
    /// Where in the segment they begin, in bytes.
    pub offset: u32,
}

impl Identity {
    /// The identity of something that belongs to no region, such as a superblock, at `offset`.
    #[must_use]
    pub const fn of_server(kind: Kind, offset: u32) -> Self {
        Self {
            kind,
            region: RegionId(0),
            segment: SegmentNumber(0),
            epoch: Epoch(0),
            offset,
        }
    }

    /// The same identity at another offset of the same segment.
    #[inline]
    #[must_use]
    pub const fn at(self, offset: u32) -> Self {
        Self { offset, ..self }
    }

    /// The state of the checksum after the identity, before the bytes. Compute it once where many
    /// checksums differ only in what follows.
    #[inline]
    #[must_use]
    pub fn seed(&self) -> u32 {
        if left_out() {
            return 0;
        }
        crc32c::crc32c(&self.encoded())
    }

    #[inline]
    fn encoded(&self) -> [u8; IDENTITY_BYTES] {
        let mut bytes = [0; IDENTITY_BYTES];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.region.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.segment.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// The checksum of `bytes` under this identity.
    #[inline]
    #[must_use]
    pub fn checksum(&self, bytes: &[u8]) -> u32 {
        extend(self.seed(), bytes)
    }

    /// The checksum of `parts`, one behind the other, under this identity. For what is short and has
    /// several: they are put together first, since a part costs about as much as its bytes do.
    #[inline]
    #[must_use]
    pub fn checksum_of<'a>(&self, parts: impl Iterator<Item = &'a [u8]> + Clone) -> u32 {
        let len: usize = parts.clone().map(<[u8]>::len).sum();
        if IDENTITY_BYTES + len > GATHERED_BYTES || left_out() {
            return parts.fold(self.seed(), extend);
        }
        let mut gathered = Gathered([0; GATHERED_BYTES]);
        let (identity, mut room) = gathered.0.split_at_mut(IDENTITY_BYTES);
        identity.copy_from_slice(&self.encoded());
        for part in parts {
            let (to, left) = room.split_at_mut(part.len());
            to.copy_from_slice(part);
            room = left;
        }
        crc32c::crc32c(&gathered.0[..IDENTITY_BYTES + len])
    }
}

/// Bytes of an identity in front of what it is the identity of.
const IDENTITY_BYTES: usize = 24;
/// Most bytes of identity and parts that are put together.
const GATHERED_BYTES: usize = 128;

/// Aligned as the checksum takes its bytes, eight at a time.
#[repr(align(8))]
struct Gathered([u8; GATHERED_BYTES]);

/// Continues checksum `state` over `bytes`.
#[inline]
#[must_use]
pub fn extend(state: u32, bytes: &[u8]) -> u32 {
    if left_out() {
        return 0;
    }
    crc32c::crc32c_append(state, bytes)
}

/// See [`leave_out`].
#[cfg(debug_assertions)]
static LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// From now on every checksum of this process is 0: for fuzzing alone, where nothing would get past them. What is
/// built without debug assertions, as release builds are, does not have this.
#[doc(hidden)]
#[cfg(debug_assertions)]
pub fn leave_out() {
    LEFT_OUT.store(true, Ordering::Relaxed);
}

#[cfg(debug_assertions)]
#[inline]
fn left_out() -> bool {
    LEFT_OUT.load(Ordering::Relaxed)
}

#[cfg(not(debug_assertions))]
#[inline]
const fn left_out() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Identity = Identity {
        kind: Kind::Leaf,
        region: RegionId(1),
        segment: SegmentNumber(2),
        epoch: Epoch(3),
        offset: 4,
    };

    #[test]
    fn parts_make_the_checksum_of_the_whole() {
        let bytes: [u8; 300] =
            core::array::from_fn(|at| u8::try_from(at * 7 % 251).expect("below"));
        for len in 0..bytes.len() {
            let whole = HERE.checksum(&bytes[..len]);
            for cut in [0, 1, len / 3, len] {
                let cut = cut.min(len);
                let parts = [&bytes[..cut], &[], &bytes[cut..len]];
                assert_eq!(HERE.checksum_of(parts.into_iter()), whole, "{len}, {cut}");
            }
        }
    }

    #[test]
    fn each_part_of_the_identity_counts() {
        let sum = HERE.checksum(b"bytes");
        let others = [
            Identity {
                kind: Kind::Index,
                ..HERE
            },
            Identity {
                region: RegionId(9),
                ..HERE
            },
            Identity {
                segment: SegmentNumber(9),
                ..HERE
            },
            Identity {
                epoch: Epoch(9),
                ..HERE
            },
            HERE.at(9),
        ];
        for other in others {
            assert_ne!(other.checksum(b"bytes"), sum, "{other:?}");
        }
    }

    #[test]
    fn a_checksum_can_be_continued() {
        let whole = HERE.checksum(b"some bytes");
        assert_eq!(extend(HERE.checksum(b"some "), b"bytes"), whole);
    }

    /// The values are stored: a change would make every existing file unreadable.
    #[test]
    fn checksums_never_change() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(HERE.checksum(b""), HERE.seed());
    }
}
