//! Looks at one key: what is told of it, and what that reveals.

use std::sync::Arc;

use argosy_engine::{EngineError, Found, Outline, Reach};

use super::Node;
use super::gate::Reveals;
use super::refuse::{failed, overloaded};
use super::region::Region;
use super::serving::Serving;
use super::waiting::{Entry, Queued, Shown};
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

impl Node {
    /// Looks a key of `region`, whose primary this server is, up within the reach of `look`.
    pub(super) fn get(
        &self,
        region: &Region,
        engine: &Arc<Serving>,
        look: Look<'_>,
        reply: ReplyTo,
    ) -> Begun {
        if let Some(waits) = self.behind_writes(region, look, &reply) {
            return waits.into();
        }
        match look.tell.of(engine, look.key, look.reach) {
            Ok(shown) => self.show(region, engine, shown, reply).into(),
            Err(EngineError::NotInMemory) => Begun::NeedsDevice,
            Err(error) => Begun::Answered(failed(&error)),
        }
    }

    /// Where writes of `key` wait for room: queues a read behind them.
    fn behind_writes(
        &self,
        region: &Region,
        Look { key, tell, .. }: Look<'_>,
        reply: &ReplyTo,
    ) -> Option<Option<Response>> {
        let mut waiting = region.waiting();
        if !waiting.is_queueing() || !waiting.writes(key) {
            return None;
        }
        let entry = Entry {
            request: Queued::Get {
                key: key.to_vec(),
                tell,
            },
            reply: reply.clone(),
            deadline: self.deadline(),
        };
        Some(waiting.queue(entry).err().map(|_| overloaded(region)))
    }
}
