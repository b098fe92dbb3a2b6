//! What this server is to a region, and how that changes: a pure table.
//!
//! ```text
//! role \ event   View, and this server is now …           Chosen   Opened   Failed  Refilled
//!                the primary   a backup   nothing
//! Opening        Opening       Backup     Outside         Opening  Primary  Failed  Opening
//! Primary        Primary       Backup     Outside         Opening  -        Failed  -
//! Backup         Opening       Backup     Outside         Opening  Backup   Failed  Backup
//! Outside        Opening       Backup     Outside         Opening  Outside  Failed  Outside
//! Failed         Failed        Failed     Failed          Failed   Failed   Failed  as the view says
//! ```
//!
//! `-`: does not happen. "As the view says" is Opening for the primary, Backup for a backup, and Outside otherwise. A
//! copy is promoted at the device, and its server may have another part before it is done: then it keeps that.
//!
//! The role is what the view says at once. The region's driver follows in the background
//! ([`adapting`](super::adapting)); until it has, nothing is shown and nothing is taken.

use super::views::Part;

/// What this server is to a region that it has a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(PartialOrd, Ord))]
pub(crate) enum Role {
    /// The primary, before it serves.
    Opening,
    /// The primary; it serves.
    Primary,
    /// A backup; it follows, or waits for a primary.
    Backup,
    /// No member. Its copy, if it has one, takes nothing and shows nothing.
    Outside,
    /// Its copy is used for nothing.
    Failed,
}

/// What changes a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// The view of the region was replaced.
    View,
    /// It was replaced, and this server was chosen as the primary anew.
    Chosen,
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
            _ if !usable => Self::Failed,
            Part::Primary => Self::Opening,
            Part::Backup => Self::Backup,
            Part::Nothing => Self::Outside,
        }
    }
}

/// The role after `event`, for a server that has `part` by the present view; `None`: that does not happen.
pub(crate) const fn next(role: Role, part: Part, event: Event) -> Option<Role> {
    let next = match (role, event) {
        (_, Event::Failed) => Role::Failed,
        (Role::Failed, Event::Refilled) => Role::at_start(part, true),
        (Role::Failed, _) => Role::Failed,
        (Role::Primary, Event::View) if matches!(part, Part::Primary) => role,
        (_, Event::View | Event::Chosen) => Role::at_start(part, true),
        (Role::Opening, Event::Opened) => Role::Primary,
        (Role::Primary, Event::Opened | Event::Refilled) => return None,
        (_, Event::Opened | Event::Refilled) => role,
    };
    Some(next)
}
