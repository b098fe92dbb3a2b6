//! Rest: backups whose windows need no memory, because nothing is written to them.
//!
//! ```text
//!             the logs rest                something is to be written
//!   Awake ───────────────────▶ Resting ────────────────────────────────▶ Waking
//!     ▲                                                                    │
//!     └─────────────────── the backup says that it is awake ───────────────┘
//! ```
//!
//! The primary writes to the windows of a backup that is awake, and to no others. It lets a backup rest when
//! all writes to that backup have completed and are durable there, and everywhere else. So the backup may release
//! the memory as soon as it hears of that, whatever happens to the primary or to other members. A backup that begins
//! a new attempt has fresh windows: with memory, if there was something to be kept in them, or without. It is *fresh*:
//! asked to wake before it is written to, and let rest where the logs do.

use alloc::vec::Vec;

use argosy_base::ServerId;

use super::Action;
use super::members::Members;

/// Whether the windows of a backup have memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nobody knows.
    #[default]
    Fresh,
    /// They have.
    Awake,
    /// They need none.
    Resting,
    /// It was asked to take memory again.
    Waking,
}

impl Members {
    /// Lets those rest that have done everything.
    pub(super) fn let_rest(&mut self, actions: &mut Vec<Action>) {
        for (id, member) in self.iter_mut() {
            let is_done = member.ships.under_way.is_empty() && member.owed.is_empty();
            let has_memory = matches!(member.rest, Rest::Fresh | Rest::Awake);
            if member.is_live() && has_memory && is_done {
                member.rest = Rest::Resting;
                actions.push(Action::SendRest {
                    member: id,
                    attempt: member.attempt,
                });
            }
        }
    }

    /// There is something to be written to the windows of `id`.
    pub(super) fn wanted(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        if let Some(member) = self.get_mut(id)
            && matches!(member.rest, Rest::Fresh | Rest::Resting)
        {
            member.rest = Rest::Waking;
            actions.push(Action::SendWake {
                member: id,
                attempt: member.attempt,
            });
        }
    }

    /// The windows of `id` have memory.
    pub(super) fn awake(&mut self, id: ServerId, attempt: u64, actions: &mut Vec<Action>) {
        if let Some(member) = self.get_mut(id)
            && (member.rest, member.attempt) == (Rest::Waking, attempt)
        {
            member.rest = Rest::Awake;
            actions.push(Action::Ship { member: id });
        }
    }
}
