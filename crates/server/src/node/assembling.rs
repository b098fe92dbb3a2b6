//! Edits and checkpoints that arrive in parts, and the checkpoint that a backup sends to a primary that opens.
//!
//! Of one region one arrives at a time. When there is memory for it ([`EditMemory`](super::edit_memory)) it is
//! asked for, a window at a time: the next half when the last half has come. What does not fit is the other
//! side's fault, and resets the link.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use argosy_base::{EditSeq, RegionId, ServerId};
use argosy_engine::Checkpoint;
use argosy_wire::message::Message;

use super::context::Context;
use super::edit_memory::{EDIT_BYTES_MAX, EditTooLong, Share};
use super::local_copy::LocalCopy;
use super::sending::{Kind, Sending, Wanted};

/// The first bytes of an edit or a checkpoint, or all of it.
pub(super) struct Beginning<'a> {
    pub(super) kind: Kind,
    pub(super) attempt: u64,
    pub(super) seq: EditSeq,
    /// The bytes of all of it.
    len: u64,
    bytes: &'a [u8],
}

impl<'a> Beginning<'a> {
    /// What `message` begins, if it begins one.
    pub(super) const fn of(message: &'a Message<'_>) -> Option<Self> {
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
            _ => return None,
        };
        Some(Self {
            kind,
            attempt,
            seq,
            len,
            bytes,
        })
    }

    /// Whether it is all of it.
    pub(super) const fn is_whole(&self) -> bool {
        self.bytes.len() as u64 == self.len
    }
}

/// An edit or a checkpoint of which not all has come.
struct Arriving {
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
    /// All of it has come.
    fn arrived(mut self) -> Arrived {
        if let Some(share) = &mut self.share {
            share.arrived();
        }
        Arrived {
            kind: self.kind,
            attempt: self.attempt,
            seq: self.seq,
            bytes: self.bytes,
            _share: self.share,
        }
    }
}

/// An edit or a checkpoint that has come, and is not applied.
pub(super) struct Arrived {
    pub(super) kind: Kind,
    pub(super) attempt: u64,
    pub(super) seq: EditSeq,
    /// It, encoded.
    pub(super) bytes: Vec<u8>,
    _share: Option<Share>,
}

/// Why an edit or a part of one is not taken.
pub(super) enum Unfit {
    /// It does not fit, in words: the link to whoever sent it is to begin anew.
    Misfit(&'static str),
    /// The copy cannot follow.
    TooLong(EditTooLong),
}

/// Edits that are here and not applied.
#[derive(Default)]
pub(super) struct Edits {
    /// Those that have arrived.
    kept: BTreeMap<EditSeq, Arrived>,
    /// The next one, of which not all has arrived.
    arriving: Option<Arriving>,
}

impl Edits {
    /// One begins to arrive from `from`. Returns it where that is all of it.
    ///
    /// # Errors
    /// It is not taken.
    pub(super) fn begin(
        &mut self,
        from: ServerId,
        beginning: &Beginning<'_>,
        region: RegionId,
        context: &Context<'_>,
    ) -> Result<Option<Arrived>, Unfit> {
        let &Beginning {
            kind,
            attempt,
            seq,
            len,
            bytes,
        } = beginning;
        // A checkpoint takes the place of what has not ended.
        if kind == Kind::Edit && self.is_arriving() {
            return Err(Unfit::Misfit("an edit came inside another one"));
        }
        self.arriving = None;
        let size = usize::try_from(len).ok();
        let size = size.filter(|len| *len <= EDIT_BYTES_MAX);
        let Some(size) = size else {
            return Err(Unfit::TooLong(EditTooLong { seq, from, len }));
        };
        let arriving = Arriving {
            from,
            kind,
            attempt,
            seq,
            bytes: bytes.to_vec(),
            len: size,
            asked: bytes.len(),
            share: None,
        };
        if beginning.is_whole() {
            return Ok(Some(arriving.arrived()));
        }
        self.arriving = Some(arriving);
        self.ask_on(region, context);
        Ok(None)
    }

    /// More bytes of what is arriving. They may be of an attempt that is over. Returns it where they are the last.
    ///
    /// # Errors
    /// They are not taken.
    pub(super) fn more(
        &mut self,
        from: ServerId,
        message: &Message<'_>,
        region: RegionId,
        context: &Context<'_>,
    ) -> Result<Option<Arrived>, Unfit> {
        let Message::More {
            attempt,
            seq,
            from: at,
            bytes,
        } = *message
        else {
            return Ok(None);
        };
        let Some(arriving) = &mut self.arriving else {
            return Ok(None);
        };
        if (arriving.from, arriving.attempt) != (from, attempt) {
            return Ok(None);
        }
        let (have, left) = (arriving.bytes.len(), arriving.asked - arriving.bytes.len());
        if arriving.seq != seq || at != have as u64 || bytes.is_empty() || bytes.len() > left {
            return Err(Unfit::Misfit("a part of an edit does not fit"));
        }
        arriving.bytes.extend_from_slice(bytes);
        if arriving.bytes.len() < arriving.len {
            self.ask_on(region, context);
            return Ok(None);
        }
        Ok(self.arriving.take().map(Arriving::arrived))
    }

    /// Asks for more of what is arriving, when there is memory for it.
    pub(super) fn ask_on(&mut self, region: RegionId, context: &Context<'_>) {
        let Some(arriving) = &mut self.arriving else {
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
        context.send(arriving.from, region, &wanted);
    }

    /// Keeps one until it is applied.
    pub(super) fn keep(&mut self, arrived: Arrived) {
        self.kept.insert(arrived.seq, arrived);
    }

    /// One that is kept, encoded.
    pub(super) fn encoded(&self, seq: EditSeq) -> Option<&[u8]> {
        self.kept.get(&seq).map(|kept| &*kept.bytes)
    }

    /// Those up to `seq` are not needed any more.
    pub(super) fn forget_up_to(&mut self, seq: EditSeq) {
        self.kept = self.kept.split_off(&seq.next());
    }

    /// None that is kept is needed any more.
    pub(super) fn forget_kept(&mut self) {
        self.kept.clear();
    }

    /// Gives up the one that arrives.
    pub(super) fn forget_arriving(&mut self) {
        self.arriving = None;
    }

    /// Those that are here, as far as they are.
    pub(super) fn count(&self) -> usize {
        self.kept.len() + usize::from(self.is_arriving())
    }

    /// Whether one has begun to arrive, and not all of it is here.
    pub(super) const fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Whether one is here and waits to be applied.
    pub(super) fn is_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The numbers of those that wait to be applied, for a report.
    pub(super) fn kept_in_words(&self) -> impl Debug {
        self.kept.keys()
    }

    /// The bytes that are here.
    pub(super) fn bytes(&self) -> usize {
        let kept: usize = self.kept.values().map(|kept| kept.bytes.len()).sum();
        let arriving = self.arriving.as_ref();
        kept + arriving.map_or(0, |arriving| arriving.bytes.len())
    }

    /// Where that is planted: what the arriving edit takes of memory is never given back.
    pub(super) fn keep_share(&mut self) {
        if let Some(arriving) = &mut self.arriving {
            std::mem::forget(arriving.share.take());
        }
    }
}

/// What an opening primary gets of this copy.
#[derive(Default)]
pub(super) struct Offered {
    /// An opening primary that wants this copy's checkpoint.
    wanted: Option<ServerId>,
    /// The checkpoint that it is being sent.
    sending: Option<(ServerId, Sending)>,
}

impl Offered {
    /// The primary, which opens, wants the copy's version and the ends of its logs.
    pub(super) fn offer_to(&mut self, primary: ServerId, copy: &LocalCopy, context: &Context<'_>) {
        self.sending = None;
        self.wanted = Some(primary);
        self.offer_on(copy, context);
    }

    /// Sends on what an opening primary is offered.
    pub(super) fn offer_on(&mut self, copy: &LocalCopy, context: &Context<'_>) {
        let memory = context.memory;
        if let Some(to) = self.wanted.take_if(|_| !memory.sends_enough()) {
            let Checkpoint { seq, bytes } = copy.replica.checkpoint();
            let share = memory.take_to_send(bytes.len());
            let sending = Sending::new(Kind::Offer, 0, seq, Arc::from(bytes), Some(share));
            self.sending = Some((to, sending));
        }
        if let Some((to, sending)) = &mut self.sending {
            sending.go_on(copy.region, *to, context);
            if sending.is_over() {
                self.sending = None;
            }
        }
    }

    /// The primary, which opens, asks for more of what it is offered.
    pub(super) fn more_wanted(
        &mut self,
        from: ServerId,
        wanted: Wanted,
        copy: &LocalCopy,
        context: &Context<'_>,
    ) {
        if let Some((_, sending)) = self.sending.as_mut().filter(|(member, _)| *member == from)
            && let Err(error) = sending.wanted(wanted, context.window_bytes(from))
        {
            tracing::warn!(from = from.0, region = copy.region.0, %error, "a wrong request");
            return context.reset_link(from, "more of an edit was asked for than there is");
        }
        self.offer_on(copy, context);
    }

    /// Nobody is offered anything any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether something is still to be sent.
    pub(super) const fn has_more(&self) -> bool {
        self.wanted.is_some() || self.sending.is_some()
    }
}
