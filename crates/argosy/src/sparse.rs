//! How large the file of a device is, and how much of it there is: it is sparse, so tools that look at its length alone
//! see much more than it takes.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The file of a device, in its server's directory.
pub(crate) const DEVICE: &str = "device";

/// The lengths of a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SparseFile {
    /// What `ls -l` shows.
    pub(crate) bytes: u64,
    /// What it takes of its file system.
    pub(crate) taken: u64,
}

impl SparseFile {
    /// That of the file at `path`; `None` where there is none, or everything of it is there.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path)
            .ok()
            .filter(std::fs::Metadata::is_file)?;
        let (bytes, taken) = (meta.len(), meta.blocks() * 512);
        (taken < bytes).then_some(Self { bytes, taken })
    }
}

impl fmt::Display for SparseFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        write!(
            f,
            "sparse: {} MiB long as ls shows it, {} MiB of them taken; copy it with cp --sparse=always, rsync -S or \
             tar -S",
            mib(self.bytes),
            mib(self.taken)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_holes_is_said_to_have_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        assert_eq!(SparseFile::at(&path), None);
        std::fs::File::create(&path)
            .unwrap()
            .set_len(64 << 30)
            .unwrap();
        let told = SparseFile::at(&path).unwrap();
        assert_eq!((told.bytes, told.taken >> 20), (64 << 30, 0));
        assert!(
            told.to_string()
                .starts_with("sparse: 65536 MiB long as ls shows it, 0 MiB of them taken")
        );
        std::fs::write(&path, vec![1; 8192]).unwrap();
        assert_eq!(SparseFile::at(&path), None);
        assert_eq!(SparseFile::at(dir.path()), None);
    }
}
