//! Segments that somebody found damaged: readers, merges, a scrub.
//!
//! 1. Whoever meets a segment that cannot be read, or whose bytes are not those that were written, notes
//!    it in the region's [`Damages`]. Each segment is counted and reported once, until it is repaired.
//! 2. A segment that a merge met is *shut*: merges pass over the keys for which it stands ([`Shut`]),
//!    in all levels, so that what is older stays below what is newer. Everything else goes on. In
//!    L1 the runs above it are gathered into one from time to time, or they would be as many as
//!    memtables are flushed.
//! 3. After [`RETRY`] a merge tries once more: a device may recover. What is repaired or no longer
//!    part of the region is forgotten at once.
//!
//! A damaged segment keeps what its pointers lead to: nobody can count them, so nobody drops them.
//!
//! Bounded: [`DAMAGES_MAX`] segments. Beyond them damage that a merge meets ends the engine's writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{DeviceSegment, Instant, KeyRange, SegmentNumber};
use argosy_device::{DeviceError, OpKind, Waker};
use argosy_engine::EngineError;
pub use argosy_engine::damage::DamagedSegment;
pub use argosy_engine::stats::DamageStats;
use parking_lot::{Mutex, MutexGuard};

use crate::memtable::range_tombstones::{left_of, union};
use crate::version::{Run, Version};

/// Most damaged segments that are known at a time: about 64 KiB of memory.
pub const DAMAGES_MAX: usize = 256;

/// After so long a merge tries to read a damaged segment again.
pub const RETRY: Duration = Duration::from_secs(600);

/// What is known of a damaged segment.
struct Known {
    damaged: DamagedSegment,
    /// Until when merges pass over it; `None`: none has met it, or one may try again.
    shut_until: Option<Instant>,
    /// [`Damages::take_new`] has returned it.
    reported: bool,
    /// See [`Damages::note_only_here`].
    only_here: bool,
}

#[derive(Default)]
struct State {
    known: BTreeMap<SegmentNumber, Known>,
    now: Instant,
}

/// The damaged segments of a region, as far as somebody has met them. See the module documentation.
#[derive(Default)]
pub struct Damages {
    state: Mutex<State>,
    /// How many are known, to be asked without the lock.
    count: AtomicUsize,
    found: AtomicU64,
    merges_passed: AtomicU64,
    /// Runs of L1 all of whose keys are shut.
    l1_shut: AtomicUsize,
    /// A segment was repaired since the last step.
    any_repaired: AtomicBool,
    /// Wakes the background of the region for what becomes known.
    waker: Mutex<Option<Waker>>,
}

impl Damages {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whom to wake from now on when something becomes known.
    pub(crate) fn set_waker(&self, waker: Waker) {
        *self.waker.lock() = Some(waker);
    }

    fn wake(&self) {
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker();
        }
    }

    /// Whether nothing is known to be damaged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The segments that are known to be damaged.
    #[must_use]
    pub fn list(&self) -> Vec<DamagedSegment> {
        let state = self.state();
        state
            .known
            .values()
            .map(|known| known.damaged.clone())
            .collect()
    }

    /// Those that were found since this was asked last, each once.
    #[must_use]
    pub fn take_new(&self) -> Vec<DamagedSegment> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut state = self.state();
        let new = state.known.values_mut().filter(|known| !known.reported);
        new.map(|known| {
            known.reported = true;
            known.damaged.clone()
        })
        .collect()
    }

    /// How often damage was met.
    #[must_use]
    pub fn stats(&self) -> DamageStats {
        DamageStats {
            damaged: self.count.load(Ordering::Relaxed) as u64,
            found: self.found.load(Ordering::Relaxed),
            merges_passed: self.merges_passed.load(Ordering::Relaxed),
        }
    }

    /// Takes note of what `error` says of a segment of `version`, if it speaks of one: that one's number.
    pub fn note(&self, version: &Version, error: &EngineError) -> Option<SegmentNumber> {
        let number = match error {
            EngineError::Corrupt { segment, .. } => *segment,
            EngineError::Device(DeviceError::Corrupt { segment, .. }) => at(version, *segment)?,
            EngineError::Device(DeviceError::Io {
                op: OpKind::Read,
                at: byte,
                ..
            }) => at(version, segment_of(*byte)?)?,
            _ => return None,
        };
        self.note_segment(version, number, &error.to_string())
            .then_some(number)
    }

    /// Takes note that segment `number` of `version` is damaged. Returns whether it is known now.
    pub fn note_segment(&self, version: &Version, number: SegmentNumber, what: &str) -> bool {
        let Some(stored) = version.stored(number) else {
            return false;
        };
        let mut state = self.state();
        if state.known.contains_key(&number) {
            return true;
        }
        if state.known.len() >= DAMAGES_MAX {
            return false;
        }
        let damaged = DamagedSegment {
            number,
            place: stored.place(),
            what: what.to_owned(),
        };
        let known = Known {
            damaged,
            shut_until: None,
            reported: false,
            only_here: false,
        };
        state.known.insert(number, known);
        self.found.fetch_add(1, Ordering::Relaxed);
        self.count.store(state.known.len(), Ordering::Release);
        drop(state);
        self.wake();
        true
    }

    /// Takes note of damage to `version` that a `read` met.
    pub(crate) fn noting<T>(
        &self,
        version: &Version,
        read: Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        read.inspect_err(|error| {
            self.note(version, error);
        })
    }

    /// A merge met segment `number`: the next ones pass over it.
    pub(crate) fn shut(&self, number: SegmentNumber) {
        self.merges_passed.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        let until = state.now + RETRY;
        if let Some(known) = state.known.get_mut(&number) {
            known.shut_until = Some(until);
        }
    }

    /// No other member has segment `number`, or has it any more: nobody can repair it.
    pub fn note_only_here(&self, number: SegmentNumber) {
        if let Some(known) = self.state().known.get_mut(&number) {
            known.only_here = true;
        }
    }

    /// Whether it is known that no other member has segment `number`, which is damaged.
    #[must_use]
    pub fn is_only_here(&self, number: SegmentNumber) -> bool {
        let state = self.state();
        let known = state.known.get(&number);
        number.is_own() || known.is_some_and(|known| known.only_here)
    }

    /// Segment `number` is whole again.
    pub fn repaired(&self, number: SegmentNumber) {
        let mut state = self.state();
        if state.known.remove(&number).is_some() {
            self.any_repaired.store(true, Ordering::Release);
        }
        self.count.store(state.known.len(), Ordering::Release);
        drop(state);
        self.wake();
    }

    /// Time passes. Returns whether merges may try again what they passed over.
    pub(crate) fn step(&self, version: &Version, now: Instant) -> bool {
        let mut again = self.any_repaired.load(Ordering::Acquire);
        if again {
            self.any_repaired.store(false, Ordering::Release);
        }
        if self.is_empty() {
            return again;
        }
        let mut state = self.state();
        state.now = now;
        let before = state.known.len();
        state
            .known
            .retain(|number, _| version.stored(*number).is_some());
        self.count.store(state.known.len(), Ordering::Release);
        again |= state.known.len() < before;
        for known in state.known.values_mut() {
            let due = known.shut_until.take_if(|until| *until <= now);
            again |= due.is_some();
        }
        again
    }

    /// What merges of `version` pass over.
    pub(crate) fn shut_in(&self, version: &Version) -> Shut {
        if self.is_empty() {
            self.l1_shut.store(0, Ordering::Relaxed);
            return Shut::default();
        }
        let state = self.state();
        let shut = state
            .known
            .iter()
            .filter(|(_, known)| known.shut_until.is_some());
        let shut = Shut::new(version, shut.map(|(number, _)| *number).collect());
        self.l1_shut.store(shut.l1_runs(version), Ordering::Relaxed);
        shut
    }

    /// Runs of L1 that count: those that merges can take down.
    pub(crate) fn l1_runs(&self, version: &Version) -> usize {
        let runs = version.level(1).map_or(0, |level| level.runs.len());
        runs.saturating_sub(self.l1_shut.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Damages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

/// The device segment that byte `byte` of the device is in.
fn segment_of(byte: u64) -> Option<DeviceSegment> {
    u32::try_from(byte / SEGMENT_SIZE as u64)
        .ok()
        .map(DeviceSegment)
}

/// The segment of `version` that lies at `place`.
fn at(version: &Version, place: DeviceSegment) -> Option<SegmentNumber> {
    let mut table = version.table().iter();
    let found = table.find(|(_, stored)| stored.place() == place);
    found.map(|(number, _)| *number)
}

/// What merges pass over: segments, and the keys for which those of levels stand.
#[derive(Clone, Debug, Default)]
pub struct Shut {
    segments: BTreeSet<SegmentNumber>,
    /// In order, apart from each other.
    ranges: Vec<KeyRange>,
    /// Some of them are of the medium log.
    medium: bool,
}

impl Shut {
    /// What merges of `version` pass over where `segments` are not to be read.
    #[must_use]
    pub fn new(version: &Version, segments: BTreeSet<SegmentNumber>) -> Self {
        if segments.is_empty() {
            return Self::default();
        }
        let shut = |run| shut_ranges(run, &segments);
        let ranges = union(version.runs().flat_map(|(_, run)| shut(run)));
        let medium = version.medium_log();
        Self {
            medium: segments.iter().any(|number| medium.contains_key(number)),
            segments,
            ranges,
        }
    }

    /// Whether merges pass over nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The keys that merges pass over, in order.
    #[must_use]
    pub fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }

    /// Whether some of what is not to be read is of the medium log.
    #[must_use]
    pub const fn has_medium(&self) -> bool {
        self.medium
    }

    /// Whether all of `run`'s keys are shut because of it or of something below.
    fn covers(&self, run: &Run) -> bool {
        let mut entries = run.segments.iter();
        entries.all(|entry| self.open_parts(&entry.segment.range).is_empty())
    }

    /// Whether a segment of `run` is shut that has keys of `range`.
    #[must_use]
    pub fn damages(&self, run: &Run, range: &KeyRange) -> bool {
        shut_ranges(run, &self.segments).any(|shut| shut.overlaps(range))
    }

    fn l1_runs(&self, version: &Version) -> usize {
        let runs = version.level(1).map_or(&[][..], |level| &level.runs);
        runs.iter().filter(|run| self.covers(run)).count()
    }

    /// What is left of `range`: the parts of it that are open, in order.
    #[must_use]
    pub fn open_parts(&self, range: &KeyRange) -> Vec<KeyRange> {
        left_of(range, &self.ranges).collect()
    }

    /// The open part of `range` that has `key`, which is open.
    #[must_use]
    pub fn open_around(&self, range: &KeyRange, key: &[u8]) -> KeyRange {
        let mut parts = self.open_parts(range).into_iter();
        let found = parts.find(|part| part.contains(key));
        found.unwrap_or_else(|| range.clone())
    }
}

/// The keys for which segments of `run` stand that are among `segments`; all of it where its index is.
fn shut_ranges<'v>(
    run: &'v Run,
    segments: &BTreeSet<SegmentNumber>,
) -> impl Iterator<Item = &'v KeyRange> {
    let index = run
        .index()
        .iter()
        .any(|entry| segments.contains(&entry.segment.number));
    let entries = run.segments.iter();
    let shut = entries.filter(move |entry| {
        let in_tree = index && entry.segment.form == crate::names::Form::Leaves;
        in_tree || segments.contains(&entry.segment.number)
    });
    shut.map(|entry| &entry.segment.range)
}

#[cfg(test)]
#[path = "damage_tests.rs"]
mod tests;
