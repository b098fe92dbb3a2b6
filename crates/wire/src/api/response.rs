//! Responses.
//!
//! ```text
//! response := 1 value?                                          what a key is bound to
//!           | 2 applied: u8  count u8*  count value?*  told     written: existed, previous, what a
//!                                                               change told
//!           | 3 count (key value)*  next?                       a page of a scan
//!           | 4 number                                          a count
//!           | 5 number  number?  number                         the region's time, when a key's pair
//!                                                               expires, and how long its value is
//!           | 6 number                                          the region's time, without a pair
//!           | 7 count value?*                                   what the first of several keys are bound to
//!           | 8 number?                                         a snapshot, if there is one
//!           | 9 failure: u8  outcome: u8  text                  failed
//!           | 10 value?  lsn                                    what a key is bound to, and the version
//!           | 11                                                done
//!           | 12 number count (value? number? lsn)*             the region's time; what the first of several keys
//!                                                               are bound to, when that expires, and the version
//!           | 13 lsn                                            written before, under the same name
//! told     := 0 | 1 number: u64 | 2 value | 3 refusal: u8       none; a number, a value, why not
//! ```
//!
//! What is not explained here is explained in [`super`].

use alloc::vec::Vec;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{Changed, Lsn, Moment, Refusal};

use super::{Failure, SnapshotId, count, flag, option, put_option};

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To [`Request::Get`](super::Request::Get): the value, or `None` where the key is not bound.
    Value(Option<Vec<u8>>),
    /// To [`Request::GetVersion`](super::Request::GetVersion).
    Versioned {
        /// The value, or `None` where the key is not bound.
        value: Option<Vec<u8>>,
        /// No write of the key has a higher LSN: for [`Condition::Version`](argosy_base::Condition::Version).
        version: Lsn,
    },
    /// To [`Request::GetMany`](super::Request::GetMany): of the first of the keys, in their order, at least of one.
    /// Whoever wants more asks again for the others.
    Values(Vec<Option<Vec<u8>>>),
    /// To [`Request::Examine`](super::Request::Examine): of the first of the keys, as [`Values`](Self::Values).
    Examined {
        /// The region's time.
        now: Moment,
        /// In the order of the keys.
        found: Vec<Examined>,
    },
    /// To [`Request::Snapshot`](super::Request::Snapshot): which; `None` where it was not open, in every region.
    Snapshot(Option<SnapshotId>),
    /// To [`Request::Expiry`](super::Request::Expiry).
    Expiry {
        /// Bytes of the value, or `None` where the key is not bound.
        len: Option<u64>,
        /// When that expires, if it does.
        at: Option<Moment>,
        /// The region's time.
        now: Moment,
    },
    /// To [`Request::Write`](super::Request::Write) and [`Request::Ingest`](super::Request::Ingest).
    Written {
        /// Whether the condition held everywhere and the batch was written.
        applied: bool,
        /// Per operation, whether its key was bound before, where a condition, `return_previous`
        /// or a delete made the engine look; empty otherwise.
        existed: Vec<bool>,
        /// Per operation, what its key was bound to before, where that was asked for.
        previous: Vec<Option<Vec<u8>>>,
        /// What a change told, unless its condition failed.
        changed: Option<Changed>,
    },
    /// To [`Request::Write`](super::Request::Write) of a batch that has a [name](argosy_base::WriteBatch::name): it was
    /// applied when it came before, and nothing was done now. What it was answered then is not known any more.
    WrittenBefore {
        /// The last LSN of what was written; 0 where that was in several regions.
        version: Lsn,
    },
    /// To [`Request::Scan`](super::Request::Scan).
    Page {
        /// Pairs in the order of their keys, or from the highest down.
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Where to go on, or `None` at the end of the range. Upwards the keys from this one on have
        /// not been read, downwards those below it: see [`KeyRange::go_on_at`](argosy_base::KeyRange::go_on_at).
        next: Option<Vec<u8>>,
    },
    /// To [`Request::Count`](super::Request::Count).
    Count(u64),
    /// To [`Request::Maintain`](super::Request::Maintain).
    Done,
    /// The request was not, or not surely, carried out.
    Failed(Failure),
}

/// What a key is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// The value, or as much of it as was wanted; `None` where the key is not bound.
    pub value: Option<Vec<u8>>,
    /// When it expires, if it does.
    pub expiry: Option<Moment>,
    /// No write of the key has a higher LSN.
    pub version: Lsn,
}

impl Response {
    /// Whether it tells of a write that took effect: without it, nobody knows.
    #[must_use]
    pub const fn tells_of_effect(&self) -> bool {
        matches!(
            self,
            Self::Written { applied: true, .. } | Self::WrittenBefore { .. }
        )
    }

    /// Bytes of memory that it holds, beside its own size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const PAIR_BYTES: usize = size_of::<(Vec<u8>, Vec<u8>)>();
        const VALUE_BYTES: usize = size_of::<Option<Vec<u8>>>();
        match self {
            Self::Value(value) | Self::Versioned { value, .. } => {
                value.as_ref().map_or(0, Vec::len)
            }
            Self::Values(values) => {
                values.len() * VALUE_BYTES + values.iter().flatten().map(Vec::len).sum::<usize>()
            }
            Self::Examined { found, .. } => {
                let values = found.iter().filter_map(|found| found.value.as_ref());
                found.len() * size_of::<Examined>() + values.map(Vec::len).sum::<usize>()
            }
            Self::Written {
                existed,
                previous,
                changed,
                ..
            } => {
                let values = previous.iter().flatten().map(Vec::len).sum::<usize>();
                let told = match changed {
                    Some(Changed::Value(value)) => value.len(),
                    _ => 0,
                };
                existed.len() + previous.len() * VALUE_BYTES + values + told
            }
            Self::Page { pairs, next } => {
                let both = pairs.iter().map(|(key, value)| key.len() + value.len());
                let next = next.as_ref().map_or(0, Vec::len);
                pairs.len() * PAIR_BYTES + both.sum::<usize>() + next
            }
            Self::Count(_)
            | Self::Expiry { .. }
            | Self::Snapshot(_)
            | Self::WrittenBefore { .. }
            | Self::Done => 0,
            Self::Failed(error) => error.what().len(),
        }
    }
}

fn put_values(values: &[Option<Vec<u8>>], out: &mut Vec<u8>) {
    put_varint(out, values.len() as u64);
    for value in values {
        put_option(out, value.as_deref());
    }
}

fn read_values(r: &mut Reader<'_>) -> Result<Vec<Option<Vec<u8>>>, Malformed> {
    (0..count(r)?).map(|_| owned(r, VALUE_BYTES_MAX)).collect()
}

fn owned(r: &mut Reader<'_>, max: usize) -> Result<Option<Vec<u8>>, Malformed> {
    Ok(option(r, max)?.map(<[u8]>::to_vec))
}

fn put_pairs(pairs: &[(Vec<u8>, Vec<u8>)], out: &mut Vec<u8>) {
    put_varint(out, pairs.len() as u64);
    for (key, value) in pairs {
        put_string(out, key);
        put_string(out, value);
    }
}

fn put_number(number: Option<u64>, out: &mut Vec<u8>) {
    out.push(u8::from(number.is_some()));
    if let Some(number) = number {
        put_varint(out, number);
    }
}

fn number(r: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    Ok(if flag(r)? { Some(r.varint()?) } else { None })
}

fn put_changed(changed: Option<&Changed>, out: &mut Vec<u8>) {
    match changed {
        None => out.push(0),
        Some(Changed::Number(number)) => {
            out.push(1);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Some(Changed::Value(value)) => {
            out.push(2);
            put_string(out, value);
        }
        Some(Changed::Refused(why)) => {
            let at = Refusal::ALL.iter().position(|refusal| refusal == why);
            let at = at.and_then(|at| u8::try_from(at).ok());
            out.extend_from_slice(&[3, at.expect("there are few")]);
        }
    }
}

fn read_changed(r: &mut Reader<'_>) -> Result<Option<Changed>, Malformed> {
    Ok(match r.u8()? {
        0 => None,
        1 => Some(Changed::Number(r.u64()?.cast_signed())),
        2 => Some(Changed::Value(r.string(VALUE_BYTES_MAX)?.to_vec())),
        3 => {
            let why = Refusal::ALL.get(usize::from(r.u8()?));
            Some(Changed::Refused(*why.ok_or_else(|| r.malformed())?))
        }
        _ => return Err(r.malformed()),
    })
}

impl Response {
    /// Appends the response.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Value(value) => {
                out.push(1);
                put_option(out, value.as_deref());
            }
            Self::Versioned { value, version } => {
                out.push(10);
                put_option(out, value.as_deref());
                put_varint(out, version.0);
            }
            Self::Written {
                applied,
                existed,
                previous,
                changed,
            } => {
                out.extend_from_slice(&[2, u8::from(*applied)]);
                put_varint(out, existed.len() as u64);
                out.extend(existed.iter().map(|existed| u8::from(*existed)));
                put_values(previous, out);
                put_changed(changed.as_ref(), out);
            }
            Self::WrittenBefore { version } => {
                out.push(13);
                put_varint(out, version.0);
            }
            Self::Page { pairs, next } => {
                out.push(3);
                put_pairs(pairs, out);
                put_option(out, next.as_deref());
            }
            Self::Count(count) => {
                out.push(4);
                put_varint(out, *count);
            }
            Self::Values(values) => {
                out.push(7);
                put_values(values, out);
            }
            Self::Examined { now, found } => {
                out.push(12);
                put_varint(out, now.0);
                put_varint(out, found.len() as u64);
                for found in found {
                    put_option(out, found.value.as_deref());
                    put_number(found.expiry.map(|expiry| expiry.0), out);
                    put_varint(out, found.version.0);
                }
            }
            Self::Snapshot(id) => {
                out.push(8);
                put_number(id.map(|id| id.0), out);
            }
            Self::Done => out.push(11),
            Self::Expiry { len, at, now } => {
                out.push(if len.is_some() { 5 } else { 6 });
                put_varint(out, now.0);
                if let Some(len) = len {
                    put_number(at.map(|at| at.0), out);
                    put_varint(out, *len);
                }
            }
            Self::Failed(failure) => {
                out.push(9);
                failure.put_kind(out);
                put_string(out, failure.what().as_bytes());
            }
        }
    }

    /// Reads a response, which is all of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] where the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new("a response", bytes);
        let response = Self::read(&mut r)?;
        r.finish()?;
        Ok(response)
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match r.u8()? {
            1 => Self::Value(owned(r, VALUE_BYTES_MAX)?),
            2 => Self::Written {
                applied: flag(r)?,
                existed: (0..count(r)?).map(|_| flag(r)).collect::<Result<_, _>>()?,
                previous: read_values(r)?,
                changed: read_changed(r)?,
            },
            3 => {
                let pairs = 0..count(r)?;
                let pairs = pairs.map(|_| {
                    let key = r.string(KEY_BYTES_MAX)?.to_vec();
                    Ok((key, r.string(VALUE_BYTES_MAX)?.to_vec()))
                });
                Self::Page {
                    pairs: pairs.collect::<Result<_, Malformed>>()?,
                    next: owned(r, KEY_BYTES_MAX + 1)?,
                }
            }
            4 => Self::Count(r.varint()?),
            5 => Self::Expiry {
                now: Moment(r.varint()?),
                at: number(r)?.map(Moment),
                len: Some(r.varint()?),
            },
            6 => Self::Expiry {
                now: Moment(r.varint()?),
                at: None,
                len: None,
            },
            7 => Self::Values(read_values(r)?),
            8 => Self::Snapshot(number(r)?.map(SnapshotId)),
            9 => Self::Failed(Failure::read(r, |r| {
                let left = r.rest().len();
                r.string(left)
            })?),
            10 => Self::Versioned {
                value: owned(r, VALUE_BYTES_MAX)?,
                version: Lsn(r.varint()?),
            },
            11 => Self::Done,
            12 => {
                let now = Moment(r.varint()?);
                let found = (0..count(r)?).map(|_| {
                    Ok(Examined {
                        value: owned(r, VALUE_BYTES_MAX)?,
                        expiry: number(r)?.map(Moment),
                        version: Lsn(r.varint()?),
                    })
                });
                Self::Examined {
                    now,
                    found: found.collect::<Result<_, Malformed>>()?,
                }
            }
            13 => Self::WrittenBefore {
                version: Lsn(r.varint()?),
            },
            _ => return Err(r.malformed()),
        })
    }
}
