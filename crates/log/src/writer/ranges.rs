//! What is flushed in one go: the open range, and the closed ones until they are done.

use std::collections::VecDeque;

use argosy_base::{FlushRange, Lsn, SegmentNumber};

/// The ranges of one log that are not done, and how far it is flushed.
#[derive(Default)]
pub(super) struct Ranges {
    open: OpenRange,
    /// Closed ranges that are not done, in order; the first `taken` have been handed out.
    closed: VecDeque<ClosedRange>,
    taken: usize,
    flushed_locally: u64,
    flushed_everywhere: u64,
    /// What the last mark says that is durable on every member.
    marked: Lsn,
}

/// The range that is written to.
#[derive(Default)]
struct OpenRange {
    from: u64,
    /// The first LSN in it, or of the group that its first record belongs to.
    first_lsn: Option<Lsn>,
    /// What the mark in it says; 0 where there is none.
    mark: Lsn,
}

#[derive(Clone, Copy, Debug)]
struct ClosedRange {
    range: FlushRange,
    /// `None`: it is the padding behind a range that was closed before the window was full.
    first_lsn: Option<Lsn>,
    /// Where the log goes on: the range's end, or the next segment where this one was sealed.
    next: u64,
    /// What the mark in it says; 0 where there is none.
    mark: Lsn,
}

impl Ranges {
    /// The log begins at byte `start`.
    pub(super) const fn begin(&mut self, start: u64) {
        self.open.from = start;
        self.flushed_locally = start;
        self.flushed_everywhere = start;
    }

    /// Where the open range begins.
    pub(super) const fn open_from(&self) -> u64 {
        self.open.from
    }

    /// A record of `lsn`, or of the group that begins with it, goes to the open range.
    pub(super) fn hold(&mut self, lsn: Lsn) {
        self.open.first_lsn.get_or_insert(lsn);
    }

    /// A mark that says `lsn` goes to the open range.
    pub(super) const fn hold_mark(&mut self, lsn: Lsn) {
        self.open.mark = lsn;
    }

    /// Closes the open range, which is `range`, and opens the next one at byte `next`.
    pub(super) fn close(&mut self, range: FlushRange, next: u64) {
        let next_open = OpenRange {
            from: next,
            ..OpenRange::default()
        };
        let open = std::mem::replace(&mut self.open, next_open);
        self.closed.push_back(ClosedRange {
            range,
            first_lsn: open.first_lsn,
            next,
            mark: open.mark,
        });
    }

    /// The log goes on at byte `next` behind its last range.
    pub(super) fn go_on_at(&mut self, next: u64) {
        let closed_to = std::mem::replace(&mut self.open.from, next);
        if let Some(last) = self.closed.back_mut() {
            last.next = next;
        }
        for flushed in [&mut self.flushed_locally, &mut self.flushed_everywhere] {
            if *flushed == closed_to {
                *flushed = next;
            }
        }
    }

    /// Whether every closed range is handed out.
    pub(super) fn are_all_taken(&self) -> bool {
        self.taken == self.closed.len()
    }

    /// Hands out the next closed range.
    pub(super) fn take(&mut self) -> Option<FlushRange> {
        let range = self.closed.get(self.taken)?.range;
        self.taken += 1;
        Some(range)
    }

    /// Whether every closed range is done.
    pub(super) fn are_done(&self) -> bool {
        self.closed.is_empty()
    }

    /// See [`LogWriter::flushed_locally`](super::LogWriter::flushed_locally).
    pub(super) fn flush_locally(&mut self, segment: SegmentNumber, to: u32) {
        if let Some(next) = self.behind(segment, to) {
            self.flushed_locally = self.flushed_locally.max(next);
            self.forget_done();
        }
    }

    /// See [`LogWriter::flushed_everywhere`](super::LogWriter::flushed_everywhere).
    pub(super) fn flush_everywhere(&mut self, segment: SegmentNumber, to: u32) {
        if let Some(next) = self.behind(segment, to) {
            self.flushed_everywhere = self.flushed_everywhere.max(next);
            self.forget_done();
        }
    }

    /// Up to which byte of the log this device has it durable.
    pub(super) const fn flushed_locally(&self) -> u64 {
        self.flushed_locally
    }

    /// Up to which byte of the log every member has it durable.
    pub(super) fn done(&self) -> u64 {
        self.flushed_locally.min(self.flushed_everywhere)
    }

    /// See [`LogWriter::keeps_up`](super::LogWriter::keeps_up).
    pub(super) const fn keep_up(&self) -> bool {
        self.flushed_locally >= self.flushed_everywhere
    }

    /// See [`LogWriter::first_unflushed`](super::LogWriter::first_unflushed).
    pub(super) fn first_unflushed(&self) -> Option<Lsn> {
        let closed = self.closed.iter().find_map(|range| range.first_lsn);
        closed.or(self.open.first_lsn)
    }

    /// See [`LogWriter::marked`](super::LogWriter::marked).
    pub(super) const fn marked(&self) -> Lsn {
        self.marked
    }

    /// Where the log goes on behind what is flushed when `segment` is, up to `to`.
    fn behind(&self, segment: SegmentNumber, to: u32) -> Option<u64> {
        let handed_out = self.closed.iter().take(self.taken);
        let flushed = handed_out.filter(|r| r.range.segment == segment && r.range.to <= to);
        flushed.map(|range| range.next).max()
    }

    fn forget_done(&mut self) {
        let done = self.done();
        while let Some(range) = self.closed.pop_front_if(|range| range.next <= done) {
            self.marked = self.marked.max(range.mark);
            self.taken -= 1;
        }
    }
}
