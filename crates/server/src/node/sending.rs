//! What a primary tells its backups, as messages; and edits and checkpoints on their way, in parts.
//!
//! Edits and checkpoints have no bound, messages have one, and what waits in a link has another. So:
//!
//! 1. The first part of an edit is sent when the link has room, and what was sent before and is not applied
//!    leaves room, too ([`UNAPPLIED_BYTES_MAX`]).
//! 2. The receiver asks for what follows, a window at a time, when it has memory for the whole.
//! 3. What comes behind it waits here until all of it has been sent: a member gets the edits of a region in
//!    order, and puts one together at a time.
//!
//! So a link holds at most a window of a region, and a member that is slow has few edits, whatever their size and
//! number. Nothing outlives a link: who reports anew is sent what it lacks then.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{EditSeq, RegionId, ServerId};
use argosy_engine::EditNotice;
use argosy_wire::message::Message;

use super::context::Context;
use super::counters::Counted;
use super::edit_memory::Share;

/// Bytes of edits that a member has been sent and has not applied; behind one longer edit none is sent.
pub(super) const UNAPPLIED_BYTES_MAX: usize = 256 << 10;

/// What is sent in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A checkpoint.
    Offer,
    /// An edit.
    Edit,
}

/// What a receiver asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Of what it was begun under.
    pub(crate) attempt: u64,
    /// Which edit, or checkpoint.
    pub(crate) seq: EditSeq,
    /// Up to which byte; 0: it is of no use.
    pub(crate) to: u64,
}

/// The receiver asked for bytes that it cannot want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more of an edit was asked for than there is, or than may be on its way")]
pub(crate) struct TooMuchWanted;

/// An edit or a checkpoint that is being sent. See the module documentation.
pub(crate) struct Sending {
    kind: Kind,
    attempt: u64,
    seq: EditSeq,
    bytes: Arc<[u8]>,
    begun: bool,
    /// Bytes that were sent, and up to where they may be. Invariant: `sent <= allowed <= bytes.len()`.
    sent: usize,
    allowed: usize,
    /// The memory of a checkpoint, which is made to be sent.
    _share: Option<Share>,
}

impl Sending {
    /// Nothing of it has been sent.
    pub(crate) fn new(
        kind: Kind,
        attempt: u64,
        seq: EditSeq,
        bytes: Arc<[u8]>,
        share: Option<Share>,
    ) -> Self {
        Self {
            kind,
            attempt,
            seq,
            bytes,
            begun: false,
            sent: 0,
            allowed: 0,
            _share: share,
        }
    }

    /// Whether all of it has been sent.
    pub(crate) fn is_over(&self) -> bool {
        self.begun && self.sent == self.bytes.len()
    }

    /// Sends what is allowed, while the link to `to` has room. Returns whether it sent anything.
    pub(crate) fn go_on(&mut self, region: RegionId, to: ServerId, context: &Context<'_>) -> bool {
        let mut made = false;
        while (!self.begun || self.sent < self.allowed) && context.has_room(to) {
            let part_max = context.part_bytes(to);
            if self.begun {
                context.count(Counted::Parts);
            } else {
                let unasked = context.settings.mutants.send_unasked();
                let first = if unasked { self.bytes.len() } else { part_max };
                self.allowed = first.min(self.bytes.len());
            }
            let end = self.allowed.min(self.sent + part_max);
            context.send(to, region, &self.part(end));
            (self.begun, self.sent) = (true, end);
            made = true;
        }
        made
    }

    /// The bytes behind those that were sent, up to `end`.
    fn part(&self, end: usize) -> Message<'_> {
        let &Self { attempt, seq, .. } = self;
        let (len, from) = (self.bytes.len() as u64, self.sent as u64);
        let bytes = &self.bytes[self.sent..end];
        match (self.begun, self.kind) {
            (true, _) => Message::More {
                attempt,
                seq,
                from,
                bytes,
            },
            (false, Kind::Offer) => Message::Offer {
                attempt,
                seq,
                len,
                bytes,
            },
            (false, Kind::Edit) => Message::Edit {
                attempt,
                seq,
                len,
                bytes,
            },
        }
    }

    /// The receiver wants more, of which `window` bytes may be on their way, or nothing of it. Of one that has
    /// ended it may have asked before it knew: that changes nothing.
    pub(crate) fn wanted(&mut self, wanted: Wanted, window: usize) -> Result<(), TooMuchWanted> {
        let Wanted { attempt, seq, to } = wanted;
        if (self.attempt, self.seq) != (attempt, seq) || !self.begun {
            return Ok(());
        }
        if to == 0 {
            (self.sent, self.allowed) = (self.bytes.len(), self.bytes.len());
            return Ok(());
        }
        match usize::try_from(to) {
            Ok(to) if to <= self.bytes.len().min(self.sent.saturating_add(window)) => {
                self.allowed = self.allowed.max(to);
                Ok(())
            }
            _ => Err(TooMuchWanted),
        }
    }
}

/// What one member is still to be sent of one region, in order, under one attempt. See the module documentation.
#[derive(Default)]
pub(crate) struct Stream {
    sending: Option<Sending>,
    waiting: VecDeque<(u64, EditNotice)>,
    /// Edits that were sent and are not applied, and their bytes.
    unapplied: VecDeque<(EditSeq, usize)>,
    unapplied_bytes: usize,
    applied: EditSeq,
}

impl Stream {
    /// Begins with a checkpoint.
    pub(crate) fn of_checkpoint(checkpoint: Sending) -> Self {
        let mut stream = Self::default();
        stream.count(checkpoint.seq, checkpoint.bytes.len());
        stream.sending = Some(checkpoint);
        stream
    }

    /// Whether anything is still to be sent.
    pub(super) fn has_more(&self) -> bool {
        self.sending.is_some() || !self.waiting.is_empty()
    }

    /// Bytes of edits that are still to be sent.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(|(_, edit)| edit.bytes.len()).sum()
    }

    /// An edit is to be sent behind everything else.
    pub(crate) fn push(&mut self, attempt: u64, edit: EditNotice) {
        self.waiting.push_back((attempt, edit));
    }

    /// Sends what may be sent now. Returns whether it sent anything.
    pub(crate) fn go_on(&mut self, region: RegionId, to: ServerId, context: &Context<'_>) -> bool {
        let mut made = false;
        loop {
            if let Some(sending) = &mut self.sending {
                made |= sending.go_on(region, to, context);
                if !sending.is_over() {
                    return made;
                }
                self.sending = None;
            }
            let Some((attempt, edit)) = self.next() else {
                return made;
            };
            self.count(edit.seq, edit.bytes.len());
            let (seq, bytes) = (edit.seq, edit.bytes);
            self.sending = Some(Sending::new(Kind::Edit, attempt, seq, bytes, None));
        }
    }

    /// The next edit, if what was sent leaves room for it.
    fn next(&mut self) -> Option<(u64, EditNotice)> {
        let (_, edit) = self.waiting.front()?;
        let fits = self.unapplied_bytes + edit.bytes.len() <= UNAPPLIED_BYTES_MAX;
        if fits || self.unapplied.is_empty() {
            self.waiting.pop_front()
        } else {
            None
        }
    }

    fn count(&mut self, seq: EditSeq, bytes: usize) {
        // A member says of no edit that a checkpoint stood for that it is applied.
        if seq > self.applied {
            self.unapplied.push_back((seq, bytes));
            self.unapplied_bytes += bytes;
        }
    }

    /// The member has applied every edit up to `seq`.
    pub(crate) fn applied(&mut self, seq: EditSeq) {
        self.applied = self.applied.max(seq);
        while let Some((_, bytes)) = self.unapplied.pop_front_if(|(at, _)| *at <= seq) {
            self.unapplied_bytes -= bytes;
        }
    }

    /// See [`Sending::wanted`].
    pub(crate) fn wanted(&mut self, wanted: Wanted, window: usize) -> Result<(), TooMuchWanted> {
        let sending = self.sending.as_mut();
        sending.map_or(Ok(()), |sending| sending.wanted(wanted, window))
    }
}
