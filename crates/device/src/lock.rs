//! The lock of a file that one process uses at a time, and who holds it.
//!
//! A killed process seems gone up to some tenths of a second before its lock falls: reads of io_uring that were
//! under way hold its files until they have ended. So a lock that is held is tried again for a second, unless
//! this very process holds it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::io::DeviceError;

/// From one try to the next.
const POLL: Duration = Duration::from_millis(10);
/// How often a lock is tried that another process holds: a second in all.
const TRIES: u32 = 101;

/// Device and inode of a file.
type FileId = (u64, u64);

/// The devices that this process has open, and how often: while one is given up it may be opened again.
static OPEN: Mutex<BTreeMap<FileId, u32>> = Mutex::new(BTreeMap::new());

fn open_here() -> MutexGuard<'static, BTreeMap<FileId, u32>> {
    OPEN.lock()
}

fn is_open_here(id: FileId) -> bool {
    open_here().contains_key(&id)
}

/// A device's file, locked.
pub(crate) struct Opened {
    pub(crate) file: File,
    /// Given up behind the file.
    pub(crate) _here: OpenHere,
    /// Bytes of whole segments.
    pub(crate) len: u64,
    /// Whether I/O passes by the page cache.
    pub(crate) direct: bool,
}

impl Opened {
    /// Locks `file`, which was opened at `path`.
    pub(crate) fn lock(mut file: File, path: &Path, direct: bool) -> Result<Self, DeviceError> {
        let here = lock_device(&file, path, false)?;
        // The length of a block device is where its end is; its metadata say 0.
        let end = file.seek(SeekFrom::End(0));
        let bytes = end.map_err(|e| DeviceError::refused("open the device", path, e))?;
        Ok(Self {
            file,
            _here: here,
            len: bytes - bytes % SEGMENT_SIZE as u64,
            direct,
        })
    }
}

/// Says that this process has the file open, as long as it lives.
#[derive(Debug)]
pub(crate) struct OpenHere(FileId);

impl Drop for OpenHere {
    fn drop(&mut self) {
        let mut open = open_here();
        match open.get_mut(&self.0) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.0)),
        }
    }
}

fn id_of(file: &File) -> io::Result<FileId> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

/// Locks the device `file` for this process alone, or beside others that read.
///
/// # Errors
/// [`DeviceError::InUse`] where it is held by then; [`DeviceError::Refused`] where the system refuses.
pub(crate) fn lock_device(file: &File, path: &Path, shared: bool) -> Result<OpenHere, DeviceError> {
    let refused = |e| DeviceError::refused("lock the device", path, e);
    let id = id_of(file).map_err(refused)?;
    let is_here = || is_open_here(id);
    if !lock_unless(file, shared, is_here).map_err(refused)? {
        return Err(DeviceError::InUse {
            path: path.display().to_string(),
            here: is_here(),
        });
    }
    *open_here().entry(id).or_default() += 1;
    Ok(OpenHere(id))
}

/// What `open` gives for the device at `path`. A block device that is in use is tried again, as a lock is.
///
/// # Errors
/// [`DeviceError::InUse`] where this process has it; [`DeviceError::Unusable`] where the system says that it is in
/// use still; [`DeviceError::Refused`] where the system refuses.
pub(crate) fn open_device(
    path: &Path,
    open: impl Fn() -> io::Result<File>,
) -> Result<File, DeviceError> {
    let is_here =
        || std::fs::metadata(path).is_ok_and(|meta| is_open_here((meta.dev(), meta.ino())));
    let attempt = || match open() {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::BUSY) => Ok(None),
        opened => opened.map(Some),
    };
    match patiently(is_here, attempt) {
        Ok(Some(file)) => Ok(file),
        Ok(None) if is_here() => Err(DeviceError::InUse {
            path: path.display().to_string(),
            here: true,
        }),
        Ok(None) => Err(DeviceError::unusable(
            path,
            "the system has it in use: another process has it, or it is mounted, or part of a volume or of swap",
        )),
        Err(e) => Err(DeviceError::refused("open the device", path, e)),
    }
}

/// Locks `file` for this process alone, or beside others that have it `shared`; it is given back when the file is
/// closed. `false` where somebody else holds it still after a second, or at once where that is `hopeless`.
///
/// # Errors
/// The system's.
pub fn lock_unless(file: &File, shared: bool, hopeless: impl Fn() -> bool) -> io::Result<bool> {
    let how = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let attempt = || match flock(file, how) {
        Ok(()) => Ok(Some(())),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    };
    Ok(patiently(hopeless, attempt)?.is_some())
}

/// Attempts it until it gives something, fails, is `hopeless`, or a second is over.
fn patiently<T>(
    hopeless: impl Fn() -> bool,
    attempt: impl Fn() -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    for left in (0..TRIES).rev() {
        match attempt()? {
            None if left > 0 && !hopeless() => pause(),
            tried => return Ok(tried),
        }
    }
    Ok(None)
}

/// Nobody rings: it only takes its time, and takes no wake from the thread.
fn pause() {
    let (asleep, bell) = (Mutex::new(()), Condvar::new());
    bell.wait_for(&mut asleep.lock(), POLL);
}
