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
//! is left out has the default of [`ServerConfig`]. A key that is not in [`KEYS`] is
//! an error that names the nearest one: a misspelt key never means a default in silence.

pub mod keys;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::units::{Size, Span};
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

/// The Redis protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RespSection {
    /// Where to listen.
    pub addr: SocketAddr,
}

impl Default for RespSection {
    fn default() -> Self {
        Self {
            addr: SocketAddr::from(([127, 0, 0, 1], 7379)),
        }
    }
}

/// Health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AdminSection {
    /// Where to listen.
    pub addr: SocketAddr,
}

impl Default for AdminSection {
    fn default() -> Self {
        Self {
            addr: SocketAddr::from(([127, 0, 0, 1], 7480)),
        }
    }
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
    /// Everything together: memtables, caches, log windows, rings, clients.
    pub limit: Size,
}

impl Default for MemorySection {
    fn default() -> Self {
        Self {
            limit: Size::mib(512),
        }
    }
}

/// Where values lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Small and medium pairs in the leaves, large ones in the large log.
    #[default]
    Hybrid,
    /// Every value in the leaves.
    InPlace,
    /// Every value in the large log.
    Separated,
}

impl Placement {
    /// Its name, as it is written in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hybrid => "hybrid",
            Self::InPlace => "in-place",
            Self::Separated => "separated",
        }
    }

    /// As the engine calls it.
    pub const fn engine(self) -> argosy_lsm::settings::Placement {
        match self {
            Self::Hybrid => argosy_lsm::settings::Placement::Hybrid,
            Self::InPlace => argosy_lsm::settings::Placement::InPlace,
            Self::Separated => argosy_lsm::settings::Placement::Separated,
        }
    }
}

/// The device and the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct StorageSection {
    /// Size of the device when it is made; later it keeps its size.
    pub device_bytes: Size,
    /// Bytes of memtables before they are flushed, divided over the regions that this server is
    /// primary of. Up to three memtables of each exist at a time.
    pub l0_bytes: Size,
    /// Where values lie.
    pub placement: Placement,
    /// How many times larger a level is than the one above.
    pub growth_factor: u32,
    /// Bytes of a leaf; equal on all servers.
    pub node_bytes: Size,
    /// How long a write may stay off the device.
    pub flush_interval: Span,
}

impl Default for StorageSection {
    fn default() -> Self {
        Self {
            device_bytes: Size::mib(64 << 10),
            l0_bytes: Size::mib(32),
            placement: Placement::default(),
            growth_factor: 8,
            node_bytes: Size(8 << 10),
            flush_interval: Span(Duration::from_secs(1)),
        }
    }
}

/// Copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ReplicationSection {
    /// How long a request waits for members or for room. Then a read is answered *unavailable*, and a
    /// write *not applied*, or *unknown* where it stands in the log.
    pub deadline: Span,
}

impl Default for ReplicationSection {
    fn default() -> Self {
        Self {
            deadline: Span(Duration::from_secs(5)),
        }
    }
}

/// What is said on stderr.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct LogSection {
    /// The least important kind of message to write.
    pub level: String,
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
        }
    }
}

impl ServerConfig {
    /// Reads the file at `path`.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::Config(format!("cannot read {}: {error}", path.display())))?;
        let config = Self::parse(&text)
            .map_err(|reason| Failure::Config(format!("{}: {reason}", path.display())))?;
        let base = std::path::absolute(path)
            .map_err(|error| Failure::io("find the directory of", path, &error))?;
        Ok(config.based(base.parent().unwrap_or(Path::new("/"))))
    }

    /// Reads TOML.
    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error| format!("not TOML: {error}"))?;
        check_keys(&table)?;
        toml::from_str(text).map_err(|error| error.to_string())
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
        let values =
            toml::Table::try_from(self).expect("a configuration is tables of plain values");
        let mut text =
            String::from("# Written by `argosy playground`, for `argosy server --config`.\n");
        let mut section = "";
        for key in &KEYS {
            if key.section != section {
                section = key.section;
                text.push_str(&format!("\n[{section}]\n"));
            }
            let value = &values[section][key.name];
            text.push_str(&format!("# {}\n{} = {value}\n", key.about, key.name));
        }
        text
    }
}

/// Whether every key is known.
fn check_keys(table: &toml::Table) -> Result<(), String> {
    for (section, value) in table {
        let known: Vec<_> = KEYS.iter().filter(|key| key.section == section).collect();
        if known.is_empty() {
            let names = KEYS.iter().map(|key| key.section);
            let found = format!("there is no section [{section}]");
            return Err(with_suggestion(&found, section, names));
        }
        let Some(keys) = value.as_table() else {
            return Err(format!("{section} is a section: write [{section}]"));
        };
        for name in keys.keys() {
            if !known.iter().any(|key| key.name == name) {
                let names = known.iter().map(|key| key.name);
                let found = format!("there is no key {name} in [{section}]");
                return Err(with_suggestion(&found, name, names));
            }
        }
    }
    Ok(())
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
