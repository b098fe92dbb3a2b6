//! How often one thing may be logged: what clients or peers can cause without end is told in a line
//! each for the first few times, and in a line for many from there on.

use std::time::Duration;

use argosy_base::Instant;

/// Lines that may come at once.
const BURST: u32 = 4;
/// Beyond them, there is one line in so long.
const PERIOD: Duration = Duration::from_secs(10);

/// Bounds the lines about one thing: [`BURST`] of them, and then one in each [`PERIOD`], as long as
/// it goes on. Quiet for a period, it has its burst again.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineRate {
    /// When the last line was written.
    last: Option<Instant>,
    /// Lines since it was quiet.
    lines: u32,
    /// Times that there was no line, since the last one.
    left_out: u64,
}

impl LineRate {
    /// It has happened again. Where it is to be told: how many times were left out since the last
    /// line.
    pub(crate) fn line(&mut self, now: Instant) -> Option<u64> {
        let quiet = self.last.is_none_or(|last| now.since(last) >= PERIOD);
        if quiet && self.left_out == 0 {
            self.lines = 0;
        }
        if !quiet && self.lines >= BURST {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        self.lines = (self.lines + 1).min(BURST);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_flood_is_a_few_lines_and_then_one_in_each_period() {
        let mut rate = LineRate::default();
        let lines: Vec<_> = (0..1000).filter_map(|_| rate.line(at(1))).collect();
        assert_eq!(lines, [0; BURST as usize]);
        assert_eq!(rate.line(at(10)), None);
        assert_eq!(rate.line(at(11)), Some(1000 - u64::from(BURST) + 1));
        assert_eq!(rate.line(at(12)), None, "it goes on");
        assert_eq!(rate.line(at(30)), Some(1));
        // Quiet since: as at the beginning.
        let lines: Vec<_> = (0..1000).filter_map(|_| rate.line(at(50))).collect();
        assert_eq!(lines, [0; BURST as usize]);
    }
}
