//! Pairs that expire.
//!
//! That a pair expires is an access of its object, of unknown outcome: a delete that takes effect if the
//! object is bound to that very value, at some time from the moment on at which the first clock of any
//! server has reached the expiry. A pair that was found to be gone before is lost, and one that comes back
//! was not gone. At the end of a run every clock is past every expiry, and all has to be gone.

use argosy_base::Moment;

use super::Load;
use crate::check::register::Kind;
use crate::check::{Access, Bound, CLOCK, When};
use crate::coverage::Coverage;

impl Load {
    /// A clock has shown this.
    pub(crate) fn time_reached(&mut self, moment: Moment) {
        self.reached = self.reached.max(moment);
        while let Some((at, object, op)) = self.due.first().copied()
            && at <= self.reached
        {
            self.due.pop_first();
            let began = self.moment();
            self.histories[object].accesses.push(Access {
                op: CLOCK,
                kind: Kind::Write {
                    to: Bound::Absent,
                    condition: When::Is(Bound::To(op)),
                    saw: None,
                },
                began,
                ended: None,
            });
        }
    }

    /// The highest moment that any clock has shown.
    pub(crate) const fn reached(&self) -> Moment {
        self.reached
    }

    /// The last moment at which anything expires.
    pub(crate) fn last_expiry(&self) -> Moment {
        self.expiries.values().max().copied().unwrap_or_default()
    }

    /// How often something was there so far that expires.
    pub(crate) const fn expiring_seen(&self) -> u64 {
        self.expiring_seen.get()
    }

    /// Everything that expires has done so by now.
    pub(crate) fn all_expired(&mut self) {
        assert!(self.due.is_empty(), "all clocks are past all expiries");
        self.all_expired = true;
    }

    /// Counts an object that was found to be bound to nothing, if the last that was done to it may have
    /// been that it expired.
    pub(super) fn count_expired(&self, object: usize, bound: Bound, coverage: &mut Coverage) {
        let accesses = self.histories[object].accesses.iter().rev();
        let mut changes = accesses.filter(|access| matches!(access.kind, Kind::Write { .. }));
        let expired = changes.next().is_some_and(|access| access.op == CLOCK);
        let counts = bound == Bound::Absent && expired;
        coverage.add("pairs that have expired", u64::from(counts));
    }
}
