//! Makes log bytes durable: from the windows to the device, then a sync.
//!
//! ```text
//! range taken → copied and submitted → written → sync → durable here
//! ```
//!
//! Ranges become durable in the order in which they were taken. One sync is under way at a time and
//! covers every write that had ended when it began. A window keeps its bytes until its range is
//! durable on every member, so what is copied here does not change. What is copied of the large log
//! stays in memory while there is room.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{FlushRange, LogId};
use argosy_device::{Buffer, DeviceError, Store, Ticket};
use argosy_engine::EngineError;
use argosy_log::LogWindows;
use parking_lot::Mutex;

use crate::cache::NodeCache;
use crate::names::logs::{LARGE_LOG, LOGS};
use crate::version::Version;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct LogFlusher {
    /// Submitted, in order.
    writing: VecDeque<(FlushRange, Ticket)>,
    /// The sync under way, and the ranges that it covers.
    syncing: Option<(Ticket, Vec<FlushRange>)>,
    durable: Arc<DurableEnds>,
}

/// Up to where each log is durable here, for those who wait for that.
#[derive(Debug, Default)]
pub(super) struct DurableEnds(Mutex<[Option<DurableEnd>; LOGS.len()]>);

/// A byte of the log segment with this ordinal; all before it is durable, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DurableEnd {
    ordinal: u64,
    to: u32,
}

impl DurableEnds {
    fn note(&self, ranges: &[FlushRange]) {
        let mut ends = self.0.lock();
        for range in ranges {
            let (ordinal, to) = (range.ordinal, range.to);
            let end = &mut ends[range.log.index()];
            *end = (*end).max(Some(DurableEnd { ordinal, to }));
        }
    }

    /// Whether byte `to` of the segment with `ordinal` of `log`, and all before, is durable here.
    pub(super) fn covers(&self, log: LogId, ordinal: u64, to: u32) -> bool {
        let ends = self.0.lock();
        ends[log.index()] >= Some(DurableEnd { ordinal, to })
    }
}

impl LogFlusher {
    /// Begins to write `range` to its segment in `version`.
    ///
    /// # Panics
    /// When the window has left memory or the segment is not in the version: both stay until the
    /// range is durable.
    pub(super) fn submit(
        &mut self,
        range: FlushRange,
        windows: &LogWindows,
        version: &Version,
        cache: &Arc<NodeCache>,
    ) -> u64 {
        let entry = version
            .log_segment(range.segment)
            .expect("a log segment that is written belongs to the version");
        let len = (range.to - range.from) as usize;
        let mut bytes = Buffer::for_filling(len);
        let in_memory = windows.read(&entry.segment, range.from, &mut bytes[..len]);
        assert!(in_memory, "a window stays in memory until it is flushed");
        let bytes = Arc::new(bytes);
        if range.log == LARGE_LOG {
            let window = windows.geometry().window_bytes();
            let stored = &entry.stored;
            stored.keep_flushed(range.from, &bytes, window, cache);
        }
        let ticket = entry.stored.write(range.from, bytes, 0..len);
        self.writing.push_back((range, ticket));
        len as u64
    }

    /// Goes on without waiting. Returns the ranges that became durable, and whether anything moved.
    pub(super) fn step(&mut self, store: &Store) -> Result<(Vec<FlushRange>, bool), DeviceError> {
        let mut done = Vec::new();
        let mut moved = false;
        if let Some((sync, ranges)) = self.syncing.take() {
            match sync.poll() {
                None => self.syncing = Some((sync, ranges)),
                Some(result) => {
                    result?;
                    self.durable.note(&ranges);
                    done = ranges;
                    moved = true;
                }
            }
        }
        if self.syncing.is_none() {
            let mut written = Vec::new();
            while let Some((range, ticket)) = self.writing.front() {
                match ticket.poll() {
                    None => break,
                    Some(result) => result?,
                }
                written.push(*range);
                self.writing.pop_front();
            }
            if !written.is_empty() {
                self.syncing = Some((store.sync(), written));
                moved = true;
            }
        }
        Ok((done, moved))
    }

    /// Whether anything that was submitted is not durable yet.
    pub(super) fn is_busy(&self) -> bool {
        !self.writing.is_empty() || self.syncing.is_some()
    }

    /// Waits until everything that was submitted is durable.
    pub(super) fn wait(&mut self, store: &Store) -> Result<Vec<FlushRange>, EngineError> {
        let mut done = Vec::new();
        loop {
            let (ranges, _) = self.step(store)?;
            done.extend(ranges);
            let ticket = match (&self.syncing, self.writing.front()) {
                (Some((sync, _)), _) => sync.clone(),
                (None, Some((_, write))) => write.clone(),
                (None, None) => return Ok(done),
            };
            store.wait(&ticket)?;
        }
    }

    /// Up to where the logs are durable, now and later.
    pub(super) fn durable(&self) -> Arc<DurableEnds> {
        Arc::clone(&self.durable)
    }
}
