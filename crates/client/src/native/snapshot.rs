//! Snapshots: views of everything as it was, for reads that belong together.

use std::fmt;
use std::time::Duration;

use argosy_wire::api::{Lease, Request, Response, SnapshotId};
use argosy_wire::native::{Flags, Op};

use super::change::read;
use super::client::{BRIEF, Client, odd};
use super::run::Sending;
use crate::error::ClientError;
use crate::kv::{Page, Span};

/// A view of all keys as they were: of each region at one moment, of all of them between the call that opened it
/// and its answer. It has what was answered before that call, and nothing that was asked for after the answer.
///
/// It ends when it is dropped or closed, when its client's connections do, and at the latest with its lease,
/// however much it is read. Servers keep a bounded number, for each region, and end the oldest while they keep
/// too much memory. What it would show is then refused: nothing is ever read from another moment instead.
///
/// ```no_run
/// use std::time::Duration;
///
/// use argosy_client::{Client, Span};
///
/// let client = Client::connect("127.0.0.1:7379")?;
/// let snapshot = client.snapshot(Duration::from_secs(60))?;
/// client.put(b"ship/argo", b"sunk")?;
/// println!("{:?}", snapshot.get(b"ship/argo")?);
/// println!("{:?}", snapshot.page(&Span::prefix(b"ship/"), 100)?.pairs);
/// # Ok::<(), argosy_client::ClientError>(())
/// ```
pub struct Snapshot {
    client: Client,
    id: SnapshotId,
    open: bool,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.id)
    }
}

impl Snapshot {
    /// See [`Client::snapshot`].
    pub(super) fn open(client: Client, lease: Duration) -> Result<Self, ClientError> {
        let id = ask_for(&client, None, Lease::Open(lease))?;
        let id = id.ok_or_else(|| odd("a snapshot was not opened, and no reason given"))?;
        Ok(Self {
            client,
            id,
            open: true,
        })
    }

    /// What `key` was bound to.
    ///
    /// # Errors
    /// As [`Client::get`]; [`ClientError::Invalid`] where the snapshot has ended in the key's region. So for
    /// all methods.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        let value = self.multi_get(&[key])?;
        Ok(value.into_iter().next().flatten())
    }

    /// What each of `keys` was bound to.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        self.client.multi_get_at(keys, Some(self.id))
    }

    /// The next pairs of `span`; see [`Kv::page`](crate::Kv::page). All pages show the same.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn page(&self, span: &Span, pairs_max: usize) -> Result<Page, ClientError> {
        self.client.page_at(span, pairs_max, Some(self.id))
    }

    /// Has it stay open for so long from now on. Returns whether it was open, in every region.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn renew(&self, lease: Duration) -> Result<bool, ClientError> {
        let renewed = ask_for(&self.client, Some(self.id), Lease::Renew(lease))?;
        Ok(renewed.is_some())
    }

    /// Ends it. Returns whether it was open, in every region.
    ///
    /// # Errors
    /// As [`Client::get`]; then it ends with its lease.
    pub fn close(mut self) -> Result<bool, ClientError> {
        self.open = false;
        let closed = ask_for(&self.client, Some(self.id), Lease::Close)?;
        Ok(closed.is_some())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let body = body_of(Some(self.id), Lease::Close);
        let parts: [&[u8]; 1] = [&body];
        let sending = sending_of(&parts, Lease::Close);
        // Nobody waits for the answer, nor for room: where it is not sent, the lease ends by itself.
        let _ = self.client.caller.send(&sending, self.client.caller.now());
        self.client.flush();
    }
}

/// Asks for snapshot `id`, or for a new one.
fn ask_for(
    client: &Client,
    id: Option<SnapshotId>,
    lease: Lease,
) -> Result<Option<SnapshotId>, ClientError> {
    let body = body_of(id, lease);
    let parts: [&[u8]; 1] = [&body];
    let mut sending = sending_of(&parts, lease);
    let caller = &client.caller;
    let mut payload = Vec::new();
    caller.run(&mut sending, caller.deadline_from_now(), &mut payload)?;
    match read(&payload)? {
        Response::Snapshot(id) => Ok(id),
        other => Err(odd(&format!("a snapshot was answered by {other:?}"))),
    }
}

fn body_of(id: Option<SnapshotId>, lease: Lease) -> Vec<u8> {
    let mut body = Vec::new();
    Request::Snapshot { id, lease }.encode(&mut body);
    body
}

/// A request about a snapshot of all regions: any server will do.
fn sending_of<'a>(parts: &'a [&'a [u8]], lease: Lease) -> Sending<'a> {
    Sending {
        op: Op::Snapshot,
        flags: Flags::default().with(Flags::OPEN, matches!(lease, Lease::Open(_))),
        key: b"",
        parts,
        reply_bytes: BRIEF,
    }
}
