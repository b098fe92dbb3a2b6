//! A list that many append to by compare-and-set, as the witness of what happened.
//!
//! Everybody reads the list, appends a word of its own to it, and sets it where nobody else has in
//! between. So the list shows the whole history: a word is there once if its writer was told that it
//! is, never if its writer was told that it is not, and at most once if its writer was told that
//! nobody knows.

use std::fmt::Write as _;
use std::time::Duration;

use argosy_base::Instant;
use argosy_coordinator::{
    Coordinator, CoordinatorError, CoordinatorEvent, CoordinatorOp, CoordinatorReply, Embedded,
    Entry, EntryVersion, Request, SessionId,
};

/// The key of the list.
pub(crate) const LIST: &str = "list";

/// The timeout of sessions.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(100);

/// Polls within which a request has to end.
const POLLS_MAX: usize = 20;

/// What the writer of a word was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is in the list, at this place (from 1).
    There(u64),
    /// It is not, and never will be.
    NotThere,
    /// Nobody knows.
    Unknown,
}

/// A word, and what its writer was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) word: String,
    pub(crate) told: Told,
}

/// One handle, and what it has done.
pub(crate) struct Actor {
    pub(crate) handle: Embedded,
    pub(crate) name: u32,
    pub(crate) now: Instant,
    pub(crate) written: Vec<Written>,
    pub(crate) session: Option<SessionId>,
}

impl Actor {
    pub(crate) fn new(handle: Embedded, name: u32) -> Self {
        Self {
            handle,
            name,
            now: Instant::from_nanos(1),
            written: Vec::new(),
            session: None,
        }
    }

    /// Submits `request` and polls until it has ended.
    pub(crate) fn ask(&mut self, request: Request) -> Result<CoordinatorReply, CoordinatorError> {
        let asked = self.handle.submit(request);
        for _ in 0..POLLS_MAX {
            self.now = self.now + Duration::from_millis(1);
            if let Some(CoordinatorEvent::Ended { id, answer }) = self.handle.poll(self.now) {
                assert_eq!(id, asked);
                return answer;
            }
        }
        panic!("{} gets no answer in {POLLS_MAX} polls", self.name);
    }

    /// Polls until `span` has passed.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + TIMEOUT / 10;
            assert!(self.handle.poll(self.now).is_none(), "nothing was asked");
        }
    }

    pub(crate) fn read(&mut self, key: &str) -> Entry {
        let key = key.to_owned();
        let reply = self.ask(Request::Read { key }).expect("a read succeeds");
        reply.into_entry().expect("of a read")
    }

    /// Appends a word, under the session if there is one. Tries again while others are first.
    pub(crate) fn append(&mut self) {
        let is_done = |told| matches!(told, Told::There(_) | Told::Unknown);
        for _ in 0..POLLS_MAX {
            let entry = self.read(LIST);
            if is_done(self.append_to(&entry)) {
                return;
            }
        }
        panic!("{} is never first", self.name);
    }

    /// Appends a word to what was read.
    pub(crate) fn append_to(&mut self, entry: &Entry) -> Told {
        let word = format!("{}.{}", self.name, self.written.len());
        let mut list = String::from_utf8(entry.value.clone()).expect("words are text");
        write!(list, "{word} ").expect("it fits into memory");
        let expected = entry.version;
        let answer = self.ask(Request::Multi {
            ops: vec![CoordinatorOp::Set {
                key: LIST.to_owned(),
                expected,
                value: list.into_bytes(),
            }],
            under: self.session,
        });
        let told = match answer {
            Ok(CoordinatorReply::Done(versions)) => {
                assert_eq!(versions, [EntryVersion(expected.0 + 1)]);
                Told::There(versions[0].0)
            }
            Err(CoordinatorError::Conflict { found, .. }) => {
                assert!(found > expected, "versions rise");
                Told::NotThere
            }
            Err(CoordinatorError::SessionExpired { session }) => {
                assert_eq!(self.session.take(), Some(session));
                Told::NotThere
            }
            Err(CoordinatorError::ConnectionLost) => Told::Unknown,
            other => panic!("{other:?}"),
        };
        self.written.push(Written { word, told });
        told
    }

    /// Opens a session, and creates an ephemeral value with it. An outcome that nobody knows ends it.
    pub(crate) fn appear(&mut self) {
        let timeout = TIMEOUT;
        let Ok(CoordinatorReply::Opened { session, .. }) =
            self.ask(Request::OpenSession { timeout })
        else {
            return;
        };
        self.session = Some(session);
        let key = member(self.name);
        let created = self.ask(Request::Multi {
            ops: vec![CoordinatorOp::CreateEphemeral { key, value: vec![] }],
            under: self.session,
        });
        match created {
            Ok(_) => {}
            Err(CoordinatorError::SessionExpired { .. } | CoordinatorError::ConnectionLost) => {
                self.session = None;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The key of the ephemeral value of the actor `name`.
pub(crate) fn member(name: u32) -> String {
    format!("members/{name}")
}

/// What contradicts what `written` was told, in `list`.
pub(crate) fn judge(list: &Entry, written: &[Written]) -> Result<(), String> {
    let text = String::from_utf8(list.value.clone()).expect("words are text");
    let words: Vec<_> = text.split_whitespace().collect();
    if words.len() as u64 != list.version.0 {
        return Err(format!("{} words at {}: {text}", words.len(), list.version));
    }
    for Written { word, told } in written {
        let places: Vec<_> = (1u64..)
            .zip(&words)
            .filter(|(_, found)| *found == word)
            .collect();
        let places: Vec<_> = places.into_iter().map(|(place, _)| place).collect();
        let is_right = match told {
            Told::There(place) => places == [*place],
            Told::NotThere => places.is_empty(),
            Told::Unknown => places.len() <= 1,
        };
        if !is_right {
            return Err(format!(
                "{word} was told {told:?}, and is at {places:?} of: {text}"
            ));
        }
    }
    Ok(())
}
