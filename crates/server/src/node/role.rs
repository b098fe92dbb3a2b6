//! What this server is to a region, and how that changes: a pure table.
//!
//! ```text
//! role \ event   View, and this server is now …           Opened   Failed   Refilled
//!                the primary   a backup    no member
//! Opening        Opening       Failed      Failed         Primary  Failed   Opening
//! Primary        Primary       Failed      Failed         -        Failed   -
//! Backup         Failed        Backup      Failed         -        Failed   Backup
//! Failed         Failed        Failed      Failed         Failed   Failed   as the view says
//! ```
//!
//! `-`: does not happen. "As the view says" is Opening for the primary, and Backup for a backup. A copy is promoted at
//! the device, and its server may have another part before it is done: then it stays Failed.
//!
//! A copy whose server has another part now takes no more from anybody, and shows nothing, until
//! the server is started again: then it opens in its new part. That is safe, whoever the others are and whatever they
//! have heard: its windows are revoked, so nothing is acknowledged by a primary that counts on it.

use super::views::Part;

/// What this server is to a region that it has a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(PartialOrd, Ord))]
pub(crate) enum Role {
    /// The primary, before it serves.
    Opening,
    /// The primary; it serves.
    Primary,
    /// A backup; it follows.
    Backup,
    /// Its copy is used for nothing.
    Failed,
}

/// What changes a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// The view of the region was replaced.
    View,
    /// The own copy was promoted.
    Opened,
    /// The own copy can be used no longer.
    Failed,
    /// The own copy was begun anew.
    Refilled,
}

impl Role {
    /// That of a server that has opened its copy. `usable`: it could, or the server is the primary and may have
    /// the copy begun anew.
    pub(crate) const fn at_start(part: Part, usable: bool) -> Self {
        match part {
            Part::Primary if usable => Self::Opening,
            Part::Backup if usable => Self::Backup,
            Part::Primary | Part::Backup | Part::Nothing => Self::Failed,
        }
    }
}

/// The role after `event`, for a server that has `part` by the present view; `None`: that does not happen.
pub(crate) const fn next(role: Role, part: Part, event: Event) -> Option<Role> {
    let next = match (role, event) {
        (_, Event::Failed) => Role::Failed,
        (Role::Opening | Role::Primary, Event::View) if matches!(part, Part::Primary) => role,
        (Role::Backup, Event::View) if matches!(part, Part::Backup) => role,
        (_, Event::View) => Role::Failed,
        (Role::Opening, Event::Opened) => Role::Primary,
        (Role::Opening | Role::Backup, Event::Refilled) => role,
        (Role::Failed, Event::Opened) => Role::Failed,
        (Role::Failed, Event::Refilled) => Role::at_start(part, true),
        (Role::Primary | Role::Backup, Event::Opened) | (Role::Primary, Event::Refilled) => {
            return None;
        }
    };
    Some(next)
}
