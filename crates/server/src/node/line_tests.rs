//! The rules of a line, one by one.

use argosy_base::Outcome;
use argosy_base::ServerId;

use super::super::calls::{Answer, Calls, Ended, KEPT_BYTES_MAX, WAITING_BYTES_MAX};
use super::super::readers_tests::Answers;
use super::*;
use crate::service::{Failure, ReplySink, Response};

const PEER: ServerId = ServerId(7);
const OTHER: ServerId = ServerId(8);
const ME: ServerId = ServerId(9);
const FIRST: Epoch = Epoch(1);
const SECOND: Epoch = Epoch(2);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A write or a read, which may wait for a second.
fn call(number: u64, write: bool) -> Call {
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::default();
    Call {
        number,
        place: 0,
        payload: vec![1; 100].into(),
        write,
        reply: ReplyTo::new(&sink, number),
        until: at(1000),
        deadline: at(2000),
        refused: None,
    }
}

const WRITE: bool = true;
const READ: bool = false;

fn refusal() -> Response {
    Response::Failed(Failure::Unavailable {
        what: "not open".to_owned(),
        outcome: Outcome::NotApplied,
    })
}

fn answer(number: u64, response: Response) -> Answer {
    Answer {
        peer: PEER,
        number,
        response,
        any_order: false,
    }
}

/// Whether the call waits again; and which others were told that they were not applied.
fn end(calls: &mut Calls, answer: Answer, now: Instant) -> (bool, Vec<(u64, Response)>) {
    let mut due = Vec::new();
    let ended = calls.end(answer, now, &mut due);
    let due = due.into_iter().map(|(reply, told)| (reply.token, told));
    (matches!(ended, Ended::Returned(_)), due.collect())
}

/// Takes the next call and sends it.
fn send(calls: &mut Calls, epoch: Epoch, now: Instant) -> Option<u64> {
    let call = calls.take(0, epoch, now)?;
    let number = call.number;
    calls.sent(PEER, epoch, call);
    calls.follows(0, number);
    Some(number)
}

fn sent(calls: &mut Calls, all: &[(u64, bool)]) {
    for (number, write) in all {
        assert!(calls.begin(PEER, FIRST, call(*number, *write)).is_ok());
    }
}

fn nothing_is_left(calls: &Calls) {
    assert_eq!(calls.len(), 0);
    assert_eq!((calls.kept_bytes(), calls.waiting_bytes()), (0, 0));
    assert_eq!(calls.queueing(), 0);
}

#[test]
fn the_first_is_a_probe_and_the_others_follow_it_in_order() {
    let mut calls = Calls::default();
    for number in [1, 2, 3] {
        assert!(calls.put(call(number, WRITE)).is_ok());
    }
    assert_eq!(send(&mut calls, FIRST, at(0)), Some(1));
    assert_eq!(
        send(&mut calls, FIRST, at(99)),
        None,
        "the probe is under way"
    );
    assert_eq!(end(&mut calls, answer(1, Response::Done), at(1)).1.len(), 1);
    assert_eq!(send(&mut calls, FIRST, at(1)), Some(2));
    assert_eq!(send(&mut calls, FIRST, at(1)), Some(3));
    assert!(!calls.is_queueing(0));
    for number in [3, 2] {
        end(&mut calls, answer(number, Response::Done), at(2));
    }
    nothing_is_left(&calls);
}

#[test]
fn a_probe_without_an_answer_is_not_waited_for_without_end() {
    let mut calls = Calls::default();
    for number in [1, 2, 3] {
        assert!(calls.put(call(number, WRITE)).is_ok());
    }
    assert_eq!(send(&mut calls, FIRST, at(0)), Some(1));
    assert_eq!(send(&mut calls, FIRST, at(100)), Some(2));
    assert_eq!(send(&mut calls, FIRST, at(100)), Some(3));
    for number in [1, 2, 3] {
        end(&mut calls, answer(number, Response::Done), at(200));
    }
    nothing_is_left(&calls);
}

/// Its primary may have opened meanwhile, and nothing is wrong any more.
#[test]
fn who_waits_behind_refused_calls_has_its_turn_in_time() {
    let mut calls = Calls::default();
    let mut now = 0;
    assert!(calls.put(call(1, WRITE)).is_ok());
    while now < 1000 {
        if send(&mut calls, FIRST, at(now)).is_some() {
            assert!(end(&mut calls, answer(1, refusal()), at(now)).0);
        }
        now += 1;
    }
    let behind = Call {
        until: at(1001),
        ..call(2, READ)
    };
    assert!(calls.put(behind).is_ok());
    assert_eq!(
        send(&mut calls, FIRST, at(1000)),
        Some(1),
        "whatever the pause"
    );
    assert_eq!(
        send(&mut calls, FIRST, at(1000)),
        None,
        "its answer is waited for"
    );
    assert_eq!(send(&mut calls, FIRST, at(1001)), Some(2), "and no longer");
    for number in [1, 2] {
        end(&mut calls, answer(number, Response::Done), at(1002));
    }
    nothing_is_left(&calls);
}

#[test]
fn a_refused_probe_is_tried_again_after_a_pause_that_grows_or_under_another_epoch() {
    let mut calls = Calls::default();
    assert!(calls.put(call(1, WRITE)).is_ok() && calls.put(call(2, READ)).is_ok());
    let mut now = 0;
    for pause in [2, 4, 8, 16, 32, 64, 100, 100] {
        assert_eq!(send(&mut calls, FIRST, at(now)), Some(1));
        assert_eq!(
            end(&mut calls, answer(1, refusal()), at(now)),
            (true, vec![])
        );
        assert_eq!(send(&mut calls, FIRST, at(now + pause - 1)), None);
        now += pause;
    }
    assert_eq!(send(&mut calls, FIRST, at(now)), Some(1));
    end(&mut calls, answer(1, refusal()), at(now));
    assert_eq!(send(&mut calls, SECOND, at(now)), Some(1));
    // It has waited for as long as it may.
    assert_eq!(
        end(&mut calls, answer(1, refusal()), at(1000)),
        (false, vec![(1, refusal())])
    );
    assert_eq!(send(&mut calls, SECOND, at(1100)), Some(2));
    end(&mut calls, answer(2, Response::Done), at(1100));
    nothing_is_left(&calls);
}

#[test]
fn a_write_is_not_sent_again_after_a_later_call_was_done() {
    // The later one is answered after the refusal, and before it.
    let mut calls = Calls::default();
    sent(&mut calls, &[(1, WRITE), (2, WRITE)]);
    assert!(end(&mut calls, answer(1, refusal()), at(1)).0);
    assert_eq!(
        send(&mut calls, SECOND, at(1)),
        None,
        "the later one is under way"
    );
    let (_, told) = end(&mut calls, answer(2, Response::Done), at(1));
    assert_eq!(told, [(1, refusal()), (2, Response::Done)]);
    nothing_is_left(&calls);

    for any_order in [false, true] {
        let mut calls = Calls::default();
        sent(&mut calls, &[(1, WRITE), (2, READ)]);
        end(&mut calls, answer(2, Response::Done), at(1));
        let planted = Answer {
            any_order,
            ..answer(1, refusal())
        };
        // Nothing is remembered of a region with nothing under way: the write is, so the read is remembered.
        assert_eq!(end(&mut calls, planted, at(1)).0, any_order);
    }
}

#[test]
fn what_was_refused_goes_in_order_where_all_that_came_later_was_refused_too() {
    let mut calls = Calls::default();
    sent(&mut calls, &[(1, WRITE), (2, READ), (3, WRITE)]);
    for number in [3, 1, 2] {
        assert!(end(&mut calls, answer(number, refusal()), at(1)).0);
    }
    assert!(calls.put(call(4, WRITE)).is_ok());
    for number in 1..=4 {
        assert_eq!(send(&mut calls, SECOND, at(1)), Some(number));
        end(&mut calls, answer(number, Response::Done), at(1));
    }
    nothing_is_left(&calls);
}

#[test]
fn a_lost_write_never_comes_back_and_a_lost_read_does() {
    let mut calls = Calls::default();
    sent(&mut calls, &[(1, WRITE), (2, READ), (3, WRITE), (4, WRITE)]);
    assert!(end(&mut calls, answer(3, refusal()), at(1)).0);
    let mut due = Vec::new();
    calls.link_down(OTHER, false, &mut due);
    assert!(due.is_empty());
    calls.link_down(PEER, false, &mut due);
    let told = due.into_iter().map(|(reply, told)| match told {
        Response::Failed(Failure::Unavailable { outcome, .. }) => (reply.token, outcome),
        other => panic!("{other:?}"),
    });
    let mut told: Vec<_> = told.collect();
    told.sort_unstable_by_key(|(token, _)| *token);
    // The last write may have been applied: the one before it is not sent again.
    let expected = [
        (1, Outcome::Unknown),
        (3, Outcome::NotApplied),
        (4, Outcome::Unknown),
    ];
    assert_eq!(told, expected);
    assert_eq!(send(&mut calls, SECOND, at(1)), Some(2));
    end(&mut calls, answer(2, Response::Done), at(1));
    nothing_is_left(&calls);
}

#[test]
fn reads_at_a_server_that_is_no_primary_any_more_are_read_elsewhere() {
    let mut calls = Calls::default();
    sent(&mut calls, &[(1, WRITE), (2, READ)]);
    let mut due = Vec::new();
    calls.map_changed(OTHER, |_| PEER, &mut due);
    assert!(!calls.is_queueing(0), "it is where it was");
    calls.map_changed(ME, |_| OTHER, &mut due);
    assert!(due.is_empty());
    assert_eq!(
        send(&mut calls, SECOND, at(1)),
        Some(2),
        "it need not wait for the write"
    );
    // The first server answers all the same.
    end(&mut calls, answer(1, Response::Done), at(1));
    end(&mut calls, answer(2, Response::Done), at(1));
    nothing_is_left(&calls);
}

/// What is carried out here has no number: a write that was refused elsewhere could come behind it.
#[test]
fn a_refused_write_does_not_come_back_to_who_was_the_primary_meanwhile() {
    let mut calls = Calls::default();
    sent(&mut calls, &[(1, WRITE), (2, WRITE)]);
    assert!(end(&mut calls, answer(1, refusal()), at(1)).0);
    let mut due = Vec::new();
    calls.map_changed(ME, |_| ME, &mut due);
    calls.map_changed(ME, |_| OTHER, &mut due);
    assert!(due.is_empty() && calls.kept_bytes() == 0);
    let (returned, told) = end(&mut calls, answer(2, refusal()), at(1));
    assert_eq!((returned, told), (false, vec![(2, refusal())]));
}

/// The thread that sends the read is slower than the one that carries out what waits, once this is the primary.
#[test]
fn what_is_in_hand_stays_there_when_another_call_has_been_sent() {
    let mut calls = Calls::default();
    for (number, write) in [(1, READ), (2, WRITE)] {
        assert!(calls.put(call(number, write)).is_ok());
    }
    let read = calls.take(0, FIRST, at(0)).expect("it is first");
    calls.sent(PEER, FIRST, read);
    let mut due = Vec::new();
    calls.map_changed(ME, |_| ME, &mut due);
    for number in [1, 2] {
        let taken = calls.take(0, SECOND, at(0)).expect("it is next");
        assert_eq!(taken.number, number);
        if number == 2 {
            calls.follows(0, 1);
            assert!(calls.is_queueing(0), "what comes now waits behind it");
        }
        calls.carried_out(0, number, SECOND, &mut due);
    }
    assert!(due.is_empty());
    nothing_is_left(&calls);
}

#[test]
fn what_waits_and_what_is_kept_is_bounded() {
    let mut calls = Calls::default();
    let mut number = 0;
    let large = |number| Call {
        payload: vec![0; 1 << 20].into(),
        ..call(number, WRITE)
    };
    while calls.put(large(number)).is_ok() {
        number += 1;
    }
    let most = WAITING_BYTES_MAX / 4 * 3;
    assert!(calls.waiting_bytes() <= most);
    assert!(calls.waiting_bytes() + (1 << 20) + 1000 > most);
    let mut given_up = Vec::new();
    calls.give_up(0, |_| true, &mut given_up);
    assert_eq!(given_up.len() as u64, number);
    nothing_is_left(&calls);

    // What is not kept is not sent again, and says so.
    for number in 0..6 {
        assert!(calls.begin(PEER, FIRST, large(number)).is_ok());
    }
    assert!(calls.kept_bytes() <= KEPT_BYTES_MAX);
    let returned = (0..6)
        .rev()
        .map(|number| end(&mut calls, answer(number, refusal()), at(1)).0);
    assert_eq!(returned.filter(|returned| *returned).count(), 3);
}

/// Of what may wait, and of what may be kept to be sent again, neither reads nor writes have the last quarter.
#[test]
fn a_flood_of_writes_leaves_room_for_reads_and_the_other_way_round() {
    for flood in [WRITE, READ] {
        let large = |number, write| Call {
            payload: vec![0; 900 << 10].into(),
            ..call(number, write)
        };
        let mut calls = Calls::default();
        let waiting = (1..).take_while(|number| calls.put(large(*number, flood)).is_ok());
        assert_eq!(waiting.count(), 6);
        let others = (11..).take_while(|number| calls.put(large(*number, !flood)).is_ok());
        assert_eq!(
            others.count(),
            3,
            "the last quarter, and what is left of the others"
        );
        assert!(calls.waiting_bytes() <= WAITING_BYTES_MAX);

        let mut calls = Calls::default();
        for number in 1..=6 {
            assert!(calls.begin(PEER, FIRST, large(number, flood)).is_ok());
        }
        assert!(calls.begin(PEER, FIRST, large(7, !flood)).is_ok());
        assert_eq!(calls.kept_bytes(), 4 * (900 << 10));
        // The first three of the flood, and the last, may be sent again.
        let returned = (1..=7)
            .rev()
            .filter(|number| end(&mut calls, answer(*number, refusal()), at(1)).0);
        assert_eq!(returned.collect::<Vec<_>>(), [7, 3, 2, 1]);
    }
}

#[test]
fn little_is_kept_of_a_long_refusal() {
    let mut calls = Calls::default();
    sent(&mut calls, &[(1, WRITE)]);
    let long = Response::Failed(Failure::Unavailable {
        what: "ä".repeat(1 << 20),
        outcome: Outcome::NotApplied,
    });
    assert!(end(&mut calls, answer(1, long), at(1)).0);
    assert!(calls.waiting_bytes() < 1000, "{}", calls.waiting_bytes());
}

#[test]
fn what_cannot_be_sent_keeps_its_place() {
    let mut calls = Calls::default();
    for number in [1, 2] {
        assert!(calls.put(call(number, WRITE)).is_ok());
    }
    let first = calls.take(0, FIRST, at(0)).expect("it is first");
    assert!(calls.take(0, FIRST, at(0)).is_none(), "one at a time");
    assert!(calls.is_queueing(0));
    calls.put_back(first);
    assert_eq!(send(&mut calls, FIRST, at(0)), Some(1));
    let first = calls.take_back(1).expect("it is under way");
    calls.put_back(first);
    assert_eq!(send(&mut calls, FIRST, at(0)), Some(1));
}
