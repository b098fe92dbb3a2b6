//! What tests of this crate share: directories that go away again, and how a test says that it is skipped.

use std::io::{Write as _, stderr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// A new, empty directory, removed with all that is in it when this is dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// A directory on a real file system.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("argosy-device-test-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
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

/// Says, past what keeps the output of tests that pass, that the test of this thread is skipped, and why.
pub(crate) fn skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let _ = writeln!(stderr(), "\ntest result: skipped: {test}: {why}");
}
