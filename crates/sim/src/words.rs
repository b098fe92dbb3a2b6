//! What happens in a run, in words: printed where that is asked for, and summed up in a hash, so
//! that two runs of a seed can be compared.

use std::fmt;

use argosy_base::Instant;
use xxhash_rust::xxh3::Xxh3;

/// The last lines that are kept for a report.
const KEPT: usize = 60;

/// See the module documentation.
pub(crate) struct Words {
    print: bool,
    hash: Xxh3,
    recent: std::collections::VecDeque<String>,
}

impl Words {
    /// A log that is `print`ed, or only summed up.
    #[must_use]
    pub(crate) fn new(print: bool) -> Self {
        Self {
            print,
            hash: Xxh3::new(),
            recent: std::collections::VecDeque::new(),
        }
    }

    /// Adds a line.
    pub(crate) fn say(&mut self, now: Instant, what: fmt::Arguments<'_>) {
        let micros = now.as_nanos() / 1000;
        let line = format!("{:>5}.{:06} {what}", micros / 1_000_000, micros % 1_000_000);
        if self.print {
            println!("{line}");
        }
        self.hash.update(line.as_bytes());
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(line);
    }

    /// Of all lines so far.
    #[must_use]
    pub(crate) fn hash(&self) -> u64 {
        self.hash.digest()
    }

    /// The last lines.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &str> {
        self.recent.iter().map(String::as_str)
    }
}
