//! How a group replicates, and the planted mistakes that prove the simulator's checker.

/// How the members of a group come to hold the same data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// There is one copy.
    #[default]
    None,
    /// The primary compacts and ships the finished segments (Tebis §3.2).
    SendIndex,
}

impl Mode {
    /// The mode by its name on the command line and in the configuration.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "send-index" => Some(Self::SendIndex),
            _ => None,
        }
    }

    /// The mode's name on the command line and in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SendIndex => "send-index",
        }
    }
}

/// Mistakes that the simulator plants to show that its checker finds them. All off otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutants {
    /// Acknowledge a write before the last backup has it (breaks I4).
    pub acknowledge_early: bool,
}
