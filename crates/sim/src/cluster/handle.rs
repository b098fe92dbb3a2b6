//! A process's handle to the coordinator: it ends with the process, and knows what is on its way.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{Clock as _, Instant};
use argosy_coordinator::reports::REPORTS_KEY;
use argosy_coordinator::{
    ClusterMap, Coordinator, CoordinatorError, CoordinatorEvent, CoordinatorOp, InMemory, Request,
    RequestId, ServerReport, SessionState,
};
use parking_lot::Mutex;

use super::jobs;
use crate::clock::SimClock;
use crate::crash_point::CrashPoint;
use crate::failover::Trouble;

/// Changes of the map or of reports that were asked for and have not ended.
pub(super) type Sent = Mutex<BTreeMap<(u64, RequestId), Change>>;

/// A change on its way.
pub(super) enum Change {
    Map(Box<ClusterMap>),
    Report(Box<ServerReport>),
}

impl Change {
    /// The one that `ops`, which are about to be asked of `handle`, make.
    fn of(ops: &[CoordinatorOp], handle: &InMemory, now: Instant) -> Option<Self> {
        let map = jobs::behind(ops, handle, now).map(|map| Self::Map(Box::new(map)));
        map.or_else(|| ops.iter().find_map(Self::of_report))
    }

    fn of_report(op: &CoordinatorOp) -> Option<Self> {
        let (CoordinatorOp::Set { key, value, .. } | CoordinatorOp::CreateEphemeral { key, value }) =
            op
        else {
            return None;
        };
        match key.as_str() {
            key if key.starts_with(REPORTS_KEY) => {
                Some(Self::Report(Box::new(ServerReport::parse(value).ok()?)))
            }
            _ => None,
        }
    }
}

/// A process's handle to the coordinator.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) number: u64,
    pub(super) inner: Arc<Mutex<InMemory>>,
    pub(super) clock: Arc<SimClock>,
    pub(super) crash_point: Arc<CrashPoint>,
    pub(super) sent: Arc<Sent>,
    /// What masters have done that they may not.
    pub(super) wrong: Arc<Mutex<Option<String>>>,
}

impl Handle {
    pub(super) fn suffer(&self, trouble: Trouble) {
        let mut inner = self.inner.lock();
        match trouble {
            Trouble::CutOff => inner.cut_off(true),
            Trouble::Connect => inner.cut_off(false),
            Trouble::Delay(delay) => inner.delay(delay),
            Trouble::LoseRequests(count) => inner.lose_requests(count),
            Trouble::LoseReplies(count) => inner.lose_replies(count),
        }
    }

    /// The process has ended, and with it what has not arrived.
    pub(super) fn end(&self) {
        self.sent.lock().retain(|(of, _), _| *of != self.number);
    }
}

impl Coordinator for Handle {
    fn submit(&mut self, request: Request) -> RequestId {
        if !self.crash_point.acts() {
            // Nobody waits for the answer any more.
            return RequestId(u64::MAX);
        }
        let change = match &request {
            Request::Multi { ops, .. } => Change::of(ops, &self.inner.lock(), self.clock.now()),
            _ => None,
        };
        if let Request::Multi { ops, .. } = &request
            && let Some(unwritten) = jobs::unwritten(&self.inner.lock(), ops, self.clock.now())
        {
            self.wrong.lock().get_or_insert(unwritten);
        }
        let asked = self.inner.lock().submit(request);
        if let Some(change) = change {
            self.sent.lock().insert((self.number, asked), change);
        }
        asked
    }

    fn watch(&mut self, key: &str) -> Result<(), CoordinatorError> {
        self.inner.lock().watch(key)
    }

    fn session(&self) -> SessionState {
        self.inner.lock().session()
    }

    fn poll(&mut self, _: Instant) -> Option<CoordinatorEvent> {
        if self.crash_point.is_dead() {
            return None;
        }
        let event = self.inner.lock().poll(self.clock.now())?;
        if let CoordinatorEvent::Ended { id, .. } = &event {
            self.sent.lock().remove(&(self.number, *id));
        }
        Some(event)
    }
}
