//! How many segments of a log are declared at a time.

/// Most segments of a log that one edit declares: 16 MiB for each time that it takes to make one durable.
pub(super) const TAILS_MAX: u64 = 8;

/// How fast a log goes through its segments: how much of it is written from when some are asked for until they are
/// there, which is as long as it takes to make an edit durable everywhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// Where the log was when segments were asked for that are not there yet.
    asked_at: Option<u64>,
    /// Bytes that were written meanwhile, the last time.
    used: u64,
}

impl Demand {
    /// Asks for segments where the log is `at`. Returns how many: for twice as much as was used the last time, since
    /// whoever had too few could use no more.
    pub(super) fn ask(&mut self, at: u64, segment_bytes: u64) -> usize {
        self.asked_at.get_or_insert(at);
        let wanted = (2 * self.used).div_ceil(segment_bytes).clamp(1, TAILS_MAX);
        usize::try_from(wanted).expect("they are few")
    }

    /// One of them is there, where the log is `at`.
    pub(super) fn provided(&mut self, at: u64) {
        if let Some(asked) = self.asked_at.take() {
            self.used = at - asked;
        }
    }
}
