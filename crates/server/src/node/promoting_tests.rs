//! Promotions of several regions at one time, for which there is not enough memory.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::RegionId;
use argosy_coordinator::Replication;
use argosy_fabric::sim::SimSettings;

use crate::node::NodeSettings;
use crate::node::copies_tests::{Pair, REGIONS, settings};
use crate::node::region::Driver;
use crate::service::Service;

/// Two memtables, and no cache that would give way.
fn short_of_memory() -> NodeSettings {
    NodeSettings {
        engine: Arc::new(argosy_lsm::Settings::default().with(|of| {
            of.memtables.bytes = 64 << 10;
            of.memtables.count_max = 2;
            of.memtables.regions = Some(1);
            of.cache_bytes = 0;
        })),
        ..settings(Default::default())
    }
}

/// Whether the first server says `words` of `region`.
fn says(pair: &Pair, region: RegionId, words: &str) -> bool {
    let node = &pair.nodes[0];
    let region = node.region(region).expect("a member");
    let lacks = match &*region.driver() {
        Driver::Primary(driver) => driver.lacks(&node.context()),
        _ => None,
    };
    lacks.is_some_and(|lacks| lacks.contains(words))
}

/// Both regions of a server that starts again have more to rebuild than there is room for: one opens, and the other one
/// waits until that is flushed, and says so.
#[test]
fn regions_open_in_turn_where_memory_is_short() {
    let settings = short_of_memory();
    let mut pair = Pair::with(Replication::SendIndex, SimSettings::default(), settings);
    pair.open();
    for key in 0..40 {
        pair.put(0, key);
        pair.put(1, key);
        pair.run(1);
    }
    pair.run(50);
    assert_eq!(pair.acknowledged(), (80, 80));
    pair.restart(0);
    let mut waited = 0;
    for _ in 0..4000 {
        pair.step_fabric();
        for node in &pair.nodes {
            node.step_background(pair.now);
        }
        let regions = REGIONS.into_iter();
        waited += regions
            .filter(|id| says(&pair, *id, "waiting for memory"))
            .count();
        if pair.nodes[0].ready().lacks.is_none() {
            break;
        }
    }
    assert!(waited > 0);
    pair.open();
    for key in 0..40 {
        assert!(pair.has(0, key) && pair.has(1, key), "{key}");
    }
}

/// Where there is no room beneath the device, promotions wait for some without a thread. After a time one waits with
/// them, and is told.
#[test]
fn a_region_without_room_beneath_says_that_it_cannot_be_opened() {
    let usual = settings(Default::default());
    let mut pair = Pair::with(Replication::SendIndex, SimSettings::default(), usual);
    pair.open();
    pair.put(0, 1);
    pair.put(1, 1);
    pair.run(50);
    pair.restart(0);
    pair.devices[0].inner().set_full(true);
    let mut away = 0;
    for _ in 0..200 {
        pair.run(1);
        pair.now = pair.now + Duration::from_millis(100);
        let regions = REGIONS.map(|id| pair.nodes[0].region(id).expect("a member"));
        away += regions.iter().filter(|region| region.is_away()).count();
    }
    assert!(away > 20, "{away}");
    assert!(
        REGIONS
            .iter()
            .all(|id| says(&pair, *id, "cannot be opened"))
    );
}
