//! A coordinator in a directory that all servers of one machine share: no process of its own, no
//! locks, and nobody who can hold it up, neither by stopping nor by dying, wherever that happens.
//!
//! The history is a sequence of numbered transactions, cut into generations. A generation is a
//! directory: a snapshot and the transactions behind it; the last one is a seal. `directory.rs` has
//! the names, [`crate::format`](mod@crate::format) the bytes.
//!
//! # A change, step by step
//!
//! 1. *Fold*: apply transactions to the state in memory until there is no next number N. Sync the
//!    directory, where the last one is another handle's.
//! 2. *Evaluate* the request against that state. Where it fails or changes nothing, and generation G is
//!    still the newest, that is the answer.
//! 3. Where the generation is full, what follows concerns a seal instead, and then begins anew.
//! 4. Write the effects under a temporary name inside G, and sync the file.
//! 5. *Take* the number: `link(2)` to `generation-G/transaction-N`, by paths. If somebody has it,
//!    begin anew. If the path is gone, load the newest snapshot and begin anew.
//! 6. Sync the directory. The change is committed, and answered. If the sync fails, the outcome is
//!    unknown.
//!
//! Whoever folds a seal (or wrote it) makes generation G + 1: builds it inside G, renames it into
//! place unless it is there, and syncs. Then he *retires* generations that are two back, one after the
//! other: each is renamed to a trash name, and then removed, temporary names before transactions. No
//! generation gets a trash name before the trash of the one before it is gone.
//!
//! # Why it is right
//!
//! Any process may be stopped for any time before any system call, and goes on, or not. Inside of a
//! system call it may be held up, too: between the moment when the directories of its paths are found and
//! the moment when the names in them are changed.
//!
//! - **R1: a directory `generation-G` comes into being once.** For G > 1: it comes from a rename of
//!   `next-X`, which lies in generation G − 1, to a name that must not be there. While generation G
//!   exists the rename fails, since it is not empty. When it has been retired, `next-X` had been removed
//!   before it with all of generation G − 1, which never comes again (induction); so there is nothing to
//!   rename, even for a process that has found the directory long before. For generation 1: it
//!   comes from `first-X`, whose maker saw, *after* making it, that there was no `format`. Generation
//!   1 is retired only by those who have seen `format` (which stays for ever), and then
//!   discarded all of `first-*`; what is made later sees `format`.
//! - **R2: in a directory `generation-G` no name `transaction-N` is removed or replaced.** Numbers are
//!   taken by link, which replaces nothing; removal comes after the rename to a trash name.
//! - **R3: who takes number N of G has evaluated against exactly the state before N.** The writer has
//!   folded all up to N − 1, N was free when the link was made, and no number up to N − 1 has changed
//!   (R2). No transaction follows a seal: who folds it leaves G, and who has not folded it takes no
//!   number behind it. So the transactions of G, up to its seal, are one sequence, and so is the
//!   history. The chain of checksums in the transactions witnesses it.
//! - **R4: a link that succeeds is in the history.** Where G has been retired, its path is gone and the
//!   link fails; the process may have been stopped for hours. If it had found the directory before,
//!   inside of `link(2)`, then its temporary name was made before that. Whoever removes the
//!   trash removes that name before any transaction, and the system links no file that has lost its last name. So
//!   as long as the link can be made at all, all numbers are there, up to the seal, and it fails.
//! - **R5: snapshots of one generation are equal.** A snapshot is a pure function of the state behind
//!   the seal, and there is one seal (R3). So it does not matter who makes it.
//! - **R6: an answer without a transaction is of a state that was the newest** at a moment between the
//!   request and the answer: number N was not there, and *then* G was the newest generation.
//!   So N was not there because it had not been taken, and not because G was gone.
//! - **R7: what is answered is durable.** A handle syncs the names that its state depends on, whoever
//!   made them, before it answers; files are synced before they get their names, and a transaction
//!   before the next one takes its number; a generation
//!   is durable before the one two back is retired. So who cannot sync a directory because it is gone
//!   need not.
//! - **Progress.** No step waits for another process. A link fails only because another one has
//!   succeeded. Everything that somebody began and did not finish (temporary names, a generation
//!   that is being built, trash) is in nobody's way, and is removed with its generation or the next one.
//! - **Sessions** end by a transaction of a watcher (`beats.rs`). It looks at the heartbeat right before
//!   it takes the number. A watcher that is stopped just there may end a session that was heard from
//!   meanwhile; its owner sees the end at its next step, as any other.
//!
//! A poll does a bounded piece of work: folds at most `FOLDS_MAX` transactions, tries to commit at
//! most `ATTEMPTS_MAX` times. Where nothing is new it is one `open` that fails. Loading, and making a
//! generation, takes as long as a snapshot takes (up to 32 MiB).

mod beats;
mod directory;
mod files;
mod mutants;
mod replica;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use argosy_base::Instant;

#[cfg(feature = "mutants")]
#[doc(hidden)]
pub use self::files::OperationHook;
#[doc(hidden)]
pub use self::mutants::Mutants;

use self::beats::{OwnSession, Watcher};
use self::directory::Directory;
use self::files::Files;
use self::replica::{Committed, Moved, Replica};
use crate::contract::{
    Coordinator, CoordinatorAnswer, CoordinatorError, CoordinatorEvent, CoordinatorOp,
    CoordinatorReply, Entry, EntryVersion, Request, RequestId, SessionId, SessionState,
};
use crate::format::Effects;
use crate::hints::Hints;
use crate::map_reader::{MapAccessError, read_map};
use crate::map_write::{MapWrite, StoredMap};
use crate::state::{Asker, Decision, StateChange};

/// Transactions of a generation, its seal not counted.
const TRANSACTIONS_MAX: usize = 128;

/// Most transactions that one poll folds.
const FOLDS_MAX: usize = 2 * TRANSACTIONS_MAX;

/// How often one poll tries to commit a request.
const ATTEMPTS_MAX: usize = 8;

/// How long a handle without requests believes that its generation is the newest.
const BELIEVED: Duration = Duration::from_millis(100);

/// How an embedded coordinator is opened. Handles may differ in it.
#[derive(Default)]
pub struct EmbeddedSettings {
    /// Transactions of a generation; 0 for the default.
    pub transactions_max: usize,
    /// Planted mistakes.
    #[doc(hidden)]
    pub mutants: Mutants,
    /// Called before each operation on files.
    #[cfg(feature = "mutants")]
    #[doc(hidden)]
    pub hook: Option<OperationHook>,
}

impl EmbeddedSettings {
    #[cfg(feature = "mutants")]
    fn into_files(self) -> Files {
        self.hook.map_or_else(Files::default, Files::with_hook)
    }

    #[cfg(not(feature = "mutants"))]
    fn into_files(self) -> Files {
        Files::default()
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Embedded {
    directory: Directory,
    transactions_max: usize,
    replica: Option<Replica>,
    /// Of the last replica. None begins before it.
    generation: u64,
    /// When the generation was seen to be the newest.
    believed: Option<Instant>,
    session: Option<OwnSession>,
    watcher: Watcher,
    hints: Hints,
    waiting: VecDeque<Waiting>,
    ended: VecDeque<CoordinatorEvent>,
    submitted: u64,
}

/// A request that has not ended.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    request: Request,
}

/// What a transaction is for.
enum Purpose<'a> {
    Request(&'a Request),
    /// To end a session that has been silent for too long.
    Expire(SessionId),
}

impl Embedded {
    /// The coordinator in `directory`, which is made if there is none. `name` is a random number: no
    /// two handles may have the same.
    ///
    /// # Errors
    /// [`CoordinatorError::Refused`]; [`CoordinatorError::Damaged`] of a directory in another layout.
    pub fn open(directory: &Path, name: u128) -> Result<Self, CoordinatorError> {
        Self::open_with(directory, name, EmbeddedSettings::default())
    }

    /// [`open`](Self::open), with settings.
    ///
    /// # Errors
    /// As of `open`.
    pub fn open_with(
        directory: &Path,
        name: u128,
        settings: EmbeddedSettings,
    ) -> Result<Self, CoordinatorError> {
        let transactions_max = match settings.transactions_max {
            0 => TRANSACTIONS_MAX,
            some => some,
        };
        Ok(Self {
            directory: Directory::open(directory, name, settings)?,
            transactions_max,
            replica: None,
            generation: 0,
            believed: None,
            session: None,
            watcher: Watcher::default(),
            hints: Hints::default(),
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            submitted: 0,
        })
    }

    /// Reads what is under `key`, at once. For opening and tools; a step uses `submit` and `poll`.
    ///
    /// # Errors
    /// As a [`Request::Read`].
    pub fn read_now(&mut self, key: &str) -> Result<Entry, CoordinatorError> {
        let key = key.to_owned();
        self.now(&Request::Read { key })
    }

    /// Replaces what is under `key`, at once. For tools, as [`read_now`](Self::read_now).
    ///
    /// # Errors
    /// As a [`Request::CompareAndSet`].
    pub fn set_now(
        &mut self,
        key: &str,
        expected: EntryVersion,
        value: Vec<u8>,
    ) -> Result<Entry, CoordinatorError> {
        self.now(&Request::CompareAndSet {
            key: key.to_owned(),
            expected,
            value,
        })
    }

    /// Does all of `ops` or nothing, at once. For tools, as [`read_now`](Self::read_now).
    ///
    /// # Errors
    /// As a [`Request::Multi`].
    pub fn change_now(&mut self, ops: Vec<CoordinatorOp>) -> Result<(), CoordinatorError> {
        let under = None;
        self.now(&Request::Multi { ops, under }).map(drop)
    }

    /// Reads the region map, at once; `None` where there is none. For opening and tools.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read_map_now(&mut self) -> Result<Option<StoredMap>, MapAccessError> {
        read_map(|key| self.read_now(&key))
    }

    /// Changes the region map, at once. For tools.
    ///
    /// # Errors
    /// Why it is not changed; a [`Conflict`](CoordinatorError::Conflict) where it has changed since it was read.
    pub fn write_map_now(&mut self, write: &MapWrite) -> Result<(), MapAccessError> {
        Ok(self.change_now(write.ops()?)?)
    }

    fn now(&mut self, request: &Request) -> Result<Entry, CoordinatorError> {
        request.check()?;
        // Each time others have committed, or there was more to fold than one step folds.
        loop {
            if let Some(reply) = self.commit(&Purpose::Request(request))? {
                return Ok(reply.into_entry().unwrap_or_default());
            }
        }
    }

    /// Commits what is to be done. `None`: not yet. That is never said twice from one place in the history,
    /// so it is said again and again only while others commit.
    fn commit(
        &mut self,
        purpose: &Purpose<'_>,
    ) -> Result<Option<CoordinatorReply>, CoordinatorError> {
        let mut kept: Option<Decision> = None;
        let (mut first, mut last) = (None, None);
        for _ in 0..ATTEMPTS_MAX {
            let Some(mut replica) = self.caught_up()? else {
                return Ok(None);
            };
            last = Some(replica.place());
            first = first.or(last);
            // What is answered is durable; and else a loss of power could leave the next transaction, and
            // forget the last one.
            replica.sync(&self.directory)?;
            let decision = match kept.take() {
                Some(kept) if self.directory.mutants.evaluate_once() => Ok(kept),
                _ => self.decide(purpose, &replica),
            };
            if decision
                .as_ref()
                .is_ok_and(|decision| !decision.changes.is_empty())
            {
                let decision = decision?;
                match self.write(replica, &decision)? {
                    Written::Committed => return Ok(Some(decision.reply)),
                    Written::NotYet => kept = Some(decision),
                }
                continue;
            }
            match replica.check_newest(&self.directory)? {
                Moved::Not => {
                    self.replica = Some(replica);
                    return decision.map(|decision| Some(decision.reply));
                }
                Moved::On => self.replica = Some(replica),
                Moved::Gone => {}
            }
        }
        // No place is come back to, so where these two are equal all attempts ended there.
        match last {
            Some(place) if first == last => Err(place.damaged(&self.directory)),
            _ => Ok(None),
        }
    }

    /// Evaluates what is to be done against the state of `replica`.
    fn decide(
        &self,
        purpose: &Purpose<'_>,
        replica: &Replica,
    ) -> Result<Decision, CoordinatorError> {
        match purpose {
            Purpose::Request(request) => {
                let asker = Asker {
                    session: self.session.map(|own| own.id()),
                    next_session: SessionId(replica.next_number()),
                };
                replica.state.evaluate(request, asker)
            }
            Purpose::Expire(session) => {
                let is_due = replica.state.has_session(*session)
                    && self.watcher.is_silent(*session, &self.directory);
                let end = is_due.then_some(StateChange::End { session: *session });
                Ok(Decision {
                    changes: end.into_iter().collect(),
                    reply: CoordinatorReply::Done(Vec::new()),
                })
            }
        }
    }

    /// Tries to write what was decided against the state of `replica` as the next transaction.
    fn write(
        &mut self,
        mut replica: Replica,
        decision: &Decision,
    ) -> Result<Written, CoordinatorError> {
        let is_full = replica.is_full(self.transactions_max);
        let effects = match is_full {
            true => Effects::Seal,
            false => Effects::Changes(decision.changes.clone()),
        };
        let mut touched = Vec::new();
        let committed = replica.take(&mut self.directory, effects, &mut touched)?;
        match committed {
            Committed::Yes | Committed::TooLate => self.replica = Some(replica),
            Committed::Gone | Committed::Unknown => {}
        }
        touched.iter().for_each(|key| self.hints.touch(key));
        match committed {
            Committed::Yes if !is_full => Ok(Written::Committed),
            Committed::Unknown => Err(CoordinatorError::ConnectionLost),
            _ => Ok(Written::NotYet),
        }
    }

    /// A replica behind the last transaction, taken out of its place. `None`: there is more to fold,
    /// or to load. After an error the next call loads.
    fn caught_up(&mut self) -> Result<Option<Replica>, CoordinatorError> {
        let mut replica = match self.replica.take() {
            Some(replica) => replica,
            None => match Replica::load(&self.directory, self.generation)? {
                Some(loaded) => {
                    self.hints.touch_all();
                    loaded
                }
                None => return Ok(None),
            },
        };
        self.generation = replica.generation();
        let mut touched = Vec::new();
        for _ in 0..FOLDS_MAX {
            let moved = replica.fold(&mut self.directory, &mut touched)?;
            for key in touched.drain(..) {
                self.hints.touch(&key);
            }
            match moved {
                Moved::On => {}
                Moved::Not => return Ok(Some(replica)),
                Moved::Gone => return Ok(None),
            }
        }
        self.replica = Some(replica);
        Ok(None)
    }

    /// Folds what is new, and looks at sessions.
    fn step(&mut self, now: Instant) -> Result<(), CoordinatorError> {
        let Some(replica) = self.caught_up()? else {
            return Ok(());
        };
        let is_stale = self.believed.is_none_or(|at| now.since(at) >= BELIEVED);
        if is_stale && replica.check_newest(&self.directory)? == Moved::Gone {
            return Ok(());
        }
        if is_stale {
            self.believed = Some(now);
        }
        let own = self.session.map(|own| own.id());
        let condemned = self.watcher.look(now, &replica.state, own, &self.directory);
        self.replica = Some(replica);
        if let Some(session) = condemned {
            self.commit(&Purpose::Expire(session))?;
        }
        Ok(())
    }

    /// Tries to end the first request.
    fn serve(&mut self, now: Instant) {
        let Some(Waiting { id, request }) = self.waiting.pop_front() else {
            return;
        };
        let answer = match self.commit(&Purpose::Request(&request)) {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => return self.waiting.push_front(Waiting { id, request }),
            Err(error) => Err(error),
        };
        match (&request, &answer) {
            (_, Ok(CoordinatorReply::Opened { session, timeout })) => {
                let own = OwnSession::begin(*session, *timeout, now, &self.directory);
                self.session = Some(own);
            }
            (Request::CloseSession { .. }, Ok(_)) => self.session = None,
            _ => {}
        }
        self.end(id, answer);
    }

    fn end(&mut self, id: RequestId, answer: CoordinatorAnswer) {
        self.ended.push_back(CoordinatorEvent::Ended { id, answer });
    }

    fn next_event(&mut self) -> Option<CoordinatorEvent> {
        self.ended.pop_front().or_else(|| {
            let key = self.hints.next()?;
            Some(CoordinatorEvent::MayHaveChanged { key })
        })
    }
}

/// What became of a transaction.
enum Written {
    Committed,
    /// It is to be tried again.
    NotYet,
}

impl Coordinator for Embedded {
    fn submit(&mut self, request: Request) -> RequestId {
        self.submitted += 1;
        let id = RequestId(self.submitted);
        match request.admit(self.waiting.len()) {
            Err(error) => self.end(id, Err(error)),
            Ok(()) => self.waiting.push_back(Waiting { id, request }),
        }
        id
    }

    fn watch(&mut self, key: &str) -> Result<(), CoordinatorError> {
        self.hints.watch(key)
    }

    fn session(&self) -> SessionState {
        self.session.map_or(SessionState::None, |own| own.state())
    }

    fn poll(&mut self, now: Instant) -> Option<CoordinatorEvent> {
        // Without requests an error says nothing to anybody: the next step tries again.
        let _ = self.step(now);
        if let Some(own) = &mut self.session {
            own.beat(now, &self.directory);
        }
        if self.ended.is_empty() {
            self.serve(now);
        }
        if let Some(own) = &mut self.session {
            own.look(now, self.replica.as_ref().map(|replica| &replica.state));
        }
        self.next_event()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
#[path = "strange_tests.rs"]
mod strange_tests;
