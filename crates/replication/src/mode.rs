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

argosy_base::mutants! {
    /// Mistakes that the simulator plants to show that its checker finds them. All off otherwise.
    pub struct Mutants {
        /// Acknowledge a write before the last backup has it (breaks I4).
        acknowledge_early,
        /// Commit what the members have that are live, and leave the others out (breaks I4, I7).
        commit_live_only,
        /// What a member reports counts as what it holds, before it has caught up (breaks I4, I7).
        trust_report,
        /// A copy that is being filled may become a member, and a new member is whole, before it has caught up (breaks
        /// I7).
        count_early,
        /// Copies are filled while the region does not serve (breaks I5: they have promised nothing to an earlier
        /// primary).
        fill_before_serving,
        /// The region serves before all members are equal (breaks I7).
        serve_before_equal,
        /// LSNs compare whatever the epochs of the last cuts are (breaks I6).
        lsn_over_epoch,
        /// A member that reports lacks nothing of what was flushed everywhere. (Its device has that, though its log
        /// ends before it: nothing is lost, but a later flush does not fit there, and breaks the link.)
        lacks_nothing,
        /// A flush counts as done everywhere when a majority of the members has done it: so a write is synced (breaks
        /// I7).
        flush_by_majority,
        /// Where a copy is damaged, any other will do, whole or not (breaks I7).
        take_partial,
    }
}
