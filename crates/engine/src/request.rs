//! What a region is asked, and what it answers.

use std::time::Duration;

use argosy_base::{Changed, Lsn, Moment, Wanted};

use crate::WaitFor;

/// What a write did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Whether the condition held and the batch was written.
    pub applied: bool,
    /// The condition held, but not what [guards](argosy_base::WriteBatch::guard) the batch.
    pub unguarded: bool,
    /// It was applied when it came before, under the same [name](argosy_base::WriteBatch::name): nothing was written
    /// now, and nothing else is told.
    pub before: bool,
    /// What the reply waits for. Where the condition failed: for what it failed on.
    pub wait: WaitFor,
    /// Per operation, what its key was bound to before, where that was asked for.
    pub previous: Vec<Option<Vec<u8>>>,
    /// Per operation, whether its key was bound before, where a condition, the previous value, a change
    /// or a delete made the engine look. Empty otherwise.
    pub existed: Vec<bool>,
    /// What a [change](argosy_base::WriteBatch::change) told, unless the condition failed. Where it came to nothing,
    /// `applied` is false.
    pub changed: Option<Changed>,
}

impl Written {
    /// That it was applied before, by a group that ends with this LSN.
    #[must_use]
    pub fn before(lsn: Lsn) -> Self {
        Self {
            before: true,
            ..Self::up_to(lsn)
        }
    }

    /// That everything up to `last` was appended, and nothing is to be told of what was there before.
    #[inline]
    #[must_use]
    pub const fn up_to(last: Lsn) -> Self {
        Self {
            applied: true,
            unguarded: false,
            before: false,
            wait: WaitFor::committed(last),
            previous: Vec::new(),
            existed: Vec::new(),
            changed: None,
        }
    }
}

/// What a key is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The value, or `None` where the key is not bound.
    pub value: Option<Vec<u8>>,
    /// What the answer waits for.
    pub wait: WaitFor,
    /// No write of the key has a higher LSN: for [`Condition::Version`](argosy_base::Condition::Version).
    pub version: Lsn,
    /// When the pair expires, if it does.
    pub expiry: Option<Moment>,
}

/// What is known of a key without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Bytes of the value, or `None` where the key is not bound.
    pub len: Option<usize>,
    /// What the answer waits for.
    pub wait: WaitFor,
    /// When the pair expires, if it does.
    pub expiry: Option<Moment>,
}

impl From<Found> for Outline {
    fn from(found: Found) -> Self {
        Self {
            len: found.value.map(|value| value.len()),
            wait: found.wait,
            expiry: found.expiry,
        }
    }
}

/// Whether a step did anything, and when to call again if nothing else happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Something was done: call again soon.
    pub made: bool,
    /// Nothing can be done before this long has passed. `None`: nothing until an event.
    pub idle_for: Option<Duration>,
    /// A request of it is under way at the device, whose waker is called when that ends: call again then.
    pub device: bool,
}

/// How far a request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To what is in memory: for a thread that must not wait for the device.
    Memory,
    /// To the device.
    Device,
}

/// What is `wanted` of the first of what was `found` for keys; `value` leads to what a key is bound to.
///
/// # Errors
/// The first error among them.
pub fn first_wanted<T, E>(
    wanted: Wanted,
    found: impl IntoIterator<Item = Result<T, E>>,
    value: impl Fn(&mut T) -> &mut Option<Vec<u8>>,
) -> Result<Vec<T>, E> {
    let mut told = Vec::new();
    let mut bytes = 0;
    for found in found {
        let mut found = found?;
        if let Some(value) = value(&mut found) {
            bytes += value.len();
            if wanted == Wanted::Presence {
                value.clear();
            }
        }
        told.push(found);
        if matches!(wanted, Wanted::Values(most) if bytes >= most) {
            break;
        }
    }
    Ok(told)
}
