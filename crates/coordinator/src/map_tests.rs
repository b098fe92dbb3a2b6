//! Tests of the region map: see [`super`].

use argosy_base::{DurabilityMode, EditSeq, Epoch, Lsn};

use super::*;
use crate::region::{CopyStatus, PromotionClaim, RegionState};
use crate::split::split_text;

fn servers(count: u32) -> Vec<Server> {
    let server = |id| Server {
        id: ServerId(id),
        resp: format!("127.0.0.1:{}", 7379 + 10 * id),
        admin: format!("127.0.0.1:{}", 7480 + 10 * id),
    };
    (0..count).map(server).collect()
}

fn regions(count: usize) -> Vec<Region> {
    let members = || vec![ServerId(0), ServerId(1), ServerId(2)];
    let region = |(id, range): (u32, KeyRange)| {
        Region::first(RegionId(id), range, ServerId(id % 3), members())
    };
    (1..).zip(split_text(count)).map(region).collect()
}

/// `region` as it is when its second member was promoted in epoch 4, and has failed since.
fn promoted(region: Region) -> Region {
    Region {
        epoch: Epoch(7),
        state: RegionState::Recovering,
        primary: ServerId(1),
        members: vec![ServerId(1)],
        filling: vec![ServerId(0)],
        since: Epoch(4),
        claim: Some(PromotionClaim {
            status: CopyStatus::Cut,
            cut: Epoch(3),
            edit: EditSeq(12),
            lsn: Lsn(4711),
            member: true,
        }),
        ..region
    }
}

fn build(regions: Vec<Region>) -> Result<ClusterMap, MapError> {
    ClusterMap::new(ClusterId(0xfe), Replication::SendIndex, servers(3), regions)
}

#[test]
fn a_map_returns_from_its_json() {
    for count in [1, 2, 7, 100] {
        let map = build(regions(count)).unwrap();
        assert_eq!(ClusterMap::parse(&map.to_json()), Ok(map));
    }
    let map = build(regions(2)).unwrap();
    let map = map.with_addresses(AddressMode::Rewrite);
    let json = String::from_utf8(map.to_json()).unwrap();
    assert_eq!(ClusterMap::parse(json.as_bytes()), Ok(map));
    // One that does not say it is logical, and an unknown mode is none.
    let line = "\"addresses\": \"rewrite\",";
    let silent = ClusterMap::parse(json.replace(line, "").as_bytes());
    assert_eq!(silent.unwrap().addresses(), AddressMode::Logical);
    let odd = ClusterMap::parse(json.replace(line, "\"addresses\": \"odd\",").as_bytes());
    assert!(matches!(odd, Err(MapError::Malformed { .. })), "{odd:?}");
    for mode in DurabilityMode::ALL {
        let map = build(regions(2)).unwrap().with_durability(mode);
        let json = String::from_utf8(map.to_json()).unwrap();
        let says = json.contains(&format!("\"durability\": \"{mode}\""));
        assert_eq!(says, mode != DurabilityMode::LastWrite, "{json}");
        assert_eq!(ClusterMap::parse(json.as_bytes()), Ok(map));
        let odd = json.replace(mode.name(), "odd");
        let odd = ClusterMap::parse(odd.as_bytes());
        assert!(!says || matches!(odd, Err(MapError::Malformed { .. })));
    }
    // Keys of any bytes, and a cluster of one.
    let mut two = regions(2);
    two[0].range.to = Some(vec![0, 0xff, b'"']);
    two[1].range.from = vec![0, 0xff, b'"'];
    let map = build(two).unwrap();
    assert_eq!(ClusterMap::parse(&map.to_json()), Ok(map));
}

/// The text is stored: a change would make every existing cluster unreadable.
#[test]
fn the_json_never_changes() {
    let stored = r#"{
        "schema": "argosy.cluster.v3",
        "cluster": "000000000000000000000000000000fe",
        "replication": "send-index",
        "copies": 3,
        "servers": [
            {"id": 0, "resp": "127.0.0.1:7379", "admin": "127.0.0.1:7480"},
            {"id": 1, "resp": "127.0.0.1:7389", "admin": "127.0.0.1:7490",
             "device": "8000000000000000000000000000000f"},
            {"id": 2, "resp": "127.0.0.1:7399", "admin": "127.0.0.1:7500"}],
        "regions": [
            {"id": 1, "from": "", "to": "69", "epoch": 1, "primary": 1, "members": [0, 1, 2]},
            {"id": 2, "from": "69", "to": null, "epoch": 7, "state": "recovering", "primary": 1,
             "members": [1], "filling": [0], "since": 4, "last": [0, 1, 2],
             "claim": {"status": "cut", "cut": 3, "edit": 12, "lsn": 4711, "member": true}}]
    }"#;
    let mut regions = regions(2);
    regions[1] = promoted(regions[1].clone());
    let map = build(regions).unwrap();
    let map = map.with_device(ServerId(1), DeviceId(1 << 127 | 15));
    assert_eq!(map.device(ServerId(0)), None);
    assert_eq!(ClusterMap::parse(stored.as_bytes()), Ok(map.clone()));
    let text: serde_json::Value = serde_json::from_str(stored).unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&map.to_json()).unwrap(),
        text
    );
}

#[test]
fn every_key_has_its_region() {
    let map = build(regions(10)).unwrap();
    for key in [
        &b""[..],
        b"\0",
        b"0",
        b"3",
        b"3l",
        b"key",
        b"zz",
        b"\xff\xff",
    ] {
        let region = map.region_of(key);
        assert!(region.range.contains(key));
        assert_eq!(&map.regions()[map.index_of(key)], region);
    }
    for (index, region) in map.regions().iter().enumerate() {
        assert_eq!(map.index_of(&region.range.from), index);
        assert_eq!(map.region(region.id), Some(region));
        let backups: Vec<_> = region.backups().collect();
        assert_eq!(backups.len(), 2);
        assert!(!backups.contains(&region.primary));
    }
    let first = |from: &[u8], to: Option<&[u8]>, direction| {
        map.first_of(&KeyRange::new(from, to.map(<[u8]>::to_vec)), direction)
    };
    let last = map.regions().len() - 1;
    assert_eq!(first(b"", None, Direction::Up), 0);
    assert_eq!(first(b"", None, Direction::Down), last);
    for (index, region) in map.regions().iter().enumerate().skip(1) {
        let start = region.range.from.as_slice();
        let behind = [start, b"\0"].concat();
        assert_eq!(first(start, None, Direction::Up), index);
        assert_eq!(first(b"", Some(start), Direction::Down), index - 1);
        assert_eq!(first(b"", Some(&behind), Direction::Down), index);
    }
    assert_eq!(map.region(RegionId(11)), None);
    assert_eq!(map.server(ServerId(2)).unwrap().resp, "127.0.0.1:7399");
}

#[test]
fn gaps_overlaps_and_disorder_are_refused() {
    let changes: [fn(&mut Vec<Region>); 8] = [
        |r| r.clear(),
        |r| drop(r.remove(0)),
        |r| drop(r.remove(1)),
        |r| drop(r.pop()),
        |r| r.swap(0, 1),
        |r| r[1].range.from = b"zz".to_vec(),
        |r| r[0].range.to = None,
        |r| r[2].range.to = Some(b"zzz".to_vec()),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut bad = regions(3);
        change(&mut bad);
        let error = build(bad).unwrap_err();
        assert!(matches!(error, MapError::BadRange { .. }), "{n}: {error}");
    }
    let mut empty = regions(3);
    let boundary = empty[1].range.from.clone();
    empty[1].range.to = Some(boundary.clone());
    empty[2].range.from = boundary;
    assert!(matches!(
        build(empty),
        Err(MapError::BadRange {
            region: RegionId(2),
            ..
        })
    ));
}

#[test]
fn names_are_used_once() {
    for id in [0, 1, 1 << 29] {
        let mut bad = regions(3);
        bad[2].id = RegionId(id);
        let error = build(bad).unwrap_err();
        assert_eq!(error, MapError::BadName { what: "region", id });
    }
    let mut twice = servers(3);
    twice[2].id = ServerId(0);
    let map = ClusterMap::new(ClusterId(1), Replication::SendIndex, twice, regions(1));
    assert_eq!(
        map,
        Err(MapError::BadName {
            what: "server",
            id: 0
        })
    );
}

#[test]
fn groups_have_distinct_known_members_with_the_primary() {
    let changes: [fn(&mut Region); 18] = [
        |r| r.members.push(ServerId(0)),
        |r| r.members.push(ServerId(3)),
        |r| r.members.retain(|id| *id != r.primary),
        |r| r.members.clear(),
        |r| r.epoch = Epoch(0),
        |r| r.filling = vec![ServerId(0), ServerId(0)],
        |r| r.filling = vec![ServerId(3)],
        |r| r.filling = vec![ServerId(1)],
        |r| r.since = Epoch(0),
        |r| r.since = Epoch(8),
        |r| r.since = Epoch(1),
        |r| r.last = vec![ServerId(1), ServerId(1)],
        |r| r.last = vec![ServerId(3)],
        |r| r.last.clear(),
        |r| r.claim = None,
        |r| r.claim.as_mut().unwrap().status = CopyStatus::Partial,
        |r| r.primary = ServerId(0),
        |r| r.primary = ServerId(3),
    ];
    let with = |region: Region| {
        let mut regions = regions(3);
        regions[1] = region;
        regions
    };
    let good = promoted(regions(3)[1].clone());
    assert!(build(with(good.clone())).is_ok());
    for (n, change) in changes.into_iter().enumerate() {
        let mut bad = good.clone();
        change(&mut bad);
        let bad = with(bad);
        let error = build(bad).unwrap_err();
        let named = matches!(
            error,
            MapError::BadGroup {
                region: RegionId(2),
                ..
            }
        );
        assert!(named, "{n}: {error}");
    }
    let map = ClusterMap::new(ClusterId(1), Replication::None, servers(3), regions(1));
    assert!(
        matches!(map, Err(MapError::BadGroup { .. })),
        "one member without replication"
    );
    let mut alone = regions(1);
    alone[0].primary = ServerId(0);
    alone[0].members = vec![ServerId(0)];
    alone[0].filling = vec![ServerId(1)];
    let map = ClusterMap::new(ClusterId(1), Replication::None, servers(3), alone);
    assert!(
        matches!(map, Err(MapError::BadGroup { .. })),
        "nobody is filled without replication"
    );
}

#[test]
fn the_number_of_copies_outlasts_a_smaller_group() {
    let map = build(regions(2)).unwrap();
    assert_eq!(map.copies(), 3);
    let mut fewer = map.regions().to_vec();
    for region in &mut fewer {
        region.members = vec![region.primary];
    }
    let smaller = map.with_regions(fewer).unwrap();
    assert_eq!(smaller.copies(), 3);
    assert_eq!(ClusterMap::parse(&smaller.to_json()), Ok(smaller.clone()));
    assert_eq!(smaller.with_copies(1).unwrap().copies(), 1);
    for copies in [0, 4] {
        let refused = map.clone().with_copies(copies);
        assert_eq!(refused, Err(MapError::BadCopies { copies, servers: 3 }));
    }
    // Other regions are checked as the first ones were.
    assert!(map.with_regions(Vec::new()).is_err());
    let mut bad = map.regions().to_vec();
    bad[0].epoch = Epoch(0);
    assert!(map.with_regions(bad).is_err());
}

#[test]
fn other_schemas_and_other_texts_are_refused() {
    let good = String::from_utf8(build(regions(1)).unwrap().to_json()).unwrap();
    let parse = |text: &str| ClusterMap::parse(text.as_bytes()).unwrap_err();
    for other in [
        "argosy.cluster.v1",
        "argosy.cluster.v2",
        "argosy.cluster.v4",
    ] {
        let found = other.to_owned();
        let refused = parse(&good.replace("argosy.cluster.v3", other));
        assert_eq!(refused, MapError::UnknownSchema { found });
    }
    // A later schema is refused as that, whatever else it has.
    let other = parse(r#"{"schema": "argosy.cluster.v9", "shards": []}"#);
    assert!(matches!(other, MapError::UnknownSchema { .. }), "{other}");
    for (from, to) in [
        ("\"epoch\": 1", "\"epoch\": -1"),
        ("send-index", "magic"),
        ("\"from\": \"\"", "\"from\": \"6\""),
        ("\"from\": \"\"", "\"from\": \"zz\""),
        ("\"epoch\"", "\"age\""),
        ("0000fe", "0000"),
        ("}", ""),
    ] {
        let error = parse(&good.replacen(from, to, 1));
        assert!(
            matches!(error, MapError::Malformed { .. }),
            "{from} {to}: {error}"
        );
    }
    assert!(matches!(parse(""), MapError::Malformed { .. }));
}

/// Damaged text is refused, or is a valid map: never a panic.
#[test]
fn damaged_text_does_not_panic() {
    let mut three = regions(3);
    three[1] = promoted(three[1].clone());
    let good = build(three).unwrap().to_json();
    let mut accepted = 0;
    for at in 0..good.len() {
        for byte in [b'0', b'"', b'}', b' ', 0xff] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            if let Ok(map) = ClusterMap::parse(&bytes) {
                accepted += 1;
                assert_eq!(ClusterMap::parse(&map.to_json()), Ok(map));
            }
        }
        assert!(ClusterMap::parse(&good[..at]).is_err() || at + 1 == good.len());
    }
    assert!(accepted > 10, "{accepted}");
}

#[test]
fn modes_have_names() {
    for mode in [
        Replication::None,
        Replication::SendIndex,
        Replication::BuildIndex,
    ] {
        assert_eq!(Replication::from_name(mode.name()), Some(mode));
    }
    assert_eq!(Replication::from_name("chain"), None);
}

#[test]
fn a_map_reads_well() {
    let text = build(regions(2)).unwrap().to_string();
    for line in [
        "cluster 000000000000000000000000000000fe, replication send-index",
        "server 1: resp 127.0.0.1:7389, admin 127.0.0.1:7490",
        "region 2 [i, end) epoch 1: primary 2, backups 0 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line:?} in\n{text}");
    }
}

#[test]
fn regions_are_found_by_name() {
    let mut some = regions(7);
    let names = [5, 3, 900, 1, 77, 2, 4].map(RegionId);
    some.iter_mut()
        .zip(names)
        .for_each(|(region, id)| region.id = id);
    let map = build(some).unwrap();
    for (place, id) in names.into_iter().enumerate() {
        assert_eq!(map.place_of(id), Some(place));
        assert_eq!(map.region(id).map(|region| region.id), Some(id));
    }
    for other in [0, 6, 901] {
        assert_eq!(map.place_of(RegionId(other)), None);
        assert_eq!(map.region(RegionId(other)), None);
    }
    let again = map.with_regions(map.regions().to_vec());
    assert_eq!(again, Ok(map));
}

/// As many regions as there are at first, in the state whose text is longest.
#[test]
fn a_map_of_many_regions_fits_a_value_of_the_coordinator() {
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
    let json = map.to_json();
    assert!(
        json.len() <= crate::contract::VALUE_BYTES_MAX,
        "{} bytes",
        json.len()
    );
    assert_eq!(ClusterMap::parse(&json), Ok(map));
}
