//! A sorted map over a [`List`].

use std::fmt;
use std::ops::Bound;

use super::{Entry, Iter, List};

/// A map from numbers, or what is as cheap to copy, of which old and new states share what they have in common.
#[derive(Clone)]
pub struct Map<K: Copy + Ord, V: Clone>(pub(super) List<Pair<K, V>>);

/// An entry of a map.
#[derive(Clone)]
pub(super) struct Pair<K, V> {
    key: K,
    value: V,
}

impl<K: Copy, V: Clone> Entry for Pair<K, V> {
    type Key = K;
    type Aid = ();

    fn key(&self) -> &K {
        &self.key
    }

    fn aid<'k>(_: impl Iterator<Item = &'k K> + Clone)
    where
        K: 'k,
    {
    }
}

impl<K: Copy + Ord, V: Clone> Map<K, V> {
    /// How many keys it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What belongs to `key`.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        let found = self.0.last_of(|other| other <= key)?;
        (found.key == *key).then_some(&found.value)
    }

    /// Whether something belongs to `key`.
    #[inline]
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The place of `key`, and whether it is there.
    fn place(&self, key: &K) -> (usize, bool) {
        match self.0.locate(|other| other <= key) {
            (behind, Some(last)) if last.key == *key => (behind - 1, true),
            (behind, _) => (behind, false),
        }
    }

    /// Has `value` belong to `key`; returns what did.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let pair = Pair { key, value };
        match self.place(&key) {
            (at, true) => Some(self.0.replace(at, pair).value),
            (at, false) => {
                self.0.insert(at, pair);
                None
            }
        }
    }

    /// Takes `key` out; returns what belonged to it.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        match self.place(key) {
            (at, true) => Some(self.0.remove(at).value),
            (_, false) => None,
        }
    }

    /// All of it, by key.
    #[must_use]
    pub fn iter(&self) -> MapPairs<'_, K, V> {
        MapPairs(self.0.iter())
    }

    /// What belongs to keys from `from` on, by key.
    #[must_use]
    pub fn range(&self, from: Bound<K>) -> MapPairs<'_, K, V> {
        let before = self.0.partition_point(|key| match from {
            Bound::Included(from) => *key < from,
            Bound::Excluded(from) => *key <= from,
            Bound::Unbounded => false,
        });
        MapPairs(self.0.range(before..self.0.len()))
    }

    /// Its keys, in order.
    #[must_use]
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator + Clone {
        self.0.iter().map(|pair| &pair.key)
    }

    /// What belongs to its keys, in their order.
    #[must_use]
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator + Clone {
        self.0.iter().map(|pair| &pair.value)
    }
}

impl<K: Copy + Ord, V: Clone> Default for Map<K, V> {
    fn default() -> Self {
        Self(List::new())
    }
}

impl<K: Copy + Ord + fmt::Debug, V: Clone + fmt::Debug> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K: Copy + Ord, V: Clone> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = Self::default();
        for (key, value) in pairs {
            map.insert(key, value);
        }
        map
    }
}

impl<'m, K: Copy + Ord, V: Clone> IntoIterator for &'m Map<K, V> {
    type Item = (&'m K, &'m V);
    type IntoIter = MapPairs<'m, K, V>;

    fn into_iter(self) -> MapPairs<'m, K, V> {
        self.iter()
    }
}

/// Keys of a map, in order, and what belongs to them.
pub struct MapPairs<'m, K: Copy, V: Clone>(Iter<'m, Pair<K, V>>);

impl<K: Copy, V: Clone> Clone for MapPairs<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<'m, K: Copy, V: Clone> Iterator for MapPairs<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|pair| (&pair.key, &pair.value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<K: Copy, V: Clone> DoubleEndedIterator for MapPairs<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|pair| (&pair.key, &pair.value))
    }
}

impl<K: Copy, V: Clone> ExactSizeIterator for MapPairs<'_, K, V> {}
