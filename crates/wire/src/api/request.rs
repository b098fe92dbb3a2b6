//! Requests. The grammar is that of [`super`].

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{BATCH_PAIRS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{BatchError, Direction, KeyList, KeyRange, Wanted, WriteBatch, WriteOptions};

use super::{Scratch, count, flag, option, put_option, write};

/// One request. Borrows from the caller, so that an answer at once copies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// What `key` is bound to.
    Get {
        /// The key; the service checks its length.
        key: &'a [u8],
    },
    /// What `key` is bound to, and the version of that.
    GetVersion {
        /// The key; the service checks its length.
        key: &'a [u8],
    },
    /// What several keys are bound to: of the first of them, at least of one. Those of one region are
    /// looked up together, as of one moment.
    GetMany {
        /// The keys, at least one; the service checks their lengths.
        keys: &'a KeyList,
        /// How much of it.
        wanted: Wanted,
        /// As of which snapshot; `None`: now.
        at: Option<SnapshotId>,
    },
    /// Open a snapshot of all regions, under a number of the service's choice, or renew or close one.
    Snapshot {
        /// Which; `None` to open one.
        id: Option<SnapshotId>,
        /// What is to become of it.
        lease: Lease,
    },
    /// When what `key` is bound to expires, and how long it is. The value is not read where it lies apart.
    Expiry {
        /// The key; the service checks its length.
        key: &'a [u8],
    },
    /// Write a batch. Atomic within each region that its keys lie in, not across regions.
    Write {
        /// What to write.
        batch: &'a WriteBatch,
        /// When, and what to report. A condition is evaluated in each region for itself.
        options: WriteOptions,
    },
    /// Take pairs, by rising keys, straight into the levels: no log, no memtable. In each region that they lie
    /// in all of them or none, and only where no key from the first to the last of them is bound. Answered
    /// once every member has them, by [`Response::Written`](super::Response::Written).
    Ingest {
        /// Puts that do not expire.
        batch: &'a WriteBatch,
    },
    /// The first pairs of a range, over all regions.
    Scan {
        /// The range.
        range: &'a KeyRange,
        /// How much of it, and from which end.
        paging: Paging,
    },
    /// How many keys there are, as an estimate.
    Count,
    /// Look after every region as a whole, wherever its primary is. Answered by
    /// [`Response::Done`](super::Response::Done); where that takes longer than the service's deadline, by an error, and
    /// what was begun goes on.
    Maintain {
        /// What is to be done.
        what: Maintenance,
    },
}

/// What is to be done with regions as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Make everything that was written before durable on every member.
    Flush,
    /// Merge everything into one level, on every member, and drop what is overwritten or deleted.
    Compact,
}

/// How a page of a range is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    /// From which end of the range.
    pub direction: Direction,
    /// Most pairs to return.
    pub pairs_max: usize,
    /// Stop behind the pair that brings keys and values to this many bytes.
    pub bytes_max: usize,
    /// Leave the values out: they are returned empty.
    pub keys_only: bool,
    /// As of which snapshot; `None`: now.
    pub at: Option<SnapshotId>,
}

/// The number of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId(pub u64);

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl SnapshotId {
    /// The snapshot that is displayed as `text`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok()?;
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok();
        number.filter(|_| digits).map(Self)
    }
}

/// What is to become of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It is opened, for so long.
    Open(Duration),
    /// It stays open for so long from now on.
    Renew(Duration),
    /// It ends.
    Close,
}

impl Lease {
    /// The longest lease.
    pub const LONGEST: Duration = Duration::from_secs(3600);
}

/// Bits of how a scan is wanted. DO NOT CHANGE THE VALUES.
const KEYS_ONLY: u8 = 1;
const DOWN: u8 = 2;

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A server, which has checked it.
    Server,
    /// A client. It writes users' keys only: writes of others, and values that look like heads of long ones, are
    /// refused, ranges end where users' keys do, and it sets no guards.
    Client,
}

/// Why bytes are not carried out as a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// They are no request.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// They are one of a batch over a limit.
    #[error(transparent)]
    Limit(#[from] BatchError),
}

impl<'a> Request<'a> {
    /// Whether it changes nothing, and reads keys that it names.
    #[must_use]
    pub const fn reads_keys(&self) -> bool {
        matches!(
            self,
            Self::Get { .. } | Self::GetVersion { .. } | Self::GetMany { .. } | Self::Expiry { .. }
        )
    }

    /// Whether it may change what keys are bound to.
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Ingest { .. })
    }

    /// Appends the request. What a batch says of guards but that a key is bound stays behind.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Get { key } => put_key(1, key, out),
            Self::GetVersion { key } => put_key(8, key, out),
            Self::Expiry { key } => put_key(5, key, out),
            Self::GetMany { keys, wanted, at } => {
                out.push(6);
                match wanted {
                    Wanted::Presence => out.push(0),
                    Wanted::Values(bytes_max) => {
                        out.push(1);
                        put_varint(out, bytes_max as u64);
                    }
                }
                put_keys(keys.iter(), at, out);
            }
            Self::Snapshot { id, lease } => {
                let (what, span) = match lease {
                    Lease::Open(span) => (1, span),
                    Lease::Renew(span) => (2, span),
                    Lease::Close => (3, Duration::ZERO),
                };
                out.extend_from_slice(&[7, what]);
                put_snapshot(id, out);
                put_varint(out, whole_millis(span));
            }
            Self::Write { batch, options } => {
                out.push(2);
                write::put(batch, options, out);
            }
            Self::Ingest { batch } => {
                out.push(9);
                put_varint(out, batch.puts().count() as u64);
                for (key, value) in batch.puts() {
                    put_string(out, key);
                    put_string(out, value);
                }
            }
            Self::Scan { range, paging } => {
                out.push(3);
                put_string(out, &range.from);
                put_option(out, range.to.as_deref());
                put_varint(out, paging.pairs_max as u64);
                put_varint(out, paging.bytes_max as u64);
                let keys_only = if paging.keys_only { KEYS_ONLY } else { 0 };
                out.push(match paging.direction {
                    Direction::Up => keys_only,
                    Direction::Down => keys_only | DOWN,
                });
                put_snapshot(paging.at, out);
            }
            Self::Count => out.push(4),
            Self::Maintain { what } => out.extend_from_slice(&[
                10,
                match what {
                    Maintenance::Flush => 1,
                    Maintenance::Compact => 2,
                },
            ]),
        }
    }

    /// Reads a request of `sender`, which is all of `bytes`. A batch, a range or keys are put into `scratch`.
    ///
    /// # Errors
    /// [`BadRequest`], where `sender` may not send such a one, too.
    pub fn decode(
        bytes: &'a [u8],
        sender: Sender,
        scratch: &'a mut Scratch,
    ) -> Result<Self, BadRequest> {
        let mut r = Reader::new("a request", bytes);
        let request = match r.u8()? {
            1 => Self::Get { key: key(&mut r)? },
            2 => Self::Write {
                options: write::read(&mut r, sender, &mut scratch.batch)?,
                batch: &scratch.batch,
            },
            3 => Self::Scan {
                paging: read_scan(&mut r, &mut scratch.range)?,
                range: &scratch.range,
            },
            4 => Self::Count,
            5 => Self::Expiry { key: key(&mut r)? },
            6 => {
                let wanted = match flag(&mut r)? {
                    true => Wanted::Values(saturated(r.varint()?)),
                    false => Wanted::Presence,
                };
                let keys_max = count(&mut r.clone())?;
                let at = read_keys(&mut r, keys_max, &mut scratch.keys)?;
                let keys = &scratch.keys;
                Self::GetMany { keys, wanted, at }
            }
            7 => read_lease(&mut r)?,
            8 => Self::GetVersion { key: key(&mut r)? },
            9 => {
                scratch.batch.clear();
                for _ in 0..r.length(BATCH_PAIRS_MAX)? {
                    let key = r.string(KEY_BYTES_MAX)?;
                    scratch.batch.put(key, r.string(VALUE_BYTES_MAX)?)?;
                }
                let batch = &scratch.batch;
                Self::Ingest { batch }
            }
            10 => Self::Maintain {
                what: match r.u8()? {
                    1 => Maintenance::Flush,
                    2 => Maintenance::Compact,
                    _ => return Err(r.malformed().into()),
                },
            },
            _ => return Err(r.malformed().into()),
        };
        r.finish()?;
        Ok(request)
    }
}

/// A span of time as it travels, in milliseconds: rounded up, so that nothing ends before it was to.
const fn whole_millis(span: Duration) -> u64 {
    let more = !span.subsec_nanos().is_multiple_of(1_000_000);
    let millis = span.as_secs().saturating_mul(1000);
    millis
        .saturating_add(span.subsec_millis() as u64)
        .saturating_add(more as u64)
}

fn saturated(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Appends a request about one key.
fn put_key(kind: u8, key: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_string(out, key);
}

fn key<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    r.string(KEY_BYTES_MAX)
}

fn put_snapshot(id: Option<SnapshotId>, out: &mut Vec<u8>) {
    put_varint(out, id.map_or(0, |id| id.0));
}

/// The snapshot that travels as `number`: 0 is none.
pub(crate) fn snapshot_of(number: u64) -> Option<SnapshotId> {
    (number != 0).then_some(SnapshotId(number))
}

/// Appends keys, and the snapshot that they are read from.
pub(crate) fn put_keys<'k>(
    keys: impl ExactSizeIterator<Item = &'k [u8]>,
    at: Option<SnapshotId>,
    out: &mut Vec<u8>,
) {
    put_varint(out, keys.len() as u64);
    for key in keys {
        put_string(out, key);
    }
    put_snapshot(at, out);
}

/// Reads the same, of at most `keys_max` keys, into `keys`.
pub(crate) fn read_keys(
    r: &mut Reader<'_>,
    keys_max: usize,
    keys: &mut KeyList,
) -> Result<Option<SnapshotId>, Malformed> {
    keys.clear();
    for _ in 0..r.length(keys_max)? {
        keys.push(key(r)?);
    }
    Ok(snapshot_of(r.varint()?))
}

fn read_scan(r: &mut Reader<'_>, range: &mut KeyRange) -> Result<Paging, Malformed> {
    let from = r.string(KEY_BYTES_MAX + 1)?;
    *range = KeyRange::new(from, option(r, KEY_BYTES_MAX + 1)?.map(<[u8]>::to_vec));
    let (pairs_max, bytes_max) = (saturated(r.varint()?), saturated(r.varint()?));
    let how = r.u8()?;
    if how & !(KEYS_ONLY | DOWN) != 0 {
        return Err(r.malformed());
    }
    Ok(Paging {
        direction: match how & DOWN {
            0 => Direction::Up,
            _ => Direction::Down,
        },
        pairs_max,
        bytes_max,
        keys_only: how & KEYS_ONLY != 0,
        at: snapshot_of(r.varint()?),
    })
}

fn read_lease(r: &mut Reader<'_>) -> Result<Request<'static>, Malformed> {
    let what = r.u8()?;
    let id = snapshot_of(r.varint()?);
    let span = Duration::from_millis(r.varint()?).min(Lease::LONGEST);
    let lease = match what {
        1 => Lease::Open(span),
        2 => Lease::Renew(span),
        3 => Lease::Close,
        _ => return Err(r.malformed()),
    };
    Ok(Request::Snapshot { id, lease })
}
