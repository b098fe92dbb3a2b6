//! Settings and results of scrubbing: stored data is read and checked in the background, segment by segment.

use std::time::Duration;

use argosy_base::Instant;

use crate::damage::Damage;

/// How often and how fast everything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Duration of a whole pass. Zero turns scrubbing off.
    pub period: Duration,
    /// Most bytes that are read in a second. A pass may take longer than its period because of this bound.
    pub bytes_per_second_max: u64,
}

impl Default for Pace {
    /// Four weeks, and 8 MiB a second.
    fn default() -> Self {
        Self {
            period: Duration::from_secs(28 * 24 * 60 * 60),
            bytes_per_second_max: 8 << 20,
        }
    }
}

/// What a scrubber has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStats {
    /// Bytes read.
    pub bytes: u64,
    /// Segments read.
    pub segments: u64,
    /// Finished passes.
    pub passes: u64,
    /// Damaged places found; each counts once.
    pub damages: u64,
    /// When the last pass ended, on the clock of the steps. `None` if none has ended yet.
    pub last_pass: Option<Instant>,
}

/// What one step of a pass read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes read.
    pub bytes: u64,
    /// Damage found in them.
    pub damages: Vec<Damage>,
}
