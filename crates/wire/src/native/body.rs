//! What stands behind the headers. Keys, values and texts are byte strings as in [`crate::call`].
//!
//! ```text
//! get, delete := key                       (all of the payload)
//! put         := len: u16  key value       (the value is the rest)
//! multi-get   := count key*  number         (the snapshot to read from; 0 for none)
//! values      := value? *                  (of the first keys, at least of one, in their order)
//! failure     := error: u8  outcome: u8  text
//! x?          := 0 | 1 x
//! ```

use alloc::vec::Vec;

use argosy_base::Outcome;
use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::call::{self, FailureKind};

/// Most keys of one [`Op::MultiGet`](super::Op).
pub const MULTI_KEYS_MAX: usize = 1024;

/// What stands in front of the value in the payload of a put: the key and its length.
pub fn put_pair(key: &[u8], out: &mut Vec<u8>) {
    // A key that is too long is refused by the server, which then finds a length that is wrong.
    let len = u16::try_from(key.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(key);
}

/// Key and value of a put.
///
/// # Errors
/// [`Malformed`] where there is no such key.
pub fn split_pair(payload: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut r = Reader::new("a put", payload);
    let len = r.u16()?;
    let key = r.take(len.into())?;
    Ok((key, r.rest()))
}

/// Appends the keys of a multi-get from snapshot `at`, or from none where that is 0.
pub fn put_keys<'a>(keys: impl ExactSizeIterator<Item = &'a [u8]>, at: u64, out: &mut Vec<u8>) {
    put_varint(out, keys.len() as u64);
    for key in keys {
        put_string(out, key);
    }
    put_varint(out, at);
}

/// The keys of a multi-get, and the snapshot that they are read from, if not 0.
///
/// # Errors
/// [`Malformed`] where there are too many, or they are too long, or it is none.
pub fn keys_of(payload: &[u8]) -> Result<(Vec<&[u8]>, u64), Malformed> {
    let mut r = Reader::new("a multi-get", payload);
    let count = r.length(MULTI_KEYS_MAX)?;
    let keys = (0..count).map(|_| r.string(KEY_BYTES_MAX));
    let keys = keys.collect::<Result<_, _>>()?;
    let at = r.varint()?;
    if r.rest().is_empty() {
        Ok((keys, at))
    } else {
        Err(r.malformed())
    }
}

/// Appends a value of the answer to a multi-get.
pub fn put_value(value: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put_string(out, value);
    }
}

/// The values in the answer to a multi-get.
#[derive(Clone, Debug)]
pub struct Values<'a>(Reader<'a>);

impl<'a> Values<'a> {
    /// Those in `payload`.
    #[must_use]
    pub const fn of(payload: &'a [u8]) -> Self {
        Self(Reader::new("the answer to a multi-get", payload))
    }

    /// Whether there is no other.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.rest().is_empty()
    }

    /// The next value.
    ///
    /// # Errors
    /// [`Malformed`] where there is none.
    pub fn next_value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.0.u8()? {
            0 => Ok(None),
            1 => self.0.string(VALUE_BYTES_MAX).map(Some),
            _ => Err(self.0.malformed()),
        }
    }
}

/// Appends a failure.
pub fn put_failure(kind: FailureKind, outcome: Outcome, text: &str, out: &mut Vec<u8>) {
    call::put_failure(out, kind, outcome);
    out.extend_from_slice(text.as_bytes());
}

/// A failure: its kind, what became of a write, and its text, which may have been cut short.
///
/// # Errors
/// [`Malformed`] where it is none.
pub fn failure(payload: &[u8]) -> Result<(FailureKind, Outcome, &[u8]), Malformed> {
    let mut r = Reader::new("a failure", payload);
    let (kind, outcome) = call::failure(&mut r)?;
    Ok((kind, outcome, r.rest()))
}
