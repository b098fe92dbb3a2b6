//! Work of a region's driver that waits for the device, and what comes for the region meanwhile.
//!
//! A backup that reports and a primary that is promoted read whole logs, and what others fetch may be read from a
//! copy that is not open. A step in the background does that, with the driver taken out of its region
//! ([`Driver::AtDevice`]): nobody waits for the device at the region's lock. The fabric thread goes on with links,
//! beats and other regions. What is for this one, messages and changes of links, it keeps, in order, and handles
//! once the driver is back. The same holds while the driver has not [adapted](super::adapting) to a new view.
//!
//! A promotion waits for what it has written to be durable. No thread waits with it: the driver is kept
//! [away](super::region::Region::keep_away), and each step of the region that the device wakes asks how far it is.
//!
//! Little comes at such a time: a primary says nothing to a backup before that has reported, and a region that opens
//! has no load. Over [`HELD_BYTES_MAX`] the link is reset.

use std::collections::VecDeque;
use std::time::Duration;

use argosy_base::{Instant, ServerId};
use argosy_wire::message::Message;
use argosy_wire::ring::Header;

use super::adapting;
use super::local::LocalRegion;
use super::primary::PrimaryDriver;
use super::promoting::WaitingPromotion;
use super::region::Driver;

/// Bytes of messages that are kept for one region, at most: 64 of the longest that a ring takes.
pub(super) const HELD_BYTES_MAX: usize = 4 << 20;
/// What a message takes beside its payload, in bytes, rounded up.
const ENTRY_BYTES: usize = 128;

/// A primary's driver whose promotion waits for the device.
pub(crate) struct Away {
    driver: Box<PrimaryDriver>,
    promotion: WaitingPromotion,
}

/// What waits for a driver.
#[derive(Debug)]
enum Held {
    /// A message of a member.
    Message(ServerId, Header, Vec<u8>),
    /// The link to a member is up, or down.
    Link(ServerId, bool),
}

impl Held {
    const fn bytes(&self) -> usize {
        match self {
            Self::Message(_, _, payload) => payload.len() + ENTRY_BYTES,
            Self::Link(..) => ENTRY_BYTES,
        }
    }
}

/// What has come for a driver that was at the device, in order. Of the fabric thread. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    held: VecDeque<Held>,
    bytes: usize,
}

impl Holding {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Bytes that are kept.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is room for a message with such a payload.
    const fn has_room(&self, payload: &[u8]) -> bool {
        self.bytes + payload.len() + ENTRY_BYTES <= HELD_BYTES_MAX
    }

    fn push(&mut self, held: Held) {
        if let Held::Link(peer, false) = held {
            // What the link has brought is of no use any more.
            let is_of = |held: &Held| match held {
                Held::Message(from, ..) | Held::Link(from, _) => *from == peer,
            };
            self.held.retain(|held| !is_of(held));
            self.bytes = self.held.iter().map(Held::bytes).sum();
        }
        self.bytes += held.bytes();
        self.held.push_back(held);
    }
}

impl LocalRegion<'_> {
    /// Has the driver do what it has to do at the device, if anything. Returns whether it had. In the background.
    pub(super) fn work_at_device(&self, now: Instant) -> bool {
        let Self { context, region } = *self;
        if let Some(away) = region.take_away() {
            let (mut driver, promotion) = (away.driver, away.promotion);
            let promotion = driver.promote_on(promotion, context);
            return self.stay_or_return(driver, promotion);
        }
        if !region.is_seated() {
            return adapting::adapt(self, now);
        }
        let what = match &mut *region.driver() {
            Driver::Primary(driver) => match driver.has_work_at_device(now, context) {
                true => "it is being opened",
                false => return false,
            },
            Driver::Backup(copy) if copy.due_refill().is_some() => "its copy is begun anew",
            Driver::Failed(copy) if copy.refill_is_due_in(now) == Some(Duration::ZERO) => {
                "its copy is begun anew"
            }
            Driver::Backup(copy) if copy.report_is_due(now) => "it finds where its logs end",
            _ => return false,
        };
        match self.take_to_device(what) {
            Driver::Primary(mut driver) => {
                let promotion = driver.work_at_device(context);
                return self.stay_or_return(driver, promotion);
            }
            mut driver => {
                match &mut driver {
                    Driver::Backup(copy) if copy.due_refill().is_none() => {
                        copy.report_if_due(context);
                    }
                    _ => driver.refill_now(region, context),
                }
                self.bring_back(driver);
            }
        }
        true
    }

    /// A primary's driver that is at the device stays there while its promotion waits for that. Returns whether it is
    /// back.
    fn stay_or_return(
        &self,
        driver: Box<PrimaryDriver>,
        promotion: Option<WaitingPromotion>,
    ) -> bool {
        if let Some(promotion) = promotion {
            self.region.keep_away(Away { driver, promotion });
            return false;
        }
        self.bring_back(Driver::Primary(driver));
        true
    }

    /// Has the driver do something at the device; `what` says what, for people. In the background.
    pub(super) fn at_device<T>(
        &self,
        what: &'static str,
        work: impl FnOnce(&mut Driver) -> T,
    ) -> T {
        let mut driver = self.take_to_device(what);
        let done = work(&mut driver);
        self.bring_back(driver);
        done
    }

    /// Takes the driver out of the region, which is told `what` it does, for people.
    fn take_to_device(&self, what: &'static str) -> Driver {
        std::mem::replace(&mut *self.region.driver(), Driver::AtDevice(what))
    }

    /// The driver is back from the device.
    fn bring_back(&self, driver: Driver) {
        let Self { context, region } = *self;
        let away = std::mem::replace(&mut *region.driver(), driver);
        assert!(
            matches!(away, Driver::AtDevice(_)),
            "one stepper at a time takes a driver to the device"
        );
        region.release();
        region.active().raise();
        context.world.fabric.notify(context.id);
    }

    /// A message of `peer` about the region has come. For the fabric thread.
    pub(super) fn message_came(
        &self,
        peer: ServerId,
        header: Header,
        message: &Message<'_>,
        payload: &[u8],
    ) {
        let region = self.region;
        let mut driver = region.driver();
        if self.is_held(&driver) {
            let mut holding = region.holding();
            if !holding.has_room(payload) {
                return self
                    .context
                    .reset_link(peer, "too much waits for a slow device");
            }
            return holding.push(Held::Message(peer, header, payload.to_vec()));
        }
        self.handle_held(&mut driver);
        self.handle_message(&mut driver, peer, message);
        drop(driver);
        region.release();
    }

    /// The link to `peer` is up, or down. For the fabric thread.
    pub(super) fn link_changed(&self, peer: ServerId, is_up: bool) {
        let region = self.region;
        let mut driver = region.driver();
        if self.is_held(&driver) {
            return region.holding().push(Held::Link(peer, is_up));
        }
        region.active().raise();
        self.handle_held(&mut driver);
        self.tell_driver(&mut driver, peer, is_up);
        drop(driver);
        region.release();
    }

    /// Whether what comes for the driver has to wait: it is at the device, or was made for another view.
    fn is_held(&self, driver: &Driver) -> bool {
        matches!(driver, Driver::AtDevice(_)) || !self.region.is_seated()
    }

    /// Handles what has waited for the driver, if that is back. Returns whether anything had. For the fabric thread.
    pub(super) fn handle_held(&self, driver: &mut Driver) -> bool {
        if self.is_held(driver) {
            return false;
        }
        let epoch = self.region.seated_since();
        let Holding { held, .. } = std::mem::take(&mut *self.region.holding());
        let any = !held.is_empty();
        for held in held {
            match held {
                Held::Link(peer, is_up) => self.tell_driver(driver, peer, is_up),
                Held::Message(peer, header, payload) if header.epoch == epoch => {
                    // It was understood when it came.
                    if let Ok(message) = Message::decode(header.kind, &payload) {
                        self.handle_message(driver, peer, &message);
                    }
                }
                // Said before the sender knew better.
                Held::Message(..) => {}
            }
        }
        any
    }
}
