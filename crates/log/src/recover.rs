//! What a region's history is after a stop.
//!
//! 1. All logs are read in step ([`scan`](super::scan)), always on from the record with the lower LSN.
//!    What lies below the start of replay is passed over.
//! 2. From there on LSNs must follow each other without a gap over all logs. Records are gathered
//!    until their group is complete, and only then handed out.
//! 3. At the first LSN that is missing, no log having it, it is decided what that means:
//!
//! | the missing LSN                                                   | means                 |
//! |--------------------------------------------------------------------|-----------------------|
//! | a log cannot be read up to where it is known to be durable         | corruption            |
//! | it is at or below an LSN that an edit or a mark declares durable   | corruption ([`Holes`])  |
//! | all logs go on behind it in sealed segments                        | corruption            |
//! | otherwise                                                          | the end of the history|
//!
//!    A sealed segment is known to be durable as a whole. Of any other, edits state a point up to which it is durable;
//!    the values that levels point to lie in front of that point, and below the start of replay.
//!    Sealed segments were durable before the edit that sealed them, so a log that goes on in one
//!    has lost nothing before that record unless it is damaged. Marks are looked for behind the
//!    stop, too: one that was written after the missing record tells that it had been durable.
//! 4. At the end, a group that is not complete is as if it had not been written. Each log ends
//!    behind its last record of the history, which may be in an earlier segment than its last one.
//!
//! 5. An LSN may be missing in front of the start of replay, too: levels are ahead of the durable part of the logs, and
//!    a loss of power leaves them so. The region needs none of these records. A copy that would catch up by them does,
//!    so whoever opens the region is told ([`RecoveredLogs::gap`]).
//!
//! 6. Records behind the end that are whole are counted ([`CutSegment`]): they are normal after a loss of power, and
//!    nothing follows from them, but whoever opens the region is told.
//!
//! Reading beyond the end must never happen again: whoever goes on writing cuts first (an edit that
//! seals the logs where they end) and continues in new segments.

use std::sync::Arc;

use argosy_base::limits::LOGS_MAX;
use argosy_base::{KeyRange, LogId, Lsn, Moment, Pointer, RegionId, RequestName, SegmentNumber};
use argosy_memory::SharedMemory;

use super::gather::Group;
use super::scan::{Head, ReadDevice, Scan, Source, Stop};
use super::segment::{Geometry, SegmentPosition};
use crate::chain::{LogPoint, LogSegment};

pub use super::scan::{CutSegment, Unflushed};

/// What is known before the logs are read.
pub struct Recovery<'a, const N: usize> {
    /// The region.
    pub region: RegionId,
    /// How its logs are cut.
    pub geometry: Geometry,
    /// Per log ([`LogId::index`]), the chain in rising order; sealed segments have an `end`.
    pub chains: [&'a [LogSegment]; N],
    /// The log points of segments that are not sealed: what lies in front of one is durable.
    pub points: &'a [LogPoint],
    /// Per log, what survived of the windows, by slot. Empty: nothing.
    pub windows: [&'a [Option<Arc<SharedMemory>>]; N],
    /// Everything below this LSN is in the levels.
    pub replay_from: Lsn,
    /// The highest LSN that an edit declares durable.
    pub durable: Lsn,
    /// What a missing LSN means.
    pub holes: Holes,
    /// How many bytes of a segment, from its beginning, may be other than zero on the device: whole blocks. Those
    /// behind are not read. `u32::MAX` where that is not known.
    pub written: &'a dyn Fn(&LogSegment) -> u32,
}

/// What a missing LSN means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// Corruption where an edit or a mark declares it durable, and otherwise the end of the history.
    Judged,
    /// The end of the history, whatever edits and marks declare: they speak of the members, and a copy that is being
    /// filled has marks before it has what they stand for.
    End,
    /// Nothing: it is passed over. Of use where damage is salvaged, and a mistake elsewhere.
    Passed,
}

/// What an operation binds its key to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding<'a> {
    /// This value, of the first log.
    Inline(&'a [u8]),
    /// A value of another log.
    Logged {
        /// Its bytes.
        value_len: u32,
    },
    /// Nothing any more.
    Nothing,
}

/// A client's request, which is a whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: RequestName,
    /// The last LSN of the group.
    pub last: Lsn,
}

/// An operation of the history, in LSN order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The LSN by which it sorts: that of its last record.
    pub lsn: Lsn,
    /// What the key is bound to. Of a range tombstone: inline, its end.
    pub binding: Binding<'a>,
    /// Where its first record begins.
    pub at: Pointer,
    /// Which client's request the group was, where this is its first operation and the record says so.
    pub request: Option<Request>,
    /// When it expires, where the record says so; or if there is no key, the region's time.
    pub expiry: Option<u64>,
    /// It removes all keys from `key` on: those below the value, if that is not empty.
    pub removes_range: bool,
}

impl Replayed<'_> {
    /// The region's time, where that is all that it tells.
    #[must_use]
    pub fn time(&self) -> Option<Moment> {
        self.expiry.filter(|_| self.key.is_empty()).map(Moment)
    }

    /// The range that it removes, where it does that.
    #[must_use]
    pub fn range(&self) -> Option<KeyRange> {
        if !self.removes_range {
            return None;
        }
        Some(match self.binding {
            Binding::Inline(&[]) => KeyRange::new(self.key, None),
            Binding::Inline(to) => KeyRange::new(self.key, Some(to.to_vec())),
            // Nothing at all.
            _ => KeyRange::new(self.key, Some(Vec::new())),
        })
    }
}

/// Where a log ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// Behind the last record of the history; nothing behind it may ever be read again. `None`: the
    /// chain has no record of it.
    pub end: Option<SegmentPosition>,
    /// Where every segment that is not sealed ends, in the order of the chain: behind its last record
    /// of the history; 0 where it has none. An edit that seals them there is the cut.
    pub seals: Vec<LogPoint>,
    /// What has to be written to the device to make everything up to `end` durable there, in order.
    pub unflushed: Vec<Unflushed>,
    /// Closing marks that are neither there nor in windows: to be written, or padding is taken for what the device
    /// has lost.
    pub closing: Vec<Unflushed>,
    /// The memory of every slot survived, so that what was written to it is still there.
    pub windows_survived: bool,
}

/// The outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredLogs<const N: usize> {
    /// The last LSN of the history; everything up to it is there, nothing beyond counts.
    pub last: Lsn,
    /// The highest LSN that is declared durable, by an edit or by a mark.
    pub durable: Lsn,
    /// An LSN between the durable ones and the start of replay is missing in the logs: windows were lost that held
    /// what only the levels have now.
    pub gap: bool,
    /// Per log ([`LogId::index`]).
    pub logs: [LogTail; N],
    /// Segments with records behind the end, of the first log first.
    pub cut: Vec<CutSegment>,
}

impl<const N: usize> RecoveredLogs<N> {
    /// What is told of records behind the end, if there are any. `name` is the name of a log.
    pub fn cut_in_words(&self, name: impl Fn(LogId) -> &'static str) -> Option<String> {
        let records: u64 = self.cut.iter().map(|cut| cut.records).sum();
        let first = self.cut.iter().map(|cut| cut.first).min()?;
        let last = self.cut.iter().map(|cut| cut.last).max()?;
        let segments = self
            .cut
            .iter()
            .map(|cut| format!("{} of the {}", cut.number, name(cut.log)));
        let segments: Vec<_> = segments.collect();
        Some(format!(
            "{records} whole records behind the end of the history, {first} to {last}, count for nothing, since {} is \
             missing: they lie in {}; after a loss of power that is normal for what was not flushed",
            self.last.next(),
            segments.join(", ")
        ))
    }
}

/// Why the history could not be established.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError<E> {
    /// The device failed.
    #[error("log {} could not be read", .log.raw())]
    Read {
        /// The log.
        log: LogId,
        /// The error.
        source: E,
    },
    /// Records that were durable are damaged. Fetch the segment from another member.
    #[error("log {}, {segment}, byte {offset}: {what}; {missing} is missing, which was durable", .log.raw())]
    Corrupt {
        /// The log.
        log: LogId,
        /// The segment.
        segment: SegmentNumber,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
        /// The first LSN that is missing.
        missing: Lsn,
    },
}

/// Establishes the history, and hands its operations from `replay_from` on to `visit` in LSN order.
/// `read` fills a buffer with device bytes of a segment at an offset, whole blocks.
///
/// # Errors
/// When the device fails, or what was durable is damaged. What was handed out means nothing then.
pub fn recover<E, const N: usize>(
    recovery: &Recovery<'_, N>,
    mut read: impl FnMut(&LogSegment, u32, &mut [u8]) -> Result<(), E>,
    visit: impl FnMut(Replayed<'_>),
) -> Result<RecoveredLogs<N>, RecoverError<E>> {
    let mut history = History::begin(recovery, &mut read)?;
    history.follow(&mut read, visit)?;
    let missing = history.next;
    let durable = history.durable(&mut read)?;
    if recovery.holes != Holes::Passed {
        let ends = history.scans.each_ref().map(log_end);
        let was_durable = missing <= durable && recovery.holes == Holes::Judged;
        if let Verdict::Corrupt(log) = decide(was_durable, &ends) {
            return Err(history.corrupt(log));
        }
    }
    let cut = history.cut(&mut read);
    let gap = History::has_gap(recovery, &mut read)?;
    let mut recovered = history.into_recovered(durable);
    recovered.cut = cut;
    recovered.gap = gap;
    Ok(recovered)
}

/// How a log looks where an LSN is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogEnd {
    /// It was read to the end of its chain.
    Ends,
    /// The reading stopped at bytes that are no record. If these are known to be `durable`, they are damaged.
    Stops { durable: bool },
    /// It goes on with a higher LSN, in a sealed segment or in the tail.
    GoesOn { sealed: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The history ends here.
    End,
    /// A record that was durable is damaged, most likely in this log.
    Corrupt(LogId),
}

/// How the log of `scan` looks.
fn log_end(scan: &Scan<'_>) -> LogEnd {
    match (scan.head(), scan.stop()) {
        (Some(head), _) => LogEnd::GoesOn {
            sealed: head.segment.end.is_some(),
        },
        (
            None,
            Some(Stop {
                what: Some(_),
                durable,
                ..
            }),
        ) => LogEnd::Stops { durable: *durable },
        (None, _) => LogEnd::Ends,
    }
}

/// The table of the module documentation.
fn decide(was_durable: bool, ends: &[LogEnd]) -> Verdict {
    let first = |wanted: &dyn Fn(LogEnd) -> bool| {
        let mut logs = LogId::all().zip(ends);
        logs.find(|(_, end)| wanted(**end)).map(|(log, _)| log)
    };
    if let Some(log) = first(&|end| end == LogEnd::Stops { durable: true }) {
        return Verdict::Corrupt(log);
    }
    if was_durable {
        let stopped = first(&|end| matches!(end, LogEnd::Stops { .. }));
        let ended = first(&|end| end == LogEnd::Ends);
        return Verdict::Corrupt(stopped.or(ended).unwrap_or(LogId::FIRST));
    }
    match first(&|end| end != LogEnd::GoesOn { sealed: true }) {
        Some(_) => Verdict::End,
        None => Verdict::Corrupt(LogId::FIRST),
    }
}

/// The history as far as it has been followed.
struct History<'a, const N: usize> {
    recovery: &'a Recovery<'a, N>,
    scans: [Scan<'a>; N],
    /// The LSN that must come next.
    next: Lsn,
    /// The last LSN of a complete group.
    last: Lsn,
    /// Behind the last record of complete groups in each segment.
    ends: [Ends; N],
    group: Group,
    /// Behind the last record of the group in each segment.
    group_ends: [Ends; N],
}

impl<'a, const N: usize> History<'a, N> {
    fn begin<E>(
        recovery: &'a Recovery<'a, N>,
        read: &mut ReadDevice<'_, E>,
    ) -> Result<Self, RecoverError<E>> {
        Self::begin_at(recovery, recovery.replay_from.max(Lsn(1)), read)
    }

    /// The history from LSN `next` on, of which nothing has been followed.
    fn begin_at<E>(
        recovery: &'a Recovery<'a, N>,
        next: Lsn,
        read: &mut ReadDevice<'_, E>,
    ) -> Result<Self, RecoverError<E>> {
        let mut begin = |log: LogId| {
            let source = Source {
                region: recovery.region,
                geometry: recovery.geometry,
                chain: recovery.chains[log.index()],
                slots: recovery.windows[log.index()],
                points: recovery.points,
                written: recovery.written,
            };
            let scan = Scan::begin(source, next, read).and_then(|mut scan| {
                scan.advance(read)?;
                Ok(scan)
            });
            scan.map_err(|source| RecoverError::Read { log, source })
        };
        let scans = LogId::all().take(N).map(&mut begin);
        let scans = scans.collect::<Result<Vec<_>, _>>()?;
        let Ok(scans) = <[Scan<'a>; N]>::try_from(scans) else {
            panic!("a region has at most {LOGS_MAX} logs");
        };
        Ok(Self {
            recovery,
            scans,
            next,
            last: Lsn(next.0 - 1),
            ends: no_ends(),
            group: Group::default(),
            group_ends: no_ends(),
        })
    }

    /// Goes on until an LSN is missing.
    fn follow<E>(
        &mut self,
        read: &mut ReadDevice<'_, E>,
        mut visit: impl FnMut(Replayed<'_>),
    ) -> Result<(), RecoverError<E>> {
        while let Some(log) = self.lower() {
            let head = *self.scans[log.index()].head().expect("it is the lower one");
            if head.lsn > self.next && self.recovery.holes == Holes::Passed {
                self.group = Group::default();
                self.group_ends = no_ends();
                self.next = head.lsn;
            }
            if head.lsn > self.next {
                return Ok(());
            }
            if head.lsn == self.next {
                self.take(log, &head, &mut visit)?;
            } else {
                note_end(&mut self.ends[log.index()], head.behind());
            }
            self.scans[log.index()]
                .advance(read)
                .map_err(|source| RecoverError::Read { log, source })?;
        }
        Ok(())
    }

    /// Whether the logs lack an LSN above those that an edit declares durable and below the start of replay.
    fn has_gap<E>(
        recovery: &'a Recovery<'a, N>,
        read: &mut ReadDevice<'_, E>,
    ) -> Result<bool, RecoverError<E>> {
        let from = recovery.durable.next();
        if from >= recovery.replay_from {
            return Ok(false);
        }
        let mut history = Self::begin_at(recovery, from, read)?;
        while let Some(log) = history.lower() {
            let scan = &mut history.scans[log.index()];
            let lsn = scan.head().expect("it is the lower one").lsn;
            if lsn > history.next {
                return Ok(true);
            }
            history.next = history.next.max(lsn.next());
            if history.next >= recovery.replay_from {
                return Ok(false);
            }
            scan.advance(read)
                .map_err(|source| RecoverError::Read { log, source })?;
        }
        Ok(true)
    }

    /// The log whose next record has the lower LSN.
    fn lower(&self) -> Option<LogId> {
        let logs = LogId::all().zip(&self.scans);
        let heads = logs.filter_map(|(log, scan)| Some((scan.head()?.lsn, log)));
        heads.min().map(|(_, log)| log)
    }

    /// Takes the record at which `log` stands, which is the next of the history.
    fn take<E>(
        &mut self,
        log: LogId,
        head: &Head,
        visit: &mut impl FnMut(Replayed<'_>),
    ) -> Result<(), RecoverError<E>> {
        let record = self.scans[log.index()].record();
        let more = record.more;
        if let Err(what) = self.group.add(log, head.at(), &record, record.value.len()) {
            return Err(RecoverError::Corrupt {
                log,
                segment: head.segment.number,
                offset: head.start,
                what,
                missing: head.lsn,
            });
        }
        self.next = head.lsn.next();
        note_end(&mut self.group_ends[log.index()], head.behind());
        if !more {
            self.last = head.lsn;
            for (ends, of_group) in self.ends.iter_mut().zip(&mut self.group_ends) {
                of_group.drain(..).for_each(|end| note_end(ends, end));
            }
            self.group.hand_out(visit);
        }
        Ok(())
    }

    /// The highest LSN that anything declares durable.
    fn durable<E>(&self, read: &mut ReadDevice<'_, E>) -> Result<Lsn, RecoverError<E>> {
        let mut durable = self.recovery.durable;
        for (log, scan) in LogId::all().zip(&self.scans) {
            let mark = scan.find_marks(read);
            let mark = mark.map_err(|source| RecoverError::Read { log, source })?;
            durable = durable.max(mark);
        }
        Ok(durable)
    }

    /// What lies behind the end.
    fn cut<E>(&self, read: &mut ReadDevice<'_, E>) -> Vec<CutSegment> {
        let mut cut = Vec::new();
        for (scan, ends) in self.scans.iter().zip(&self.ends) {
            let end = ends.last().copied();
            cut.extend(scan.cut_segments(end, self.next, read));
        }
        cut
    }

    fn corrupt<E>(&self, log: LogId) -> RecoverError<E> {
        let scan = &self.scans[log.index()];
        let stop = scan.stop().copied();
        let stop = stop.filter(|stop| stop.durable).or(scan.trouble()).or(stop);
        let (segment, offset, what) = match (stop, scan.head()) {
            (Some(stop), _) => (
                stop.number,
                stop.offset,
                stop.what.unwrap_or("the log ends"),
            ),
            (None, Some(head)) => (
                head.segment.number,
                head.start,
                "a record before this is gone",
            ),
            (None, None) => (SegmentNumber(0), 0, "the log was not read"),
        };
        RecoverError::Corrupt {
            log,
            segment,
            offset,
            what,
            missing: self.next,
        }
    }

    fn into_recovered(self, durable: Lsn) -> RecoveredLogs<N> {
        let windows = self.recovery.windows;
        let slots = self.recovery.geometry.slots();
        let mut logs = std::array::from_fn(|_| LogTail::default());
        for (log, (scan, ends)) in self.scans.into_iter().zip(self.ends).enumerate() {
            let survived = windows[log].iter().flatten().count();
            let end = ends.last().copied();
            let to_write = end.map(|end| scan.into_unflushed(end));
            let (unflushed, closing) =
                to_write.map_or_else(Default::default, |part| (part.unflushed, part.closing));
            logs[log] = LogTail {
                end,
                seals: seals(self.recovery.chains[log], &ends),
                unflushed,
                closing,
                windows_survived: survived == slots,
            };
        }
        RecoveredLogs {
            last: self.last,
            durable,
            gap: false,
            logs,
            cut: Vec::new(),
        }
    }
}

/// Positions in rising order, one for each segment.
type Ends = Vec<SegmentPosition>;

/// No ends yet.
fn no_ends<const N: usize>() -> [Ends; N] {
    std::array::from_fn(|_| Ends::new())
}

/// The log reaches to `end` now.
fn note_end(ends: &mut Ends, end: SegmentPosition) {
    match ends.last_mut() {
        Some(last) if last.ordinal == end.ordinal => *last = end,
        _ => ends.push(end),
    }
}

/// Where the segments of `chain` end that are not sealed.
fn seals(chain: &[LogSegment], ends: &Ends) -> Vec<LogPoint> {
    let open = chain.iter().filter(|segment| segment.end.is_none());
    let seal = |segment: &LogSegment| {
        let end = ends.iter().find(|end| end.ordinal == segment.ordinal);
        LogPoint {
            log: segment.log,
            number: segment.number,
            to: end.map_or(0, |end| end.offset),
        }
    };
    open.map(seal).collect()
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
