//! The table of roles, and views that are replaced while servers run.

use std::sync::Arc;

use argosy_base::{Epoch, KeyRange, ServerId};
use argosy_coordinator::{ClusterId, ClusterMap, Region as MapRegion};
use argosy_engine::Reach;
use argosy_fabric::sim::SimSettings;

use super::copies_tests::{Pair, REGIONS};
use super::role::{Event, Role, next};
use super::views::Part;
use super::{Mutants, ViewError};
use crate::service::{ReplyTo, Request, Response, Service};

/// The table in the header of `role`, line by line: `-` where that does not happen.
const TABLE: [(Role, [&str; 6]); 4] = [
    (
        Role::Opening,
        [
            "Opening", "Failed", "Failed", "Primary", "Failed", "Opening",
        ],
    ),
    (
        Role::Primary,
        ["Primary", "Failed", "Failed", "-", "Failed", "-"],
    ),
    (
        Role::Backup,
        ["Failed", "Backup", "Failed", "-", "Failed", "Backup"],
    ),
    (
        Role::Failed,
        ["Failed", "Failed", "Failed", "Failed", "Failed", "by view"],
    ),
];

const PARTS: [Part; 3] = [Part::Primary, Part::Backup, Part::Nothing];

fn name(role: Option<Role>) -> String {
    role.map_or("-".to_owned(), |role| format!("{role:?}"))
}

#[test]
fn roles_move_by_the_table() {
    for (role, row) in TABLE {
        for (column, part) in PARTS.into_iter().enumerate() {
            assert_eq!(name(next(role, part, Event::View)), row[column]);
            assert_eq!(name(next(role, part, Event::Opened)), row[3]);
            assert_eq!(name(next(role, part, Event::Failed)), row[4]);
            let refilled = match (row[5], part) {
                ("by view", Part::Primary) => "Opening",
                ("by view", Part::Backup) => "Backup",
                ("by view", Part::Nothing) => "Failed",
                (same, _) => same,
            };
            assert_eq!(name(next(role, part, Event::Refilled)), refilled);
        }
    }
    // Nobody shows data who is not the primary, whatever happens.
    for role in [Role::Opening, Role::Primary, Role::Backup, Role::Failed] {
        for part in [Part::Backup, Part::Nothing] {
            assert_ne!(next(role, part, Event::View), Some(Role::Primary));
        }
    }
}

/// The map of `pair`, with its regions as `change` leaves them.
fn changed(pair: &Pair, change: impl Fn(&mut MapRegion)) -> ClusterMap {
    let mut regions = pair.map.regions().to_vec();
    regions.iter_mut().for_each(change);
    let (name, replication) = (pair.map.cluster(), pair.map.replication());
    ClusterMap::new(name, replication, pair.map.servers().to_vec(), regions).expect("it is valid")
}

/// The map of `pair` with the first region at `epoch`, under `primary`.
fn moved(pair: &Pair, epoch: u32, primary: u32) -> ClusterMap {
    changed(pair, |region| {
        if region.id == REGIONS[0] {
            (region.epoch, region.primary) = (Epoch(epoch), ServerId(primary));
        }
    })
}

/// What `server` answers to a get of the first pair that was put under `key` in the first region.
fn got(pair: &Pair, server: usize, key: u64) -> Option<Response> {
    let sink = Arc::<super::readers_tests::Answers>::default();
    let sink: Arc<dyn crate::service::ReplySink> = sink;
    let key = format!("a{key:08}0");
    let get = Request::Get {
        key: key.as_bytes(),
    };
    pair.nodes[server]
        .call(get, Reach::Device, ReplyTo::new(&sink, 0))
        .answered()
}

#[test]
fn a_map_that_contradicts_the_one_before_is_refused() {
    let pair = Pair::new(SimSettings::default(), Default::default());
    let node = &pair.nodes[0];
    let refused = |map: ClusterMap| node.set_map(map).expect_err("it is refused");
    let regions = pair.map.regions().to_vec();
    let (servers, replication) = (pair.map.servers().to_vec(), pair.map.replication());
    let other = ClusterMap::new(ClusterId(2), replication, servers.clone(), regions.clone());
    assert!(matches!(
        refused(other.expect("it is valid")),
        ViewError::Fixed { .. }
    ));
    let one = MapRegion {
        range: KeyRange::default(),
        ..regions[0].clone()
    };
    let other = ClusterMap::new(pair.map.cluster(), replication, servers, vec![one]);
    assert!(matches!(
        refused(other.expect("it is valid")),
        ViewError::Fixed { .. }
    ));
    // The same epoch with another primary; then an epoch that is over.
    assert!(matches!(
        refused(moved(&pair, 1, 1)),
        ViewError::Stale { .. }
    ));
    node.set_map(moved(&pair, 3, 0)).expect("it is newer");
    let stale = refused(moved(&pair, 2, 0));
    assert!(stale.to_string().contains("epoch"), "{stale}");
    assert_eq!(*node.map(), moved(&pair, 3, 0));
}

#[test]
fn a_region_goes_on_under_another_epoch() {
    let mut pair = Pair::new(SimSettings::default(), Default::default());
    pair.open();
    let mut acknowledged = 0;
    for key in 0..200 {
        pair.put(0, key);
        pair.put(1, key);
        pair.run(1);
        acknowledged += pair.acknowledged().0;
        match key {
            50 => pair.nodes[0].set_map(moved(&pair, 2, 0)).expect("newer"),
            70 => {
                pair.nodes[1].set_map(moved(&pair, 2, 0)).expect("newer");
                pair.open();
            }
            _ => {}
        }
    }
    pair.run(200);
    acknowledged += pair.acknowledged().0;
    // Those that were written before both knew may have been given up.
    assert!(acknowledged > 340, "{acknowledged} of 400 writes");
    pair.map = moved(&pair, 2, 0);
    pair.restart(0);
    pair.restart(1);
    pair.open();
    pair.put(0, 1);
    pair.run(5);
    assert_eq!(pair.acknowledged(), (1, 1));
}

/// Moves the first region to the second server, `first` being told first. Returns how many writes to it were
/// acknowledged after that server was told.
fn moves(first: usize, mutants: Mutants) -> usize {
    let is_planted = mutants != Mutants::default();
    let mut pair = Pair::new(SimSettings::default(), mutants);
    pair.open();
    for key in 0..100 {
        pair.put(0, key);
        pair.run(1);
    }
    pair.run(50);
    assert_eq!(pair.acknowledged(), (100, 100));
    assert!(matches!(got(&pair, 0, 7), Some(Response::Value { .. })));
    let map = moved(&pair, 2, 1);
    pair.nodes[first].set_map(map.clone()).expect("newer");
    if first == 0 && !is_planted {
        let answer = got(&pair, 0, 7);
        assert!(
            !matches!(answer, Some(Response::Value { .. })),
            "{answer:?}"
        );
    }
    for key in 100..120 {
        pair.put(0, key);
        pair.put(1, key);
        pair.run(1);
    }
    // Whatever waits is answered, at its deadline at the latest; the other region goes on.
    pair.run(300);
    let (acknowledged, answers) = pair.acknowledged();
    assert_eq!(answers, 40);
    if is_planted {
        return acknowledged - 20;
    }
    pair.nodes[1 - first].set_map(map.clone()).expect("newer");
    pair.run(300);
    for server in [0, 1] {
        let answer = got(&pair, server, 7);
        assert!(
            !matches!(answer, Some(Response::Value { .. })),
            "{answer:?}"
        );
        let why = pair.nodes[server].ready();
        assert!(why.lacks.is_some() || server == 1, "{why:?}");
    }
    // A clean stop of the old primary; the new one is killed. Both come back in their new parts.
    assert!(pair.nodes[0].close());
    pair.map = map;
    pair.restart(0);
    pair.restart(1);
    pair.open();
    for key in 0..100 {
        let answer = got(&pair, 1, key);
        assert!(
            matches!(answer, Some(Response::Value { .. })),
            "{key}: {answer:?}"
        );
    }
    acknowledged - 20
}

#[test]
fn a_primary_whose_region_has_moved_shows_nothing_more() {
    assert_eq!(moves(0, Mutants::default()), 0);
}

#[test]
fn a_primary_that_has_not_heard_acknowledges_nothing_more() {
    assert_eq!(moves(1, Mutants::default()), 0);
}

#[test]
fn a_server_that_keeps_its_view_is_found() {
    let keep_view = Mutants {
        keep_view: true,
        ..Mutants::default()
    };
    assert!(moves(0, keep_view) > 0);
    assert!(moves(1, keep_view) > 0);
}
