//! Sorted pairs straight into the levels: no log, no memtable, no merge on the way.
//!
//! 1. Pairs are handed in by rising keys, and become level segments as they come, on the thread of whoever
//!    hands them in. It takes the background's lock for one bounded step at a time, so flushes and merges go
//!    on in between. A segment is *pending* until an edit names it: a crash forgets all of them (I3).
//! 2. [`Ingest::finish`] commits them by one edit. What is under way of flushes and merges is given up for
//!    that, since it was planned without them.
//!    Where L1 has as many runs as it may, merges end first ([`Settings::l1_runs_max`]).
//! 3. Where no level has a key in the range from the first pair to the last, they go to the lowest level.
//!    Otherwise they become the newest run of L1, and are merged like any other.
//!
//! Order: memtables hide levels, so none may have a key of the range, or remove a range that overlaps it,
//! at the moment of the commit; if one does, it is flushed first. Garbage collection moves values through
//! memtables, too: it stands still during the commit, and looks again at what it has looked up. What others
//! write into the range while the edit becomes durable wins.
//!
//! Values stay in the leaves, whatever the placement, until their keys are written again; so pairs have to
//! fit one ([`pair_bytes_max`]).

use std::collections::VecDeque;

use argosy_base::range::successor;
use argosy_base::{KeyRange, Lsn};
use argosy_device::Purpose;
use argosy_engine::batch::check_key;
pub use argosy_engine::ingest::IngestError;
use argosy_engine::long::{check_users, is_head};
use argosy_engine::{BatchError, BusyReason, EngineError};

use super::Lsm;
use super::background::{Background, Effect};
use crate::compaction::below::Below;
use crate::compaction::build::{Build, Pointers, Shape, Stepped, Tools};
use crate::edit::{LEVELS_MAX, RunId};
use crate::memtable::Memtable;
use crate::merge::Source;
use crate::names::{Entry, LevelError};
use crate::read::sources::MemtableSource;
use crate::settings::Settings;
use crate::version::Version;
use crate::work::jobs::Jobs;
use crate::work::site::Site;
use crate::work::stats::Counts;

/// Bytes that one step merges.
const STEP_BYTES: usize = 256 << 10;

/// What a pair costs beside its bytes; not below what a build counts.
const PAIR_OVERHEAD: usize = 16;

/// Most bytes of key and value of an ingested pair.
#[must_use]
pub fn pair_bytes_max(settings: &Settings) -> usize {
    (32 << 10).min(settings.segment_bytes / 4)
}

/// Pairs that were handed in and not merged.
#[derive(Default)]
pub(super) struct Fed {
    pairs: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Bytes of them, not below what a build counts.
    bytes: usize,
}

impl Fed {
    /// These, and none behind them.
    pub(super) fn of(pairs: VecDeque<(Vec<u8>, Vec<u8>)>) -> Self {
        let bytes = pairs.iter().map(cost).sum();
        Self { pairs, bytes }
    }
}

fn cost((key, value): &(Vec<u8>, Vec<u8>)) -> usize {
    key.len() + value.len() + PAIR_OVERHEAD
}

impl Source for Fed {
    fn key(&self) -> Option<&[u8]> {
        self.pairs.front().map(|(key, _)| key.as_slice())
    }

    fn entry(&self) -> Entry<'_> {
        let (_, value) = self.pairs.front().expect("it is not at its end");
        Entry::Inline(value)
    }

    fn advance(&mut self) -> Result<(), LevelError> {
        let gone = self.pairs.pop_front();
        self.bytes -= gone.as_ref().map_or(0, cost);
        Ok(())
    }
}

/// Pairs on their way into the levels. Dropped before it is [finished](Self::finish), it leaves nothing.
pub struct Ingest<'a> {
    lsm: &'a Lsm,
    build: Build<Fed>,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
    pairs: u64,
    committed: bool,
}

impl<'a> Ingest<'a> {
    /// Begins. See [`Lsm::ingest`].
    pub(super) fn begin(lsm: &'a Lsm) -> Result<Self, IngestError> {
        lsm.check_open()?;
        if lsm.observer.is_some() {
            return Err(IngestError::Replicated);
        }
        let mut background = lsm.background()?;
        let site = Site {
            storage: &mut background.storage,
            settings: &lsm.settings,
            epoch: lsm.epoch,
            observer: None,
            cache: None,
            counts: &lsm.counts,
            time: lsm.committed_time(),
        };
        let target = site.target(LEVELS_MAX, Shape::SelfContained, Pointers::Numbers);
        drop(background);
        Ok(Self {
            lsm,
            build: Build::new(Fed::default(), target, Below::default()),
            first: None,
            last: Vec::new(),
            pairs: 0,
            committed: false,
        })
    }

    /// Hands in the next pair.
    ///
    /// # Errors
    /// [`IngestError`]. The ingest is over then.
    pub fn add(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), IngestError> {
        check_key(&key)?;
        check_users(&key)?;
        if is_head(&value) {
            return Err(BatchError::ValueReserved.into());
        }
        if self.first.is_some() && key <= self.last {
            return Err(IngestError::Unsorted(self.pairs));
        }
        let (bytes, max) = (key.len() + value.len(), pair_bytes_max(&self.lsm.settings));
        if bytes > max {
            let pair = self.pairs;
            return Err(IngestError::TooLong { pair, bytes, max });
        }
        self.first.get_or_insert_with(|| key.clone());
        self.last.clone_from(&key);
        self.pairs += 1;
        let pair = (key, value);
        let source = self.build.source_mut();
        source.bytes += cost(&pair);
        source.pairs.push_back(pair);
        // Something is left behind a step, so that it does not take this for the end.
        while self.build.source_mut().bytes > 2 * STEP_BYTES + max {
            self.step()?;
        }
        Ok(())
    }

    /// Commits the pairs that were handed in, and returns how many they are. Blocks until that is durable.
    /// `None`: a memtable holds keys of their range. Have it flushed ([`Lsm::version_with`]) and try again.
    ///
    /// # Errors
    /// [`IngestError`]: nothing was ingested, but where the device failed that is not known.
    pub fn finish(&mut self) -> Result<Option<u64>, IngestError> {
        let Some(first) = self.first.clone() else {
            return Ok(Some(0));
        };
        while !self.build.is_done() {
            self.step()?;
        }
        let lsm = self.lsm;
        lsm.check_open()?;
        let mut background = lsm.background()?;
        background.settle(lsm)?;
        background.make_room_in_l1(lsm)?;
        if background.jobs.is_ingesting() {
            return Ok(None);
        }
        let range = KeyRange::new(first, Some(successor(&self.last)));
        let newest = Lsn(u64::MAX);
        let in_range = |table: &std::sync::Arc<Memtable>| {
            let erasures = table.erasures();
            let erased = erasures.as_ref().map_or(&[][..], |erased| erased.union());
            erased.iter().any(|erased| erased.overlaps(&range))
                || MemtableSource::new(table, newest, &range).key().is_some()
        };
        if lsm.view.load_full().memtables.iter().any(in_range) {
            return Ok(None);
        }
        let Background { jobs, storage, .. } = &mut *background;
        jobs.levels_replaced(storage);
        let mut edit = storage.next_edit(lsm.epoch);
        jobs.last_edit = edit.seq;
        let (level, run) = place(storage.head(), &range, jobs);
        for segment in self.build.outputs() {
            Counts::add(&lsm.counts.segment_write_bytes, segment.len.into());
            edit.added.push((level, run, segment.clone()));
        }
        background.commit(lsm, edit, Effect::of_ingest())?;
        // From here on the edit may reach the device.
        self.committed = true;
        background.settle(lsm)?;
        drop(background);
        lsm.wake();
        Ok(Some(self.pairs))
    }

    /// Merges some of what was handed in, waiting for the device where it has to.
    fn step(&mut self) -> Result<(), IngestError> {
        let lsm = self.lsm;
        lsm.check_open()?;
        let mut background = lsm.background()?;
        let mut tools = Tools {
            storage: &mut background.storage,
            observer: None,
            cache: Some(&lsm.reading.cache),
            purpose: Purpose::Write,
            step_bytes: STEP_BYTES,
            forgets_expired: false,
        };
        match self.build.step(&mut tools)? {
            Stepped::Progress | Stepped::Done => {}
            Stepped::DeviceFull => {
                return Err(EngineError::Busy(BusyReason::DeviceFull).into());
            }
            Stepped::Waiting => {
                // For a write, or for numbers, which an edit has to reserve.
                if !self.build.wait_for_device()? {
                    background.step_upkeep(lsm)?;
                    background.settle(lsm)?;
                }
            }
        }
        drop(background);
        // The background may have found the lock taken, and sleep.
        lsm.wake();
        Ok(())
    }
}

impl Drop for Ingest<'_> {
    fn drop(&mut self) {
        if !self.committed
            && let Ok(mut background) = self.lsm.background()
        {
            self.build.abandon(&mut background.storage);
        }
    }
}

/// Where segments go that stand for keys of `range`.
pub(super) fn place(head: &Version, range: &KeyRange, jobs: &mut Jobs) -> (u8, RunId) {
    let mut runs = head.runs();
    if runs.any(|(_, run)| run.overlapping(range).len() > 0) {
        return (1, jobs.take_run());
    }
    (head.deepest().max(2), RunId(0))
}
