//! One reading of everything: the map, the redo log, the list of servers, and then what each of them says.
//!
//! At most [`READS_MAX`] reads are under way at a time. A value that cannot be read is taken for one that is not there:
//! its server says nothing that this program understands. Map and log have to be readable.

use std::collections::{BTreeMap, VecDeque};

use argosy_base::ServerId;
use argosy_coordinator::reports::{SERVERS_KEY, presence_key, report_key, server_of};
use argosy_coordinator::{
    CLUSTER_KEY, ClusterMap, Coordinator, CoordinatorError, CoordinatorReply, Entry, EntryVersion,
    JOBS_KEY, JobLog, JobLogError, MapError, Presence, Request, RequestId, ServerReport,
};

use crate::cluster::{Cluster, LiveServer};

/// Most reads that have not ended.
pub const READS_MAX: usize = 64;

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Map,
    Jobs,
    Servers,
    Presence(ServerId),
    Report(ServerId),
}

impl Ask {
    fn request(self) -> Request {
        let read = |key: String| Request::Read { key };
        match self {
            Self::Map => read(CLUSTER_KEY.to_owned()),
            Self::Jobs => read(JOBS_KEY.to_owned()),
            Self::Servers => Request::Children {
                key: SERVERS_KEY.to_owned(),
            },
            Self::Presence(id) => read(presence_key(id)),
            Self::Report(id) => read(report_key(id)),
        }
    }
}

/// Why a round came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoundError {
    /// The coordinator did not answer as it should. Try again.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// The map is none. A person has to look.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The redo log is none. A person has to look.
    #[error(transparent)]
    Jobs(#[from] JobLogError),
}

/// See the module documentation.
#[derive(Debug)]
pub struct Round {
    queue: VecDeque<Ask>,
    waiting: BTreeMap<RequestId, Ask>,
    map: Option<ClusterMap>,
    version: EntryVersion,
    jobs: JobLog,
    jobs_version: EntryVersion,
    servers: BTreeMap<ServerId, LiveServer>,
    /// How many values were not understood.
    strange: u64,
}

impl Round {
    /// A round that begins.
    #[must_use]
    pub fn new() -> Self {
        Self {
            queue: VecDeque::from([Ask::Map, Ask::Jobs, Ask::Servers]),
            waiting: BTreeMap::new(),
            map: None,
            version: EntryVersion(0),
            jobs: JobLog::default(),
            jobs_version: EntryVersion(0),
            servers: BTreeMap::new(),
            strange: 0,
        }
    }

    /// Asks for more, as far as it may.
    pub fn ask(&mut self, coordinator: &mut dyn Coordinator) {
        while self.waiting.len() < READS_MAX
            && let Some(ask) = self.queue.pop_front()
        {
            let id = coordinator.submit(ask.request());
            self.waiting.insert(id, ask);
        }
    }

    /// Whether the request `id` is one of this round.
    #[must_use]
    pub fn is_waiting_for(&self, id: RequestId) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Takes the answer to `id`.
    ///
    /// # Errors
    /// Why the round came to nothing.
    pub fn take(
        &mut self,
        id: RequestId,
        answer: Result<CoordinatorReply, CoordinatorError>,
    ) -> Result<(), RoundError> {
        let Some(ask) = self.waiting.remove(&id) else {
            return Ok(());
        };
        match (ask, answer?) {
            (Ask::Map, CoordinatorReply::Entry(entry)) => {
                self.version = entry.version;
                if entry.version != EntryVersion(0) {
                    self.map = Some(ClusterMap::parse(&entry.value)?);
                }
            }
            (Ask::Jobs, CoordinatorReply::Entry(entry)) => {
                self.jobs_version = entry.version;
                self.jobs = JobLog::decode(&entry.value)?;
            }
            (Ask::Servers, CoordinatorReply::Children(names)) => {
                for id in names.iter().filter_map(|name| server_of(name)) {
                    self.queue.extend([Ask::Presence(id), Ask::Report(id)]);
                }
            }
            (Ask::Presence(id), CoordinatorReply::Entry(entry)) => {
                if let Some(presence) = self.understood(&entry, Presence::parse) {
                    self.servers.entry(id).or_default().presence = presence;
                }
            }
            (Ask::Report(id), CoordinatorReply::Entry(entry)) => {
                let report = self.understood(&entry, ServerReport::parse);
                // Of a server that has gone meanwhile there is no presence.
                if let Some(live) = self.servers.get_mut(&id) {
                    live.report = report;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn understood<T, E>(
        &mut self,
        entry: &Entry,
        parse: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Option<T> {
        if entry.version == EntryVersion(0) {
            return None;
        }
        let value = parse(&entry.value).ok();
        self.strange += u64::from(value.is_none());
        value
    }

    /// How many values were not understood.
    #[must_use]
    pub const fn strange(&self) -> u64 {
        self.strange
    }

    /// Whether everything was read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.queue.is_empty() && self.waiting.is_empty()
    }

    /// What was read; `None` while there is no map.
    #[must_use]
    pub fn into_cluster(self) -> Option<Cluster> {
        let known: BTreeMap<_, _> = match &self.map {
            Some(map) => self
                .servers
                .into_iter()
                .filter(|(id, _)| map.server(*id).is_some())
                .collect(),
            None => BTreeMap::new(),
        };
        Some(Cluster {
            map: self.map?,
            version: self.version,
            jobs: self.jobs,
            jobs_version: self.jobs_version,
            servers: known,
        })
    }
}

impl Default for Round {
    fn default() -> Self {
        Self::new()
    }
}
