//! A coordinator that lives in memory, for the simulator and tests. Handles share one world; each has
//! a connection to it that can be cut, delayed, or made to lose requests and replies.
//!
//! The world's time is the latest moment that any handle was told, so all handles are to be told the time
//! of one clock. A session lasts while its handle is polled and not cut off; it ends when the
//! world's time is more than its timeout past its last sign of life, whoever moves the time on. The
//! same calls give the same answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use argosy_base::Instant;

use crate::contract::{
    Coordinator, CoordinatorAnswer, CoordinatorError, CoordinatorEvent, CoordinatorReply, Request,
    RequestId, SessionId, SessionState,
};
use crate::hints::Hints;
use crate::state::{Asker, State, StateChange};

/// Changed keys that the world remembers. A handle that has missed more is told that all may have
/// changed.
const REMEMBERED: usize = 1024;

/// What all handles share.
#[derive(Debug, Default)]
struct World {
    state: State,
    now: Instant,
    /// Each session's last sign of life.
    heard: BTreeMap<SessionId, Instant>,
    sessions: u64,
    /// Keys in the order of their changes, and how many came before the first.
    touched: VecDeque<String>,
    forgotten: u64,
}

impl World {
    /// Moves the time on, and ends sessions that are over.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let sessions: Vec<_> = self.state.sessions().collect();
        for (session, timeout_ms) in sessions {
            let heard = self.heard.get(&session).copied().unwrap_or_default();
            if self.now.since(heard) > Duration::from_millis(timeout_ms.into()) {
                self.apply(&[StateChange::End { session }]);
            }
        }
    }

    fn apply(&mut self, changes: &[StateChange]) {
        let mut touched = Vec::new();
        for change in changes {
            let applied = self.state.apply(change, &mut touched);
            applied.expect("what was evaluated against a state can be applied to it");
            match change {
                StateChange::Begin { session, .. } => {
                    self.heard.insert(*session, self.now);
                    self.sessions += 1;
                }
                StateChange::End { session } => {
                    self.heard.remove(session);
                }
                StateChange::Put { .. } | StateChange::Remove { .. } => {}
            }
        }
        self.touched.extend(touched);
        while self.touched.len() > REMEMBERED {
            self.touched.pop_front();
            self.forgotten += 1;
        }
    }

    fn answer(&mut self, request: &Request, session: Option<SessionId>) -> CoordinatorAnswer {
        let asker = Asker {
            session,
            next_session: SessionId(self.sessions + 1),
        };
        let decision = self.state.evaluate(request, asker)?;
        self.apply(&decision.changes);
        Ok(decision.reply)
    }

    /// How many keys have been touched so far.
    fn position(&self) -> u64 {
        self.forgotten + self.touched.len() as u64
    }
}

/// What happens to the next requests on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Losses {
    /// So many do not arrive.
    requests: u32,
    /// Of so many behind those, the reply is lost.
    replies: u32,
}

/// A request that has not ended.
#[derive(Debug)]
struct Travelling {
    id: RequestId,
    request: Request,
    /// When it arrives.
    due: Option<Instant>,
}

/// The session of a handle.
#[derive(Clone, Copy, Debug)]
struct Session {
    id: SessionId,
    timeout: Duration,
    /// When the handle has heard of it last.
    heard: Instant,
    is_over: bool,
}

/// See the module documentation. A clone is another handle to the same values, connected and
/// without faults.
#[derive(Debug, Default)]
pub struct InMemory {
    world: Arc<Mutex<World>>,
    travelling: VecDeque<Travelling>,
    ended: VecDeque<CoordinatorEvent>,
    submitted: u64,
    session: Option<Session>,
    now: Instant,
    hints: Hints,
    seen: u64,
    cut_off: bool,
    delay: Duration,
    losses: Losses,
}

impl InMemory {
    /// A coordinator without values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts this handle off, or connects it again. What was submitted waits, and takes effect then.
    pub fn cut_off(&mut self, cut_off: bool) {
        self.cut_off = cut_off;
    }

    /// From now on each request arrives so long after the poll that sent it.
    pub fn delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// The next `count` requests do not arrive. They end as [`CoordinatorError::ConnectionLost`].
    pub fn lose_requests(&mut self, count: u32) {
        self.losses.requests += count;
    }

    /// The next `count` requests that arrive take effect, and end as
    /// [`CoordinatorError::ConnectionLost`].
    pub fn lose_replies(&mut self, count: u32) {
        self.losses.replies += count;
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no holder of the lock panics")
    }

    /// Shows the world a sign of life, and hears what there is.
    fn connect(&mut self) {
        let world = Arc::clone(&self.world);
        let mut world = world.lock().expect("no holder of the lock panics");
        if let Some(session) = &mut self.session {
            session.is_over = !world.state.has_session(session.id);
            session.heard = self.now;
            if !session.is_over {
                let now = world.now;
                world.heard.insert(session.id, now);
            }
        }
        let missed = self.seen < world.forgotten;
        let new = usize::try_from(self.seen.saturating_sub(world.forgotten)).unwrap_or(usize::MAX);
        if missed {
            self.hints.touch_all();
        }
        for key in world.touched.iter().skip(new) {
            self.hints.touch(key);
        }
        self.seen = world.position();
    }

    /// Lets the first request arrive, if it is time.
    fn serve(&mut self) {
        let due = self.now + self.delay;
        for travelling in &mut self.travelling {
            travelling.due.get_or_insert(due);
        }
        let first = self
            .travelling
            .pop_front_if(|first| first.due <= Some(self.now));
        let Some(Travelling { id, request, .. }) = first else {
            return;
        };
        if self.losses.requests > 0 {
            self.losses.requests -= 1;
            return self.end(id, Err(CoordinatorError::ConnectionLost));
        }
        let session = self.session.map(|session| session.id);
        let answer = self.world().answer(&request, session);
        if self.losses.replies > 0 {
            self.losses.replies -= 1;
            return self.end(id, Err(CoordinatorError::ConnectionLost));
        }
        match (&request, &answer) {
            (_, Ok(CoordinatorReply::Opened { session, timeout })) => {
                self.session = Some(Session {
                    id: *session,
                    timeout: *timeout,
                    heard: self.now,
                    is_over: false,
                });
            }
            (Request::CloseSession { .. }, Ok(_)) => self.session = None,
            _ => {}
        }
        self.end(id, answer);
    }

    fn end(&mut self, id: RequestId, answer: CoordinatorAnswer) {
        self.ended.push_back(CoordinatorEvent::Ended { id, answer });
    }
}

impl Clone for InMemory {
    fn clone(&self) -> Self {
        let seen = self.world().position();
        Self {
            world: self.world.clone(),
            seen,
            ..Self::default()
        }
    }
}

impl Coordinator for InMemory {
    fn submit(&mut self, request: Request) -> RequestId {
        self.submitted += 1;
        let id = RequestId(self.submitted);
        match request.admit(self.travelling.len()) {
            Err(error) => self.end(id, Err(error)),
            Ok(()) => self.travelling.push_back(Travelling {
                id,
                request,
                due: None,
            }),
        }
        id
    }

    fn watch(&mut self, key: &str) -> Result<(), CoordinatorError> {
        self.hints.watch(key)
    }

    fn session(&self) -> SessionState {
        let Some(session) = self.session else {
            return SessionState::None;
        };
        if session.is_over {
            return SessionState::Expired(session.id);
        }
        match self.now.since(session.heard) < session.timeout {
            true => SessionState::Alive(session.id),
            false => SessionState::InDoubt(session.id),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<CoordinatorEvent> {
        self.now = now;
        self.world().advance(now);
        if !self.cut_off {
            self.connect();
            if self.ended.is_empty() {
                self.serve();
            }
        }
        self.ended.pop_front().or_else(|| {
            let key = self.hints.next()?;
            Some(CoordinatorEvent::MayHaveChanged { key })
        })
    }
}

#[cfg(test)]
#[path = "in_memory_tests.rs"]
mod tests;
