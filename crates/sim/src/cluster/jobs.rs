//! What is demanded of masters beside what clients see: nothing is done to a region before its job is in the redo log,
//! and who writes the log holds the election.

use std::sync::Arc;

use argosy_base::{Instant, ServerId};
use argosy_coordinator::{
    CLUSTER_KEY, ClusterMap, Coordinator as _, CoordinatorError, CoordinatorEvent, CoordinatorOp,
    Deed, Entry, InMemory, JOBS_KEY, JobKind, JobLog, Region, RegionState, Request, SessionId,
    StoredMap, map_behind, read_map,
};
use parking_lot::Mutex;

/// What is known of the redo log.
#[derive(Default)]
pub(super) struct Jobs {
    log: JobLog,
    /// What went wrong first.
    pub(super) wrong: Arc<Mutex<Option<String>>>,
}

impl Jobs {
    /// The log is `bytes`, and `owner` holds the election, right after a server's step.
    pub(super) fn look(&mut self, bytes: &[u8], owner: Option<SessionId>) {
        let log = JobLog::decode(bytes).expect("masters write logs");
        let changed = log
            .jobs()
            .filter(|job| self.log.job(job.id).ok() != Some(*job));
        // A master that has resigned in the same step is nobody any more.
        let strange = changed.filter(|job| owner.is_some() && job.actor != owner);
        let found = strange.map(|job| format!("{owner:?} is elected, and there is {job:?}"));
        if let Some(found) = found.into_iter().next() {
            self.wrong.lock().get_or_insert(found);
        }
        self.log = log;
    }
}

/// What `ops`, which are about to be asked of `handle`, do to the map without a job in the log that is there.
pub(super) fn unwritten(handle: &InMemory, ops: &[CoordinatorOp], now: Instant) -> Option<String> {
    let sets = |wanted: &str| {
        ops.iter().find_map(|op| match op {
            CoordinatorOp::Set {
                key,
                expected,
                value,
            } if key == wanted => Some((*expected, value)),
            _ => None,
        })
    };
    let (version, _) = sets(CLUSTER_KEY)?;
    let mut reader = handle.clone();
    let map = stored(&mut reader, now)?;
    let log = read(&mut reader, JOBS_KEY, now)?;
    let is_based_on = sets(JOBS_KEY).is_none_or(|(version, _)| version == log.version);
    // What is based on something else comes to nothing.
    if version != map.version || !is_based_on {
        return None;
    }
    let next = behind(ops, &reader, now)?;
    let map = map.map;
    let log = JobLog::decode(&log.value).ok()?;
    let mut changed = map.regions().iter().zip(next.regions());
    changed.find_map(|(old, new)| {
        let mut deeds = deeds(old, new).into_iter();
        let missing = deeds.find(|deed| !log.covers(*deed, &map));
        missing.map(|deed| format!("{deed:?} is not written down before it is done: {old}"))
    })
}

/// The region map; `None` where it is not answered at once.
pub(super) fn stored(reader: &mut InMemory, now: Instant) -> Option<StoredMap> {
    read_map(|key| read(reader, &key, now).ok_or(CoordinatorError::ConnectionLost)).ok()?
}

/// The map that `ops` make, if all they are based on is there.
pub(super) fn behind(ops: &[CoordinatorOp], handle: &InMemory, now: Instant) -> Option<ClusterMap> {
    let mut reader = handle.clone();
    map_behind(ops, |key| read(&mut reader, &key, now))
}

/// What is under `key`; `None` where that is not answered at once.
fn read(reader: &mut InMemory, key: &str, now: Instant) -> Option<Entry> {
    let key = key.to_owned();
    let asked = reader.submit(Request::Read { key });
    loop {
        match reader.poll(now)? {
            CoordinatorEvent::Ended { id, answer } if id == asked => {
                return answer.ok()?.into_entry();
            }
            _ => {}
        }
    }
}

fn deeds(old: &Region, new: &Region) -> Vec<Deed> {
    let region = old.id;
    let deed = |kind, server: &ServerId| Deed {
        kind,
        server: *server,
        region,
    };
    let is_raised = old.state == RegionState::Serving && new.state == RegionState::Recovering;
    if is_raised || old.since < new.since {
        return vec![deed(JobKind::Promote, &old.primary)];
    }
    let gone = old.members.iter().filter(|id| !new.members.contains(id));
    let came = new.members.iter().filter(|id| !old.members.contains(id));
    let filled = new.filling.iter().filter(|id| !old.filling.contains(id));
    let gone = gone.map(|id| deed(JobKind::Remove, id));
    let came = came.chain(filled).map(|id| deed(JobKind::Fill, id));
    gone.chain(came).collect()
}
