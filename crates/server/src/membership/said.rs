//! A value of the server's own at the coordinator: ephemeral, and kept up to date.

use argosy_coordinator::{
    Coordinator, CoordinatorError, CoordinatorOp, CoordinatorReply, Entry, EntryVersion, Request,
    RequestId, SessionId,
};

use super::Session;

/// What is asked about a value of the server's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// What is there.
    Reading(RequestId),
    /// That it is set.
    Setting(RequestId),
}

/// A value that the server keeps up to date.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) key: String,
    /// What is there under the present session, and its version; `None` where that is not known to be anything.
    pub(super) there: Option<(EntryVersion, Vec<u8>)>,
    /// What was there of an earlier session.
    pub(super) earlier: Option<EntryVersion>,
    asked: Option<Asked>,
    /// What is being set.
    pub(super) setting: Vec<u8>,
}

impl Said {
    pub(super) const fn new(key: String) -> Self {
        Self {
            key,
            there: None,
            earlier: None,
            asked: None,
            setting: Vec::new(),
        }
    }

    /// Whether an answer is outstanding.
    pub(super) const fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Another session begins: nothing is there under it.
    pub(super) fn begin(&mut self) {
        (self.there, self.earlier, self.asked) = (None, None, None);
    }

    /// Has `value` be there, if that is not so yet.
    pub(super) fn say(
        &mut self,
        value: Vec<u8>,
        session: SessionId,
        coordinator: &mut dyn Coordinator,
    ) {
        if self.asked.is_some()
            || self
                .there
                .as_ref()
                .is_some_and(|(_, there)| *there == value)
        {
            return;
        }
        let key = self.key.clone();
        let create = CoordinatorOp::CreateEphemeral {
            key: key.clone(),
            value: value.clone(),
        };
        let ops = match (&self.there, self.earlier) {
            (Some((version, _)), _) => vec![CoordinatorOp::Set {
                key,
                expected: *version,
                value: value.clone(),
            }],
            (None, Some(expected)) => vec![CoordinatorOp::Delete { key, expected }, create],
            (None, None) => vec![create],
        };
        let under = Some(session);
        self.setting = value;
        let id = coordinator.submit(Request::Multi { ops, under });
        self.asked = Some(Asked::Setting(id));
    }

    /// Takes the answer to `id`, if that was asked here. Returns whether it was.
    pub(super) fn take(
        &mut self,
        id: RequestId,
        answer: &Result<CoordinatorReply, CoordinatorError>,
        session: Session,
        coordinator: &mut dyn Coordinator,
    ) -> bool {
        match (self.asked, answer) {
            (Some(Asked::Setting(asked)), Ok(CoordinatorReply::Done(versions))) if asked == id => {
                let version = versions.last().copied().unwrap_or_default();
                self.there = Some((version, std::mem::take(&mut self.setting)));
                (self.earlier, self.asked) = (None, None);
            }
            // Something else is there, or what was asked has come to pass after all.
            (Some(Asked::Setting(asked)), _) if asked == id => {
                let read = Request::Read {
                    key: self.key.clone(),
                };
                self.asked = Some(Asked::Reading(coordinator.submit(read)));
            }
            (Some(Asked::Reading(asked)), answer) if asked == id => {
                self.asked = None;
                if let Ok(CoordinatorReply::Entry(entry)) = answer {
                    self.found(entry, session);
                }
            }
            _ => return false,
        }
        true
    }

    fn found(&mut self, entry: &Entry, session: Session) {
        let is_own = entry
            .owner
            .is_some_and(|owner| session == Session::Open(owner));
        let is_there = entry.version > EntryVersion(0);
        self.there = (is_own && is_there).then(|| (entry.version, entry.value.clone()));
        self.earlier = (!is_own && is_there).then_some(entry.version);
    }
}
