//! `APPEND` and `SETRANGE` of values that are, or become, longer than 1 MiB.
//!
//! 1. The change is asked for as any other, and made by the region's primary at once where it can be. Where it
//!    is refused because the value is in parts, or would be too long for one piece, it is made here.
//! 2. The key is looked up, and the new value is written under a version of its own, part by part, of what was
//!    there and of the operand. One part is under way at a time, and what was there is read as it is needed.
//! 3. The head is written, on the condition that the key is still bound to what was copied. A head names a
//!    version that is never drawn twice, so that is: nobody has written since. The expiry stays the pair's.
//! 4. Where the condition fails, what was written is removed, and it begins again at 2, a bounded number of times.
//!
//! So a reader sees the value before or the new one, whole, and no change is lost. A connection does this for the
//! first of its replies only, one at a time. Requests behind it that concern its key wait (`holds`).

use argosy_engine::long::{Head, LongReader, LongWriter, Torn, Versions};
use argosy_engine::{Changed, Condition, Expiry, Refusal, Wanted, WriteBatch, WriteOptions};
use argosy_wire::api::{Plan, Scratch};

use super::errors::error_text;
use super::reply::{After, Gather, Pending};
use crate::meter::MeteredOutcome;
use crate::service::{Failure, Response};

/// How often a value is copied that others write all the time.
const TRIES_MAX: u8 = 16;

/// A change of a value by an operand, from the request to its reply.
#[derive(Debug)]
pub(super) struct Grow {
    key: Vec<u8>,
    /// Where the operand goes; `None`: behind the value.
    place: Option<u64>,
    operand: Vec<u8>,
    tries: u8,
    stage: Stage,
}

/// What is under way.
#[derive(Debug)]
enum Stage {
    /// The change, as one request.
    Change,
    /// The key is looked up.
    Look,
    /// A part is read, or written.
    Copy(Copying),
    /// The head is written.
    Head(Copying),
    /// The parts are removed.
    TakeBack(LongWriter),
}

/// The new value, while it is made.
#[derive(Debug)]
struct Copying {
    /// What the key was bound to: a value, or the head of one in parts; `None`: to nothing.
    was: Option<Vec<u8>>,
    /// Reads what was there, where that is in parts.
    reader: Option<LongReader>,
    writer: Option<LongWriter>,
    /// Where the operand goes.
    at: u64,
    /// Bytes that there will be.
    len: u64,
    /// Bytes that have been made.
    made: u64,
    /// The last of them, which have not been written.
    ready: Vec<u8>,
}

/// What comes next.
enum Next {
    Call,
    Reply(Response),
    Fail(String, MeteredOutcome),
}

impl Grow {
    pub(super) fn new(key: &[u8], place: Option<u64>, operand: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            place,
            operand: operand.to_vec(),
            tries: 0,
            stage: Stage::Change,
        }
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        let copied = match &self.stage {
            Stage::Copy(copying) | Stage::Head(copying) => {
                copying.was.as_ref().map_or(0, Vec::len) + copying.ready.len()
            }
            _ => 0,
        };
        self.key.len() + self.operand.len() + copied
    }

    /// The call for what comes next.
    fn plan(&mut self, versions: &Versions, scratch: &mut Scratch) -> Plan {
        match std::mem::replace(&mut self.stage, Stage::Look) {
            Stage::Change | Stage::Look => {
                scratch.keys.clear();
                scratch.keys.push(&self.key);
                Plan::GetMany(Wanted::Values(1), None)
            }
            Stage::Copy(mut copying) | Stage::Head(mut copying) => {
                match copying.next(self, versions, scratch) {
                    Some(plan) => {
                        self.stage = Stage::Copy(copying);
                        plan
                    }
                    None => {
                        let condition = copying.head(&mut scratch.batch);
                        self.stage = Stage::Head(copying);
                        Plan::Write(WriteOptions {
                            condition,
                            return_previous: false,
                        })
                    }
                }
            }
            Stage::TakeBack(writer) => {
                writer.take_back_each(&mut scratch.batch);
                self.stage = Stage::TakeBack(writer);
                Plan::Write(WriteOptions::default())
            }
        }
    }

    /// Takes the answer to the last call.
    fn take(&mut self, response: Response) -> Next {
        let response = match (&self.stage, response) {
            (Stage::TakeBack(_), _) => return self.look_again(),
            (stage, Response::Failed(error)) => return stage.failed(error),
            (_, response) => response,
        };
        match (&mut self.stage, response) {
            (
                Stage::Change,
                Response::Written {
                    changed: Some(Changed::Refused(Refusal::Long | Refusal::TooLong)),
                    ..
                },
            ) => self.look(),
            (Stage::Change, response) => Next::Reply(response),
            (Stage::Look, Response::Values(told)) => self.begin(told.into_iter().next().flatten()),
            (Stage::Copy(_), Response::Written { .. }) => Next::Call,
            (Stage::Copy(copying), Response::Values(told)) => {
                let part = told.into_iter().next().flatten();
                match copying.take(part, &self.operand) {
                    Ok(()) => Next::Call,
                    Err(Torn::Missing) => self.lost(),
                    Err(torn) => Next::Fail(
                        format!("TRYAGAIN {torn} (not applied)"),
                        MeteredOutcome::Invalid,
                    ),
                }
            }
            (Stage::Head(copying), Response::Written { applied: true, .. }) => {
                Next::Reply(told(copying.len))
            }
            (Stage::Head(_), Response::Written { .. }) => self.lost(),
            (stage, response) => {
                debug_assert!(false, "{response:?} does not answer {stage:?}");
                let text = "ERR internal error: the answer is not one to this command";
                Next::Fail(text.to_owned(), MeteredOutcome::Invalid)
            }
        }
    }

    fn look(&mut self) -> Next {
        self.stage = Stage::Look;
        Next::Call
    }

    /// Begins with the new value, where the key is bound to `was`.
    fn begin(&mut self, was: Option<Vec<u8>>) -> Next {
        let head = was.as_deref().and_then(Head::parse);
        let value_bytes = was.as_ref().map_or(0, |value| value.len() as u64);
        let before = head.as_ref().map_or(value_bytes, |head| head.len);
        if self.operand.is_empty() {
            return Next::Reply(told(before));
        }
        let at = self.place.unwrap_or(before);
        let len = at.saturating_add(self.operand.len() as u64).max(before);
        if let Err(error) = Head::new(&self.key, 0, len, 0) {
            return Next::Fail(
                format!("ERR {error} (not applied)"),
                MeteredOutcome::Invalid,
            );
        }
        self.stage = Stage::Copy(Copying {
            was,
            reader: head.map(LongReader::new),
            writer: None,
            at,
            len,
            made: 0,
            ready: Vec::new(),
        });
        Next::Call
    }

    /// The key has been written meanwhile.
    fn lost(&mut self) -> Next {
        self.tries += 1;
        match std::mem::replace(&mut self.stage, Stage::Look) {
            Stage::Copy(copying) | Stage::Head(copying) => match copying.writer {
                Some(writer) => {
                    self.stage = Stage::TakeBack(writer);
                    Next::Call
                }
                None => self.look_again(),
            },
            _ => self.look_again(),
        }
    }

    fn look_again(&mut self) -> Next {
        if self.tries < TRIES_MAX {
            return self.look();
        }
        let text = format!(
            "TRYAGAIN others have written the value {TRIES_MAX} times while it was being changed (not applied)"
        );
        Next::Fail(text, MeteredOutcome::Busy)
    }
}

impl Stage {
    /// What is told where this met `error`.
    fn failed(&self, mut error: Failure) -> Next {
        match &mut error {
            Failure::Unavailable { outcome, .. }
            | Failure::Busy { outcome, .. }
            | Failure::Storage { outcome, .. }
                if matches!(self, Self::Look | Self::Copy(_)) =>
            {
                // Nobody sees what was written so far.
                *outcome = argosy_base::Outcome::NotApplied;
            }
            _ => {}
        }
        Next::Fail(error_text(&error, true), (&error).into())
    }
}

/// The answer to a change that made a value of so many bytes.
fn told(len: u64) -> Response {
    Response::Written {
        applied: true,
        existed: Vec::new(),
        previous: Vec::new(),
        changed: Some(Changed::Number(i64::try_from(len).unwrap_or(i64::MAX))),
    }
}

impl Copying {
    /// The call that reads or writes the next part; `None`: all were written.
    fn next(&mut self, grow: &Grow, versions: &Versions, scratch: &mut Scratch) -> Option<Plan> {
        let writer = self.writer.get_or_insert_with(|| {
            let writer = LongWriter::new(&grow.key, self.len, versions.draw());
            writer.expect("key and length were looked at")
        });
        let bytes = writer.next_bytes()?;
        if self.ready.len() < bytes {
            let reader = self.reader.as_ref().filter(|reader| !reader.is_done());
            if let Some(reader) = reader {
                scratch.keys.clear();
                let wanted = reader.wanted(1);
                wanted.iter().for_each(|key| scratch.keys.push(key));
                return Some(Plan::GetMany(Wanted::Values(1), None));
            }
            let place = usize::try_from(self.made).expect("values are short of that");
            let missing = bytes - self.ready.len();
            // What is in parts has been read.
            let value = self.was.as_deref().filter(|_| self.reader.is_none());
            let there = value
                .and_then(|value| value.get(place..))
                .unwrap_or_default();
            self.ready
                .extend_from_slice(&there[..missing.min(there.len())]);
            self.ready.resize(bytes, 0);
            self.overlay(missing, &grow.operand);
        }
        let writer = self.writer.as_mut()?;
        writer.part(&self.ready[..bytes], &mut scratch.batch);
        self.ready.drain(..bytes);
        Some(Plan::Write(WriteOptions::default()))
    }

    /// Takes the next part of what was there.
    fn take(&mut self, part: Option<Vec<u8>>, operand: &[u8]) -> Result<(), Torn> {
        let reader = self.reader.as_mut().ok_or(Torn::Damaged)?;
        reader.take(part.as_deref())?;
        let part = part.unwrap_or_default();
        self.ready.extend_from_slice(&part);
        self.overlay(part.len(), operand);
        Ok(())
    }

    /// The last `fresh` bytes of what is ready are new: puts what of the operand lies there over them.
    fn overlay(&mut self, fresh: usize, operand: &[u8]) {
        let (from, behind) = (self.made, self.made + fresh as u64);
        self.made = behind;
        let end = self.at + operand.len() as u64;
        let (first, last) = (self.at.max(from), end.min(behind));
        if first < last {
            let place = |byte: u64| usize::try_from(byte).expect("values are short of that");
            let start = self.ready.len() - fresh;
            let over = &operand[place(first - self.at)..place(last - self.at)];
            self.ready[start + place(first - from)..][..over.len()].copy_from_slice(over);
        }
    }

    /// The batch that makes the new value visible, and when it is to be written.
    fn head(&self, batch: &mut WriteBatch) -> Condition {
        batch.clear();
        let condition = match &self.was {
            Some(was) => {
                let expected = batch.expect_any(was);
                expected.expect("it was a value");
                Condition::Equals
            }
            None => Condition::Absent,
        };
        if let Some(writer) = &self.writer {
            writer.head(Expiry::Keep, batch);
        }
        condition
    }
}

impl Grow {
    /// Takes the answer to a call of the change that `pending` is about.
    pub(super) fn answered(pending: &mut Pending, response: Response) -> After {
        let Gather::Grow(grow) = &mut pending.gather else {
            return After::Nothing;
        };
        match grow.take(response) {
            Next::Call => {
                pending.held = grow.held();
                return After::NextPage;
            }
            Next::Reply(response) => {
                pending.gather = Gather::Changed;
                pending.held = 0;
                pending.answer = Some(response);
            }
            Next::Fail(text, outcome) => pending.fail(text, outcome),
        }
        After::Nothing
    }

    /// The next call of a change that is made part by part, where `pending` is about one.
    pub(super) fn next_call(
        pending: &mut Pending,
        versions: &Versions,
        scratch: &mut Scratch,
    ) -> Option<Plan> {
        let Gather::Grow(grow) = &mut pending.gather else {
            return None;
        };
        let plan = grow.plan(versions, scratch);
        pending.held = grow.held();
        Some(plan)
    }
}
