//! Tests of what nobody's program has left in the directory, and of what the system may say or lose: see
//! [`super`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use super::tests::{TIMEOUT, at, listed, names, open, scratch, sessions};
use super::*;
use crate::format::{SnapshotRecord, TransactionRecord};
use crate::state::State;

/// Sets `k` so often that generation 1 is retired, if anything is.
fn fill_generations(coordinator: &mut Embedded) {
    for n in 0..3 * TRANSACTIONS_MAX as u64 {
        coordinator.set_now("k", EntryVersion(n), vec![]).unwrap();
    }
}

fn hooked(dir: &Path, name: u128, hook: impl FnMut(&'static str) + Send + 'static) -> Embedded {
    let settings = EmbeddedSettings {
        hook: Some(Box::new(hook)),
        ..EmbeddedSettings::default()
    };
    Embedded::open_with(dir, name, settings).unwrap()
}

/// The answer to `request`, within few polls.
fn ask(coordinator: &mut Embedded, request: Request) -> CoordinatorAnswer {
    coordinator.submit(request);
    for millis in 1..20 {
        if let Some(CoordinatorEvent::Ended { answer, .. }) = coordinator.poll(at(millis)) {
            return answer;
        }
    }
    panic!("it has no end");
}

fn set(key: &str, expected: u64) -> Request {
    Request::CompareAndSet {
        key: key.to_owned(),
        expected: EntryVersion(expected),
        value: vec![],
    }
}

#[test]
fn what_a_link_leads_to_is_not_removed() {
    let (dir, precious) = (scratch(), scratch());
    std::fs::create_dir(precious.path().join("below")).unwrap();
    std::fs::write(precious.path().join("below/file"), "").unwrap();
    let mut coordinator = open(dir.path(), 1);
    for name in ["trash-x", "first-x", "format-x", "generation-1/next-x"] {
        symlink(precious.path(), dir.path().join(name)).unwrap();
    }
    fill_generations(&mut coordinator);
    assert_eq!(names(&precious.path().join("below")), ["file"]);
    let expected = ["format", "generation-2", "generation-3", "sessions"];
    assert_eq!(names(dir.path()), expected);
}

#[test]
fn strange_names_keep_no_generation() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    for name in ["trash-x", "first-x", "generation-1/next-x"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    std::fs::create_dir(dir.path().join("format-x")).unwrap();
    for name in ["first-y", "trash-first-y"] {
        std::fs::create_dir_all(dir.path().join(name).join("below")).unwrap();
    }
    let no_text = OsStr::from_bytes(b"new-\xff");
    std::fs::write(dir.path().join("generation-1").join(no_text), "").unwrap();
    fill_generations(&mut coordinator);
    let expected = ["format", "generation-2", "generation-3", "sessions"];
    assert_eq!(names(dir.path()), expected);
}

#[test]
fn a_name_that_is_no_number_of_ours_is_no_generation() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    let strange = [
        "generation-+7",
        "generation-007",
        "generation-0",
        "generation-18446744073709551615",
    ];
    for name in strange {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    fill_generations(&mut coordinator);
    let entry = open(dir.path(), 2).read_now("k").unwrap();
    assert_eq!(entry.version, EntryVersion(3 * TRANSACTIONS_MAX as u64));
}

#[test]
fn a_session_whose_first_heartbeat_failed_is_heard_from_later() {
    let dir = scratch();
    let (heartbeats, away) = (dir.path().join("sessions"), dir.path().join("away"));
    let mut is_first = true;
    let renamed = (heartbeats.clone(), away.clone());
    let mut owner = hooked(dir.path(), 1, move |operation| {
        if operation == "open to overwrite" && std::mem::take(&mut is_first) {
            std::fs::rename(&renamed.0, &renamed.1).unwrap();
        }
    });
    owner.submit(Request::OpenSession { timeout: TIMEOUT });
    owner.poll(at(0));
    std::fs::rename(away, heartbeats).unwrap();
    let mut watcher = open(dir.path(), 2);
    for millis in 1..1000 {
        owner.poll(at(millis));
        watcher.poll(at(millis));
    }
    assert_eq!(sessions(dir.path()), 1);
    assert!(matches!(owner.session(), SessionState::Alive(_)));
}

#[test]
fn a_number_that_is_taken_by_nothing_is_damage() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    symlink("nowhere", dir.path().join("generation-1/transaction-1")).unwrap();
    let error = ask(&mut coordinator, set("k", 0)).unwrap_err();
    assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("transaction-1"), "{error}");
    let error = coordinator.set_now("k", EntryVersion(0), vec![]);
    assert!(matches!(error, Err(CoordinatorError::Damaged { .. })));
}

#[test]
fn a_transaction_that_is_missing_before_the_seal_is_damage() {
    let dir = scratch();
    let mut reader = open(dir.path(), 1);
    reader.read_now("k").unwrap();
    let mut writer = open(dir.path(), 2);
    for n in 0..=TRANSACTIONS_MAX as u64 {
        writer.set_now("k", EntryVersion(n), vec![]).unwrap();
    }
    std::fs::remove_file(dir.path().join("generation-1/transaction-1")).unwrap();
    let key = "k".to_owned();
    let error = ask(&mut reader, Request::Read { key }).unwrap_err();
    assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("transaction-1"), "{error}");
}

/// A file system may make a link, and then say that the name is taken: by this very link.
#[test]
fn an_own_transaction_is_known() {
    let dir = scratch();
    let generation = dir.path().join("generation-1");
    let mut coordinator = hooked(dir.path(), 1, move |operation| {
        if operation == "link" {
            let names = names(&generation);
            let new = names.iter().find(|name| name.starts_with("new-")).unwrap();
            std::fs::hard_link(generation.join(new), generation.join("transaction-1")).unwrap();
        }
    });
    let set = coordinator.set_now("k", EntryVersion(0), b"v".to_vec());
    assert_eq!(set.unwrap().version, EntryVersion(1));
    let entry = open(dir.path(), 2).read_now("k").unwrap();
    assert_eq!(entry.version, EntryVersion(1));
}

/// The coordinator in `dir`, whose generation 1 begins with `state` behind transaction `number`.
fn begun_with(dir: &Path, number: u64, changes: &[StateChange]) -> Embedded {
    let mut state = State::default();
    for change in changes {
        state.apply(change, &mut Vec::new()).unwrap();
    }
    let snapshot = SnapshotRecord {
        generation: 1,
        number,
        previous: 0,
        state,
    };
    let coordinator = open(dir, 1);
    std::fs::write(dir.join("generation-1/snapshot"), snapshot.encode()).unwrap();
    coordinator
}

fn begin(session: u64) -> StateChange {
    StateChange::Begin {
        session: SessionId(session),
        timeout_ms: 100,
    }
}

#[test]
fn a_snapshot_at_the_end_of_all_numbers_is_damage() {
    let dir = scratch();
    let mut coordinator = begun_with(dir.path(), u64::MAX, &[]);
    let error = ask(&mut coordinator, set("k", 0)).unwrap_err();
    assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
}

#[test]
fn a_session_that_is_named_before_its_transaction_is_damage() {
    let open_session = Request::OpenSession { timeout: TIMEOUT };
    let dir = scratch();
    let mut coordinator = begun_with(dir.path(), 4, &[begin(5)]);
    let error = ask(&mut coordinator, open_session.clone()).unwrap_err();
    assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");

    let dir = scratch();
    let mut coordinator = begun_with(dir.path(), 4, &[]);
    let early = TransactionRecord {
        number: 5,
        previous: 0,
        effects: Effects::Changes(vec![begin(6)]),
    };
    let path = dir.path().join("generation-1/transaction-5");
    std::fs::write(path, early.encode()).unwrap();
    let error = ask(&mut coordinator, open_session).unwrap_err();
    assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
}

#[test]
fn a_version_at_the_end_of_all_versions_does_not_change() {
    let dir = scratch();
    let last = StateChange::Put {
        key: "k".to_owned(),
        entry: Entry {
            version: EntryVersion(u64::MAX - 1),
            ..Entry::default()
        },
    };
    let mut coordinator = begun_with(dir.path(), 4, &[last]);
    let error = ask(&mut coordinator, set("k", u64::MAX - 1)).unwrap_err();
    assert!(matches!(error, CoordinatorError::TooMany { .. }), "{error}");
    ask(&mut coordinator, set("other", 0)).unwrap();
}

/// What is committed behind it could never be read again.
#[test]
fn nothing_is_committed_in_a_generation_without_a_snapshot() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    for n in 0..TRANSACTIONS_MAX as u64 {
        coordinator.set_now("k", EntryVersion(n), vec![]).unwrap();
    }
    std::fs::create_dir_all(dir.path().join("generation-2/strange")).unwrap();
    let answer = ask(&mut coordinator, set("k", TRANSACTIONS_MAX as u64));
    assert!(
        matches!(answer, Err(CoordinatorError::Damaged { .. })),
        "{answer:?}"
    );
    assert_eq!(names(&dir.path().join("generation-2")), ["strange"]);
}

/// Of two transactions the first one may be the one that a loss of power forgets, but for this.
#[test]
fn a_transaction_is_durable_before_the_next_one_takes_its_number() {
    let dir = scratch();
    let (mut second, mut operations) = listed(dir.path(), 2);
    second.read_now("k").unwrap();
    open(dir.path(), 1)
        .set_now("k", EntryVersion(0), vec![])
        .unwrap();
    operations();
    second.set_now("k", EntryVersion(1), vec![]).unwrap();
    let operations = operations();
    let place = |of: &str| operations.iter().position(|operation| *operation == of);
    assert!(place("sync a directory") < place("link"), "{operations:?}");
}

#[test]
fn generation_1_is_durable_before_the_directory_counts_as_begun() {
    let dir = scratch();
    drop(open(dir.path(), 1));
    std::fs::remove_file(dir.path().join("format")).unwrap();
    let (_, mut operations) = listed(dir.path(), 2);
    let operations = operations();
    let renamed = operations
        .iter()
        .position(|operation| *operation == "rename");
    let before = &operations[..renamed.expect("to `format`")];
    let made = before.iter().position(|operation| *operation == "create");
    assert!(
        before[made.unwrap()..].contains(&"sync a directory"),
        "{operations:?}"
    );
}

/// The names above the coordinator's are made by it, so it makes them durable.
#[test]
fn the_directory_itself_is_durable() {
    let dir = scratch();
    let syncs = |operations: Vec<&str>| {
        operations
            .iter()
            .filter(|of| **of == "sync a directory")
            .count()
    };
    let (_, mut there) = listed(dir.path(), 1);
    let (_, mut below) = listed(&dir.path().join("one/two"), 1);
    assert_eq!(syncs(below()) - syncs(there()), 2);
    let (_, mut begun) = listed(dir.path(), 1);
    assert_eq!(syncs(begun()), 0);
}

#[test]
fn a_directory_that_cannot_be_made_is_refused() {
    let dir = scratch();
    symlink("nowhere", dir.path().join("link")).unwrap();
    let error = Embedded::open(&dir.path().join("link"), 1).unwrap_err();
    assert!(matches!(error, CoordinatorError::Refused { .. }), "{error}");
}

/// Else one that is started again and again fills the disk that is full.
#[test]
fn who_cannot_begin_the_directory_leaves_nothing() {
    let dir = scratch();
    let (root, away) = (dir.path().join("root"), dir.path().join("away"));
    let below = root.clone();
    let hook = move |operation| {
        // The first names are made above it.
        if !below.is_dir() {
            return;
        }
        let begun = names(&below);
        let first = begun.iter().find(|name| name.starts_with("first-"));
        if let Some(first) = first.filter(|_| operation == "sync a directory") {
            std::fs::rename(below.join(first), &away).unwrap();
            symlink(first, below.join(first)).unwrap();
        }
    };
    let settings = EmbeddedSettings {
        hook: Some(Box::new(hook)),
        ..EmbeddedSettings::default()
    };
    let error = Embedded::open_with(&root, 1, settings).unwrap_err();
    assert!(matches!(error, CoordinatorError::Refused { .. }), "{error}");
    assert!(names(&root).is_empty(), "{:?}", names(&root));
}

#[test]
fn what_is_no_file_is_no_heartbeat() {
    let dir = scratch();
    let mut owner = open(dir.path(), 1);
    owner.submit(Request::OpenSession { timeout: TIMEOUT });
    owner.poll(at(0));
    let heartbeat = dir.path().join("sessions/1");
    std::fs::remove_file(&heartbeat).unwrap();
    std::fs::create_dir(&heartbeat).unwrap();
    let mut watcher = open(dir.path(), 2);
    for millis in 10..200 {
        watcher.poll(at(millis));
    }
    assert_eq!(sessions(dir.path()), 0);
}

#[test]
fn no_heartbeat_is_written_to_where_a_link_leads() {
    let dir = scratch();
    let mut owner = open(dir.path(), 1);
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    symlink(&precious, dir.path().join("sessions/1")).unwrap();
    owner.submit(Request::OpenSession { timeout: TIMEOUT });
    for millis in 0..200 {
        owner.poll(at(millis));
    }
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    assert!(matches!(owner.session(), SessionState::InDoubt(_)));
}

/// To open a pipe waits for somebody who writes into it.
#[test]
fn a_pipe_is_refused_and_holds_nobody_up() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    let pipe = dir.path().join("generation-1/transaction-1");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let (answered, answer) = std::sync::mpsc::channel();
    let ask = move || answered.send(ask(&mut coordinator, set("k", 0))).unwrap();
    std::thread::Builder::new().spawn(ask).unwrap();
    let answer = answer.recv_timeout(Duration::from_secs(10));
    let error = answer.expect("it ends").unwrap_err();
    assert!(matches!(error, CoordinatorError::Refused { .. }), "{error}");
}
