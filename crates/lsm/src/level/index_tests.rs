//! The index: separators, searches against the leaves themselves, and every kind of damage.

#![allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]

use argosy_base::Kind;

use super::*;
use crate::level::testing::{Dice, KeyShape, NAME, model};

const AT: u32 = 8192;

fn identity() -> Identity {
    NAME.identity(Kind::Index, AT)
}

/// The index over leaves with these first and last keys, of one or two nodes each.
fn encode(leaves: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut builder = IndexBuilder::default();
    let mut below = None;
    for (place, (first, last)) in leaves.iter().enumerate() {
        builder.push(1 + place % 2, below, first);
        below = Some(*last);
    }
    let mut bytes = vec![0; builder.len()];
    builder.write(&mut bytes, identity());
    bytes
}

fn reseal(bytes: &mut [u8]) {
    let crc = identity().checksum(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn the_format_never_changes() {
    let long = [b'l'; 70];
    let longer = [&long[..], b"+"].concat();
    let bytes = encode(&[(b"apple", b"banana"), (b"bandit", &long), (&longer, b"m")]);
    let mut expected = vec![52, 18, 129, 162, 3, 0, 0, 0];
    expected.extend([1, 0]);
    expected.extend([2, 4, b'b', b'a', b'n', b'd']);
    expected.extend([1, 0x80 | 64]);
    expected.extend([b'l'; 64]);
    assert_eq!(bytes, expected);
}

#[test]
fn leaves_are_found_as_their_keys_say() {
    for seed in 0..60 {
        for shape in KeyShape::ALL {
            let mut dice = Dice::new(seed);
            let model = model(shape, 120, &mut dice);
            let keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
            let mut leaves = vec![];
            let mut rest = keys.as_slice();
            while !rest.is_empty() {
                let (leaf, behind) = rest.split_at((1 + dice.below(7)).min(rest.len()));
                leaves.push((leaf[0], leaf[leaf.len() - 1]));
                rest = behind;
            }
            let index = Index::parse(&encode(&leaves), identity(), 512).unwrap();
            assert_eq!(index.count(), leaves.len());
            let random: Vec<_> = (0..100).map(|_| shape.key(&mut dice)).collect();
            for key in keys.iter().copied().chain(random.iter().map(Vec::as_slice)) {
                let not_above = leaves.partition_point(|(first, _)| *first <= key);
                let expected = not_above.saturating_sub(1);
                let (low, high) = index.find(key);
                let inside = leaves[expected].0 <= key && key <= leaves[expected].1;
                if inside {
                    assert!(low <= expected && expected <= high, "{shape:?} {seed}");
                }
                // The rule by which the caller decides among several.
                let of_several = (low + 1..=high).rfind(|leaf| leaves[*leaf].0 <= key);
                let chosen = of_several.unwrap_or(low);
                let above = leaves.iter().position(|(_, last)| key <= *last);
                // The lowest key not below is in the chosen leaf or begins the next.
                if let Some(above) = above {
                    let begins_next = above == chosen + 1 && key <= leaves[above].0;
                    assert!(above == chosen || begins_next, "{shape:?} {seed} {key:?}");
                }
            }
        }
    }
}

#[test]
fn only_keys_that_share_a_whole_separator_are_ambiguous() {
    let common = [b'c'; 64];
    let with = |end: &str| [&common[..], end.as_bytes()].concat();
    let (a, b, c, d) = (with("a"), with("b"), with("c"), with("d"));
    let leaves: Vec<(&[u8], &[u8])> = vec![
        (b"a", b"b"),
        (b"c", &a),
        (&b, &b),
        (&c, &c),
        (&d, b"e"),
        (b"f", b"f"),
    ];
    let index = Index::parse(&encode(&leaves), identity(), 512).unwrap();
    assert_eq!(index.find(b"a"), (0, 0));
    assert_eq!(index.find(b"bz"), (0, 0));
    assert_eq!(index.find(b"c"), (1, 1));
    assert_eq!(index.find(&a), (1, 4));
    assert_eq!(index.find(&with("x")), (1, 4));
    assert_eq!(index.find(b"d"), (4, 4), "above all of the shared ones");
    assert_eq!(index.find(b"f"), (5, 5));
    assert_eq!(index.span(0), 0..512);
    assert_eq!(index.span(1), 512..1536);
    assert_eq!(index.leaves_end(), 9 * 512);
}

fn some() -> Vec<u8> {
    encode(&[
        (b"apple", b"banana"),
        (b"bandit", b"box"),
        (b"cat", b"dog"),
        (b"doge", b"e"),
    ])
}

#[test]
fn damage_is_found() {
    let bytes = some();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Index::parse(&damaged, identity(), 512).is_err(), "{bit}");
    }
    for len in 0..bytes.len() {
        let mut cut = bytes[..len].to_vec();
        assert!(Index::parse(&cut, identity(), 512).is_err());
        if len >= 4 {
            reseal(&mut cut);
            assert!(Index::parse(&cut, identity(), 512).is_err());
        }
    }
    let mut longer = bytes;
    longer.push(0);
    reseal(&mut longer);
    assert!(Index::parse(&longer, identity(), 512).is_err());
}

#[test]
fn separators_that_do_not_rise_are_refused() {
    let parse = |separators: &[(&[u8], u8)]| {
        let mut bytes = vec![0; 4];
        let count = u32::try_from(separators.len()).unwrap();
        bytes.extend(count.to_le_bytes());
        for (separator, tied) in separators {
            bytes.extend([1, separator.len() as u8 | tied]);
            bytes.extend(*separator);
        }
        reseal(&mut bytes);
        Index::parse(&bytes, identity(), 512).map(|_| ())
    };
    let (low, high) = ([b'l'; 64], [b'm'; 64]);
    assert!(parse(&[(b"", 0), (b"a", 0), (b"b", 0)]).is_ok());
    assert!(parse(&[(b"", 0), (b"b", 0), (b"b", 0)]).is_err());
    assert!(parse(&[(b"", 0), (b"b", 0), (b"a", 0)]).is_err());
    assert!(
        parse(&[(b"a", 0), (b"b", 0)]).is_err(),
        "the first is empty"
    );
    assert!(parse(&[(b"", 0), (&low, TIED), (&low, TIED), (&high, TIED)]).is_ok());
    assert!(parse(&[(b"", 0), (&high, TIED), (&low, TIED)]).is_err());
    assert!(
        parse(&[(b"", 0), (b"a", TIED)]).is_err(),
        "too short to be tied"
    );
    assert!(parse(&[(b"", 0), (&[b'x'; 65], 0)]).is_err(), "too long");
    assert!(parse(&[]).is_err(), "no leaf at all");
}

#[test]
fn bytes_that_lie_are_refused_or_harmless() {
    let mut dice = Dice::new(3);
    let (mut refused, mut harmless) = (0, 0);
    for round in 0..60_000 {
        let mut bytes = some();
        if round % 4 == 0 {
            bytes[8..].fill_with(|| dice.next() as u8);
        }
        let at = 4 + dice.below(bytes.len() - 4);
        bytes[at] = dice.next() as u8;
        reseal(&mut bytes);
        let Ok(index) = Index::parse(&bytes, identity(), 512) else {
            refused += 1;
            continue;
        };
        harmless += 1;
        for leaf in 1..index.count() {
            let (before, own) = (index.separator(leaf - 1), index.separator(leaf));
            assert!(before < own || index.is_tied(leaf) && before == own);
        }
        let len = dice.below(12);
        let (low, high) = index.find(&dice.bytes(len));
        assert!(low <= high && high < index.count());
        assert!(index.span(high).end <= index.leaves_end());
        assert!(!index.span(low).is_empty());
    }
    assert!(refused > 20_000 && harmless > 1000, "{refused} {harmless}");
}
