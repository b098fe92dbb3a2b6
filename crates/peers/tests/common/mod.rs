//! What the tests of peers share.

use std::path::PathBuf;

/// A directory that goes away with the test.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("argosy-peers-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A value, kept.
pub(crate) fn owned(found: Option<&[u8]>) -> Option<Vec<u8>> {
    found.map(<[u8]>::to_vec)
}
