//! Writes to a region that is open here, and what waits for room there.

use argosy_engine::{EngineError, Reach, WriteBatch, WriteOptions, Written};

use super::gate::Reveals;
use super::many::{look_up, values_of};
use super::open::OpenRegion;
use super::refuse::{failed, not_written, overloaded};
use super::room::only_deletes;
use super::waiting::{Entry, Queued, Shown};
use crate::service::{Begun, ReplyTo, Response, too_slow};

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
            waiting.is_queueing() && (!overtakes || waiting.concerns(batch))
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
                    request,
                    reply,
                    deadline: self.context.deadline(),
                };
                let queued = region.waiting().queue(entry);
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
        self.region.uses().writes(batch, self.context.now());
        let written = self.engine.write_within(batch, options, reach)?;
        self.region.uses().wrote(batch);
        Ok(written)
    }

    fn wrote(&self, written: Written, reply: ReplyTo) -> Option<Response> {
        let Written {
            applied,
            unguarded,
            wait,
            previous,
            existed,
            changed,
        } = written;
        let response = match unguarded {
            true => Response::Failed(too_slow()),
            false => Response::Written {
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

    /// Carries out what waits for room, oldest first. What may read the device is done without the lock
    /// of what waits, which readers take.
    pub(super) fn retry_queued(&self) -> bool {
        let Self { region, engine, .. } = *self;
        let mut made = false;
        loop {
            let Some(entry) = region.waiting().take_in_hand(self.context.now()) else {
                return made;
            };
            let reply = entry.reply();
            let response = match &entry.request {
                Queued::Write { batch, options } => {
                    let options = *options;
                    let written = self.write_noted(Write { batch, options }, Reach::Device);
                    if let Err(EngineError::Busy(reason)) = written {
                        region.waiting().found_no_room(reason);
                        return made;
                    }
                    region.waiting().carried_out();
                    match written {
                        Ok(written) => self.wrote(written, reply),
                        Err(error) => Some(not_written(&error)),
                    }
                }
                // A read that had to wait behind a write of its key.
                Queued::Get { key, tell } => {
                    let found = tell.of(engine, key, Reach::Device);
                    region.waiting().carried_out();
                    match found {
                        Ok(shown) => self.show(shown, reply),
                        Err(error) => Some(failed(&error)),
                    }
                }
                Queued::GetMany { keys, wanted } => {
                    let found = look_up(engine, keys, *wanted, Reach::Device);
                    region.waiting().carried_out();
                    match found {
                        Ok(found) => self.show(values_of(found, Reach::Device), reply),
                        Err(error) => Some(failed(&error)),
                    }
                }
                Queued::Flush => {
                    region.waiting().carried_out();
                    let maintained = region.maintained();
                    maintained.begin_flush(self, reply, entry.deadline)
                }
            };
            made = true;
            if let Some(response) = response {
                entry.reply.clone().send(response);
            }
        }
    }
}
