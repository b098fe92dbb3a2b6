//! Requests of threads that must not wait for the device: carried out where they need not, and
//! otherwise given back untouched.

use std::sync::Arc;

use argosy_engine::batch::check_key;
use argosy_engine::long::check_users;
use argosy_engine::{EngineError, Found, Op, Outline, Reach, WriteBatch, WriteOptions};

use super::Node;
use super::gate::Reveals;
use super::refuse::{failed, overloaded};
use super::region::Region;
use super::serving::Serving;
use super::waiting::{Entry, Queued, ReplyTo, Shown};
use crate::service::{Begun, Failure, ReplySink, Request, Response, Service};

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
    /// See [`Service::call_now`].
    pub(super) fn begin(
        &self,
        request: Request<'_>,
        sink: &Arc<dyn ReplySink>,
        token: u64,
    ) -> Begun {
        match request {
            Request::Get { key } | Request::GetVersion { key } | Request::Expiry { key } => {
                if let Err(error) = check_key(key).and_then(|()| check_users(key)) {
                    let error = Failure::Invalid(error.to_string());
                    return Begun::Answered(Response::Failed(error));
                }
                match self.served_here(self.map.index_of(key)) {
                    Some(region) => {
                        let tell = match request {
                            Request::Expiry { .. } => Tell::Expiry,
                            Request::GetVersion { .. } => Tell::Version,
                            _ => Tell::Value,
                        };
                        self.get_now(region, (key, tell), ReplyTo::new(sink, token))
                    }
                    None => self.call(request, sink, token).into(),
                }
            }
            Request::GetMany {
                keys,
                wanted,
                at: None,
            } => self.get_many_now((keys, wanted), sink, token),
            Request::GetMany { .. } | Request::Ingest { .. } => Begun::Blocks,
            Request::Write { batch, options } => {
                if let Some(region) = self.one_region_here(batch) {
                    return self.write_now(region, (batch, options), ReplyTo::new(sink, token));
                }
                // Whoever has the region looks. Some of several may be here.
                if batch.ops().any(|op| matches!(op, Op::Delete { .. }))
                    || options.condition != Default::default()
                    || options.return_previous
                    || batch.changes().is_some()
                {
                    return Begun::Blocks;
                }
                self.call(request, sink, token).into()
            }
            Request::Scan { range, paging } if !range.is_empty() && paging.pairs_max > 0 => {
                Begun::Blocks
            }
            Request::Scan { .. }
            | Request::Count
            | Request::Snapshot { .. }
            | Request::Maintain { .. } => self.call(request, sink, token).into(),
        }
    }

    /// The region in place `index` of the map, if this server is its primary.
    pub(super) fn served_here(&self, index: usize) -> Option<&Arc<Region>> {
        let region = &self.map.regions()[index];
        (region.primary == self.id).then(|| self.region(region.id).expect("a primary is a member"))
    }

    /// The region of all keys of `batch`, if it is one and this server's.
    fn one_region_here(&self, batch: &WriteBatch) -> Option<&Arc<Region>> {
        self.served_here(self.home_of(batch)?)
    }

    fn get_now(&self, region: &Region, (key, tell): (&[u8], Tell), reply: ReplyTo) -> Begun {
        self.world.ledger.at(region.place);
        let guard = region.engine.load();
        let Some(engine) = &*guard else {
            return Begun::Answered(self.not_open(region));
        };
        if let Some(waits) = self.behind_writes(region, (key, tell), &reply) {
            return waits.into();
        }
        match tell.of(engine, key, Reach::Memory) {
            Ok(shown) => self.show(region, engine, shown, reply).into(),
            Err(EngineError::NotInMemory) => Begun::Blocks,
            Err(error) => Begun::Answered(failed(&error)),
        }
    }

    fn write_now(
        &self,
        region: &Region,
        write: (&WriteBatch, WriteOptions),
        reply: ReplyTo,
    ) -> Begun {
        self.world.ledger.at(region.place);
        let guard = region.engine.load();
        match &*guard {
            Some(engine) => self.write(region, engine, write, (reply, Reach::Memory)),
            None => Begun::Answered(self.not_open(region)),
        }
    }

    /// Where writes of `key` wait for room: queues a read behind them.
    pub(super) fn behind_writes(
        &self,
        region: &Region,
        (key, tell): (&[u8], Tell),
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
