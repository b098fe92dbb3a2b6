//! `argosy inspect repair`: a new copy of everything that verifies. Nothing is edited in place.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{AddressMode, Clock as _, Epoch};
use argosy_device::{
    Device, FileDevice, FileSettings, FormatOptions, Store, StoreSettings, Superblock, SystemClock,
    random,
};
use argosy_engine::batch::Expiry;
use argosy_engine::{EngineError, Store as _, WriteBatch, WriteOptions};
use argosy_lsm::cache::NodeCache;
use argosy_lsm::db::promote::{fresh_windows, survivors};
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::inspect::salvage::{Salvage, Salvaged, salvage};
use argosy_lsm::{Lsm, Replica, Service, Settings, Version};
use argosy_memory::AnonymousWindows;
use clap::Args;
use serde::Serialize;

use super::view::DamageView;
use super::{Opened, print_json, say};
use crate::cli::OutputFormat;
use crate::cluster::layout::read_map;
use crate::config::ServerConfig;
use crate::failure::{CommandFailure, chain};

/// The name and version of what `-o json` prints.
const SCHEMA: &str = "argosy.inspect-repair.v1";

/// Writes between two steps of background work.
const WRITES_PER_STEP: u64 = 64;

/// How long the device is waited for when there is nothing else to do.
const PAUSE: Duration = Duration::from_millis(1);

/// How often, one after the other, before it is given up.
const PAUSES_MAX: u32 = 60_000;

/// Make a new copy of everything in a damaged directory that is whole
///
/// Reads DIR and changes nothing in it. Writes all pairs that verify to a new device in OUT, and lists what
/// was lost, why, and which keys it concerns. For stores without other copies: where other members have the
/// region, let this server fetch it from them.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  argosy inspect repair ./data/server-0 --to ./repaired\n  \
    mv ./data/server-0/device ./damaged-device && mv ./repaired/device ./data/server-0/\n\n\
    Exit codes: 0 nothing was lost, 1 failed or in use, 2 OUT exists, 3 no device there, 8 the copy is made \
    and lacks something"
)]
pub(super) struct Repair {
    /// The damaged data directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where the copy goes: a directory that does not exist yet
    #[arg(long, value_name = "OUT")]
    to: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    dir: &'a Path,
    to: &'a Path,
    ok: bool,
    regions: Vec<RegionReport>,
    /// Names of checkpoints, which are not copied.
    checkpoints_left: Vec<String>,
}

#[derive(Serialize)]
struct RegionReport {
    region: u32,
    /// Why nothing of it could be taken.
    lost: Option<String>,
    /// The last edit of its manifest is damaged, so the copy is of the version before it.
    lacks_last_edit: bool,
    /// Pairs and removals that were taken, older values of a key among them.
    entries: u64,
    values_lost: u64,
    damages: Vec<DamageView>,
    damages_left_out: u64,
}

impl Repair {
    /// Makes the copy, and prints what it lacks.
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let opened = Opened::open(&self.dir)?;
        let regions = opened.regions(None)?;
        self.refuse_copies(&opened, &regions)?;
        let mut new = std::fs::DirBuilder::new();
        new.mode(0o700)
            .create(&self.to)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => CommandFailure::Usage(format!(
                    "{} exists; name a directory that does not: nothing is overwritten",
                    self.to.display()
                )),
                _ => CommandFailure::io("make", &self.to, &error),
            })?;
        let reports = self.copy(&opened, &regions)?;
        let pins = opened.pins();
        let name = |(entry, pin): &super::Pinned| match pin {
            Ok((name, _)) => name.clone(),
            Err(_) => format!("number {}", entry.region.0),
        };
        let report = Report {
            schema: SCHEMA,
            dir: &self.dir,
            to: &self.to,
            ok: reports
                .iter()
                .all(|r| r.lost.is_none() && !r.lacks_last_edit && r.damages.is_empty())
                && pins.is_empty(),
            regions: reports,
            checkpoints_left: pins.iter().map(name).collect(),
        };
        match self.output {
            OutputFormat::Json => print_json(&report),
            OutputFormat::Table => print_text(&report),
        }
        match report.ok {
            true => Ok(()),
            false => Err(CommandFailure::Corrupt(format!(
                "{} is made, and lacks what is listed",
                self.to.display()
            ))),
        }
    }

    /// Refuses a region that other servers have: a copy made here would be another history.
    fn refuse_copies(
        &self,
        opened: &Opened,
        regions: &[InspectedRegion],
    ) -> Result<(), CommandFailure> {
        let superblock = opened.store.superblock();
        if superblock.cluster_id == argosy_embedded::CLUSTER {
            return Ok(());
        }
        let unknown = |what: String| {
            CommandFailure::Failed(format!(
                "{what}; without the region map nobody knows whether other servers have copies, and a \
                 repaired one would be another history"
            ))
        };
        let file = self.dir.join("argosy.toml");
        let config = ServerConfig::load(&file).map_err(|error| unknown(error.to_string()))?;
        let coordinator = &config.coordinator.dir;
        let absent = || unknown(format!("{}: there is no region map", coordinator.display()));
        if !coordinator.exists() {
            return Err(absent());
        }
        let map = read_map(coordinator)?.ok_or_else(absent)?;
        for region in regions {
            let id = region.entry.region;
            let members = map.region(id).map_or(0, |region| region.members.len());
            if members > 1 {
                return Err(CommandFailure::Failed(format!(
                    "{id} has {members} members: do not repair this copy; remove this server's device, start \
                     the server with --new-device, and it fetches the region from another member \
                     (docs/operations.md)"
                )));
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        opened: &Opened,
        regions: &[InspectedRegion],
    ) -> Result<Vec<RegionReport>, CommandFailure> {
        let failed = |error: &dyn std::error::Error| CommandFailure::Failed(chain(error));
        let partial = self.to.join("device.partial");
        let settings = settings_of(opened, regions.len());
        // What the windows hold is copied, too: a store of one program has a number of its own from now on,
        // so that they are not replayed into the copy. Servers' devices are known by theirs.
        let id = match opened.is_embedded {
            true => random::number()
                .map_err(|error| CommandFailure::io("read", Path::new(random::SOURCE), &error))?,
            false => opened.store.superblock().device_id,
        };
        let old = opened.store.superblock();
        let store = new_store(&partial, old, id, &settings, regions.len())
            .map_err(|error| failed(&error))?;
        let mut reports = Vec::with_capacity(regions.len());
        for region in regions {
            let mut report = RegionReport {
                region: region.entry.region.0,
                lost: None,
                lacks_last_edit: region.lacks_last,
                entries: 0,
                values_lost: 0,
                damages: Vec::new(),
                damages_left_out: 0,
            };
            match &region.version {
                Some(version) => {
                    let windows = opened.windows(region.entry.region);
                    let mut writer = NewRegion::begin(&store, version, &settings)?;
                    let found = salvage(version, &windows, &opened.settings, &mut |pair| {
                        writer.put(pair)
                    })?;
                    writer.end()?;
                    fill(&mut report, &found);
                }
                None => {
                    let why: Vec<_> = region.problems.iter().map(ToString::to_string).collect();
                    report.lost = Some(why.join("; "));
                }
            }
            reports.push(report);
        }
        let finished = store.finish_changes();
        finished.map_err(|error| CommandFailure::Failed(chain(&error)))?;
        drop(store);
        let device = self.to.join("device");
        std::fs::rename(&partial, &device)
            .and_then(|()| File::open(&self.to)?.sync_all())
            .map_err(|error| CommandFailure::io("name", &device, &error))?;
        Ok(reports)
    }
}

fn fill(report: &mut RegionReport, found: &Salvage) {
    report.entries = found.entries;
    report.values_lost = found.values_lost;
    report.damages = found.damages.iter().map(DamageView::from).collect();
    report.damages_left_out = found.more;
}

/// The settings with which whoever opens the copy reads it.
fn settings_of(opened: &Opened, regions: usize) -> Settings {
    let mut settings = opened.settings.clone();
    // As memtables are large, so is what is kept of the device; small ones merge a little more.
    let share = opened.store.total() as usize * SEGMENT_SIZE / 64 / regions.max(1);
    settings.memtables.bytes = share.clamp(64 << 10, settings.memtables.bytes);
    settings.memtables.log_bytes = settings
        .memtables
        .log_bytes
        .min((settings.memtables.bytes as u64 * 4).max(1 << 20));
    if let Ok(config) = ServerConfig::load(&opened.dir.join("argosy.toml")) {
        settings.layout.node_bytes = config.storage.node_bytes.bytes();
    }
    settings
}

fn new_store(
    path: &Path,
    old: &Superblock,
    device_id: u128,
    settings: &Settings,
    regions: usize,
) -> Result<Arc<Store>, argosy_device::DeviceError> {
    let bytes = u64::from(old.segments) * SEGMENT_SIZE as u64;
    let device = FileDevice::open_or_create(path, bytes, &FileSettings::default())?;
    let options = FormatOptions {
        device_id,
        cluster_id: old.cluster_id,
        server: old.server,
        created_by: concat!("argosy ", env!("CARGO_PKG_VERSION"), ", repair").to_owned(),
    };
    Store::format(&device, &options)?;
    let device: Arc<dyn Device> = Arc::new(device);
    let settings = StoreSettings {
        reserve_segments: settings.reserve_segments(regions),
    };
    let store = Store::open(device, &settings)?;
    store.finish_recovery();
    Ok(store)
}

/// A region that is being made anew.
struct NewRegion {
    engine: Lsm,
    writes: u64,
    /// Pauses since something was done.
    pauses: u32,
}

impl NewRegion {
    fn begin(
        store: &Arc<Store>,
        old: &Version,
        settings: &Settings,
    ) -> Result<Self, CommandFailure> {
        let failed = |error: &dyn std::error::Error| CommandFailure::Failed(chain(error));
        let settings = settings
            .clone()
            .with(|of| of.layout.addresses = old.addresses());
        debug_assert!(AddressMode::ALL.contains(&settings.layout.addresses));
        let (region, windows) = (old.region(), AnonymousWindows::new());
        let fresh = fresh_windows(&windows, region, &settings).map_err(|e| failed(&e))?;
        let nothing = survivors(&windows, region, &settings);
        let copy = Replica::open(store, region, fresh, &nothing, &settings);
        let copy = copy.map_err(|error| failed(&error))?;
        let cache = Arc::new(NodeCache::new(settings.cache_bytes));
        let service = Service {
            epoch: old.epoch().max(Epoch(1)),
            ..Service::default()
        };
        let engine = Lsm::promote(copy, &cache, service).map_err(|error| failed(&error))?;
        Ok(Self {
            engine,
            writes: 0,
            pauses: 0,
        })
    }

    fn put(&mut self, pair: Salvaged<'_>) -> Result<(), CommandFailure> {
        let mut batch = WriteBatch::new();
        let added = match (pair.range, pair.value) {
            (Some(range), _) => batch.delete_range_any(range),
            (None, Some((value, expiry))) => {
                batch.put_any(pair.key, value, expiry.map_or(Expiry::Never, Expiry::At))
            }
            (None, None) => batch.delete_any(pair.key),
        };
        added.map_err(|error| CommandFailure::Failed(chain(&error)))?;
        self.writes += 1;
        if self.writes.is_multiple_of(WRITES_PER_STEP) {
            self.step()?;
        }
        loop {
            match self.engine.write(&batch, WriteOptions::default()) {
                Ok(_) => return Ok(()),
                Err(EngineError::Busy(_)) => self.step_or_pause()?,
                Err(error) => return Err(CommandFailure::Failed(chain(&error))),
            }
        }
    }

    fn step(&self) -> Result<bool, CommandFailure> {
        let stepped = self.engine.step(SystemClock.now());
        let stepped = stepped.map_err(|error| CommandFailure::Failed(chain(&error)))?;
        Ok(stepped.made)
    }

    fn step_or_pause(&mut self) -> Result<(), CommandFailure> {
        if self.step()? {
            self.pauses = 0;
            return Ok(());
        }
        self.pauses += 1;
        if self.pauses > PAUSES_MAX {
            let full = match self.engine.is_full() {
                true => ": the device is full, or its file system is",
                false => "",
            };
            return Err(CommandFailure::Failed(format!(
                "the copy does not go on{full}"
            )));
        }
        std::thread::park_timeout(PAUSE);
        Ok(())
    }

    /// Merges what is due, and makes everything durable.
    fn end(mut self) -> Result<(), CommandFailure> {
        while self.engine.background_pending() > 0 {
            self.step_or_pause()?;
        }
        let closed = self.engine.close();
        closed.map_err(|error| CommandFailure::Failed(chain(&error)))
    }
}

fn print_text(report: &Report<'_>) {
    for region in &report.regions {
        if let Some(why) = &region.lost {
            say(&format!(
                "region {}: nothing could be taken: {why}",
                region.region
            ));
            continue;
        }
        if region.lacks_last_edit {
            say(&format!(
                "region {}: the last edit of its manifest is damaged; what there was before it is taken, and may have \
                 been overwritten since",
                region.region
            ));
        }
        for damage in &region.damages {
            say(&format!("lost: {}", damage.text()));
        }
        if region.damages_left_out > 0 {
            say(&format!("lost: {} more", region.damages_left_out));
        }
        say(&format!(
            "region {}: {} entries taken, {} keys without their value",
            region.region, region.entries, region.values_lost
        ));
    }
    for name in &report.checkpoints_left {
        say(&format!("checkpoint {name} is not in the copy"));
    }
    if report
        .regions
        .iter()
        .any(|region| !region.damages.is_empty())
    {
        say("keys in the ranges above may be missing, or have an older value");
    }
    let at = report.to.join("device");
    say(&format!("the copy is {}", at.display()));
}
