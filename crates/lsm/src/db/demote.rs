//! From an engine back to a passive replica, in the same process: the mirror of [`promote`](super::promote).
//!
//! 1. The engine *ends*. From here on whoever reads, writes or steps is refused ([`EngineError::NotServing`]), and so
//!    are snapshots and scans at their next use. Steps under way are waited for.
//! 2. What the device was told to write of the logs is waited for.
//! 3. The engine lets go of memtables and version, so that it keeps no segment. A snapshot or a scan keeps what it sees
//!    until it is dropped (I1).
//! 4. Jobs under way are given up, and so are edits that no append has begun to write: a crash would leave as much.
//!    Appends are waited for (I3).
//! 5. The storage becomes that of a [`Replica`], with its version and the segments that are claimed. The logs are read
//!    as in every opening: from the device, and from the old windows, of which the end of each log goes to the fresh
//!    ones. So records that memtables alone had stay part of the log. No level is read.

use std::sync::Arc;

#[cfg(doc)]
use argosy_engine::EngineError;
use argosy_engine::{CopyError, NotDemoted};

use super::Lsm;
use crate::replica::{Replica, ReplicaError, ReplicaSurvivors, Slots};
use crate::set_aside;
use crate::storage::Storage;
use crate::version::Version;

/// See the module documentation. `fresh` is zero memory.
pub(super) fn demote(lsm: &Lsm, fresh: Slots) -> Result<Replica, Box<NotDemoted>> {
    let Ended { storage, left } =
        end(lsm).map_err(|error| Box::new(NotDemoted { error, left: None }))?;
    let (store, version) = (Arc::clone(storage.store()), Arc::clone(storage.current()));
    Replica::of_ended(storage, fresh, &left).map_err(|error| {
        let error = CopyError::from(error);
        let kept = || set_aside::of_version(&store, &version);
        let left = error.is_damage().then(kept).flatten();
        Box::new(NotDemoted { error, left })
    })
}

/// What an engine leaves that has ended.
struct Ended {
    storage: Storage,
    /// What its windows hold.
    left: ReplicaSurvivors,
}

fn end(lsm: &Lsm) -> Result<Ended, CopyError> {
    lsm.reading.end();
    lsm.steps.end()?;
    let background = lsm.steps.take_background()?;
    lsm.steps.logs().drain()?;
    lsm.bulk_loads.forget_waiting();
    let_go(lsm);
    let left = lsm.windows.end();
    let storage = background.into_storage().map_err(ReplicaError::from)?;
    Ok(Ended { storage, left })
}

/// Has the engine keep nothing that its copy may give away.
fn let_go(lsm: &Lsm) {
    let addresses = lsm.settings.layout.addresses;
    let nothing = Arc::new(Version::empty(lsm.region(), addresses));
    let before = {
        let mut writer = lsm.lock();
        let tables = writer.end(nothing);
        // Snapshots may see them.
        tables
            .newest_first()
            .for_each(|table| lsm.shown.keep(table));
        (tables, lsm.shown.replace(&writer))
    };
    drop(before);
    lsm.shown.settle_pinned();
}
