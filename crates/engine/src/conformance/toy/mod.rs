//! A toy: an engine with a log, copies and nothing to make it fast. It is here to be compared with.
//!
//! It shows what the contracts ask for, and that they ask for nothing that only one engine has: there are no levels, no
//! compactions, no format that another crate knows, and one log, which is not that of the crate `log`. The suites of
//! [conformance](super) pass on it, and the simulator runs clusters on it.
//!
//! A region is a sorted map in memory. Every write goes to the log's windows. When half of the log is used, an image of
//! the whole map takes its place.
//!
//! Reading order: `record`, `map` and [`edit`] (formats), `disk`, `ring` (the log's windows), `copy` (the passive
//! copy), `store` (the store that serves), `source`, `snapshot`, `stored`.
//!
//! What it leaves out: it waits for the device in its steps; a damaged copy is not looked for, nor repaired; a record
//! that was flushed and is damaged is taken for the end of the history, unless an image has it; windows never rest; it
//! counts its images alone; it does not notice that it is opened with other settings.

mod copy;
mod disk;
pub mod edit;
mod map;
mod record;
mod ring;
mod snapshot;
mod source;
mod store;
mod stored;

use std::sync::Arc;
use std::time::Duration;

use argosy_base::RegionId;
use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_device::{RegionEntry, Store};
use argosy_memory::SharedMemory;

use self::copy::ToyCopy;
use self::disk::{Disk, claim_rest};
use self::edit::RingSegment;
use self::ring::{HEADER_BYTES, LOG, Slots};
use crate::set_aside::SetAside;
use crate::{CopyError, CopyOf, Engine, Follower, LogSpec, Survivors, Windows};

/// The settings of a toy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a window and of a log segment, which take the largest batch: whole blocks, at most a segment.
    pub window_bytes: usize,
    /// Windows, and segments of the log: at least 3.
    pub windows: usize,
    /// Most bytes of a segment of an image: whole blocks, at most a segment.
    pub part_bytes: usize,
    /// What was appended is flushed within this time.
    pub flush_interval: Duration,
    /// Planted mistakes.
    pub mutants: Mutants,
}

argosy_base::mutants! {
    /// Planted mistakes, all off: whoever runs a suite or the simulator on the toy sees that each is found.
    pub struct Mutants {
        /// Windows that survived are not looked at.
        forget_windows,
        /// An edit is applied before its image has come.
        apply_unfetched,
        /// New log segments are used before all members have the edit that names them.
        use_early,
        /// Snapshots show what is not committed.
        show_uncommitted,
        /// A flush is told although nothing was written.
        flush_nothing,
        /// A range that was removed is no write of its keys.
        forget_floor,
    }
}

impl Default for Settings {
    /// Windows that take the largest batch.
    fn default() -> Self {
        Self {
            window_bytes: SEGMENT_SIZE,
            windows: 4,
            part_bytes: SEGMENT_SIZE,
            flush_interval: Duration::from_millis(20),
            mutants: Mutants::default(),
        }
    }
}

impl crate::Settings for Settings {
    fn start(&self) -> Arc<dyn Engine> {
        let fits =
            |bytes: usize| bytes.is_multiple_of(BLOCK_SIZE) && (1..=SEGMENT_SIZE).contains(&bytes);
        let fit = fits(self.window_bytes) && fits(self.part_bytes);
        assert!(fit && self.windows >= 3, "see the fields");
        let spec = LogSpec {
            id: LOG,
            name: "log",
            slots: self.windows,
            window_bytes: self.window_bytes,
            slot_bytes: HEADER_BYTES + self.window_bytes,
        };
        Arc::new(Started {
            settings: *self,
            logs: [spec],
        })
    }
}

impl Settings {
    fn segment_bytes(&self) -> u32 {
        u32::try_from(self.window_bytes).expect("at most a segment")
    }

    /// The memory of the log's windows.
    fn slots_of(&self, windows: Windows) -> Vec<Arc<SharedMemory>> {
        let slots = windows.into_iter().find(|slots| slots.log == LOG);
        let slots = slots.map_or_else(Vec::new, |slots| slots.slots);
        assert_eq!(slots.len(), self.windows, "a memory for each slot");
        slots
    }
}

/// Whether log segment `segment` of `region` has the same records in both of these, which are its first bytes.
#[must_use]
pub fn same_records(region: RegionId, segment: &RingSegment, both: [&[u8]; 2]) -> bool {
    let [one, other] = both.map(|bytes| record::groups(region, segment, bytes));
    one.eq(other)
}

/// The engine of one server.
struct Started {
    settings: Settings,
    logs: [LogSpec; 1],
}

impl Engine for Started {
    fn logs(&self) -> &[LogSpec] {
        &self.logs
    }

    fn open(
        &self,
        copy: &CopyOf<'_>,
        windows: Windows,
        left: Survivors,
    ) -> Result<Box<dyn Follower>, CopyError> {
        let Some(entry) = copy.store.region(copy.region) else {
            return self.create(copy, windows);
        };
        let disk = Disk::open(copy.store, &entry, self.settings)?;
        let left = left.into_iter().find(|left| left.log == LOG);
        let left = left.filter(|_| !self.settings.mutants.forget_windows());
        let left = Slots(left.map_or_else(Vec::new, |left| left.slots));
        Ok(Box::new(ToyCopy::new(disk, windows, &left)?))
    }

    fn create(&self, copy: &CopyOf<'_>, windows: Windows) -> Result<Box<dyn Follower>, CopyError> {
        let disk = Disk::create(copy.store, copy.region, self.settings)?;
        Ok(Box::new(ToyCopy::new(disk, windows, &Slots(Vec::new()))?))
    }

    fn claim(&self, store: &Arc<Store>, entry: &RegionEntry) -> SetAside {
        SetAside::new(Arc::clone(store), entry.clone(), claim_rest(store, entry))
    }
}
