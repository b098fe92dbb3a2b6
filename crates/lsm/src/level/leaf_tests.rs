//! Leaves: their bytes, searches against a model, and every kind of damage.

#![allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]

use argosy_base::{Kind, Pointer, SegmentNumber};

use super::super::draft::Draft;
use super::super::record::INLINE;
use super::*;
use crate::level::testing::{Dice, KeyShape, Model, NAME, model};

const AT: u32 = 1024;

fn draft<'p>(pairs: impl IntoIterator<Item = (&'p [u8], Entry<'p>)>) -> Draft {
    let mut draft = Draft::default();
    for (key, entry) in pairs {
        let lengths = draft.with(key, &entry);
        draft.push(key, &entry, lengths);
    }
    draft
}

/// A leaf of as many bytes with all of `pairs`, as a builder would write it at [`AT`].
fn leaf(pairs: &[(&[u8], Entry<'_>)], len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let draft = draft(pairs.iter().copied());
    draft.write(&mut bytes, NAME.identity(Kind::Leaf, AT));
    bytes
}

fn leaf_of(model: &Model) -> Vec<u8> {
    let pairs: Vec<_> = model
        .iter()
        .map(|(key, entry)| (key.as_slice(), entry.as_entry()))
        .collect();
    let bytes = draft(pairs.iter().copied()).lengths().bytes();
    leaf(&pairs, bytes.next_multiple_of(512))
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
            (b"key-cargoes", Entry::Inline(b"in")),
        ],
        110,
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
        // crc, count 5, floor 79, shared 4 ("key-"), zero
        38, 91, 62, 217, 5, 0, 79, 0, 4, 0, 0, 0, 0, 0, 0, 0,
        // slots: offset, prefix from its last byte to its first
        102, 0, 0, 0, 0, 0, 0, b'a',
        100, 0, 0, 0, 0, 0, 0, b'b',
        88, 0, 0, 0, 0, 0, b'c', b'b',
        85, 0, 0, 0, 0, 0, 0, b'c',
        79, 0, b'e', b'o', b'g', b'r', b'a', b'c',
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        b'k', b'e', b'y', b'-',
        1, 11, 2, b's', b'i', b'n',
        1, 5, 0,
        // a value of 300 bytes at byte 0x1234 of segment 5
        2, 6, 0xac, 2, 0x34, 0x12, 0xa0, 0, 0, 0, 0, 0,
        3, 5,
        1, 5, 5, b'v', b'a', b'l', b'u', b'e',
    ];
    let bytes = small();
    assert_eq!(bytes, expected);
}

#[test]
fn a_leaf_gives_back_what_was_put_in() {
    let leaf = Leaf::parse(&small(), NAME, AT).unwrap();
    assert_eq!(leaf.count(), 5);
    assert_eq!(leaf.first_key(), b"key-a");
    assert_eq!(leaf.last_key(), b"key-cargoes");
    assert_eq!(leaf.get(b"key-cargoes"), Some(Entry::Inline(b"in")));
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
        for shape in KeyShape::ALL {
            let mut dice = Dice::new(seed);
            let most = if matches!(shape, KeyShape::Longest | KeyShape::Mixed) {
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
                for (index, own) in keys.iter().enumerate() {
                    assert_eq!(leaf.compare(index, &key), own.cmp(&&key), "{own:?} {key:?}");
                }
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
fn use_all(bytes: &[u8], dice: &mut Dice) {
    let leaf = Leaf::parse(bytes, NAME, AT).unwrap();
    let keys: Vec<_> = (0..leaf.count()).map(|index| leaf.key(index)).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "keys rise");
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(leaf.search(key), Ok(index));
        let _ = leaf.entry(index);
    }
    let len = dice.below(9);
    let _ = leaf.search(&dice.bytes(len));
    let pairs: Vec<_> = (0..leaf.count())
        .map(|index| (keys[index].as_slice(), leaf.entry(index)))
        .collect();
    let again = self::leaf(&pairs, bytes.len());
    assert_eq!(bytes, again, "equal pairs make equal bytes");
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
            Ok(_) => {
                use_all(&bytes, &mut dice);
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
    let keys: [&[u8]; 2] = [b"key-1", b"key-2"];
    let at = |shared: u8| {
        // Header, slots, what is shared, and two tombstones.
        let mut bytes = vec![0; HEADER_BYTES + 2 * SLOT_BYTES + 4 + 2 * 2];
        let floor = bytes.len() - 4;
        bytes[floor..].copy_from_slice(&[3, 5, 3, 5]);
        let common = &keys[0][..usize::from(shared)];
        bytes[floor - common.len()..floor].copy_from_slice(common);
        bytes[4] = 2;
        bytes[6] = floor as u8;
        bytes[8] = shared;
        for (slot, key) in keys.iter().enumerate() {
            let word = prefix(&key[usize::from(shared)..]) << 16 | (floor + 2 - 2 * slot) as u64;
            let slot = HEADER_BYTES + slot * SLOT_BYTES;
            bytes[slot..slot + SLOT_BYTES].copy_from_slice(&word.to_le_bytes());
        }
        reseal(&mut bytes);
        bytes
    };
    use_all(&at(4), &mut Dice::new(1));
    assert!(Leaf::parse(&at(3), NAME, AT).is_err());
}

/// Keys that share much take little in a leaf, and no more than a bound while it is filled.
#[test]
fn a_leaf_is_bounded_by_its_whole_keys() {
    let key = |number: u32| [vec![b'k'; 1000], number.to_le_bytes().to_vec()].concat();
    let (mut draft, mut count) = (Draft::default(), 0);
    loop {
        let (key, entry) = (key(u32::from_be(count)), Entry::Tombstone);
        let lengths = draft.with(&key, &entry);
        if lengths.is_too_wide() {
            break;
        }
        draft.push(&key, &entry, lengths);
        count += 1;
    }
    assert_eq!(count as usize, LEAF_BYTES_MAX / (1 + 2 + 1004));
    let len = draft.lengths().bytes();
    assert!(len < 2048, "{len}");
    let mut bytes = vec![0; len];
    draft.write(&mut bytes, NAME.identity(Kind::Leaf, AT));
    use_all(&bytes, &mut Dice::new(1));
}

#[test]
fn flags_that_are_reserved_are_refused() {
    let bytes = small();
    let at = 102;
    assert_eq!(bytes[at], INLINE);
    for flags in (0..=u8::MAX).filter(|flags| *flags != INLINE) {
        let mut newer = bytes.clone();
        newer[at] = flags;
        reseal(&mut newer);
        assert!(Leaf::parse(&newer, NAME, AT).is_err(), "flags {flags:#x}");
    }
}
