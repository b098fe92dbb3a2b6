//! What was written to a group, in the order of the LSNs, and what of it is confirmed.
//!
//! A case compares what a member shows with the pairs of the history at that member's last LSN. A write that was given
//! up when a backup took over is no part of the history any more.

use argosy_base::Lsn;

use super::{Pairs, value_of};
use crate::WriteBatch;
use crate::conformance::Choices;

/// What a write binds keys to; `None`: nothing.
type Bound = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A write for the store, and what it binds.
pub(super) struct Draft {
    pub(super) batch: WriteBatch,
    bound: Bound,
}

impl Draft {
    /// A random write.
    pub(super) fn random(choices: &mut Choices) -> Self {
        let (mut batch, mut bound) = (WriteBatch::new(), Vec::new());
        for _ in 0..=choices.below(3) {
            let key = format!("key{:04}", choices.below(300)).into_bytes();
            if choices.chance(20) {
                batch.delete(&key).expect("within the limits");
                bound.push((key, None));
            } else {
                let len = match choices.below(4) {
                    0 => 8,
                    1 => 60,
                    2 => 300,
                    _ => 1500,
                };
                let value = value_of(choices.bits(), len);
                batch.put(&key, &value).expect("within the limits");
                bound.push((key, Some(value)));
            }
        }
        Self { batch, bound }
    }
}

/// The LSNs of one write.
#[derive(Clone, Copy)]
pub(super) struct Lsns {
    pub(super) first: Lsn,
    pub(super) last: Lsn,
}

struct PastWrite {
    lsns: Lsns,
    bound: Bound,
}

impl PastWrite {
    fn apply(&self, pairs: &mut Pairs) {
        for (key, value) in &self.bound {
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
        }
    }
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct History {
    /// What the region holds as of the last write that is confirmed.
    confirmed: Pairs,
    /// All writes, confirmed or not.
    writes: Vec<PastWrite>,
}

impl History {
    /// `draft` was written, and is not confirmed.
    pub(super) fn push(&mut self, draft: Draft, lsns: Lsns) {
        let bound = draft.bound;
        self.writes.push(PastWrite { lsns, bound });
    }

    /// The last write is confirmed.
    pub(super) fn confirm_last(&mut self) {
        let last = self.writes.last().expect("it was just written");
        last.apply(&mut self.confirmed);
    }

    /// What is confirmed.
    pub(super) const fn confirmed(&self) -> &Pairs {
        &self.confirmed
    }

    /// What the region held when `lsn` was its last LSN; `None` where that is in the middle of a write. What the engine
    /// appends between writes, to move values, changes nothing.
    pub(super) fn pairs_at(&self, lsn: Lsn) -> Option<Pairs> {
        let mut pairs = Pairs::new();
        let mut writes = self.writes.iter().peekable();
        while let Some(write) = writes.next_if(|write| write.lsns.last <= lsn) {
            write.apply(&mut pairs);
        }
        let begun = writes.peek().is_some_and(|next| next.lsns.first <= lsn);
        (!begun).then_some(pairs)
    }

    /// The history ends at `found`, where the region held `pairs`. Returns how many writes are given up: these were not
    /// confirmed.
    pub(super) fn end_at(&mut self, found: Lsn, pairs: Pairs) -> u64 {
        self.confirmed = pairs;
        let before = self.writes.len();
        self.writes.retain(|write| write.lsns.last <= found);
        (before - self.writes.len()) as u64
    }
}
