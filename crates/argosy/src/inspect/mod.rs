//! `argosy inspect`: what a stopped server's data directory holds, whether it is whole, and whether
//! two members hold the same.
//!
//! Nothing is written in the directory: the device is opened for reading only, counts no opening, and what a crash
//! left is looked at, not repaired, but for `put-back` and `discard-cut`. A lock keeps servers from starting meanwhile.

mod compare;
mod cut;
mod dump;
mod put_back;
mod repair;
mod scrub;
mod show;
mod verify;
mod view;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argosy_base::{DeviceSegment, RegionId};
use argosy_device::{
    Device, DeviceError, FileDevice, FileSettings, ReadOnlyFile, RegionEntry, Store,
};
use argosy_embedded::Unclosed;
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_lsm::contract::survivors_of;
use argosy_lsm::db::promote::window_name;
use argosy_lsm::inspect::{
    InspectedRegion, LeftWindows, Owner, Problem, ProblemKind, add_cut, add_pin, owners,
    verify_windows,
};
use argosy_lsm::names::logs::LOGS;
use argosy_lsm::pins::PinError;
use argosy_lsm::shape::Shape;
use argosy_lsm::{Settings, Version};
use argosy_memory::{BootId, SharedMemory};
use argosy_server::node::left_windows;
use argosy_server::runtime::{boot_id, windows_directories};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::cli::OutputFormat;
use crate::cluster::lock::{self, DirLock};
use crate::config::ServerConfig;
use crate::failure::CommandFailure;

/// Look inside the data directory of a stopped server
///
/// Prints superblock, catalog, manifests, levels, logs, and who refers to each segment. Changes
/// nothing.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  argosy inspect ./data/server-0\n  \
    argosy inspect ./data/server-0 --section levels,logs -o json\n  \
    argosy inspect verify ./data/server-0\n  \
    argosy inspect dump ./data/server-0 --limit 100\n  \
    argosy inspect scrub ./data/server-0 --rate 50MiB\n  \
    argosy inspect repair ./data/server-0 --to ./repaired\n  \
    argosy inspect put-back ./data/server-0 --region 1\n  \
    argosy inspect discard-cut ./data/server-0 --region 1\n  \
    argosy inspect compare ./data/server-0 ./data/server-1\n\n\
    Exit codes: 0 whole, 1 failed or in use, 3 no device there, 8 damage or a difference was found"
)]
pub(crate) struct Inspect {
    #[command(subcommand)]
    command: Option<Command>,
    /// The server's data directory
    #[arg(required = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    section: Vec<Section>,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum Command {
    Verify(verify::Verify),
    Dump(dump::Dump),
    Scrub(scrub::Scrub),
    Repair(repair::Repair),
    PutBack(put_back::PutBack),
    DiscardCut(cut::DiscardCut),
    Compare(compare::Compare),
}

/// What the subcommands share.
#[derive(Args, Debug)]
struct Common {
    /// Only this region
    #[arg(long, value_name = "N")]
    region: Option<u32>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// A part of what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// What the device is, and its copies of superblock and catalog.
    Superblock,
    /// The regions, and where their manifests lie.
    Catalog,
    /// The edits.
    Manifest,
    /// The levels.
    Levels,
    /// The logs.
    Logs,
    /// Who refers to each device segment.
    Segments,
}

impl Inspect {
    /// Looks, and prints.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        match (self.command, self.dir) {
            (Some(Command::Verify(verify)), _) => verify.run(),
            (Some(Command::Compare(compare)), _) => compare.run(),
            (Some(Command::Dump(dump)), _) => dump.run(),
            (Some(Command::Scrub(scrub)), _) => scrub.run(),
            (Some(Command::Repair(repair)), _) => repair.run(),
            (Some(Command::PutBack(put_back)), _) => put_back.run(),
            (Some(Command::DiscardCut(discard)), _) => discard.run(),
            (None, Some(dir)) => show::show(&dir, &self.section, &self.common),
            (None, None) => Err(CommandFailure::Usage("name a data directory".to_owned())),
        }
    }
}

/// A checkpoint's entry in the catalog, and what is stored of it.
type Pinned = (RegionEntry, Result<(String, Version), PinError>);

/// A stopped server's data directory.
struct Opened {
    dir: PathBuf,
    store: Arc<Store>,
    settings: Settings,
    /// Where its log windows may be.
    windows: Vec<PathBuf>,
    /// The store of a single program: it alone wrote its windows.
    is_embedded: bool,
    /// Such a store that a kill has ended since the machine was started.
    unclosed: Option<Unclosed>,
    _lock: Option<DirLock>,
}

impl Opened {
    /// Opens `dir` for reading.
    fn open(dir: &Path) -> Result<Self, CommandFailure> {
        let path = device_path(dir)?;
        let lock = lock::share(dir)?;
        let device = ReadOnlyFile::open(&path).map_err(of_device)?;
        let device: Arc<dyn Device> = Arc::new(device);
        let store = Store::open_read_only(device).map_err(of_device)?;
        let server = store.superblock().server;
        // Without a configuration, or with one that is not right, windows are looked for in the
        // directory alone: where a server keeps them that has no room elsewhere.
        let config = ServerConfig::load(&dir.join("argosy.toml")).ok();
        let shared = config.map(|config| config.fabric.shm_dir);
        let mut windows = windows_directories(server, shared.as_deref(), dir);
        let is_embedded = store.superblock().cluster_id == argosy_embedded::CLUSTER;
        let unclosed = Unclosed::read(dir).filter(|unclosed| {
            boot_id().is_ok_and(|boot| unclosed.concerns(store.superblock().device_id, boot))
        });
        windows.extend(unclosed.iter().map(|unclosed| unclosed.windows.clone()));
        // All regions of a device are cut alike.
        let regions = store.regions();
        let shape = regions
            .first()
            .and_then(|entry| Shape::from_word(entry.words[1]));
        let settings =
            shape.map_or_else(Settings::default, |shape| shape.apply(&Settings::default()));
        Ok(Self {
            dir: dir.to_path_buf(),
            store,
            settings,
            windows,
            is_embedded,
            unclosed,
            _lock: lock,
        })
    }

    /// The regions, or the one that was asked for.
    fn regions(&self, only: Option<u32>) -> Result<Vec<InspectedRegion>, CommandFailure> {
        let entries = self.store.regions();
        let asked = |entry: &&argosy_device::RegionEntry| {
            only.is_none_or(|only| entry.region == RegionId(only))
        };
        let regions: Vec<_> = entries
            .iter()
            .filter(|entry| kind_of(entry) == EntryKind::Region)
            .filter(asked)
            .map(|entry| InspectedRegion::read(&self.store, entry, &self.settings))
            .collect();
        match only {
            Some(only) if regions.is_empty() => Err(CommandFailure::NotFound(format!(
                "{} holds no region {only}",
                self.dir.display()
            ))),
            _ => Ok(regions),
        }
    }

    /// The checkpoints, each with its name and what it consists of, or why that cannot be read.
    fn pins(&self) -> Vec<Pinned> {
        let entries = self.store.regions();
        let entries = entries.into_iter();
        let entries =
            entries.filter(|entry| matches!(kind_of(entry), EntryKind::Region | EntryKind::Pin));
        let (pins, regions): (Vec<_>, Vec<_>) =
            entries.partition(|entry| kind_of(entry) == EntryKind::Pin);
        // Only a store with one region has any.
        let region = regions.first().map(|entry| entry.region);
        let region = region.unwrap_or_default();
        let read = |entry: RegionEntry| {
            let pin = argosy_lsm::pins::read(&self.store, &entry, region, &self.settings);
            (entry, pin)
        };
        pins.into_iter().map(read).collect()
    }

    /// Who refers to each device segment.
    fn owners(
        &self,
        regions: &[InspectedRegion],
        pins: &[Pinned],
    ) -> BTreeMap<DeviceSegment, Vec<Owner>> {
        let mut owners = owners(regions);
        for (entry, pin) in pins {
            if let Ok((_, version)) = pin {
                add_pin(&mut owners, entry, version);
            }
        }
        let entries = self.store.regions();
        entries.iter().for_each(|entry| add_cut(&mut owners, entry));
        owners
    }

    /// What is left of a region's log windows.
    fn windows(&self, region: RegionId) -> LeftWindows {
        let logs = self.settings.layout.logs();
        match boot_id() {
            Ok(boot) if self.is_embedded => self.embedded_windows(region, boot),
            Ok(boot) => survivors_of(left_windows(&self.windows, region, &logs, boot)),
            Err(_) => LeftWindows::default(),
        }
    }

    /// What is left of the windows of a single program's store, which have names and a stamp of their own.
    fn embedded_windows(&self, region: RegionId, boot: BootId) -> LeftWindows {
        let device = self.store.superblock().device_id;
        LOGS.map(|log| {
            let open = |slot| {
                let name = format!("{:016x}.window", window_name(region, log, slot));
                let at = |directory: &PathBuf| SharedMemory::open(&directory.join(&name)).ok();
                let is_ours = |memory: &SharedMemory| {
                    let stamp = memory.stamp();
                    stamp.boot == boot && [0, device].contains(&stamp.device)
                };
                let found = self.windows.iter().filter_map(at).filter(is_ours);
                found
                    .max_by_key(|memory| memory.stamp().serial)
                    .map(Arc::new)
            };
            (0..self.settings.layout.window_slots).map(open).collect()
        })
    }

    /// What is wrong with the windows that a killed program left of `region`: gone, or damaged.
    fn lost_windows(&self, region: &InspectedRegion, windows: &LeftWindows) -> Vec<Problem> {
        if !self.is_embedded {
            return Vec::new();
        }
        let (id, settings) = (region.entry.region, &self.settings);
        let places = self.windows.iter();
        let missing = self.unclosed.as_ref().and_then(|unclosed| {
            let troubles = places.map(|at| unclosed.missing_in(at, id, settings));
            // Whole in one directory is whole.
            troubles.reduce(|one, other| one.and(other)).flatten()
        });
        let missing = missing.map(|what| Problem {
            kind: ProblemKind::Missing,
            part: "log windows".to_owned(),
            region: Some(id),
            number: None,
            place: None,
            offset: 0,
            what,
        });
        let version = region.version.iter();
        let damaged = version.flat_map(|version| verify_windows(version, windows, settings));
        missing.into_iter().chain(damaged).collect()
    }
}

/// The device in a server's directory. It has to be there.
fn device_path(dir: &Path) -> Result<PathBuf, CommandFailure> {
    let path = dir.join("device");
    match path.exists() {
        true => Ok(path),
        false => Err(CommandFailure::NotFound(format!(
            "there is no {}",
            path.display()
        ))),
    }
}

/// The device of a stopped server, to be changed, and the lock that keeps the server from starting.
fn open_to_write(dir: &Path) -> Result<(Option<DirLock>, Arc<dyn Device>), CommandFailure> {
    let path = device_path(dir)?;
    let lock = lock::share(dir)?;
    // Nobody else has the device: opening it locks it.
    let device = FileDevice::open(&path, &FileSettings::default()).map_err(of_device)?;
    Ok((lock, Arc::new(device)))
}

/// A device that cannot be looked at.
fn of_device(error: DeviceError) -> CommandFailure {
    match error {
        DeviceError::Corrupt { .. } => CommandFailure::Corrupt(format!(
            "{error}; replace this server's device, and let it fetch everything from the others"
        )),
        other => CommandFailure::Failed(other.to_string()),
    }
}

/// Prints a value as one line of JSON.
fn print_json(value: &impl Serialize) {
    let line = serde_json::to_string(value).expect("plain data has a JSON form");
    say(&line);
}

/// Prints a line. Nobody may be reading, which is no failure.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
