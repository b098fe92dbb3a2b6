//! The windows of one log in shared memory, for its writer and for concurrent readers.
//!
//! A slot has a *tag*: which of the log's windows it holds. The writer takes a slot over in steps:
//!
//! ```text
//! writer (one thread at a time)            reader
//! 1. tag := none, fence                    a. tag == mine, else not here
//! 2. header of the new window              b. copy the bytes, fence
//! 3. tag := the new window                 c. tag == mine, else not here
//! 4. its records, one behind the other     d. verify the record's checksum
//! ```
//!
//! The fences order (1 before 2) against (b before c): what a reader gets is of one window. Where
//! it is not there (any more), the device has it, since a slot is taken over only then. A reader
//! that asks for bytes which are just being appended may find part of them: it verifies (I2).

use std::ops::Range;
use std::sync::Arc;

use argosy_base::{LogId, RegionId};

use super::segment::{
    Geometry, HEADER_BYTES, WINDOW_HEADER_BYTES, WindowName, Writer, decode_window_header,
    encode_window_header,
};
use super::sync::{AtomicU64, Ordering, SharedMemory, fence};
use crate::chain::LogSegment;

/// The tag of a slot that holds nothing that can be read.
const NONE: u64 = u64::MAX;

/// See the module documentation.
pub struct LogWindows {
    region: RegionId,
    log: LogId,
    geometry: Geometry,
    slots: Vec<Slot>,
}

struct Slot {
    memory: Arc<SharedMemory>,
    /// The log-wide number of the window, or [`NONE`].
    tag: AtomicU64,
}

impl LogWindows {
    /// The windows of `log` of `region`, none of which holds anything yet. One memory of
    /// [`Geometry::slot_bytes`] for each of [`Geometry::slots`].
    ///
    /// # Panics
    /// When there are more or fewer memories, or one has another size.
    #[must_use]
    pub fn new(
        region: RegionId,
        log: LogId,
        geometry: Geometry,
        slots: Vec<Arc<SharedMemory>>,
    ) -> Self {
        assert_eq!(slots.len(), geometry.slots(), "a memory for each slot");
        for memory in &slots {
            assert!(memory.len() >= geometry.slot_bytes(), "a window fits");
        }
        let slot = |memory| Slot {
            memory,
            tag: AtomicU64::new(NONE),
        };
        Self {
            region,
            log,
            geometry,
            slots: slots.into_iter().map(slot).collect(),
        }
    }

    /// These windows as someone else has written them: what they hold of the segments of `chain`
    /// can be read, while nobody enters a window here. Whoever reads verifies, as always.
    #[must_use]
    pub fn as_found(self, chain: impl IntoIterator<Item = LogSegment>) -> Self {
        let chain: Vec<_> = chain.into_iter().collect();
        for slot in &self.slots {
            let header = slot.memory.read_vec(0, HEADER_BYTES);
            let Ok((name, _)) = decode_window_header(&header) else {
                continue;
            };
            let is_of =
                |segment: &&LogSegment| WindowName::new(self.region, segment, name.index) == name;
            if let Some(segment) = chain.iter().find(is_of) {
                let window = self.geometry.window_number(segment.ordinal, name.index);
                slot.tag.store(window, Ordering::Relaxed);
            }
        }
        self
    }

    /// The region.
    #[must_use]
    pub const fn region(&self) -> RegionId {
        self.region
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> LogId {
        self.log
    }

    /// How the log is cut into windows.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The memory of slot `slot`, header block first.
    #[must_use]
    pub fn memory(&self, slot: usize) -> &Arc<SharedMemory> {
        &self.slots[slot].memory
    }

    /// Copies bytes of `segment` from `offset` on, if the window that has them is in memory; they
    /// must lie in one window. Returns whether it was; `out` means nothing otherwise.
    #[must_use]
    pub fn read(&self, segment: &LogSegment, offset: u32, out: &mut [u8]) -> bool {
        let (slot, at, window) = self.place(segment, offset, out.len());
        if slot.tag.load(Ordering::Acquire) != window {
            return false;
        }
        slot.memory.read(at, out);
        // Pairs with the fence in `enter`.
        fence(Ordering::Acquire);
        slot.tag.load(Ordering::Relaxed) == window
    }

    /// Whether the window that has byte `offset` of `segment` is in memory at this moment.
    #[must_use]
    pub fn has(&self, segment: &LogSegment, offset: u32) -> bool {
        let (slot, _, window) = self.place(segment, offset, 0);
        slot.tag.load(Ordering::Relaxed) == window
    }

    /// Makes window `index` of `segment` the one that its slot holds: from now on it is written.
    pub(super) fn enter(&self, segment: &LogSegment, index: u32, writer: Writer) {
        let slot = &self.slots[self.geometry.slot(segment.ordinal, index)];
        let window = self.geometry.window_number(segment.ordinal, index);
        slot.tag.store(NONE, Ordering::Relaxed);
        // Pairs with the fence in `read`.
        fence(Ordering::Release);
        let header = encode_window_header(self.region, segment, index, writer);
        slot.memory.write(0, &header);
        slot.memory.fill_zero(header.len()..WINDOW_HEADER_BYTES);
        // Pairs with the load in `read`.
        slot.tag.store(window, Ordering::Release);
    }

    /// Writes bytes of `segment` at `offset`; the window has been entered and has room for them.
    #[inline]
    pub(super) fn write(&self, segment: &LogSegment, offset: u32, bytes: &[u8]) {
        let (slot, at, window) = self.place(segment, offset, bytes.len());
        assert_eq!(slot.tag.load(Ordering::Relaxed), window, "entered before");
        slot.memory.write(at, bytes);
    }

    /// Pads bytes of `segment` with zeros; the window has been entered and has them.
    pub(super) fn pad(&self, segment: &LogSegment, range: Range<u32>) {
        let len = (range.end - range.start) as usize;
        let (slot, at, window) = self.place(segment, range.start, len);
        assert_eq!(slot.tag.load(Ordering::Relaxed), window, "entered before");
        slot.memory.fill_zero(at..at + len);
    }

    /// The slot of a byte, where in its memory the byte lies, and the window's number.
    #[inline]
    fn place(&self, segment: &LogSegment, offset: u32, len: usize) -> (&Slot, usize, u64) {
        assert_eq!(segment.log, self.log, "each log has windows of its own");
        let index = self.geometry.window_index(offset);
        let within = (offset % self.geometry.window_bytes()) as usize;
        assert!(
            within + len <= self.geometry.window_bytes() as usize,
            "nothing crosses the end of a window"
        );
        let window = self.geometry.window_number(segment.ordinal, index);
        let slot = &self.slots[self.geometry.slot_of(window)];
        (slot, WINDOW_HEADER_BYTES + within, window)
    }
}
