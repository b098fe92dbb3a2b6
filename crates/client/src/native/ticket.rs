//! Requests in flight: what was asked, and what came of it.

use std::sync::Arc;

use argosy_base::Instant;
use argosy_wire::native::ReplyHeader;

use super::channel::{Channel, Refused};
use super::known::Seat;
use super::run::Patience;
use crate::kv::PutOnly;

/// What can be asked without waiting.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// What a key is bound to.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Bind a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// On what condition, if any.
        only: Option<PutOnly>,
    },
    /// Remove a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

impl<'a> Ask<'a> {
    /// The key that it is about.
    #[must_use]
    pub const fn key(&self) -> &'a [u8] {
        match self {
            Self::Get { key } | Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The key is bound: the value is in the buffer that was handed in.
    Value,
    /// The key is not bound.
    Absent,
    /// The write was applied.
    Done {
        /// Whether the key was bound before: told of deletes and of puts on a condition.
        existed: bool,
    },
    /// The condition did not hold; nothing was written.
    Refused,
}

/// A request in flight, without what it was about. Dropping it gives it up.
#[derive(Debug)]
pub(super) struct Flight {
    channel: Arc<Channel>,
    /// `None` once it has been answered or lost.
    place: Option<usize>,
    /// `None` where it is for no region.
    seat: Option<Seat>,
    patience: Patience,
}

impl Flight {
    /// What is at `place` of `channel`, for the region at `seat`, if for one.
    pub(super) fn new(channel: Arc<Channel>, place: usize, seat: Option<Seat>) -> Self {
        Self {
            channel,
            place: Some(place),
            seat,
            patience: Patience::default(),
        }
    }

    /// The region that it is for, as it was known when this was sent.
    pub(super) const fn seat(&self) -> Option<Seat> {
        self.seat
    }

    /// How long its answer is waited for before others are asked: from when somebody waits for it.
    pub(super) const fn patience(&mut self) -> &mut Patience {
        &mut self.patience
    }

    pub(super) const fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// The answer, if it has come. Not to be asked again after that.
    pub(super) fn poll(&mut self, payload: &mut Vec<u8>) -> Result<Option<ReplyHeader>, Refused> {
        let Some(place) = self.place else {
            return Err(Refused::Lost);
        };
        let answer = self.channel.poll(place, payload);
        if !matches!(answer, Ok(None)) {
            self.place = None;
        }
        answer
    }

    /// Whether there is something to poll for.
    pub(super) fn has_answer(&self) -> bool {
        self.place
            .is_none_or(|place| self.channel.has_answer(place))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.channel.abandon(place);
        }
    }
}

/// A request in flight. Dropping it gives it up: a write may be applied all the same.
#[derive(Debug)]
pub struct Ticket {
    pub(super) flight: Flight,
    /// The key of a read, which is asked again where that helps; `None` for a write.
    pub(super) key: Option<Vec<u8>>,
    pub(super) deadline: Instant,
}
