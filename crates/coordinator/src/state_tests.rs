//! Tests of what is wrong with changes: see [`super`]. What requests do is in [`crate::conformance`].

use super::*;

fn put(key: &str, version: u64, owner: Option<u64>, value: Vec<u8>) -> StateChange {
    StateChange::Put {
        key: key.to_owned(),
        entry: Entry {
            version: EntryVersion(version),
            value,
            owner: owner.map(SessionId),
        },
    }
}

fn begin(session: u64, timeout_ms: u32) -> StateChange {
    StateChange::Begin {
        session: SessionId(session),
        timeout_ms,
    }
}

fn apply(state: &mut State, change: &StateChange) -> Result<Vec<String>, &'static str> {
    let mut touched = Vec::new();
    state.apply(change, &mut touched)?;
    Ok(touched)
}

#[test]
fn changes_name_the_keys_that_they_concern() {
    let mut state = State::default();
    assert_eq!(apply(&mut state, &begin(1, 1000)), Ok(vec![]));
    for key in ["b", "a"] {
        let change = put(key, 1, Some(1), vec![]);
        assert_eq!(apply(&mut state, &change), Ok(vec![key.to_owned()]));
    }
    apply(&mut state, &put("c", 1, None, vec![])).unwrap();
    let end = StateChange::End {
        session: SessionId(1),
    };
    let removed = apply(&mut state, &end).unwrap();
    assert_eq!(removed, ["a", "b"]);
    let remove = StateChange::Remove { key: "c".into() };
    assert_eq!(apply(&mut state, &remove).unwrap(), ["c"]);
    assert_eq!(state, State::default(), "no byte is left over");
}

#[test]
fn impossible_changes_are_refused_and_change_nothing() {
    let mut state = State::default();
    apply(&mut state, &begin(1, 1000)).unwrap();
    let value = vec![0; STATE_BYTES_MAX - 1];
    apply(&mut state, &put("k", 1, None, value)).unwrap();
    let session = SessionId(2);
    let before = state.clone();
    for change in [
        put("K", 1, None, vec![]),
        put("a", 0, None, vec![]),
        put("a", u64::MAX, None, vec![]),
        put("a", 1, Some(2), vec![]),
        put("a", 1, None, vec![]),
        put("k", 2, None, vec![0; STATE_BYTES_MAX]),
        begin(1, 1000),
        begin(2, 1),
        begin(2, u32::MAX),
        StateChange::End { session },
        StateChange::Remove { key: "a".into() },
    ] {
        assert!(apply(&mut state, &change).is_err(), "{change:?}");
        assert!(state == before, "{change:?}");
    }
}

#[test]
fn sessions_are_bounded() {
    let mut state = State::default();
    for session in 1..=SESSIONS_MAX as u64 {
        apply(&mut state, &begin(session, 1000)).unwrap();
    }
    assert!(apply(&mut state, &begin(0, 1000)).is_err());
    let timeout = Duration::from_secs(1);
    let mut asker = Asker {
        session: None,
        next_session: SessionId(1000),
    };
    let full = state.evaluate(&Request::OpenSession { timeout }, asker);
    assert!(matches!(full, Err(CoordinatorError::TooMany { .. })));
    // One that takes the place of another.
    asker.session = Some(SessionId(7));
    let decision = state.evaluate(&Request::OpenSession { timeout }, asker);
    for change in decision.unwrap().changes {
        apply(&mut state, &change).unwrap();
    }
    assert!(state.has_session(SessionId(1000)) && !state.has_session(SessionId(7)));
}

#[test]
fn timeouts_are_brought_within_their_bounds() {
    let asker = Asker {
        session: None,
        next_session: SessionId(1),
    };
    for (asked, got) in [
        (Duration::ZERO, SESSION_TIMEOUT_MIN),
        (Duration::MAX, SESSION_TIMEOUT_MAX),
    ] {
        let request = Request::OpenSession { timeout: asked };
        let decision = State::default().evaluate(&request, asker).unwrap();
        let session = SessionId(1);
        let expected = CoordinatorReply::Opened {
            session,
            timeout: got,
        };
        assert_eq!(decision.reply, expected);
        apply(&mut State::default(), &decision.changes[0]).unwrap();
    }
}

/// What a multi decides fits behind each of its changes, also where it only fits as a whole.
#[test]
fn a_decision_can_be_applied_change_by_change() {
    let mut state = State::default();
    apply(
        &mut state,
        &put("b", 1, None, vec![0; STATE_BYTES_MAX - 100]),
    )
    .unwrap();
    apply(&mut state, &put("c", 1, None, vec![0; 90])).unwrap();
    let set = |key: &str, expected, len| CoordinatorOp::Set {
        key: key.to_owned(),
        expected: EntryVersion(expected),
        value: vec![0; len],
    };
    let delete = CoordinatorOp::Delete {
        key: "c".to_owned(),
        expected: EntryVersion(1),
    };
    let ops = vec![set("a", 0, 1000), set("b", 1, 5), delete];
    let asker = Asker {
        session: None,
        next_session: SessionId(1),
    };
    let request = Request::Multi { ops, under: None };
    for change in state.evaluate(&request, asker).unwrap().changes {
        apply(&mut state, &change).unwrap();
    }
    assert_eq!(state.bytes, 1 + 1000 + 1 + 5);
}
