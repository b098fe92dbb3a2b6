//! The memory of a memtable's entries. All of the memtable's `unsafe` is here.
//!
//! The arena is a table of chunks that are allocated one after the other, never moved and freed
//! together. An entry never crosses the end of its chunk and is named by its 32-bit [`Address`]:
//! its byte in the arena, in units of 4 bytes. Address 0 names nothing.
//!
//! ```text
//! entry, aligned to 4 bytes
//! 0              8           10        12
//! +--------------+-----------+---------+-----+-------+
//! | LSN * 4      | value_len | key_len | key | value |
//! |  + kind: u64 |       u16 |     u16 |     |       |
//! +--------------+-----------+---------+-----+-------+
//! ```
//!
//! Invariants, on which the `SAFETY` comments rely:
//! - **A1** An [`Address`] names an entry of the arena that it is used with, written whole before
//!   the address became known: only [`Arena::add`] makes one, after writing, and other threads get
//!   it through an [`AtomicAddress`], stored with `Release` and loaded with `Acquire`. Arena and
//!   addresses are private parts of one memtable.
//! - **A2** An entry never changes.
//! - **A3** Chunks live, at their place, as long as the arena.

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use argosy_base::Lsn;
use argosy_device::Pages;
use argosy_memory::prefetch_at;

use super::allocated;
use super::sync::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Bytes in front of an entry's key.
const HEADER: usize = 12;
/// Addresses count in units of this many bytes, to which entries are aligned.
const UNIT: usize = 4;
const CHUNK_BYTES_MIN: usize = 64 << 10;
const CHUNK_BYTES_MAX: usize = 2 << 20;
/// A full arena has about this many chunks, unless that would make them too small or too large.
const CHUNKS: usize = 16;

/// What an entry is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    /// Below 2^62.
    pub(super) lsn: Lsn,
    /// At most 64 KiB.
    pub(super) key: &'a [u8],
    /// What the value bytes mean, for the memtable: 0 to 3.
    pub(super) kind: u8,
    /// At most 64 KiB.
    pub(super) value: &'a [u8],
}

/// The name of an entry (A1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address(u32);

/// A place for an [`Address`] that other threads read.
#[derive(Debug, Default)]
pub(super) struct AtomicAddress(AtomicU32);

impl AtomicAddress {
    /// A place that holds none.
    pub(super) fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The address that is there. Acquires the entry.
    #[inline]
    pub(super) fn load(&self) -> Option<Address> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            address => Some(Address(address)),
        }
    }

    /// Publishes `address`. Releases the entry.
    #[inline]
    pub(super) fn store(&self, address: Option<Address>) {
        let address = address.map_or(0, |address| address.0);
        self.0.store(address, Ordering::Release);
    }
}

/// See the module documentation.
pub(super) struct Arena {
    /// Null where a chunk was not needed yet.
    chunks: Box<[AtomicPtr<u8>]>,
    /// The chunk size's power of two.
    chunk_shift: u32,
    /// Bytes handed out, in whole chunks but for the last: where the next entry would go.
    used: AtomicUsize,
}

impl Arena {
    /// An arena of at most `capacity` bytes, rounded up to whole chunks.
    pub(super) fn new(capacity: usize) -> Self {
        let chunk_bytes = Self::chunk_bytes_of(capacity);
        let count = capacity.div_ceil(chunk_bytes).max(1);
        assert!(
            u32::try_from(count * chunk_bytes / UNIT).is_ok(),
            "every entry has a 32-bit address"
        );
        Self {
            chunks: (0..count).map(|_| AtomicPtr::default()).collect(),
            chunk_shift: chunk_bytes.trailing_zeros(),
            // Nothing has address 0.
            used: AtomicUsize::new(UNIT),
        }
    }

    /// Bytes of the chunks of an arena of `capacity` bytes.
    pub(super) fn chunk_bytes_of(capacity: usize) -> usize {
        (capacity / CHUNKS)
            .next_power_of_two()
            .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
    }

    /// Bytes that an entry with `payload` bytes of key and value takes.
    #[inline]
    pub(super) const fn entry_bytes(payload: usize) -> usize {
        (HEADER + payload).next_multiple_of(UNIT)
    }

    /// Whether entries that take `bytes` together, and each at most `entry_max`, are certain to fit.
    pub(super) fn fits(&self, bytes: usize, entry_max: usize) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let chunk_bytes = self.chunk_bytes();
        let left = used.next_multiple_of(chunk_bytes) - used;
        if bytes <= left {
            return true;
        }
        // The end of each chunk may stay empty, for an entry that does not fit there.
        let whole = self.chunks.len() - used.div_ceil(chunk_bytes);
        bytes <= whole * chunk_bytes.saturating_sub(entry_max.min(bytes))
    }

    /// Most entries that the arena can have.
    pub(super) fn entries_max(&self) -> usize {
        self.chunks.len() * self.chunk_bytes() / Self::entry_bytes(1)
    }

    /// Bytes handed out, with what was left empty at the ends of chunks.
    pub(super) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes allocated.
    pub(super) fn memory_bytes(&self) -> usize {
        let used = self.used.load(Ordering::Relaxed);
        used.next_multiple_of(self.chunk_bytes())
    }

    /// Writes an entry. One thread at a time.
    ///
    /// # Panics
    /// When there is no room.
    pub(super) fn add(&self, parts: &Parts<'_>) -> Address {
        let bytes = Self::entry_bytes(parts.key.len() + parts.value.len());
        let chunk_bytes = self.chunk_bytes();
        assert!(bytes <= chunk_bytes, "an entry fits a chunk");
        let mut at = self.used.load(Ordering::Relaxed);
        if at % chunk_bytes + bytes > chunk_bytes {
            at = at.next_multiple_of(chunk_bytes);
        }
        let index = at >> self.chunk_shift;
        assert!(index < self.chunks.len(), "the memtable has room");
        let chunk = self.chunk(index);
        self.used.store(at + bytes, Ordering::Relaxed);
        // SAFETY: the entry lies in its chunk: `at % chunk_bytes + bytes <= chunk_bytes`.
        let start = unsafe { chunk.add(at & (chunk_bytes - 1)) };
        write_entry(start, parts);
        Address(u32::try_from(at / UNIT).expect("checked in `new`"))
    }

    /// The entry at `address`, which is of this arena (A1).
    #[inline]
    pub(super) fn entry(&self, address: Address) -> ArenaEntry<'_> {
        let at = address.0 as usize * UNIT;
        let chunk = self.chunks[at >> self.chunk_shift].load(Ordering::Relaxed);
        // SAFETY: the chunk was allocated before the entry was written into it (A1, A3).
        let start = unsafe { chunk.add(at & (self.chunk_bytes() - 1)) };
        // SAFETY: every entry has a header, written before its address was known (A1, A2).
        let header = unsafe { ptr::read_unaligned(start.cast::<[u8; HEADER]>()) };
        let [a, b, c, d, e, f, g, h, v0, v1, k0, k1] = header;
        let word = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let value_len = usize::from(u16::from_le_bytes([v0, v1]));
        let key_len = usize::from(u16::from_le_bytes([k0, k1]));
        // SAFETY: key and value follow the header in the entry.
        let start = unsafe { start.add(HEADER) };
        // SAFETY: written whole (A1), never changed (A2), alive with the arena (A3).
        let payload = unsafe { std::slice::from_raw_parts(start, key_len + value_len) };
        let (key, value) = payload.split_at(key_len);
        ArenaEntry { word, key, value }
    }

    /// Asks the processor to bring the entry at `address` near.
    #[inline]
    pub(super) fn prefetch(&self, address: Address) {
        let at = address.0 as usize * UNIT;
        let chunk = self.chunks[at >> self.chunk_shift].load(Ordering::Relaxed);
        prefetch_at(chunk.wrapping_add(at & (self.chunk_bytes() - 1)));
    }

    #[inline]
    const fn chunk_bytes(&self) -> usize {
        1 << self.chunk_shift
    }

    /// The start of chunk `index`, allocated if it was not yet.
    fn chunk(&self, index: usize) -> *mut u8 {
        let chunk = self.chunks[index].load(Ordering::Relaxed);
        if !chunk.is_null() {
            return chunk;
        }
        allocated::add(self.chunk_bytes());
        let pages = ManuallyDrop::new(Pages::new(self.chunk_bytes()));
        let chunk = pages.start().as_ptr();
        // Seen by whoever sees the address of an entry in it, by that address's release (A1).
        self.chunks[index].store(chunk, Ordering::Relaxed);
        chunk
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            if let Some(chunk) = NonNull::new(chunk.load(Ordering::Relaxed)) {
                // SAFETY: made in `chunk` with this very length, and nothing borrowed is left.
                drop(unsafe { Pages::from_raw(chunk, self.chunk_bytes()) });
                allocated::remove(self.chunk_bytes());
            }
        }
    }
}

/// An entry of an arena, borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArenaEntry<'a> {
    word: u64,
    /// The key.
    pub(super) key: &'a [u8],
    /// The value bytes.
    pub(super) value: &'a [u8],
}

impl ArenaEntry<'_> {
    /// The LSN.
    #[inline]
    pub(super) const fn lsn(&self) -> Lsn {
        Lsn(self.word >> 2)
    }

    /// What the value bytes mean.
    #[inline]
    pub(super) const fn kind(&self) -> u8 {
        (self.word & 3) as u8
    }
}

/// Writes an entry at `start`, where there is room for it and which nobody knows yet.
fn write_entry(start: *mut u8, parts: &Parts<'_>) {
    assert!(
        parts.lsn.0 < 1 << 62 && parts.kind < 4,
        "what the header can hold"
    );
    let mut header = [0; HEADER];
    let key_len = u16::try_from(parts.key.len()).expect("keys are at most 4 KiB");
    let value_len = u16::try_from(parts.value.len()).expect("values are at most 32 KiB");
    let word = parts.lsn.0 << 2 | u64::from(parts.kind);
    header[..8].copy_from_slice(&word.to_le_bytes());
    header[8..10].copy_from_slice(&value_len.to_le_bytes());
    header[10..].copy_from_slice(&key_len.to_le_bytes());
    let mut at = start;
    for piece in [&header[..], parts.key, parts.value] {
        // SAFETY: the pieces together are an entry, for which there is room, and borrowed bytes do
        // not overlap memory that nobody knows yet.
        unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), at, piece.len()) };
        // SAFETY: still in the entry, or just behind its last byte.
        at = unsafe { at.add(piece.len()) };
    }
}
