//! Why levels are merged: every reason, and which of them goes first.
//!
//! | reason | requested by | applies where | effect |
//! |---|---|---|---|
//! | [`Damage`](Why::Damage) | `gather` | runs of L1 pile up on damaged keys | they become one run of L1 |
//! | [`NoRoom`](Why::NoRoom) | `pack_first` | any level has short neighbours | they become fewer |
//! | [`Full`](Why::Full) | nobody, or `l1_read_triggered` | a level is over its target | a part of it goes down |
//! | [`Shadowed`](Why::Shadowed) | `reclaim` | a level may shadow something | a part of it goes down |
//! | [`Medium`](Why::Medium) | `drain` | a level points into the medium log | a part of it goes down |
//! | [`Lower`](Why::Lower) | `lowers` | there are two levels below L1 | a part of the upper one goes down |
//! | [`Short`](Why::Short) | `reclaim` | the lowest level has short neighbours | they become fewer |
//! | [`Cut`](Why::Cut) | nobody, or `sparse` | a segment has many bounds, or little of it is left | it is made anew |
//!
//! The second column names fields of [`Policy`](super::policy::Policy). A full device sets `reclaim`, `drain` and
//! `pack_first`. Garbage collection sets `reclaim` and `drain`, or `lowers`. A full compaction sets `reclaim`.
//! Reads of L1 set `l1_read_triggered`, and reads of medium values `drain`.
//!
//! A reason applies where it finds a part ([`pick`](super::pick::pick)). The first in [`Why::ORDER`] that applies
//! decides. Where several levels are full, the fullest is merged.

/// A reason to merge. See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Merges pass over keys of L1 that are damaged, and as many runs lie above these as start a merge. They cannot go
    /// down, so they are gathered into one.
    Damage,
    /// The device is full, and merges found no room. Packing writes least, so it goes first: neighbours in the lowest
    /// level that has some, then in the levels above, at last runs of L1.
    NoRoom,
    /// A level is larger than it should be: L1 by its runs, or because reads trigger a merge; others by bytes.
    Full,
    /// A level may shadow something below, or holds tombstones, and space is to become free, or everything is to lie in
    /// one level.
    Shadowed,
    /// The medium log is to become shorter: its values are put in place, or come one level closer to that.
    Medium,
    /// The level above the last is to go into that, since this frees space for less than moving values does.
    Lower,
    /// Space is to become free and nothing is shadowed any more: short neighbours in the lowest level are packed.
    Short,
    /// Range deletions have left a segment many bounds, or little of it. Its space becomes free with the
    /// last of its bounds.
    Cut,
}

impl Why {
    /// All reasons, by falling priority.
    pub const ORDER: [Self; 8] = [
        Self::Damage,
        Self::NoRoom,
        Self::Full,
        Self::Shadowed,
        Self::Medium,
        Self::Lower,
        Self::Short,
        Self::Cut,
    ];

    /// Whether the only purpose is that segments become fewer: nothing goes down.
    #[must_use]
    pub(crate) const fn packs(self) -> bool {
        matches!(self, Self::NoRoom | Self::Short)
    }
}
