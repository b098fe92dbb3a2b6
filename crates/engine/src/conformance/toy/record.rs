//! What the toy keeps: groups of operations, and how bytes are sealed.
//!
//! ```text
//! sealed := checksum: u32  len: u32  body[len]               the checksum is that of len and body, under an identity
//! group  := lsn: varint  time: varint  count: varint  op[count]       time 0: it tells none; ops as on the wire
//! ```
//!
//! In a segment of the log groups are sealed under the identity of a log record at their byte: what an earlier owner
//! left there is none (I2). A group begins right behind the one before it, or, where a flush came between, at the next
//! block. Where neither place has one, the segment ends. A group lies in one segment. Its first operation has its LSN,
//! each further one the next.

use argosy_base::codec::{Malformed, Reader, put_varint};
use argosy_base::limits::{BATCH_PAIRS_MAX, BLOCK_SIZE};
use argosy_base::ops::{put_op, read_op};
use argosy_base::{Identity, Kind, Lsn, Moment, RegionId, WriteBatch};

use super::edit::RingSegment;

/// Bytes in front of those that are sealed.
pub(super) const SEAL_BYTES: usize = 8;

/// `body`, sealed.
pub(super) fn seal(identity: Identity, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("less than a segment");
    let len = len.to_le_bytes();
    let checksum = identity.checksum_of([&len[..], body].into_iter());
    [&checksum.to_le_bytes()[..], &len, body].concat()
}

/// The body that `bytes` begin with, if it is whole.
pub(super) fn unseal(identity: Identity, bytes: &[u8]) -> Option<&[u8]> {
    let mut from = Reader::new("sealed", bytes);
    let (checksum, len) = (from.u32().ok()?, from.u32().ok()?);
    let body = from.take(len as usize).ok()?;
    (identity.checksum(&bytes[4..SEAL_BYTES + body.len()]) == checksum).then_some(body)
}

/// Operations that take effect together, and the region's time where it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// The LSN of its first operation.
    pub(super) first: Lsn,
    pub(super) time: Moment,
    pub(super) ops: WriteBatch,
}

impl Logged {
    /// The LSN of its last operation.
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.first.0 + (self.ops.len() as u64).max(1) - 1)
    }

    /// Appends its bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let head = [self.first.0, self.time.0, self.ops.len() as u64];
        head.into_iter().for_each(|number| put_varint(out, number));
        self.ops.ops().for_each(|op| put_op(&op, out));
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (first, time) = (Lsn(from.varint()?), Moment(from.varint()?));
        let mut ops = WriteBatch::new();
        for _ in 0..from.length(BATCH_PAIRS_MAX)? {
            let kind = from.u8()?;
            let added = ops.add_any(&read_op(kind, from)?);
            added.map_err(|_| from.malformed())?;
        }
        Ok(Self { first, time, ops })
    }
}

/// The identity of what begins at byte `at` of `segment`.
pub(super) fn identity(region: RegionId, segment: &RingSegment, at: usize) -> Identity {
    Identity {
        kind: Kind::LogRecord,
        region,
        segment: segment.number,
        epoch: segment.epoch,
        offset: u32::try_from(at).expect("a byte of a segment"),
    }
}

/// The groups of `segment`, which begins with `bytes`, each with the byte behind it.
pub(super) fn groups<'a>(
    region: RegionId,
    segment: &'a RingSegment,
    bytes: &'a [u8],
) -> impl Iterator<Item = (Logged, usize)> + use<'a> {
    let mut at = 0_usize;
    std::iter::from_fn(move || {
        let places = [at, at.next_multiple_of(BLOCK_SIZE)];
        let found = places.into_iter().find_map(|at| {
            let body = unseal(identity(region, segment, at), bytes.get(at..)?)?;
            Some((body, at + SEAL_BYTES + body.len()))
        });
        let (body, end) = found?;
        at = end;
        let group = Logged::read(&mut Reader::new("toy group", body)).ok()?;
        Some((group, end))
    })
}
