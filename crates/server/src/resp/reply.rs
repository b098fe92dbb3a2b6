//! Replies that wait: for answers, or for their turn.
//!
//! Every command that cannot be answered on the spot has a [`Pending`] in the session's queue. It
//! gathers the answers of its calls, in whatever order they come, and is written when nothing is
//! outstanding and everything in front of it has been written. What it will write is said by its
//! [`Gather`]. An answer that failed turns the whole reply into one error; answers that come after
//! that are dropped, but waited for, since their tokens name this reply.

use argosy_engine::composite::{Composite, is_composite};
use argosy_engine::{Changed, Refusal};
use argosy_wire::api::{Plan, Scratch};
use argosy_wire::resp::{Encoder, Protocol};

use super::composite::WRONG_TYPE;
use super::errors::error_text;
use super::exec::Exec;
use super::expiry::Shown;
use super::front::{Context, FrontEnd};
use super::glob;
use super::long::LongGather;
use super::many_long::ManyGather;
use super::once;
pub(super) use super::pages::{KeysGather, RangeGather, Tells};
use super::random::RandomGather;
use super::slow_log::Trace;
use super::transactions::Watching;
use crate::long::{Growing, Writing, before_head, look_up, part};
use crate::meter::MeteredOutcome;
use crate::service::{Response, SnapshotId};

/// Of an answer that is not one to what was asked.
pub(super) const UNFIT: &str = "ERR internal error: the answer is not one to this command";

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
    /// How it began, where that may be told if it takes long.
    pub trace: Option<Box<Trace>>,
    outcome: MeteredOutcome,
    pub(super) gather: Gather,
    pub(super) answer: Option<Response>,
    failed: Option<String>,
}

/// What a reply is made of.
#[derive(Debug)]
pub(super) enum Gather {
    /// Bytes that are ready and wait for their turn.
    Encoded(Vec<u8>),
    /// `GET`: the value.
    Value,
    /// `KV.GET … SNAPSHOT`: the value in a snapshot.
    ValueAt(SnapshotId),
    /// A value in parts, which is written as they come.
    Long(Box<LongGather>),
    /// `MGET`, `KV.RANGE` and the like, where some of the values are in parts.
    Many(Box<ManyGather>),
    /// `SET` while its value is taken in, part by part.
    Taking(Box<Writing>),
    /// `GETRANGE`: the value between these bytes, both included, counted from the end where below zero.
    Part(i64, i64),
    /// `STRLEN` of this key: its length, 0 without a value.
    Length(Vec<u8>),
    /// The same, where the value may be a head.
    LengthOf(Vec<u8>),
    /// `TYPE` of this key: `string`, `none`, or what its head says.
    Type(Vec<u8>),
    /// The same, where the value may be a head.
    TypeOf(Vec<u8>),
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
    /// `INCR` and the like: what the change told.
    Changed,
    /// `EXEC`, and scripts: what each command is answered.
    Exec(Box<Exec>),
    /// `WATCH`: `OK`, once the versions of its keys are known.
    Watch(Box<Watching>),
    /// `APPEND`, `SETRANGE`: the same, where the change may have to be made part by part.
    Grow(Box<Growing>),
    /// `MGET` and `EXISTS`: answer after answer, until all keys are told of.
    Keys(Box<KeysGather>),
    /// `TTL` and the like.
    Expiry(Shown),
    /// `DBSIZE`.
    Count,
    /// `KV.FLUSH` and `KV.COMPACT`: `OK`.
    Done,
    /// `KV.SNAPSHOT OPEN`: its name.
    Opened,
    /// `KV.SNAPSHOT RENEW` and `CLOSE`: 1 where it was open, in every region.
    WasOpen,
    /// `SCAN`: a page of keys, those that match and are of a type, and a cursor.
    Page(Option<Vec<u8>>, Option<String>),
    /// `KV.RANGE` and `KEYS`: page after page until the limit or the end.
    Range(Box<RangeGather>),
    /// `RANDOMKEY`: look after look.
    Random(Box<RandomGather>),
}

/// What the session does after an answer was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing special.
    Nothing,
    /// Call for the next page of the range or of the keys.
    NextPage,
}

impl Pending {
    pub(super) fn new(gather: Gather, protocol: Protocol, muted: bool) -> Self {
        let held = match &gather {
            Gather::Encoded(bytes) => bytes.len(),
            Gather::Grow(growing) => growing.held(),
            Gather::Exec(exec) => exec.held(),
            Gather::Watch(watching) => watching.held(),
            _ => 0,
        };
        Self {
            protocol,
            muted,
            outstanding: 0,
            asked: 0,
            held,
            command: None,
            trace: None,
            outcome: MeteredOutcome::Ok,
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

    /// Whether it makes one call behind the other, for the first reply of the queue only.
    pub(super) const fn goes_alone(&self) -> bool {
        matches!(self.gather, Gather::Grow(_) | Gather::Exec(_))
    }

    /// Whether further calls follow the first answer, as a rule.
    pub(super) const fn may_go_on(&self) -> bool {
        matches!(
            self.gather,
            Gather::Grow(_)
                | Gather::Exec(_)
                | Gather::Range(_)
                | Gather::Random(_)
                | Gather::Watch(_)
        )
    }

    /// How the command was answered.
    pub(super) const fn outcome(&self) -> MeteredOutcome {
        self.outcome
    }

    /// The call for the next page of what is read page by page, whose range or keys are put into `scratch`; `None`:
    /// there is none any more.
    pub(super) fn next_page(
        &mut self,
        context: &Context<'_>,
        scratch: &mut Scratch,
    ) -> Option<Plan> {
        match &mut self.gather {
            Gather::Range(range) => {
                scratch.range.clone_from(&range.range);
                Some(range.plan())
            }
            Gather::Random(random) => Some(random.plan(scratch)),
            Gather::Keys(keys) => Some(keys.plan(&mut scratch.keys)),
            Gather::Long(long) => Some(long.reading.plan(&mut scratch.keys)),
            Gather::Many(many) => many.plan(&mut scratch.keys),
            Gather::LengthOf(key) | Gather::TypeOf(key) => {
                Some(look_up(key, None, &mut scratch.keys))
            }
            Gather::Grow(growing) => {
                let plan = growing.plan(&context.front.versions, scratch);
                self.held = growing.held();
                Some(plan)
            }
            Gather::Exec(exec) => {
                let next = exec.next(context, scratch);
                self.held = exec.held();
                next.unwrap_or_else(|text| {
                    self.fail(text, MeteredOutcome::Invalid);
                    None
                })
            }
            Gather::Watch(watching) => Some(watching.plan(context, scratch)),
            _ => None,
        }
    }

    /// Bytes of keys that are held until all are told of.
    pub(super) fn keys_bytes(&self) -> usize {
        match &self.gather {
            Gather::Keys(keys) => keys.keys.bytes(),
            _ => 0,
        }
    }

    /// The reply will be the error `text`.
    pub(super) fn fail(&mut self, text: String, outcome: MeteredOutcome) {
        if self.failed.is_none() {
            self.failed = Some(text);
            self.outcome = outcome;
        }
        self.gather = Gather::Value;
        self.answer = None;
        self.held = 0;
    }

    /// Takes the answer to a call.
    #[inline]
    pub(super) fn take(&mut self, response: Response) -> After {
        if self.failed.is_some() {
            return After::Nothing;
        }
        if self.goes_alone() {
            return self.take_alone(response);
        }
        if let Response::Failed(error) = response {
            let begun = match &mut self.gather {
                Gather::Long(long) => long.tear(),
                Gather::Many(many) => many.tear(),
                _ => false,
            };
            if begun {
                // It cannot say so in the middle of a value.
                self.outcome = (&error).into();
                return After::Nothing;
            }
            let error = match &self.gather {
                Gather::Taking(_) => before_head(error),
                _ => error,
            };
            let text = error_text(&error, self.gather.is_write());
            self.fail(text, (&error).into());
            return After::Nothing;
        }
        if let Some(after) = self.take_head(&response) {
            return after;
        }
        match (&mut self.gather, response) {
            (Gather::Taking(writing), _) => writing.wrote(),
            (Gather::Watch(watching), response) => match watching.take(response) {
                Some(true) => {}
                Some(false) => return After::NextPage,
                None => self.fail(UNFIT.to_owned(), MeteredOutcome::Invalid),
            },
            (Gather::Long(_), Response::Values(told)) => return self.take_part(told),
            (Gather::Many(_), Response::Values(told)) => return self.take_part_of_many(told),
            (Gather::Keys(keys), Response::Values(told)) => {
                let before = keys.told;
                self.held += keys.take(told);
                if keys.told < keys.keys.len() && keys.told > before {
                    return After::NextPage;
                }
                return self.with_long();
            }
            (Gather::ValueAt(_), Response::Values(told)) => {
                let value = Response::Value(told.into_iter().next().flatten());
                self.held += response_bytes(&value);
                self.answer = Some(value);
            }
            (Gather::Range(range), Response::Page { pairs, next }) => {
                self.held += range.take(pairs);
                if let Some(next) = next
                    && range.left > 0
                {
                    range.range.go_on_at(range.direction, next);
                    return After::NextPage;
                }
                return self.with_long();
            }
            (Gather::Random(random), Response::Page { pairs, next }) => {
                return random.take_page(pairs, next);
            }
            (_, response) => {
                self.held += response_bytes(&response);
                self.answer = Some(response);
            }
        }
        After::Nothing
    }

    /// Whether a string was asked for, and this is the head of a composite.
    #[inline]
    pub(super) fn is_of_wrong_type(&self, response: &Response) -> bool {
        let is = |value: &Option<Vec<u8>>| value.as_deref().is_some_and(is_composite);
        match (&self.gather, response) {
            (Gather::Value | Gather::Part(..), Response::Value(value)) => is(value),
            (Gather::ValueAt(_) | Gather::LengthOf(_), Response::Values(values)) => {
                values.iter().any(is)
            }
            (Gather::Previous, Response::Written { previous, .. }) => previous.iter().any(is),
            (Gather::Range(range), Response::Page { pairs, .. }) if !range.keys_only => {
                pairs.iter().any(|(_, value)| is_composite(value))
            }
            _ => false,
        }
    }

    /// Takes the answer to a call of what makes one behind the other.
    fn take_alone(&mut self, response: Response) -> After {
        let Gather::Exec(exec) = &mut self.gather else {
            return self.take_grown(response);
        };
        let taken = exec.take(response);
        self.held = exec.held();
        taken.unwrap_or_else(|refused| {
            self.fail(refused.text, refused.outcome);
            After::Nothing
        })
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
            (_, Some(Response::WrittenBefore { version })) => {
                once::tell_applied(version, &mut encoder);
            }
            (Gather::Encoded(bytes), None) => out.extend_from_slice(&bytes),
            (Gather::Value | Gather::ValueAt(_), Some(Response::Value(value))) => {
                front.meter.read(value.is_some());
                encoder.bulk_or_null(value.as_deref());
            }
            (Gather::Part(from, to), Some(Response::Value(value))) => {
                encoder.bulk(part(value.as_deref().unwrap_or_default(), from, to));
            }
            (Gather::Length(_), Some(Response::Expiry { len, .. })) => {
                encoder.count(len.unwrap_or(0));
            }
            (Gather::LengthOf(_), Some(Response::Count(len))) => encoder.count(len),
            (Gather::Exec(exec), None) => exec.write(out, front),
            (Gather::Watch(_), None) => encoder.simple("OK"),
            (Gather::Long(long), None) => (*long).end(out),
            (Gather::Many(mut many), None) => {
                many.stream(out);
            }
            (Gather::Type(_), Some(Response::Expiry { len, .. })) => {
                encoder.simple(if len.is_some() { "string" } else { "none" });
            }
            (Gather::TypeOf(_), Some(Response::Value(value))) => {
                encoder.simple(type_of(value.as_deref()));
            }
            (Gather::Usage(key_bytes), Some(Response::Expiry { len, .. })) => match len {
                Some(len) => encoder.count(key_bytes as u64 + len),
                None => encoder.null(),
            },
            (Gather::Stored, Some(Response::Written { applied, .. })) => match applied {
                true => encoder.simple("OK"),
                false => encoder.null(),
            },
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
            (gather, answer) => write_more(gather, answer, &mut encoder, front),
        }
    }
}

impl Gather {
    /// Whether a transaction may have a command that is answered so.
    pub(super) const fn is_transactional(&self) -> bool {
        matches!(
            self,
            Self::Value
                | Self::Part(..)
                | Self::Length(_)
                | Self::Type(_)
                | Self::Usage(_)
                | Self::Stored
                | Self::Previous
                | Self::StoredCount
                | Self::Deleted
                | Self::DeletedIf
                | Self::Changed
                | Self::Grow(_)
                | Self::Keys(_)
                | Self::Expiry(_)
        )
    }

    const fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Stored
                | Self::Previous
                | Self::StoredCount
                | Self::Taking(_)
                | Self::Deleted
                | Self::DeletedIf
                | Self::Changed
        )
    }
}

/// What `TYPE` answers of a key that is bound to this.
fn type_of(value: Option<&[u8]>) -> &'static str {
    match (value, value.and_then(Composite::parse)) {
        (None, _) => "none",
        (_, Some(head)) => head.kind.name(),
        (Some(_), None) => "string",
    }
}

/// Writes a reply of more than one value, or what is no value.
fn write_more(
    gather: Gather,
    answer: Option<Response>,
    encoder: &mut Encoder<'_>,
    front: &FrontEnd,
) {
    match (gather, answer) {
        (Gather::Changed, Some(Response::Written { changed, .. })) => {
            write_changed(encoder, changed);
        }
        (Gather::Keys(keys), None) => keys.write(encoder),
        (Gather::Expiry(shown), Some(Response::Expiry { len, at, now })) => {
            encoder.integer(shown.of(len.is_some(), at, now));
        }
        (Gather::Count, Some(Response::Count(count))) => encoder.count(count),
        (Gather::Done, Some(Response::Done)) => encoder.simple("OK"),
        (Gather::Opened, Some(Response::Snapshot(Some(id)))) => {
            encoder.bulk(id.to_string().as_bytes());
        }
        (Gather::WasOpen, Some(Response::Snapshot(id))) => {
            encoder.integer(id.is_some().into());
        }
        (Gather::Page(pattern, kind), Some(Response::Page { mut pairs, next })) => {
            let cursor = next.map_or(0, |next| front.cursors().issue(next));
            if let Some(kind) = kind {
                pairs.retain(|(_, value)| type_of(Some(value)) == kind);
            }
            write_page(encoder, cursor, pattern.as_deref(), &pairs);
        }
        (Gather::Range(range), None) => range.write(encoder),
        (Gather::Random(random), None) => random.write(encoder),
        (gather, answer) => {
            debug_assert!(false, "{answer:?} does not answer {gather:?}");
            encoder.error(UNFIT);
        }
    }
}

fn write_changed(encoder: &mut Encoder<'_>, changed: Option<Changed>) {
    match changed {
        Some(Changed::Number(number)) => encoder.integer(number),
        Some(Changed::Value(value)) => encoder.bulk(&value),
        Some(Changed::Refused(Refusal::WrongType)) => encoder.error(WRONG_TYPE),
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
        Response::Value(value) | Response::Versioned { value, .. } => {
            value.as_ref().map_or(0, Vec::len)
        }
        Response::Values(values) => values.iter().flatten().map(Vec::len).sum(),
        Response::Examined { found, .. } => {
            let values = found.iter().filter_map(|found| found.value.as_ref());
            values.map(Vec::len).sum()
        }
        Response::Written { previous, .. } => previous.iter().flatten().map(Vec::len).sum(),
        Response::Page { pairs, .. } => pairs
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum(),
        Response::Count(_)
        | Response::Failed(_)
        | Response::Expiry { .. }
        | Response::Snapshot(_)
        | Response::WrittenBefore { .. }
        | Response::Done => 0,
    }
}
