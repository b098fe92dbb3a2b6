//! Puts an operand behind a value, or over some of it, where the value is, or becomes, longer than 1 MiB.
//!
//! 1. The change is asked for as any other, and made by the region's primary at once where it can be. Where it
//!    is refused because the value is in parts, or would be too long for one piece, it is made here.
//! 2. The key is looked up, and the new value is written under a version of its own, part by part, of what was
//!    there and of the operand. One part is under way at a time, and what was there is read as it is needed.
//! 3. The head is written, on the condition that the key is still bound to what was copied. A head names a
//!    version that is never drawn twice, so that is: nobody has written since. The expiry stays the pair's.
//! 4. Where the condition fails, what was written is removed, and it begins again at 2, a bounded number of times.
//!
//! So a reader sees the value before or the new one, whole, and no change is lost.

use argosy_base::Outcome;
use argosy_engine::change::Change;
use argosy_engine::long::{Head, LongReader, Torn, Versions};
use argosy_engine::{BatchError, Changed, Condition, Expiry, Refusal, WriteBatch, WriteOptions};
use argosy_wire::api::{Plan, Scratch};

use super::read::{look_up, next_part};
use super::{Writing, before_head, len_of};
use crate::service::{Failure, Response};

/// How often a value is copied that others write all the time.
const TRIES_MAX: u8 = 16;

/// A change of a value by an operand, from the request to its answer. See the module documentation.
#[derive(Debug)]
pub(crate) struct Growing {
    operand: Operand,
    tries: u8,
    stage: Stage,
}

/// What is put into the value of a key.
#[derive(Debug)]
struct Operand {
    key: Vec<u8>,
    /// Where it goes; `None`: behind the value.
    place: Option<u64>,
    bytes: Vec<u8>,
}

/// What is under way.
#[derive(Debug)]
enum Stage {
    /// The change, as one request.
    Change,
    /// The key is looked up.
    Look,
    /// A part is read, or written, or the head is written.
    Copy(Copying),
    /// The parts are removed.
    TakeBack(Writing),
}

/// The new value, while it is made.
#[derive(Debug)]
struct Copying {
    /// What the key was bound to: a value, or the head of one in parts; `None`: to nothing.
    was: Option<Vec<u8>>,
    /// Reads what was there, where that is in parts.
    reader: Option<LongReader>,
    writing: Option<Writing>,
    /// Where the operand goes.
    at: u64,
    /// Bytes that there will be.
    len: u64,
    /// Bytes that have been made.
    made: u64,
    /// The last of them, which have not been written.
    ready: Vec<u8>,
    /// The head is being written.
    ends: bool,
}

/// What comes behind an answer.
#[derive(Debug)]
pub(crate) enum Grew {
    /// The next call.
    Call,
    /// The end: this is the answer to the change.
    Done(Response),
    /// The end: a call failed, the change is over a limit, or others write the value all the time.
    Failed(Failure),
    /// The end: what was there cannot be read. Nothing was changed.
    Torn(Torn),
    /// The end: the answer is not one to the last call.
    Unfit,
}

impl Growing {
    /// Puts `bytes` behind the value of `key`, or at `place`. Returns the first call, too.
    ///
    /// # Errors
    /// Where there is no such key, or no such value.
    pub(crate) fn begin(
        key: &[u8],
        place: Option<u64>,
        bytes: &[u8],
        batch: &mut WriteBatch,
    ) -> Result<(Self, Plan), BatchError> {
        let change = match place {
            None => Change::Append,
            // No value is so long: it is refused where it is evaluated.
            Some(place) => Change::Overwrite(u32::try_from(place).unwrap_or(u32::MAX)),
        };
        batch.clear();
        batch.change(key, change, bytes)?;
        let growing = Self {
            operand: Operand {
                key: key.to_vec(),
                place,
                bytes: bytes.to_vec(),
            },
            tries: 0,
            stage: Stage::Change,
        };
        Ok((growing, Plan::Write(WriteOptions::default())))
    }

    /// Bytes that are held.
    pub(crate) fn held(&self) -> usize {
        let copied = match &self.stage {
            Stage::Copy(copying) => copying.was.as_ref().map_or(0, Vec::len) + copying.ready.len(),
            _ => 0,
        };
        self.operand.key.len() + self.operand.bytes.len() + copied
    }

    /// The call for what comes next.
    pub(crate) fn plan(&mut self, versions: &Versions, scratch: &mut Scratch) -> Plan {
        match &mut self.stage {
            Stage::Change | Stage::Look => {
                self.stage = Stage::Look;
                look_up(&self.operand.key, None, &mut scratch.keys)
            }
            Stage::Copy(copying) => copying.next(&self.operand, versions, scratch),
            Stage::TakeBack(writing) => writing.take_back(&mut scratch.batch),
        }
    }

    /// Takes the answer to the last call.
    pub(crate) fn take(&mut self, response: Response) -> Grew {
        let response = match (&self.stage, response) {
            (Stage::TakeBack(_), _) => return self.look_again(),
            (stage, Response::Failed(error)) => return Grew::Failed(stage.failed(error)),
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
            (Stage::Change, response) => Grew::Done(response),
            (Stage::Look, Response::Values(told)) => self.copy(told.into_iter().next().flatten()),
            (Stage::Copy(copying), Response::Values(told)) => {
                let part = told.into_iter().next().flatten();
                match copying.take(part, &self.operand) {
                    Ok(()) => Grew::Call,
                    Err(Torn::Missing) => self.lost(),
                    Err(torn) => Grew::Torn(torn),
                }
            }
            (Stage::Copy(copying), Response::Written { applied, .. }) => {
                match (copying.ends, applied) {
                    (false, _) => {
                        copying.writing.iter_mut().for_each(Writing::wrote);
                        Grew::Call
                    }
                    (true, true) => Grew::Done(told(copying.len)),
                    (true, false) => self.lost(),
                }
            }
            (stage, response) => {
                debug_assert!(false, "{response:?} does not answer {stage:?}");
                Grew::Unfit
            }
        }
    }

    fn look(&mut self) -> Grew {
        self.stage = Stage::Look;
        Grew::Call
    }

    /// Begins with the new value, where the key is bound to `was`.
    fn copy(&mut self, was: Option<Vec<u8>>) -> Grew {
        let Operand { key, place, bytes } = &self.operand;
        let before = was.as_deref().map_or(0, len_of);
        if bytes.is_empty() {
            return Grew::Done(told(before));
        }
        let at = place.unwrap_or(before);
        let len = at.saturating_add(bytes.len() as u64).max(before);
        if let Err(error) = Head::new(key, 0, len, 0) {
            return Grew::Failed(Failure::Invalid(error.to_string()));
        }
        let head = was.as_deref().and_then(Head::parse);
        self.stage = Stage::Copy(Copying {
            was,
            reader: head.map(LongReader::new),
            writing: None,
            at,
            len,
            made: 0,
            ready: Vec::new(),
            ends: false,
        });
        Grew::Call
    }

    /// The key has been written meanwhile.
    fn lost(&mut self) -> Grew {
        self.tries += 1;
        match std::mem::replace(&mut self.stage, Stage::Look) {
            Stage::Copy(Copying {
                writing: Some(writing),
                ..
            }) => {
                self.stage = Stage::TakeBack(writing);
                Grew::Call
            }
            _ => self.look_again(),
        }
    }

    fn look_again(&mut self) -> Grew {
        if self.tries < TRIES_MAX {
            return self.look();
        }
        Grew::Failed(Failure::Busy {
            what: format!(
                "others have written the value {TRIES_MAX} times while it was being changed"
            ),
            outcome: Outcome::NotApplied,
        })
    }
}

impl Stage {
    /// What has become of the change where this met `error`.
    fn failed(&self, error: Failure) -> Failure {
        let unseen = match self {
            Self::Copy(copying) => !copying.ends,
            stage => matches!(stage, Self::Look),
        };
        match unseen {
            true => before_head(error),
            false => error,
        }
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
    /// The call that reads or writes the next part, or writes the head.
    fn next(&mut self, operand: &Operand, versions: &Versions, scratch: &mut Scratch) -> Plan {
        let mut writing = self.writing.take().unwrap_or_else(|| {
            let writing = Writing::begin(&operand.key, self.len, versions);
            writing.expect("key and length were looked at")
        });
        let reader = self.reader.as_ref().filter(|reader| !reader.is_done());
        let plan = match (writing.next_bytes(), reader) {
            (None, _) => self.head(&writing, &mut scratch.batch),
            (Some(bytes), Some(reader)) if self.ready.len() < bytes => {
                next_part(reader, None, &mut scratch.keys)
            }
            (Some(bytes), _) => {
                self.fill(bytes, operand);
                let plan = writing.part(&self.ready[..bytes], &mut scratch.batch);
                self.ready.drain(..bytes);
                plan
            }
        };
        self.writing = Some(writing);
        plan
    }

    /// Makes so many bytes ready, where what was in parts has been read.
    fn fill(&mut self, bytes: usize, operand: &Operand) {
        let missing = bytes.saturating_sub(self.ready.len());
        if missing == 0 {
            return;
        }
        let place = usize::try_from(self.made).expect("values are short of that");
        let value = self.was.as_deref().filter(|_| self.reader.is_none());
        let there = value
            .and_then(|value| value.get(place..))
            .unwrap_or_default();
        self.ready
            .extend_from_slice(&there[..missing.min(there.len())]);
        self.ready.resize(bytes, 0);
        self.overlay(missing, operand);
    }

    /// Takes the next part of what was there.
    fn take(&mut self, part: Option<Vec<u8>>, operand: &Operand) -> Result<(), Torn> {
        let reader = self.reader.as_mut().ok_or(Torn::Damaged)?;
        reader.take(part.as_deref())?;
        let part = part.unwrap_or_default();
        self.ready.extend_from_slice(&part);
        self.overlay(part.len(), operand);
        Ok(())
    }

    /// The last `fresh` bytes of what is ready are new: puts what of the operand lies there over them.
    fn overlay(&mut self, fresh: usize, operand: &Operand) {
        let (from, behind) = (self.made, self.made + fresh as u64);
        self.made = behind;
        let end = self.at + operand.bytes.len() as u64;
        let (first, last) = (self.at.max(from), end.min(behind));
        if first < last {
            let place = |byte: u64| usize::try_from(byte).expect("values are short of that");
            let start = self.ready.len() - fresh;
            let over = &operand.bytes[place(first - self.at)..place(last - self.at)];
            self.ready[start + place(first - from)..][..over.len()].copy_from_slice(over);
        }
    }

    /// The call that makes the new value visible, where the key is bound to what it was.
    fn head(&mut self, writing: &Writing, batch: &mut WriteBatch) -> Plan {
        batch.clear();
        let condition = match &self.was {
            Some(was) => {
                let expected = batch.expect_any(was);
                expected.expect("it was a value");
                Condition::Equals
            }
            None => Condition::Absent,
        };
        self.ends = true;
        let options = WriteOptions {
            condition,
            return_previous: false,
        };
        writing.head(Expiry::Keep, options, batch)
    }
}
