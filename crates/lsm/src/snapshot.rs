//! A consistent view of the region that outlives what happens to it.
//!
//! A snapshot is an LSN and a [`ReadView`]: the view keeps memtables and version, and the version
//! every segment in it, so nothing that the snapshot sees is changed or given away before it is
//! dropped (I1). Taking one costs two reference counts.

use std::sync::Arc;

use argosy_base::{Direction, KeyRange, Lsn};
use argosy_engine::batch::check_key;
use argosy_engine::{EngineError, Scan, Snapshot};

use crate::level::stand::DOWN;
use crate::read::{ReadView, Reading};

/// See the module documentation.
pub struct LsmSnapshot {
    view: Arc<ReadView>,
    lsn: Lsn,
    reading: Arc<Reading>,
}

impl LsmSnapshot {
    /// What `view` shows as of `lsn`.
    ///
    /// # Panics
    /// When something newer than `lsn` has left the memtables of `view`: the levels would show it.
    pub(crate) fn new(view: Arc<ReadView>, lsn: Lsn, reading: Arc<Reading>) -> Self {
        assert!(
            view.levels_lsn <= lsn,
            "the view shows what is newer than the snapshot"
        );
        Self { view, lsn, reading }
    }
}

impl Snapshot for LsmSnapshot {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        check_key(key)?;
        match self.view.locate(key, self.lsn, &self.reading)?.entry {
            Some(entry) => self.view.value(key, entry, &self.reading),
            None => Ok(None),
        }
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let found = self.view.get_many(keys, self.lsn, &self.reading)?;
        Ok(found.into_iter().map(|(value, _)| value).collect())
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Scan>, EngineError> {
        let (view, reading) = (&self.view, &self.reading);
        Ok(match direction {
            Direction::Up => Box::new(view.scan::<false>(range, self.lsn, reading)?),
            Direction::Down => Box::new(view.scan::<DOWN>(range, self.lsn, reading)?),
        })
    }
}
