//! One suite for every coordinator: what the contract promises, tried with several handles.
//!
//! A coordinator's test implements [`CoordinatorHarness`] and calls [`run`]. The suite tells handles
//! the time, asserts answers, and never how long anything takes.

use std::time::Duration;

use argosy_base::Instant;

use crate::contract::{
    Coordinator, CoordinatorAnswer, CoordinatorError, CoordinatorEvent, CoordinatorOp,
    CoordinatorReply, Entry, EntryVersion, KEYS_MAX, OPS_MAX, PART_BYTES_MAX, Request, SessionId,
    SessionState, VALUE_BYTES_MAX, WATCHES_MAX,
};

/// What the suite needs from a coordinator's test.
pub trait CoordinatorHarness {
    /// Opens another handle to the same coordinator. Handles are numbered from 0.
    fn open(&mut self);

    /// Handle `index`.
    fn handle(&mut self, index: usize) -> &mut dyn Coordinator;

    /// Cuts handle `index` off, or connects it again.
    fn cut_off(&mut self, index: usize, cut_off: bool);
}

/// Steps that are enough for anything that is not waiting for time to pass.
const STEPS: usize = 100;

/// How much time passes with each step.
const STEP: Duration = Duration::from_millis(1);

/// The timeout of sessions.
const TIMEOUT: Duration = Duration::from_millis(200);

/// The handles, and the time that they are told.
struct Suite {
    world: Box<dyn CoordinatorHarness>,
    handles: usize,
    /// These are not stepped while others are waited for.
    stopped: Vec<usize>,
    now: Instant,
    hints: Vec<(usize, String)>,
}

/// Holds a coordinator to the contract. `make` makes a new one, without handles, for each case.
///
/// # Panics
/// When the coordinator breaks the contract.
pub fn run(make: &mut dyn FnMut() -> Box<dyn CoordinatorHarness>) {
    let cases: [fn(Suite); 19] = [
        values_have_versions,
        the_first_of_two_changes_wins,
        counting_together_loses_no_count,
        all_or_nothing,
        operations_see_those_before,
        children_are_one_part_longer,
        keys_and_values_have_bounds,
        the_state_has_bounds,
        ephemerals_vanish_with_their_session,
        a_session_that_beats_lives,
        a_closed_session_is_over_at_once,
        another_session_ends_the_first,
        nobody_uses_the_session_of_another,
        an_ephemeral_stays_one,
        who_was_stopped_finds_the_session_expired,
        who_was_cut_off_finds_the_session_expired,
        who_is_cut_off_is_told_nothing_old,
        watches_report_changes,
        much_is_remembered_for_long,
    ];
    for case in cases {
        let mut suite = Suite {
            world: make(),
            handles: 0,
            stopped: Vec::new(),
            now: Instant::from_nanos(1),
            hints: Vec::new(),
        };
        for _ in 0..3 {
            suite.open();
        }
        case(suite);
    }
}

impl Suite {
    fn open(&mut self) {
        self.world.open();
        self.handles += 1;
    }

    /// Lets time pass, and every handle take a step. Returns what requests have ended.
    fn step(&mut self, by: Duration) -> Vec<CoordinatorAnswer> {
        self.now = self.now + by;
        let mut ended = Vec::new();
        for index in 0..self.handles {
            if self.stopped.contains(&index) {
                continue;
            }
            match self.world.handle(index).poll(self.now) {
                Some(CoordinatorEvent::Ended { answer, .. }) => ended.push(answer),
                Some(CoordinatorEvent::MayHaveChanged { key }) => self.hints.push((index, key)),
                None => {}
            }
        }
        ended
    }

    /// Lets `span` pass in small steps.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let ended = self.step(STEP);
            assert!(ended.is_empty(), "nothing was asked: {ended:?}");
        }
    }

    fn ask(&mut self, index: usize, request: Request) -> CoordinatorAnswer {
        self.world.handle(index).submit(request);
        for _ in 0..STEPS {
            if let Some(answer) = self.step(STEP).pop() {
                return answer;
            }
        }
        panic!("a request has not ended after {STEPS} steps");
    }

    fn read(&mut self, index: usize, key: &str) -> Entry {
        let key = key.to_owned();
        let answer = self.ask(index, Request::Read { key });
        let reply = answer.expect("a read succeeds");
        reply.into_entry().expect("a read is answered by an entry")
    }

    fn set(&mut self, index: usize, key: &str, expected: u64, value: &str) -> CoordinatorAnswer {
        let expected = EntryVersion(expected);
        self.ask(
            index,
            Request::CompareAndSet {
                key: key.to_owned(),
                expected,
                value: value.into(),
            },
        )
    }

    fn children(&mut self, key: &str) -> Vec<String> {
        let key = key.to_owned();
        match self.ask(2, Request::Children { key }) {
            Ok(CoordinatorReply::Children(children)) => children,
            other => panic!("{other:?}"),
        }
    }

    fn multi(
        &mut self,
        index: usize,
        under: Option<SessionId>,
        ops: Vec<CoordinatorOp>,
    ) -> CoordinatorAnswer {
        self.ask(index, Request::Multi { ops, under })
    }

    fn open_session(&mut self, index: usize) -> SessionId {
        let timeout = TIMEOUT;
        match self.ask(index, Request::OpenSession { timeout }) {
            Ok(CoordinatorReply::Opened { session, timeout }) => {
                assert_eq!(timeout, TIMEOUT);
                session
            }
            other => panic!("{other:?}"),
        }
    }

    /// Opens a session of handle `index`, and creates an ephemeral value under `key`.
    fn appear(&mut self, index: usize, key: &str) -> SessionId {
        let session = self.open_session(index);
        let created = self.multi(index, Some(session), vec![create(key)]);
        assert_eq!(
            created.expect("nothing is there"),
            CoordinatorReply::Done(vec![EntryVersion(1)])
        );
        session
    }
}

fn check(key: &str, expected: u64) -> CoordinatorOp {
    CoordinatorOp::Check {
        key: key.to_owned(),
        expected: EntryVersion(expected),
    }
}

fn set(key: &str, expected: u64, value: &str) -> CoordinatorOp {
    CoordinatorOp::Set {
        key: key.to_owned(),
        expected: EntryVersion(expected),
        value: value.into(),
    }
}

fn create(key: &str) -> CoordinatorOp {
    CoordinatorOp::CreateEphemeral {
        key: key.to_owned(),
        value: b"here".to_vec(),
    }
}

fn delete(key: &str, expected: u64) -> CoordinatorOp {
    CoordinatorOp::Delete {
        key: key.to_owned(),
        expected: EntryVersion(expected),
    }
}

fn is_conflict(answer: &CoordinatorAnswer, with: u64) -> bool {
    matches!(answer, Err(CoordinatorError::Conflict { found, .. }) if found.0 == with)
}

fn is_expired(answer: &CoordinatorAnswer, of: SessionId) -> bool {
    matches!(answer, Err(CoordinatorError::SessionExpired { session }) if *session == of)
}

fn values_have_versions(mut suite: Suite) {
    assert_eq!(suite.read(0, "k"), Entry::default());
    for n in 0..3 {
        let value = format!("value {n}");
        let entry = suite.set(0, "k", n, &value).expect("nobody else sets it");
        let expected = Entry {
            version: EntryVersion(n + 1),
            value: value.into_bytes(),
            owner: None,
        };
        assert_eq!(entry, CoordinatorReply::Entry(expected.clone()));
        for index in 0..3 {
            assert_eq!(suite.read(index, "k"), expected);
        }
    }
    suite
        .multi(1, None, vec![delete("k", 3)])
        .expect("it is at 3");
    assert_eq!(suite.read(0, "k"), Entry::default());
    suite.set(0, "k", 0, "anew").expect("nothing is there");
    assert_eq!(suite.read(2, "k").version, EntryVersion(1));
}

fn the_first_of_two_changes_wins(mut suite: Suite) {
    let request = |value: &str| Request::CompareAndSet {
        key: "k".to_owned(),
        expected: EntryVersion(0),
        value: value.into(),
    };
    suite.world.handle(0).submit(request("zero"));
    suite.world.handle(1).submit(request("one"));
    let mut ended = Vec::new();
    for _ in 0..STEPS {
        ended.extend(suite.step(STEP));
    }
    assert_eq!(ended.len(), 2);
    let won = ended
        .iter()
        .position(Result::is_ok)
        .expect("one of them wins");
    assert!(is_conflict(&ended[1 - won], 1), "{ended:?}");
    let entry = suite.read(2, "k");
    let reply = ended.swap_remove(won).expect("it has won");
    assert_eq!(reply, CoordinatorReply::Entry(entry));
}

fn counting_together_loses_no_count(mut suite: Suite) {
    let mut counted = 0;
    let mut known = [0; 3];
    while counted < 60 {
        for (index, known) in known.iter_mut().enumerate() {
            let request = Request::CompareAndSet {
                key: "count".to_owned(),
                expected: EntryVersion(*known),
                value: vec![],
            };
            suite.world.handle(index).submit(request);
        }
        for (index, known) in known.iter_mut().enumerate() {
            suite.stopped = (0..3).filter(|other| *other != index).collect();
            let answer = (0..STEPS).find_map(|_| suite.step(STEP).pop());
            match answer.expect("it ends") {
                Ok(_) => {
                    counted += 1;
                    *known += 1;
                }
                Err(CoordinatorError::Conflict { found, .. }) => *known = found.0,
                Err(other) => panic!("{other}"),
            }
        }
    }
    suite.stopped.clear();
    assert_eq!(suite.read(0, "count").version, EntryVersion(counted));
}

fn all_or_nothing(mut suite: Suite) {
    suite.set(0, "a", 0, "a1").expect("nothing is there");
    for (ops, found) in [
        (vec![set("b", 0, "b"), check("a", 2)], 1),
        (vec![set("b", 0, "b"), set("a", 0, "a")], 1),
        (vec![set("b", 0, "b"), delete("c", 4)], 0),
        (vec![delete("a", 1), check("b", 1)], 0),
    ] {
        let failed = suite.multi(1, None, ops);
        assert!(is_conflict(&failed, found), "{failed:?}");
        assert_eq!(suite.read(2, "a").value, b"a1");
        assert_eq!(suite.read(2, "b"), Entry::default());
    }
    let ops = vec![
        check("a", 1),
        set("b", 0, "b1"),
        check("c", 0),
        delete("a", 1),
    ];
    let done = suite.multi(1, None, ops).expect("all holds");
    let versions = [1, 1, 0, 0].map(EntryVersion).to_vec();
    assert_eq!(done, CoordinatorReply::Done(versions));
    assert_eq!(suite.read(2, "a"), Entry::default());
    assert_eq!(suite.read(2, "b").value, b"b1");
    let nothing = suite.multi(0, None, vec![]).expect("nothing can fail");
    assert_eq!(nothing, CoordinatorReply::Done(vec![]));
}

fn operations_see_those_before(mut suite: Suite) {
    let ops = vec![set("k", 0, "1"), set("k", 1, "2"), check("k", 2)];
    suite
        .multi(0, None, ops)
        .expect("each follows the one before");
    assert_eq!(suite.read(1, "k").version, EntryVersion(2));
    let ops = vec![delete("k", 2), set("k", 0, "3"), check("k", 1)];
    suite
        .multi(0, None, ops)
        .expect("each follows the one before");
    assert_eq!(suite.read(1, "k").value, b"3");
}

fn children_are_one_part_longer(mut suite: Suite) {
    for key in ["m/b", "m/a", "m/c/d", "m", "m-x", "m0/a", "z"] {
        suite.set(0, key, 0, "").expect("nothing is there");
    }
    assert_eq!(suite.children("m"), ["a", "b"]);
    assert_eq!(suite.children("m/c"), ["d"]);
    assert_eq!(suite.children(""), ["m", "m-x", "z"]);
    assert!(suite.children("m/a").is_empty());
    assert!(suite.children("nothing").is_empty());
    suite
        .multi(1, None, vec![delete("m/a", 1)])
        .expect("it is there");
    assert_eq!(suite.children("m"), ["b"]);
}

fn keys_and_values_have_bounds(mut suite: Suite) {
    let long = "k".repeat(PART_BYTES_MAX);
    let longest = [long.as_str(); 3].join("/");
    let too_long = format!("{longest}/{longest}");
    let bad = [
        "", "../x", "A", "a b", "/a", "a/", "a//b", "a/.", "a\n", "é",
    ];
    let longer = format!("{long}k");
    for key in bad.into_iter().chain([longer.as_str(), too_long.as_str()]) {
        let requests = [
            Request::Read {
                key: key.to_owned(),
            },
            Request::Multi {
                ops: vec![set("good", 0, ""), set(key, 0, "")],
                under: None,
            },
        ];
        for request in requests {
            let answer = suite.ask(0, request);
            let is_bad = matches!(answer, Err(CoordinatorError::BadKey { .. }));
            assert!(is_bad, "{key:?}: {answer:?}");
        }
    }
    assert_eq!(suite.read(0, "good"), Entry::default());
    suite.set(0, &longest, 0, "v").expect("it is a key");

    let half = "v".repeat(VALUE_BYTES_MAX / 2);
    let ops = |last: &str| vec![set("a", 0, &half), set("b", 0, &half), set("c", 0, last)];
    let answer = suite.multi(0, None, ops("v"));
    assert!(matches!(answer, Err(CoordinatorError::TooLong { .. })));
    suite
        .multi(0, None, ops(""))
        .expect("it is as long as may be");
    assert_eq!(suite.read(1, "b").value.len(), half.len());
    let answer = suite.multi(0, None, vec![check("x", 0); OPS_MAX + 1]);
    assert!(matches!(answer, Err(CoordinatorError::TooMany { .. })));
    let handle = suite.world.handle(0);
    for n in 0..WATCHES_MAX {
        handle.watch(&format!("k{n}")).expect("there is room");
    }
    handle.watch("k0").expect("it is watched already");
    let watched = handle.watch("more");
    assert!(matches!(watched, Err(CoordinatorError::TooMany { .. })));
    let watched = handle.watch("../x");
    assert!(matches!(watched, Err(CoordinatorError::BadKey { .. })));
}

fn the_state_has_bounds(mut suite: Suite) {
    for from in (0..KEYS_MAX).step_by(OPS_MAX) {
        let keys = from..from + OPS_MAX;
        let ops = keys.map(|n| set(&format!("n/{n}"), 0, "")).collect();
        suite.multi(0, None, ops).expect("there is room");
    }
    let answer = suite.set(0, "more", 0, "");
    assert!(matches!(answer, Err(CoordinatorError::TooMany { .. })));
    assert_eq!(suite.children("n").len(), KEYS_MAX);
    let ops = vec![set("more", 0, ""), delete("n/0", 1)];
    suite.multi(0, None, ops).expect("it is as many as before");

    let value = "v".repeat(VALUE_BYTES_MAX - 100_000);
    for n in 1..5 {
        suite
            .set(0, &format!("n/{n}"), 1, &value)
            .expect("there is room");
    }
    let answer = suite.set(0, "n/5", 1, &value);
    assert!(matches!(answer, Err(CoordinatorError::TooMany { .. })));
    let ops = vec![set("n/5", 1, &value), set("n/1", 2, "")];
    suite.multi(0, None, ops).expect("it is as much as before");
    assert_eq!(suite.read(1, "n/5").value.len(), value.len());
}

fn ephemerals_vanish_with_their_session(mut suite: Suite) {
    let session = suite.appear(0, "m/0");
    suite.set(0, "m/stays", 0, "").expect("nothing is there");
    assert_eq!(suite.read(1, "m/0").owner, Some(session));
    assert_eq!(suite.children("m"), ["0", "stays"]);
    let again = suite.multi(1, None, vec![set("m/0", 0, "")]);
    assert!(is_conflict(&again, 1), "{again:?}");
    suite.stopped = vec![0];
    suite.pass(3 * TIMEOUT);
    assert_eq!(suite.children("m"), ["stays"]);
    assert_eq!(suite.read(1, "m/0"), Entry::default());
}

fn a_session_that_beats_lives(mut suite: Suite) {
    let session = suite.appear(0, "m/0");
    for _ in 0..10 {
        suite.pass(TIMEOUT);
        let state = suite.world.handle(0).session();
        assert_eq!(state, SessionState::Alive(session));
        assert_eq!(suite.children("m"), ["0"]);
    }
}

fn a_closed_session_is_over_at_once(mut suite: Suite) {
    let session = suite.appear(0, "m/0");
    suite
        .ask(0, Request::CloseSession { session })
        .expect("it is open");
    assert!(suite.children("m").is_empty());
    assert_eq!(suite.world.handle(0).session(), SessionState::None);
    let again = suite.ask(0, Request::CloseSession { session });
    assert!(is_expired(&again, session), "{again:?}");
}

fn another_session_ends_the_first(mut suite: Suite) {
    let first = suite.appear(0, "m/first");
    let second = suite.appear(0, "m/second");
    assert_ne!(first, second);
    assert_eq!(suite.children("m"), ["second"]);
    let answer = suite.multi(0, Some(first), vec![set("k", 0, "")]);
    assert!(is_expired(&answer, first), "{answer:?}");
    let state = suite.world.handle(0).session();
    assert_eq!(state, SessionState::Alive(second));
}

fn nobody_uses_the_session_of_another(mut suite: Suite) {
    let session = suite.appear(0, "m/0");
    let answer = suite.multi(1, Some(session), vec![create("m/1")]);
    assert!(is_expired(&answer, session), "{answer:?}");
    let answer = suite.ask(1, Request::CloseSession { session });
    assert!(is_expired(&answer, session), "{answer:?}");
    let answer = suite.multi(1, None, vec![create("m/1")]);
    assert!(matches!(answer, Err(CoordinatorError::NoSession)));
    assert_eq!(suite.children("m"), ["0"]);
}

fn an_ephemeral_stays_one(mut suite: Suite) {
    let session = suite.appear(0, "m/0");
    suite.set(1, "m/0", 1, "changed").expect("it is at 1");
    let entry = suite.read(2, "m/0");
    assert_eq!(entry.owner, Some(session));
    assert_eq!(entry.version, EntryVersion(2));
    suite.stopped = vec![0];
    suite.pass(3 * TIMEOUT);
    assert!(suite.children("m").is_empty());
}

fn who_was_stopped_finds_the_session_expired(mut suite: Suite) {
    let session = suite.appear(0, "m/0");
    let ops = vec![set("k", 0, "late")];
    let under = Some(session);
    suite.world.handle(0).submit(Request::Multi { ops, under });
    suite.stopped = vec![0];
    suite.pass(3 * TIMEOUT);
    assert!(suite.children("m").is_empty());
    suite.stopped.clear();
    let late = (0..STEPS).find_map(|_| suite.step(STEP).pop());
    let late = late.expect("it ends");
    assert!(is_expired(&late, session), "{late:?}");
    assert_eq!(suite.read(1, "k"), Entry::default());
    let state = suite.world.handle(0).session();
    assert_eq!(state, SessionState::Expired(session));
    let anew = suite.appear(0, "m/0");
    assert_ne!(anew, session);
}

fn who_was_cut_off_finds_the_session_expired(mut suite: Suite) {
    let session = suite.appear(0, "m/0");
    suite.world.cut_off(0, true);
    suite.pass(3 * TIMEOUT);
    let state = suite.world.handle(0).session();
    assert_eq!(state, SessionState::InDoubt(session));
    assert!(suite.children("m").is_empty());
    suite.world.cut_off(0, false);
    suite.pass(3 * STEP);
    let state = suite.world.handle(0).session();
    assert_eq!(state, SessionState::Expired(session));
    let late = suite.multi(0, Some(session), vec![create("m/0")]);
    assert!(is_expired(&late, session), "{late:?}");
}

fn who_is_cut_off_is_told_nothing_old(mut suite: Suite) {
    suite.set(0, "k", 0, "old").expect("nothing is there");
    suite.world.cut_off(0, true);
    suite.set(1, "k", 1, "new").expect("it is at 1");
    let key = "k".to_owned();
    suite.world.handle(0).submit(Request::Read { key });
    // It may fail or wait.
    let mut ended: Vec<_> = (0..STEPS).flat_map(|_| suite.step(STEP)).collect();
    assert!(ended.iter().all(Result::is_err), "{ended:?}");
    suite.world.cut_off(0, false);
    ended.extend((0..STEPS).flat_map(|_| suite.step(STEP)));
    assert_eq!(ended.len(), 1);
    if let Ok(late) = ended.remove(0) {
        assert_eq!(late.into_entry().expect("of a read").value, b"new");
    }
    assert_eq!(suite.read(0, "k").value, b"new");
}

fn watches_report_changes(mut suite: Suite) {
    suite.appear(1, "m/1");
    suite.pass(TIMEOUT);
    for key in ["m", "m/1", ""] {
        suite.world.handle(0).watch(key).expect("there is room");
    }
    let reported = |suite: &mut Suite, key: &str| {
        suite.pass(STEP * 20);
        let found = suite
            .hints
            .iter()
            .any(|(index, hint)| *index == 0 && hint == key);
        suite.hints.clear();
        found
    };
    suite.hints.clear();
    suite.set(2, "m/2", 0, "").expect("nothing is there");
    assert!(reported(&mut suite, "m"), "a key that begins");
    suite.set(2, "m/2", 1, "").expect("it is at 1");
    assert!(reported(&mut suite, "m"), "a key that changes");
    suite.set(2, "far", 0, "").expect("nothing is there");
    assert!(reported(&mut suite, ""), "a key anywhere");
    suite
        .multi(2, None, vec![delete("m/2", 2)])
        .expect("it is at 2");
    assert!(reported(&mut suite, "m"), "a key that ends");
    suite.stopped = vec![1];
    suite.pass(3 * TIMEOUT);
    assert!(reported(&mut suite, "m/1"), "an ephemeral that vanishes");
    assert!(suite.hints.iter().all(|(index, _)| *index == 0));
}

fn much_is_remembered_for_long(mut suite: Suite) {
    let session = suite.appear(0, "m/0");
    for n in 0..600 {
        let index = usize::from(n % 2 == 1);
        let done = suite.set(index, "k", n, &n.to_string());
        done.expect("nobody else sets it");
    }
    suite.open();
    assert_eq!(suite.read(3, "k").version, EntryVersion(600));
    assert_eq!(suite.read(3, "m/0").owner, Some(session));
    let state = suite.world.handle(0).session();
    assert_eq!(state, SessionState::Alive(session));
}
