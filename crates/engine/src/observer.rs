//! What an engine tells whoever keeps other copies of its region.
//!
//! Order, for one region: calls arrive in the order of the history they describe. `appended` and
//! `flush` come under the engine's writer lock, `segment_built` and `edit_committed` from its
//! background steps; none of them may block or call back into the engine's writer.

use std::sync::Arc;

use argosy_base::{DeviceSegment, EditSeq, FlushRange, LogId, Lsn, SegmentNumber};
use argosy_device::Buffer;

/// How far a log has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Which log.
    pub log: LogId,
    /// The segment's place in the chain of the log.
    pub ordinal: u64,
    /// The log segment.
    pub segment: SegmentNumber,
    /// Behind the last byte written, padding included.
    pub end: u32,
}

/// A segment that is finished and will never change.
#[derive(Clone, Debug)]
pub struct SealedSegment {
    /// Its logical number.
    pub number: SegmentNumber,
    /// Its bytes, whole blocks.
    pub bytes: Arc<Buffer>,
    /// The checksum of all its bytes, as the version edit states it.
    pub checksum: u32,
    /// Where it lies on this member's device: what pointers to it hold in
    /// [`AddressMode::Rewrite`](argosy_base::AddressMode).
    pub place: DeviceSegment,
}

/// A version edit that is durable on this member.
#[derive(Clone, Debug)]
pub struct EditNotice {
    /// Its place in the manifest.
    pub seq: EditSeq,
    /// The edit, encoded.
    pub bytes: Arc<[u8]>,
    /// Where the log segments that it adds, and that levels may point into, lie on this member's
    /// device; empty unless pointers hold places.
    pub log_places: Arc<[(SegmentNumber, DeviceSegment)]>,
}

/// Hears of everything that another copy of the region needs.
pub trait Observer: Send + Sync {
    /// Bytes were written to this member's windows of a log, up to `end`, and `last` is the highest
    /// LSN written so far. Called once a whole group of records is there (a batch, or a value in
    /// chunks; once for each log that it touched), and after padding, before `flush`.
    fn appended(&self, end: LogEnd, last: Lsn);

    /// `range` is sealed by padding and is being made durable here; every other member has to do
    /// the same. The engine reuses the window only after
    /// [`flushed_everywhere`](crate::Source::flushed_everywhere).
    fn flush(&self, range: FlushRange);

    /// A compaction finished a segment. Returns whether it was taken: where it was not, for want
    /// of room, the engine holds its compaction and offers the segment again in a later step.
    fn segment_built(&self, segment: &SealedSegment) -> bool;

    /// An edit has become durable in this member's manifest.
    fn edit_committed(&self, edit: &EditNotice);
}
