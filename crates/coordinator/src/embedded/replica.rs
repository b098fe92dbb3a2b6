//! The state of the coordinator as one handle has it in memory, and its place in the history:
//! generation, number of the last transaction, checksum of that.
//!
//! A replica moves in three ways: [`Replica::load`] starts at the newest snapshot,
//! [`Replica::fold`] applies the next transaction, and [`Replica::take`] writes the next transaction.
//! [`Moved::Gone`] means that the generation is, or may be, removed: the replica is of no use any
//! more, and the handle loads another.

use std::io;
use std::path::Path;

use super::directory::{Directory, damaged, refused};
use super::files::{self, Taken};
use crate::contract::CoordinatorError;
use crate::format::{
    Effects, SNAPSHOT_BYTES_MAX, SnapshotRecord, TRANSACTION_BYTES_MAX, TransactionRecord,
    checksum_of,
};
use crate::state::{State, StateChange};

/// Most bytes of transactions in a generation: as many as a state may have. The last one may exceed it.
const GENERATION_BYTES_MAX: usize = crate::contract::STATE_BYTES_MAX;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) state: State,
    generation: u64,
    number: u64,
    previous: u32,
    /// Transactions of this generation, and their bytes.
    transactions: usize,
    bytes: usize,
    /// The names that this state depends on may not be durable.
    unsynced: Unsynced,
}

/// Which names a state depends on that may not be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsynced {
    Nothing,
    /// That of the last transaction.
    Transaction,
    /// That of the generation, and of the last transaction.
    Generation,
}

/// Where a replica is in the history. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    generation: u64,
    number: u64,
}

impl Place {
    /// There has to be a next transaction, since its number is taken or the generation is over.
    pub(super) fn damaged(self, directory: &Directory) -> CoordinatorError {
        let path = directory.transaction(self.generation, self.number + 1);
        damaged(&path, "it must be there, and cannot be read")
    }
}

/// What became of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// By one transaction.
    On,
    /// It is where it was: there is no next transaction, or the number was taken.
    Not,
    /// See the module documentation.
    Gone,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Committed {
    /// It is durable, and applied.
    Yes,
    /// Its number was somebody else's.
    TooLate,
    /// It has no number. See the module documentation for the replica.
    Gone,
    /// It may have a number; it is no seal. The replica is of no use any more.
    Unknown,
}

impl Replica {
    /// The newest generation's snapshot; that is `least`, or a later one. `None`: it was removed
    /// meanwhile.
    pub(super) fn load(
        directory: &Directory,
        least: u64,
    ) -> Result<Option<Self>, CoordinatorError> {
        let generation = directory.newest()?;
        if generation < least {
            let path = directory.generation(generation);
            return Err(damaged(
                &path,
                "a later generation has been read, and is gone",
            ));
        }
        let path = directory.generation(generation).join("snapshot");
        let file = directory.files.read(&path, SNAPSHOT_BYTES_MAX);
        let Some(file) = file.map_err(|e| refused("read", &path, e))? else {
            // A generation has its snapshot for as long as it has its name.
            return match directory.newest()? == generation {
                true => Err(damaged(&path, "it is missing")),
                false => Ok(None),
            };
        };
        let found = SnapshotRecord::decode(&file).map_err(|what| damaged(&path, what))?;
        if found.generation != generation {
            return Err(damaged(&path, "it is of another generation"));
        }
        Ok(Some(Self {
            state: found.state,
            generation,
            number: found.number,
            previous: found.previous,
            transactions: 0,
            bytes: 0,
            unsynced: Unsynced::Generation,
        }))
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) const fn place(&self) -> Place {
        Place {
            generation: self.generation,
            number: self.number,
        }
    }

    /// The number of the next transaction.
    pub(super) const fn next_number(&self) -> u64 {
        self.number + 1
    }

    /// Whether the next transaction has to be a seal.
    pub(super) const fn is_full(&self, transactions_max: usize) -> bool {
        self.transactions >= transactions_max || self.bytes >= GENERATION_BYTES_MAX
    }

    /// Applies the next transaction, if there is one. The keys that it concerns are added to `touched`.
    /// An error leaves a replica that is of no use any more.
    pub(super) fn fold(
        &mut self,
        directory: &mut Directory,
        touched: &mut Vec<String>,
    ) -> Result<Moved, CoordinatorError> {
        let path = directory.transaction(self.generation, self.next_number());
        let file = directory.files.read(&path, TRANSACTION_BYTES_MAX);
        let Some(file) = file.map_err(|e| refused("read", &path, e))? else {
            return Ok(Moved::Not);
        };
        let found = TransactionRecord::decode(&file).map_err(|what| damaged(&path, what))?;
        if found.number != self.next_number() {
            return Err(damaged(&path, "it is another transaction"));
        }
        if found.previous != self.previous {
            return Err(damaged(
                &path,
                "it follows another transaction than the one before it",
            ));
        }
        self.step(&file);
        match found.effects {
            Effects::Changes(changes) => {
                if !changes.iter().all(|change| is_of(change, found.number)) {
                    return Err(damaged(&path, "it begins a session of another name"));
                }
                let applied = self.apply(&changes, touched);
                applied.map_err(|what| damaged(&path, what))?;
                Ok(Moved::On)
            }
            Effects::Seal => self.begin_next(directory),
        }
    }

    fn step(&mut self, file: &[u8]) {
        self.number += 1;
        self.previous = checksum_of(file);
        self.transactions += 1;
        self.bytes += file.len();
        if self.unsynced == Unsynced::Nothing {
            self.unsynced = Unsynced::Transaction;
        }
    }

    fn apply(
        &mut self,
        changes: &[StateChange],
        touched: &mut Vec<String>,
    ) -> Result<(), &'static str> {
        let mut changes = changes.iter();
        changes.try_for_each(|change| self.state.apply(change, touched))
    }

    /// Goes on to the next generation, which is made unless it is there. This one is sealed.
    fn begin_next(&mut self, directory: &mut Directory) -> Result<Moved, CoordinatorError> {
        let next = directory.generation(self.generation + 1);
        if !has_snapshot(&next, directory)? {
            let snapshot = SnapshotRecord {
                generation: self.generation + 1,
                number: self.number,
                previous: self.previous,
                state: self.state.clone(),
            };
            let sealed = match directory.mutants.build_outside() {
                false => directory.generation(self.generation),
                true => directory.root().to_path_buf(),
            };
            let name = directory.unique("next");
            let built = sealed.join(&name);
            let written = directory.build(&built, &snapshot.encode());
            if written.is_err() {
                let _ = directory.files.remove_tree(&built, "");
            }
            if written.map_err(|e| refused("write", &built, e))? != Taken::Ours {
                return Ok(Moved::Gone);
            }
            let held = directory
                .mutants
                .resolve_early()
                .then(|| directory.files.hold(&sealed));
            let from = held.as_ref().map_or(sealed, files::Held::path).join(name);
            let renamed = directory.files.rename(&from, &next);
            match renamed.map_err(|e| refused("rename", &built, e))? {
                Taken::Ours => {}
                Taken::Gone => return Ok(Moved::Gone),
                // It has been removed since, or has no snapshot: who loads finds out.
                Taken::Theirs if !has_snapshot(&next, directory)? => return Ok(Moved::Gone),
                // `next-X` is removed with its generation.
                Taken::Theirs => {}
            }
        }
        self.generation += 1;
        self.transactions = 0;
        self.bytes = 0;
        self.unsynced = Unsynced::Generation;
        self.sync(directory)?;
        // What is not removed now is removed by another handle, or with the next generation.
        let _ = directory.retire(self.generation);
        let _ = self.remove_heartbeats(directory);
        Ok(Moved::On)
    }

    /// Removes the heartbeats of sessions that have ended. Names of sessions are numbers of transactions.
    fn remove_heartbeats(&self, directory: &Directory) -> io::Result<()> {
        let mut heartbeats = directory.heartbeats()?.into_iter();
        heartbeats.try_for_each(|session| {
            let is_over = session.0 <= self.number && !self.state.has_session(session);
            match is_over {
                true => directory.files.remove(&directory.heartbeat(session)),
                false => Ok(()),
            }
        })
    }

    /// Makes durable what this state depends on.
    pub(super) fn sync(&mut self, directory: &Directory) -> Result<(), CoordinatorError> {
        if self.unsynced == Unsynced::Generation {
            directory.sync_root()?;
        }
        if self.unsynced != Unsynced::Nothing {
            let path = directory.generation(self.generation);
            // Where it was retired, two generations that are durable have followed it.
            if !directory.sync(&path)? && directory.newest()? < self.generation + 2 {
                return Err(damaged(&path, "it is gone, and was not retired"));
            }
        }
        self.unsynced = Unsynced::Nothing;
        Ok(())
    }

    /// Whether this was the newest state when [`fold`](Self::fold) found no next transaction.
    /// [`Moved::On`]: there is a next generation, so fold again.
    pub(super) fn check_newest(&self, directory: &Directory) -> Result<Moved, CoordinatorError> {
        let newest = directory.newest()?;
        if newest < self.generation {
            let path = directory.generation(self.generation);
            return Err(damaged(&path, "it was the newest generation, and is gone"));
        }
        Ok(match newest - self.generation {
            0 => Moved::Not,
            1 => Moved::On,
            _ => Moved::Gone,
        })
    }

    /// Writes the next transaction: see the documentation of [`super`].
    pub(super) fn take(
        &mut self,
        directory: &mut Directory,
        effects: Effects,
        touched: &mut Vec<String>,
    ) -> Result<Committed, CoordinatorError> {
        let is_seal = effects == Effects::Seal;
        let record = TransactionRecord {
            number: self.next_number(),
            previous: self.previous,
            effects,
        };
        let file = record.encode();
        match self.take_number(directory, &file)? {
            Ok(Taken::Ours) => {}
            Ok(Taken::Theirs) => return Ok(Committed::TooLate),
            Ok(Taken::Gone) => return Ok(Committed::Gone),
            Err(error) if is_seal || was_refused(&error) => {
                let path = directory.generation(self.generation);
                return Err(refused("add a transaction to", &path, error));
            }
            Err(_) => return Ok(Committed::Unknown),
        }
        // From here on the transaction may be in the history, whatever fails.
        self.step(&file);
        match self.sync(directory) {
            Ok(()) => {}
            // A seal may be there or not: what was requested is not.
            Err(error) if is_seal => return Err(error),
            Err(_) => return Ok(Committed::Unknown),
        }
        match &record.effects {
            Effects::Changes(changes) => {
                let applied = self.apply(changes, touched);
                applied.expect("what was evaluated against a state can be applied to it");
                Ok(Committed::Yes)
            }
            Effects::Seal => Ok(match self.begin_next(directory)? {
                Moved::On => Committed::Yes,
                Moved::Not | Moved::Gone => Committed::Gone,
            }),
        }
    }

    /// Gives the next number to `file`. The inner error: it may have it.
    fn take_number(
        &self,
        directory: &mut Directory,
        file: &[u8],
    ) -> Result<io::Result<Taken>, CoordinatorError> {
        let generation = directory.generation(self.generation);
        let name = directory.unique("new");
        let temporary = generation.join(&name);
        let written = directory.files.write_new(&temporary, file);
        if written.is_err() {
            // It may hold the room that was lacking.
            let _ = directory.files.remove(&temporary);
        }
        if written.map_err(|e| refused("write", &temporary, e))? != Taken::Ours {
            return Ok(Ok(Taken::Gone));
        }
        let held = directory
            .mutants
            .resolve_early()
            .then(|| directory.files.hold(&generation));
        let generation = held.as_ref().map_or(generation, files::Held::path);
        let temporary = generation.join(name);
        let to = generation.join(format!("transaction-{}", self.next_number()));
        let taken = match directory.mutants.rename_to_take() {
            true => directory.files.rename(&temporary, &to),
            false => link(directory, &temporary, &to),
        };
        // A second name does no harm, and goes with the generation.
        let _ = directory.files.remove(&temporary);
        Ok(taken)
    }
}

/// Links `temporary` to `to`. A file system may do so and then say, as it tries again, that the name is
/// taken: ours it is all the same.
fn link(directory: &Directory, temporary: &Path, to: &Path) -> io::Result<Taken> {
    match directory.files.link(temporary, to)? {
        Taken::Theirs if directory.files.is_same(temporary, to)? => Ok(Taken::Ours),
        taken => Ok(taken),
    }
}

/// Whether transaction `number` may make `change`: it names the session that it begins.
fn is_of(change: &StateChange, number: u64) -> bool {
    match change {
        StateChange::Begin { session, .. } => session.0 == number,
        _ => true,
    }
}

/// Whether there is a snapshot in `generation`.
fn has_snapshot(generation: &Path, directory: &Directory) -> Result<bool, CoordinatorError> {
    let exists = directory.files.exists(&generation.join("snapshot"));
    exists.map_err(|e| refused("look into", generation, e))
}

/// Whether `error` says that nothing was done.
fn was_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::Unsupported
    )
}
