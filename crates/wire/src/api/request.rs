//! Requests: what they are, where they go, how they travel, and how they are kept. A further one is added here, and
//! where it is carried out.
//!
//! ```text
//! request  := 1 key                                             get
//!           | 2 when  previous: u8  change  count op*           write
//!           | 3 from to? pairs_max bytes_max how: u8  number    scan: 1 keys only, 2 from the end down
//!           | 4                                                 count
//!           | 5 key                                             expiry
//!           | 6 bytes_max?  count key*  number                  several keys; whether they are bound, where
//!                                                               no most bytes of values are said
//!           | 7 what: u8  number  millis                        snapshot: 1 open, 2 renew, 3 close
//!           | 8 key                                             get, with the version
//!           | 9 count (key value)*                              ingest
//!           | 10 what: u8                                       maintain: 1 flush, 2 compact
//!           | 11 bytes_max?  count key*  0                      examine several keys, as 6
//! when     := 0 | 1 | 2 | 3 value | 4 lsn                       always, absent, present, equals, version
//! change   := 0 | kind: u8  number                              none, or of the one operation, a put
//! op       := 0 key | 1 key value                               delete, put
//!           | 2 key value  how: u8  number                      put until: 1 kept, 2 at, 3 after
//!           | 3 key value                                       delete all keys from key on and below
//!                                                               value, which is empty for no bound
//!           | 4 key                                             nothing, but key has to be bound
//!           | 5 key  bound: u8  lsn                             nothing, but key has to be bound or not, and
//!                                                               not to have been written since it had this version
//!           | 7 key  version: u128  change: i64                 nothing, but key has to be bound to the head of a
//!                                                               composite of this version, whose number changes
//!           | 6 client: u64  number                             nothing, but the batch is this request of this
//!                                                               client, and is written once
//! ```
//!
//! The number at the end of a scan and behind several keys is the snapshot that they are read from, and 0
//! for none. What is not explained here is explained in [`super`].

use alloc::vec::Vec;
use core::time::Duration;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{BATCH_PAIRS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::{BatchError, Direction, KeyList, KeyRange, Wanted, WriteBatch, WriteOptions};

use super::{
    Lease, Maintenance, Paging, Scratch, SnapshotId, count, flag, option, put_option, write,
};

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
    /// What several keys of one region are bound to, with their versions and expiries: of the first of them, at least
    /// of one, as [`GetMany`](Self::GetMany). Where they lie in several regions it is refused.
    Examine {
        /// The keys, at least one; the service checks their lengths.
        keys: &'a KeyList,
        /// How much of it.
        wanted: Wanted,
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

/// A request without what it borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// [`Request::Get`] of the key.
    Get,
    /// [`Request::GetVersion`] of the key.
    GetVersion,
    /// [`Request::Expiry`] of the key.
    Expiry,
    /// [`Request::GetMany`] of the keys, now or in a snapshot.
    GetMany(Wanted, Option<SnapshotId>),
    /// [`Request::Examine`] of the keys.
    Examine(Wanted),
    /// [`Request::Snapshot`]: open one, or renew or close this one.
    Snapshot(Option<SnapshotId>, Lease),
    /// [`Request::Write`] of the batch.
    Write(WriteOptions),
    /// [`Request::Ingest`] of the batch.
    Ingest,
    /// [`Request::Scan`] of the range.
    Scan(Paging),
    /// [`Request::Count`].
    Count,
    /// [`Request::Maintain`].
    Maintain(Maintenance),
}

/// Whom a request is for, and so which way it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// It changes nothing, and is about what this key is bound to: the region of the key.
    Key(&'a [u8]),
    /// It changes nothing, and is about what these are bound to: their regions, each for its own.
    Keys {
        /// The keys.
        keys: &'a KeyList,
        /// How much is wanted.
        wanted: Wanted,
        /// As of which snapshot; `None`: now.
        at: Option<SnapshotId>,
    },
    /// It changes nothing, and is about what these are bound to: the one region of all of them.
    Together {
        /// The keys.
        keys: &'a KeyList,
        /// How much is wanted.
        wanted: Wanted,
    },
    /// It writes: the regions of the keys of the batch.
    Batch {
        /// What is written.
        batch: &'a WriteBatch,
        /// How; `None`: it is bulk-loaded.
        options: Option<WriteOptions>,
    },
    /// It reads the regions of the range, one behind the other.
    Range {
        /// The range.
        range: &'a KeyRange,
        /// How a page of it is to be.
        paging: Paging,
    },
    /// All regions, each for itself.
    Regions,
    /// All regions, under one number.
    Leases {
        /// That of the snapshot; `None` where the service chooses it.
        id: Option<SnapshotId>,
        /// What is to become of it.
        lease: Lease,
    },
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
    /// refused, ranges end where users' keys do, it sets no guards, and examines nothing.
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
    /// Whom it is for.
    #[must_use]
    pub const fn target(&self) -> Target<'a> {
        match *self {
            Self::Get { key } | Self::GetVersion { key } | Self::Expiry { key } => Target::Key(key),
            Self::GetMany { keys, wanted, at } => Target::Keys { keys, wanted, at },
            Self::Examine { keys, wanted } => Target::Together { keys, wanted },
            Self::Write { batch, options } => {
                let options = Some(options);
                Target::Batch { batch, options }
            }
            Self::Ingest { batch } => {
                let options = None;
                Target::Batch { batch, options }
            }
            Self::Scan { range, paging } => Target::Range { range, paging },
            Self::Count | Self::Maintain { .. } => Target::Regions,
            Self::Snapshot { id, lease } => Target::Leases { id, lease },
        }
    }

    /// Whether it changes nothing, and reads keys that it names.
    #[must_use]
    pub const fn reads_keys(&self) -> bool {
        matches!(
            self.target(),
            Target::Key(_) | Target::Keys { .. } | Target::Together { .. }
        )
    }

    /// Whether it may change what keys are bound to.
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(self.target(), Target::Batch { .. })
    }

    /// Appends the request. What a batch says of guards but that a key is bound stays behind.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Get { key } => put_key(1, key, out),
            Self::GetVersion { key } => put_key(8, key, out),
            Self::Expiry { key } => put_key(5, key, out),
            Self::GetMany { keys, wanted, at } => {
                out.push(6);
                put_wanted(wanted, out);
                put_keys(keys.iter(), at, out);
            }
            Self::Examine { keys, wanted } => {
                out.push(11);
                put_wanted(wanted, out);
                put_keys(keys.iter(), None, out);
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
                let wanted = read_wanted(&mut r)?;
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
            11 if sender == Sender::Server => {
                let wanted = read_wanted(&mut r)?;
                let keys_max = count(&mut r.clone())?;
                if read_keys(&mut r, keys_max, &mut scratch.keys)?.is_some() {
                    return Err(r.malformed().into());
                }
                let keys = &scratch.keys;
                Self::Examine { keys, wanted }
            }
            _ => return Err(r.malformed().into()),
        };
        r.finish()?;
        Ok(request)
    }
}

impl Scratch {
    /// Copies what `request` borrows. Returns the rest of it.
    pub fn keep(&mut self, request: Request<'_>) -> Plan {
        match request {
            Request::Get { key } => {
                self.set_key(key);
                Plan::Get
            }
            Request::GetVersion { key } => {
                self.set_key(key);
                Plan::GetVersion
            }
            Request::Expiry { key } => {
                self.set_key(key);
                Plan::Expiry
            }
            Request::GetMany { keys, wanted, at } => {
                self.keys.clone_from(keys);
                Plan::GetMany(wanted, at)
            }
            Request::Examine { keys, wanted } => {
                self.keys.clone_from(keys);
                Plan::Examine(wanted)
            }
            Request::Snapshot { id, lease } => Plan::Snapshot(id, lease),
            Request::Write { batch, options } => {
                self.batch.clone_from(batch);
                Plan::Write(options)
            }
            Request::Ingest { batch } => {
                self.batch.clone_from(batch);
                Plan::Ingest
            }
            Request::Scan { range, paging } => {
                self.range.clone_from(range);
                Plan::Scan(paging)
            }
            Request::Count => Plan::Count,
            Request::Maintain { what } => Plan::Maintain(what),
        }
    }

    /// The request that `plan` makes of it.
    #[inline]
    #[must_use]
    pub fn request(&self, plan: Plan) -> Request<'_> {
        let Self {
            key,
            batch,
            range,
            keys,
        } = self;
        match plan {
            Plan::Get => Request::Get { key },
            Plan::GetVersion => Request::GetVersion { key },
            Plan::Expiry => Request::Expiry { key },
            Plan::GetMany(wanted, at) => Request::GetMany { keys, wanted, at },
            Plan::Examine(wanted) => Request::Examine { keys, wanted },
            Plan::Snapshot(id, lease) => Request::Snapshot { id, lease },
            Plan::Write(options) => Request::Write { batch, options },
            Plan::Ingest => Request::Ingest { batch },
            Plan::Scan(paging) => Request::Scan { range, paging },
            Plan::Count => Request::Count,
            Plan::Maintain(what) => Request::Maintain { what },
        }
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

fn put_wanted(wanted: Wanted, out: &mut Vec<u8>) {
    match wanted {
        Wanted::Presence => out.push(0),
        Wanted::Values(bytes_max) => {
            out.push(1);
            put_varint(out, bytes_max as u64);
        }
    }
}

fn read_wanted(r: &mut Reader<'_>) -> Result<Wanted, Malformed> {
    Ok(match flag(r)? {
        true => Wanted::Values(saturated(r.varint()?)),
        false => Wanted::Presence,
    })
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
