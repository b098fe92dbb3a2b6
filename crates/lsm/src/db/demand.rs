//! How many segments of a log are declared at a time, and how early.

/// Most segments of a log that one edit declares: 32 MiB for each time that it takes to make one durable.
pub(super) const TAILS_MAX: u64 = 16;

/// How fast a log goes through its segments: how much of it is written from when some are asked for until they are
/// there, which is as long as it takes to make an edit durable everywhere. The estimate doubles when the log stood
/// still for want of a segment, since the log could have used more, perhaps before any were asked for. Otherwise the
/// estimate falls by an eighth at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// Where the log was when segments were asked for that are not there yet.
    asked_at: Option<u64>,
    /// The estimate of the bytes that are written meanwhile.
    needed: u64,
}

impl Demand {
    /// Asks for segments where the log is `at`. Returns how many, up to `most`: for twice as much as is needed until
    /// they are there.
    pub(super) fn ask(&mut self, at: u64, segment_bytes: u64, most: u64) -> u64 {
        self.asked_at.get_or_insert(at);
        (2 * self.needed).div_ceil(segment_bytes).clamp(1, most)
    }

    /// One of them is there, where the log is `at`. `stood_still`: it had no segment left to write to.
    pub(super) fn provided(&mut self, at: u64, segment_bytes: u64, stood_still: bool) {
        let Some(asked) = self.asked_at.take() else {
            return;
        };
        let used = at - asked;
        let needed = match stood_still {
            true => 2 * used.max(self.needed).max(segment_bytes / 4),
            false => used.max(self.needed - self.needed / 8),
        };
        self.needed = needed.min(TAILS_MAX * segment_bytes);
    }

    /// Segments are asked for, up to `most` at a time, while so many bytes are left of those that are there.
    pub(super) fn ahead(&self, segment_bytes: u64, most: u64) -> u64 {
        self.needed.min(most / 2 * segment_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 2 << 20;

    /// How many segments each edit declares, `most` at a time, for a log to which `rate` bytes are written while an
    /// edit becomes durable.
    fn declared(rate: u64, most: u64) -> Vec<u64> {
        let mut demand = Demand::default();
        let (mut at, mut end) = (0, SEGMENT);
        let mut declared = Vec::new();
        for _ in 0..12 {
            at = at.max(end.saturating_sub(demand.ahead(SEGMENT, most).max(SEGMENT)));
            let wanted = demand.ask(at, SEGMENT, most);
            at = end.min(at + rate);
            demand.provided(at, SEGMENT, at == end);
            end += wanted * SEGMENT;
            declared.push(wanted);
        }
        declared
    }

    #[test]
    fn a_log_is_given_what_it_writes_while_it_waits() {
        assert_eq!(declared(SEGMENT / 10, TAILS_MAX)[2..], [1; 10]);
        assert_eq!(declared(SEGMENT / 2, TAILS_MAX)[2..], [1; 10]);
        let fast = declared(3 * SEGMENT, TAILS_MAX);
        assert_eq!(fast[..3], [1, 4, 8]);
        assert!(
            fast[3..].iter().all(|count| (6..=12).contains(count)),
            "{fast:?}"
        );
        // Faster than edits can be: all that one may declare.
        assert_eq!(declared(100 * SEGMENT, TAILS_MAX)[4..], [TAILS_MAX; 8]);
        // Where room is scarce: one at a time, and no earlier.
        assert_eq!(declared(100 * SEGMENT, 1), [1; 12]);
        assert_eq!(
            Demand {
                asked_at: None,
                needed: 9 * SEGMENT
            }
            .ahead(SEGMENT, 1),
            0
        );
    }

    /// Nothing is written from when it asks until it gets some, each time, since what it had is full by then.
    #[test]
    fn a_log_that_asks_at_its_end_is_given_more_each_time() {
        let (mut demand, mut at) = (Demand::default(), 0);
        let mut declared = Vec::new();
        for _ in 0..7 {
            let wanted = demand.ask(at, SEGMENT, TAILS_MAX);
            demand.provided(at, SEGMENT, true);
            at += wanted * SEGMENT;
            declared.push(wanted);
        }
        assert_eq!(declared, [1, 1, 2, 4, 8, 16, 16]);
    }
}
