//! Several keys at once: what it takes of the device is read together.
//!
//! The same places are asked in the same order as for one key, for each key by itself. Only that a key which
//! comes to something that is not in memory stops there, and the next key is looked at. Then everything at which keys
//! stopped is read as *one request*, and they resume. Filters send nearly every key to one leaf, so as a rule there is
//! one such round, and one more where values lie in a log.
//!
//! 1. [`Gathering`] has what earlier rounds have read, and notes what it does not have.
//! 2. A request is bounded, in reads and in bytes; what does not fit waits for the next one. Keys are looked
//!    up in groups, so what is read for them and held is bounded, too.
//! 3. A key that needs more rounds than `ROUNDS_MAX` is read by itself.
//! 4. What is told of them may be bounded, too ([`Wanted`]): behind a key whose value goes over that, keys
//!    are left alone as soon as it is known how long that value is, which is before it is read.

use argosy_base::{Lsn, Moment};
use argosy_engine::{EngineError, Reach, Wanted};

use super::search::Search;
use super::{ReadView, Reading};
use crate::names::OwnedEntry;
use crate::segments::fetch::{Fetch, Gathering};

/// Keys that are looked up at a time.
const GROUP_KEYS: usize = 128;

/// Rounds after which what is left is read key by key.
const ROUNDS_MAX: usize = 12;

/// What a key is bound to, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundValue {
    /// The value; empty where only its presence is wanted.
    pub value: Option<Vec<u8>>,
    /// The binding's LSN, as [`Located`](super::Located) has it.
    pub lsn: Lsn,
    /// When the pair expires.
    pub expiry: Option<Moment>,
}

/// How far a key has come.
enum At<'k> {
    /// It is looked up in the levels.
    Levels(Search<'k>),
    /// It is bound to this, which has this LSN if it is in a memtable.
    Bound(OwnedEntry, Lsn),
    Done(FoundValue),
}

impl At<'_> {
    /// Bytes of the value, as far as that is known.
    fn value_len(&self) -> usize {
        match self {
            Self::Levels(_) => 0,
            Self::Bound(entry, _) => entry.as_entry().value_len().unwrap_or(0),
            Self::Done(found) => found.value.as_ref().map_or(0, Vec::len),
        }
    }
}

/// A key that is being looked up.
struct Wanting<'k> {
    key: &'k [u8],
    at: At<'k>,
}

/// That there is a value, as an empty one.
fn presence(entry: &OwnedEntry) -> Option<Vec<u8>> {
    entry.as_entry().value_len().map(|_| Vec::new())
}

/// `None` where something has to be read first.
fn unless_missing<T>(looked: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(EngineError::NotInMemory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keys that are asked for together, and what is wanted of them.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// The keys.
    pub keys: &'a [&'a [u8]],
    /// What of them.
    pub wanted: Wanted,
}

impl ReadView {
    /// What is wanted of the first of the keys as of `lsn`, in their order.
    ///
    /// # Errors
    /// As [`locate`](Self::locate) and [`value`](Self::value) of any of them; [`EngineError::NotInMemory`] as `reach`
    /// says.
    pub fn get_some(
        &self,
        asked: Keys<'_>,
        lsn: Lsn,
        reading: &Reading,
        reach: Reach,
    ) -> Result<Vec<FoundValue>, EngineError> {
        let mut found = Vec::with_capacity(asked.keys.len());
        let mut left = asked.wanted;
        for keys in asked.keys.chunks(GROUP_KEYS) {
            let group = Keys { keys, wanted: left };
            let told = match reach {
                Reach::Device => self.get_group(group, lsn, reading)?,
                Reach::Memory => self.get_cached(group, lsn, reading)?,
            };
            if let Wanted::Values(bytes) = &mut left {
                let values = told.iter().filter_map(|found| found.value.as_ref());
                *bytes = bytes.saturating_sub(values.map(Vec::len).sum());
            }
            let ended = told.len() < keys.len() || left == Wanted::Values(0);
            found.extend(told);
            if ended {
                break;
            }
        }
        Ok(found)
    }

    /// The newest binding of each of `keys`, in their order.
    ///
    /// # Errors
    /// As [`locate`](Self::locate) of any of them.
    pub(crate) fn locate_some(
        &self,
        keys: &[&[u8]],
        reading: &Reading,
    ) -> Result<Vec<Option<OwnedEntry>>, EngineError> {
        let mut found = Vec::with_capacity(keys.len());
        for group in keys.chunks(GROUP_KEYS) {
            let gathering = Gathering::default();
            let fetch = Fetch::Together(&gathering);
            let mut wanted = self.begin(group, Lsn(u64::MAX));
            for _ in 0..ROUNDS_MAX {
                for wanted in &mut wanted {
                    unless_missing(self.bind(wanted, reading, fetch))?;
                }
                if !gathering.read()? {
                    break;
                }
            }
            for Wanting { key, at } in wanted {
                found.push(match at {
                    At::Bound(entry, _) => Some(entry),
                    At::Done(_) => None,
                    At::Levels(_) => self.in_levels(key, reading, Fetch::Device)?,
                });
            }
        }
        Ok(found)
    }

    /// `keys` as of `lsn`, as far as memtables bind them.
    fn begin<'k>(&self, keys: &[&'k [u8]], lsn: Lsn) -> Vec<Wanting<'k>> {
        let at = |key: &'k [u8]| match self.in_memory(key, lsn) {
            Some((lsn, entry)) => At::Bound(entry.to_owned(), lsn),
            None => At::Levels(Search::new(key)),
        };
        let wanted = keys.iter().map(|key| Wanting { key, at: at(key) });
        wanted.collect()
    }

    /// The keys of a group, out of what several requests read.
    fn get_group(
        &self,
        Keys { keys, wanted: what }: Keys<'_>,
        lsn: Lsn,
        reading: &Reading,
    ) -> Result<Vec<FoundValue>, EngineError> {
        let gathering = Gathering::default();
        let fetch = Fetch::Together(&gathering);
        let mut wanted = self.begin(keys, lsn);
        for _ in 0..ROUNDS_MAX {
            let mut left = what;
            let mut taken = 0;
            for wanted in &mut wanted {
                if left == Wanted::Values(0) && taken > 0 {
                    break;
                }
                taken += 1;
                unless_missing(self.resume(wanted, what, reading, fetch))?;
                if let Wanted::Values(bytes) = &mut left {
                    *bytes = bytes.saturating_sub(wanted.at.value_len());
                }
            }
            wanted.truncate(taken);
            if !gathering.read()? {
                break;
            }
        }
        let alone = |key| {
            let mut wanted = self.begin(&[key], lsn);
            self.get_alone(&mut wanted[0], what, reading, Fetch::Device)
        };
        let found = wanted.into_iter().map(|Wanting { key, at }| match at {
            At::Done(found) => Ok(found),
            At::Levels(_) | At::Bound(..) => alone(key),
        });
        found.collect()
    }

    /// The keys of a group, out of memory.
    fn get_cached(
        &self,
        Keys { keys, wanted: what }: Keys<'_>,
        lsn: Lsn,
        reading: &Reading,
    ) -> Result<Vec<FoundValue>, EngineError> {
        let mut left = what;
        let mut found = Vec::with_capacity(keys.len());
        for wanted in &mut self.begin(keys, lsn) {
            if left == Wanted::Values(0) && !found.is_empty() {
                break;
            }
            let told = self.get_alone(wanted, what, reading, Fetch::Memory)?;
            if let Wanted::Values(bytes) = &mut left {
                *bytes = bytes.saturating_sub(told.value.as_ref().map_or(0, Vec::len));
            }
            found.push(told);
        }
        Ok(found)
    }

    /// One key, by itself.
    fn get_alone(
        &self,
        wanted: &mut Wanting<'_>,
        what: Wanted,
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<FoundValue, EngineError> {
        self.resume(wanted, what, reading, fetch)?;
        match std::mem::replace(&mut wanted.at, At::Done(FoundValue::nothing())) {
            At::Done(found) => Ok(found),
            At::Levels(_) | At::Bound(..) => Err(EngineError::NotInMemory),
        }
    }

    /// Looks a key up as far as `fetch` allows.
    fn resume(
        &self,
        wanted: &mut Wanting<'_>,
        what: Wanted,
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<(), EngineError> {
        self.bind(wanted, reading, fetch)?;
        if let At::Bound(entry, lsn) = &wanted.at {
            let value = match what {
                Wanted::Presence => presence(entry),
                Wanted::Values(_) => self.value(wanted.key, entry.clone(), reading, fetch)?,
            };
            wanted.at = At::Done(FoundValue {
                value,
                lsn: *lsn,
                expiry: entry.expiry(),
            });
        }
        Ok(())
    }

    /// Finds out what a key is bound to, as far as `fetch` allows.
    fn bind(
        &self,
        wanted: &mut Wanting<'_>,
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<(), EngineError> {
        if let At::Levels(search) = &mut wanted.at {
            wanted.at = match search.advance(self, reading, fetch)? {
                Some(entry) => At::Bound(entry, Lsn(0)),
                None => At::Done(FoundValue::nothing()),
            };
        }
        Ok(())
    }
}

impl FoundValue {
    /// Of a key that was never bound.
    const fn nothing() -> Self {
        Self {
            value: None,
            lsn: Lsn(0),
            expiry: None,
        }
    }
}
