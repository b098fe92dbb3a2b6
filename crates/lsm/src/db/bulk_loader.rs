//! Bulk load of any number of sorted pairs, on the caller's thread.
//!
//! 1. Pairs are handed in by rising keys, and become level segments as they come. Each bounded step takes the lock of
//!    the background, so flushes and merges run in between. A segment is *pending* until an edit names it: a crash
//!    forgets all of them (I3).
//! 2. [`BulkLoader::finish`] hands the segments over as a part, which the background loads
//!    ([`bulk_load`](super::bulk_load)).
//!
//! Values stay in the leaves, whatever the placement, until their keys are written again; so pairs have to
//! fit one ([`pair_bytes_max`]).

use std::collections::VecDeque;

use argosy_base::KeyRange;
use argosy_base::range::successor;
use argosy_device::Purpose;
use argosy_engine::batch::check_key;
pub use argosy_engine::bulk_load::{BulkLoadError, Ticket};
use argosy_engine::long::{check_users, is_any_head};
use argosy_engine::{BatchError, BusyReason, EngineError};

use super::Lsm;
use super::background::site;
use crate::compaction::below::Below;
use crate::compaction::build::{Build, Stepped, Tools};
use crate::merge::Source;
use crate::names::{Entry, LevelError};
use crate::settings::Settings;

/// Bytes that one step merges.
const STEP_BYTES: usize = 256 << 10;

/// What a pair costs beside its bytes; not below what a build counts.
const PAIR_OVERHEAD: usize = 16;

/// Most bytes of key and value of a bulk-loaded pair.
#[must_use]
pub fn pair_bytes_max(settings: &Settings) -> usize {
    (32 << 10).min(settings.layout.segment_bytes / 4)
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
        let bytes = pairs.iter().map(|(key, value)| cost(key, value)).sum();
        Self { pairs, bytes }
    }
}

fn cost(key: &[u8], value: &[u8]) -> usize {
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
        self.bytes -= gone.map_or(0, |(key, value)| cost(&key, &value));
        Ok(())
    }
}

/// Pairs on their way into the levels. Dropped before it is [finished](Self::finish), it leaves nothing.
pub struct BulkLoader<'a> {
    lsm: &'a Lsm,
    build: Build<Fed>,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
    pairs: u64,
}

impl<'a> BulkLoader<'a> {
    /// Begins. See [`Lsm::bulk_loader`].
    pub(super) fn begin(lsm: &'a Lsm) -> Result<Self, BulkLoadError> {
        lsm.check_open()?;
        if !lsm.serving.is_alone() {
            return Err(BulkLoadError::Replicated);
        }
        let target = site(&mut lsm.steps.background()?.storage, lsm).bulk_load_target();
        Ok(Self {
            lsm,
            build: Build::new(Fed::default(), target, Below::default()),
            first: None,
            last: Vec::new(),
            pairs: 0,
        })
    }

    /// Hands in the next pair.
    ///
    /// # Errors
    /// [`BulkLoadError`]. The load is over then.
    pub fn add(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), BulkLoadError> {
        check_key(&key)?;
        check_users(&key)?;
        if is_any_head(&value) {
            return Err(BatchError::ValueReserved.into());
        }
        if self.first.is_some() && key <= self.last {
            return Err(BulkLoadError::Unsorted(self.pairs));
        }
        let (bytes, max) = (key.len() + value.len(), pair_bytes_max(&self.lsm.settings));
        if bytes > max {
            let pair = self.pairs;
            return Err(BulkLoadError::TooLong { pair, bytes, max });
        }
        self.first.get_or_insert_with(|| key.clone());
        self.last.clone_from(&key);
        self.pairs += 1;
        let source = self.build.source_mut();
        source.bytes += cost(&key, &value);
        source.pairs.push_back((key, value));
        // Something is left behind a step, so that it does not take this for the end.
        while self.build.source_mut().bytes > 2 * STEP_BYTES + max {
            self.step()?;
        }
        Ok(())
    }

    /// Hands the pairs over to the background, which loads all of them or none. Blocks until their segments are
    /// written. [`Lsm::taken`] says how it ended.
    ///
    /// # Errors
    /// [`BulkLoadError`]: nothing will be bulk-loaded. [`BulkLoadError::Nothing`] where no pair was handed in.
    pub fn finish(mut self) -> Result<Ticket, BulkLoadError> {
        let first = self.first.take().ok_or(BulkLoadError::Nothing)?;
        while !self.build.is_done() {
            self.step()?;
        }
        let lsm = self.lsm;
        lsm.check_open()?;
        let range = KeyRange::new(first, Some(successor(&self.last)));
        let segments = self.build.take_outputs();
        let ticket = lsm
            .bulk_loads
            .take_built(segments, range, &lsm.reading.cache);
        lsm.wake();
        Ok(ticket)
    }

    /// Merges some of what was handed in, waiting for the device where it has to.
    fn step(&mut self) -> Result<(), BulkLoadError> {
        let lsm = self.lsm;
        lsm.check_open()?;
        let mut background = lsm.steps.background()?;
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

impl Drop for BulkLoader<'_> {
    fn drop(&mut self) {
        if let Ok(mut background) = self.lsm.steps.background() {
            self.build.abandon(&mut background.storage);
        }
    }
}
