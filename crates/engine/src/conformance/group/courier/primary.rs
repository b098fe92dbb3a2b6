//! The member of a group that serves, what it reports, and how it comes to serve no more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use argosy_base::{Epoch, FlushRange, Instant, LogId, Lsn};
use argosy_device::Crash;

use super::history::Lsns;
use crate::conformance::Machine;
use crate::{
    EditNotice, EngineError, Follower, LogEnd, Observer, Promoted, SealedSegment, Service, Source,
    Store, WriteBatch, WriteOptions,
};

/// What a primary has reported and the courier has not taken.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) ends: BTreeMap<LogId, LogEnd>,
    pub(super) last: Lsn,
    pub(super) flushes: Vec<FlushRange>,
    pub(super) edits: Vec<EditNotice>,
    pub(super) built: Vec<SealedSegment>,
}

/// The observer of a primary.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Heard>);

impl Recorder {
    pub(super) fn heard<T>(&self, what: impl FnOnce(&mut Heard) -> T) -> T {
        what(&mut self.0.lock().expect("no holder of the lock panics"))
    }
}

impl Observer for Recorder {
    fn appended(&self, end: LogEnd, last: Lsn) {
        self.heard(|heard| {
            heard.ends.insert(end.log, end);
            heard.last = last;
        });
    }

    fn flush(&self, range: FlushRange) {
        self.heard(|heard| heard.flushes.push(range));
    }

    fn segment_built(&self, segment: &SealedSegment) -> bool {
        // Unless it is carried, the edit that names it has it fetched.
        self.heard(|heard| heard.built.push(segment.clone()));
        true
    }

    fn edit_committed(&self, edit: &EditNotice) {
        self.heard(|heard| heard.edits.push(edit.clone()));
    }
}

/// How a primary comes to serve no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conformance::group) enum Fall {
    /// It lives, and becomes a backup at once.
    Demoted,
    /// Its process is killed. Its windows survive.
    Killed,
    /// It loses its power, and its windows.
    PowerLost,
    /// Its device fails at a write or sync after so many more while it is demoted, and its process ends.
    DeviceFailed(u64),
}

/// See the module documentation.
pub(super) struct Primary {
    pub(super) machine: Machine,
    pub(super) store: Arc<dyn Store>,
    pub(super) source: Arc<dyn Source>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) epoch: Epoch,
}

impl Primary {
    /// Promotes `copy`, which lies on `machine`, in `epoch`.
    pub(super) fn new(machine: Machine, copy: Box<dyn Follower>, epoch: Epoch) -> Self {
        let recorder = Arc::new(Recorder::default());
        let promoted = promote(copy, epoch, Some(&recorder));
        Self {
            machine,
            store: promoted.store,
            source: promoted.source.expect("a store that can be copied"),
            recorder,
            epoch,
        }
    }

    pub(super) fn step(&self, now: Instant) {
        let step = self.store.step(now);
        step.expect("a device without faults");
    }

    /// Writes a batch. Returns `None` where there is no room for it at present.
    pub(super) fn write(&self, batch: &WriteBatch) -> Option<Lsns> {
        let first = self.store.last_lsn().next();
        match self.store.write(batch, WriteOptions::default()) {
            Ok(written) => {
                let last = written.wait.lsn();
                Some(Lsns { first, last })
            }
            Err(EngineError::Busy(_)) => None,
            Err(error) => panic!("a write failed: {error}"),
        }
    }

    /// It serves no more. Returns its copy, which nobody has caught up.
    pub(super) fn fall(&mut self, fall: Fall) -> Box<dyn Follower> {
        end(&mut self.machine, &self.store, fall)
    }

    /// Its process ends. Returns its copy, which is opened again.
    pub(super) fn reopen(&mut self, crash: Crash) -> Box<dyn Follower> {
        self.machine.end(crash);
        self.machine.open()
    }
}

/// Promotes `copy`, in `epoch`, with a recorder where it has backups.
pub(super) fn promote(
    copy: Box<dyn Follower>,
    epoch: Epoch,
    recorder: Option<&Arc<Recorder>>,
) -> Promoted {
    let observer =
        recorder.map(|recorder| -> Arc<dyn Observer> { Arc::<Recorder>::clone(recorder) });
    let service = Service {
        epoch,
        since: epoch,
        observer,
        ..Service::default()
    };
    let promoted = copy.promote(service);
    promoted.unwrap_or_else(|no| panic!("a whole copy is promoted: {}", no.error))
}

/// The store of `machine` serves no more. Returns its copy, which nobody has caught up.
pub(super) fn end(machine: &mut Machine, store: &Arc<dyn Store>, fall: Fall) -> Box<dyn Follower> {
    let crash = match fall {
        Fall::Demoted => {
            let demoted = Arc::clone(store).demote(machine.renew_windows());
            return demoted.unwrap_or_else(|no| panic!("it is not demoted: {}", no.error));
        }
        Fall::DeviceFailed(after) => {
            machine.fail_after(after);
            // What it was to make durable fails, or it had nothing.
            match Arc::clone(store).demote(machine.renew_windows()) {
                Ok(copy) => drop(copy),
                Err(no) => assert!(!no.error.is_damage(), "{}", no.error),
            }
            Crash::PowerLoss
        }
        Fall::Killed => Crash::Kill,
        Fall::PowerLost => Crash::PowerLoss,
    };
    machine.end(crash);
    machine.open()
}
