//! Commands that have something done with all of the store: `KV.FLUSH` and `KV.COMPACT`.

use argosy_wire::api::Plan;

use super::command::{Command, NO_KEYS, Step, Turn};
use super::reply::Gather;
use crate::service::Maintenance;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "kv.flush",
        arity: 1,
        flags: "admin",
        keys: NO_KEYS,
        group: "kv",
        summary: "Returns once everything that was written before is durable on every member of every region.",
        usage: "",
        run: flush,
    },
    Command {
        name: "kv.compact",
        arity: 1,
        flags: "admin",
        keys: NO_KEYS,
        group: "kv",
        summary: "Merges each region into one level, drops what is overwritten or deleted, and returns once \
                  every member has that.",
        usage: "",
        run: compact,
    },
];

fn flush(_: &mut Turn<'_>) -> Step {
    Step::Call(Plan::Maintain(Maintenance::Flush), Gather::Done)
}

fn compact(_: &mut Turn<'_>) -> Step {
    Step::Call(Plan::Maintain(Maintenance::Compact), Gather::Done)
}
