//! Against a model, and with readers at work while entries are added.

#![allow(clippy::cast_possible_truncation, reason = "tests use small numbers")]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::{Pointer, SegmentNumber};
use proptest::prelude::*;

use super::*;

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (n ^ n >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

/// An entry that depends on `lsn` alone, so that a reader can tell whether what it got is whole.
fn entry_for(lsn: Lsn, value: &mut Vec<u8>) -> Entry<'_> {
    value.clear();
    match lsn.0 % 5 {
        0 => Entry::Tombstone,
        1 => Entry::Pointer {
            at: Pointer::new(SegmentNumber(lsn.0), 7),
            value_len: lsn.0 as u32,
        },
        _ => {
            value.resize(mix(lsn.0) as usize % 90, lsn.0 as u8);
            Entry::Inline(value)
        }
    }
}

#[test]
fn an_empty_table_is_small_and_finds_nothing() {
    let table = Memtable::new(64 << 20);
    assert!(table.is_empty());
    let bound = (2 << 20) + (64 << 10);
    assert!(table.memory_bytes() <= bound, "{}", table.memory_bytes());
    assert_eq!(table.get(b"key", Lsn(u64::MAX)), None);
    let mut cursor = table.cursor();
    cursor.seek_to_first();
    assert_eq!(cursor.entry(), None);
    cursor.advance();
    cursor.seek(b"", Lsn(u64::MAX));
    assert_eq!(cursor.entry(), None);
    assert_eq!(table.iter().count(), 0);
    assert_eq!(down(&table, None, Lsn(u64::MAX)), []);
    assert_eq!(down(&table, Some(b"key"), Lsn(u64::MAX)), []);
}

#[test]
fn a_reader_sees_the_newest_entry_at_its_lsn() {
    let table = Memtable::new(1 << 20);
    table.insert(b"k", Lsn(3), Entry::Inline(b"three"));
    table.insert(b"k", Lsn(9), Entry::Tombstone);
    table.insert(b"k", Lsn(5), Entry::Inline(b""));
    table.insert(b"k\0", Lsn(4), Entry::Inline(b"another"));
    assert_eq!(table.get(b"k", Lsn(2)), None);
    assert_eq!(
        table.get(b"k", Lsn(4)),
        Some((Lsn(3), Entry::Inline(b"three")))
    );
    assert_eq!(table.get(b"k", Lsn(8)), Some((Lsn(5), Entry::Inline(b""))));
    assert_eq!(table.get(b"k", Lsn(9)), Some((Lsn(9), Entry::Tombstone)));
    assert_eq!(table.get(b"k\0", Lsn(3)), None);
    assert_eq!(table.len(), 4);
    let lsns: Vec<_> = table.iter().map(|(_, lsn, _)| lsn.0).collect();
    assert_eq!(lsns, [9, 5, 3, 4], "by key, newest first");
}

#[test]
#[should_panic(expected = "every entry has an LSN of its own")]
fn the_same_key_and_lsn_twice_is_a_mistake() {
    let table = Memtable::new(1 << 20);
    table.insert(b"k", Lsn(3), Entry::Tombstone);
    table.insert(b"k", Lsn(3), Entry::Tombstone);
}

#[test]
fn what_fits_can_be_inserted_up_to_the_capacity() {
    for capacity in [1, 64 << 10, 300_000, 1 << 20] {
        let table = Memtable::new(capacity);
        let mut value = Vec::new();
        let mut taken = 0;
        for n in 0.. {
            value.resize(mix(n) as usize % 6000, 1);
            let entry = Entry::Inline(&value);
            let key = mix(n).to_le_bytes();
            let bytes = Memtable::entry_bytes_max(key.len(), &entry);
            if !table.fits(bytes) {
                break;
            }
            table.insert(&key, Lsn(n + 1), entry);
            taken += value.len();
            assert!(table.memory_bytes() < capacity + (192 << 10) + capacity / 8);
        }
        // The end of each chunk stays empty at worst by the longest of these entries.
        assert!(taken + 10_000 > capacity / 10 * 8, "{taken} of {capacity}");
        assert!(!table.fits(capacity.max(8192)));
    }
}

#[test]
fn a_batch_that_fits_can_be_inserted_whole() {
    let table = Memtable::new(1 << 20);
    let entry = Entry::Inline(&[7; 3000]);
    let one = Memtable::entry_bytes_max(8, &entry);
    let many = (1..).take_while(|n| table.fits(n * one)).last().unwrap();
    assert!(many > 100, "{many}");
    for n in 0..many as u64 {
        table.insert(&mix(n).to_le_bytes(), Lsn(n + 1), entry);
    }
}

#[test]
fn a_cursor_outlives_the_table() {
    let table = Memtable::new(1 << 20);
    table.insert(b"a", Lsn(1), Entry::Inline(b"1"));
    table.insert(b"b", Lsn(2), Entry::Inline(b"2"));
    let mut cursor = table.cursor();
    drop(table);
    cursor.seek(b"a\0", Lsn(9));
    assert_eq!(
        cursor.entry(),
        Some((&b"b"[..], Lsn(2), Entry::Inline(b"2")))
    );
}

/// The keys below `bound` from the highest down, and the LSN of what a reader at `lsn_max` sees of
/// each, found on the way down.
fn down(table: &Memtable, bound: Option<&[u8]>, lsn_max: Lsn) -> Vec<(Vec<u8>, u64)> {
    let mut cursor = table.down(lsn_max);
    if let Some(bound) = bound {
        cursor.seek(bound);
    }
    let mut seen = vec![];
    let mut value = Vec::new();
    cursor.advance();
    while let Some((key, entry)) = cursor.entry() {
        let (lsn, same) = table.get(key, lsn_max).expect("a key that the cursor saw");
        assert_eq!(entry, same);
        assert_eq!(entry, entry_for(lsn, &mut value));
        seen.push((key.to_vec(), lsn.0));
        cursor.advance();
    }
    cursor.advance();
    assert_eq!(cursor.entry(), None, "below the lowest key it stays");
    seen
}

/// The same, out of all entries in their order.
fn seen_at<'a>(
    entries: impl Iterator<Item = (&'a Vec<u8>, u64)>,
    lsn_max: Lsn,
) -> Vec<(Vec<u8>, u64)> {
    let mut seen: Vec<(Vec<u8>, u64)> = vec![];
    for (key, lsn) in entries.filter(|(_, lsn)| *lsn <= lsn_max.0) {
        if seen.last().is_none_or(|(last, _)| last != key) {
            seen.push((key.clone(), lsn));
        }
    }
    seen.reverse();
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Few and short keys over a small alphabet, so that prefixes, ties and versions are common.
    #[test]
    fn it_agrees_with_a_sorted_map(
        ops in proptest::collection::vec((proptest::collection::vec(0u8..3, 1..9), 1u64..5), 1..300),
        shared in proptest::collection::vec(0u8..3, 0..4),
    ) {
        let table = Memtable::with_shared(1 << 20, &shared);
        let mut model = BTreeMap::new();
        let mut lsn = 0;
        let mut value = Vec::new();
        for (key, step) in &ops {
            lsn += step;
            let entry = entry_for(Lsn(lsn), &mut value);
            table.insert(key, Lsn(lsn), entry);
            model.insert((key.clone(), Reverse(lsn)), ());
        }
        let found: Vec<_> = table.iter().map(|(key, lsn, entry)| {
            assert_eq!(entry, entry_for(lsn, &mut value));
            (key.to_vec(), Reverse(lsn.0))
        }).collect();
        prop_assert_eq!(&found, &model.keys().cloned().collect::<Vec<_>>());
        let begins = |key: &[u8]| key.starts_with(table.shared());
        prop_assert!(found.iter().all(|(key, _)| begins(key)));
        let mut cursor = table.cursor();
        for (key, lsn) in ops.iter().map(|(key, _)| key).zip((0..lsn + 2).cycle()) {
            let expected = model.range((key.clone(), Reverse(lsn))..).next();
            cursor.seek(key, Lsn(lsn));
            let stands = cursor.entry().map(|(key, lsn, _)| (key.to_vec(), Reverse(lsn.0)));
            prop_assert_eq!(stands.as_ref(), expected.map(|(at, ())| at));
            let got = table.get(key, Lsn(lsn)).map(|(lsn, _)| lsn.0);
            let of_key = expected.filter(|((found, _), ())| found == key);
            prop_assert_eq!(got, of_key.map(|((_, lsn), ())| lsn.0));
        }
        for lsn_max in [0, 1, lsn / 3, lsn / 2, lsn, lsn + 9].map(Lsn) {
            let seen = seen_at(found.iter().map(|(key, Reverse(lsn))| (key, *lsn)), lsn_max);
            prop_assert_eq!(down(&table, None, lsn_max), seen.clone());
            for (bound, _) in ops.iter().take(20) {
                let below: Vec<_> = seen.iter().filter(|(key, _)| key < bound).cloned().collect();
                prop_assert_eq!(down(&table, Some(bound.as_slice()), lsn_max), below);
            }
        }
    }
}

/// Leaves and inner nodes are split at their ends and in their middles, several levels deep; cursors
/// that stand somewhere meanwhile go on.
#[test]
fn many_entries_in_any_order_stay_in_order() {
    let total = 60_000u64;
    for order in 0..8 {
        let shared: &[u8] = if order < 4 { b"" } else { b"the-same-0" };
        let table = Memtable::with_shared(16 << 20, shared);
        let mut cursor = table.cursor();
        for n in 0..total {
            let key = match order % 4 {
                0 => n,
                1 => total - 1 - n,
                2 => n * 7919 % total,
                _ if n % 2 == 0 => n,
                _ => total - n,
            };
            // The first 8 bytes never decide; those behind the shared ones do.
            let key = format!("the-same-{key:08}");
            table.insert(key.as_bytes(), Lsn(n + 1), Entry::Tombstone);
            if n == total / 2 {
                cursor.seek_to_first();
            } else if n % 8 == 0 {
                cursor.advance();
            }
        }
        let mut keys = 0..total;
        for (key, _, _) in table.iter() {
            let expected = keys.next().map(|n| format!("the-same-{n:08}").into_bytes());
            assert_eq!(Some(key), expected.as_deref(), "order {order}");
        }
        assert_eq!(keys.next(), None);
        assert_eq!(table.shared(), b"the-same-000");
        let mut last = Vec::new();
        while let Some((key, _, _)) = cursor.entry() {
            assert!(key > last.as_slice(), "the cursor only goes forwards");
            last = key.to_vec();
            cursor.advance();
        }
        let mut falling = table.down(Lsn(u64::MAX));
        for n in (0..total).rev() {
            falling.advance();
            let found = falling.entry().map(|(key, _)| key.to_vec());
            assert_eq!(found, Some(format!("the-same-{n:08}").into_bytes()));
        }
        falling.advance();
        assert_eq!(falling.entry(), None);
        let end = format!("the-same-{:08}", total - 1);
        assert_eq!(last, end.as_bytes(), "and reaches the end");
        for n in (0..total).step_by(997) {
            let key = format!("the-same-{n:08}");
            assert!(table.get(key.as_bytes(), Lsn(u64::MAX)).is_some());
            let between = format!("the-same-{n:08}+");
            assert_eq!(table.get(between.as_bytes(), Lsn(u64::MAX)), None);
        }
    }
}

/// While one thread inserts, others find everything that was announced to them, whole, and in order.
#[test]
fn readers_need_no_lock() {
    let table = Memtable::new(16 << 20);
    let announced = AtomicU64::new(0);
    let total = 30_000;
    let key_of = |lsn: u64| format!("{:08x}", mix(lsn % 9_973) as u32).into_bytes();
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (table, announced) = (&table, &announced);
            scope.spawn(move || {
                let mut value = Vec::new();
                let mut round = reader;
                let mut seen = 0;
                while seen < total {
                    seen = announced.load(Ordering::Acquire);
                    round += 1;
                    if seen == 0 {
                        continue;
                    }
                    let wanted = mix(round) % seen + 1;
                    let (lsn, entry) = table.get(&key_of(wanted), Lsn(wanted)).unwrap();
                    assert_eq!(lsn, Lsn(wanted));
                    assert_eq!(entry, entry_for(lsn, &mut value));
                    if round.is_multiple_of(512) {
                        let before = table.len();
                        let order: Vec<_> = table.iter().map(|(k, l, _)| (k, Reverse(l))).collect();
                        assert!(order.is_sorted());
                        assert!(order.len() >= before);
                        let owned = order.iter().map(|(k, Reverse(l))| (k.to_vec(), l.0));
                        let owned: Vec<_> = owned.collect();
                        let expected = seen_at(owned.iter().map(|(k, l)| (k, *l)), Lsn(seen));
                        assert_eq!(down(table, None, Lsn(seen)), expected);
                    }
                }
            });
        }
        let mut value = Vec::new();
        for lsn in 1..=total {
            table.insert(&key_of(lsn), Lsn(lsn), entry_for(Lsn(lsn), &mut value));
            announced.store(lsn, Ordering::Release);
        }
    });
    assert_eq!(table.len() as u64, total);
}
