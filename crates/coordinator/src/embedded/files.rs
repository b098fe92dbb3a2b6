//! Every operation on files that the embedded coordinator makes: one function each, and nothing
//! else. A test can put a hook in front of all of them, to stop or to kill a process there.
//!
//! What is not there is a value (`None`, [`Taken::Gone`]) and no error: another process may remove
//! whatever this one looks at.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// What became of a name that only one can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is ours.
    Ours,
    /// Somebody has it.
    Theirs,
    /// A directory on the way to it is not there.
    Gone,
}

impl Taken {
    fn of(result: io::Result<()>) -> io::Result<Self> {
        match result.map_err(|error| (error.kind(), error)) {
            Ok(()) => Ok(Self::Ours),
            Err((ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty, _)) => Ok(Self::Theirs),
            Err((ErrorKind::NotFound, _)) => Ok(Self::Gone),
            Err((_, error)) => Err(error),
        }
    }
}

/// Called with the name of each operation before it is made.
#[cfg(feature = "mutants")]
pub type OperationHook = Box<dyn FnMut(&'static str) + Send>;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Files {
    #[cfg(feature = "mutants")]
    hook: std::cell::RefCell<Option<OperationHook>>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Files")
    }
}

#[cfg_attr(
    not(feature = "mutants"),
    expect(
        clippy::unused_self,
        reason = "a hook stands in front of each only in tests"
    )
)]
impl Files {
    #[cfg(feature = "mutants")]
    pub(super) fn with_hook(hook: OperationHook) -> Self {
        Self {
            hook: std::cell::RefCell::new(Some(hook)),
        }
    }

    #[inline]
    fn before(&self, _operation: &'static str) {
        #[cfg(feature = "mutants")]
        if let Some(hook) = &mut *self.hook.borrow_mut() {
            hook(_operation);
        }
    }

    /// Finds the directory `path` long before it is used, as the system may.
    pub(super) fn hold(&self, path: &Path) -> Held {
        self.before("hold");
        Held(File::open(path).ok(), path.to_path_buf())
    }

    /// Makes the directory `path`, for one user alone.
    pub(super) fn make(&self, path: &Path) -> io::Result<Taken> {
        self.before("make a directory");
        Taken::of(fs::DirBuilder::new().mode(0o700).create(path))
    }

    /// Writes the new file `path`, durably.
    pub(super) fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<Taken> {
        self.before("create");
        let created = OpenOptions::new().write(true).create_new(true).open(path);
        let mut file = match created {
            Ok(file) => file,
            Err(error) => return Taken::of(Err(error)),
        };
        self.before("write");
        file.write_all(bytes)?;
        self.before("sync");
        file.sync_all()?;
        Ok(Taken::Ours)
    }

    /// Writes `bytes` over what the file `path` begins with; makes it where `create`. Not durable. A link is
    /// no file.
    pub(super) fn overwrite(&self, path: &Path, bytes: &[u8], create: bool) -> io::Result<()> {
        self.before("open to overwrite");
        present(fs::symlink_metadata(path).and_then(demand_file))?;
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(create)
            .truncate(false)
            .open(path)?;
        self.before("overwrite");
        file.write_all(bytes)
    }

    /// The file `path`, or its first `most` bytes and one more. An error of kind `InvalidData`: it is no file.
    pub(super) fn read(&self, path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
        self.before("open");
        // First, since to open a pipe waits for somebody who writes into it.
        let found = fs::metadata(path).and_then(demand_file);
        let file = match found.and_then(|()| File::open(path)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        self.before("read");
        file.take(most as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Whether there is something at `path`.
    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        self.before("look for");
        path.try_exists()
    }

    /// Gives the file `from` the second name `to`.
    pub(super) fn link(&self, from: &Path, to: &Path) -> io::Result<Taken> {
        self.before("link");
        Taken::of(fs::hard_link(from, to))
    }

    /// Whether `one` and `other` are names of one file.
    pub(super) fn is_same(&self, one: &Path, other: &Path) -> io::Result<bool> {
        self.before("compare");
        match (fs::symlink_metadata(one), fs::symlink_metadata(other)) {
            (Ok(one), Ok(other)) => Ok(one.dev() == other.dev() && one.ino() == other.ino()),
            (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::NotFound => Ok(false),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Gives `from` the name `to` instead of its own. An empty directory, or a file, that is there is
    /// replaced.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<Taken> {
        self.before("rename");
        Taken::of(fs::rename(from, to))
    }

    /// Makes the names in the directory `path` durable. False: it is not there.
    pub(super) fn sync_directory(&self, path: &Path) -> io::Result<bool> {
        self.before("sync a directory");
        match File::open(path).and_then(|directory| directory.sync_all()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The names in the directory `path`; none where it is not there. Names that are no text are left
    /// out: none of ours is.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = self.list_all(path)?.into_iter();
        Ok(names.filter_map(|name| name.into_string().ok()).collect())
    }

    fn list_all(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.before("list");
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Removes the file `path`, if it is there.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.before("remove");
        present(fs::remove_file(path))
    }

    /// Removes what is at `path`, if anything is: a file, a link (not what it leads to), or a directory
    /// with all that is in it. Names that begin with `first` go before the others.
    pub(super) fn remove_tree(&self, path: &Path, first: &str) -> io::Result<()> {
        match self.remove(path) {
            Err(error) if error.kind() == ErrorKind::IsADirectory => {}
            removed => return removed,
        }
        let mut names = self.list_all(path)?;
        names.sort_by_key(|name| !name.as_encoded_bytes().starts_with(first.as_bytes()));
        for name in names {
            self.remove_tree(&path.join(name), first)?;
        }
        self.before("remove a directory");
        present(fs::remove_dir(path))
    }
}

/// A directory that has been found, wherever it is renamed to.
pub(super) struct Held(Option<File>, PathBuf);

impl Held {
    /// A path to it.
    pub(super) fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd as _;
        let found = self.0.as_ref();
        let path = found.map(|found| PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd())));
        path.unwrap_or_else(|| self.1.clone())
    }
}

/// An error of kind `InvalidData` unless `found` is that of a file.
fn demand_file(found: fs::Metadata) -> io::Result<()> {
    match found.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::InvalidData, "it is no file")),
    }
}

fn present(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
