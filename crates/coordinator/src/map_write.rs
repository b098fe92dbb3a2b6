//! A change of the region map as operations of the coordinator: it writes the shards that it concerns, and the index.
//!
//! 1. A shard is written anew where one of its regions differs; the others stay, and so do their versions.
//! 2. One that would become longer than the bound is cut in two, again and again: the first part keeps the number, the
//!    others get new ones. A region alone may be longer than the bound.
//! 3. Where the map has other regions than before, all shards are replaced by new ones.
//! 4. All of that is one [`Multi`](crate::contract::Request::Multi), which holds if index and shards are at the
//!    versions
//!    that were read. The index is always among it. So its version is that of the map, and whoever finds the shards
//!    that an index names, at the versions that it names, has a whole map.
//!
//! Whoever changes many regions divides that into several changes: one cannot have more than
//! [`OPS_MAX`](crate::contract::OPS_MAX) operations and [`VALUE_BYTES_MAX`](crate::contract::VALUE_BYTES_MAX) bytes.
//! Masters keep to much less, whatever the number of regions.

use std::ops::Range;
use std::sync::Arc;

use crate::CLUSTER_KEY;
use crate::contract::{CoordinatorOp, EntryVersion};
use crate::map::{ClusterMap, MapError};
use crate::map_format::{
    MapIndex, SHARDS_MAX, ShardPlace, around_regions, encode_shard, put_region,
};
use crate::region::Region;

/// The key of a shard.
#[must_use]
pub fn shard_key(shard: u64) -> String {
    format!("{CLUSTER_KEY}/shard-{shard}")
}

/// A map as it lies in the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMap {
    /// The version of the index, which is that of the map.
    pub version: EntryVersion,
    /// The map.
    pub map: Arc<ClusterMap>,
    /// Where its regions lie.
    pub shards: MapShards,
}

/// How a map is cut into shards, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapShards {
    pub(crate) next: u64,
    pub(crate) places: Vec<ShardPlace>,
}

impl MapShards {
    /// The shards.
    #[must_use]
    pub fn places(&self) -> &[ShardPlace] {
        &self.places
    }

    /// The shard of each region, by the place of that in the map.
    pub fn of_regions(&self) -> impl Iterator<Item = &ShardPlace> {
        let places = self.places.iter();
        places.flat_map(|place| std::iter::repeat_n(place, place.regions))
    }

    /// The regions of each shard, by their places in the map.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.places.iter().scan(0, |from, place| {
            let range = *from..*from + place.regions;
            *from = range.end;
            Some(range)
        })
    }
}

/// A value that a change sets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShardWrite {
    shard: u64,
    expected: EntryVersion,
    value: Vec<u8>,
}

/// A change of the map. See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapWrite {
    expected: EntryVersion,
    next: Arc<ClusterMap>,
    shards: MapShards,
    written: Vec<ShardWrite>,
    /// Shards that are removed, and at which versions they are.
    removed: Vec<ShardPlace>,
}

impl MapWrite {
    /// The first map, or one that takes the place of whatever is there: nothing.
    ///
    /// # Errors
    /// [`MapError::TooLarge`].
    pub fn first(next: Arc<ClusterMap>, bound: usize) -> Result<Self, MapError> {
        let empty = MapShards::default();
        Self::anew(next, EntryVersion(0), empty, bound)
    }

    /// `next` in place of `before`, in shards of `bound` bytes.
    ///
    /// # Errors
    /// [`MapError::TooLarge`].
    pub fn change(
        before: &StoredMap,
        next: Arc<ClusterMap>,
        bound: usize,
    ) -> Result<Self, MapError> {
        let key = |region: &Region| (region.id, region.range.clone());
        let (old, new) = (before.map.regions(), next.regions());
        if old.len() != new.len() || !old.iter().map(key).eq(new.iter().map(key)) {
            return Self::anew(next, before.version, before.shards.clone(), bound);
        }
        let mut write = Self {
            expected: before.version,
            shards: MapShards {
                next: before.shards.next,
                places: Vec::with_capacity(before.shards.places.len()),
            },
            written: Vec::new(),
            removed: Vec::new(),
            next: Arc::clone(&next),
        };
        for (place, range) in before.shards.places.iter().zip(before.shards.ranges()) {
            match old[range.clone()] == new[range.clone()] {
                true => write.shards.places.push(place.clone()),
                false => write.put(Some(place), &new[range], bound)?,
            }
        }
        write.check()
    }

    fn anew(
        next: Arc<ClusterMap>,
        expected: EntryVersion,
        before: MapShards,
        bound: usize,
    ) -> Result<Self, MapError> {
        let mut write = Self {
            expected,
            shards: MapShards {
                next: before.next,
                places: Vec::new(),
            },
            written: Vec::new(),
            removed: before.places,
            next: Arc::clone(&next),
        };
        write.put(None, next.regions(), bound)?;
        write.check()
    }

    /// Has `regions` lie in shards: the first in that of `place`, if there is one.
    fn put(
        &mut self,
        place: Option<&ShardPlace>,
        regions: &[Region],
        bound: usize,
    ) -> Result<(), MapError> {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(regions.len());
        for region in regions {
            put_region(&mut bytes, region);
            ends.push(bytes.len());
        }
        let encoded = Encoded { bytes, ends };
        let mut place = place;
        for part in encoded.parts(regions, bound) {
            let (shard, expected) = match place.take() {
                Some(place) => (place.shard, place.entry),
                None => {
                    self.shards.next += 1;
                    (self.shards.next - 1, EntryVersion(0))
                }
            };
            let from = regions.get(part.start).map(|region| &region.range.from);
            let mut place = ShardPlace {
                shard,
                entry: EntryVersion(expected.0 + 1),
                bytes: 0,
                regions: part.len(),
                from: from.cloned().unwrap_or_default(),
            };
            let value = encode_shard(&place, encoded.of(part))?;
            place.bytes = value.len();
            self.shards.places.push(place);
            self.written.push(ShardWrite {
                shard,
                expected,
                value,
            });
        }
        Ok(())
    }

    fn check(self) -> Result<Self, MapError> {
        let (shards, max) = (self.shards.places.len(), SHARDS_MAX);
        match shards <= max {
            true => Ok(self),
            false => Err(MapError::TooManyShards { shards, max }),
        }
    }

    /// The operations, all of one multi. The index comes first.
    ///
    /// # Errors
    /// [`MapError::TooLarge`].
    pub fn ops(&self) -> Result<Vec<CoordinatorOp>, MapError> {
        let entry = EntryVersion(self.expected.0 + 1);
        let places = self.shards.places.clone();
        let index = MapIndex::of(&self.next, entry, self.shards.next, places);
        let mut ops = vec![CoordinatorOp::Set {
            key: CLUSTER_KEY.to_owned(),
            expected: self.expected,
            value: index.encode()?,
        }];
        ops.extend(self.written.iter().map(|of| CoordinatorOp::Set {
            key: shard_key(of.shard),
            expected: of.expected,
            value: of.value.clone(),
        }));
        ops.extend(self.removed.iter().map(|place| CoordinatorOp::Delete {
            key: shard_key(place.shard),
            expected: place.entry,
        }));
        Ok(ops)
    }

    /// The same, whatever version the index has.
    #[doc(hidden)]
    #[must_use]
    pub fn over(mut self, version: EntryVersion) -> Self {
        self.expected = version;
        self
    }

    /// How many shards it writes.
    #[must_use]
    pub fn shards_written(&self) -> usize {
        self.written.len()
    }

    /// Bytes of the shards that it writes.
    #[must_use]
    pub fn shard_bytes(&self) -> usize {
        self.written.iter().map(|of| of.value.len()).sum()
    }

    /// The map that lies there behind it.
    #[must_use]
    pub fn stored(self) -> StoredMap {
        StoredMap {
            version: EntryVersion(self.expected.0 + 1),
            map: self.next,
            shards: self.shards,
        }
    }
}

/// Regions, one behind the other.
struct Encoded {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Encoded {
    fn begin(&self, region: usize) -> usize {
        region.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    fn of(&self, part: Range<usize>) -> &[u8] {
        match part.is_empty() {
            true => &[],
            false => &self.bytes[self.begin(part.start)..self.ends[part.end - 1]],
        }
    }

    /// The parts that fit `bound`: all, or else halves of it that do.
    fn parts(&self, regions: &[Region], bound: usize) -> Vec<Range<usize>> {
        let mut todo = Vec::from([Range {
            start: 0,
            end: regions.len(),
        }]);
        let mut parts = Vec::new();
        while let Some(part) = todo.pop() {
            let from = regions.get(part.start).map_or(0, |of| of.range.from.len());
            let bytes = self.of(part.clone()).len();
            if part.len() <= 1 || bytes + around_regions(from) <= bound {
                parts.push(part);
                continue;
            }
            let half = self.begin(part.start) + bytes / 2;
            let cut = part.start + self.ends[part.clone()].partition_point(|end| *end <= half);
            let cut = cut.clamp(part.start + 1, part.end - 1);
            todo.push(cut..part.end);
            todo.push(part.start..cut);
        }
        parts
    }
}

#[cfg(test)]
#[path = "map_write_tests.rs"]
mod tests;
