//! The memtable: L0 in memory, a B+-tree for one inserter at a time and any number of readers.
//!
//! Entries are ordered by key ascending, then LSN descending, so that the first entry at or behind
//! (key, LSN) is what a reader at that LSN wants. Nothing is ever removed: a table is filled,
//! frozen, flushed and dropped as a whole.
//!
//! 1. `insert` writes the entry into the arena, where it stays.
//! 2. The tree takes its address and 8 bytes of its key into a leaf: those behind what the keys are
//!    expected to have in common. A search compares these bytes, side by side in a few cache lines,
//!    and touches an entry only where they are equal.
//! 3. Readers take no lock: they look, and look again if the writer was at the same place. Only one
//!    that finds it there for too long waits for it.
//!
//! The arena's capacity bounds the table, together with the tree's nodes (I9); writers ask
//! [`Memtable::fits`] first. Large values are not here but in the large log, with a pointer in their
//! place. Range tombstones stand beside the tree ([`range_tombstones`]); an entry that one shadows is
//! still there for cursors.

pub mod allocated;
#[expect(unsafe_code, reason = "entries are reached by address; see the file")]
mod arena;
mod down;
pub(crate) mod needed;
mod nodes;
pub(crate) mod range_tombstones;
mod sync;
mod tree;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::{KeyRange, Lsn, Moment, Pointer};

use crate::names::Entry;
use arena::{Address, Arena, ArenaEntry, Parts};
pub use down::DownCursor;
use nodes::Target;
pub use range_tombstones::RangeTombstones;
use tree::{OutOfDate, Spot, Tree};

/// Bytes that stand in the place of a value in the large log.
const POINTER_BYTES: usize = 12;

/// Most bytes of key and value of an entry. Longer values belong in a log.
pub(crate) const ENTRY_PAYLOAD_MAX: usize = KEY_BYTES_MAX + (32 << 10);

const INLINE: u8 = 1;
const POINTER: u8 = 2;
const TOMBSTONE: u8 = 3;
/// The value bytes are an expiry, one of the first two kinds, and what belongs to that.
const EXPIRING: u8 = 0;
/// Bytes in front of these.
const EXPIRY_BYTES: usize = 9;

/// What cursors share with the table.
struct Core {
    arena: Arena,
    tree: Tree,
}

/// See the module documentation.
pub struct Memtable {
    core: Arc<Core>,
    capacity: usize,
    entries: AtomicUsize,
    range_tombstones: range_tombstones::RangeTombstoneList,
}

impl Memtable {
    /// An empty table of at most `capacity` bytes, rounded up to whole chunks of the arena.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_shared(capacity, &[])
    }

    /// The same, for keys most of which begin with `shared`: these are found the fastest.
    #[must_use]
    pub(crate) fn with_shared(capacity: usize, shared: &[u8]) -> Self {
        let arena = Arena::new(capacity);
        let tree = Tree::new(arena.entries_max(), shared);
        Self {
            capacity,
            core: Arc::new(Core { arena, tree }),
            entries: AtomicUsize::new(0),
            range_tombstones: range_tombstones::RangeTombstoneList::default(),
        }
    }

    /// Most bytes that an entry takes in the arena.
    #[must_use]
    pub(crate) fn entry_bytes_max(key_len: usize, entry: &Entry<'_>) -> usize {
        let value_len = match entry.lasting() {
            Entry::Inline(value) => value.len(),
            Entry::Pointer { .. } => POINTER_BYTES,
            Entry::Tombstone | Entry::Until(..) => 0,
        };
        let expiry = entry.expiry().map_or(0, |_| EXPIRY_BYTES);
        Arena::entry_bytes(key_len + value_len + expiry)
    }

    /// Whether entries that take at most `bytes` together (the sum of their
    /// [`entry_bytes_max`](Self::entry_bytes_max)) are certain to fit, and leave the table within
    /// its capacity. An empty table looks at the arena alone.
    #[must_use]
    pub fn fits(&self, bytes: usize) -> bool {
        let entry_max = Arena::entry_bytes(ENTRY_PAYLOAD_MAX);
        let nodes = self.core.tree.memory_bytes();
        let within = self.core.arena.used_bytes() + nodes + bytes <= self.capacity;
        (within || self.has_no_entries()) && self.core.arena.fits(bytes, entry_max)
    }

    /// Most bytes that entries and nodes may take.
    #[must_use]
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether it was begun for more than `limit` bytes, and `bytes` more would make it take more than these.
    #[must_use]
    pub(crate) fn outgrows(&self, limit: usize, bytes: usize) -> bool {
        self.capacity > limit && self.memory_bytes().max(self.used_bytes() + bytes) > limit
    }

    /// Adds an entry. One thread at a time: whoever holds the region's writer lock. A second one
    /// would wait.
    ///
    /// # Panics
    /// When the entry does not [`fit`](Self::fits), is over [`ENTRY_PAYLOAD_MAX`], or has the key
    /// and LSN of one that is there.
    pub fn insert(&self, key: &[u8], lsn: Lsn, entry: Entry<'_>) {
        let mut pointer = [0; POINTER_BYTES];
        let expiring;
        let (kind, value) = match entry.lasting() {
            Entry::Inline(value) => (INLINE, value),
            Entry::Pointer { at, value_len } => {
                pointer[..8].copy_from_slice(&at.to_raw().to_le_bytes());
                pointer[8..].copy_from_slice(&value_len.to_le_bytes());
                (POINTER, &pointer[..])
            }
            Entry::Tombstone | Entry::Until(..) => (TOMBSTONE, &[][..]),
        };
        let (kind, value) = match entry.expiry() {
            None => (kind, value),
            Some(expiry) => {
                expiring = [&expiry.0.to_le_bytes(), &[kind][..], value].concat();
                (EXPIRING, expiring.as_slice())
            }
        };
        assert!(
            key.len() + value.len() <= ENTRY_PAYLOAD_MAX,
            "an entry of L0"
        );
        let Core { arena, tree } = &*self.core;
        let parts = Parts {
            lsn,
            key,
            kind,
            value,
        };
        tree.insert(arena, &parts);
        let entries = self.entries.load(Ordering::Relaxed);
        self.entries.store(entries + 1, Ordering::Relaxed);
    }

    /// Removes the keys of `range`. As [`insert`](Self::insert), by one thread at a time.
    ///
    /// # Panics
    /// When an earlier one has not a lower LSN.
    pub fn delete_range(&self, range: &KeyRange, lsn: Lsn) {
        self.range_tombstones.add(range, lsn);
    }

    /// Whether `count` more ranges with `bytes` of bounds may be removed here.
    #[must_use]
    pub(crate) fn takes_ranges(&self, count: usize, bytes: usize) -> bool {
        self.range_tombstones.takes(count, bytes)
    }

    /// The range tombstones; `None` where there are none.
    #[must_use]
    pub fn range_tombstones(&self) -> Option<Arc<RangeTombstones>> {
        self.range_tombstones.all()
    }

    /// The newest entry of `key` at or below `lsn_max`; a tombstone where a range tombstone shadows it.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8], lsn_max: Lsn) -> Option<(Lsn, Entry<'_>)> {
        let found = self.entry(key, lsn_max);
        if self.range_tombstones.is_empty() {
            return found;
        }
        let lsn = found.as_ref().map(|(lsn, _)| *lsn);
        match self.range_tombstones.newest(key, lsn, lsn_max) {
            Some(lsn) => Some((lsn, Entry::Tombstone)),
            None => found,
        }
    }

    #[inline]
    fn entry(&self, key: &[u8], lsn_max: Lsn) -> Option<(Lsn, Entry<'_>)> {
        let Core { arena, tree } = &*self.core;
        let (_, address) = tree.seek(arena, &tree.target(key, lsn_max))?;
        let found = arena.entry(address);
        (found.key == key).then(|| (found.lsn(), entry_of(&found)))
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether there is nothing: no entry, and no range tombstone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.has_no_entries() && self.range_tombstones.is_empty()
    }

    fn has_no_entries(&self) -> bool {
        self.entries.load(Ordering::Relaxed) == 0
    }

    /// Bytes that entries and nodes take, out of the capacity.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.core.arena.used_bytes() + self.core.tree.memory_bytes()
    }

    /// Bytes of memory allocated: grows with what is used, by a chunk at a time.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.core.arena.memory_bytes()
            + self.core.tree.memory_bytes()
            + self.range_tombstones.memory_bytes()
    }

    /// What all keys begin with, for a table of keys like these. For the writer.
    #[must_use]
    pub fn shared(&self) -> &[u8] {
        let Core { arena, tree } = &*self.core;
        let ends = (tree.seek(arena, &FIRST), tree.seek_before(arena, &LAST));
        let (Some((_, first)), Some((_, last))) = ends else {
            return &[];
        };
        let (first, last) = (arena.entry(first).key, arena.entry(last).key);
        let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        &first[..same]
    }

    /// A cursor that keeps the table's memory, before the first entry.
    #[must_use]
    pub fn cursor(&self) -> MemtableCursor {
        MemtableCursor {
            core: Arc::clone(&self.core),
            at: None,
        }
    }

    /// A cursor for the way down, as of `lsn_max`.
    #[must_use]
    pub fn down(&self, lsn_max: Lsn) -> DownCursor {
        DownCursor::new(&self.core, lsn_max)
    }

    /// The entries in order, as far as they are there when they are reached.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Lsn, Entry<'_>)> {
        let core = &*self.core;
        let first = core.tree.seek(&core.arena, &FIRST);
        let places = std::iter::successors(first, |(spot, address)| core.after(spot, *address));
        places.map(|(_, address)| {
            let found = core.arena.entry(address);
            (found.key, found.lsn(), entry_of(&found))
        })
    }
}

/// In front of every entry.
const FIRST: Target<'static> = Target {
    key: &[],
    lsn: Lsn(u64::MAX),
    prefix: 0,
};

/// Behind every entry: keys have at most [`KEY_BYTES_MAX`] bytes.
const LAST: Target<'static> = Target {
    key: &[0xff; KEY_BYTES_MAX + 1],
    lsn: Lsn(0),
    prefix: u64::MAX,
};

impl Core {
    /// The entry behind the one at `address`, which was found at `spot`.
    #[inline]
    fn after(&self, spot: &Spot, address: Address) -> Option<(Spot, Address)> {
        match self.tree.next(spot) {
            Ok(next) => {
                if let Some((spot, _)) = &next {
                    self.tree.prefetch_ahead(&self.arena, spot);
                }
                next
            }
            Err(OutOfDate) => self.after_entry(address),
        }
    }

    /// The same by the order alone: entries were inserted since.
    #[cold]
    fn after_entry(&self, address: Address) -> Option<(Spot, Address)> {
        let entry = self.arena.entry(address);
        match entry.lsn().0.checked_sub(1) {
            Some(older) => {
                let behind = self.tree.target(entry.key, Lsn(older));
                self.tree.seek(&self.arena, &behind)
            }
            None => {
                let next = argosy_base::range::successor(entry.key);
                let behind = self.tree.target(&next, Lsn(u64::MAX));
                self.tree.seek(&self.arena, &behind)
            }
        }
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Memtable({} entries, {} bytes)",
            self.len(),
            self.used_bytes()
        )
    }
}

/// Walks through a memtable in its order. What is inserted meanwhile is seen or not: a reader skips
/// LSNs above its own.
pub struct MemtableCursor {
    core: Arc<Core>,
    /// Where the cursor stands; `None` before the first and behind the last.
    at: Option<(Spot, Address)>,
}

impl MemtableCursor {
    /// Moves to the first entry at or behind (`key`, `lsn_max`): the newest of `key` at or below
    /// that LSN, or else the newest of the next key.
    pub fn seek(&mut self, key: &[u8], lsn_max: Lsn) {
        let target = self.core.tree.target(key, lsn_max);
        self.at = self.core.tree.seek(&self.core.arena, &target);
    }

    /// Moves to the first entry of all.
    pub(crate) fn seek_to_first(&mut self) {
        self.at = self.core.tree.seek(&self.core.arena, &FIRST);
    }

    /// Moves to the next entry. At the end it stays there.
    #[inline]
    pub fn advance(&mut self) {
        self.at = self
            .at
            .as_ref()
            .and_then(|(spot, address)| self.core.after(spot, *address));
    }

    /// The entry at the cursor: key, LSN, what the key was bound to. `None` at the end.
    #[inline]
    #[must_use]
    pub fn entry(&self) -> Option<(&[u8], Lsn, Entry<'_>)> {
        let (_, address) = self.at.as_ref()?;
        let found = self.core.arena.entry(*address);
        Some((found.key, found.lsn(), entry_of(&found)))
    }
}

#[inline]
fn entry_of<'a>(entry: &ArenaEntry<'a>) -> Entry<'a> {
    entry_of_kind(entry.kind(), entry.value)
}

#[inline]
fn entry_of_kind(kind: u8, value: &[u8]) -> Entry<'_> {
    match kind {
        INLINE => Entry::Inline(value),
        TOMBSTONE => Entry::Tombstone,
        EXPIRING => {
            let (head, value) = value.split_at(EXPIRY_BYTES);
            let mut expiry = [0; 8];
            expiry.copy_from_slice(&head[..8]);
            let expiry = Moment(u64::from_le_bytes(expiry));
            // It is one of the first two kinds.
            match head[8] {
                INLINE => Entry::Inline(value).until(Some(expiry)),
                _ => pointer_of(value).until(Some(expiry)),
            }
        }
        _ => pointer_of(value),
    }
}

#[inline]
fn pointer_of(value: &[u8]) -> Entry<'static> {
    let mut at = [0; 8];
    let mut value_len = [0; 4];
    at.copy_from_slice(&value[..8]);
    value_len.copy_from_slice(&value[8..POINTER_BYTES]);
    Entry::Pointer {
        at: Pointer::from_raw(u64::from_le_bytes(at)),
        value_len: u32::from_le_bytes(value_len),
    }
}

#[cfg(test)]
mod range_tombstones_tests;
#[cfg(test)]
mod tests;
