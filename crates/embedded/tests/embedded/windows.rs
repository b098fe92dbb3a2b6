//! What a killed process leaves is found again by the store that wrote it, with the settings that it was made
//! with, or its opening says what is in the way, and changes nothing.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use argosy_embedded::{Builder, Db, Durability, Error, Remedy, Settings};

use crate::support::{Dir, small};

const KEYS: u32 = 600;

fn builder() -> Builder {
    small()
        .device_bytes(512 << 20)
        .durability(Durability::Windows)
}

fn value(tag: &str, n: u32) -> String {
    format!("{tag} {n} {}", "v".repeat(40))
}

/// Writes `KEYS` keys that only windows hold.
fn fill(db: &Db, tag: &str) {
    for n in 0..KEYS {
        db.put(format!("key {n:04}"), value(tag, n)).unwrap();
    }
}

fn assert_filled(db: &Db, tag: &str) {
    let lost = (0..KEYS).filter(|n| {
        let found = db.get(format!("key {n:04}")).unwrap();
        found != Some(value(tag, *n).into_bytes())
    });
    assert_eq!(lost.count(), 0, "keys of {tag} that are lost");
}

/// Has in `to` what lies in `from` at this moment: what a kill would leave. No process is started for it: one
/// that is being started has a share in the locks of stores.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let at = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &at),
            false => copy_file(&path, &at),
        }
    }
}

/// Leaves holes where there is nothing but zeros.
fn copy_file(from: &Path, to: &Path) {
    let (mut from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
    let (mut part, zeros) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    loop {
        let len = from.read(&mut part).unwrap();
        if len == 0 {
            break;
        }
        if part[..len] != zeros[..len] {
            to.write_all_at(&part[..len], at).unwrap();
        }
        at += len as u64;
    }
    to.set_len(at).unwrap();
}

/// A directory as a store leaves it that is killed after `KEYS` writes.
fn killed(tag: &str) -> Dir {
    let (open, left) = (Dir::new("windows-open"), Dir::new("windows-left"));
    let db = builder().open(&open).unwrap();
    fill(&db, tag);
    copy(open.as_ref(), left.as_ref());
    left
}

fn refused(opened: Result<Db, Error>) -> (String, Remedy) {
    match opened {
        Ok(_) => panic!("it was opened"),
        Err(error) => (error.to_string(), error.remedy()),
    }
}

#[test]
fn other_sizes_are_refused_and_lose_nothing() {
    let dir = killed("a");
    let made = Settings::small();
    type Change = fn(&mut Settings);
    let changes: [(&str, Change); 3] = [
        ("window_slots", |s| s.layout.window_slots = 8),
        ("window_bytes", |s| s.layout.window_bytes *= 2),
        ("segment_bytes", |s| s.layout.segment_bytes *= 2),
    ];
    let others = |dir: &Dir| {
        for (name, change) in changes {
            let mut settings = made.clone();
            change(&mut settings);
            let (what, remedy) = refused(builder().engine(settings).open(dir));
            assert!(what.contains(&format!("open it with {name} = ")), "{what}");
            assert_eq!(remedy, Remedy::Correct);
        }
    };
    others(&dir);
    let db = builder().open(&dir).unwrap();
    assert_filled(&db, "a");
    db.close().unwrap();
    drop(db);
    // Closed as it should be, it is as it was made still.
    others(&dir);
    assert_filled(&builder().open(&dir).unwrap(), "a");
}

#[test]
fn two_stores_do_not_share_their_windows() {
    let (windows, one, other) = (Dir::new("shared"), Dir::new("one"), Dir::new("other"));
    let shared = builder().windows_in(windows.as_ref());
    let db = shared.open(&one).unwrap();
    fill(&db, "a");
    let (what, remedy) = refused(shared.open(&other));
    assert!(what.contains("in use by another store"), "{what}");
    assert_eq!(remedy, Remedy::Retry);
    // A kill, and the other store before the one that was killed.
    let (left, left_windows) = (Dir::new("one-left"), Dir::new("shared-left"));
    copy(one.as_ref(), left.as_ref());
    copy(windows.as_ref(), left_windows.as_ref());
    let shared = builder().windows_in(left_windows.as_ref());
    for _ in 0..2 {
        let (what, remedy) = refused(shared.open(&other));
        let at = left_windows.as_ref().display().to_string();
        assert!(
            what.contains(&at) && what.contains("of another device"),
            "{what}"
        );
        assert_eq!(remedy, Remedy::Correct);
    }
    assert_filled(&shared.open(&left).unwrap(), "a");
    assert!(builder().open(&other).is_ok(), "in windows of its own");
    // The first was never disturbed.
    fill(&db, "a");
    db.close().unwrap();
    drop(db);
    let again = builder().windows_in(windows.as_ref()).open(&one);
    assert_filled(&again.unwrap(), "a");
}

#[test]
fn the_windows_of_another_device_are_not_replayed() {
    let (dir, other) = (killed("a"), killed("b"));
    let device = |dir: &Dir| dir.as_ref().join("device");
    let aside = dir.as_ref().join("aside");
    std::fs::rename(device(&dir), &aside).unwrap();
    std::fs::rename(device(&other), device(&dir)).unwrap();
    let (what, remedy) = refused(builder().open(&dir));
    assert!(what.contains("of another device"), "{what}");
    assert_eq!(remedy, Remedy::Correct);
    // With its own device they are as good as before.
    std::fs::rename(&aside, device(&dir)).unwrap();
    assert_filled(&builder().open(&dir).unwrap(), "a");
}

/// The window in `dir` that has key `n` in it, its bytes, and where in them the key lies.
fn window_with(dir: &Dir, n: u32) -> (PathBuf, Vec<u8>, usize) {
    let key = format!("key {n:04}").into_bytes();
    let files = std::fs::read_dir(dir.as_ref().join("windows")).unwrap();
    let found = files.filter_map(|file| {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(key.len()).position(|part| part == key)?;
        Some((path, bytes, at))
    });
    found.last().expect("a window has what was written last")
}

fn found(db: &Db) -> Vec<u32> {
    let there = |n: &u32| db.get(format!("key {n:04}")).unwrap().is_some();
    (0..KEYS).filter(there).collect()
}

#[test]
fn a_damaged_window_is_told() {
    let dir = killed("a");
    let (window, mut bytes, at) = window_with(&dir, KEYS - 4);
    bytes[at] ^= 4;
    std::fs::write(&window, &bytes).unwrap();
    for _ in 0..2 {
        let (what, remedy) = refused(builder().open(&dir));
        assert!(
            what.contains("is damaged") && what.contains("accept_loss"),
            "{what}"
        );
        assert_eq!(remedy, Remedy::Repair);
    }
    // As it was, it is whole; damaged again, what lies before the damage is there, on request.
    let (left, unharmed) = (Dir::new("damaged"), Dir::new("unharmed"));
    copy(dir.as_ref(), left.as_ref());
    bytes[at] ^= 4;
    std::fs::write(&window, &bytes).unwrap();
    copy(dir.as_ref(), unharmed.as_ref());
    assert_filled(&builder().open(&unharmed).unwrap(), "a");
    let db = builder().accept_loss(true).open(&left).unwrap();
    let there = found(&db);
    assert!(!there.is_empty() && there.len() < KEYS as usize);
    let prefix = (0..).take(there.len());
    assert!(
        there.iter().copied().eq(prefix),
        "a prefix of what was written"
    );
    drop(db);
    assert_eq!(found(&builder().open(&left).unwrap()), there);
}

#[test]
fn windows_that_are_gone_are_told() {
    for all in [true, false] {
        let dir = killed("a");
        let (windows, aside) = (dir.as_ref().join("windows"), dir.as_ref().join("aside"));
        let (from, to) = match all {
            true => (windows, aside),
            false => (window_with(&dir, KEYS - 1).0, aside),
        };
        std::fs::rename(&from, &to).unwrap();
        for _ in 0..2 {
            let (what, remedy) = refused(builder().open(&dir));
            assert!(what.contains("log windows are not there"), "{what}");
            assert!(what.contains("accept_loss"), "{what}");
            assert_eq!(remedy, Remedy::Repair);
        }
        let left = Dir::new("gone");
        copy(dir.as_ref(), left.as_ref());
        let db = builder().accept_loss(true).open(&left).unwrap();
        assert!(found(&db).len() < KEYS as usize);
        db.put("k", "v").unwrap();
        drop(db);
        assert!(builder().open(&left).is_ok(), "it was closed");
        let _ = std::fs::remove_dir_all(&from);
        std::fs::rename(&to, &from).unwrap();
        assert_filled(&builder().open(&dir).unwrap(), "a");
    }
}

#[test]
fn a_store_that_was_closed_needs_no_windows_nor_after_a_restart_of_the_machine() {
    let dir = Dir::new("closed");
    let db = builder().open(&dir).unwrap();
    fill(&db, "a");
    db.close().unwrap();
    drop(db);
    std::fs::remove_dir_all(dir.as_ref().join("windows")).unwrap();
    assert_filled(&builder().open(&dir).unwrap(), "a");
    // As a restart leaves a store: what it says is of another boot.
    let dir = killed("b");
    let marker = dir.as_ref().join("unclosed");
    let text = std::fs::read_to_string(&marker).unwrap();
    let (head, rest) = text.split_once("boot ").unwrap();
    let rest = &rest[16..];
    std::fs::write(&marker, format!("{head}boot 0123456789abcdef{rest}")).unwrap();
    std::fs::remove_dir_all(dir.as_ref().join("windows")).unwrap();
    assert!(builder().open(&dir).is_ok());
}
