//! Devices that are full: how servers tell each other, and what a writer is told.
//!
//! A region is full when the device of any member is: what its primary takes, all have to store. So
//! each server tells the others how much room it has, when a link opens, and from then on whenever
//! it becomes full or ceases to be, and each change while little is left. The engine turns writers
//! of new data away and frees space; what they are told is decided here:
//!
//! 1. A write that finds the region full waits like any other for which there is no room.
//! 2. Once the region has been full for as long as a write may wait, none waits any more: it is
//!    refused at once, until there is room.
//! 3. A delete does not wait behind such writes, unless one of them writes the same key.

use std::collections::BTreeMap;

use argosy_base::{RegionId, ServerId};
use argosy_device::Room;
use argosy_engine::{BusyReason, Op, WriteBatch};
use argosy_wire::message::Message;

use super::Node;
use super::context::Context;
use super::region::{Driver, Region, engine_of};
use super::schedule::Work;
use super::serving::Serving;

/// What is known of the room on devices.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    /// What each peer said last.
    heard: BTreeMap<ServerId, Room>,
    /// What each peer was told last over its present link.
    told: BTreeMap<ServerId, Room>,
}

impl Rooms {
    /// The link to `peer` is new: it is told again.
    fn forget_told(&mut self, peer: ServerId) {
        self.told.remove(&peer);
    }

    /// Whether `peer` has to hear of `room`.
    fn is_news(&self, peer: ServerId, room: Room) -> bool {
        self.told.get(&peer).is_none_or(|told| {
            let little = room.free <= 2 * room.reserve;
            told.is_full() != room.is_full() || little && *told != room
        })
    }
}

impl Node {
    /// Tells the other servers how much room there is here, where they have to know.
    pub(super) fn tell_room(&self) {
        let room = self.world.store.room();
        let context = Context { node: self };
        for peer in self.links.peers() {
            let news = self.device_care.rooms().is_news(peer, room);
            let open = self.link(peer).is_open();
            if !news || !open {
                continue;
            }
            let message = Message::Room {
                free: room.free,
                reserve: room.reserve,
            };
            context.send(peer, RegionId(0), &message);
            self.device_care.rooms().told.insert(peer, room);
        }
    }

    /// The link to `peer` has just opened.
    pub(super) fn tell_room_again(&self, peer: ServerId) {
        self.device_care.rooms().forget_told(peer);
        self.regions.steppers().wake(Work::Chores);
    }

    /// `peer` has told how much room it has.
    pub(super) fn heard_room(&self, peer: ServerId, room: Room) {
        self.device_care.rooms().heard.insert(peer, room);
        for region in self.regions.iter() {
            if let Some(engine) = engine_of(region) {
                self.set_room_of_members(region.id(), &engine);
            }
        }
        self.regions.steppers().wake_all();
    }

    /// Tells `engine` of the least room on the devices of the region's other members.
    pub(super) fn set_room_of_members(&self, region: RegionId, engine: &Serving) {
        let context = Context { node: self };
        let least = {
            let rooms = self.device_care.rooms();
            let members = context.backups(region);
            let known = members.filter_map(|member| rooms.heard.get(&member).copied());
            known.min_by_key(|room| (!room.is_full(), room.free))
        };
        engine.set_members_room(least);
    }

    /// The other servers whose devices are full, as far as they have told.
    pub(super) fn full_peers(&self) -> Vec<ServerId> {
        let rooms = self.device_care.rooms();
        let heard = rooms.heard.iter();
        heard
            .filter(|(_, room)| room.is_full())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Which members' devices are full, in words; `None` where none is.
    pub(super) fn who_is_full(&self, region: RegionId) -> Option<String> {
        let context = Context { node: self };
        let rooms = self.device_care.rooms();
        let own = (self.id, self.world.store.room());
        let heard = context.backups(region);
        let heard = heard.filter_map(|id| Some((id, *rooms.heard.get(&id)?)));
        let full = std::iter::once(own).chain(heard);
        let names: Vec<String> = full
            .filter(|(_, room)| room.is_full())
            .map(|(id, room)| {
                format!(
                    "the device of {id} is full ({} segments are left, and the last {} are kept for \
                     deletes and compactions)",
                    room.free, room.reserve
                )
            })
            .collect();
        (!names.is_empty()).then(|| names.join(" and "))
    }

    /// Why a region has no room for a write, and what next.
    pub(super) fn busy_text(
        &self,
        region: &Region,
        engine: &Serving,
        reason: BusyReason,
    ) -> String {
        if engine.is_full() || reason == BusyReason::DeviceFull {
            let who = self.who_is_full(region.id());
            let who = who.unwrap_or_else(|| "a device was full until a moment ago".to_owned());
            return format!(
                "{}: {who}; reads and deletes go on; delete keys, then retry",
                region.id()
            );
        }
        let lacks = match &*region.driver() {
            Driver::Primary(driver) => driver.lacks(&Context { node: self }),
            Driver::Backup(_) | Driver::AtDevice(_) | Driver::Failed(_) => None,
        };
        let lacks = lacks.map_or_else(String::new, |lacks| format!(" ({lacks})"));
        format!("{}: {reason}{lacks}; retry", region.id())
    }

    /// Whether the region has been full for so long that waiting is of no use.
    pub(super) fn full_for_long(&self, region: &Region, engine: &Serving) -> bool {
        let full_for = region.health().note_full(engine.is_full(), self.now());
        full_for.is_some_and(|span| span >= self.settings.deadline)
    }
}

/// Whether `batch` writes nothing but deletes.
pub(super) fn only_deletes(batch: &WriteBatch) -> bool {
    batch.ops().all(|op| !matches!(op, Op::Put { .. }))
}
