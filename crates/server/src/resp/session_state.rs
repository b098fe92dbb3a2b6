//! The parts of a session's state.

use std::collections::VecDeque;

use argosy_wire::resp::Protocol;

use super::{Pending, ReplyMode, RoundMoment};
use crate::resp::command;
use crate::resp::input::TIGHT_BYTES;
use crate::resp::pool::Pool;
use crate::resp::transactions::Transaction;

/// What the client has chosen for its connection.
#[derive(Debug)]
pub(in crate::resp) struct Client {
    pub(in crate::resp) protocol: Protocol,
    pub(in crate::resp) reply_mode: ReplyMode,
    pub(in crate::resp) transaction: Transaction,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            protocol: Protocol::Resp2,
            reply_mode: ReplyMode::On,
            transaction: Transaction::default(),
        }
    }
}

/// The bytes of replies that are to be written.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    /// Bytes at the front that have been written.
    written: usize,
}

impl Output {
    /// What is left to write.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Bytes that are left to write.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// The next `bytes` bytes have been written.
    ///
    /// # Panics
    /// Where there are fewer.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        assert!(self.written <= self.bytes.len(), "only output is written");
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
    }

    /// Puts what is left, if that is little, into a buffer of its length.
    pub(super) fn tighten(&mut self, pool: &mut Pool) {
        if self.len() <= TIGHT_BYTES && self.bytes.capacity() > 2 * TIGHT_BYTES {
            let kept = self.bytes.split_off(self.written);
            self.written = 0;
            self.bytes.clear();
            pool.take_back(&mut self.bytes);
            self.bytes = kept;
        }
    }
}

/// The replies that wait for their turn, in the order of the requests.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) pending: VecDeque<Pending>,
    /// The sequence number of the front.
    pub(super) base: u32,
    /// Bytes of keys and values in them.
    pub(super) held: usize,
    /// Those that want their next page, by sequence number.
    pub(super) next_pages: Vec<u32>,
}

/// The calls without an answer.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) in_flight: usize,
    /// Bytes of batches that are being written.
    pub(super) asked: usize,
    /// What an answer may bring, in bytes, judged by those that came lately.
    pub(super) reserve: usize,
}

impl Calls {
    /// None yet. An answer may bring `reserve` bytes.
    pub(super) const fn new(reserve: usize) -> Self {
        Self {
            in_flight: 0,
            asked: 0,
            reserve,
        }
    }

    /// Bytes that answers are expected to bring.
    pub(super) const fn expected_bytes(&self) -> usize {
        self.in_flight.saturating_mul(self.reserve)
    }
}

/// What the log of slow commands goes by.
#[derive(Debug, Default)]
pub(super) struct SlowClock {
    /// When the present round began.
    pub(super) moment: RoundMoment,
    /// The call that was taken last is the first one of its command, whose arguments are still there.
    pub(super) is_new: bool,
}

/// The command that is being carried out.
#[derive(Debug)]
pub(in crate::resp) struct Present {
    /// Its place among those that are counted.
    pub(in crate::resp) number: u16,
    /// It was answered by an error on the spot.
    pub(super) erred: bool,
    /// Commands carried out, up to this one.
    pub(super) count: u64,
}

impl Default for Present {
    fn default() -> Self {
        Self {
            number: command::UNKNOWN,
            erred: false,
            count: 0,
        }
    }
}
