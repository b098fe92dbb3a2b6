//! Directories for tests of this crate, that go away again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new, empty directory, removed with all that is in it when this is dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// A directory on a real file system.
    pub(crate) fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// A directory in memory, where the machine has one.
    pub(crate) fn in_memory() -> Self {
        let tmpfs = Path::new("/dev/shm");
        match tmpfs.is_dir() {
            true => Self::within(tmpfs),
            false => Self::new(),
        }
    }

    fn within(root: &Path) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("argosy-memory-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
