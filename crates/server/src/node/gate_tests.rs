//! Nothing is shown before it is committed: each kind of answer is asked for while a write is under way that it would
//! reveal, and again with the mistake planted that lets it pass the gate.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Direction, KeyRange, ServerId};
use argosy_coordinator::Replication;
use argosy_engine::{Condition, Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::SimSettings;
use argosy_wire::ring::Header;

use super::copies_tests::{Pair, REGIONS, settings};
use super::gate::{Reveals, Verdict};
use super::local::LocalRegion;
use super::readers_tests::Answers;
use super::region::engine_of;
use super::{Mutants, Node, NodeSettings};
use crate::service::{Lease, Paging, ReplySink, ReplyTo, Request, Response, Service};

/// A key of the first region.
pub(super) const KEY: &[u8] = b"a key";

/// Asks a server for something, and returns what it answers at once.
pub(super) type Ask = fn(&Node, &Arc<dyn ReplySink>) -> Option<Response>;

/// What `ask` is answered at once, or before anything is stepped.
pub(super) fn answered(pair: &Pair, ask: Ask) -> Option<Response> {
    let told = Arc::<Answers>::default();
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&told);
    let now = ask(&pair.nodes[0], &sink);
    now.or_else(|| Some(told.0.lock().pop()?.1))
}

/// What `ask` is answered while a write of [`KEY`] is under way.
fn beside_a_write(replication: Replication, mutants: Mutants, ask: Ask) -> Option<Response> {
    let mut pair = Pair::with(replication, SimSettings::default(), settings(mutants));
    pair.open();
    let written = answered(&pair, |node, sink| write(node, sink, Condition::Always));
    assert_eq!(written, None, "the write is not committed");
    answered(&pair, ask)
}

/// What `ask` is answered by a primary that has just opened its regions again, and does not know yet that what it had
/// acknowledged is committed.
fn behind_a_restart(mutants: Mutants, ask: Ask) -> Option<Response> {
    behind_a_restart_with(settings(mutants), ask)
}

fn behind_a_restart_with(settings: NodeSettings, ask: Ask) -> Option<Response> {
    let mut pair = Pair::with(Replication::SendIndex, SimSettings::default(), settings);
    pair.open();
    pair.put(0, 1);
    pair.run(10);
    assert_eq!(pair.acknowledged(), (1, 1));
    pair.restart(0);
    for _ in 0..100_000 {
        pair.step_fabric();
        for node in &pair.nodes {
            node.step_background(pair.now);
        }
        let region = pair.nodes[0].region(REGIONS[0]).expect("a member");
        if let Some(engine) = engine_of(region) {
            let asked = region.gate().show_committed(&engine, Reveals::Write);
            assert_eq!(asked, Verdict::Later, "it is committed already");
            return answered(&pair, ask);
        }
    }
    panic!("the region does not open");
}

pub(super) fn write(
    node: &Node,
    sink: &Arc<dyn ReplySink>,
    condition: Condition,
) -> Option<Response> {
    let mut batch = WriteBatch::new();
    batch.put(KEY, b"value").expect("it is short");
    let options = WriteOptions {
        condition,
        return_previous: false,
    };
    let request = Request::Write {
        batch: &batch,
        options,
    };
    node.call(request, Reach::Device, ReplyTo::new(sink, 1))
        .answered()
}

pub(super) fn get(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    node.call(
        Request::Get { key: KEY },
        Reach::Device,
        ReplyTo::new(sink, 1),
    )
    .answered()
}

/// There is no such key: no write is revealed.
fn get_nothing(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    let request = Request::Get { key: b"a kez" };
    let reply = ReplyTo::new(sink, 1);
    node.call(request, Reach::Device, reply).answered()
}

pub(super) fn hit(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    let reply = ReplyTo::new(sink, 1);
    node.call(Request::Get { key: KEY }, Reach::Memory, reply)
        .answered()
}

pub(super) fn fail_condition(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    write(node, sink, Condition::Absent)
}

pub(super) fn count(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    node.call(Request::Count, Reach::Device, ReplyTo::new(sink, 1))
        .answered()
}

/// As the other server passes a client's read on.
pub(super) fn forward(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    let peer = ServerId(1);
    node.links.set_answerer(peer, Arc::clone(sink));
    let region = node.region(REGIONS[0]).expect("a member");
    let header = Header {
        kind: 0,
        region: region.id(),
        epoch: region.view().since,
        request: 1,
    };
    let mut call = Vec::new();
    Request::Get { key: KEY }.encode(&mut call);
    node.answer_call(peer, header, &call);
    None
}

pub(super) fn bulk_load(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    let mut batch = WriteBatch::new();
    batch.put(KEY, b"value").expect("it is short");
    node.call(
        Request::Ingest { batch: &batch },
        Reach::Device,
        ReplyTo::new(sink, 1),
    )
    .answered()
}

/// The same, where the background looks whether a key is in the way.
pub(super) fn bulk_load_in_background(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    let answer = bulk_load(node, sink);
    for _ in 0..10 {
        node.step_background(node.context().now());
        node.step_fabric(node.context().now());
    }
    answer
}

pub(super) fn page(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    let range = KeyRange::new(b"a".to_vec(), Some(b"b".to_vec()));
    let paging = Paging {
        direction: Direction::Up,
        pairs_max: 10,
        bytes_max: 1000,
        keys_only: false,
        at: None,
    };
    let request = Request::Scan {
        range: &range,
        paging,
    };
    node.call(request, Reach::Device, ReplyTo::new(sink, 1))
        .answered()
}

/// Of the first region alone: the other one may not be open yet.
pub(super) fn lease(node: &Node, sink: &Arc<dyn ReplySink>) -> Option<Response> {
    let lease = Lease::Open(Duration::from_secs(1));
    let id = Some(node.context().new_snapshot());
    let region = node.region(REGIONS[0]).expect("a member");
    let opened = LocalRegion::new(&node.context(), region)
        .call(
            Request::Snapshot { id, lease },
            Reach::Device,
            ReplyTo::new(sink, 1),
        )
        .answered();
    // To be told that it cannot be opened yet reveals nothing.
    opened.filter(|answer| !matches!(answer, Response::Failed(_)))
}

/// `ask` waits for the write, and does not with the mistake that `plant` plants.
fn assert_waits(replication: Replication, ask: Ask, plant: fn(&mut Mutants)) {
    let waits = beside_a_write(replication, Mutants::default(), ask);
    assert_eq!(waits, None);
    let mut planted = Mutants::default();
    plant(&mut planted);
    let shown = beside_a_write(replication, planted, ask);
    assert!(shown.is_some(), "nobody finds the planted mistake");
}

#[test]
fn a_read_does_not_show_what_is_not_committed() {
    assert_waits(Replication::SendIndex, get, |m| m.read_uncommitted = true);
}

#[test]
fn a_hit_in_memory_does_not_show_what_is_not_committed() {
    assert_waits(Replication::SendIndex, hit, |m| m.hit_uncommitted = true);
}

#[test]
fn a_failed_condition_does_not_show_what_is_not_committed() {
    let plant = |m: &mut Mutants| m.fail_uncommitted = true;
    assert_waits(Replication::SendIndex, fail_condition, plant);
}

#[test]
fn a_count_does_not_show_what_is_not_committed() {
    assert_waits(Replication::SendIndex, count, |m| {
        m.count_uncommitted = true
    });
}

#[test]
fn a_forwarded_answer_does_not_show_what_is_not_committed() {
    let plant = |m: &mut Mutants| m.forward_uncommitted = true;
    assert_waits(Replication::SendIndex, forward, plant);
}

#[test]
fn a_bulk_load_does_not_show_what_is_not_committed() {
    let plant = |m: &mut Mutants| m.bulk_load_uncommitted = true;
    assert_waits(Replication::BuildIndex, bulk_load, plant);
    assert_waits(Replication::SendIndex, bulk_load_in_background, plant);
}

#[test]
fn a_page_waits_for_what_was_acknowledged() {
    assert_eq!(behind_a_restart(Mutants::default(), page), None);
    let planted = Mutants {
        page_uncommitted: true,
        ..Mutants::default()
    };
    assert!(behind_a_restart(planted, page).is_some());
}

#[test]
fn a_snapshot_waits_for_what_was_acknowledged() {
    let told = behind_a_restart(Mutants::default(), lease);
    assert!(told.is_none(), "{told:?}");
    let planted = Mutants {
        snapshot_uncommitted: true,
        ..Mutants::default()
    };
    let told = behind_a_restart(planted, lease);
    assert!(told.is_some());
}

#[test]
fn nothing_is_shown_before_all_members_are_equal() {
    assert_eq!(behind_a_restart(Mutants::default(), get_nothing), None);
    let planted = NodeSettings {
        replication_mutants: argosy_replication::Mutants {
            serve_before_equal: true,
            ..Default::default()
        },
        ..settings(Mutants::default())
    };
    assert!(behind_a_restart_with(planted, get_nothing).is_some());
}
