//! A request that borrows nothing: what waits for a worker.

use argosy_base::KeyRange;
use argosy_engine::{Wanted, WriteBatch, WriteOptions};

use crate::service::{KeyList, Lease, Maintenance, Paging, Request, SnapshotId};

/// A [`Request`] with its keys, batch or range.
#[derive(Clone, Debug)]
pub(crate) enum OwnedRequest {
    Get {
        key: Vec<u8>,
    },
    GetVersion {
        key: Vec<u8>,
    },
    GetMany {
        keys: KeyList,
        wanted: Wanted,
        at: Option<SnapshotId>,
    },
    Snapshot {
        id: Option<SnapshotId>,
        lease: Lease,
    },
    Expiry {
        key: Vec<u8>,
    },
    Write {
        batch: WriteBatch,
        options: WriteOptions,
    },
    Ingest {
        batch: WriteBatch,
    },
    Scan {
        range: KeyRange,
        paging: Paging,
    },
    Count,
    Maintain {
        what: Maintenance,
    },
}

impl From<Request<'_>> for OwnedRequest {
    fn from(request: Request<'_>) -> Self {
        match request {
            Request::Get { key } => Self::Get { key: key.to_vec() },
            Request::GetVersion { key } => Self::GetVersion { key: key.to_vec() },
            Request::GetMany { keys, wanted, at } => Self::GetMany {
                keys: keys.clone(),
                wanted,
                at,
            },
            Request::Snapshot { id, lease } => Self::Snapshot { id, lease },
            Request::Expiry { key } => Self::Expiry { key: key.to_vec() },
            Request::Write { batch, options } => Self::Write {
                batch: batch.clone(),
                options,
            },
            Request::Ingest { batch } => Self::Ingest {
                batch: batch.clone(),
            },
            Request::Scan { range, paging } => Self::Scan {
                range: range.clone(),
                paging,
            },
            Request::Count => Self::Count,
            Request::Maintain { what } => Self::Maintain { what },
        }
    }
}

impl OwnedRequest {
    /// The request.
    pub(crate) fn request(&self) -> Request<'_> {
        match self {
            Self::Get { key } => Request::Get { key },
            Self::GetVersion { key } => Request::GetVersion { key },
            Self::GetMany { keys, wanted, at } => Request::GetMany {
                keys,
                wanted: *wanted,
                at: *at,
            },
            Self::Snapshot { id, lease } => Request::Snapshot {
                id: *id,
                lease: *lease,
            },
            Self::Expiry { key } => Request::Expiry { key },
            Self::Write { batch, options } => Request::Write {
                batch,
                options: *options,
            },
            Self::Ingest { batch } => Request::Ingest { batch },
            Self::Scan { range, paging } => Request::Scan {
                range,
                paging: *paging,
            },
            Self::Count => Request::Count,
            Self::Maintain { what } => Request::Maintain { what: *what },
        }
    }

    /// Bytes of keys and values that it holds, and what a batch takes beside, at `op_bytes` an operation.
    pub(crate) fn bytes(&self, op_bytes: usize) -> usize {
        match self {
            Self::Get { key } | Self::GetVersion { key } | Self::Expiry { key } => key.len(),
            Self::GetMany { keys, .. } => keys.bytes(),
            Self::Write { batch, .. } | Self::Ingest { batch } => {
                batch.bytes() + batch.len() * op_bytes
            }
            Self::Scan { range, .. } => range.from.len() + range.to.as_ref().map_or(0, Vec::len),
            Self::Snapshot { .. } | Self::Count | Self::Maintain { .. } => 0,
        }
    }
}
