//! What a server is to one region, by the region's view and by what has become of its copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::{ArcSwap, Guard};
use argosy_base::{Epoch, ServerId};
use parking_lot::Mutex;

use super::super::role::{self, Role};
use super::super::views::{Part, View};

/// See the module documentation.
pub(super) struct Membership {
    server: ServerId,
    /// Who stores the region and who serves it.
    view: ArcSwap<View>,
    role: Mutex<Role>,
    /// The epoch for which the region's driver was made. Set with the driver's lock held.
    seated: AtomicU32,
}

impl Membership {
    /// That of `server`, whose copy is usable, or is not.
    pub(super) fn new(server: ServerId, view: View, usable: bool) -> Self {
        Self {
            server,
            role: Mutex::new(Role::at_start(view.part_of(server), usable)),
            seated: AtomicU32::new(view.epoch.0),
            view: ArcSwap::from_pointee(view),
        }
    }

    /// Who stores the region and who serves it.
    pub(super) fn view(&self) -> Guard<Arc<View>> {
        self.view.load()
    }

    /// Replaces that. Returns what this server is to the region now.
    pub(super) fn set_view(&self, view: View) -> Role {
        let is_chosen =
            view.part_of(self.server) == Part::Primary && !self.view().goes_on_in(&view);
        self.view.store(Arc::new(view));
        self.turn(if is_chosen {
            role::Event::Chosen
        } else {
            role::Event::View
        })
    }

    /// The epoch for which the region's driver was made.
    pub(super) fn seated(&self) -> Epoch {
        Epoch(self.seated.load(Ordering::Acquire))
    }

    /// The region's driver was made for `epoch`. With its lock held.
    pub(super) fn seat(&self, epoch: Epoch) {
        self.seated.store(epoch.0, Ordering::Release);
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
