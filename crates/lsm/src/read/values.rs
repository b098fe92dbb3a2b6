//! Values that lie in a log: out of its windows, the cache, what stayed when a window was flushed, or the device.

use argosy_base::{Pointer, SegmentNumber};
use argosy_device::Buffer;
use argosy_engine::EngineError;
use argosy_log::{LogSource, ReadError, ValueRef, read_value, read_value_in};

use super::medium::MediumRef;
use super::{ReadView, Reading};
use crate::cache::{CacheKey, Lookup};
use crate::level::ReadAt;
use crate::names::{Lasting, LevelError, OwnedEntry};
use crate::segments::fetch::{Fetch, Fetched};
use crate::version::{LevelEntry, LogEntry, Version};

/// Looks at medium values that are in the cache, in the time of one at the device.
const FETCHED_LOOKS: u64 = 32;

impl Reading {
    /// What the cache knows the value at `at` by.
    pub(crate) const fn value_key(&self, at: Pointer) -> CacheKey {
        let region = self.region;
        CacheKey::Value { region, at }
    }

    /// The value of a log, which is not in the cache, and is from now on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn value(
        &self,
        wanted: &ValueRef<'_>,
        source: &impl LogSource<Error = LevelError>,
    ) -> Result<Vec<u8>, EngineError> {
        let value = read_value(wanted, &self.windows, source).map_err(log_error)?;
        let key = self.value_key(wanted.at);
        self.cache.keep_value(key, value.as_slice().into());
        Ok(value)
    }
}

impl ReadView {
    /// The value that `entry` binds `key` to; `None` for a tombstone.
    ///
    /// # Errors
    /// When the value lies in a log and cannot be read; [`EngineError::NotInMemory`] as `fetch` says.
    pub fn value(
        &self,
        key: &[u8],
        entry: OwnedEntry,
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        match entry {
            OwnedEntry::Inline(value) | OwnedEntry::Until(_, Lasting::Inline(value)) => {
                Ok(Some(value))
            }
            OwnedEntry::Tombstone => Ok(None),
            OwnedEntry::Pointer { at, value_len }
            | OwnedEntry::Until(_, Lasting::Pointer { at, value_len }) => {
                let wanted = ValueRef { at, value_len, key };
                Ok(Some(self.logged_value(&wanted, reading, fetch)?))
            }
        }
    }

    /// The value `wanted`, where it lies in the medium log.
    pub(crate) fn medium_value<'k>(
        &self,
        wanted: &ValueRef<'k>,
    ) -> Option<(&LevelEntry, MediumRef<'k>)> {
        let entry = self.version.medium_log().get(&wanted.at.segment())?;
        let medium = MediumRef {
            name: self.version.name_of(&entry.segment),
            segment_len: entry.segment.len,
            at: wanted.at.offset(),
            value_len: wanted.value_len,
            key: wanted.key,
        };
        Some((entry, medium))
    }

    /// The value that `wanted` says, if it was read or flushed and is in memory still. A miss is not counted.
    pub(crate) fn cached_value(&self, wanted: &ValueRef<'_>, reading: &Reading) -> Option<Vec<u8>> {
        match self.medium_value(wanted) {
            Some((_, medium)) => {
                let value = medium.cached(&reading.cache)?;
                reading.filters.count_followed(1);
                Some(value)
            }
            None => self.cached_large_value(wanted, reading),
        }
    }

    /// [`cached_value`](Self::cached_value) of the large log.
    pub(crate) fn cached_large_value(
        &self,
        wanted: &ValueRef<'_>,
        reading: &Reading,
    ) -> Option<Vec<u8>> {
        if let Some(value) = reading.cache.value(reading.value_key(wanted.at)) {
            return Some(value.to_vec());
        }
        let version = &*self.version;
        let entry = version.log_segment(wanted.at.segment())?;
        if !entry.stored.has_flushed(wanted.at.offset()) {
            return None;
        }
        let read = |entry: &LogEntry, offset, out: &mut [u8]| {
            match entry.stored.read_flushed(offset, out) {
                0 => Err(LevelError::NotInMemory),
                // No record goes on behind what is flushed.
                read => {
                    out[read..].fill(0);
                    Ok(())
                }
            }
        };
        let source = VersionLog { version, read };
        let value = read_value_in(entry, wanted, &reading.windows, &source).ok()?;
        reading.cache.count(Lookup::Value, true);
        Some(value)
    }

    /// The value that `wanted` says.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub(crate) fn logged_value(
        &self,
        wanted: &ValueRef<'_>,
        reading: &Reading,
        fetch: Fetch<'_>,
    ) -> Result<Vec<u8>, EngineError> {
        if let Some((entry, medium)) = self.medium_value(wanted) {
            if let Some(value) = medium.cached(&reading.cache) {
                reading.filters.count_followed(1);
                return Ok(value);
            }
            let source = Fetched {
                stored: &entry.stored,
                fetch,
            };
            let value = medium.fetch(&source, Some(&reading.cache))?;
            reading.filters.count_followed(FETCHED_LOOKS);
            return Ok(value);
        }
        if let Some(value) = self.cached_large_value(wanted, reading) {
            return Ok(value);
        }
        if fetch.may_read() {
            reading.cache.count(Lookup::Value, false);
        }
        let read = |entry: &LogEntry, offset, out: &mut [u8]| {
            if !fetch.may_read() {
                return Err(LevelError::NotInMemory);
            }
            let stored = &entry.stored;
            let source = Fetched { stored, fetch };
            read_unaligned(offset, out, |at, blocks| source.read_at(at, blocks))
        };
        let version = &self.version;
        reading.value(wanted, &VersionLog { version, read })
    }
}

/// The large log of a version, as the log code reads it. `read` has the bytes of its segments.
pub(crate) struct VersionLog<'a, R> {
    pub(crate) version: &'a Version,
    pub(crate) read: R,
}

impl<'v, E, R> LogSource for VersionLog<'v, R>
where
    R: Fn(&LogEntry, u32, &mut [u8]) -> Result<(), E>,
{
    type Error = E;
    type Segment = &'v LogEntry;

    fn segment(&self, number: SegmentNumber) -> Option<&'v LogEntry> {
        self.version.log_segment(number)
    }

    fn after(&self, LogEntry { segment, .. }: &LogEntry) -> Option<&'v LogEntry> {
        let chain = self.version.log(segment.log);
        chain.get(chain.partition_point(|other| other.ordinal <= segment.ordinal))
    }

    fn read(&self, entry: &LogEntry, offset: u32, out: &mut [u8]) -> Result<(), E> {
        (self.read)(entry, offset, out)
    }
}

/// Reads bytes of a log segment from the device.
pub(crate) fn read_log(entry: &LogEntry, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
    read_unaligned(offset, out, |at, blocks| entry.stored.read_at(at, blocks))
}

/// Reads bytes at any alignment by `read`, which fills whole blocks.
pub(crate) fn read_unaligned<E>(
    offset: u32,
    out: &mut [u8],
    read: impl FnOnce(u32, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let block = u32::try_from(argosy_base::BLOCK_SIZE).expect("a block is small");
    let skip = (offset % block) as usize;
    let mut blocks = Buffer::for_reading(skip + out.len());
    read(offset - offset % block, &mut blocks)?;
    out.copy_from_slice(&blocks[skip..skip + out.len()]);
    Ok(())
}

fn log_error(error: ReadError<LevelError>) -> EngineError {
    match error {
        ReadError::Source(error) => error.into(),
        ReadError::Corrupt {
            segment,
            offset,
            what,
        } => EngineError::Corrupt {
            segment,
            offset,
            what,
        },
    }
}
