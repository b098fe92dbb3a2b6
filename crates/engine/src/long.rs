//! Values of over [`VALUE_BYTES_MAX`](argosy_base::limits::VALUE_BYTES_MAX): parts under keys that nobody
//! sees, and a head under the visible key.
//!
//! ```text
//! part key := 0xff x 8  len: u16 LE  key  version: u128 LE  part: u32 LE      value: bytes of the part
//! head     := magic: 8 bytes  version: u128 LE  len: u64 LE  part_len: u32 LE  crc32c: u32 LE  key
//! ```
//!
//! Parts and heads are ordinary pairs of the same region. All parts but the last have the same length,
//! [`PART_BYTES`] unless log windows are small.
//!
//! - A writer ([`LongWriter`]) puts the parts, one by one, and then the head, which is the commit point: one
//!   pair, under the same conditions and with the same expiry as any. Every LSN of a part is below the head's,
//!   and a history has no hole, so whoever sees the head can read what it names.
//! - A *version* is drawn by the writer and never used twice ([`Versions`]), so parts are never overwritten.
//! - Parts whose version no head names are garbage: of a value that was overwritten or removed or has expired,
//!   or of a writer that never came to its head. The [`Sweeper`] finds them by going through all parts, so
//!   nothing has to remember them, and a crash forgets none. What nobody is at, as far as is told ([`Uses`]),
//!   it removes; where a head has replaced another one, at its next step.
//! - The head is written under a [guard](WriteBatch::guard): its first part is there. The sweeper removes all
//!   parts of a version by one range, guarded by the head's key not having been written since it looked. So
//!   whatever clocks do, a head is never without its parts; a writer that was too slow is told that nothing
//!   was applied.
//! - A reader ([`LongReader`]) reads parts of the head's version. One that reads from a snapshot finds all of
//!   them. Where it does not, and a part is missing, the head has been overwritten meanwhile, and is looked up
//!   again. The checksum is that of the whole.
//!
//! Keys that begin with [`RESERVED`] are no user's, and no range that a user names goes further than
//! to there: [`WriteBatch`] refuses them and cuts ranges. A value that looks like a head is refused there, too:
//! it can be written as a long one.

mod sweep;
mod uses;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::KeyRange;
use argosy_base::checksum::extend;
use argosy_base::limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX, PART_BYTES};

use crate::batch::{BatchError, Expiry, Guard, WriteBatch};

pub use sweep::{SweepPace, SweepStats, Sweeper};
pub use uses::Uses;

/// What keys of parts begin with. All keys from this on begin with it.
pub const RESERVED: [u8; 8] = [0xff; 8];

/// Bytes of a part's key that are not the visible key's.
const FRAME_BYTES: usize = RESERVED.len() + 2 + 16 + 4;

/// Longest key of a value of over [`VALUE_BYTES_MAX`](argosy_base::limits::VALUE_BYTES_MAX).
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

/// All keys of parts.
#[must_use]
pub fn parts() -> KeyRange {
    KeyRange::new(RESERVED, None)
}

/// The key that decides in which region `key` lies: of a part, that of its value.
#[inline]
#[must_use]
pub fn home(key: &[u8]) -> &[u8] {
    match is_reserved(key) {
        true => Part::parse(key).map_or(key, |part| part.key),
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
    fn of_key(key: &[u8]) -> KeyRange {
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
    fn all(self) -> KeyRange {
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
    pub fn new(key: &[u8], version: u128, (len, checksum): (u64, u32)) -> Result<Self, BatchError> {
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

/// Draws versions, from a number that is random enough for no two writers ever to have the same.
#[derive(Debug)]
pub struct Versions {
    base: u128,
    drawn: AtomicU64,
}

impl Versions {
    /// From this number on.
    #[must_use]
    pub const fn new(base: u128) -> Self {
        let drawn = AtomicU64::new(0);
        Self { base, drawn }
    }

    /// One that was never drawn.
    pub fn draw(&self) -> u128 {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        self.base.wrapping_add(u128::from(drawn))
    }
}

/// Writes a value part by part. See the module documentation.
#[derive(Debug)]
pub struct LongWriter {
    head: Head,
    next: u32,
}

impl LongWriter {
    /// For the value of `key`, of `len` bytes.
    ///
    /// # Errors
    /// Where no key or no value is like that.
    pub fn new(key: &[u8], len: u64, version: u128) -> Result<Self, BatchError> {
        let head = Head::new(key, version, (len, 0))?;
        Ok(Self { head, next: 0 })
    }

    /// With parts of another length, where log windows are small.
    ///
    /// # Panics
    /// If that is zero, or parts were written.
    #[must_use]
    pub const fn in_parts_of(mut self, bytes: u32) -> Self {
        assert!(bytes > 0 && self.next == 0, "before the first part");
        self.head.part_len = bytes;
        self
    }

    /// Bytes of the next part; `None`: there is none, and the head's turn.
    #[must_use]
    pub fn next_bytes(&self) -> Option<usize> {
        let bytes = usize::try_from(self.head.bytes_of(self.next)).expect("parts are short");
        (self.next < self.head.parts()).then_some(bytes)
    }

    /// The batch that writes the next part, which is `bytes`.
    ///
    /// # Panics
    /// Unless these are as many as [`next_bytes`](Self::next_bytes) says.
    pub fn part(&mut self, bytes: &[u8], batch: &mut WriteBatch) {
        assert_eq!(
            self.next_bytes(),
            Some(bytes.len()),
            "parts are of a length"
        );
        self.head.checksum = extend(self.head.checksum, bytes);
        batch.clear();
        let key = self.head.part(self.next).to_key();
        let put = batch.put_any(&key, bytes, Expiry::Never);
        put.expect("a part is within the limits");
        self.next += 1;
    }

    /// Adds the head to a batch that is empty but for what it expects.
    ///
    /// # Panics
    /// Unless all parts were written.
    pub fn head(&self, expiry: Expiry, batch: &mut WriteBatch) {
        assert_eq!(self.next_bytes(), None, "the head comes last");
        let head = self.head.to_value();
        let put = batch.put_any(&self.head.key, &head, expiry);
        put.expect("a head is within the limits");
        batch.guard(&self.head.part(0).to_key(), Guard::Present);
    }

    /// The batch that takes back, key by key, what was written, where the head was not: for whoever does not know
    /// in which region it lies.
    ///
    /// # Panics
    /// Where parts are so short that their keys do not fit in a batch.
    pub fn take_back_each(&self, batch: &mut WriteBatch) {
        batch.clear();
        for index in 0..self.next {
            let removed = batch.delete_any(&self.head.part(index).to_key());
            removed.expect("so many keys are within the limits");
        }
    }

    /// The batch that takes back what was written, where the head was not.
    pub fn take_back(&self, batch: &mut WriteBatch) {
        batch.clear();
        let removed = batch.delete_range_any(&self.head.part(0).all());
        removed.expect("a range is within the limits");
    }
}

/// Why parts are not the value that their head tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Torn {
    /// One is not there: the value has been overwritten or removed, and has to be looked up again.
    #[error("a part of the value is not there")]
    Missing,
    /// They are not what was written.
    #[error("the parts of the value are not what was written")]
    Damaged,
}

/// Reads a value part by part. See the module documentation.
#[derive(Debug)]
pub struct LongReader {
    head: Head,
    next: u32,
    bytes: u64,
    checksum: u32,
    /// Which bytes are wanted; `None`: all.
    stretch: Option<(u64, u64)>,
}

impl LongReader {
    /// Of the value that `head` stands for.
    #[must_use]
    pub const fn new(head: Head) -> Self {
        Self {
            head,
            next: 0,
            bytes: 0,
            checksum: 0,
            stretch: None,
        }
    }

    /// Of `stretch` of that value: of the parts that have some of it, which are not compared with the checksum
    /// of the whole.
    ///
    /// # Panics
    /// Unless the stretch is one of the value, and not empty.
    #[must_use]
    pub fn within(head: Head, stretch: &Range<u64>) -> Self {
        assert!(!stretch.is_empty() && stretch.end <= head.len, "some of it");
        let first = stretch.start / u64::from(head.part_len);
        Self {
            next: u32::try_from(first).expect("a value is not that long"),
            stretch: Some((stretch.start, stretch.end)),
            ..Self::new(head)
        }
    }

    /// Bytes that are wanted.
    #[must_use]
    pub const fn len(&self) -> u64 {
        match self.stretch {
            Some((from, behind)) => behind - from,
            None => self.head.len,
        }
    }

    /// Whether none is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first part that is not wanted.
    fn end(&self) -> u32 {
        let parts = self.head.parts();
        let end = self.stretch.map(|(_, behind)| behind);
        let end = end.map(|behind| behind.div_ceil(u64::from(self.head.part_len)));
        end.map_or(parts, |end| u32::try_from(end).unwrap_or(parts))
    }

    /// The keys of the next parts, at most `most`; none where all have been read.
    #[must_use]
    pub fn wanted(&self, most: u32) -> Vec<Vec<u8>> {
        let end = self.next.saturating_add(most).min(self.end());
        let parts = self.next..end;
        parts.map(|index| self.head.part(index).to_key()).collect()
    }

    /// Takes the next part.
    ///
    /// # Errors
    /// [`Torn`] where it is not there, or all together are not what was written.
    pub fn take(&mut self, part: Option<&[u8]>) -> Result<(), Torn> {
        let part = part.ok_or(Torn::Missing)?;
        if self.stretch.is_some() {
            let bytes = self.head.bytes_of(self.next);
            self.next += 1;
            let whole = part.len() as u64 == bytes;
            return whole.then_some(()).ok_or(Torn::Damaged);
        }
        self.checksum = extend(self.checksum, part);
        self.bytes += part.len() as u64;
        self.next += 1;
        let ends = self.is_done();
        let whole = (self.bytes, self.checksum) == (self.head.len, self.head.checksum);
        match self.bytes > self.head.len || ends && !whole {
            true => Err(Torn::Damaged),
            false => Ok(()),
        }
    }

    /// What is wanted of the part that was taken last.
    #[must_use]
    pub fn wanted_of<'p>(&self, part: &'p [u8]) -> &'p [u8] {
        let Some((from, behind)) = self.stretch else {
            return part;
        };
        let at = u64::from(self.next.saturating_sub(1)) * u64::from(self.head.part_len);
        let place = |byte: u64| usize::try_from(byte.saturating_sub(at)).unwrap_or(usize::MAX);
        let behind = place(behind).min(part.len());
        part.get(place(from)..behind).unwrap_or_default()
    }

    /// Whether all parts that are wanted have been taken.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next == self.end()
    }

    /// The whole value, where `get` gives what keys are bound to.
    ///
    /// # Errors
    /// `get`'s; `Ok(Err)` where the parts are not what was written.
    pub fn whole<E>(
        mut self,
        get: impl Fn(&[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, E>,
    ) -> Result<Result<Vec<u8>, Torn>, E> {
        /// How many parts are read together.
        const TOGETHER: u32 = 8;
        let len = usize::try_from(self.len()).expect("values are short of that");
        let mut value = Vec::with_capacity(len);
        while !self.is_done() {
            let keys = self.wanted(TOGETHER);
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            for part in get(&keys)? {
                if let Err(torn) = self.take(part.as_deref()) {
                    return Ok(Err(torn));
                }
                value.extend_from_slice(&part.unwrap_or_default());
            }
        }
        Ok(Ok(value))
    }
}

#[cfg(test)]
#[path = "long_tests.rs"]
mod tests;
