//! Tests of the embedded coordinator by itself: see [`super`]. What happens to a process that is
//! stopped or killed anywhere is tried in the crate's `tests/`.

use std::path::PathBuf;

use super::*;
use crate::conformance::{self, CoordinatorHarness};

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
            dir: tempfile::tempdir().unwrap(),
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

fn open(dir: &Path, name: u128) -> Embedded {
    Embedded::open(dir, name).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn what_is_set_is_read_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
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
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for name in 0..4 {
            let dir = dir.path();
            scope.spawn(move || {
                let settings = EmbeddedSettings {
                    transactions_max: 3,
                    ..EmbeddedSettings::default()
                };
                let mut coordinator = Embedded::open_with(dir, name, settings).unwrap();
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
            });
        }
    });
    let entry = open(dir.path(), 9).read_now("count").unwrap();
    assert_eq!(entry.value, b"100");
    assert_eq!(entry.version, EntryVersion(100));
}

#[test]
fn bad_keys_never_reach_the_directory() {
    let dir = tempfile::tempdir().unwrap();
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
    let dir = tempfile::tempdir().unwrap();
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
    let dir = tempfile::tempdir().unwrap();
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
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), 1));
        std::fs::write(dir.path().join("format"), text).unwrap();
        let error = Embedded::open(dir.path(), 2).unwrap_err();
        assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_directory_that_has_lost_its_generations_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), 1));
    std::fs::remove_dir_all(dir.path().join("generation-1")).unwrap();
    let error = Embedded::open(dir.path(), 2).unwrap_err();
    assert!(matches!(error, CoordinatorError::Damaged { .. }), "{error}");
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    for file in ["snapshot", "transaction-1", "transaction-2"] {
        let dir = tempfile::tempdir().unwrap();
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
    let dir = tempfile::tempdir().unwrap();
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
    let dir = tempfile::tempdir().unwrap();
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
    let dir = tempfile::tempdir().unwrap();
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
