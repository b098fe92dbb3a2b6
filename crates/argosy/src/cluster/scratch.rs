//! Directories that go away with the process that made them: the data of a playground without
//! `--data-dir` and of a benchmark, and the shared memory of both.
//!
//! A directory is made under a name that nobody looks for, its file `owner` is locked, and then it
//! gets its final name, `argosy-scratch-<number>`. So whoever finds a directory of that name whose
//! file is not locked knows that its owner died without cleaning up, and removes it.
//!
//! The shared memory of a data directory that stays is no such directory; see `memory`.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, access, flock};

use crate::cluster::{lock, memory};
use crate::failure::CommandFailure;

const PREFIX: &str = "argosy-scratch-";
const OWNER: &str = "owner";

/// A directory of this process, removed when dropped.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    #[expect(dead_code, reason = "closing the file gives up its lock")]
    owner: File,
}

impl ScratchDir {
    /// Makes a directory in `root`, after removing what dead processes left there.
    pub fn new(root: &Path) -> Result<Self, CommandFailure> {
        sweep(root);
        let failed =
            |error: std::io::Error| CommandFailure::io("make a directory in", root, &error);
        for number in 0..u32::MAX {
            let name = format!("{}-{number}", std::process::id());
            let hidden = root.join(format!(".argosy-new-{name}"));
            let path = root.join(format!("{PREFIX}{name}"));
            if path.exists() {
                continue;
            }
            match DirBuilder::new().mode(0o700).create(&hidden) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed(error)),
            }
            let owner = File::create_new(hidden.join(OWNER)).map_err(failed)?;
            flock(&owner, FlockOperation::NonBlockingLockExclusive)
                .map_err(|error| failed(error.into()))?;
            std::fs::rename(&hidden, &path).map_err(failed)?;
            return Ok(Self { path, owner });
        }
        Err(CommandFailure::Failed(format!(
            "no name is left in {}",
            root.display()
        )))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            let path = self.path.display();
            tracing::warn!("cannot remove {path}: {error}");
        }
    }
}

/// The directories in `root` that are this user's, of processes that live or have died, by name. Links are none.
pub(crate) fn own_directories(root: &Path) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let is_own = |path: &PathBuf| {
        std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == user)
    };
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let mut found: Vec<_> = named.map(|entry| entry.path()).filter(is_own).collect();
    found.sort();
    found
}

/// Removes the directories whose owners are dead. What cannot be removed stays.
fn sweep(root: &Path) {
    let Ok(entries) = std::fs::read_dir(root) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let (name, path) = (name.to_string_lossy(), entry.path());
        if !name.starts_with(PREFIX) {
            continue;
        }
        let Ok(owner) = File::open(path.join(OWNER)) else {
            continue;
        };
        if flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok()
            && !in_use(&path)
            && std::fs::remove_dir_all(&path).is_ok()
        {
            eprintln!("removed {}, left by a process that died", path.display());
        }
    }
}

/// Whether a server that someone restarted by hand still serves from a directory in `path`.
fn in_use(path: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(path) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| lock::held(&entry.path()) || memory::serves(&entry.path()))
}

/// Where shared memory of the machine lies, where it can be used; else `fallback`.
pub fn shared_memory_root(fallback: &Path) -> PathBuf {
    let shm = Path::new("/dev/shm");
    match access(shm, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => shm.to_path_buf(),
        Err(_) => fallback.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_is_removed_and_what_the_living_use_is_not() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let living = ScratchDir::new(root).unwrap();
        let dead = root.join(format!("{PREFIX}dead-0"));
        std::fs::create_dir(&dead).unwrap();
        File::create(dead.join(OWNER)).unwrap();
        let stranger = root.join("something-else");
        std::fs::create_dir(&stranger).unwrap();

        let second = ScratchDir::new(root).unwrap();
        assert_ne!(second.path(), living.path());
        assert!(!dead.exists());
        assert!(living.path().exists() && stranger.exists());

        let path = second.path().to_path_buf();
        drop(second);
        assert!(!path.exists());
        drop(living);
    }
}
