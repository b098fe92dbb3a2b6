//! Requests for regions whose primary is elsewhere: how they travel, and the answers that are
//! awaited.

use std::collections::BTreeMap;

use argosy_base::{Instant, KeyRange, Lsn, Moment, Outcome, ServerId};
use argosy_engine::{
    BatchError, Change, Changed, Condition, Expiry, Op, Refusal, WriteBatch, WriteOptions,
};
use argosy_wire::call::{Answer, Call, FailureKind, Told, Until, When};

use super::waiting::ReplyTo;
use crate::service::{Paging, Request, Response, ServiceError};

/// Calls under way to other servers, at most.
const CALLS_MAX: usize = 1 << 16;

struct Pending {
    peer: ServerId,
    reply: ReplyTo,
    deadline: Instant,
    write: bool,
}

/// Calls that were forwarded and not answered yet.
#[derive(Default)]
pub(crate) struct Calls {
    pending: BTreeMap<u64, Pending>,
    last: u64,
}

impl Calls {
    /// Registers a call to `peer` and returns the number that its answer will repeat; `None`
    /// where too many are under way.
    pub(crate) fn begin(
        &mut self,
        peer: ServerId,
        reply: ReplyTo,
        deadline: Instant,
        write: bool,
    ) -> Option<u64> {
        if self.pending.len() >= CALLS_MAX {
            return None;
        }
        self.last += 1;
        self.pending.insert(
            self.last,
            Pending {
                peer,
                reply,
                deadline,
                write,
            },
        );
        Some(self.last)
    }

    /// Where the answer to call `number` of `peer` goes; `None` where nobody waits for it any more.
    pub(crate) fn end(&mut self, peer: ServerId, number: u64) -> Option<ReplyTo> {
        match self.pending.get(&number) {
            Some(call) if call.peer == peer => self.pending.remove(&number).map(|call| call.reply),
            _ => None,
        }
    }

    /// Gives up every call for which `lost` holds; `what` says what became of the server.
    fn give_up(
        &mut self,
        what: &str,
        lost: impl Fn(&Pending) -> bool,
        due: &mut Vec<(ReplyTo, Response)>,
    ) {
        for (_, call) in self.pending.extract_if(.., |_, call| lost(call)) {
            let outcome = if call.write {
                Outcome::Unknown
            } else {
                Outcome::NotApplied
            };
            let what = format!("{}, the region's primary, {what}; retry", call.peer);
            let error = ServiceError::Unavailable { what, outcome };
            due.push((call.reply, Response::Failed(error)));
        }
    }

    /// The link to `peer` is down: what was under way is lost.
    pub(crate) fn link_down(&mut self, peer: ServerId, due: &mut Vec<(ReplyTo, Response)>) {
        self.give_up(
            "was lost while it worked on this",
            |call| call.peer == peer,
            due,
        );
    }

    /// Gives up what is past its deadline.
    pub(crate) fn expire(&mut self, now: Instant, due: &mut Vec<(ReplyTo, Response)>) {
        self.give_up("did not answer in time", |call| call.deadline <= now, due);
    }
}

/// The request as it travels.
pub(crate) fn encode_request(request: &Request<'_>, out: &mut Vec<u8>) {
    let call = match *request {
        Request::Get { key } => Call::Get { key },
        Request::Expiry { key } => Call::Expiry { key },
        Request::Write { batch, options } => Call::Write {
            when: match options.condition {
                Condition::Always => When::Always,
                Condition::Absent => When::Absent,
                Condition::Present => When::Present,
                Condition::Equals => When::Equals(batch.expected()),
                Condition::Version(version) => When::Version(version.0),
            },
            previous: options.return_previous,
            change: batch.changes().map(Change::to_parts),
            ops: batch
                .ops()
                .map(|op| match op {
                    Op::Put { key, value, .. } => (key, Some(value)),
                    Op::Delete { key } => (key, None),
                })
                .collect(),
            until: match batch.expires() {
                true => batch.ops().map(|op| until_of(&op)).collect(),
                false => Vec::new(),
            },
        },
        Request::Scan { range, paging } => Call::Scan {
            from: &range.from,
            to: range.to.as_deref(),
            direction: paging.direction,
            pairs_max: paging.pairs_max as u64,
            bytes_max: paging.bytes_max as u64,
            keys_only: paging.keys_only,
        },
        Request::Count => Call::Count,
    };
    call.encode(out);
}

/// A forwarded request, taken apart: what its [`Request`] borrows.
pub(crate) enum Forwarded<'a> {
    Get(&'a [u8]),
    Expiry(&'a [u8]),
    Write(WriteBatch, WriteOptions),
    Scan(KeyRange, Paging),
    Count,
}

impl<'a> Forwarded<'a> {
    /// What `call` asks for, or why it cannot be asked.
    pub(crate) fn of(call: Call<'a>) -> Result<Self, ServiceError> {
        Ok(match call {
            Call::Get { key } => Self::Get(key),
            Call::Expiry { key } => Self::Expiry(key),
            Call::Write {
                when,
                previous,
                change,
                ops,
                until,
            } => {
                let mut batch = WriteBatch::new();
                let invalid = |error: BatchError| ServiceError::Invalid(error.to_string());
                for (at, (key, value)) in ops.into_iter().enumerate() {
                    let expiry = expiry_of(until.get(at).copied().unwrap_or_default());
                    match (value, change) {
                        (Some(value), None) => batch.put_until(key, value, expiry),
                        (Some(value), Some(change)) => {
                            let unknown = || ServiceError::Invalid("an unknown change".into());
                            let change = Change::from_parts(change).ok_or_else(unknown)?;
                            batch.change(key, change, value)
                        }
                        (None, _) => batch.delete(key),
                    }
                    .map_err(invalid)?;
                }
                let condition = match when {
                    When::Always => Condition::Always,
                    When::Absent => Condition::Absent,
                    When::Present => Condition::Present,
                    When::Equals(expected) => {
                        batch.expect(expected).map_err(invalid)?;
                        Condition::Equals
                    }
                    When::Version(version) => Condition::Version(Lsn(version)),
                };
                Self::Write(
                    batch,
                    WriteOptions {
                        condition,
                        return_previous: previous,
                    },
                )
            }
            Call::Scan {
                from,
                to,
                direction,
                pairs_max,
                bytes_max,
                keys_only,
            } => Self::Scan(
                KeyRange::new(from, to.map(<[u8]>::to_vec)),
                Paging {
                    direction,
                    pairs_max: usize::try_from(pairs_max).unwrap_or(usize::MAX),
                    bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
                    keys_only,
                },
            ),
            Call::Count => Self::Count,
        })
    }

    pub(crate) fn request(&self) -> Request<'_> {
        match self {
            Self::Get(key) => Request::Get { key },
            Self::Expiry(key) => Request::Expiry { key },
            Self::Write(batch, options) => Request::Write {
                batch,
                options: *options,
            },
            Self::Scan(range, paging) => Request::Scan {
                range,
                paging: *paging,
            },
            Self::Count => Request::Count,
        }
    }
}

/// The response as it travels.
pub(crate) fn encode_response(response: &Response, out: &mut Vec<u8>) {
    let text;
    let answer = match response {
        Response::Value(value) => Answer::Value(value.as_deref()),
        Response::Written {
            applied,
            existed,
            previous,
            changed,
        } => Answer::Written {
            applied: *applied,
            existed: existed.clone(),
            previous: previous.iter().map(Option::as_deref).collect(),
            told: changed.as_ref().map(told_of),
        },
        Response::Page { pairs, next } => Answer::Page {
            pairs: pairs
                .iter()
                .map(|(key, value)| (key.as_slice(), value.as_slice()))
                .collect(),
            next: next.as_deref(),
        },
        Response::Count(count) => Answer::Count(*count),
        Response::Expiry { bound, at, now } => Answer::Expiry {
            bound: *bound,
            at: at.map(|at| at.0),
            now: now.0,
        },
        Response::Failed(error) => {
            let (kind, outcome) = match error {
                ServiceError::Invalid(what) => {
                    text = what.clone();
                    (FailureKind::Invalid, Outcome::NotApplied)
                }
                ServiceError::Unavailable { what, outcome } => {
                    text = what.clone();
                    (FailureKind::Unavailable, *outcome)
                }
                ServiceError::Busy { what, outcome } => {
                    text = what.clone();
                    (FailureKind::Busy, *outcome)
                }
                ServiceError::Storage { what, outcome } => {
                    text = what.clone();
                    (FailureKind::Storage, *outcome)
                }
            };
            Answer::Failed {
                kind,
                outcome,
                text: text.as_bytes(),
            }
        }
    };
    answer.encode(out);
}

/// When an operation expires, as it travels. DO NOT CHANGE THE VALUES.
fn until_of(op: &Op<'_>) -> Until {
    let Op::Put { expiry, .. } = op else {
        return (0, 0);
    };
    match expiry {
        Expiry::Never => (0, 0),
        Expiry::Keep => (1, 0),
        Expiry::At(moment) => (2, moment.0),
        Expiry::After(millis) => (3, *millis),
    }
}

/// The same, after the travel.
fn expiry_of(until: Until) -> Expiry {
    match until {
        (1, _) => Expiry::Keep,
        (2, moment) => Expiry::At(Moment(moment)),
        (3, millis) => Expiry::After(millis),
        _ => Expiry::Never,
    }
}

/// What a change told, as it travels.
fn told_of(changed: &Changed) -> Told<'_> {
    match changed {
        Changed::Number(number) => Told::Number(*number),
        Changed::Value(value) => Told::Value(value),
        Changed::Refused(why) => {
            let at = Refusal::ALL.iter().position(|refusal| refusal == why);
            Told::Refused(at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX))
        }
    }
}

/// What told; `None` where that is not known here.
fn changed_of(told: Told<'_>) -> Option<Changed> {
    Some(match told {
        Told::Number(number) => Changed::Number(number),
        Told::Value(value) => Changed::Value(value.to_vec()),
        Told::Refused(why) => Changed::Refused(*Refusal::ALL.get(usize::from(why))?),
    })
}

/// The response that travelled.
pub(crate) fn decode_response(answer: Answer<'_>) -> Response {
    let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    match answer {
        Answer::Value(value) => Response::Value(own(value)),
        Answer::Written {
            applied,
            existed,
            previous,
            told,
        } => Response::Written {
            applied,
            existed,
            previous: previous.into_iter().map(own).collect(),
            changed: told.and_then(changed_of),
        },
        Answer::Page { pairs, next } => Response::Page {
            pairs: pairs
                .into_iter()
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect(),
            next: own(next),
        },
        Answer::Count(count) => Response::Count(count),
        Answer::Expiry { bound, at, now } => Response::Expiry {
            bound,
            at: at.map(Moment),
            now: Moment(now),
        },
        Answer::Failed {
            kind,
            outcome,
            text,
        } => {
            let what = String::from_utf8_lossy(text).into_owned();
            Response::Failed(match kind {
                FailureKind::Invalid => ServiceError::Invalid(what),
                FailureKind::Unavailable => ServiceError::Unavailable { what, outcome },
                FailureKind::Busy => ServiceError::Busy { what, outcome },
                FailureKind::Storage => ServiceError::Storage { what, outcome },
            })
        }
    }
}
