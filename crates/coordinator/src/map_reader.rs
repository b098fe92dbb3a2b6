//! Reads the region map out of the coordinator: the index, and those shards that are not known yet.
//!
//! 1. The index says which entry (version) of each shard belongs to its map. Shards of the map that was read before, at
//!    the same entry, are not read again.
//! 2. If a shard is at another entry, somebody has changed the map meanwhile. The index is read again, and shards that
//!    have been read stay where their entry still is the right one.
//! 3. That happens [`ATTEMPTS_MAX`] times at most; then the reader gives up. So it does if the index stays as it is and
//!    the shard does not fit it: no change leaves that behind, so somebody has damaged the map.
//!
//! Index and shards change in one transaction, so what was read is the map of one moment: that of the index, even if
//! there is a later one by now.
//!
//! It asks nobody: [`MapReader::ask`] says what to read, and [`MapReader::take`] gets the answers, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::CLUSTER_KEY;
use crate::contract::{CoordinatorError, CoordinatorOp, Entry, EntryVersion};
use crate::map::{ClusterMap, MapError};
use crate::map_format::{MapIndex, MapShard, ShardPlace};
use crate::map_write::{MapShards, StoredMap, shard_key};
use crate::region::Region;

/// How often the index is read in one reading.
pub const ATTEMPTS_MAX: u32 = 32;

argosy_base::mutants! {
    /// Mistakes that tests plant to show that they are found.
    pub struct MapMutants {
        /// A reader takes shards as it finds them.
        trust_shards,
    }
}

/// Something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapPart {
    /// `None`: the index.
    shard: Option<u64>,
    attempt: u32,
}

impl MapPart {
    /// The key that it is under.
    #[must_use]
    pub fn key(self) -> String {
        self.shard.map_or_else(|| CLUSTER_KEY.to_owned(), shard_key)
    }
}

/// How far a reading is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapProgress {
    /// There is more to read.
    More,
    /// There is no map.
    Absent,
    /// This is the map.
    Whole(StoredMap),
}

/// Why a map could not be read, or changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapAccessError {
    /// The coordinator's answer.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// What is there is none.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// A reading. See the module documentation.
#[derive(Debug)]
pub struct MapReader {
    known: Option<StoredMap>,
    index: Option<MapIndex>,
    found: BTreeMap<u64, MapShard>,
    /// Shards that are to be asked for.
    wanted: Vec<u64>,
    /// What was asked for in this attempt and has not been answered.
    asked: BTreeSet<MapPart>,
    attempt: u32,
    is_over: bool,
    /// The entry of an index that a shard did not fit.
    torn: Option<EntryVersion>,
    mutants: MapMutants,
}

impl MapReader {
    /// One that begins, of somebody who knows this map already.
    #[must_use]
    pub const fn new(known: Option<StoredMap>, mutants: MapMutants) -> Self {
        Self {
            known,
            index: None,
            found: BTreeMap::new(),
            wanted: Vec::new(),
            asked: BTreeSet::new(),
            attempt: 1,
            is_over: false,
            torn: None,
            mutants,
        }
    }

    /// What is to be read next; `None` until there are answers, and when it is over.
    pub fn ask(&mut self) -> Option<MapPart> {
        let shard = match self.index {
            _ if self.is_over => return None,
            None if self.asked.is_empty() => None,
            None => return None,
            Some(_) => Some(self.wanted.pop()?),
        };
        let attempt = self.attempt;
        let part = MapPart { shard, attempt };
        self.asked.insert(part);
        Some(part)
    }

    /// Takes what was found under the key of `part`.
    ///
    /// # Errors
    /// Why the map cannot be read. The reading is over.
    pub fn take(&mut self, part: MapPart, entry: &Entry) -> Result<MapProgress, MapError> {
        // Of an earlier attempt: it says nothing that this one does not find out.
        if !self.asked.remove(&part) {
            return Ok(MapProgress::More);
        }
        let progress = self.taken(part, entry);
        self.is_over = progress != Ok(MapProgress::More);
        progress
    }

    fn taken(&mut self, part: MapPart, entry: &Entry) -> Result<MapProgress, MapError> {
        match part.shard {
            None if entry.version == EntryVersion(0) => return Ok(MapProgress::Absent),
            None => {
                if let Some(known) = &self.known
                    && known.version == entry.version
                {
                    return Ok(MapProgress::Whole(known.clone()));
                }
                self.take_index(entry)?;
            }
            Some(shard) => self.take_shard(shard, entry)?,
        }
        match self.asked.is_empty() && self.wanted.is_empty() {
            true => self.finish(),
            false => Ok(MapProgress::More),
        }
    }

    fn take_index(&mut self, entry: &Entry) -> Result<(), MapError> {
        let index = MapIndex::decode(&entry.value)?;
        if index.entry != entry.version {
            return Err(strange(format!(
                "the index is that of {}, and stands at {}",
                index.entry, entry.version
            )));
        }
        let known = known_places(self.known.as_ref());
        let has = |place: &ShardPlace| {
            let found = self.found.get(&place.shard);
            found.is_some_and(|of| of.entry == place.entry) || known.contains_key(&name_of(place))
        };
        let wanted = index.places.iter().filter(|place| !has(place));
        self.wanted = wanted.map(|place| place.shard).collect();
        self.index = Some(index);
        Ok(())
    }

    fn take_shard(&mut self, shard: u64, entry: &Entry) -> Result<(), MapError> {
        let index = self.index.as_ref();
        let place = index.and_then(|index| index.places.iter().find(|place| place.shard == shard));
        let (Some(index), Some(place)) = (index, place) else {
            return Ok(());
        };
        let (version, wanted) = (index.entry, place.entry);
        if entry.version > EntryVersion(0) {
            let found = MapShard::decode(&entry.value)?;
            if (found.shard, found.entry) != (shard, entry.version) {
                return Err(strange(format!(
                    "shard {shard} at {} is shard {} of {}",
                    entry.version, found.shard, found.entry
                )));
            }
            self.found.insert(shard, found);
        }
        if entry.version == wanted || self.mutants.trust_shards() {
            return Ok(());
        }
        if self.torn == Some(version) {
            return Err(strange(format!(
                "shard {shard} is at {}, and the index of {version} names {wanted}",
                entry.version
            )));
        }
        if self.attempt == ATTEMPTS_MAX {
            let attempts = ATTEMPTS_MAX;
            return Err(MapError::Unsteady { attempts });
        }
        self.torn = Some(version);
        self.attempt += 1;
        self.index = None;
        self.wanted.clear();
        self.asked.clear();
        Ok(())
    }

    /// Puts the map together: all of it is there, or the index is to be read again.
    fn finish(&mut self) -> Result<MapProgress, MapError> {
        let Some(index) = self.index.take() else {
            return Ok(MapProgress::More);
        };
        let known = known_places(self.known.as_ref());
        let count = index.places.iter().map(|place| place.regions).sum();
        let mut regions: Vec<Region> = Vec::with_capacity(count);
        for place in &index.places {
            let before = regions.len();
            match (known.get(&name_of(place)), self.found.remove(&place.shard)) {
                (Some(known), _) => regions.extend_from_slice(known),
                (None, Some(mut found)) => regions.append(&mut found.regions),
                (None, None) => {}
            }
            let first = regions.get(before).map(|region| &region.range.from);
            let fits = regions.len() - before == place.regions && first == Some(&place.from);
            if !fits && !self.mutants.trust_shards() {
                let shard = place.shard;
                let reason = format!("shard {shard} has not the regions that the index says");
                return Err(strange(reason));
            }
        }
        let shards = MapShards {
            next: index.next,
            places: index.places.clone(),
        };
        let (version, map) = (index.entry, index.into_map(regions)?);
        Ok(MapProgress::Whole(StoredMap {
            version,
            map: Arc::new(map),
            shards,
        }))
    }
}

/// Names what a shard holds.
const fn name_of(place: &ShardPlace) -> (u64, EntryVersion) {
    (place.shard, place.entry)
}

/// The regions of each shard of `known`.
fn known_places(known: Option<&StoredMap>) -> BTreeMap<(u64, EntryVersion), &[Region]> {
    let places = known.into_iter().flat_map(|known| {
        let places = known.shards.places.iter().zip(known.shards.ranges());
        places.map(|(place, range)| (name_of(place), &known.map.regions()[range]))
    });
    places.collect()
}

fn strange(reason: String) -> MapError {
    MapError::Malformed { reason }
}

/// Reads the map by `read`, which reads a key; `None` where there is none.
///
/// # Errors
/// Why it cannot be read.
pub fn read_map(
    mut read: impl FnMut(String) -> Result<Entry, CoordinatorError>,
) -> Result<Option<StoredMap>, MapAccessError> {
    let mut reader = MapReader::new(None, MapMutants::default());
    while let Some(part) = reader.ask() {
        match reader.take(part, &read(part.key())?)? {
            MapProgress::More => {}
            MapProgress::Absent => return Ok(None),
            MapProgress::Whole(stored) => return Ok(Some(stored)),
        }
    }
    // One that has all its answers asks, or is over.
    let attempts = ATTEMPTS_MAX;
    Err(MapError::Unsteady { attempts }.into())
}

/// The map that `ops` make of what `read` finds; `None` where they change none, or there is none behind them.
pub fn map_behind(
    ops: &[CoordinatorOp],
    mut read: impl FnMut(String) -> Option<Entry>,
) -> Option<ClusterMap> {
    let set = |key: &str| {
        ops.iter().find_map(|op| match op {
            CoordinatorOp::Set {
                key: of,
                expected,
                value,
            } if of == key => Some(Entry {
                version: EntryVersion(expected.0 + 1),
                value: value.clone(),
                owner: None,
            }),
            _ => None,
        })
    };
    set(CLUSTER_KEY)?;
    let behind = read_map(|key| {
        let found = set(&key).or_else(|| read(key));
        found.ok_or(CoordinatorError::ConnectionLost)
    });
    let stored = behind.ok()??;
    Some(Arc::unwrap_or_clone(stored.map))
}

#[cfg(test)]
#[path = "map_reader_tests.rs"]
mod tests;
