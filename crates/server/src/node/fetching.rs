//! What a passive copy fetches from other members: parts of segments, a slot each.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use argosy_base::{RegionId, SegmentPart, ServerId};
use argosy_device::Buffer;
use argosy_wire::message::{FetchStatus, Message};

use super::context::Context;
use super::convert;
use super::counters::Counted;
use super::link::SHIP_SLOTS;

/// A part that is being fetched.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    part: SegmentPart,
    /// Nothing has made it needless since it was asked for.
    wanted: bool,
}

/// Parts of segments that are fetched.
#[derive(Default)]
pub(super) struct Fetching {
    /// What is being fetched, by who was asked and the slot of the link to it.
    asked: BTreeMap<(ServerId, u8), Fetch>,
    /// What is to be fetched when a slot is free, and from whom.
    waiting: VecDeque<(ServerId, SegmentPart)>,
}

/// What a member has answered.
pub(super) enum Answered {
    /// What is of no use any more, or was not asked for.
    Needless,
    /// That the part is gone there.
    Gone(SegmentPart),
    /// The bytes of the part.
    Bytes(SegmentPart, Arc<Buffer>),
    /// What does not fit, in words: the link to the member is to begin anew.
    Misfit(&'static str),
}

impl Fetching {
    /// Asks `from` for `part`, now or when a slot is free.
    pub(super) fn want(
        &mut self,
        from: ServerId,
        part: SegmentPart,
        region: RegionId,
        context: &Context<'_>,
    ) {
        self.waiting.push_back((from, part));
        self.start(region, context);
    }

    /// Asks for what waits, as far as there are free slots.
    pub(super) fn start(&mut self, region: RegionId, context: &Context<'_>) {
        while let Some((from, part)) = self.waiting.front().copied() {
            let Some(slot) = context.link(from).take_fetch_slot() else {
                return;
            };
            self.waiting.pop_front();
            let fetch = Fetch { part, wanted: true };
            self.asked.insert((from, slot), fetch);
            let message = Message::Fetch {
                segment: part.number,
                from: part.from,
                to: part.to,
                slot,
            };
            context.send(from, region, &message);
        }
    }

    /// What is being fetched is of no use any more; its slots are free when it has come.
    pub(super) fn unwant(&mut self) {
        self.waiting.clear();
        let asked = self.asked.values_mut();
        asked.for_each(|fetch| fetch.wanted = false);
    }

    /// Nothing of it comes any more.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
        self.waiting.clear();
    }

    /// What `member` was asked for does not come any more.
    pub(super) fn forget_member(&mut self, member: ServerId) {
        self.asked.retain(|(from, _), _| *from != member);
    }

    /// What a copy leaves that asks for nothing more: what was asked for, which is of no use to the next one.
    pub(super) fn left(mut self) -> Self {
        self.unwant();
        self
    }

    /// Parts that are being fetched, or are to be; none of those that are of no use any more.
    pub(super) fn parts(&self) -> usize {
        let wanted = self.asked.values().filter(|fetch| fetch.wanted);
        wanted.count() + self.waiting.len()
    }

    /// Whether there is something still to ask for.
    pub(super) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The answer has come in `slot`, and is of no use. Gives the slot back if it was asked for.
    pub(super) fn give_back(&mut self, from: ServerId, slot: u8, context: &Context<'_>) {
        if self.asked.remove(&(from, slot)).is_some() {
            context.link(from).free_fetch_slot(slot);
        }
    }

    /// Takes the answer of `from`, and asks on.
    pub(super) fn take(
        &mut self,
        from: ServerId,
        message: &Message<'_>,
        region: RegionId,
        context: &Context<'_>,
    ) -> Answered {
        let Message::Fetched {
            slot,
            status,
            len,
            checksum,
        } = *message
        else {
            return Answered::Needless;
        };
        let Some(Fetch { part, wanted }) = self.asked.remove(&(from, slot)) else {
            return Answered::Needless;
        };
        if !wanted {
            context.link(from).free_fetch_slot(slot);
            self.start(region, context);
            return Answered::Needless;
        }
        match status {
            FetchStatus::Ok if len == part.to - part.from => {}
            FetchStatus::Ok | FetchStatus::Failed => {
                return Answered::Misfit("a fetch has failed there");
            }
            FetchStatus::Gone => {
                context.link(from).free_fetch_slot(slot);
                return Answered::Gone(part);
            }
        }
        let bytes = {
            let mut link = context.link(from);
            let bytes = link.read_slot(SHIP_SLOTS + slot, len as usize);
            let sum = convert::fetched_checksum(region, part.number, part.from, bytes);
            let intact = (sum == checksum).then(|| Arc::new(Buffer::from_slice(bytes)));
            link.free_fetch_slot(slot);
            intact
        };
        let Some(bytes) = bytes else {
            return Answered::Misfit("what was fetched is damaged");
        };
        let counters = context.telling.counters();
        counters.add(Counted::CatchUpBytes, u64::from(len));
        self.start(region, context);
        Answered::Bytes(part, bytes)
    }
}

#[cfg(test)]
impl Fetching {
    /// As if `part` had been asked of each of these members, in that slot.
    pub(super) fn planted(asked: &[(ServerId, u8)], part: SegmentPart, wanted: bool) -> Self {
        let asked = asked.iter().map(|of| (*of, Fetch { part, wanted }));
        Self {
            asked: asked.collect(),
            waiting: VecDeque::new(),
        }
    }

    /// Who was asked, and in which slot the answer comes.
    pub(super) fn asked(&self) -> Vec<(ServerId, u8)> {
        self.asked.keys().copied().collect()
    }
}
