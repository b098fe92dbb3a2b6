//! Directories for tests of this crate, that go away again.

use std::path::{Path, PathBuf};

use argosy_base::{Grant, Incarnation, ServerId};

/// Grant `number`, by a server's start `by`.
pub(crate) const fn grant(number: u64, by: u64) -> Grant {
    Grant {
        number,
        to: ServerId(9),
        by: Incarnation(by),
    }
}

/// A new, empty directory, removed with all that is in it when this is dropped.
pub(crate) struct TempDir(tempfile::TempDir);

impl TempDir {
    /// A directory on a real file system.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A directory in memory, where the machine has one.
    pub(crate) fn in_memory() -> Self {
        let tmpfs = Path::new("/dev/shm");
        match tmpfs.is_dir() {
            true => Self(tempfile::tempdir_in(tmpfs).unwrap()),
            false => Self::new(),
        }
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
