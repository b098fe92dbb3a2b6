//! Checkpoints: the store as it was at one moment, kept under a name for as long as one wants.
//!
//! A checkpoint copies nothing. It names what the levels consist of, and of that nothing is freed while a
//! checkpoint names it: see [`argosy_lsm::pins`].

use std::sync::Arc;

use argosy_base::SEGMENT_SIZE;
use argosy_engine::Store;
use argosy_lsm::pins::{Pin, PinError};

use crate::error::{Error, Result};
use crate::{Db, Snapshot};

/// A checkpoint, as [`Db::checkpoints`] tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Its name.
    pub name: String,
    /// The number of the last write that it shows, as [`Snapshot::version`].
    pub version: u64,
    /// Bytes of the segments that it keeps, most of which the store has in common with it at first.
    pub bytes: u64,
}

impl From<&Pin> for Checkpoint {
    fn from(pin: &Pin) -> Self {
        Self {
            name: pin.name().to_owned(),
            version: pin.lsn().0,
            bytes: pin.version().table().len() as u64 * SEGMENT_SIZE as u64,
        }
    }
}

impl From<PinError> for Error {
    fn from(error: PinError) -> Self {
        match error {
            PinError::Device(error) => Self::Engine(error.into()),
            other => Self::Checkpoint(other),
        }
    }
}

impl Db {
    /// Keeps the store as it is now under `name`, until [`drop_checkpoint`](Self::drop_checkpoint). Flushes
    /// the memtables, and returns when the checkpoint is durable: it survives restarts and crashes. It copies
    /// nothing; what is overwritten and merged from now on takes its space twice.
    ///
    /// ```
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// let db = argosy_embedded::Db::open(&path)?;
    /// db.put("k", "before")?;
    /// db.checkpoint("monday")?;
    /// db.put("k", "after")?;
    /// db.close()?;
    /// # drop(db);
    ///
    /// let db = argosy_embedded::Db::open(&path)?;
    /// let monday = db.open_checkpoint("monday")?;
    /// assert_eq!(monday.get("k")?.as_deref(), Some(&b"before"[..]));
    /// db.drop_checkpoint("monday")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Checkpoint`] where there is one of that name, or no checkpoint can have it;
    /// [`Error::Busy`] where the device is full, and memtables cannot be flushed for that; [`Error::Engine`];
    /// [`Error::Closed`].
    pub fn checkpoint(&self, name: &str) -> Result<Checkpoint> {
        let shared = &*self.shared;
        shared.check_open()?;
        if shared.pins.find(name).is_ok() {
            return Err(PinError::Exists(name.to_owned()).into());
        }
        let upto = shared.engine.last_lsn();
        let version = shared.until(|| shared.engine.version_with(upto))?;
        let time = shared.engine.committed_time();
        let pin = shared.pins.add(name, &version, time)?;
        Ok(Checkpoint::from(&*pin))
    }

    /// All checkpoints, by name.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        let pins = self.shared.pins.list();
        pins.iter().map(|pin| Checkpoint::from(&**pin)).collect()
    }

    /// The store as it was when checkpoint `name` was made, to be read.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] where there is none of that name; [`Error::Closed`].
    pub fn open_checkpoint(&self, name: &str) -> Result<Snapshot> {
        self.shared.check_open()?;
        let pin = self.shared.pins.find(name)?;
        let view = self.shared.engine.snapshot_of(pin.version());
        Ok(Snapshot::new(view, Arc::clone(&self.shared)))
    }

    /// Gives checkpoint `name` up. What nothing else needs is free when this returns, or once the last
    /// snapshot of it is dropped.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] where there is none of that name; [`Error::Engine`]; [`Error::Closed`].
    pub fn drop_checkpoint(&self, name: &str) -> Result<()> {
        self.shared.check_open()?;
        Ok(self.shared.pins.remove(name)?)
    }
}
