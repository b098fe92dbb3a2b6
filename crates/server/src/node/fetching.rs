//! What a passive copy fetches from other members: parts of segments, a slot each.

use std::collections::{BTreeMap, VecDeque};

use argosy_base::{SegmentNumber, SegmentPart, ServerId};
use argosy_engine::CopyError;
use argosy_wire::message::Message;

use super::context::Context;
use super::follower::Follower;

/// A part that is being fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    pub(super) part: SegmentPart,
    /// Nothing has made it needless since it was asked for.
    pub(super) wanted: bool,
}

/// Parts that are being fetched, by who was asked and the slot of the link to it.
pub(super) type Fetches = BTreeMap<(ServerId, u8), Fetch>;

/// Parts of segments that are fetched.
#[derive(Default)]
pub(super) struct Fetching {
    /// What is being fetched, by who was asked and the slot of the link to it.
    pub(super) fetches: Fetches,
    /// What is to be fetched when a slot is free, and from whom.
    pub(super) to_fetch: VecDeque<(ServerId, SegmentPart)>,
}

impl Follower {
    /// Asks `from` for `part`, now or when a slot is free.
    pub(super) fn fetch(&mut self, from: ServerId, part: SegmentPart, context: &Context<'_>) {
        self.fetching.to_fetch.push_back((from, part));
        self.start_fetches(context);
    }

    pub(super) fn start_fetches(&mut self, context: &Context<'_>) {
        while let Some((from, part)) = self.fetching.to_fetch.front().copied() {
            let Some(slot) = context.link(from).take_fetch_slot() else {
                return;
            };
            self.fetching.to_fetch.pop_front();
            self.fetching
                .fetches
                .insert((from, slot), Fetch { part, wanted: true });
            let message = Message::Fetch {
                segment: part.number,
                from: part.from,
                to: part.to,
                slot,
            };
            context.send(from, self.copy.region, &message);
        }
    }

    /// Takes note that `segment`, which another member asked for, cannot be read here. Returns why, in words.
    pub(super) fn note_damage(&self, segment: SegmentNumber, error: &CopyError) -> String {
        let why = error.to_string();
        self.copy.replica.stored().note_damaged(segment, &why);
        why
    }

    /// What is being fetched is of no use any more; its slots are free when it has come.
    pub(super) fn unwant_fetches(&mut self) {
        self.fetching.to_fetch.clear();
        self.fetching
            .fetches
            .values_mut()
            .for_each(|fetch| fetch.wanted = false);
    }
}
