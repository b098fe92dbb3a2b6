//! How a passive copy takes what another member sends it: edits, checkpoints, segments, and the parts of
//! segments that it fetches. They are for the machine, or for an adoption.
//!
//! Also what a copy becomes: a store that serves, or one that builds levels of its own.
//!
//! *Adoption* is how the copy of a primary that opens takes over a longer history of another member:
//!
//! 1. It asks the member for a checkpoint. Where its own version is the later one, it keeps its
//!    own and takes only the ends of the member's logs from there.
//! 2. It fetches what it lacks of the segments that the checkpoint names, log segments included,
//!    and applies it, which finds the new end of its history.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{EditSeq, Instant, Position, SegmentPart, ServerId};
use argosy_device::Buffer;
use argosy_engine::{CopyError, NotPromoted, Observer};
use argosy_replication::backup::{BackupEvent, FETCHES_MAX};
use argosy_wire::message::Message;

use super::super::arriving::Shipped;
use super::super::assembling::{Arrived, Beginning, Unfit};
use super::super::context::Context;
use super::super::fetching::Answered;
use super::super::local_copy::Promotion;
use super::super::sending::Kind;
use super::{Follower, Postponed};

/// How far an adoption is.
pub(super) enum Adoption {
    /// The member's checkpoint is awaited.
    Asked {
        /// Who has more.
        from: ServerId,
    },
    /// What the checkpoint names is being fetched.
    Fetching {
        /// Who has it.
        from: ServerId,
        /// The checkpoint.
        bytes: Vec<u8>,
        /// What is still to ask for.
        waiting: VecDeque<SegmentPart>,
    },
    /// There is no room on the device for its edit: it is tried again.
    Waiting {
        /// Who has it.
        from: ServerId,
        /// The checkpoint.
        bytes: Vec<u8>,
    },
    /// It is being applied.
    Applying,
    /// The own copy now stands here.
    Done(Position),
}

impl Follower {
    /// Takes memory for what its promotion rebuilds. Returns for how long it has to wait for that, if it has.
    pub(in super::super) fn take_memory(
        &mut self,
        now: Instant,
        context: &Context<'_>,
    ) -> Option<Duration> {
        let waker = context.waker_of(self.copy.region);
        self.copy.replica.take_memory(now, &waker)
    }

    /// Begins to turn the copy into a store that serves. Blocks for what is read.
    pub(in super::super) fn promote(
        self,
        context: &Context<'_>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Promotion, Box<NotPromoted>> {
        self.copy.promote(context, observer)
    }

    /// Builds levels of its own from now on, as `server`. Blocks.
    ///
    /// # Errors
    /// What makes the copy fail.
    pub(in super::super) fn build_levels(&mut self, server: ServerId) -> Result<(), CopyError> {
        self.copy.replica.build_levels(server)
    }

    /// Brings this copy to what `from` has; [`take_adoption`](Self::take_adoption) tells the end.
    pub(crate) fn adopt(&mut self, from: ServerId, context: &Context<'_>) {
        self.adoption = Some(Adoption::Asked { from });
        context.send(from, self.copy.region, &Message::Adopt);
    }

    /// Whether something is being adopted from `member`, and nothing of it is applied yet.
    fn adopts_from(&self, member: ServerId) -> bool {
        let Some(
            Adoption::Asked { from }
            | Adoption::Fetching { from, .. }
            | Adoption::Waiting { from, .. },
        ) = self.adoption
        else {
            return false;
        };
        from == member
    }

    /// Whether what was adopted is being applied, which cannot be taken back.
    pub(super) const fn applies_adopted(&self) -> bool {
        matches!(self.adoption, Some(Adoption::Applying))
    }

    /// The copy of `member` has failed. What it was asked for may still come, and is of no use.
    pub(crate) fn source_failed(&mut self, member: ServerId) {
        if self.adopts_from(member) {
            self.adoption = None;
            self.edits.forget_arriving();
            self.fetching.unwant();
        }
    }

    /// The link to `member` is gone, and with it the slots into which it was to write what is being
    /// adopted from it. An edit that is being applied is of use all the same.
    pub(crate) fn source_lost(&mut self, member: ServerId) {
        if self.adopts_from(member) {
            self.forget_fetches();
            self.adoption = None;
        }
        // What was asked of it for something that has ended does not come any more, either.
        self.fetching.forget_member(member);
    }

    /// The adoption, once it has ended.
    pub(crate) fn take_adoption(&mut self) -> Option<Position> {
        match self.adoption {
            Some(Adoption::Done(position)) => {
                self.adoption = None;
                Some(position)
            }
            _ => None,
        }
    }

    /// An edit, a checkpoint, or the first bytes of one.
    pub(super) fn begun(&mut self, from: ServerId, message: &Message<'_>, context: &Context<'_>) {
        let Some(beginning) = Beginning::of(message) else {
            return;
        };
        if self.is_of_use(from, &beginning) {
            let region = self.copy.region;
            let came = self.edits.begin(from, &beginning, region, context);
            return self.came(from, came, context);
        }
        let Beginning {
            kind, attempt, seq, ..
        } = beginning;
        if !beginning.is_whole() {
            let message = Message::MoreWanted {
                attempt,
                seq,
                to: 0,
            };
            context.send(from, self.copy.region, &message);
        }
        if kind == Kind::Edit {
            self.step_machine(BackupEvent::Edit { attempt, seq }, context);
        }
    }

    /// Whether what begins is to be kept: it was asked for under an attempt that is not over.
    fn is_of_use(&self, from: ServerId, beginning: &Beginning<'_>) -> bool {
        let &Beginning {
            kind, attempt, seq, ..
        } = beginning;
        let adopted =
            matches!(self.adoption, Some(Adoption::Asked { from: asked }) if asked == from);
        match kind {
            Kind::Offer => {
                adopted || from == self.copy.primary && self.machine.attempt() == Some(attempt)
            }
            Kind::Edit => self.machine.takes(attempt, seq),
        }
    }

    /// More bytes of what is arriving.
    pub(super) fn more(&mut self, from: ServerId, message: &Message<'_>, context: &Context<'_>) {
        let came = self.edits.more(from, message, self.copy.region, context);
        self.came(from, came, context);
    }

    /// What came of the bytes that `from` has sent.
    fn came(
        &mut self,
        from: ServerId,
        came: Result<Option<Arrived>, Unfit>,
        context: &Context<'_>,
    ) {
        match came {
            Ok(None) => {}
            Ok(Some(arrived)) => self.arrived(arrived, context),
            Err(Unfit::Misfit(why)) => context.reset_link(from, why),
            Err(Unfit::TooLong(error)) => self.fail(&error, context),
        }
    }

    /// All of it has come.
    fn arrived(&mut self, arrived: Arrived, context: &Context<'_>) {
        let Arrived {
            kind, attempt, seq, ..
        } = arrived;
        if let (Kind::Offer, Some(Adoption::Asked { from })) = (kind, &self.adoption) {
            let from = *from;
            return self.adopt_checkpoint(from, arrived.bytes, context);
        }
        self.edits.keep(arrived);
        if kind == Kind::Offer {
            self.fetching.unwant();
            self.copy.replica.expect_checkpoint();
            self.step_machine(BackupEvent::Offer { attempt, seq }, context);
        } else {
            self.step_machine(BackupEvent::Edit { attempt, seq }, context);
        }
    }

    /// A finished segment was shipped.
    pub(super) fn shipped(&mut self, from: ServerId, message: &Message<'_>, context: &Context<'_>) {
        if let Some(shipped) = Shipped::of(message)
            && let Err(why) = self.arrivals.take(&shipped, &mut self.copy, context)
        {
            context.reset_link(from, why);
        }
    }

    /// The answer of a member that was asked for part of a segment.
    pub(super) fn fetched(&mut self, from: ServerId, message: &Message<'_>, context: &Context<'_>) {
        let region = self.copy.region;
        match self.fetching.take(from, message, region, context) {
            Answered::Needless => {}
            Answered::Gone(part) => self.gone(from, part, context),
            Answered::Bytes(part, bytes) => self.put(from, part, bytes, context),
            Answered::Misfit(why) => context.reset_link(from, why),
        }
    }

    /// Whoever was asked for `part` has it no more, or not what it points to.
    fn gone(&mut self, from: ServerId, part: SegmentPart, context: &Context<'_>) {
        if self.adoption.is_some() {
            return context.reset_link(from, "what is to be adopted is gone there");
        }
        self.fetching.unwant();
        self.step_machine(BackupEvent::Gone { part }, context);
    }

    /// Takes a part that was fetched, now or when the device has room.
    pub(super) fn put(
        &mut self,
        from: ServerId,
        part: SegmentPart,
        bytes: Arc<Buffer>,
        context: &Context<'_>,
    ) {
        match self.copy.replica.put_part(part.number, part.from, &bytes) {
            // Where what it points to has not come, it is still missing when the edit is examined again.
            Ok(()) | Err(CopyError::Unplaced { .. }) => match self.adoption {
                Some(_) => self.adopt_on(context),
                None => self.step_machine(BackupEvent::Fetched { part }, context),
            },
            Err(CopyError::Gone { .. }) => self.gone(from, part, context),
            Err(error) if error.is_full() => self.postponed.push(Postponed::Put(from, part, bytes)),
            Err(error) => {
                tracing::warn!(region = self.copy.region.0, %error, "a fetched part was not taken");
                context.reset_link(from, "a fetched part does not fit");
            }
        }
    }

    /// An edit, or what was adopted, is part of the version.
    pub(super) fn applied(&mut self, seq: EditSeq, context: &Context<'_>) {
        self.arrivals.applied(&self.copy, context);
        if matches!(self.adoption, Some(Adoption::Applying)) {
            self.adoption = Some(Adoption::Done(self.position()));
        } else {
            self.step_machine(BackupEvent::Applied { seq }, context);
        }
    }

    fn adopt_checkpoint(&mut self, from: ServerId, theirs: Vec<u8>, context: &Context<'_>) {
        let adopted = self.copy.replica.adopt(theirs);
        let examined = adopted.and_then(|bytes| Ok((self.copy.replica.missing(&bytes)?, bytes)));
        let Ok((waiting, bytes)) = examined else {
            return context.reset_link(from, "its checkpoint makes no sense");
        };
        self.adoption = Some(Adoption::Fetching {
            from,
            bytes,
            waiting: waiting.into(),
        });
        self.adopt_on(context);
    }

    /// Asks for more, or applies the checkpoint when nothing is missing any more.
    fn adopt_on(&mut self, context: &Context<'_>) {
        loop {
            // What came and waits for room is not asked for again.
            let held_up = self.postponed.iter();
            let held_up = held_up.filter(|what| matches!(what, Postponed::Put(..)));
            let under_way = self.fetching.parts() + held_up.count();
            let (free, idle) = (under_way < FETCHES_MAX, under_way == 0);
            let Some(Adoption::Fetching {
                from,
                bytes,
                waiting,
            }) = &mut self.adoption
            else {
                return;
            };
            let from = *from;
            if let Some(part) = waiting.pop_front_if(|_| free) {
                self.fetching.want(from, part, self.copy.region, context);
            } else if idle {
                // What pointed to something that had not come is missing although it came.
                let missing = self.copy.replica.missing(bytes).unwrap_or_default();
                let Some(part) = missing.first() else {
                    let bytes = std::mem::take(bytes);
                    return self.apply_adopted(from, bytes, context);
                };
                waiting.push_back(*part);
            } else {
                return;
            }
        }
    }

    /// Applies the checkpoint, now or when the device has room.
    fn apply_adopted(&mut self, from: ServerId, bytes: Vec<u8>, context: &Context<'_>) {
        self.adoption = Some(Adoption::Applying);
        self.copy.note_change(context.settings.mutants);
        match self.copy.replica.submit_adopted(&bytes) {
            Ok(_) => {}
            Err(error) if error.is_full() => {
                self.adoption = Some(Adoption::Waiting { from, bytes });
            }
            Err(error) => {
                tracing::error!(region = self.copy.region.0, %error, "cannot adopt");
                self.adoption = None;
                context.reset_link(from, "its checkpoint cannot be adopted");
            }
        }
    }

    /// Tries a checkpoint again for which the device had no room.
    pub(super) fn try_adopted(&mut self, context: &Context<'_>) {
        if let Some(Adoption::Waiting { from, bytes }) = self
            .adoption
            .take_if(|adoption| matches!(adoption, Adoption::Waiting { .. }))
        {
            self.apply_adopted(from, bytes, context);
        }
    }
}
