//! One reading of everything: the map, the redo log, the list of servers, and then what each of them says.
//!
//! Of the map it reads the index, and those shards that have changed since the round before ([`MapReader`]).
//!
//! At most [`READS_MAX`] reads are under way at a time. A value that cannot be read is taken for one that is not there:
//! its server says nothing that this program understands. Map and log have to be readable.

use std::collections::{BTreeMap, VecDeque};

use argosy_base::ServerId;
use argosy_coordinator::reports::{SERVERS_KEY, presence_key, report_key, server_of};
use argosy_coordinator::{
    CLUSTER_KEY, Coordinator, CoordinatorError, CoordinatorReply, Entry, EntryVersion, JOBS_KEY,
    JobLog, JobLogError, MapError, MapMutants, MapPart, MapProgress, MapReader, Presence, Request,
    RequestId, ServerReport, SessionId, StoredMap,
};

use crate::cluster::{Cluster, LiveServer};

/// Most reads that have not ended.
pub const READS_MAX: usize = 64;

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Map(MapPart),
    Jobs,
    Servers,
    Presence(ServerId),
    Report(ServerId),
}

impl Ask {
    fn request(self) -> Request {
        let read = |key: String| Request::Read { key };
        match self {
            Self::Map(part) => read(part.key()),
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

/// The versions of all that a round has read. Two rounds of one mark have read the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundMark(BTreeMap<String, ValueMark>);

/// A value at one moment: keys of sessions begin anew with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ValueMark {
    version: EntryVersion,
    owner: Option<SessionId>,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Round {
    queue: VecDeque<Ask>,
    waiting: BTreeMap<RequestId, Ask>,
    reader: MapReader,
    map: Option<StoredMap>,
    /// The map was read, or there is none.
    is_read: bool,
    jobs: JobLog,
    jobs_version: EntryVersion,
    servers: BTreeMap<ServerId, LiveServer>,
    mark: RoundMark,
    /// How many values were not understood.
    strange: u64,
}

impl Round {
    /// A round that begins, of somebody who knows this map already.
    #[must_use]
    pub fn new(known: Option<StoredMap>) -> Self {
        Self {
            queue: VecDeque::from([Ask::Jobs, Ask::Servers]),
            waiting: BTreeMap::new(),
            reader: MapReader::new(known, MapMutants::default()),
            map: None,
            is_read: false,
            jobs: JobLog::default(),
            jobs_version: EntryVersion(0),
            servers: BTreeMap::new(),
            mark: RoundMark::default(),
            strange: 0,
        }
    }

    /// Asks for more, as far as it may.
    pub fn ask(&mut self, coordinator: &mut dyn Coordinator) {
        while self.waiting.len() < READS_MAX
            && let Some(ask) = self.next()
        {
            let id = coordinator.submit(ask.request());
            self.waiting.insert(id, ask);
        }
    }

    fn next(&mut self) -> Option<Ask> {
        let part = self.reader.ask().map(Ask::Map);
        part.or_else(|| self.queue.pop_front())
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
        let answer = answer?;
        self.note(ask, &answer);
        match (ask, answer) {
            (Ask::Map(part), CoordinatorReply::Entry(entry)) => {
                match self.reader.take(part, &entry)? {
                    MapProgress::More => {}
                    MapProgress::Absent => self.is_read = true,
                    MapProgress::Whole(map) => {
                        self.is_read = true;
                        self.map = Some(map);
                    }
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

    fn note(&mut self, ask: Ask, answer: &CoordinatorReply) {
        let key = match ask.request() {
            // The index says of all shards at what versions they are.
            Request::Read { key } if !matches!(ask, Ask::Map(_)) || key == CLUSTER_KEY => key,
            _ => return,
        };
        if let CoordinatorReply::Entry(entry) = answer {
            let (version, owner) = (entry.version, entry.owner);
            self.mark.0.insert(key, ValueMark { version, owner });
        }
    }

    /// What it has read.
    #[must_use]
    pub fn mark(&self) -> RoundMark {
        self.mark.clone()
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
        self.is_read && self.queue.is_empty() && self.waiting.is_empty()
    }

    /// What was read; `None` while there is no map.
    #[must_use]
    pub fn into_cluster(self) -> Option<Cluster> {
        let StoredMap {
            version,
            map,
            shards,
        } = self.map?;
        let servers = self.servers.into_iter();
        let known = servers.filter(|(id, _)| map.server(*id).is_some());
        Some(Cluster {
            servers: known.collect(),
            map,
            version,
            shards,
            jobs: self.jobs,
            jobs_version: self.jobs_version,
        })
    }
}
