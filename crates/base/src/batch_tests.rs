//! Tests of batches.

use alloc::vec;

use super::*;

#[test]
fn operations_return_in_order() {
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").unwrap();
    batch.delete(b"b").unwrap();
    batch.put_until(b"c", b"", Expiry::After(5)).unwrap();
    let ops: Vec<_> = batch.ops().collect();
    assert_eq!(
        ops,
        [
            Op::Put {
                key: b"a",
                value: b"1",
                expiry: Expiry::Never
            },
            Op::Delete { key: b"b" },
            Op::Put {
                key: b"c",
                value: b"",
                expiry: Expiry::After(5)
            },
        ]
    );
}

#[test]
fn what_is_over_a_limit_is_refused_and_changes_nothing() {
    let mut batch = WriteBatch::new();
    assert_eq!(batch.put(b"", b"v"), Err(BatchError::KeyEmpty));
    assert_eq!(
        batch.delete([0; KEY_BYTES_MAX + 1]),
        Err(BatchError::KeyTooLong(4097))
    );
    let long = vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(
        batch.put(b"k", &long),
        Err(BatchError::ValueTooLong(long.len()))
    );
    assert!(batch.is_empty());
    batch.put([0; KEY_BYTES_MAX], &long[1..]).unwrap();
    assert_eq!(batch.put(b"k", b""), Err(BatchError::TooManyBytes));
}

#[test]
fn ranges_are_operations_like_others() {
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").unwrap();
    let upto = |to: &[u8]| KeyRange::new("b", Some(to.to_vec()));
    batch.delete_range(&upto(b"c")).unwrap();
    batch.delete_range(&upto(b"b")).unwrap();
    batch.delete_range(&KeyRange::all()).unwrap();
    batch.delete(b"d").unwrap();
    let ops: Vec<_> = batch.ops().skip(1).collect();
    let (from, to) = (&b"b"[..], Some(&b"c"[..]));
    let all = Op::DeleteRange {
        from: &[0],
        to: Some(&RESERVED),
    };
    assert_eq!(
        ops,
        [Op::DeleteRange { from, to }, all, Op::Delete { key: b"d" }]
    );
    assert!(ops[0].concerns(b"b") && ops[0].concerns(b"bz") && !ops[0].concerns(b"c"));
    assert!(all.concerns(b"\xff") && !ops[2].concerns(b"da"));
    let long = KeyRange::new(vec![1; KEY_BYTES_MAX + 2], None);
    assert_eq!(batch.delete_range(&long), Err(BatchError::KeyTooLong(4098)));
    let mut from = vec![1; KEY_BYTES_MAX];
    from.push(0);
    let behind = KeyRange::new(from, None);
    batch.delete_range(&behind).unwrap();
    let last = batch.ops().last().unwrap();
    assert!(!last.concerns(&[1; KEY_BYTES_MAX]) && last.key().ends_with(&[1, 2]));
    for _ in 3..BATCH_RANGES_MAX {
        batch.delete_range(&upto(b"c")).unwrap();
    }
    let over = batch.delete_range(&upto(b"c"));
    assert_eq!(over, Err(BatchError::TooManyRanges));
    batch.clear();
    assert_eq!(batch.ranges_len(), 0);
}

#[test]
fn a_change_is_alone() {
    let mut batch = WriteBatch::new();
    batch.change(b"k", Change::Append, b"v").unwrap();
    assert_eq!(batch.changes(), Some(Change::Append));
    assert_eq!(batch.delete(b"l"), Err(BatchError::ChangeNotAlone));
    let second = batch.change(b"k", Change::Append, b"v");
    assert_eq!(second, Err(BatchError::ChangeNotAlone));
    assert_eq!(batch.len(), 1);
    batch.clear();
    assert_eq!(batch.changes(), None);
    batch.delete(b"l").unwrap();
}
