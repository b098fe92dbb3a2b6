//! A server's configuration: a TOML file, every key of which does something.
//!
//! ```toml
//! [server]
//! id = 0
//! data-dir = "."
//!
//! [resp]
//! addr = "127.0.0.1:7379"
//!
//! [coordinator]
//! dir = "../coordinator"
//! ```
//!
//! Relative paths begin at the directory of the file, so that a data directory can be moved. What
//! is left out has the default of [`ServerConfig`]; environment and flags go before the file
//! ([`layers`]). A key that is not in `KEYS` is
//! an error that names the nearest one: a misspelt key never means a default in silence.

pub(crate) mod command;
pub mod doors;
pub(crate) mod keys;
pub mod layers;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::CommandFailure;
use crate::units::{Factor, Size, TimeSpan};
pub use doors::{AdminSection, RespSection};
use keys::{KEYS, nearest};

/// Everything that a server is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServerConfig {
    /// Who this server is.
    pub server: ServerSection,
    /// The Redis protocol.
    #[serde(default)]
    pub resp: RespSection,
    /// Clients in shared memory.
    #[serde(default)]
    pub native: NativeSection,
    /// Health.
    #[serde(default)]
    pub admin: AdminSection,
    /// The region map.
    pub coordinator: CoordinatorSection,
    /// One-sided writes.
    pub fabric: FabricSection,
    /// Memory.
    #[serde(default)]
    pub memory: MemorySection,
    /// The device and the engine.
    #[serde(default)]
    pub storage: StorageSection,
    /// Copies.
    #[serde(default)]
    pub replication: ReplicationSection,
    /// What happens when servers fail.
    #[serde(default)]
    pub failover: FailoverSection,
    /// What is said on stderr.
    #[serde(default)]
    pub log: LogSection,
}

/// Who this server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServerSection {
    /// Its number in the region map.
    pub id: u32,
    /// Where its device and its lock lie.
    pub data_dir: PathBuf,
}

/// Clients in shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NativeSection {
    /// Threads that serve them; 0 for none.
    pub threads: usize,
    /// How long such a thread looks for requests before it sleeps.
    pub spin: TimeSpan,
    /// Threads that carry out what needs the device, for all clients; 0: those that read requests do.
    pub workers: usize,
    /// Most requests that wait for one of these.
    pub queue: usize,
}

impl Default for NativeSection {
    fn default() -> Self {
        Self {
            threads: 1,
            spin: TimeSpan(Duration::from_micros(20)),
            workers: cores().clamp(2, 8),
            queue: 1024,
        }
    }
}

/// Processors that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The region map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CoordinatorSection {
    /// The directory that all servers share.
    pub dir: PathBuf,
}

/// One-sided writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FabricSection {
    /// The directory under which each server keeps its shared memory; on a tmpfs.
    pub shm_dir: PathBuf,
}

/// Memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MemorySection {
    /// Everything together: memtables, caches, log windows, rings, clients. Half of what the control group or the
    /// machine has unless it is said.
    pub limit: Size,
    /// Regions, of those that a server is primary of, whose log windows have memory at one time. Others that are
    /// written to take turns with them. The same on all servers.
    pub awake_regions: NonZeroUsize,
}

impl Default for MemorySection {
    fn default() -> Self {
        // Half: the rest is for others, for the kernel, and for what comes on top of a budget.
        let half = argosy_embedded::machine::memory_bytes().map(|bytes| bytes / 2 / (1 << 20));
        Self {
            limit: Size::mib(half.unwrap_or(512)),
            awake_regions: NonZeroUsize::new(64).expect("it is not 0"),
        }
    }
}

/// Where values lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementName {
    /// Small pairs in the leaves, large ones in the large log, medium ones in the medium log until they come
    /// to the last level.
    #[default]
    Hybrid,
    /// Every value in the leaves.
    InPlace,
    /// Every value in the large log.
    Separated,
}

impl PlacementName {
    /// Its name, as it is written in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hybrid => "hybrid",
            Self::InPlace => "in-place",
            Self::Separated => "separated",
        }
    }
}

/// What a compaction takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CompactionName {
    /// A part of a level, and what it overlaps below.
    #[default]
    Partial,
    /// All of a level and of the one below it, into one tree across segments.
    WholeLevel,
}

impl CompactionName {
    /// Its name, as it is written in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Partial => "partial",
            Self::WholeLevel => "whole-level",
        }
    }
}

/// The device and the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct StorageSection {
    /// Size of the device when it is made; later it keeps its size.
    pub device_bytes: Size,
    /// Bytes of memtables before they are flushed, divided over the regions that this server keeps
    /// memtables of: those that it is primary of, and under build-index all others, too. Up to three
    /// memtables of each exist at a time.
    pub l0_bytes: Size,
    /// Divide by the regions that the server is primary of alone, so that memtables of backups come
    /// on top.
    pub l0_per_replica: bool,
    /// Where values lie.
    #[serde(flatten)]
    pub values: ValueKeys,
    /// How many times larger a level is than the one above.
    pub growth_factor: u32,
    /// What a compaction takes of a level; members may differ.
    pub compaction: CompactionName,
    /// What a region may take on the device, as a factor of what lives in it, beside a floor: beyond,
    /// garbage is collected.
    pub max_space_amplification: Factor,
    /// Bytes of a leaf; equal on all servers.
    pub node_bytes: Size,
    /// How long a write may stay off the device.
    pub flush_interval: TimeSpan,
    /// Threads that flush, merge and look after regions, each one region at a time.
    pub background_threads: NonZeroUsize,
    /// How often, and how fast, stored data is scrubbed.
    #[serde(flatten)]
    pub scrub: ScrubKeys,
}

/// The keys of [`StorageSection`] about the place of values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ValueKeys {
    /// Where they lie.
    pub placement: PlacementName,
    /// With hybrid placement: pairs of at least as many bytes are in the large log.
    pub large_bytes: Size,
    /// What the medium log of a region may take on the device, in hundredths of what its levels take,
    /// before levels are merged earlier; 0: medium pairs are in the leaves of all levels.
    pub medium_log_percent: u32,
}

impl Default for ValueKeys {
    fn default() -> Self {
        Self {
            placement: PlacementName::default(),
            large_bytes: Size(1000),
            medium_log_percent: 200,
        }
    }
}

/// The keys of [`StorageSection`] about scrubbing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubKeys {
    /// How long it takes to read everything that is stored once, to see whether it is whole; 0: it is not
    /// done.
    #[serde(rename = "scrub-period")]
    pub period: TimeSpan,
    /// Most bytes that are read for that in a second.
    #[serde(rename = "scrub-rate")]
    pub bytes_per_second_max: Size,
}

impl Default for ScrubKeys {
    fn default() -> Self {
        Self {
            period: TimeSpan(Duration::from_secs(28 * 24 * 60 * 60)),
            bytes_per_second_max: Size::mib(8),
        }
    }
}

impl Default for StorageSection {
    fn default() -> Self {
        Self {
            device_bytes: Size::mib(64 << 10),
            l0_bytes: Size::mib(32),
            l0_per_replica: false,
            values: ValueKeys::default(),
            growth_factor: 8,
            compaction: CompactionName::default(),
            max_space_amplification: Factor(150),
            node_bytes: Size(4 << 10),
            flush_interval: TimeSpan(Duration::from_secs(1)),
            background_threads: NonZeroUsize::new(cores().clamp(1, 8)).unwrap_or(NonZeroUsize::MIN),
            scrub: ScrubKeys::default(),
        }
    }
}

/// Copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ReplicationSection {
    /// How long a request waits for members or for room. Then a read is answered *unavailable*, and a
    /// write *not applied*, or *unknown* where it stands in the log.
    pub deadline: TimeSpan,
}

impl Default for ReplicationSection {
    fn default() -> Self {
        Self {
            deadline: TimeSpan(Duration::from_secs(5)),
        }
    }
}

/// What happens when servers fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct FailoverSection {
    /// Whether regions move away from servers that fail. Otherwise each waits for the servers that it has.
    pub enabled: bool,
    /// How long nothing may be heard of a server before others take it for lost.
    pub session_timeout: TimeSpan,
    /// After this time away, a member is removed from its group.
    pub remove_after: TimeSpan,
    /// How long a group has had too few members before another server is given a copy.
    pub replace_after: TimeSpan,
    /// No change leaves a group with fewer members.
    pub min_copies: usize,
    /// How long the leases last that servers grant each other.
    pub lease: TimeSpan,
    /// By how much clocks drift at most, in millionths of the time that passes.
    pub clock_drift_ppm: u32,
    /// How long, of the deadline of a request, it waits for a primary of its region that answers. Then it is answered
    /// *not applied*.
    pub wait: TimeSpan,
}

impl Default for FailoverSection {
    fn default() -> Self {
        Self {
            enabled: true,
            session_timeout: TimeSpan(Duration::from_millis(1500)),
            remove_after: TimeSpan(Duration::from_millis(500)),
            replace_after: TimeSpan(Duration::from_secs(300)),
            min_copies: 1,
            lease: TimeSpan(Duration::from_secs(1)),
            clock_drift_ppm: 1000,
            wait: TimeSpan(Duration::from_secs(5)),
        }
    }
}

/// What is said on stderr.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct LogSection {
    /// The least important kind of message to write.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

/// How lines of a log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Time, level, where, what, and fields.
    #[default]
    Text,
    /// An object of JSON each.
    Json,
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::default(),
        }
    }
}

impl ServerConfig {
    /// Reads the file at `path`; environment goes before it.
    pub fn load(path: &Path) -> Result<Self, CommandFailure> {
        Self::load_with(path, &[])
    }

    /// Reads the file at `path`; environment goes before it, and `flags` (`section.key=value`)
    /// before both.
    pub fn load_with(path: &Path, flags: &[String]) -> Result<Self, CommandFailure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            CommandFailure::Config(format!("cannot read {}: {error}", path.display()))
        })?;
        let resolved = layers::resolve(&text, environment(), flags).map_err(|complaints| {
            CommandFailure::Config(format!("{}: {}", path.display(), in_words(&complaints)))
        })?;
        let base = std::path::absolute(path)
            .map_err(|error| CommandFailure::io("find the directory of", path, &error))?;
        let base = base.parent().unwrap_or(Path::new("/"));
        Ok(resolved.config.based(base))
    }

    /// Every key with its default; those that have none with an example.
    pub fn example() -> Self {
        Self {
            server: ServerSection {
                id: 0,
                data_dir: PathBuf::from("."),
            },
            resp: RespSection::default(),
            native: NativeSection::default(),
            admin: AdminSection::default(),
            coordinator: CoordinatorSection {
                dir: PathBuf::from("../coordinator"),
            },
            fabric: FabricSection {
                shm_dir: PathBuf::from("/dev/shm/argosy"),
            },
            memory: MemorySection::default(),
            storage: StorageSection::default(),
            replication: ReplicationSection::default(),
            failover: FailoverSection::default(),
            log: LogSection::default(),
        }
    }

    /// With relative paths beginning at `base`.
    fn based(mut self, base: &Path) -> Self {
        for path in [
            &mut self.server.data_dir,
            &mut self.coordinator.dir,
            &mut self.fabric.shm_dir,
        ] {
            *path = base.join(&*path);
        }
        self
    }

    /// As a file that [`load`](Self::load) reads.
    pub fn to_toml(&self) -> String {
        let head = "# Written by `argosy playground`, for `argosy server --config`, and anew at each start of it:\n\
                    # what is changed here is lost then. `device`, beside it, is a sparse file: ls shows how\n\
                    # long it is, du what it takes.\n";
        self.to_toml_with(head, &|_| false)
    }

    /// The same behind `head`, with a word on the keys that are `required`.
    fn to_toml_with(&self, head: &str, required: &dyn Fn(&keys::Key) -> bool) -> String {
        let values = layers::table_of(self);
        let mut text = head.to_owned();
        let mut section = "";
        for key in &KEYS {
            if key.section != section {
                section = key.section;
                text.push_str(&format!("\n[{section}]\n"));
            }
            let value = &values[section][key.name];
            let word = if required(key) { " (required)" } else { "" };
            text.push_str(&format!("# {}{word}\n{} = {value}\n", key.about, key.name));
        }
        text
    }
}

/// The process's environment, as far as it is text.
fn environment() -> impl Iterator<Item = (String, String)> {
    let variables = std::env::vars_os();
    variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// All complaints in one line.
fn in_words(complaints: &[layers::Complaint]) -> String {
    let words: Vec<_> = complaints.iter().map(ToString::to_string).collect();
    words.join("; ")
}

fn with_suggestion<'a>(
    found: &str,
    wrong: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> String {
    match nearest(wrong, names.clone()) {
        Some(name) => format!("{found}; did you mean {name}?"),
        None => {
            let mut names: Vec<_> = names.collect();
            names.dedup();
            format!("{found}; there are {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
