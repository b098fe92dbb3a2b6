//! Writes to a region that is open here, and what waits for room there.

use argosy_engine::{EngineError, Reach, WriteBatch, WriteOptions, Written};

use super::gate::Reveals;
use super::many::{look_up, values_of};
use super::open::OpenRegion;
use super::refuse::{failed, not_written, overloaded};
use super::room::only_deletes;
use super::waiting::{Entry, Queued, Shown};
use crate::service::{Begun, ReplyTo, Request, Response, too_slow};

/// What is written.
#[derive(Clone, Copy)]
pub(super) struct Write<'a> {
    pub(super) batch: &'a WriteBatch,
    pub(super) options: WriteOptions,
}

impl OpenRegion<'_> {
    /// Writes a batch whose keys all lie in the region.
    pub(super) fn write(&self, write: Write<'_>, reach: Reach, reply: ReplyTo) -> Begun {
        let Write { batch, options } = write;
        let Self { region, engine, .. } = *self;
        let overtakes = engine.is_full() && only_deletes(batch);
        let queueing = {
            let waiting = region.waiting();
            let overtakes = overtakes && !waiting.concerns(batch);
            waiting.is_queueing() && !overtakes && !waiting.may_overtake(batch)
        };
        let result = match queueing {
            true => None,
            false => Some(self.write_noted(write, reach)),
        };
        let answer = match result {
            Some(Err(EngineError::NotInMemory)) => return Begun::NeedsDevice,
            Some(Ok(written)) => self.wrote(written, reply),
            None | Some(Err(EngineError::Busy(_))) => {
                if let Some(Err(EngineError::Busy(reason))) = result {
                    region.waiting().busy = Some(reason);
                }
                if self.local().full_for_long(engine) && !only_deletes(batch) {
                    region.uses().refused(batch);
                    return Begun::Answered(self.local().refuse_full(engine));
                }
                region.dirty().raise();
                let request = Queued::Write {
                    batch: batch.clone(),
                    options,
                };
                let entry = Entry {
                    deadline: self.deadline_of(&reply),
                    request,
                    reply,
                };
                let queued = region.waiting().queue_write(entry);
                self.context.wake(region.id());
                queued.err().map(|_| overloaded(region))
            }
            Some(Err(error)) => Some(not_written(&error)),
        };
        answer.into()
    }

    /// Writes a batch, and takes note of a part, or a head, that is in it.
    fn write_noted(&self, write: Write<'_>, reach: Reach) -> Result<Written, EngineError> {
        let Write { batch, options } = write;
        let unseeing = self.context.settings.mutants.unseeing(batch);
        let batch = unseeing.as_ref().unwrap_or(batch);
        self.region.note_written(self.context.now());
        self.region.uses().writes(batch, self.context.now());
        let written = self.engine.write_within(batch, options, reach)?;
        self.region.uses().wrote(batch);
        Ok(written)
    }

    fn wrote(&self, written: Written, reply: ReplyTo) -> Option<Response> {
        let Written {
            applied,
            unguarded,
            before,
            wait,
            previous,
            existed,
            changed,
        } = written;
        let response = match (unguarded, before) {
            (true, _) => Response::Failed(too_slow()),
            (false, true) => Response::WrittenBefore {
                version: wait.lsn(),
            },
            (false, false) => Response::Written {
                applied,
                existed,
                previous,
                changed,
            },
        };
        let reveals = match applied {
            true => Reveals::Write,
            false => Reveals::FailedCondition,
        };
        let shown = Shown {
            reveals,
            wait,
            response,
        };
        self.show(shown, reply)
    }

    /// Queues a request of another server, for a worker.
    pub(super) fn queue_of_peer(&self, request: Request<'_>, reply: ReplyTo) -> Begun {
        let entry = Entry {
            request: Queued::of_peer(request),
            reply,
            deadline: self.context.deadline(),
        };
        let queued = self.region.waiting().queue(entry);
        queued.err().map(|_| overloaded(self.region)).into()
    }

    /// Carries out what waits for room, or for the device, oldest first. What may read the device is done without the
    /// lock of what waits, which readers take.
    pub(super) fn retry_queued(&self, reach: Reach) -> Retried {
        let mut retried = Retried::default();
        loop {
            let waiting = self.region.waiting().take_in_hand(self.context.now());
            let Some(entry) = waiting else {
                return retried;
            };
            match self.retry(&entry, reach) {
                Ok(Begun::Answered(response)) => entry.reply.clone().send(response),
                Ok(_) => {}
                Err(EngineError::Busy(reason)) => {
                    self.region.waiting().found_no_room(reason);
                    return retried;
                }
                Err(_) => {
                    self.region.waiting().needs_device();
                    retried.needs_device = true;
                    return retried;
                }
            }
            retried.made = true;
        }
    }

    /// Carries out what was taken in hand. [`EngineError::Busy`] or [`EngineError::NotInMemory`]: nothing was done.
    fn retry(&self, entry: &Entry, reach: Reach) -> Result<Begun, EngineError> {
        let Self { region, engine, .. } = *self;
        let reply = entry.reply();
        let carried_out = || region.waiting().carried_out();
        Ok(match &entry.request {
            Queued::Write { batch, options } => {
                let options = *options;
                let written = match self.write_noted(Write { batch, options }, reach) {
                    Err(error @ (EngineError::Busy(_) | EngineError::NotInMemory)) => {
                        return Err(error);
                    }
                    written => written,
                };
                carried_out();
                match written {
                    Ok(written) => self.wrote(written, reply).into(),
                    Err(error) => Begun::Answered(not_written(&error)),
                }
            }
            // A read that had to wait behind a write of its key.
            Queued::Get { key, tell } => {
                let shown = tell.of(engine, key, reach);
                self.show_read(shown, reply)?
            }
            Queued::GetMany { keys, wanted } => {
                let found = look_up(engine, keys, *wanted, reach);
                self.show_read(found.map(|found| values_of(found, reach)), reply)?
            }
            Queued::Flush => {
                carried_out();
                let maintained = region.maintained();
                maintained.begin_flush(self, reply, entry.deadline).into()
            }
            Queued::Other(..) if reach == Reach::Memory => return Err(EngineError::NotInMemory),
            Queued::Other(plan, scratch) => {
                carried_out();
                self.call(scratch.request(*plan), reach, reply)
            }
        })
    }

    /// Shows what a read has found that was taken in hand, if the device was not needed.
    fn show_read(
        &self,
        found: Result<Shown, EngineError>,
        reply: ReplyTo,
    ) -> Result<Begun, EngineError> {
        if let Err(error @ EngineError::NotInMemory) = found {
            return Err(error);
        }
        self.region.waiting().carried_out();
        Ok(match found {
            Ok(shown) => self.show(shown, reply).into(),
            Err(error) => Begun::Answered(failed(&error)),
        })
    }
}

/// What became of what waits for room, or for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Retried {
    /// Something was carried out.
    pub(super) made: bool,
    /// The first that is left needs the device, which was out of reach.
    pub(super) needs_device: bool,
}
