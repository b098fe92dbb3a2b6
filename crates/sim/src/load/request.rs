//! A request, from the moment it is asked to its answer.

use argosy_base::Instant;
use argosy_server::service::Response;

use crate::asks::Ask;

/// How a request may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// As it comes: something is wrong.
    Anything,
    /// It may be sent away for want of room, or be given up at its deadline after it has waited for that.
    Slowness,
    /// It has to succeed.
    Success,
}

/// How a request is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    /// Of which server.
    pub server: usize,
    /// Of which of its processes.
    pub session: u32,
    /// That is the primary of all regions which the request is about.
    pub direct: bool,
    /// When.
    pub at: Instant,
    /// How it may be answered.
    pub expect: Expect,
}

#[cfg(test)]
impl Asking {
    /// Of process `session` of server 0.
    pub(crate) fn anything(session: u32) -> Self {
        Self {
            server: 0,
            session,
            direct: true,
            at: Instant::default(),
            expect: Expect::Anything,
        }
    }
}

/// The answer to operation `op`.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The operation.
    pub op: u32,
    /// When it came.
    pub at: Instant,
    /// What it is.
    pub response: Response,
}

/// A request under way.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// What was asked.
    pub ask: Ask,
    /// How.
    pub asking: Asking,
    /// Something was damaged then, or since.
    pub(super) damaged: bool,
    pub(super) began: u64,
    pub(super) several_regions: bool,
    /// A write's accesses: object and index in its history.
    pub(super) accesses: Vec<(usize, usize)>,
    /// A write's places in what its regions were handed.
    pub(super) handed: Vec<(usize, usize)>,
}

/// An operation that is answered.
#[derive(Clone, Copy)]
pub(super) struct Answered<'a> {
    pub(super) op: u32,
    pub(super) pending: &'a Pending,
    /// When.
    pub(super) at: Instant,
    /// The moment of the answer.
    pub(super) ended: u64,
}
