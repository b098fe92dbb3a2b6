//! When pairs end to be there.

use crate::Moment;

/// When a pair ends to be there, by the region's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    #[default]
    Never,
    /// When what the key is bound to until now would have.
    Keep,
    /// At this moment.
    At(Moment),
    /// So many milliseconds after it was written.
    After(u64),
}

impl Expiry {
    /// The moment that is meant at `now`, for a pair that would have expired at `kept`.
    #[must_use]
    pub const fn resolve(self, now: Moment, kept: Option<Moment>) -> Option<Moment> {
        match self {
            Self::Never => None,
            Self::Keep => kept,
            Self::At(moment) => Some(moment),
            Self::After(millis) => Some(now.after(millis)),
        }
    }

    /// The expiry as two numbers, for the wire. DO NOT CHANGE THE VALUES.
    #[must_use]
    pub const fn to_parts(self) -> (u8, u64) {
        match self {
            Self::Never => (0, 0),
            Self::Keep => (1, 0),
            Self::At(moment) => (2, moment.0),
            Self::After(millis) => (3, millis),
        }
    }

    /// The expiry of these [parts](Self::to_parts), if there is one.
    #[must_use]
    pub const fn from_parts(kind: u8, number: u64) -> Option<Self> {
        Some(match (kind, number) {
            (0, 0) => Self::Never,
            (1, 0) => Self::Keep,
            (2, moment) => Self::At(Moment(moment)),
            (3, millis) => Self::After(millis),
            _ => return None,
        })
    }
}
