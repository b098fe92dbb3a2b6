//! What [picking](mod@super::pick) is given besides the shape of the levels, and what it answers.

use std::collections::BTreeSet;

use argosy_base::{KeyRange, SegmentNumber};

use super::why::Why;
use crate::edit::LEVELS_MAX;

/// What a merge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Levels that are as large as they should be.
    Levels,
    /// Fewer runs, and segments with one range, so that an edit that cuts them is short.
    ShortCut,
}

/// A key of a level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The level from which parts are merged down. 0: L1 is packed, within itself.
    pub level: u8,
    /// The key.
    pub key: Vec<u8>,
}

impl Place {
    /// Where packing begins: with the lowest level.
    pub(crate) const LOWEST: Self = Self {
        level: LEVELS_MAX - 1,
        key: Vec::new(),
    };
}

/// When L1 is merged into L2.
#[derive(Clone, Copy, Debug)]
pub struct L1Policy {
    /// Sorted runs of L1 that start a compaction.
    pub runs: usize,
    /// Reads trigger a merge of them, however many they are.
    pub is_read_triggered: bool,
}

/// How large levels may be.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// How many times larger a level may be than the one above.
    pub factor: u32,
    /// Bytes of L0, from which the targets grow.
    pub l0_bytes: u64,
}

/// How much a merge may take.
#[derive(Clone, Copy, Debug)]
pub struct PartLimits {
    /// Input bytes that a part aims at.
    pub bytes: u64,
    /// Segments that a part reads at most, where it can be cut so narrow: what it writes needs as
    /// many before any of them is free.
    pub segments_max: usize,
    /// Segments that a merge of whole levels may write; 0: nothing is merged whole.
    pub whole_segments_max: usize,
}

/// What neighbours are merged into fewer segments, although no level is full.
#[derive(Clone, Debug)]
pub struct Packing {
    /// Those that fit fewer segments of this many bytes. 0: none.
    pub bytes: u64,
    /// How many of them at a time.
    pub segments: usize,
    /// No merge found room: packing goes first, from this place on, then in the levels above it, then in L1.
    pub first: Option<Place>,
}

/// What the choice depends on besides the shape.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Keys of several runs of L1 that are to become one: merges pass over what lies below them.
    pub gather: Option<KeyRange>,
    /// Segments of which range tombstones left little.
    pub sparse: BTreeSet<SegmentNumber>,
    /// What a merge is for.
    pub aim: Aim,
    /// When L1 is merged.
    pub l1: L1Policy,
    /// How large levels may be.
    pub growth: Growth,
    /// How much a merge may take.
    pub part: PartLimits,
    /// Levels that are not full are merged, too, where that may free space: the device is full, or dead
    /// values are garbage-collected.
    pub reclaim: bool,
    /// Where nothing of that kind is left: what neighbours are merged that fit fewer segments.
    pub packing: Packing,
    /// Merges pass over no keys: segments may go down as they are, and L1 may be packed.
    pub nothing_shut: bool,
    /// The medium log is to become shorter, by merges that write so many bytes at most.
    pub drain: Option<u64>,
    /// The level above the last is merged into that, although it is not full: where L1 is that level, no.
    pub lowers: bool,
    /// In this level parts and neighbours are looked for from this key on: before it they found no room,
    /// or won nothing. Parts begin anew where there are none behind it.
    pub behind: Option<Place>,
}

impl Policy {
    pub(super) fn behind(&self, level: u8) -> Option<&[u8]> {
        let behind = self.behind.as_ref().filter(|place| place.level == level);
        behind.map(|place| place.key.as_slice())
    }
}

/// A segment's place in [`Levels`](super::Levels).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Index of the run in its level.
    pub run: usize,
    /// Index of the segment in the run.
    pub place: usize,
}

/// What to do next, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picked {
    /// The reason that decided.
    pub why: Why,
    /// What to do.
    pub choice: Choice,
}

/// What to do next. Levels are named as people name them: 1 is L1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Merge what `level` and the level below it hold of `range` into the level below.
    Merge {
        /// The upper level.
        level: u8,
        /// The part.
        range: KeyRange,
    },
    /// Merge what the runs of L1 hold of `range` into the oldest of them.
    WithinL1 {
        /// The part.
        range: KeyRange,
    },
    /// Make segments of `level` segments of the level below.
    Move {
        /// The upper level.
        level: u8,
        /// The segments.
        segments: Vec<At>,
    },
}

impl Choice {
    pub(super) const fn within_l1(range: KeyRange) -> Self {
        Self::WithinL1 { range }
    }
}
