//! Requests of clients, as servers forward them to a region's primary, and their answers.
//!
//! ```text
//! call   := 1 key                                             get
//!         | 2 when  previous: u8  change  count op*           write
//!         | 3 from to? pairs_max bytes_max how: u8  number    scan: 1 keys only, 2 from the end down
//!         | 4                                                 count
//!         | 5 key                                             expiry
//!         | 6 bytes_max?  count key*  number                  several keys; whether they are bound, where
//!                                                             no most bytes of values are said
//!         | 7 what: u8  number  millis                        snapshot: 1 open, 2 renew, 3 close
//!         | 8 key                                             get, with the version
//!         | 9 count (key value)*                              ingest
//!         | 10 what: u8                                       maintain: 1 flush, 2 compact
//! when   := 0 | 1 | 2 | 3 value | 4 lsn                       always, absent, present, equals, version
//! change := 0 | kind: u8  number                              none, or of the one operation
//! op     := 0 key | 1 key value                               delete, put
//!         | 2 key value  how: u8  number                      put until: 1 kept, 2 at, 3 after
//!         | 3 key value                                       delete all keys from key on and below
//!                                                             value, which is empty for no bound
//!         | 4 key                                             nothing, but key has to be bound
//! answer := 1 value?                                          what a key is bound to
//!         | 2 applied: u8  count u8*  count value?*  told     written: existed, previous, what a
//!                                                             change told
//!         | 3 count (key value)*  next?                       a page of a scan
//!         | 4 number                                          a count
//!         | 5 number  number?  number                         the region's time, when a key's pair
//!                                                             expires, and how long its value is
//!         | 6 number                                          the region's time, without a pair
//!         | 7 count value?*                                   what the first of several keys are bound to
//!         | 8 number?                                         a snapshot, if there is one
//!         | 9 error: u8  outcome: u8  text                    failed
//!         | 10 value?  lsn                                    what a key is bound to, and the version
//!         | 11                                                done
//! told   := 0 | 1 number: u64 | 2 value | 3 refusal: u8       none; a number, a value, why not
//! x?     := 0 | 1 x
//! ```
//!
//! The number at the end of a scan and behind several keys is the snapshot that they are read from, and 0
//! for none.
//!
//! Keys, values and texts are byte strings: a length as a variable-length integer, then bytes. What is not
//! in the grammar is refused; an addition to it is another version of the message ring.

mod answer;

use alloc::vec::Vec;
use core::time::Duration;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{BATCH_PAIRS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{Direction, Outcome};

pub use answer::Answer;

/// One operation of a forwarded write: a key, and the value it is bound to; `None` deletes.
pub type Op<'a> = (&'a [u8], Option<&'a [u8]>);

/// When a put expires: how that is meant, and a number. `(0, 0)` is never. [`ERASE`]: it is no put.
pub type WireUntil = (u8, u64);

/// What stands in the place of an expiry where all keys are deleted from the key on and below the value,
/// which is empty where there is no bound.
pub const ERASE: WireUntil = (4, 0);

/// What stands in the place of an expiry where nothing is written, but the key has to be bound for the rest to
/// be.
pub const GUARD: WireUntil = (5, 0);

/// Bits of how a scan is wanted. DO NOT CHANGE THE VALUES.
const KEYS_ONLY: u8 = 1;
const DOWN: u8 = 2;

/// When a write is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When<'a> {
    /// Always.
    Always,
    /// If its keys are not bound.
    Absent,
    /// If they are bound.
    Present,
    /// If they are bound to this.
    Equals(&'a [u8]),
    /// If they have not been written since this LSN.
    Version(u64),
}

/// What is to be done with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leasing {
    /// Open it.
    Open,
    /// Give it a new lease.
    Renew,
    /// Close it.
    Close,
}

/// A span of time as it travels, in milliseconds: rounded up, so that nothing ends before it was to.
#[must_use]
pub const fn whole_millis(span: Duration) -> u64 {
    let more = !span.subsec_nanos().is_multiple_of(1_000_000);
    let millis = span.as_secs().saturating_mul(1000);
    millis
        .saturating_add(span.subsec_millis() as u64)
        .saturating_add(more as u64)
}

/// What is to be done with a region as a whole. DO NOT CHANGE THE VALUES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WireMaintenance {
    /// Make everything durable that was written before.
    Flush = 1,
    /// Merge everything into one level.
    Compact = 2,
}

/// A change, as two numbers: what it is, and its parameter.
pub type WireChange = (u8, u64);

/// What a change told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireTold<'a> {
    /// A number.
    Number(i64),
    /// A value.
    Value(&'a [u8]),
    /// Why it was not made, as a number.
    Refused(u8),
}

/// A forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// What a key is bound to.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// What a key is bound to, and the version of that.
    GetVersion {
        /// The key.
        key: &'a [u8],
    },
    /// Write operations together.
    Write {
        /// When.
        when: When<'a>,
        /// Whether to return what the keys were bound to.
        previous: bool,
        /// The only operation is this change.
        change: Option<WireChange>,
        /// The operations.
        ops: Vec<Op<'a>>,
        /// Per operation, when it expires; empty where none does.
        until: Vec<WireUntil>,
    },
    /// When the pair of a key expires, and how long its value is.
    Expiry {
        /// The key.
        key: &'a [u8],
    },
    /// What the first of several keys are bound to.
    GetMany {
        /// The keys.
        keys: Vec<&'a [u8]>,
        /// From how many bytes of values on no more are wanted. `None`: no values are, but whether they
        /// are bound.
        bytes_max: Option<u64>,
        /// The snapshot to read from, if not 0.
        at: u64,
    },
    /// Open, renew or close a snapshot.
    Snapshot {
        /// What is to be done.
        what: Leasing,
        /// Its number.
        id: u64,
        /// How long the lease is, in milliseconds.
        millis: u64,
    },
    /// The first pairs of a range.
    Scan {
        /// The lowest key.
        from: &'a [u8],
        /// The lowest key above that is not wanted.
        to: Option<&'a [u8]>,
        /// Which pairs are the first.
        direction: Direction,
        /// Most pairs.
        pairs_max: u64,
        /// Most bytes.
        bytes_max: u64,
        /// Leave the values out.
        keys_only: bool,
        /// The snapshot to read from, if not 0.
        at: u64,
    },
    /// Take pairs, by rising keys, into the levels.
    Ingest {
        /// Keys and values.
        pairs: Vec<(&'a [u8], &'a [u8])>,
    },
    /// Look after the region as a whole.
    Maintain {
        /// What is to be done.
        what: WireMaintenance,
    },
    /// How many keys there are.
    Count,
}

/// Why a call failed; the kinds of the service's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Correct the request.
    Invalid,
    /// A member is missing.
    Unavailable,
    /// The region takes no writes for now.
    Busy,
    /// Storage failed.
    Storage,
}

/// Appends why a request failed, and what became of a write. DO NOT CHANGE THE VALUES.
pub(crate) fn put_failure(out: &mut Vec<u8>, kind: FailureKind, outcome: Outcome) {
    out.push(match kind {
        FailureKind::Invalid => 0,
        FailureKind::Unavailable => 1,
        FailureKind::Busy => 2,
        FailureKind::Storage => 3,
    });
    out.push(match outcome {
        Outcome::Applied => 0,
        Outcome::NotApplied => 1,
        Outcome::Unknown => 2,
    });
}

/// Reads the same.
pub(crate) fn failure(r: &mut Reader<'_>) -> Result<(FailureKind, Outcome), Malformed> {
    let kind = match r.u8()? {
        0 => FailureKind::Invalid,
        1 => FailureKind::Unavailable,
        2 => FailureKind::Busy,
        3 => FailureKind::Storage,
        _ => return Err(r.malformed()),
    };
    let outcome = match r.u8()? {
        0 => Outcome::Applied,
        1 => Outcome::NotApplied,
        2 => Outcome::Unknown,
        _ => return Err(r.malformed()),
    };
    Ok((kind, outcome))
}

fn put_option(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.push(0),
        Some(bytes) => {
            out.push(1);
            put_string(out, bytes);
        }
    }
}

fn option<'a>(r: &mut Reader<'a>, max: usize) -> Result<Option<&'a [u8]>, Malformed> {
    Ok(if flag(r)? { Some(r.string(max)?) } else { None })
}

fn flag(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(r.malformed()),
    }
}

/// A number of things that take at least a byte each, so that no lie can make room for more.
fn count(r: &mut Reader<'_>) -> Result<usize, Malformed> {
    let left = r.rest().len();
    r.length(left)
}

/// Appends a call about one key.
fn put_key(kind: u8, key: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_string(out, key);
}

/// Appends a call with pairs.
fn put_pairs(kind: u8, pairs: &[(&[u8], &[u8])], out: &mut Vec<u8>) {
    out.push(kind);
    put_varint(out, pairs.len() as u64);
    for (key, value) in pairs {
        put_string(out, key);
        put_string(out, value);
    }
}

/// Appends the operations of a write, the only one of which may be a change.
fn put_ops(out: &mut Vec<u8>, change: Option<WireChange>, ops: &[Op<'_>], until: &[WireUntil]) {
    let (kind, number) = change.unwrap_or_default();
    out.push(kind);
    if kind != 0 {
        put_varint(out, number);
    }
    put_varint(out, ops.len() as u64);
    for (at, (key, value)) in ops.iter().enumerate() {
        let (how, number) = until.get(at).copied().unwrap_or_default();
        let erases = value.is_some() && how == ERASE.0;
        let expires = value.is_some() && how != 0 && !erases;
        out.push(match value {
            None if how == GUARD.0 => 4,
            None => 0,
            Some(_) if erases => 3,
            Some(_) => 1 + u8::from(expires),
        });
        put_string(out, key);
        if let Some(value) = value {
            put_string(out, value);
        }
        if expires {
            out.push(how);
            put_varint(out, number);
        }
    }
}

impl<'a> Call<'a> {
    /// Appends the call.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get { key } => put_key(1, key, out),
            Self::GetVersion { key } => put_key(8, key, out),
            Self::Write {
                when,
                previous,
                change,
                ops,
                until,
            } => {
                out.push(2);
                when.encode(out);
                out.push(u8::from(*previous));
                put_ops(out, *change, ops, until);
            }
            Self::Expiry { key } => put_key(5, key, out),
            Self::Snapshot { what, id, millis } => {
                out.push(7);
                out.push(match what {
                    Leasing::Open => 1,
                    Leasing::Renew => 2,
                    Leasing::Close => 3,
                });
                put_varint(out, *id);
                put_varint(out, *millis);
            }
            Self::GetMany {
                keys,
                bytes_max,
                at,
            } => {
                out.push(6);
                out.push(u8::from(bytes_max.is_some()));
                if let Some(bytes) = bytes_max {
                    put_varint(out, *bytes);
                }
                put_varint(out, keys.len() as u64);
                keys.iter().for_each(|key| put_string(out, key));
                put_varint(out, *at);
            }
            Self::Scan {
                from,
                to,
                direction,
                pairs_max,
                bytes_max,
                keys_only,
                at,
            } => {
                out.push(3);
                put_string(out, from);
                put_option(out, *to);
                put_varint(out, *pairs_max);
                put_varint(out, *bytes_max);
                let keys_only = if *keys_only { KEYS_ONLY } else { 0 };
                out.push(match direction {
                    Direction::Up => keys_only,
                    Direction::Down => keys_only | DOWN,
                });
                put_varint(out, *at);
            }
            Self::Ingest { pairs } => put_pairs(9, pairs, out),
            Self::Maintain { what } => out.extend_from_slice(&[10, *what as u8]),
            Self::Count => out.push(4),
        }
    }

    /// Reads a call.
    ///
    /// # Errors
    /// [`Malformed`] where the bytes are none.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match r.u8()? {
            1 => Self::Get {
                key: r.string(KEY_BYTES_MAX)?,
            },
            2 => Self::write(r)?,
            3 => Self::scan(r)?,
            4 => Self::Count,
            5 => Self::Expiry {
                key: r.string(KEY_BYTES_MAX)?,
            },
            6 => {
                let bytes_max = match flag(r)? {
                    true => Some(r.varint()?),
                    false => None,
                };
                let keys = 0..count(r)?;
                let keys = keys
                    .map(|_| r.string(KEY_BYTES_MAX))
                    .collect::<Result<_, _>>()?;
                let at = r.varint()?;
                Self::GetMany {
                    keys,
                    bytes_max,
                    at,
                }
            }
            7 => Self::Snapshot {
                what: match r.u8()? {
                    1 => Leasing::Open,
                    2 => Leasing::Renew,
                    3 => Leasing::Close,
                    _ => return Err(r.malformed()),
                },
                id: r.varint()?,
                millis: r.varint()?,
            },
            8 => Self::GetVersion {
                key: r.string(KEY_BYTES_MAX)?,
            },
            9 => {
                let pairs = 0..r.length(BATCH_PAIRS_MAX)?;
                let pairs =
                    pairs.map(|_| Ok((r.string(KEY_BYTES_MAX)?, r.string(VALUE_BYTES_MAX)?)));
                let pairs = pairs.collect::<Result<_, _>>()?;
                Self::Ingest { pairs }
            }
            10 => Self::Maintain {
                what: match r.u8()? {
                    1 => WireMaintenance::Flush,
                    2 => WireMaintenance::Compact,
                    _ => return Err(r.malformed()),
                },
            },
            _ => return Err(r.malformed()),
        })
    }
}

impl<'a> When<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Always => out.push(0),
            Self::Absent => out.push(1),
            Self::Present => out.push(2),
            Self::Equals(value) => {
                out.push(3);
                put_string(out, value);
            }
            Self::Version(lsn) => {
                out.push(4);
                put_varint(out, *lsn);
            }
        }
    }

    fn decode(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match r.u8()? {
            0 => Self::Always,
            1 => Self::Absent,
            2 => Self::Present,
            3 => Self::Equals(r.string(VALUE_BYTES_MAX)?),
            4 => Self::Version(r.varint()?),
            _ => return Err(r.malformed()),
        })
    }
}

impl<'a> WireTold<'a> {
    fn encode(told: Option<&Self>, out: &mut Vec<u8>) {
        match told {
            None => out.push(0),
            Some(Self::Number(number)) => {
                out.push(1);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Some(Self::Value(value)) => {
                out.push(2);
                put_string(out, value);
            }
            Some(Self::Refused(why)) => out.extend_from_slice(&[3, *why]),
        }
    }

    fn decode(r: &mut Reader<'a>) -> Result<Option<Self>, Malformed> {
        Ok(match r.u8()? {
            0 => None,
            1 => Some(Self::Number(r.u64()?.cast_signed())),
            2 => Some(Self::Value(r.string(VALUE_BYTES_MAX)?)),
            3 => Some(Self::Refused(r.u8()?)),
            _ => return Err(r.malformed()),
        })
    }
}

impl<'a> Call<'a> {
    fn write(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let when = When::decode(r)?;
        let previous = flag(r)?;
        let change = match r.u8()? {
            0 => None,
            kind => Some((kind, r.varint()?)),
        };
        let mut until = Vec::new();
        let mut ops = Vec::new();
        for at in 0..r.length(BATCH_PAIRS_MAX)? {
            let kind = r.u8()?;
            let key = r.string(KEY_BYTES_MAX)?;
            let value = match kind {
                0 | 4 => None,
                1 | 2 => Some(r.string(VALUE_BYTES_MAX)?),
                3 => Some(r.string(KEY_BYTES_MAX + 1)?),
                _ => return Err(r.malformed()),
            };
            ops.push((key, value));
            if kind == 3 || kind == 4 {
                until.resize(at, (0, 0));
                until.push(if kind == 3 { ERASE } else { GUARD });
            }
            if kind == 2 {
                until.resize(at, (0, 0));
                match r.u8()? {
                    how @ 1..=3 => until.push((how, r.varint()?)),
                    _ => return Err(r.malformed()),
                }
            }
        }
        Ok(Self::Write {
            when,
            previous,
            change,
            ops,
            until,
        })
    }

    fn scan(r: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (from, to) = (r.string(KEY_BYTES_MAX + 1)?, option(r, KEY_BYTES_MAX + 1)?);
        let (pairs_max, bytes_max) = (r.varint()?, r.varint()?);
        let how = r.u8()?;
        if how & !(KEYS_ONLY | DOWN) != 0 {
            return Err(r.malformed());
        }
        let direction = match how & DOWN {
            0 => Direction::Up,
            _ => Direction::Down,
        };
        Ok(Self::Scan {
            from,
            to,
            direction,
            pairs_max,
            bytes_max,
            keys_only: how & KEYS_ONLY != 0,
            at: r.varint()?,
        })
    }
}
