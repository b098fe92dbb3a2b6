//! The engine: a region that is served.
//!
//! What moves, and under what:
//!
//! - *Readers* take the current [`ReadView`](crate::read::ReadView) and no lock ([`crate::read`]).
//! - *Writers* take the writer lock, which guards logs, memtables and the view that is shown
//!   (`writer`, `write`). Conditions are looked up before the lock is taken (`condition`).
//! - *Background work* is one struct behind a lock of its own (`background`): it flushes logs,
//!   turns memtables into runs, compacts levels, and commits what came of it through
//!   [`Storage`]. [`Store::step`](argosy_engine::Store::step) does a bounded piece of it and never waits for a
//!   write; a second caller finds it taken and returns. It takes the writer lock for moments only.
//!
//! An engine begins with [`Lsm::start`]: whoever opened the region's storage and logs has cut their
//! ends, replayed what is not in the levels ([`Tables`]), and hands everything over as [`Parts`]. It
//! ends with its process, or becomes a passive copy again (`demote`).
//!
//! An error in the background is final: what is on the device is then unknown. The engine takes no
//! more writes and goes on answering reads. Stored bytes that cannot be read are no such error: merges and
//! garbage collection pass over them ([`damage`](crate::damage)).

mod background;
pub mod bulk_load;
pub mod bulk_loader;
mod condition;
mod count;
mod demand;
mod demote;
mod edits;
mod engine;
mod full_compaction;
mod gc;
mod history;
mod installed;
mod log_work;
mod logflush;
mod memtables;
pub(crate) mod passive;
mod pinned;
pub mod promote;
mod rebuilding;
pub(crate) mod replay;
mod resting;
pub(crate) mod server_memory;
mod serving;
mod shown;
mod source;
mod space;
mod spares;
mod stats;
mod steps;
mod time;
mod upkeep;
mod write;
mod writer;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use argosy_base::{Clock, EditSeq, Epoch, Lsn, RegionId};
use argosy_device::{Store, Waker};
use argosy_engine::{EngineError, Marks, NotDemoted, Observer, Service, WindowRoom};
use argosy_log::segment::Writer as WriterName;
use argosy_log::{LogWindows, LogWriter};
use argosy_memory::WindowStore;

use crate::cache::NodeCache;
use crate::edit::LogSegment;
use crate::names::logs::{LARGE_LOG, LOGS, Logs};
use crate::read::{FilterCounts, Reading};
use crate::replica::{Replica, ReplicaError, Slots};
use crate::settings::Settings;
use crate::storage::{Committed, Storage};
use crate::work::stats::Counts;
use bulk_load::{Taken, Ticket};
use bulk_loader::{BulkLoadError, BulkLoader};
use edits::EditProgress;
use history::History;
use installed::Installed;
use resting::Windows;
use server_memory::{RegionMemory, ServerMemory};
use serving::Serving;
use shown::Shown;
use space::RegionSpace;
use steps::Steps;
use time::RegionTime;
use writer::{Rebuilt, Writer};

pub use crate::work::stats::{LevelStats, LogStats, Stats, level_stats, log_stats};
pub use promote::Cut;
pub use replay::Tables;
pub(crate) use source::process_memory;

/// What an engine is made of. See [`Lsm::start`].
pub struct Parts {
    /// The region's storage. All log segments of its head version are sealed, except the `tails`.
    pub storage: Storage,
    /// The epoch in which this engine writes.
    pub epoch: Epoch,
    /// The windows; nothing in them is needed any more.
    pub windows: GivenWindows,
    /// Who writes them.
    pub writer: WriterName,
    /// The history that is not in the levels.
    pub tables: Tables,
    /// The last LSN of the history.
    pub last: Lsn,
    /// What the history was cut off from.
    pub cut: Option<Cut>,
    /// The tails: log segments without a record, at most one for each log to begin with, and the
    /// edit that added them.
    pub tails: Vec<(EditSeq, LogSegment)>,
    /// Edits that are durable here and of which the observer has to hear.
    pub edits: Vec<Committed>,
    /// What it has of the memory that all regions of a server share.
    pub(crate) memory: Arc<RegionMemory>,
    /// Where the engine shows its state.
    pub marks: Arc<Marks>,
    /// Who keeps the other copies, if there are any.
    pub observer: Option<Arc<dyn Observer>>,
}

/// The windows that an engine is given.
pub struct GivenWindows {
    /// By [`LogId::index`](argosy_base::LogId::index).
    pub of_logs: [Arc<LogWindows>; LOGS.len()],
    /// Who gives them memory, if they are not to have it for good.
    pub room: Option<Arc<dyn WindowRoom>>,
}

/// A log-structured merge engine. See the module documentation.
pub struct Lsm {
    settings: Settings,
    serving: Serving,
    history: History,
    reading: Arc<Reading>,
    shown: Shown,
    windows: Windows,
    writer: Mutex<Writer>,
    steps: Steps,
    full_compaction: full_compaction::FullCompactionRequests,
    /// Sorted pairs that wait to be bulk-loaded.
    bulk_loads: bulk_load::BulkLoadQueue,
    space: RegionSpace,
    counts: Counts,
}

impl Lsm {
    /// An engine that goes on where `parts` end.
    ///
    /// # Panics
    /// When the settings are not valid ([`Settings::validate`]).
    #[must_use]
    pub fn start(mut parts: Parts) -> Self {
        let memory = parts.memory;
        let cache = Arc::clone(memory.server().cache());
        parts.storage.charge_to(&cache);
        let mut settings = parts.storage.settings().clone();
        assert_eq!(settings.validate(), Ok(()), "settings are validated before");
        settings.fit_device(parts.storage.store().total());
        let GivenWindows {
            of_logs: windows,
            room,
        } = parts.windows;
        let large = Arc::clone(&windows[LARGE_LOG.index()]);
        let pinned = pinned::PinnedTables::new(Arc::clone(&memory));
        let reading = Arc::new(Reading {
            region: parts.storage.region(),
            cache,
            windows: large,
            filters: FilterCounts::default(),
            damages: Arc::clone(parts.storage.damages()),
            ended: AtomicBool::new(false),
        });
        let mutants = settings.mutants.of_logs();
        let log = |windows| LogWriter::new(windows, parts.writer).with_mutants(mutants);
        let logs = Logs::new(windows.clone().map(log));
        let version = Arc::clone(parts.storage.current());
        let told = time::told_at_opening(version.time(), parts.tables.time(), parts.last);
        let time = RegionTime::new(version.time(), told);
        let duplicates = Arc::clone(parts.tables.duplicates());
        let rebuilt = Rebuilt {
            duplicates,
            tables: parts.tables.into_frozen(),
            last: parts.last,
        };
        let levels_lsn = Lsn(version.replay_from().0.saturating_sub(1));
        let installed = Installed::new(version, Arc::clone(parts.storage.damages()));
        let mut writer = Writer::new(logs, installed, rebuilt, memory, settings.mutants);
        writer.set_time(told);
        for (seq, tail) in parts.tails {
            writer.add_spare(seq, tail);
        }
        let alone = parts.observer.is_none();
        let known = alone.then(|| parts.storage.current().seq());
        let known = known.unwrap_or_default();
        // What was replayed is on this device alone; with other members the driver says when it
        // is on theirs. What is in the levels was committed before it went there.
        let committed = if alone { parts.last } else { levels_lsn };
        parts.marks.set_last(parts.last);
        parts.marks.set_committed(committed);
        parts.marks.set_full(parts.storage.store().room().is_full());
        writer.provide_spares(known.min(parts.storage.witnessed()));
        if let Some(observer) = &parts.observer {
            let notices = parts.edits.iter().map(|edit| &edit.notice);
            notices.for_each(|notice| observer.edit_committed(notice));
        }
        let edits = EditProgress::new(known, parts.storage.witnessed());
        let lsm = Self {
            settings,
            serving: Serving::new(parts.epoch, parts.observer),
            history: History::new(parts.cut, edits, time),
            reading,
            shown: Shown::new(&writer, parts.marks, pinned),
            windows: Windows::new(windows, room),
            writer: Mutex::new(writer),
            steps: Steps::new(parts.storage, parts.last),
            full_compaction: full_compaction::FullCompactionRequests::default(),
            bulk_loads: bulk_load::BulkLoadQueue::default(),
            space: RegionSpace::default(),
            counts: Counts::default(),
        };
        // What was rebuilt from the logs may take more than its share.
        lsm.shown.settle_pinned();
        lsm
    }

    /// Makes an engine of a replica. Leaves and values are in `cache`, which no other region shares the memory of
    /// memtables with. Blocks.
    ///
    /// # Errors
    /// The device's; [`ReplicaError::CorruptLog`] where durable records are damaged, or others that the replica had
    /// found: others may count on what it has reported.
    pub fn promote(
        replica: Replica,
        cache: &Arc<NodeCache>,
        service: Service,
    ) -> Result<Self, ReplicaError> {
        promote::promote(replica, &ServerMemory::new(Arc::clone(cache)), service)
    }

    /// Makes a replica of an engine that is to serve no more, the reverse of [`promote`](Self::promote). `fresh` is
    /// zero memory. See [`Store::demote`](argosy_engine::Store::demote). Blocks.
    ///
    /// # Errors
    /// The device's; damage to the logs. The engine has ended all the same.
    pub fn become_replica(&self, fresh: Slots) -> Result<Replica, Box<NotDemoted>> {
        demote::demote(self, fresh)
    }

    /// Opens a region for itself alone, or makes it where the store does not know it. Its windows
    /// are taken from `windows`, and what a killed process left in them is used. Blocks.
    ///
    /// This ends the store's recovery: where a store has several regions, use [`Replica::open`] and
    /// [`Lsm::promote`].
    ///
    /// # Errors
    /// The device's; damage to what was durable; [`ReplicaError::DamagedWindow`], unless there is an observer
    /// or [`Settings::accept_loss`].
    pub fn open(
        store: &Arc<Store>,
        region: RegionId,
        windows: &dyn WindowStore,
        settings: &Settings,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self, ReplicaError> {
        promote::open(store, region, windows, settings, observer)
    }

    /// The region that is stored.
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.reading.region
    }

    /// The settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whom to wake when [`Store::step`](argosy_engine::Store::step) has something new to do. Set once.
    pub fn set_waker(&self, waker: Waker) {
        self.reading.filters.rouser.set_waker(Arc::clone(&waker));
        self.reading.damages.set_waker(Arc::clone(&waker));
        self.shown.memory().set_waker(Arc::clone(&waker));
        self.steps.set_waker(waker);
    }

    /// By which clock pairs expire here. Set once, before anything is written; without one nothing
    /// expires that has not yet.
    pub fn set_clock(&self, clock: Arc<dyn Clock>) {
        self.history.time().set_clock(clock);
    }

    /// Whether what [`compact_now`](argosy_engine::Store::compact_now) asked for is not done yet.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.full_compaction.is_pending()
    }

    /// Begins to load pairs that shadow what is bound in their range, any number of them as one part. They become
    /// segments on the calling thread; a region with copies elsewhere takes
    /// [parts](argosy_engine::Store::bulk_load) only.
    ///
    /// # Errors
    /// [`BulkLoadError::Replicated`]; [`EngineError::Closed`].
    pub fn bulk_loader(&self) -> Result<BulkLoader<'_>, BulkLoadError> {
        BulkLoader::begin(self)
    }

    /// What has become of the part of this number, told once; `None` where it has not come to an end.
    #[must_use]
    pub fn taken(&self, ticket: Ticket) -> Option<Taken> {
        let ended = self
            .bulk_loads
            .ended(self.history.edits(), |ended| ended == ticket);
        ended.into_iter().next().map(|(_, taken)| taken)
    }

    /// Whether writes of new data are turned away because a device is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.shown.marks().is_full()
    }

    /// Has the active memtable flushed to L1 although it is not full. Returns false where too many are waiting, or
    /// where it is empty and stands for less than a segment of the logs.
    pub fn freeze_now(&self) -> bool {
        let mut writer = self.lock();
        let frozen = writer.freeze_now(&self.settings);
        if frozen {
            let before = self.shown.replace(&writer);
            drop(writer);
            drop(before);
            self.wake();
        }
        frozen
    }

    /// Has the active memtable flushed where it takes more than it may since more regions are served.
    fn freeze_beyond_memory(&self) {
        if self.lock().is_beyond_memory() {
            self.freeze_now();
        }
    }

    /// Device segments that the region has: its version's, its manifest's, and those of work that
    /// is under way. Together with what snapshots pin they are what the store has in use. None once they are a passive
    /// copy's. For tests and tools that look for leaks.
    #[must_use]
    pub fn device_segments(&self) -> usize {
        let background = self.steps.background_as_it_is();
        background.map_or(0, |at| at.device_segments())
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer
            .lock()
            .expect("a writer panicked: the region's state is not to be trusted")
    }

    fn wake(&self) {
        self.steps.wake();
    }

    /// The highest LSN that readers may see.
    #[inline]
    fn visible(&self) -> Lsn {
        self.shown.marks().last_lsn()
    }

    fn check_open(&self) -> Result<(), EngineError> {
        self.steps.check_open()
    }
}
