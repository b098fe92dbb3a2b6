//! What the pointers inside level segments name.

use core::fmt;

/// What the high bits of the pointers inside level segments are. One for a whole cluster, and for the
/// life of its data. DO NOT CHANGE THE VALUES: they are stored and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AddressMode {
    /// Segment numbers, which mean the same on all members: each member's version says where on its
    /// device a number lies, and members' level segments hold equal bytes.
    #[default]
    Logical = 0,
    /// Device segments of the member that holds the bytes: whoever receives a segment rewrites its
    /// pointers.
    Rewrite = 1,
}

impl AddressMode {
    /// Every mode, in the order of their values.
    pub const ALL: [Self; 2] = [Self::Logical, Self::Rewrite];

    /// The name by which a user calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Logical => "logical",
            Self::Rewrite => "rewrite",
        }
    }

    /// The mode that a user calls `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The mode stored or sent as `raw`, or `None` where no mode has that value.
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| *mode as u64 == raw)
    }
}

impl fmt::Display for AddressMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
