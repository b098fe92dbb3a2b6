//! What a scan reads: a chain, the windows that survived, and how much of it the device may have.

use std::sync::Arc;

use argosy_base::RegionId;
use argosy_memory::SharedMemory;

use super::super::segment::{
    BLOCK_BYTES, Geometry, SEGMENT_HEADER_BYTES, WindowName, decode_window_header,
};
use crate::chain::{LogPoint, LogSegment};

/// All of a segment may be on the device: for whoever does not know what was written of it. Whoever does says how many
/// bytes that are, from its beginning: those behind read as zeros, and are not read.
#[must_use]
pub fn whole(_: &LogSegment) -> u32 {
    u32::MAX
}

/// What a scan needs to know of its log.
#[derive(Clone, Copy)]
pub(in super::super) struct Source<'a> {
    pub(in super::super) region: RegionId,
    pub(in super::super) geometry: Geometry,
    pub(in super::super) chain: &'a [LogSegment],
    pub(in super::super) slots: &'a [Option<Arc<SharedMemory>>],
    /// The log points of segments that are not sealed, as far as there are any.
    pub(in super::super) points: &'a [LogPoint],
    /// How much of a segment the device may have: see [`whole`].
    pub(in super::super) written: &'a dyn Fn(&LogSegment) -> u32,
}

impl Source<'_> {
    /// All bytes of `segment` below this offset are known to be durable.
    pub(super) fn durable(&self, segment: &LogSegment) -> u32 {
        let known = |point: &&LogPoint| point.number == segment.number;
        let point = self.points.iter().find(known).map_or(0, |point| point.to);
        segment.end.unwrap_or(point)
    }

    /// Where on the device the bytes of `segment` end that may be other than zero: a whole block.
    pub(super) fn written_up_to(&self, segment: &LogSegment) -> u32 {
        let written = (self.written)(segment).min(self.geometry.segment_bytes());
        written.next_multiple_of(BLOCK_BYTES)
    }

    /// The memory of window `index` of `segment`, if it holds that window.
    pub(super) fn memory_of(&self, segment: &LogSegment, index: u32) -> Option<&Arc<SharedMemory>> {
        let geometry = self.geometry;
        let slot = geometry.slot(segment.ordinal, index);
        let memory = self.slots.get(slot)?.as_ref()?;
        if memory.len() < geometry.slot_bytes() {
            return None;
        }
        let header = memory.peek(0, SEGMENT_HEADER_BYTES as usize);
        let (name, _) = decode_window_header(&header).ok()?;
        (name == WindowName::new(self.region, segment, index)).then_some(memory)
    }
}
