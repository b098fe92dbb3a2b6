//! What a background thread does for a store now and then.
//!
//! This module **gives space of freed segments back to the file system**. Dropping the last reference to a segment
//! makes no system call, on a reader's thread either. Taking a segment makes one only if no other segment is free.
//!
//! 1. Up to [`FREED_KEPT`] freed segments keep their space. Beyond that the segment that was freed first goes back.
//! 2. When none was freed or taken for [`IDLE`], all go back: an idle store takes no more than it holds.
//! 3. While a write waits for room beneath, all go back, those in quarantine last.
//! 4. A step gives back [`STEP_MAX`] at most, so that nobody waits behind it for long.
//!
//! Opening finds the free segments that still take room, and counts them as freed. If a region cannot be read, any of
//! them may belong to it: they are [quarantined](Store::quarantine).

use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{DeviceSegment, Instant};

use super::Store;

/// Freed segments that keep their space for a while: 128 MiB.
pub const FREED_KEPT: usize = 64;

/// Segments whose space a step gives back: some 10 to 50 µs each.
pub const STEP_MAX: usize = 16;

/// How long nobody frees or takes a segment in a store that counts as idle.
pub const IDLE: Duration = Duration::from_secs(1);

/// Parts of a device that are looked at when it is opened: two system calls, some µs, for each. What lies
/// behind them keeps its space until it is used again.
const PARTS_MAX: usize = 1 << 16;

/// When segments were freed or taken last.
#[derive(Default)]
pub(super) struct Quiet {
    /// How often that had happened when it was looked last.
    changes: Option<u64>,
    since: Instant,
}

impl Store {
    /// See [`Device::look_for_place`](crate::Device::look_for_place).
    pub fn look_for_place(&self) {
        self.device.look_for_place();
    }

    /// One step of giving space of freed segments back, as the module documentation says. Returns whether
    /// anything was done: then there may be more.
    pub fn give_back_freed(&self, now: Instant) -> bool {
        let (changes, freed, quarantined) = {
            let allocator = self.lock_allocator();
            let quarantined = allocator.quarantined();
            (allocator.changes(), allocator.freed(), quarantined)
        };
        let idle = {
            let mut quiet = self.quiet.lock().expect("no holder of the lock panics");
            if quiet.changes != Some(changes) {
                (quiet.changes, quiet.since) = (Some(changes), now);
            }
            now >= quiet.since + IDLE
        };
        let wanted = freed + quarantined > 0 && self.device.wants_room();
        let due = match (wanted, idle) {
            (true, _) => freed + quarantined,
            (false, true) => freed,
            (false, false) => freed.saturating_sub(FREED_KEPT),
        };
        let due = due.min(STEP_MAX);
        for _ in 0..due {
            self.give_back_one(wanted);
        }
        due > 0
    }

    /// Gives the space of the segment back that was freed first, or, where it is `wanted`, else of one in quarantine.
    /// False where none is.
    pub(super) fn give_back_one(&self, wanted: bool) -> bool {
        // Nobody can be given the segment before its space has been.
        let segment = {
            let mut allocator = self.lock_allocator();
            let freed = allocator.take_freed();
            freed.or_else(|| wanted.then(|| allocator.take_quarantined())?)
        };
        let Some(segment) = segment else {
            return false;
        };
        self.device.discard(segment);
        self.lock_allocator().give_back(segment);
        true
    }

    /// Segments for which there is room beneath the device, as far as that is known.
    pub(super) fn segments_beneath(&self) -> u32 {
        let allocator = self.lock_allocator();
        let bytes = |segments: u64| segments * SEGMENT_SIZE as u64;
        let freed = (allocator.freed() + allocator.quarantined()) as u64;
        let used = u64::from(allocator.used());
        drop(allocator);
        let room = self.device.room_beneath(bytes(used), bytes(freed));
        let bytes = room.unwrap_or(u64::MAX);
        u32::try_from(bytes / SEGMENT_SIZE as u64).unwrap_or(u32::MAX)
    }

    /// Quarantines the free segments that were written before: a region that cannot be read may own them, and name
    /// them once it can be read again. To be called when recovery has ended. A device that does not know which
    /// segments were written quarantines none, and hands out free segments from its end.
    pub fn quarantine(&self) {
        let written = self.written();
        let mut allocator = self.lock_allocator();
        allocator.are_written(&written);
        allocator.quarantine();
    }

    /// Ends the quarantine: no region is missing any more.
    pub fn end_quarantine(&self) {
        self.lock_allocator().end_quarantine();
    }

    /// Segments that are quarantined.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.lock_allocator().quarantined()
    }

    /// Finds out which free segments take room beneath, as far as the file system says.
    pub(super) fn find_freed(&self) {
        if self.device.is_sparse() {
            let written = self.written();
            self.lock_allocator().are_written(&written);
        }
    }

    /// Segments that were written, by rising number, as far as the device knows.
    fn written(&self) -> Vec<DeviceSegment> {
        let (size, mut at) = (SEGMENT_SIZE as u64, 0);
        let mut written = Vec::new();
        for _ in 0..PARTS_MAX {
            let Some((from, end)) = self.device.written_from(at) else {
                break;
            };
            let segments = (from / size)..end.div_ceil(size);
            let segments = segments.filter_map(|segment| u32::try_from(segment).ok());
            written.extend(segments.map(DeviceSegment));
            at = end.next_multiple_of(size);
        }
        written
    }
}
