//! What an engine has told and the driver has not yet acted upon.
//!
//! The engine calls from under its own locks, so nothing here calls anything: it is written down,
//! and [`Outbox::take`] hands it to the driver, which acts in this order: bytes of the logs,
//! flushes, segments, edits. A segment is refused while [`SEGMENTS_MAX`] wait, which holds the
//! compaction that built it (I8). Where the backups build their own levels, none is kept.

use std::collections::VecDeque;

use argosy_base::{FlushRange, Lsn, PerLog};
use argosy_engine::{EditNotice, LogEnd, Observer, SealedSegment};
use parking_lot::{Mutex, MutexGuard};

/// Finished segments that wait to be shipped.
const SEGMENTS_MAX: usize = 2;

/// What has happened since it was last taken.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// How far each log is written, where it went on.
    pub(crate) ends: PerLog<LogEnd>,
    /// The highest LSN written, if any was.
    pub(crate) last: Option<Lsn>,
    /// Flushes begun, in order.
    pub(crate) flushes: Vec<FlushRange>,
    /// Edits committed, in order.
    pub(crate) edits: Vec<EditNotice>,
}

impl News {
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_none()
            && self.flushes.is_empty()
            && self.edits.is_empty()
            && self.ends.iter().next().is_none()
    }
}

#[derive(Debug, Default)]
struct State {
    news: News,
    segments: VecDeque<SealedSegment>,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Finished segments are to be shipped.
    ships: bool,
}

impl Outbox {
    /// An empty one; `ships` says whether the backups are sent finished segments.
    pub(crate) fn new(ships: bool) -> Self {
        Self {
            state: Mutex::default(),
            ships,
        }
    }

    /// What has happened since the last call.
    ///
    /// Edits are held back while a segment that was told before them waits to be shipped.
    pub(crate) fn take(&self) -> News {
        let mut state = self.lock();
        let mut news = std::mem::take(&mut state.news);
        if !state.segments.is_empty() {
            state.news.edits = std::mem::take(&mut news.edits);
        }
        news
    }

    /// Whether nothing waits: neither a segment nor news, such as edits that were held back behind the last segment.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.segments.is_empty() && state.news.is_empty()
    }

    /// The oldest segment that waits. It stays until [`shipped`](Self::shipped).
    pub(crate) fn segment(&self) -> Option<SealedSegment> {
        self.lock().segments.front().cloned()
    }

    /// The oldest segment need not wait any longer.
    pub(crate) fn shipped(&self) {
        self.lock().segments.pop_front();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Observer for Outbox {
    fn appended(&self, end: LogEnd, last: Lsn) {
        let mut state = self.lock();
        state.news.ends.insert(end.log, end);
        state.news.last = Some(last);
    }

    fn flush(&self, range: FlushRange) {
        self.lock().news.flushes.push(range);
    }

    fn segment_built(&self, segment: &SealedSegment) -> bool {
        if !self.ships {
            return true;
        }
        let mut state = self.lock();
        let room = state.segments.len() < SEGMENTS_MAX;
        if room {
            state.segments.push_back(segment.clone());
        }
        room
    }

    fn edit_committed(&self, edit: &EditNotice) {
        self.lock().news.edits.push(edit.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use argosy_base::{DeviceSegment, EditSeq, SegmentNumber};
    use argosy_device::Buffer;

    use super::*;

    #[test]
    fn an_edit_that_was_held_back_still_waits_when_the_last_segment_is_gone() {
        let outbox = Outbox::new(true);
        assert!(outbox.is_empty());
        assert!(outbox.segment_built(&SealedSegment {
            number: SegmentNumber(1),
            bytes: Arc::new(Buffer::from_slice(&[0; 4096])),
            checksum: 0,
            place: DeviceSegment(1),
        }));
        outbox.edit_committed(&EditNotice {
            seq: EditSeq(1),
            bytes: Arc::default(),
            log_places: Arc::default(),
        });
        assert!(outbox.take().is_empty(), "the segment goes first");
        outbox.shipped();
        assert!(!outbox.is_empty());
        assert_eq!(outbox.take().edits.len(), 1);
        assert!(outbox.is_empty());
    }
}
