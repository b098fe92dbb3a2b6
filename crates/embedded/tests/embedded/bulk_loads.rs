//! Bulk load, as a program sees it.

use argosy_embedded::{Error, Outcome};

use crate::support::{Dir, small};

fn key(n: u32) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

#[test]
fn an_empty_store_is_filled_by_writing_each_pair_once() {
    let dir = Dir::new("bulk-load");
    let db = small().open(&dir).unwrap();
    let pairs = (0..40_000).map(|n| (key(n), vec![7; 60]));
    assert_eq!(db.bulk_load(pairs).unwrap(), 40_000);
    db.compact().unwrap();
    let stats = db.stats().engine;
    assert_eq!(
        (stats.work.compactions, stats.work.flushes),
        (0, 0),
        "nothing is merged"
    );
    let bytes: u64 = stats.levels.iter().map(|level| level.bytes).sum();
    assert_eq!(
        stats.work.write_bytes, bytes,
        "each segment was written once"
    );
    drop(db);
    let db = small().open(&dir).unwrap();
    let mut found = db.iter().map(|pair| pair.unwrap());
    assert!((0..40_000).all(|n| found.next() == Some((key(n), vec![7; 60]))));
    assert_eq!(found.next(), None);
}

#[test]
fn what_was_there_before_is_shadowed_and_the_rest_stays() {
    let dir = Dir::new("bulk-load-over");
    let db = small().open(&dir).unwrap();
    for n in 0..6000 {
        db.put(key(n), "old").unwrap();
    }
    db.delete(key(3001)).unwrap();
    let snapshot = db.snapshot();
    let pairs = (1500..4500).map(|n| (key(n), b"new".to_vec()));
    db.bulk_load(pairs).unwrap();
    for compacted in [false, true] {
        for n in [0, 1499, 1500, 3001, 4499, 4500, 5999] {
            let expected = if (1500..4500).contains(&n) {
                "new"
            } else {
                "old"
            };
            let value = db.get(key(n)).unwrap();
            assert_eq!(
                value.as_deref(),
                Some(expected.as_bytes()),
                "{n} {compacted}"
            );
        }
        assert_eq!(db.iter().count(), 6000);
        db.compact().unwrap();
    }
    assert_eq!(
        snapshot.get(key(2000)).unwrap().as_deref(),
        Some(&b"old"[..])
    );
    assert_eq!(snapshot.get(key(3001)).unwrap(), None);
}

#[test]
fn what_cannot_be_bulk_loaded_leaves_nothing() {
    let dir = Dir::new("bulk-load-refused");
    let db = small().open(&dir).unwrap();
    db.flush().unwrap();
    let used = db.stats().device.used_bytes;
    let unsorted = (0..30_000).chain([5]).map(|n| (key(n), vec![1; 60]));
    let error = db.bulk_load(unsorted).unwrap_err();
    assert!(error.to_string().contains("pair 30000"), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert_eq!(db.iter().count(), 0);
    let twice = db.bulk_load([("a", "1"), ("a", "2")]).unwrap_err();
    assert!(matches!(twice, Error::BulkLoad(_)), "{twice}");
    let long = db.bulk_load([("a", vec![0; 64 << 10])]).unwrap_err();
    assert!(matches!(long, Error::BulkLoad(_)), "{long}");
    let no_key = db.bulk_load([("", "1")]).unwrap_err();
    assert!(matches!(no_key, Error::Limit(_)), "{no_key}");
    assert_eq!(db.bulk_load([("a", "1"); 0]).unwrap(), 0);
    db.flush().unwrap();
    // Of some 80 segments none is left; the manifest may have grown.
    let after = db.stats().device.used_bytes;
    assert!(after < used + (16 << 20), "{after} of {used} before");
}
