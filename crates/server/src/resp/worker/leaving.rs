//! What a thread knows of connections that are at their end, and of its own.

use std::collections::VecDeque;

use argosy_base::Instant;

use crate::line_rate::LineRate;

/// Those that leave. See the module documentation.
#[derive(Default)]
pub(super) struct Leaving {
    /// Connections whose clients are given time for our last words, the earliest first.
    lingering: VecDeque<(Instant, usize, u64)>,
    /// When to end at the latest, once the order to stop has come.
    stop_by: Option<Instant>,
    /// Lines about connections that are ended.
    lines: LineRate,
}

impl Leaving {
    /// Connection `id`, in `slot`, is closed at `until`.
    pub(super) fn linger(&mut self, until: Instant, slot: usize, id: u64) {
        self.lingering.push_back((until, slot, id));
    }

    /// The next slot and connection whose client has had its time.
    pub(super) fn next(&mut self, now: Instant) -> Option<(usize, u64)> {
        let &(until, slot, id) = self.lingering.front()?;
        if until > now {
            return None;
        }
        self.lingering.pop_front();
        Some((slot, id))
    }

    /// When there is something to do.
    pub(super) fn wants_call_at(&self) -> Option<Instant> {
        let lingering = self.lingering.front().map(|(until, ..)| *until);
        [lingering, self.stop_by].into_iter().flatten().min()
    }

    /// When the thread ends at the latest, if it was told to.
    pub(super) const fn stop_by(&self) -> Option<Instant> {
        self.stop_by
    }

    /// It ends then at the latest.
    pub(super) const fn stop(&mut self, by: Instant) {
        self.stop_by = Some(by);
    }

    /// Whether a line may be written about a connection that is ended, and how many were left out.
    pub(super) fn line(&mut self, now: Instant) -> Option<u64> {
        self.lines.line(now)
    }
}
