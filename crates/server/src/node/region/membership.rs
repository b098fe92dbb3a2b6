//! What a server is to one region, by the region's view and by what has become of its copy.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use argosy_base::ServerId;
use parking_lot::Mutex;

use super::super::role::{self, Role};
use super::super::views::View;

/// See the module documentation.
pub(super) struct Membership {
    server: ServerId,
    /// Who stores the region and who serves it.
    view: ArcSwap<View>,
    role: Mutex<Role>,
}

impl Membership {
    /// That of `server`, whose copy is usable, or is not.
    pub(super) fn new(server: ServerId, view: View, usable: bool) -> Self {
        Self {
            server,
            role: Mutex::new(Role::at_start(view.part_of(server), usable)),
            view: ArcSwap::from_pointee(view),
        }
    }

    /// Who stores the region and who serves it.
    pub(super) fn view(&self) -> Guard<Arc<View>> {
        self.view.load()
    }

    /// Replaces that. Returns what this server is to the region now.
    pub(super) fn set_view(&self, view: View) -> Role {
        self.view.store(Arc::new(view));
        self.turn(role::Event::View)
    }

    /// What this server is to the region.
    pub(super) fn role(&self) -> Role {
        *self.role.lock()
    }

    /// Moves the role by the table, because of `event`. Returns the new one.
    pub(super) fn turn(&self, event: role::Event) -> Role {
        let mut role = self.role.lock();
        let next = role::next(*role, self.view().part_of(self.server), event);
        debug_assert!(next.is_some(), "{event:?} does not happen to {role:?}");
        *role = next.unwrap_or(*role);
        *role
    }
}
