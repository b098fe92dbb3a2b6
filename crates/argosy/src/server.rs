//! `argosy server`: one region server, until a signal comes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{Clock, ServerId};
use argosy_coordinator::{ClusterMap, Coordinator};
use argosy_device::{SystemClock, random};
use argosy_master::{Master, MasterRole, MasterTimes, PlanSettings};
use argosy_memory::make_directory;
use argosy_server::membership::{Leaver, Membership, MembershipTimes};
use argosy_server::runtime::{
    ClusterStep, DeviceOptions, RunningServer, ServerOptions, Sockets, StartError, ThreadOptions,
};
use clap::Args;
use rustix::event::Timespec;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::budget::{Divided, node_settings};
use crate::cli::log_to_stderr;
use crate::cluster::layout::{self, read_map, record_device};
use crate::cluster::lock::DirLock;
use crate::config::ServerConfig;
use crate::engines::Settings;
use crate::failure::{CommandFailure, chain};
use crate::frugal;
use crate::open_files;
use crate::signals::Signals;
use crate::sparse::{DEVICE, SparseFile};
use crate::units::Size;

/// Threads that serve Redis clients.
pub(crate) const RESP_THREADS: NonZeroUsize = NonZeroUsize::MIN;
/// How long a server that stops waits for others to lead its regions.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How often it looks whether they do.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};
/// How long the fabric's thread looks for work before it parks.
const SPIN: Duration = Duration::from_micros(20);

/// Run one region server
///
/// Serves until SIGTERM or SIGINT, then flushes and stops. A second signal ends it at once, which
/// loses nothing that was acknowledged.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  argosy server --config ./data/server-0/argosy.toml\n  \
    ARGOSY_LOG=debug argosy server --config /etc/argosy/argosy.toml"
)]
pub(crate) struct ServerArgs {
    /// The configuration, as `argosy playground` writes it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// A value that goes before those of environment and file
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Make this server's device where there is none, or take the one that is there in place of the one that
    /// the region map names
    #[arg(long)]
    new_device: bool,
    /// Stop when this process, which is the parent, ends
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

impl ServerArgs {
    /// Runs until a signal comes.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        self.bind_to_parent()?;
        let config = ServerConfig::load_with(&self.config, &self.set)?;
        log_to_stderr(&config.log.level, config.log.format);
        frugal::decide(config.memory.limit.0);
        let signals = Signals::catch()
            .map_err(|error| CommandFailure::Failed(format!("cannot catch signals: {error}")))?;
        let dir = &config.server.data_dir;
        make_directory(dir).map_err(|error| CommandFailure::io("make", dir, &error))?;
        let lock = DirLock::take(dir)?;
        serve(&config, self.new_device, &signals)?;
        lock.ended_well();
        Ok(())
    }

    /// Asks the kernel to stop this process when its parent ends.
    fn bind_to_parent(&self) -> Result<(), CommandFailure> {
        let Some(parent) = self.parent else {
            return Ok(());
        };
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| CommandFailure::Failed(format!("cannot watch the parent: {error}")))?;
        // It may have ended before the kernel was asked.
        if getppid() != Pid::from_raw(parent) {
            return Err(CommandFailure::Failed(format!(
                "the parent {parent} has ended"
            )));
        }
        Ok(())
    }
}

/// What of the cluster moves on this server: its part in it, and a master that waits to be elected.
struct ClusterParts {
    steps: Vec<ClusterStep>,
    way_out: WayOut,
}

/// How a server leaves its cluster when it stops.
#[derive(Clone)]
struct WayOut {
    leaver: Leaver,
    /// The master of this server has given its office up, or will never have it.
    has_resigned: Arc<AtomicBool>,
}

impl WayOut {
    fn is_done(&self) -> bool {
        self.leaver.has_left() && self.has_resigned.load(Ordering::Acquire)
    }
}

/// What of the cluster is to move on `server`.
fn cluster_parts(
    config: &ServerConfig,
    server: &RunningServer,
) -> Result<ClusterParts, CommandFailure> {
    let of = &config.failover;
    let node = server.node();
    let open = || -> Result<Box<dyn Coordinator>, CommandFailure> {
        Ok(Box::new(layout::open(&config.coordinator.dir)?))
    };
    let times = MembershipTimes {
        session_timeout: of.session_timeout.0,
        ..MembershipTimes::default()
    };
    let refused = |error| CommandFailure::Failed(format!("cannot watch the region map: {error}"));
    let mut membership =
        Membership::new(open()?, Arc::clone(node), node.incarnation(), times).map_err(refused)?;
    let way_out = WayOut {
        leaver: membership.leaver(),
        has_resigned: Arc::default(),
    };
    let of_master = way_out.clone();
    let plan = PlanSettings {
        min_copies: of.min_copies,
        replace_after: of.replace_after.0,
        ..PlanSettings::default()
    };
    let times = MasterTimes {
        session_timeout: of.session_timeout.0,
        ..MasterTimes::default()
    };
    let now = SystemClock.now();
    let mut master = Master::new(open()?, node.id(), plan, times, now);
    let mut leads = false;
    let steps: Vec<ClusterStep> = vec![
        Box::new(move |now| membership.step(now)),
        Box::new(move |now| {
            // It may be needed until others lead this server's regions, and then another is to be elected at once.
            if of_master.leaver.has_left() {
                master.resign();
            }
            let next = master.step(now);
            if leads != (master.role() == MasterRole::Leading) {
                leads = !leads;
                tracing::info!("master: {}", if leads { "elected" } else { "not any more" });
            }
            let resigned = master.role() == MasterRole::Resigned && next.is_none();
            of_master.has_resigned.store(resigned, Ordering::Release);
            for step in master.take_steps() {
                tracing::info!(?step, "master");
            }
            next.unwrap_or(now + Duration::from_millis(25))
        }),
    ];
    Ok(ClusterParts { steps, way_out })
}

/// Says that the server is about to stop, and waits until others lead its regions, or until it has waited for long
/// enough.
fn leave(way_out: &WayOut, clock: &dyn Clock, signals: &Signals) -> io::Result<()> {
    way_out.leaver.leave();
    let until = clock.now() + LEAVE_WITHIN;
    while !way_out.is_done() && clock.now() < until {
        // A second signal ends the process.
        signals.wait_or(&[], Some(LOOK_EVERY))?;
    }
    match way_out.leaver.has_left() {
        true => tracing::info!("server: others have its regions"),
        false => tracing::warn!("server: it is a member of groups still, and stops all the same"),
    }
    Ok(())
}

/// Serves until a signal comes.
fn serve(config: &ServerConfig, new_device: bool, signals: &Signals) -> Result<(), CommandFailure> {
    let id = ServerId(config.server.id);
    let coordinator = &config.coordinator.dir;
    let map = read_map(coordinator)?.ok_or_else(|| {
        CommandFailure::Config(format!("{}: there is no region map", coordinator.display()))
    })?;
    if map.server(id).is_none() {
        let where_ = coordinator.display();
        return Err(CommandFailure::Config(format!(
            "{where_}: the region map does not name {id}"
        )));
    }
    let Divided { node, engine } = node_settings(config, &map, RESP_THREADS.get())?;
    let mut coordinator = layout::open(coordinator)?;
    let clients = open_files::clients_max(map.regions().len());
    let options = ServerOptions {
        id,
        device: DeviceOptions {
            path: config.server.data_dir.join(DEVICE),
            is_new: new_device,
            record: Box::new(move |device| record_device(&mut coordinator, id, device)),
            bytes: config.storage.device_bytes.0,
            id: random::number().map_err(CommandFailure::no_random)?,
            reserve_segments: reserve_segments(config, &map, &engine)?,
        },
        random: random::number().map_err(CommandFailure::no_random)?,
        shared_memory: config.fabric.shm_dir.clone(),
        node,
        sockets: Sockets {
            resp: bind(config.resp.addr)?,
            admin: bind(config.admin.addr)?,
            admin_hosts: config.admin.allowed(),
        },
        policy: config.resp.policy(clients.connections),
        threads: threads(config, clients.native),
        clock: Arc::new(SystemClock),
        map,
    };
    let mut server = RunningServer::start(options).map_err(refused)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut way_out = None;
    if config.failover.enabled {
        let parts = cluster_parts(config, &server)?;
        server.start_cluster(&clock, parts.steps).map_err(refused)?;
        way_out = Some(parts.way_out);
    }
    say_started(config);
    let unheard = |error| CommandFailure::Failed(format!("cannot wait for signals: {error}"));
    signals.wait().map_err(unheard)?;
    tracing::info!("server: stopping");
    if let Some(way_out) = way_out {
        leave(&way_out, &*clock, signals).map_err(unheard)?;
    }
    if server.stop() {
        Ok(())
    } else {
        Err(CommandFailure::Failed(
            "not every log could be flushed; shared memory has what is missing".to_owned(),
        ))
    }
}

/// The threads of a server that serves so many native clients.
fn threads(config: &ServerConfig, native_clients: usize) -> ThreadOptions {
    ThreadOptions {
        resp: RESP_THREADS,
        native: config.native.threads,
        native_spin: config.native.spin.0,
        native_clients,
        workers: config.native.workers,
        tasks_max: config.native.queue,
        steppers: config.storage.background_threads,
        spin: SPIN,
        trim_allocator: frugal::trim_allocator,
    }
}

/// Says where the server listens, and that its device is sparse.
fn say_started(config: &ServerConfig) {
    let file = SparseFile::at(&config.server.data_dir.join(DEVICE));
    let device = file.map_or_else(|| "not sparse".to_owned(), |file| file.to_string());
    tracing::info!(resp = %config.resp.addr, admin = %config.admin.addr, device, "server: started");
}

/// Why a server did not start. That its device is not the one of the region map has an exit code of its own.
#[expect(clippy::needless_pass_by_value, reason = "errors are mapped to it")]
fn refused(error: StartError) -> CommandFailure {
    match error {
        StartError::NotItsDevice { .. } => CommandFailure::NotFound(chain(&error)),
        _ => CommandFailure::Failed(chain(&error)),
    }
}

/// Segments that the device keeps from writers, so that a full one can be emptied.
fn reserve_segments(
    config: &ServerConfig,
    map: &ClusterMap,
    engine: &Settings,
) -> Result<u32, CommandFailure> {
    let id = ServerId(config.server.id);
    let regions = map.regions().iter();
    let regions = regions
        .filter(|region| region.members.contains(&id))
        .count();
    let reserve = engine.reserve_segments(regions);
    // Half of the device for what there has to be besides: superblock, manifests, logs, data.
    let least = 2 * u64::from(reserve) * SEGMENT_SIZE as u64;
    if config.storage.device_bytes.0 < least {
        return Err(CommandFailure::Config(format!(
            "storage.device-bytes = {} is too small for {regions} regions with memtables of {}: {} \
             of it are kept so that deletes and compactions go on when it is full; raise it to {} \
             or lower storage.l0-bytes",
            config.storage.device_bytes,
            Size(engine.memtables.bytes as u64),
            Size(least / 2),
            Size(least),
        )));
    }
    Ok(reserve)
}

fn bind(address: SocketAddr) -> Result<TcpListener, CommandFailure> {
    TcpListener::bind(address)
        .map_err(|error| CommandFailure::Failed(format!("cannot listen on {address}: {error}")))
}
