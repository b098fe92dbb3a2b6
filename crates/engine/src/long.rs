//! Values of over [`VALUE_BYTES_MAX`](argosy_base::limits::VALUE_BYTES_MAX): parts under keys that nobody
//! sees, and a head under the visible key.
//!
//! The keys of parts and the bytes of a head are in [`argosy_base::long`].
//!
//! Parts and heads are ordinary pairs of the same region. All parts but the last have the same length,
//! [`PART_BYTES`](argosy_base::limits::PART_BYTES) unless log windows are small.
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
//! A value that looks like a head is refused in a [`WriteBatch`]: it can be written as a long one.
//!
//! Elements of [composites](argosy_base::composite) whose version no head names are garbage, too, and the same sweeper
//! removes them. They have no writer that comes to a head later: a batch that has elements has the head.

mod sweep;
mod uses;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::batch::{BatchError, Expiry, Guard, WriteBatch};
use argosy_base::checksum::extend;

pub use argosy_base::composite::is_any_head;
pub use argosy_base::long::{
    Head, LONG_KEY_BYTES_MAX, Part, RESERVED, check_users, is_head, is_reserved, may_be_head,
    parts, routing_key, users,
};
pub use sweep::{SweepPace, SweepStats, Sweeper};
pub use uses::Uses;

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

/// Adds the part at place `index` of the value of `head` to `batch`.
///
/// # Errors
/// Where it is over the limits of a batch.
pub fn put_part(
    head: &Head,
    index: u32,
    bytes: &[u8],
    batch: &mut WriteBatch,
) -> Result<(), BatchError> {
    batch.put_any(&head.part(index).to_key(), bytes, Expiry::Never)
}

/// Adds `head` to `batch`, under the guard that its first part is there.
///
/// # Errors
/// Where it is over the limits of a batch.
pub fn put_head(head: &Head, expiry: Expiry, batch: &mut WriteBatch) -> Result<(), BatchError> {
    batch.put_any(&head.key, &head.to_value(), expiry)?;
    batch.guard(&head.part(0).to_key(), Guard::Present);
    Ok(())
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
        let head = Head::new(key, version, len, 0)?;
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
        let put = put_part(&self.head, self.next, bytes, batch);
        put.expect("a part is within the limits");
        self.next += 1;
    }

    /// Adds the head to a batch that is empty but for what it expects.
    ///
    /// # Panics
    /// Unless all parts were written.
    pub fn head(&self, expiry: Expiry, batch: &mut WriteBatch) {
        assert_eq!(self.next_bytes(), None, "the head comes last");
        let put = put_head(&self.head, expiry, batch);
        put.expect("a head is within the limits");
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
