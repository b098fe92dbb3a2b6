//! How a primary gives its backups edits, checkpoints, and the places of its large log.
//!
//! What a backup is sent goes through its [`Stream`], which keeps the order and waits where the backup has to ask for
//! more. A checkpoint takes the place of all that is still to be sent; it is made once the link has room for it,
//! and there is memory.

use std::collections::BTreeMap;

use argosy_base::{DeviceSegment, EditSeq, RegionId, SegmentNumber, ServerId};
use argosy_engine::{Checkpoint, EditNotice, Pin, PinnedCheckpoint, Source};
use argosy_wire::message::{Message, PLACE_BYTES_MAX, PLACES_MAX};

use super::context::Context;
use super::counters::Counted;
use super::sending::{Kind, Sending, Stream, Wanted};

/// What backups are given, and are still to be given. See the module documentation.
pub(super) struct Offering {
    region: RegionId,
    /// Edits that a backup may still have to be sent.
    edits: BTreeMap<EditSeq, EditNotice>,
    /// What each attached or catching-up backup is still to be sent of them.
    streams: BTreeMap<ServerId, Stream>,
    /// The attempt under which a backup was told where the log lies here.
    told: BTreeMap<ServerId, u64>,
    /// Checkpoints to be offered once they cover what is flushed everywhere: member and attempt.
    offers: BTreeMap<ServerId, u64>,
    /// Versions that backups are catching up to.
    pins: BTreeMap<ServerId, (EditSeq, Pin)>,
}

impl Offering {
    /// Nothing of `region` yet.
    pub(super) const fn new(region: RegionId) -> Self {
        Self {
            region,
            edits: BTreeMap::new(),
            streams: BTreeMap::new(),
            told: BTreeMap::new(),
            offers: BTreeMap::new(),
            pins: BTreeMap::new(),
        }
    }

    /// Edits that a backup has not acknowledged.
    pub(super) fn edits(&self) -> usize {
        self.edits.len()
    }

    /// Keeps an edit, which backups may have to be sent.
    pub(super) fn keep(&mut self, seq: EditSeq, edit: EditNotice) {
        self.edits.insert(seq, edit);
    }

    /// Nobody has to be sent the edits up to `seq` any more.
    pub(super) fn forget_up_to(&mut self, seq: EditSeq) {
        self.edits = self.edits.split_off(&seq.next());
    }

    /// The versions that backups are catching up to.
    pub(super) fn pins(&self) -> Vec<Pin> {
        self.pins.values().map(|(_, pin)| pin.clone()).collect()
    }

    /// Whether something is still to be sent or offered.
    pub(super) fn has_more(&self) -> bool {
        !self.offers.is_empty() || self.streams.values().any(Stream::has_more)
    }

    /// `member` is to be offered a checkpoint, in place of all that it is still to be sent.
    pub(super) fn want_checkpoint(&mut self, member: ServerId, attempt: u64) {
        self.streams.remove(&member);
        self.offers.insert(member, attempt);
    }

    /// `member` is gone: nothing is to be sent to it.
    pub(super) fn forget(&mut self, member: ServerId) {
        self.offers.remove(&member);
        self.streams.remove(&member);
        self.pins.remove(&member);
    }

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
    pub(super) fn more_wanted(&mut self, member: ServerId, wanted: Wanted, context: &Context<'_>) {
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
    pub(super) fn tell_places(
        &mut self,
        member: ServerId,
        attempt: u64,
        source: Option<&dyn Source>,
        context: &Context<'_>,
    ) {
        let Some(source) = source else {
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
    pub(super) fn offer_all(&mut self, source: Option<&dyn Source>, context: &Context<'_>) {
        let Some(source) = source else {
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
