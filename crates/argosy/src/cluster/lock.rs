//! The lock on a data directory: one process serves from it at a time, and everyone can tell which.
//!
//! The file `lock` in the directory is locked for as long as the process lives, however it ends,
//! and holds its process id in decimal. It is empty when the last process has ended well: nothing of its work lies in
//! shared memory alone. A killed process is seen to be dead a moment before its last
//! thread has let go of its files, so whoever starts the next one at once is made to wait for that.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use argosy_base::Clock;
use argosy_device::SystemClock;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::failure::CommandFailure;

/// How long a process that may have been killed this moment is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long one that is known to be ending is.
const PATIENCE_ENDING: Duration = Duration::from_secs(20);

/// From one look to the next.
const POLL: Duration = Duration::from_millis(5);

/// The name of the file.
const NAME: &str = "lock";

/// A lock that this process holds.
pub struct DirLock(File);

impl DirLock {
    /// Takes the lock on `dir`, or says who has it.
    pub fn take(dir: &Path) -> Result<Self, CommandFailure> {
        let path = dir.join(NAME);
        let failed = |error: std::io::Error| CommandFailure::io("lock", &path, &error);
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let before = holder_in(&mut file);
        let began = SystemClock.now();
        wait_for_lock(&mut file, dir, FlockOperation::NonBlockingLockExclusive)?;
        // Its other files, the device among them, are closed by its last thread.
        while before.is_some_and(has_threads) && SystemClock.now() - began < PATIENCE {
            std::thread::park_timeout(POLL);
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        write!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self(file))
    }

    /// Gives up the lock, and says in its file that all of this process's work is on devices. Best effort: where
    /// it cannot be said, the process counts as one that was killed.
    pub fn ended_well(self) {
        let _ = self.0.set_len(0);
    }
}

/// Keeps servers away from `dir` while the result lives, and changes nothing there. `None` where no
/// server ever was: there is no lock.
pub fn share(dir: &Path) -> Result<Option<DirLock>, CommandFailure> {
    let path = dir.join(NAME);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CommandFailure::io("open", &path, &error)),
    };
    wait_for_lock(&mut file, dir, FlockOperation::NonBlockingLockShared)?;
    Ok(Some(DirLock(file)))
}

/// Locks `file`, the lock of `dir`, or says who has it.
fn wait_for_lock(file: &mut File, dir: &Path, how: FlockOperation) -> Result<(), CommandFailure> {
    let began = SystemClock.now();
    loop {
        match flock(&*file, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(CommandFailure::io("lock", &dir.join(NAME), &error.into())),
        }
        let holder = holder_in(file);
        let patience = match holder {
            Some(pid) if is_ending(pid) => PATIENCE_ENDING,
            _ => PATIENCE,
        };
        if SystemClock.now() - began > patience {
            let by = holder.map_or_else(String::new, |pid| format!(" by process {}", number(pid)));
            return Err(CommandFailure::Failed(format!(
                "{} is in use{by}; stop that first",
                dir.display()
            )));
        }
        std::thread::park_timeout(POLL);
    }
}

/// Whether some process serves from `dir`.
pub fn held(dir: &Path) -> bool {
    File::open(dir.join(NAME)).is_ok_and(|file| {
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}

/// The process that serves from `dir`, if one does.
pub fn holder(dir: &Path) -> Option<Pid> {
    if !held(dir) {
        return None;
    }
    holder_in(&mut File::open(dir.join(NAME)).ok()?)
}

/// Whether no process serves from `dir`, and the last one that did has ended well.
pub fn all_is_well(dir: &Path) -> bool {
    let empty = std::fs::metadata(dir.join(NAME)).is_ok_and(|meta| meta.len() == 0);
    empty && !held(dir)
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// Whether the process is a zombie or gone.
fn is_ending(pid: Pid) -> bool {
    has_ended(&PathBuf::from(format!("/proc/{}/stat", number(pid))))
}

/// Whether any thread of the process, which is not this one, still runs.
fn has_threads(pid: Pid) -> bool {
    if pid == rustix::process::getpid() {
        return false;
    }
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", number(pid))) else {
        return false;
    };
    threads
        .flatten()
        .any(|thread| !has_ended(&thread.path().join("stat")))
}

/// Whether the state in a `stat` file, behind the command in parentheses, is that of the dead.
fn has_ended(stat: &Path) -> bool {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    let state = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    !state.starts_with(|state: char| state.is_ascii_alphabetic() && !"ZX".contains(state))
}

fn holder_in(file: &mut File) -> Option<Pid> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_once_and_says_by_whom() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(holder(dir), None);
        let lock = DirLock::take(dir).unwrap();
        assert_eq!(holder(dir), Some(rustix::process::getpid()));
        let refused = DirLock::take(dir).err().expect("it is held");
        let pid = std::process::id().to_string();
        assert!(refused.to_string().contains(&pid), "{refused}");
        drop(lock);
        assert_eq!(holder(dir), None);
        assert!(!all_is_well(dir), "it was not said");
        let lock = DirLock::take(dir).unwrap();
        assert!(!all_is_well(dir));
        lock.ended_well();
        assert!(all_is_well(dir));
        DirLock::take(dir).unwrap();
        assert!(!all_is_well(dir));
    }
}
