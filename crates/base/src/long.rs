//! The keys of parts, and the heads, of values of over [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
//!
//! ```text
//! part key := 0xff x 8  len: u16 LE  key  version: u128 LE  part: u32 LE      value: bytes of the part
//! head     := magic: 8 bytes  version: u128 LE  len: u64 LE  part_len: u32 LE  crc32c: u32 LE  key
//! ```
//!
//! Keys that begin with [`RESERVED`] are no user's, and no range that a user names goes further than
//! to there: [`WriteBatch`](crate::WriteBatch) refuses them and cuts ranges. A value that looks like a head is
//! refused there, too.

use alloc::vec::Vec;

use crate::KeyRange;
use crate::batch::BatchError;
use crate::composite;
use crate::limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX, PART_BYTES};

/// What keys of parts begin with. All keys from this on begin with it.
pub const RESERVED: [u8; 8] = [0xff; 8];

/// Bytes of a part's key that are not the visible key's.
const FRAME_BYTES: usize = RESERVED.len() + 2 + 16 + 4;

/// Longest key of a value of over [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX).
pub const LONG_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - FRAME_BYTES;

const _: () = assert!(
    LONG_VALUE_BYTES_MAX / PART_BYTES * KEY_BYTES_MAX <= BATCH_BYTES_MAX,
    "the keys of all parts of a value fit in a batch"
);

/// What a head begins with. The last byte is the format's version.
const MAGIC: [u8; 8] = *b"\xffLONG\x00\xf5\x01";

/// Bytes of a head in front of its key.
const HEAD_BYTES: usize = MAGIC.len() + 16 + 8 + 4 + 4;

/// Whether `key` is one that no user has.
#[inline]
#[must_use]
pub fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(&RESERVED)
}

/// Refuses a key that no user has.
///
/// # Errors
/// [`BatchError::KeyReserved`].
#[inline]
pub fn check_users(key: &[u8]) -> Result<(), BatchError> {
    match is_reserved(key) {
        true => Err(BatchError::KeyReserved),
        false => Ok(()),
    }
}

/// What of `range` users may have keys in.
#[must_use]
pub fn users(range: KeyRange) -> KeyRange {
    let within = range.to.as_deref().is_some_and(|to| to <= &RESERVED[..]);
    KeyRange {
        to: if within {
            range.to
        } else {
            Some(RESERVED.to_vec())
        },
        from: range.from,
    }
}

/// All keys of parts, and of the elements of [composites](crate::composite).
#[must_use]
pub fn parts() -> KeyRange {
    KeyRange::new(RESERVED, None)
}

/// The key that decides in which region `key` lies: of a part, that of its value; of an element, that of its composite.
#[inline]
#[must_use]
pub fn routing_key(key: &[u8]) -> &[u8] {
    match is_reserved(key) {
        true => {
            let part = Part::parse(key).map(|part| part.key);
            part.or_else(|| composite::key_of(key)).unwrap_or(key)
        }
        false => key,
    }
}

/// What a part's key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The key of the value.
    pub key: &'a [u8],
    /// The version of the value.
    pub version: u128,
    /// Its place in the value.
    pub index: u32,
}

impl<'a> Part<'a> {
    /// Reads a key; `None`: it is no part's.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (len, rest) = bytes.strip_prefix(&RESERVED)?.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        let (version, index) = rest.split_first_chunk()?;
        let index: [u8; 4] = index.try_into().ok()?;
        Some(Self {
            key,
            version: u128::from_le_bytes(*version),
            index: u32::from_le_bytes(index),
        })
    }

    /// Its key.
    #[must_use]
    pub fn to_key(self) -> Vec<u8> {
        let mut bytes = self.versions_prefix();
        bytes.extend_from_slice(&self.index.to_le_bytes());
        bytes
    }

    /// The keys of all parts of all versions of a key.
    #[must_use]
    pub fn of_key(key: &[u8]) -> KeyRange {
        KeyRange::prefix(&Self::keys_prefix(key))
    }

    /// What the keys of all parts of a key begin with.
    fn keys_prefix(key: &[u8]) -> Vec<u8> {
        let len = u16::try_from(key.len()).expect("keys are short");
        let mut bytes = Vec::with_capacity(FRAME_BYTES + key.len());
        bytes.extend_from_slice(&RESERVED);
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(key);
        bytes
    }

    /// What the keys of all parts of its version begin with.
    fn versions_prefix(self) -> Vec<u8> {
        let mut bytes = Self::keys_prefix(self.key);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// The keys of all parts of its version.
    #[must_use]
    pub fn all(self) -> KeyRange {
        KeyRange::prefix(&self.versions_prefix())
    }
}

/// What stands for a long value under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The key under which its parts are.
    pub key: Vec<u8>,
    /// The version of its parts.
    pub version: u128,
    /// Bytes of the value.
    pub len: u64,
    /// Bytes of each part but the last.
    pub part_len: u32,
    /// CRC-32C of the value.
    pub checksum: u32,
}

/// Whether a value is a head. Nothing else looks like one: see the module documentation.
#[inline]
#[must_use]
pub fn is_head(value: &[u8]) -> bool {
    value.starts_with(&MAGIC) && Head::parse(value).is_some()
}

/// Whether a value with this many bytes can be a head.
#[must_use]
pub fn may_be_head(bytes: usize) -> bool {
    (HEAD_BYTES + 1..=HEAD_BYTES + LONG_KEY_BYTES_MAX).contains(&bytes)
}

impl Head {
    /// Of a value whose parts a server writes: all but the last have [`PART_BYTES`].
    ///
    /// # Errors
    /// Where no key or no value is like that.
    pub fn new(key: &[u8], version: u128, len: u64, checksum: u32) -> Result<Self, BatchError> {
        crate::batch::check_key(key)?;
        check_users(key)?;
        if key.len() > LONG_KEY_BYTES_MAX {
            return Err(BatchError::LongKeyTooLong(key.len()));
        }
        if len > LONG_VALUE_BYTES_MAX as u64 {
            return Err(BatchError::LongValueTooLong(len));
        }
        Ok(Self {
            key: key.to_vec(),
            version,
            len,
            part_len: u32::try_from(PART_BYTES).expect("parts are short"),
            checksum,
        })
    }

    /// Reads a value; `None`: it is a value as any.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (version, rest) = value.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (part_len, rest) = rest.split_first_chunk()?;
        let (checksum, key) = rest.split_first_chunk()?;
        let (len, part_len) = (u64::from_le_bytes(*len), u32::from_le_bytes(*part_len));
        let fits = part_len > 0 && len <= LONG_VALUE_BYTES_MAX as u64 && may_be_head(value.len());
        fits.then(|| Self {
            key: key.to_vec(),
            version: u128::from_le_bytes(*version),
            len,
            part_len,
            checksum: u32::from_le_bytes(*checksum),
        })
    }

    /// What stands under the key.
    #[must_use]
    pub fn to_value(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.key.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&self.part_len.to_le_bytes());
        bytes.extend_from_slice(&self.checksum.to_le_bytes());
        bytes.extend_from_slice(&self.key);
        bytes
    }

    /// One of its parts.
    #[must_use]
    pub fn part(&self, index: u32) -> Part<'_> {
        Part {
            key: &self.key,
            version: self.version,
            index,
        }
    }

    /// Bytes of a part; none of one behind the last.
    #[must_use]
    pub fn bytes_of(&self, index: u32) -> u64 {
        let part_len = u64::from(self.part_len);
        let left = self.len.saturating_sub(u64::from(index) * part_len);
        left.min(part_len)
    }

    /// How many parts it has; a value has at least one.
    #[must_use]
    pub fn parts(&self) -> u32 {
        let parts = self.len.div_ceil(u64::from(self.part_len)).max(1);
        u32::try_from(parts).expect("a value is not that long")
    }
}
