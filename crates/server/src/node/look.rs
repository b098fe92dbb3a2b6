//! Looks at one key: what is told of it, and what that reveals.

use argosy_engine::{EngineError, Found, Outline, Reach};

use super::gate::Reveals;
use super::open::OpenRegion;
use super::refuse::failed;
use super::serving::Serving;
use super::waiting::{Queued, Shown};
use crate::service::{Begun, ReplyTo, Response};

/// What is wanted of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// Its value.
    Value,
    /// The same, and the version of that.
    Version,
    /// When that expires, and its length.
    Expiry,
}

/// A look at one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look<'a> {
    pub(super) key: &'a [u8],
    pub(super) tell: Tell,
    pub(super) reach: Reach,
}

impl Tell {
    /// What is to be told of `key`, and from which LSN on.
    pub(super) fn of(
        self,
        engine: &Serving,
        key: &[u8],
        reach: Reach,
    ) -> Result<Shown, EngineError> {
        Ok(match self {
            Self::Value => value_of(engine.get_within(key, reach)?, reach),
            Self::Version => versioned(engine.get_within(key, reach)?, reach),
            Self::Expiry => outline_of(engine, engine.outline(key, reach)?, reach),
        })
    }
}

/// What an answer reveals that is read within `reach`.
pub(super) const fn reveals(reach: Reach) -> Reveals {
    match reach {
        Reach::Memory => Reveals::Hit,
        Reach::Device => Reveals::Values,
    }
}

pub(super) fn value_of(found: Found, reach: Reach) -> Shown {
    Shown {
        reveals: reveals(reach),
        wait: found.wait,
        response: Response::Value(found.value),
    }
}

fn versioned(found: Found, reach: Reach) -> Shown {
    let Found {
        value,
        version,
        wait,
        ..
    } = found;
    Shown {
        reveals: reveals(reach),
        wait,
        response: Response::Versioned { value, version },
    }
}

fn outline_of(engine: &Serving, outline: Outline, reach: Reach) -> Shown {
    let Outline { len, wait, expiry } = outline;
    let response = Response::Expiry {
        len: len.map(|len| len as u64),
        at: expiry,
        now: engine.time(),
    };
    Shown {
        reveals: reveals(reach),
        wait,
        response,
    }
}

impl Look<'_> {
    /// Looks the key up in `open`, in which it lies, within its reach.
    pub(super) fn answer(self, open: &OpenRegion<'_>, reply: ReplyTo) -> Begun {
        let queued = || Queued::Get {
            key: self.key.to_vec(),
            tell: self.tell,
        };
        if let Some(waits) = open.wait_behind_writes([self.key], queued, &reply) {
            return waits.into();
        }
        match self.tell.of(open.engine, self.key, self.reach) {
            Ok(shown) => open.show(shown, reply).into(),
            Err(EngineError::NotInMemory) => Begun::NeedsDevice,
            Err(error) => Begun::Answered(failed(&error)),
        }
    }
}
