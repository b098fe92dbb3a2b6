//! Tests of the map's bytes: see [`super`].

use std::sync::Arc;

use super::*;
use crate::contract::CoordinatorOp;
use crate::map::tests::{build, promoted, regions};
use crate::map_write::MapWrite;

/// The values that lie in the coordinator where `map` is the first, the index first.
fn values(map: &ClusterMap, bound: usize) -> Vec<Vec<u8>> {
    let write = MapWrite::first(Arc::new(map.clone()), bound).unwrap();
    let ops = write.ops().unwrap().into_iter();
    ops.map(|op| match op {
        CoordinatorOp::Set { value, .. } => value,
        odd => panic!("{odd:?}"),
    })
    .collect()
}

/// The map that `values` are.
fn read(values: &[Vec<u8>]) -> Result<ClusterMap, MapError> {
    let mut regions = Vec::new();
    for value in &values[1..] {
        regions.append(&mut MapShard::decode(value)?.regions);
    }
    MapIndex::decode(&values[0])?.into_map(regions)
}

/// A map with something of everything.
fn unusual() -> ClusterMap {
    let mut three = regions(3);
    three[1] = promoted(three[1].clone());
    let map = build(three).unwrap();
    map.with_addresses(AddressMode::Rewrite)
        .with_durability(DurabilityMode::Sync)
        .with_device(ServerId(1), DeviceId(1 << 127 | 15))
}

#[test]
fn a_map_returns_from_its_bytes() {
    let mut maps = vec![unusual()];
    maps.extend([1, 2, 7, 100].map(|count| build(regions(count)).unwrap()));
    // Keys of any bytes.
    let mut two = regions(2);
    two[0].range.to = Some(vec![0, 0xff, b'"']);
    two[1].range.from = vec![0, 0xff, b'"'];
    maps.push(build(two).unwrap());
    for mode in DurabilityMode::ALL {
        maps.push(build(regions(2)).unwrap().with_durability(mode));
    }
    for map in maps {
        for bound in [1, 100, SHARD_BYTES_MAX] {
            let values = values(&map, bound);
            assert_eq!(read(&values), Ok(map.clone()));
            for value in values {
                assert_eq!(rewritten(&value), Ok(value));
            }
        }
    }
}

/// The bytes are stored: a change would make every existing cluster unreadable.
#[test]
fn the_bytes_never_change() {
    let mut two = regions(2);
    two[1] = promoted(two[1].clone());
    let map = build(two).unwrap();
    let map = map.with_device(ServerId(1), DeviceId(1 << 127 | 15));
    let values = values(&map, SHARD_BYTES_MAX);
    let stored = values.iter().map(hex::encode);
    let stored: Vec<String> = stored.collect();
    assert_eq!(stored, STORED);
}

const STORED: [&str; 2] = [
    "6172676f73796d69010000002784dccd01fe0000000000000000000000000000000100000303000e3132372e302e302e\
     313a373337390e3132372e302e302e313a3734383000010e3132372e302e302e313a373338390e3132372e302e302e31\
     3a37343930010f000000000000000000000000000080020e3132372e302e302e313a373339390e3132372e302e302e31\
     3a373530300001010001320200",
    "6172676f73796d7301000000c30296590001000202010001690101030001021d02070101010401030ce7240101000300\
     0102",
];

#[test]
fn a_region_is_as_long_as_its_documentation_says() {
    let of = |region: &Region| {
        let mut bytes = Vec::new();
        put_region(&mut bytes, region);
        bytes.len()
    };
    let many = regions(4000);
    let region = &many[2000];
    let key = region.range.to.as_ref().unwrap().len();
    assert!(of(region) <= 20 + key, "{}", of(region));
    let long = Region {
        epoch: Epoch(300),
        since: Epoch(299),
        claim: Some(PromotionClaim {
            status: CopyStatus::Whole,
            cut: Epoch(299),
            edit: EditSeq(299 << 32 | 70_000),
            lsn: Lsn(1 << 40),
            member: true,
        }),
        ..promoted(region.clone())
    };
    assert!(of(&long) <= 50 + key, "{}", of(&long));
}

#[test]
fn other_formats_are_refused_by_name() {
    let found = |bytes: &[u8]| match MapIndex::decode(bytes) {
        Err(error @ MapError::UnknownFormat { .. }) => error.to_string(),
        odd => panic!("{odd:?}"),
    };
    let text = found(br#"{ "schema": "argosy.cluster.v3", "cluster": "00" }"#);
    assert!(
        text.contains("argosy.cluster.v3") && text.contains("argosy export"),
        "{text}"
    );
    let mut later = values(&unusual(), SHARD_BYTES_MAX).remove(0);
    later[8] = 2;
    assert!(found(&later).contains("format 2"), "{}", found(&later));
}

/// What is damaged is refused: the checksum finds it, or else there is no panic.
#[test]
fn damage_is_refused() {
    for good in values(&unusual(), 100) {
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                assert!(rewritten(&bytes).is_err(), "byte {at}, bit {bit}");
            }
            assert!(rewritten(&good[..at]).is_err());
        }
        let long = [&good[..], &[0]].concat();
        assert!(rewritten(&long).is_err());
    }
}

/// As many regions as there are at first, in the state that is longest.
#[test]
fn a_map_of_many_regions_is_within_its_bounds() {
    let worst = |region: Region| Region {
        epoch: Epoch(u32::MAX),
        since: Epoch(u32::MAX),
        claim: Some(PromotionClaim {
            status: CopyStatus::Whole,
            cut: Epoch(u32::MAX),
            edit: EditSeq(u64::MAX),
            lsn: Lsn(u64::MAX),
            member: false,
        }),
        ..promoted(region)
    };
    let all = regions(crate::split::SPLIT_MAX);
    let map = build(all.into_iter().map(worst).collect()).unwrap();
    let values = values(&map, SHARD_BYTES_MAX);
    assert_eq!(values.len(), 2, "one shard");
    assert!(values[1].len() <= 70 * crate::split::SPLIT_MAX);
    assert_eq!(read(&values), Ok(map));
}
