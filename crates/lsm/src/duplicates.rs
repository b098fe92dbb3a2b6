//! The duplicate table of a region: which clients' requests were applied of late, so that a request that is sent again
//! is not applied again.
//!
//! It is a function of the region's history, that is of the named groups in its logs, in the order of their LSNs, and
//! of nothing else. So every member that has the same history has the same table.
//!
//! 1. A group that carries a [`RequestName`] has that in its first record. Whoever appends or replays the group
//!    [notes](Duplicates::note) it.
//! 2. A writer [looks](Duplicates::look) before it appends, under the lock under which it appends. A request that was
//!    applied is answered by that; one that may have been applied and is forgotten is refused as *unknown*; any other
//!    one is appended.
//! 3. An edit that ends the need for log records states the table as it was behind the last of them. So the table is
//!    that of the version, and behind that what the logs say from the start of replay on.
//!
//! The table is bounded: [`CLIENTS_MAX`] clients, and [`REQUESTS_MAX`] requests of each. A client too many makes the
//! one go whose last request is the oldest; a request too many makes the client's lowest number go. What goes leaves
//! its number behind:
//!
//! - `forgotten` of a client: no number up to it is appended any more, unless the table has it as applied;
//! - `forgotten` of the table: no id of a client up to it comes into the table any more.
//!
//! **No request is applied twice.** Assume that the history has a group with the name (c, n). When it was noted, the
//! table had it. From then on either it is there, and a look says *applied*. Or it went as the lowest of its client:
//! then n is not above the client's `forgotten`, which only rises as long as the client is there. Or the client went:
//! then c is not above the table's `forgotten`, which only rises; so c never comes into the table again, and a look
//! says *forgotten*. In no case does a look say that (c, n) is new. A look and the append that follows it are under one
//! lock, so the table that is looked at is that of all of the history in front of the append. What a primary
//! acknowledged is in the history of the next one (I7), which therefore has the table that follows from it; what a cut
//! takes out of the history has been applied nowhere, and is new again.
//!
//! What is lost is exactness, never safety: a client with a lower id than one that went is taken for forgotten though
//! it never was there. Its request was surely not applied, if it was never sent before: it takes a younger id.
//!
//! ```text
//! table   := format: u8 (1)  forgotten: u64  count  client*          by rising id
//! client  := id: u64  forgotten  last  count  (behind  below)*       by rising sequence number
//! ```
//!
//! `last` is the highest LSN of the client's requests. `behind` is the distance of a sequence number to the one before,
//! of the first to `forgotten`; `below` is how far the request's LSN lies below `last`. Fixed widths are little-endian,
//! the rest are variable-length integers. The bytes are a part of an [edit](crate::edit), whose frame has the checksum.
//!
//! With 32 requests of 128 clients a table takes 72 KiB of memory, and 12 to 32 KiB in an edit; one that nobody uses
//! takes nothing.

use std::collections::VecDeque;
use std::fmt;

use argosy_base::codec::{Malformed, Reader, put_varint};
use argosy_base::{ClientId, Lsn, RequestName};

/// Most clients that a region remembers.
pub const CLIENTS_MAX: usize = 128;
/// Most requests that it remembers of each: as many may be in flight.
pub const REQUESTS_MAX: usize = 32;

/// The format that is written, and the only one that is read.
const FORMAT: u8 = 1;

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// Ids up to this one that are not there were there once, or are taken for such.
    forgotten: ClientId,
    /// By id.
    clients: Vec<Remembered>,
}

/// A client that is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remembered {
    id: ClientId,
    /// Sequence numbers up to this one that are not there were there once, or are taken for such.
    forgotten: u64,
    /// The highest LSN of its requests.
    last: Lsn,
    /// By sequence number.
    applied: VecDeque<Applied>,
}

/// A request that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Applied {
    seq: u64,
    /// The last LSN of its group.
    lsn: Lsn,
}

/// What is known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was not applied.
    New,
    /// It was applied: this is the last LSN of its group.
    Applied(Lsn),
    /// Not whether it was applied.
    Forgotten,
}

impl Duplicates {
    /// Whether nothing was ever noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// What is known of `request`.
    #[must_use]
    pub fn look(&self, request: RequestName) -> Known {
        let Ok(at) = self.place(request.client) else {
            return match request.client <= self.forgotten || request.seq == 0 {
                true => Known::Forgotten,
                false => Known::New,
            };
        };
        let client = &self.clients[at];
        match client.place(request.seq) {
            Ok(at) => Known::Applied(client.applied[at].lsn),
            Err(_) if request.seq <= client.forgotten => Known::Forgotten,
            Err(_) => Known::New,
        }
    }

    /// `request` was applied: `last` is the last LSN of its group, and the highest of the history.
    pub(crate) fn note(&mut self, request: RequestName, last: Lsn) {
        let at = match self.place(request.client) {
            Ok(at) => at,
            Err(_) => {
                self.make_room();
                let at = self.place(request.client).unwrap_or_else(|at| at);
                self.clients.insert(at, Remembered::new(request.client));
                at
            }
        };
        self.clients[at].note(request.seq, last);
    }

    /// Forgets the client whose last request is the oldest, where there are as many as there may be.
    fn make_room(&mut self) {
        if self.clients.len() < CLIENTS_MAX {
            return;
        }
        let oldest = (0..self.clients.len()).min_by_key(|at| self.clients[*at].last);
        let gone = self.clients.remove(oldest.expect("there are many"));
        self.forgotten = self.forgotten.max(gone.id);
    }

    fn place(&self, id: ClientId) -> Result<usize, usize> {
        self.clients.binary_search_by_key(&id, |client| client.id)
    }

    /// Bytes of memory, beside its own size.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let requests = self.clients.iter().map(|client| client.applied.capacity());
        self.clients.capacity() * size_of::<Remembered>()
            + requests.sum::<usize>() * size_of::<Applied>()
    }

    /// Appends the table's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        out.extend_from_slice(&self.forgotten.0.to_le_bytes());
        put_varint(out, self.clients.len() as u64);
        for client in &self.clients {
            client.encode(out);
        }
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`Malformed`] where it is none of the known format, or over its bounds.
    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if from.u8()? != FORMAT {
            return Err(from.malformed());
        }
        let forgotten = ClientId(from.u64()?);
        let count = from.length(CLIENTS_MAX)?;
        let mut clients = Vec::new();
        let mut before = ClientId(0);
        for _ in 0..count {
            let client = Remembered::read(from)?;
            if client.id <= before {
                return Err(from.malformed());
            }
            before = client.id;
            clients.push(client);
        }
        Ok(Self { forgotten, clients })
    }
}

/// How many there are: `3 clients, 17 requests`.
impl fmt::Display for Duplicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.clients.iter().map(|client| client.applied.len());
        let (clients, requests) = (self.clients.len(), requests.sum::<usize>());
        write!(f, "{clients} clients, {requests} requests")
    }
}

impl Remembered {
    const fn new(id: ClientId) -> Self {
        Self {
            id,
            forgotten: 0,
            last: Lsn(0),
            applied: VecDeque::new(),
        }
    }

    fn place(&self, seq: u64) -> Result<usize, usize> {
        self.applied
            .binary_search_by_key(&seq, |applied| applied.seq)
    }

    fn note(&mut self, seq: u64, lsn: Lsn) {
        self.last = self.last.max(lsn);
        if let Ok(at) = self.place(seq) {
            self.applied[at].lsn = lsn;
            return;
        }
        if self.applied.len() >= REQUESTS_MAX {
            let lowest = self.applied.front().map_or(0, |lowest| lowest.seq);
            self.forgotten = self.forgotten.max(lowest.min(seq));
            if seq < lowest {
                return;
            }
            self.applied.pop_front();
        }
        let at = self.place(seq).unwrap_or_else(|at| at);
        self.applied.insert(at, Applied { seq, lsn });
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.0.to_le_bytes());
        put_varint(out, self.forgotten);
        put_varint(out, self.last.0);
        put_varint(out, self.applied.len() as u64);
        let mut before = self.forgotten;
        for applied in &self.applied {
            put_varint(out, applied.seq - before);
            put_varint(out, self.last.0 - applied.lsn.0);
            before = applied.seq;
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let id = ClientId(from.u64()?);
        let forgotten = from.varint()?;
        let last = Lsn(from.varint()?);
        let mut applied = VecDeque::new();
        let mut before = forgotten;
        for _ in 0..from.length(REQUESTS_MAX)? {
            let behind = from.varint()?;
            let seq = before.checked_add(behind).filter(|_| behind > 0);
            let lsn = last.0.checked_sub(from.varint()?).map(Lsn);
            let (Some(seq), Some(lsn)) = (seq, lsn) else {
                return Err(from.malformed());
            };
            applied.push_back(Applied { seq, lsn });
            before = seq;
        }
        Ok(Self {
            id,
            forgotten,
            last,
            applied,
        })
    }
}

#[cfg(test)]
#[path = "duplicates_tests.rs"]
mod tests;
