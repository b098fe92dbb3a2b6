//! Views of a store at one moment, and the pairs of a range, from either end.

use std::sync::Arc;

use argosy_base::{Direction, KeyRange};
use argosy_engine as engine;
use argosy_engine::long::{self, check_users, is_head};
use argosy_engine::{EngineError, Snapshot as _};
use argosy_lsm::read::snapshot::LsmSnapshot;

use crate::bounds::KeyBounds;
use crate::db::shared_between_threads;
use crate::error::{Error, Result};
use crate::long::whole;
use crate::shared::Shared;

/// A store as it was at one moment: later writes do not change what it shows. Cheap to take, and to
/// clone; until the last clone and the last scan of it are dropped, it keeps the memory and the space
/// of what it shows.
///
/// It keeps the store open, too: the directory can be opened again once its snapshots and scans are
/// gone.
///
/// ```
/// # fn main() -> Result<(), argosy_embedded::Error> {
/// # let path = tempfile::tempdir().unwrap();
/// let db = argosy_embedded::Db::open(&path)?;
/// db.put("k", "before")?;
/// let snapshot = db.snapshot();
/// db.put("k", "after")?;
/// assert_eq!(snapshot.get("k")?.as_deref(), Some(&b"before"[..]));
/// assert_eq!(snapshot.iter().count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    view: Arc<LsmSnapshot>,
    // Behind what reads from it: dropped last.
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(crate) fn new(view: LsmSnapshot, shared: Arc<Shared>) -> Self {
        let view = Arc::new(view);
        Self { view, shared }
    }

    /// Returns when what was `read` may be shown.
    fn shown<T>(&self, read: Result<T, EngineError>) -> Result<T> {
        self.shared.shown_up_to(self.view.told())?;
        Ok(read?)
    }

    /// The number of the last write that it shows: each write has a higher one than those before.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.view.lsn().0
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        check_users(key.as_ref())?;
        let value = self.shown(self.view.get(key.as_ref()))?;
        value.map(|value| self.whole(value)).transpose()
    }

    /// The value of `key`, where it is the one that `head` stands for.
    pub(crate) fn get_if_head(&self, key: &[u8], head: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.shown(self.view.get(key))?;
        let found = found.filter(|found| found == head);
        found.map(|found| self.whole(found)).transpose()
    }

    /// The value that `found` stands for.
    #[inline]
    fn whole(&self, found: Vec<u8>) -> Result<Vec<u8>> {
        match is_head(&found) {
            true => whole(found, |keys| self.shown(self.view.get_many(keys))),
            false => Ok(found),
        }
    }

    /// The values of `keys`, in their order, with what has to be read from the device read as one request.
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        keys.iter().try_for_each(|key| check_users(key))?;
        let values = self.shown(self.view.get_many(&keys))?;
        let whole = |value: Option<_>| value.map(|value| self.whole(value)).transpose();
        values.into_iter().map(whole).collect()
    }

    /// All pairs, by rising keys.
    pub fn iter(&self) -> Scan {
        self.scan(KeyRange::all())
    }

    /// The pairs whose keys are in `range`, by rising keys; from the highest down with `rev`.
    pub fn range(&self, range: impl KeyBounds) -> Scan {
        self.scan(range.keys())
    }

    /// The pairs whose keys begin with `prefix`, by rising keys.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Scan {
        self.scan(KeyRange::prefix(prefix.as_ref()))
    }

    fn scan(&self, range: KeyRange) -> Scan {
        Scan {
            up: None,
            down: None,
            rest: long::users(range),
            most: None,
            snapshot: self.clone(),
        }
    }
}

/// The pairs of a range, from the lowest key up, and from the highest down, until both ends meet. It
/// shows the store as it was when the scan was made, reads as it goes, a little ahead, and holds nothing
/// but a few leaves in memory.
///
/// After an error it is at its end.
///
/// ```
/// # fn main() -> Result<(), argosy_embedded::Error> {
/// # let path = tempfile::tempdir().unwrap();
/// let db = argosy_embedded::Db::open(&path)?;
/// for key in ["a", "b", "c", "d"] {
///     db.put(key, "")?;
/// }
/// let mut scan = db.range("a".."d");
/// assert_eq!(scan.next().unwrap()?.0, b"a");
/// assert_eq!(scan.next_back().unwrap()?.0, b"c");
/// let rest: Result<Vec<_>, _> = scan.collect();
/// assert_eq!(rest?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "a scan reads nothing before it is asked for a pair"]
pub struct Scan {
    up: Option<Box<dyn engine::Scan>>,
    down: Option<Box<dyn engine::Scan>>,
    /// What has not been given out.
    rest: KeyRange,
    /// Most pairs that will be asked for, as [`read_ahead_at_most`](Self::read_ahead_at_most) says.
    pub(crate) most: Option<usize>,
    snapshot: Snapshot,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan")
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}

/// A key and its value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

impl Scan {
    /// Says that no more than `pairs` pairs will be asked for, so that no more are read ahead. Without it a scan reads
    /// more and more ahead the longer it goes on. Pairs beyond are shown all the same. To be said before the first
    /// pair is asked for.
    ///
    /// ```
    /// # fn main() -> Result<(), argosy_embedded::Error> {
    /// # let path = tempfile::tempdir().unwrap();
    /// # let db = argosy_embedded::Db::open(&path)?;
    /// # (0..20).try_for_each(|n| db.put(format!("user:{n:02}"), ""))?;
    /// let page: Result<Vec<_>, _> = db.prefix("user:").read_ahead_at_most(10).take(10).collect();
    /// assert_eq!(page?.len(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn read_ahead_at_most(mut self, pairs: usize) -> Self {
        self.most = Some(pairs);
        self
    }

    fn step(&mut self, direction: Direction) -> Result<Option<Pair>> {
        let (side, other) = match direction {
            Direction::Up => (&mut self.up, &self.down),
            Direction::Down => (&mut self.down, &self.up),
        };
        // A scan from one end keeps to what is left by itself.
        let meets = other.is_some();
        if (meets || side.is_none()) && self.rest.is_empty() {
            return Ok(None);
        }
        let scan = match side {
            Some(scan) => scan,
            None => {
                let mut scan = self.snapshot.view.scan(&self.rest, direction)?;
                if let Some(most) = self.most {
                    scan.expect(most);
                }
                side.insert(scan)
            }
        };
        let Some((key, value)) = self.snapshot.shown(scan.next())? else {
            return Ok(None);
        };
        // What the other end has given out already is not given out again.
        if meets && !self.rest.contains(&key) {
            return Ok(None);
        }
        Ok(Some((key, self.snapshot.whole(value)?)))
    }

    /// Ends the scan.
    fn end(&mut self) {
        (self.up, self.down) = (None, None);
        self.rest.to = Some(self.rest.from.clone());
    }

    fn give(&mut self, direction: Direction) -> Option<Result<Pair>> {
        match self.step(direction) {
            Ok(Some((key, value))) => {
                match direction {
                    Direction::Up => {
                        // The successor of the key, without new memory for each.
                        self.rest.from.clear();
                        self.rest.from.extend_from_slice(&key);
                        self.rest.from.push(0);
                    }
                    Direction::Down => {
                        let to = self.rest.to.get_or_insert_default();
                        to.clear();
                        to.extend_from_slice(&key);
                    }
                }
                Some(Ok((key, value)))
            }
            Ok(None) => {
                self.end();
                None
            }
            Err(error) => {
                self.end();
                Some(Err(error))
            }
        }
    }
}

impl Iterator for Scan {
    type Item = Result<Pair, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.give(Direction::Up)
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.give(Direction::Down)
    }
}

impl std::iter::FusedIterator for Scan {}

const _: fn() = || shared_between_threads::<Snapshot>();
