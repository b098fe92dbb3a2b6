//! The table of roles, and views that are replaced while servers run.

use std::sync::Arc;

use argosy_base::{Epoch, KeyRange, Lsn, ServerId};
use argosy_coordinator::{
    ClusterId, ClusterMap, CopyReport, CopyStatus, PromotionClaim, Region as MapRegion, RegionState,
};
use argosy_engine::Reach;
use argosy_fabric::sim::SimSettings;

use super::copies_tests::{Pair, REGIONS};
use super::region::Driver;
use super::role::{Event, Role, next};
use super::views::Part;
use super::windows::WindowsOf;
use super::{Mutants, ViewError};
use crate::service::{ReplyTo, Request, Response, Service};

/// The table in the header of `role`, line by line: `-` where that does not happen.
const TABLE: [(Role, [&str; 7]); 5] = [
    (
        Role::Opening,
        [
            "Opening", "Backup", "Outside", "Opening", "Primary", "Failed", "Opening",
        ],
    ),
    (
        Role::Primary,
        [
            "Primary", "Backup", "Outside", "Opening", "-", "Failed", "-",
        ],
    ),
    (
        Role::Backup,
        [
            "Opening", "Backup", "Outside", "Opening", "Backup", "Failed", "Backup",
        ],
    ),
    (
        Role::Outside,
        [
            "Opening", "Backup", "Outside", "Opening", "Outside", "Failed", "Outside",
        ],
    ),
    (
        Role::Failed,
        [
            "Failed", "Failed", "Failed", "Failed", "Failed", "Failed", "by view",
        ],
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
            assert_eq!(name(next(role, part, Event::Opened)), row[4]);
            assert_eq!(name(next(role, part, Event::Failed)), row[5]);
            let refilled = match (row[6], part) {
                ("by view", Part::Primary) => "Opening",
                ("by view", Part::Backup) => "Backup",
                ("by view", Part::Nothing) => "Outside",
                (same, _) => same,
            };
            assert_eq!(name(next(role, part, Event::Refilled)), refilled);
        }
        assert_eq!(name(next(role, Part::Primary, Event::Chosen)), row[3]);
    }
    // Nobody shows data who is not the primary, whatever happens.
    for (role, _) in TABLE {
        for part in [Part::Backup, Part::Nothing] {
            assert_ne!(next(role, part, Event::View), Some(Role::Primary));
        }
    }
}

/// The map of `pair`, with its regions as `change` leaves them.
pub(super) fn changed(pair: &Pair, change: impl Fn(&mut MapRegion)) -> ClusterMap {
    let mut regions = pair.map.regions().to_vec();
    regions.iter_mut().for_each(change);
    let (name, replication) = (pair.map.cluster(), pair.map.replication());
    ClusterMap::new(name, replication, pair.map.servers().to_vec(), regions).expect("it is valid")
}

/// The map of `pair` with the first region at `epoch`, under `primary`.
pub(super) fn moved(pair: &Pair, epoch: u32, primary: u32) -> ClusterMap {
    changed(pair, |region| {
        if region.id == REGIONS[0] {
            (region.epoch, region.primary) = (Epoch(epoch), ServerId(primary));
        }
    })
}

/// What `server` answers to a get of the first pair that was put under `key` in the first region.
pub(super) fn got(pair: &Pair, server: usize, key: u64) -> Option<Response> {
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
    assert!(acknowledged > 300, "{acknowledged} of 400 writes");
    pair.map = moved(&pair, 2, 0);
    pair.restart(0);
    pair.restart(1);
    pair.open();
    pair.put(0, 1);
    pair.run(5);
    assert_eq!(pair.acknowledged(), (1, 1));
}

/// The map of `pair` with the first region at `epoch`, and without a primary.
pub(super) fn raised(pair: &Pair, epoch: u32) -> ClusterMap {
    changed(pair, |region| {
        if region.id == REGIONS[0] {
            (region.epoch, region.state) = (Epoch(epoch), RegionState::Recovering);
        }
    })
}

/// The map of `pair` with the first region at `epoch`, promoted to `primary`, which reported what `stood` is.
pub(super) fn promoted(pair: &Pair, epoch: u32, primary: u32, stood: &CopyReport) -> ClusterMap {
    changed(pair, |region| {
        if region.id == REGIONS[0] {
            (region.epoch, region.since) = (Epoch(epoch), Epoch(epoch));
            (region.state, region.primary) = (RegionState::Serving, ServerId(primary));
            region.claim = Some(PromotionClaim {
                status: stood.status,
                cut: stood.cut,
                edit: stood.edit,
                lsn: stood.lsn,
                member: true,
            });
        }
    })
}

/// Raises the epoch of the first region of `pair`, told to `servers`, until all of these say where they stand.
fn raise(pair: &mut Pair, epoch: u32, servers: &[usize]) -> Vec<CopyReport> {
    let map = raised(pair, epoch);
    for server in servers {
        pair.nodes[*server].set_map(map.clone()).expect("newer");
    }
    for _ in 0..100 {
        pair.run(1);
        let now = pair.now;
        let stood = |server: &usize| {
            let report = pair.nodes[*server].report_to_master(now);
            report.copies.get(&REGIONS[0]).copied()
        };
        if let Some(stood) = servers.iter().map(stood).collect() {
            return stood;
        }
    }
    panic!("they do not say where they stand");
}

/// Moves the first region to `primary`, of `servers`, all of which are told.
pub(super) fn move_to(pair: &mut Pair, epoch: u32, primary: u32, servers: &[usize]) {
    let stood = raise(pair, epoch, servers);
    let at = servers
        .iter()
        .position(|server| *server == primary as usize);
    let chosen = stood[at.expect("it is one of them")];
    assert_eq!(chosen.status, CopyStatus::Whole);
    pair.map = promoted(pair, epoch + 1, primary, &chosen);
    for server in servers {
        let map = pair.map.clone();
        pair.nodes[*server].set_map(map).expect("newer");
    }
}

/// Tells both servers of `pair` that the group of the first region is of `members` from `epoch` on.
fn regroup(pair: &mut Pair, epoch: u32, members: &[u32]) {
    pair.map = changed(pair, |region| {
        if region.id == REGIONS[0] {
            region.epoch = Epoch(epoch);
            region.members = members.iter().map(|id| ServerId(*id)).collect();
        }
    });
    for node in &pair.nodes {
        node.set_map(pair.map.clone()).expect("newer");
    }
}

/// A master that reads what a server stores fills no spare in its place: so each copy is named, from the first report
/// on, and none that is not there.
#[test]
fn a_server_that_left_a_group_says_at_once_whether_it_has_a_copy() {
    let mut pair = Pair::new(SimSettings::default(), Default::default());
    pair.open();
    let said = |pair: &Pair| {
        let report = pair.nodes[1].report_to_master(pair.now);
        report.copies.get(&REGIONS[0]).copied()
    };
    assert_eq!(said(&pair), None, "it is a member");
    regroup(&mut pair, 2, &[0]);
    let seated = |pair: &Pair| pair.nodes[1].region(REGIONS[0]).expect("one").is_seated();
    assert!(!seated(&pair));
    assert_eq!(said(&pair), Some(CopyReport::UNKNOWN));
    pair.run(50);
    assert!(seated(&pair));
    let stood = said(&pair).expect("its copy is kept");
    assert_eq!(stood.epoch, Epoch(2));
    let region = Arc::clone(pair.nodes[1].region(REGIONS[0]).expect("one"));
    let away = std::mem::replace(&mut *region.driver(), Driver::AtDevice("a test"));
    assert_eq!(said(&pair), Some(CopyReport::UNKNOWN));
    *region.driver() = away;
    assert_eq!(said(&pair), Some(stood));

    // With an empty device it has none, whatever comes.
    pair.replace(1);
    assert_eq!(said(&pair), None);
    regroup(&mut pair, 3, &[0]);
    assert!(!seated(&pair));
    assert_eq!(said(&pair), None);
    pair.run(50);
    assert!(seated(&pair));
    assert_eq!(said(&pair), None);
    regroup(&mut pair, 4, &[0, 1]);
    pair.run(50);
    regroup(&mut pair, 5, &[0]);
    assert_eq!(said(&pair), Some(CopyReport::UNKNOWN));
}

fn has_all(pair: &mut Pair, upto: u64) {
    for key in 0..upto {
        assert!(pair.has(0, key), "{key}");
    }
}

#[test]
fn a_region_moves_while_both_servers_run() {
    let mut pair = Pair::new(SimSettings::default(), Default::default());
    pair.open();
    for key in 0..100 {
        pair.put(0, key);
        pair.run(1);
    }
    pair.run(50);
    assert_eq!(pair.acknowledged(), (100, 100));
    for (move_, primary) in [1, 0, 1, 0].into_iter().enumerate() {
        let epoch = 2 + 2 * u32::try_from(move_).expect("few");
        move_to(&mut pair, epoch, primary, &[0, 1]);
        pair.open();
        pair.run(300);
        has_all(&mut pair, 100);
        for key in 0..100 {
            pair.put(0, key);
            pair.put(1, key);
            pair.run(1);
        }
        pair.run(300);
        let (acknowledged, answers) = pair.acknowledged();
        assert_eq!((acknowledged, answers), (200, 200), "after move {move_}");
    }
}

/// What both servers say that they have, after the epoch of a region with 20 writes was raised.
fn reported(mutants: Mutants) -> Vec<Lsn> {
    let mut pair = Pair::new(SimSettings::default(), mutants);
    pair.open();
    for key in 0..20 {
        pair.put(0, key);
    }
    pair.run(50);
    assert_eq!(pair.acknowledged(), (20, 20));
    let stood = raise(&mut pair, 2, &[0, 1]);
    stood.iter().map(|stood| stood.lsn).collect()
}

/// A backup looks at what its primary has written before it says what it has.
#[test]
fn a_backup_says_all_that_was_written_to_it() {
    let all = reported(Mutants::default());
    assert_eq!(all[0], all[1]);
    let stale = reported(Mutants {
        trust_fresh: true,
        ..Mutants::default()
    });
    assert_eq!(stale[0], all[0]);
    assert!(stale[1] < all[1], "{stale:?}");
}

/// A copy that steps back, and waits, and follows or leads, has one set of fresh windows for all of that.
#[test]
fn windows_are_made_once_for_a_promotion() {
    let mut pair = Pair::new(SimSettings::default(), Default::default());
    pair.open();
    pair.put(0, 1);
    pair.run(50);
    let windows = WindowsOf {
        region: REGIONS[0],
        logs: pair.nodes[0].context().memory.engine().logs(),
    };
    let names: Vec<u64> = windows.keys().map(|key| key.0).collect();
    for (epoch, primary) in [(2, 1), (4, 0)] {
        pair.windows.iter().for_each(|of| of.made.lock().clear());
        move_to(&mut pair, epoch, primary, &[0, 1]);
        pair.open();
        pair.run(100);
        for windows in &pair.windows {
            let mut made = windows.made.lock().clone();
            made.retain(|name| names.contains(name));
            made.sort_unstable();
            assert_eq!(made, names, "epoch {epoch}");
        }
    }
}

/// The sessions of the links between both servers.
fn sessions(pair: &Pair) -> [u32; 2] {
    [0, 1].map(|of: u32| {
        let node = &pair.nodes[of as usize];
        node.link(ServerId(1 - of)).session()
    })
}

/// Whoever takes its place first waits for the other one, and regions beside it go on.
#[test]
fn a_promotion_is_heard_in_any_order_and_breaks_no_link() {
    for (first, second) in [(0, 1), (1, 0)] {
        let mut pair = Pair::new(SimSettings::default(), Default::default());
        pair.open();
        pair.put(0, 1);
        pair.run(50);
        let stood = raise(&mut pair, 2, &[0, 1]);
        pair.run(300);
        let before = sessions(&pair);
        pair.map = promoted(&pair, 3, 1, &stood[1]);
        for server in [first, second] {
            let map = pair.map.clone();
            pair.nodes[server].set_map(map).expect("newer");
            pair.run(50);
        }
        pair.put(0, 2);
        pair.run(50);
        assert_eq!(pair.acknowledged(), (2, 2), "server {first} first");
        assert_eq!(sessions(&pair), before);
    }
}

/// A member leaves, is filled and returns, and no link breaks.
#[test]
fn a_group_changes_and_breaks_no_link() {
    for (first, second) in [(0, 1), (1, 0)] {
        let mut pair = Pair::new(SimSettings::default(), Default::default());
        pair.open();
        let before = sessions(&pair);
        let mut told = Vec::new();
        let groups = [(vec![], vec![]), (vec![], vec![1]), (vec![1], vec![])];
        for (epoch, (backups, filling)) in (2..).zip(groups) {
            pair.map = changed(&pair, |region| {
                if region.id == REGIONS[0] {
                    region.epoch = Epoch(epoch);
                    region.members = [0].iter().chain(&backups).map(|id| ServerId(*id)).collect();
                    region.filling = filling.iter().map(|id| ServerId(*id)).collect();
                }
            });
            for server in [first, second] {
                let map = pair.map.clone();
                pair.nodes[server].set_map(map).expect("newer");
                pair.run(50);
            }
            pair.put(0, u64::from(epoch));
            pair.run(50);
            told.push(pair.nodes[0].ready().degraded);
        }
        assert_eq!(pair.acknowledged(), (3, 3), "server {first} first");
        assert_eq!(sessions(&pair), before);
        assert_eq!(
            told,
            [
                vec!["region 1: it has 1 of 2 copies"],
                vec!["region 1: it has 1 of 2 copies; one is being filled at server 1"],
                vec![],
            ]
        );
        // What it missed has reached it.
        let backup = pair.nodes[0].region(REGIONS[0]).expect("a member");
        let Driver::Primary(driver) = &*backup.driver() else {
            panic!("server 0 serves it");
        };
        let member = driver.machine().members().next().expect("it is back");
        assert_eq!((member.state, member.lag), ("live", 0));
    }
}

#[test]
fn a_region_whose_epoch_has_risen_shows_nothing() {
    let mut pair = Pair::new(SimSettings::default(), Default::default());
    pair.open();
    for key in 0..100 {
        pair.put(0, key);
        pair.run(1);
    }
    pair.run(50);
    assert_eq!(pair.acknowledged(), (100, 100));
    // The primary has not heard: it acknowledges nothing more.
    raise(&mut pair, 2, &[1]);
    for key in 100..120 {
        pair.put(0, key);
        pair.put(1, key);
        pair.run(1);
    }
    pair.run(300);
    let (acknowledged, answers) = pair.acknowledged();
    assert_eq!(
        (acknowledged, answers),
        (20, 40),
        "those of the other region"
    );
    let stood = raise(&mut pair, 2, &[0]);
    assert_eq!(stood[0].status, CopyStatus::Whole);
    assert!(got(&pair, 0, 7).is_none_or(|answer| !matches!(answer, Response::Value { .. })));
}
