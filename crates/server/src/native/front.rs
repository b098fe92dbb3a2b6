//! What all threads of the native front end share: its settings, the region map as clients are told
//! it, which may be replaced while they serve, and counters. No I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use argosy_base::range::Starts;
use argosy_base::{Epoch, Incarnation, Instant, RegionId, ServerId, info};
use argosy_coordinator::ClusterMap;
use argosy_engine::Lent;
use argosy_engine::long::Versions;
use argosy_wire::native::{MapRegion, MapServer, RegionMap, Request};
use parking_lot::Mutex;

use super::read::{Here, Refused};
use super::share::Shares;
use super::tally;
use crate::line_rate::LineRate;
use crate::meter::Meter;
use crate::service::InfoSection;
use crate::tasks::{TaskCounts, Tasks};

/// What the front end is told, and the bounds that it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The server's number.
    pub server: ServerId,
    /// The number of its start.
    pub incarnation: Incarnation,
    /// How long a thread looks for requests before it sleeps.
    pub spin: Duration,
    /// Most clients at a time, over all threads.
    pub clients_max: usize,
    /// Most bytes of memory that all clients have together.
    pub memory_bytes_max: usize,
    /// Most requests of one client without an answer; further ones are not taken.
    pub in_flight_max: usize,
    /// A random number that no server was started with before, for versions of values in parts.
    pub random: u128,
    /// When stopping, how long requests that were taken have until clients are let go.
    pub drain: Duration,
}

impl Settings {
    /// Bytes that clients may take of the `limit` of a server: a sixteenth, within bounds.
    #[must_use]
    pub fn share_of(limit: usize) -> usize {
        (limit / 16).clamp(6 << 20, 64 << 20)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerId(0),
            incarnation: Incarnation(1),
            spin: Duration::from_micros(20),
            clients_max: 1024,
            memory_bytes_max: 64 << 20,
            in_flight_max: 1024,
            random: 1,
            drain: Duration::from_secs(2),
        }
    }
}

/// The region map, as clients are told it and as requests are checked against it.
#[derive(Debug)]
pub struct Routes {
    me: ServerId,
    map: RegionMap,
    encoded: Vec<u8>,
    fingerprint: u32,
    places: BTreeMap<RegionId, usize>,
    starts: Starts,
    cluster: u128,
}

impl Routes {
    /// Those of server `me` in `map`; `native` says where clients of this host meet each server.
    #[must_use]
    pub fn new(me: ServerId, map: &ClusterMap, native: impl Fn(ServerId) -> PathBuf) -> Self {
        let servers = map.servers().iter().map(|server| MapServer {
            id: server.id,
            resp: server.resp.clone(),
            native: native(server.id).to_string_lossy().into_owned(),
        });
        let regions = map.regions().iter().map(|region| MapRegion {
            id: region.id,
            range: region.range.clone(),
            epoch: region.since,
            primary: region.primary,
        });
        let places = map.regions().iter().enumerate();
        let places = places.map(|(place, region)| (region.id, place)).collect();
        let map_of_clients = RegionMap {
            servers: servers.collect(),
            regions: regions.collect(),
        };
        let mut encoded = Vec::new();
        map_of_clients.encode(&mut encoded);
        Self {
            me,
            fingerprint: RegionMap::fingerprint(&encoded),
            starts: map_of_clients.starts(),
            map: map_of_clients,
            encoded,
            places,
            cluster: map.cluster().0,
        }
    }

    /// The same of another `map`, of the same servers.
    #[must_use]
    pub fn replaced_by(&self, map: &ClusterMap) -> Self {
        let servers = &self.map.servers;
        Self::new(self.me, map, |id| {
            let known = servers.iter().find(|server| server.id == id);
            known.map_or_else(PathBuf::new, |server| PathBuf::from(&server.native))
        })
    }

    /// The region that `request` names, if it is served here.
    #[inline]
    pub(super) fn here(&self, request: &Request) -> Result<Here<'_>, Refused> {
        let region = self.region(request.region, request.epoch);
        let region = region.ok_or(Refused::WrongServer)?;
        let routes = self;
        Ok(Here { routes, region })
    }

    /// The map as bytes.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// The map's fingerprint.
    #[must_use]
    pub const fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// The cluster's name.
    #[must_use]
    pub const fn cluster(&self) -> u128 {
        self.cluster
    }

    /// The region `id`, if it is served here under `epoch`.
    #[inline]
    #[must_use]
    pub fn region(&self, id: RegionId, epoch: Epoch) -> Option<&MapRegion> {
        let region = &self.map.regions[*self.places.get(&id)?];
        (region.primary == self.me && region.epoch == epoch).then_some(region)
    }

    /// The region that `key` lies in.
    #[inline]
    #[must_use]
    pub fn region_of(&self, key: &[u8]) -> &MapRegion {
        &self.map.regions[self.map.index_of(&self.starts, key)]
    }

    /// Whether the region of `key` is served here.
    #[inline]
    #[must_use]
    pub fn serves(&self, key: &[u8]) -> bool {
        self.region_of(key).primary == self.me
    }
}

/// See the module documentation.
pub struct Front {
    /// The settings.
    pub settings: Settings,
    /// The region map; replaced as a whole. Threads keep the one that they looked at last, and look again at each step.
    routes: ArcSwap<Routes>,
    /// Where clients meet the server.
    socket: PathBuf,
    /// Versions of values in parts.
    pub(super) versions: Versions,
    /// What clients have.
    pub(super) shares: Shares,
    /// Clients that wrote what is no request.
    garbled: AtomicUsize,
    /// Clients that were taken in so far, and such as were not.
    taken_in: AtomicU64,
    refused: AtomicU64,
    /// Clients that were let go to make room for others.
    evicted: AtomicU64,
    /// Lines of the log about clients that are ended or refused.
    lines: Mutex<LineRate>,
    /// What waits for workers, once there are any.
    tasks: OnceLock<Arc<Tasks>>,
    /// Answers by what was asked for and result, and how long calls take.
    pub meter: Meter,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Front({} clients)", self.clients())
    }
}

impl Front {
    /// A front end without clients.
    #[must_use]
    pub fn new(settings: Settings, routes: Routes, socket: &Path) -> Self {
        Self {
            settings,
            routes: ArcSwap::from_pointee(routes),
            socket: socket.to_path_buf(),
            versions: Versions::new(settings.random),
            shares: Shares::default(),
            garbled: AtomicUsize::new(0),
            taken_in: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            lines: Mutex::default(),
            tasks: OnceLock::new(),
            meter: tally::meter(),
        }
    }

    /// The region map as it is now.
    #[must_use]
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Whether `routes` are those of now.
    #[inline]
    pub(super) fn has(&self, routes: &Arc<Routes>) -> bool {
        Arc::ptr_eq(&self.routes.load(), routes)
    }

    /// Replaces the region map by `map`, of the same servers. Requests for a region that is not served here under the
    /// epoch that they name are answered by *another server*, with the fingerprint of the new map, which whoever is
    /// told so fetches. Called by one thread at a time.
    pub fn set_map(&self, map: &ClusterMap) {
        let routes = self.routes().replaced_by(map);
        if routes.fingerprint() != self.routes.load().fingerprint() {
            self.routes.store(Arc::new(routes));
        }
    }

    /// The same: while clients do not take their memory, the cache has it from `lent`.
    #[must_use]
    pub(crate) fn lending(self, lent: Arc<Lent>) -> Self {
        let shares = Shares::lending(lent);
        Self { shares, ..self }
    }

    /// Clients that are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.shares.clients()
    }

    /// Bytes of memory that clients have.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.shares.bytes()
    }

    /// Clients that were ended since they wrote what is no request.
    #[must_use]
    pub fn garbled(&self) -> usize {
        self.garbled.load(Ordering::Relaxed)
    }

    /// Clients that were taken in so far.
    #[must_use]
    pub fn taken_in(&self) -> u64 {
        self.taken_in.load(Ordering::Relaxed)
    }

    /// Clients that were not taken in, for want of room or of a common version.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// What the queue of the workers tells; zeros where there are none.
    #[must_use]
    pub fn tasks(&self) -> TaskCounts {
        self.tasks
            .get()
            .map(|tasks| tasks.counts())
            .unwrap_or_default()
    }

    /// From now on tells of `tasks`.
    pub(super) fn set_tasks(&self, tasks: Arc<Tasks>) {
        // There is one front end, and it is started once.
        let _ = self.tasks.set(tasks);
    }

    /// Clients that were let go to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    pub(super) fn count_evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the log is to be told of a client that is ended or refused, as [`LineRate::line`].
    pub(super) fn line(&self, now: Instant) -> Option<u64> {
        let mut lines = self.lines.lock();
        lines.line(now)
    }

    pub(super) fn count_garbled(&self) {
        self.garbled.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_guest(&self, is_taken_in: bool) {
        let counter = if is_taken_in {
            &self.taken_in
        } else {
            &self.refused
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// What is told in `INFO`.
    #[must_use]
    pub fn describe(&self) -> InfoSection {
        let socket = self.socket.to_string_lossy().into_owned();
        let tasks = self.tasks();
        let answers = self.meter.counts().map(|(.., count)| count).sum();
        let numbers = [
            (info::NATIVE_CLIENTS, self.clients() as u64),
            (info::NATIVE_MEMORY, self.memory_bytes() as u64),
            (info::NATIVE_TAKEN_IN, self.taken_in()),
            (info::NATIVE_REFUSED, self.refused()),
            (info::NATIVE_EVICTED, self.evicted()),
            (info::NATIVE_GARBLED, self.garbled() as u64),
            (info::NATIVE_ANSWERS, answers),
            (info::NATIVE_TASKS, tasks.done),
            (info::NATIVE_TASKS_QUEUED, tasks.queued as u64),
            (info::NATIVE_QUEUE_FULL, tasks.queue_full),
        ];
        let numbers = numbers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_string()));
        let mut fields = vec![(info::NATIVE_SOCKET.to_owned(), socket)];
        fields.extend(numbers);
        (info::SECTION_NATIVE, fields)
    }
}
