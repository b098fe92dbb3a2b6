//! `argosy server`: one region server, until a signal comes.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{LogKind, SEGMENT_SIZE, ServerId};
use argosy_bench::clock::ProcessClock;
use argosy_coordinator::ClusterMap;
use argosy_server::node::{FETCH_SLOTS, LinkSettings, NodeSettings, SHIP_SLOTS};
use argosy_server::runtime::{Server, ServerOptions};
use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::cli::log_to_stderr;
use crate::cluster::layout::read_map;
use crate::cluster::lock::DirLock;
use crate::config::ServerConfig;
use crate::failure::{Failure, chain};
use crate::signals::Signals;
use crate::units::Size;

/// Bytes of the message ring in each direction between two servers: four times the longest
/// message, which is a batch.
const RING_BYTES: usize = 8 << 20;
/// Segments that are kept for manifests, and for compactions that free more than they take.
const RESERVE_SEGMENTS: u32 = 8;
/// The smallest memtable.
const L0_BYTES_MIN: usize = 64 << 10;
/// The smallest cache.
const CACHE_BYTES_MIN: usize = 8 << 20;
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
pub struct ServerArgs {
    /// The configuration, as `argosy playground` writes it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Stop when this process, which is the parent, ends
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

impl ServerArgs {
    /// Runs until a signal comes.
    pub fn run(self) -> Result<(), Failure> {
        self.bind_to_parent()?;
        let config = ServerConfig::load(&self.config)?;
        log_to_stderr(&config.log.level);
        let signals = Signals::catch()
            .map_err(|error| Failure::Failed(format!("cannot catch signals: {error}")))?;
        let dir = &config.server.data_dir;
        std::fs::create_dir_all(dir).map_err(|error| Failure::io("make", dir, &error))?;
        let _lock = DirLock::take(dir)?;
        serve(&config, &signals)
    }

    /// Asks the kernel to stop this process when its parent ends.
    fn bind_to_parent(&self) -> Result<(), Failure> {
        let Some(parent) = self.parent else {
            return Ok(());
        };
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| Failure::Failed(format!("cannot watch the parent: {error}")))?;
        // It may have ended before the kernel was asked.
        if getppid() != Pid::from_raw(parent) {
            return Err(Failure::Failed(format!("the parent {parent} has ended")));
        }
        Ok(())
    }
}

/// Serves until a signal comes.
fn serve(config: &ServerConfig, signals: &Signals) -> Result<(), Failure> {
    let id = ServerId(config.server.id);
    let coordinator = &config.coordinator.dir;
    let map = read_map(coordinator)?.ok_or_else(|| {
        Failure::Config(format!("{}: there is no region map", coordinator.display()))
    })?;
    if map.server(id).is_none() {
        let where_ = coordinator.display();
        return Err(Failure::Config(format!(
            "{where_}: the region map does not name {id}"
        )));
    }
    let node = node_settings(config, &map)?;
    let options = ServerOptions {
        id,
        device: config.server.data_dir.join("device"),
        device_bytes: config.storage.device_bytes.0,
        device_id: map.cluster().0 ^ u128::from(id.0),
        shared_memory: config.fabric.shm_dir.clone(),
        reserve_segments: RESERVE_SEGMENTS,
        node,
        resp: bind(config.resp.addr)?,
        resp_threads: NonZeroUsize::MIN,
        admin: bind(config.admin.addr)?,
        spin: SPIN,
        clock: Arc::new(ProcessClock),
        map,
    };
    let server = Server::start(options).map_err(|error| Failure::Failed(chain(&error)))?;
    tracing::info!(resp = %config.resp.addr, admin = %config.admin.addr, "server: started");
    signals
        .wait()
        .map_err(|error| Failure::Failed(format!("cannot wait for signals: {error}")))?;
    tracing::info!("server: stopping");
    if server.stop() {
        Ok(())
    } else {
        Err(Failure::Failed(
            "not every log could be flushed; shared memory has what is missing".to_owned(),
        ))
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address)
        .map_err(|error| Failure::Failed(format!("cannot listen on {address}: {error}")))
}

/// Divides the memory that the server may use.
fn node_settings(config: &ServerConfig, map: &ClusterMap) -> Result<NodeSettings, Failure> {
    let id = ServerId(config.server.id);
    let primaries = map
        .regions()
        .iter()
        .filter(|region| region.primary == id)
        .count()
        .max(1);
    let regions = map
        .regions()
        .iter()
        .filter(|region| region.members.contains(&id))
        .count();
    let peers = map.servers().len() - 1;
    let mut engine = argosy_lsm::Settings {
        // All memtables of this server share what it was given.
        l0_bytes: (config.storage.l0_bytes.bytes() / primaries).max(L0_BYTES_MIN),
        placement: config.storage.placement.engine(),
        growth_factor: config.storage.growth_factor,
        node_bytes: config.storage.node_bytes.bytes(),
        flush_interval: config.storage.flush_interval.0,
        ..argosy_lsm::Settings::default()
    };
    let link = LinkSettings {
        ring_bytes: RING_BYTES,
        slot_bytes: SEGMENT_SIZE,
    };
    let slots = usize::from(SHIP_SLOTS + FETCH_SLOTS);
    let taken = primaries * engine.l0_bytes * engine.memtables_max
        + regions * LogKind::ALL.len() * engine.window_slots * engine.window_bytes
        + peers * (link.ring_bytes + slots * link.slot_bytes);
    let limit = config.memory.limit.bytes();
    engine.cache_bytes = limit.saturating_sub(taken);
    if engine.cache_bytes < CACHE_BYTES_MIN {
        return Err(Failure::Config(format!(
            "memory.limit = {} leaves no room for a cache: memtables, log windows and message \
             rings take {}; raise it to {} or lower storage.l0-bytes",
            config.memory.limit,
            Size(taken as u64),
            Size((taken + CACHE_BYTES_MIN) as u64),
        )));
    }
    engine
        .validate()
        .map_err(|error| Failure::Config(format!("storage: {error}")))?;
    Ok(NodeSettings {
        engine,
        link,
        deadline: config.replication.deadline.0,
        mutants: Default::default(),
    })
}
