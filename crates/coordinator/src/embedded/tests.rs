//! Tests of the embedded coordinator by itself: see [`super`]. What happens to a process that is
//! stopped or killed anywhere is tried in the crate's `tests/`.

use std::path::PathBuf;

use super::*;
use crate::conformance::{self, CoordinatorHarness};

/// A directory in memory, where there is such a file system.
pub(super) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// Handles to one directory, each by a symbolic link of its own, so that it can be cut off.
struct Handles {
    dir: tempfile::TempDir,
    open: Vec<Embedded>,
    transactions_max: usize,
}

impl Handles {
    fn link(&self, index: usize) -> PathBuf {
        self.dir.path().join(format!("link-{index}"))
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("coordinator")
    }
}

impl CoordinatorHarness for Handles {
    fn open(&mut self) {
        let index = self.open.len();
        std::fs::create_dir_all(self.target()).unwrap();
        std::os::unix::fs::symlink(self.target(), self.link(index)).unwrap();
        let settings = EmbeddedSettings {
            transactions_max: self.transactions_max,
            ..EmbeddedSettings::default()
        };
        let opened = Embedded::open_with(&self.link(index), index as u128, settings);
        self.open.push(opened.unwrap());
    }

    fn handle(&mut self, index: usize) -> &mut dyn Coordinator {
        &mut self.open[index]
    }

    fn cut_off(&mut self, index: usize, cut_off: bool) {
        match cut_off {
            true => std::fs::remove_file(self.link(index)).unwrap(),
            false => std::os::unix::fs::symlink(self.target(), self.link(index)).unwrap(),
        }
    }
}

fn conforms(transactions_max: usize) {
    conformance::run(&mut || {
        Box::new(Handles {
            dir: scratch(),
            open: Vec::new(),
            transactions_max,
        })
    });
}

#[test]
fn it_conforms() {
    conforms(0);
}

#[test]
fn it_conforms_with_short_generations() {
    conforms(2);
}

pub(super) fn open(dir: &Path, name: u128) -> Embedded {
    Embedded::open(dir, name).unwrap()
}

pub(super) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn what_is_set_is_read_after_reopening() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    assert_eq!(coordinator.read_now("k").unwrap(), Entry::default());
    for n in 0..3 {
        let value = format!("value {n}\nline two").into_bytes();
        let set = coordinator.set_now("k", EntryVersion(n), value);
        assert_eq!(set.unwrap().version, EntryVersion(n + 1));
    }
    drop(coordinator);
    let entry = open(dir.path(), 2).read_now("k").unwrap();
    assert_eq!(entry.version, EntryVersion(3));
    assert_eq!(entry.value, b"value 2\nline two");
}

#[test]
fn threads_that_count_together_lose_no_count() {
    let dir = scratch();
    let count = |name: u128| {
        let settings = EmbeddedSettings {
            transactions_max: 3,
            ..EmbeddedSettings::default()
        };
        let mut coordinator = Embedded::open_with(dir.path(), name, settings).unwrap();
        let mut left = 25;
        while left > 0 {
            let entry = coordinator.read_now("count").unwrap();
            let text = String::from_utf8(entry.value).unwrap();
            let next = text.parse().unwrap_or(0u64) + 1;
            let value = next.to_string().into_bytes();
            match coordinator.set_now("count", entry.version, value) {
                Ok(_) => left -= 1,
                Err(CoordinatorError::Conflict { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let count = &count;
        for name in 0..4 {
            scope.spawn(move || count(name));
        }
    });
    let entry = open(dir.path(), 9).read_now("count").unwrap();
    assert_eq!(entry.version, EntryVersion(100));
    assert_eq!(entry.value, b"100");
}

#[test]
fn bad_keys_never_reach_the_directory() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    for key in ["", "../k", "K", "a//b", "lock file"] {
        let error = coordinator.read_now(key).unwrap_err();
        assert!(matches!(error, CoordinatorError::BadKey { .. }), "{key:?}");
        assert!(coordinator.set_now(key, EntryVersion(0), vec![]).is_err());
    }
    let expected = ["format", "generation-1", "sessions"];
    assert_eq!(names(dir.path()), expected);
    assert_eq!(names(&dir.path().join("generation-1")), ["snapshot"]);
}

#[test]
fn the_directory_holds_what_the_documentation_says_and_no_more() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    let most = TRANSACTIONS_MAX as u64;
    for n in 0..3 * most {
        coordinator.set_now("k", EntryVersion(n), vec![]).unwrap();
    }
    // Whoever folds the seal of 1 makes 2, and 1 stays until 3 is there.
    assert_eq!(
        names(dir.path()),
        ["format", "generation-2", "generation-3", "sessions"]
    );
    let sealed = names(&dir.path().join("generation-2"));
    assert_eq!(sealed.len(), 1 + TRANSACTIONS_MAX + 1, "snapshot and seal");
    // Numbers go on over generations; each has its seal.
    assert!(sealed.contains(&format!("transaction-{}", 2 * (most + 1))));
}

#[test]
fn the_first_layout_is_refused() {
    let dir = scratch();
    std::fs::write(dir.path().join("lock"), "").unwrap();
    std::fs::write(
        dir.path().join("cluster.value"),
        "argosy.coordinator.v1 ...",
    )
    .unwrap();
    let error = Embedded::open(dir.path(), 1).unwrap_err();
    assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("cluster.value"), "{message}");
    assert!(message.contains("earlier version"), "{message}");
    assert_eq!(
        names(dir.path()),
        ["cluster.value", "lock"],
        "nothing is touched"
    );
}

#[test]
fn another_format_is_refused() {
    for (text, word) in [
        ("argosy.coordinator.v3\n", "another version"),
        ("argosy.coordinator.v2\n2", "another version"),
        ("something", "does not name"),
        ("", "does not name"),
    ] {
        let dir = scratch();
        drop(open(dir.path(), 1));
        std::fs::write(dir.path().join("format"), text).unwrap();
        let error = Embedded::open(dir.path(), 2).unwrap_err();
        assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_directory_that_has_lost_its_generations_is_refused() {
    let dir = scratch();
    drop(open(dir.path(), 1));
    std::fs::remove_dir_all(dir.path().join("generation-1")).unwrap();
    let error = Embedded::open(dir.path(), 2).unwrap_err();
    assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    for file in ["snapshot", "transaction-1", "transaction-2"] {
        let dir = scratch();
        let mut coordinator = open(dir.path(), 1);
        for n in 0..3 {
            coordinator
                .set_now("k", EntryVersion(n), vec![7; 9])
                .unwrap();
        }
        let path = dir.path().join("generation-1").join(file);
        let good = std::fs::read(&path).unwrap();
        for (at, with) in [(3, 0), (8, 3), (10, 9), (13, 0xff), (good.len() - 1, 0xee)] {
            let mut bad = good.clone();
            assert_ne!(bad[at], with);
            bad[at] = with;
            std::fs::write(&path, &bad).unwrap();
            let mut other = open(dir.path(), 2);
            let error = other.read_now("k").unwrap_err();
            assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(file), "{error}");
            assert!(other.set_now("k", EntryVersion(3), vec![]).is_err());
        }
        std::fs::write(&path, &good).unwrap();
        assert_eq!(
            open(dir.path(), 3).read_now("k").unwrap().version,
            EntryVersion(3)
        );
    }
}

#[test]
fn a_transaction_that_follows_another_one_is_damage() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    let first = dir.path().join("generation-1").join("transaction-1");
    coordinator
        .set_now("k", EntryVersion(0), b"one".to_vec())
        .unwrap();
    let one = std::fs::read(&first).unwrap();
    coordinator
        .set_now("k", EntryVersion(1), b"two".to_vec())
        .unwrap();
    // Whole, and with the right number.
    let mut other = crate::format::TransactionRecord::decode(&one).unwrap();
    let Effects::Changes(changes) = &mut other.effects else {
        panic!("it is no seal");
    };
    let StateChange::Put { entry, .. } = &mut changes[0] else {
        panic!("it sets a value");
    };
    entry.value = b"eno".to_vec();
    std::fs::write(&first, other.encode()).unwrap();
    let error = open(dir.path(), 2).read_now("k").unwrap_err().to_string();
    assert!(
        error.contains("transaction-2") && error.contains("another transaction"),
        "{error}"
    );
}

#[test]
fn a_state_never_goes_back() {
    let dir = scratch();
    let away = dir.path().join("old");
    let now = dir.path().join("now");
    drop(open(&now, 1));
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(&now)
        .arg(&away)
        .status();
    assert!(copied.unwrap().success());
    let mut coordinator = open(&now, 2);
    for n in 0..2 * TRANSACTIONS_MAX as u64 {
        coordinator.set_now("k", EntryVersion(n), vec![]).unwrap();
    }
    std::fs::remove_dir_all(&now).unwrap();
    std::fs::rename(&away, &now).unwrap();
    for _ in 0..3 {
        let error = coordinator.read_now("k").unwrap_err();
        assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
    }
    assert_eq!(open(&now, 3).read_now("k").unwrap(), Entry::default());
}

#[test]
fn a_poll_with_nothing_new_opens_one_file() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let dir = scratch();
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    let settings = EmbeddedSettings {
        hook: Some(Box::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        })),
        ..EmbeddedSettings::default()
    };
    let mut coordinator = Embedded::open_with(dir.path(), 1, settings).unwrap();
    let now = Instant::from_nanos(1);
    assert!(coordinator.poll(now).is_none());
    let before = count.load(Ordering::Relaxed);
    for _ in 0..10 {
        assert!(coordinator.poll(now).is_none());
    }
    assert_eq!(count.load(Ordering::Relaxed) - before, 10);
}

pub(super) const TIMEOUT: Duration = Duration::from_millis(100);

pub(super) fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A handle with a session that has been opened at time 0.
fn owner(dir: &Path) -> Embedded {
    let mut owner = open(dir, 1);
    owner.submit(Request::OpenSession { timeout: TIMEOUT });
    let opened = owner.poll(at(0));
    assert!(
        matches!(opened, Some(CoordinatorEvent::Ended { answer: Ok(_), .. })),
        "{opened:?}"
    );
    owner
}

pub(super) fn sessions(dir: &Path) -> usize {
    let mut other = open(dir, 99);
    other.read_now("k").unwrap();
    other.replica.expect("it has read").state.sessions().len()
}

#[test]
fn silence_ends_a_session_after_a_timeout_and_a_quarter() {
    let dir = scratch();
    let _owner = owner(dir.path());
    let mut watcher = open(dir.path(), 2);
    // The first look is at 10.
    for millis in 10..135 {
        watcher.poll(at(millis));
        assert_eq!(sessions(dir.path()), 1, "at {millis}");
    }
    watcher.poll(at(135));
    assert_eq!(sessions(dir.path()), 0);
}

#[test]
fn a_watcher_that_was_stopped_looks_more_than_once() {
    let dir = scratch();
    let mut owner = owner(dir.path());
    let mut watcher = open(dir.path(), 2);
    watcher.poll(at(10));
    // All were stopped, as when the machine sleeps.
    watcher.poll(at(100_000));
    watcher.poll(at(100_025));
    assert_eq!(sessions(dir.path()), 1);
    owner.poll(at(100_030));
    for millis in 100_030..100_130 {
        watcher.poll(at(millis));
    }
    assert_eq!(sessions(dir.path()), 1);
}

#[test]
fn an_owner_that_was_late_is_in_doubt_until_it_is_on_time() {
    let dir = scratch();
    let mut owner = owner(dir.path());
    let SessionState::Alive(session) = owner.session() else {
        panic!("{:?}", owner.session());
    };
    owner.poll(at(99));
    assert_eq!(owner.session(), SessionState::Alive(session));
    owner.poll(at(199));
    assert_eq!(owner.session(), SessionState::InDoubt(session));
    owner.poll(at(223));
    assert_eq!(owner.session(), SessionState::InDoubt(session));
    owner.poll(at(224));
    assert_eq!(owner.session(), SessionState::Alive(session));
}

/// A watcher that has seen enough silence ends the session in one poll. In that poll, before its
/// operation `then`, the owner beats. Whether the session has ended; whether the watcher had begun to
/// write by then; `None`: it has no such operation.
fn owner_beats_in_between(then: usize, mutants: Mutants) -> Option<[bool; 2]> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    const NEVER: usize = usize::MAX;
    let dir = scratch();
    let owner = Mutex::new(owner(dir.path()));
    let left = Arc::new(AtomicUsize::new(NEVER));
    let began = Arc::new(Mutex::new([false; 2]));
    let hook = {
        let (left, began) = (Arc::clone(&left), Arc::clone(&began));
        move |operation| {
            let now = left.load(Ordering::Relaxed);
            if now == NEVER {
                return;
            }
            let mut began = began.lock().unwrap();
            began[1] |= operation == "create" && !began[0];
            if now == 0 {
                owner.lock().unwrap().poll(at(135));
                began[0] = true;
            }
            left.store(now.checked_sub(1).unwrap_or(NEVER), Ordering::Relaxed);
        }
    };
    let settings = EmbeddedSettings {
        mutants,
        hook: Some(Box::new(hook)),
        ..EmbeddedSettings::default()
    };
    let mut watcher = Embedded::open_with(dir.path(), 2, settings).unwrap();
    for millis in 10..135 {
        watcher.poll(at(millis));
    }
    left.store(then, Ordering::Relaxed);
    watcher.poll(at(135));
    let [beaten, had_begun] = *began.lock().unwrap();
    beaten.then(|| [sessions(dir.path()) == 0, had_begun])
}

/// Sessions that ended although the watcher could still see that the owner lives.
fn ended_too_soon(mutants: Mutants) -> usize {
    let all = (0..).map_while(|then| owner_beats_in_between(then, mutants));
    let all: Vec<_> = all.collect();
    assert!(all.len() > 8, "{} operations are too few", all.len());
    let ended = all.iter().filter(|[ended, _]| *ended).count();
    assert!(ended > 0, "once it has begun to write, the watcher ends it");
    all.iter().filter(|tried| **tried == [true, false]).count()
}

#[test]
fn a_heartbeat_until_a_watcher_writes_is_seen() {
    assert_eq!(ended_too_soon(Mutants::default()), 0);
    let mut mutants = Mutants::default();
    assert!(mutants.plant("ignore_heartbeats"));
    assert!(ended_too_soon(mutants) > 0);
}

/// Once a number may be taken, whatever fails leaves the outcome unknown.
#[test]
fn what_fails_behind_the_link_leaves_the_outcome_unknown() {
    let dir = scratch();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let cut = link.clone();
    let mut linked = false;
    let hook = move |operation| {
        // The first removal behind the link is that of the temporary name.
        linked |= operation == "link";
        if linked && operation == "sync a directory" {
            std::fs::remove_file(&cut).expect("it is there once");
            linked = false;
        }
    };
    let settings = EmbeddedSettings {
        hook: Some(Box::new(hook)),
        ..EmbeddedSettings::default()
    };
    let mut coordinator = Embedded::open_with(&link, 1, settings).unwrap();
    let error = coordinator
        .set_now("k", EntryVersion(0), b"v".to_vec())
        .unwrap_err();
    assert!(matches!(error, CoordinatorError::ConnectionLost), "{error}");
    let error = coordinator.read_now("k").unwrap_err();
    assert!(matches!(error, CoordinatorError::Refused { .. }), "{error}");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    assert_eq!(coordinator.read_now("k").unwrap().value, b"v");
}

#[test]
fn what_others_have_left_is_removed() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    let path = |name: &str| dir.path().join(name);
    for name in ["first-x", "trash-7", "generation-1/next-x", "trash-first-y"] {
        std::fs::create_dir(path(name)).unwrap();
        std::fs::write(path(name).join("snapshot"), "half").unwrap();
    }
    for name in [
        "format-x",
        "generation-1/new-x",
        "sessions/1",
        "sessions/900",
    ] {
        std::fs::write(path(name), "half").unwrap();
    }
    for n in 0..3 * TRANSACTIONS_MAX as u64 {
        coordinator.set_now("k", EntryVersion(n), vec![]).unwrap();
    }
    let expected = ["format", "generation-2", "generation-3", "sessions"];
    assert_eq!(names(dir.path()), expected);
    assert_eq!(
        names(&path("sessions")),
        ["900"],
        "it may be that of a session to come"
    );
}

#[test]
fn a_generation_without_a_snapshot_is_damage() {
    let dir = scratch();
    drop(open(dir.path(), 1));
    std::fs::remove_file(dir.path().join("generation-1/snapshot")).unwrap();
    let error = open(dir.path(), 2).read_now("k").unwrap_err();
    assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
}

/// Who beats, and cannot read whether others have ended the session, does not know.
#[test]
fn an_owner_that_reads_nothing_is_in_doubt() {
    let dir = scratch();
    let mut owner = owner(dir.path());
    // Its own opening was the first transaction.
    std::fs::write(dir.path().join("generation-1/transaction-2"), "garbage").unwrap();
    for millis in 1..100 {
        owner.poll(at(millis));
        assert!(
            matches!(owner.session(), SessionState::Alive(_)),
            "at {millis}"
        );
    }
    owner.poll(at(100));
    assert!(matches!(owner.session(), SessionState::InDoubt(_)));
}

#[test]
fn a_handle_that_slept_reads_what_is_newest() {
    let dir = scratch();
    let mut sleeper = open(dir.path(), 1);
    let mut other = open(dir.path(), 2);
    let most = TRANSACTIONS_MAX as u64;
    let mut version = 0;
    // It is within the generation, in the next one, in one that was retired with its own, far behind.
    for more in [most - 1, 1, most, 3 * most] {
        for _ in 0..more {
            other.set_now("k", EntryVersion(version), vec![]).unwrap();
            version += 1;
        }
        assert_eq!(
            sleeper.read_now("k").unwrap().version,
            EntryVersion(version)
        );
        let conflict = sleeper.set_now("k", EntryVersion(0), vec![]).unwrap_err();
        let found = EntryVersion(version);
        assert!(matches!(conflict, CoordinatorError::Conflict { found: at, .. } if at == found));
    }
}

/// A handle that takes down which operations on files it makes.
pub(super) fn listed(
    dir: &Path,
    name: u128,
) -> (Embedded, impl FnMut() -> Vec<&'static str> + use<>) {
    let operations = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = std::sync::Arc::clone(&operations);
    let settings = EmbeddedSettings {
        hook: Some(Box::new(move |operation| {
            noted.lock().unwrap().push(operation)
        })),
        ..EmbeddedSettings::default()
    };
    let embedded = Embedded::open_with(dir, name, settings).unwrap();
    (embedded, move || {
        std::mem::take(&mut *operations.lock().unwrap())
    })
}

#[test]
fn what_is_answered_is_durable() {
    let dir = scratch();
    let mut writer = open(dir.path(), 1);
    let (mut reader, mut operations) = listed(dir.path(), 2);
    let synced = |operations: Vec<&str>| {
        let syncs = operations
            .iter()
            .filter(|operation| **operation == "sync a directory");
        syncs.count()
    };
    writer.set_now("k", EntryVersion(0), vec![]).unwrap();
    operations();
    reader.read_now("k").unwrap();
    assert_eq!(
        synced(operations()),
        2,
        "the generation's name, and the transaction's"
    );
    reader.read_now("k").unwrap();
    assert_eq!(synced(operations()), 0, "nothing is new");
    writer.set_now("k", EntryVersion(1), vec![]).unwrap();
    reader.set_now("k", EntryVersion(0), vec![]).unwrap_err();
    assert_eq!(
        synced(operations()),
        1,
        "the name of the transaction that it has read"
    );
    reader.set_now("k", EntryVersion(2), vec![]).unwrap();
    let expected = [
        "open",
        "create",
        "write",
        "sync",
        "link",
        "remove",
        "sync a directory",
    ];
    assert_eq!(operations(), expected);
}
