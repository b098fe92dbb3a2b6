//! What a region holds: a sorted map, and what is known of keys that it does not have.
//!
//! A key that was removed leaves a tombstone with the LSN of its removal, until an image is made of the map. Of a key
//! without an entry it is known only that it was not written behind the *floor*: the last range that was removed, or
//! the last image.
//!
//! An image is a [group](super::record) for each pair, with one put. Zeros follow.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use argosy_base::codec::{Malformed, Reader};
use argosy_base::{Expiry, KeyRange, Lsn, Moment, Op, WriteBatch};

use super::Mutants;
use super::record::Logged;
use crate::deciding::BoundKey;

/// What a key is bound to. A clone is another reference to the same bytes.
#[derive(Clone, Debug)]
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
    told: Lsn,
    pub(super) mutants: Mutants,
}

/// What is found of a key. No write of it has a higher LSN.
impl BoundKey for Entry {
    fn exists(&self) -> bool {
        self.value.is_some()
    }

    fn expiry(&self) -> Option<Moment> {
        self.expiry
    }

    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    fn into_value(self) -> Option<Vec<u8>> {
        self.value.map(|value| value.to_vec())
    }
}

impl Map {
    /// Does what `group` says.
    pub(super) fn apply(&mut self, group: &Logged) {
        self.last = group.last();
        if group.time > Moment(0) {
            (self.time, self.told) = (group.time, group.first);
        }
        let pairs = Arc::make_mut(&mut self.pairs);
        for (lsn, op) in (group.first.0..).map(Lsn).zip(group.ops.ops()) {
            let entry = |value, expiry| Entry { value, expiry, lsn };
            match op {
                Op::Put { key, value, expiry } => {
                    let expiry = expiry.resolve(self.time, None);
                    pairs.insert(key.to_vec(), entry(Some(value.into()), expiry));
                }
                Op::Delete { key } => _ = pairs.insert(key.to_vec(), entry(None, None)),
                Op::DeleteRange { .. } => {
                    let removed = pairs.range_mut(bounds(&op.range().unwrap_or_default()));
                    removed.for_each(|(_, pair)| *pair = entry(None, None));
                    if !self.mutants.forget_floor() {
                        self.floor = lsn;
                    }
                }
            }
        }
    }

    /// What `key` is bound to, unless it has expired by the region's time.
    pub(super) fn seen(&self, key: &[u8]) -> Entry {
        let nothing = |lsn| Entry {
            value: None,
            expiry: None,
            lsn,
        };
        match self.pairs.get(key) {
            None => nothing(self.floor),
            Some(entry) if self.is_over(entry) => nothing(entry.lsn.max(self.told)),
            Some(entry) => entry.clone(),
        }
    }

    /// Whether it has expired by the region's time.
    fn is_over(&self, entry: &Entry) -> bool {
        entry.expiry.is_some_and(|expiry| expiry <= self.time)
    }

    /// The pairs of `range` that are there.
    pub(super) fn bound(
        &self,
        range: &KeyRange,
    ) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Entry)> {
        let pairs = self.pairs.range(bounds(range));
        pairs.filter(|(_, entry)| entry.value.is_some() && !self.is_over(entry))
    }

    /// How many keys it has, with those that were removed.
    pub(super) fn entries(&self) -> usize {
        self.pairs.len()
    }

    /// Forgets what had been removed, or had expired, when the image as of `upto` was made at `time`.
    pub(super) fn forget_removed(&mut self, upto: Lsn, time: Moment) {
        self.floor = self.floor.max(upto);
        Arc::make_mut(&mut self.pairs).retain(|_, entry| {
            let is_over = entry.expiry.is_some_and(|expiry| expiry <= time);
            entry.lsn > upto || entry.value.is_some() && !is_over
        });
    }

    /// Its image.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (key, entry) in self.bound(&KeyRange::all()) {
            let mut ops = WriteBatch::new();
            let value = entry.value.as_deref().unwrap_or_default();
            let expiry = entry.expiry.map_or(Expiry::Never, Expiry::At);
            ops.put_any(key, value, expiry).expect("it was written");
            let (first, time) = (entry.lsn, Moment(0));
            Logged { first, time, ops }.encode(&mut out);
        }
        out
    }

    /// The map of which `bytes` are the image, as of the LSN `last` at `time`.
    pub(super) fn decode(bytes: &[u8], last: Lsn, time: Moment) -> Result<Self, Malformed> {
        let mut map = Self::default();
        let mut from = Reader::new("toy image", bytes);
        // No pair has LSN 0.
        while from.rest().first().is_some_and(|byte| *byte != 0) {
            map.apply(&Logged::read(&mut from)?);
        }
        (map.floor, map.last, map.told, map.time) = (last, last, last, time);
        Ok(map)
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
