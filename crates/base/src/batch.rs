//! An atomic batch: puts and deletes that take effect together or not at all. Limits are checked
//! when an operation is added, so a batch that exists can be written.
//!
//! What is removed is a key, or all keys of a range, whether there are few of them or many. No key is
//! empty, so a range that begins with the empty key is kept as one that begins with the lowest that there
//! is, a zero byte; and no range ends with the empty key, so that stands for one without an end.
//!
//! A batch that was computed from what reads told names that, too ([`Seen`]): it is written only where all of it is
//! still so. One without operations asks just that.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::composite::is_any_head;
use crate::limits::{
    BATCH_BYTES_MAX, BATCH_PAIRS_MAX, BATCH_RANGES_MAX, KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX,
    VALUE_BYTES_MAX,
};
use crate::long::{self, LONG_KEY_BYTES_MAX, RESERVED};
use crate::seen::SeenKeys;
use crate::{Change, KeyRange, Lsn, RequestName};

pub use crate::expiry::Expiry;
pub use crate::seen::{Guard, Seen};

/// Why an operation does not fit. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Keys have at least one byte.
    #[error("the key is empty; keys have 1 to {KEY_BYTES_MAX} bytes")]
    KeyEmpty,
    /// The key is too long.
    #[error("the key has {0} bytes; keys have 1 to {KEY_BYTES_MAX} bytes (max_key_bytes)")]
    KeyTooLong(usize),
    /// The key is one under which parts of long values, or elements of composites, are kept.
    #[error("keys that begin with {} bytes of 0xff are reserved", RESERVED.len())]
    KeyReserved,
    /// The value is too long for an operation of a batch.
    #[error(
        "the value has {0} bytes; values have at most {VALUE_BYTES_MAX} bytes (max_value_bytes) here"
    )]
    ValueTooLong(usize),
    /// The value looks like the head of a long one, or of a composite.
    #[error(
        "the value looks like the head of a long one or of a composite: put it by itself, not in a batch"
    )]
    ValueReserved,
    /// The value is too long.
    #[error(
        "the value has {0} bytes; values have at most {LONG_VALUE_BYTES_MAX} bytes (max_long_value_bytes)"
    )]
    LongValueTooLong(u64),
    /// The key is too long for a long value.
    #[error(
        "the key has {0} bytes; keys of values of over {VALUE_BYTES_MAX} bytes have at most \
         {LONG_KEY_BYTES_MAX}"
    )]
    LongKeyTooLong(usize),
    /// Too many pairs in one batch.
    #[error("the batch has over {BATCH_PAIRS_MAX} pairs (max_batch_pairs)")]
    TooManyPairs,
    /// Too many bytes in one batch.
    #[error("the batch has over {BATCH_BYTES_MAX} bytes of keys and values (max_batch_bytes)")]
    TooManyBytes,
    /// Too many ranges in one batch.
    #[error("the batch removes over {BATCH_RANGES_MAX} ranges")]
    TooManyRanges,
    /// Keys are to be equal to nothing in particular.
    #[error(
        "`Condition::Equals` compares with what `WriteBatch::expect` was told, and it was told nothing: \
         say what is expected"
    )]
    NothingExpected,
    /// A change has company.
    #[error("a change is alone in its batch")]
    ChangeNotAlone,
    /// The client has an id of a moment that is far ahead.
    #[error(
        "the client's id was taken {0} ms ahead of the region's clock, which is too far: take another one, and \
         look at the clocks of both"
    )]
    ClientAhead(u64),
}

/// What must hold of every key of a batch for it to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// The keys are not bound.
    Absent,
    /// The keys are bound.
    Present,
    /// The keys are bound to what the batch [expects](WriteBatch::expect).
    Equals,
    /// The keys have not been written since they had this version, which a read told
    /// (`Found::version` of an engine). May fail though nobody wrote, where the key lies in the levels and a memtable
    /// went there since: then the key has another version by now, and reading it again tells which. That may be so a
    /// few times in a row while much is written.
    Version(Lsn),
}

/// How a batch is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// When to write at all.
    pub condition: Condition,
    /// Whether to report what each key was bound to before.
    pub return_previous: bool,
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Bind `key` to `value`.
    Put {
        /// 1 to [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
        /// 0 to [`VALUE_BYTES_MAX`] bytes.
        value: &'a [u8],
        /// For how long.
        expiry: Expiry,
    },
    /// Remove `key`, whether or not it is bound.
    Delete {
        /// 1 to [`KEY_BYTES_MAX`] bytes.
        key: &'a [u8],
    },
    /// Remove all keys of a range that is not empty.
    DeleteRange {
        /// The lowest key that is removed, if it is there: 1 to [`KEY_BYTES_MAX`] bytes.
        from: &'a [u8],
        /// The lowest key above it that stays. `None`: none does.
        to: Option<&'a [u8]>,
    },
}

impl<'a> Op<'a> {
    /// The key that is put or deleted, or the lowest of the range.
    #[must_use]
    pub const fn key(&self) -> &'a [u8] {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
            Self::DeleteRange { from, .. } => from,
        }
    }

    /// The range that is removed, where it is one.
    #[inline]
    #[must_use]
    pub fn range(&self) -> Option<KeyRange> {
        match self {
            Self::DeleteRange { from, to } => Some(KeyRange::new(*from, to.map(<[u8]>::to_vec))),
            Self::Put { .. } | Self::Delete { .. } => None,
        }
    }

    /// Whether it decides what `key` is bound to.
    #[must_use]
    pub fn concerns(&self, key: &[u8]) -> bool {
        match self {
            Self::Put { key: own, .. } | Self::Delete { key: own } => *own == key,
            Self::DeleteRange { from, to } => *from <= key && to.is_none_or(|to| key < to),
        }
    }
}

/// Operations that take effect together, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// Keys and values back to back.
    bytes: Vec<u8>,
    /// Per operation: the end of its key in `bytes`, and of its value, or `None` for a delete.
    ends: Vec<(usize, Option<usize>)>,
    /// What most batches do not have.
    more: Option<Box<More>>,
}

/// What a batch has that depends on values or on time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct More {
    /// The only operation is this change, with the put's value as operand.
    change: Option<Change>,
    /// What [`Condition::Equals`] compares with.
    expected: Option<Vec<u8>>,
    /// When operations expire, by their places, where they do.
    expiries: Vec<(usize, Expiry)>,
    /// The places of ranges that are removed. They stand like puts: what is bound is the key that stays.
    ranges: Vec<usize>,
    /// It is not to be taken apart.
    together: bool,
    /// What has to hold of another key.
    guard: Option<(Vec<u8>, Guard)>,
    /// What was read.
    seen: SeenKeys,
    /// By which name it is recognised when it is sent again.
    request: Option<RequestName>,
}

impl WriteBatch {
    /// A batch without operations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put.
    pub fn put(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), BatchError> {
        self.put_until(key, value, Expiry::Never)
    }

    /// Adds a put of a pair that expires.
    ///
    /// # Errors
    /// As [`put`](Self::put)'s.
    pub fn put_until(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<(), BatchError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        long::check_users(key)?;
        if is_any_head(value) {
            return Err(BatchError::ValueReserved);
        }
        self.put_any(key, value, expiry)
    }

    /// Adds a put of a pair of whatever kind, parts and heads among them.
    ///
    /// # Errors
    /// As [`put`](Self::put)'s.
    pub fn put_any(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<(), BatchError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(BatchError::ValueTooLong(value.len()));
        }
        self.add(key, Some(value))?;
        if expiry != Expiry::Never {
            let more = self.more.get_or_insert_default();
            more.expiries.push((self.ends.len() - 1, expiry));
        }
        Ok(())
    }

    /// Whether any pair has an expiry.
    #[must_use]
    pub fn expires(&self) -> bool {
        !self.expiries().is_empty()
    }

    fn expiries(&self) -> &[(usize, Expiry)] {
        self.more.as_ref().map_or(&[], |more| &more.expiries)
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<(), BatchError> {
        let key = key.as_ref();
        long::check_users(key)?;
        self.delete_any(key)
    }

    /// Adds a delete of a pair of whatever kind.
    ///
    /// # Errors
    /// As [`delete`](Self::delete)'s.
    pub fn delete_any(&mut self, key: &[u8]) -> Result<(), BatchError> {
        self.add(key, None)
    }

    /// The batch is written only if this holds of `key`, which is no key of its own. One guard is kept.
    pub fn guard(&mut self, key: &[u8], guard: Guard) {
        self.more.get_or_insert_default().guard = Some((key.to_vec(), guard));
    }

    /// What has to hold of another key.
    #[must_use]
    pub fn guarded(&self) -> Option<(&[u8], Guard)> {
        let (key, guard) = self.more.as_ref()?.guard.as_ref()?;
        Some((key, *guard))
    }

    /// The batch is written only if what was `seen` of its key is still so. The key may be one of the batch's own.
    /// Counts among its pairs and bytes.
    ///
    /// # Errors
    /// As of a delete of the key.
    pub fn saw(&mut self, seen: Seen<'_>) -> Result<(), BatchError> {
        check_key(seen.key)?;
        self.check_room(seen.key.len())?;
        self.more.get_or_insert_default().seen.push(seen);
        Ok(())
    }

    /// What it was computed on, in the order in which that was added.
    pub fn seen(&self) -> impl ExactSizeIterator<Item = Seen<'_>> + Clone {
        const NOTHING: &SeenKeys = &SeenKeys::new();
        self.more.as_ref().map_or(NOTHING, |more| &more.seen).iter()
    }

    /// In each region the batch is written at most once, however often it comes under this name.
    pub fn name(&mut self, request: RequestName) {
        self.more.get_or_insert_default().request = Some(request);
    }

    /// The [name](Self::name) that it has, if any.
    #[inline]
    #[must_use]
    pub fn request(&self) -> Option<RequestName> {
        self.more.as_ref()?.request
    }

    /// Adds that all keys of `range` are removed, what earlier operations of the batch put there among them.
    /// An empty range adds nothing. It costs the same however many keys there are, and nobody looks whether
    /// there are any.
    ///
    /// # Errors
    /// [`BatchError::KeyTooLong`] of a bound; where the batch has no room for it.
    pub fn delete_range(&mut self, range: &KeyRange) -> Result<(), BatchError> {
        self.delete_range_any(&long::users(range.clone()))
    }

    /// Adds that all keys of `range` are removed, reserved ones among them.
    ///
    /// # Errors
    /// As [`delete_range`](Self::delete_range)'s.
    pub fn delete_range_any(&mut self, range: &KeyRange) -> Result<(), BatchError> {
        // The successor of the longest key is a bound, too.
        let to = range.to.as_deref().unwrap_or_default();
        if to.len() > KEY_BYTES_MAX + 1 {
            return Err(BatchError::KeyTooLong(to.len()));
        }
        let behind;
        let from = match range.from.as_slice() {
            [] => &[0],
            // The successor of a longest key, and the next key is one without its last bytes.
            from if from.len() == KEY_BYTES_MAX + 1 => {
                let Some(next) = KeyRange::prefix(&from[..KEY_BYTES_MAX]).to else {
                    return Ok(());
                };
                behind = next;
                behind.as_slice()
            }
            from => from,
        };
        if range.to.is_some() && to <= from {
            return Ok(());
        }
        if self.ranges().len() == BATCH_RANGES_MAX {
            return Err(BatchError::TooManyRanges);
        }
        self.add(from, Some(to))?;
        let place = self.ends.len() - 1;
        self.more.get_or_insert_default().ranges.push(place);
        Ok(())
    }

    /// Adds `op`, of pairs of whatever kind.
    ///
    /// # Errors
    /// As [`put`](Self::put)'s and [`delete_range`](Self::delete_range)'s.
    pub fn add_any(&mut self, op: &Op<'_>) -> Result<(), BatchError> {
        match *op {
            Op::Put { key, value, expiry } => self.put_any(key, value, expiry),
            Op::Delete { key } => self.delete_any(key),
            Op::DeleteRange { .. } => self.delete_range_any(&op.range().unwrap_or_default()),
        }
    }

    /// How many ranges are removed.
    #[must_use]
    pub fn ranges_len(&self) -> usize {
        self.ranges().len()
    }

    fn ranges(&self) -> &[usize] {
        self.more.as_ref().map_or(&[], |more| &more.ranges)
    }

    /// Makes the batch one change of what `key` is bound to. It is then its only operation, and shows
    /// among [`ops`](Self::ops) as a put of `operand`.
    ///
    /// # Errors
    /// As of a put of `operand`; where the batch is not empty.
    pub fn change(
        &mut self,
        key: impl AsRef<[u8]>,
        change: Change,
        operand: impl AsRef<[u8]>,
    ) -> Result<(), BatchError> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        if !self.is_empty() {
            return Err(BatchError::ChangeNotAlone);
        }
        self.put(key, operand)?;
        self.more.get_or_insert_default().change = Some(change);
        Ok(())
    }

    /// The change that the batch is, if it is one.
    #[must_use]
    pub fn changes(&self) -> Option<Change> {
        self.more.as_ref()?.change
    }

    /// With [`Condition::Equals`], the keys have to be bound to `value`.
    ///
    /// # Errors
    /// Where no key can be.
    pub fn expect(&mut self, value: impl AsRef<[u8]>) -> Result<(), BatchError> {
        let value = value.as_ref();
        if is_any_head(value) {
            return Err(BatchError::ValueReserved);
        }
        self.expect_any(value)
    }

    /// As [`expect`](Self::expect), of a value of whatever kind: of a head, that a long value is still the one
    /// that it stands for.
    ///
    /// # Errors
    /// [`BatchError::ValueTooLong`].
    pub fn expect_any(&mut self, value: &[u8]) -> Result<(), BatchError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(BatchError::ValueTooLong(value.len()));
        }
        self.more.get_or_insert_default().expected = Some(value.to_vec());
        Ok(())
    }

    /// All of it takes effect together, or nothing: where its keys lie in several regions, nothing does.
    pub fn keep_together(&mut self) {
        self.more.get_or_insert_default().together = true;
    }

    /// Whether it may not be taken apart.
    #[must_use]
    pub fn is_together(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.together)
    }

    /// What was [expected](Self::expect) last; empty if nothing was.
    #[must_use]
    pub fn expected(&self) -> &[u8] {
        let more = self.more.as_ref();
        more.and_then(|more| more.expected.as_deref())
            .unwrap_or_default()
    }

    /// Whether something was [expected](Self::expect).
    #[must_use]
    pub fn expects(&self) -> bool {
        self.more
            .as_ref()
            .is_some_and(|more| more.expected.is_some())
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), BatchError> {
        check_key(key)?;
        if self.changes().is_some() {
            return Err(BatchError::ChangeNotAlone);
        }
        self.check_room(key.len() + value.map_or(0, <[u8]>::len))?;
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ends.push((key_end, value.map(|_| self.bytes.len())));
        Ok(())
    }

    /// Whether there is room for one more key, and so many bytes.
    fn check_room(&self, bytes: usize) -> Result<(), BatchError> {
        if self.ends.len() + self.seen().len() >= BATCH_PAIRS_MAX {
            return Err(BatchError::TooManyPairs);
        }
        if self.bytes.len() + self.seen_bytes() + bytes > BATCH_BYTES_MAX {
            return Err(BatchError::TooManyBytes);
        }
        Ok(())
    }

    /// Whether a write of it with `options` has to know what its keys are bound to: then it tells whether they were.
    #[must_use]
    pub fn depends_on_values(&self, options: WriteOptions) -> bool {
        options.condition != Condition::Always
            || options.return_previous
            || self.changes().is_some()
            || self.guarded().is_some()
            || self.seen().len() > 0
            || self.ops().any(|op| match op {
                Op::Put { expiry, .. } => expiry == Expiry::Keep,
                Op::Delete { .. } => true,
                Op::DeleteRange { .. } => false,
            })
    }

    /// How many operations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether writing it does nothing at all: it has no operation, and was computed on nothing.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.is_empty() && self.seen().len() == 0
    }

    /// Bytes of all keys and values, of what is expected, and of the keys that were seen.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.expected().len() + self.seen_bytes()
    }

    fn seen_bytes(&self) -> usize {
        self.more.as_ref().map_or(0, |more| more.seen.bytes())
    }

    /// Forgets all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.more = None;
    }

    /// Keys and values of its puts, in the order in which they were added.
    pub fn puts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ops().filter_map(|op| match op {
            Op::Put { key, value, .. } => Some((key, value)),
            Op::Delete { .. } | Op::DeleteRange { .. } => None,
        })
    }

    /// The operations in the order in which they were added.
    pub fn ops(&self) -> impl ExactSizeIterator<Item = Op<'_>> + Clone {
        let mut start = 0;
        let mut expiries = self.expiries().iter().peekable();
        let mut ranges = self.ranges().iter().peekable();
        self.ends
            .iter()
            .enumerate()
            .map(move |(at, &(key_end, value_end))| {
                let expiry = expiries.next_if(|(of, _)| *of == at);
                let is_range = ranges.next_if(|of| **of == at).is_some();
                let key = &self.bytes[start..key_end];
                start = value_end.unwrap_or(key_end);
                match value_end {
                    Some(end) if is_range => Op::DeleteRange {
                        from: key,
                        to: Some(&self.bytes[key_end..end]).filter(|to| !to.is_empty()),
                    },
                    Some(end) => Op::Put {
                        key,
                        value: &self.bytes[key_end..end],
                        expiry: expiry.map_or(Expiry::Never, |(_, expiry)| *expiry),
                    },
                    None => Op::Delete { key },
                }
            })
    }
}

/// Whether `key` can be stored.
pub const fn check_key(key: &[u8]) -> Result<(), BatchError> {
    match key.len() {
        0 => Err(BatchError::KeyEmpty),
        1..=KEY_BYTES_MAX => Ok(()),
        long => Err(BatchError::KeyTooLong(long)),
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
