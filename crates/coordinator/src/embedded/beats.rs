//! Heartbeats: the owner of a session writes one again and again, and everybody else watches.
//!
//! A heartbeat is a file of its own beside the history. Its owner overwrites it four times within the
//! session's timeout. A watcher compares the file's bytes, and adds up for how long they have stayed
//! the same, on its own clock. Between two looks it counts no more than twice the time that it means
//! to let pass, so that a watcher that was stopped itself looks more than once before it judges.
//! Silence of a timeout and a quarter condemns.
//!
//! The file is not durable, and a reader may see it half written: what counts is that it changes.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use argosy_base::Instant;

use super::directory::Directory;
use crate::contract::{SessionId, SessionState};
use crate::format::{HEARTBEAT_BYTES, HeartbeatRecord};
use crate::state::State;

/// How many heartbeats a timeout has.
const BEATS: u32 = 4;

/// The session of this handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnSession {
    session: SessionId,
    timeout: Duration,
    counter: u64,
    /// Whether a heartbeat was ever written. Until then it makes its file; afterwards nobody makes it again.
    has_file: bool,
    /// The step that wrote the last heartbeat.
    beaten: Instant,
    /// Since then, as was seen by the last step.
    silent: Duration,
    /// When the session was seen to be open.
    seen: Instant,
    /// Since then, as was seen by the last step.
    unseen: Duration,
    life: Life,
}

/// How certain a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// All heartbeats since it was opened, or the last two, were on time.
    Certain,
    /// The last heartbeat was late.
    Late,
    /// It has ended.
    Over,
}

impl OwnSession {
    /// The session that was opened at `now`.
    pub(super) fn begin(
        session: SessionId,
        timeout: Duration,
        now: Instant,
        directory: &Directory,
    ) -> Self {
        let mut own = Self {
            session,
            timeout,
            counter: 0,
            has_file: false,
            beaten: now,
            silent: Duration::ZERO,
            seen: now,
            unseen: Duration::ZERO,
            life: Life::Certain,
        };
        own.write(directory);
        own
    }

    pub(super) const fn id(&self) -> SessionId {
        self.session
    }

    pub(super) fn state(&self) -> SessionState {
        match self.life {
            Life::Over => SessionState::Expired(self.session),
            Life::Certain if self.silent.max(self.unseen) < self.timeout => {
                SessionState::Alive(self.session)
            }
            Life::Certain | Life::Late => SessionState::InDoubt(self.session),
        }
    }

    /// Takes note of what `state` says, which is that of `now`. `None`: it could not be read.
    pub(super) fn look(&mut self, now: Instant, state: Option<&State>) {
        if state.is_some() {
            self.seen = now;
        }
        if state.is_some_and(|state| !state.has_session(self.session)) {
            self.life = Life::Over;
        }
        self.unseen = now.since(self.seen);
    }

    /// Writes a heartbeat if one is due.
    pub(super) fn beat(&mut self, now: Instant, directory: &Directory) {
        self.silent = now.since(self.beaten);
        let is_due = self.silent >= self.timeout / BEATS;
        if self.life == Life::Over || !is_due || !self.write(directory) {
            return;
        }
        self.life = match self.silent < self.timeout {
            true => Life::Certain,
            false => Life::Late,
        };
        self.silent = Duration::ZERO;
        self.beaten = now;
    }

    fn write(&mut self, directory: &Directory) -> bool {
        self.counter += 1;
        let record = HeartbeatRecord {
            session: self.session,
            counter: self.counter,
        };
        let path = directory.heartbeat(self.session);
        let create = !self.has_file;
        let written = directory.files.overwrite(&path, &record.encode(), create);
        // The next one is tried when it is due; others see no sign of life meanwhile.
        self.has_file |= written.is_ok();
        written.is_ok()
    }
}

/// What is known of somebody else's heartbeat.
#[derive(Clone, Debug)]
struct Seen {
    bytes: Option<Vec<u8>>,
    silent: Duration,
}

/// Watches the sessions of others.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    seen: BTreeMap<SessionId, Seen>,
    looked: Option<Instant>,
}

impl Watcher {
    /// Looks at all heartbeats, if it is time to. Returns a session that has been silent for too long.
    pub(super) fn look(
        &mut self,
        now: Instant,
        state: &State,
        own: Option<SessionId>,
        directory: &Directory,
    ) -> Option<SessionId> {
        let timeout_of = |ms: u32| Duration::from_millis(ms.into());
        let others = state
            .sessions()
            .filter(|(session, _)| Some(*session) != own);
        let others: BTreeMap<_, _> = others.map(|(id, ms)| (id, timeout_of(ms))).collect();
        self.seen.retain(|session, _| others.contains_key(session));
        let interval = *others.values().min()? / BEATS;
        let passed = self.looked.map_or(interval, |looked| now.since(looked));
        if passed < interval {
            return None;
        }
        self.looked = Some(now);
        let counted = passed.min(2 * interval);
        let mut condemned = None;
        for (session, timeout) in others {
            // What cannot be read now says nothing.
            let Ok(bytes) = read(session, directory) else {
                continue;
            };
            let silent = match self.seen.get(&session) {
                Some(seen) if seen.bytes == bytes => seen.silent + counted,
                _ => Duration::ZERO,
            };
            self.seen.insert(session, Seen { bytes, silent });
            if silent >= timeout + timeout / BEATS {
                condemned = Some(session);
            }
        }
        condemned
    }

    /// Whether nothing has been heard from `session` since the last look.
    pub(super) fn is_silent(&self, session: SessionId, directory: &Directory) -> bool {
        let seen = self.seen.get(&session);
        directory.mutants.ignore_heartbeats()
            || seen
                .is_some_and(|seen| read(session, directory).is_ok_and(|bytes| bytes == seen.bytes))
    }
}

fn read(session: SessionId, directory: &Directory) -> io::Result<Option<Vec<u8>>> {
    let path = directory.heartbeat(session);
    match directory.files.read(&path, HEARTBEAT_BYTES) {
        // Else the session would never end.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        read => read,
    }
}
