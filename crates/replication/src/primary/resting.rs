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

use super::{Action, Phase, Primary};

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

impl Primary {
    /// Whether the windows of `member` can be written. Where they cannot, tell [`Wanted`](super::Event::Wanted) and
    /// wait for [`Action::Ship`].
    #[must_use]
    pub fn is_awake(&self, member: ServerId) -> bool {
        self.members
            .get(&member)
            .is_some_and(|member| member.rest == Rest::Awake)
    }

    /// Whether `member` is to be asked to wake once there is something to be written to its windows.
    #[must_use]
    pub fn is_asleep(&self, member: ServerId) -> bool {
        self.members
            .get(&member)
            .is_some_and(|member| matches!(member.rest, Rest::Fresh | Rest::Resting))
    }

    /// Whether `member` is still to be sent flushes: its windows are needed for them.
    #[must_use]
    pub fn owes_flushes(&self, member: ServerId) -> bool {
        self.members
            .get(&member)
            .is_some_and(|member| !member.flushes.is_empty())
    }

    pub(super) fn logs_rest(&mut self, actions: &mut Vec<Action>) {
        if !self.flushes.is_empty() {
            return;
        }
        for (id, member) in &mut self.members {
            let is_done = member.ships.under_way.is_empty() && member.flushes.is_empty();
            let has_memory = matches!(member.rest, Rest::Fresh | Rest::Awake);
            if member.phase == Phase::Live && has_memory && is_done {
                member.rest = Rest::Resting;
                actions.push(Action::SendRest {
                    member: *id,
                    attempt: member.attempt,
                });
            }
        }
    }

    pub(super) fn wanted(&mut self, id: ServerId, actions: &mut Vec<Action>) {
        if let Some(member) = self.members.get_mut(&id)
            && matches!(member.rest, Rest::Fresh | Rest::Resting)
        {
            member.rest = Rest::Waking;
            actions.push(Action::SendWake {
                member: id,
                attempt: member.attempt,
            });
        }
    }

    pub(super) fn awake(&mut self, id: ServerId, attempt: u64, actions: &mut Vec<Action>) {
        if let Some(member) = self.members.get_mut(&id)
            && (member.rest, member.attempt) == (Rest::Waking, attempt)
        {
            member.rest = Rest::Awake;
            actions.push(Action::Ship { member: id });
        }
    }
}
