//! Filters: no key is denied, few others pass, and damage is found.

#![allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]

use argosy_base::Kind;

use super::*;
use crate::level::testing::{Dice, NAME};

fn identity() -> Identity {
    NAME.identity(Kind::Filter, 64)
}

fn key(number: usize) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn filter(keys: usize) -> Filter {
    let hashes: Vec<_> = (0..keys).map(|number| KeyHash::of(&key(number))).collect();
    Filter::build(&hashes, BitsPerKey::BETWEEN)
}

fn encoded(filter: &Filter) -> Vec<u8> {
    let mut bytes = vec![0; filter.encoded_len()];
    filter.encode(&mut bytes, identity());
    bytes
}

/// As the table in the module's documentation says, a fifth more at most.
#[test]
fn every_key_passes_and_few_others() {
    let levels = [
        (BitsPerKey::FIRST, 24),
        (BitsPerKey::BETWEEN, 120),
        (BitsPerKey::LAST, 480),
    ];
    for (bits, most) in levels {
        for keys in [1, 2, 50, 1000, 45_000] {
            let hashes: Vec<_> = (0..keys).map(|number| KeyHash::of(&key(number))).collect();
            let filter = Filter::build(&hashes, bits);
            assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
            assert!(filter.is_of(keys));
            let passed = (keys..keys + 100_000)
                .filter(|number| filter.may_contain(KeyHash::of(&key(*number))))
                .count();
            assert!(passed <= most, "{passed} of 100000 absent keys pass {keys}");
            if keys == 45_000 {
                assert!(passed > most / 4, "{bits:?} cannot be that good: {passed}");
                assert!(filter.memory_bytes() <= keys * bits.get() / 8 + LINE_BYTES);
            }
        }
    }
}

#[test]
fn what_adds_up_over_runs_has_more_bits() {
    let of = |level| BitsPerKey::of(level, 4);
    assert_eq!([1, 2, 3].map(of), [22, 16, 16].map(BitsPerKey));
    assert_eq!([4, 5].map(of), [12; 2].map(BitsPerKey));
    assert_eq!(BitsPerKey::of(1, 1), BitsPerKey::FIRST);
}

#[test]
fn an_empty_filter_denies_everything() {
    let filter = Filter::build(&[], BitsPerKey::LAST);
    assert_eq!(filter.encoded_len(), encoded_len(0, BitsPerKey::LAST));
    assert!((0..1000).all(|number| !filter.may_contain(KeyHash::of(&key(number)))));
}

/// Stored filters have these bytes: a change of the hash would hide keys that are there.
#[test]
fn the_format_never_changes() {
    let bytes = encoded(&Filter::build(
        &[KeyHash::of(b"a"), KeyHash::of(b"key")],
        BitsPerKey::LAST,
    ));
    assert_eq!(bytes.len(), 72);
    assert_eq!(KeyHash::of(b"a").0, 0xe6c6_32b6_1e96_4e1f);
    let set: Vec<usize> = (0..512)
        .filter(|bit| bytes[8 + bit / 8] & 1 << (bit % 8) != 0)
        .collect();
    let mut expected: Vec<usize> = [&b"a"[..], b"key"]
        .iter()
        .flat_map(|key| {
            let spread = xxh3_64(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (0..7).map(move |probe| (spread >> (1 + 9 * probe)) as usize & 511)
        })
        .collect();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(set, expected);
    assert_eq!(bytes[..8], [115, 71, 49, 136, 1, 0, 12, 0]);
}

#[test]
fn damage_is_found() {
    let filter = filter(100);
    let bytes = encoded(&filter);
    assert_eq!(Filter::parse(&bytes, identity()).unwrap(), filter);
    assert!(Filter::parse(&bytes, identity().at(128)).is_err());
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Filter::parse(&damaged, identity()).is_err(), "bit {bit}");
    }
}

#[test]
fn a_lying_length_is_refused() {
    let bytes = encoded(&filter(100));
    let reseal = |mut bytes: Vec<u8>| {
        if bytes.len() >= 4 {
            let crc = identity().checksum(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
        Filter::parse(&bytes, identity())
    };
    for len in 0..bytes.len() {
        assert!(reseal(bytes[..len].to_vec()).is_err(), "cut to {len}");
    }
    for lines in [0, 1, 3, u16::MAX] {
        let mut lying = bytes.clone();
        lying[4..6].copy_from_slice(&lines.to_le_bytes());
        assert!(reseal(lying).is_err(), "{lines} lines");
    }
    for bits in [0, 65, u16::MAX] {
        let mut lying = bytes.clone();
        lying[6..8].copy_from_slice(&bits.to_le_bytes());
        assert!(reseal(lying).is_err(), "{bits} bits a key");
    }
    let mut none = bytes[..8].to_vec();
    none[4..6].fill(0);
    assert!(reseal(none).is_err(), "no line at all");
    let mut dice = Dice::new(6);
    for _ in 0..5000 {
        let len = dice.below(300);
        let random = dice.bytes(len);
        if let Ok(filter) = reseal(random) {
            let _ = filter.may_contain(KeyHash::of(b"k"));
        }
    }
}
