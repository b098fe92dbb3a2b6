//! Directories that go away with the process that made them: the data of a playground without
//! `--data-dir` and of a benchmark, and the shared memory of both.
//!
//! A directory is made under a name that nobody looks for, its file `owner` is locked, and then it
//! gets its final name, `argosy-scratch-<number>`. So whoever finds a directory of that name whose
//! file is not locked knows that its owner died without cleaning up, and removes it.
//!
//! The shared memory of a data directory that stays is `argosy-<hash of its name>`, and says in its
//! file `data-dir` whose it is. It outlives a killed playground, since what was acknowledged may be
//! nowhere else; it is removed after a clean stop, and when the data directory is gone.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::cluster::lock;
use crate::failure::Failure;

const PREFIX: &str = "argosy-scratch-";
const OWNER: &str = "owner";
const MEMORY_PREFIX: &str = "argosy-memory-";
const DATA_DIR: &str = "data-dir";

/// A directory of this process, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    #[expect(dead_code, reason = "closing the file gives up its lock")]
    owner: File,
}

impl Scratch {
    /// Makes a directory in `root`, after removing what dead processes left there.
    pub fn new(root: &Path) -> Result<Self, Failure> {
        sweep(root);
        let failed = |error: std::io::Error| Failure::io("make a directory in", root, &error);
        for number in 0..u32::MAX {
            let name = format!("{}-{number}", std::process::id());
            let hidden = root.join(format!(".argosy-new-{name}"));
            let path = root.join(format!("{PREFIX}{name}"));
            if path.exists() {
                continue;
            }
            match std::fs::create_dir(&hidden) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed(error)),
            }
            let owner = File::create(hidden.join(OWNER)).map_err(failed)?;
            flock(&owner, FlockOperation::NonBlockingLockExclusive)
                .map_err(|error| failed(error.into()))?;
            std::fs::rename(&hidden, &path).map_err(failed)?;
            return Ok(Self { path, owner });
        }
        Err(Failure::Failed(format!(
            "no name is left in {}",
            root.display()
        )))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            let path = self.path.display();
            tracing::warn!("cannot remove {path}: {error}");
        }
    }
}

/// Removes the directories whose owners are dead. What cannot be removed stays.
fn sweep(root: &Path) {
    let Ok(entries) = std::fs::read_dir(root) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let (name, path) = (name.to_string_lossy(), entry.path());
        if name.starts_with(MEMORY_PREFIX) {
            sweep_memory(&path);
        }
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
            tracing::info!("removed {}, left by a process that died", path.display());
        }
    }
}

/// Removes shared memory whose data directory is gone.
fn sweep_memory(path: &Path) {
    let Ok(dir) = std::fs::read(path.join(DATA_DIR)) else {
        return;
    };
    if !Path::new(OsStr::from_bytes(&dir)).exists() && std::fs::remove_dir_all(path).is_ok() {
        tracing::info!("removed {}: its data is gone", path.display());
    }
}

/// The directory of shared memory that belongs to the data in `dir`, an absolute path.
pub fn memory_of(dir: &Path) -> Result<PathBuf, Failure> {
    let root = shared_memory_root(dir);
    sweep(&root);
    let bytes = dir.as_os_str().as_bytes();
    let hash = bytes.iter().fold(0, |hash, &byte| {
        argosy_bench::rng::mix(hash ^ u64::from(byte)).wrapping_add(1)
    });
    let path = root.join(format!("{MEMORY_PREFIX}{hash:016x}"));
    std::fs::create_dir_all(&path)
        .and_then(|()| std::fs::write(path.join(DATA_DIR), bytes))
        .map_err(|error| Failure::io("make", &path, &error))?;
    Ok(path)
}

/// Whether a server that someone restarted by hand still serves from a directory in `path`.
fn in_use(path: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(path) else {
        return false;
    };
    entries.flatten().any(|entry| lock::held(&entry.path()))
}

/// Where shared memory of the machine lies, where it can be used; else `fallback`.
pub fn shared_memory_root(fallback: &Path) -> PathBuf {
    let shm = Path::new("/dev/shm");
    let probe = shm.join(format!(".argosy-probe-{}", std::process::id()));
    if File::create(&probe).is_ok() && std::fs::remove_file(&probe).is_ok() {
        shm.to_path_buf()
    } else {
        fallback.to_path_buf()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_is_removed_and_what_the_living_use_is_not() {
        let root = std::env::temp_dir().join(format!("argosy-scratch-test-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let living = Scratch::new(&root).unwrap();
        let dead = root.join(format!("{PREFIX}dead-0"));
        std::fs::create_dir(&dead).unwrap();
        File::create(dead.join(OWNER)).unwrap();
        let stranger = root.join("something-else");
        std::fs::create_dir(&stranger).unwrap();

        let second = Scratch::new(&root).unwrap();
        assert_ne!(second.path(), living.path());
        assert!(!dead.exists());
        assert!(living.path().exists() && stranger.exists());

        let path = second.path().to_path_buf();
        drop(second);
        assert!(!path.exists());
        drop(living);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn shared_memory_goes_with_its_data() {
        let root = std::env::temp_dir().join(format!("argosy-memory-test-{}", std::process::id()));
        let data = root.join("data");
        std::fs::create_dir_all(&data).unwrap();
        let memory = memory_of(&data).unwrap();
        assert_eq!(
            memory_of(&data).unwrap(),
            memory,
            "the name follows from the data's"
        );
        let other = memory_of(&root).unwrap();
        assert_ne!(other, memory);
        assert!(memory.exists(), "its data is there");
        std::fs::remove_dir_all(&root).unwrap();
        sweep(memory.parent().unwrap());
        assert!(!memory.exists() && !other.exists());
    }
}
