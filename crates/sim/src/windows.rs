//! The windows of a machine: in its memory, or in files.
//!
//! Windows in files are what servers have where their regions have no other members and the tmpfs has no room. They
//! are there after a loss of power, too; but what lies in them then need not be what was written last: of each page,
//! what it was, or nothing, or half of it. Who finds them has to know that they are of another boot.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use argosy_base::Incarnation;
use argosy_base::limits::BLOCK_SIZE;
use argosy_device::{
    AnonymousWindows, BootId, DeviceError, Others, SharedMemory, WindowFiles, WindowFilesOptions,
    WindowStore,
};

use crate::random::Random;

/// Numbers the directories of a process.
static DIRECTORIES: AtomicU64 = AtomicU64::new(0);

/// The windows of a machine, as its present process has them. Clones share them.
#[derive(Clone)]
pub enum MachineWindows {
    /// In memory.
    Memory(AnonymousWindows),
    /// In files.
    Files(FileWindows),
}

impl MachineWindows {
    /// No windows; in files, or in memory. Files tell boots apart unless `every_boot` is believed.
    #[must_use]
    pub fn new(files: bool, every_boot: bool) -> Self {
        match files {
            true => Self::Files(FileWindows::new(every_boot)),
            false => Self::Memory(AnonymousWindows::new()),
        }
    }

    /// What the next process finds.
    #[must_use]
    pub fn restart(&self) -> Self {
        match self {
            Self::Memory(windows) => Self::Memory(windows.restart()),
            Self::Files(windows) => Self::Files(windows.restart()),
        }
    }

    /// The process dies now: what its code still writes has no effect.
    pub fn disown(&self) {
        match self {
            Self::Memory(windows) => windows.disown(),
            Self::Files(windows) => windows.disown(),
        }
    }

    /// The machine loses power. Returns how many files there are afterwards that need not hold what they did.
    pub fn lose_power(&self, random: &mut Random) -> u64 {
        match self {
            Self::Memory(windows) => {
                windows.lose();
                0
            }
            Self::Files(windows) => windows.lose_power(random),
        }
    }

    /// The machine is another one.
    pub fn forget(&self) {
        match self {
            Self::Memory(windows) => windows.lose(),
            Self::Files(windows) => windows.directory.empty(),
        }
    }

    /// The windows, as a process reaches them.
    #[must_use]
    pub fn store(&self) -> Arc<dyn WindowStore> {
        match self {
            Self::Memory(windows) => Arc::new(windows.clone()),
            Self::Files(windows) => Arc::new(windows.clone()),
        }
    }
}

/// A directory that goes with the run.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("argosy-sim-{}-{number}", std::process::id());
        let directory = Self(std::env::temp_dir().join(name));
        directory.empty();
        directory
    }

    fn empty(&self) {
        // It need not be there.
        let _ = fs::remove_dir_all(&self.0);
        fs::create_dir_all(&self.0).expect("a run may have a directory");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// See the module documentation.
#[derive(Clone)]
pub struct FileWindows {
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
        let files = open(&directory.0, BootId(1), 0);
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
            files: open(&self.directory.0, boot, start),
            made: Arc::default(),
            ..self.clone()
        }
    }

    fn disown(&self) {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.iter().for_each(|memory| memory.disown());
    }

    fn lose_power(&self, random: &mut Random) -> u64 {
        let boots = u64::from(!self.every_boot);
        self.boot.fetch_add(boots, Ordering::Relaxed);
        let listed = fs::read_dir(&self.directory.0).expect("the run's own directory");
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

    fn create(&self, name: u64, len: usize) -> Result<Arc<SharedMemory>, DeviceError> {
        let memory = self.files.create(name, len)?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.push(Arc::clone(&memory));
        Ok(memory)
    }

    fn forget_survivors(&self, name: u64) -> Result<(), DeviceError> {
        self.files.forget_survivors(name)
    }
}
