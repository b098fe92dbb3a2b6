//! What one engine does while it runs: operations, conditions, batches, scans, snapshots, limits.
//!
//! Each case is a function over a fresh host; [`run`] calls them in the order in which a failure
//! is easiest to understand.

use argosy_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::range::successor;
use argosy_base::{Direction, KeyRange, Lsn, Outcome, Remedy};

use super::{Host, batch, collect, delete, drain, get, key_of, put, scan, settle, value_of, write};
use crate::{
    BatchError, Condition, EngineError, Expiry, Op, Snapshot, Store, WriteBatch, WriteOptions,
};

/// Runs the cases of this module.
pub(super) fn run<H: Host>(make: &mut impl FnMut() -> H) {
    empty(&mut make());
    operations(&mut make());
    conditions(&mut make());
    batches(&mut make());
    scans(&mut make());
    deleted_stays_deleted(&mut make());
    snapshots(&mut make());
    limits(&mut make());
}

fn empty<H: Host>(host: &mut H) {
    let engine = host.open();
    let found = engine.get(b"k").expect("an empty engine can be read");
    assert_eq!((found.value, found.wait.lsn()), (None, Lsn(0)));
    assert_eq!(engine.last_lsn(), Lsn(0));
    assert!(collect(engine.snapshot().as_ref(), &KeyRange::all()).is_empty());
    settle(host, &engine);
    let nothing = engine
        .write(&WriteBatch::new(), WriteOptions::default())
        .expect("an empty batch is a write of nothing");
    assert!(nothing.applied);
    assert_eq!(engine.last_lsn(), Lsn(0), "nothing was written");
}

fn operations<H: Host>(host: &mut H) {
    let engine = host.open();
    let first = put(host, &engine, b"a", b"1");
    assert!(
        first.applied && first.wait.lsn() == Lsn(1),
        "the first LSN is 1"
    );
    assert_eq!(
        engine.committed_lsn(),
        Lsn(1),
        "alone, what is appended is committed"
    );
    put(host, &engine, b"b", b"");
    let found = engine.get(b"a").expect("a get");
    assert_eq!(found.value.as_deref(), Some(&b"1"[..]));
    assert!(
        found.wait.lsn() >= Lsn(1),
        "an answer waits for what it reveals"
    );
    assert_eq!(
        get(&engine, b"b"),
        Some(vec![]),
        "an empty value is a value"
    );
    assert_eq!(get(&engine, b"aa"), None);
    let second = put(host, &engine, b"a", b"2");
    assert!(second.wait.lsn() > first.wait.lsn());
    assert_eq!(get(&engine, b"a").as_deref(), Some(&b"2"[..]));
    delete(host, &engine, b"a");
    assert_eq!(get(&engine, b"a"), None);
    put(host, &engine, b"a", b"3");
    for len in [99, 100, 999, 1000, 5000, 100_000, VALUE_BYTES_MAX] {
        let key = format!("long{len}");
        let value = value_of(len as u64, len);
        put(host, &engine, key.as_bytes(), &value);
        assert!(get(&engine, key.as_bytes()) == Some(value), "{len} bytes");
    }
    settle(host, &engine);
    assert_eq!(get(&engine, b"a").as_deref(), Some(&b"3"[..]));
    for len in [99, 100, 999, 1000, 5000, 100_000, VALUE_BYTES_MAX] {
        let value = value_of(len as u64, len);
        let got = get(&engine, format!("long{len}").as_bytes());
        assert!(
            got == Some(value),
            "{len} bytes after the background has settled"
        );
    }
}

fn conditions<H: Host>(host: &mut H) {
    let engine = host.open();
    let with = |condition| WriteOptions {
        condition,
        return_previous: true,
    };
    let one = batch(&[Op::Put {
        key: b"k",
        value: b"1",
        expiry: Expiry::Never,
    }]);
    let two = batch(&[Op::Put {
        key: b"k",
        value: b"2",
        expiry: Expiry::Never,
    }]);

    let refused = write(host, &engine, &one, with(Condition::Present));
    assert!(!refused.applied, "nothing is there to be present");
    assert_eq!(
        engine.last_lsn(),
        Lsn(0),
        "a failed condition appends nothing"
    );
    let taken = write(host, &engine, &one, with(Condition::Absent));
    assert!(taken.applied);
    assert_eq!((taken.previous, taken.existed), (vec![None], vec![false]));

    let refused = write(host, &engine, &two, with(Condition::Absent));
    assert!(!refused.applied);
    assert_eq!(refused.previous, [Some(b"1".to_vec())]);
    assert_eq!(
        refused.wait.lsn(),
        taken.wait.lsn(),
        "the answer reveals the write it failed on"
    );
    assert_eq!(get(&engine, b"k").as_deref(), Some(&b"1"[..]));
    let taken = write(host, &engine, &two, with(Condition::Present));
    assert!(taken.applied);
    assert_eq!(
        (taken.previous, taken.existed),
        (vec![Some(b"1".to_vec())], vec![true])
    );

    // The same with the pair below the memtable.
    settle(host, &engine);
    let refused = write(host, &engine, &one, with(Condition::Absent));
    assert!(!refused.applied);
    let both = batch(&[
        Op::Put {
            key: b"k",
            value: b"3",
            expiry: Expiry::Never,
        },
        Op::Put {
            key: b"new",
            value: b"3",
            expiry: Expiry::Never,
        },
    ]);
    let refused = write(host, &engine, &both, with(Condition::Absent));
    assert!(!refused.applied, "a condition must hold of every key");
    assert_eq!(get(&engine, b"new"), None);

    // A delete tells whether there was anything.
    let gone = delete(host, &engine, b"k");
    assert_eq!((gone.applied, gone.existed), (true, vec![true]));
    let gone = delete(host, &engine, b"k");
    assert_eq!((gone.applied, gone.existed), (true, vec![false]));
    assert!(
        write(host, &engine, &one, with(Condition::Absent)).applied,
        "deleted is absent"
    );
}

fn batches<H: Host>(host: &mut H) {
    let engine = host.open();
    let before = engine.last_lsn();
    let large = value_of(7, 3000);
    let written = write(
        host,
        &engine,
        &batch(&[
            Op::Put {
                key: b"a",
                value: b"1",
                expiry: Expiry::Never,
            },
            Op::Put {
                key: b"b",
                value: &large,
                expiry: Expiry::Never,
            },
            Op::Delete { key: b"a" },
            Op::Put {
                key: b"c",
                value: b"3",
                expiry: Expiry::Never,
            },
            Op::Put {
                key: b"c",
                value: b"4",
                expiry: Expiry::Never,
            },
        ]),
        WriteOptions::default(),
    );
    assert_eq!(
        written.wait.lsn(),
        engine.last_lsn(),
        "a batch is known by its last LSN"
    );
    assert!(
        written.wait.lsn().get() >= before.get() + 5,
        "every operation has an LSN of its own"
    );
    assert_eq!(get(&engine, b"a"), None, "later operations of a batch win");
    assert!(get(&engine, b"b") == Some(large));
    assert_eq!(get(&engine, b"c").as_deref(), Some(&b"4"[..]));

    let written = write(
        host,
        &engine,
        &batch(&[
            Op::Delete { key: b"c" },
            Op::Put {
                key: b"c",
                value: b"5",
                expiry: Expiry::Never,
            },
            Op::Delete { key: b"none" },
        ]),
        WriteOptions {
            return_previous: true,
            ..WriteOptions::default()
        },
    );
    assert_eq!(
        written.existed,
        [true, false, false],
        "operations see those before them"
    );
    assert_eq!(written.previous, [Some(b"4".to_vec()), None, None]);
}

fn scans<H: Host>(host: &mut H) {
    let engine = host.open();
    for settled in [false, true] {
        for number in (0..300u32).rev() {
            let key = format!("key{number:04}");
            put(host, &engine, key.as_bytes(), &value_of(number.into(), 40));
        }
        for number in (0..300u32).filter(|n| n % 3 == 1) {
            delete(host, &engine, format!("key{number:04}").as_bytes());
        }
        if settled {
            settle(host, &engine);
        }
        let expected: Vec<_> = (0..300u32)
            .filter(|n| n % 3 != 1)
            .map(|n| (format!("key{n:04}").into_bytes(), value_of(n.into(), 40)))
            .collect();
        let snapshot = engine.snapshot();
        let all = collect(snapshot.as_ref(), &KeyRange::all());
        assert!(all == expected, "a scan sees what is bound, in order");
        let some = collect(
            snapshot.as_ref(),
            &KeyRange::new("key0100", Some(b"key0200".to_vec())),
        );
        let part: Vec<_> = expected
            .iter()
            .filter(|(key, _)| (&b"key0100"[..]..b"key0200").contains(&key.as_slice()))
            .cloned()
            .collect();
        assert!(some == part, "a range includes its start and not its end");
        for nothing in [
            KeyRange::new("key0001", Some(b"key0002".to_vec())),
            KeyRange::new("key02", Some(b"key02".to_vec())),
            KeyRange::new("key03", Some(b"key02".to_vec())),
            KeyRange::new("kez", None),
        ] {
            assert!(collect(snapshot.as_ref(), &nothing).is_empty(), "{nothing}");
        }
        pages_of(snapshot.as_ref(), &expected);
    }
}

/// Reads everything in pages of either direction by turns, each of them a scan of what is left.
fn pages_of(snapshot: &dyn Snapshot, expected: &[(Vec<u8>, Vec<u8>)]) {
    let mut left = expected;
    let mut rest = KeyRange::all();
    for direction in [Direction::Down, Direction::Up].into_iter().cycle() {
        let mut page = scan(snapshot, &rest, direction);
        for _ in 0..7 {
            let pair = page.next().expect("a pair");
            let end = match direction {
                Direction::Up => left.split_first(),
                Direction::Down => left.split_last(),
            };
            assert_eq!(pair.as_ref(), end.map(|(pair, _)| pair), "in {rest}");
            let (Some((key, _)), Some((_, others))) = (pair, end) else {
                return;
            };
            left = others;
            let next = match direction {
                Direction::Up => successor(&key),
                Direction::Down => key,
            };
            rest.go_on_at(direction, next);
        }
    }
}

fn deleted_stays_deleted<H: Host>(host: &mut H) {
    let engine = host.open();
    for round in 0..4u64 {
        for number in 0..200u64 {
            let key = key_of(number);
            put(host, &engine, &key, &value_of(round * 1000 + number, 60));
        }
        settle(host, &engine);
        for number in 0..200u64 {
            delete(host, &engine, &key_of(number));
        }
        settle(host, &engine);
        for number in 0..200u64 {
            assert_eq!(get(&engine, &key_of(number)), None, "round {round}");
        }
        assert!(collect(engine.snapshot().as_ref(), &KeyRange::all()).is_empty());
    }
}

fn snapshots<H: Host>(host: &mut H) {
    let engine = host.open();
    for number in 0..100u64 {
        put(host, &engine, &key_of(number), &value_of(number, 50));
    }
    put(host, &engine, &[9; 9], &value_of(1, 4000));
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.lsn(), engine.committed_lsn());
    let seen = collect(snapshot.as_ref(), &KeyRange::all());
    assert_eq!(seen.len(), 101);
    let mut open_up = scan(snapshot.as_ref(), &KeyRange::all(), Direction::Up);
    let begun = open_up.next().expect("the first pair");
    assert_eq!(begun.as_ref(), seen.first());
    let mut open_down = scan(snapshot.as_ref(), &KeyRange::all(), Direction::Down);
    let begun = open_down.next().expect("the last pair");
    assert_eq!(begun.as_ref(), seen.last());

    // Overwrite everything often enough that the old pairs leave the memtable and the levels.
    for round in 1..20u64 {
        for number in 0..100u64 {
            if number % 10 == round % 10 {
                delete(host, &engine, &key_of(number));
            } else {
                let value = value_of(round * 1000 + number, 50);
                put(host, &engine, &key_of(number), &value);
            }
        }
        put(host, &engine, &[9; 9], &value_of(round, 3000));
        put(host, &engine, &[8; 9], &value_of(round, 30));
        if round % 5 == 0 {
            settle(host, &engine);
        }
        assert!(
            collect(snapshot.as_ref(), &KeyRange::all()) == seen,
            "a snapshot never changes (round {round})"
        );
        for (key, value) in &seen {
            assert!(snapshot.get(key).expect("a get").as_ref() == Some(value));
        }
        assert_eq!(snapshot.get(&[8; 9]).expect("a get"), None, "written later");
    }
    let rest = drain(open_up.as_mut());
    assert!(
        rest == seen[1..],
        "a scan goes on seeing what it began with"
    );
    let mut rest = drain(open_down.as_mut());
    rest.reverse();
    assert!(rest == seen[..100], "and so does one on its way down");
    drop((open_up, open_down, snapshot));
    settle(host, &engine);
    assert_eq!(get(&engine, &[8; 9]), Some(value_of(19, 30)));
}

fn limits<H: Host>(host: &mut H) {
    let engine = host.open();
    for key in [vec![], vec![1; KEY_BYTES_MAX + 1]] {
        let error = engine.get(&key).expect_err("a key over the limits");
        assert!(matches!(
            error,
            EngineError::Limit(BatchError::KeyEmpty | BatchError::KeyTooLong(_))
        ));
        assert_eq!(error.remedy(), Remedy::Correct);
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
    let longest = vec![0xff; KEY_BYTES_MAX];
    let value = value_of(1, VALUE_BYTES_MAX);
    put(host, &engine, &longest, &value);
    put(host, &engine, &[0], b"first");
    settle(host, &engine);
    assert!(get(&engine, &longest) == Some(value));
    assert_eq!(
        collect(engine.snapshot().as_ref(), &KeyRange::all()).len(),
        2
    );
}
