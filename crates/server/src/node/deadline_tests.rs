//! A request has one deadline, whatever it waits for: stepped by the test.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::Outcome;
use argosy_engine::{Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::SimSettings;

use super::Mutants;
use super::copies_tests::{Pair, REGIONS};
use super::local::LocalRegion;
use super::look::Tell;
use super::readers_tests::Answers;
use super::waiting::{Entry, Queued};
use crate::service::{Failure, ReplySink, ReplyTo, Response};

/// A write, and a read of its key, find room shortly before their deadline. Then they wait for the backup, which
/// has nothing of the write yet.
#[test]
fn who_has_waited_for_room_has_no_new_deadline() {
    let mut pair = Pair::new(SimSettings::default(), Mutants::default());
    pair.open();
    let node = &pair.nodes[0];
    let region = node.region(REGIONS[0]).expect("it is a member");
    let told = Arc::<Answers>::default();
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&told);
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").expect("it is short");
    let write = Queued::Write {
        batch,
        options: WriteOptions::default(),
    };
    let get = Queued::Get {
        key: b"a".to_vec(),
        tell: Tell::Value,
    };
    let (asked, deadline) = (node.context().now(), node.context().deadline());
    for (token, request) in (0..).zip([write, get]) {
        let reply = ReplyTo::new(&sink, token);
        let entry = Entry {
            request,
            reply,
            deadline,
        };
        assert!(region.waiting().queue(entry).is_ok());
    }

    node.context()
        .set_now(asked + pair.settings.deadline * 4 / 5);
    let context = node.context();
    let local = LocalRegion::new(&context, region);
    assert!(local.retry_queued(Reach::Device).made && !region.waiting().is_queueing());
    node.context().sweep();
    assert!(told.0.lock().is_empty(), "both wait");

    node.context().set_now(deadline + Duration::from_millis(1));
    node.context().sweep();
    let outcome = |(token, answer): &(u64, Response)| match answer {
        Response::Failed(Failure::Unavailable { what, outcome }) => {
            assert!(what.ends_with("(the request had waited before)"), "{what}");
            (*token, *outcome)
        }
        other => panic!("{token}: {other:?}"),
    };
    let told = told.0.lock();
    let told: Vec<_> = told.iter().map(outcome).collect();
    assert_eq!(told, [(0, Outcome::Unknown), (1, Outcome::NotApplied)]);
}
