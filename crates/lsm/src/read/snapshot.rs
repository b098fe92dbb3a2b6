//! A consistent view of the region that outlives what happens to it.
//!
//! A snapshot is an LSN and a [`ReadView`]: the view pins memtables and version, and the version
//! every segment in it, so nothing that the snapshot sees is changed or given away before it is
//! dropped (I1). Taking one costs two reference counts, and a look at the clock. It has one moment of
//! the region's time: what has expired by then is not shown, whenever it is read.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::{Direction, KeyRange, Lsn, SegmentNumber};
use argosy_engine::batch::check_key;
pub use argosy_engine::stats::PinnedBySnapshots;
use argosy_engine::{EngineError, Reach, Scan, Snapshot, Wanted};

use super::many::Keys;
use super::{ReadView, Reading, ScanTime};
use crate::level::stand::DOWN;
use crate::memtable::Memtable;
use crate::segments::fetch::Fetch;

/// See the module documentation.
pub struct LsmSnapshot {
    view: Arc<ReadView>,
    lsn: Lsn,
    reading: Arc<Reading>,
    time: Arc<ScanTime>,
}

impl LsmSnapshot {
    /// What `view` shows as of `lsn`.
    ///
    /// # Panics
    /// When something newer than `lsn` has left the memtables of `view`: the levels would show it.
    pub(crate) fn new(
        view: Arc<ReadView>,
        lsn: Lsn,
        reading: Arc<Reading>,
        time: ScanTime,
    ) -> Self {
        assert!(
            view.levels_lsn <= lsn,
            "the view shows what is newer than the snapshot"
        );
        let time = Arc::new(time);
        Self {
            view,
            lsn,
            reading,
            time,
        }
    }
}

impl LsmSnapshot {
    /// The LSN up to which has to be durable, or committed, what reads of it have told so far: its own, or
    /// that of the record by which a pair that they met has expired.
    #[must_use]
    pub fn told(&self) -> Lsn {
        self.lsn.max(Lsn(self.time.told.load(Ordering::Acquire)))
    }
}

/// What `snapshots` pin that `now` does not have.
pub(crate) fn pinned_by(snapshots: &[Arc<dyn Snapshot>], now: &ReadView) -> PinnedBySnapshots {
    let mut tables = BTreeMap::new();
    let mut segments: BTreeSet<SegmentNumber> = BTreeSet::new();
    let snapshots = snapshots.iter().map(|snapshot| -> &dyn Any { &**snapshot });
    for snapshot in snapshots.filter_map(|snapshot| snapshot.downcast_ref::<LsmSnapshot>()) {
        let gone = |table: &&Arc<Memtable>| !now.memtables.iter().any(|it| Arc::ptr_eq(it, table));
        for table in snapshot.view.memtables.iter().filter(gone) {
            tables.insert(Arc::as_ptr(table), table.memory_bytes());
        }
        let numbers = snapshot.view.version.table().keys();
        let gone = numbers.filter(|number| now.version.stored(**number).is_none());
        segments.extend(gone);
    }
    PinnedBySnapshots {
        memtable_bytes: tables.values().sum(),
        segments: segments.len(),
    }
}

impl Snapshot for LsmSnapshot {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn shows_overdue(&self) -> bool {
        self.time.overdue.load(Ordering::Relaxed)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        check_key(key)?;
        self.reading.check_serving()?;
        let noting = |found| self.reading.damages.noting(&self.view.version, found);
        let located = self
            .view
            .locate(key, self.lsn, &self.reading, Fetch::Device);
        match located.map(|located| located.entry) {
            Ok(Some(entry)) if !self.time.hides(&entry.as_entry()) => {
                noting(self.view.value(key, entry, &self.reading, Fetch::Device))
            }
            Ok(_) => Ok(None),
            Err(error) => noting(Err(error)),
        }
    }

    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
    ) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        self.reading.check_serving()?;
        let asked = Keys { keys, wanted };
        let found = self
            .view
            .get_some(asked, self.lsn, &self.reading, Reach::Device);
        let found = self.reading.damages.noting(&self.view.version, found)?;
        let is_past = |expiry: Option<_>| expiry.is_some_and(|expiry| self.time.is_past(expiry));
        let shown = found
            .into_iter()
            .map(|found| found.value.filter(|_| !is_past(found.expiry)));
        Ok(shown.collect())
    }

    fn scan_within(
        &self,
        range: &KeyRange,
        direction: Direction,
        reach: Reach,
    ) -> Result<Box<dyn Scan>, EngineError> {
        let (view, reading) = (&self.view, &self.reading);
        reading.check_serving()?;
        let (lsn, time) = (self.lsn, &self.time);
        Ok(match direction {
            Direction::Up => {
                let scan = view.scan::<false>(range, lsn, time, reading);
                Box::new(scan.within(reach))
            }
            Direction::Down => {
                let scan = view.scan::<DOWN>(range, lsn, time, reading);
                Box::new(scan.within(reach))
            }
        })
    }
}
