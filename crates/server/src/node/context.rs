//! What the parts of a node may use of each other: the regions, the links, the time, the fabric.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::{DurabilityMode, Epoch, Instant, RegionId, ServerId};
use argosy_coordinator::Replication;
use argosy_device::Waker;
use argosy_fabric::Fabric;
use argosy_wire::message::{Message, PART_FRAME_BYTES, WINDOW_MESSAGES};
use argosy_wire::ring::Header;
use parking_lot::MutexGuard;

use super::beginning::start_number;
use super::calls::Calls;
use super::counters::Counted;
use super::device_care::DeviceCare;
use super::link::{Link, SendError};
use super::links::Links;
use super::local::LocalRegion;
use super::memory::Memory;
use super::region::{Region, send_all};
use super::regions::Regions;
use super::requests::Requests;
use super::role;
use super::schedule::Work;
use super::serving::Serving;
use super::telling::Telling;
use super::views::{Part, View, Views};
use super::{NodeSettings, World, snapshots};
use crate::activity::Ledger;
use crate::service::SnapshotId;

/// The parts of a node.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The server's name.
    pub(super) id: ServerId,
    pub(super) settings: &'a NodeSettings,
    pub(super) world: &'a World,
    /// Who stores and who serves each region.
    pub(super) views: &'a Views,
    pub(super) links: &'a Links,
    /// The regions that this server is a member of.
    pub(super) regions: &'a Regions,
    pub(super) requests: &'a Requests,
    /// The time of the last step or flush, in nanoseconds.
    pub(super) now: &'a AtomicU64,
    /// What all regions share of it.
    pub(super) memory: &'a Memory,
    pub(super) telling: &'a Telling,
    pub(super) device_care: &'a DeviceCare,
}

impl<'a> Context<'a> {
    /// The region of that name, if there is a copy of it here.
    pub(super) fn region(&self, id: RegionId) -> Option<&'a Arc<Region>> {
        self.regions.get(id)
    }

    /// Who stores and who serves `region`, of which this server has a copy.
    pub(super) fn view(&self, region: RegionId) -> Arc<View> {
        let region = self.region(region);
        let region = region.expect("drivers are of regions that there is a copy of here");
        Arc::clone(&region.view())
    }

    /// When writes are acknowledged.
    pub(super) fn durability(&self) -> DurabilityMode {
        self.views.map().durability()
    }

    /// The time of the last step or flush.
    pub(super) fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// The time by the clock, for what may not be too early or too late by a step: a server may have been stopped
    /// since its last one.
    pub(super) fn read_clock(&self) -> Instant {
        self.set_now(self.world.clock.now());
        self.now()
    }

    /// It is `now` at least.
    pub(super) fn set_now(&self, now: Instant) {
        self.now.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Until when a request may wait that comes now.
    pub(super) fn deadline(&self) -> Instant {
        self.now() + self.settings.deadline
    }

    /// The requests that are with other servers.
    pub(super) fn calls(&self) -> MutexGuard<'a, Calls> {
        self.requests.calls()
    }

    /// Has a step of `region` follow in the background.
    pub(super) fn wake(&self, region: RegionId) {
        self.regions.steppers().wake(Work::Region(region));
    }

    /// Has a step of the logs of `region` follow.
    pub(super) fn wake_logs(&self, region: RegionId) {
        self.regions.steppers().wake(Work::Logs(region));
    }

    /// Has a step of `region` follow once the device has done what this thread is about to ask of it: where the region
    /// is open, a step of its engine asks.
    pub(super) fn await_device(&self, region: &Region) {
        if !region.is_open() {
            let work = Work::Region(region.id());
            self.regions.steppers().await_device(work);
        }
    }

    /// What has a step of `region` follow.
    pub(super) fn waker_of(&self, region: RegionId) -> Waker {
        let steppers = Arc::clone(self.regions.steppers());
        Arc::new(move || {
            steppers.wake(Work::Logs(region));
            steppers.wake(Work::Region(region));
        })
    }

    /// Where CPU is charged.
    pub(crate) fn ledger(&self) -> &'a Ledger {
        &self.world.ledger
    }

    pub(crate) fn fabric(&self) -> &'a dyn Fabric {
        &*self.world.fabric
    }

    /// The link to `peer`, which the region map names.
    pub(crate) fn link(&self, peer: ServerId) -> MutexGuard<'a, Link> {
        self.links.to(peer)
    }

    /// The members of `region` but its primary.
    pub(crate) fn backups(&self, region: RegionId) -> impl Iterator<Item = ServerId> + use<> {
        let backups: Vec<ServerId> = self.view(region).backups().collect();
        backups.into_iter()
    }

    /// The members of `region` but its primary, and those who are to be.
    pub(crate) fn others(&self, region: RegionId) -> Vec<ServerId> {
        let view = self.view(region);
        let filling = view.filling().iter().copied();
        view.backups().chain(filling).collect()
    }

    /// Whether the regions of this cluster may have several members.
    pub(crate) fn is_replicated(&self) -> bool {
        self.views.map().replication() != Replication::None
    }

    /// Bytes of a landing slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.settings.link.slot_bytes
    }

    pub(crate) fn header(&self, region: RegionId, kind: u8) -> Header {
        // What concerns no region has no epoch.
        let of = self.region(region);
        Header {
            kind,
            region,
            epoch: of.map_or_else(Epoch::default, |of| of.seated_since()),
            request: 0,
        }
    }

    /// Sends `message` about `region`, with the next flush. Where the peer does not keep up, the
    /// link is reset: a message is never left out of the middle.
    pub(crate) fn send(&self, peer: ServerId, region: RegionId, message: &Message<'_>) {
        self.send_under(peer, self.header(region, message.kind()), message);
    }

    /// [`send`](Self::send), under an epoch that need not be the region's present one.
    pub(super) fn send_under(&self, peer: ServerId, header: Header, message: &Message<'_>) {
        let mut payload = Vec::new();
        message.encode(&mut payload);
        let mut link = self.link(peer);
        let sent = match message {
            // What refers to segments comes behind those that were shipped before.
            Message::Edit { .. } | Message::Offer { .. } => link.send_behind(header, &payload),
            _ => link.send(header, &payload),
        };
        match sent {
            Ok(()) | Err(SendError::Down) => {}
            Err(SendError::Full) => link.reset("too many messages wait for the peer"),
            Err(error @ SendError::TooLong { .. }) => {
                let region = header.region.0;
                tracing::error!(peer = peer.0, region, %error, "cannot send");
                link.reset("a message is too long");
            }
        }
    }

    /// Most bytes of an edit in one message to `peer`.
    pub(crate) fn part_bytes(&self, peer: ServerId) -> usize {
        let payload_max = self.link(peer).payload_max();
        (payload_max - PART_FRAME_BYTES).min(self.settings.link.part_bytes)
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
        let region = self.region(region);
        let engine = region.and_then(|region| region.failure());
        engine.is_some() || self.world.store.failure().is_some()
    }

    /// One more of `what` has happened.
    pub(crate) fn count(&self, what: Counted) {
        self.telling.counters().count(what);
    }

    /// Whether `peer` shows no sign of life.
    pub(crate) fn is_silent(&self, peer: ServerId) -> bool {
        self.link(peer).is_silent(self.now())
    }

    /// Has the link to `peer` break and open anew, because of `why`.
    pub(crate) fn reset_link(&self, peer: ServerId, why: &'static str) {
        self.link(peer).reset(why);
    }

    /// Role and state of a copy whose driver is at the device.
    pub(crate) fn at_device(&self, region: &Region) -> (&'static str, &'static str) {
        match region.view().part_of(self.id) == Part::Primary {
            true => ("primary", "opening"),
            false => ("backup", "following"),
        }
    }

    /// Moves this server's role in `region`, because of `event`.
    pub(crate) fn turn(&self, region: RegionId, event: role::Event) {
        if let Some(region) = self.region(region) {
            region.turn(event);
        }
    }

    /// All members of the region are equal: what is committed is shown from now on, under the promotion `since`.
    pub(crate) fn show(&self, region: RegionId, since: Epoch) {
        if let Some(open) = self.region(region) {
            open.gate().serve(since);
        }
    }

    /// The region is open here, as the primary of `since` has promoted it.
    pub(crate) fn serve(&self, region: RegionId, engine: Arc<Serving>, since: Epoch) {
        self.device_care.set_room_of_members(region, &engine, self);
        if let Some(open) = self.region(region) {
            open.serve(engine, since);
        }
        self.wake_logs(region);
    }

    /// Has `backup`, which is attached to a region of this server, do what others may have done before.
    pub(crate) fn ask_to_compact(&self, region: RegionId, backup: ServerId) {
        let asked = self
            .region(region)
            .and_then(|region| region.maintained().asked_of_backups());
        if let Some(upto) = asked {
            self.send(backup, region, &Message::Compact { upto });
        }
    }

    /// Ships what was appended by this and other threads. Returns whether anything was done.
    pub(super) fn pump_dirty(&self) -> bool {
        let mut made = false;
        for region in self.regions.take_dirty() {
            made |= LocalRegion::new(self, region).pump();
        }
        made
    }

    /// A number that no other snapshot has: of this server, of this start of it, and in order.
    pub(super) fn new_snapshot(&self) -> SnapshotId {
        let server = u64::from(self.id.0 & 0xffff);
        let start = u64::from(start_number(&self.world.store));
        let number = self.requests.next_snapshot();
        SnapshotId(server << 48 | start << 32 | u64::from(number))
    }

    /// Gives up requests that are past their deadline. Looked at a few times a second.
    pub(super) fn sweep(&self) {
        let now = self.now();
        if !self.requests.begin_sweep(now, self.settings.deadline / 20) {
            return;
        }
        snapshots::sweep(self);
        let mut due = Vec::new();
        self.requests.expire_calls(now, &mut due, self);
        for region in self.regions.iter() {
            LocalRegion::new(self, region).expire(now, &mut due);
        }
        send_all(due);
    }
}
