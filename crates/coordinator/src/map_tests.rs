//! Tests of the region map: see [`super`].

use argosy_base::{EditSeq, Epoch, Lsn};

use super::*;
use crate::region::{CopyStatus, PromotionClaim, RegionState};
use crate::split::split_text;

pub(crate) fn servers(count: u32) -> Vec<Server> {
    let server = |id| Server {
        id: ServerId(id),
        resp: format!("127.0.0.1:{}", 7379 + 10 * id),
        admin: format!("127.0.0.1:{}", 7480 + 10 * id),
    };
    (0..count).map(server).collect()
}

pub(crate) fn regions(count: usize) -> Vec<Region> {
    let members = || vec![ServerId(0), ServerId(1), ServerId(2)];
    let region = |(id, range): (u32, KeyRange)| {
        Region::first(RegionId(id), range, ServerId(id % 3), members())
    };
    (1..).zip(split_text(count)).map(region).collect()
}

/// `region` as it is when its second member was promoted in epoch 4, and has failed since.
pub(crate) fn promoted(region: Region) -> Region {
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

pub(crate) fn build(regions: Vec<Region>) -> Result<ClusterMap, MapError> {
    ClusterMap::new(ClusterId(0xfe), Replication::SendIndex, servers(3), regions)
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
