//! Edits and checkpoints that arrive in parts, and the checkpoint that a backup sends to a primary that opens.
//!
//! Of one region one arrives at a time. When there is memory for it ([`EditMemory`](super::edit_memory)) it is
//! asked for, a window at a time: the next half when the last half has come. What does not fit is the other
//! side's fault, and resets the link.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{EditSeq, ServerId};
use argosy_engine::Checkpoint;
use argosy_replication::backup::BackupEvent;
use argosy_wire::message::Message;

use super::adopt::Adoption;
use super::context::Context;
use super::edit_memory::{EDIT_BYTES_MAX, EditTooLong, Share};
use super::follower::Follower;
use super::sending::{Kind, Sending, Wanted};

/// An edit or a checkpoint of which not all has come.
pub(super) struct Arriving {
    from: ServerId,
    kind: Kind,
    attempt: u64,
    seq: EditSeq,
    bytes: Vec<u8>,
    len: usize,
    /// Up to where it was asked for. Invariant: `bytes.len() <= asked <= len`.
    asked: usize,
    /// Memory for all of it, once there is.
    share: Option<Share>,
}

impl Arriving {
    /// Bytes of it that are here.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// One that has come, and is not applied.
pub(super) struct Kept {
    pub(super) bytes: Vec<u8>,
    _share: Option<Share>,
}

/// Edits that are here and not applied.
#[derive(Default)]
pub(super) struct Edits {
    /// Those that have arrived, encoded; and whether each is a checkpoint.
    pub(super) kept: BTreeMap<EditSeq, Kept>,
    /// The next one, of which not all has arrived.
    pub(super) arriving: Option<Arriving>,
}

/// What an opening primary gets of this copy.
#[derive(Default)]
pub(super) struct Offered {
    /// An opening primary that wants this copy's checkpoint.
    pub(super) wanted: Option<ServerId>,
    /// The checkpoint that it is being sent.
    pub(super) sending: Option<(ServerId, Sending)>,
}

impl Follower {
    /// An edit, a checkpoint, or the first bytes of one.
    pub(super) fn begun(&mut self, from: ServerId, message: &Message<'_>, context: &Context<'_>) {
        let (kind, attempt, seq, len, bytes) = match *message {
            Message::Offer {
                attempt,
                seq,
                len,
                bytes,
            } => (Kind::Offer, attempt, seq, len, bytes),
            Message::Edit {
                attempt,
                seq,
                len,
                bytes,
            } => (Kind::Edit, attempt, seq, len, bytes),
            _ => return,
        };
        let whole = bytes.len() as u64 == len;
        if !self.is_of_use(from, kind, attempt, seq) {
            if !whole {
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
            return;
        }
        // A checkpoint takes the place of what has not ended.
        if kind == Kind::Edit && self.edits.arriving.is_some() {
            return context.reset_link(from, "an edit came inside another one");
        }
        self.edits.arriving = None;
        let size = usize::try_from(len)
            .ok()
            .filter(|len| *len <= EDIT_BYTES_MAX);
        let Some(len) = size else {
            return self.fail(&EditTooLong { seq, from, len }, context);
        };
        let arriving = Arriving {
            from,
            kind,
            attempt,
            seq,
            bytes: bytes.to_vec(),
            len,
            asked: bytes.len(),
            share: None,
        };
        if whole {
            return self.arrived(arriving, context);
        }
        self.edits.arriving = Some(arriving);
        self.ask_on(context);
    }

    /// Whether what begins is to be kept: it was asked for under an attempt that is not over.
    fn is_of_use(&self, from: ServerId, kind: Kind, attempt: u64, seq: EditSeq) -> bool {
        let adopted =
            matches!(self.adoption, Some(Adoption::Asked { from: asked }) if asked == from);
        match kind {
            Kind::Offer => {
                adopted || from == self.copy.primary && self.machine.attempt() == Some(attempt)
            }
            Kind::Edit => self.machine.takes(attempt, seq),
        }
    }

    /// More bytes of what is arriving. They may be of an attempt that is over.
    pub(super) fn more(&mut self, from: ServerId, message: &Message<'_>, context: &Context<'_>) {
        let Message::More {
            attempt,
            seq,
            from: at,
            bytes,
        } = *message
        else {
            return;
        };
        let Some(arriving) = &mut self.edits.arriving else {
            return;
        };
        if (arriving.from, arriving.attempt) != (from, attempt) {
            return;
        }
        let (have, left) = (arriving.bytes.len(), arriving.asked - arriving.bytes.len());
        if arriving.seq != seq || at != have as u64 || bytes.is_empty() || bytes.len() > left {
            return context.reset_link(from, "a part of an edit does not fit");
        }
        arriving.bytes.extend_from_slice(bytes);
        if arriving.bytes.len() < arriving.len {
            return self.ask_on(context);
        }
        if let Some(arriving) = self.edits.arriving.take() {
            self.arrived(arriving, context);
        }
    }

    /// Asks for more of what is arriving, when there is memory for it.
    pub(super) fn ask_on(&mut self, context: &Context<'_>) {
        let Some(arriving) = &mut self.edits.arriving else {
            return;
        };
        if arriving.share.is_none() {
            arriving.share = context.memory.take_to_receive(arriving.len);
            if arriving.share.is_none() {
                return;
            }
            arriving
                .bytes
                .reserve_exact(arriving.len - arriving.bytes.len());
        }
        let have = arriving.bytes.len();
        let window = context.window_bytes(arriving.from);
        if arriving.asked == arriving.len || arriving.asked - have > window / 2 {
            return;
        }
        arriving.asked = arriving.len.min(have + window);
        let wanted = Message::MoreWanted {
            attempt: arriving.attempt,
            seq: arriving.seq,
            to: arriving.asked as u64,
        };
        context.send(arriving.from, self.copy.region, &wanted);
    }

    /// All of it has come.
    fn arrived(&mut self, arriving: Arriving, context: &Context<'_>) {
        let Arriving {
            kind,
            attempt,
            seq,
            bytes,
            mut share,
            ..
        } = arriving;
        if let Some(share) = &mut share {
            share.arrived();
        }
        if let (Kind::Offer, Some(Adoption::Asked { from })) = (kind, &self.adoption) {
            let from = *from;
            return self.adopt_checkpoint(from, bytes, context);
        }
        let kept = Kept {
            bytes,
            _share: share,
        };
        self.edits.kept.insert(seq, kept);
        if kind == Kind::Offer {
            self.fetching.unwant();
            self.copy.replica.expect_checkpoint();
            self.step_machine(BackupEvent::Offer { attempt, seq }, context);
        } else {
            self.step_machine(BackupEvent::Edit { attempt, seq }, context);
        }
    }

    /// Where that is planted: what the arriving edit takes of memory is never given back.
    pub(super) fn keep_share(&mut self) {
        if let Some(arriving) = &mut self.edits.arriving {
            std::mem::forget(arriving.share.take());
        }
    }

    /// The primary, which opens, wants this copy's version and the ends of its logs.
    pub(super) fn offer_to(&mut self, primary: ServerId, context: &Context<'_>) {
        self.offered.sending = None;
        self.offered.wanted = Some(primary);
        self.offer_on(context);
    }

    /// Sends on what an opening primary is offered.
    pub(super) fn offer_on(&mut self, context: &Context<'_>) {
        let memory = context.memory;
        if let Some(to) = self.offered.wanted.take_if(|_| !memory.sends_enough()) {
            let Checkpoint { seq, bytes } = self.copy.replica.checkpoint();
            let share = memory.take_to_send(bytes.len());
            let sending = Sending::new(Kind::Offer, 0, seq, Arc::from(bytes), Some(share));
            self.offered.sending = Some((to, sending));
        }
        if let Some((to, sending)) = &mut self.offered.sending {
            sending.go_on(self.copy.region, *to, context);
            if sending.is_over() {
                self.offered.sending = None;
            }
        }
    }

    /// The primary, which opens, asks for more of what it is offered.
    pub(super) fn more_wanted(&mut self, from: ServerId, wanted: Wanted, context: &Context<'_>) {
        if let Some((_, sending)) = self
            .offered
            .sending
            .as_mut()
            .filter(|(member, _)| *member == from)
            && let Err(error) = sending.wanted(wanted, context.window_bytes(from))
        {
            tracing::warn!(from = from.0, region = self.copy.region.0, %error, "a wrong request");
            return context.reset_link(from, "more of an edit was asked for than there is");
        }
        self.offer_on(context);
    }
}
