//! A history that is gathered while it is written: from ranges of all logs, each of which comes
//! when it is flushed.
//!
//! ```text
//! first log      1 2 . . 5 6 7 . . 10 |  flushed every time a window is full, or after a while
//! second log     . . 3 4 . . . 8 9 .  |  the same, at other times
//! ```
//!
//! LSNs have no gap over all logs together, but a range of one log has. A record whose LSN comes
//! next goes to its group at once; one that is ahead is put aside until the other logs have caught up.
//! Of a value in another log than the first the bytes are not kept, only where they are. Groups are handed out when
//! they are complete.
//!
//! Invariants: what is handed out is in LSN order without a gap; [`Feed::last`] is the last LSN of
//! a group that was handed out; a record at or below it is passed over, so that a range may be fed
//! twice.

use std::collections::VecDeque;

use argosy_base::{Kind, LogId, Lsn, Pointer, RegionId, RequestName};

use super::gather::{Group, has_values};
use super::record::{Decoded, Record, RecordKind, decode};
use super::recover::Replayed;
use super::segment::{BLOCK_BYTES, Geometry, SEGMENT_HEADER_BYTES, identity};
use crate::chain::LogSegment;

/// Bytes of keys, values and descriptions that are put aside, at which no more is fed of the log
/// that is ahead.
pub const ASIDE_BYTES_MAX: usize = 4 << 20;

/// What was flushed is not a part of this log. Start over with the member that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {what}")]
pub struct FeedError {
    /// Where in the segment.
    pub offset: u32,
    /// What is wrong.
    pub what: &'static str,
}

/// A range of a log segment within one window: it begins and ends at a record, or at a block.
#[derive(Clone, Copy, Debug)]
pub struct Fed<'a> {
    /// The segment.
    pub segment: &'a LogSegment,
    /// Where `bytes` begin in it.
    pub from: u32,
    /// A private copy.
    pub bytes: &'a [u8],
}

/// A record that is ahead of the history.
struct Aside {
    kind: RecordKind,
    lsn: Lsn,
    more: bool,
    chunk: bool,
    expiry: Option<u64>,
    request: Option<RequestName>,
    at: Pointer,
    key: Box<[u8]>,
    /// Empty unless the log is the first.
    value: Box<[u8]>,
    value_len: usize,
}

/// The records of one log that are ahead, in LSN order.
type Ahead = VecDeque<Aside>;

/// See the module documentation.
pub struct Feed<const N: usize> {
    region: RegionId,
    geometry: Geometry,
    next: Lsn,
    last: Lsn,
    group: Group,
    ahead: [Ahead; N],
    aside_bytes: usize,
}

impl<const N: usize> Feed<N> {
    /// A history that goes on behind `last`.
    #[must_use]
    pub fn new(region: RegionId, geometry: Geometry, last: Lsn) -> Self {
        Self {
            region,
            geometry,
            next: last.next(),
            last,
            group: Group::default(),
            ahead: std::array::from_fn(|_| Ahead::new()),
            aside_bytes: 0,
        }
    }

    /// The last LSN of what was handed out.
    #[must_use]
    pub const fn last(&self) -> Lsn {
        self.last
    }

    /// Whether `log` is so far ahead of the others that it has to wait.
    #[must_use]
    pub fn must_wait(&self, log: LogId) -> bool {
        !self.ahead[log.index()].is_empty() && self.aside_bytes >= ASIDE_BYTES_MAX
    }

    /// Takes the records of a range, and hands out the groups that are complete by it. Returns the
    /// highest LSN in the range; `None` where it has no record.
    ///
    /// # Errors
    /// When the bytes are no records of this place, or do not fit those before.
    pub fn feed(
        &mut self,
        range: Fed<'_>,
        mut visit: impl FnMut(Replayed<'_>),
    ) -> Result<Option<Lsn>, FeedError> {
        let Fed {
            segment,
            from,
            bytes,
        } = range;
        let end = from + u32::try_from(bytes.len()).expect("less than a window");
        let mut at = from.max(SEGMENT_HEADER_BYTES);
        let mut highest = None;
        while at < end {
            let here = identity(Kind::LogRecord, self.region, segment, at);
            match decode(&bytes[(at - from) as usize..], here, segment.base_lsn) {
                Decoded::Record(record, len) => {
                    if !record.kind.is_mark() {
                        highest = Some(record.lsn);
                        self.take(segment, at, &record, &mut visit)?;
                    }
                    at += u32::try_from(len).expect("less than a window");
                }
                Decoded::Pad if at.is_multiple_of(BLOCK_BYTES) => {
                    at = self.geometry.window_end(self.geometry.window_index(at));
                }
                Decoded::Pad => at = at.next_multiple_of(BLOCK_BYTES),
                Decoded::Invalid => {
                    let what = "no record of this log";
                    return Err(FeedError { offset: at, what });
                }
            }
        }
        self.catch_up(&mut visit)?;
        Ok(highest)
    }

    fn take(
        &mut self,
        segment: &LogSegment,
        offset: u32,
        record: &Record<'_>,
        visit: &mut impl FnMut(Replayed<'_>),
    ) -> Result<(), FeedError> {
        let at = Pointer::new(segment.number, offset);
        if record.lsn < self.next {
            return Ok(());
        }
        if record.lsn > self.next {
            self.put_aside(segment.log, at, record);
            return Ok(());
        }
        if self.add(segment.log, at, record, record.value.len())? {
            self.group.hand_out(visit);
        }
        // What was put aside before may go on here.
        if self.ahead.iter().any(|ahead| is_at(ahead, self.next)) {
            self.catch_up(visit)?;
        }
        Ok(())
    }

    fn put_aside(&mut self, log: LogId, at: Pointer, record: &Record<'_>) {
        let ahead = &mut self.ahead[log.index()];
        // At the end, as a rule; an older segment may come behind a newer one.
        let place = ahead.partition_point(|aside| aside.lsn < record.lsn);
        if ahead
            .get(place)
            .is_some_and(|aside| aside.lsn == record.lsn)
        {
            return;
        }
        let value = match has_values(log) {
            true => record.value,
            false => &[],
        };
        let aside = Aside {
            kind: record.kind,
            lsn: record.lsn,
            more: record.more,
            chunk: record.chunk,
            expiry: record.expiry,
            request: record.request,
            at,
            key: record.key.into(),
            value: value.into(),
            value_len: record.value.len(),
        };
        self.aside_bytes += aside.bytes();
        ahead.insert(place, aside);
    }

    /// Takes the record of the next LSN. Returns whether its group is whole.
    fn add(
        &mut self,
        log: LogId,
        at: Pointer,
        record: &Record<'_>,
        value_len: usize,
    ) -> Result<bool, FeedError> {
        let added = self.group.add(log, at, record, value_len);
        added.map_err(|what| FeedError {
            offset: at.offset(),
            what,
        })?;
        self.next = record.lsn.next();
        if !record.more {
            self.last = record.lsn;
        }
        Ok(!record.more)
    }

    /// Takes what was put aside, as far as it follows.
    fn catch_up(&mut self, visit: &mut impl FnMut(Replayed<'_>)) -> Result<(), FeedError> {
        loop {
            let next = self.next;
            let mut logs = LogId::all().zip(&mut self.ahead);
            let Some((log, ahead)) = logs.find(|(_, ahead)| is_at(ahead, next)) else {
                return Ok(());
            };
            let aside = ahead.pop_front().expect("it was looked at");
            self.aside_bytes -= aside.bytes();
            // Otherwise a range that was fed again has brought it.
            if aside.lsn == next && self.add(log, aside.at, &aside.record(), aside.value_len)? {
                self.group.hand_out(visit);
            }
        }
    }
}

/// Whether the first record of `ahead` is the one of `lsn`, or needless by now.
fn is_at(ahead: &Ahead, lsn: Lsn) -> bool {
    ahead.front().is_some_and(|first| first.lsn <= lsn)
}

impl Aside {
    /// Bytes of memory, roughly.
    fn bytes(&self) -> usize {
        std::mem::size_of::<Self>() + self.key.len() + self.value.len()
    }

    /// The record, without its value unless the log is the first.
    fn record(&self) -> Record<'_> {
        Record {
            kind: self.kind,
            lsn: self.lsn,
            more: self.more,
            chunk: self.chunk,
            expiry: self.expiry,
            request: self.request,
            key: &self.key,
            value: &self.value,
        }
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
