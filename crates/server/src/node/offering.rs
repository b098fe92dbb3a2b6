//! How a primary gives its backups edits, checkpoints, and the places of its large log.
//!
//! What a backup is sent goes through its [`Stream`], which keeps the order and waits where the backup has to ask for
//! more. A checkpoint takes the place of all that is still to be sent; it is made once the link has room for it,
//! and there is memory.

use argosy_base::{DeviceSegment, EditSeq, SegmentNumber, ServerId};
use argosy_engine::{Checkpoint, PinnedCheckpoint};
use argosy_wire::message::{Message, PLACE_BYTES_MAX, PLACES_MAX};

use super::context::Context;
use super::counters::Counted;
use super::primary::PrimaryDriver;
use super::sending::{Kind, Sending, Stream, Wanted};

impl PrimaryDriver {
    /// `member` has applied every edit up to `seq`: it may be sent more.
    pub(super) fn applied_at(&mut self, member: ServerId, seq: EditSeq, context: &Context<'_>) {
        let pin = self.pins.get(&member);
        if pin.is_some_and(|(pinned, _)| seq >= *pinned) {
            self.pins.remove(&member);
        }
        if let Some(stream) = self.streams.get_mut(&member) {
            stream.applied(seq);
            stream.go_on(self.region, member, context);
        }
    }

    /// `member` asks for more of the edit that it is being sent.
    pub(crate) fn more_wanted(&mut self, member: ServerId, wanted: Wanted, context: &Context<'_>) {
        let Some(stream) = self.streams.get_mut(&member) else {
            return;
        };
        match stream.wanted(wanted, context.window_bytes(member)) {
            Ok(()) => {
                stream.go_on(self.region, member, context);
            }
            Err(error) => {
                tracing::warn!(member = member.0, region = self.region.0, %error, "a wrong request");
                context.reset_link(member, "more of an edit was asked for than there is");
            }
        }
    }

    /// Bytes of edits that are still to be sent, to all members together.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.streams.values().map(Stream::waiting_bytes).sum()
    }

    /// Sends on what was held up. Returns whether it sent anything.
    pub(super) fn send_on(&mut self, context: &Context<'_>) -> bool {
        let mut made = false;
        for (member, stream) in &mut self.streams {
            made |= stream.go_on(self.region, *member, context);
        }
        made
    }

    pub(super) fn send_edit(
        &mut self,
        member: ServerId,
        attempt: u64,
        seq: EditSeq,
        context: &Context<'_>,
    ) {
        let Some(edit) = self.edits.get(&seq).cloned() else {
            return;
        };
        self.send_places(member, attempt, &edit.log_places, context);
        // A checkpoint that is still to be offered stands for it.
        if self.offers.contains_key(&member) {
            return;
        }
        let stream = self.streams.entry(member).or_default();
        stream.push(attempt, edit);
        stream.go_on(self.region, member, context);
    }

    /// Tells `member` where all of the large log lies here, once an attempt.
    pub(super) fn tell_places(&mut self, member: ServerId, attempt: u64, context: &Context<'_>) {
        let Some(source) = self.stage.source() else {
            return;
        };
        if self.told.insert(member, attempt) != Some(attempt) {
            self.send_places(member, attempt, &source.places(), context);
        }
    }

    fn send_places(
        &self,
        member: ServerId,
        attempt: u64,
        places: &[(SegmentNumber, DeviceSegment)],
        context: &Context<'_>,
    ) {
        let count = PLACES_MAX.min(context.part_bytes(member) / PLACE_BYTES_MAX);
        for places in places.chunks(count) {
            let places = places.to_vec();
            context.send(member, self.region, &Message::Places { attempt, places });
        }
    }

    /// Offers checkpoints to those who need one, as soon as one covers what was flushed everywhere.
    pub(super) fn offer_all(&mut self, context: &Context<'_>) {
        let Some(source) = self.stage.source() else {
            return;
        };
        if self.offers.is_empty() || !source.covers_flushed() {
            return;
        }
        let memory = context.memory;
        for (member, attempt) in std::mem::take(&mut self.offers) {
            if memory.sends_enough() || !context.has_room(member) {
                self.offers.insert(member, attempt);
                continue;
            }
            context.count(Counted::Offers);
            let PinnedCheckpoint { checkpoint, pin } = source.checkpoint();
            let Checkpoint { seq, bytes } = checkpoint;
            let share = memory.take_to_send(bytes.len());
            let checkpoint = Sending::new(Kind::Offer, attempt, seq, bytes.into(), Some(share));
            let mut stream = Stream::of_checkpoint(checkpoint);
            stream.go_on(self.region, member, context);
            self.streams.insert(member, stream);
            self.pins.insert(member, (seq, pin));
        }
    }
}
