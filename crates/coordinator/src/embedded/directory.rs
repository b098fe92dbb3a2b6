//! The names in the coordinator's directory, and the operations that need no state.
//!
//! ```text
//! DIR/format                          says that the directory is begun, and in which layout
//! DIR/generation-G/snapshot           the state that generation G begins with
//! DIR/generation-G/transaction-N      behind it, numbers without gaps; the last one is a seal
//! DIR/generation-G/new-X              a transaction that is being written
//! DIR/generation-G/next-X/snapshot    generation G + 1 that is being built
//! DIR/first-X/snapshot                generation 1 that is being built
//! DIR/sessions/S                      the heartbeat of session S
//! DIR/trash-*                         what is being removed
//!
//! X := name of the handle "-" counter
//! ```
//!
//! A directory `generation-G` never comes into being twice, and no link succeeds in what was retired;
//! [`super`] says why. Four rules of this file are part of the reason. [`Directory::retire`] discards
//! generations in their order, each after all of the one before it is removed; and none before
//! everything that might still become generation 1. In trash, temporary names are removed before
//! transactions. And [`Directory::begin_first`] asks for `format` *after* it has made the directory that it
//! renames.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::EmbeddedSettings;
use super::files::{Files, Taken};
use super::mutants::Mutants;
use crate::contract::{CoordinatorError, SessionId};
use crate::format::{NUMBER_MAX, SnapshotRecord};
use crate::state::State;

/// What `DIR/format` holds.
const FORMAT: &[u8] = b"argosy.coordinator.v2\n";

/// How the names of transactions that are being written begin. In trash they are removed first.
const TEMPORARY: &str = "new-";

/// How often a directory is looked at again that others are changing.
const LOOKS_MAX: usize = 16;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Directory {
    root: PathBuf,
    pub(super) files: Files,
    pub(super) mutants: Mutants,
    /// What no other handle calls itself.
    name: u128,
    counter: u64,
}

/// What lies in a coordinator's directory.
#[derive(Debug, Default)]
struct Listing {
    /// In order.
    generations: Vec<u64>,
    has_format: bool,
    /// Generation 1 or `format`, while they are being made.
    begun: Vec<String>,
    trash: Vec<String>,
    /// A file of the first layout.
    old: Option<String>,
}

impl Directory {
    /// The directory `root`, which is made and begun where it is not.
    pub(super) fn open(
        root: &Path,
        name: u128,
        settings: EmbeddedSettings,
    ) -> Result<Self, CoordinatorError> {
        let mut directory = Self {
            root: root.to_path_buf(),
            mutants: settings.mutants,
            files: settings.into_files(),
            name,
            counter: 0,
        };
        directory.begin()?;
        Ok(directory)
    }

    /// Makes sure that there is a generation, and `format`.
    fn begin(&mut self) -> Result<(), CoordinatorError> {
        let root = self.root.clone();
        self.make_root()?;
        let sessions = root.join("sessions");
        for _ in 0..LOOKS_MAX {
            let listing = self.listing()?;
            if let Some(old) = listing.old {
                return Err(damaged(
                    &root.join(old),
                    "it was written by an earlier version, which this one does not read",
                ));
            }
            if listing.has_format {
                self.check_format()?;
            }
            if !listing.generations.is_empty() {
                if !listing.has_format {
                    self.write_format()?;
                }
                let made = self.files.make(&sessions);
                made.map_err(|e| refused("make", &sessions, e))?;
                return Ok(());
            }
            if !listing.has_format {
                self.begin_first()?;
            }
        }
        Err(damaged(&root, "it is begun, but has no generation"))
    }

    /// Makes the directory and what is missing above it. Each name is durable before the next one is made in
    /// it; whoever made the first one that is there may have died before he synced it, as long as there is
    /// no `format`.
    fn make_root(&self) -> Result<(), CoordinatorError> {
        let format = self.root.join("format");
        let exists = |path: &Path| {
            let exists = self.files.exists(path);
            exists.map_err(|e| refused("look for", path, e))
        };
        if exists(&format)? {
            return Ok(());
        }
        let mut missing = vec![&*self.root];
        for above in self.root.ancestors().skip(1) {
            let is_named = !above.as_os_str().is_empty();
            if !is_named || exists(missing[missing.len() - 1])? {
                break;
            }
            missing.push(above);
        }
        for path in missing.into_iter().rev() {
            let made = self.files.make(path);
            made.map_err(|e| refused("make", path, e))?;
            if let Some(above) = path.parent() {
                self.sync_above(above)?;
            }
        }
        match exists(&self.root)? {
            true => Ok(()),
            // A link that leads nowhere, or somebody has removed it.
            false => Err(refused("make", &self.root, ErrorKind::NotFound.into())),
        }
    }

    /// Makes the names in `above` durable. Where we may not read it, or it knows no syncs, whoever owns it
    /// answers for it.
    fn sync_above(&self, above: &Path) -> Result<(), CoordinatorError> {
        let path = match above.as_os_str().is_empty() {
            true => Path::new("."),
            false => above,
        };
        match self.files.sync_directory(path) {
            Ok(_) => Ok(()),
            Err(error) if is_no_matter(&error) => Ok(()),
            Err(error) => Err(refused("sync", path, error)),
        }
    }

    /// Makes generation 1, unless others are faster.
    fn begin_first(&mut self) -> Result<(), CoordinatorError> {
        let first = self.unique("first");
        let first = self.root.join(first);
        let snapshot = SnapshotRecord {
            generation: 1,
            number: 0,
            previous: 0,
            state: State::default(),
        };
        let built = self.build(&first, &snapshot.encode());
        if built.is_err() {
            let _ = self.files.remove_tree(&first, TEMPORARY);
        }
        if built.map_err(|e| refused("write", &first, e))? == Taken::Ours {
            // Asked after `first` was made: see the module documentation.
            let format = self.root.join("format");
            let begun = self.files.exists(&format);
            let begun = begun.map_err(|e| refused("look for", &format, e))?;
            if !begun || self.mutants.begin_unchecked() {
                let to = self.generation(1);
                let renamed = self.files.rename(&first, &to);
                renamed.map_err(|e| refused("rename", &first, e))?;
            }
        }
        // Where it was not renamed.
        let removed = self.files.remove_tree(&first, TEMPORARY);
        removed.map_err(|e| refused("remove", &first, e))?;
        self.sync(&self.root.clone()).map(drop)
    }

    /// Makes the directory `path` with `snapshot` in it, durably.
    pub(super) fn build(&self, path: &Path, snapshot: &[u8]) -> io::Result<Taken> {
        let made = self.files.make(path)?;
        if made != Taken::Ours {
            return Ok(made);
        }
        let written = self.files.write_new(&path.join("snapshot"), snapshot)?;
        if written != Taken::Ours {
            return Ok(written);
        }
        match self.files.sync_directory(path)? {
            true => Ok(Taken::Ours),
            false => Ok(Taken::Gone),
        }
    }

    fn check_format(&self) -> Result<(), CoordinatorError> {
        let path = self.root.join("format");
        let found = self.files.read(&path, FORMAT.len());
        match found.map_err(|e| refused("read", &path, e))? {
            None => Ok(()),
            Some(found) if found == FORMAT => Ok(()),
            Some(found) if found.starts_with(b"argosy.coordinator.") => {
                Err(damaged(&path, "it was written by another version"))
            }
            Some(_) => Err(damaged(
                &path,
                "it does not name the layout of a coordinator",
            )),
        }
    }

    fn write_format(&mut self) -> Result<(), CoordinatorError> {
        let path = self.root.join("format");
        let temporary = self.unique("format");
        let temporary = self.root.join(temporary);
        let written = self.files.write_new(&temporary, FORMAT);
        if written.is_err() {
            let _ = self.files.remove(&temporary);
        }
        written.map_err(|e| refused("write", &temporary, e))?;
        // What has `format` and no generation counts as damaged, so the name of generation 1 comes first.
        self.sync_root()?;
        // Gone: somebody has removed it, since `format` is there.
        let renamed = self.files.rename(&temporary, &path);
        renamed.map_err(|e| refused("rename", &temporary, e))?;
        self.sync(&self.root.clone()).map(drop)
    }

    /// `what`, with something behind it that no other handle has used, nor this one.
    pub(super) fn unique(&mut self, what: &str) -> String {
        self.counter += 1;
        format!("{what}-{:032x}-{}", self.name, self.counter)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Where generation `number` lies.
    pub(super) fn generation(&self, number: u64) -> PathBuf {
        self.root.join(format!("generation-{number}"))
    }

    /// Where transaction `number` of a generation lies.
    pub(super) fn transaction(&self, generation: u64, number: u64) -> PathBuf {
        self.generation(generation)
            .join(format!("transaction-{number}"))
    }

    /// The highest generation that there is.
    ///
    /// # Errors
    /// [`CoordinatorError::Refused`] where there is none.
    pub(super) fn newest(&self) -> Result<u64, CoordinatorError> {
        for _ in 0..LOOKS_MAX {
            if let Some(newest) = self.listing()?.generations.last() {
                return Ok(*newest);
            }
        }
        let none = io::Error::from(ErrorKind::NotFound);
        Err(refused("find a generation in", &self.root, none))
    }

    fn listing(&self) -> Result<Listing, CoordinatorError> {
        let names = self.files.list(&self.root);
        let names = names.map_err(|e| refused("list", &self.root, e))?;
        let mut listing = Listing::default();
        for name in names {
            let generation = name.strip_prefix("generation-");
            if let Some(number) = generation.and_then(number_of) {
                listing.generations.push(number);
            } else if name == "format" {
                listing.has_format = true;
            } else if name.starts_with("first-") || name.starts_with("format-") {
                listing.begun.push(name);
            } else if name.starts_with("trash-") {
                listing.trash.push(name);
            } else if name.ends_with(".value") {
                listing.old = Some(name);
            }
        }
        listing.generations.sort_unstable();
        Ok(listing)
    }

    /// Makes the names in `path` durable. False: it is not there.
    pub(super) fn sync(&self, path: &Path) -> Result<bool, CoordinatorError> {
        let synced = self.files.sync_directory(path);
        synced.map_err(|e| refused("sync", path, e))
    }

    /// Makes the names of generations durable.
    pub(super) fn sync_root(&self) -> Result<(), CoordinatorError> {
        match self.sync(&self.root)? {
            true => Ok(()),
            false => {
                let gone = io::Error::from(ErrorKind::NotFound);
                Err(refused("sync", &self.root, gone))
            }
        }
    }

    /// Removes what nobody needs once generation `current` is durable: see the module documentation.
    /// Another handle, or the next generation, does what this does not get done.
    pub(super) fn retire(&self, current: u64) -> Result<(), CoordinatorError> {
        let listing = self.listing()?;
        if !listing.has_format {
            return Ok(());
        }
        // So that its names are free.
        self.remove_trash()?;
        for begun in listing.begun {
            let begun_at = self.root.join(&begun);
            match begun.starts_with("format-") {
                true => {
                    let removed = self.files.remove_tree(&begun_at, TEMPORARY);
                    removed.map_err(|e| refused("remove", &begun_at, e))?;
                }
                false => self.discard(&begun_at, &format!("trash-{begun}"))?,
            }
        }
        let retired = listing
            .generations
            .into_iter()
            .filter(|number| number + 2 <= current);
        for number in retired {
            // That of the generation before it, also where others have discarded it.
            self.remove_trash()?;
            let path = self.generation(number);
            match self.mutants.remove_in_place() {
                false => self.discard(&path, &format!("trash-{number}"))?,
                true => {
                    let removed = self.files.remove_tree(&path, TEMPORARY);
                    removed.map_err(|e| refused("remove", &path, e))?;
                }
            }
        }
        self.remove_trash()
    }

    /// Removes all that has a trash name, and was it durably before anything of it is removed.
    fn remove_trash(&self) -> Result<(), CoordinatorError> {
        let trash = self.listing()?.trash;
        if trash.is_empty() {
            return Ok(());
        }
        self.sync_root()?;
        let first = match self.mutants.remove_in_any_order() {
            false => TEMPORARY,
            true => "transaction-",
        };
        for trash in trash {
            let path = self.root.join(trash);
            let removed = self.files.remove_tree(&path, first);
            removed.map_err(|e| refused("remove", &path, e))?;
        }
        Ok(())
    }

    /// Takes the name of `path` away from it, at one moment.
    fn discard(&self, path: &Path, trash: &str) -> Result<(), CoordinatorError> {
        let renamed = self.files.rename(path, &self.root.join(trash));
        match renamed.map_err(|e| refused("rename", path, e))? {
            Taken::Ours | Taken::Gone => Ok(()),
            Taken::Theirs => {
                let theirs = io::Error::from(ErrorKind::AlreadyExists);
                Err(refused("rename", path, theirs))
            }
        }
    }

    /// Where the heartbeat of `session` lies.
    pub(super) fn heartbeat(&self, session: SessionId) -> PathBuf {
        self.root.join("sessions").join(session.0.to_string())
    }

    /// The sessions that have a heartbeat.
    pub(super) fn heartbeats(&self) -> io::Result<Vec<SessionId>> {
        let names = self.files.list(&self.root.join("sessions"))?;
        let ids = names.iter().filter_map(|name| number_of(name));
        Ok(ids.map(SessionId).collect())
    }
}

/// Whether `error` says that a directory cannot be synced by us, whatever is tried.
fn is_no_matter(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported
    )
}

/// The number of which `text` is the name. Each has one name.
fn number_of(text: &str) -> Option<u64> {
    let number = text.parse().ok()?;
    let is_its_name = (1..=NUMBER_MAX).contains(&number) && number.to_string() == text;
    is_its_name.then_some(number)
}

pub(super) fn refused(what: &'static str, path: &Path, source: io::Error) -> CoordinatorError {
    CoordinatorError::Refused {
        what,
        path: path.display().to_string(),
        source: Arc::new(source),
    }
}

pub(super) fn damaged(path: &Path, what: &'static str) -> CoordinatorError {
    CoordinatorError::Damaged {
        path: path.display().to_string(),
        what,
    }
}
