//! What waits for the threads of a device that is a file.

use std::collections::VecDeque;

use crate::io::{Io, Ticket};

/// A request, and on whose account it is.
pub(crate) struct Job {
    pub(crate) io: Io,
    pub(crate) ticket: Ticket,
    pub(crate) account: u32,
}

/// What waits for the device's threads. Bounded by its submitters, each of which waits for its
/// earlier requests before it goes on.
#[derive(Default)]
pub(crate) struct Queue {
    writes: VecDeque<Job>,
    syncs: Vec<Job>,
    /// Writes that found no room.
    pub(crate) held: VecDeque<Job>,
    /// How many of them are tried again now.
    trying: usize,
    /// What somebody blocks on.
    pub(crate) waited_for: Vec<Ticket>,
    /// A thread is in the middle of a sync.
    pub(crate) syncing: bool,
    pub(crate) closing: bool,
}

/// What a thread does next.
pub(crate) enum Work {
    Write(Job),
    Sync(Vec<Job>),
    End,
}

impl Queue {
    pub(crate) fn push(&mut self, job: Job) {
        match job.io {
            Io::Write { .. } => self.writes.push_back(job),
            Io::Sync => self.syncs.push(job),
        }
    }

    /// What a thread does next; `None`: there is nothing for it at present.
    pub(crate) fn pop(&mut self) -> Option<Work> {
        if !self.syncs.is_empty() && !self.syncing {
            self.syncing = true;
            return Some(Work::Sync(std::mem::take(&mut self.syncs)));
        }
        if let Some(job) = self.writes.pop_front() {
            return Some(Work::Write(job));
        }
        if self.trying > 0 || self.closing {
            self.trying = self.trying.saturating_sub(1);
            if let Some(job) = self.held.pop_front() {
                return Some(Work::Write(job));
            }
        }
        (self.closing && self.syncs.is_empty()).then_some(Work::End)
    }

    /// Has each held write tried again.
    pub(crate) fn try_held(&mut self) {
        self.trying = self.held.len();
    }

    /// Keeps a write that found no room, unless somebody wants to know. The others are not tried again
    /// at once: they would find none either.
    pub(crate) fn hold(&mut self, job: Job) -> Option<Job> {
        let wanted = self.waited_for.iter().any(|other| other.is(&job.ticket));
        if wanted || self.closing {
            return Some(job);
        }
        self.held.push_back(job);
        None
    }
}
