//! What an engine should hold: a map in memory, and the time by which its pairs expire.

use std::collections::BTreeMap;

use argosy_base::{KeyRange, Moment};

/// What a key is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    value: Vec<u8>,
    expiry: Option<Moment>,
}

impl Bound {
    fn lives_at(&self, now: Moment) -> bool {
        self.expiry.is_none_or(|expiry| expiry > now)
    }
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// Those that have expired, too: a snapshot may show them for a while.
    pairs: BTreeMap<Vec<u8>, Bound>,
    /// What the clock shows.
    pub now: Moment,
}

/// A pair, and whether it has expired.
pub(super) struct Pair<'a> {
    pub key: &'a Vec<u8>,
    pub value: &'a Vec<u8>,
    pub expired: bool,
}

impl Model {
    /// Lets `millis` milliseconds pass; returns what the clock shows then.
    pub(super) fn pass(&mut self, millis: u64) -> Moment {
        self.now = self.now.after(millis);
        self.now
    }

    fn bound(&self, key: &[u8]) -> Option<&Bound> {
        let bound = self.pairs.get(key);
        bound.filter(|bound| bound.lives_at(self.now))
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.bound(key).map(|bound| &bound.value)
    }

    /// Whether there was a pair of `key`, which has expired.
    pub(super) fn has_expired(&self, key: &[u8]) -> bool {
        self.pairs.contains_key(key) && self.bound(key).is_none()
    }

    pub(super) fn expiry(&self, key: &[u8]) -> Option<Moment> {
        self.bound(key).and_then(|bound| bound.expiry)
    }

    pub(super) fn contains_key(&self, key: &[u8]) -> bool {
        self.bound(key).is_some()
    }

    /// Binds `key`, and returns what it was bound to.
    pub(super) fn insert(
        &mut self,
        key: Vec<u8>,
        value: Vec<u8>,
        expiry: Option<Moment>,
    ) -> Option<Vec<u8>> {
        let now = self.now;
        let before = self.pairs.insert(key, Bound { value, expiry })?;
        before.lives_at(now).then_some(before.value)
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        self.pairs.remove(key);
    }

    pub(super) fn remove_range(&mut self, range: &KeyRange) {
        self.pairs.retain(|key, _| !range.contains(key));
    }

    /// The key at place `nth` of those that live from `key` on.
    pub(super) fn nth_from(&self, key: &[u8], nth: usize) -> Option<&Vec<u8>> {
        let from = self.pairs.range(key.to_vec()..);
        let living = from.filter(|(_, bound)| bound.lives_at(self.now));
        living.map(|(key, _)| key).nth(nth)
    }

    /// The pairs of `range`, those that have expired, too.
    pub(super) fn all_in<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = Pair<'a>> {
        let pairs = self.pairs.iter().filter(|(key, _)| range.contains(key));
        pairs.map(|(key, bound)| Pair {
            key,
            value: &bound.value,
            expired: !bound.lives_at(self.now),
        })
    }
}
