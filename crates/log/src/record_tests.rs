//! Sizes, the way there and back, and bytes that are no records.

#![allow(clippy::cast_possible_truncation, reason = "tests use small numbers")]

use argosy_base::{ClientId, Epoch, Kind, RegionId, SegmentNumber};
use proptest::prelude::*;

use super::*;

const HERE: Identity = Identity {
    kind: Kind::LogRecord,
    region: RegionId(1),
    segment: SegmentNumber(2),
    epoch: Epoch(3),
    offset: 64,
};
const BASE: Lsn = Lsn(1000);

fn bytes_of(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = vec![];
    record.encode(HERE, BASE, &mut bytes);
    assert_eq!(bytes.len(), record.encoded_len(BASE));
    bytes
}

#[test]
fn a_small_pair_has_at_most_12_bytes_in_front() {
    let far = Lsn(BASE.0 + (1 << 28) - 1);
    let record = Record::put(far, &[1; 24], &[2; 76]);
    assert_eq!(record.header_len(BASE), 11);
    assert_eq!(bytes_of(&record).len(), 11 + 100);
    let long_key = Record::put(far, &[1; 4096], &[2; 100]);
    assert_eq!(long_key.header_len(BASE), 12);
    let plain = Record::put(BASE, b"k", b"v");
    assert_eq!(plain.header_len(BASE), 8);
    let named = Record {
        request: Some(RequestName {
            client: ClientId(u64::MAX),
            seq: 127,
        }),
        ..plain
    };
    assert_eq!(named.header_len(BASE), 8 + 9);
}

/// The bytes are stored: a change would make every existing log unreadable.
#[test]
fn the_bytes_never_change() {
    let mut record = Record::put(Lsn(1300), b"key", b"value");
    record.more = true;
    record.expiry = Some(5);
    record.request = Some(RequestName {
        client: ClientId(6),
        seq: 200,
    });
    let bytes = bytes_of(&record);
    assert_eq!(bytes[0], 0x01 | 0x08 | 0x10 | 0x20);
    let rest = [
        &[0xac, 0x02, 3, 5][..],
        &[5, 0, 0, 0, 0, 0, 0, 0],
        &[6, 0, 0, 0, 0, 0, 0, 0, 0xc8, 0x01],
        b"keyvalue",
    ];
    assert_eq!(bytes[5..], rest.concat());
    let crc = HERE.checksum_of([&bytes[..1], &bytes[5..]].into_iter());
    assert_eq!(bytes[1..5], crc.to_le_bytes());
    let mark = bytes_of(&Record::mark(Lsn(3)));
    assert_eq!((mark[0], &mark[5..]), (3, &[3, 0, 0][..]), "absolute");
    let closing = bytes_of(&Record::closing_mark(Lsn(3)));
    assert_eq!((closing[0], &closing[5..]), (6, &mark[5..]));
    assert_eq!(bytes_of(&Record::delete(BASE, b"k"))[0], 2);
    let range = bytes_of(&Record::delete_range(BASE, b"a", Some(b"cd")));
    assert_eq!(
        (range[0], &range[5..]),
        (5, &[0, 1, 2, b'a', b'c', b'd'][..])
    );
    let open = bytes_of(&Record::delete_range(BASE, b"a", None));
    assert_eq!((open[0], &open[5..]), (5, &[0, 1, 0, b'a'][..]));
}

/// Bits that choose the kind and flags, an LSN delta, a key, a value, and the options.
type Parts = (u8, u64, Vec<u8>, Vec<u8>, Option<u64>, Option<(u64, u64)>);

fn any_record() -> impl Strategy<Value = Parts> {
    (
        any::<u8>(),
        prop_oneof![0u64..300, any::<u64>().prop_map(|n| n >> 20)],
        proptest::collection::vec(any::<u8>(), 0..40),
        proptest::collection::vec(any::<u8>(), 0..200),
        any::<Option<u64>>(),
        any::<Option<(u64, u64)>>(),
    )
}

proptest! {
    #[test]
    fn records_return(parts in any_record(), behind in proptest::collection::vec(any::<u8>(), 0..9)) {
        let (bits, delta, key, value, expiry, client) = parts;
        let to = (!value.is_empty()).then_some(&value[..]);
        let mut record = match bits % 5 {
            0 => Record::put(Lsn(BASE.0 + delta), &key, &value),
            1 if !key.is_empty() => Record::delete(Lsn(BASE.0 + delta), &key),
            2 if !key.is_empty() => Record::delete_range(Lsn(BASE.0 + delta), &key, to),
            3 => Record::closing_mark(Lsn(delta)),
            _ => Record::mark(Lsn(delta)),
        };
        if !record.kind.is_mark() {
            record.more = bits & 0x10 != 0;
            record.expiry = expiry.filter(|_| record.kind != RecordKind::DeleteRange);
            record.request = client.map(|(id, seq)| RequestName {
                client: ClientId(id),
                seq,
            });
            record.chunk = record.kind == RecordKind::Put && record.more && bits & 0x20 != 0;
        }
        let mut bytes = bytes_of(&record);
        let len = bytes.len();
        bytes.extend_from_slice(&behind);
        prop_assert_eq!(decode(&bytes, HERE, BASE), Decoded::Record(record, len));
        for elsewhere in [HERE.at(65), Identity { epoch: Epoch(4), ..HERE }] {
            prop_assert_eq!(decode(&bytes, elsewhere, BASE), Decoded::Invalid);
        }
    }

    #[test]
    fn damage_is_noticed(parts in any_record(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (_, delta, key, value, expiry, _) = parts;
        let mut record = Record::put(Lsn(BASE.0 + delta), &key, &value);
        record.expiry = expiry;
        let mut bytes = bytes_of(&record);
        for cut in 0..bytes.len() {
            prop_assert_eq!(decode(&bytes[..cut], HERE, BASE), Decoded::Invalid);
        }
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(decode(&bytes, HERE, BASE), Decoded::Invalid);
    }

    #[test]
    fn random_bytes_are_no_record(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let found = decode(&bytes, HERE, BASE);
        prop_assert!(!matches!(found, Decoded::Record(..)));
        let zeros = !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0);
        prop_assert_eq!(found == Decoded::Pad, zeros);
    }

    /// With a right checksum, too, nothing is taken that breaks the rules.
    #[test]
    fn what_parses_is_what_would_be_written(
        mut bytes in proptest::collection::vec(any::<u8>(), 5..60),
        kind in 0u8..=255,
    ) {
        bytes[0] = kind;
        let whole = bytes.len();
        for len in 5..=whole {
            let crc = checksum(HERE, kind, &bytes[5..len]);
            bytes[1..5].copy_from_slice(&crc.to_le_bytes());
            if let Decoded::Record(record, found) = decode(&bytes[..len], HERE, BASE) {
                let again = bytes_of(&record);
                prop_assert_eq!(&again[..], &bytes[..found]);
            }
        }
    }
}
