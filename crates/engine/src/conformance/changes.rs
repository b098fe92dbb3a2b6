//! Writes that depend on values: conditions on them, and changes.

use argosy_base::limits::VALUE_BYTES_MAX;

use super::{Host, get, put, settle, value_of, write};
use crate::composite::{Composite, CompositeType, Name};
use crate::{
    Change, Changed, Condition, Expiry, Guard, Refusal, Seen, Store, WriteBatch, WriteOptions,
    Written,
};

/// Runs the cases of this module.
pub(super) fn run<H: Host>(make: &mut impl FnMut() -> H) {
    equal_values(&mut make());
    versions(&mut make());
    changes(&mut make());
    computed(&mut make());
    counted(&mut make());
    composites(&mut make());
}

/// Puts `value` where `key` is bound to `expected`.
fn put_if_equal<H: Host>(
    host: &mut H,
    engine: &H::Engine,
    key: &[u8],
    expected: &[u8],
    value: &[u8],
) -> Written {
    let mut batch = WriteBatch::new();
    batch.put(key, value).expect("within the limits");
    batch.expect(expected).expect("within the limits");
    let options = WriteOptions {
        condition: Condition::Equals,
        return_previous: true,
    };
    write(host, engine, &batch, options)
}

fn equal_values<H: Host>(host: &mut H) {
    let engine = host.open();
    let refused = put_if_equal(host, &engine, b"k", b"", b"1");
    assert!(!refused.applied, "what is not bound equals nothing");
    let large = value_of(5, 5000);
    for value in [b"", b"small".as_slice(), &large] {
        let first = put(host, &engine, b"k", value);
        for below in [false, true] {
            if below {
                settle(host, &engine);
            }
            let refused = put_if_equal(host, &engine, b"k", b"other", b"x");
            assert!(!refused.applied && refused.wait.lsn() <= first.wait.lsn());
            assert_eq!(refused.previous, [Some(value.to_vec())]);
            assert_eq!(get(&engine, b"k").as_deref(), Some(value));
        }
        let taken = put_if_equal(host, &engine, b"k", value, b"next");
        assert!(taken.applied && taken.wait.lsn() > first.wait.lsn());
        assert_eq!(get(&engine, b"k").as_deref(), Some(&b"next"[..]));
    }
    let mut delete = WriteBatch::new();
    delete.delete(b"k").expect("within the limits");
    delete.expect(b"next").expect("within the limits");
    let options = WriteOptions {
        condition: Condition::Equals,
        return_previous: false,
    };
    assert!(write(host, &engine, &delete, options).applied);
    assert!(!write(host, &engine, &delete, options).applied);
}

fn versions<H: Host>(host: &mut H) {
    let engine = host.open();
    let version = |host: &mut H, key: &[u8], version| {
        let mut batch = WriteBatch::new();
        batch.put(key, b"new").expect("within the limits");
        let options = WriteOptions {
            condition: Condition::Version(version),
            return_previous: false,
        };
        write(host, &engine, &batch, options).applied
    };
    let read = |key: &[u8]| engine.get(key).expect("it can be read").version;
    let nothing = read(b"k");
    assert!(version(host, b"k", nothing), "nobody has written it");
    assert!(!version(host, b"k", nothing), "somebody has");
    let first = read(b"k");
    put(host, &engine, b"other", b"1");
    assert!(version(host, b"k", first), "other keys do not count");
    assert!(!version(host, b"k", first));
    settle(host, &engine);
    let below = read(b"k");
    assert!(version(host, b"k", below));
    assert!(!version(host, b"k", below));
}

/// What `engine` says of `key`, to be compared later.
fn look<'k, E: Store>(engine: &E, key: &'k [u8]) -> Seen<'k> {
    let found = engine.get(key).expect("it can be read");
    Seen {
        key,
        bound: found.value.is_some(),
        version: found.version,
    }
}

/// Puts `value` at `key`, or nothing where there is none, if all of `seen` is still so.
fn put_if_seen<H: Host>(
    host: &mut H,
    engine: &H::Engine,
    seen: &[Seen<'_>],
    put: Option<(&[u8], &[u8])>,
) -> bool {
    let mut batch = WriteBatch::new();
    if let Some((key, value)) = put {
        batch.put(key, value).expect("within the limits");
    }
    for seen in seen {
        batch.saw(*seen).expect("within the limits");
    }
    write(host, engine, &batch, WriteOptions::default()).applied
}

/// Batches that were computed on what was read.
fn computed<H: Host>(host: &mut H) {
    let engine = host.open();
    let before = [look(&engine, b"a"), look(&engine, b"b")];
    assert!(put_if_seen(host, &engine, &before, Some((b"a", b"1"))));
    let last = engine.last_lsn();
    assert!(!put_if_seen(host, &engine, &before, Some((b"a", b"2"))));
    assert!(!put_if_seen(host, &engine, &before, None));
    assert!(put_if_seen(host, &engine, &before[1..], None), "nobody has");
    assert_eq!(engine.last_lsn(), last, "none of them appends anything");
    assert_eq!(get(&engine, b"a").as_deref(), Some(&b"1"[..]));

    let one = [look(&engine, b"a")];
    put(host, &engine, b"other", b"1");
    assert!(
        put_if_seen(host, &engine, &one, Some((b"c", b"1"))),
        "others do not count"
    );
    put(host, &engine, b"a", b"1");
    assert!(
        !put_if_seen(host, &engine, &one, Some((b"c", b"2"))),
        "the same again does"
    );
    let present = [look(&engine, b"a")];
    super::delete(host, &engine, b"a");
    assert!(!put_if_seen(host, &engine, &present, None), "it is gone");
    let absent = [look(&engine, b"a")];
    put(host, &engine, b"a", b"3");
    super::delete(host, &engine, b"a");
    assert!(
        !put_if_seen(host, &engine, &absent, None),
        "it was there meanwhile"
    );

    for key in [b"a", b"c"] {
        settle(host, &engine);
        let below = [look(&engine, key)];
        assert!(put_if_seen(host, &engine, &below, Some((key, b"4"))));
        assert!(!put_if_seen(host, &engine, &below, Some((key, b"5"))));
    }
}

/// The head of a hash of the key `h`.
fn head(version: u128, number: u64) -> Composite {
    Composite {
        kind: CompositeType::Hash,
        version,
        number,
        key: b"h".to_vec(),
    }
}

/// Puts or removes a field of the hash of this version, whose head counts.
fn count<H: Host>(host: &mut H, engine: &H::Engine, version: u128, change: i64) -> bool {
    let key = head(version, 0).element(Name::Field(b"f")).to_key();
    let mut batch = WriteBatch::new();
    let added = match change {
        ..0 => batch.delete_any(&key),
        _ => batch.put_any(&key, b"", Expiry::Never),
    };
    added.expect("within the limits");
    batch.guard(b"h", Guard::Counts { version, change });
    write(host, engine, &batch, WriteOptions::default()).applied
}

/// The head of a composite is evaluated where writes are put in order.
fn counted<H: Host>(host: &mut H) {
    let engine = host.open();
    let put_head = |host: &mut H, head: &Composite| {
        let mut batch = WriteBatch::new();
        let put = batch.put_any(b"h", &head.to_value(), Expiry::Never);
        put.expect("within the limits");
        write(host, &engine, &batch, WriteOptions::default());
    };
    let number = || {
        let value = get(&engine, b"h")?;
        Some(Composite::parse(&value).expect("it is a head").number)
    };
    assert!(!count(host, &engine, 7, 1), "there is no head");
    put_head(host, &head(7, 1));
    for below in [false, true] {
        if below {
            settle(host, &engine);
        }
        let before = number();
        let version = engine.get(b"h").expect("it can be read").version;
        assert!(!count(host, &engine, 8, 1), "it is another one's");
        assert_eq!(number(), before);
        assert!(count(host, &engine, 7, 1));
        assert_eq!(number(), before.map(|number| number + 1));
        let now = engine.get(b"h").expect("it can be read").version;
        assert!(now > version, "a change of an element is one of the head");
    }
    assert!(!count(host, &engine, 7, -4), "there are three");
    assert!(count(host, &engine, 7, -3));
    assert_eq!(number(), None, "nothing is left");
    put(host, &engine, b"h", b"text");
    assert!(!count(host, &engine, 7, 1), "it is none");
}

/// What a composite was is not told as a value, and no change is made of it.
fn composites<H: Host>(host: &mut H) {
    let engine = host.open();
    let mut batch = WriteBatch::new();
    let value = head(1, 1).to_value();
    let put = batch.put_any(b"h", &value, Expiry::Never);
    put.expect("within the limits");
    write(host, &engine, &batch, WriteOptions::default());
    let told = change(host, &engine, b"h", Change::Append, b"x");
    assert_eq!(told, (false, Changed::Refused(Refusal::WrongType)));
    batch.clear();
    batch.put(b"h", b"text").expect("within the limits");
    let options = WriteOptions {
        return_previous: true,
        ..WriteOptions::default()
    };
    let written = write(host, &engine, &batch, options);
    assert!(!written.applied);
    assert_eq!(written.previous, [Some(value.clone())]);
    assert_eq!(get(&engine, b"h"), Some(value));
    assert!(write(host, &engine, &batch, WriteOptions::default()).applied);
}

fn change<H: Host>(
    host: &mut H,
    engine: &H::Engine,
    key: &[u8],
    change: Change,
    operand: &[u8],
) -> (bool, Changed) {
    let mut batch = WriteBatch::new();
    batch
        .change(key, change, operand)
        .expect("within the limits");
    let written = write(host, engine, &batch, WriteOptions::default());
    (written.applied, written.changed.expect("a change tells"))
}

fn changes<H: Host>(host: &mut H) {
    let engine = host.open();
    for sum in 1..=300 {
        let added = change(host, &engine, b"n", Change::Add(1), b"");
        assert_eq!(added, (true, Changed::Number(sum)));
        if sum % 100 == 0 {
            settle(host, &engine);
        }
    }
    assert_eq!(get(&engine, b"n").as_deref(), Some(&b"300"[..]));
    put(host, &engine, b"text", b"abc");
    let last = engine.last_lsn();
    let refused = change(host, &engine, b"text", Change::Add(1), b"");
    let why = Changed::Refused(Refusal::NotAnInteger);
    assert_eq!(refused, (false, why));
    assert_eq!(engine.last_lsn(), last, "a refused change appends nothing");

    // A value grows out of the memtable, and past what a record takes.
    let part = value_of(9, 700);
    let mut whole = Vec::new();
    for count in 1..=200 {
        whole.extend_from_slice(&part);
        let told = change(host, &engine, b"long", Change::Append, &part).1;
        assert_eq!(told, Changed::Number(700 * count));
        if count % 50 == 0 {
            settle(host, &engine);
        }
    }
    assert!(get(&engine, b"long") == Some(whole));
    put(host, &engine, b"full", &vec![1; VALUE_BYTES_MAX]);
    let full = change(host, &engine, b"full", Change::Append, b"x");
    assert_eq!(full, (false, Changed::Refused(Refusal::TooLong)));
    let end = u32::try_from(VALUE_BYTES_MAX).expect("a value is short") - 1;
    let last = change(host, &engine, b"full", Change::Overwrite(end), b"x");
    assert!(last.0, "a full value can be overwritten");
}
