//! A toy: an engine with a log, copies and nothing to make it fast. It is here to be compared with.
//!
//! It shows what the contracts ask for, and that they ask for nothing that only one engine has: there are no levels, no
//! compactions, no format that another crate knows, and one log, which is not that of the crate `log`. The suites of
//! [conformance](super) pass on it, and the simulator runs clusters on it.
//!
//! A region is a sorted map in memory. Every write goes to the log's windows. When half of the log is used, an image of
//! the whole map takes its place. An edit has that image in it.
//!
//! Reading order: `log`, `map` and [`edit`] (formats), `copy` (the passive copy, and its device), `store` (the store
//! that serves), `snapshot`.
//!
//! What it leaves out: whoever calls a store during a step waits for the device, too; an edit has as many bytes as the
//! map, and a copy fetches nothing; a scan copies all of its range; a damaged copy is not looked for, nor repaired; a
//! record that was flushed and is damaged is taken for the end of the history, unless an image has it; windows never
//! rest; it counts its images alone; it does not notice that it is opened with other settings.

mod copy;
pub mod edit;
mod log;
mod map;
mod snapshot;
mod store;

use std::sync::Arc;
use std::time::Duration;

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_device::{RegionEntry, Store};
use argosy_memory::SharedMemory;

use self::copy::ToyCopy;
use self::log::LOG;
use crate::set_aside::SetAside;
use crate::{CopyError, CopyOf, Engine, Follower, LogSpec, Stored, Survivors, Windows};

/// The settings of a toy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a window and of a log segment, which take the largest batch: whole blocks, at most a segment.
    pub window_bytes: usize,
    /// Windows, and segments of the log: at least 3.
    pub windows: usize,
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
        /// A checkpoint is applied without what it has of the log.
        forget_logs,
        /// New log segments are used before all members have the edit that makes room for them.
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
            flush_interval: Duration::from_millis(20),
            mutants: Mutants::default(),
        }
    }
}

impl crate::Settings for Settings {
    fn start(&self) -> Arc<dyn Engine> {
        let bytes = self.window_bytes;
        let fits = bytes.is_multiple_of(BLOCK_SIZE) && (1..=SEGMENT_SIZE).contains(&bytes);
        assert!(fits && self.windows >= 3, "see the fields");
        let spec = LogSpec {
            id: LOG,
            name: "log",
            slots: self.windows,
            window_bytes: self.window_bytes,
            segment_windows: 1,
            slot_bytes: self.window_bytes,
        };
        Arc::new(Started {
            settings: *self,
            logs: [spec],
        })
    }
}

impl Settings {
    /// The memory of the log's windows.
    fn slots_of(&self, windows: Windows) -> Vec<Arc<SharedMemory>> {
        let slots = windows.into_iter().find(|slots| slots.log == LOG);
        let slots = slots.map_or_else(Vec::new, |slots| slots.slots);
        assert_eq!(slots.len(), self.windows, "a memory for each slot");
        slots
    }
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
        let left = left.into_iter().find(|left| left.log == LOG);
        let left = left.filter(|_| !self.settings.mutants.forget_windows());
        let left = left.map_or_else(Vec::new, |left| left.slots);
        let opened = ToyCopy::open(copy.store, &entry, self.settings, windows, &left)?;
        Ok(Box::new(opened))
    }

    fn create(&self, copy: &CopyOf<'_>, windows: Windows) -> Result<Box<dyn Follower>, CopyError> {
        let made = ToyCopy::create(copy.store, copy.region, self.settings, windows)?;
        Ok(Box::new(made))
    }

    /// The catalog names all of it.
    fn claim(&self, store: &Arc<Store>, entry: &RegionEntry) -> SetAside {
        SetAside::new(Arc::clone(store), entry.clone(), Vec::new())
    }
}

/// What a copy consists of, of which this is a digest. Nobody looks for damage in it, or repairs it.
struct ToyStored(u64);

impl Stored for ToyStored {
    fn digest(&self) -> u64 {
        self.0
    }
}
