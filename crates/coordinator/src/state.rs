//! The state that all handles of a coordinator share, and the rules by which requests change it.
//!
//! `State::evaluate` is pure: it says what a request would change, or why it fails.
//! [`State::apply`] makes one change, whoever decided on it. A coordinator evaluates a request
//! against a state and applies the changes to exactly that state, with nothing in between.
//!
//! Invariants, checked by `apply`:
//!
//! - Keys follow the grammar, versions are at least 1, owners are open sessions.
//! - There are at most [`KEYS_MAX`] keys, [`STATE_BYTES_MAX`] bytes and [`SESSIONS_MAX`] sessions. A
//!   key costs its own bytes and those of its value.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::contract::{
    CoordinatorError, CoordinatorOp, CoordinatorReply, Entry, EntryVersion, KEYS_MAX, Request,
    SESSION_TIMEOUT_MAX, SESSION_TIMEOUT_MIN, SESSIONS_MAX, STATE_BYTES_MAX, SessionId, is_key,
};

/// Highest version of a value. Nobody comes so far, but a file may say so.
const VERSION_MAX: u64 = u64::MAX - 1;

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// The key holds this entry.
    Put {
        /// The key.
        key: String,
        /// What it holds.
        entry: Entry,
    },
    /// The key holds nothing.
    Remove {
        /// The key.
        key: String,
    },
    /// A session begins.
    Begin {
        /// Its name.
        session: SessionId,
        /// Its timeout, in milliseconds.
        timeout_ms: u32,
    },
    /// A session ends, and what it owns is removed.
    End {
        /// Its name.
        session: SessionId,
    },
}

/// What a request that succeeds does.
#[derive(Debug)]
pub(crate) struct Decision {
    /// What it changes, in order. Nothing: it only reads.
    pub(crate) changes: Vec<StateChange>,
    /// Its answer.
    pub(crate) reply: CoordinatorReply,
}

/// Who makes a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    /// The session of the handle.
    pub(crate) session: Option<SessionId>,
    /// The name that a session would get.
    pub(crate) next_session: SessionId,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    entries: BTreeMap<String, Entry>,
    sessions: BTreeMap<SessionId, u32>,
    bytes: usize,
}

impl State {
    /// What is under `key`.
    pub(crate) fn entry(&self, key: &str) -> Entry {
        self.entries.get(key).cloned().unwrap_or_default()
    }

    /// All keys that hold something, in order, with what they hold.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(key, entry)| (&**key, entry))
    }

    /// All open sessions, in order, with their timeouts in milliseconds.
    pub(crate) fn sessions(&self) -> impl ExactSizeIterator<Item = (SessionId, u32)> {
        self.sessions.iter().map(|(id, timeout)| (*id, *timeout))
    }

    /// Whether `session` is open.
    pub(crate) fn has_session(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// What `request` of `asker` does. Its bounds have been checked.
    ///
    /// # Errors
    /// Why it fails in this state.
    pub(crate) fn evaluate(
        &self,
        request: &Request,
        asker: Asker,
    ) -> Result<Decision, CoordinatorError> {
        match request {
            Request::Read { key } => Ok(reads(CoordinatorReply::Entry(self.entry(key)))),
            Request::Children { key } => Ok(reads(CoordinatorReply::Children(self.children(key)))),
            Request::CompareAndSet {
                key,
                expected,
                value,
            } => {
                let mut draft = Draft::new(self, None);
                draft.set(key, *expected, value)?;
                let entry = draft.entry(key);
                draft.decide(CoordinatorReply::Entry(entry))
            }
            Request::Multi { ops, under } => {
                if let Some(session) = *under {
                    self.demand_session(session, asker)?;
                }
                let mut draft = Draft::new(self, *under);
                let versions = ops.iter().map(|op| draft.take(op));
                let versions = versions.collect::<Result<Vec<_>, _>>()?;
                draft.decide(CoordinatorReply::Done(versions))
            }
            Request::OpenSession { timeout } => self.open_session(*timeout, asker),
            Request::CloseSession { session } => {
                self.demand_session(*session, asker)?;
                Ok(Decision {
                    changes: vec![StateChange::End { session: *session }],
                    reply: CoordinatorReply::Done(Vec::new()),
                })
            }
        }
    }

    /// The session is open, and that of the handle.
    fn demand_session(&self, session: SessionId, asker: Asker) -> Result<(), CoordinatorError> {
        match asker.session == Some(session) && self.has_session(session) {
            true => Ok(()),
            false => Err(CoordinatorError::SessionExpired { session }),
        }
    }

    fn children(&self, key: &str) -> Vec<String> {
        let prefix = match key {
            "" => String::new(),
            _ => format!("{key}/"),
        };
        let below = self.entries.range(prefix.clone()..);
        let below = below.map_while(|(key, _)| key.strip_prefix(&*prefix));
        let children = below.filter(|rest| !rest.contains('/'));
        children.map(str::to_owned).collect()
    }

    fn open_session(&self, timeout: Duration, asker: Asker) -> Result<Decision, CoordinatorError> {
        let timeout = timeout.clamp(SESSION_TIMEOUT_MIN, SESSION_TIMEOUT_MAX);
        let timeout_ms = u32::try_from(timeout.as_millis()).expect("an hour has few milliseconds");
        let earlier = asker.session.filter(|session| self.has_session(*session));
        if self.sessions.len() - usize::from(earlier.is_some()) >= SESSIONS_MAX {
            return Err(too_many("sessions", SESSIONS_MAX));
        }
        let session = asker.next_session;
        let end = earlier.map(|session| StateChange::End { session });
        let begin = StateChange::Begin {
            session,
            timeout_ms,
        };
        Ok(Decision {
            changes: end.into_iter().chain([begin]).collect(),
            reply: CoordinatorReply::Opened {
                session,
                timeout: Duration::from_millis(timeout_ms.into()),
            },
        })
    }

    /// Makes `change`, and adds the keys that it concerns to `touched`.
    ///
    /// # Errors
    /// What is wrong with it. The state is as before.
    pub fn apply(
        &mut self,
        change: &StateChange,
        touched: &mut Vec<String>,
    ) -> Result<(), &'static str> {
        match change {
            StateChange::Put { key, entry } => {
                self.put(key, entry)?;
                touched.push(key.clone());
            }
            StateChange::Remove { key } => {
                self.remove(key)
                    .ok_or("it removes a key that is not there")?;
                touched.push(key.clone());
            }
            StateChange::Begin {
                session,
                timeout_ms,
            } => self.begin(*session, *timeout_ms)?,
            StateChange::End { session } => {
                let ended = self.sessions.remove(session);
                ended.ok_or("it ends a session that is not open")?;
                touched.extend(self.remove_owned(*session));
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &str, entry: &Entry) -> Result<(), &'static str> {
        if !is_key(key) {
            return Err("it has a key that is none");
        }
        if !(1..=VERSION_MAX).contains(&entry.version.0) {
            return Err("it has an impossible version");
        }
        if entry.owner.is_some_and(|owner| !self.has_session(owner)) {
            return Err("it has a value of a session that is not open");
        }
        let earlier = self.entries.get(key);
        let freed = earlier.map_or(0, |earlier| cost(key, earlier));
        let bytes = self.bytes - freed + cost(key, entry);
        if bytes > STATE_BYTES_MAX || earlier.is_none() && self.entries.len() >= KEYS_MAX {
            return Err("it has more keys or bytes than are allowed");
        }
        self.bytes = bytes;
        self.entries.insert(key.to_owned(), entry.clone());
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Option<Entry> {
        let removed = self.entries.remove(key)?;
        self.bytes -= cost(key, &removed);
        Some(removed)
    }

    fn begin(&mut self, session: SessionId, timeout_ms: u32) -> Result<(), &'static str> {
        if self.sessions.len() >= SESSIONS_MAX {
            return Err("it has more sessions than are allowed");
        }
        let timeout = Duration::from_millis(timeout_ms.into());
        if !(SESSION_TIMEOUT_MIN..=SESSION_TIMEOUT_MAX).contains(&timeout) {
            return Err("it has a session with an impossible timeout");
        }
        match self.sessions.insert(session, timeout_ms) {
            None => Ok(()),
            Some(_) => Err("it begins a session that is open"),
        }
    }

    /// Whether `change` needs more bytes than it frees.
    fn growth(&self, change: &StateChange) -> bool {
        let StateChange::Put { key, entry } = change else {
            return false;
        };
        let earlier = self.entries.get(key);
        cost(key, entry) > earlier.map_or(0, |earlier| cost(key, earlier))
    }

    fn remove_owned(&mut self, session: SessionId) -> Vec<String> {
        let all = self.entries.iter();
        let owned = all.filter(|(_, entry)| entry.owner == Some(session));
        let owned: Vec<_> = owned.map(|(key, _)| key.clone()).collect();
        for key in &owned {
            self.remove(key);
        }
        owned
    }
}

/// What an entry costs of [`STATE_BYTES_MAX`].
fn cost(key: &str, entry: &Entry) -> usize {
    key.len() + entry.value.len()
}

fn reads(reply: CoordinatorReply) -> Decision {
    Decision {
        changes: Vec::new(),
        reply,
    }
}

const fn too_many(what: &'static str, max: usize) -> CoordinatorError {
    CoordinatorError::TooMany { what, max }
}

/// A state with operations tried on it.
struct Draft<'a> {
    state: &'a State,
    owner: Option<SessionId>,
    /// What the keys that were written hold; nothing where they were deleted.
    written: BTreeMap<String, Entry>,
}

impl<'a> Draft<'a> {
    const fn new(state: &'a State, owner: Option<SessionId>) -> Self {
        Self {
            state,
            owner,
            written: BTreeMap::new(),
        }
    }

    fn entry(&self, key: &str) -> Entry {
        let written = self.written.get(key).cloned();
        written.unwrap_or_else(|| self.state.entry(key))
    }

    /// Tries `op`. Returns the version of its key behind it.
    fn take(&mut self, op: &CoordinatorOp) -> Result<EntryVersion, CoordinatorError> {
        match op {
            CoordinatorOp::Check { key, expected } => {
                self.demand(key, *expected)?;
                Ok(*expected)
            }
            CoordinatorOp::Set {
                key,
                expected,
                value,
            } => self.set(key, *expected, value),
            CoordinatorOp::CreateEphemeral { key, value } => {
                self.demand(key, EntryVersion(0))?;
                let entry = Entry {
                    version: EntryVersion(1),
                    value: value.clone(),
                    owner: self.owner,
                };
                self.written.insert(key.clone(), entry);
                Ok(EntryVersion(1))
            }
            CoordinatorOp::Delete { key, expected } => {
                self.demand(key, *expected)?;
                self.written.insert(key.clone(), Entry::default());
                Ok(EntryVersion(0))
            }
        }
    }

    fn set(
        &mut self,
        key: &str,
        expected: EntryVersion,
        value: &[u8],
    ) -> Result<EntryVersion, CoordinatorError> {
        let found = self.demand(key, expected)?;
        if expected.0 >= VERSION_MAX {
            return Err(too_many("changes of a value", usize::MAX));
        }
        let version = EntryVersion(expected.0 + 1);
        let entry = Entry {
            version,
            value: value.to_vec(),
            owner: found.owner,
        };
        self.written.insert(key.to_owned(), entry);
        Ok(version)
    }

    fn demand(&self, key: &str, expected: EntryVersion) -> Result<Entry, CoordinatorError> {
        let entry = self.entry(key);
        match entry.version == expected {
            true => Ok(entry),
            false => Err(CoordinatorError::Conflict {
                key: key.to_owned(),
                expected,
                found: entry.version,
            }),
        }
    }

    /// The changes that were tried: removals first, so that bounds hold behind each change.
    fn decide(self, reply: CoordinatorReply) -> Result<Decision, CoordinatorError> {
        let (mut keys, mut bytes) = (self.state.entries.len(), self.state.bytes);
        let (mut removed, mut put) = (Vec::new(), Vec::new());
        for (key, entry) in self.written {
            if let Some(earlier) = self.state.entries.get(&key) {
                keys -= 1;
                bytes -= cost(&key, earlier);
                if entry.version == EntryVersion(0) {
                    removed.push(StateChange::Remove { key });
                    continue;
                }
            }
            if entry.version > EntryVersion(0) {
                keys += 1;
                bytes += cost(&key, &entry);
                put.push(StateChange::Put { key, entry });
            }
        }
        if keys > KEYS_MAX {
            return Err(too_many("keys", KEYS_MAX));
        }
        if bytes > STATE_BYTES_MAX {
            return Err(too_many("bytes in all keys and values", STATE_BYTES_MAX));
        }
        // What shrinks comes before what grows.
        put.sort_by_key(|change| self.state.growth(change));
        removed.append(&mut put);
        Ok(Decision {
            changes: removed,
            reply,
        })
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
