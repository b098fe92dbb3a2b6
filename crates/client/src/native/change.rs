//! Writes on terms, writes that depend on the value, and looks at a pair without its value.
//!
//! All of them are decided by the primary of the key's region, where its writes are put in order: nobody
//! comes in between, and nothing is done twice.

use std::time::Duration;

use argosy_base::limits::VALUE_BYTES_MAX;
use argosy_base::{Changed, Expiry, Lsn, Moment, Only, Outcome, Refusal, WriteBatch, WriteOptions};
use argosy_wire::api::Response;
use argosy_wire::native::{Flags, Op};

use super::client::{BRIEF, Client, odd};
use super::long::long_in;
use super::names::{Answer, Writing};
use super::run::Sending;
use crate::error::ClientError;

/// When a write is to be done at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteCondition<'a> {
    /// In any case.
    #[default]
    Always,
    /// Where the key is not bound.
    Absent,
    /// Where it is.
    Present,
    /// Where it is bound to this value.
    Equals(&'a [u8]),
    /// Where it has not been written since it had this version, which
    /// [`get_with_version`](Client::get_with_version) told. May fail though nobody wrote: then the key has
    /// another version by now, and reading it again tells which.
    Version(u64),
}

/// When a pair expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// Never.
    #[default]
    Never,
    /// When the pair does that is there.
    Kept,
    /// So many milliseconds after the beginning of 1970, by the clock of the region's primary.
    At(u64),
    /// After this time.
    After(Duration),
}

impl From<Until> for Expiry {
    fn from(until: Until) -> Self {
        match until {
            Until::Never => Self::Never,
            Until::Kept => Self::Keep,
            Until::At(millis) => Self::At(Moment(millis)),
            Until::After(span) => Self::After(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// On what terms a key is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms<'a> {
    /// When at all.
    pub only: WriteCondition<'a>,
    /// When the pair expires.
    pub until: Until,
    /// Whether to tell what the key was bound to before.
    pub previous: bool,
}

/// What came of a write on terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Whether the condition held.
    pub applied: bool,
    /// What the key was bound to before, where that was asked for.
    pub previous: Option<Vec<u8>>,
}

/// What to make of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueChange<'a> {
    /// Add this to a decimal number; a key that is not bound counts as 0. Tells the sum.
    Add(i64),
    /// Add this to a decimal fraction. Tells the new value.
    AddFloat(f64),
    /// Put these bytes behind the value. Tells its length.
    Append(&'a [u8]),
    /// Overwrite the value with these bytes from this one on; what lacks in front of them is zero. Tells its
    /// length.
    Overwrite(u32, &'a [u8]),
    /// Have the pair, if there is one, expire then. Tells 1 if it will do so now, and 0 otherwise.
    Expire(Until),
}

/// What a change told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A number.
    Number(i64),
    /// The new value.
    Value(Vec<u8>),
}

/// What is known of a pair without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairOutline {
    /// Bytes of the value.
    pub len: u64,
    /// When the pair expires, in milliseconds after the beginning of 1970, if it does.
    pub expires: Option<u64>,
    /// The time by which it does, at the region's primary.
    pub now: u64,
}

/// What a write was answered.
#[derive(Debug, Default)]
struct Answered {
    applied: bool,
    /// By an attempt whose answer was lost: what it told is not known any more.
    before: bool,
    /// Whether the key was bound.
    existed: bool,
    previous: Option<Vec<u8>>,
    /// What a change told.
    told: Option<Told>,
}

impl Answered {
    /// Refuses to tell what only the answer told that was lost.
    fn with_answer(self) -> Result<Self, ClientError> {
        match self.before {
            false => Ok(self),
            true => Err(ClientError::Lost {
                what: "the answer was lost, and with it what it told".to_owned(),
                outcome: Outcome::Applied,
            }),
        }
    }
}

impl Client {
    /// Binds `key` to `value`, or with `None` removes it, on these terms. A value of over 1 MiB is written in
    /// parts first, whatever the terms; it cannot be compared with.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn write_on(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        terms: Terms<'_>,
    ) -> Result<WriteOutcome, ClientError> {
        let long = match value {
            Some(value) if value.len() > VALUE_BYTES_MAX => {
                Some(self.caller.put_parts(key, value)?.encode())
            }
            _ => None,
        };
        let value = long.as_ref().map(|long| &long[..]).or(value);
        let flags = Flags::default().with(Flags::LONG, long.is_some());
        let mut batch = WriteBatch::new();
        match value {
            Some(value) => batch.put_until(key, value, terms.until.into())?,
            None => batch.delete(key)?,
        }
        let condition = match terms.only {
            WriteCondition::Always => argosy_base::Condition::Always,
            WriteCondition::Absent => argosy_base::Condition::Absent,
            WriteCondition::Present => argosy_base::Condition::Present,
            WriteCondition::Equals(value) => {
                batch.expect(value)?;
                argosy_base::Condition::Equals
            }
            WriteCondition::Version(version) => argosy_base::Condition::Version(Lsn(version)),
        };
        let options = WriteOptions {
            condition,
            return_previous: terms.previous,
        };
        let answered = self.written(key, flags, batch, options)?;
        let answered = match terms.previous {
            true => answered.with_answer()?,
            false => answered,
        };
        Ok(WriteOutcome {
            applied: answered.applied,
            previous: answered.previous,
        })
    }

    /// Makes `change` of the value of `key`, and returns what that told.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`ClientError::Invalid`] where the value is none of which that can be made.
    pub fn change(&self, key: &[u8], change: ValueChange<'_>) -> Result<Told, ClientError> {
        let answered = self.change_with(key, change, false)?.with_answer()?;
        answered.told.ok_or_else(|| odd("a change told nothing"))
    }

    /// The value of `key`, which expires then from now on.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_and_expire(&self, key: &[u8], until: Until) -> Result<Option<Vec<u8>>, ClientError> {
        let answered = self.change_with(key, ValueChange::Expire(until), true)?;
        Ok(answered.with_answer()?.previous)
    }

    /// What `key` is bound to, and the version of that, for [`WriteCondition::Version`]; that it is not bound has
    /// a version, too.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_with_version(&self, key: &[u8]) -> Result<(Option<Vec<u8>>, u64), ClientError> {
        let mut sending = Sending {
            op: Op::GetVersion,
            flags: Flags::default(),
            key,
            parts: &[key],
            reply_bytes: self.caller.shared.guess.bytes() + BRIEF,
        };
        let mut payload = Vec::new();
        let reply = self
            .caller
            .run(&mut sending, self.caller.deadline_from_now(), &mut payload)?;
        match read(&payload)? {
            // The value of that version, or a later one: then nobody writes on that version any more.
            Response::Versioned {
                value: Some(long),
                version,
            } if reply.flags.has(Flags::LONG) => {
                Ok((self.caller.whole(key, long_in(&long)?, None)?, version.0))
            }
            Response::Versioned { value, version } => Ok((value, version.0)),
            other => Err(odd(&format!("a look at a key was answered by {other:?}"))),
        }
    }

    /// What is known of the pair of `key`, if there is one, without its value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn outline(&self, key: &[u8]) -> Result<Option<PairOutline>, ClientError> {
        let mut sending = Sending {
            op: Op::Look,
            flags: Flags::default(),
            key,
            parts: &[key],
            reply_bytes: BRIEF,
        };
        let mut payload = Vec::new();
        let reply = self
            .caller
            .run(&mut sending, self.caller.deadline_from_now(), &mut payload)?;
        let in_parts = match reply.flags.has(Flags::LONG) {
            true => self.caller.length_in_parts(key)?,
            false => None,
        };
        match read(&payload)? {
            Response::Expiry { len, at, now } => Ok(len.map(|len| PairOutline {
                len: in_parts.unwrap_or(len),
                expires: at.map(|at| at.0),
                now: now.0,
            })),
            other => Err(odd(&format!("a look was answered by {other:?}"))),
        }
    }

    fn change_with(
        &self,
        key: &[u8],
        change: ValueChange<'_>,
        previous: bool,
    ) -> Result<Answered, ClientError> {
        let (change, operand) = match change {
            ValueChange::Add(number) => (argosy_base::Change::Add(number), &b""[..]),
            ValueChange::AddFloat(number) => {
                (argosy_base::Change::AddFloat(number.to_bits()), &b""[..])
            }
            ValueChange::Append(bytes) => (argosy_base::Change::Append, bytes),
            ValueChange::Overwrite(from, bytes) => (argosy_base::Change::Overwrite(from), bytes),
            ValueChange::Expire(until) => (
                argosy_base::Change::Expire(until.into(), Only::Any),
                &b""[..],
            ),
        };
        let mut batch = WriteBatch::new();
        batch.change(key, change, operand)?;
        let options = WriteOptions {
            return_previous: previous,
            ..WriteOptions::default()
        };
        self.written(key, Flags::default(), batch, options)
    }

    /// Removes `key`. Returns whether it was bound.
    pub(super) fn remove(&self, key: &[u8]) -> Result<bool, ClientError> {
        let mut batch = WriteBatch::new();
        batch.delete(key)?;
        let answered = self.written(key, Flags::default(), batch, WriteOptions::default())?;
        Ok(answered.with_answer()?.existed)
    }

    /// Has a write of `key` carried out.
    fn written(
        &self,
        key: &[u8],
        flags: Flags,
        batch: WriteBatch,
        options: WriteOptions,
    ) -> Result<Answered, ClientError> {
        let writing = Writing {
            key,
            flags,
            batch,
            options,
            // A write is not done again for want of room for its answer: there has to be enough.
            reply_bytes: if options.return_previous {
                VALUE_BYTES_MAX + BRIEF
            } else {
                BRIEF
            },
        };
        let Answer { reply, response } = self.caller.write(writing)?;
        match response {
            Response::WrittenBefore { .. } => Ok(Answered {
                applied: true,
                before: true,
                ..Answered::default()
            }),
            Response::Written {
                applied,
                previous,
                changed,
                existed,
            } => {
                let previous = match previous.into_iter().next().flatten() {
                    Some(long) if reply.flags.has(Flags::LONG) => {
                        Some(self.caller.overwritten(key, &long, applied)?)
                    }
                    previous => previous,
                };
                let told = match changed {
                    None => None,
                    Some(Changed::Number(number)) => Some(Told::Number(number)),
                    Some(Changed::Value(value)) => Some(Told::Value(value)),
                    Some(Changed::Refused(why)) => return Err(refused(why)),
                };
                Ok(Answered {
                    applied,
                    before: false,
                    existed: existed.first() == Some(&true),
                    previous,
                    told,
                })
            }
            other => Err(odd(&format!("a write was answered by {other:?}"))),
        }
    }
}

/// Why a change was not made.
fn refused(why: Refusal) -> ClientError {
    let why = match why {
        Refusal::WrongType => {
            let what = "the key is bound to a hash, a sorted set or a set".to_owned();
            return ClientError::WrongType { what };
        }
        Refusal::NotAnInteger => "the value is not an integer, or out of range",
        Refusal::Overflow => "the sum is out of range",
        Refusal::NotAFloat => "the value is not a decimal fraction",
        Refusal::NotFinite => "the sum is no number",
        Refusal::TooLong => "the value would be too long",
        Refusal::Long => "a value of over 1048576 bytes is read and written as a whole only",
    };
    let what = why.to_owned();
    ClientError::Invalid { what }
}

/// The answer in `payload`.
pub(super) fn read(payload: &[u8]) -> Result<Response, ClientError> {
    Response::decode(payload).map_err(|error| odd(&error.to_string()))
}
