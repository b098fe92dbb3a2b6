//! The windows of a machine: in its memory, or in files.
//!
//! Windows in files are what servers have where their regions have no other members and the tmpfs has no room. They
//! are there after a loss of power, too; but what lies in them then need not be what was written last: of each page,
//! what it was, or nothing, or half of it. Who finds them has to know that they are of another boot.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::Incarnation;
use argosy_base::limits::BLOCK_SIZE;
use argosy_memory::{
    AnonymousWindows, BootId, MemoryError, Others, SharedMemory, WindowFiles, WindowFilesOptions,
    WindowStore,
};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::engine::Settings;
use crate::random::Random;

/// In half of the seeds windows rest as soon as nobody writes.
pub(crate) fn rest_after(random: &mut Random) -> Duration {
    match random.chance(50) {
        true => random.micros(0, 20_000),
        false => Settings::default().logs.rest_after,
    }
}

/// The windows of a machine, as its present process has them. Clones share them.
#[derive(Clone)]
pub(crate) enum MachineWindows {
    /// In memory.
    Memory(AnonymousWindows),
    /// In files.
    Files(FileWindows),
}

impl MachineWindows {
    /// No windows; in files, or in memory. Files tell boots apart unless `every_boot` is believed.
    #[must_use]
    pub(crate) fn new(files: bool, every_boot: bool) -> Self {
        match files {
            true => Self::Files(FileWindows::new(every_boot)),
            false => Self::Memory(AnonymousWindows::new()),
        }
    }

    /// What the next process finds.
    #[must_use]
    pub(crate) fn restart(&self) -> Self {
        match self {
            Self::Memory(windows) => Self::Memory(windows.restart()),
            Self::Files(windows) => Self::Files(windows.restart()),
        }
    }

    /// The process dies now: what its code still writes has no effect.
    pub(crate) fn disown(&self) {
        match self {
            Self::Memory(windows) => windows.disown(),
            Self::Files(windows) => windows.disown(),
        }
    }

    /// The machine loses power. Returns how many files there are afterwards that need not hold what they did.
    pub(crate) fn lose_power(&self, random: &mut Random) -> u64 {
        match self {
            Self::Memory(windows) => {
                windows.lose();
                0
            }
            Self::Files(windows) => windows.lose_power(random),
        }
    }

    /// The machine is another one.
    pub(crate) fn forget(&self) {
        match self {
            Self::Memory(windows) => windows.lose(),
            Self::Files(windows) => windows.directory.empty(),
        }
    }

    /// What lies in memory, with its name; nothing of what lies in files.
    #[must_use]
    pub(crate) fn memories(&self) -> Vec<(u64, Arc<SharedMemory>)> {
        match self {
            Self::Memory(windows) => windows.memories(),
            Self::Files(_) => Vec::new(),
        }
    }

    /// The windows, as a process reaches them.
    #[must_use]
    pub(crate) fn store(&self) -> Arc<dyn WindowStore> {
        match self {
            Self::Memory(windows) => Arc::new(windows.clone()),
            Self::Files(windows) => Arc::new(windows.clone()),
        }
    }
}

/// A directory that goes with the run.
struct Directory(TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a run may have a directory"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn empty(&self) {
        // It need not be there.
        let _ = fs::remove_dir_all(self.path());
        fs::create_dir_all(self.path()).expect("a run may have a directory");
    }
}

/// See the module documentation.
#[derive(Clone)]
pub(crate) struct FileWindows {
    directory: Arc<Directory>,
    boot: Arc<AtomicU64>,
    starts: Arc<AtomicU64>,
    every_boot: bool,
    files: Arc<WindowFiles>,
    /// What the present process has made.
    made: Arc<Mutex<Vec<Arc<SharedMemory>>>>,
}

impl FileWindows {
    fn new(every_boot: bool) -> Self {
        let directory = Arc::new(Directory::new());
        let files = open(directory.path(), BootId(1), 0);
        Self {
            directory,
            boot: Arc::new(AtomicU64::new(1)),
            starts: Arc::default(),
            every_boot,
            files,
            made: Arc::default(),
        }
    }

    fn restart(&self) -> Self {
        let boot = BootId(self.boot.load(Ordering::Relaxed));
        let start = 1 + self.starts.fetch_add(1, Ordering::Relaxed);
        Self {
            files: open(self.directory.path(), boot, start),
            made: Arc::default(),
            ..self.clone()
        }
    }

    fn disown(&self) {
        let made = self.made.lock();
        made.iter().for_each(|memory| memory.disown());
    }

    fn lose_power(&self, random: &mut Random) -> u64 {
        let boots = u64::from(!self.every_boot);
        self.boot.fetch_add(boots, Ordering::Relaxed);
        let listed = fs::read_dir(self.directory.path()).expect("the run's own directory");
        let mut paths: Vec<PathBuf> = listed.flatten().map(|file| file.path()).collect();
        paths.sort();
        for path in &paths {
            let mut bytes = fs::read(path).expect("the run's own file");
            // The control block was written when the file was made.
            for page in bytes.chunks_mut(BLOCK_SIZE).skip(1) {
                let kept = random.pick(&[0, page.len() / 2, page.len(), page.len(), page.len()]);
                page[kept..].fill(0);
            }
            let file = fs::OpenOptions::new().write(true).open(path);
            let written = file.and_then(|mut file| file.write_all(&bytes));
            written.expect("the run's own file");
        }
        paths.len() as u64
    }
}

fn open(directory: &Path, boot: BootId, start: u64) -> Arc<WindowFiles> {
    let options = WindowFilesOptions {
        directory: directory.to_path_buf(),
        fallback: None,
        boot,
        incarnation: Incarnation(start),
        device: 0,
        others: Others::Refuse,
    };
    Arc::new(WindowFiles::open(options).expect("the run's own directory can be used"))
}

impl WindowStore for FileWindows {
    fn survivor_names(&self) -> Vec<u64> {
        self.files.survivor_names()
    }

    fn survivors(&self, name: u64) -> Option<Arc<SharedMemory>> {
        self.files.survivors(name)
    }

    fn create(&self, name: u64, len: usize) -> Result<Arc<SharedMemory>, MemoryError> {
        let memory = self.files.create(name, len)?;
        let mut made = self.made.lock();
        made.push(Arc::clone(&memory));
        Ok(memory)
    }

    fn forget_survivors(&self, name: u64) -> Result<(), MemoryError> {
        self.files.forget_survivors(name)
    }
}

#[cfg(test)]
mod tests {
    use argosy_base::{Instant, RegionId, SEGMENT_SIZE};
    use argosy_device::{Crash, FormatOptions, MemoryDevice, Store, StoreSettings};
    use argosy_engine::{Store as _, WriteBatch, WriteOptions};

    use super::*;
    use crate::engine::Settings;
    use crate::engine::lsm::{Lsm, ReplicaError};
    use crate::planted::Mutants;

    /// Writes, of which the first half is flushed.
    const WRITES: u32 = 400;
    const SEEDS: u64 = 10;

    fn key(n: u32) -> Vec<u8> {
        format!("key {n:06}").into_bytes()
    }

    fn open(device: Arc<MemoryDevice>, windows: &MachineWindows) -> Result<Lsm, ReplicaError> {
        let store = Store::open(device, &StoreSettings::default());
        let settings = Settings::default().with(|of| of.layout.window_bytes = 64 << 10);
        let store = store.expect("it was formatted");
        Lsm::open(&store, RegionId(1), &*windows.store(), &settings, None)
    }

    /// What an embedded store holds of its writes after its machine lost power, if it opens.
    fn held_after_power_loss(seed: u64, mutants: Mutants) -> Result<Vec<u32>, ReplicaError> {
        let windows = MachineWindows::new(true, mutants.world.believe_every_boot());
        let device = MemoryDevice::eager(64 * SEGMENT_SIZE as u64, seed);
        Store::format(&device, &FormatOptions::default()).expect("it is new");
        let device = Arc::new(device);
        let engine = open(Arc::clone(&device), &windows).expect("it is empty");
        for n in 0..WRITES {
            let mut batch = WriteBatch::new();
            batch.put(key(n), [b'v'; 200]).expect("it is short");
            let written = engine.write(&batch, WriteOptions::default());
            assert!(written.expect("there is room").applied);
            if n == WRITES / 2 {
                engine.flush_now();
                (0..100).for_each(|at| {
                    let step = engine.step_logs(Instant::from_nanos(at * 1_000_000));
                    step.expect("the device is good");
                });
                assert_eq!(engine.durable_lsn(), engine.last_lsn());
            }
        }
        windows.disown();
        windows.lose_power(&mut Random::new(seed, 1));
        let device = Arc::new(device.crash(Crash::PowerLoss));
        drop(engine);
        let engine = open(device, &windows.restart())?;
        let is_bound = |n: &u32| engine.get(&key(*n)).expect("it is good").value.is_some();
        Ok((0..WRITES).filter(is_bound).collect())
    }

    /// What is left in files after a loss of power is not what a kill leaves. A store that took it for that would find
    /// writes missing which a kill cannot take, call its windows damaged, and not open.
    #[test]
    fn windows_of_another_boot_are_in_nobodys_way() {
        for seed in 0..SEEDS {
            let held = held_after_power_loss(seed, Mutants::default()).expect("it opens");
            assert!(
                held.len() > WRITES as usize / 2,
                "what was flushed is there"
            );
            assert!(
                held.iter().copied().eq((0..).take(held.len())),
                "seed {seed}: a prefix"
            );
        }
        let mutants = Mutants::named("believe-every-boot").expect("there is one");
        let refused = |seed: u64| {
            let held = held_after_power_loss(seed, mutants);
            u64::from(matches!(held, Err(ReplicaError::DamagedWindow { .. })))
        };
        let refused: u64 = (0..SEEDS).map(refused).sum();
        assert!(refused > SEEDS / 2, "{refused} of {SEEDS} seeds");
    }
}
