//! Who is at versions of long values: see [`Sweeper`](super::Sweeper).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use argosy_base::Instant;
use parking_lot::{Mutex, MutexGuard};

use super::{Part, is_reserved};
use crate::batch::{Guard, Op, WriteBatch};

/// Most versions that are known to be read, and as many that are known to be written, at some 50 bytes each.
/// Beyond it the one is forgotten that was used the longest time ago.
const KNOWN_MAX: usize = 1 << 12;
/// Most keys that are remembered to have had a long value, of at most 4 KiB each. Others are found by a pass.
const REPLACED_MAX: usize = 256;

/// Which versions somebody reads or writes, and of which keys long values have been replaced. Those who do tell it,
/// and the sweeper of the same region asks. What is told too late costs a reader another look, and a writer a
/// refusal; never a torn value.
#[derive(Debug, Default)]
pub struct Uses {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// When their last part was put; `None`: its writer tells when it ends.
    written: BTreeMap<u128, Option<Instant>>,
    /// When one of their parts was last asked for.
    read: BTreeMap<u128, Instant>,
    replaced: VecDeque<Vec<u8>>,
    /// Parts or elements were put since that was last asked.
    any: bool,
}

impl Uses {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Somebody writes `version`, until [`ended`](Self::ended) is told.
    pub fn begun(&self, version: u128) {
        let mut known = self.known();
        known.any = true;
        known.written.insert(version, None);
    }

    /// Nobody writes `version` of `key` any more: it has its head, or never will. Other versions of the key, or
    /// this one, may have no head now.
    pub fn ended(&self, key: &[u8], version: u128) {
        let mut known = self.known();
        known.written.remove(&version);
        if known.replaced.len() < REPLACED_MAX && !known.replaced.iter().any(|known| known == key) {
            known.replaced.push_back(key.to_vec());
        }
    }

    /// `batch` is about to be written: takes note of a part in it, or of elements.
    #[inline]
    pub fn writes(&self, batch: &WriteBatch, now: Instant) {
        if batch.len() > 1 && batch.ops().any(|op| is_reserved(op.key())) {
            self.known().any = true;
        } else if let Some(Op::Put { key, .. }) = batch.ops().next()
            && is_reserved(key)
            && let Some(part) = Part::parse(key)
        {
            let mut known = self.known();
            known.any = true;
            if known.written.len() >= KNOWN_MAX && !known.written.contains_key(&part.version) {
                forget_oldest(&mut known.written);
            }
            known.written.insert(part.version, Some(now));
        }
    }

    /// `batch` was written, or refused for good: takes note of a head in it.
    #[inline]
    pub fn wrote(&self, batch: &WriteBatch) {
        if let Some((first, Guard::Present)) = batch.guarded()
            && let Some(part) = Part::parse(first)
        {
            self.ended(part.key, part.version);
        }
    }

    /// `batch` was refused, and whoever wanted it written was told: takes note of a part in it, whose writer gives up.
    pub fn refused(&self, batch: &WriteBatch) {
        if let Some(Op::Put { key, .. }) = batch.ops().next()
            && let Some(part) = Part::parse(key)
        {
            self.ended(part.key, part.version);
        }
    }

    /// `key` is about to be read: takes note if it is a part's.
    #[inline]
    pub fn reads(&self, key: &[u8], now: Instant) {
        if is_reserved(key)
            && let Some(part) = Part::parse(key)
        {
            let mut known = self.known();
            if known.read.len() >= KNOWN_MAX && !known.read.contains_key(&part.version) {
                forget_oldest(&mut known.read);
            }
            known.read.insert(part.version, now);
        }
    }

    /// Whether parts or elements were put since this was last asked.
    pub(super) fn take_any(&self) -> bool {
        std::mem::take(&mut self.known().any)
    }

    /// A key of which other versions than the present one may be there.
    pub(super) fn take_replaced(&self) -> Option<Vec<u8>> {
        self.known().replaced.pop_front()
    }

    /// Until when its writer keeps `version`, with `grace` from one part to the next; `None`: it has none.
    /// `Some(None)`: until it tells.
    pub(super) fn writer_keeps(&self, version: u128, grace: Duration) -> Option<Option<Instant>> {
        let last = *self.known().written.get(&version)?;
        Some(last.map(|last| last + grace))
    }

    /// When one of its parts was last read.
    pub(super) fn last_read(&self, version: u128) -> Option<Instant> {
        self.known().read.get(&version).copied()
    }

    /// Forgets whoever has not come for so long.
    pub(super) fn forget(&self, now: Instant, writers: Duration, readers: Duration) {
        let mut known = self.known();
        known
            .written
            .retain(|_, last| last.is_none_or(|last| last + writers > now));
        known.read.retain(|_, last| *last + readers > now);
    }
}

/// Forgets the one that was used the longest time ago.
fn forget_oldest<T: Copy + Into<Option<Instant>>>(known: &mut BTreeMap<u128, T>) {
    let at = |&(version, used): &(&u128, &T)| (*used).into().map(|used| (used, *version));
    let oldest = known.iter().filter_map(|entry| at(&entry)).min();
    if let Some((_, version)) = oldest {
        known.remove(&version);
    }
}
