//! The shared memory of clusters whose data stays: where it is, and what of it is removed.
//!
//! ```text
//! ROOT/argosy-memory-HASH/               of the cluster whose data directory has a name of that hash; locked by
//!                                        the playground that runs it
//!     data-dir                           the name of that directory
//!     server-N/windows/                  locked by the server while it serves
//!     server-N/windows/NAME.window       of the server's present device
//!     server-N/windows/NAME.of-DEVICE    of another one, set aside
//! ```
//!
//! Windows of logs make a kill harmless: an acknowledged write may lie in a window and nowhere else.
//! Whether a record is on a device, too, is not known here, so a window with any record counts. So:
//!
//! - After a clean stop of all servers the memory goes.
//! - Memory of another cluster goes when nobody uses it, its data directory is not there, and no window holds a
//!   record. That the directory cannot be seen does not say that it is gone: a disk may not be mounted. So a
//!   window with a record stays until somebody says otherwise.
//!
//! The name of the directory can be guessed, and ROOT is everybody's: it has to be this user's own.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use argosy_log::segment::holds_records;
use argosy_memory::{SharedMemory, own_directory};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::cluster::scratch::shared_memory_root;
use crate::failure::CommandFailure;

const PREFIX: &str = "argosy-memory-";
const DATA_DIR: &str = "data-dir";

/// The shared memory of a cluster, which nobody removes while this lives.
pub(crate) struct ClusterMemory {
    path: PathBuf,
    #[expect(dead_code, reason = "closing it gives up its lock")]
    lock: File,
}

impl ClusterMemory {
    /// That of the cluster with its data in `dir`, an absolute path; after what others have left is removed.
    pub(crate) fn of(dir: &Path) -> Result<Self, CommandFailure> {
        let root = shared_memory_root(dir);
        sweep(&root);
        let path = path_of(&root, dir);
        let failed =
            |error: io::Error| CommandFailure::io("use the shared memory in", &path, &error);
        let lock = loop {
            own_directory(&path).map_err(failed)?;
            let lock = File::open(&path).map_err(failed)?;
            flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
            // Somebody who found it empty may have removed it before it was locked.
            let there = std::fs::metadata(&path).is_ok_and(|meta| is(&meta, &lock));
            if there {
                break lock;
            }
        };
        say_whose(&path, dir).map_err(failed)?;
        Ok(Self { path, lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, and all that is in it.
    pub(crate) fn remove(self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

impl Drop for ClusterMemory {
    /// Nothing is left where no server was started.
    fn drop(&mut self) {
        let is_of_server = |path: &PathBuf| path.file_name().is_some_and(|name| name != DATA_DIR);
        if entries(&self.path).is_ok_and(|entries| !entries.iter().any(is_of_server)) {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// The directory of shared memory in `root` that belongs to the data in `dir`.
fn path_of(root: &Path, dir: &Path) -> PathBuf {
    let bytes = dir.as_os_str().as_bytes();
    let hash = bytes.iter().fold(0, |hash, &byte| {
        argosy_bench::rng::mix(hash ^ u64::from(byte)).wrapping_add(1)
    });
    root.join(format!("{PREFIX}{hash:016x}"))
}

/// Writes down in the shared memory `shm` that it is that of `dir`.
fn say_whose(shm: &Path, dir: &Path) -> io::Result<()> {
    let (path, bytes) = (shm.join(DATA_DIR), dir.as_os_str().as_bytes());
    match File::create_new(&path) {
        Ok(mut file) => file.write_all(bytes),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match std::fs::read(&path)? {
                found if found == bytes => Ok(()),
                // A kill came between the file and its content.
                found if found.is_empty() => std::fs::write(&path, bytes),
                found => Err(io::Error::other(format!(
                    "it is that of {}",
                    Path::new(OsStr::from_bytes(&found)).display()
                ))),
            }
        }
        Err(error) => Err(error),
    }
}

/// Whether `file` is what `meta` describes.
fn is(meta: &std::fs::Metadata, file: &File) -> bool {
    let opened = file.metadata();
    opened.is_ok_and(|opened| (opened.dev(), opened.ino()) == (meta.dev(), meta.ino()))
}

/// Removes the memory of clusters that are over, unless a window in it holds records. Logs what it removes and
/// what it leaves.
pub(crate) fn sweep(root: &Path) {
    for path in entries(root).unwrap_or_default() {
        let name = path.file_name().unwrap_or_default().as_bytes();
        if name.starts_with(PREFIX.as_bytes()) {
            sweep_one(&path);
        }
    }
}

fn sweep_one(path: &Path) {
    // That of another user is his business.
    let user = rustix::process::geteuid().as_raw();
    let is_own =
        std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == user);
    let Ok(dir) = std::fs::read(path.join(DATA_DIR)) else {
        return;
    };
    let dir = Path::new(OsStr::from_bytes(&dir));
    if !is_own || dir.exists() {
        return;
    }
    let locked = File::open(path).and_then(|file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    });
    let servers = entries(path).unwrap_or_default();
    let (Ok(_lock), false) = (locked, servers.iter().any(|server| serves(server))) else {
        return;
    };
    let (at, dir) = (path.display(), dir.display());
    match held_in(path) {
        Ok(Held { windows: 0, .. }) => match std::fs::remove_dir_all(path) {
            Ok(()) => {
                eprintln!("removed {at}: it held no records, and its data directory {dir} is gone")
            }
            Err(error) => eprintln!("cannot remove {at}: {error}"),
        },
        Ok(held) => eprintln!(
            "left {at}: {} of its log windows hold records ({} MiB), and its data directory {dir} cannot be seen; \
             remove it if that cluster is gone for good",
            held.windows,
            held.bytes.div_ceil(1 << 20)
        ),
        Err(error) => eprintln!("left {at}: cannot look into it: {error}"),
    }
}

/// Whether a server uses the shared memory `server`.
pub(crate) fn serves(server: &Path) -> bool {
    File::open(server.join("windows")).is_ok_and(|file| {
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}

/// Windows that hold records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// How many.
    pub windows: usize,
    /// Bytes of memory that they take.
    pub bytes: u64,
}

/// The windows in the shared memory `shm` of a cluster that hold records; none where there is no such
/// directory. Changes nothing.
pub(crate) fn held_in(shm: &Path) -> io::Result<Held> {
    let mut held = Held::default();
    for server in entries(shm)? {
        for window in entries(&server.join("windows"))? {
            // What is no memory is no window either: servers remove such files, too.
            let Ok(memory) = SharedMemory::open(&window) else {
                continue;
            };
            if holds_records(&memory) {
                held.windows += 1;
                held.bytes += memory.len() as u64;
            }
        }
    }
    Ok(held)
}

/// Makes sure that a cluster is made new in `dir`, where there is none, only while its shared memory holds no
/// records: otherwise one was there, and is not now. With `discard` these windows are removed.
pub(crate) fn check_new(dir: &Path, shm: &Path, discard: bool) -> Result<(), CommandFailure> {
    let failed = |error: io::Error| CommandFailure::io("look for windows in", shm, &error);
    let held = held_in(shm).map_err(failed)?;
    if held.windows == 0 {
        return Ok(());
    }
    let (count, mib) = (held.windows, held.bytes.div_ceil(1 << 20));
    let (dir, at) = (dir.display(), shm.display());
    if !discard {
        return Err(CommandFailure::NotFound(format!(
            "{dir} holds no cluster, but {at} holds {count} log windows ({mib} MiB) with records of one that was \
             there; if its disk is not mounted, mount it and start again; if that cluster is gone for good, add \
             --discard-windows, which removes what it had acknowledged last"
        )));
    }
    for server in entries(shm).map_err(failed)? {
        if server.join("windows").is_dir() {
            std::fs::remove_dir_all(&server)
                .map_err(|error| CommandFailure::io("remove", &server, &error))?;
        }
    }
    eprintln!("removed {count} log windows ({mib} MiB) with records from {at}");
    Ok(())
}

/// What lies in a directory; nothing where there is none.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let gone = |error: &io::Error| {
        use io::ErrorKind::{NotADirectory, NotFound};
        matches!(error.kind(), NotFound | NotADirectory)
    };
    match std::fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if gone(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn memory_in(root: &Path, dir: &Path) -> PathBuf {
        let path = path_of(root, dir);
        own_directory(&path).unwrap();
        say_whose(&path, dir).unwrap();
        path
    }

    /// A window that holds a record, or only the header that it begins with.
    fn window(shm: &Path, has_record: bool) -> PathBuf {
        use argosy_base::{Epoch, Incarnation, LogId, Lsn, RegionId, SegmentNumber};
        use argosy_log::LogSegment;
        use argosy_log::segment::{WINDOW_HEADER_BYTES, Writer, encode_window_header};
        let segment = LogSegment {
            log: LogId::FIRST,
            number: SegmentNumber(1),
            epoch: Epoch(1),
            ordinal: 0,
            base_lsn: Lsn(1),
            end: None,
        };
        let windows = shm.join("server-0/windows");
        std::fs::create_dir_all(&windows).unwrap();
        let path = windows.join("0000000000000001.window");
        let memory = SharedMemory::create(&path, 16 << 10, Incarnation(1)).unwrap();
        let writer = Writer::default();
        memory.write(0, &encode_window_header(RegionId(1), &segment, 1, writer));
        if has_record {
            memory.write(WINDOW_HEADER_BYTES + 5000, b"record");
        }
        path
    }

    #[test]
    fn memory_with_records_is_not_swept_although_its_data_cannot_be_seen() {
        let place = tempfile::tempdir().unwrap();
        let (root, data) = (place.path().join("shm"), place.path().join("data"));
        std::fs::create_dir_all(&data).unwrap();
        let (held, empty) = (memory_in(&root, &data), memory_in(&root, &root));
        std::fs::write(empty.join(DATA_DIR), data.as_os_str().as_bytes()).unwrap();
        let record = window(&held, true);
        window(&empty, false);
        let memory = SharedMemory::open(&record).unwrap();
        assert!(holds_records(&memory));
        sweep(&root);
        assert!(held.exists() && empty.exists(), "its data is there");

        std::fs::rename(&data, place.path().join("away")).unwrap();
        let lock = File::open(empty.join("server-0/windows")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(&root);
        assert!(empty.exists(), "a server serves from it");
        drop(lock);
        sweep(&root);
        assert!(record.exists(), "it holds a record");
        assert!(!empty.exists(), "there is nothing in it");
    }

    #[test]
    fn memory_that_somebody_else_made_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let (data, elsewhere) = (place.path().join("data"), place.path().join("elsewhere"));
        std::fs::create_dir_all(&data).unwrap();
        std::fs::create_dir_all(&elsewhere).unwrap();
        let path = path_of(&shared_memory_root(&data), &data);
        let refused = || {
            ClusterMemory::of(&data)
                .err()
                .expect("it is refused")
                .to_string()
        };

        symlink(&elsewhere, &path).unwrap();
        assert!(refused().contains("link"));
        std::fs::remove_file(&path).unwrap();

        std::fs::create_dir(&path).unwrap();
        symlink(elsewhere.join("target"), path.join(DATA_DIR)).unwrap();
        let said = refused();
        assert!(
            !elsewhere.join("target").exists(),
            "no link is followed: {said}"
        );
        std::fs::remove_file(path.join(DATA_DIR)).unwrap();
        // Only root can give a directory away.
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(65_534), None).unwrap();
            assert!(refused().contains("65534"));
            chown(&path, Some(0), None).unwrap();
        }

        let memory = ClusterMemory::of(&data).unwrap();
        let mode = std::fs::metadata(memory.path())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(memory.path(), path, "the name follows from the data's");
        drop(memory);
        assert!(!path.exists(), "no server was started");
    }
}
