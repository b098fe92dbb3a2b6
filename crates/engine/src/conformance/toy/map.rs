//! What a region holds: a sorted map, and what is known of keys that it does not have.
//!
//! ```text
//! image := last: varint  time: varint  pair...
//! pair  := key: string  lsn: varint  expiry: varint  value: string       expiry: one more than the moment; 0: never
//! ```
//!
//! A key that was removed leaves a tombstone with the LSN of its removal, which is in no image. Of a key without an
//! entry it is known only that it was not written behind the *floor*: the last range that was removed, or the image
//! that the map was read from.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::{KeyRange, Lsn, Moment, Op};

use super::Mutants;
use super::log::Logged;
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

    /// Its image.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.last.0);
        put_varint(&mut out, self.time.0);
        for (key, entry) in self.bound(&KeyRange::all()) {
            put_string(&mut out, key);
            put_varint(&mut out, entry.lsn.0);
            put_varint(
                &mut out,
                entry.expiry.map_or(0, |at| at.0.saturating_add(1)),
            );
            put_string(&mut out, entry.value.as_deref().unwrap_or_default());
        }
        out
    }

    /// The map of which `bytes` are the image; an empty one of none.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let from = &mut Reader::new("toy image", bytes);
        let (last, time) = (Lsn(from.varint()?), Moment(from.varint()?));
        let mut pairs = BTreeMap::new();
        while !from.rest().is_empty() {
            let key = from.string(usize::MAX)?.to_vec();
            let lsn = Lsn(from.varint()?);
            let expiry = from.varint()?.checked_sub(1).map(Moment);
            let value = Some(from.string(usize::MAX)?.into());
            pairs.insert(key, Entry { value, expiry, lsn });
        }
        Ok(Self {
            pairs: Arc::new(pairs),
            floor: last,
            last,
            time,
            told: last,
            mutants: Mutants::default(),
        })
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
