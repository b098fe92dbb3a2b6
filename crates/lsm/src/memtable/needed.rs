//! How much memory memtables take that are filled from a log, as it is known before they are.
//!
//! 1. An entry takes its bytes of the arena, and its part of the tree's nodes, which may be half empty.
//! 2. A range tombstone takes its bounds, twice at worst.
//! 3. Each table ends in chunks, of the arena and of nodes, that are used in part. A table is closed when something
//!    does not fit any more, so there are as many tables as what they hold fills beside the first nodes, and one.

use argosy_base::KeyRange;

use super::Memtable;
use super::arena::Arena;
use super::nodes::{Inner, Leaf};
use super::range_tombstones::{RANGE_BYTES_MAX, RANGES_MAX, RangeTombstone, bound_bytes};
use super::sync::{INNER_WIDTH, LEAF_WIDTH, NODES_CHUNK};
use crate::names::Entry;

/// Bytes of nodes for an entry: leaves are half full at least, and inner nodes to a quarter.
const ENTRY_NODE_BYTES: usize = size_of::<Leaf>().div_ceil(LEAF_WIDTH / 2)
    + size_of::<Inner>().div_ceil(LEAF_WIDTH / 2 * (INNER_WIDTH / 4));
/// Bytes of nodes of a table that are allocated and not used, at most.
const TABLE_NODE_BYTES: usize = NODES_CHUNK * (size_of::<Leaf>() + size_of::<Inner>());

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needed {
    /// Bytes of entries, and of their nodes.
    entry_bytes: usize,
    ranges: usize,
    /// Bytes of the bounds of ranges.
    range_bytes: usize,
}

impl Needed {
    /// An entry of a key of `key_len` bytes.
    pub(crate) fn add_entry(&mut self, key_len: usize, entry: &Entry<'_>) {
        self.entry_bytes += Memtable::entry_bytes_max(key_len, entry) + ENTRY_NODE_BYTES;
    }

    /// A range that is removed.
    pub(crate) fn add_range(&mut self, range: &KeyRange) {
        self.ranges += 1;
        self.range_bytes += bound_bytes(range);
    }

    /// Bytes of all memtables, of `table_bytes` each; 0 where none is needed.
    pub(crate) fn bytes(&self, table_bytes: usize) -> usize {
        if *self == Self::default() {
            return 0;
        }
        // Small tables are filled by their nodes to a large part.
        let filled = table_bytes.saturating_sub(TABLE_NODE_BYTES);
        let filled = filled.max(table_bytes / 4).max(1);
        let by_ranges = self.ranges / RANGES_MAX + self.range_bytes / RANGE_BYTES_MAX;
        let tables = self.entry_bytes / filled + by_ranges + 1;
        let slack = Arena::chunk_bytes_of(table_bytes) + TABLE_NODE_BYTES;
        let ranges = 2 * (self.ranges * size_of::<RangeTombstone>() + self.range_bytes);
        self.entry_bytes + ranges + tables * slack
    }
}

#[cfg(test)]
mod tests {
    use argosy_base::Lsn;

    use super::*;

    /// What is needed is what is taken at least. Beside the chunks of the tables it is three times that at most: small
    /// tables are closed for the sake of their nodes, of which an entry may have more or fewer.
    #[test]
    fn tables_take_what_was_needed_at_most() {
        for (table_bytes, value_len, entries) in [
            (64 << 10, 0, 10_000_u64),
            (64 << 10, 100, 5_000),
            (1 << 20, 10, 100_000),
            (1 << 20, 900, 5_000),
            (4 << 20, 100, 50_000),
            (4 << 20, 0, 3),
        ] {
            let value = vec![b'v'; value_len];
            let mut needed = Needed::default();
            assert_eq!(needed.bytes(table_bytes), 0);
            let mut tables = vec![Memtable::new(table_bytes)];
            for n in 0..entries {
                let key = format!("{:012}", n * 7919 % 1_000_003);
                let entry = Entry::Inline(&value);
                needed.add_entry(key.len(), &entry);
                let bytes = Memtable::entry_bytes_max(key.len(), &entry);
                if !tables.last().is_some_and(|table| table.fits(bytes)) {
                    tables.push(Memtable::new(table_bytes));
                }
                let table = tables.last().expect("there is one");
                table.insert(key.as_bytes(), Lsn(n + 1), entry);
            }
            let taken: usize = tables.iter().map(Memtable::memory_bytes).sum();
            let needed = needed.bytes(table_bytes);
            assert!(
                taken <= needed,
                "{taken} of {needed} in tables of {table_bytes}"
            );
            let slack = tables.len() * (Arena::chunk_bytes_of(table_bytes) + TABLE_NODE_BYTES);
            assert!(needed <= 3 * taken + slack, "{needed} for {taken}");
        }
    }

    #[test]
    fn ranges_count() {
        let mut needed = Needed::default();
        let table = Memtable::new(64 << 10);
        for n in 0..100_u64 {
            let key = |end| format!("{n:08}{end}").into_bytes();
            let range = KeyRange::new(key("a"), Some(key("b")));
            needed.add_range(&range);
            table.delete_range(&range, Lsn(n + 1));
        }
        assert!(table.memory_bytes() <= needed.bytes(64 << 10));
    }
}
