//! What form a level segment has, and where a tree over several begins.

use argosy_base::{Pointer, SEGMENT_SIZE};

/// Bytes of the smallest node; all others are as many times as long.
pub(crate) const NODE_BYTES_MIN: usize = 512;

/// Most bytes of a node: the offset of every record fits a slot.
pub(crate) const LEAF_BYTES_MAX: usize = 1 << 16;

/// Highest that a tree can be. Every height at least halves the nodes, so none comes near.
pub(crate) const HEIGHT_MAX: u8 = 40;

/// What a level segment is. DO NOT CHANGE THE STORED VALUES.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// Leaves, and an index over them.
    #[default]
    SelfContained,
    /// Leaves of a tree.
    Leaves,
    /// Index nodes of a tree, all of this height; at least 1.
    Index(u8),
    /// Values of medium pairs: see [`medium`](crate::level::medium).
    Medium,
}

/// [`Form::Medium`], as it is stored.
const MEDIUM: u8 = u8::MAX;
const _: () = assert!(HEIGHT_MAX + 1 < MEDIUM);

impl Form {
    /// As it is stored: 0, 1, one more than the height, or 255.
    #[must_use]
    pub const fn to_raw(self) -> u8 {
        match self {
            Self::SelfContained => 0,
            Self::Leaves => 1,
            Self::Index(height) => height + 1,
            Self::Medium => MEDIUM,
        }
    }

    /// The form stored as `raw`, or `None` where there is none.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::SelfContained),
            1 => Some(Self::Leaves),
            MEDIUM => Some(Self::Medium),
            raw if raw - 1 <= HEIGHT_MAX => Some(Self::Index(raw - 1)),
            _ => None,
        }
    }

    /// Whether it is an index segment, which holds no pairs.
    #[must_use]
    pub const fn is_index(self) -> bool {
        matches!(self, Self::Index(_))
    }
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SelfContained => f.write_str("self-contained"),
            Self::Leaves => f.write_str("leaves"),
            Self::Index(height) => write!(f, "index {height}"),
            Self::Medium => f.write_str("medium"),
        }
    }
}

/// Where a tree begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Its highest node, by the number of that node's segment.
    pub root: Pointer,
    /// Bytes of that node.
    pub len: u32,
    /// The root's height: 0 where it is the only leaf.
    pub height: u8,
}

impl Tree {
    /// Whether the root can be a node.
    #[must_use]
    pub(crate) const fn is_sound(&self) -> bool {
        can_be_node(self.root, self.len) && self.height <= HEIGHT_MAX && self.root.segment().0 != 0
    }
}

/// Whether a node of `len` bytes can begin at `at`.
#[must_use]
pub(crate) const fn can_be_node(at: Pointer, len: u32) -> bool {
    let (from, len) = (at.offset() as usize, len as usize);
    len > 0
        && len.is_multiple_of(NODE_BYTES_MIN)
        && from.is_multiple_of(NODE_BYTES_MIN)
        && len <= LEAF_BYTES_MAX
        && from + len <= SEGMENT_SIZE
}
