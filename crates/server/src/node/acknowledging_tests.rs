//! What a write waits for under each durability mode, and what a read of it does.

use std::sync::Arc;

use argosy_base::DurabilityMode;
use argosy_coordinator::Replication;
use argosy_engine::Condition;
use argosy_fabric::sim::SimSettings;

use crate::node::Mutants;
use crate::node::copies_tests::{Pair, map, settings};
use crate::node::gate_tests::{answered, get, page, write};
use crate::service::{Response, Service};

/// Two servers whose cluster has this mode, open; the backup's windows are awake.
fn pair(mode: DurabilityMode, mutants: Mutants) -> Pair {
    let mut settings = settings(mutants);
    let engine = argosy_lsm::Settings::default().with(|of| {
        of.memtables.bytes = 64 << 10;
        of.cache_bytes = 0;
        of.logs.sync = mode == DurabilityMode::Sync;
    });
    settings.engine = Arc::new(engine);
    let map = map(Replication::SendIndex).with_durability(mode);
    let mut pair = Pair::of(map, SimSettings::default(), settings);
    pair.open();
    pair.put(0, 0);
    pair.run(20);
    assert_eq!(pair.acknowledged(), (1, 1));
    pair
}

/// How many writes of one are acknowledged: when the write is on its way, when the backup has it in memory, and when
/// both have it on their devices.
fn acknowledged(mode: DurabilityMode, mutants: Mutants) -> [usize; 3] {
    let mut pair = pair(mode, mutants);
    pair.put(0, 1);
    let issued = pair.acknowledged().0;
    for _ in 0..100 {
        pair.step_fabric();
    }
    let held = pair.acknowledged().0;
    pair.run(20);
    [issued, held, pair.acknowledged().0]
}

#[test]
fn a_write_waits_for_what_its_mode_says() {
    let none = Mutants::default();
    let expected = [
        (DurabilityMode::LastWrite, [0, 1, 0]),
        (DurabilityMode::LastFlush, [1, 0, 0]),
        (DurabilityMode::Sync, [0, 0, 1]),
    ];
    for (mode, expected) in expected {
        assert_eq!(acknowledged(mode, none), expected, "{mode}");
    }
    let early = Mutants {
        acknowledge_unsynced: true,
        ..Mutants::default()
    };
    assert_eq!(acknowledged(DurabilityMode::Sync, early), [0, 1, 0]);
}

/// A write that was acknowledged before the backup had it is seen by gets and scans.
#[test]
fn what_is_acknowledged_early_is_read() {
    let pair = pair(DurabilityMode::LastFlush, Mutants::default());
    let written = answered(&pair, |node, sink| write(node, sink, Condition::Always));
    assert_eq!(written, None, "it is not on its way");
    assert_eq!(answered(&pair, get), None, "nor is the write shown");
    pair.nodes[0].flush();
    let shown = answered(&pair, get);
    assert_eq!(shown, Some(Response::Value(Some(b"value".to_vec()))));
    match answered(&pair, page) {
        Some(Response::Page { pairs, .. }) => assert_eq!(pairs.len(), 5),
        other => panic!("{other:?}"),
    }
}
