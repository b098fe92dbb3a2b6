//! Ranges of keys that are removed: at once, whole, whatever lies below them, and for good.

use argosy_base::KeyRange;

use super::{Host, batch, collect, get, key_of, put, settle, value_of, write};
use crate::{Condition, Expiry, Op, Store, WriteBatch, WriteOptions};

/// Runs the cases of this module.
pub(super) fn run<H: Host>(make: &mut impl FnMut() -> H) {
    removed_wherever_they_lie(&mut make());
    beside_other_operations(&mut make());
    seen_whole_or_not_at_all(&mut make());
    many_ranges(&mut make());
    survive(&mut make());
}

const KEYS: u64 = 400;

/// A range of numbered keys.
fn numbers(from: u64, to: u64) -> KeyRange {
    KeyRange::new(key_of(from), Some(key_of(to)))
}

fn delete_range<H: Host>(host: &mut H, engine: &H::Engine, range: &KeyRange) {
    let mut batch = WriteBatch::new();
    batch.delete_range(range).expect("a range of keys");
    let before = engine.last_lsn();
    let written = write(host, engine, &batch, WriteOptions::default());
    let one = u64::from(!range.is_empty());
    assert!(written.applied && written.existed.is_empty());
    assert_eq!(
        engine.last_lsn().get(),
        before.get() + one,
        "a range is one record, whatever there is in it"
    );
}

/// Values of every size.
fn fill<H: Host>(host: &mut H, engine: &H::Engine, mark: u64) {
    for number in 0..KEYS {
        let len = [20, 300, 2000][usize::try_from(number % 3).expect("below 3")];
        put(host, engine, &key_of(number), &value_of(mark + number, len));
    }
}

fn keys<H: Host>(engine: &H::Engine) -> Vec<Vec<u8>> {
    let pairs = collect(engine.snapshot().as_ref(), &KeyRange::all());
    pairs.into_iter().map(|(key, _)| key).collect()
}

fn expect_keys<H: Host>(engine: &H::Engine, expected: impl Iterator<Item = u64>) {
    let expected: Vec<_> = expected.map(key_of).collect();
    assert!(keys::<H>(engine) == expected, "what a scan sees");
    for number in 0..KEYS {
        let key = key_of(number);
        let there = expected.binary_search(&key).is_ok();
        assert_eq!(get(engine, &key).is_some(), there, "get of key {number}");
    }
    let all: Vec<_> = (0..KEYS).map(key_of).collect();
    let all: Vec<_> = all.iter().map(Vec::as_slice).collect();
    let found = engine.get_many(&all).expect("a get of many");
    let found = found.iter().filter(|found| found.value.is_some());
    assert_eq!(found.count(), expected.len(), "get of all keys");
}

/// In memtables, in levels, and in both; at both ends of all keys, in the middle, and again.
fn removed_wherever_they_lie<H: Host>(host: &mut H) {
    for rest in 0..4 {
        let engine = host.open();
        delete_range(host, &engine, &KeyRange::all());
        fill(host, &engine, 0);
        if rest & 1 > 0 {
            settle(host, &engine);
        }
        delete_range(host, &engine, &numbers(100, 200));
        delete_range(host, &engine, &numbers(150, 150));
        delete_range(host, &engine, &numbers(150, 120));
        let middle = |number: &u64| !(100..200).contains(number);
        expect_keys::<H>(&engine, (0..KEYS).filter(middle));
        if rest & 2 > 0 {
            settle(host, &engine);
            expect_keys::<H>(&engine, (0..KEYS).filter(middle));
        }
        put(host, &engine, &key_of(150), b"again");
        delete_range(host, &engine, &KeyRange::new([], Some(key_of(10))));
        delete_range(host, &engine, &KeyRange::new(key_of(390), None));
        let left = |number: &u64| (10..390).contains(number) && (middle(number) || *number == 150);
        expect_keys::<H>(&engine, (0..KEYS).filter(left));
        settle(host, &engine);
        expect_keys::<H>(&engine, (0..KEYS).filter(left));
        delete_range(host, &engine, &numbers(140, 160));
        delete_range(host, &engine, &KeyRange::prefix(&[0xff, 0xff]));
        delete_range(host, &engine, &KeyRange::all());
        expect_keys::<H>(&engine, std::iter::empty());
        put(host, &engine, &key_of(7), b"new");
        settle(host, &engine);
        expect_keys::<H>(&engine, [7].into_iter());
        host.close(engine);
    }
}

/// Operations of a batch take effect in their order, and conditions are about keys.
fn beside_other_operations<H: Host>(host: &mut H) {
    let engine = host.open();
    put(host, &engine, b"b", b"0");
    let put_of = |key, value| Op::Put {
        key,
        value,
        expiry: Expiry::Never,
    };
    let all = Op::DeleteRange {
        from: b"a",
        to: Some(b"z"),
    };
    let ops = [
        put_of(b"a", b"1"),
        all,
        put_of(b"b", b"2"),
        Op::Delete { key: b"a" },
        put_of(b"a", b"3"),
    ];
    let options = WriteOptions {
        condition: Condition::Always,
        return_previous: true,
    };
    let written = write(host, &engine, &batch(&ops), options);
    assert_eq!(
        written.existed,
        [false, false, false, false, false],
        "operations see what those before them left"
    );
    assert_eq!(written.previous, vec![None; 5]);
    assert_eq!(get(&engine, b"a").as_deref(), Some(&b"3"[..]));
    assert_eq!(get(&engine, b"b").as_deref(), Some(&b"2"[..]));

    let absent = WriteOptions {
        condition: Condition::Absent,
        return_previous: false,
    };
    let refused = write(host, &engine, &batch(&[all, put_of(b"a", b"4")]), absent);
    assert!(!refused.applied, "the key is there, before the batch");
    assert_eq!(
        get(&engine, b"b").as_deref(),
        Some(&b"2"[..]),
        "nor is the range"
    );
    let taken = write(host, &engine, &batch(&[all, put_of(b"c", b"5")]), absent);
    assert!(taken.applied, "a range is no key");
    assert_eq!(keys::<H>(&engine), [b"c"]);
    delete_range(host, &engine, &KeyRange::all());
    let taken = write(host, &engine, &batch(&[put_of(b"c", b"6")]), absent);
    assert!(taken.applied, "what a range removed is absent");
    for key in [b"b", b"y"] {
        let version = engine.get(key).expect("a get").version;
        delete_range(host, &engine, &KeyRange::prefix(key));
        let stale = WriteOptions {
            condition: Condition::Version(version),
            return_previous: false,
        };
        let refused = write(host, &engine, &batch(&[put_of(key, b"7")]), stale);
        assert!(
            !refused.applied,
            "a range that has the key is a write of it, of one that never was, too"
        );
    }
}

/// Snapshots, and scans that have begun, go on with what they saw.
fn seen_whole_or_not_at_all<H: Host>(host: &mut H) {
    let engine = host.open();
    fill(host, &engine, 9);
    settle(host, &engine);
    put(host, &engine, &key_of(5), b"newer");
    let before = engine.snapshot();
    delete_range(host, &engine, &numbers(0, 300));
    let between = engine.snapshot();
    put(host, &engine, &key_of(5), b"newest");
    delete_range(host, &engine, &numbers(0, KEYS));
    let after = engine.snapshot();
    for _ in 0..2 {
        let count = |snapshot: &dyn crate::Snapshot| collect(snapshot, &KeyRange::all()).len();
        assert_eq!(count(before.as_ref()) as u64, KEYS);
        assert_eq!(count(between.as_ref()) as u64, KEYS - 300);
        assert_eq!(count(after.as_ref()), 0);
        let five = key_of(5);
        let seen = before.get(&five).expect("a get");
        assert_eq!(seen.as_deref(), Some(&b"newer"[..]));
        assert_eq!(between.get(&five).expect("a get"), None);
        assert_eq!(
            between.get_many(&[&five, &key_of(350)]).expect("a get")[0],
            None
        );
        settle(host, &engine);
    }
}

/// More ranges than a memtable takes, with keys between them, and more than one batch takes.
fn many_ranges<H: Host>(host: &mut H) {
    let engine = host.open();
    for round in 0..3 {
        fill(host, &engine, round);
        for number in (0..KEYS).filter(|number| number % 2 == round % 2) {
            delete_range(host, &engine, &numbers(number, number + 1));
        }
        expect_keys::<H>(&engine, (0..KEYS).filter(|number| number % 2 != round % 2));
        settle(host, &engine);
        expect_keys::<H>(&engine, (0..KEYS).filter(|number| number % 2 != round % 2));
    }
    let mut batch = WriteBatch::new();
    for number in 0..200 {
        let range = numbers(2 * number, 2 * number + 1);
        batch.delete_range(&range).expect("within the limits");
    }
    write(host, &engine, &batch, WriteOptions::default());
    expect_keys::<H>(&engine, (0..KEYS).filter(|number| number % 2 == 1));
}

/// What was removed stays removed after a clean end and a kill, with and without a memtable's end between.
fn survive<H: Host>(host: &mut H) {
    for round in 0..8u64 {
        let mut engine = host.open();
        fill(host, &engine, round);
        if round & 1 > 0 {
            settle(host, &engine);
        }
        delete_range(host, &engine, &numbers(50, 350));
        put(host, &engine, &key_of(60), b"again");
        if round & 2 > 0 {
            settle(host, &engine);
        }
        let left = |number: &u64| !(50..350).contains(number) || *number == 60;
        match round & 4 {
            0 => host.close(engine),
            _ => host.kill(engine),
        }
        engine = host.open();
        expect_keys::<H>(&engine, (0..KEYS).filter(left));
        settle(host, &engine);
        expect_keys::<H>(&engine, (0..KEYS).filter(left));
        host.close(engine);
    }
}
