//! What a server is to one region, by the region's view and by what has become of its copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    /// Whether this server does, by that view. Each request reads it.
    is_led_here: AtomicBool,
    role: Mutex<Role>,
    /// The view for which the region's driver was made: its epoch, and above it that in which its primary was chosen.
    seated: AtomicU64,
}

impl Membership {
    /// That of `server`, whose copy is usable, or is not.
    pub(super) fn new(server: ServerId, view: View, usable: bool) -> Self {
        Self {
            server,
            role: Mutex::new(Role::at_start(view.part_of(server), usable)),
            seated: AtomicU64::new(seat_of(&view)),
            is_led_here: AtomicBool::new(view.part_of(server) == Part::Primary),
            view: ArcSwap::from_pointee(view),
        }
    }

    /// Who stores the region and who serves it.
    pub(super) fn view(&self) -> Guard<Arc<View>> {
        self.view.load()
    }

    /// Whether it is this server that serves it.
    pub(super) fn is_led_here(&self) -> bool {
        self.is_led_here.load(Ordering::Acquire)
    }

    /// Replaces that. Returns what this server is to the region now.
    pub(super) fn set_view(&self, view: View) -> Role {
        let is_led_here = view.part_of(self.server) == Part::Primary;
        let is_chosen = is_led_here && !self.view().goes_on_in(&view);
        self.view.store(Arc::new(view));
        self.is_led_here.store(is_led_here, Ordering::Release);
        self.turn(if is_chosen {
            role::Event::Chosen
        } else {
            role::Event::View
        })
    }

    /// Whether the region's driver was made for the present view.
    pub(super) fn is_seated(&self) -> bool {
        self.seated.load(Ordering::Acquire) == seat_of(&self.view())
    }

    /// The epoch in which the primary was chosen of the view for which the driver was made.
    pub(super) fn seated_since(&self) -> Epoch {
        let seat = self.seated.load(Ordering::Acquire);
        Epoch(u32::try_from(seat >> 32).expect("32 bits"))
    }

    /// The region's driver was made for `view`.
    pub(super) fn seat(&self, view: &View) {
        self.seated.store(seat_of(view), Ordering::Release);
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

fn seat_of(view: &View) -> u64 {
    u64::from(view.since.0) << 32 | u64::from(view.epoch.0)
}
