//! Groups: a batch becomes records in the logs, all of them or none.
//!
//! 1. Every operation becomes one record, or several where its value is cut into chunks; each takes
//!    the next LSN, and all but the last say `more`.
//! 2. The cutting is done twice by the same code: on copies of the logs' cursors, which finds out
//!    whether there is room for everything, and then on the logs.
//!
//! A record that does not fit the rest of its window goes to the next one, if it is short, or if the
//! rest would take only a small part of its value. Otherwise the rest of the window takes as much
//! of the value as fits. So at most a 16th of a window, and a key, is padding.

use argosy_base::{LogId, Lsn, Moment, Pointer, RequestName};
use argosy_engine::{Expiry, Op};
use argosy_memory::MemoryError;

use super::probe::Probe;
use super::record::Record;
use super::segment::Geometry;
use super::writer::{LogWriter, NoRoom};

/// A window is divided by this to get the size up to which a record is not cut, and that of the
/// smallest part of a value.
const PADDING_DIVISOR: u32 = 16;

/// An operation, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOp<'a> {
    /// What is done.
    pub op: Op<'a>,
    /// The log of its records.
    pub log: LogId,
}

/// An operation that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended<'a> {
    /// The operation and its log.
    pub op: GroupOp<'a>,
    /// The LSN of its last record, by which it sorts and becomes visible.
    pub lsn: Lsn,
    /// Where its first record begins.
    pub at: Pointer,
}

/// The `N` logs of a region.
pub struct LogGroup<const N: usize> {
    logs: [LogWriter; N],
}

impl<const N: usize> LogGroup<N> {
    /// These logs, by rising id. The ids have no gap, and begin with [`LogId::FIRST`].
    #[must_use]
    pub const fn new(logs: [LogWriter; N]) -> Self {
        Self { logs }
    }

    /// The writer of `log`.
    ///
    /// # Panics
    /// When the region has no such log. So does [`log_mut`](Self::log_mut).
    #[must_use]
    pub const fn log(&self, log: LogId) -> &LogWriter {
        &self.logs[log.index()]
    }

    /// The writer of `log`.
    pub const fn log_mut(&mut self, log: LogId) -> &mut LogWriter {
        &mut self.logs[log.index()]
    }

    /// The highest LSN up to which everything is durable on every member, `last` being the highest
    /// that was appended. Always the last of a group.
    #[must_use]
    pub fn durable(&self, last: Lsn) -> Lsn {
        let first = self
            .logs
            .iter()
            .filter_map(LogWriter::first_unflushed)
            .min();
        first.map_or(last, |first| Lsn(first.0 - 1))
    }

    /// Whether nobody needs the windows of any log: see [`LogWriter::is_settled`].
    #[must_use]
    pub fn are_settled(&self) -> bool {
        self.logs.iter().all(LogWriter::is_settled)
    }

    /// Gives the memory of all windows back: see [`LogWriter::rest`].
    pub fn rest(&mut self) {
        self.logs.iter_mut().for_each(LogWriter::rest);
    }

    /// Takes memory for all windows again: see [`LogWriter::wake`].
    ///
    /// # Errors
    /// Where there is none; call it again, then, before the next append.
    pub fn wake(&mut self) -> Result<(), MemoryError> {
        self.logs.iter_mut().try_for_each(LogWriter::wake)
    }

    /// Bytes that were written to all logs: see [`LogWriter::bytes`].
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.logs.iter().map(LogWriter::bytes).sum()
    }

    /// The highest LSN that the last mark of any log says was appended.
    #[must_use]
    pub fn last_mark(&self) -> Lsn {
        self.logs
            .iter()
            .map(LogWriter::last_mark)
            .max()
            .unwrap_or_default()
    }

    /// The highest LSN that the last mark of any log says is durable on every member.
    #[must_use]
    pub fn marked(&self) -> Lsn {
        self.logs
            .iter()
            .map(LogWriter::marked)
            .max()
            .unwrap_or_default()
    }

    /// Whether [`append_group`](Self::append_group) would append this group.
    ///
    /// # Errors
    /// [`NoRoom::Full`]: not now. [`NoRoom::TooLarge`]: never.
    pub fn check_group<'a>(
        &self,
        first: Lsn,
        request: Option<RequestName>,
        ops: impl Iterator<Item = GroupOp<'a>> + Clone,
    ) -> Result<(), NoRoom> {
        let group = Group { first, request };
        let mut now = self.logs.each_ref().map(LogWriter::probe);
        if group.cut(&mut now, ops.clone(), |_| ()).is_some() {
            return Ok(());
        }
        let mut flushed = self.logs.each_ref().map(LogWriter::probe_when_flushed);
        match group.cut(&mut flushed, ops, |_| ()) {
            Some(_) => Err(NoRoom::Full),
            None => Err(NoRoom::TooLarge),
        }
    }

    /// Appends a group whose first record has the LSN `first`, and returns the LSN of its last one.
    /// `request` goes to the first record. Calls `appended` for every operation, in order.
    ///
    /// # Errors
    /// When there is no room for all of it in its logs. Nothing was appended then.
    ///
    /// # Panics
    /// When there is no operation.
    pub fn append_group<'a>(
        &mut self,
        first: Lsn,
        request: Option<RequestName>,
        ops: impl Iterator<Item = GroupOp<'a>> + Clone,
        appended: impl FnMut(Appended<'a>),
    ) -> Result<Lsn, NoRoom> {
        self.check_group(first, request, ops.clone())?;
        let group = Group { first, request };
        let mut logs = self.logs.each_mut();
        logs.iter_mut().for_each(|log| log.set_group(Some(first)));
        let last = group.cut(&mut logs, ops, appended);
        logs.iter_mut().for_each(|log| log.set_group(None));
        Ok(last.expect("there was room for all of it"))
    }

    /// Appends to the first log that the region's time is `time`, in a record with this LSN.
    ///
    /// # Errors
    /// When there is no room. Nothing was appended then.
    pub fn append_time(&mut self, lsn: Lsn, time: Moment) -> Result<(), NoRoom> {
        let record = Record::time(lsn, time.0);
        let mut log = self.log_mut(LogId::FIRST);
        cut_op(&mut log.probe(), record).ok_or(NoRoom::Full)?;
        log.set_group(Some(lsn));
        let appended = cut_op(&mut log, record);
        log.set_group(None);
        appended.expect("there was room for it");
        Ok(())
    }
}

/// When a pair expires, as it is written.
///
/// # Panics
/// Where that was not resolved before.
pub fn moment_of(expiry: Expiry) -> Option<Moment> {
    match expiry {
        Expiry::Never => None,
        Expiry::At(moment) => Some(moment),
        Expiry::Keep | Expiry::After(_) => panic!("what is appended expires at a moment"),
    }
}

impl Geometry {
    /// The longest record that is not cut, and the smallest part that a value is cut into.
    const fn part_min(self) -> usize {
        (self.window_bytes() / PADDING_DIVISOR) as usize
    }
}

/// Where records go one by one: to a log, or to nowhere, to find out whether they fit.
trait Tail {
    /// Bytes that fit the present window, or the next where it is full, and the LSN from which the
    /// segment counts; `None` where there is none.
    fn room(&self) -> Option<(usize, Lsn)>;

    /// The geometry of the log.
    fn geometry(&self) -> Geometry;

    /// Leaves the window.
    fn skip(&mut self);

    /// Takes a record that fits; returns where it begins.
    fn put(&mut self, record: &Record<'_>) -> Pointer;
}

impl Tail for Probe<'_> {
    fn room(&self) -> Option<(usize, Lsn)> {
        Probe::room(self).map(|room| (room.bytes, room.base))
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn skip(&mut self) {
        Probe::skip(self);
    }

    fn put(&mut self, record: &Record<'_>) -> Pointer {
        let room = Probe::room(self).expect("asked for before");
        Probe::put(self, &room, record.encoded_len(room.base));
        Pointer::default()
    }
}

impl Tail for &mut LogWriter {
    fn room(&self) -> Option<(usize, Lsn)> {
        Tail::room(&self.probe())
    }

    fn geometry(&self) -> Geometry {
        self.windows().geometry()
    }

    fn skip(&mut self) {
        LogWriter::skip(self);
    }

    fn put(&mut self, record: &Record<'_>) -> Pointer {
        LogWriter::put(self, record)
    }
}

#[derive(Clone, Copy)]
struct Group {
    first: Lsn,
    request: Option<RequestName>,
}

impl Group {
    /// Cuts the operations into records and puts them. The last LSN, or `None` where there is no
    /// room.
    fn cut<'a, T: Tail>(
        mut self,
        tails: &mut [T],
        ops: impl Iterator<Item = GroupOp<'a>>,
        mut appended: impl FnMut(Appended<'a>),
    ) -> Option<Lsn> {
        let mut ops = ops.peekable();
        let mut next = self.first;
        while let Some(op) = ops.next() {
            let mut record = match op.op {
                Op::Put { key, value, expiry } => Record {
                    expiry: moment_of(expiry).map(|moment| moment.0),
                    ..Record::put(next, key, value)
                },
                Op::Delete { key } => Record::delete(next, key),
                Op::DeleteRange { from, to } => Record::delete_range(next, from, to),
            };
            record.request = self.request.take();
            record.more = ops.peek().is_some();
            let (lsn, at) = cut_op(&mut tails[op.log.index()], record)?;
            appended(Appended { op, lsn, at });
            next = lsn.next();
        }
        assert!(next > self.first, "a group has an operation");
        Some(Lsn(next.0 - 1))
    }
}

/// Puts one operation's record, or the records of its chunks. The last one's LSN and the first one's
/// place, or `None` where there is no room.
fn cut_op<T: Tail>(tail: &mut T, whole: Record<'_>) -> Option<(Lsn, Pointer)> {
    let part_min = tail.geometry().part_min();
    let mut record = whole;
    let mut first = None;
    loop {
        let (room, base) = tail.room()?;
        let len = record.encoded_len(base);
        if len <= room {
            let at = tail.put(&record);
            return Some((record.lsn, first.unwrap_or(at)));
        }
        let overhead = len - record.value.len();
        if len <= part_min || room < overhead + part_min {
            tail.skip();
            continue;
        }
        let (part, rest) = record.value.split_at(room - overhead);
        let chunk = Record {
            value: part,
            chunk: true,
            more: true,
            ..record
        };
        let at = tail.put(&chunk);
        first.get_or_insert(at);
        record = Record {
            lsn: record.lsn.next(),
            expiry: None,
            request: None,
            key: &[],
            value: rest,
            ..record
        };
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
