//! Where a cluster's coordinator is, and what it says.
//!
//! The keys are read one after the other, so they may be of different moments.

use std::collections::BTreeMap;
use std::path::PathBuf;

use argosy_base::{RegionId, ServerId};
use argosy_coordinator::reports::{presence_key, report_key};
use argosy_coordinator::{
    ClusterMap, CoordinatorError, Embedded, Entry, JOBS_KEY, JobError, JobLog, MASTER_KEY,
    MapAccessError, Presence, Region, ServerReport, StoredMap,
};
use argosy_master::{Cluster, LiveServer};
use serde::Deserialize;

use super::Common;
use crate::cluster::layout;
use crate::failure::{CommandFailure, chain};
use crate::playground;

/// How often an order is tried, while others change the log.
const ATTEMPTS_MAX: usize = 64;

/// A cluster's coordinator.
pub(crate) struct Reading {
    dir: PathBuf,
    embedded: Embedded,
}

/// The value of the master's key.
#[derive(Deserialize)]
struct Office {
    server: u32,
}

impl Reading {
    /// That of the cluster that `common` names.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn open(common: &Common) -> Result<Self, CommandFailure> {
        let dir = match (&common.coordinator, &common.data_dir) {
            (Some(dir), _) => dir.clone(),
            (None, Some(dir)) => dir.join(layout::COORDINATOR),
            (None, None) => playground::scratch_that_runs()?.join(layout::COORDINATOR),
        };
        // To open it would make it.
        if !dir.is_dir() {
            return Err(CommandFailure::NotFound(format!(
                "{}: no coordinator is there; name the data directory of a playground with --data-dir, or the \
                 coordinator's with --coordinator",
                dir.display()
            )));
        }
        let embedded = layout::open(&dir)?;
        Ok(Self { dir, embedded })
    }

    fn entry(&mut self, key: &str) -> Result<Entry, CommandFailure> {
        let found = self.embedded.read_now(key);
        found.map_err(|error| failed_to_read(&error))
    }

    fn corrupt(&self, error: &dyn std::error::Error) -> CommandFailure {
        CommandFailure::Corrupt(format!("{}: {}", self.dir.display(), chain(error)))
    }

    /// The region map.
    fn map(&mut self) -> Result<StoredMap, CommandFailure> {
        let stored = self.embedded.read_map_now().map_err(|error| match error {
            MapAccessError::Coordinator(error) => failed_to_read(&error),
            error => self.corrupt(&error),
        })?;
        stored.ok_or_else(|| {
            let dir = self.dir.display();
            CommandFailure::NotFound(format!("{dir}: there is no region map"))
        })
    }

    /// Everything, as the master reads it.
    pub(crate) fn cluster(&mut self) -> Result<Cluster, CommandFailure> {
        let StoredMap {
            map,
            version,
            shards,
        } = self.map()?;
        let jobs = self.entry(JOBS_KEY)?;
        let mut servers = BTreeMap::new();
        for server in map.servers() {
            let presence = self.entry(&presence_key(server.id))?;
            let report = self.entry(&report_key(server.id))?;
            // What this program does not understand a master of its version does not, either.
            if let Ok(presence) = Presence::parse(&presence.value) {
                let report = ServerReport::parse(&report.value).ok();
                servers.insert(server.id, LiveServer { presence, report });
            }
        }
        Ok(Cluster {
            jobs: JobLog::decode(&jobs.value).map_err(|error| self.corrupt(&error))?,
            jobs_version: jobs.version,
            map,
            version,
            shards,
            servers,
        })
    }

    /// The server whose master leads.
    pub(crate) fn master(&mut self) -> Result<Option<ServerId>, CommandFailure> {
        let entry = self.entry(MASTER_KEY)?;
        let office = serde_json::from_slice::<Office>(&entry.value).ok();
        Ok(office.map(|office| ServerId(office.server)))
    }

    /// Changes the redo log by compare-and-set, and tries again after a conflict. Writes nothing if the log stays as it
    /// is.
    pub(crate) fn order<T>(
        &mut self,
        change: impl Fn(&mut JobLog, &ClusterMap) -> Result<T, JobError>,
    ) -> Result<T, CommandFailure> {
        for _ in 0..ATTEMPTS_MAX {
            let map = self.map()?.map;
            let entry = self.entry(JOBS_KEY)?;
            let mut log = JobLog::decode(&entry.value).map_err(|error| self.corrupt(&error))?;
            let changed = change(&mut log, &map).map_err(refused)?;
            let value = log.encode();
            if value == entry.value {
                return Ok(changed);
            }
            match self.embedded.set_now(JOBS_KEY, entry.version, value) {
                Ok(_) => return Ok(changed),
                Err(CoordinatorError::Conflict { .. }) => {}
                Err(error) => return Err(CommandFailure::Failed(chain(&error))),
            }
        }
        let words = "the master writes its log all the time; try again".to_owned();
        Err(CommandFailure::Unreachable(words))
    }
}

fn failed_to_read(error: &CoordinatorError) -> CommandFailure {
    match error {
        CoordinatorError::Damaged { .. } => CommandFailure::Corrupt(chain(error)),
        _ => CommandFailure::Failed(chain(error)),
    }
}

fn refused(error: JobError) -> CommandFailure {
    match error {
        JobError::Full { .. } => CommandFailure::Unreachable(error.to_string()),
        _ => CommandFailure::NotFound(error.to_string()),
    }
}

/// The region that a command line names.
pub(crate) fn region(map: &ClusterMap, id: u32) -> Result<&Region, CommandFailure> {
    map.region(RegionId(id))
        .ok_or_else(|| CommandFailure::NotFound(format!("there is no region {id}")))
}

#[cfg(test)]
fn common(dir: &std::path::Path) -> Common {
    Common {
        data_dir: None,
        coordinator: Some(dir.to_path_buf()),
        output: crate::cli::OutputFormat::Table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_coordinator_is_not_made_one() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("none");
        let refused = Reading::open(&common(&none)).err().unwrap();
        assert!(matches!(refused, CommandFailure::NotFound(_)), "{refused}");
        assert!(!none.exists());
        std::fs::create_dir(&none).unwrap();
        let refused = Reading::open(&common(&none))
            .unwrap()
            .cluster()
            .unwrap_err();
        assert!(matches!(refused, CommandFailure::NotFound(_)), "{refused}");
    }
}
