//! Replies of many values, some of which are long: `MGET`, `KV.MGET`, `KV.RANGE`, `KV.PREFIX`.
//!
//! Everything but the long values is gathered first, within the bound of a reply, with heads in their places. Then
//! the reply is written from its beginning on, once it is the first of the queue: what is there at once, and at
//! each head part after part. So of all long values one part is held at a time, whatever they come to.
//!
//! Where the first part of a value is not there, it has been overwritten, and its key is looked up again; what is
//! found then stands in its place, or null. Where a later one is not there, or one cannot be read, the
//! connection ends: the beginning has been written.

use std::collections::VecDeque;

use argosy_base::limits::LONG_VALUE_BYTES_MAX;
use argosy_engine::long::{Head, Torn};
use argosy_wire::api::Plan;
use argosy_wire::resp::{Encoder, Protocol};

use super::long::LongGather;
use super::reply::{After, Gather, Pending};
use crate::long::{Came, Reading};
use crate::meter::MeteredOutcome;
use crate::service::{KeyList, SnapshotId};

const TOO_MUCH: &str = "ERR the values of over 1048576 bytes have over 67108864 bytes together: ask for fewer \
                        at a time, or for keys only";

/// What a reply is written of.
#[derive(Debug)]
enum Piece {
    /// This.
    Bytes(Vec<u8>),
    /// The value of this head.
    Long(Head),
}

/// A reply of many values, of which one at least is long.
#[derive(Debug)]
pub(super) struct ManyGather {
    pieces: VecDeque<Piece>,
    /// What comes next, of which parts are asked for.
    long: Option<LongGather>,
    at: Option<SnapshotId>,
    protocol: Protocol,
    /// What is to be written next.
    ready: Vec<u8>,
    begun: bool,
    torn: bool,
}

/// Makes pieces of values, in their order.
struct Pieces {
    all: VecDeque<Piece>,
    last: Vec<u8>,
    protocol: Protocol,
}

impl Pieces {
    fn new(len: usize, protocol: Protocol) -> Self {
        let mut last = Vec::new();
        Encoder::new(&mut last, protocol).array(len);
        Self {
            all: VecDeque::new(),
            last,
            protocol,
        }
    }

    fn push(&mut self, value: Option<&[u8]>) {
        match value.and_then(Head::parse) {
            None => Encoder::new(&mut self.last, self.protocol).bulk_or_null(value),
            Some(head) => {
                let bytes = std::mem::take(&mut self.last);
                self.all.extend([Piece::Bytes(bytes), Piece::Long(head)]);
            }
        }
    }

    fn done(mut self, at: Option<SnapshotId>) -> ManyGather {
        self.all.push_back(Piece::Bytes(self.last));
        let mut many = ManyGather {
            pieces: self.all,
            long: None,
            at,
            protocol: self.protocol,
            ready: Vec::new(),
            begun: false,
            torn: false,
        };
        many.go_on();
        many
    }
}

impl ManyGather {
    /// The pieces of `values`.
    pub(super) fn of_values(
        values: &[Option<Vec<u8>>],
        at: Option<SnapshotId>,
        protocol: Protocol,
    ) -> Self {
        let mut pieces = Pieces::new(values.len(), protocol);
        values
            .iter()
            .for_each(|value| pieces.push(value.as_deref()));
        pieces.done(at)
    }

    /// The pieces of keys and values in turns.
    pub(super) fn of_pairs(
        pairs: &[(Vec<u8>, Vec<u8>)],
        at: Option<SnapshotId>,
        protocol: Protocol,
    ) -> Self {
        let mut pieces = Pieces::new(pairs.len() * 2, protocol);
        for (key, value) in pairs {
            Encoder::new(&mut pieces.last, protocol).bulk(key);
            pieces.push(Some(value));
        }
        pieces.done(at)
    }

    /// Goes to the next long value.
    fn go_on(&mut self) {
        self.long = None;
        while let Some(piece) = self.pieces.pop_front() {
            match piece {
                Piece::Bytes(mut bytes) => self.ready.append(&mut bytes),
                Piece::Long(head) => {
                    let reading = Reading::new(head, self.at, false);
                    self.long = Some(LongGather::new(reading));
                    return;
                }
            }
        }
    }

    /// Bytes of the long values.
    fn long_bytes(&self) -> u64 {
        let len = |piece: &Piece| match piece {
            Piece::Bytes(_) => 0,
            Piece::Long(head) => head.len,
        };
        let first = self.long.as_ref().map_or(0, |long| long.reading.len());
        self.pieces.iter().map(len).fold(first, u64::saturating_add)
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        let bytes = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Long(head) => head.key.len(),
        };
        self.ready.len() + self.pieces.iter().map(bytes).sum::<usize>()
    }

    /// The call for what comes next.
    pub(super) fn plan(&self, keys: &mut KeyList) -> Option<Plan> {
        self.long.as_ref().map(|long| long.reading.plan(keys))
    }

    /// Writes what has come, from the first part on. `false`: the rest cannot be had.
    pub(super) fn stream(&mut self, out: &mut Vec<u8>) -> bool {
        // Until then there is a way back.
        if !self.begun && self.long.as_ref().is_some_and(|long| !long.begun) {
            return true;
        }
        self.begun |= !self.ready.is_empty();
        out.append(&mut self.ready);
        !self.torn
    }

    /// The rest cannot be had. `false`: nothing has been written yet.
    pub(super) const fn tear(&mut self) -> bool {
        self.torn |= self.begun;
        self.begun
    }

    /// Takes the answer about the next part, or about a key that is looked up again.
    fn take(&mut self, value: Option<Vec<u8>>) -> Result<After, Torn> {
        let Some(long) = &mut self.long else {
            return Ok(After::Nothing);
        };
        match long.reading.take(value, long.begun) {
            Came::Part(part) => {
                long.staged = part;
                long.stream(&mut self.ready);
                if long.reading.is_done() {
                    self.ready.extend_from_slice(b"\r\n");
                    self.go_on();
                }
            }
            Came::Nothing => {}
            Came::Instead(value) => {
                Encoder::new(&mut self.ready, self.protocol).bulk_or_null(value.as_deref());
                self.go_on();
            }
            Came::Torn(torn) => return Err(torn),
        }
        Ok(match self.long {
            Some(_) => After::NextPage,
            None => After::Nothing,
        })
    }
}

impl Pending {
    /// Goes on with a reply of many values once all have been told of: where some are long, these are to be
    /// asked for part by part.
    pub(super) fn with_long(&mut self) -> After {
        let protocol = self.protocol;
        let many = match &self.gather {
            _ if self.muted => None,
            Gather::Keys(keys) => keys.many(protocol),
            Gather::Range(range) => range.many(protocol),
            _ => None,
        };
        let Some(many) = many else {
            return After::Nothing;
        };
        // Whoever asks has to bear so much in one reply anyway.
        if many.long_bytes() > LONG_VALUE_BYTES_MAX as u64 {
            self.fail(TOO_MUCH.to_owned(), MeteredOutcome::Invalid);
            return After::Nothing;
        }
        self.held = many.held();
        self.gather = Gather::Many(Box::new(many));
        After::NextPage
    }

    /// Takes the next part of one of many values.
    pub(super) fn take_part_of_many(&mut self, told: Vec<Option<Vec<u8>>>) -> After {
        let Gather::Many(many) = &mut self.gather else {
            return After::Nothing;
        };
        let after = many.take(told.into_iter().next().flatten());
        self.held = many.held();
        match after {
            Ok(after) => after,
            Err(_) if many.tear() => After::Nothing,
            Err(torn) => {
                self.fail(format!("TRYAGAIN {torn}"), MeteredOutcome::Invalid);
                After::Nothing
            }
        }
    }
}
