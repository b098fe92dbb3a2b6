//! Values of over 1 MiB: what is promised of them beside what the model checks.

use std::time::Duration;

use argosy_embedded::{
    BatchError, Condition, Db, Durability, Error, Outcome, WriteBatch, WriteOptions,
};

use crate::support::{Dir, Random, small};

const LONGEST: usize = 64 << 20;

fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut value = Random::new(seed).bytes(65_537).repeat(len / 65_537 + 1);
    value.truncate(len);
    value
}

fn medium() -> argosy_embedded::Builder {
    Db::builder().memory(32 << 20).device_bytes(2 << 30)
}

#[test]
fn the_longest_value_survives_and_nothing_longer_is_taken() {
    let dir = Dir::new("longest");
    let db = medium().open(&dir).unwrap();
    let longest = value(1, LONGEST);
    db.put("k", &longest).unwrap();
    assert!(db.get("k").unwrap().as_ref() == Some(&longest));
    let error = db.put("k", vec![0; LONGEST + 1]).unwrap_err();
    let too_long = BatchError::LongValueTooLong(LONGEST as u64 + 1);
    assert!(
        matches!(&error, Error::Limit(e) if *e == too_long),
        "{error}"
    );
    assert_eq!(error.outcome(), Outcome::NotApplied);
    db.checkpoint("c").unwrap();
    db.put("k", "short").unwrap();
    db.close().unwrap();
    drop(db);
    let db = medium().open(&dir).unwrap();
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"short"[..]));
    let checkpoint = db.open_checkpoint("c").unwrap();
    assert!(checkpoint.get("k").unwrap() == Some(longest));
    assert_eq!(checkpoint.iter().count(), 1, "nobody sees parts");
}

/// What cannot be compared with is told before a part of the value is written, and to be equal to nothing in
/// particular is no condition.
#[test]
fn what_cannot_be_compared_with_is_refused_before_anything_is_written() {
    let dir = Dir::new("long-refused");
    let db = medium().open(&dir).unwrap();
    db.put("k", "").unwrap();
    let long = value(1, 3 << 20);
    let written = || {
        db.flush().unwrap();
        db.stats().device.write_bytes
    };
    let before = written();
    let refused = [
        db.compare_and_swap("k", Some(&long), Some(&long)),
        db.put_if("k", &long, Condition::Equals),
        db.put_if("k", "new", Condition::Equals),
        db.delete_if("k", Condition::Equals),
    ];
    let refused = refused.map(|result| result.unwrap_err());
    assert!(
        refused
            .iter()
            .all(|error| error.outcome() == Outcome::NotApplied)
    );
    let nothing = |error: &Error| matches!(error, Error::Limit(BatchError::NothingExpected));
    assert_eq!(refused.each_ref().map(nothing), [false, true, true, true]);
    let written = written() - before;
    assert!(written < 1 << 20, "{written} bytes were written");
    assert!(db.compare_and_swap("k", Some(""), Some("new")).unwrap());
}

#[test]
fn long_values_are_under_conditions_as_any() {
    let dir = Dir::new("long-conditions");
    let db = medium().open(&dir).unwrap();
    let [one, two] = [1, 2].map(|seed| value(seed, 3 << 20));
    assert!(!db.put_if("k", &one, Condition::Present).unwrap());
    assert!(db.put_if("k", &one, Condition::Absent).unwrap());
    assert!(!db.put_if("k", &two, Condition::Absent).unwrap());
    let (found, version) = db.get_with_version("k").unwrap();
    assert!(found == Some(one.clone()));
    assert!(db.put_if("k", &two, Condition::Version(version)).unwrap());
    assert!(!db.put_if("k", &one, Condition::Version(version)).unwrap());
    let error = db.compare_and_swap("k", Some(&two), None).unwrap_err();
    assert!(matches!(error, Error::Limit(BatchError::ValueTooLong(_))));
    assert!(
        !db.compare_and_swap("k", Some(&b"?".to_vec()), Some(&one))
            .unwrap()
    );
    // What was there before is told whole.
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"short").unwrap();
    let options = WriteOptions {
        return_previous: true,
        ..WriteOptions::default()
    };
    let written = db.write_with(&batch, &options).unwrap();
    assert!(written.previous == [Some(two)]);
    assert!(
        db.compare_and_swap("k", Some(&b"short".to_vec()), Some(&one))
            .unwrap()
    );
    assert!(db.get_many(["k", "l"]).unwrap() == [Some(one), None]);
    let hour = Duration::from_secs(3600);
    db.put_with_ttl("k", value(3, 2 << 20), hour).unwrap();
    assert!(db.get("k").unwrap() == Some(value(3, 2 << 20)));
    db.put_with_ttl("k", value(4, 2 << 20), Duration::ZERO)
        .unwrap();
    assert_eq!(db.iter().count(), 0);
}

#[test]
fn keys_of_parts_are_nobodys() {
    let dir = Dir::new("long-reserved");
    let db = small().durability(Durability::Sync).open(&dir).unwrap();
    let value = value(1, 2 << 20);
    db.put("a", &value).unwrap();
    let key = [[0xff; 8].as_slice(), b"k"].concat();
    for error in [
        db.put(&key, "").unwrap_err(),
        db.get(&key).unwrap_err(),
        db.delete(&key).unwrap_err(),
        db.bulk_load([(key.clone(), "v")]).unwrap_err(),
    ] {
        assert!(
            matches!(error, Error::Limit(BatchError::KeyReserved)),
            "{error}"
        );
    }
    db.delete_range("b"..).unwrap();
    db.delete_prefix([0xff]).unwrap();
    assert!(db.get("a").unwrap() == Some(value));
    assert_eq!(db.iter().count(), 1);
    assert_eq!(db.range(..).rev().count(), 1);
    assert_eq!(db.prefix([0xff]).count(), 0);
    let too_long = db.put([1; 4096], vec![0; 2 << 20]).unwrap_err();
    assert!(matches!(
        too_long,
        Error::Limit(BatchError::LongKeyTooLong(4096))
    ));
}
