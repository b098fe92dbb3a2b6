//! The protocol between the memtable's writer and its readers, in every order that the memory model
//! allows.
//!
//! The memtable's own sources are compiled here once more, over the atomics of the model checker
//! `loom` instead of the standard library's (`sync`), and with narrow nodes. Loom then runs each
//! test again and again, with another interleaving of the threads each time, and with another of
//! the values that a relaxed load may return. What a search finds has to be what was announced.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::undocumented_unsafe_blocks,
    reason = "some of the sources' parts serve others, and lints look at them where they live"
)]

#[path = "../src/memtable"]
mod memtable {
    #[expect(unsafe_code, reason = "as in the memtable")]
    pub(crate) mod arena;
    pub(crate) mod nodes;
    pub(crate) mod range_tombstones;
    pub(crate) mod tree;

    /// What is allocated is counted elsewhere.
    mod allocated {
        pub(super) const fn add(_bytes: usize) {}
        pub(super) const fn remove(_bytes: usize) {}
    }

    /// The twin of `src/memtable/sync.rs`.
    mod sync {
        pub(super) use loom::hint::spin_loop;
        pub(super) use loom::sync::Mutex;
        pub(super) use loom::sync::atomic::{
            AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        };

        pub(super) const LEAF_WIDTH: usize = 2;
        pub(super) const INNER_WIDTH: usize = 4;
        pub(super) const NODES_CHUNK: usize = 2;
        pub(super) const LOOKS_MAX: usize = 1;

        /// What arc-swap promises: whoever finds a pointer finds what it points to.
        #[derive(Debug)]
        pub(super) struct ArcSwapOption<T> {
            stored: std::sync::Mutex<Vec<Option<std::sync::Arc<T>>>>,
            last: AtomicUsize,
        }

        impl<T> Default for ArcSwapOption<T> {
            fn default() -> Self {
                Self {
                    stored: std::sync::Mutex::new(vec![None]),
                    last: AtomicUsize::new(0),
                }
            }
        }

        impl<T> ArcSwapOption<T> {
            pub(super) fn store(&self, value: Option<std::sync::Arc<T>>) {
                let mut stored = self.stored.lock().expect("nobody panics with it");
                stored.push(value);
                let last = stored.len() - 1;
                drop(stored);
                self.last.store(last, Ordering::Release);
            }

            pub(super) fn load(&self) -> Option<std::sync::Arc<T>> {
                let last = self.last.load(Ordering::Acquire);
                self.stored.lock().expect("nobody panics with it")[last].clone()
            }

            pub(super) fn load_full(&self) -> Option<std::sync::Arc<T>> {
                self.load()
            }
        }

        /// The standard library's, with what it promises in words that loom knows.
        pub(super) struct OnceLock<T> {
            value: std::sync::OnceLock<T>,
            is_set: loom::sync::atomic::AtomicBool,
        }

        impl<T> OnceLock<T> {
            pub(super) fn new() -> Self {
                Self {
                    value: std::sync::OnceLock::new(),
                    is_set: loom::sync::atomic::AtomicBool::new(false),
                }
            }

            pub(super) fn get(&self) -> Option<&T> {
                let is_set = self.is_set.load(Ordering::Acquire);
                self.value.get().filter(|_| is_set)
            }

            pub(super) fn get_or_init(&self, make: impl FnOnce() -> T) {
                self.value.get_or_init(make);
                self.is_set.store(true, Ordering::Release);
            }
        }
    }

    /// A memtable's range tombstones, without the tree beside which they stand.
    #[derive(Default)]
    pub(super) struct Memtable {
        range_tombstones: range_tombstones::RangeTombstoneList,
    }

    impl Memtable {
        /// Removes `[from, to)` at `lsn`.
        pub(super) fn delete_range(&self, from: u8, to: u8, lsn: u64) {
            let range = KeyRange::new([from], Some(vec![to]));
            self.range_tombstones.add(&range, Lsn(lsn));
        }

        /// As whoever asks for `key` does it: the LSN at which it was removed, if there are any ranges.
        pub(super) fn removed(&self, key: u8) -> Option<Option<u64>> {
            let newest = || self.range_tombstones.newest(&[key], None, Lsn(u64::MAX));
            (!self.range_tombstones.is_empty()).then(|| newest().map(|lsn| lsn.0))
        }

        pub(super) fn range_tombstones(
            &self,
        ) -> Option<std::sync::Arc<range_tombstones::RangeTombstones>> {
            self.range_tombstones.all()
        }
    }

    /// A memtable without its front: the arena and the tree over it.
    pub(super) struct Table {
        arena: arena::Arena,
        tree: tree::Tree,
    }

    impl Table {
        /// A table with `keys`, each with its own byte as the value.
        pub(super) fn new(keys: &[u8]) -> Self {
            let table = Self {
                arena: arena::Arena::new(1),
                tree: tree::Tree::new(16, &[]),
            };
            keys.iter().for_each(|&key| table.insert(key));
            table
        }

        pub(super) fn insert(&self, key: u8) {
            let parts = arena::Parts {
                lsn: Lsn(u64::from(key)),
                key: &[key],
                kind: 1,
                value: &[key, key],
            };
            self.tree.insert(&self.arena, &parts);
        }

        /// The first key at or behind `key`, checked to be whole.
        pub(super) fn seek(&self, key: u8) -> Option<u8> {
            let key = [key];
            let target = self.tree.target(&key, Lsn(u64::MAX));
            let (_, address) = self.tree.seek(&self.arena, &target)?;
            Some(self.whole(address))
        }

        /// All keys from the front on, by way of spots as long as they hold.
        pub(super) fn walk(&self) -> Vec<u8> {
            let front = self.tree.target(&[], Lsn(u64::MAX));
            let mut keys = Vec::new();
            let mut at = self.tree.seek(&self.arena, &front);
            while let Some((spot, address)) = at {
                keys.push(self.whole(address));
                at = match self.tree.next(&spot) {
                    Ok(next) => next,
                    Err(tree::OutOfDate) => {
                        let next = [keys[keys.len() - 1] + 1];
                        let behind = self.tree.target(&next, Lsn(u64::MAX));
                        self.tree.seek(&self.arena, &behind)
                    }
                };
            }
            keys
        }

        /// The last key below `key`, checked to be whole.
        pub(super) fn seek_before(&self, key: u8) -> Option<u8> {
            let key = [key];
            let target = self.tree.target(&key, Lsn(u64::MAX));
            let (_, address) = self.tree.seek_before(&self.arena, &target)?;
            Some(self.whole(address))
        }

        /// All keys from the last on downwards, by way of spots as long as they hold.
        pub(super) fn walk_down(&self) -> Vec<u8> {
            let mut keys = Vec::new();
            let end = self.tree.target(&[0xff], Lsn(u64::MAX));
            let mut at = self.tree.seek_before(&self.arena, &end);
            while let Some((spot, address)) = at {
                keys.push(self.whole(address));
                at = match self.tree.previous(&spot) {
                    Ok(previous) => Some(previous),
                    Err(tree::OutOfDate) => {
                        let here = [keys[keys.len() - 1]];
                        let front = self.tree.target(&here, Lsn(u64::MAX));
                        self.tree.seek_before(&self.arena, &front)
                    }
                };
            }
            keys
        }

        fn whole(&self, address: arena::Address) -> u8 {
            let entry = self.arena.entry(address);
            let key = entry.key[0];
            assert_eq!(entry.key, [key]);
            assert_eq!(entry.value, [key, key]);
            assert_eq!(entry.lsn(), Lsn(u64::from(key)));
            key
        }
    }

    use argosy_base::{KeyRange, Lsn};
}

use loom::sync::Arc;
use memtable::{Memtable, Table};

/// Runs `test` in all orders in which threads are interrupted at most `interruptions` times. (Bugs
/// of such protocols need one or two.)
fn model(interruptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(test);
}

/// Inserts `key` in one thread while `read` looks in another.
fn while_inserting(table: Table, key: u8, read: impl FnOnce(&Table) + 'static) {
    let table = Arc::new(table);
    let reader = loom::thread::spawn({
        let table = Arc::clone(&table);
        move || read(&table)
    });
    table.insert(key);
    reader.join().expect("no search failed");
    assert_eq!(table.seek(key), Some(key));
}

/// A leaf's entries move up to make room. A search in it finds what has been there all along.
#[test]
fn an_entry_is_found_while_it_moves_up() {
    model(3, || {
        while_inserting(Table::new(&[20]), 10, |table| {
            assert_eq!(table.seek(20), Some(20));
        });
    });
}

/// The new entry is seen whole or not at all, and what is behind it in either case.
#[test]
fn a_new_entry_is_there_or_not() {
    model(3, || {
        while_inserting(Table::new(&[20]), 10, |table| {
            let first = table.seek(5);
            assert!(first == Some(10) || first == Some(20), "{first:?}");
            if first == Some(10) {
                assert_eq!(table.seek(10), Some(10), "what was seen stays");
            }
        });
    });
}

/// The first entry comes into memory that the writer has just allocated.
#[test]
fn the_first_entry_is_there_whole_or_not() {
    model(3, || {
        while_inserting(Table::new(&[]), 20, |table| {
            let found = table.seek(20);
            assert!(found.is_none_or(|found| found == 20), "{found:?}");
        });
    });
}

/// The first split of all: a new leaf, and the first inner node over both.
#[test]
fn an_entry_is_found_while_its_leaf_is_split() {
    for (before, new) in [([20, 30], 10), ([10, 30], 20), ([10, 20], 30)] {
        model(2, move || {
            while_inserting(Table::new(&before), new, move |table| {
                assert_eq!(table.seek(before[1]), Some(before[1]));
            });
        });
    }
}

/// An inner node is split, and the tree becomes one level higher.
#[test]
fn an_entry_is_found_while_the_tree_becomes_higher() {
    let before: Vec<u8> = (1..=12).map(|n| n * 10).collect();
    model(3, move || {
        while_inserting(Table::new(&before), 125, |table| {
            assert_eq!(table.seek(35), Some(40));
            assert_eq!(table.seek(115), Some(120));
        });
    });
}

/// A walk over the leaves sees everything that was there when it began, once and in order.
#[test]
fn a_walk_misses_nothing_while_entries_are_added() {
    for (before, new) in [([10, 30], 20), ([10, 20], 30)] {
        model(3, move || {
            while_inserting(Table::new(&before), new, move |table| {
                let mut seen = table.walk();
                assert!(seen.is_sorted(), "{seen:?}");
                seen.retain(|key| *key != new);
                assert_eq!(seen, before);
            });
        });
    }
}

/// The same from the last entry on downwards.
#[test]
fn a_walk_downwards_misses_nothing_while_entries_are_added() {
    for (before, new) in [([10, 30], 20), ([10, 20], 30), ([20, 30], 10)] {
        model(2, move || {
            while_inserting(Table::new(&before), new, move |table| {
                let mut seen = table.walk_down();
                seen.reverse();
                assert!(seen.is_sorted(), "{seen:?}");
                seen.retain(|key| *key != new);
                assert_eq!(seen, before);
            });
        });
    }
}

/// What is in front of a key is found while its leaf is split, and while the tree becomes higher.
#[test]
fn what_is_in_front_is_found_while_nodes_are_split() {
    for (before, new) in [([20, 30], 10), ([10, 30], 20), ([10, 20], 30)] {
        model(2, move || {
            while_inserting(Table::new(&before), new, move |table| {
                let found = table.seek_before(before[1]);
                assert!(found == Some(before[0]) || found == Some(new), "{found:?}");
            });
        });
    }
    let before: Vec<u8> = (1..=12).map(|n| n * 10).collect();
    model(2, move || {
        while_inserting(Table::new(&before), 125, |table| {
            assert_eq!(table.seek_before(115), Some(110));
        });
    });
}

/// Two readers that come upon the writer in the middle of a change wait for it, and not for each
/// other: neither looks more often than it may, and all of them end.
#[test]
fn readers_that_wait_for_the_writer_all_end() {
    model(1, || {
        let table = Arc::new(Table::new(&[30]));
        let readers = [(); 2].map(|()| {
            let table = Arc::clone(&table);
            loom::thread::spawn(move || assert_eq!(table.seek(30), Some(30)))
        });
        table.insert(20);
        for reader in readers {
            reader.join().expect("no search failed");
        }
    });
}

/// Ranges are removed while somebody asks for their keys: whoever knows of one finds it.
#[test]
fn a_removed_range_is_found_by_who_knows_of_one() {
    model(3, || {
        let table = Arc::new(Memtable::default());
        let reader = loom::thread::spawn({
            let table = Arc::clone(&table);
            move || {
                if let Some(first) = table.removed(15) {
                    assert_eq!(first, Some(1), "it is in the first range");
                }
                if let Some(second) = table.removed(25) {
                    assert!(second.is_none_or(|lsn| lsn == 2), "{second:?}");
                    assert_eq!(table.removed(15), Some(Some(1)), "what was seen stays");
                }
            }
        });
        table.delete_range(10, 20, 1);
        table.delete_range(20, 30, 2);
        reader.join().expect("what it knew of was there");
        assert_eq!(
            [15, 25, 35].map(|key| table.removed(key)),
            [Some(Some(1)), Some(Some(2)), Some(None)]
        );
    });
}

/// The same for who takes all of them.
#[test]
fn removed_ranges_are_there_for_who_takes_all() {
    model(3, || {
        let table = Arc::new(Memtable::default());
        let reader = loom::thread::spawn({
            let table = Arc::clone(&table);
            move || table.removed(15).is_none() || table.range_tombstones().is_some()
        });
        table.delete_range(10, 20, 1);
        assert!(reader.join().expect("it looked"), "there was one");
    });
}
