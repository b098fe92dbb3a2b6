//! Long values that are overwritten and removed give their space back, whether the store stays open or not.

use argosy_embedded::Db;

use crate::support::{Dir, Random};

const LEN: usize = 8 << 20;
const DEVICE: u64 = 256 << 20;

fn value(seed: u64) -> Vec<u8> {
    let mut value = Random::new(seed).bytes(65_537).repeat(LEN / 65_537 + 1);
    value.truncate(LEN);
    value
}

fn open(dir: &Dir) -> Db {
    let builder = Db::builder().memory(32 << 20).device_bytes(DEVICE);
    builder.open(dir).unwrap()
}

fn is(db: &Db, key: &str, seed: u64) {
    assert!(
        db.get(key).unwrap() == Some(value(seed)),
        "{key} is {seed}'s"
    );
}

/// Four times what the device holds goes through one key.
#[test]
fn a_long_value_that_is_overwritten_takes_its_space_once() {
    let dir = Dir::new("replaced");
    let db = open(&dir);
    let times = 4 * DEVICE / LEN as u64;
    for seed in 0..times {
        db.put("k", value(seed)).unwrap();
    }
    is(&db, "k", times - 1);
    db.compact().unwrap();
    let used = db.stats().device.used_bytes;
    assert!(used < DEVICE / 2, "{used} bytes for {LEN}");
}

/// The same by a program that is never open for long.
#[test]
fn what_was_overwritten_before_the_store_was_closed_goes_when_it_is_open_again() {
    let dir = Dir::new("replaced-reopened");
    let times = 2 * DEVICE / LEN as u64;
    for seed in 0..times {
        let db = open(&dir);
        db.put("k", value(seed)).unwrap();
        db.close().unwrap();
    }
    is(&open(&dir), "k", times - 1);
}

/// By each of the ways in which a value goes: for another key, and a short one, by itself and in a range.
#[test]
fn long_values_that_are_removed_make_room_for_others() {
    let dir = Dir::new("replaced-removed");
    let db = open(&dir);
    let keys = DEVICE / 2 / LEN as u64;
    for round in 0..4 {
        let key = |number: u64| format!("{round}-{number}");
        for number in 0..keys {
            db.put(key(number), value(number)).unwrap();
        }
        is(&db, &key(0), 0);
        match round {
            0 => db.delete_range(key(0)..).unwrap(),
            1 => (0..keys).for_each(|number| db.put(key(number), "short").unwrap()),
            _ => (0..keys).for_each(|number| assert!(db.delete(key(number)).unwrap())),
        }
    }
}

/// Snapshots keep what they show, and only for as long as they are there.
#[test]
fn a_snapshot_keeps_a_long_value_that_is_overwritten() {
    let dir = Dir::new("replaced-snapshot");
    let db = open(&dir);
    db.put("k", value(0)).unwrap();
    let snapshot = db.snapshot();
    let mut scan = snapshot.iter();
    let times = DEVICE / LEN as u64;
    for seed in 1..times {
        db.put("k", value(seed)).unwrap();
    }
    assert!(snapshot.get("k").unwrap() == Some(value(0)));
    assert!(scan.next().unwrap().unwrap().1 == value(0));
    drop((snapshot, scan));
    db.delete("k").unwrap();
    for seed in 0..times {
        db.put("k", value(seed)).unwrap();
    }
    is(&db, "k", times - 1);
}
