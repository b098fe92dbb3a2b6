//! Writes: one by one, in batches, under conditions, and in bulk; and how they wait for room and for durability.

use std::time::Duration;

use argosy_base::KeyRange;
use argosy_engine::{self as engine, BatchError, BusyReason, EngineError, Store};
use argosy_lsm::db::bulk_load::Taken;
use argosy_lsm::db::bulk_loader::BulkLoadError;

use crate::bounds::KeyBounds;
use crate::error::{Error, Result};
use crate::long::Put;
use crate::shared::Shared;
use crate::{Change, Changed, Condition, Db, Durability, Expiry, WriteBatch, Written};

/// How a batch is to be written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// What must hold of its keys for it to be written at all.
    pub condition: Condition,
    /// Whether to tell what each key was bound to before.
    pub return_previous: bool,
    /// Whether to return only once it is durable, whatever the store's [`Durability`].
    pub sync: bool,
    /// How long to wait for room instead of [`Builder::patience`](crate::Builder::patience); nothing at all with zero.
    pub patience: Option<Duration>,
}

impl Db {
    /// Binds `key` to `value`, of up to 64 MiB.
    ///
    /// ```
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
    /// let film = vec![7; 3 << 20];
    /// db.put("film", &film)?;
    /// assert_eq!(db.get("film")?, Some(film));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_if(key, value, Condition::Always).map(|_| ())
    }

    /// Binds `key` to `value` for as long as `ttl`, rounded up to milliseconds, by the clock on the wall. Writing
    /// `key` again by other means makes it stay. [`WriteBatch::put_until`] does the same for the pairs of a batch,
    /// and takes moments, too.
    ///
    /// A pair that was found to be gone does not come back where the clock is set back, or a process that was
    /// killed is started again; after a power failure it may, as with a delete, for as long as the
    /// [`Durability`] says.
    ///
    /// So the store's time never runs back. If the clock is ahead once, and a pair that has expired by it is read
    /// or written then, everything that expires until that time is gone, and once the clock is right again the
    /// store's time stands still until the clock gets there: what is put with a `ttl` meanwhile stays until then,
    /// and its `ttl` longer. Have the clock right before the store is opened.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
    /// db.put_with_ttl("session", "Ada", Duration::from_secs(3600))?;
    /// assert_eq!(db.get("session")?.as_deref(), Some(&b"Ada"[..]));
    /// db.put_with_ttl("session", "Ada", Duration::ZERO)?;
    /// assert_eq!(db.get("session")?, None);
    /// assert_eq!(db.iter().count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let millis = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let options = WriteOptions::default();
        let put = Put {
            expiry: Expiry::After(millis),
            ..Put::new(key.as_ref(), value.as_ref())
        };
        self.shared.put_as(put, &options).map(|_| ())
    }

    /// Removes `key`. Returns whether it had a value.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.delete_if(key, Condition::Always)
    }

    /// Removes all keys of `range`, in one step that readers and snapshots see whole or not at all. It costs the
    /// same however many there are: nobody looks at them, so nothing tells how many there were.
    /// [`WriteBatch::delete_range`] does the same among other operations.
    ///
    /// ```
    /// use argosy_embedded::{KeyRange, WriteBatch};
    ///
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
    /// for user in 1..=3 {
    ///     db.put(format!("user/{user}/name"), "Ada")?;
    ///     db.put(format!("user/{user}/mail"), "ada@example.org")?;
    /// }
    /// let before = db.snapshot();
    /// db.delete_range("user/1".."user/2")?;
    /// assert_eq!(db.iter().count(), 4);
    /// db.delete_prefix("user/2/")?;
    /// assert_eq!(db.iter().count(), 2);
    ///
    /// let mut batch = WriteBatch::new();
    /// batch.delete_range(&KeyRange::all())?;
    /// batch.put(b"user/4/name", b"Grace")?;
    /// db.write(&batch)?;
    /// assert_eq!(db.iter().count(), 1);
    /// assert_eq!(before.iter().count(), 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        self.erase(&range.keys())
    }

    /// Removes all keys that begin with `prefix`; see [`delete_range`](Self::delete_range).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.erase(&KeyRange::prefix(prefix.as_ref()))
    }

    fn erase(&self, range: &KeyRange) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_range(range)?;
        self.write(&batch)
    }

    /// Binds `key` to `value` if `condition` holds of it. Returns whether it did.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition,
    ) -> Result<bool> {
        let options = WriteOptions {
            condition,
            ..WriteOptions::default()
        };
        let put = Put::new(key.as_ref(), value.as_ref());
        let written = self.shared.put_as(put, &options)?;
        Ok(written.applied)
    }

    /// Removes `key` if `condition` holds of it. Returns whether that was so, and the key had a value.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete_if(&self, key: impl AsRef<[u8]>, condition: Condition) -> Result<bool> {
        let mut batch = WriteBatch::new();
        batch.delete(key.as_ref())?;
        let options = WriteOptions {
            condition,
            ..WriteOptions::default()
        };
        let written = self.write_with(&batch, &options)?;
        Ok(written.applied && written.existed.first().copied().unwrap_or_default())
    }

    /// Binds `key` to `new`, or removes it, if it is bound to `expected`, or to nothing. Returns whether that
    /// was so. Both are of one type: of literals of bytes that differ in length, take slices (`&b"a"[..]`).
    ///
    /// ```
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
    /// assert!(db.compare_and_swap("k", None, Some("first"))?);
    /// assert!(!db.compare_and_swap("k", Some("2"), Some("other"))?);
    /// assert!(db.compare_and_swap("k", Some(b"first"), None)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn compare_and_swap<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<V>,
        new: Option<V>,
    ) -> Result<bool> {
        let expected = expected.as_ref().map(AsRef::as_ref);
        let new = new.as_ref().map(AsRef::as_ref);
        let condition = expected.map_or(Condition::Absent, |_| Condition::Equals);
        let options = WriteOptions {
            condition,
            ..WriteOptions::default()
        };
        if let Some(value) = new {
            let put = Put {
                expected,
                ..Put::new(key.as_ref(), value)
            };
            let written = self.shared.put_as(put, &options)?;
            return Ok(written.applied);
        }
        let mut batch = WriteBatch::new();
        batch.delete(key.as_ref())?;
        if let Some(expected) = expected {
            batch.expect(expected)?;
        }
        Ok(self.write_with(&batch, &options)?.applied)
    }

    /// Changes what `key` is bound to, with nobody in between: adds to a number, appends, overwrites a part.
    /// Returns what it became, or why it could not be changed.
    ///
    /// ```
    /// use argosy_embedded::{Change, Changed};
    ///
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
    /// assert_eq!(db.change("visits", Change::Add(1), "")?, Changed::Number(1));
    /// assert_eq!(db.change("visits", Change::Add(1), "")?, Changed::Number(2));
    /// assert_eq!(db.change("log", Change::Append, "line 1\n")?, Changed::Number(7));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn change(
        &self,
        key: impl AsRef<[u8]>,
        change: Change,
        operand: impl AsRef<[u8]>,
    ) -> Result<Changed> {
        let mut batch = WriteBatch::new();
        batch.change(key.as_ref(), change, operand.as_ref())?;
        let written = self.write_with(&batch, &WriteOptions::default())?;
        Ok(written
            .changed
            .expect("a change that was asked for is told of"))
    }

    /// Writes all of `batch`, or nothing of it.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`Error::Busy`] where there was no room for it for too long;
    /// [`Error::NotDurable`] where it was to be durable and is not; [`Error::Engine`];
    /// [`Error::Closed`]. Each tells [what became of it](Error::outcome).
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.write_with(batch, &WriteOptions::default()).map(|_| ())
    }

    /// Writes all of `batch`, or nothing of it, as `options` say.
    ///
    /// ```
    /// use std::time::Duration;
    /// use argosy_embedded::{WriteBatch, WriteOptions};
    ///
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"paid", b"yes")?;
    /// let options = WriteOptions {
    ///     sync: true,
    ///     return_previous: true,
    ///     patience: Some(Duration::ZERO),
    ///     ..WriteOptions::default()
    /// };
    /// match db.write_with(&batch, &options) {
    ///     Ok(written) => assert_eq!(written.previous, [None]),
    ///     Err(argosy_embedded::Error::Busy { reason, .. }) => println!("do something else first: {reason}"),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<Written> {
        self.shared.write_with(batch, options)
    }

    /// Puts all of `pairs`, which come by rising keys, or none of them. They are written once, into segments
    /// of the lowest level if the store has nothing between the first key and the last, and are no work for
    /// merges then; otherwise they are merged in later. There is no log of them, so this is several times
    /// cheaper than putting each. Returns how many pairs there were, once they are durable.
    ///
    /// What was written before it ends is shadowed by the pairs. If others keep writing into the range, nothing
    /// is bulk-loaded; and what they write at the very end wins.
    /// [`Condition::Version`] does not notice bulk-loaded pairs. Pairs have at most
    /// 32 KiB.
    ///
    /// ```
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// let db = argosy_embedded::Db::open(&path)?;
    /// let squares = (0..10_000_u32).map(|n| (format!("{n:08}"), format!("{}", n * n)));
    /// assert_eq!(db.bulk_load(squares)?, 10_000);
    /// assert_eq!(db.get("00000009")?.as_deref(), Some(&b"81"[..]));
    ///
    /// // Keys have to rise.
    /// let error = db.bulk_load([("b", "1"), ("a", "2")]).unwrap_err();
    /// assert_eq!(error.outcome(), argosy_embedded::Outcome::NotApplied);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::BulkLoad`] where a pair cannot be bulk-loaded, or is out of order;
    /// [`Error::Busy`] where the device is full; [`Error::Engine`]; [`Error::Closed`].
    pub fn bulk_load<K, V>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<u64>
    where
        K: Into<Vec<u8>>,
        V: Into<Vec<u8>>,
    {
        let shared = &*self.shared;
        shared.check_open()?;
        let mut loader = shared.engine.bulk_loader()?;
        let mut count = 0;
        for (key, value) in pairs {
            loader.add(key.into(), value.into())?;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let ticket = loader.finish()?;
        // Where the device is full, the engine gives them up.
        match shared.until_told(|| shared.engine.taken(ticket))? {
            Taken::Done => Ok(count),
            Taken::Full => Err(EngineError::Busy(BusyReason::DeviceFull).into()),
            Taken::Unreadable(error) => Err(error.into()),
            Taken::NotEmpty | Taken::Contended => Err(BulkLoadError::Contended.into()),
        }
    }
}

impl Shared {
    /// See [`Db::write_with`].
    pub(crate) fn write_with(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<Written> {
        self.check_open()?;
        if options.condition == Condition::Equals && !batch.expects() {
            return Err(BatchError::NothingExpected.into());
        }
        // What is overwritten is not swept before it has been read.
        let reading = options.return_previous.then(|| self.long.sweeping.read());
        let mut written = self.append(batch, options)?;
        self.pace.wrote();
        self.make_whole(&mut written)?;
        drop(reading);
        let must_be_durable = options.sync || self.durability == Durability::Sync;
        if must_be_durable {
            let durable = self.until_durable(written.wait.lsn());
            durable.map_err(|error| match written.applied {
                true => Error::NotDurable(error),
                false => Error::Engine(error),
            })?;
        }
        Ok(written)
    }

    /// Writes, waiting where there is no room.
    pub(crate) fn append(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<Written> {
        if let Some(ended) = self.pace.ended() {
            return Err(Error::Ended(ended));
        }
        let engine_options = || engine::WriteOptions {
            condition: options.condition,
            return_previous: options.return_previous,
        };
        let mut busy = match self.engine.write(batch, engine_options()) {
            Ok(written) => return Ok(written),
            Err(EngineError::Busy(reason)) => reason,
            Err(error) => return Err(refused(error)),
        };
        let patience = options.patience.unwrap_or(self.patience);
        let attempt = || match self.engine.write(batch, engine_options()) {
            Ok(written) => Ok(Some(written)),
            Err(EngineError::Busy(reason)) => {
                busy = reason;
                Ok(None)
            }
            Err(error) => Err(refused(error)),
        };
        let written = self.pace.until_room(patience, attempt, Error::Ended)?;
        written.ok_or(Error::Busy {
            reason: busy,
            waited: patience,
        })
    }
}

/// What the engine says to a write: one that is closed did nothing.
fn refused(error: EngineError) -> Error {
    match error {
        EngineError::Closed(_) => Error::Ended(error),
        error => error.into(),
    }
}

impl From<BulkLoadError> for Error {
    fn from(error: BulkLoadError) -> Self {
        match error {
            BulkLoadError::Engine(error) => Self::from(error),
            BulkLoadError::Key(error) => Self::Limit(error),
            other => Self::BulkLoad(other),
        }
    }
}
