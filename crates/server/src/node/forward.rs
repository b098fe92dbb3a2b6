//! Requests for regions whose primary is elsewhere, and their answers, as they travel.

use std::time::Duration;

use argosy_base::{KeyRange, Lsn, Moment, Outcome};
use argosy_engine::{
    BatchError, Change, Changed, Condition, Expiry, Guard, Op, Refusal, Wanted, WriteBatch,
    WriteOptions,
};
use argosy_wire::call::{
    Answer, Call, ERASE, FailureKind, GUARD, Leasing, Op as CallOp, When, WireChange,
    WireMaintenance, WireTold, WireUntil, whole_millis,
};

use crate::service::{
    KeyList, Lease, Maintenance, Paging, Request, Response, ServiceError, SnapshotId,
};

/// The request as it travels.
pub(crate) fn encode_request(request: &Request<'_>, out: &mut Vec<u8>) {
    let call = match *request {
        Request::Get { key } => Call::Get { key },
        Request::Expiry { key } => Call::Expiry { key },
        Request::GetVersion { key } => Call::GetVersion { key },
        Request::Snapshot { id, lease } => {
            let (what, span) = match lease {
                Lease::Open(span) => (Leasing::Open, span),
                Lease::Renew(span) => (Leasing::Renew, span),
                Lease::Close => (Leasing::Close, Duration::ZERO),
            };
            Call::Snapshot {
                what,
                id: number_of(id),
                millis: whole_millis(span),
            }
        }
        Request::GetMany { keys, wanted, at } => Call::GetMany {
            at: number_of(at),
            keys: keys.iter().collect(),
            bytes_max: match wanted {
                Wanted::Values(bytes_max) => Some(bytes_max as u64),
                Wanted::Presence => None,
            },
        },
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
                    Op::DeleteRange { from, to } => (from, Some(to.unwrap_or_default())),
                })
                .chain(guard_of(batch).map(|key| (key, None)))
                .collect(),
            until: match batch.expires() || batch.ranges_len() > 0 || guard_of(batch).is_some() {
                true => batch
                    .ops()
                    .map(|op| until_of(&op))
                    .chain(guard_of(batch).map(|_| GUARD))
                    .collect(),
                false => Vec::new(),
            },
        },
        Request::Ingest { batch } => Call::Ingest {
            pairs: pairs_of(batch).collect(),
        },
        Request::Scan { range, paging } => Call::Scan {
            from: &range.from,
            to: range.to.as_deref(),
            direction: paging.direction,
            pairs_max: paging.pairs_max as u64,
            bytes_max: paging.bytes_max as u64,
            keys_only: paging.keys_only,
            at: number_of(paging.at),
        },
        Request::Count => Call::Count,
        Request::Maintain { what } => Call::Maintain { what: sent(what) },
    };
    call.encode(out);
}

/// What is to be done, as it travels.
const fn sent(what: Maintenance) -> WireMaintenance {
    match what {
        Maintenance::Flush => WireMaintenance::Flush,
        Maintenance::Compact => WireMaintenance::Compact,
    }
}

/// The puts of `batch`.
pub(super) fn pairs_of(batch: &WriteBatch) -> impl Iterator<Item = (&[u8], &[u8])> {
    batch.ops().filter_map(|op| match op {
        Op::Put { key, value, .. } => Some((key, value)),
        Op::Delete { .. } | Op::DeleteRange { .. } => None,
    })
}

/// A snapshot as it travels: 0 is none.
fn number_of(id: Option<SnapshotId>) -> u64 {
    id.map_or(0, |id| id.0)
}

/// The same, after the travel.
pub(crate) fn snapshot_of(number: u64) -> Option<SnapshotId> {
    (number != 0).then_some(SnapshotId(number))
}

/// A forwarded request, taken apart: what its [`Request`] borrows.
pub(crate) enum Forwarded<'a> {
    Get(&'a [u8]),
    Expiry(&'a [u8]),
    GetVersion(&'a [u8]),
    GetMany(KeyList, Wanted, Option<SnapshotId>),
    Snapshot(Option<SnapshotId>, Lease),
    Write(WriteBatch, WriteOptions),
    Ingest(WriteBatch),
    Scan(KeyRange, Paging),
    Count,
    Maintain(Maintenance),
}

impl<'a> Forwarded<'a> {
    /// What `call` asks for, or why it cannot be asked.
    pub(crate) fn of(call: Call<'a>) -> Result<Self, ServiceError> {
        Ok(match call {
            Call::Get { key } => Self::Get(key),
            Call::Expiry { key } => Self::Expiry(key),
            Call::GetVersion { key } => Self::GetVersion(key),
            Call::Snapshot { what, id, millis } => {
                let span = Duration::from_millis(millis).min(Lease::LONGEST);
                let lease = match what {
                    Leasing::Open => Lease::Open(span),
                    Leasing::Renew => Lease::Renew(span),
                    Leasing::Close => Lease::Close,
                };
                Self::Snapshot(snapshot_of(id), lease)
            }
            Call::GetMany {
                keys,
                bytes_max,
                at,
            } => {
                let bytes_max = bytes_max.map(|max| usize::try_from(max).unwrap_or(usize::MAX));
                let wanted = bytes_max.map_or(Wanted::Presence, Wanted::Values);
                Self::GetMany(KeyList::of(keys), wanted, snapshot_of(at))
            }
            Call::Write {
                when,
                previous,
                change,
                ops,
                until,
            } => {
                let (batch, options) = write_of(when, (previous, change), (ops, until))?;
                Self::Write(batch, options)
            }
            Call::Ingest { pairs } => {
                let mut batch = WriteBatch::new();
                let put = |(key, value)| batch.put(key, value);
                let put = pairs.into_iter().try_for_each(put);
                put.map_err(|error| ServiceError::Invalid(error.to_string()))?;
                Self::Ingest(batch)
            }
            Call::Scan {
                from,
                to,
                direction,
                pairs_max,
                bytes_max,
                keys_only,
                at,
            } => Self::Scan(
                KeyRange::new(from, to.map(<[u8]>::to_vec)),
                Paging {
                    direction,
                    pairs_max: usize::try_from(pairs_max).unwrap_or(usize::MAX),
                    bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
                    keys_only,
                    at: snapshot_of(at),
                },
            ),
            Call::Count => Self::Count,
            Call::Maintain { what } => Self::Maintain(match what {
                WireMaintenance::Flush => Maintenance::Flush,
                WireMaintenance::Compact => Maintenance::Compact,
            }),
        })
    }

    pub(crate) fn request(&self) -> Request<'_> {
        match self {
            Self::Get(key) => Request::Get { key },
            Self::Expiry(key) => Request::Expiry { key },
            Self::GetVersion(key) => Request::GetVersion { key },
            Self::GetMany(keys, wanted, at) => Request::GetMany {
                keys,
                wanted: *wanted,
                at: *at,
            },
            Self::Snapshot(id, lease) => Request::Snapshot {
                id: *id,
                lease: *lease,
            },
            Self::Write(batch, options) => Request::Write {
                batch,
                options: *options,
            },
            Self::Ingest(batch) => Request::Ingest { batch },
            Self::Scan(range, paging) => Request::Scan {
                range,
                paging: *paging,
            },
            Self::Count => Request::Count,
            Self::Maintain(what) => Request::Maintain { what: *what },
        }
    }
}

/// The key that has to be bound for a batch to be written. Other guards are of batches that stay on their
/// server.
fn guard_of(batch: &WriteBatch) -> Option<&[u8]> {
    match batch.guarded()? {
        (key, Guard::Present) => Some(key),
        (_, Guard::Unwritten(_)) => None,
    }
}

/// The write that a call describes.
pub(crate) fn write_of(
    when: When<'_>,
    (previous, change): (bool, Option<WireChange>),
    (ops, until): (Vec<CallOp<'_>>, Vec<WireUntil>),
) -> Result<(WriteBatch, WriteOptions), ServiceError> {
    let mut batch = WriteBatch::new();
    let invalid = |error: BatchError| ServiceError::Invalid(error.to_string());
    for (at, (key, value)) in ops.into_iter().enumerate() {
        let until = until.get(at).copied().unwrap_or_default();
        let expiry = expiry_of(until);
        match (value, change) {
            (None, None) if until == GUARD => {
                batch.guard(key, Guard::Present);
                Ok(())
            }
            (Some(to), None) if until == ERASE => {
                let to = (!to.is_empty()).then(|| to.to_vec());
                batch.delete_range_any(&KeyRange::new(key, to))
            }
            (Some(value), None) => batch.put_any(key, value, expiry),
            (Some(value), Some(change)) => {
                let unknown = || ServiceError::Invalid("an unknown change".into());
                let (kind, number) = change;
                let change = Change::from_parts(kind, number).ok_or_else(unknown)?;
                batch.change(key, change, value)
            }
            (None, _) => batch.delete_any(key),
        }
        .map_err(invalid)?;
    }
    let condition = match when {
        When::Always => Condition::Always,
        When::Absent => Condition::Absent,
        When::Present => Condition::Present,
        When::Equals(expected) => {
            batch.expect_any(expected).map_err(invalid)?;
            Condition::Equals
        }
        When::Version(version) => Condition::Version(Lsn(version)),
    };
    let options = WriteOptions {
        condition,
        return_previous: previous,
    };
    Ok((batch, options))
}

/// The response as it travels.
pub(crate) fn encode_response(response: &Response, out: &mut Vec<u8>) {
    let text;
    let answer = match response {
        Response::Value(value) => Answer::Value(value.as_deref()),
        Response::Versioned { value, version } => Answer::Versioned {
            value: value.as_deref(),
            version: version.0,
        },
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
        Response::Done => Answer::Done,
        Response::Snapshot(id) => Answer::Snapshot(id.map(|id| id.0)),
        Response::Values(values) => Answer::Values(values.iter().map(Option::as_deref).collect()),
        Response::Expiry { len, at, now } => Answer::Expiry {
            len: *len,
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
fn until_of(op: &Op<'_>) -> WireUntil {
    let expiry = match op {
        Op::Put { expiry, .. } => expiry,
        Op::Delete { .. } => return (0, 0),
        Op::DeleteRange { .. } => return ERASE,
    };
    match expiry {
        Expiry::Never => (0, 0),
        Expiry::Keep => (1, 0),
        Expiry::At(moment) => (2, moment.0),
        Expiry::After(millis) => (3, *millis),
    }
}

/// The same, after the travel.
fn expiry_of(until: WireUntil) -> Expiry {
    match until {
        (1, _) => Expiry::Keep,
        (2, moment) => Expiry::At(Moment(moment)),
        (3, millis) => Expiry::After(millis),
        _ => Expiry::Never,
    }
}

/// What a change told, as it travels.
fn told_of(changed: &Changed) -> WireTold<'_> {
    match changed {
        Changed::Number(number) => WireTold::Number(*number),
        Changed::Value(value) => WireTold::Value(value),
        Changed::Refused(why) => {
            let at = Refusal::ALL.iter().position(|refusal| refusal == why);
            WireTold::Refused(at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX))
        }
    }
}

/// What told; `None` where that is not known here.
fn changed_of(told: WireTold<'_>) -> Option<Changed> {
    Some(match told {
        WireTold::Number(number) => Changed::Number(number),
        WireTold::Value(value) => Changed::Value(value.to_vec()),
        WireTold::Refused(why) => Changed::Refused(*Refusal::ALL.get(usize::from(why))?),
    })
}

/// The response that travelled.
pub(crate) fn decode_response(answer: Answer<'_>) -> Response {
    let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    match answer {
        Answer::Value(value) => Response::Value(own(value)),
        Answer::Versioned { value, version } => Response::Versioned {
            value: own(value),
            version: Lsn(version),
        },
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
        Answer::Done => Response::Done,
        Answer::Snapshot(id) => Response::Snapshot(id.map(SnapshotId)),
        Answer::Values(values) => Response::Values(values.into_iter().map(own).collect()),
        Answer::Expiry { len, at, now } => Response::Expiry {
            len,
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
