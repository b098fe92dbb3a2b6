//! A peer's calls, while it does not read the answers to earlier ones, or the workers have no room for one.
//!
//! They wait, in order, until it has read most of what was sent to it, so that answers take bounded
//! memory here and slow down whoever asked for them, and nobody else. They go with the open link:
//! the peer gives up what it asked for over a link that has broken.

use std::collections::VecDeque;

use argosy_wire::ring::Header;

/// From so many bytes of messages that wait for the peer to read on, its calls wait.
pub(super) const CONGESTED_BYTES: usize = 4 << 20;
/// Calls that wait, at most, and their bytes.
pub(super) const CALLS_MAX: usize = 1 << 16;
pub(super) const CALL_BYTES_MAX: usize = 16 << 20;

/// What becomes of a call that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is carried out.
    Now,
    /// It was kept.
    Later,
    /// Too much waits already.
    Refused,
}

#[derive(Default)]
pub(super) struct Deferred {
    calls: VecDeque<(Header, Vec<u8>)>,
    bytes: usize,
}

impl Deferred {
    /// How many wait, and their bytes.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.calls.len(), self.bytes)
    }

    /// Decides about a call while so many bytes of messages wait for the peer, and keeps it where it has to wait.
    pub(super) fn admit(
        &mut self,
        header: Header,
        payload: &[u8],
        backlog_bytes: usize,
    ) -> Admission {
        if self.calls.is_empty() && backlog_bytes <= CONGESTED_BYTES {
            return Admission::Now;
        }
        if self.bytes + payload.len() > CALL_BYTES_MAX || self.calls.len() >= CALLS_MAX {
            return Admission::Refused;
        }
        self.bytes += payload.len();
        self.calls.push_back((header, payload.to_vec()));
        Admission::Later
    }

    /// Keeps a call that was to be carried out, and finds no room at the workers: it is the next again.
    pub(super) fn put_back(&mut self, header: Header, payload: &[u8]) {
        self.bytes += payload.len();
        self.calls.push_front((header, payload.to_vec()));
    }

    /// Takes the call that has waited for the longest, once there is room for its answer.
    pub(super) fn next(&mut self, backlog_bytes: usize) -> Option<(Header, Vec<u8>)> {
        if backlog_bytes > CONGESTED_BYTES {
            return None;
        }
        let (header, payload) = self.calls.pop_front()?;
        self.bytes -= payload.len();
        Some((header, payload))
    }
}
