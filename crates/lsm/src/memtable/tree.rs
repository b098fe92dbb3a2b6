//! The memtable's B+-tree: one writer at a time, any number of readers, no locks for them.
//!
//! The writer descends to a leaf and opens a gap for the new entry there. A leaf that is full is
//! split first, and the nodes above it where they are full, too. Readers descend without asking
//! anyone, and find out afterwards whether they may believe what they saw:
//!
//! - every leaf has a version, which is odd while the leaf is being changed;
//! - the tree has a *shape* version, which is odd while leaves are split and inner nodes change.
//!
//! A reader notes both before it looks and compares them when it has looked; where one has changed
//! or is odd, it looks again. Splits are rare and short, and so are changes of one leaf. (Partners:
//! the writer's release fence behind making a version odd, and the readers' acquire fence before
//! they compare; the writer's release store of the even version, and the readers' acquire load.)
//!
//! The writer may be taken off its CPU in the middle of a change. So a reader that has looked
//! [`LOOKS_MAX`] times in vain sleeps on the lock that the writer holds, and looks once more while
//! nobody can insert: no search takes more looks than that, and none waits at the cost of a CPU.
//! `tests/memtable_protocol.rs` runs all of this under a model checker.
//!
//! Nothing is ever removed, so what has been found stays valid for as long as the tree lives.

use argosy_base::Lsn;

use super::arena::{Address, Arena, Parts};
use super::nodes::{Inner, Leaf, NONE, Nodes, Shared, Target};
use super::sync::{
    AtomicU32, AtomicU64, INNER_WIDTH, LEAF_WIDTH, LOOKS_MAX, Mutex, Ordering, fence, spin_loop,
};

/// Most inner levels: with half-full nodes enough for 2^32 leaves.
const LEVELS_MAX: usize = 8;

/// See the module documentation.
pub(super) struct Tree {
    leaves: Nodes<Leaf>,
    inners: Nodes<Inner>,
    /// Odd while splits are under way.
    shape: AtomicU32,
    /// The number of inner levels (high half) and of the topmost node (low half).
    root: AtomicU64,
    /// What keys are expected to begin with; see [`super::nodes`].
    shared: Shared,
    /// Held by whoever inserts, and by a reader that has looked in vain for too long.
    inserting: Mutex<()>,
}

/// A place in a leaf, and what has to be unchanged for it to be one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    leaf: u32,
    at: usize,
    leaf_version: u32,
    shape: u32,
}

/// The way down to a leaf: inner nodes, and which child was taken.
struct Path {
    steps: [(u32, usize); LEVELS_MAX],
    levels: usize,
    leaf: u32,
}

impl Tree {
    /// An empty tree for at most `entries_max` entries, the fastest where keys begin with `shared`.
    pub(super) fn new(entries_max: usize, shared: &[u8]) -> Self {
        // Leaves are at least half full, but for the last one.
        let leaves = entries_max / (LEAF_WIDTH / 2) + 2;
        let inners = leaves / (INNER_WIDTH / 4) + LEVELS_MAX;
        let tree = Self {
            leaves: Nodes::new(leaves),
            inners: Nodes::new(inners),
            shape: AtomicU32::new(0),
            root: AtomicU64::new(0),
            shared: Shared::new(shared),
            inserting: Mutex::new(()),
        };
        assert_eq!(tree.leaves.add(), 0, "the first leaf is the first root");
        tree
    }

    /// Bytes of nodes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.leaves.memory_bytes() + self.inners.memory_bytes()
    }

    /// A place in this tree.
    #[inline]
    pub(super) fn target<'a>(&self, key: &'a [u8], lsn: Lsn) -> Target<'a> {
        Target::new(key, lsn, &self.shared)
    }

    // --- Readers ---

    /// The first entry at or behind `target`.
    #[inline]
    pub(super) fn seek(&self, arena: &Arena, target: &Target<'_>) -> Option<(Spot, Address)> {
        self.look(|| self.settle(self.try_descend(arena, target)?))
    }

    /// The last entry before `target`.
    pub(super) fn seek_before(
        &self,
        arena: &Arena,
        target: &Target<'_>,
    ) -> Option<(Spot, Address)> {
        self.look(|| self.settle_before(self.try_descend(arena, target)?))
    }

    /// What `once` finds when nothing changes meanwhile, which it says by `None`.
    #[inline]
    fn look<F>(&self, once: impl Fn() -> Option<F>) -> F {
        for _ in 0..LOOKS_MAX {
            if let Some(found) = once() {
                return found;
            }
            spin_loop();
        }
        self.look_alone(once)
    }

    /// [`look`](Self::look), once the writer has finished and while nobody inserts.
    #[cold]
    fn look_alone<F>(&self, once: impl Fn() -> Option<F>) -> F {
        let _alone = self.inserting.lock().expect("no insert has panicked");
        once().expect("nothing changes while nobody inserts")
    }

    /// The place of `target` in the leaf whose part of the order it falls into. `None`: something
    /// changed meanwhile.
    #[inline]
    fn try_descend(&self, arena: &Arena, target: &Target<'_>) -> Option<Spot> {
        let shape = even(self.shape.load(Ordering::Acquire))?;
        let root = self.root.load(Ordering::Relaxed);
        let (levels, mut number) = unpack(root);
        for _ in 0..levels {
            let inner = self.inners.get(number)?;
            number = inner.child(inner.separators.rank(arena, target));
        }
        let leaf = self.leaves.get(number)?;
        let leaf_version = even(leaf.version.load(Ordering::Acquire))?;
        Some(Spot {
            leaf: number,
            at: leaf.entries.rank(arena, target),
            leaf_version,
            shape,
        })
    }

    /// The entry at `spot`, or the first of the leaves behind it where `spot` is behind a leaf's
    /// last. `None`: something changed meanwhile.
    #[inline]
    fn settle(&self, mut spot: Spot) -> Option<Option<(Spot, Address)>> {
        loop {
            let leaf = self.leaves.get(spot.leaf)?;
            if spot.at < leaf.entries.count() {
                let address = leaf.entries.address(spot.at)?;
                return self.holds(&spot, leaf).then_some(Some((spot, address)));
            }
            let next = leaf.next.load(Ordering::Relaxed);
            if !self.holds(&spot, leaf) {
                return None;
            }
            if next == NONE {
                return Some(None);
            }
            let version = self.leaves.get(next)?.version.load(Ordering::Acquire);
            spot = Spot {
                leaf: next,
                at: 0,
                leaf_version: even(version)?,
                shape: spot.shape,
            };
        }
    }

    /// The entry in front of `spot`, where a search came down. Every leaf but the first of all begins
    /// with the separator that leads to it, and a search comes to a leaf only by a separator before
    /// its target: so in front of the first place of a leaf there is nothing. `None`: something
    /// changed meanwhile.
    fn settle_before(&self, spot: Spot) -> Option<Option<(Spot, Address)>> {
        if spot.at > 0 {
            return self.previous(&spot).ok().map(Some);
        }
        let leaf = self.leaves.get(spot.leaf)?;
        self.holds(&spot, leaf).then_some(None)
    }

    /// Whether nothing has changed since the versions of `spot` were read.
    #[inline]
    fn holds(&self, spot: &Spot, leaf: &Leaf) -> bool {
        fence(Ordering::Acquire);
        leaf.version.load(Ordering::Relaxed) == spot.leaf_version
            && self.shape.load(Ordering::Relaxed) == spot.shape
    }

    /// The entry behind `spot`. `Err`: the spot is out of date, seek again.
    #[inline]
    pub(super) fn next(&self, spot: &Spot) -> Result<Option<(Spot, Address)>, OutOfDate> {
        let next = Spot {
            at: spot.at + 1,
            ..*spot
        };
        self.settle(next).ok_or(OutOfDate)
    }

    /// The entry in front of `spot` in the same leaf. `Err`: the spot is a leaf's first, or out of
    /// date: seek.
    pub(super) fn previous(&self, spot: &Spot) -> Result<(Spot, Address), OutOfDate> {
        let at = spot.at.checked_sub(1).ok_or(OutOfDate)?;
        let leaf = self.leaves.get(spot.leaf).ok_or(OutOfDate)?;
        let spot = Spot { at, ..*spot };
        let address = leaf.entries.address(at).ok_or(OutOfDate)?;
        if self.holds(&spot, leaf) {
            Ok((spot, address))
        } else {
            Err(OutOfDate)
        }
    }

    /// Has the entry brought near that is a few behind `spot`: a walk through the leaves is one through
    /// memory in no order.
    #[inline]
    pub(super) fn prefetch_ahead(&self, arena: &Arena, spot: &Spot) {
        /// About as many as a memory access takes as long as.
        const AHEAD: usize = 6;
        let Some(mut leaf) = self.leaves.get(spot.leaf) else {
            return;
        };
        let (mut at, count) = (spot.at + AHEAD, leaf.entries.count());
        if at >= count {
            at -= count;
            let Some(next) = self.leaves.get(leaf.next.load(Ordering::Relaxed)) else {
                return;
            };
            leaf = next;
        } else if at == count - 1 {
            self.leaves.prefetch(leaf.next.load(Ordering::Relaxed));
        }
        // Whatever is read here while the writer changes it: addresses are of entries.
        if at < leaf.entries.count()
            && let Some(address) = leaf.entries.address(at)
        {
            arena.prefetch(address);
        }
    }

    // --- The writer ---

    /// Writes an entry into `arena`, which is this tree's only one, and inserts it.
    ///
    /// # Panics
    /// When an entry has this place already, or `arena` no room.
    pub(super) fn insert(&self, arena: &Arena, parts: &Parts<'_>) {
        let inserting = self.inserting.lock();
        let _inserting = inserting.expect("no insert has panicked");
        let target = &self.target(parts.key, parts.lsn);
        let path = self.descend(arena, target);
        self.leaves.prefetch(path.leaf);
        let address = arena.add(parts);
        let leaf = self.leaves.own(path.leaf);
        let at = leaf.entries.rank(arena, target);
        let same = at < leaf.entries.count()
            && leaf.entries.prefix(at) == target.prefix
            && leaf
                .entries
                .address(at)
                .is_some_and(|other| target.order_of(arena, other).is_eq());
        assert!(!same, "every entry has an LSN of its own");
        if leaf.entries.count() < LEAF_WIDTH {
            put(leaf, at, target.prefix, address);
        } else {
            self.split_and_put(&path, at, target.prefix, address);
        }
    }

    fn descend(&self, arena: &Arena, target: &Target<'_>) -> Path {
        let (levels, mut number) = unpack(self.root.load(Ordering::Relaxed));
        let mut steps = [(NONE, 0); LEVELS_MAX];
        for step in steps.iter_mut().take(levels) {
            let inner = self.inners.own(number);
            let at = inner.separators.rank(arena, target);
            *step = (number, at);
            number = inner.child(at);
        }
        Path {
            steps,
            levels,
            leaf: number,
        }
    }

    /// Splits the full leaf at the end of `path` and inserts at `at`.
    #[cold]
    fn split_and_put(&self, path: &Path, at: usize, prefix: u64, address: Address) {
        let odd = self.shape.load(Ordering::Relaxed) + 1;
        self.shape.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        let left = self.leaves.own(path.leaf);
        let number = self.leaves.add();
        let right = self.leaves.own(number);
        let next = left.next.load(Ordering::Relaxed);
        // Keys that only rise leave full leaves behind.
        let rising = at == LEAF_WIDTH && next == NONE;
        let middle = if rising { LEAF_WIDTH } else { LEAF_WIDTH / 2 };
        left.entries.move_to(&right.entries, middle);
        right.next.store(next, Ordering::Relaxed);
        left.next.store(number, Ordering::Relaxed);
        if at < middle || (at == middle && !rising) {
            put(left, at, prefix, address);
        } else {
            put(right, at - middle, prefix, address);
        }
        let separator = Separator {
            prefix: right.entries.prefix(0),
            address: right.entries.address(0),
        };
        self.add_child(path, separator, number);
        self.shape.store(odd + 1, Ordering::Release);
    }

    /// Puts node `child`, which begins with `separator`, behind the child that `path` took, and
    /// splits upwards as far as nodes are full.
    fn add_child(&self, path: &Path, separator: Separator, child: u32) {
        let (mut separator, mut child) = (separator, child);
        for &(number, at) in path.steps[..path.levels].iter().rev() {
            let inner = self.inners.own(number);
            if inner.separators.count() < INNER_WIDTH {
                put_child(inner, at, separator, child);
                return;
            }
            let right_number = self.inners.add();
            let right = self.inners.own(right_number);
            // The middle separator goes up, the child behind it becomes the right one's first.
            let rising = at == INNER_WIDTH;
            let middle = if rising {
                INNER_WIDTH - 1
            } else {
                INNER_WIDTH / 2
            };
            let up = Separator {
                prefix: inner.separators.prefix(middle),
                address: inner.separators.address(middle),
            };
            right
                .first
                .store(inner.child(middle + 1), Ordering::Relaxed);
            for from in middle + 1..INNER_WIDTH {
                let moved = inner.child(from + 1);
                right.children[from - middle - 1].store(moved, Ordering::Relaxed);
            }
            inner.separators.move_to(&right.separators, middle + 1);
            inner.separators.set_count(middle);
            if at <= middle {
                put_child(inner, at, separator, child);
            } else {
                put_child(right, at - middle - 1, separator, child);
            }
            (separator, child) = (up, right_number);
        }
        self.add_root(separator, child);
    }

    /// A new topmost node over the present one and `right`.
    fn add_root(&self, separator: Separator, right: u32) {
        let (levels, left) = unpack(self.root.load(Ordering::Relaxed));
        assert!(levels < LEVELS_MAX, "a memtable has fewer entries");
        let number = self.inners.add();
        let inner = self.inners.own(number);
        inner.first.store(left, Ordering::Relaxed);
        put_child(inner, 0, separator, right);
        let root = (levels as u64 + 1) << 32 | u64::from(number);
        self.root.store(root, Ordering::Relaxed);
    }
}

/// What a node begins with: the first entry below it.
#[derive(Clone, Copy)]
struct Separator {
    prefix: u64,
    address: Option<Address>,
}

/// A spot's leaf, or the tree's shape, has changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOfDate;

#[inline]
const fn even(version: u32) -> Option<u32> {
    if version.is_multiple_of(2) {
        Some(version)
    } else {
        None
    }
}

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is a node's number"
)]
const fn unpack(root: u64) -> (usize, u32) {
    ((root >> 32) as usize, root as u32)
}

/// Inserts into a leaf that has room.
fn put(leaf: &Leaf, at: usize, prefix: u64, address: Address) {
    let version = leaf.version.load(Ordering::Relaxed);
    leaf.version.store(version + 1, Ordering::Relaxed);
    fence(Ordering::Release);
    leaf.entries.open(at);
    leaf.entries.set(at, prefix, Some(address));
    leaf.version.store(version + 2, Ordering::Release);
}

/// Inserts into an inner node that has room: `separator` at `at`, `child` behind it.
fn put_child(inner: &Inner, at: usize, separator: Separator, child: u32) {
    let count = inner.separators.count();
    for to in (at + 1..=count).rev() {
        let moved = inner.children[to - 1].load(Ordering::Relaxed);
        inner.children[to].store(moved, Ordering::Relaxed);
    }
    inner.separators.open(at);
    let Separator { prefix, address } = separator;
    inner.separators.set(at, prefix, address);
    inner.children[at].store(child, Ordering::Relaxed);
}
