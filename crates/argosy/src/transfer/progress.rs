//! What is said while pairs move: how many, how fast, and how long it may still take. On stderr, on
//! one line at a terminal; elsewhere only if asked for, a line every few seconds.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use argosy_base::{Clock, Instant};
use argosy_device::SystemClock;
use clap::Args;

/// How often a terminal's line is written anew.
const TERMINAL_EVERY: Duration = Duration::from_millis(200);
/// How often a line is written elsewhere.
const LINES_EVERY: Duration = Duration::from_secs(5);

/// Whether progress is told.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct ProgressArgs {
    /// Tell progress also where stderr is no terminal
    #[arg(long, conflicts_with = "quiet")]
    progress: bool,
    /// Tell nothing but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Pairs that were moved.
    pub(super) pairs: u64,
    /// Bytes of their lines.
    pub(super) bytes: u64,
    /// Of how much in all, in the same unit for both, and how much was done before.
    pub(super) parts: Option<Parts>,
}

/// How much is done, and of how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) before: u64,
    pub(super) done: u64,
    pub(super) all: u64,
}

/// See the module documentation.
pub(super) struct Progress {
    what: &'static str,
    began: Instant,
    next: Instant,
    every: Option<Duration>,
    terminal: bool,
}

impl Progress {
    pub(super) fn begin(what: &'static str, args: ProgressArgs) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let every = match (args.quiet, terminal, args.progress) {
            (true, ..) | (_, false, false) => None,
            (_, true, _) => Some(TERMINAL_EVERY),
            (_, false, true) => Some(LINES_EVERY),
        };
        let now = SystemClock.now();
        Self {
            what,
            began: now,
            next: now + every.unwrap_or_default(),
            every,
            terminal,
        }
    }

    /// Since the beginning.
    pub(super) fn took(&self) -> Duration {
        SystemClock.now().since(self.began)
    }

    /// Tells, if it is time to.
    pub(super) fn tell(&mut self, done: &Done) {
        let Some(every) = self.every else {
            return;
        };
        let now = SystemClock.now();
        if now < self.next {
            return;
        }
        self.next = now + every;
        let line = line(self.what, done, now.since(self.began));
        let (start, end) = if self.terminal {
            ("\r", "\x1b[K")
        } else {
            ("", "\n")
        };
        // For people: where it cannot be written nothing is lost.
        let _ = write!(std::io::stderr(), "{start}{line}{end}");
    }

    /// Takes the line away, before something else is said.
    pub(super) fn clear(&self) {
        if self.terminal && self.every.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// `import: 1200000 pairs, 80.1 MiB, 400000 pairs/s, 26.7 MiB/s, 48 %, 3 s left`.
fn line(what: &str, done: &Done, took: Duration) -> String {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    let per_second = |n: u64| n.saturating_mul(1000) / millis;
    let mut text = format!(
        "{what}: {} pairs, {}, {} pairs/s, {}/s",
        done.pairs,
        mebibytes(done.bytes),
        per_second(done.pairs),
        mebibytes(per_second(done.bytes)),
    );
    if let Some(Parts { before, done, all }) = done.parts
        && all > 0
    {
        let all = all.max(done);
        text.push_str(&format!(", {} %", done.saturating_mul(100) / all));
        let now = done.saturating_sub(before);
        let left = (all - done).saturating_mul(millis).checked_div(now);
        if let Some(left) = left {
            text.push_str(&format!(", {} s left", left / 1000));
        }
    }
    text
}

/// With one digit behind the point.
pub(super) fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rates_and_what_is_left() {
        let done = |parts| Done {
            pairs: 1_200_000,
            bytes: 84_000_000,
            parts,
        };
        let three = Duration::from_secs(3);
        assert_eq!(
            line("import", &done(None), three),
            "import: 1200000 pairs, 80.1 MiB, 400000 pairs/s, 26.7 MiB/s"
        );
        let parts = |before, done, all| Some(Parts { before, done, all });
        let half = line("import", &done(parts(0, 50, 100)), three);
        assert!(half.ends_with(", 50 %, 3 s left"), "{half}");
        let resumed = line("import", &done(parts(50, 75, 100)), three);
        assert!(resumed.ends_with(", 75 %, 3 s left"), "{resumed}");
        let over = line("export", &done(parts(0, 150, 100)), three);
        assert!(over.ends_with(", 100 %, 0 s left"), "{over}");
        let none = line("export", &done(parts(0, 0, 100)), Duration::ZERO);
        assert!(none.ends_with(", 0 %"), "{none}");
    }
}
