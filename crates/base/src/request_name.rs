//! The names of writes that are sent again: who sends them, and his own count.
//!
//! A write that carries such a name takes effect at most once in a region, however often it is sent there. A client
//! takes an id once, and counts his writes with it; a write that is sent again has the name that it had before.
//!
//! ```text
//! client id := moment in ms: 42 bits  random: 22 bits
//! ```
//!
//! A region remembers a bounded number of clients. Whom it has forgotten it tells from whom it has never heard of by
//! the id: all ids up to the highest that it has forgotten count as forgotten. So ids have to be different, and an id
//! that is younger is higher, as a rule. That is why an id begins with a moment. How exact that is matters only for how
//! often a fresh client is taken for a forgotten one, and has to take another id.

use core::fmt;

use crate::Moment;

/// Bits of a client id that are random.
const RANDOM_BITS: u32 = 22;

/// A client that sends writes again. 0 is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The id of a client that takes it at the moment `now`. `random` makes it different from others of the same
    /// millisecond.
    #[must_use]
    pub const fn taken_at(now: Moment, random: u64) -> Self {
        let random = random & ((1 << RANDOM_BITS) - 1);
        Self(now.0 << RANDOM_BITS | random)
    }

    /// The moment at which it was taken.
    #[must_use]
    pub const fn moment(self) -> Moment {
        Moment(self.0 >> RANDOM_BITS)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {:x}", self.0)
    }
}

/// The name of a write. A client that sends the write again uses the same name. Both numbers begin at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestName {
    /// Who sends it.
    pub client: ClientId,
    /// His own count, which rises with each further write.
    pub seq: u64,
}

impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of {}", self.seq, self.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_younger_id_is_higher() {
        let old = ClientId::taken_at(Moment(7), u64::MAX);
        let young = ClientId::taken_at(Moment(8), 0);
        assert!(old < young);
        assert_eq!((old.moment(), young.moment()), (Moment(7), Moment(8)));
    }
}
