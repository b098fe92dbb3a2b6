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
//!
//! A log that nobody writes to *rests*: no slot holds anything, and the memory of all is released. A log that
//! continues inside of a window enters that window a second time, and the slot then *keeps* the bytes from there on
//! alone. A tag therefore also says how often the log has rested: a reader that was overtaken by a rest finds another
//! tag.

use std::ops::Range;
use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{LogId, RegionId};
use argosy_memory::MemoryError;

use super::segment::{
    Geometry, HEADER_BYTES, WINDOW_HEADER_BYTES, WindowName, Writer, decode_window_header,
    encode_window_header,
};
use super::sync::{AtomicU64, Ordering, SharedMemory, fence};
use crate::chain::LogSegment;

/// The tag of a slot that holds nothing that can be read.
const NONE: u64 = u64::MAX;

/// The low bits of a tag: how often the log has rested. The others are the window's number.
const RESTS_BITS: u32 = 16;

/// See the module documentation.
pub struct LogWindows {
    region: RegionId,
    log: LogId,
    geometry: Geometry,
    slots: Vec<Slot>,
    /// How often the log has rested. Only the writer changes it.
    rests: AtomicU64,
}

struct Slot {
    memory: Arc<SharedMemory>,
    /// The log-wide number of the window and the count of rests, or [`NONE`].
    tag: AtomicU64,
    /// The byte of the slot's memory in front of which it has nothing of the window.
    kept: AtomicU64,
}

impl Slot {
    /// Whether the slot, tagged `tag`, has byte `at` of its memory of the log's window `window`.
    #[inline]
    fn has(&self, tag: u64, window: u64, at: usize) -> bool {
        tag != NONE && tag >> RESTS_BITS == window && at as u64 >= self.kept.load(Ordering::Relaxed)
    }
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
            kept: AtomicU64::new(0),
        };
        Self {
            region,
            log,
            geometry,
            slots: slots.into_iter().map(slot).collect(),
            rests: AtomicU64::new(0),
        }
    }

    /// These windows as someone else has written them: what they hold of the segments of `chain`
    /// can be read, while nobody enters a window here. Whoever reads verifies, as always.
    #[must_use]
    pub fn as_found(self, chain: impl IntoIterator<Item = LogSegment>) -> Self {
        let chain: Vec<_> = chain.into_iter().collect();
        for slot in &self.slots {
            let header = slot.memory.peek(0, HEADER_BYTES);
            let Ok((name, _)) = decode_window_header(&header) else {
                continue;
            };
            let is_of =
                |segment: &&LogSegment| WindowName::new(self.region, segment, name.index) == name;
            if let Some(segment) = chain.iter().find(is_of) {
                let window = self.geometry.window_number(segment.ordinal, name.index);
                slot.kept.store(self.first_kept(slot), Ordering::Relaxed);
                slot.tag.store(self.tag(window), Ordering::Relaxed);
            }
        }
        self
    }

    /// The first block of a slot that is not all zeros: those in front of it have been taken by a rest.
    fn first_kept(&self, slot: &Slot) -> u64 {
        let bytes = slot.memory.peek(0, self.geometry.slot_bytes());
        let blocks = (WINDOW_HEADER_BYTES..bytes.len()).step_by(BLOCK_SIZE);
        let mut written =
            blocks.filter(|at| bytes[*at..][..BLOCK_SIZE].iter().any(|byte| *byte != 0));
        written.next().map_or(0, |at| at as u64)
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
        let tag = slot.tag.load(Ordering::Acquire);
        if !slot.has(tag, window, at) {
            return false;
        }
        slot.memory.read(at, out);
        // Pairs with the fences in `enter` and `release`.
        fence(Ordering::Acquire);
        slot.tag.load(Ordering::Relaxed) == tag
    }

    /// Whether the window that has byte `offset` of `segment` is in memory at this moment.
    #[must_use]
    pub fn has(&self, segment: &LogSegment, offset: u32) -> bool {
        let (slot, at, window) = self.place(segment, offset, 0);
        slot.has(slot.tag.load(Ordering::Relaxed), window, at)
    }

    /// Whether the window of byte `offset` of `segment` was entered at that byte, behind its first: whoever writes it
    /// elsewhere has to enter it there, too.
    pub(crate) fn resumes_at(&self, segment: &LogSegment, offset: u32) -> bool {
        let (slot, at, window) = self.place(segment, offset, 0);
        let tag = slot.tag.load(Ordering::Acquire);
        slot.has(tag, window, at) && slot.kept.load(Ordering::Relaxed) == at as u64
    }

    /// Makes the window of byte `from` of `segment` the one that its slot holds, from that byte on: from now on it is
    /// written.
    pub(super) fn enter(&self, segment: &LogSegment, from: u32, writer: Writer) {
        let (slot, at, window) = self.place(segment, from, 0);
        slot.tag.store(NONE, Ordering::Relaxed);
        // Pairs with the fence in `read`.
        fence(Ordering::Release);
        let index = self.geometry.window_index(from);
        let header = encode_window_header(self.region, segment, index, writer);
        slot.memory.write(0, &header);
        slot.memory.fill_zero(header.len()..WINDOW_HEADER_BYTES);
        let kept = match at {
            WINDOW_HEADER_BYTES => 0,
            _ => at as u64,
        };
        slot.kept.store(kept, Ordering::Relaxed);
        // Pairs with the load in `read`.
        slot.tag.store(self.tag(window), Ordering::Release);
    }

    /// Gives back the memory of all slots, which hold nothing any more. Only the writer calls it, when the device has
    /// all of the log, here and everywhere. A slot whose memory the system does not take back keeps it.
    pub fn release(&self) {
        let rests = self.rests.load(Ordering::Relaxed);
        self.rests.store(rests + 1, Ordering::Relaxed);
        for slot in &self.slots {
            slot.tag.store(NONE, Ordering::Relaxed);
        }
        // Pairs with the fence in `read`.
        fence(Ordering::Release);
        for slot in &self.slots {
            let _ = slot.memory.release();
        }
    }

    /// Takes memory for all slots again.
    ///
    /// # Errors
    /// Where there is no room, or the system refuses: then some have none.
    pub(super) fn allocate(&self) -> Result<(), MemoryError> {
        self.slots
            .iter()
            .try_for_each(|slot| slot.memory.allocate())
    }

    /// Writes bytes of `segment` at `offset`; the window has been entered and has room for them.
    #[inline]
    pub(super) fn write(&self, segment: &LogSegment, offset: u32, bytes: &[u8]) {
        let (slot, at, window) = self.place(segment, offset, bytes.len());
        assert_eq!(
            slot.tag.load(Ordering::Relaxed),
            self.tag(window),
            "entered before"
        );
        slot.memory.write(at, bytes);
    }

    /// Pads bytes of `segment` with zeros; the window has been entered and has them.
    pub(super) fn pad(&self, segment: &LogSegment, range: Range<u32>) {
        let len = (range.end - range.start) as usize;
        let (slot, at, window) = self.place(segment, range.start, len);
        assert_eq!(
            slot.tag.load(Ordering::Relaxed),
            self.tag(window),
            "entered before"
        );
        slot.memory.fill_zero(at..at + len);
    }

    /// The tag of a slot that holds the window with this log-wide number.
    #[inline]
    fn tag(&self, window: u64) -> u64 {
        let rests = self.rests.load(Ordering::Relaxed) & ((1 << RESTS_BITS) - 1);
        window << RESTS_BITS | rests
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
