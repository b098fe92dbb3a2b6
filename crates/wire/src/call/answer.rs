//! Answers to calls. The grammar is that of [`super`].

use alloc::vec::Vec;

use argosy_base::Outcome;
use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use super::{FailureKind, WireTold, count, failure, flag, option, put_failure, put_option};

/// The answer to a [`Call`](super::Call).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// What the key is bound to.
    Value(Option<&'a [u8]>),
    /// What the key is bound to, and the version of that.
    Versioned {
        /// The value.
        value: Option<&'a [u8]>,
        /// No write of the key has a higher LSN.
        version: u64,
    },
    /// A write's end.
    Written {
        /// Whether it was written.
        applied: bool,
        /// Per operation, whether the key was bound.
        existed: Vec<bool>,
        /// Per operation, what the key was bound to.
        previous: Vec<Option<&'a [u8]>>,
        /// What a change told.
        told: Option<WireTold<'a>>,
    },
    /// Pairs of a range.
    Page {
        /// The pairs.
        pairs: Vec<(&'a [u8], &'a [u8])>,
        /// Where to go on: upwards the keys from this one on are left, downwards those below it.
        next: Option<&'a [u8]>,
    },
    /// How many keys.
    Count(u64),
    /// What the first of the keys are bound to.
    Values(Vec<Option<&'a [u8]>>),
    /// A snapshot, if it is open.
    Snapshot(Option<u64>),
    /// When a pair expires.
    Expiry {
        /// Bytes of its value, if there is one.
        len: Option<u64>,
        /// When it expires, if ever.
        at: Option<u64>,
        /// The region's time.
        now: u64,
    },
    /// What was asked for is done, and there is nothing to tell of it.
    Done,
    /// The call failed.
    Failed {
        /// Why.
        kind: FailureKind,
        /// Whether a write was applied.
        outcome: Outcome,
        /// In words.
        text: &'a [u8],
    },
}

/// Appends what is known of a pair without its value: its length and when it expires, if there is one.
fn put_expiry(len: Option<u64>, at: Option<u64>, now: u64, out: &mut Vec<u8>) {
    out.push(if len.is_some() { 5 } else { 6 });
    put_varint(out, now);
    if let Some(len) = len {
        out.push(u8::from(at.is_some()));
        if let Some(at) = at {
            put_varint(out, at);
        }
        put_varint(out, len);
    }
}

impl<'a> Answer<'a> {
    /// Appends the answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Value(value) => {
                out.push(1);
                put_option(out, *value);
            }
            Self::Versioned { value, version } => {
                out.push(10);
                put_option(out, *value);
                put_varint(out, *version);
            }
            Self::Written {
                applied,
                existed,
                previous,
                told,
            } => {
                out.extend_from_slice(&[2, u8::from(*applied)]);
                put_varint(out, existed.len() as u64);
                out.extend(existed.iter().map(|existed| u8::from(*existed)));
                put_varint(out, previous.len() as u64);
                for value in previous {
                    put_option(out, *value);
                }
                WireTold::encode(told.as_ref(), out);
            }
            Self::Page { pairs, next } => {
                out.push(3);
                put_varint(out, pairs.len() as u64);
                for (key, value) in pairs {
                    put_string(out, key);
                    put_string(out, value);
                }
                put_option(out, *next);
            }
            Self::Count(count) => {
                out.push(4);
                put_varint(out, *count);
            }
            Self::Values(values) => {
                out.push(7);
                put_varint(out, values.len() as u64);
                for value in values {
                    put_option(out, *value);
                }
            }
            Self::Snapshot(id) => {
                out.extend_from_slice(&[8, u8::from(id.is_some())]);
                if let Some(id) = id {
                    put_varint(out, *id);
                }
            }
            Self::Done => out.push(11),
            Self::Expiry { len, at, now } => put_expiry(*len, *at, *now, out),
            Self::Failed {
                kind,
                outcome,
                text,
            } => {
                out.push(9);
                put_failure(out, *kind, *outcome);
                put_string(out, text);
            }
        }
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`Malformed`] where the bytes are none.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match r.u8()? {
            1 => Self::Value(option(r, VALUE_BYTES_MAX)?),
            2 => {
                let applied = flag(r)?;
                let existed = (0..count(r)?).map(|_| flag(r)).collect::<Result<_, _>>()?;
                let previous = (0..count(r)?)
                    .map(|_| option(r, VALUE_BYTES_MAX))
                    .collect::<Result<_, _>>()?;
                Self::Written {
                    applied,
                    existed,
                    previous,
                    told: WireTold::decode(r)?,
                }
            }
            3 => {
                let pairs = (0..count(r)?)
                    .map(|_| Ok((r.string(KEY_BYTES_MAX)?, r.string(VALUE_BYTES_MAX)?)))
                    .collect::<Result<_, Malformed>>()?;
                Self::Page {
                    pairs,
                    next: option(r, KEY_BYTES_MAX + 1)?,
                }
            }
            4 => Self::Count(r.varint()?),
            5 => Self::Expiry {
                now: r.varint()?,
                at: match flag(r)? {
                    true => Some(r.varint()?),
                    false => None,
                },
                len: Some(r.varint()?),
            },
            6 => Self::Expiry {
                now: r.varint()?,
                at: None,
                len: None,
            },
            7 => {
                let values = 0..count(r)?;
                let values = values.map(|_| option(r, VALUE_BYTES_MAX));
                Self::Values(values.collect::<Result<_, _>>()?)
            }
            8 => Self::Snapshot(match flag(r)? {
                true => Some(r.varint()?),
                false => None,
            }),
            9 => {
                let (kind, outcome) = failure(r)?;
                let left = r.rest().len();
                Self::Failed {
                    kind,
                    outcome,
                    text: r.string(left)?,
                }
            }
            10 => Self::Versioned {
                value: option(r, VALUE_BYTES_MAX)?,
                version: r.varint()?,
            },
            11 => Self::Done,
            _ => return Err(r.malformed()),
        })
    }
}
