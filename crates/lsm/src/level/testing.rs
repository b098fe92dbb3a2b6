//! What the tests of levels, filters and merges share: a seeded generator, keys of many shapes, and
//! pairs to bind them to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use argosy_base::{Epoch, Pointer, RegionId, SegmentNumber};
use argosy_device::Buffer;

use super::tree::{LeafHome, TreeSegments};
use super::tree_builder::{TreeBuilder, TreeStep};
use super::{BuiltSegment, ReadAt, SegmentBuilder, SegmentGeometry};
use crate::names::{Entry, Form, LevelError, OwnedEntry, SegmentName, Tree};

/// Numbers that a seed determines (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Shapes of keys that a tree has to tell apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyShape {
    /// A few random bytes of a small alphabet: many keys are beginnings of others.
    Nested,
    /// 24 random bytes.
    Hashed,
    /// Decimal numbers behind a word.
    Numbered,
    /// 100 equal bytes, then a number: longer than any separator.
    LongCommon,
    /// 4 KiB, all equal but the last bytes.
    Longest,
    /// Any of the others.
    Mixed,
}

impl KeyShape {
    pub(crate) const ALL: [Self; 6] = [
        Self::Nested,
        Self::Hashed,
        Self::Numbered,
        Self::LongCommon,
        Self::Longest,
        Self::Mixed,
    ];

    pub(crate) fn key(self, dice: &mut Dice) -> Vec<u8> {
        match self {
            Self::Nested => {
                let len = 1 + dice.below(9);
                let alphabet = [0, 0, b'a', 0xff];
                (0..len).map(|_| alphabet[dice.below(4)]).collect()
            }
            Self::Hashed => dice.bytes(24),
            Self::Numbered => format!("user{:012}", dice.below(100_000)).into_bytes(),
            Self::LongCommon => {
                let mut key = vec![b'x'; 100];
                key.extend(format!("{:x}", dice.below(4000)).bytes());
                key
            }
            Self::Longest => {
                let mut key = vec![b'y'; 4092];
                key.extend(u32::try_from(dice.below(3000)).unwrap().to_le_bytes());
                key
            }
            Self::Mixed => {
                let shape = Self::ALL[dice.below(5)];
                shape.key(dice)
            }
        }
    }
}

/// What a key may be bound to: values that fit any node, the empty one included.
pub(crate) fn entry(dice: &mut Dice) -> OwnedEntry {
    match dice.below(8) {
        0 => OwnedEntry::Tombstone,
        1 => OwnedEntry::Inline(vec![]),
        2 => OwnedEntry::Pointer {
            at: Pointer::new(
                SegmentNumber(1 + dice.below(5) as u64),
                dice.below(2 << 20) as u32,
            ),
            value_len: dice.below(1 << 20) as u32,
        },
        _ => {
            let len = dice.below(60);
            OwnedEntry::Inline(dice.bytes(len))
        }
    }
}

pub(crate) type Model = BTreeMap<Vec<u8>, OwnedEntry>;

pub(crate) fn model(shape: KeyShape, count: usize, dice: &mut Dice) -> Model {
    (0..count).map(|_| (shape.key(dice), entry(dice))).collect()
}

pub(crate) const NAME: SegmentName = SegmentName {
    region: RegionId(7),
    number: SegmentNumber(21),
    epoch: Epoch(3),
};

pub(crate) const SMALL: SegmentGeometry = SegmentGeometry {
    node_bytes: 512,
    segment_bytes: 32 << 10,
};

/// Fills one segment after the other with all of `model`.
pub(crate) fn build(model: &Model, geometry: SegmentGeometry) -> Vec<BuiltSegment> {
    let mut built = vec![];
    let mut builder = None;
    for (key, entry) in model {
        let entry: Entry<'_> = entry.as_entry();
        let open = builder.get_or_insert_with(|| SegmentBuilder::new(NAME, geometry).listing(true));
        if !open.add(key, entry) {
            built.extend(builder.take().map(SegmentBuilder::finish));
            let mut next = SegmentBuilder::new(NAME, geometry).listing(true);
            assert!(next.add(key, entry), "an empty segment takes any pair");
            builder = Some(next);
        }
    }
    built.extend(builder.map(SegmentBuilder::finish));
    built
}

/// A tree in memory.
pub(crate) struct BuiltTree {
    pub(crate) tree: Tree,
    /// In key order.
    pub(crate) leaves: Vec<(BuiltSegment, Arc<Counted>)>,
    pub(crate) index: BTreeMap<SegmentNumber, (BuiltSegment, Arc<Counted>)>,
    /// All segments in the order in which they were finished.
    pub(crate) order: Vec<SegmentNumber>,
}

/// Takes the bytes out of a segment.
fn counted(mut built: BuiltSegment) -> (BuiltSegment, Arc<Counted>) {
    let bytes = std::mem::replace(&mut built.bytes, Buffer::zeroed(0));
    (built, Arc::new(Counted::new(bytes)))
}

/// Makes a tree of all of `model`, which is not empty.
pub(crate) fn build_tree(model: &Model, geometry: SegmentGeometry) -> BuiltTree {
    let mut number = NAME.number.0;
    let mut next = || {
        number += 1;
        SegmentNumber(number)
    };
    let mut upper = TreeBuilder::new(NAME.region, NAME.epoch, geometry);
    let mut made = BuiltTree {
        tree: Tree {
            root: Pointer::default(),
            len: 0,
            height: 0,
        },
        leaves: vec![],
        index: BTreeMap::new(),
        order: vec![],
    };
    let mut below = None;
    let mut open: Option<SegmentBuilder> = None;
    for (key, entry) in model {
        if let Some(builder) = &mut open
            && builder.add(key, entry.as_entry())
        {
            continue;
        }
        if let Some(full) = open.take() {
            below = Some(made.take_leaves(&mut upper, full, &mut next));
        }
        let number = next();
        let mut builder =
            SegmentBuilder::of_tree(SegmentName { number, ..NAME }, geometry, below.take());
        assert!(
            builder.add(key, entry.as_entry()),
            "an empty segment takes any pair"
        );
        open = Some(builder);
    }
    let last = open.take().expect("the model is not empty");
    made.take_leaves(&mut upper, last, &mut next);
    upper.end();
    made.drain(&mut upper, &mut next);
    assert!(upper.is_done());
    made.tree = upper.root().expect("there are leaves");
    made
}

impl BuiltTree {
    fn take_leaves(
        &mut self,
        upper: &mut TreeBuilder,
        full: SegmentBuilder,
        next: &mut impl FnMut() -> SegmentNumber,
    ) -> Vec<u8> {
        let built = full.finish();
        let number = built.name.number;
        upper.placed(built.form, number, number, built.nodes.clone());
        self.order.push(built.name.number);
        let last = built.last_key.clone();
        self.leaves.push(counted(built));
        self.drain(upper, next);
        last
    }

    fn drain(&mut self, upper: &mut TreeBuilder, next: &mut impl FnMut() -> SegmentNumber) {
        loop {
            match upper.step(|| Some(next())) {
                TreeStep::Idle => return,
                TreeStep::Progress => {}
                TreeStep::NeedsNumber => unreachable!("there are numbers"),
                TreeStep::Finished(built) => {
                    let number = built.name.number;
                    upper.placed(built.form, number, number, built.nodes.clone());
                    self.order.push(built.name.number);
                    self.index.insert(built.name.number, counted(built));
                }
            }
        }
    }

    /// Leaf segment `index`, as a reader has it.
    pub(crate) fn home(&self, index: usize) -> LeafHome<Arc<Counted>> {
        let (built, bytes) = &self.leaves[index];
        LeafHome {
            name: built.name,
            high_bits: built.name.number,
            len: u32::try_from(bytes.bytes.len()).unwrap(),
            bytes: Arc::clone(bytes),
        }
    }
}

impl TreeSegments for BuiltTree {
    type Bytes<'s> = Arc<Counted>;

    fn tree(&self) -> Tree {
        self.tree
    }

    fn index(&self, at: Pointer, height: u8) -> Option<(SegmentName, u32, Arc<Counted>)> {
        let (built, bytes) = self.index.get(&at.segment())?;
        let len = u32::try_from(bytes.bytes.len()).unwrap();
        (built.form == Form::Index(height)).then_some((built.name, len, Arc::clone(bytes)))
    }
}

/// A segment in memory that counts its reads.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) bytes: Buffer,
    pub(crate) reads: AtomicU32,
    pub(crate) read_bytes: AtomicU64,
}

impl Counted {
    pub(crate) fn new(bytes: Buffer) -> Self {
        Self {
            bytes,
            reads: AtomicU32::new(0),
            read_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl ReadAt for Counted {
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes
            .fetch_add(out.len() as u64, Ordering::Relaxed);
        self.bytes.read_at(offset, out)
    }
}
