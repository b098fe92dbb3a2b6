//! A region's segment on this member's device: number, place, and a reference that keeps the place.
//!
//! A [`StoredSegment`] is shared by every version, snapshot, scan and shipment that may still read
//! it. When the last of them lets go, the reference is dropped and the store frees the space (I1);
//! a write that is still under way then keeps the space by itself until it has ended.
//!
//! It also remembers the writes that were begun through it, so that whoever commits an edit can
//! see whether all bytes of a segment have reached the device (I3).

pub(crate) mod fetch;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use argosy_base::{DeviceSegment, SegmentNumber};
use argosy_device::{BegunRead, Buffer, DeviceError, SegmentHandle, Store, Ticket};
use parking_lot::Mutex;

use crate::cache::flushed::FlushedParts;
use crate::cache::{COUNTERS_BYTES, CacheKey, NodeCache, Pin};
use crate::level::medium::PAGE_BYTES;
use crate::level::{ReadAt, SegmentReader};
use crate::names::{LevelError, SegmentName};

/// See the module documentation.
pub struct StoredSegment {
    number: SegmentNumber,
    place: DeviceSegment,
    store: Arc<Store>,
    /// `None` during a replay and after [`release_now`](Self::release_now).
    handle: Mutex<Option<SegmentHandle>>,
    /// Writes that were begun and not yet seen to have ended well.
    writes: Mutex<Vec<Ticket>>,
    /// Index and filter of a level segment, once they have been asked for and if they found room.
    reader: OnceLock<Pinned>,
    /// The pages of a medium segment that stayed in memory when it was built.
    pages: OnceLock<KeptPages>,
    /// What stays in memory of a log segment that was flushed.
    flushed: OnceLock<Arc<FlushedParts>>,
    /// An edit since the opening took keys of it away.
    cut: AtomicBool,
}

/// A reader that stays in memory as long as its segment.
struct Pinned {
    reader: Arc<SegmentReader>,
    /// What it takes of the cache's budget.
    room: Pin,
}

/// Pages of a medium segment that its build put into the cache.
struct KeptPages {
    cache: Arc<NodeCache>,
    name: SegmentName,
    /// Bytes of all pages.
    len: u32,
}

impl Drop for StoredSegment {
    /// A segment that is given away leaves neither leaves nor pages behind: their room is that of those to come.
    fn drop(&mut self) {
        if self.handle.get_mut().is_none() {
            return;
        }
        if let Some(Pinned { reader, room }) = self.reader.get() {
            for leaf in 0..reader.leaves() {
                room.cache().forget(CacheKey::leaf(reader.name(), leaf));
            }
        }
        if let Some(KeptPages { cache, name, len }) = self.pages.get() {
            for offset in (0..*len).step_by(PAGE_BYTES as usize) {
                cache.forget(CacheKey::page(*name, offset));
            }
        }
    }
}

impl ReadAt for StoredSegment {
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        Ok(self.read(offset, out)?)
    }

    fn begin_read(&self, offset: u32, bytes: Buffer) -> BegunRead {
        self.store.begin_read(self.place, offset, bytes)
    }
}

impl StoredSegment {
    /// Segment `number` in the place that `handle` keeps.
    #[must_use]
    pub fn new(number: SegmentNumber, store: Arc<Store>, handle: SegmentHandle) -> Arc<Self> {
        Arc::new(Self {
            number,
            place: handle.segment(),
            store,
            handle: Mutex::new(Some(handle)),
            writes: Mutex::default(),
            reader: OnceLock::new(),
            pages: OnceLock::new(),
            flushed: OnceLock::new(),
            cut: AtomicBool::new(false),
        })
    }

    /// Segment `number` in `place`, which nobody keeps yet: for a replay, which learns only at its
    /// end whether the segment is still there.
    pub(crate) fn unclaimed(
        number: SegmentNumber,
        store: Arc<Store>,
        place: DeviceSegment,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            place,
            store,
            handle: Mutex::default(),
            writes: Mutex::default(),
            reader: OnceLock::new(),
            pages: OnceLock::new(),
            flushed: OnceLock::new(),
            cut: AtomicBool::new(false),
        })
    }

    /// Keeps the place from now on.
    ///
    /// # Errors
    /// [`DeviceError::Corrupt`] where the device has no such place.
    pub(crate) fn claim(&self) -> Result<(), DeviceError> {
        let claimed = self.store.claim(self.place)?;
        let mut handle = self.handle.lock();
        *handle = Some(claimed);
        Ok(())
    }

    /// Its logical number.
    #[must_use]
    pub const fn number(&self) -> SegmentNumber {
        self.number
    }

    /// Its place on this member's device.
    #[must_use]
    pub const fn place(&self) -> DeviceSegment {
        self.place
    }

    /// The device's store, in which it is.
    pub(crate) const fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Whether the device has such a place for a region. One that was claimed has.
    #[must_use]
    pub fn is_on_device(&self) -> bool {
        self.place.0 != 0 && self.place.0 < self.store.total()
    }

    /// Reads its bytes from `offset` on; whole blocks. Blocks the calling thread.
    ///
    /// # Errors
    /// As the device's.
    pub fn read(&self, offset: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        self.store.read(self.place, offset, out)
    }

    /// Bytes of it, from its beginning, that may be other than zero: see [`Store::written_up_to`].
    #[must_use]
    pub fn written_up_to(&self) -> u32 {
        self.store.written_up_to(self.place)
    }

    /// Reads whole blocks at `offset` into memory of any alignment.
    pub(crate) fn read_copied(&self, offset: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        let mut blocks = Buffer::zeroed(out.len());
        self.read(offset, &mut blocks)?;
        out.copy_from_slice(&blocks);
        Ok(())
    }

    /// Begins to write bytes `range` of `data` at `offset`; whole blocks.
    pub fn write(&self, offset: u32, data: Arc<Buffer>, range: Range<usize>) -> Ticket {
        let ticket = self.store.submit_write(self.place, offset, data, range);
        let mut writes = self.writes.lock();
        writes.push(ticket.clone());
        ticket
    }

    /// Keeps `bytes`, which are written at `offset` out of a window of `window` bytes, in memory if `cache` has
    /// room for them.
    pub(crate) fn keep_flushed(
        &self,
        offset: u32,
        bytes: &Arc<Buffer>,
        window: u32,
        cache: &Arc<NodeCache>,
    ) {
        let parts = || Arc::new(FlushedParts::new(cache));
        self.flushed.get_or_init(parts).keep(offset, bytes, window);
    }

    /// Puts the pages of the medium segment `name`, whose bytes these are, into `cache`.
    pub(crate) fn keep_pages(&self, name: SegmentName, bytes: &[u8], cache: &Arc<NodeCache>) {
        let mut offset = 0;
        for page in bytes.chunks(PAGE_BYTES as usize) {
            // With the counters in front of it a whole page would take the allocator's next size.
            let (kept, end) = page.split_at(page.len() - COUNTERS_BYTES.min(page.len()));
            let page = if end.iter().all(|byte| *byte == 0) {
                kept
            } else {
                page
            };
            cache.keep_page(CacheKey::page(name, offset), page.into());
            offset += PAGE_BYTES;
        }
        let (cache, len) = (Arc::clone(cache), offset);
        self.pages.get_or_init(|| KeptPages { cache, name, len });
    }

    /// Whether byte `offset` of what was written is in memory.
    pub(crate) fn has_flushed(&self, offset: u32) -> bool {
        let parts = self.flushed.get();
        parts.is_some_and(|parts| parts.reach(offset, 1) > 0)
    }

    /// Copies what is in memory of what was written from `offset` on into the front of `out`: how many bytes that
    /// are.
    pub(crate) fn read_flushed(&self, offset: u32, out: &mut [u8]) -> usize {
        let parts = self.flushed.get();
        parts.map_or(0, |parts| parts.read(offset, out))
    }

    /// [`read`](Self::read), from memory where all of it is there.
    ///
    /// # Errors
    /// As the device's.
    pub(crate) fn read_nearest(&self, offset: u32, out: &mut [u8]) -> Result<(), DeviceError> {
        let parts = self.flushed.get();
        let there = parts.is_some_and(|parts| parts.reach(offset, out.len()) >= out.len());
        // What is there may leave in between.
        if there && self.read_flushed(offset, out) == out.len() {
            return Ok(());
        }
        self.read(offset, out)
    }

    /// Whether every write that was begun has ended: `None` while one is under way. That they are
    /// durable takes a sync that begins after this says so.
    ///
    /// # Errors
    /// That of a write that failed; it stays.
    pub fn settled(&self) -> Option<Result<(), DeviceError>> {
        let mut writes = self.writes.lock();
        let mut failed = None;
        writes.retain(|ticket| match ticket.poll() {
            Some(Ok(())) => false,
            Some(Err(error)) => {
                failed = Some(error);
                true
            }
            None => true,
        });
        match failed {
            Some(error) => Some(Err(error)),
            None if writes.is_empty() => Some(Ok(())),
            None => None,
        }
    }

    /// Blocks until every write that was begun has ended. For opening, closing and tools.
    ///
    /// # Errors
    /// That of a write that failed.
    pub fn wait(&self) -> Result<(), DeviceError> {
        let writes = self.writes.lock();
        let waiting = writes.clone();
        drop(writes);
        waiting
            .iter()
            .try_for_each(|ticket| self.store.wait(ticket))
    }

    /// The segment's reader: the pinned one, or else that which `cache` keeps under `key`, or else a
    /// new one by `open`. It is pinned from now on if there is room, and otherwise left to the cache.
    ///
    /// # Errors
    /// Those of `open`; the next call tries again.
    #[inline]
    pub fn reader<E>(
        &self,
        key: CacheKey,
        cache: &Arc<NodeCache>,
        open: impl FnOnce(&Self) -> Result<SegmentReader, E>,
    ) -> Result<Cow<'_, Arc<SegmentReader>>, E> {
        match self.pinned_reader() {
            Some(pinned) => Ok(Cow::Borrowed(pinned)),
            None => self.pinned_now(key, cache, open),
        }
    }

    /// [`reader`](Self::reader), where none is pinned. Apart from it, since most are, and this has a large frame.
    #[inline(never)]
    fn pinned_now<E>(
        &self,
        key: CacheKey,
        cache: &Arc<NodeCache>,
        open: impl FnOnce(&Self) -> Result<SegmentReader, E>,
    ) -> Result<Cow<'_, Arc<SegmentReader>>, E> {
        let (reader, is_new) = match cache.reader(key) {
            Some(reader) => (reader, false),
            None => (Arc::new(open(self)?), true),
        };
        Ok(self.pin(reader, is_new, key, cache))
    }

    /// Pins `reader`, or leaves it to the cache where there is no room.
    fn pin(
        &self,
        reader: Arc<SegmentReader>,
        is_new: bool,
        key: CacheKey,
        cache: &Arc<NodeCache>,
    ) -> Cow<'_, Arc<SegmentReader>> {
        let Some(room) = cache.pin(reader.memory_bytes()) else {
            if is_new {
                cache.keep_reader(key, Arc::clone(&reader));
            }
            return Cow::Owned(reader);
        };
        if !is_new {
            cache.forget(key);
        }
        let pinned = Pinned { reader, room };
        // Another thread may have been faster; then its reader is as good.
        Cow::Borrowed(&self.reader.get_or_init(|| pinned).reader)
    }

    /// The segment's reader, if it is pinned.
    #[inline]
    #[must_use]
    pub(crate) fn pinned_reader(&self) -> Option<&Arc<SegmentReader>> {
        self.reader.get().map(|pinned| &pinned.reader)
    }

    /// Takes note that some keys of it do not count any more.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Whether that is so, as far as edits since the opening tell.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Leaves the space in use when the last reference goes: its owner ends, and what is stored
    /// stays.
    pub(crate) fn keep(&self) {
        let mut handle = self.handle.lock();
        if let Some(handle) = handle.take() {
            handle.keep();
        }
    }

    /// The planted mistake `free_under_snapshot`: gives the space back although others still read.
    pub(crate) fn release_now(&self) {
        let mut handle = self.handle.lock();
        drop(handle.take());
    }
}

impl fmt::Debug for StoredSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.number, self.place)
    }
}
