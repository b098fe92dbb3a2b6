//! What becomes of forwarded requests whose link breaks: stepped by the test.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Outcome, ServerId};
use argosy_coordinator::Replication;
use argosy_engine::{Reach, WriteOptions};
use argosy_fabric::sim::SimSettings;

use super::calls::KEPT_BYTES_MAX;
use super::copies_tests::{Pair, settings};
use super::planted_tests::write_of;
use super::readers_tests::Answers;
use super::{Mutants, NodeSettings};
use crate::service::{Begun, Failure, ReplySink, ReplyTo, Request, Response, Service};

const PRIMARY: ServerId = ServerId(0);

fn open_pair() -> Pair {
    let mut pair = Pair::new(SimSettings::default(), Mutants::default());
    pair.open();
    pair
}

fn outcome_of(answer: &Response) -> (&str, Outcome) {
    match answer {
        Response::Failed(Failure::Unavailable { what, outcome }) => (what, *outcome),
        other => panic!("it cannot have been done: {other:?}"),
    }
}

fn write(pair: &mut Pair, key: &[u8]) -> Response {
    let batch = write_of(key, 100);
    let options = WriteOptions::default();
    let request = Request::Write {
        batch: &batch,
        options,
    };
    pair.ask(1, request, |pair| pair.run(1))
}

fn read(pair: &mut Pair, key: &[u8]) -> Response {
    pair.ask(1, Request::Get { key }, |pair| pair.run(1))
}

/// Has the primary begin a new session. The other server does not know it yet.
fn reset(pair: &Pair) {
    pair.nodes[0].link(ServerId(1)).reset("the test wants it");
}

#[test]
fn a_read_whose_link_breaks_is_sent_again() {
    let mut pair = open_pair();
    let answer = write(&mut pair, b"a");
    assert!(matches!(answer, Response::Written { applied: true, .. }));
    let lost = pair.nodes[1].inspect().counts().links_lost;
    reset(&pair);
    let answer = read(&mut pair, b"a");
    assert!(matches!(answer, Response::Value(Some(_))), "{answer:?}");
    assert_eq!(pair.nodes[1].inspect().counts().links_lost, lost + 1);

    pair.open();
    reset(&pair);
    let answer = write(&mut pair, b"a");
    let (what, outcome) = outcome_of(&answer);
    assert!(what.contains("was lost while it worked on this"), "{what}");
    assert_eq!(outcome, Outcome::Unknown, "a write is not sent twice");
}

/// A read waits for a link that is down while its peer may come back, and no longer.
#[test]
fn a_read_waits_for_its_link_and_not_for_who_is_gone() {
    let settings = NodeSettings {
        deadline: Duration::from_secs(20),
        ..settings(Mutants::default())
    };
    let mut pair = Pair::with(Replication::SendIndex, SimSettings::default(), settings);
    pair.open();
    pair.world.cut(PRIMARY, ServerId(1));
    pair.world.cut(ServerId(1), PRIMARY);
    while pair.nodes[1].link(PRIMARY).is_open() {
        pair.run(1);
    }
    assert!(!pair.nodes[1].link(PRIMARY).is_open());
    let answer = write(&mut pair, b"a");
    assert_eq!(outcome_of(&answer).1, Outcome::NotApplied);
    let before = pair.now;
    let answer = read(&mut pair, b"a");
    let (what, outcome) = outcome_of(&answer);
    assert!(what.contains("cannot be reached"), "{what}");
    assert_eq!(outcome, Outcome::NotApplied);
    assert!(pair.now > before, "it has waited");

    let before = pair.now;
    let answer = read(&mut pair, b"a");
    assert_eq!(outcome_of(&answer).1, Outcome::NotApplied);
    assert_eq!(pair.now, before, "it is known by now");

    pair.world.heal_all();
    pair.open();
    assert_eq!(read(&mut pair, b"a"), Response::Value(None));
}

/// What is kept of reads is bounded, and given back with their answers.
#[test]
fn what_is_kept_of_reads_is_bounded() {
    let mut pair = open_pair();
    let told = Arc::<Answers>::default();
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&told);
    let mut key = vec![b'a'; 4096];
    let asked = 1100u16;
    for number in 0..asked {
        key[1..3].copy_from_slice(&number.to_le_bytes());
        let request = Request::Get { key: &key };
        let reply = ReplyTo::new(&sink, number.into());
        let begun = pair.nodes[1].call(request, Reach::Memory, reply);
        assert_eq!(begun, Begun::Sent);
    }
    let kept = pair.nodes[1].calls().kept_bytes();
    // The last quarter is for writes.
    let most = KEPT_BYTES_MAX / 4 * 3;
    assert!(kept <= most && kept > most - key.len() * 2);
    pair.nodes[1].flush();
    pair.run(500);
    let answers = std::mem::take(&mut *told.0.lock());
    assert_eq!(answers.len(), usize::from(asked));
    assert_eq!(pair.nodes[1].calls().kept_bytes(), 0);
}
