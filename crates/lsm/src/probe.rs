//! What can be said of a key without the device: for threads that must not wait for it.
//!
//! The same places are asked in the same order as by [`read`](crate::read): memtables, then the levels
//! with their filters. Where one of them is not in memory the answer is *not known*, nothing has been
//! read, and nothing is counted as missed: whoever asks again in a way that may block counts that.
//! What is damaged is not known, either, and is told by whoever reads it.

use argosy_base::{Lsn, Pointer};

use crate::cache::CacheKey;
use crate::filter::KeyHash;
use crate::level::tree;
use crate::log::{ValueRef, read_value};
use crate::names::{Form, Lasting, NotInMemory, OwnedEntry};
use crate::read::{Located, ReadView, Reading, VersionLog, leaf_home};
use crate::version::LogEntry;

impl ReadView {
    /// The version of a key that was found at `lsn`, or where that is 0 in the levels.
    #[must_use]
    pub(crate) fn version_of(&self, lsn: Lsn, is_bound: bool) -> Lsn {
        match (lsn, is_bound) {
            (Lsn(0), true) => self.levels_lsn,
            // Something may have been there that a merge has removed since, as it was over.
            (Lsn(0), false) => self.levels_lsn.max(self.expired_lsn),
            _ => lsn,
        }
    }

    /// [`locate`](Self::locate), without the device.
    ///
    /// # Errors
    /// [`NotInMemory`].
    pub fn locate_in_memory(
        &self,
        key: &[u8],
        lsn: Lsn,
        reading: &Reading,
    ) -> Result<Located, NotInMemory> {
        if let Some((lsn, entry)) = self.in_memory(key, lsn) {
            return Ok(Located {
                entry: Some(entry.to_owned()),
                lsn,
            });
        }
        Ok(Located {
            entry: self.in_cached_levels(key, reading)?,
            lsn: Lsn(0),
        })
    }

    fn in_cached_levels(
        &self,
        key: &[u8],
        reading: &Reading,
    ) -> Result<Option<OwnedEntry>, NotInMemory> {
        let mut hash = None;
        let (mut spared, mut misled) = (0, 0);
        let mut found = None;
        for (_, run) in self.version.runs() {
            let Some(entry) = run.find(key) else {
                continue;
            };
            let hash = *hash.get_or_insert_with(|| KeyHash::of(key));
            let cached = CacheKey::reader(reading.region, entry.segment.number);
            let segment = entry.stored.reader_in_memory(cached, &reading.cache);
            let segment = segment.ok_or(NotInMemory)?;
            if !segment.may_contain(hash) {
                spared += 1;
                continue;
            }
            found = match entry.segment.form {
                Form::Leaves => {
                    let segments = run.tree.as_deref().ok_or(NotInMemory)?;
                    let home = leaf_home(entry, Some(segments), reading.region);
                    let home = home.map_err(|_| NotInMemory)?;
                    tree::get_in_memory(segments, &home, key, &reading.cache)?
                }
                _ => segment.get_in_memory(key, hash, &reading.cache)?,
            };
            if let Some(at) = found.as_mut().and_then(OwnedEntry::pointer_mut) {
                *at = self.version.resolve(*at).ok_or(NotInMemory)?;
            }
            if found.is_some() {
                break;
            }
            misled += 1;
        }
        reading.filters.count(spared, misled);
        Ok(found)
    }

    /// [`value`](Self::value), without the device.
    ///
    /// # Errors
    /// [`NotInMemory`].
    pub fn value_in_memory(
        &self,
        key: &[u8],
        entry: OwnedEntry,
        reading: &Reading,
    ) -> Result<Option<Vec<u8>>, NotInMemory> {
        match entry {
            OwnedEntry::Inline(value) | OwnedEntry::Until(_, Lasting::Inline(value)) => {
                Ok(Some(value))
            }
            OwnedEntry::Tombstone => Ok(None),
            OwnedEntry::Pointer { at, value_len }
            | OwnedEntry::Until(_, Lasting::Pointer { at, value_len }) => {
                let value = self.logged_value_in_memory(key, at, value_len, reading)?;
                Ok(Some(value))
            }
        }
    }

    fn logged_value_in_memory(
        &self,
        key: &[u8],
        at: Pointer,
        value_len: u32,
        reading: &Reading,
    ) -> Result<Vec<u8>, NotInMemory> {
        let wanted = ValueRef { at, value_len, key };
        if let Some(value) = self.cached_value(&wanted, reading) {
            return Ok(value);
        }
        if self.version.medium_log().contains_key(&at.segment()) {
            return Err(NotInMemory);
        }
        let source = VersionLog {
            version: &self.version,
            read: |_: &LogEntry, _, _: &mut [u8]| Err(NotInMemory),
        };
        let value = read_value(&wanted, &reading.windows, &source).map_err(|_| NotInMemory)?;
        let key = reading.value_key(at);
        reading.cache.keep_value(key, value.as_slice().into());
        Ok(value)
    }
}
