//! Requests that are built piece by piece, or kept: what a request borrows lies in a [`Scratch`], and a [`Plan`] is
//! the rest of it.

use alloc::vec::Vec;

use argosy_base::{KeyList, KeyRange, Wanted, WriteBatch, WriteOptions};

use super::{Lease, Maintenance, Paging, Request, SnapshotId};

/// Memory for the keys, the batch or the range of one request at a time.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Of a request about one key.
    pub key: Vec<u8>,
    /// Of a write or an ingest.
    pub batch: WriteBatch,
    /// Of a scan.
    pub range: KeyRange,
    /// Of a request about several keys.
    pub keys: KeyList,
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

impl Scratch {
    /// Replaces the key.
    pub fn set_key(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
    }

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
            Plan::Snapshot(id, lease) => Request::Snapshot { id, lease },
            Plan::Write(options) => Request::Write { batch, options },
            Plan::Ingest => Request::Ingest { batch },
            Plan::Scan(paging) => Request::Scan { range, paging },
            Plan::Count => Request::Count,
            Plan::Maintain(what) => Request::Maintain { what },
        }
    }
}
