//! What requests wait for while a region has no primary that answers: stepped by the test.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{EditSeq, Epoch, Instant, Lsn, Outcome, ServerId};
use argosy_coordinator::{
    ClusterMap, CopyStatus, PromotionClaim, Region as MapRegion, RegionState, Replication,
};
use argosy_engine::{Condition, Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::SimSettings;

use super::calls::WAITING_BYTES_MAX;
use super::copies_tests::{Pair, REGIONS, settings};
use super::failover::Way;
use super::line::Call;
use super::planted_tests::write_of;
use super::readers_tests::Answers;
use super::region::engine_of;
use super::views_tests::changed;
use super::{Mutants, NodeSettings, leasing_tests};
use crate::service::{Begun, Failure, ReplySink, ReplyTo, Request, Response, Service};

const PRIMARY: ServerId = ServerId(0);
const OTHER: ServerId = ServerId(1);

/// Why a primary was chosen: as a whole member.
const CLAIM: PromotionClaim = PromotionClaim {
    status: CopyStatus::Whole,
    cut: Epoch(1),
    edit: EditSeq(1),
    lsn: Lsn(1),
    member: true,
};

/// Two servers whose requests wait for a second, of two.
fn patient(mutants: Mutants) -> Pair {
    let settings = NodeSettings {
        deadline: Duration::from_secs(2),
        failover_wait: Duration::from_secs(1),
        ..settings(mutants)
    };
    let mut pair = Pair::with(Replication::SendIndex, SimSettings::default(), settings);
    pair.open();
    pair
}

/// A client of one server, which submits without waiting.
#[derive(Default)]
struct Asker {
    told: Arc<Answers>,
    asked: u64,
}

impl Asker {
    fn ask(&mut self, pair: &Pair, server: usize, request: Request<'_>) -> Begun {
        let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&self.told);
        self.asked += 1;
        let reply = ReplyTo::new(&sink, self.asked);
        let begun = pair.nodes[server].call(request, Reach::Device, reply);
        pair.nodes[server].flush();
        begun
    }

    fn put(&mut self, pair: &Pair, server: usize, key: &[u8], value: &[u8]) -> Begun {
        let mut batch = WriteBatch::new();
        batch.put(key, value).expect("it is short");
        let options = WriteOptions::default();
        let batch = &batch;
        self.ask(pair, server, Request::Write { batch, options })
    }

    /// The answers so far, by the order in which they were asked for.
    fn answers(&self) -> Vec<(u64, Response)> {
        let mut answers = std::mem::take(&mut *self.told.0.lock());
        answers.sort_by_key(|(token, _)| *token);
        answers
    }
}

fn is_written(answer: &Response) -> bool {
    matches!(answer, Response::Written { applied: true, .. })
}

fn outcome_of(answer: &Response) -> (&str, Outcome) {
    match answer {
        Response::Failed(Failure::Unavailable { what, outcome }) => (what, *outcome),
        other => panic!("it cannot have been done: {other:?}"),
    }
}

/// What server 1 reads.
fn got(pair: &mut Pair, key: &[u8]) -> Response {
    pair.ask(1, Request::Get { key }, |pair| pair.run(1))
}

fn cut(pair: &mut Pair) {
    pair.world.cut(PRIMARY, OTHER);
    pair.world.cut(OTHER, PRIMARY);
    while pair.nodes[1].link(PRIMARY).is_open() {
        pair.run(1);
    }
}

/// That nothing waits any more.
fn nothing_is_left(pair: &Pair) {
    for node in &pair.nodes {
        assert_eq!(node.calls().len(), 0);
        assert_eq!(node.calls().waiting_bytes(), 0);
        assert!(!node.context().requests.any_queueing());
    }
}

#[test]
fn what_waits_for_a_link_is_carried_out_in_order_when_it_opens() {
    let mut pair = patient(Mutants::default());
    cut(&mut pair);
    let mut asker = Asker::default();
    for value in 0..100u8 {
        let begun = asker.put(&pair, 1, b"a", &[value]);
        assert_eq!(begun, Begun::Sent);
    }
    let begun = asker.ask(&pair, 1, Request::Get { key: b"a" });
    assert_eq!(begun, Begun::Sent);
    pair.run(50);
    assert!(asker.answers().is_empty(), "all of them wait");
    assert_eq!(pair.nodes[1].calls().len(), 101);
    pair.world.heal_all();
    pair.open();
    pair.run(100);
    let answers = asker.answers();
    assert_eq!(answers.len(), 101);
    let (_, read) = answers.last().expect("there are some");
    assert_eq!(*read, Response::Value(Some(vec![99])));
    assert!(answers[..100].iter().all(|(_, told)| is_written(told)));
    nothing_is_left(&pair);
}

/// What is sent to a server that has just been lost has an unknown outcome: so nothing is, once it is quiet.
#[test]
fn nothing_is_sent_to_a_server_that_is_quiet() {
    for millis in [300, 700] {
        let mut pair = patient(Mutants::default());
        leasing_tests::run(&mut pair, &[1], millis);
        assert!(pair.nodes[1].link(PRIMARY).is_open());
        let mut asker = Asker::default();
        asker.put(&pair, 1, b"a", b"1");
        let waits = pair.nodes[1].calls().waiting_bytes() > 0;
        assert_eq!(waits, millis == 700);
        pair.run(100);
        assert!(is_written(&asker.answers()[0].1), "it is heard again");
        nothing_is_left(&pair);
    }
}

#[test]
fn what_waits_in_vain_is_not_applied() {
    let mut pair = patient(Mutants::default());
    cut(&mut pair);
    let mut asker = Asker::default();
    let before = pair.now;
    asker.put(&pair, 1, b"a", b"1");
    pair.run(1200);
    let answers = asker.answers();
    let (what, outcome) = outcome_of(&answers[0].1);
    assert!(what.contains("cannot be reached; retry"), "{what}");
    assert_eq!(outcome, Outcome::NotApplied);
    assert!(pair.now > before + Duration::from_secs(1));
    pair.world.heal_all();
    pair.open();
    assert_eq!(got(&mut pair, b"a"), Response::Value(None));
    nothing_is_left(&pair);
}

#[test]
fn what_comes_while_the_primary_opens_waits_here_and_there() {
    let mut pair = patient(Mutants::default());
    pair.restart(0);
    let (mut here, mut there) = (Asker::default(), Asker::default());
    assert_eq!(here.put(&pair, 0, b"a", b"1"), Begun::Sent);
    assert_eq!(here.put(&pair, 0, b"a", b"2"), Begun::Sent);
    let begun = here.ask(&pair, 0, Request::Get { key: b"a" });
    assert_eq!(begun, Begun::Sent);
    // The other server does not know yet that it was restarted: what is read there now is lost, and asked again.
    there.ask(&pair, 1, Request::Get { key: b"b" });
    pair.open();
    pair.run(50);
    let answers = here.answers();
    assert_eq!(answers.len(), 3, "{answers:?}");
    assert!(is_written(&answers[0].1) && is_written(&answers[1].1));
    assert_eq!(answers[2].1, Response::Value(Some(b"2".to_vec())));
    assert_eq!(there.answers(), [(1, Response::Value(None))]);
    nothing_is_left(&pair);
}

/// The map of `pair` with its regions under `primary`, which was chosen at `epoch` as a whole member.
fn promoted(pair: &Pair, epoch: u32, primary: ServerId) -> ClusterMap {
    let mut regions = pair.map.regions().to_vec();
    for of in &mut regions {
        (of.epoch, of.since, of.primary) = (Epoch(epoch), Epoch(epoch), primary);
        of.claim = Some(CLAIM);
    }
    let (name, replication) = (pair.map.cluster(), pair.map.replication());
    ClusterMap::new(name, replication, pair.map.servers().to_vec(), regions).expect("it is valid")
}

#[test]
fn what_is_refused_under_another_epoch_waits_until_both_know_it() {
    for first in [0, 1] {
        let mut pair = patient(Mutants::default());
        let map = promoted(&pair, 2, PRIMARY);
        pair.nodes[first].set_map(map.clone()).expect("newer");
        pair.run(50);
        let mut asker = Asker::default();
        for value in 0..20u8 {
            asker.put(&pair, 1, b"a", &[value]);
        }
        asker.ask(&pair, 1, Request::Get { key: b"a" });
        pair.run(100);
        assert_eq!(asker.answers(), [], "they are refused there, and wait");
        pair.nodes[1 - first].set_map(map).expect("newer");
        pair.open();
        pair.run(300);
        let answers = asker.answers();
        assert_eq!(answers.len(), 21);
        assert!(answers[..20].iter().all(|(_, told)| is_written(told)));
        assert_eq!(answers[20].1, Response::Value(Some(vec![19])));
        nothing_is_left(&pair);
    }
}

/// The second request may wait for less than the pause after the last refusal of the first.
#[test]
fn what_waits_behind_a_refused_request_is_sent_in_its_time() {
    let mut pair = patient(Mutants::default());
    let map = promoted(&pair, 2, PRIMARY);
    pair.nodes[1].set_map(map).expect("newer");
    pair.run(50);
    let mut asker = Asker::default();
    asker.put(&pair, 1, b"a", b"1");
    pair.run(90);
    asker.ask(&pair, 1, Request::Get { key: b"a" });
    let until = pair.now + Duration::from_secs(1);
    let mut answers = Vec::new();
    while answers.is_empty() {
        pair.run(1);
        answers = asker.answers();
    }
    let told: Vec<_> = answers.iter().map(|(_, told)| outcome_of(told)).collect();
    assert!(matches!(told[..], [(_, Outcome::NotApplied)]), "{told:?}");
    // The next probe is due after a pause of 100 ms, and the second request may wait for 90 ms.
    while pair.now < until {
        pair.run(1);
    }
    let context = pair.nodes[1].context();
    let mut due = Vec::new();
    context.requests.expire_calls(pair.now, &mut due, &context);
    assert!(due.is_empty(), "it is with the primary");
    pair.run(10);
    let answers = asker.answers();
    let told: Vec<_> = answers.iter().map(|(_, told)| outcome_of(told)).collect();
    assert!(
        matches!(told[..], [(what, Outcome::NotApplied)] if what.contains("not the primary")),
        "{told:?}"
    );
    nothing_is_left(&pair);
}

/// The second server becomes the primary; whoever is asked has heard of it before, or behind it.
#[test]
fn what_comes_during_a_failover_is_carried_out_by_the_new_primary() {
    for first in [0, 1] {
        for asked in [0, 1] {
            let mut pair = patient(Mutants::default());
            let mut asker = Asker::default();
            let map = promoted(&pair, 2, OTHER);
            pair.nodes[first].set_map(map.clone()).expect("newer");
            // What is sent to whom breaks its links just then is lost.
            if (first, asked) != (0, 0) {
                pair.run(50);
            }
            for value in 0..20u8 {
                asker.put(&pair, asked, b"a", &[value]);
            }
            asker.ask(&pair, asked, Request::Get { key: b"a" });
            pair.run(20);
            pair.nodes[1 - first].set_map(map.clone()).expect("newer");
            pair.map = map;
            pair.run(1500);
            let answers = asker.answers();
            assert_eq!(answers.len(), 21, "{first} {asked}");
            let told = |told: &Response| match told {
                Response::Failed(Failure::Unavailable { outcome, .. }) => *outcome,
                Response::Written { applied: true, .. } | Response::Value(_) => Outcome::Applied,
                other => panic!("{other:?}"),
            };
            let told: Vec<_> = answers.iter().map(|(_, answer)| told(answer)).collect();
            // The old primary has taken them before it heard, and nobody acknowledges them: they may be applied yet.
            if (first, asked) == (1, 0) {
                assert_eq!(told[..20], [Outcome::Unknown; 20], "{answers:?}");
            } else {
                assert_eq!(told, [Outcome::Applied; 21], "{first} {asked} {answers:?}");
                assert_eq!(answers[20].1, Response::Value(Some(vec![19])));
            }
            nothing_is_left(&pair);
        }
    }
}

/// The map of `pair` in which the first server alone stores its regions, as `change` leaves them.
fn alone(pair: &Pair, epoch: u32, change: impl Fn(&mut MapRegion)) -> ClusterMap {
    changed(pair, |of| {
        (of.epoch, of.members, of.last) = (Epoch(epoch), vec![PRIMARY], vec![PRIMARY]);
        change(of);
    })
}

/// What was sent to a server that stops then, and on a link that stays up, since this one is no member. The map rises
/// first, and the server has been quiet for long a while later.
#[test]
fn a_write_at_a_silent_server_is_unknown_once_that_leads_its_region_no_more() {
    let raise: fn(&mut MapRegion) = |of| of.state = RegionState::Recovering;
    let promote: fn(&mut MapRegion) = |of| (of.since, of.claim) = (Epoch(3), Some(CLAIM));
    let regroup: fn(&mut MapRegion) = |_| ();
    for (change, is_given_up) in [(raise, true), (promote, true), (regroup, false)] {
        let mut pair = patient(Mutants::default());
        let map = alone(&pair, 2, |_| ());
        for node in &pair.nodes {
            node.set_map(map.clone()).expect("newer");
        }
        pair.run(100);
        let mut asker = Asker::default();
        assert_eq!(asker.put(&pair, 1, b"a", b"1"), Begun::Sent);
        leasing_tests::run(&mut pair, &[1], 200);
        let map = alone(&pair, 3, change);
        pair.nodes[1].set_map(map).expect("newer");
        leasing_tests::run(&mut pair, &[1], 200);
        assert_eq!(asker.answers(), [], "it may be about to answer");
        leasing_tests::run(&mut pair, &[1], 400);
        assert!(pair.nodes[1].link(PRIMARY).is_open());
        let mut answers = asker.answers();
        assert_eq!(answers.len(), usize::from(is_given_up));
        if !is_given_up {
            // At its deadline.
            leasing_tests::run(&mut pair, &[1], 2000);
            answers = asker.answers();
        }
        let (what, outcome) = outcome_of(&answers[0].1);
        assert_eq!(
            what.contains("is its primary no more"),
            is_given_up,
            "{what}"
        );
        assert_eq!(outcome, Outcome::Unknown);
        // It is true: the server goes on, and has not heard of the change.
        let last = |pair: &Pair| {
            let region = pair.nodes[0].region(REGIONS[0]).expect("a member");
            engine_of(region).expect("it is open").last_lsn()
        };
        let before = last(&pair);
        leasing_tests::run(&mut pair, &[0], 50);
        assert!(last(&pair) > before);
        assert_eq!(asker.answers(), []);
        assert_eq!(pair.nodes[1].calls().len(), 0);
    }
}

#[test]
fn what_waits_is_bounded() {
    let mut pair = patient(Mutants::default());
    cut(&mut pair);
    let mut asker = Asker::default();
    let value = vec![0; 100 << 10];
    let refused = loop {
        match asker.put(&pair, 1, b"a", &value) {
            Begun::Sent => {}
            Begun::Answered(refused) => break refused,
            other => panic!("{other:?}"),
        }
    };
    let (what, outcome) = outcome_of(&refused);
    assert!(
        what.contains("too many requests wait for the primary"),
        "{what}"
    );
    assert_eq!(outcome, Outcome::NotApplied);
    let held = pair.nodes[1].reports().holdings();
    let held = held
        .iter()
        .find(|of| of.what.contains("wait for a primary"));
    let held = held.expect("it is told");
    assert_eq!(held.most, WAITING_BYTES_MAX);
    // The last quarter is for reads.
    let most = held.most / 4 * 3;
    assert!(held.held <= most && held.held + value.len() + 1000 > most);
    pair.run(1200);
    assert_eq!(asker.answers().len() as u64, asker.asked - 1);
    nothing_is_left(&pair);
}

/// A write is carried out, and the link breaks before it is answered. It is on the condition that its key is not
/// bound. What its client is told.
fn told_of_a_lost_write(mutants: Mutants) -> Response {
    let mut pair = patient(mutants);
    let batch = write_of(b"a", 100);
    let options = WriteOptions {
        condition: Condition::Absent,
        ..WriteOptions::default()
    };
    let mut asker = Asker::default();
    let request = Request::Write {
        batch: &batch,
        options,
    };
    let last = |pair: &Pair| {
        let region = pair.nodes[0].region(REGIONS[0]).expect("a member");
        engine_of(region).expect("it is open").last_lsn()
    };
    let before = last(&pair);
    asker.ask(&pair, 1, request);
    while last(&pair) == before {
        pair.step_fabric();
    }
    assert!(asker.answers().is_empty(), "it is not committed yet");
    pair.nodes[0].link(OTHER).reset("the test wants it");
    pair.run(1500);
    let mut answers = asker.answers();
    assert_eq!(answers.len(), 1);
    answers.remove(0).1
}

#[test]
fn a_write_that_was_sent_is_not_sent_again() {
    let told = told_of_a_lost_write(Mutants::default());
    assert_eq!(outcome_of(&told).1, Outcome::Unknown);
    let mutants = Mutants {
        send_lost_again: true,
        ..Mutants::default()
    };
    let told = told_of_a_lost_write(mutants);
    let refused = matches!(told, Response::Written { applied: false, .. });
    assert!(refused, "its own first attempt has bound the key: {told:?}");
}

/// The table in the header of `failover`, line by line: in a group of several, and of one.
#[test]
fn who_waits_is_a_table() {
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::default();
    let call = |write| Call {
        number: 1,
        place: 0,
        payload: Arc::default(),
        write,
        reply: ReplyTo::new(&sink, 0),
        until: Instant::from_nanos(10),
        deadline: Instant::from_nanos(20),
        refused: None,
    };
    // Within the time that a call may wait for a primary: a read and a write of a group of several, and of one.
    // Then the same of a group of several when that time is over.
    let table = [
        (Way::Here, [true; 4], [true; 2]),
        (Way::Over(OTHER), [true; 4], [true; 2]),
        (Way::Quiet(OTHER), [true; 4], [false; 2]),
        (Way::Opening, [true; 4], [false; 2]),
        (Way::Nowhere, [true; 4], [false; 2]),
        (Way::Failed, [false; 4], [false; 2]),
        (Way::Down(OTHER), [true, true, true, false], [true, false]),
        (Way::Away(OTHER), [true, true, false, false], [false; 2]),
        (Way::Gone(OTHER), [true, true, false, false], [false; 2]),
    ];
    for (way, in_time, later) in table {
        let waits = |write, others, nanos| {
            let now = Instant::from_nanos(nanos);
            way.is_waited_for(&call(write), others, now)
        };
        let told = [(false, true), (true, true), (false, false), (true, false)];
        let told = told.map(|(write, others)| waits(write, others, 9));
        assert_eq!(told, in_time, "{way:?}");
        assert_eq!(
            [false, true].map(|write| waits(write, true, 10)),
            later,
            "{way:?}"
        );
        assert!(!waits(false, true, 20) && !waits(true, true, 20), "{way:?}");
    }
    // One that was refused there has had its turn.
    let refused = Call {
        refused: Some("not open".into()),
        ..call(true)
    };
    for (nanos, waits) in [(9, true), (10, false)] {
        let now = Instant::from_nanos(nanos);
        let told = Way::Over(OTHER).is_waited_for(&refused, true, now);
        assert_eq!(told, waits);
    }
}
