//! The keys of elements and the heads of composites, and that nothing else looks like them.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::long::{Head, Part, is_head, is_reserved, parts, routing_key};
use crate::{BatchError, Expiry, WriteBatch};

fn composite() -> Composite {
    Composite {
        kind: CompositeType::SortedSet,
        version: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        number: 3,
        key: b"key".to_vec(),
    }
}

#[test]
fn bytes_are_as_they_are_written_down() {
    let composite = composite();
    let head = b"\xffCOMP\x00\xf5\x01\x02\0\0\0\0\0\0\0\
        \x10\x0f\x0e\x0d\x0c\x0b\x0a\x09\x08\x07\x06\x05\x04\x03\x02\x01\x03\0\0\0\0\0\0\0key";
    assert_eq!(composite.to_value(), head);
    assert_eq!(Composite::parse(head), Some(composite.clone()));
    let mut key = vec![0xff; 10];
    key.extend_from_slice(
        b"\x03\0key\x10\x0f\x0e\x0d\x0c\x0b\x0a\x09\x08\x07\x06\x05\x04\x03\x02\x01",
    );
    let prefix = key.clone();
    key.extend_from_slice(b"\x01name");
    assert_eq!(composite.element(Name::Field(b"name")).to_key(), key);
    let mut key = prefix;
    key.extend_from_slice(b"\x02\xbf\xf0\0\0\0\0\0\0name");
    assert_eq!(composite.element(Name::Score(1.0, b"name")).to_key(), key);
}

#[test]
fn a_head_of_another_format_is_none_that_is_read_and_none_that_is_written() {
    let mut value = composite().to_value();
    value[7] = 2;
    assert_eq!(Composite::parse(&value), None);
    assert!(is_composite(&value));
    let mut batch = WriteBatch::new();
    let refused = batch.put(b"key", &value);
    assert_eq!(refused, Err(BatchError::ValueReserved));
    assert_eq!(batch.expect(&value), Err(BatchError::ValueReserved));
    assert!(batch.put_any(b"key", &value, Expiry::Never).is_ok());
}

#[test]
fn elements_are_read_as_they_are_written_and_no_part_is_one() {
    let composite = composite();
    for name in [
        Name::Field(b""),
        Name::Field(b"abcd"),
        Name::Field(&[0xff; 20]),
        Name::Score(-3.5, b"m"),
        Name::Score(f64::INFINITY, b""),
    ] {
        let element = composite.element(name);
        let key = element.to_key();
        assert_eq!(Element::parse(&key), Some(element));
        assert!(is_reserved(&key) && parts().contains(&key));
        assert_eq!(routing_key(&key), b"key");
        assert_eq!(Part::parse(&key), None);
        assert!(ElementsOf::of_key(b"key").contains(&key));
        assert!(!ElementsOf::of_key(b"ke").contains(&key));
    }
    let head = Head::new(b"key", 7, 1 << 21, 0).unwrap();
    let part = head.part(3).to_key();
    assert!(Element::parse(&part).is_none() && ElementsOf::parse(&part).is_none());
    assert!(part.as_slice() < &ELEMENTS[..]);
    assert!(!is_head(&composite.to_value()) && !is_composite(&head.to_value()));
}

#[test]
fn scores_are_ordered_as_bytes() {
    let scores = [
        f64::NEG_INFINITY,
        -1e300,
        -2.0,
        -1.0,
        -f64::MIN_POSITIVE,
        0.0,
        f64::MIN_POSITIVE,
        0.5,
        1.0,
        1e17,
        f64::INFINITY,
    ];
    let bytes: Vec<_> = scores.iter().map(|score| ordered(*score)).collect();
    assert!(bytes.is_sorted_by(|one, next| one < next));
    let back: Vec<f64> = bytes.iter().map(|bytes| score_of(*bytes)).collect();
    assert_eq!(back, scores);
    assert_eq!(ordered(-0.0), ordered(0.0));
}

#[test]
fn a_range_lies_in_one_composite_or_in_none() {
    let composite = composite();
    for range in [composite.fields(), composite.scores()] {
        let of = ElementsOf::containing(&range).unwrap();
        assert_eq!((of.key, of.version), (&b"key"[..], composite.version));
        let open = KeyRange::new(range.from, None);
        assert_eq!(ElementsOf::containing(&open), None);
    }
    assert_eq!(ElementsOf::containing(&parts()), None);
    assert_eq!(ElementsOf::containing(&KeyRange::all()), None);
}
