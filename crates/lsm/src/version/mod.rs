//! A version: everything that a region consists of at one moment, and never changes.
//!
//! Readers, scans, snapshots and shipments hold a version, and with it every segment in it: a
//! version refers to its segments through counted handles ([`StoredSegment`]), and a segment's
//! space is free when the last version that names it is gone (invariant I1).
//!
//! [`Version::apply`] makes the next version out of an edit, and is the one place that knows what
//! an edit means. It checks everything that it does: an edit may have come from another server,
//! and what it names may not exist. It then works as follows:
//!
//! 1. numbers that only rise are raised;
//! 2. level segments are removed, trimmed, added; runs stay sorted and empty ones vanish. A tree goes
//!    with the last of its leaf segments, and its index segments with it;
//!    Segments of the medium log are added and removed beside them;
//! 3. pointers that came into the levels and left them are counted, by log segment ([`LogUse`]);
//! 4. log segments are sealed, added, removed, and log points noted; the last segment of a chain always stays;
//! 5. what was touched is checked: order, overlap, and that no level points into a log segment
//!    that is gone, unless it was *evacuated*: all that lived in it was written again, and is in the
//!    levels.
//!
//! A version does not know which level segments point into a log segment, only how many bytes their
//! pointers name: whoever drops a pointer says so in the edit. Parts of level segments that are cut off
//! unread stay, invisible, as [*uncounted*](Version::uncounted), until somebody has read and counted them.
//!
//! Where pointers inside level segments hold places
//! ([`AddressMode::Rewrite`]), a version also knows its segments by place, and
//! [`Version::resolve`] leads from a pointer to the segment that it means.
//!
//! Versions share what they have in common ([`shared`](crate::shared)): an edit costs work by what it names, however
//! much the version has. What would have to be gone through otherwise, such as the bytes of a run, is kept with it.
//!
//! [`Version::check`] states what holds of every version, by name; tests and debug builds check it
//! after every edit.

mod apply;
mod check;
mod counts;
mod medium;
mod memory;
mod numbers;
pub(crate) mod outgoing;
mod rising;
mod run;
mod trees;

use std::fmt;
use std::sync::Arc;

use argosy_base::{
    AddressMode, EditSeq, Epoch, KeyRange, LogId, Lsn, Moment, Pointer, RegionId, SegmentNumber,
};

use crate::addresses::Places;
use crate::duplicates::Duplicates;
use crate::edit::{
    Edit, LevelSegment, LogChanges, LogPoint, LogSegment, MEDIUM_LOG, Reference, RunId, UNCOUNTED,
};
use crate::names::SegmentName;
use crate::segments::StoredSegment;
use crate::shared::{Entry, List, Map};
use counts::LogUses;
use medium::MediumLog;
use numbers::{LogNumbers, Logs};
use rising::Rising;

pub use apply::EditError;
use apply::Stored;
pub use check::Violation;
pub use counts::LogUse;
pub(crate) use memory::VersionCharge;
pub use memory::held_bytes;
pub(crate) use run::BOUNDS_MAX;
pub use run::{Level, Run};
pub use trees::RunTree;

/// A level segment in a version.
#[derive(Clone, Debug)]
pub struct LevelEntry {
    /// What it is and which keys it stands for.
    pub segment: Arc<LevelSegment>,
    /// Its place on the device, pinned.
    pub stored: Arc<StoredSegment>,
}

/// Parts of one level segment that were cut off unread. Their pointers still count.
#[derive(Clone, Debug)]
pub struct Uncounted {
    /// One for each part, in the order in which they were cut off.
    pub parts: Vec<LevelEntry>,
    /// Other parts of the segment are still in a level.
    pub in_level: bool,
}

/// A log segment in a version.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// What it is.
    pub segment: LogSegment,
    /// Its place on the device, pinned.
    pub stored: Arc<StoredSegment>,
    /// The records in front of this byte are durable, as edits have stated.
    pub durable: u32,
}

impl AsRef<LogSegment> for LogEntry {
    fn as_ref(&self) -> &LogSegment {
        &self.segment
    }
}

impl Entry for LogEntry {
    type Key = LogSegment;
    type Aid = ();

    fn key(&self) -> &LogSegment {
        &self.segment
    }

    fn aid<'k>(_: impl Iterator<Item = &'k LogSegment> + Clone) {}
}

/// Everything that a region consists of. See the module documentation.
#[derive(Clone, Debug)]
pub struct Version {
    region: RegionId,
    rising: Rising,
    /// L1 first; the last one is not empty.
    levels: Vec<Arc<Level>>,
    /// By [`LogId::index`], each by ordinal.
    logs: Logs,
    /// Which of them has a number.
    log_numbers: LogNumbers,
    medium: MediumLog,
    pointers: LogUses,
    /// See [`Version::uncounted`].
    uncounted: Map<SegmentNumber, Uncounted>,
    /// Segments of the large log that are gone, and that levels point into still. See
    /// [`Version::is_evacuated`].
    evacuated: Map<SegmentNumber, ()>,
    /// Every segment of levels and logs.
    table: Map<SegmentNumber, Arc<StoredSegment>>,
    /// The same by place, where pointers hold places.
    places: Places,
    /// See [`Version::duplicates`].
    duplicates: Arc<Duplicates>,
}

impl Version {
    /// The name of `segment`, as this region knows it.
    #[must_use]
    pub fn name_of(&self, segment: &LevelSegment) -> SegmentName {
        SegmentName {
            region: self.region(),
            number: segment.number,
            epoch: segment.epoch,
        }
    }

    /// The version of a region that has nothing: edit 0. Pointers inside its level segments will
    /// hold what `addresses` says.
    #[must_use]
    pub fn empty(region: RegionId, addresses: AddressMode) -> Self {
        Self {
            region,
            rising: Rising::BEGINNING,
            levels: Vec::new(),
            logs: Logs::default(),
            log_numbers: LogNumbers::default(),
            medium: MediumLog::default(),
            pointers: LogUses::default(),
            uncounted: Map::default(),
            evacuated: Map::default(),
            table: Map::default(),
            places: Places::new(addresses),
            duplicates: Arc::default(),
        }
    }

    /// The version after `edit`. `new` holds what the edit adds; a segment that the version has
    /// already, or a checkpoint names again, is found in the version itself.
    ///
    /// # Errors
    /// [`EditError`], whenever the edit is not one that a version like this can have led to.
    pub fn apply(&self, edit: &Edit, new: &Stored) -> Result<Self, EditError> {
        let next = apply::after(self, edit, new)?;
        debug_assert_eq!(next.check(), Ok(()), "after {edit}");
        Ok(next)
    }

    /// Checks what holds of every version, by rules. For tests and debug builds: takes time by what it has.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        check::check(self)
    }

    /// The region.
    #[must_use]
    pub const fn region(&self) -> RegionId {
        self.region
    }

    /// The last edit that is in it.
    #[must_use]
    pub const fn seq(&self) -> EditSeq {
        self.rising.seq
    }

    /// The epoch of the last edit.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.rising.epoch
    }

    /// Replay of the logs starts here: every write below is in the levels.
    #[must_use]
    pub const fn replay_from(&self) -> Lsn {
        self.rising.replay_from
    }

    /// What edits tell of the region's time: it is not below this.
    #[must_use]
    pub const fn time(&self) -> Moment {
        self.rising.time
    }

    /// Which requests were applied below the start of replay.
    #[must_use]
    pub const fn duplicates(&self) -> &Arc<Duplicates> {
        &self.duplicates
    }

    /// The highest LSN that an edit declared durable.
    #[must_use]
    pub const fn durable(&self) -> Lsn {
        self.rising.durable
    }

    /// Segment numbers below this may be in use.
    #[must_use]
    pub const fn mark(&self) -> SegmentNumber {
        self.rising.mark
    }

    /// The group's edit that the version has: its last one, but on a backup that builds its own
    /// levels, which makes edits of its own beside.
    #[must_use]
    pub fn group_edit(&self) -> EditSeq {
        self.rising.follows.unwrap_or(self.rising.seq)
    }

    /// Whether the levels are this member's own, and other edits than the group's have led to it.
    #[must_use]
    pub const fn builds_levels(&self) -> bool {
        self.rising.follows.is_some()
    }

    /// The member's own segment numbers below this may be in use; 0 where it has none.
    #[must_use]
    pub(crate) const fn own_mark(&self) -> SegmentNumber {
        self.rising.own_mark
    }

    /// The levels that are there, L1 first. Level n is at n − 1.
    #[must_use]
    pub fn levels(&self) -> &[Arc<Level>] {
        &self.levels
    }

    /// Level `level`, 1 being the first; `None` where it and all below are empty.
    #[must_use]
    pub fn level(&self, level: u8) -> Option<&Level> {
        let index = usize::from(level).checked_sub(1)?;
        self.levels.get(index).map(Arc::as_ref)
    }

    /// The chain of `log`, oldest first.
    #[must_use]
    pub const fn log(&self, log: LogId) -> &List<LogEntry> {
        &self.logs[log.index()]
    }

    /// The first segment of `log` that is not sealed.
    #[must_use]
    pub fn tail(&self, log: LogId) -> Option<&LogEntry> {
        let chain = self.log(log);
        chain.get(chain.partition_point(|segment| segment.end.is_some()))
    }

    /// The segments of all logs that are not sealed.
    pub(crate) fn open_logs(&self) -> impl Iterator<Item = &LogEntry> {
        self.logs.iter().flat_map(|chain| {
            let sealed = chain.partition_point(|segment| segment.end.is_some());
            chain.range(sealed..chain.len())
        })
    }

    /// The log points of segments that are not sealed, as edits have stated them.
    pub fn log_points(&self) -> impl Iterator<Item = LogPoint> {
        let said = self.open_logs().filter(|entry| entry.durable > 0);
        said.map(|entry| LogPoint {
            log: entry.segment.log,
            number: entry.segment.number,
            to: entry.durable,
        })
    }

    /// The log segment `number`, if it belongs to the version.
    #[must_use]
    pub fn log_segment(&self, number: SegmentNumber) -> Option<&LogEntry> {
        self.log_numbers.find(&self.logs, number)
    }

    /// The medium log: all of its segments, by number.
    #[must_use]
    pub const fn medium_log(&self) -> &Map<SegmentNumber, LevelEntry> {
        self.medium.segments()
    }

    /// Segments of levels, index segments of trees among them, and of the medium log; and those of which
    /// only uncounted parts are left, once.
    pub fn finished(&self) -> impl Iterator<Item = &LevelEntry> {
        let levels = self.levels.iter().flat_map(|level| level.entries());
        let rest = self.uncounted.values().filter(|rest| !rest.in_level);
        let rest = rest.map(|rest| &rest.parts[0]);
        self.medium.segments().values().chain(levels).chain(rest)
    }

    /// Parts of level segments that range tombstones cut off, by segment: nobody read them, so the pointers
    /// in them still count. No reader sees them. They go by an edit that drops their pointers.
    #[must_use]
    pub const fn uncounted(&self) -> &Map<SegmentNumber, Uncounted> {
        &self.uncounted
    }

    /// The keys of level segment `number` whose pointers count: those for which it stands, and those of
    /// its uncounted parts.
    #[must_use]
    pub(crate) fn counted_ranges(&self, number: SegmentNumber) -> Vec<&KeyRange> {
        let levels = self.runs().flat_map(|(_, run)| run.entries_of(number));
        let parts = self.uncounted.get(&number).into_iter();
        let own = levels.chain(parts.flat_map(|rest| &rest.parts));
        own.map(|entry| &entry.segment.range).collect()
    }

    /// The pointers into large-log or medium segment `number`.
    #[must_use]
    pub(crate) fn log_use(&self, number: SegmentNumber) -> LogUse {
        self.pointers.uses.get(&number).copied().unwrap_or_default()
    }

    /// The pointers into logs, by segment of the large or the medium log, as far as there ever were any.
    #[must_use]
    pub(crate) const fn log_uses(&self) -> &Map<SegmentNumber, LogUse> {
        &self.pointers.uses
    }

    /// Bytes of keys and values in large-log or medium segment `number` to which pointers of levels lead.
    #[must_use]
    pub fn log_refs(&self, number: SegmentNumber) -> u64 {
        self.log_use(number).live()
    }

    /// Segments of the large log into which no level points, by number.
    pub(crate) fn unreferenced(&self) -> impl Iterator<Item = SegmentNumber> {
        self.pointers.unreferenced.keys().copied()
    }

    /// Bytes of records in the medium log that level segments point to.
    #[must_use]
    pub(crate) const fn medium_refs(&self) -> u64 {
        self.pointers.sums.medium
    }

    /// Bytes of the segments of the medium log.
    #[must_use]
    pub const fn medium_bytes(&self) -> u64 {
        self.medium.bytes()
    }

    /// Bytes of records in the large log that level segments point to, without those in segments that are gone.
    #[must_use]
    pub(crate) const fn large_refs(&self) -> u64 {
        self.pointers.sums.large
    }

    /// Whether segment `number` of the large log was evacuated: it is gone, and the pointers into it that
    /// levels have are shadowed by newer entries. No reader follows such a pointer; a merge drops it where it
    /// meets what shadows it.
    #[must_use]
    pub(crate) fn is_evacuated(&self, number: SegmentNumber) -> bool {
        self.evacuated.contains_key(&number)
    }

    /// Bytes of records in evacuated segments that level segments point to: all of them are shadowed.
    #[must_use]
    pub(crate) const fn evacuated_refs(&self) -> u64 {
        self.pointers.sums.evacuated
    }

    /// Where segment `number` lies on this member's device, if it belongs to the version.
    #[must_use]
    pub fn stored(&self, number: SegmentNumber) -> Option<&Arc<StoredSegment>> {
        self.table.get(&number)
    }

    /// Every segment of levels and logs, by number.
    #[must_use]
    pub const fn table(&self) -> &Map<SegmentNumber, Arc<StoredSegment>> {
        &self.table
    }

    /// What the pointers inside its level segments name.
    #[must_use]
    pub const fn addresses(&self) -> AddressMode {
        self.places.mode()
    }

    /// The pointer that `at`, as a level segment of this version holds it, is with the segment's
    /// number in it; `None` where the version has no segment in that place.
    #[inline]
    #[must_use]
    pub fn resolve(&self, at: Pointer) -> Option<Pointer> {
        self.places.resolve(at)
    }

    /// What pointers to segment `number` begin with in level segments of this version; `None` where
    /// they would hold its place, and it has none here.
    #[must_use]
    pub(crate) fn high_bits_of(&self, number: SegmentNumber) -> Option<SegmentNumber> {
        self.places.high_bits(number, self.stored(number))
    }

    /// The level segment `number`, if it belongs to the version, index segments of trees among them: its
    /// first entry, where it has several bounds; an uncounted part, where nothing else is left of it.
    #[must_use]
    pub(crate) fn level_segment(&self, number: SegmentNumber) -> Option<&LevelEntry> {
        let found = self.runs().find_map(|(_, run)| run.entry(number));
        let rest = || self.uncounted.get(&number).map(|rest| &rest.parts[0]);
        found.or_else(rest)
    }

    /// Segment `number` of the levels or of the medium log, if it belongs to the version.
    #[must_use]
    pub(crate) fn finished_segment(&self, number: SegmentNumber) -> Option<&LevelEntry> {
        let medium = self.medium.segments().get(&number);
        medium.or_else(|| self.level_segment(number))
    }

    /// The sorted runs from the newest to the oldest: L1's, then the levels below. A key's newest
    /// entry is in the first of them that has one.
    pub fn runs(&self) -> impl Iterator<Item = (u8, &Run)> {
        (1u8..).zip(&self.levels).flat_map(|(number, level)| {
            let newest_first = level.runs.iter().rev();
            newest_first.map(move |run| (number, run))
        })
    }

    /// The deepest level that holds anything; 0 where none does.
    #[must_use]
    pub fn deepest(&self) -> u8 {
        let levels = self.runs().map(|(level, _)| level);
        levels.max().unwrap_or_default()
    }

    /// What the levels hold, in one number: equal where the same segments, with the same bytes,
    /// stand for the same keys in the same places, and the same pointers are counted.
    #[must_use]
    pub fn levels_digest(&self) -> u64 {
        let Edit {
            added,
            trees,
            references,
            ..
        } = self.checkpoint();
        let levels = Edit {
            added,
            trees,
            references,
            ..Edit::default()
        };
        xxhash_rust::xxh3::xxh3_64(&levels.encode())
    }

    /// [`checkpoint`](Self::checkpoint) for another member, with the log points that edits have stated.
    #[must_use]
    pub(crate) fn checkpoint_for_others(&self) -> Edit {
        let mut edit = self.checkpoint();
        edit.logs.points = self.log_points().map(LogPoint::for_checkpoint).collect();
        edit
    }

    /// The edit that states this whole version, to begin a manifest or another member's copy.
    #[must_use]
    pub fn checkpoint(&self) -> Edit {
        let medium = self.medium.segments().values();
        let medium =
            medium.map(|entry| (MEDIUM_LOG, RunId(0), LevelSegment::clone(&entry.segment)));
        let mut added: Vec<_> = medium.collect();
        let mut trees = Vec::new();
        for (number, level) in (1u8..).zip(&self.levels) {
            for run in &level.runs {
                let segments = run.entries().map(|entry| &*entry.segment);
                added.extend(segments.map(|segment| (number, run.id, segment.clone())));
                trees.extend(run.tree.iter().map(|tree| (number, run.id, tree.tree)));
            }
        }
        let uncounted = self.uncounted.values().flat_map(|entry| &entry.parts);
        let uncounted = uncounted.map(|part| LevelSegment::clone(&part.segment));
        added.extend(uncounted.map(|segment| (UNCOUNTED, RunId(0), segment)));
        let reference = |(number, used): (&SegmentNumber, &LogUse)| Reference {
            number: *number,
            added: used.total,
            dropped: used.dropped,
        };
        Edit {
            seq: self.rising.seq,
            epoch: self.rising.epoch,
            checkpoint: true,
            numbers: self.rising.stated(),
            added,
            trees,
            evacuated: self.evacuated.keys().copied().collect(),
            references: self.pointers.uses.iter().map(reference).collect(),
            duplicates: (!self.duplicates.is_empty()).then(|| Arc::clone(&self.duplicates)),
            logs: LogChanges {
                added: self
                    .logs
                    .iter()
                    .flat_map(|log| log.iter().map(|entry| entry.segment))
                    .collect(),
                ..LogChanges::default()
            },
            ..Edit::default()
        }
    }
}

/// The version as its checkpoint shows it.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.checkpoint().to_string();
        f.write_str(&text.replacen("checkpoint", "version", 1))
    }
}

#[cfg(test)]
pub(crate) mod growth_tests;
#[cfg(test)]
pub(crate) mod tests;
