//! What a region's driver may use of its node: the fabric, the links, the other members.

use std::sync::{Arc, MutexGuard};

use argosy_base::{Epoch, RegionId, ServerId};
use argosy_fabric::Fabric;
use argosy_wire::message::{Message, PART_FRAME_BYTES, WINDOW_MESSAGES};
use argosy_wire::ring::Header;

use super::Node;
use super::counters::Counted;
use super::link::{Link, SendError};
use super::region::Region;
use super::role;
use super::serving::Serving;
use crate::activity::Ledger;

/// A node, as its drivers see it.
pub(crate) struct Context<'a> {
    pub(crate) node: &'a Node,
}

impl<'a> Context<'a> {
    /// Where CPU is charged.
    pub(crate) fn ledger(&self) -> &'a Ledger {
        &self.node.world.ledger
    }

    pub(crate) fn fabric(&self) -> &'a dyn Fabric {
        &*self.node.world.fabric
    }

    /// The link to `peer`, which the region map names.
    pub(crate) fn link(&self, peer: ServerId) -> MutexGuard<'a, Link> {
        self.node.link(peer)
    }

    /// The members of `region` but its primary.
    pub(crate) fn backups(&self, region: RegionId) -> impl Iterator<Item = ServerId> + use<> {
        let backups: Vec<ServerId> = self.node.view(region).backups().collect();
        backups.into_iter()
    }

    pub(crate) fn is_replicated(&self, region: RegionId) -> bool {
        self.backups(region).next().is_some()
    }

    /// Bytes of a landing slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.node.settings.link.slot_bytes
    }

    pub(crate) fn header(&self, region: RegionId, kind: u8) -> Header {
        // What concerns no region has no epoch.
        let of = self.node.region(region);
        Header {
            kind,
            region,
            epoch: of.map_or_else(Epoch::default, |of| of.view().epoch),
            request: 0,
        }
    }

    /// Sends `message` about `region`, with the next flush. Where the peer does not keep up, the
    /// link is reset: a message is never left out of the middle.
    pub(crate) fn send(&self, peer: ServerId, region: RegionId, message: &Message<'_>) {
        let mut payload = Vec::new();
        message.encode(&mut payload);
        let mut link = self.link(peer);
        let header = self.header(region, message.kind());
        let sent = match message {
            // What refers to segments comes behind those that were shipped before.
            Message::Edit { .. } | Message::Offer { .. } => link.send_behind(header, &payload),
            _ => link.send(header, &payload),
        };
        match sent {
            Ok(()) | Err(SendError::Down) => {}
            Err(SendError::Full) => link.reset("too many messages wait for the peer"),
            Err(error @ SendError::TooLong { .. }) => {
                tracing::error!(peer = peer.0, region = region.0, %error, "cannot send");
                link.reset("a message is too long");
            }
        }
    }

    /// Most bytes of an edit in one message to `peer`.
    pub(crate) fn part_bytes(&self, peer: ServerId) -> usize {
        let payload_max = self.link(peer).payload_max();
        (payload_max - PART_FRAME_BYTES).min(self.node.settings.link.part_bytes)
    }

    /// Most bytes of an edit that are on their way to `peer`, or from it, at one time.
    pub(crate) fn window_bytes(&self, peer: ServerId) -> usize {
        WINDOW_MESSAGES * self.part_bytes(peer)
    }

    /// Whether `peer` can be sent what may as well wait.
    pub(crate) fn has_room(&self, peer: ServerId) -> bool {
        self.link(peer).has_room()
    }

    /// Whether this server's copy of `region` takes no more writes, since its engine or the device has failed.
    pub(crate) fn is_broken(&self, region: RegionId) -> bool {
        let region = self.node.region(region);
        let engine = region.and_then(|region| region.failure());
        engine.is_some() || self.node.world.store.failure().is_some()
    }

    /// One more of `what` has happened.
    pub(crate) fn count(&self, what: Counted) {
        self.node.telling.counters().count(what);
    }

    /// Whether `peer` shows no sign of life.
    pub(crate) fn is_silent(&self, peer: ServerId) -> bool {
        self.link(peer).is_silent(self.node.now())
    }

    /// Has the link to `peer` break and open anew, because of `why`.
    pub(crate) fn reset_link(&self, peer: ServerId, why: &'static str) {
        self.link(peer).reset(why);
    }

    /// Role and state of a copy whose driver is at the device.
    pub(crate) fn at_device(&self, region: &Region) -> (&'static str, &'static str) {
        match region.view().primary == self.node.id {
            true => ("primary", "opening"),
            false => ("backup", "following"),
        }
    }

    /// The region is open here no more.
    pub(crate) fn end_serving(&self, region: RegionId) {
        if let Some(region) = self.node.region(region) {
            region.end_serving();
        }
    }

    /// Moves this server's role in `region`, because of `event`.
    pub(crate) fn turn(&self, region: RegionId, event: role::Event) {
        if let Some(region) = self.node.region(region) {
            region.turn(event);
        }
    }

    /// The region is open here.
    pub(crate) fn serve(&self, region: RegionId, engine: Arc<Serving>) {
        self.node.set_room_of_members(region, &engine);
        if let Some(open) = self.node.region(region) {
            open.serve(engine);
        }
        self.node.wake_logs(region);
    }
}
