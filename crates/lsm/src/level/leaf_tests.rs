//! Leaves: their bytes, searches against a model, and every kind of damage.

#![allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]

use argosy_base::{Kind, SegmentNumber};

use super::*;
use crate::level::testing::{Dice, Model, NAME, Shape, model};

const AT: u32 = 1024;

/// A leaf of as many bytes with all of `pairs`, as a builder would write it at [`AT`].
fn leaf(pairs: &[(&[u8], Entry<'_>)], len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut floor = len;
    for (index, (key, entry)) in pairs.iter().enumerate() {
        let end = floor;
        floor -= record_len(key, entry);
        write_record(&mut bytes[floor..end], key, entry);
        let slot = HEADER_BYTES + index * SLOT_BYTES;
        bytes[slot..slot + 2].copy_from_slice(&narrow(floor).to_le_bytes());
    }
    seal(
        &mut bytes,
        pairs.len(),
        floor,
        NAME.identity(Kind::Leaf, AT),
    );
    bytes
}

fn leaf_of(model: &Model) -> Vec<u8> {
    let pairs: Vec<_> = model
        .iter()
        .map(|(key, entry)| (key.as_slice(), entry.as_entry()))
        .collect();
    let bytes: usize = pairs
        .iter()
        .map(|(key, entry)| SLOT_BYTES + record_len(key, entry))
        .sum();
    leaf(&pairs, (HEADER_BYTES + bytes).next_multiple_of(512))
}

fn small() -> Vec<u8> {
    let pointer = Entry::Pointer {
        at: Pointer::new(SegmentNumber(5), 0x1234),
        value_len: 300,
    };
    leaf(
        &[
            (b"key-a", Entry::Inline(b"value")),
            (b"key-b", Entry::Tombstone),
            (b"key-bc", pointer),
            (b"key-c", Entry::Inline(b"")),
        ],
        104,
    )
}

/// Makes the checksum of `bytes` right again.
fn reseal(bytes: &mut [u8]) {
    let crc = NAME.identity(Kind::Leaf, AT).checksum(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Stored leaves have these bytes: a change would make every existing level unreadable.
#[test]
fn the_format_never_changes() {
    #[rustfmt::skip]
    let expected: &[u8] = &[
        // crc, count 4, floor 58, shared 4 ("key-"), zero
        46, 35, 216, 120, 4, 0, 58, 0, 4, 0, 0, 0, 0, 0, 0, 0,
        // slots: offset, prefix from its last byte to its first
        91, 0, 0, 0, 0, 0, 0, b'a',
        84, 0, 0, 0, 0, 0, 0, b'b',
        66, 0, 0, 0, 0, 0, b'c', b'b',
        58, 0, 0, 0, 0, 0, 0, b'c',
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        1, 5, 0, b'k', b'e', b'y', b'-', b'c',
        // a value of 300 bytes at byte 0x1234 of segment 5
        2, 6, 0xac, 2, b'k', b'e', b'y', b'-', b'b', b'c', 0x34, 0x12, 0xa0, 0, 0, 0, 0, 0,
        3, 5, b'k', b'e', b'y', b'-', b'b',
        1, 5, 5, b'k', b'e', b'y', b'-', b'a', b'v', b'a', b'l', b'u', b'e',
    ];
    let bytes = small();
    assert_eq!(bytes, expected);
}

#[test]
fn a_leaf_gives_back_what_was_put_in() {
    let leaf = Leaf::parse(&small(), NAME, AT).unwrap();
    assert_eq!(leaf.count(), 4);
    assert_eq!(leaf.first_key(), b"key-a");
    assert_eq!(leaf.last_key(), b"key-c");
    assert_eq!(leaf.get(b"key-a"), Some(Entry::Inline(b"value")));
    assert_eq!(leaf.get(b"key-b"), Some(Entry::Tombstone));
    assert_eq!(leaf.get(b"key-c"), Some(Entry::Inline(b"")));
    let Some(Entry::Pointer { at, value_len }) = leaf.get(b"key-bc") else {
        panic!("a pointer");
    };
    assert_eq!(
        (at.segment().get(), at.offset(), value_len),
        (5, 0x1234, 300)
    );
    for absent in [
        &b"key-"[..],
        b"key-a\0",
        b"key-bb",
        b"key-d",
        b"kex",
        b"kez",
        b"",
        b"k",
    ] {
        assert_eq!(leaf.get(absent), None, "{absent:?}");
    }
}

#[test]
fn searches_agree_with_a_sorted_map() {
    for seed in 0..40 {
        for shape in Shape::ALL {
            let mut dice = Dice::new(seed);
            let most = if matches!(shape, Shape::Longest | Shape::Mixed) {
                12
            } else {
                200
            };
            let count = 1 + dice.below(most);
            let model = model(shape, count, &mut dice);
            let bytes = leaf_of(&model);
            let leaf = Leaf::parse(&bytes, NAME, AT).unwrap();
            assert_eq!(leaf.count(), model.len());
            let keys: Vec<_> = model.keys().collect();
            for (index, (key, entry)) in model.iter().enumerate() {
                assert_eq!(leaf.search(key), Ok(index), "{shape:?} {seed}");
                assert_eq!(leaf.entry(index), entry.as_entry());
            }
            let near = keys.iter().flat_map(|key| {
                let longer = [key.as_slice(), &[0]].concat();
                let shorter = key[..key.len() - 1].to_vec();
                [longer, shorter]
            });
            let random: Vec<_> = (0..50).map(|_| shape.key(&mut dice)).collect();
            for key in near.chain(random) {
                let expected = keys.binary_search(&&key);
                assert_eq!(leaf.search(&key), expected, "{shape:?} {seed} {key:?}");
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = small();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Leaf::parse(&damaged, NAME, AT).is_err(), "bit {bit}");
    }
}

#[test]
fn a_leaf_elsewhere_or_cut_is_refused() {
    let bytes = small();
    assert!(Leaf::parse(&bytes, NAME, AT + 512).is_err());
    let other = SegmentName {
        number: SegmentNumber(22),
        ..NAME
    };
    assert!(Leaf::parse(&bytes, other, AT).is_err());
    for len in 0..bytes.len() {
        let mut cut = bytes[..len].to_vec();
        assert!(Leaf::parse(&cut, NAME, AT).is_err());
        if len >= 4 {
            reseal(&mut cut);
            assert!(Leaf::parse(&cut, NAME, AT).is_err(), "cut to {len}");
        }
    }
}

/// A leaf that parses can be used in every way, whatever its bytes are.
fn use_all(leaf: &Leaf, dice: &mut Dice) {
    let mut below: Option<&[u8]> = None;
    for index in 0..leaf.count() {
        let key = leaf.key(index);
        assert!(below.is_none_or(|below| below < key), "keys rise");
        below = Some(key);
        assert_eq!(leaf.search(key), Ok(index));
        let _ = leaf.entry(index);
    }
    let len = dice.below(9);
    let _ = leaf.search(&dice.bytes(len));
    let pairs: Vec<_> = (0..leaf.count())
        .map(|index| (leaf.key(index), leaf.entry(index)))
        .collect();
    let again = self::leaf(&pairs, leaf.bytes().len());
    assert_eq!(leaf.bytes(), again, "equal pairs make equal bytes");
}

/// Damage under a right checksum, as only a bug or an attacker makes it.
#[test]
fn bytes_that_lie_are_refused_or_harmless() {
    let mut dice = Dice::new(1);
    let (mut refused, mut harmless) = (0, 0);
    for _ in 0..60_000 {
        let mut bytes = small();
        for _ in 0..=dice.below(3) {
            let at = 4 + dice.below(bytes.len() - 4);
            bytes[at] = match dice.below(3) {
                0 => dice.next() as u8,
                1 => bytes[at].wrapping_add(1),
                _ => bytes[4 + dice.below(bytes.len() - 4)],
            };
        }
        reseal(&mut bytes);
        match Leaf::parse(&bytes, NAME, AT) {
            Ok(leaf) => {
                use_all(&leaf, &mut dice);
                harmless += 1;
            }
            Err(LevelError::Corrupt { offset, .. }) => {
                assert_eq!(offset, AT);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 20_000 && harmless > 1000, "{refused} {harmless}");
}

#[test]
fn random_bytes_are_refused() {
    let mut dice = Dice::new(2);
    for _ in 0..20_000 {
        let len = dice.below(200);
        let mut bytes = dice.bytes(len);
        if len >= 16 {
            // Let it get past the first checks.
            bytes[4..16].copy_from_slice(&[
                1 + dice.below(3) as u8,
                0,
                len as u8 - 8,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ]);
            reseal(&mut bytes);
        }
        assert!(Leaf::parse(&bytes, NAME, AT).is_err());
    }
}

/// Slots that would serve a search, but are not those that a builder makes.
#[test]
fn fewer_shared_bytes_than_there_are_is_refused() {
    let mut bytes = small();
    let shared = 3;
    bytes[8] = shared;
    for slot in 0..4 {
        let at = HEADER_BYTES + slot * SLOT_BYTES;
        let offset = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let record = Record::decode(&bytes, usize::from(offset)).unwrap();
        let prefix = prefix(&record.key(&bytes)[usize::from(shared)..]);
        let word = prefix << 16 | u64::from(offset);
        bytes[at..at + SLOT_BYTES].copy_from_slice(&word.to_le_bytes());
    }
    reseal(&mut bytes);
    assert!(Leaf::parse(&bytes, NAME, AT).is_err());
}

#[test]
fn flags_that_are_reserved_are_refused() {
    let bytes = small();
    let at = 91;
    assert_eq!(bytes[at], INLINE);
    for flags in (0..=u8::MAX).filter(|flags| *flags != INLINE) {
        let mut newer = bytes.clone();
        newer[at] = flags;
        reseal(&mut newer);
        assert!(Leaf::parse(&newer, NAME, AT).is_err(), "flags {flags:#x}");
    }
}
