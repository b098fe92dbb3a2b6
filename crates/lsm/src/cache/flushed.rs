//! Bytes of the large log that stay in memory when they are written to the device, where there is room.
//!
//! A flush copies part of a window into a buffer, out of which the device is written. While the cache has room to
//! spare, the segment keeps that buffer (`FlushedParts`), and whoever wants a value finds it there. Nothing is
//! copied for it, no value is looked at, and since long buffers are the system's they leave no gaps behind.
//!
//! Parts have the room that entries, pins and charges leave in the budget of the cache, and leave for them, asked
//! for or not: a value that is read from the device again is an entry from then on. They leave segment by
//! segment, first those of the one that has had some for longest (`FlushedQueue`):
//!
//! 1. A part comes in where there is room for it, or will be once older ones have left.
//! 2. Older ones leave for leaves that a build wants to put in, and for entries that are asked for. For these it
//!    is looked whenever a megabyte has come in, or less where the cache is small; a sixteenth of the budget is
//!    free as long as there are parts, for what comes in meanwhile.
//! 3. Those of a segment that is given away leave with it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use argosy_device::Buffer;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::NodeCache;

/// Shorter parts are not kept, unless they are a quarter of a window: they come of flushes after each write, and
/// would cost more than they are worth.
const PART_BYTES_MIN: usize = 32 << 10;
/// Most parts that a process keeps. Each may be a mapping of its own, of which Linux grants a process 65,530.
const PARTS_MAX: usize = 16 << 10;
/// For so many bytes of entries that came in it is looked whether parts have to leave, at the latest.
const UNSEEN_BYTES_MAX: usize = 1 << 20;

/// Bytes and number of the parts of all caches of the process. Relaxed, as all counters here: they order nothing.
static BYTES: AtomicUsize = AtomicUsize::new(0);
static PARTS: AtomicUsize = AtomicUsize::new(0);

/// Bytes of flushed buffers that are kept in this process, in all caches.
#[must_use]
pub fn kept_bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// What one segment of a log keeps. See the module documentation.
pub(crate) struct FlushedParts {
    /// By the byte at which they begin.
    parts: RwLock<Vec<(u32, Arc<Buffer>)>>,
    cache: Arc<NodeCache>,
}

impl FlushedParts {
    pub(crate) fn new(cache: &Arc<NodeCache>) -> Self {
        Self {
            parts: RwLock::default(),
            cache: Arc::clone(cache),
        }
    }

    /// Keeps `bytes`, which are written at `offset` out of a window of `window` bytes, if there is room. Parts
    /// come in the order in which they lie.
    pub(crate) fn keep(self: &Arc<Self>, offset: u32, bytes: &Arc<Buffer>, window: u32) {
        let worth = bytes.len() >= PART_BYTES_MIN.min(window as usize / 4);
        if !worth || !self.cache.makes_room_for_part(bytes.len()) {
            return;
        }
        let queue = self.cache.flushed();
        let mut parts = self.write();
        if parts.is_empty() {
            queue.push(self);
        }
        parts.push((offset, Arc::clone(bytes)));
        queue.count(bytes.len());
    }

    /// How many bytes are kept from `offset` on, as far as one knows without looking further than `len`.
    pub(crate) fn reach(&self, offset: u32, len: usize) -> usize {
        let parts = self.read_parts();
        let mut reach = 0;
        while reach < len {
            let from = offset + u32::try_from(reach).expect("a read ends in the segment");
            let Some((start, bytes)) = part_with(&parts, from) else {
                break;
            };
            reach += bytes.len() - (from - start) as usize;
        }
        reach
    }

    /// Copies what is kept from `offset` on into the front of `out`: how many bytes that are.
    pub(crate) fn read(&self, offset: u32, out: &mut [u8]) -> usize {
        let parts = self.read_parts();
        let mut read = 0;
        while read < out.len() {
            let from = offset + u32::try_from(read).expect("a read ends in the segment");
            let Some((start, bytes)) = part_with(&parts, from) else {
                break;
            };
            let there = &bytes[(from - start) as usize..];
            let len = there.len().min(out.len() - read);
            out[read..read + len].copy_from_slice(&there[..len]);
            read += len;
        }
        read
    }

    /// Keeps nothing any more.
    fn give_up(&self) {
        let parts = std::mem::take(&mut *self.write());
        self.uncount(&parts);
    }

    fn uncount(&self, parts: &[(u32, Arc<Buffer>)]) {
        let bytes = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        self.cache
            .flushed()
            .bytes
            .fetch_sub(bytes, Ordering::Relaxed);
        BYTES.fetch_sub(bytes, Ordering::Relaxed);
        PARTS.fetch_sub(parts.len(), Ordering::Relaxed);
    }

    fn read_parts(&self) -> RwLockReadGuard<'_, Vec<(u32, Arc<Buffer>)>> {
        self.parts.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<(u32, Arc<Buffer>)>> {
        self.parts.write()
    }
}

impl Drop for FlushedParts {
    fn drop(&mut self) {
        let parts = std::mem::take(self.parts.get_mut());
        self.uncount(&parts);
    }
}

impl fmt::Debug for FlushedParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlushedParts({})", self.read_parts().len())
    }
}

/// The one of `parts` that has byte `offset`, and where it begins.
fn part_with(parts: &[(u32, Arc<Buffer>)], offset: u32) -> Option<(u32, &Buffer)> {
    let behind = parts.partition_point(|(start, _)| *start <= offset);
    let (start, bytes) = parts.get(behind.checked_sub(1)?)?;
    (((offset - start) as usize) < bytes.len()).then_some((*start, bytes))
}

/// All parts that are kept in one cache's budget. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct FlushedQueue {
    bytes: AtomicUsize,
    /// Bytes of entries that came in since it was looked whether parts have to leave for them.
    unseen: AtomicUsize,
    segments: Mutex<Segments>,
}

#[derive(Debug, Default)]
struct Segments {
    /// Those that keep something, the oldest first, and some that were given away.
    queue: VecDeque<Weak<FlushedParts>>,
    /// At this length those are taken out.
    sort_out_at: usize,
}

impl FlushedQueue {
    /// Bytes of all parts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// An entry of `bytes` bytes came in. Whether it is time to look at what there is, while there are parts:
    /// after every `most` bytes at the latest.
    pub(crate) fn comes_in(&self, bytes: u64, most: usize) -> bool {
        if self.bytes() == 0 {
            return false;
        }
        let step = most.min(UNSEEN_BYTES_MAX);
        let bytes = usize::try_from(bytes).unwrap_or(step);
        let due = self.unseen.fetch_add(bytes, Ordering::Relaxed) + bytes >= step;
        if due {
            self.unseen.store(0, Ordering::Relaxed);
        }
        due
    }

    /// The parts of the segment that has had some for longest leave; `false`: there are none.
    pub(crate) fn give_up_oldest(&self) -> bool {
        loop {
            let Some(oldest) = self.segments().queue.pop_front() else {
                return false;
            };
            if let Some(oldest) = oldest.upgrade() {
                oldest.give_up();
                return true;
            }
        }
    }

    fn push(&self, segment: &Arc<FlushedParts>) {
        let mut segments = self.segments();
        if segments.queue.len() >= segments.sort_out_at {
            segments.queue.retain(|kept| kept.strong_count() > 0);
            segments.sort_out_at = 2 * segments.queue.len() + 64;
        }
        segments.queue.push_back(Arc::downgrade(segment));
    }

    fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        PARTS.fetch_add(1, Ordering::Relaxed);
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock()
    }
}

impl NodeCache {
    /// Whether there is room for `bytes` bytes, once flushed parts have left for them. If there are not enough,
    /// none leaves.
    pub(crate) fn makes_room(&self, bytes: usize) -> bool {
        if !self.has_room_beside_entries(bytes) {
            return false;
        }
        while !self.has_room(bytes) && self.flushed().give_up_oldest() {}
        self.has_room(bytes)
    }

    /// Whether a part of a log may stay that takes `bytes` bytes: older ones leave for it.
    fn makes_room_for_part(&self, bytes: usize) -> bool {
        self.makes_room(bytes)
            && (PARTS.load(Ordering::Relaxed) < PARTS_MAX || self.flushed().give_up_oldest())
    }

    /// Has flushed parts leave until entries have the room that they take.
    pub(crate) fn clear_room(&self) {
        while !self.has_room(0) && self.flushed().give_up_oldest() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u32 = 64 << 10;
    const WINDOW: u32 = 512 << 10;

    fn part(byte: u8) -> Arc<Buffer> {
        Arc::new(Buffer::from_slice(&vec![byte; PART as usize]))
    }

    fn segments(cache: &Arc<NodeCache>, count: u8) -> Vec<Arc<FlushedParts>> {
        let segment = |number: u8| {
            let parts = Arc::new(FlushedParts::new(cache));
            (0..4).for_each(|at: u8| {
                parts.keep(
                    u32::from(at) * PART,
                    &part(number.wrapping_mul(4) + at),
                    WINDOW,
                )
            });
            parts
        };
        (0..count).map(segment).collect()
    }

    #[test]
    fn bytes_are_read_across_parts_and_no_further_than_they_go() {
        let cache = Arc::new(NodeCache::new(64 << 20));
        let parts = Arc::new(FlushedParts::new(&cache));
        for at in [0, 1, 3] {
            parts.keep(u32::from(at) * PART, &part(at + 1), WINDOW);
        }
        parts.keep(4 * PART, &Arc::new(Buffer::zeroed(4096)), WINDOW);
        let mut out = [9; 8];
        assert_eq!(
            (parts.read(PART - 4, &mut out), out),
            (8, [1, 1, 1, 1, 2, 2, 2, 2])
        );
        let mut out = [9; 8];
        assert_eq!(
            (parts.read(2 * PART - 2, &mut out), out),
            (2, [2, 2, 9, 9, 9, 9, 9, 9])
        );
        assert_eq!(parts.read(2 * PART, &mut out), 0, "between two parts");
        assert_eq!(
            parts.read(4 * PART, &mut out),
            0,
            "what is short is not kept"
        );
        let reach = |offset, len| parts.reach(offset, len);
        assert_eq!((reach(0, 1), reach(2 * PART - 1, 9)), (PART as usize, 1));
        assert_eq!(
            (reach(0, 2 * PART as usize), reach(2 * PART, 1)),
            (2 * PART as usize, 0)
        );
        assert_eq!(cache.stats().flushed_bytes, 3 * u64::from(PART));
        drop(parts);
        assert_eq!(cache.stats().flushed_bytes, 0);
    }

    #[test]
    fn those_stay_that_were_written_last_and_all_leave_for_entries() {
        let cache = Arc::new(NodeCache::new(4 << 20));
        let segments = segments(&cache, 100);
        let kept = |segments: &[Arc<FlushedParts>]| {
            let has: Vec<_> = segments
                .iter()
                .map(|segment| segment.reach(0, 1) > 0)
                .collect();
            let first = has.iter().position(|has| *has).unwrap_or(has.len());
            assert!(has[first..].iter().all(|has| *has), "the oldest left first");
            has.len() - first
        };
        let before = kept(&segments);
        assert!(
            (13..=15).contains(&before),
            "{before} of 256 KiB in 15 of 16 parts of 4 MiB"
        );
        assert!(cache.makes_room(1 << 20));
        assert_eq!(before - kept(&segments), 4);
        assert!(!cache.makes_room(5 << 20), "there is not so much");
        assert_eq!(before - kept(&segments), 4, "and nothing left for that");
        let charge = cache.new_charge();
        charge.set(2 << 20);
        assert!((6..=7).contains(&kept(&segments)));
        charge.set(0);
        for number in 0..2000 {
            let key = crate::cache::CacheKey::Value {
                region: argosy_base::RegionId(1),
                at: argosy_base::Pointer::from_raw(number),
            };
            cache.keep_value(key, vec![0; 4000].into());
        }
        assert_eq!((kept(&segments), cache.stats().flushed_bytes), (0, 0));
    }

    #[test]
    fn segments_that_are_gone_are_sorted_out() {
        let cache = Arc::new(NodeCache::new(64 << 20));
        (0..100).for_each(|_| drop(segments(&cache, 10)));
        assert!(cache.flushed().segments().queue.len() < 100);
        assert_eq!(cache.stats().flushed_bytes, 0);
    }
}
