//! What a region holds: a sorted map, and what is known of keys that it does not have.
//!
//! A key that was removed leaves a tombstone with the LSN of its removal, until an image is made of the map. Of a key
//! without an entry it is known only that it was not written behind the *floor*: the last range that was removed, or
//! the last image.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use argosy_base::{KeyRange, Lsn, Moment};

use super::Mutants;
use super::record::{Group, Record};

/// What a key is bound to. A clone is another reference to the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// `None`: the key was removed.
    pub(super) value: Option<Arc<[u8]>>,
    pub(super) expiry: Option<Moment>,
    pub(super) lsn: Lsn,
}

/// See the module documentation. A clone costs a reference count; the next write to either copies the tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    pairs: Arc<BTreeMap<Vec<u8>, Entry>>,
    floor: Lsn,
    /// The last LSN that is in it.
    pub(super) last: Lsn,
    /// The region's time, and the LSN that told it.
    pub(super) time: Moment,
    pub(super) told: Lsn,
    pub(super) mutants: Mutants,
}

/// What is found of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) value: Option<Arc<[u8]>>,
    pub(super) expiry: Option<Moment>,
    /// No write of the key has a higher LSN.
    pub(super) lsn: Lsn,
}

impl Map {
    /// A map of `pairs` as of `last`, at the region's `time`.
    pub(super) fn of(pairs: BTreeMap<Vec<u8>, Entry>, last: Lsn, time: Moment) -> Self {
        Self {
            pairs: Arc::new(pairs),
            floor: last,
            last,
            time,
            told: last,
            mutants: Mutants::default(),
        }
    }

    /// Does what `group` says.
    pub(super) fn apply(&mut self, group: &Group) {
        let mut lsn = group.first;
        for record in &group.records {
            self.apply_one(record, lsn);
            self.last = lsn;
            lsn = lsn.next();
        }
    }

    fn apply_one(&mut self, record: &Record, lsn: Lsn) {
        let removed = Entry {
            value: None,
            expiry: None,
            lsn,
        };
        match record {
            Record::Put { key, value, expiry } => {
                let entry = Entry {
                    value: Some(Arc::clone(value)),
                    expiry: *expiry,
                    lsn,
                };
                Arc::make_mut(&mut self.pairs).insert(key.clone(), entry);
            }
            Record::Delete { key } => {
                Arc::make_mut(&mut self.pairs).insert(key.clone(), removed);
            }
            Record::DeleteRange(range) => {
                let pairs = Arc::make_mut(&mut self.pairs);
                for (_, entry) in pairs.range_mut(bounds(range)) {
                    *entry = removed.clone();
                }
                if !self.mutants.forget_floor() {
                    self.floor = lsn;
                }
            }
            Record::Time(time) => (self.time, self.told) = (*time, lsn),
        }
    }

    /// What `key` is bound to, unless it has expired by the region's time.
    pub(super) fn seen(&self, key: &[u8]) -> Seen {
        let Some(entry) = self.pairs.get(key) else {
            return Seen {
                lsn: self.floor,
                ..Seen::default()
            };
        };
        match entry.expiry {
            Some(expiry) if expiry <= self.time => Seen {
                lsn: entry.lsn.max(self.told),
                ..Seen::default()
            },
            expiry => Seen {
                value: entry.value.clone(),
                expiry,
                lsn: entry.lsn,
            },
        }
    }

    /// The pairs of `range` that are not removed. Some may have expired.
    pub(super) fn bound<'a>(
        &'a self,
        range: &KeyRange,
    ) -> impl DoubleEndedIterator<Item = (&'a Vec<u8>, &'a Entry)> + use<'a> {
        let pairs = self.pairs.range(bounds(range));
        pairs.filter(|(_, entry)| entry.value.is_some())
    }

    /// How many keys it has, with those that were removed.
    pub(super) fn entries(&self) -> usize {
        self.pairs.len()
    }

    /// Bytes of its keys and values.
    pub(super) fn bytes(&self) -> usize {
        let value = |entry: &Entry| entry.value.as_ref().map_or(0, |value| value.len());
        let bytes = self
            .pairs
            .iter()
            .map(|(key, entry)| key.len() + value(entry));
        bytes.sum()
    }

    /// Forgets what had been removed, or had expired, when the image as of `upto` was made at `time`.
    pub(super) fn forget_removed(&mut self, upto: Lsn, time: Moment) {
        self.floor = self.floor.max(upto);
        let is_gone = |entry: &Entry| {
            let removed = entry.value.is_none();
            let expired = entry.expiry.is_some_and(|expiry| expiry <= time);
            entry.lsn <= upto && (removed || expired)
        };
        if self.pairs.values().any(is_gone) {
            Arc::make_mut(&mut self.pairs).retain(|_, entry| !is_gone(entry));
        }
    }
}

fn bounds(range: &KeyRange) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    if range.is_empty() {
        // A map panics where a range ends in front of its start.
        return (Bound::Included(Vec::new()), Bound::Excluded(Vec::new()));
    }
    let to = range.to.clone().map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(range.from.clone()), to)
}
