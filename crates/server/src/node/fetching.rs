//! What a passive copy fetches from other members: parts of segments, a slot each.

use argosy_base::{SegmentNumber, SegmentPart, ServerId};
use argosy_engine::CopyError;
use argosy_wire::message::Message;

use super::context::Context;
use super::follower::{Fetch, Follower};

impl Follower {
    /// Asks `from` for `part`, now or when a slot is free.
    pub(super) fn fetch(&mut self, from: ServerId, part: SegmentPart, context: &Context<'_>) {
        self.to_fetch.push_back((from, part));
        self.start_fetches(context);
    }

    pub(super) fn start_fetches(&mut self, context: &Context<'_>) {
        while let Some((from, part)) = self.to_fetch.front().copied() {
            let Some(slot) = context.link(from).take_fetch_slot() else {
                return;
            };
            self.to_fetch.pop_front();
            self.fetches
                .insert((from, slot), Fetch { part, wanted: true });
            let message = Message::Fetch {
                segment: part.number,
                from: part.from,
                to: part.to,
                slot,
            };
            context.send(from, self.region, &message);
        }
    }

    /// Takes note that `segment`, which another member asked for, cannot be read here. Returns why, in words.
    pub(super) fn note_damage(&self, segment: SegmentNumber, error: &CopyError) -> String {
        let why = error.to_string();
        self.replica.stored().note_damaged(segment, &why);
        why
    }

    /// What is being fetched is of no use any more; its slots are free when it has come.
    pub(super) fn unwant_fetches(&mut self) {
        self.to_fetch.clear();
        self.fetches
            .values_mut()
            .for_each(|fetch| fetch.wanted = false);
    }
}
