//! What a passive copy fetches from other members: parts of segments, a slot each.

use argosy_base::{SegmentNumber, SegmentPart, ServerId};
use argosy_lsm::StorageError;
use argosy_lsm::replica::ReplicaError;
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
    pub(super) fn note_damage(&self, segment: SegmentNumber, error: &ReplicaError) -> String {
        let why = error.to_string();
        let damages = self.replica.damages();
        damages.note_segment(self.replica.version(), segment, &why);
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

/// Whether the device, or the file system of the windows, has no room for now.
pub(super) fn is_full(error: &ReplicaError) -> bool {
    match error {
        ReplicaError::Storage(StorageError::Device(error)) => error.is_full(),
        ReplicaError::Windows(error) => error.is_full(),
        _ => false,
    }
}
