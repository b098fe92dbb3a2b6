//! A server without its threads: regions, links to the other servers, and the requests between.
//!
//! A [`Node`] is moved by steps. In production one thread calls [`Node::step_fabric`], some
//! [`Node::step_next`], one [`Node::step_logs`], and the front ends' threads and the [workers](crate::tasks) call the
//! [`Service`](crate::service::Service) that a node is; the simulator calls all of them from one
//! thread. No step waits for anything but the device.
//!
//! Reading order: this file, `context` (what its parts see of each other), `router` (requests find their region),
//! `open` and `local` (what is done in a region that is open here, and in any of which there is a copy), `views` and
//! `role` (what a server is to a region, and how that changes), `leases` and `leasing` (what servers promise each
//! other), `gate` (whether an answer may be given), `waiting`, `failover`, `calls`, `line` and `gather` (answers that
//! come later), `refuse` and `room` (those that say no), `ready` and `watch` (what is not as it should be, and what the
//! log is told of it), `link` (messages), `primary` with `shipper` and `outbox`, and `follower` (the two sides of
//! replication), `steps` (moves links and messages), `background` with `schedule` (moves engines and copies).
//!
//! Locks, in the order in which they are taken: a region's driver, the leases, a link, what waits for a region,
//! the calls under way. Answers are delivered outside all of them. The engine's own locks come
//! last, and the engine calls nothing back but an `Outbox`, which calls nobody.

mod acknowledging;
mod adapting;
mod arriving;
mod assembling;
mod attachments;
mod awake;
mod background;
mod beginning;
mod bulk_load;
mod calls;
mod connection;
mod context;
mod convert;
mod counters;
mod describe;
mod device_care;
mod edit_memory;
mod examine;
mod failing;
mod failover;
mod fetching;
mod follower;
mod gate;
mod gather;
mod group;
mod held;
mod holdings;
mod inbox;
mod inspect;
mod keys;
mod leases;
mod leasing;
mod limits;
mod line;
mod link;
mod links;
mod local;
mod local_copy;
mod look;
mod maintenance;
mod many;
mod memory;
mod mutants;
mod offering;
mod open;
mod opening;
mod outbox;
mod page;
mod peers_calls;
mod primary;
mod promoting;
mod raised;
mod reading;
mod ready;
mod refilling;
mod refuse;
mod region;
mod regions;
mod renewing;
mod repairing;
mod report;
mod requests;
mod role;
mod room;
mod router;
mod routing;
mod schedule;
mod scrubbing;
mod sending;
mod serve;
mod serving;
mod shipper;
mod snapshots;
mod stage;
mod steps;
mod stopped;
mod sweeping;
mod telling;
mod to_master;
mod views;
mod waiting;
mod watch;
mod whole;
mod windows;
mod write;
mod written;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use argosy_base::{Clock, Incarnation, Instant, RegionId, ServerId};
use argosy_coordinator::{ClusterMap, ServerReport};
use argosy_device::Store;
use argosy_engine::long::SweepPace;
use argosy_engine::scrub::Pace as ScrubPace;
use argosy_engine::{Lent, Settings};
use argosy_fabric::Fabric;
use argosy_memory::WindowStore;
use argosy_replication::lease::LastStop;
use parking_lot::MutexGuard;

use crate::activity::Ledger;
use crate::native;
use crate::tasks::Tasks;
pub(crate) use beginning::names_within;
use beginning::remove_orphans;
use context::Context;
use device_care::DeviceCare;
use gate::Gate;
use link::Link;
use links::Links;
use memory::Memory;
use opening::{Opened, Opener};
use region::{Care, Region, engine_of};
use regions::{Regions, Wanted};
use requests::Requests;
use router::Router;
use schedule::Steppers;
use telling::Telling;
use views::{View, Views};
use waiting::Allowance;

pub use awake::Awake;
pub use counters::{NodeCounts, PromotionCounts, RewrittenCounts};
pub use holdings::Holding;
pub use inspect::{CopyState, Inspect, MADE_TO_FAIL};
pub use keys::{checked_from, is_log_window};
pub use leases::LeaseSettings;
pub use link::{FETCH_SLOTS, LinkSettings, SHIP_SLOTS};
pub use memory::MemoryParts;
pub use mutants::Mutants;
pub use opening::OpenError;
pub use report::Reports;
pub use schedule::Wakers;
pub use views::ViewError;
pub use windows::left_windows;

/// What a node is told once.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The engine's settings; the same on all members.
    pub engine: Arc<dyn Settings>,
    /// The sizes of rings and landing slots; the same on all servers.
    pub link: LinkSettings,
    /// How the server's memory is divided: what the settings above amount to, and what the rest keeps
    /// to.
    pub memory: MemoryParts,
    /// How long a request may wait for a member, for room or for another server.
    pub deadline: Duration,
    /// How long one may wait, of that time, for a primary of its region that answers.
    pub failover_wait: Duration,
    /// How long a member may be away before its primary asks that the group goes on without it.
    pub remove_after: Duration,
    /// The leases that servers grant each other, which a primary needs to answer. `None`: primaries are fixed, and none
    /// is asked for.
    pub leases: Option<LeaseSettings>,
    /// How often, and how fast, everything that is stored is read and checked.
    pub scrub: ScrubPace,
    /// How parts of long values are looked for that no head names.
    pub sweep: SweepPace,
    /// Planted mistakes, for the simulator.
    pub mutants: Mutants,
    /// Those of the replication.
    pub replication_mutants: argosy_replication::Mutants,
}

/// The outside world of a node.
#[derive(Clone)]
pub struct World {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What CPU is used for.
    pub ledger: Arc<Ledger>,
    /// The device's segments.
    pub store: Arc<Store>,
    /// Memory that outlives a killed process.
    pub windows: Arc<dyn WindowStore>,
    /// The way to the other servers.
    pub fabric: Arc<dyn Fabric>,
    /// Wakes the threads that do what is ready in the background.
    pub wakers: Wakers,
    /// Bytes of memory that the process has to itself, where the system tells and nothing else is in it. Asked
    /// once a second in the background.
    pub resident: fn() -> Option<u64>,
    /// Has the program's allocator look for what other threads have freed of the one that calls: called once a
    /// second by each thread that serves.
    pub trim_allocator: fn(),
}

/// A server without its threads. See the module documentation.
pub struct Node {
    me: Weak<Self>,
    id: ServerId,
    settings: NodeSettings,
    world: World,
    /// Who stores and who serves each region.
    views: Views,
    links: Links,
    /// The regions that this server is a member of.
    regions: Regions,
    requests: Requests,
    /// The time of the last step or flush, in nanoseconds: near enough for deadlines.
    now: AtomicU64,
    /// What all regions share of it.
    memory: Memory,
    telling: Telling,
    device_care: DeviceCare,
}

impl Node {
    /// Opens server `id` of `map`: recovers its copy of every region that it is a member of. It
    /// serves nothing before it is stepped.
    ///
    /// A region whose copy is damaged does not keep the others from opening.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// When `map` does not name the server.
    pub fn open(
        id: ServerId,
        settings: NodeSettings,
        world: World,
        map: ClusterMap,
    ) -> Result<Arc<Self>, OpenError> {
        assert!(map.server(id).is_some(), "{id} is in the region map");
        let resident = (world.resident)();
        let engine = settings.engine.start();
        let memory = Memory::new(engine, resident, &settings);
        let links = Links::open(id, &settings, &world, &map)?;
        let answers = Arc::new(Allowance::new(settings.memory.answers));
        let scrub = scrubbing::pace_of_each(settings.scrub, &map, id);
        let opener = Opener {
            permits: memory.permits(),
            id,
            map: &map,
            settings: &settings,
            world: &world,
            engine: memory.engine(),
        };
        let Opened { drivers, set_aside } = opener.open()?;
        let wanted = Wanted {
            steppers: Steppers::of(&world, drivers.keys().copied()),
            dirty: Arc::default(),
            active: Arc::default(),
        };
        let regions = drivers.into_iter().map(|(region, driver)| {
            let care = Care {
                server: id,
                dirty: Arc::clone(&wanted.dirty),
                active: Arc::clone(&wanted.active),
                place: world.ledger.place_of(region),
                scrub,
                sweep: settings.sweep,
            };
            let region = map.region(region).expect("it is in the map");
            let clock = Arc::clone(&world.clock);
            let gate = Gate::new(clock, map.durability(), settings.mutants);
            let region = Region::new(region, driver, care, gate, &answers);
            region.active().raise();
            (region.id(), Arc::new(region))
        });
        let regions = Regions::new(regions.collect(), wanted);
        remove_orphans(&map, &world)?;
        let opened = world.clock.now();
        let node = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            id,
            settings,
            world,
            views: Views::new(map),
            links,
            regions,
            requests: Requests::new(answers),
            now: AtomicU64::new(opened.as_nanos()),
            memory,
            telling: Telling::new(opened),
            device_care: DeviceCare::new(set_aside),
        });
        node.context().begin_leases();
        Ok(node)
    }

    /// The server's name.
    #[must_use]
    pub const fn id(&self) -> ServerId {
        self.id
    }

    /// Time.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.world.clock
    }

    /// The number of this start of the server.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.world.store.incarnation()
    }

    /// Gives up the leases that this server holds, and grants none any more. Returns whether it owes nothing: whoever
    /// was promised a lease has given it up, or that has run out. It shows nothing of regions with several members from
    /// now on.
    #[must_use]
    pub fn end_leases(&self) -> bool {
        self.context().end_leases() == LastStop::Clean
    }

    /// Whether another server knows of a newer region map than this one, asked once: then it is to be read.
    #[must_use]
    pub fn take_map_wanted(&self) -> bool {
        self.links.leases().take_map_wanted()
    }

    /// Makes everything durable that was written here. The node takes no more writes, and its leases have ended. False
    /// where a log could not be flushed: then only the windows have its end.
    pub fn close(&self) -> bool {
        self.context().record_stop();
        let mut durable = true;
        for region in self.regions.iter() {
            if let Some(engine) = engine_of(region)
                && let Err(error) = engine.close()
            {
                tracing::error!(region = region.id().0, %error, "the log could not be flushed");
                durable = false;
            }
        }
        if let Err(error) = self.world.store.finish_changes() {
            tracing::warn!(%error, "one copy of the catalog may be older than the other: the next start mends it");
        }
        durable
    }

    /// The part of the memory of Redis clients that the cache has while they do not take it.
    pub(crate) fn lent_by_clients(&self) -> &Arc<Lent> {
        self.memory.lent_by_clients()
    }

    /// The same of native clients.
    pub(crate) fn lent_by_native(&self) -> &Arc<Lent> {
        self.memory.lent_by_native()
    }

    /// From now on tells of `front` in `INFO`, and `front` of the region map.
    pub(crate) fn set_native(&self, front: Arc<native::Front>) {
        self.telling.set_native(Arc::clone(&front));
        // It may have been replaced since the front end was made, and may be once more just now.
        loop {
            let map = self.views.to_map();
            front.set_map(&map);
            if Arc::ptr_eq(&map, &self.views.to_map()) {
                break;
            }
        }
    }

    /// From now on hands what other servers ask for and needs the device to the workers of `tasks`.
    pub fn set_tasks(&self, tasks: Arc<Tasks>) {
        let fabric = Arc::clone(&self.world.fabric);
        self.requests.set_tasks(tasks, self.id, fabric);
    }

    /// Where reads go that need the device, if there are workers.
    pub(crate) fn tasks(&self) -> Option<&Arc<Tasks>> {
        self.requests.workers().map(|workers| &workers.tasks)
    }

    /// The front end of native clients, if there is one.
    pub(crate) fn native(&self) -> Option<&Arc<native::Front>> {
        self.telling.native()
    }

    /// The region map as it is now.
    #[must_use]
    pub fn map(&self) -> Arc<ClusterMap> {
        self.views.to_map()
    }

    /// The parts, which may use each other.
    pub(crate) const fn context(&self) -> Context<'_> {
        Context {
            id: self.id,
            settings: &self.settings,
            world: &self.world,
            views: &self.views,
            links: &self.links,
            regions: &self.regions,
            requests: &self.requests,
            now: &self.now,
            memory: &self.memory,
            telling: &self.telling,
            device_care: &self.device_care,
        }
    }

    /// The link to `peer`, which the region map names.
    fn link(&self, peer: ServerId) -> MutexGuard<'_, Link> {
        self.links.to(peer)
    }

    #[cfg(test)]
    fn calls(&self) -> MutexGuard<'_, calls::Calls> {
        self.requests.calls()
    }

    /// What passes requests on to their regions.
    pub(crate) fn router(&self) -> Router<'_> {
        Router {
            context: self.context(),
            me: &self.me,
            map: self.views.map(),
        }
    }

    /// What the node tells of itself.
    #[must_use]
    pub const fn reports(&self) -> Reports<'_> {
        Reports {
            context: self.context(),
        }
    }

    /// What tests and the simulator may see of it beyond that.
    #[must_use]
    pub const fn inspect(&self) -> Inspect<'_> {
        Inspect::new(self.context())
    }

    /// Replaces who stores and who serves each region by what `map` says: see `role` and `adapting` for what becomes of
    /// this server's copies. Called by one thread at a time.
    ///
    /// # Errors
    /// [`ViewError`]; nothing has changed then.
    pub fn set_map(&self, map: impl Into<Arc<ClusterMap>>) -> Result<(), ViewError> {
        if self.settings.mutants.keep_view() {
            return Ok(());
        }
        let before = self.views.to_map();
        self.views.replace(map.into())?;
        self.context().obey(&before);
        self.routes_changed();
        let mut cut = BTreeSet::new();
        for of in self.views.map().regions() {
            if let Some(region) = self.region(of.id)
                && region.view().epoch != of.epoch
            {
                let (before, after) = (Arc::clone(&region.view()), View::of(of));
                if !before.goes_on_in(&after) {
                    let peers = self.links.peers();
                    cut.extend(peers.filter(|peer| before.connects(self.id, *peer)));
                }
                self.set_view(region, after);
            }
        }
        self.context().views_taken();
        // What is on its way between them, they do not take any more.
        for peer in cut {
            self.link(peer).reset("a region has another primary");
        }
        self.world.fabric.notify(self.id);
        Ok(())
    }

    /// Whether the copies of all regions have taken the places that the map gives them.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.regions.iter().all(|region| region.is_seated())
    }

    /// Keeps copies that have not taken their places from doing so before `at`: if this server is gone by then, nobody
    /// needs what they do for that. They show nothing meanwhile.
    pub fn put_off_places(&self, at: Instant) {
        let regions = self.regions.iter();
        let waiting = regions.filter(|region| !region.is_seated());
        waiting.for_each(|region| region.adapt_again_at(at));
    }

    /// Tells those who pass requests on that the region map is another one.
    fn routes_changed(&self) {
        self.requests.map_changed(&self.context());
        if let Some(front) = self.native() {
            front.set_map(&self.views.map());
        }
    }

    /// What the master has to know of this server's regions. What names the server's start and the map is the caller's
    /// to fill in.
    #[must_use]
    pub fn report_to_master(&self, now: Instant) -> ServerReport {
        to_master::report(&self.context(), now)
    }

    /// How often regions have done something; [`report_to_master`](Self::report_to_master) says the same while that
    /// stays, and all peers are heard, but for what takes seconds.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.regions.moves()
    }

    /// Whether all other servers are reached, and have been heard of lately.
    #[must_use]
    pub fn hears_all(&self, now: Instant) -> bool {
        let hears = |peer: ServerId| {
            let link = self.link(peer);
            link.is_open() && !link.is_quiet(now)
        };
        self.links.peers().all(hears)
    }

    /// Servers that have shown no sign of life for long.
    #[must_use]
    pub fn unreachable(&self, now: Instant) -> BTreeSet<ServerId> {
        // They may not have started yet.
        match self.reports().has_just_started(now) {
            true => BTreeSet::new(),
            false => to_master::unreachable(&self.context(), now),
        }
    }

    fn set_view(&self, region: &Region, view: View) {
        region.set_view(view);
        self.context().set_gate(region);
        self.context().wake(region.id());
    }

    fn region(&self, id: RegionId) -> Option<&Arc<Region>> {
        self.regions.get(id)
    }
}

#[cfg(test)]
mod bad_wire;
#[cfg(test)]
mod calls_tests;
#[cfg(test)]
mod connecting_tests;
#[cfg(test)]
mod copies_tests;
#[cfg(test)]
mod damaged_tests;
#[cfg(test)]
mod deadline_tests;
#[cfg(test)]
mod failover_tests;
#[cfg(test)]
mod gate_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod idle_tests;
#[cfg(test)]
mod leasing_tests;
#[cfg(test)]
mod leaving_tests;
#[cfg(test)]
mod parts_tests;
#[cfg(test)]
mod peers_calls_tests;
#[cfg(test)]
mod planted_tests;
#[cfg(test)]
mod readers_tests;
#[cfg(test)]
mod resting_tests;
#[cfg(test)]
mod returning_tests;
#[cfg(test)]
mod slow_member_tests;
#[cfg(test)]
mod views_tests;
