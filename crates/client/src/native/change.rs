//! Writes on terms, writes that depend on the value, and looks at a pair without its value.
//!
//! All of them are decided by the primary of the key's region, where its writes are put in order: nobody
//! comes in between, and nothing is done twice.

use std::time::Duration;

use argosy_base::codec::Reader;
use argosy_base::limits::VALUE_BYTES_MAX;
use argosy_wire::call::{Answer, Call, When, WireTold, WireUntil};
use argosy_wire::native::{Flags, Op};

use super::client::{BRIEF, Client, odd};
use super::long::long_in;
use super::run::Sending;
use crate::error::ClientError;

/// When a write is to be done at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition<'a> {
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

impl Until {
    /// As it travels.
    fn parts(self) -> WireUntil {
        match self {
            Self::Never => (0, 0),
            Self::Kept => (1, 0),
            Self::At(millis) => (2, millis),
            Self::After(span) => (3, u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// On what terms a key is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms<'a> {
    /// When at all.
    pub only: Condition<'a>,
    /// When the pair expires.
    pub until: Until,
    /// Whether to tell what the key was bound to before.
    pub previous: bool,
}

/// What came of a write on terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Whether the condition held.
    pub applied: bool,
    /// What the key was bound to before, where that was asked for.
    pub previous: Option<Vec<u8>>,
}

/// What to make of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
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

impl<'a> Change<'a> {
    /// As it travels: what it is, its parameter, and its operand.
    fn parts(self) -> ((u8, u64), &'a [u8]) {
        /// The first kind of a change of an expiry.
        const EXPIRE: u8 = 16;
        match self {
            Self::Add(number) => ((1, number.cast_unsigned()), b""),
            Self::AddFloat(number) => ((2, number.to_bits()), b""),
            Self::Append(bytes) => ((3, 0), bytes),
            Self::Overwrite(from, bytes) => ((4, from.into()), bytes),
            Self::Expire(until) => {
                let (how, number) = until.parts();
                ((EXPIRE + how, number), b"")
            }
        }
    }
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
pub struct Outline {
    /// Bytes of the value.
    pub len: u64,
    /// When the pair expires, in milliseconds after the beginning of 1970, if it does.
    pub expires: Option<u64>,
    /// The time by which it does, at the region's primary.
    pub now: u64,
}

/// What a write was answered: whether it was applied, what there was before, and what a change told.
type Answered = (bool, Option<Vec<u8>>, Option<Told>);

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
    ) -> Result<Written, ClientError> {
        let long = match value {
            Some(value) if value.len() > VALUE_BYTES_MAX => {
                Some(self.put_parts(key, value)?.encode())
            }
            _ => None,
        };
        let value = long.as_ref().map(|long| &long[..]).or(value);
        let flags = Flags::default().with(Flags::LONG, long.is_some());
        let until = terms.until.parts();
        let when = match terms.only {
            Condition::Always => When::Always,
            Condition::Absent => When::Absent,
            Condition::Present => When::Present,
            Condition::Equals(value) => When::Equals(value),
            Condition::Version(version) => When::Version(version),
        };
        let call = Call::Write {
            when,
            previous: terms.previous,
            change: None,
            ops: vec![(key, value)],
            until: vec![until; usize::from(until != (0, 0))],
        };
        let (applied, previous, _) = self.call(key, flags, &call, terms.previous)?;
        Ok(Written { applied, previous })
    }

    /// Makes `change` of the value of `key`, and returns what that told.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`ClientError::Invalid`] where the value is none of which that can be made.
    pub fn change(&self, key: &[u8], change: Change<'_>) -> Result<Told, ClientError> {
        let (_, _, told) = self.change_with(key, change, false)?;
        told.ok_or_else(|| odd("a change told nothing"))
    }

    /// The value of `key`, which expires then from now on.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_and_expire(&self, key: &[u8], until: Until) -> Result<Option<Vec<u8>>, ClientError> {
        let (_, previous, _) = self.change_with(key, Change::Expire(until), true)?;
        Ok(previous)
    }

    /// What `key` is bound to, and the version of that, for [`Condition::Version`]; that it is not bound has
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
            reply_bytes: self.shared.guess.bytes() + BRIEF,
        };
        let mut payload = Vec::new();
        let reply = self.run(&mut sending, self.deadline_from_now(), &mut payload)?;
        match read(&payload)? {
            // The value of that version, or a later one: then nobody writes on that version any more.
            Answer::Versioned {
                value: Some(long),
                version,
            } if reply.flags.has(Flags::LONG) => Ok((self.whole(key, long_in(long)?, 0)?, version)),
            Answer::Versioned { value, version } => Ok((value.map(<[u8]>::to_vec), version)),
            other => Err(odd(&format!("a look at a key was answered by {other:?}"))),
        }
    }

    /// What is known of the pair of `key`, if there is one, without its value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn outline(&self, key: &[u8]) -> Result<Option<Outline>, ClientError> {
        let mut sending = Sending {
            op: Op::Look,
            flags: Flags::default(),
            key,
            parts: &[key],
            reply_bytes: BRIEF,
        };
        let mut payload = Vec::new();
        let reply = self.run(&mut sending, self.deadline_from_now(), &mut payload)?;
        let in_parts = match reply.flags.has(Flags::LONG) {
            true => self.length_in_parts(key)?,
            false => None,
        };
        match read(&payload)? {
            Answer::Expiry { len, at, now } => Ok(len.map(|len| Outline {
                len: in_parts.unwrap_or(len),
                expires: at,
                now,
            })),
            other => Err(odd(&format!("a look was answered by {other:?}"))),
        }
    }

    fn change_with(
        &self,
        key: &[u8],
        change: Change<'_>,
        previous: bool,
    ) -> Result<Answered, ClientError> {
        let (change, operand) = change.parts();
        let call = Call::Write {
            when: When::Always,
            previous,
            change: Some(change),
            ops: vec![(key, Some(operand))],
            until: Vec::new(),
        };
        self.call(key, Flags::default(), &call, previous)
    }

    /// Has a write of `key` carried out.
    fn call(
        &self,
        key: &[u8],
        flags: Flags,
        call: &Call<'_>,
        at_length: bool,
    ) -> Result<Answered, ClientError> {
        let mut body = Vec::new();
        call.encode(&mut body);
        let mut sending = Sending {
            op: Op::Write,
            flags,
            key,
            parts: &[&body],
            // A write is not done again for want of room for its answer: there has to be enough.
            reply_bytes: if at_length {
                VALUE_BYTES_MAX + BRIEF
            } else {
                BRIEF
            },
        };
        let mut payload = Vec::new();
        let reply = self.run(&mut sending, self.deadline_from_now(), &mut payload)?;
        match read(&payload)? {
            Answer::Written {
                applied,
                previous,
                told,
                ..
            } => {
                let previous = match previous.into_iter().next().flatten() {
                    Some(long) if reply.flags.has(Flags::LONG) => {
                        Some(self.overwritten(key, long, applied)?)
                    }
                    previous => previous.map(<[u8]>::to_vec),
                };
                let told = match told {
                    None => None,
                    Some(WireTold::Number(number)) => Some(Told::Number(number)),
                    Some(WireTold::Value(value)) => Some(Told::Value(value.to_vec())),
                    Some(WireTold::Refused(why)) => return Err(refused(why)),
                };
                Ok((applied, previous, told))
            }
            other => Err(odd(&format!("a write was answered by {other:?}"))),
        }
    }
}

/// Why a change was not made. The numbers are those of the servers.
fn refused(why: u8) -> ClientError {
    let why = match why {
        0 => "the value is not an integer, or out of range",
        1 => "the sum is out of range",
        2 => "the value is not a decimal fraction",
        3 => "the sum is no number",
        4 => "the value would be too long",
        5 => "a value of over 1048576 bytes is read and written as a whole only",
        _ => "the change cannot be made of this value",
    };
    let what = why.to_owned();
    ClientError::Invalid { what }
}

/// The answer in `payload`.
pub(super) fn read(payload: &[u8]) -> Result<Answer<'_>, ClientError> {
    let answer = Answer::decode(&mut Reader::new("an answer", payload));
    answer.map_err(|error| odd(&error.to_string()))
}
