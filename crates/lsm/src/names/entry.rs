//! What a key of a level or of a memtable is bound to.

use argosy_base::{Moment, Pointer};
use argosy_log::{Binding, Replayed};

/// What a key of a level is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The value lies in a log.
    Pointer {
        /// Where its record begins.
        at: Pointer,
        /// Bytes of the value, without key and record header.
        value_len: u32,
    },
    /// The key is not bound, and shadows what older sources bind it to.
    Tombstone,
    /// As it says until this moment of the region's time; from then on like a tombstone.
    Until(Moment, Lasting<&'a [u8]>),
}

/// What a pair that expires binds its key to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting<B> {
    /// The value itself.
    Inline(B),
    /// The value lies in a log.
    Pointer {
        /// Where its record begins.
        at: Pointer,
        /// Bytes of the value, without key and record header.
        value_len: u32,
    },
}

impl<'a> Entry<'a> {
    /// What an operation of the logs binds its key to.
    #[must_use]
    pub fn of(replayed: &Replayed<'a>) -> Self {
        let entry = match replayed.binding {
            Binding::Inline(value) => Self::Inline(value),
            Binding::Logged { value_len } => Self::Pointer {
                at: replayed.at,
                value_len,
            },
            Binding::Nothing => Self::Tombstone,
        };
        entry.until(replayed.expiry.map(Moment))
    }

    /// A copy that owns its bytes.
    #[must_use]
    pub fn to_owned(&self) -> OwnedEntry {
        match *self {
            Entry::Inline(value) => OwnedEntry::Inline(value.to_vec()),
            Entry::Pointer { at, value_len } => OwnedEntry::Pointer { at, value_len },
            Entry::Tombstone => OwnedEntry::Tombstone,
            Entry::Until(expiry, Lasting::Inline(value)) => {
                OwnedEntry::Until(expiry, Lasting::Inline(value.to_vec()))
            }
            Entry::Until(expiry, Lasting::Pointer { at, value_len }) => {
                OwnedEntry::Until(expiry, Lasting::Pointer { at, value_len })
            }
        }
    }

    /// The same pair, expiring at `expiry` or never. A tombstone stays one.
    #[must_use]
    pub const fn until(self, expiry: Option<Moment>) -> Self {
        match (self.lasting(), expiry) {
            (Entry::Inline(value), Some(expiry)) => Entry::Until(expiry, Lasting::Inline(value)),
            (Entry::Pointer { at, value_len }, Some(expiry)) => {
                Entry::Until(expiry, Lasting::Pointer { at, value_len })
            }
            (entry, _) => entry,
        }
    }

    /// The same pair, without expiry.
    #[inline]
    #[must_use]
    pub(crate) const fn lasting(self) -> Self {
        match self {
            Entry::Until(_, Lasting::Inline(value)) => Entry::Inline(value),
            Entry::Until(_, Lasting::Pointer { at, value_len }) => Entry::Pointer { at, value_len },
            entry => entry,
        }
    }

    /// Bytes of the value, if there is one.
    #[must_use]
    pub const fn value_len(&self) -> Option<usize> {
        match self.lasting() {
            Entry::Inline(value) => Some(value.len()),
            Entry::Pointer { value_len, .. } => Some(value_len as usize),
            Entry::Tombstone | Entry::Until(..) => None,
        }
    }

    /// When the pair expires, if it does.
    #[inline]
    #[must_use]
    pub const fn expiry(&self) -> Option<Moment> {
        match self {
            Entry::Until(expiry, _) => Some(*expiry),
            _ => None,
        }
    }

    /// Whether the pair has expired at `now`.
    #[inline]
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        self.expiry().is_some_and(|expiry| expiry <= now)
    }

    /// Where the value lies in a log, and how long it is, if it does.
    #[inline]
    #[must_use]
    pub const fn pointer(&self) -> Option<(Pointer, u32)> {
        match *self {
            Entry::Pointer { at, value_len }
            | Entry::Until(_, Lasting::Pointer { at, value_len }) => Some((at, value_len)),
            _ => None,
        }
    }

    /// The same pair, with its value at another place of a log.
    #[inline]
    #[must_use]
    pub(crate) const fn moved_to(self, at: Pointer) -> Entry<'a> {
        match self {
            Entry::Pointer { value_len, .. } => Entry::Pointer { at, value_len },
            Entry::Until(expiry, Lasting::Pointer { value_len, .. }) => {
                Entry::Until(expiry, Lasting::Pointer { at, value_len })
            }
            entry => entry,
        }
    }
}

/// An [`Entry`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedEntry {
    /// The value itself.
    Inline(Vec<u8>),
    /// The value lies in a log.
    Pointer {
        /// Where its record begins.
        at: Pointer,
        /// Bytes of the value, without key and record header.
        value_len: u32,
    },
    /// The key is not bound, and shadows what older sources bind it to.
    Tombstone,
    /// See [`Entry::Until`].
    Until(Moment, Lasting<Vec<u8>>),
}

impl OwnedEntry {
    /// When the pair expires, if it does.
    #[inline]
    #[must_use]
    pub const fn expiry(&self) -> Option<Moment> {
        match self {
            Self::Until(expiry, _) => Some(*expiry),
            _ => None,
        }
    }

    /// Where the value lies in a log, if it does.
    #[inline]
    pub(crate) const fn pointer_mut(&mut self) -> Option<&mut Pointer> {
        match self {
            Self::Pointer { at, .. } | Self::Until(_, Lasting::Pointer { at, .. }) => Some(at),
            _ => None,
        }
    }

    /// The entry, borrowed.
    #[must_use]
    pub(crate) fn as_entry(&self) -> Entry<'_> {
        match self {
            Self::Inline(value) => Entry::Inline(value),
            Self::Pointer { at, value_len } => Entry::Pointer {
                at: *at,
                value_len: *value_len,
            },
            Self::Tombstone => Entry::Tombstone,
            Self::Until(expiry, Lasting::Inline(value)) => {
                Entry::Until(*expiry, Lasting::Inline(value))
            }
            Self::Until(expiry, Lasting::Pointer { at, value_len }) => {
                let (at, value_len) = (*at, *value_len);
                Entry::Until(*expiry, Lasting::Pointer { at, value_len })
            }
        }
    }
}
