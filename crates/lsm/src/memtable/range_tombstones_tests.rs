//! Unions of ranges and what they leave, and what a memtable's ranges shadow.

use argosy_base::{KeyRange, Lsn};
use proptest::prelude::*;

use super::range_tombstones::*;
use crate::memtable::Memtable;
use crate::names::Entry;

fn range(from: u8, to: Option<u8>) -> KeyRange {
    KeyRange::new([from], to.map(|to| vec![to]))
}

fn ranges() -> impl Strategy<Value = Vec<KeyRange>> {
    let one = (0u8..40, proptest::option::of(0u8..40)).prop_map(|(from, to)| range(from, to));
    proptest::collection::vec(one, 0..8)
}

proptest! {
    #[test]
    fn a_union_has_the_keys_of_its_parts_and_leaves_the_others(
        parts in ranges(),
        whole in (0u8..40, proptest::option::of(0u8..40)),
    ) {
        let whole = range(whole.0, whole.1);
        let union = union(parts.iter());
        for pair in union.windows(2) {
            prop_assert!(pair[0].to.as_ref().is_some_and(|to| *to < pair[1].from));
        }
        let left: Vec<_> = left_of(&whole, &union).collect();
        for key in 0u8..45 {
            let key = [key];
            let removed = parts.iter().any(|part| part.contains(&key));
            prop_assert_eq!(union.iter().any(|part| part.contains(&key)), removed);
            let stays = whole.contains(&key) && !removed;
            prop_assert_eq!(left.iter().filter(|part| part.contains(&key)).count(), usize::from(stays));
        }
    }
}

#[test]
fn a_range_shadows_what_is_older_from_those_who_see_it() {
    let table = Memtable::new(1 << 20);
    table.insert(b"b", Lsn(1), Entry::Inline(b"1"));
    table.delete_range(&range(b'a', Some(b'c')), Lsn(2));
    table.insert(b"b", Lsn(3), Entry::Inline(b"3"));
    table.delete_range(&range(b'b', None), Lsn(4));
    let value = |lsn| table.get(b"b", Lsn(lsn));
    assert_eq!(value(1), Some((Lsn(1), Entry::Inline(b"1"))));
    assert_eq!(value(2), Some((Lsn(2), Entry::Tombstone)));
    assert_eq!(value(3), Some((Lsn(3), Entry::Inline(b"3"))));
    assert_eq!(value(9), Some((Lsn(4), Entry::Tombstone)));
    assert_eq!(table.get(b"a", Lsn(1)), None);
    assert_eq!(table.get(b"a", Lsn(9)), Some((Lsn(2), Entry::Tombstone)));
    assert_eq!(table.get(b"zz", Lsn(9)), Some((Lsn(4), Entry::Tombstone)));
    assert_eq!(table.get(b"0", Lsn(9)), None);
}

#[test]
fn a_memtable_takes_a_bounded_number_of_ranges_but_a_whole_batch() {
    let table = Memtable::new(1 << 20);
    assert!(table.is_empty() && table.takes_ranges(RANGES_MAX, 1 << 20));
    for lsn in 1..=RANGES_MAX as u64 {
        assert!(table.takes_ranges(1, 2));
        table.delete_range(&range(1, Some(2)), Lsn(lsn));
    }
    assert!(!table.is_empty() && !table.takes_ranges(1, 2) && table.takes_ranges(0, 0));
    let range_tombstones = table.range_tombstones().expect("there are some");
    assert_eq!(range_tombstones.union(), [range(1, Some(2))]);
    let long = Memtable::new(1 << 20);
    long.delete_range(&KeyRange::new(vec![7; 4096], None), Lsn(1));
    assert!(!long.takes_ranges(1, RANGE_BYTES_MAX - 4095));
    assert!(long.takes_ranges(1, RANGE_BYTES_MAX - 4096));
}
