//! Up to where a primary's writes are acknowledged, by the durability of its cluster.
//!
//! | durability | the commit LSN is raised to what | answers show what is |
//! |---|---|---|
//! | `last-write` | every member holds (invariant I4) | committed |
//! | `last-flush` | the same | on its way to every member |
//! | `sync` | every member holds, and has on its device | committed |
//!
//! A store keeps what is not committed out of its levels, in each of them.

use argosy_base::DurabilityMode;
use argosy_replication::Primary;

use super::context::Context;
use super::serving::Serving;

/// Whether what may be shown changes with the commit LSN of the machine, and at no other time.
pub(super) fn follows_commits(context: &Context<'_>) -> bool {
    context.durability() == DurabilityMode::LastWrite
}

/// Raises what `engine` may show, by how far `machine` and the devices are.
pub(super) fn raise(engine: &Serving, machine: &Primary, context: &Context<'_>) {
    // A member may claim more than was ever written here; it is not believed.
    let held = machine.commit().min(engine.last_lsn());
    let mutants = context.settings.mutants;
    match context.durability() {
        DurabilityMode::LastWrite => engine.commit(held),
        DurabilityMode::Sync if mutants.acknowledge_unsynced() => engine.commit(held),
        DurabilityMode::LastFlush => {
            engine.commit(held);
            engine.issued(machine.issued());
        }
        DurabilityMode::Sync => engine.commit(held.min(engine.durable_lsn())),
    }
}

#[cfg(test)]
#[path = "acknowledging_tests.rs"]
mod tests;
