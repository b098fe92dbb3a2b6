//! The range tombstones of a memtable, beside its tree: ranges of keys that it deletes.
//!
//! ```text
//! tree      (key, LSN) -> entry            delete range [from, to) at LSN n
//! ranges    (LSN, range), LSNs rising        shadows every entry of its keys with a lower LSN: here, in
//!                                            older memtables, and in all levels
//! ```
//!
//! - A reader at LSN n does not see those of higher LSNs. To one that asks for a key, one that shadows
//!   what the key is bound to looks like a tombstone of the key with its LSN.
//! - There are few: a memtable that has [`RANGES_MAX`], or bounds of [`RANGE_BYTES_MAX`] bytes, takes no
//!   more and is frozen instead. So they are a list, which is replaced by a longer one for each range
//!   that comes. Most keys are in none of them; their union, made by the first reader that needs it, tells.
//! - Levels know nothing of them. The edit that makes a run of a memtable takes the keys of its ranges
//!   away from all runs that are there ([`cut`](crate::compaction::cut)).
//!
//! A memtable without any costs its readers one look at a counter.

use std::sync::{Arc, OnceLock};

use argosy_base::limits::BATCH_RANGES_MAX;
use argosy_base::{KeyRange, Lsn};

use super::sync::{ArcSwapOption, AtomicUsize, Ordering};

/// Most ranges that a memtable takes beside others.
pub(crate) const RANGES_MAX: usize = BATCH_RANGES_MAX;

/// Most bytes of their bounds.
pub(crate) const RANGE_BYTES_MAX: usize = 64 << 10;

/// A range of keys that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeTombstone {
    /// The keys.
    pub range: KeyRange,
    /// When.
    pub lsn: Lsn,
}

/// Some of them; at least one.
#[derive(Clone, Debug, Default)]
pub struct RangeTombstones {
    /// By rising LSN.
    list: Vec<Arc<RangeTombstone>>,
    union: OnceLock<Vec<KeyRange>>,
}

impl RangeTombstones {
    /// Those of `tables`, the newest table first, up to `lsn_max`; `None` where there are none.
    #[must_use]
    pub fn of<'a>(
        tables: impl DoubleEndedIterator<Item = &'a super::Memtable>,
        lsn_max: Lsn,
    ) -> Option<Arc<Self>> {
        let mut list = Vec::new();
        for table in tables.rev() {
            if let Some(own) = table.range_tombstones() {
                let seen = own.list.partition_point(|one| one.lsn <= lsn_max);
                list.extend_from_slice(&own.list[..seen]);
            }
        }
        let union = OnceLock::new();
        (!list.is_empty()).then(|| Arc::new(Self { list, union }))
    }

    /// Their keys: in order, without overlap, and no two of them touch.
    #[must_use]
    pub fn union(&self) -> &[KeyRange] {
        self.union
            .get_or_init(|| union(self.list.iter().map(|one| &one.range)))
    }

    /// The part of the union that has `key`.
    fn part(&self, key: &[u8]) -> Option<&KeyRange> {
        let union = self.union();
        let behind = union.partition_point(|range| range.from.as_slice() <= key);
        let part = &union[behind.checked_sub(1)?];
        part.contains(key).then_some(part)
    }

    /// The highest LSN up to `lsn_max` at which a range removed `key`, if that is above `above`.
    #[must_use]
    pub fn newest(&self, key: &[u8], above: Option<Lsn>, lsn_max: Lsn) -> Option<Lsn> {
        self.part(key)?;
        let seen = self.list.partition_point(|one| one.lsn <= lsn_max);
        let newest_first = self.list[..seen].iter().rev();
        let mut newer = newest_first.take_while(|one| Some(one.lsn) > above);
        newer.find(|one| one.range.contains(key)).map(|one| one.lsn)
    }

    /// What is left of `range` without them, in order.
    pub(crate) fn left_of(&self, range: &KeyRange) -> impl Iterator<Item = KeyRange> + use<> {
        left_of(range, self.union())
    }
}

/// The keys of `ranges`: in order, without overlap, and no two of them touch.
#[must_use]
pub(crate) fn union<'a>(ranges: impl Iterator<Item = &'a KeyRange>) -> Vec<KeyRange> {
    let mut sorted: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
    sorted.sort_unstable_by(|a, b| a.from.cmp(&b.from));
    let mut union: Vec<KeyRange> = Vec::new();
    for range in sorted {
        match union.last_mut() {
            Some(last) if last.to.as_ref().is_none_or(|to| *to >= range.from) => {
                let longer = match (&last.to, &range.to) {
                    (Some(to), Some(other)) => other > to,
                    (Some(_), None) => true,
                    (None, _) => false,
                };
                if longer {
                    last.to.clone_from(&range.to);
                }
            }
            _ => union.push(range.clone()),
        }
    }
    union
}

/// What is left of `range` without those of `union`, which are as [`union`] makes them; in order.
pub(crate) fn left_of(
    range: &KeyRange,
    union: &[KeyRange],
) -> impl Iterator<Item = KeyRange> + use<> {
    let ends_before = |part: &KeyRange| part.to.as_ref().is_some_and(|to| *to <= range.from);
    let first = union.partition_point(ends_before);
    let begins_inside = |part: &&KeyRange| range.to.as_ref().is_none_or(|to| part.from < *to);
    let mut left = Vec::new();
    let mut next = Some(range.from.clone());
    for part in union[first..].iter().take_while(begins_inside) {
        if let Some(from) = next.take() {
            left.push(KeyRange::new(from, Some(part.from.clone())));
        }
        next.clone_from(&part.to);
    }
    if let Some(from) = next {
        left.push(KeyRange::new(from, range.to.clone()));
    }
    left.into_iter().filter(|range| !range.is_empty())
}

/// The range tombstones of a memtable.
#[derive(Debug, Default)]
pub(super) struct RangeTombstoneList {
    /// How many. Stored (release) behind the list, so that whoever knows of one finds it.
    count: AtomicUsize,
    /// Bytes of their bounds.
    bytes: AtomicUsize,
    list: ArcSwapOption<RangeTombstones>,
}

/// Bytes of the bounds of `range`.
pub(crate) fn bound_bytes(range: &KeyRange) -> usize {
    range.from.len() + range.to.as_ref().map_or(0, Vec::len)
}

impl RangeTombstoneList {
    /// Whether there is none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Bytes of memory, roughly.
    pub(super) fn memory_bytes(&self) -> usize {
        let count = self.count.load(Ordering::Relaxed);
        // Once in the list and, at worst, once in the union.
        2 * (count * size_of::<RangeTombstone>() + self.bytes.load(Ordering::Relaxed))
    }

    /// Whether `count` more with `bytes` of bounds are taken. One that has none takes a whole batch.
    pub(super) fn takes(&self, count: usize, bytes: usize) -> bool {
        let before = self.count.load(Ordering::Relaxed);
        let long = self.bytes.load(Ordering::Relaxed) + bytes > RANGE_BYTES_MAX;
        count == 0 || before == 0 || before + count <= RANGES_MAX && !long
    }

    /// Adds one. By one thread at a time, with a higher LSN than those before.
    pub(super) fn add(&self, range: &KeyRange, lsn: Lsn) {
        let before = self.list.load_full();
        let mut list = before.map_or_else(Vec::new, |before| before.list.clone());
        let rises = list.last().is_none_or(|last| last.lsn < lsn);
        assert!(rises, "ranges are removed in the order of the history");
        list.push(Arc::new(RangeTombstone {
            range: range.clone(),
            lsn,
        }));
        let count = list.len();
        let union = OnceLock::new();
        self.list
            .store(Some(Arc::new(RangeTombstones { list, union })));
        self.bytes.fetch_add(bound_bytes(range), Ordering::Relaxed);
        self.count.store(count, Ordering::Release);
    }

    /// All of them.
    pub(super) fn all(&self) -> Option<Arc<RangeTombstones>> {
        match self.is_empty() {
            true => None,
            false => self.list.load_full(),
        }
    }

    /// [`RangeTombstones::newest`] of them.
    #[cold]
    pub(super) fn newest(&self, key: &[u8], above: Option<Lsn>, lsn_max: Lsn) -> Option<Lsn> {
        let list = self.list.load();
        list.as_ref()?.newest(key, above, lsn_max)
    }
}
