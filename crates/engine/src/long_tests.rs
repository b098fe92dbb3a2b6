//! Keys of parts, heads, and what is cut in parts and put together again.

use std::collections::BTreeMap;

use argosy_base::limits::{KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX};
use argosy_base::{KeyRange, Op};

use super::*;

#[test]
fn keys_of_parts_are_read_as_they_were_made() {
    let part = Part {
        key: b"k\x00\xff",
        version: 7,
        index: 3,
    };
    let key = part.to_key();
    assert!(is_reserved(&key));
    assert_eq!(Part::parse(&key), Some(part));
    assert_eq!(routing_key(&key), part.key);
    assert_eq!(routing_key(b"plain"), b"plain");
    let all = part.all();
    assert!(all.contains(&key));
    for other in [
        Part { index: 9, ..part },
        Part { version: 8, ..part },
        Part { key: b"k", ..part },
    ] {
        assert_eq!(
            all.contains(&other.to_key()),
            other.version == 7 && other.key == part.key
        );
    }
    for cut in 0..key.len() {
        assert_eq!(Part::parse(&key[..cut]), None, "{cut}");
    }
    let last = Part {
        key: &[0xff; LONG_KEY_BYTES_MAX],
        version: u128::MAX,
        index: 0,
    };
    assert_eq!(last.to_key().len(), KEY_BYTES_MAX);
    assert!(last.all().contains(&last.to_key()));
}

#[test]
fn users_have_no_keys_from_the_reserved_ones_on() {
    let mut batch = WriteBatch::new();
    let key = [&RESERVED[..], b"k"].concat();
    assert_eq!(batch.put(&key, b""), Err(BatchError::KeyReserved));
    assert_eq!(batch.put(RESERVED, b""), Err(BatchError::KeyReserved));
    assert_eq!(batch.delete(&key), Err(BatchError::KeyReserved));
    batch.put(&RESERVED[1..], b"").unwrap();
    batch.delete_range(&KeyRange::all()).unwrap();
    batch.delete_range(&parts()).unwrap();
    batch
        .delete_range(&KeyRange::new("a", Some(b"b".to_vec())))
        .unwrap();
    let ranges: Vec<_> = batch.ops().skip(1).filter_map(|op| op.range()).collect();
    assert_eq!(ranges[0].to.as_deref(), Some(&RESERVED[..]));
    assert_eq!(ranges[1].to.as_deref(), Some(&b"b"[..]));
    assert_eq!(ranges.len(), 2, "nothing of the parts");
}

#[test]
fn what_looks_like_a_head_is_refused_where_it_would_be_one() {
    let head = Head {
        key: b"k".to_vec(),
        version: 1,
        len: 2,
        part_len: 3,
        checksum: 4,
    };
    let value = head.to_value();
    assert_eq!(Head::parse(&value), Some(head));
    assert!(may_be_head(value.len()));
    let mut batch = WriteBatch::new();
    assert_eq!(batch.put(b"k", &value), Err(BatchError::ValueReserved));
    assert_eq!(batch.expect(&value), Err(BatchError::ValueReserved));
    assert!(!is_head(&value[..40]), "a head has a key");
    assert!(!is_head(b""));
}

#[test]
fn parts_are_the_value_or_nothing_is() {
    let value: Vec<u8> = (0..=u8::MAX).cycle().take(1000).collect();
    for len in [0, 1, 299, 300, 301, 900, 1000] {
        let value = &value[..len];
        let mut writer = LongWriter::new(b"k", len as u64, 9)
            .unwrap()
            .in_parts_of(300);
        let (mut batch, mut pairs) = (WriteBatch::new(), BTreeMap::new());
        let mut rest = value;
        while let Some(bytes) = writer.next_bytes() {
            let (part, behind) = rest.split_at(bytes);
            rest = behind;
            writer.part(part, &mut batch);
            keep(&batch, &mut pairs);
        }
        batch.clear();
        writer.head(Expiry::Never, &mut batch);
        let first = pairs.keys().next().unwrap();
        assert_eq!(batch.guarded(), Some((first.as_slice(), Guard::Present)));
        keep(&batch, &mut pairs);
        let head = Head::parse(&pairs[&b"k"[..]]).unwrap();
        let read = |pairs: &BTreeMap<Vec<u8>, Vec<u8>>| {
            let get = |keys: &[&[u8]]| -> Result<Vec<Option<Vec<u8>>>, ()> {
                Ok(keys.iter().map(|key| pairs.get(*key).cloned()).collect())
            };
            LongReader::new(head.clone()).whole(get).unwrap()
        };
        assert_eq!(read(&pairs).as_deref(), Ok(value));
        for key in pairs.keys().filter(|key| is_reserved(key)) {
            let mut less = pairs.clone();
            less.remove(key);
            assert_eq!(read(&less), Err(Torn::Missing));
            let mut other = pairs.clone();
            other.get_mut(key).unwrap().push(1);
            assert_eq!(read(&other), Err(Torn::Damaged));
        }
    }
}

fn keep(batch: &WriteBatch, pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    for op in batch.ops() {
        if let Op::Put { key, value, .. } = op {
            pairs.insert(key.to_vec(), value.to_vec());
        }
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let too_long = LONG_VALUE_BYTES_MAX as u64 + 1;
    let refused = LongWriter::new(b"k", too_long, 0).unwrap_err();
    assert_eq!(refused, BatchError::LongValueTooLong(too_long));
    let key = [1; LONG_KEY_BYTES_MAX + 1];
    let refused = LongWriter::new(&key, 1, 0).unwrap_err();
    assert_eq!(refused, BatchError::LongKeyTooLong(key.len()));
    LongWriter::new(&key[1..], too_long - 1, 0).unwrap();
    assert!(LongWriter::new(&RESERVED, 1, 0).is_err());
}
