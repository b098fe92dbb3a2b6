//! Writes over several regions, each of which takes a part.
//!
//! One region may refuse its part while another takes it. The answer says only that the outcome of the whole is
//! unknown, so what a later write proves of the writes before it (see [`order`](crate::check::order)) it does not
//! prove of parts.

use super::{Load, Pending};
use crate::asks::Target;
use crate::objects::Objects;

impl Load {
    /// Whether operation `op`, a write of `targets`, is split into parts.
    pub(super) fn has_parts(&self, objects: &Objects, op: u32, targets: &[Target]) -> bool {
        let region = |target: &Target| objects.get(target.object).region;
        let erases = self.erasures.contains(&op);
        targets.iter().any(|target| {
            region(target) != region(&targets[0])
                || erases && objects.reaches_next_region(target.object)
        })
    }

    /// The outcome of `pending` is unknown, and stays so. If it has parts, it leaves the order of its process's
    /// writes.
    pub(super) fn forget_order(&mut self, pending: &Pending) {
        if !pending.several_regions {
            return;
        }
        for ((session, _), handed) in &mut self.sessions {
            if *session == pending.asking.session {
                handed.retain(|one| !pending.accesses.contains(&(one.object, one.access)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
