//! Single promises of the documentation.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_embedded::{
    BusyReason, Condition, Db, DbStats, Durability, Error, Expiry, Moment, Outcome, Remedy,
    Snapshot, WriteBatch, WriteOptions,
};

use crate::support::{Dir, small};

fn keys(scan: impl Iterator<Item = argosy_embedded::Result<(Vec<u8>, Vec<u8>)>>) -> Vec<Vec<u8>> {
    scan.map(|pair| pair.unwrap().0).collect()
}

#[test]
fn opening_twice_is_refused_until_everything_of_the_first_is_gone() {
    let dir = Dir::new("twice");
    let db = small().open(&dir).unwrap();
    db.put("k", "v").unwrap();
    let error = small().open(&dir).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert!(error.to_string().contains("in this process"), "{error}");
    assert_eq!(error.remedy(), Remedy::Retry);
    let snapshot: Snapshot = db.snapshot();
    db.close().unwrap();
    drop(db);
    // A snapshot reads on, and keeps the store.
    assert_eq!(snapshot.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(small().open(&dir).is_err());
    drop(snapshot);
    let db = small().open(&dir).unwrap();
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_closed_store_says_so() {
    let dir = Dir::new("closed");
    let db = small().open(&dir).unwrap();
    let clone = db.clone();
    db.close().unwrap();
    db.close().unwrap();
    let error = clone.put("k", "v").unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert!(matches!(clone.get("k"), Err(Error::Closed)));
}

#[test]
fn what_has_expired_is_gone_over_restarts() {
    let dir = Dir::new("expired");
    let db = small().open(&dir).unwrap();
    db.put_with_ttl("longest", "v", Duration::MAX).unwrap();
    db.put_with_ttl("gone", "v", Duration::ZERO).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"stays", b"v").unwrap();
    let past = Expiry::At(Moment(1));
    batch.put_until(b"past", b"v", past).unwrap();
    db.write(&batch).unwrap();
    for _ in 0..2 {
        assert_eq!(keys(db.iter()), [&b"longest"[..], b"stays"]);
    }
    db.close().unwrap();
    drop(db);
    let db = small().open(&dir).unwrap();
    assert_eq!(db.get("gone").unwrap(), None);
    db.put_with_ttl("stays", "v", Duration::ZERO).unwrap();
    db.put("gone", "here again").unwrap();
    db.compact().unwrap();
    assert_eq!(keys(db.iter()), [&b"gone"[..], b"longest"]);
}

#[test]
fn a_store_is_made_only_where_it_may_be() {
    let dir = Dir::new("absent");
    assert!(small().create(false).open(&dir).is_err());
    std::fs::create_dir_all(&dir).unwrap();
    assert!(small().create(false).open(&dir).is_err());
    drop(small().open(&dir).unwrap());
    assert!(small().create(false).open(&dir).is_ok());
}

#[test]
fn settings_that_cannot_work_are_refused_with_what_would() {
    let dir = Dir::new("settings");
    let error = Db::builder().memory(1 << 20).open(&dir).unwrap_err();
    assert!(error.to_string().contains("set `memory` to"), "{error}");
    let other = Dir::new("small-device");
    let builder = Db::builder()
        .memory(256 << 20)
        .device_bytes(16 << 20)
        .l0_bytes(16 << 20);
    let error = builder.open(&other).unwrap_err();
    assert!(error.to_string().contains("`device_bytes`"), "{error}");
    assert_eq!(error.remedy(), Remedy::Correct);
    // And that works, in the same directory.
    let advice = error.to_string();
    let bytes = advice.split("`device_bytes` to ").nth(1).unwrap();
    let bytes = bytes.split(' ').next().unwrap().parse().unwrap();
    drop(builder.device_bytes(bytes).open(&other).unwrap());
    // What is there already cannot be made larger.
    let error = Db::builder()
        .l0_bytes(64 << 20)
        .memory(1 << 30)
        .open(&other);
    let error = error.unwrap_err().to_string();
    assert!(
        !error.contains("`device_bytes`") && error.contains("`l0_bytes`"),
        "{error}"
    );
    let error = Db::builder().l0_bytes(usize::MAX).open(&other).unwrap_err();
    assert_eq!(error.remedy(), Remedy::Correct);
}

#[test]
fn conditions_decide() {
    let dir = Dir::new("conditions");
    let db = small().open(&dir).unwrap();
    assert!(!db.put_if("k", "1", Condition::Present).unwrap());
    assert!(db.put_if("k", "1", Condition::Absent).unwrap());
    assert!(!db.put_if("k", "2", Condition::Absent).unwrap());
    assert!(db.put_if("k", "3", Condition::Present).unwrap());
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"3"[..]));
    assert!(db.delete("k").unwrap());
    assert!(!db.delete("k").unwrap());
    assert!(!db.delete_if("k", Condition::Present).unwrap());
    assert!(!db.contains_key("k").unwrap());
}

#[test]
fn a_batch_is_applied_as_a_whole() {
    let dir = Dir::new("batch");
    let db = small().open(&dir).unwrap();
    db.put("b", "old").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"new").unwrap();
    batch.put(b"b", b"new").unwrap();
    let absent = WriteOptions {
        condition: Condition::Absent,
        return_previous: true,
        ..WriteOptions::default()
    };
    let written = db.write_with(&batch, &absent).unwrap();
    assert!(!written.applied);
    assert_eq!(written.previous, [None, Some(b"old".to_vec())]);
    assert_eq!(db.get("a").unwrap(), None);
    db.write(&batch).unwrap();
    assert_eq!(keys(db.iter()), [b"a", b"b"]);
}

#[test]
fn ranges_have_the_bounds_that_they_say() {
    let dir = Dir::new("ranges");
    let db = small().open(&dir).unwrap();
    for key in ["a", "b", "b\0", "c", "p", "p1", "p\u{7f}", "q"] {
        db.put(key, "").unwrap();
    }
    assert_eq!(keys(db.range("b".."c")), [&b"b"[..], b"b\0"]);
    assert_eq!(keys(db.range("b"..="c")), [&b"b"[..], b"b\0", b"c"]);
    assert_eq!(keys(db.range(.."b")), [b"a"]);
    assert_eq!(keys(db.range("q"..)), [b"q"]);
    assert_eq!(keys(db.range("c".."b")), [b""; 0]);
    assert_eq!(keys(db.prefix("p")), [&b"p"[..], b"p1", b"p\x7f"]);
    assert_eq!(keys(db.prefix("p").rev()), [&b"p\x7f"[..], b"p1", b"p"]);
    assert_eq!(keys(db.prefix("")).len(), 8);
    assert_eq!(keys(db.range((Excluded("p1"), Unbounded))).len(), 2);
}

#[test]
fn both_ends_of_a_scan_meet_without_giving_a_pair_twice() {
    let dir = Dir::new("ends");
    let db = small().open(&dir).unwrap();
    for n in 0..9_u8 {
        db.put([n], [n]).unwrap();
    }
    for first in 0..=9 {
        let mut scan = db.iter();
        let mut found: Vec<_> = (0..first)
            .map(|_| scan.next().unwrap().unwrap().0)
            .collect();
        let mut back = keys(scan.by_ref().rev());
        back.reverse();
        found.extend(back);
        assert_eq!(found, (0..9_u8).map(|n| vec![n]).collect::<Vec<_>>());
        assert!(scan.next().is_none() && scan.next_back().is_none());
    }
}

#[test]
fn a_full_store_says_so_and_deletes_make_room() {
    let dir = Dir::new("full");
    let db = Db::builder()
        .memory(24 << 20)
        .l0_bytes(64 << 10)
        .device_bytes(96 << 20)
        .patience(Duration::from_secs(60))
        .open(&dir)
        .unwrap();
    let value = vec![7; 64 << 10];
    let at_once = WriteOptions {
        patience: Some(Duration::ZERO),
        ..WriteOptions::default()
    };
    let mut batch = WriteBatch::new();
    let mut count = 0_u32;
    let error = loop {
        batch.clear();
        batch.put(count.to_le_bytes(), &value).unwrap();
        match db.write_with(&batch, &at_once) {
            Ok(_) => count += 1,
            Err(Error::Busy { reason, .. }) if reason != BusyReason::DeviceFull => {
                db.flush().unwrap();
            }
            Err(error) => break error,
        }
        assert!(count < 2000, "a device of 96 MiB is full some time");
    };
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert!(db.stats().full);
    for n in 0..count {
        assert!(db.delete(n.to_le_bytes()).unwrap());
    }
    db.put("k", &value).unwrap();
}

#[test]
fn compacting_leaves_one_level_and_what_lives() {
    let dir = Dir::new("compact");
    let db = small().open(&dir).unwrap();
    db.compact().unwrap();
    for round in 0..4_u8 {
        for n in 0..2000_u32 {
            db.put(n.to_le_bytes(), [round; 40]).unwrap();
        }
    }
    for n in 500..2000_u32 {
        db.delete(n.to_le_bytes()).unwrap();
    }
    db.compact().unwrap();
    let stats = db.stats().engine;
    let holding = stats.levels.iter().filter(|level| level.segments > 0);
    assert_eq!(holding.count(), 1, "{:?}", stats.levels);
    let entries: u64 = stats.levels.iter().map(|level| level.entries).sum();
    assert_eq!(entries, 500);
    assert_eq!(stats.memtables.entries, 0);
    assert_eq!(db.iter().count(), 500);
}

#[test]
fn what_is_durable_is_told() {
    let dir = Dir::new("durable");
    let db = small().durability(Durability::Windows).open(&dir).unwrap();
    db.flush().unwrap();
    db.put("k", "v").unwrap();
    assert!(!db.stats().durable);
    db.flush().unwrap();
    assert!(db.stats().durable);
    let syncs = db.stats().device.syncs;
    assert!(syncs > 0);
    drop(db);
    let db = small().durability(Durability::Sync).open(&dir).unwrap();
    db.put("k", "w").unwrap();
    assert!(db.stats().durable);
}

#[test]
fn nothing_is_left_to_do_after_a_drain() {
    let dir = Dir::new("drain");
    let db = small().durability(Durability::Windows).open(&dir).unwrap();
    db.drain().unwrap();
    for n in 0..20_000_u32 {
        db.put(n.to_le_bytes(), [7; 100]).unwrap();
    }
    db.drain().unwrap();
    let stats = db.stats();
    assert!(stats.durable && stats.engine.work.flushes > 0, "{stats:?}");
    let work = |stats: &DbStats| [stats.engine.work.flushes, stats.engine.work.compactions];
    let before = work(&stats);
    for n in 0..20_000_u32 {
        assert_eq!(
            db.get(n.to_le_bytes()).unwrap().as_deref(),
            Some(&[7; 100][..])
        );
    }
    db.drain().unwrap();
    assert_eq!(work(&db.stats()), before);
}

/// What is resident beyond the budget the cache makes up for, where a store is told.
#[test]
fn the_cache_gives_way_to_what_is_resident() {
    let dir = Dir::new("resident");
    // What the store is told, and how often since that is much.
    let told = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let teller = Arc::clone(&told);
    let db = small()
        .memory(8 << 20)
        .measured_by(move || {
            let resident = teller.0.load(Ordering::Relaxed);
            teller.1.fetch_add(resident.min(1), Ordering::Relaxed);
            resident
        })
        .open(&dir)
        .unwrap();
    let key = |number: u32| number.to_le_bytes();
    for number in 0..20_000 {
        db.put(key(number), [1; 200]).unwrap();
    }
    db.compact().unwrap();
    for number in 0..20_000 {
        db.get(key(number)).unwrap();
    }
    let full = db.stats().memory.cache;
    assert!(full > 2 << 20, "{full} bytes");
    told.0.store(1 << 30, Ordering::Relaxed);
    for _ in 0..20_000_000 {
        if told.1.load(Ordering::Relaxed) > 1 {
            break;
        }
        db.put(key(0), [2; 8]).unwrap();
    }
    let left = db.stats().memory.cache;
    assert!(left < full / 4, "{left} of {full} bytes");
    assert_eq!(db.get(key(7)).unwrap().as_deref(), Some(&[1; 200][..]));
}
