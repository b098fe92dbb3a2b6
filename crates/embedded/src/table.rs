//! Named tables: parts of a store, each with keys of its own.
//!
//! ```text
//! key in the store := name 0x00 key in the table
//! ```
//!
//! A name has 1 to [`TABLE_NAME_BYTES_MAX`] bytes, none of them zero. So no key of a table begins as one of another
//! does, and the pairs of a table lie side by side, in the order of its keys. Nothing else is kept of a table: it is
//! there while it has pairs. Whoever writes such keys by other means writes the table, and [`Db::iter`] shows them.
//!
//! All tables are one store: a batch is applied as a whole whatever tables its keys are of, and a snapshot shows all
//! of them at one moment.

use std::time::Duration;

use argosy_base::KeyRange;
use argosy_base::limits::KEY_BYTES_MAX;

use crate::bounds::KeyBounds;
use crate::error::Result;
use crate::scan::{Pair, Scan, Snapshot};
use crate::{Change, Changed, Condition, Db, Error};

/// Longest name of a table, in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 255;
const _: () = assert!(
    TABLE_NAME_BYTES_MAX + 1 < KEY_BYTES_MAX,
    "keys have room behind it"
);

/// Stands between the name of a table and a key of it.
const END: u8 = 0;

/// A table of a store: [`Db::table`]. Clones are the same table.
#[derive(Clone, Debug)]
pub struct Table {
    db: Db,
    space: Space,
}

/// The keys of a table.
#[derive(Clone, Debug)]
struct Space {
    /// The name and what ends it.
    prefix: Vec<u8>,
}

impl Space {
    fn of(name: &[u8]) -> Result<Self> {
        if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX || name.contains(&END) {
            return Err(Error::TableName(name.len()));
        }
        let prefix = [name, &[END]].concat();
        Ok(Self { prefix })
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [self.prefix.as_slice(), key].concat()
    }

    fn range(&self, keys: KeyRange) -> KeyRange {
        let all = KeyRange::prefix(&self.prefix);
        KeyRange {
            from: self.key(&keys.from),
            to: keys.to.map_or(all.to, |to| Some(self.key(&to))),
        }
    }

    fn scan(&self, scan: Scan) -> TableScan {
        let skipped = self.prefix.len();
        TableScan { scan, skipped }
    }
}

impl Table {
    /// The table `name` of `db`.
    pub(crate) fn of(db: Db, name: &[u8]) -> Result<Self> {
        let space = Space::of(name)?;
        Ok(Self { db, space })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.space.prefix[..self.space.prefix.len() - 1]
    }

    /// The key of the store that `key` of this table is: for batches, and whatever else takes keys of the store.
    #[must_use]
    pub fn key(&self, key: impl AsRef<[u8]>) -> Vec<u8> {
        self.space.key(key.as_ref())
    }

    /// As [`Db::get`].
    ///
    /// # Errors
    /// As that; so for all methods.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.db.get(self.key(key))
    }

    /// As [`Db::contains_key`].
    ///
    /// # Errors
    /// As that.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.db.contains_key(self.key(key))
    }

    /// As [`Db::get_many`].
    ///
    /// # Errors
    /// As that.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        self.db.get_many(keys.into_iter().map(|key| self.key(key)))
    }

    /// As [`Db::put`].
    ///
    /// # Errors
    /// As that.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.db.put(self.key(key), value)
    }

    /// As [`Db::put_with_ttl`].
    ///
    /// # Errors
    /// As that.
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.db.put_with_ttl(self.key(key), value, ttl)
    }

    /// As [`Db::put_if`].
    ///
    /// # Errors
    /// As that.
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition,
    ) -> Result<bool> {
        self.db.put_if(self.key(key), value, condition)
    }

    /// As [`Db::compare_and_swap`].
    ///
    /// # Errors
    /// As that.
    pub fn compare_and_swap<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<V>,
        new: Option<V>,
    ) -> Result<bool> {
        self.db.compare_and_swap(self.key(key), expected, new)
    }

    /// As [`Db::change`].
    ///
    /// # Errors
    /// As that.
    pub fn change(
        &self,
        key: impl AsRef<[u8]>,
        change: Change,
        operand: impl AsRef<[u8]>,
    ) -> Result<Changed> {
        self.db.change(self.key(key), change, operand)
    }

    /// As [`Db::delete`].
    ///
    /// # Errors
    /// As that.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.db.delete(self.key(key))
    }

    /// As [`Db::delete_range`].
    ///
    /// # Errors
    /// As that.
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        self.db.delete_range(self.space.range(range.keys()))
    }

    /// Removes all pairs of the table, in one step.
    ///
    /// # Errors
    /// As [`Db::delete_range`].
    pub fn clear(&self) -> Result<()> {
        self.delete_range(..)
    }

    /// All pairs of the table as they are now, by rising keys, without its name in front.
    pub fn iter(&self) -> TableScan {
        self.range(..)
    }

    /// The pairs whose keys are in `range`, as [`iter`](Self::iter).
    pub fn range(&self, range: impl KeyBounds) -> TableScan {
        let range = self.space.range(range.keys());
        self.space.scan(self.db.range(range))
    }

    /// The pairs whose keys begin with `prefix`, as [`iter`](Self::iter).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TableScan {
        self.range(KeyRange::prefix(prefix.as_ref()))
    }

    /// The table as `snapshot` shows it: all tables of one snapshot are at one moment.
    #[must_use]
    pub fn at(&self, snapshot: &Snapshot) -> TableSnapshot {
        TableSnapshot {
            snapshot: snapshot.clone(),
            space: self.space.clone(),
        }
    }
}

/// A table at one moment: [`Table::at`].
#[derive(Clone, Debug)]
pub struct TableSnapshot {
    snapshot: Snapshot,
    space: Space,
}

impl TableSnapshot {
    /// As [`Snapshot::get`].
    ///
    /// # Errors
    /// As that.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.snapshot.get(self.space.key(key.as_ref()))
    }

    /// All pairs, by rising keys.
    pub fn iter(&self) -> TableScan {
        self.range(..)
    }

    /// The pairs whose keys are in `range`, by rising keys.
    pub fn range(&self, range: impl KeyBounds) -> TableScan {
        let range = self.space.range(range.keys());
        self.space.scan(self.snapshot.range(range))
    }
}

/// The pairs of a part of a table, from either end, as [`Scan`]; keys are those of the table.
#[derive(Debug)]
#[must_use = "a scan reads nothing before it is asked for a pair"]
pub struct TableScan {
    scan: Scan,
    /// Bytes in front of each key.
    skipped: usize,
}

impl TableScan {
    /// As [`Scan::read_ahead_at_most`].
    pub const fn read_ahead_at_most(mut self, pairs: usize) -> Self {
        self.scan.most = Some(pairs);
        self
    }

    fn own(&self, pair: Result<Pair>) -> Result<Pair> {
        pair.map(|(mut key, value)| {
            key.drain(..self.skipped);
            (key, value)
        })
    }
}

impl Iterator for TableScan {
    type Item = Result<Pair, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.scan.next()?;
        Some(self.own(pair))
    }
}

impl DoubleEndedIterator for TableScan {
    fn next_back(&mut self) -> Option<Self::Item> {
        let pair = self.scan.next_back()?;
        Some(self.own(pair))
    }
}

impl std::iter::FusedIterator for TableScan {}
