//! How a store is opened: what can be set, how the memory is divided, and what lies in the directory.
//!
//! ```text
//! PATH/device      the device: a sparse file of whole segments, which takes room as it is written
//! PATH/lock        held by the process that has the store open, with its id
//! PATH/windows/    the ends of the logs, in memory that outlives a killed process
//! PATH/unclosed    there while windows are needed: see `unclosed`
//! ```
//!
//! The memory budget:
//!
//! ```text
//! memtables   two of `l0_bytes`
//! windows     of both logs
//! work        what a flush and a merge have in hand, and buffers that are kept for the next
//! cache       what is left, but for a sixteenth: leaves, values, indexes and filters
//! ```
//!
//! The sixteenth is for gaps between entries, which the allocator cannot give back. While there is a third
//! memtable, or a snapshot pins some that the store has done with, the cache gives way to them. No part takes
//! more than it has.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use argosy_base::SEGMENT_SIZE;
use argosy_device::buffer::{keep_at_most, share_of};
use argosy_device::{Device, FileDevice, FileSettings, Store, SystemClock, random};
use argosy_engine::scrub::Pace as ScrubPace;
use argosy_lsm::pins::Pins;
use argosy_lsm::{Lsm, Settings};
use argosy_memory::{
    BootId, Others, WindowFiles, WindowFilesOptions, lock_windows, make_directory,
};
use rustix::fs::statvfs;

use crate::error::{Error, Result};
use crate::place::{Place, REGION, is_none_or_empty, take_lock};
use crate::shared::Opened;
use crate::stepper::Resident;
use crate::unclosed::{self, Unclosed};
use crate::{Db, machine};

/// The smallest memtable.
const L0_BYTES_MIN: usize = 64 << 10;
/// The smallest cache.
const CACHE_BYTES_MIN: usize = 1 << 20;
/// The smallest device that is made unasked.
const DEVICE_BYTES_MIN: u64 = 256 << 20;

/// When a write is safe, and from what. A process that is killed loses nothing in any of these modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power failure loses at most what was written this long ago, or later.
    FlushInterval(Duration),
    /// A write returns when the device has it: a power failure loses nothing either, and readers see
    /// nothing that it could lose. What several threads write at the same time shares a sync.
    Sync,
    /// Writes stay in memory that outlives the process until about a megabyte has gathered, a minute
    /// has passed, or [`Db::flush`] is called.
    Windows,
}

impl Default for Durability {
    fn default() -> Self {
        Self::FlushInterval(Duration::from_secs(1))
    }
}

impl Durability {
    fn flush_interval(self) -> Duration {
        match self {
            Self::FlushInterval(interval) => interval,
            Self::Sync => Duration::from_secs(1),
            Self::Windows => Duration::from_secs(60),
        }
    }
}

/// What a [`Db`] is opened with.
///
/// ```
/// use std::time::Duration;
/// use argosy_embedded::{Db, Durability};
///
/// # fn main() -> Result<(), argosy_embedded::Error> {
/// # let path = tempfile::tempdir().unwrap();
/// let db = Db::builder()
///     .memory(64 << 20)
///     .device_bytes(1 << 30)
///     .durability(Durability::Sync)
///     .patience(Duration::from_secs(5))
///     .open(&path)?;
/// db.put("k", "on the device when this returns")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    memory: Option<usize>,
    device_bytes: Option<u64>,
    l0_bytes: Option<usize>,
    durability: Durability,
    patience: Duration,
    windows: Option<PathBuf>,
    create: bool,
    accept_loss: bool,
    scrub: ScrubPace,
    engine: Settings,
    /// The builder divides the memory, and sets what follows from that.
    divides: bool,
    resident: Option<Resident>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            memory: None,
            device_bytes: None,
            l0_bytes: None,
            durability: Durability::default(),
            patience: Duration::from_secs(10),
            windows: None,
            create: true,
            accept_loss: false,
            scrub: ScrubPace::default(),
            engine: Settings::default(),
            divides: true,
            resident: None,
        }
    }
}

/// The memory of a store where nobody says how much, of a machine or group with this much: no less than goes
/// with memtables of `l0_bytes`, if somebody says that.
fn default_memory(there: Option<u64>, l0_bytes: Option<usize>) -> usize {
    let eighth = there.map_or(256 << 20, |bytes| bytes / 8);
    let bounded =
        usize::try_from(eighth.clamp(64 << 20, 1 << 30)).expect("no more than a gigabyte");
    bounded.max(l0_bytes.unwrap_or(0).saturating_mul(8))
}

impl Builder {
    /// What there is unless something else is said.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of memory for all that the store takes: memtables, log windows, what flushes and merges have in
    /// hand, and the cache. What a call needs while it runs comes on top. Unless this is said, an eighth of what
    /// the machine or the process's control group has, from 64 MiB to 1 GiB; or eight times `l0_bytes`, if that is
    /// said and more.
    #[must_use]
    pub const fn memory(mut self, bytes: usize) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// What the allocator keeps between what is in use is in no part of the memory, and grows over hours. Where
    /// a program can tell how many bytes of memory are resident on the store's account, log windows among them,
    /// it says so here: the cache then gives way to what is beyond the memory. While the store has
    /// something to do, `resident` is called once a second, by the store's thread, which ends where that panics.
    #[must_use]
    pub fn measured_by(mut self, resident: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.resident = Some(Resident(Arc::new(resident)));
        self
    }

    /// Bytes that the store may take on its file system, said when it is made; later it stays as it was
    /// made. Unless this is said, the size of the file system. The file is sparse: it takes room as it
    /// is written, and gives back what is freed.
    #[must_use]
    pub const fn device_bytes(mut self, bytes: u64) -> Self {
        self.device_bytes = Some(bytes);
        self
    }

    /// Bytes of one memtable. A larger one makes for fewer merges, and for longer opening after a kill.
    /// An eighth of the memory unless this is said.
    #[must_use]
    pub const fn l0_bytes(mut self, bytes: usize) -> Self {
        self.l0_bytes = Some(bytes);
        self
    }

    /// When a write is safe, and from what.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// How long a write waits where there is no room for it, because merges are behind or the device is
    /// full, before it returns [`Error::Busy`]. Ten seconds unless this is said.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Where the ends of the logs are kept: a directory for this store alone, on a file system in memory
    /// (tmpfs) if possible, since they are written all the time. Unless this is said they lie in the
    /// store's directory. What was written since the last flush is found again only if the same
    /// directory is named when the store is opened after a kill. A directory that another store has open, or
    /// that has windows of another store, is refused with [`Error::Windows`], and left as it is.
    #[must_use]
    pub fn windows_in(mut self, directory: impl Into<PathBuf>) -> Self {
        self.windows = Some(directory.into());
        self
    }

    /// Whether a store is made where there is none, as it is unless something else is said. Where anything is
    /// left of a store, none is made in its place, whatever is said.
    #[must_use]
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether the store is opened although log windows which a killed process left are gone or damaged, with
    /// [`Error::Windows`] otherwise. What was written before what is missing is there then, and nothing behind
    /// it. A restart of the machine, which empties windows, is no such case.
    #[must_use]
    pub const fn accept_loss(mut self, accept: bool) -> Self {
        self.accept_loss = accept;
        self
    }

    /// How long a *scrub* of the whole store takes: everything that is stored is read and checked once in
    /// that time, a segment at a time, so that what nobody reads is known to be whole, or not
    /// ([`Db::damages`]). Four weeks unless this is said; zero: nothing is scrubbed. No more than 8 MiB a
    /// second are read for it.
    #[must_use]
    pub const fn scrub_period(mut self, period: Duration) -> Self {
        self.scrub.period = period;
        self
    }

    /// All settings of the engine beneath: where values are placed, how levels grow, how much space dead
    /// values may take. Of these, `l0_bytes`, `cache_bytes`, `memtable_share_bytes` and `flush_interval` follow
    /// from what the builder is told elsewhere, and `l0_log_bytes` is at most four times `l0_bytes`, or a mebibyte
    /// where that is more. `segment_bytes`, `window_bytes`,
    /// `window_slots` and `addresses` stay as they were when the store was made: others are refused.
    #[must_use]
    pub fn engine(mut self, settings: Settings) -> Self {
        (self.engine, self.divides) = (settings, true);
        self
    }

    /// All settings of the engine beneath, for a program that divides its memory itself: `memory`, `l0_bytes` and
    /// `durability` change none of them, and `accept_loss` no other. The process keeps as many buffers for the next as
    /// before. `memory` is only what [`measured_by`](Self::measured_by) compares with.
    #[must_use]
    pub fn engine_exactly(mut self, settings: Settings) -> Self {
        (self.engine, self.divides) = (settings, false);
        self
    }

    /// Opens the store in the directory `path`, or makes it.
    ///
    /// # Errors
    /// [`Error::InUse`] where it is open already, here or, still after a second, in another process;
    /// [`Error::Foreign`] where the directory is a server's; [`Error::Settings`]; [`Error::Windows`];
    /// [`Error::System`] and [`Error::Open`] where the system refuses, the device fails, or what it holds is
    /// damaged.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db> {
        let path = path.as_ref();
        if self.create {
            let refused = |e| Error::system("make the directory", path, &e);
            make_directory(path).map_err(refused)?;
        }
        let lock = take_lock(path)?;
        if self.divides {
            keep_at_most(kept_bytes(&self.engine, self.budget()));
        }
        let place = Place {
            path,
            windows: &self.windows_directory(path),
            create: self.create,
        };
        let device = self.open_device(&place)?;
        let settings = self.engine_settings(device.len(), false)?;
        let store = place.open_store(device, &settings)?;
        let boot = boot_id()?;
        let (windows, windows_lock) = self.open_windows(path, &store, &settings, boot)?;
        let pins = Pins::open(&store, REGION, &settings)?;
        let engine = Lsm::open(&store, REGION, &windows, &settings, None)
            .map_err(|error| Error::recovering(path, &error))?;
        let unclosed = Unclosed {
            device: store.superblock().device_id,
            boot,
            windows: self.windows_directory(path),
        };
        unclosed.write(path)?;
        engine.set_clock(Arc::new(SystemClock));
        let resident = self.resident.clone();
        Db::start(Opened {
            memory: resident.map(|resident| (engine.excess(self.budget()), resident)),
            engine: Arc::new(engine),
            pins,
            store,
            path: path.to_path_buf(),
            durability: self.durability,
            patience: self.patience,
            scrub: self.scrub,
            random: random_id()?,
            locks: [lock, windows_lock],
        })
    }

    fn open_device(&self, place: &Place<'_>) -> Result<Arc<dyn Device>> {
        let path = place.path;
        let file = path.join("device");
        let is_new = is_none_or_empty(&file);
        if is_new {
            place.check_new()?;
        }
        let settings = FileSettings::default();
        let device = if self.create {
            let bytes = match self.device_bytes {
                Some(bytes) => bytes,
                None => file_system_bytes(path)?.max(DEVICE_BYTES_MIN),
            };
            if is_new {
                // Refused before there is a file of that size.
                self.engine_settings(bytes - bytes % SEGMENT_SIZE as u64, true)?;
            }
            FileDevice::open_or_create(&file, bytes, &settings)
        } else {
            FileDevice::open(&file, &settings)
        };
        let device = device.map_err(|error| Error::opening(path, &error))?;
        Ok(Arc::new(device))
    }

    /// The engine's settings on a device of so many bytes, which is there or to be made.
    fn engine_settings(&self, device_bytes: u64, is_new: bool) -> Result<Settings> {
        let settings = match self.divides {
            true => self.well_divided(device_bytes)?,
            false => self
                .engine
                .clone()
                .with(|of| of.accept_loss = self.accept_loss),
        };
        settings
            .validate()
            .map_err(|error| Error::Settings(error.to_string()))?;
        // Half of the device for what there has to be besides the reserve: logs, manifest, data.
        let least = 2 * u64::from(settings.reserve_segments(1)) * SEGMENT_SIZE as u64;
        if device_bytes < least {
            let larger = match is_new {
                true => format!("set `device_bytes` to {least} or more, or "),
                false => String::new(),
            };
            return Err(Error::Settings(format!(
                "a device of {device_bytes} bytes is too small for memtables of {} bytes: half of it \
                 is kept so that a full store can be emptied; {larger}set a smaller `l0_bytes`",
                settings.memtables.bytes,
            )));
        }
        Ok(settings)
    }

    /// The engine's settings with the memory divided, which is enough.
    fn well_divided(&self, device_bytes: u64) -> Result<Settings> {
        let memory = self.budget();
        let (settings, least) = self.divided(memory, device_bytes);
        if settings.cache_bytes >= least {
            return Ok(settings);
        }
        let larger = match self.least_memory(memory, device_bytes) {
            Some(bytes) => format!("set `memory` to {bytes} or more, or "),
            None => String::new(),
        };
        Err(Error::Settings(format!(
            "{memory} bytes of memory are too few: two memtables of {} bytes, log windows of {} bytes, and \
             what merges have in hand leave the cache less than {least}; {larger}set a smaller `l0_bytes`",
            settings.memtables.bytes,
            settings.layout.windows_bytes(),
        )))
    }

    /// The engine's settings with `memory` bytes divided, and the least that the cache has to have of it.
    fn divided(&self, memory: usize, device_bytes: u64) -> (Settings, usize) {
        let mut settings = self.engine.clone();
        let small_device = usize::try_from(device_bytes / 64).unwrap_or(usize::MAX);
        let share = (memory / 8).min(small_device).max(L0_BYTES_MIN);
        settings.memtables.bytes = self.l0_bytes.unwrap_or(share);
        // A memtable of pointers stands for many bytes of the large log. What its flushes leave
        // unmerged is space that dead values take, so it is kept in proportion.
        let log_bytes = (settings.memtables.bytes as u64)
            .saturating_mul(4)
            .max(1 << 20);
        settings.memtables.log_bytes = settings.memtables.log_bytes.min(log_bytes);
        settings.logs.flush_interval = self.durability.flush_interval();
        settings.accept_loss = self.accept_loss;
        settings.divide(memory, kept_bytes(&self.engine, memory));
        // Of the third memtable too, the cache keeps a sixteenth.
        let least = CACHE_BYTES_MIN.max(settings.memtables.bytes.saturating_mul(17) / 16);
        (settings, least)
    }

    /// The least memory that is enough where `too_few` bytes are not: memtables and what is kept of buffers grow
    /// with it. `None` where there is no such amount.
    fn least_memory(&self, too_few: usize, device_bytes: u64) -> Option<usize> {
        let is_enough = |memory| {
            let (settings, least) = self.divided(memory, device_bytes);
            settings.cache_bytes >= least
        };
        let (mut few, mut enough) = (too_few, too_few.max(CACHE_BYTES_MIN));
        while !is_enough(enough) {
            few = enough;
            enough = enough.checked_mul(2)?;
        }
        while few + 1 < enough {
            let middle = few + (enough - few) / 2;
            match is_enough(middle) {
                true => enough = middle,
                false => few = middle,
            }
        }
        Some(enough)
    }

    /// Bytes of memory for all that the store takes.
    fn budget(&self) -> usize {
        let follows = || default_memory(machine::memory_bytes(), self.l0_bytes);
        self.memory.unwrap_or_else(follows)
    }

    fn windows_directory(&self, path: &Path) -> PathBuf {
        let directory = self.windows.clone();
        let directory = directory.unwrap_or_else(|| path.join("windows"));
        std::path::absolute(&directory).unwrap_or(directory)
    }

    /// What was left of the store's windows, and the lock of their directory.
    fn open_windows(
        &self,
        path: &Path,
        store: &Store,
        settings: &Settings,
        boot: BootId,
    ) -> Result<(WindowFiles, File)> {
        let options = WindowFilesOptions {
            directory: self.windows_directory(path),
            fallback: None,
            boot,
            incarnation: store.incarnation(),
            device: store.superblock().device_id,
            others: Others::Refuse,
        };
        let failed = |error| Error::windows(path, &error);
        let lock = lock_windows(&options.directory).map_err(failed)?;
        WindowFiles::refuse_others(&options).map_err(failed)?;
        let unclosed =
            Unclosed::read(path).filter(|unclosed| unclosed.concerns(options.device, boot));
        let missing = unclosed
            .filter(|_| !self.accept_loss)
            .and_then(|unclosed| unclosed.missing_in(&options.directory, REGION, settings));
        if let Some(what) = missing {
            return Err(unclosed::lost(path, &what));
        }
        Ok((WindowFiles::open(options).map_err(failed)?, lock))
    }
}

/// Bytes of buffers that are kept for the next, of so much memory.
fn kept_bytes(engine: &Settings, memory: usize) -> usize {
    share_of(memory).min(engine.layout.segment_bytes * 6)
}

fn file_system_bytes(path: &Path) -> Result<u64> {
    let stat = statvfs(path).map_err(|e| Error::system("measure", path, &e.into()))?;
    let bytes = stat.f_blocks.saturating_mul(stat.f_frsize);
    Ok(bytes)
}

pub(crate) fn random_id() -> Result<u128> {
    random::number().map_err(|error| Error::system("read", Path::new(random::SOURCE), &error))
}

fn boot_id() -> Result<BootId> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).map_err(|e| Error::system("read", path, &e))?;
    Ok(BootId::parse(&text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_the_machine_within_bounds() {
        let mib = |n: usize| n << 20;
        let of = |there: usize, l0: Option<usize>| default_memory(Some(mib(there) as u64), l0);
        assert_eq!(default_memory(None, None), mib(256));
        let found = [of(100, None), of(2048, None), of(1 << 20, None)];
        assert_eq!(found, [mib(64), mib(256), mib(1024)]);
        assert_eq!(
            of(100, Some(mib(16))),
            mib(128),
            "as much as its memtables need"
        );
        assert_eq!(of(2048, Some(mib(16))), mib(256));
    }
}
