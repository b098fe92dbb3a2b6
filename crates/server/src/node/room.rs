//! Devices that are full: how servers tell each other, and what a writer is told.
//!
//! A region is full when the device of any member is: what its primary takes, all have to store. So
//! each server tells the others how much room it has, when a link opens, and from then on whenever
//! it becomes full or ceases to be, and each change of a 64th of the reserve while little is left: whoever hears it has
//! all of its regions look. Whoever becomes a member counts with what it told last, and whoever leaves counts no more.
//! The engine turns writers
//! of new data away and frees space; what they are told is decided here:
//!
//! 1. A write that finds the region full waits like any other for which there is no room.
//! 2. Once the region has been full for as long as a write may wait, none waits any more: it is
//!    refused at once, until there is room.
//! 3. A delete does not wait behind such writes, unless one of them writes the same key.

use std::collections::BTreeMap;

use argosy_base::{RegionId, ServerId};
use argosy_device::Room;
use argosy_engine::{Op, WriteBatch};
use argosy_wire::message::Message;

use super::context::Context;
use super::device_care::DeviceCare;
use super::region::engine_of;
use super::schedule::Work;
use super::serving::Serving;

/// Into so many parts the reserve is divided: a change of one is told.
const PARTS: u32 = 64;

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
            let much = told.free.abs_diff(room.free) >= (room.reserve / PARTS).max(1);
            told.is_full() != room.is_full() || little && (much || told.reserve != room.reserve)
        })
    }
}

impl DeviceCare {
    /// Tells the other servers how much room there is here, where they have to know.
    pub(super) fn tell_room(&self, context: &Context<'_>) {
        let room = context.world.store.room();
        for peer in context.links.peers() {
            let news = self.rooms().is_news(peer, room);
            let open = context.link(peer).is_open();
            if !news || !open {
                continue;
            }
            let message = Message::Room {
                free: room.free,
                reserve: room.reserve,
            };
            context.send(peer, RegionId(0), &message);
            self.rooms().told.insert(peer, room);
        }
    }

    /// The link to `peer` has just opened.
    pub(super) fn tell_room_again(&self, peer: ServerId, context: &Context<'_>) {
        self.rooms().forget_told(peer);
        context.regions.steppers().wake(Work::Chores);
    }

    /// `peer` has told how much room it has.
    pub(super) fn heard_room(&self, peer: ServerId, room: Room, context: &Context<'_>) {
        self.rooms().heard.insert(peer, room);
        for region in context.regions.iter() {
            if let Some(engine) = engine_of(region) {
                self.set_room_of_members(region.id(), &engine, context);
            }
        }
        context.regions.steppers().wake_all();
    }

    /// Tells `engine` of the least room on the devices of the region's other members.
    pub(super) fn set_room_of_members(
        &self,
        region: RegionId,
        engine: &Serving,
        context: &Context<'_>,
    ) {
        let least = {
            let rooms = self.rooms();
            let members = context.backups(region);
            let known = members.filter_map(|member| rooms.heard.get(&member).copied());
            known.min_by_key(|room| (!room.is_full(), room.free))
        };
        engine.set_members_room(least);
    }

    /// The other servers whose devices are full, as far as they have told.
    pub(super) fn full_peers(&self) -> Vec<ServerId> {
        let rooms = self.rooms();
        let heard = rooms.heard.iter();
        heard
            .filter(|(_, room)| room.is_full())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Which members' devices are full, in words; `None` where none is.
    pub(super) fn who_is_full(&self, region: RegionId, context: &Context<'_>) -> Option<String> {
        let rooms = self.rooms();
        let own = (context.id, context.world.store.room());
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
}

/// Whether `batch` writes nothing but deletes.
pub(super) fn only_deletes(batch: &WriteBatch) -> bool {
    batch.ops().all(|op| !matches!(op, Op::Put { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_little_changes_is_told_in_steps() {
        let peer = ServerId(1);
        let room = |free| Room {
            free,
            reserve: 6400,
        };
        let is_news = |told: u32, now: u32| {
            let mut rooms = Rooms::default();
            rooms.told.insert(peer, room(told));
            rooms.is_news(peer, room(now))
        };
        assert!(
            Rooms::default().is_news(peer, room(50_000)),
            "it was not told yet"
        );
        assert!(!is_news(50_000, 20_000), "much is left");
        assert!(!is_news(10_000, 10_099) && !is_news(10_099, 10_000));
        assert!(is_news(10_000, 10_100) && is_news(10_100, 10_000));
        // Whether it is full is told at once.
        assert!(is_news(6_401, 6_400) && is_news(6_400, 6_401));
        // With one region each segment is.
        let small = |free| Room { free, reserve: 20 };
        let mut rooms = Rooms::default();
        rooms.told.insert(peer, small(30));
        assert!(rooms.is_news(peer, small(29)) && !rooms.is_news(peer, small(30)));
    }
}
