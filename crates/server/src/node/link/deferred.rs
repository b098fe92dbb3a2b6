//! A peer's calls, while it does not read the answers to earlier ones.
//!
//! They wait, in order, until it has read most of what was sent to it, so that answers take bounded
//! memory here and slow down whoever asked for them, and nobody else. They go with the open link:
//! the peer gives up what it asked for over a link that has broken.

use std::collections::VecDeque;

use argosy_wire::ring::Header;

use super::{Link, State};

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
}

impl Link {
    /// Decides about a call, and keeps it where it has to wait.
    pub(crate) fn admit(&mut self, header: Header, payload: &[u8]) -> Admission {
        let State::Open(open) = &mut self.state else {
            // Nobody waits for the answer any more.
            return Admission::Refused;
        };
        let deferred = &mut open.deferred;
        if deferred.calls.is_empty() && open.backlog_bytes <= CONGESTED_BYTES {
            return Admission::Now;
        }
        if deferred.bytes + payload.len() > CALL_BYTES_MAX || deferred.calls.len() >= CALLS_MAX {
            return Admission::Refused;
        }
        deferred.bytes += payload.len();
        deferred.calls.push_back((header, payload.to_vec()));
        Admission::Later
    }

    /// The call that has waited for the longest, once there is room for its answer.
    pub(crate) fn next_deferred(&mut self) -> Option<(Header, Vec<u8>)> {
        let State::Open(open) = &mut self.state else {
            return None;
        };
        if open.backlog_bytes > CONGESTED_BYTES {
            return None;
        }
        let (header, payload) = open.deferred.calls.pop_front()?;
        open.deferred.bytes -= payload.len();
        Some((header, payload))
    }
}
