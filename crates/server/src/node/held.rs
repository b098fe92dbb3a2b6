//! Work of a region's driver that waits for the device, and what waits for that work.
//!
//! A backup that reports and a primary that is promoted read whole logs, and what others fetch is read from the
//! copy of a backup. The background thread does that. While it does, the driver is *at the device*: the
//! fabric thread does not wait for it. It goes on with links, beats and other regions, and keeps what is for
//! this one, messages and changes of links, in order.
//!
//! Little comes at such a time: a primary says nothing to a backup before that has reported, and a region
//! that opens has no load. Over [`HELD_BYTES_MAX`] the fabric thread does wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use argosy_base::{Instant, ServerId};
use argosy_wire::message::Message;
use argosy_wire::ring::Header;

use super::Node;
use super::context::Context;
use super::region::{Driver, Region};

/// Bytes of messages that wait for one region, at most: twice the longest message.
const HELD_BYTES_MAX: usize = 4 << 20;

/// What waits for a driver.
pub(super) enum Held {
    /// A message of a member.
    Message(ServerId, Header, Vec<u8>),
    /// The link to a member is up, or down.
    Link(ServerId, bool),
}

/// What waits for the driver of one region. See the module documentation.
#[derive(Default)]
pub(super) struct Holding {
    at_device: AtomicBool,
    /// In the order in which it came, and its bytes.
    held: Mutex<(VecDeque<Held>, usize)>,
}

impl Holding {
    /// Whether the background thread has the driver read the device.
    pub(super) fn is_at_device(&self) -> bool {
        self.at_device.load(Ordering::Acquire)
    }

    /// Keeps what is for the driver while that is at the device. Gives it back where it is to be
    /// handled now.
    pub(super) fn hold(&self, what: Held) -> Option<Held> {
        let at_device = self.is_at_device();
        let mut held = self.lock();
        let (queue, bytes) = &mut *held;
        let more = match &what {
            Held::Message(_, _, payload) => payload.len(),
            Held::Link(..) => 0,
        };
        if !at_device && queue.is_empty() || *bytes + more > HELD_BYTES_MAX {
            return Some(what);
        }
        *bytes += more;
        queue.push_back(what);
        None
    }

    /// What has waited.
    fn take(&self) -> VecDeque<Held> {
        let mut held = self.lock();
        held.1 = 0;
        std::mem::take(&mut held.0)
    }

    fn lock(&self) -> MutexGuard<'_, (VecDeque<Held>, usize)> {
        // A panic while it was held left nothing half written.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Has the driver of `region` do what it has to do at the device, if anything. Returns whether it had.
    /// For the background thread.
    pub(super) fn work_at_device(&self, region: &Region, now: Instant) -> bool {
        let is_due = |driver: &Driver| match driver {
            Driver::Primary(driver) => driver.promotion_is_due(),
            Driver::Backup(copy) => copy.report_is_due(now),
            Driver::Failed(_) => false,
        };
        if !is_due(&region.driver()) {
            return false;
        }
        self.at_device(region, |driver| {
            let context = Context { node: self };
            match driver {
                driver if !is_due(driver) => {}
                Driver::Primary(driver) => driver.promote_now(&context),
                Driver::Backup(copy) => copy.report_if_due(&context),
                Driver::Failed(_) => {}
            }
        });
        true
    }

    /// Has the driver of `region` do something at the device. For the background thread.
    pub(super) fn at_device<T>(&self, region: &Region, work: impl FnOnce(&mut Driver) -> T) -> T {
        // First the flag, then the lock: nobody waits for the lock who has seen the flag.
        region.holding.at_device.store(true, Ordering::Release);
        let done = work(&mut region.driver());
        region.holding.at_device.store(false, Ordering::Release);
        self.world.fabric.notify(self.id);
        done
    }

    /// Handles what has waited for the driver of `region`. Returns whether anything had.
    pub(super) fn handle_held(&self, region: &Region) -> bool {
        let held = region.holding.take();
        let any = !held.is_empty();
        for held in held {
            self.handle_one_held(region, held);
        }
        any
    }

    /// Handles what could not be kept, behind all that was.
    pub(super) fn handle_behind_held(&self, region: &Region, last: Held) {
        self.handle_held(region);
        self.handle_one_held(region, last);
    }

    fn handle_one_held(&self, region: &Region, held: Held) {
        match held {
            Held::Link(peer, is_up) => self.tell_region(region, peer, is_up),
            Held::Message(peer, header, payload) => {
                // It was understood when it came.
                if let Ok(message) = Message::decode(header.kind, &payload) {
                    self.handle_message(region, peer, &message);
                }
            }
        }
    }
}
