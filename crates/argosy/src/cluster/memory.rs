//! The shared memory of clusters: whether anything lies there that may be nowhere else.
//!
//! ```text
//! SHM/server-N/windows/NAME.window       of the server's present device
//! SHM/server-N/windows/NAME.of-DEVICE    of another one, set aside
//! ```
//!
//! Windows of logs that hold records are what makes a kill harmless: what was acknowledged may lie there
//! alone. Whether a record is on a device, too, is not known here, so a window with any record counts.

use std::io;
use std::path::Path;

use argosy_device::SharedMemory;
use argosy_lsm::log::segment::holds_records;

use crate::failure::Failure;

/// Windows that hold records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many.
    pub windows: usize,
    /// Bytes of memory that they take.
    pub bytes: u64,
}

/// The windows in the shared memory `shm` of a cluster that hold records; none where there is no such
/// directory. Changes nothing.
pub fn held_in(shm: &Path) -> io::Result<Held> {
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
pub fn check_new(dir: &Path, shm: &Path, discard: bool) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("look for windows in", shm, &error);
    let held = held_in(shm).map_err(failed)?;
    if held.windows == 0 {
        return Ok(());
    }
    let (count, mib) = (held.windows, held.bytes.div_ceil(1 << 20));
    let (dir, at) = (dir.display(), shm.display());
    if !discard {
        return Err(Failure::NotFound(format!(
            "{dir} holds no cluster, but {at} holds {count} log windows ({mib} MiB) with records of one that was \
             there; if its disk is not mounted, mount it and start again; if that cluster is gone for good, add \
             --discard-windows, which removes what it had acknowledged last"
        )));
    }
    for server in entries(shm).map_err(failed)? {
        if server.join("windows").is_dir() {
            std::fs::remove_dir_all(&server)
                .map_err(|error| Failure::io("remove", &server, &error))?;
        }
    }
    eprintln!("removed {count} log windows ({mib} MiB) with records from {at}");
    Ok(())
}

/// What lies in a directory; nothing where there is none.
fn entries(directory: &Path) -> io::Result<Vec<std::path::PathBuf>> {
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
