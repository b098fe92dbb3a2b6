//! The nodes of a memtable's tree, and tables of them that grow without moving.
//!
//! Everything in a node is atomic, because readers look while the one writer changes it; whether
//! what they saw belongs together, the tree's version counters tell them afterwards. Node numbers
//! and addresses that are read out of a torn node are still numbers and addresses that were valid.
//!
//! Keys are compared by a *prefix* first, a number whose order is theirs: the eight bytes behind
//! those that the table's keys are expected to have in common, its `shared` bytes. A key that does
//! not begin with them has the lowest number or the highest, whichever side of them it is on.

use std::cmp::Ordering as Order;

use argosy_base::Lsn;
use argosy_base::range::head;
use argosy_memory::prefetch;

use super::allocated;
use super::arena::{Address, Arena, AtomicAddress};
use super::sync::{AtomicU32, AtomicU64, INNER_WIDTH, LEAF_WIDTH, NODES_CHUNK, OnceLock, Ordering};

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// What the keys of a table are expected to begin with.
pub(super) struct Shared {
    bytes: Box<[u8]>,
    /// Of the bytes, and of ones in their places.
    head: u64,
    mask: u64,
}

impl Shared {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.into(),
            head: head(bytes),
            mask: head(&vec![0xff; bytes.len()]),
        }
    }

    /// The prefix of `key`.
    #[inline]
    fn prefix_of(&self, key: &[u8]) -> u64 {
        let len = self.bytes.len();
        // What most keys are like, without a call.
        if len <= 8
            && let Some(rest) = key.get(len..)
            && let Some(first) = rest.first_chunk::<8>()
            && (head(key) ^ self.head) & self.mask == 0
        {
            return head(first);
        }
        match key.strip_prefix(&*self.bytes) {
            Some(rest) => head(rest),
            None if key < &*self.bytes => 0,
            None => u64::MAX,
        }
    }
}

/// A place in the order: key ascending, then LSN descending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) key: &'a [u8],
    pub(super) lsn: Lsn,
    pub(super) prefix: u64,
}

impl<'a> Target<'a> {
    /// A place in a table whose prefixes are those behind `shared`.
    #[inline]
    pub(super) fn new(key: &'a [u8], lsn: Lsn, shared: &Shared) -> Self {
        let prefix = shared.prefix_of(key);
        Self { key, lsn, prefix }
    }

    /// How the entry at `address` stands to this place, their prefixes being equal.
    #[inline]
    pub(super) fn order_of(&self, arena: &Arena, address: Address) -> Order {
        let entry = arena.entry(address);
        match entry.key.cmp(self.key) {
            Order::Equal => self.lsn.cmp(&entry.lsn()),
            order => order,
        }
    }
}

/// Sorted entries: prefixes of keys, and where the entries are.
pub(super) struct Sorted<const WIDTH: usize> {
    count: AtomicU32,
    prefixes: [AtomicU64; WIDTH],
    addresses: [AtomicAddress; WIDTH],
}

impl<const WIDTH: usize> Sorted<WIDTH> {
    pub(super) fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            prefixes: std::array::from_fn(|_| AtomicU64::new(0)),
            addresses: std::array::from_fn(|_| AtomicAddress::none()),
        }
    }

    /// How many there are.
    #[inline]
    pub(super) fn count(&self) -> usize {
        (self.count.load(Ordering::Relaxed) as usize).min(WIDTH)
    }

    #[inline]
    pub(super) fn set_count(&self, count: usize) {
        let count = u32::try_from(count).expect("a node is small");
        self.count.store(count, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn prefix(&self, at: usize) -> u64 {
        self.prefixes[at].load(Ordering::Relaxed)
    }

    /// The address at `at`; `None` only where a reader came between two changes.
    #[inline]
    pub(super) fn address(&self, at: usize) -> Option<Address> {
        self.addresses[at].load()
    }

    #[inline]
    pub(super) fn set(&self, at: usize, prefix: u64, address: Option<Address>) {
        self.prefixes[at].store(prefix, Ordering::Relaxed);
        self.addresses[at].store(address);
    }

    /// How many entries stand before `target`.
    #[inline]
    pub(super) fn rank(&self, arena: &Arena, target: &Target<'_>) -> usize {
        let count = self.count();
        let (mut from, mut len) = (0, count);
        while len > 1 {
            let half = len / 2;
            from += if self.prefix(from + half - 1) < target.prefix {
                half
            } else {
                0
            };
            len -= half;
        }
        if len == 1 && self.prefix(from) < target.prefix {
            from += 1;
        }
        if from == count || self.prefix(from) != target.prefix {
            return from;
        }
        self.rank_among_equals(arena, target, from..count)
    }

    /// [`rank`](Self::rank), where entries with the target's prefix begin at `range`'s start.
    #[cold]
    fn rank_among_equals(
        &self,
        arena: &Arena,
        target: &Target<'_>,
        range: std::ops::Range<usize>,
    ) -> usize {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let before = self.prefix(middle) == target.prefix
                && self
                    .address(middle)
                    .is_some_and(|address| target.order_of(arena, address) == Order::Less);
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Makes room at `at` for one more; there must be some. The writer's.
    pub(super) fn open(&self, at: usize) {
        let count = self.count();
        for to in (at + 1..=count).rev() {
            self.set(to, self.prefix(to - 1), self.address(to - 1));
        }
        self.set_count(count + 1);
    }

    /// Moves the entries from `from` on to the front of `other`, which is empty. The writer's.
    pub(super) fn move_to(&self, other: &Self, from: usize) {
        let count = self.count();
        for at in from..count {
            other.set(at - from, self.prefix(at), self.address(at));
        }
        other.set_count(count - from);
        self.set_count(from);
    }
}

/// A node with entries.
pub(super) struct Leaf {
    /// Odd while the leaf is being changed.
    pub(super) version: AtomicU32,
    /// The next leaf, or [`NONE`].
    pub(super) next: AtomicU32,
    pub(super) entries: Sorted<LEAF_WIDTH>,
}

/// A node with nodes. Child `i + 1` begins with entry `i`; before it is child `i`.
pub(super) struct Inner {
    pub(super) separators: Sorted<INNER_WIDTH>,
    pub(super) first: AtomicU32,
    pub(super) children: [AtomicU32; INNER_WIDTH],
}

impl Inner {
    /// Child `at`.
    #[inline]
    pub(super) fn child(&self, at: usize) -> u32 {
        match at.checked_sub(1) {
            None => self.first.load(Ordering::Relaxed),
            Some(at) => self.children[at].load(Ordering::Relaxed),
        }
    }
}

/// What a table holds.
pub(super) trait Fresh {
    /// A node without content.
    fn fresh() -> Self;
}

impl Fresh for Leaf {
    fn fresh() -> Self {
        Self {
            version: AtomicU32::new(0),
            next: AtomicU32::new(NONE),
            entries: Sorted::new(),
        }
    }
}

impl Fresh for Inner {
    fn fresh() -> Self {
        Self {
            separators: Sorted::new(),
            first: AtomicU32::new(NONE),
            children: std::array::from_fn(|_| AtomicU32::new(NONE)),
        }
    }
}

/// Nodes by number.
pub(super) struct Nodes<N> {
    chunks: Box<[OnceLock<Box<[N]>>]>,
    used: AtomicU32,
}

impl<N: Fresh> Nodes<N> {
    /// Room for `count` nodes, none of them allocated.
    pub(super) fn new(count: usize) -> Self {
        Self {
            chunks: (0..count.div_ceil(NODES_CHUNK).max(1))
                .map(|_| OnceLock::new())
                .collect(),
            used: AtomicU32::new(0),
        }
    }

    /// The node, unless a reader came by a number that it cannot follow yet.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&N> {
        let number = number as usize;
        let chunk = self.chunks.get(number / NODES_CHUNK)?.get()?;
        Some(&chunk[number % NODES_CHUNK])
    }

    /// The node, for the writer, who knows that it is there.
    #[inline]
    pub(super) fn own(&self, number: u32) -> &N {
        self.get(number).expect("the writer made it")
    }

    /// Has the node brought near, which is about to be looked at in several places.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        if let Some(node) = self.get(number) {
            prefetch(node);
        }
    }

    /// One more node. The writer's.
    pub(super) fn add(&self) -> u32 {
        let number = self.used.load(Ordering::Relaxed);
        self.used.store(number + 1, Ordering::Relaxed);
        let chunk = &self.chunks[number as usize / NODES_CHUNK];
        chunk.get_or_init(|| {
            allocated::add(NODES_CHUNK * size_of::<N>());
            (0..NODES_CHUNK).map(|_| N::fresh()).collect()
        });
        number
    }

    /// Bytes allocated.
    pub(super) fn memory_bytes(&self) -> usize {
        let used = self.used.load(Ordering::Relaxed) as usize;
        used.next_multiple_of(NODES_CHUNK) * size_of::<N>()
    }
}

impl<N> Drop for Nodes<N> {
    fn drop(&mut self) {
        let used = self.used.load(Ordering::Relaxed) as usize;
        allocated::remove(used.next_multiple_of(NODES_CHUNK) * size_of::<N>());
    }
}
