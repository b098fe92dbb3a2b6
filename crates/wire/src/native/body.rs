//! What stands behind the headers. Keys, values and texts are byte strings as in [`crate::api`].
//!
//! ```text
//! get, delete := key                       (all of the payload)
//! put         := len: u16  key value       (the value is the rest)
//! multi-get   := count key*  number         (the snapshot to read from; 0 for none)
//! values      := (0 | 1 value | 2 long)*   (of the first keys, at least of one, in their order)
//! long        := version: u128  len: u64  part_len: u32  crc32c: u32
//! part        := long  index: u32  snapshot: u64  key_len: u16  key bytes
//!                                          (of a value in parts; the bytes are the rest)
//! failure     := failure: u8  outcome: u8  text
//! x?          := 0 | 1 x
//! ```

use alloc::vec::Vec;

use argosy_base::KeyList;
use argosy_base::codec::{Malformed, Reader, put_string};
use argosy_base::limits::{LONG_VALUE_BYTES_MAX, VALUE_BYTES_MAX};

use crate::api::{self, Failure, SnapshotId};

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

/// Appends the keys of a multi-get from snapshot `at`, or from none.
pub fn put_keys<'a>(
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
    at: Option<SnapshotId>,
    out: &mut Vec<u8>,
) {
    api::put_keys(keys, at, out);
}

/// Reads the keys of a multi-get into `keys`. Returns the snapshot that they are read from, if from one.
///
/// # Errors
/// [`Malformed`] where there are too many, or they are too long, or it is none.
pub fn read_keys(payload: &[u8], keys: &mut KeyList) -> Result<Option<SnapshotId>, Malformed> {
    let mut r = Reader::new("a multi-get", payload);
    let at = api::read_keys(&mut r, MULTI_KEYS_MAX, keys)?;
    r.finish()?;
    Ok(at)
}

/// Appends a value of the answer to a multi-get.
pub fn put_value(value: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put_string(out, value);
    }
}

/// What stands for a value in parts: of over 1 MiB, as a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Long {
    /// The version of its parts.
    pub version: u128,
    /// Bytes of the value.
    pub len: u64,
    /// Bytes of each part but the last.
    pub part_len: u32,
    /// CRC-32C of the value.
    pub checksum: u32,
}

impl Long {
    /// Bytes of it.
    pub const BYTES: usize = 32;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.part_len.to_le_bytes());
        bytes[28..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Reads one, which is all of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] where it is none, or over the limit, or its parts have no bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new("a value in parts", bytes);
        let long = Self::read(&mut r)?;
        let fits = long.part_len > 0 && long.len <= LONG_VALUE_BYTES_MAX as u64;
        if fits && r.rest().is_empty() {
            Ok(long)
        } else {
            Err(r.malformed())
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let version = *r.take(16)?.first_chunk().expect("sixteen bytes");
        Ok(Self {
            version: u128::from_le_bytes(version),
            len: r.u64()?,
            part_len: r.u32()?,
            checksum: r.u32()?,
        })
    }

    /// How many parts it has; a value has at least one.
    #[must_use]
    pub fn parts(&self) -> u32 {
        let parts = self.len.div_ceil(u64::from(self.part_len.max(1))).max(1);
        u32::try_from(parts).unwrap_or(u32::MAX)
    }
}

/// A part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOf<'a> {
    /// Of which value.
    pub long: Long,
    /// Its place in it.
    pub index: u32,
    /// The snapshot to read it from, if from one.
    pub at: Option<SnapshotId>,
    /// The key of the value.
    pub key: &'a [u8],
    /// What it is, where it is to be written.
    pub bytes: &'a [u8],
}

impl<'a> PartOf<'a> {
    /// Appends all of it but its bytes, which come last.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.long.encode());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.at.map_or(0, |at| at.0).to_le_bytes());
        put_pair(self.key, out);
    }

    /// Reads one, which is all of `payload`.
    ///
    /// # Errors
    /// [`Malformed`] where it is none.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new("a part of a value", payload);
        let long = Long::read(&mut r)?;
        let (index, at) = (r.u32()?, api::snapshot_of(r.u64()?));
        let (key, bytes) = split_pair(r.rest())?;
        Ok(Self {
            long,
            index,
            at,
            key,
            bytes,
        })
    }
}

/// Appends, in the place of a value of the answer to a multi-get, that it is in parts.
pub fn put_long(long: &Long, out: &mut Vec<u8>) {
    out.push(2);
    out.extend_from_slice(&long.encode());
}

/// A value in the answer to a multi-get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneValue<'a> {
    /// The key is not bound.
    Absent,
    /// The value.
    Whole(&'a [u8]),
    /// It is in parts.
    Long(Long),
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
    pub fn next_value(&mut self) -> Result<OneValue<'a>, Malformed> {
        match self.0.u8()? {
            0 => Ok(OneValue::Absent),
            1 => self.0.string(VALUE_BYTES_MAX).map(OneValue::Whole),
            2 => Long::decode(self.0.take(Long::BYTES)?).map(OneValue::Long),
            _ => Err(self.0.malformed()),
        }
    }
}

/// Appends a failure.
pub fn put_failure(failure: &Failure, out: &mut Vec<u8>) {
    failure.put_kind(out);
    out.extend_from_slice(failure.what().as_bytes());
}

/// A failure, whose text may have been cut short.
///
/// # Errors
/// [`Malformed`] where it is none.
pub fn read_failure(payload: &[u8]) -> Result<Failure, Malformed> {
    let mut r = Reader::new("a failure", payload);
    Failure::read(&mut r, |r| r.take(r.rest().len()))
}
