//! Footers: their bytes, and every kind of damage.

#![allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]

use super::*;
use crate::level::testing::{Dice, NAME};

const AT: u32 = 32_768 - 128;

const FOOTER: Footer = Footer {
    form: Form::SelfContained,
    node_bytes: 8192,
    leaves: 2,
    entries: 300,
    tombstones: 4,
    index_len: 40,
    filter_len: 392,
    table_len: 30,
    leaves_len: 16_384,
};

fn reseal(bytes: &mut [u8; FOOTER_BYTES]) {
    let crc = Footer::checksum(bytes, NAME, AT);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

fn table() -> Table {
    Table {
        first_key: b"first".to_vec(),
        last_key: b"last".to_vec(),
        log_refs: vec![(SegmentNumber(3), 1000), (SegmentNumber(200), 1)],
    }
}

#[test]
fn the_formats_never_change() {
    let bytes = FOOTER.encode(NAME, AT);
    let mut expected = b"ArgLevel".to_vec();
    expected.extend([7, 0, 0, 0, 125, 156, 75, 205]);
    expected.extend([7, 0, 0, 0, 3, 0, 0, 0, 21, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([0, 32, 0, 0, 2, 0, 0, 0, 44, 1, 0, 0, 4, 0, 0, 0]);
    expected.extend([0; 8]);
    expected.extend([40, 0, 0, 0, 136, 1, 0, 0, 30, 0, 0, 0, 0, 64, 0, 0]);
    expected.extend([0; 56]);
    assert_eq!(bytes.as_slice(), expected);
    assert_eq!(Footer::parse(&bytes, NAME, AT).unwrap(), FOOTER);

    let mut expected = vec![26, 137, 239, 65];
    expected.extend(b"\x05first\x04last");
    expected.extend([2, 3, 0xe8, 7, 0xc8, 1, 1]);
    let bytes = table().encode(NAME, 600);
    assert_eq!(bytes, expected);
    assert_eq!(Table::parse(&bytes, NAME, 600).unwrap(), table());
}

#[test]
fn damage_is_found() {
    let bytes = FOOTER.encode(NAME, AT);
    for bit in 0..FOOTER_BYTES * 8 {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = Footer::parse(&damaged, NAME, AT).unwrap_err();
        assert!(matches!(error, LevelError::Corrupt { .. }), "{bit} {error}");
    }
    assert!(Footer::parse(&bytes, NAME, AT + 4096).is_err());
    let table = table().encode(NAME, 600);
    for bit in 0..table.len() * 8 {
        let mut damaged = table.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Table::parse(&damaged, NAME, 600).is_err(), "{bit}");
    }
    for len in 0..table.len() {
        assert!(Table::parse(&table[..len], NAME, 600).is_err());
    }
}

#[test]
fn another_version_is_refused_as_such() {
    for version in [1, 2, 3, 4, 5, 6, 8] {
        let mut bytes = FOOTER.encode(NAME, AT);
        bytes[8] = version;
        bytes[100] = 1;
        reseal(&mut bytes);
        let error = Footer::parse(&bytes, NAME, AT).unwrap_err();
        let expected = format!("segment 21 has format {version}; this version reads format 7");
        assert_eq!(error.to_string(), expected);
    }
}

/// A form says which parts there are.
#[test]
fn forms_go_with_their_parts() {
    let leaves = Footer {
        form: Form::Leaves,
        index_len: 0,
        ..FOOTER
    };
    let index = Footer {
        form: Form::Index(3),
        filter_len: 0,
        tombstones: 0,
        ..leaves
    };
    for footer in [leaves, index] {
        let bytes = footer.encode(NAME, AT);
        assert_eq!(bytes[72], footer.form.to_raw());
        assert_eq!(Footer::parse(&bytes, NAME, AT).unwrap(), footer);
        for form in 0..=255 {
            let mut other = bytes;
            other[72] = form;
            reseal(&mut other);
            let fits = match form {
                0 | 1 => true,
                form => footer == index && Form::from_raw(form).is_some(),
            };
            assert_eq!(Footer::parse(&other, NAME, AT).is_ok(), fits, "{form}");
        }
    }
    for wrong in [
        Footer {
            index_len: 40,
            ..leaves
        },
        Footer {
            filter_len: 8,
            ..index
        },
        Footer {
            tombstones: 1,
            ..index
        },
    ] {
        assert!(Footer::parse(&wrong.encode(NAME, AT), NAME, AT).is_err());
    }
}

#[test]
fn footers_that_lie_are_refused_or_harmless() {
    let mut dice = Dice::new(4);
    let (mut refused, mut harmless) = (0, 0);
    for _ in 0..50_000 {
        let mut bytes = FOOTER.encode(NAME, AT);
        let at = 16 + dice.below(FOOTER_BYTES - 16);
        bytes[at] = dice.next() as u8;
        reseal(&mut bytes);
        match Footer::parse(&bytes, NAME, AT) {
            Ok(footer) => {
                assert!(footer.bounds()[3] <= u64::from(AT));
                harmless += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 10_000 && harmless > 1000, "{refused} {harmless}");
}

#[test]
fn tables_that_lie_are_refused_or_harmless() {
    let mut dice = Dice::new(5);
    let mut refused = 0;
    for round in 0..50_000 {
        let mut bytes = table().encode(NAME, 600);
        if round % 2 == 0 {
            bytes.fill_with(|| dice.next() as u8);
        }
        let at = 4 + dice.below(bytes.len() - 4);
        bytes[at] = dice.next() as u8;
        let crc = NAME.identity(Kind::Footer, 600).checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        match Table::parse(&bytes, NAME, 600) {
            Ok(table) => assert!(table.first_key <= table.last_key),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 10_000, "{refused}");
}

#[test]
fn what_contradicts_itself_is_refused() {
    let refused = |at: usize, value: u8| {
        let mut bytes = FOOTER.encode(NAME, AT);
        bytes[at] = value;
        reseal(&mut bytes);
        Footer::parse(&bytes, NAME, AT).is_err()
    };
    assert!(!refused(41, 2), "more entries are possible");
    assert!(refused(16, 8), "another region");
    assert!(refused(33, 0), "nodes without bytes");
    assert!(refused(36, 0), "no leaves");
    assert!(refused(43, 1), "more entries than bytes");
    assert!(refused(46, 1), "more tombstones than entries");
    assert!(refused(48, 1), "an LSN is not known");
    assert!(refused(59, 1), "the index is longer than the segment");
    assert!(refused(72, 1), "the rest is zero");

    let refused = |change: fn(&mut Table)| {
        let mut table = table();
        change(&mut table);
        let bytes = table.encode(NAME, 600);
        Table::parse(&bytes, NAME, 600).is_err()
    };
    assert!(!refused(|_| ()));
    assert!(refused(|table| table.log_refs.reverse()));
    assert!(refused(
        |table| table.log_refs[1].0 = SegmentNumber(u64::MAX)
    ));
    assert!(refused(|table| table.last_key = b"fir".to_vec()));
    assert!(refused(|table| table.first_key.clear()));
}

#[test]
fn a_table_is_never_longer_than_reserved() {
    let mut table = table();
    table.first_key = vec![1; KEY_BYTES_MAX];
    table.last_key = vec![2; KEY_BYTES_MAX];
    table.log_refs = (0..100)
        .map(|place| (SegmentNumber(SegmentNumber::MAX.0 - 100 + place), u64::MAX))
        .collect();
    let most = Table::len_max(KEY_BYTES_MAX, KEY_BYTES_MAX, 100);
    assert!(table.encode(NAME, 0).len() <= most);
}
