//! When a write is acknowledged, and so what it survives.

use core::fmt;

/// When a write is acknowledged. One for a whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DurabilityMode {
    /// Once the memory of every member has it: it survives whatever leaves one of them whole. What reads show survives
    /// that, too.
    #[default]
    LastWrite,
    /// Once it is on its way to the memory of every member. What was flushed survives; of what was not, a failover may
    /// lose the end. Reads show what may be lost then.
    LastFlush,
    /// Once it is on the device of every member: it survives even if all of them lose their memory.
    Sync,
}

impl DurabilityMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::LastWrite, Self::LastFlush, Self::Sync];

    /// The name by which a user calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LastWrite => "last-write",
            Self::LastFlush => "last-flush",
            Self::Sync => "sync",
        }
    }

    /// The mode that a user calls `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for DurabilityMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
