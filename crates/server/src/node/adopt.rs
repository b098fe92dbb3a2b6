//! Adoption: how the copy of a primary that opens takes over a longer history of another member.
//!
//! 1. It asks the member for a checkpoint. Where its own version is the later one, it keeps its
//!    own and takes only the ends of the member's logs from there.
//! 2. It fetches what it lacks of the segments that the checkpoint names, log segments included,
//!    and applies it, which finds the new end of its history.

use std::collections::VecDeque;

use argosy_base::{Position, SegmentPart, ServerId};
use argosy_replication::backup::FETCHES_MAX;
use argosy_wire::message::Message;

use super::context::Context;
use super::follower::{Follower, Postponed};

/// How far an adoption is.
pub(crate) enum Adoption {
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

    /// The copy of `member` has failed. What it was asked for may still come, and is of no use.
    pub(crate) fn source_failed(&mut self, member: ServerId) {
        if self.adopts_from(member) {
            self.adoption = None;
            self.edits.arriving = None;
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

    pub(super) fn adopt_checkpoint(
        &mut self,
        from: ServerId,
        theirs: Vec<u8>,
        context: &Context<'_>,
    ) {
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
    pub(super) fn adopt_on(&mut self, context: &Context<'_>) {
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
