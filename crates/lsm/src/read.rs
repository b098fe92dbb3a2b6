//! How a key is found, and a range gone through.
//!
//! A [`ReadView`] is everything that readers need, and never changes: the memtables and a version.
//! Whoever changes either puts a new view in its place, and readers keep the one that they began
//! with, so reading takes no lock. A get asks, newest first, the memtables, the runs of L1, and the
//! one run of each level below; filters spare most of the reads. In a run that is a tree the way leads
//! through the tree's index nodes. A scan merges the same sources.
//!
//! What a reader sees is bounded by an LSN: memtables hide what is newer. Levels hold one entry per
//! key, so a bounded view is only right if nothing newer than the bound has left the memtables;
//! [`ReadView::levels_lsn`] tells.
//!
//! A value that lies in a log is read from the log's window while it is there, afterwards from what
//! stayed in memory when the window was flushed, or through the cache from the device; one of the
//! medium log always through the cache, which keeps it, or its page where others of that are read, too.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argosy_base::{AddressMode, KeyRange, Lsn, Moment, Pointer, RegionId, SegmentNumber};
use argosy_device::{BegunRead, Buffer, DeviceError};
use argosy_engine::{EngineError, Outline};

use crate::addresses::name_of;
use crate::cache::{CacheKey, NodeCache};
use crate::compaction::sources::{
    MemtableDownSource, MemtableSource, NO_TREE, RunReading, RunSource,
};
use crate::damage::Damages;
use crate::filter::KeyHash;
use crate::level::medium;
use crate::level::tree::{self, LeafHome};
use crate::level::{ReadAhead, ReadAt, SegmentReader};
use crate::log::{LogSource, LogWindows, ReadError, ValueRef, read_value, read_value_in};
use crate::memtable::{Erasures, Memtable};
use crate::merge::{Merge, Source};
use crate::names::{Entry, Form, Lasting, LevelError, NotInMemory, OwnedEntry, SegmentName};
use crate::scan::{RangeMerge, RangeScan, begun, warm};
use crate::segments::StoredSegment;
use crate::version::{LevelEntry, LogEntry, Run, RunTree, Version};

/// A stored segment as the level code reads it.
#[derive(Clone)]
pub struct SegmentSource(pub Arc<StoredSegment>);

impl ReadAt for StoredSegment {
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        Ok(self.read(offset, out)?)
    }

    fn begin_read(&self, offset: u32, bytes: Buffer) -> BegunRead {
        self.store().begin_read(self.place(), offset, bytes)
    }
}

impl ReadAt for SegmentSource {
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        Ok(self.0.read(offset, out)?)
    }

    fn begin_read(&self, offset: u32, bytes: Buffer) -> BegunRead {
        self.0.begin_read(offset, bytes)
    }
}

/// The open reader of a level segment: pinned with the segment or, where there is no room, from
/// `cache`.
///
/// # Errors
/// When index, filter or footer cannot be read.
pub fn reader<'a>(
    entry: &'a LevelEntry,
    region: RegionId,
    cache: &Arc<NodeCache>,
) -> Result<Cow<'a, Arc<SegmentReader>>, LevelError> {
    let key = CacheKey::reader(region, entry.segment.number);
    entry
        .stored
        .reader(key, cache, |stored| open_reader(entry, region, stored))
}

/// The reader of a segment that is gone through once, for a compaction: the pinned one, or one of
/// its own, which nobody keeps.
///
/// # Errors
/// As [`reader`].
pub fn passing_reader(
    entry: &LevelEntry,
    region: RegionId,
) -> Result<Arc<SegmentReader>, LevelError> {
    match entry.stored.pinned_reader() {
        Some(reader) => Ok(Arc::clone(reader)),
        None => open_reader(entry, region, &*entry.stored).map(Arc::new),
    }
}

pub(crate) fn open_reader(
    entry: &LevelEntry,
    region: RegionId,
    stored: &impl ReadAt,
) -> Result<SegmentReader, LevelError> {
    let segment = &entry.segment;
    let name = SegmentName {
        region,
        number: segment.number,
        epoch: segment.epoch,
    };
    let reader = SegmentReader::open(name, segment.len, stored)?;
    if reader.form() == segment.form {
        Ok(reader)
    } else {
        Err(name.corrupt(0, "the segment is not of the form that the manifest says"))
    }
}

/// The leaf segment `entry` of `tree`, as the level code reads it.
///
/// # Errors
/// Where there is no tree.
pub(crate) fn leaf_home(
    entry: &LevelEntry,
    tree: Option<&RunTree>,
    region: RegionId,
) -> Result<LeafHome<Arc<StoredSegment>>, LevelError> {
    let name = SegmentName {
        region,
        number: entry.segment.number,
        epoch: entry.segment.epoch,
    };
    let tree = tree.ok_or_else(|| name.corrupt(0, NO_TREE))?;
    Ok(LeafHome {
        name,
        high_bits: tree.high_bits_of(&entry.stored),
        len: entry.segment.len,
        bytes: Arc::clone(&entry.stored),
    })
}

/// What is shared by everything that reads one region.
pub struct Reading {
    /// The region.
    pub region: RegionId,
    /// Leaves and values.
    pub cache: Arc<NodeCache>,
    /// The large log's windows.
    pub windows: Arc<LogWindows>,
    /// What filters did.
    pub filters: FilterCounts,
    /// What was found damaged.
    pub damages: Arc<Damages>,
}

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
        source: &impl LogSource<Error = DeviceError>,
    ) -> Result<Vec<u8>, EngineError> {
        let value = read_value(wanted, &self.windows, source).map_err(log_error)?;
        let key = self.value_key(wanted.at);
        self.cache.keep_value(key, value.as_slice().into());
        Ok(value)
    }
}

/// What filters of level segments did for gets, and what scans did without. Relaxed: nothing is ordered
/// by the counters.
#[derive(Debug, Default)]
pub struct FilterCounts {
    /// Segments that were not read because their filter knew that they do not have the key.
    pub spared: AtomicU64,
    /// Segments that were read in vain.
    pub misled: AtomicU64,
    /// Runs in which scans began.
    pub entered: AtomicU64,
    /// Bytes of the leaves in which they began that had to come from the device.
    pub fetched_bytes: AtomicU64,
    /// Values that were looked for in the medium log.
    pub followed: AtomicU64,
}

impl FilterCounts {
    /// Counts what they did for one get.
    #[inline]
    pub(crate) fn count(&self, spared: u64, misled: u64) {
        for (counter, n) in [(&self.spared, spared), (&self.misled, misled)] {
            if n > 0 {
                counter.fetch_add(n, Ordering::Relaxed);
            }
        }
    }
}

/// A moment of the region. See the module documentation.
pub struct ReadView {
    /// Newest first; the first is the one that is written to.
    pub memtables: Vec<Arc<Memtable>>,
    /// The levels and logs.
    pub version: Arc<Version>,
    /// The highest LSN that has left the memtables.
    pub levels_lsn: Lsn,
    /// The LSN of a record that tells the time by which merges have removed pairs from the levels.
    pub expired_lsn: Lsn,
    /// How often pairs came into the levels that no memtable had.
    pub ingests: u64,
}

/// Where a key's newest binding was found.
pub struct Located {
    /// The binding; `None` where the key was never bound.
    pub entry: Option<OwnedEntry>,
    /// Its LSN, while it is in a memtable. What has gone to the levels is committed, and an answer
    /// that reveals it waits for nothing.
    pub lsn: Lsn,
}

impl Located {
    /// What it tells without the value.
    pub(crate) fn outline(&self) -> Outline {
        let entry = self.entry.as_ref().map(OwnedEntry::as_entry);
        Outline {
            len: entry.and_then(|entry| entry.value_len()),
            lsn: self.lsn,
            expiry: entry.and_then(|entry| entry.expiry()),
        }
    }
}

impl ReadView {
    /// What the levels bind is the same in all views in which this is the same.
    #[must_use]
    pub const fn levels(&self) -> (Lsn, u64) {
        (self.levels_lsn, self.ingests)
    }

    /// The newest binding of `key` in the memtables at or below `lsn`.
    #[inline]
    #[must_use]
    pub fn in_memory(&self, key: &[u8], lsn: Lsn) -> Option<(Lsn, Entry<'_>)> {
        self.memtables.iter().find_map(|table| table.get(key, lsn))
    }

    /// The newest binding of `key` in the levels.
    ///
    /// # Errors
    /// When a segment that may hold it cannot be read.
    pub fn in_levels(
        &self,
        key: &[u8],
        reading: &Reading,
    ) -> Result<Option<OwnedEntry>, EngineError> {
        let mut hash = None;
        let (mut spared, mut misled) = (0, 0);
        let mut found = None;
        for (_, run) in self.version.runs() {
            let Some(entry) = run.find(key) else {
                continue;
            };
            let hash = *hash.get_or_insert_with(|| KeyHash::of(key));
            let segment = reader(entry, reading.region, &reading.cache)?;
            if !segment.may_contain(hash) {
                spared += 1;
                continue;
            }
            found = match entry.segment.form {
                Form::Leaves => in_tree(run, entry, key, reading)?,
                _ => segment.get(key, hash, &*entry.stored, Some(&reading.cache))?,
            };
            if let Some(at) = found.as_mut().and_then(OwnedEntry::pointer_mut) {
                *at = self.version.resolve(*at).ok_or_else(|| {
                    let what = "a pointer leads to a place where the region has nothing";
                    segment.name().corrupt(0, what)
                })?;
            }
            if found.is_some() {
                break;
            }
            misled += 1;
        }
        reading.filters.count(spared, misled);
        Ok(found)
    }

    /// The newest binding of `key` at or below `lsn`.
    ///
    /// # Errors
    /// As [`in_levels`](Self::in_levels).
    pub fn locate(&self, key: &[u8], lsn: Lsn, reading: &Reading) -> Result<Located, EngineError> {
        if let Some((lsn, entry)) = self.in_memory(key, lsn) {
            return Ok(Located {
                entry: Some(entry.to_owned()),
                lsn,
            });
        }
        Ok(Located {
            entry: self.in_levels(key, reading)?,
            lsn: Lsn(0),
        })
    }

    /// The value that `entry` binds `key` to; `None` for a tombstone.
    ///
    /// # Errors
    /// When the value lies in a log and cannot be read.
    pub fn value(
        &self,
        key: &[u8],
        entry: OwnedEntry,
        reading: &Reading,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        match entry {
            OwnedEntry::Inline(value) | OwnedEntry::Until(_, Lasting::Inline(value)) => {
                Ok(Some(value))
            }
            OwnedEntry::Tombstone => Ok(None),
            OwnedEntry::Pointer { at, value_len }
            | OwnedEntry::Until(_, Lasting::Pointer { at, value_len }) => {
                Ok(Some(self.logged_value(key, at, value_len, reading)?))
            }
        }
    }

    /// The value that `wanted` says, if it was read or flushed and is in memory still. A miss is not counted.
    pub(crate) fn cached_value(&self, wanted: &ValueRef<'_>, reading: &Reading) -> Option<Vec<u8>> {
        let ValueRef { at, value_len, key } = *wanted;
        match self.version.medium_log().get(&at.segment()) {
            Some(entry) => {
                let of = (name_of(&self.version, &entry.segment), entry.segment.len);
                let place = (at.offset(), value_len);
                let value = medium::value_in_memory(of, place, key, &reading.cache)?;
                reading.filters.followed.fetch_add(1, Ordering::Relaxed);
                Some(value)
            }
            None => self.large_value_in_memory(wanted, reading),
        }
    }

    /// [`cached_value`](Self::cached_value) of the large log.
    pub(crate) fn large_value_in_memory(
        &self,
        wanted: &ValueRef<'_>,
        reading: &Reading,
    ) -> Option<Vec<u8>> {
        if let Some(value) = reading.cache.value_in_memory(reading.value_key(wanted.at)) {
            return Some(value.to_vec());
        }
        let version = &*self.version;
        let entry = version.log_segment(wanted.at.segment())?;
        if !entry.stored.has_flushed(wanted.at.offset()) {
            return None;
        }
        let read = |entry: &LogEntry, offset, out: &mut [u8]| {
            match entry.stored.read_flushed(offset, out) {
                0 => Err(NotInMemory),
                // No record goes on behind what is flushed.
                read => {
                    out[read..].fill(0);
                    Ok(())
                }
            }
        };
        let source = VersionLog { version, read };
        let value = read_value_in(entry, wanted, &reading.windows, &source).ok()?;
        reading.cache.count_value(true);
        Some(value)
    }

    pub(crate) fn logged_value(
        &self,
        key: &[u8],
        at: Pointer,
        value_len: u32,
        reading: &Reading,
    ) -> Result<Vec<u8>, EngineError> {
        if let Some(entry) = self.version.medium_log().get(&at.segment()) {
            let of = (name_of(&self.version, &entry.segment), entry.segment.len);
            let place = (at.offset(), value_len);
            reading.filters.followed.fetch_add(1, Ordering::Relaxed);
            let cache = Some(&*reading.cache);
            return Ok(medium::read_value(of, &*entry.stored, place, key, cache)?);
        }
        let wanted = ValueRef { at, value_len, key };
        if let Some(value) = self.large_value_in_memory(&wanted, reading) {
            return Ok(value);
        }
        reading.cache.count_value(false);
        let source = VersionLog {
            version: &self.version,
            read: read_log,
        };
        reading.value(&wanted, &source)
    }

    /// A scan of `range` as of `lsn`, in key order, or with the parameter
    /// [`DOWN`](crate::level::stand::DOWN) from the highest key down. Reads nothing before it is asked for a
    /// pair. Keeps the view for as long as it lives.
    #[must_use]
    pub fn scan<const DOWN: bool>(
        self: &Arc<Self>,
        range: &KeyRange,
        (lsn, time): (Lsn, &Arc<ScanTime>),
        reading: &Arc<Reading>,
    ) -> RangeScan<DOWN> {
        let of = (Arc::clone(self), Arc::clone(reading));
        RangeScan::new(range.clone(), of, (lsn, Arc::clone(time)))
    }

    /// All that has pairs of `range` as of `lsn`, merged, of which `expected` will be taken if that is known.
    ///
    /// # Errors
    /// When a segment at which it begins cannot be read.
    pub(crate) fn merge<const DOWN: bool>(
        &self,
        (range, expected): (&KeyRange, Option<usize>),
        lsn: Lsn,
        reading: &Arc<Reading>,
    ) -> Result<RangeMerge<DOWN>, EngineError> {
        let mut sources: Vec<Box<dyn Source + Send>> = Vec::new();
        let in_places = self.version.addresses() == AddressMode::Rewrite;
        let resolve = in_places.then(|| Arc::clone(&self.version));
        let runs = begun(&self.version, range);
        if !range.is_empty() {
            warm::<DOWN>(&runs, (range, expected), reading);
            let erased = Erasures::of(self.memtables.iter().map(Arc::as_ref), lsn);
            for table in &self.memtables {
                let erased = erased.clone();
                sources.push(if DOWN {
                    Box::new(MemtableDownSource::without(table, lsn, range, erased))
                } else {
                    Box::new(MemtableSource::without(table, lsn, range, erased))
                });
            }
            for run in &runs {
                let how = RunReading {
                    region: reading.region,
                    ahead: ReadAhead::SCAN,
                    cache: Some(Arc::clone(&reading.cache)),
                    resolve: resolve.clone(),
                    counts: false,
                };
                let run =
                    RunSource::<DOWN>::in_range(how, &self.version, run, (range, erased.as_ref()))?;
                sources.push(Box::new(run));
            }
        }
        let entered = &reading.filters.entered;
        entered.fetch_add(runs.len() as u64, Ordering::Relaxed);
        Ok(Merge::either_way(sources))
    }
}

/// What `key` is bound to in `entry`, a leaf segment of the tree of `run`.
fn in_tree(
    run: &Run,
    entry: &LevelEntry,
    key: &[u8],
    reading: &Reading,
) -> Result<Option<OwnedEntry>, LevelError> {
    let home = leaf_home(entry, run.tree.as_deref(), reading.region)?;
    let segments = run
        .tree
        .as_ref()
        .ok_or_else(|| home.name.corrupt(0, NO_TREE))?;
    tree::get(segments, &home, key, Some(&reading.cache))
}

/// Makes a moment that the clock has reached part of the history: the LSN of the record that tells it, if
/// there was room for one.
pub(crate) type TellTime = Box<dyn Fn(Moment) -> Option<Lsn> + Send + Sync>;

/// By which time a scan goes.
#[derive(Default)]
pub struct ScanTime {
    /// The region's: what has expired by it is not shown.
    pub now: Moment,
    /// What the clock shows, if it is further.
    pub wall: Moment,
    /// Something was met that has expired by the clock.
    pub overdue: AtomicBool,
    /// How the region's time goes on when that is met: then it is not shown. Without, it is.
    pub(crate) tell: Option<TellTime>,
    /// The highest LSN that told the time.
    pub(crate) told: AtomicU64,
}

impl ScanTime {
    /// What `entry` is by this time, without its expiry.
    #[inline]
    pub(crate) fn shown<'e>(&self, entry: Entry<'e>) -> Entry<'e> {
        match self.hides(&entry) {
            true => Entry::Tombstone,
            false => entry.lasting(),
        }
    }

    /// Whether `entry` is not there any more.
    #[inline]
    pub(crate) fn hides(&self, entry: &Entry<'_>) -> bool {
        entry.expiry().is_some_and(|expiry| self.is_past(expiry))
    }

    /// Whether what expires then is not there any more.
    pub(crate) fn is_past(&self, expiry: Moment) -> bool {
        if expiry <= self.now {
            return true;
        }
        if expiry > self.wall {
            return false;
        }
        self.overdue.store(true, Ordering::Relaxed);
        let told = self.tell.as_ref().and_then(|tell| tell(expiry));
        if let Some(lsn) = told {
            self.told.fetch_max(lsn.0, Ordering::AcqRel);
        }
        told.is_some()
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
pub(crate) fn read_log(entry: &LogEntry, offset: u32, out: &mut [u8]) -> Result<(), DeviceError> {
    read_unaligned(offset, out, |at, blocks| entry.stored.read(at, blocks))
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

fn log_error(error: ReadError<DeviceError>) -> EngineError {
    match error {
        ReadError::Source(error) => EngineError::Device(error),
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
