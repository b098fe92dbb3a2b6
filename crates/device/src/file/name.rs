//! A device's file, and the name by which it is found.
//!
//! What is written to a file that has lost its name, or whose name another file has got, is not found by whoever opens
//! the device the next time. So it is looked now and then whether the name still leads to the file that is open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Whether whoever opens `path` finds `file`. Of a block device that is not asked, nor is it doubted where the system
/// does not tell.
pub(super) fn is_in_place(file: &File, path: &Path) -> bool {
    let Ok(here) = file.metadata() else {
        return true;
    };
    if !here.is_file() {
        return true;
    }
    let is_there = match std::fs::metadata(path) {
        Ok(there) => (there.dev(), there.ino()) == (here.dev(), here.ino()),
        Err(error) => {
            use io::ErrorKind::{NotADirectory, NotFound};
            !matches!(error.kind(), NotFound | NotADirectory)
        }
    };
    is_there && here.nlink() > 0
}

/// Opens the file or block device at `path`, or makes a file there.
pub(super) fn open_file(path: &Path, create_new: bool, direct: bool) -> io::Result<File> {
    let mut flags = OFlags::empty();
    flags.set(OFlags::DIRECT, direct);
    // Of a block device this means: not if the system has it in use.
    let is_block = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    flags.set(OFlags::EXCL, is_block && !create_new);
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(create_new)
        .mode(0o600)
        .custom_flags(i32::try_from(flags.bits()).expect("flags of open"))
        .open(path)
}

/// Whether there is a file without a byte, as its making may have left it.
pub(super) fn is_empty_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0)
}

/// Makes a new file's name durable.
pub(super) fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}
