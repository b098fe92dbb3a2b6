//! Directories that go away, small settings, and numbers from a seed.

use std::path::{Path, PathBuf};

use argosy_embedded::{Builder, Settings};
use tempfile::TempDir;

/// A directory of a test's own. It does not exist at first.
pub(crate) struct Dir {
    path: PathBuf,
    _around: TempDir,
}

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let around = tempfile::tempdir().expect("a directory for the test");
        Self {
            path: around.path().join(name),
            _around: around,
        }
    }
}

impl AsRef<Path> for Dir {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// A store in which little data fills memtables and levels.
pub(crate) fn small() -> Builder {
    Builder::new()
        .engine(Settings::small())
        .memory(4 << 20)
        .l0_bytes(64 << 10)
        .device_bytes(4 << 30)
}

/// Numbers from a seed (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len)
            .map(|_| u8::try_from(self.below(256)).unwrap())
            .collect()
    }
}
