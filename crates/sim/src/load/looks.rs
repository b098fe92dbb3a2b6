//! What is seen of the load from outside: what is under way, and how writes went.

use std::collections::BTreeMap;

use argosy_server::service::Failure;

use super::{Load, Pending};
use crate::asks::Ask;
use crate::check::Access;
use crate::check::register::Kind;

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is not answered.
    Pending,
    /// It was answered.
    Applied,
    /// It was refused.
    NotApplied,
    /// Nobody knows.
    Unknown,
}

/// Writes of one object under way, at most.
const BUSY_MAX: usize = 5;

impl Load {
    /// A device is damaged now: what is under way may be told, even when all is mended.
    pub(crate) fn damage(&mut self) {
        self.damaged = true;
        for pending in self.pending.values_mut() {
            pending.damaged = true;
        }
    }

    /// The time of the last request or answer, as histories count it.
    pub(crate) const fn last_moment(&self) -> u64 {
        self.moment
    }

    /// The number of the next operation.
    #[must_use]
    pub(crate) fn next_op(&self) -> u32 {
        u32::try_from(self.lens.len()).expect("a few thousand operations")
    }

    /// The last write that was answered as applied.
    #[must_use]
    pub(crate) const fn last_applied(&self) -> Option<u32> {
        self.last_applied
    }

    /// Requests under way, by operation.
    #[must_use]
    pub(crate) const fn pending(&self) -> &BTreeMap<u32, Pending> {
        &self.pending
    }

    /// Whether so many writes of one of these objects are under way that their orders could not be
    /// looked at any more.
    #[must_use]
    pub(crate) fn is_crowded(&self, ask: &Ask) -> bool {
        let Ask::Write { targets, .. } = ask else {
            return false;
        };
        targets
            .iter()
            .any(|target| self.busy[target.object] >= BUSY_MAX)
    }

    /// How the write of `object` by operation `op` went.
    #[must_use]
    pub(crate) fn fate(&self, op: u32, object: usize) -> Fate {
        if self.pending.contains_key(&op) {
            return Fate::Pending;
        }
        let mut accesses = self.histories[object].accesses.iter().rev();
        match accesses.find(|access| access.op == op) {
            Some(Access {
                kind: Kind::Void, ..
            }) => Fate::NotApplied,
            Some(Access { ended: Some(_), .. }) => Fate::Applied,
            Some(_) | None => Fate::Unknown,
        }
    }
}

/// Whether a refusal says that a device is full.
pub(crate) fn no_space(what: &str) -> bool {
    what.contains(" is full (") || what.contains("a device was full")
}

/// Whether a request that was given up is told that it had found room late.
pub(crate) fn had_waited_for_room(error: &Failure) -> bool {
    error
        .to_string()
        .contains("the request had waited for room before")
}

/// Whether a request is told that a device has failed, and not that something is damaged.
pub(crate) fn is_failure(what: &str) -> bool {
    let failed = ["failed", "closed to writes"];
    failed.iter().any(|told| what.contains(told)) && !what.contains("checksum")
}

/// Whether a request is told where something else lies than what was written.
pub(crate) fn names_damage(what: &str) -> bool {
    what.contains("byte ") || is_failure(what)
}
