//! What tests of this crate share: directories that go away again, and how a test says that it is skipped.

use std::io::{Write as _, stderr};
use std::path::PathBuf;

/// A new, empty directory, removed with all that is in it when this is dropped.
pub(crate) struct TempDir(tempfile::TempDir);

impl TempDir {
    /// A directory on a real file system.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Says, past what keeps the output of tests that pass, that the test of this thread is skipped, and why.
pub(crate) fn skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let _ = writeln!(stderr(), "\ntest result: skipped: {test}: {why}");
}
