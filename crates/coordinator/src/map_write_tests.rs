//! Tests of changes of the map: see [`super`].

use argosy_base::{Epoch, RegionId};

use super::*;
use crate::contract::{OPS_MAX, VALUE_BYTES_MAX};
use crate::map::DeviceId;
use crate::map::tests::{build, promoted, regions};
use crate::map_format::SHARD_BYTES_MAX;

const BOUND: usize = 300;

fn first(count: usize, bound: usize) -> StoredMap {
    let map = Arc::new(build(regions(count)).unwrap());
    MapWrite::first(map, bound).unwrap().stored()
}

/// `map` with another epoch for these regions.
fn raised(map: &ClusterMap, places: &[usize]) -> Arc<ClusterMap> {
    let mut regions = map.regions().to_vec();
    for place in places {
        regions[*place].epoch = Epoch(regions[*place].epoch.0 + 1);
    }
    Arc::new(map.with_regions(regions).unwrap())
}

/// The keys that it sets, deletes, and the longest shard.
fn keys(write: &MapWrite) -> (Vec<String>, Vec<String>, usize) {
    let ops = write.ops().unwrap();
    let (mut sets, mut deletes, mut longest) = (Vec::new(), Vec::new(), 0);
    for (nth, op) in ops.iter().enumerate() {
        match op {
            CoordinatorOp::Set { key, value, .. } => {
                sets.push(key.clone());
                longest = longest.max(if nth == 0 { 0 } else { value.len() });
            }
            CoordinatorOp::Delete { key, .. } => deletes.push(key.clone()),
            odd => panic!("{odd:?}"),
        }
    }
    (sets, deletes, longest)
}

#[test]
fn a_map_is_cut_where_it_is_too_long() {
    for count in [1, 2, 10, 100, 1000] {
        let map = Arc::new(build(regions(count)).unwrap());
        for bound in [1, 70, BOUND, 5000, SHARD_BYTES_MAX] {
            let Ok(write) = MapWrite::first(Arc::clone(&map), bound) else {
                assert!(bound < BOUND && count > 100, "too many shards");
                continue;
            };
            let (sets, deletes, longest) = keys(&write);
            assert_eq!(sets[0], CLUSTER_KEY);
            assert!(deletes.is_empty());
            assert_eq!(sets.len(), 1 + write.shards_written());
            let stored = write.clone().stored();
            let places = stored.shards.places();
            assert_eq!(
                places.iter().map(|place| place.regions).sum::<usize>(),
                count
            );
            assert!(places.iter().all(|place| place.regions > 0));
            assert!(longest <= bound || places.iter().any(|place| place.regions == 1));
            // None is shorter than it has to be.
            let bytes = write.shard_bytes();
            assert!(
                bound < BOUND || places.len() <= 1 + 3 * bytes / bound,
                "{}",
                places.len()
            );
        }
    }
}

#[test]
fn a_change_writes_the_shards_that_it_concerns_and_the_index() {
    let before = first(100, BOUND);
    let places = before.shards.places().to_vec();
    assert!(places.len() >= 8, "{}", places.len());
    for place in 0..100 {
        let next = raised(&before.map, &[place]);
        let write = MapWrite::change(&before, next, BOUND).unwrap();
        let of = before.shards.of_regions().nth(place).unwrap();
        let (sets, deletes, _) = keys(&write);
        assert_eq!(sets, [CLUSTER_KEY.to_owned(), shard_key(of.shard)]);
        assert!(deletes.is_empty());
        let after = write.stored();
        assert_eq!(after.version.0, before.version.0 + 1);
        for (old, new) in places.iter().zip(after.shards.places()) {
            let changes = u64::from(old.shard == of.shard);
            assert_eq!((new.shard, new.entry.0), (old.shard, old.entry.0 + changes));
        }
    }
    // What is no region's is in the index.
    let next = (*before.map).clone();
    let next = Arc::new(next.with_device(argosy_base::ServerId(1), DeviceId(7)));
    let write = MapWrite::change(&before, next, BOUND).unwrap();
    assert_eq!(keys(&write).0, [CLUSTER_KEY]);
}

#[test]
fn a_shard_that_grows_is_cut_and_numbers_are_not_used_again() {
    let mut stored = first(40, BOUND);
    let (mut most, mut seen) = (stored.shards.places().len(), 0);
    for place in 0..40 {
        let mut regions = stored.map.regions().to_vec();
        regions[place] = promoted(regions[place].clone());
        let next = Arc::new(stored.map.with_regions(regions).unwrap());
        let write = MapWrite::change(&stored, next, BOUND).unwrap();
        assert!(keys(&write).2 <= BOUND);
        let after = write.stored();
        let names: Vec<u64> = after.shards.places().iter().map(|of| of.shard).collect();
        let old: Vec<u64> = stored.shards.places().iter().map(|of| of.shard).collect();
        let new: Vec<&u64> = names.iter().filter(|name| !old.contains(name)).collect();
        assert!(
            new.iter().all(|name| **name >= stored.shards.next),
            "{names:?}"
        );
        assert!(old.iter().all(|name| names.contains(name)));
        seen += new.len();
        most = most.max(names.len());
        stored = after;
    }
    assert!(seen >= 3 && most > 5, "{seen} {most}");
}

#[test]
fn another_cluster_takes_the_place_of_one_that_is_there() {
    let before = first(40, BOUND);
    let next = Arc::new(build(regions(5)).unwrap());
    let write = MapWrite::change(&before, next, BOUND).unwrap();
    let (sets, deletes, _) = keys(&write);
    assert_eq!(deletes.len(), before.shards.places().len());
    assert!(sets.iter().all(|key| !deletes.contains(key)));
    let mut moved = before.map.regions().to_vec();
    moved
        .iter_mut()
        .for_each(|region| region.id = RegionId(region.id.0 + 1));
    let next = Arc::new(before.map.with_regions(moved).unwrap());
    let write = MapWrite::change(&before, next, BOUND).unwrap();
    assert_eq!(keys(&write).1.len(), before.shards.places().len());
}

/// What a coordinator takes at once is enough for the first map of the largest cluster that is cut at first.
#[test]
fn the_first_map_is_one_transaction() {
    let map = build(regions(crate::split::SPLIT_MAX)).unwrap();
    let write = MapWrite::first(Arc::new(map), SHARD_BYTES_MAX).unwrap();
    assert!(write.ops().unwrap().len() <= OPS_MAX);
    assert!(write.shard_bytes() <= VALUE_BYTES_MAX);
}
