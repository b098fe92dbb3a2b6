//! Bulk ingest: sorted pairs straight into the levels.

use argosy_engine::{BusyReason, EngineError};
use argosy_lsm::db::bulk::Taken;
use argosy_lsm::db::ingest::IngestError;

use crate::Db;
use crate::error::{Error, Result};

impl From<IngestError> for Error {
    fn from(error: IngestError) -> Self {
        match error {
            IngestError::Engine(error) => Self::from(error),
            IngestError::Key(error) => Self::Limit(error),
            other => Self::Ingest(other),
        }
    }
}

impl Db {
    /// Puts all of `pairs`, which come by rising keys, or none of them. They are written once, into segments
    /// of the lowest level if the store has nothing between the first key and the last, and are no work for
    /// merges then; otherwise they are merged in later. There is no log of them, so this is several times
    /// cheaper than putting each. Returns how many pairs there were, once they are durable.
    ///
    /// What was written before it ends is hidden by the pairs. If others keep writing into the range, nothing
    /// is ingested; and what they write at the very end wins.
    /// [`Condition::Version`](crate::Condition::Version) does not notice ingested pairs. Pairs have at most
    /// 32 KiB.
    ///
    /// ```
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = argosy_embedded::example("ingest");
    /// let db = argosy_embedded::Db::open(&path)?;
    /// let squares = (0..10_000_u32).map(|n| (format!("{n:08}"), format!("{}", n * n)));
    /// assert_eq!(db.ingest(squares)?, 10_000);
    /// assert_eq!(db.get("00000009")?.as_deref(), Some(&b"81"[..]));
    ///
    /// // Keys have to rise.
    /// let error = db.ingest([("b", "1"), ("a", "2")]).unwrap_err();
    /// assert_eq!(error.outcome(), argosy_embedded::Outcome::NotApplied);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::Ingest`] where a pair cannot be ingested, or is out of order;
    /// [`Error::Busy`] where the device is full; [`Error::Engine`]; [`Error::Closed`].
    pub fn ingest<K, V>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<u64>
    where
        K: Into<Vec<u8>>,
        V: Into<Vec<u8>>,
    {
        let shared = &*self.shared;
        shared.check_open()?;
        let mut ingest = shared.engine.ingest()?;
        let mut count = 0;
        for (key, value) in pairs {
            ingest.add(key.into(), value.into())?;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let ticket = ingest.finish()?;
        // Where the device is full, the engine gives them up.
        match shared.until_told(|| shared.engine.taken(ticket))? {
            Taken::Done => Ok(count),
            Taken::Full => Err(EngineError::Busy(BusyReason::DeviceFull).into()),
            Taken::Unreadable(error) => Err(error.into()),
            Taken::NotEmpty | Taken::Contended => Err(IngestError::Contended.into()),
        }
    }
}
