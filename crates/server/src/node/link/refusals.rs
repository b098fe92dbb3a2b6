//! What keeps a link from opening although the peer is there: its memory cannot be used, or the system refuses.
//!
//! An attempt to open that comes to nothing because the peer offers no memory yet is no refusal. Any other failure is,
//! and the next attempt may well succeed. So a refusal is told as a trouble once attempts have been refused for
//! [`TOLD_AFTER`], until the link opens, or none has been refused for so long.

use std::time::Duration;

use argosy_base::Instant;
use argosy_fabric::FabricError;

use super::Broken;

/// How long attempts are refused before that is told.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: Option<Refused>,
}

/// Attempts that were refused, none long after the one before.
#[derive(Debug)]
struct Refused {
    since: Instant,
    at: Instant,
    /// Why the last one was, and what to do about it.
    why: String,
}

/// What is known of a link that does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CannotOpen {
    /// Nothing: it is open, or the peer is not there.
    Unknown,
    /// It was refused just now, which may be over soon.
    ForNow,
    /// It has been refused for long: why, and what to do about it.
    Because(String),
}

impl Refusals {
    /// An attempt has been refused at `now`.
    pub(super) fn note(&mut self, broken: &Broken, now: Instant) {
        let before = self.last.take().filter(|last| last.is_recent(now));
        self.last = Some(Refused {
            since: before.map_or(now, |before| before.since),
            at: now,
            why: format!("{broken}; {}", remedy(broken)),
        });
    }

    /// What there is to tell at `now`.
    pub(super) fn told(&self, now: Instant) -> CannotOpen {
        match self.last.as_ref().filter(|last| last.is_recent(now)) {
            None => CannotOpen::Unknown,
            Some(last) if now.since(last.since) >= TOLD_AFTER => {
                CannotOpen::Because(last.why.clone())
            }
            Some(_) => CannotOpen::ForNow,
        }
    }
}

impl Refused {
    fn is_recent(&self, now: Instant) -> bool {
        now.since(self.at) < TOLD_AFTER
    }
}

/// What to do about it.
const fn remedy(broken: &Broken) -> &'static str {
    match broken {
        Broken::Fabric(FabricError::TooShort { .. }) => {
            "start both servers with the same version, and with equal settings"
        }
        Broken::Fabric(FabricError::System { .. }) | Broken::Memory(_) => {
            "give the server what the system refuses: it is tried again all the time"
        }
        _ => "restart one of both servers if this lasts: it is tried again all the time",
    }
}
