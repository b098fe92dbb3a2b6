//! Pairs that expire.
//!
//! That a pair expires is an access of its object, of unknown outcome: a delete that takes effect if the
//! object is bound to that very value, at some time from the moment on at which the first clock of any
//! server has reached the expiry. A pair that was found to be gone before is lost, and one that comes back
//! was not gone. At the end of a run every clock is past every expiry, and all has to be gone.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use argosy_base::Moment;

use super::History;
use crate::check::register::AccessKind;
use crate::check::{Bound, CLOCK};
use crate::coverage::Coverage;

/// What expires, and how far clocks have gone.
#[derive(Default)]
pub(crate) struct Expiries {
    /// When what operations write expires, where it does.
    of_ops: BTreeMap<u32, Moment>,
    /// What has not expired by any clock: when it will, the object, the operation.
    due: BTreeSet<(Moment, usize, u32)>,
    /// By now nothing is there any more that expires.
    are_over: bool,
    /// How often something was there that expires.
    seen: Cell<u64>,
    /// The highest moment that any clock has shown.
    reached: Moment,
}

impl Expiries {
    /// What `op` writes expires at this moment.
    pub(crate) fn insert(&mut self, op: u32, at: Moment) {
        self.of_ops.insert(op, at);
    }

    /// `op` writes nothing that does.
    pub(crate) fn remove(&mut self, op: u32) {
        self.of_ops.remove(&op);
    }

    /// When what `op` writes expires, if it does.
    pub(crate) fn get(&self, op: u32) -> Option<Moment> {
        self.of_ops.get(&op).copied()
    }

    /// `object` is being bound to what `op` writes.
    pub(super) fn bind(&mut self, object: usize, op: u32) {
        if let Some(at) = self.get(op) {
            self.due.insert((at, object, op));
        }
    }

    /// A clock has shown this.
    pub(super) fn reach(&mut self, moment: Moment) {
        self.reached = self.reached.max(moment);
    }

    /// Takes out an object that may have expired by now, and the operation that wrote what expires.
    pub(super) fn take_due(&mut self) -> Option<(usize, u32)> {
        let reached = self.reached;
        let (_, object, op) = self.due.first().filter(|(at, ..)| *at <= reached)?;
        let taken = (*object, *op);
        self.due.pop_first();
        Some(taken)
    }

    /// Notes that a value that `op` wrote was found.
    ///
    /// # Errors
    /// Where it has to be over.
    pub(super) fn find(&self, op: u32) -> Result<(), String> {
        if self.of_ops.contains_key(&op) {
            if self.are_over {
                return Err(format!("the value of op {op} has not expired"));
            }
            self.seen.update(|seen| seen + 1);
        }
        Ok(())
    }

    /// The highest moment that any clock has shown.
    pub(crate) const fn reached(&self) -> Moment {
        self.reached
    }

    /// The last moment at which anything expires.
    pub(crate) fn last(&self) -> Moment {
        self.of_ops.values().max().copied().unwrap_or_default()
    }

    /// How often something was there so far that expires.
    pub(crate) const fn seen(&self) -> u64 {
        self.seen.get()
    }

    /// Everything that expires has done so by now.
    pub(crate) fn end(&mut self) {
        assert!(self.due.is_empty(), "all clocks are past all expiries");
        self.are_over = true;
    }
}

impl History {
    /// Counts an object that was found to be bound to nothing, if the last that was done to it may have
    /// been that it expired.
    pub(super) fn count_expired(&self, bound: Bound, coverage: &mut Coverage) {
        let accesses = self.accesses.iter().rev();
        let mut changes = accesses.filter(|access| matches!(access.kind, AccessKind::Write { .. }));
        let expired = changes.next().is_some_and(|access| access.op == CLOCK);
        let counts = bound == Bound::Absent && expired;
        coverage.add("pairs that have expired", u64::from(counts));
    }
}
