//! What a scan reads: a chain, the windows that survived, and how much of it the device may have.

use std::sync::Arc;

use argosy_base::RegionId;
use argosy_memory::SharedMemory;

use super::super::segment::{Geometry, SEGMENT_HEADER_BYTES, WindowName, decode_window_header};
use crate::chain::{LogPoint, LogSegment};

/// What a scan needs to know of its log.
#[derive(Clone, Copy)]
pub(in super::super) struct Source<'a> {
    pub(in super::super) region: RegionId,
    pub(in super::super) geometry: Geometry,
    pub(in super::super) chain: &'a [LogSegment],
    pub(in super::super) slots: &'a [Option<Arc<SharedMemory>>],
    /// The log points of segments that are not sealed, as far as there are any.
    pub(in super::super) points: &'a [LogPoint],
    /// As [`Recovery::written`](super::super::recover::Recovery::written).
    pub(in super::super) written: &'a dyn Fn(&LogSegment) -> u32,
}

impl Source<'_> {
    /// All bytes of `segment` below this offset are known to be durable.
    pub(super) fn durable(&self, segment: &LogSegment) -> u32 {
        let known = |point: &&LogPoint| point.number == segment.number;
        let point = self.points.iter().find(known).map_or(0, |point| point.to);
        segment.end.unwrap_or(point)
    }

    /// Bytes of `segment`, from its beginning, that may be other than zero on the device.
    pub(super) fn written_up_to(&self, segment: &LogSegment) -> u32 {
        (self.written)(segment).min(self.geometry.segment_bytes())
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
