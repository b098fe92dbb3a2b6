//! Replies that wait: for answers, or for their turn.
//!
//! Every command that cannot be answered on the spot has a [`Pending`] in the session's queue. It
//! gathers the answers of its calls, in whatever order they come, and is written when nothing is
//! outstanding and everything in front of it has been written. What it will write is said by its
//! [`Gather`]. An answer that failed turns the whole reply into one error; answers that come after
//! that are dropped, but waited for, since their tokens name this reply.

use argosy_base::{Direction, KeyRange, Outcome as WriteOutcome};
use argosy_engine::Changed;
use argosy_wire::resp::{Encoder, Protocol};

use super::command::Plan;
use super::expiry::Shown;
use super::front::FrontEnd;
use super::glob;
use crate::meter::Outcome;
use crate::service::{Paging, Response, ServiceError};

/// Most pairs of one page of a range.
const PAGE_PAIRS: usize = 4096;
/// Bytes of keys and values from which on a page of a range ends.
const PAGE_BYTES: usize = 1 << 20;

/// A reply that is not written yet.
#[derive(Debug)]
pub(super) struct Pending {
    /// In which version it will be written: `HELLO` changes only what comes behind it.
    pub protocol: Protocol,
    /// Gathered for the order of things, but not written (`CLIENT REPLY OFF`).
    pub muted: bool,
    /// Calls without an answer; one more while the command has further calls to make.
    pub outstanding: u32,
    /// Bytes of the batch that is being written for it.
    pub asked: usize,
    /// Bytes of keys and values held here.
    pub held: usize,
    /// The command that it answers, where that is counted when it is written.
    pub command: Option<u16>,
    outcome: Outcome,
    gather: Gather,
    answer: Option<Response>,
    failed: Option<String>,
}

/// What a reply is made of.
#[derive(Debug)]
pub(super) enum Gather {
    /// Bytes that are ready and wait for their turn.
    Encoded(Vec<u8>),
    /// `GET`: the value.
    Value,
    /// `STRLEN`: its length, 0 without a value.
    Length,
    /// `TYPE`: `string` or `none`.
    Type,
    /// `MEMORY USAGE` of a key with this many bytes.
    Usage(usize),
    /// `SET`, `MSET`: `OK`, or null where the condition did not hold.
    Stored,
    /// `SET … GET`, `GETSET`: the value before.
    Previous,
    /// `SETNX`: 1 or 0.
    StoredCount,
    /// `DEL`: how many were bound.
    Deleted,
    /// `DELIFEQ`: 1 or 0, for whether the one key was.
    DeletedIf,
    /// `INCR`, `APPEND` and the like: what the change told.
    Changed,
    /// `EXISTS`: how many of the keys are bound.
    Existing(u64),
    /// `MGET`: the values in the order of the keys.
    Values(Vec<Option<Vec<u8>>>),
    /// `TTL` and the like.
    Expiry(Shown),
    /// `DBSIZE`.
    Count,
    /// `SCAN`: a page of keys, those that match, and a cursor.
    Page(Option<Vec<u8>>),
    /// `KV.RANGE` and `KEYS`: page after page until the limit or the end.
    Range(Box<RangeGather>),
}

/// Pairs gathered from several pages.
#[derive(Debug)]
pub(super) struct RangeGather {
    /// What has not been read yet.
    pub range: KeyRange,
    /// From which end.
    pub direction: Direction,
    /// Most pairs that are still wanted.
    pub left: usize,
    /// `KEYS`: leave the values out, and what does not match.
    pub keys_matching: Option<Vec<u8>>,
    /// What has been read.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What the session does after an answer was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing special.
    Nothing,
    /// Call for the next page of the range.
    NextPage,
}

impl Pending {
    pub(super) fn new(gather: Gather, protocol: Protocol, muted: bool) -> Self {
        let held = match &gather {
            Gather::Encoded(bytes) => bytes.len(),
            _ => 0,
        };
        Self {
            protocol,
            muted,
            outstanding: 0,
            asked: 0,
            held,
            command: None,
            outcome: Outcome::Ok,
            gather,
            answer: None,
            failed: None,
        }
    }

    /// Whether it can be written once it is its turn.
    #[inline]
    pub(super) const fn is_complete(&self) -> bool {
        self.outstanding == 0
    }

    /// Whether the reply is an error by now, and further calls are of no use.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The range that is being read, of a `KV.RANGE` or `KEYS`.
    pub(super) fn range(&self) -> Option<&RangeGather> {
        match &self.gather {
            Gather::Range(range) => Some(range),
            _ => None,
        }
    }

    /// The reply will be the error `text`.
    pub(super) fn fail(&mut self, text: String, outcome: Outcome) {
        if self.failed.is_none() {
            self.failed = Some(text);
            self.outcome = outcome;
        }
        self.gather = Gather::Value;
        self.answer = None;
        self.held = 0;
    }

    /// Takes the answer to the call for `element`.
    #[inline]
    pub(super) fn take(&mut self, element: usize, response: Response) -> After {
        if self.failed.is_some() {
            return After::Nothing;
        }
        if let Response::Failed(error) = response {
            let text = error_text(&error, self.gather.is_write());
            self.fail(text, (&error).into());
            return After::Nothing;
        }
        match (&mut self.gather, response) {
            (Gather::Values(values), Response::Value(value)) => {
                // Beside its bytes, each value takes a place.
                const PLACE_BYTES: usize = size_of::<Option<Vec<u8>>>();
                self.held += value.as_ref().map_or(0, Vec::len) + PLACE_BYTES;
                values[element] = value;
            }
            (Gather::Existing(count), Response::Value(value)) => {
                *count += u64::from(value.is_some());
            }
            (Gather::Range(range), Response::Page { pairs, next }) => {
                self.held += range.take(pairs);
                if let Some(next) = next
                    && range.left > 0
                {
                    range.range.go_on_at(range.direction, next);
                    return After::NextPage;
                }
            }
            (_, response) => {
                self.held += response_bytes(&response);
                self.answer = Some(response);
            }
        }
        After::Nothing
    }

    /// Writes the reply.
    pub(super) fn write(self, out: &mut Vec<u8>, front: &FrontEnd) {
        debug_assert!(self.is_complete(), "a reply is written once");
        if let Some(command) = self.command {
            front.meter.count(command, self.outcome);
        }
        if self.muted {
            return;
        }
        let mut encoder = Encoder::new(out, self.protocol);
        if let Some(text) = self.failed {
            encoder.error(&text);
            return;
        }
        match (self.gather, self.answer) {
            (Gather::Encoded(bytes), None) => out.extend_from_slice(&bytes),
            (Gather::Value, Some(Response::Value(value))) => encoder.bulk_or_null(value.as_deref()),
            (Gather::Length, Some(Response::Value(value))) => {
                encoder.count(value.map_or(0, |value| value.len() as u64));
            }
            (Gather::Type, Some(Response::Value(value))) => {
                encoder.simple(if value.is_some() { "string" } else { "none" });
            }
            (Gather::Usage(key_bytes), Some(Response::Value(value))) => match value {
                Some(value) => encoder.count((key_bytes + value.len()) as u64),
                None => encoder.null(),
            },
            (Gather::Stored, Some(Response::Written { applied, .. })) => {
                if applied {
                    encoder.simple("OK");
                } else {
                    encoder.null();
                }
            }
            (Gather::Previous, Some(Response::Written { previous, .. })) => {
                encoder.bulk_or_null(previous.first().and_then(Option::as_deref));
            }
            (Gather::StoredCount, Some(Response::Written { applied, .. })) => {
                encoder.integer(applied.into());
            }
            (Gather::Deleted, Some(Response::Written { existed, .. })) => {
                encoder.count(existed.iter().filter(|existed| **existed).count() as u64);
            }
            (Gather::DeletedIf, Some(Response::Written { applied, .. })) => {
                encoder.integer(applied.into());
            }
            (Gather::Changed, Some(Response::Written { changed, .. })) => {
                write_changed(&mut encoder, changed);
            }
            (Gather::Existing(count), None) => encoder.count(count),
            (Gather::Values(values), None) => {
                encoder.array(values.len());
                for value in values {
                    encoder.bulk_or_null(value.as_deref());
                }
            }
            (Gather::Expiry(shown), Some(Response::Expiry { bound, at, now })) => {
                encoder.integer(shown.of(bound, at, now));
            }
            (Gather::Count, Some(Response::Count(count))) => encoder.count(count),
            (Gather::Page(pattern), Some(Response::Page { pairs, next })) => {
                let cursor = next.map_or(0, |next| front.cursors().issue(next));
                write_page(&mut encoder, cursor, pattern.as_deref(), &pairs);
            }
            (Gather::Range(range), None) => range.write(&mut encoder),
            (gather, answer) => {
                debug_assert!(false, "{answer:?} does not answer {gather:?}");
                encoder.error("ERR internal error: the answer is not one to this command");
            }
        }
    }
}

impl Gather {
    const fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Stored
                | Self::Previous
                | Self::StoredCount
                | Self::Deleted
                | Self::DeletedIf
                | Self::Changed
        )
    }
}

impl RangeGather {
    /// The call for the next page.
    pub(super) fn plan(&self) -> Plan {
        Plan::Scan(Paging {
            direction: self.direction,
            pairs_max: self.left.min(PAGE_PAIRS),
            bytes_max: PAGE_BYTES,
            keys_only: self.keys_matching.is_some(),
        })
    }

    /// Keeps what is wanted of a page. Returns the bytes kept.
    fn take(&mut self, pairs: Vec<(Vec<u8>, Vec<u8>)>) -> usize {
        // Beside its bytes, each pair takes a place.
        const PLACE_BYTES: usize = size_of::<(Vec<u8>, Vec<u8>)>();
        let mut bytes = 0;
        for (key, value) in pairs {
            let wanted = match &self.keys_matching {
                Some(pattern) => glob::matches(pattern, &key),
                None => true,
            };
            if wanted && self.left > 0 {
                self.left -= 1;
                bytes += key.len() + value.len() + PLACE_BYTES;
                self.pairs.push((key, value));
            }
        }
        bytes
    }

    fn write(self, encoder: &mut Encoder<'_>) {
        if self.keys_matching.is_some() {
            encoder.array(self.pairs.len());
            for (key, _) in self.pairs {
                encoder.bulk(&key);
            }
        } else {
            encoder.array(self.pairs.len() * 2);
            for (key, value) in self.pairs {
                encoder.bulk(&key);
                encoder.bulk(&value);
            }
        }
    }
}

fn write_changed(encoder: &mut Encoder<'_>, changed: Option<Changed>) {
    match changed {
        Some(Changed::Number(number)) => encoder.integer(number),
        Some(Changed::Value(value)) => encoder.bulk(&value),
        Some(Changed::Refused(why)) => encoder.error(&format!("ERR {why}")),
        None => encoder.null(),
    }
}

fn write_page(
    encoder: &mut Encoder<'_>,
    cursor: u64,
    pattern: Option<&[u8]>,
    pairs: &[(Vec<u8>, Vec<u8>)],
) {
    let wanted = |key: &[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, key));
    let keys: Vec<&[u8]> = pairs
        .iter()
        .map(|(key, _)| key.as_slice())
        .filter(|key| wanted(key))
        .collect();
    encoder.array(2);
    encoder.bulk(cursor.to_string().as_bytes());
    encoder.array(keys.len());
    for key in keys {
        encoder.bulk(key);
    }
}

/// Bytes of keys and values that `response` holds.
pub(super) fn response_bytes(response: &Response) -> usize {
    match response {
        Response::Value(value) => value.as_ref().map_or(0, Vec::len),
        Response::Written { previous, .. } => previous.iter().flatten().map(Vec::len).sum(),
        Response::Page { pairs, .. } => pairs
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum(),
        Response::Count(_) | Response::Failed(_) | Response::Expiry { .. } => 0,
    }
}

/// What a client is told. The prefix says what it may do: correct the request (`ERR`), try again
/// (`TRYAGAIN`: not applied), find out first whether it was applied (`NOREPLICAS`), or call an
/// operator (`MISCONF`).
pub(super) fn error_text(error: &ServiceError, is_write: bool) -> String {
    match error {
        ServiceError::Invalid(what) if is_write => format!("ERR {what} (not applied)"),
        ServiceError::Invalid(what) => format!("ERR {what}"),
        ServiceError::Unavailable { what, outcome } | ServiceError::Busy { what, outcome } => {
            let prefix = match outcome {
                WriteOutcome::Unknown if is_write => "NOREPLICAS",
                _ => "TRYAGAIN",
            };
            with_outcome(prefix, what, *outcome, is_write)
        }
        ServiceError::Storage { what, outcome } => {
            let prefix = if is_write { "MISCONF" } else { "ERR" };
            with_outcome(prefix, what, *outcome, is_write)
        }
    }
}

fn with_outcome(prefix: &str, what: &str, outcome: WriteOutcome, is_write: bool) -> String {
    if is_write {
        format!("{prefix} {what} ({outcome})")
    } else {
        format!("{prefix} {what}")
    }
}
