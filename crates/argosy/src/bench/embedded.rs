//! Stores in the bench's own process: ours, and its peers beside it.
//!
//! Each store gets an empty directory on the same device and the same memory: what `--memory` says
//! is memtables and cache together. How it is divided is each store's custom, and printed. A peer
//! is compiled in with the feature `peers` only.

use argosy_bench::embedded::{Embedded, lsm};
use argosy_bench::report::Row;
use clap::ValueEnum;

use super::{Bench, Running, Stage, System, collect};
use crate::cluster::scratch::{Scratch, shared_memory_root};
use crate::failure::Failure;

/// Least cache of an engine in this process.
const CACHE_BYTES_MIN: usize = 1 << 20;

/// A store that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Peer {
    /// RocksDB, Debian's library.
    Rocksdb,
}

impl Peer {
    /// As it is called in rows.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rocksdb => "rocksdb",
        }
    }

    /// Whether this program has it.
    pub(super) fn check(self) -> Result<(), Failure> {
        if cfg!(feature = "peers") {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "--peer {}: this program was built without peers; `make bench-peers` installs their \
             libraries, builds one that has them, and runs `argosy bench --embedded --peer \
             rocksdb $ARGS`",
            self.name()
        )))
    }
}

impl Bench {
    /// What our engine is told.
    fn engine_settings(&self, system: &System) -> argosy_lsm::Settings {
        let default = argosy_lsm::Settings::default();
        let l0_bytes = self.l0_bytes().bytes();
        let memtables = default.memtables_max.saturating_mul(l0_bytes);
        let cache_bytes = self.memory.bytes().saturating_sub(memtables);
        argosy_lsm::Settings {
            l0_bytes,
            cache_bytes: cache_bytes.max(CACHE_BYTES_MIN),
            placement: system.placement.engine(),
            addresses: system.addresses,
            growth_factor: self.growth_factor,
            medium_log_percent: self.medium_log_percent(),
            compaction: system.compaction.engine(),
            ..default
        }
    }

    /// What a peer is told.
    #[cfg(feature = "peers")]
    fn rocksdb_settings(&self) -> argosy_peers::rocksdb::Settings {
        let (memory, buffer) = (self.memory.bytes(), self.l0_bytes().bytes());
        argosy_peers::rocksdb::Settings::within(memory, buffer)
    }

    /// The options of `system`, in its own words.
    pub(super) fn embedded_options(&self, system: &System) -> String {
        match system.peer {
            None => {
                let settings = self.engine_settings(system);
                format!(
                    "l0_bytes={} memtables_max={} cache_bytes={} growth_factor={} \
                     medium_log_percent={} node_bytes={} \
                     placement={} compaction={} direct I/O, no compression, log synced every {} ms and at the end",
                    settings.l0_bytes,
                    settings.memtables_max,
                    settings.cache_bytes,
                    settings.growth_factor,
                    settings.medium_log_percent,
                    settings.node_bytes,
                    system.placement.name(),
                    system.compaction.name(),
                    settings.flush_interval.as_millis(),
                )
            }
            #[cfg(feature = "peers")]
            Some(Peer::Rocksdb) => self.rocksdb_settings().to_string(),
            #[cfg(not(feature = "peers"))]
            Some(Peer::Rocksdb) => String::new(),
        }
    }

    pub(super) fn measure_embedded(
        &self,
        system: &System,
        running: &Running,
    ) -> Result<Vec<Row>, Failure> {
        match system.peer {
            None => self.measure_engine(system, running),
            Some(peer) => self.measure_peer(peer, system, running),
        }
    }

    fn measure_engine(&self, system: &System, running: &Running) -> Result<Vec<Row>, Failure> {
        let root = self.root();
        let data = Scratch::new(&root)?;
        let windows = Scratch::new(&shared_memory_root(&root))?;
        let settings = self.engine_settings(system);
        settings
            .validate()
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let embedded = Embedded {
            dir: data.path().to_path_buf(),
            windows: windows.path().join("windows"),
            device_bytes: self.device_bytes.0,
            settings,
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
    ) -> Result<Vec<Row>, Failure> {
        let Peer::Rocksdb = peer;
        let data = Scratch::new(&self.root())?;
        let dir = data.path().join("rocksdb");
        let (settings, config) = (self.rocksdb_settings(), self.configuration(system));
        running.begin(Stage::Embedded(vec![data]))?;
        let rows =
            collect(|tell| argosy_bench::embedded::rocksdb::run(&dir, &settings, &config, tell));
        running.end();
        rows
    }

    #[cfg(not(feature = "peers"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    fn measure_peer(&self, peer: Peer, _: &System, _: &Running) -> Result<Vec<Row>, Failure> {
        peer.check().map(|()| Vec::new())
    }
}
