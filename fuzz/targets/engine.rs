//! What stands in keys and values: the heads and the parts of long values, numbers that changes add to.

use argosy_base::Moment;
use argosy_engine::change::{float, integer};
use argosy_engine::long::{Head, LongReader, Part, is_head, routing_key};
use argosy_engine::{Change, Was};

use super::{Target, input};

pub(crate) const TARGET: Target = Target {
    name: "engine",
    run,
    seeds,
};

fn run(data: &[u8]) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    match which % 3 {
        0 => {
            assert!(routing_key(bytes).len() <= bytes.len());
            Part::parse(bytes).is_some_and(|part| {
                assert!(part.to_key() == bytes, "what was read is written as it was");
                true
            })
        }
        1 => value(*which, bytes),
        _ => change(bytes),
    }
}

/// A length, a head of that length, and the bytes of its parts.
fn value(which: u8, bytes: &[u8]) -> bool {
    let Some((len, rest)) = bytes.split_first() else {
        return false;
    };
    let (head, mut rest) = rest.split_at(usize::from(*len).min(rest.len()));
    let Some(head) = Head::parse(head) else {
        return false;
    };
    assert!(is_head(&head.to_value()));
    let parts = head.parts();
    assert_eq!(head.bytes_of(parts), 0, "there is none behind the last");
    let stretch = head.len / 3..head.len.div_ceil(2);
    let mut reader = match which & 4 != 0 && !stretch.is_empty() {
        true => LongReader::within(head.clone(), &stretch),
        false => LongReader::new(head.clone()),
    };
    let wanted = reader.len();
    let mut taken = 0;
    while !reader.is_done() && taken <= 64 {
        assert!(
            reader
                .wanted(2)
                .iter()
                .all(|key| Part::parse(key).is_some())
        );
        let part_len = usize::try_from(head.part_len).unwrap_or(usize::MAX);
        let (part, behind) = rest.split_at(part_len.min(rest.len()));
        if reader.take(Some(part)).is_err() {
            return false;
        }
        assert!(reader.wanted_of(part).len() as u64 <= wanted);
        rest = behind;
        taken += 1;
    }
    true
}

/// The two numbers of a change, the length of its operand, that, and the value.
fn change(bytes: &[u8]) -> bool {
    let _ = (integer(bytes), float(bytes));
    let Some(([kind, number @ .., len], rest)) = bytes.split_first_chunk::<10>() else {
        return false;
    };
    let number = u64::from_le_bytes(*number);
    let Some(change) = Change::from_parts(*kind, number) else {
        return false;
    };
    let (kind, number) = change.to_parts();
    assert_eq!(Change::from_parts(kind, number), Some(change));
    let (operand, value) = rest.split_at(usize::from(*len).min(rest.len()));
    let was = Was {
        value: (!value.is_empty()).then_some(value),
        expiry: (len & 1 == 0).then_some(Moment(number)),
        now: Moment(u64::from(kind)),
    };
    let _ = change.of(operand, was);
    true
}

fn seeds() -> Vec<Vec<u8>> {
    let value: Vec<u8> = (0..100).collect();
    let head = Head {
        key: b"key".to_vec(),
        version: 5,
        len: 100,
        part_len: 30,
        // Left out, as all are.
        checksum: 0,
    };
    let mut long = head.to_value();
    long.insert(0, u8::try_from(long.len()).expect("short"));
    long.extend(value);
    let change = |(kind, number): (u8, u64), operand: &[u8], value: &[u8]| {
        let len = u8::try_from(operand.len()).expect("short");
        let number = number.to_le_bytes();
        input(2, &[&[kind][..], &number, &[len], operand, value].concat())
    };
    vec![
        input(0, &head.part(3).to_key()),
        input(1, &long),
        input(4, &long),
        change(Change::Add(-7).to_parts(), b"", b"9223372036854775807"),
        change(
            Change::AddFloat(1.5f64.to_bits()).to_parts(),
            b"",
            b"-2.25e10",
        ),
        change(Change::Append.to_parts(), b"more", b"some"),
        change(Change::Overwrite(2).to_parts(), b"more", b"some"),
        change((16 + 3, 1000), b"", b"some"),
    ]
}
