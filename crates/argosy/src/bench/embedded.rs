//! Stores in the bench's own process: ours, and its peers beside it.
//!
//! Each store gets an empty directory on the same device and the same memory: what `--memory` says
//! is memtables and cache together; with `--budget`, of ours, all that there is. How it is divided is each store's
//! custom, and printed. A peer
//! is compiled in with the feature `peers` only.

#[cfg(feature = "peers")]
use argosy_bench::embedded as beside;
use argosy_bench::embedded::{EmbeddedOptions, lsm};
use argosy_bench::report::Row;
use argosy_device::buffer::{keep_at_most, share_of};
#[cfg(feature = "peers")]
use argosy_peers::{bf_tree, fjall, rocksdb};
use clap::ValueEnum;

use super::{Bench, Running, Stage, System, collect};
use crate::cluster::scratch::{ScratchDir, shared_memory_root};
use crate::engines::{self, Settings};
use crate::failure::CommandFailure;
use crate::frugal;
use crate::units::Size;

/// Least cache of an engine in this process.
const CACHE_BYTES_MIN: usize = 1 << 20;

/// A store that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Peer {
    /// RocksDB, Debian's library.
    Rocksdb,
    /// fjall, a crate.
    Fjall,
    /// Bf-Tree, a crate.
    BfTree,
}

impl Peer {
    /// As it is called in rows.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rocksdb => "rocksdb",
            Self::Fjall => "fjall",
            Self::BfTree => "bf-tree",
        }
    }

    /// Whether this program has it.
    pub(super) fn check(self) -> Result<(), CommandFailure> {
        if cfg!(feature = "peers") {
            return Ok(());
        }
        Err(CommandFailure::Usage(format!(
            "--peer {0}: this program was built without peers; `make bench-peers PEER={0}` installs \
             their libraries, builds one that has them, and runs `argosy bench --embedded --peer {0} \
             $ARGS`",
            self.name()
        )))
    }
}

/// What a peer is told; prints itself.
#[cfg(feature = "peers")]
enum PeerSettings {
    Rocksdb(rocksdb::RocksDbSettings),
    Fjall(fjall::FjallSettings),
    BfTree(bf_tree::BfTreeSettings),
}

#[cfg(feature = "peers")]
impl std::fmt::Display for PeerSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rocksdb(settings) => settings.fmt(f),
            Self::Fjall(settings) => settings.fmt(f),
            Self::BfTree(settings) => settings.fmt(f),
        }
    }
}

impl Bench {
    /// What our engine is told.
    fn engine_settings(&self, system: &System) -> Settings {
        let l0_bytes = self.engine.l0_bytes().bytes();
        let mut settings = Settings::default().with(|of| {
            of.memtables.bytes = l0_bytes;
            of.values.placement = engines::placement(system.placement);
            of.layout.addresses = system.addresses;
            of.levels.growth_factor = self.engine.growth_factor;
            of.values.medium_log_percent = self.medium_log_percent();
            of.layout.node_bytes = self.engine.node_bytes.bytes();
            of.values.large_bytes = self.engine.large_bytes.bytes();
            of.levels.compaction = engines::compaction(system.compaction);
        });
        let memory = self.engine.memory.bytes();
        if self.engine.budget {
            settings.divide(memory, share_of(memory));
        } else {
            let memtables = settings.memtables.count_max.saturating_mul(l0_bytes);
            settings.cache_bytes = memory.saturating_sub(memtables);
        }
        settings.cache_bytes = settings.cache_bytes.max(CACHE_BYTES_MIN);
        settings
    }

    /// What a peer is told.
    #[cfg(feature = "peers")]
    fn peer_settings(&self, peer: Peer) -> PeerSettings {
        let (memory, buffer) = (self.engine.memory.bytes(), self.engine.l0_bytes().bytes());
        match peer {
            Peer::Rocksdb => PeerSettings::Rocksdb(rocksdb::RocksDbSettings {
                sync: self.engine.sync,
                ..rocksdb::RocksDbSettings::within(memory, buffer)
            }),
            Peer::Fjall => PeerSettings::Fjall(fjall::FjallSettings::within(memory, buffer)),
            Peer::BfTree => PeerSettings::BfTree(bf_tree::BfTreeSettings::within(memory)),
        }
    }

    /// The options of `system`, in its own words.
    pub(super) fn embedded_options(&self, system: &System) -> String {
        match system.peer {
            None => {
                let settings = self.engine_settings(system);
                format!(
                    "l0_bytes={} memtables_max={} cache_bytes={} growth_factor={} \
                     medium_log_percent={} node_bytes={} large_bytes={} \
                     placement={} compaction={} direct I/O, no compression, log synced {}",
                    settings.memtables.bytes,
                    settings.memtables.count_max,
                    settings.cache_bytes,
                    settings.levels.growth_factor,
                    settings.values.medium_log_percent,
                    settings.layout.node_bytes,
                    settings.values.large_bytes,
                    system.placement.name(),
                    system.compaction.name(),
                    if self.engine.sync {
                        "before a write is answered".to_owned()
                    } else {
                        format!(
                            "every {} ms and at the end",
                            settings.logs.flush_interval.as_millis()
                        )
                    },
                )
            }
            #[cfg(feature = "peers")]
            Some(peer) => self.peer_settings(peer).to_string(),
            #[cfg(not(feature = "peers"))]
            Some(_) => String::new(),
        }
    }

    pub(super) fn measure_embedded(
        &self,
        system: &System,
        running: &Running,
    ) -> Result<Vec<Row>, CommandFailure> {
        match system.peer {
            None => self.measure_engine(system, running),
            Some(peer) => self.measure_peer(peer, system, running),
        }
    }

    fn measure_engine(
        &self,
        system: &System,
        running: &Running,
    ) -> Result<Vec<Row>, CommandFailure> {
        let root = self.root();
        let data = ScratchDir::new(&root)?;
        let windows = ScratchDir::new(&shared_memory_root(&root))?;
        let settings = self.engine_settings(system);
        settings
            .validate()
            .map_err(|error| CommandFailure::Usage(error.to_string()))?;
        if self.engine.budget {
            let (memory, cache) = (self.engine.memory, settings.cache_bytes);
            if cache < settings.memtables.bytes.saturating_mul(17) / 16 {
                let least = settings.clone().divide(0, share_of(memory.bytes()))
                    + 2 * settings.memtables.bytes;
                return Err(CommandFailure::Usage(format!(
                    "--memory {memory} is too small a budget for memtables of {}: set it to {} or more, or \
                     lower --l0-bytes",
                    self.engine.l0_bytes(),
                    Size(least as u64),
                )));
            }
            keep_at_most(share_of(memory.bytes()));
        }
        let embedded = EmbeddedOptions {
            dir: data.path().to_path_buf(),
            windows: windows.path().join("windows"),
            device_bytes: self.engine.device_bytes.0,
            settings,
            budget: self.engine.budget.then(|| self.engine.memory.bytes()),
            sync: self.engine.sync,
            trim_allocator: frugal::trim_allocator,
        };
        running.begin(Stage::Embedded(vec![data, windows]))?;
        let rows = collect(|tell| lsm::run(&embedded, &self.configuration(system), tell));
        running.end();
        rows
    }

    #[cfg(feature = "peers")]
    fn measure_peer(
        &self,
        peer: Peer,
        system: &System,
        running: &Running,
    ) -> Result<Vec<Row>, CommandFailure> {
        let data = ScratchDir::new(&self.root())?;
        let dir = data.path().to_path_buf();
        let (settings, config) = (self.peer_settings(peer), self.configuration(system));
        running.begin(Stage::Embedded(vec![data]))?;
        let rows = collect(|tell| match &settings {
            PeerSettings::Rocksdb(settings) => beside::rocksdb::run(&dir, settings, &config, tell),
            PeerSettings::Fjall(settings) => beside::fjall::run(&dir, settings, &config, tell),
            PeerSettings::BfTree(settings) => beside::bf_tree::run(&dir, settings, &config, tell),
        });
        running.end();
        rows
    }

    #[cfg(not(feature = "peers"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    fn measure_peer(
        &self,
        peer: Peer,
        _: &System,
        _: &Running,
    ) -> Result<Vec<Row>, CommandFailure> {
        peer.check().map(|()| Vec::new())
    }
}
