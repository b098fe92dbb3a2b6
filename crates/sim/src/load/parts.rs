//! Writes over several regions, each of which takes a part.
//!
//! One region may refuse its part while another takes it. The answer says only that the outcome of the whole is
//! unknown, so what a later write proves of the writes before it (see [`order`](crate::check::order)) it does not
//! prove of parts. Nor has a single copy that lost power to hold such a part because it holds a later write (see
//! [`prefix`]).

use std::collections::BTreeMap;

use argosy_base::Instant;

use super::Pending;
use crate::asks::Target;
use crate::check::order::Handed;
use crate::check::prefix::{self, Taken};
use crate::objects::Objects;

/// A write, as the one copy of a region was handed it.
#[derive(Clone, Debug)]
pub(crate) struct HandedWrite {
    pub(crate) write: prefix::Write,
    /// When it was answered as applied.
    pub(crate) applied: Option<Instant>,
    /// It was answered as not applied.
    pub(crate) void: bool,
}

/// In which order writes were handed over.
pub(crate) struct WriteOrders {
    /// What each process's primary of each region was handed directly, in order.
    pub(crate) sessions: BTreeMap<(u32, usize), Vec<Handed>>,
    /// What each region was handed since it was last counted, if that is kept.
    pub(crate) handed: Vec<Vec<HandedWrite>>,
}

impl WriteOrders {
    /// Nothing was handed over.
    pub(super) fn new(regions: usize) -> Self {
        Self {
            sessions: BTreeMap::new(),
            handed: vec![Vec::new(); regions],
        }
    }

    /// The outcome of `pending` is unknown, and stays so. If it has parts, it leaves the order of its process's
    /// writes, and each of its regions may have refused its part.
    pub(super) fn forget(&mut self, pending: &Pending) {
        if !pending.several_regions {
            return;
        }
        for ((session, _), handed) in &mut self.sessions {
            if *session == pending.asking.session {
                handed.retain(|one| !pending.accesses.contains(&(one.object, one.access)));
            }
        }
        for (region, place) in &pending.handed {
            self.handed[*region][*place].write.taken = Taken::Perhaps;
        }
    }

    /// How many writes a region was handed up to `moment` that were applied.
    #[must_use]
    pub(crate) fn applied_by(&self, region: usize, moment: Instant) -> usize {
        let writes = self.handed[region].iter().filter(|write| !write.void);
        let mut count = 0;
        for (place, write) in writes.enumerate() {
            if write.applied.is_some_and(|applied| applied <= moment) {
                count = place + 1;
            }
        }
        count
    }
}

/// Whether a write of `targets` is split into parts; `erases`: it removes the ranges between them.
pub(super) fn has_parts(objects: &Objects, targets: &[Target], erases: bool) -> bool {
    let region = |target: &Target| objects.get(target.object).region;
    targets.iter().any(|target| {
        region(target) != region(&targets[0])
            || erases && objects.reaches_next_region(target.object)
    })
}

#[cfg(test)]
mod tests;
