//! How a write goes into logs and memtable, under the writer lock ([`writer`](super::writer)).

use std::sync::MutexGuard;

use argosy_base::{ClientId, Lsn, Moment, RequestName};
use argosy_engine::deciding::Answer;
use argosy_engine::{
    BatchError, BusyReason, EngineError, LogEnd, Observer, Op, WriteBatch, WriteOptions, Written,
};

use super::Lsm;
use super::condition::Looked;
use super::writer::{Touched, Writer};
use crate::duplicates::Known;
use crate::names::logs::LOGS;
use crate::work::stats::Counts;

/// By how many milliseconds the moment of a client's id may be ahead of the region's clock.
const CLIENT_AHEAD_MAX: u64 = 60 * 60 * 1000;

/// An engine whose writer lock is held, to append to its logs.
pub(super) struct Appender<'a> {
    pub(super) lsm: &'a Lsm,
    pub(super) writer: MutexGuard<'a, Writer>,
}

impl<'a> Appender<'a> {
    /// Waits for the writer lock.
    pub(super) fn of(lsm: &'a Lsm) -> Self {
        let writer = lsm.lock();
        Self { lsm, writer }
    }

    /// Appends and inserts `batch`, of this name, publishes it, and tells the observer.
    fn append(
        &mut self,
        batch: &WriteBatch,
        request: Option<RequestName>,
    ) -> Result<(), EngineError> {
        if self.lsm.is_full() && batch.ops().any(|op| matches!(op, Op::Put { .. })) {
            return Err(EngineError::Busy(BusyReason::DeviceFull));
        }
        if self.writer.holds(batch) {
            return Err(EngineError::Busy(BusyReason::BulkLoad));
        }
        // On a full device only deletes are left, and these make room.
        if !self.lsm.is_full() {
            self.writer.admission.admit().map_err(EngineError::Busy)?;
        }
        self.append_named(batch, request)?;
        self.writer.admission.admitted(batch.bytes());
        Ok(())
    }

    /// [`append`](Self::append), on a full device, too, and without a name.
    pub(super) fn append_any(&mut self, batch: &WriteBatch) -> Result<(), EngineError> {
        self.append_named(batch, None)
    }

    fn append_named(
        &mut self,
        batch: &WriteBatch,
        request: Option<RequestName>,
    ) -> Result<(), EngineError> {
        if batch.expires() && self.writer.time() == Moment(0) {
            // From here on it matters.
            let now = self.lsm.history.time().clock_or_time();
            self.tell_time(Moment(1), now)?;
        }
        self.make_room(batch)?;
        let settings = &self.lsm.settings;
        self.append_with(|writer| writer.append(batch, request, settings))
    }

    /// Appends something for which there is room in memory, publishes it, and tells the observer.
    fn append_with(
        &mut self,
        append: impl FnOnce(&mut Writer) -> Result<Touched, EngineError>,
    ) -> Result<(), EngineError> {
        let Self { lsm, writer } = self;
        // Whoever ends the engine takes this lock afterwards.
        lsm.check_open()?;
        if lsm.windows.wake(writer)? {
            // What is appended now is flushed in its time.
            lsm.wake();
        }
        let before = writer.last();
        let touched = append(writer)?;
        let last = writer.last();
        lsm.shown.marks().set_last(last);
        let syncs = lsm.settings.logs.sync;
        if lsm.serving.is_alone() && !syncs {
            lsm.shown.marks().set_committed(last);
        }
        let flushes = writer.queue_flushes(false);
        if let Some(observer) = lsm.serving.observer() {
            tell_appended(observer, writer, touched, before);
            flushes.iter().for_each(|range| observer.flush(*range));
        }
        if syncs || !flushes.is_empty() {
            lsm.wake();
        }
        Ok(())
    }

    /// Whether `request` was applied before: then the LSN that its answer waits for.
    fn applied_before(&self, request: RequestName) -> Result<Option<Lsn>, EngineError> {
        match self.writer.look(request) {
            Known::Applied(lsn) => Ok(Some(lsn)),
            Known::Forgotten => Err(EngineError::Forgotten(request)),
            Known::New => self.check_moment(request.client).map(|()| None),
        }
    }

    /// A client whose id is far ahead would, once it is forgotten, have all others taken for forgotten.
    fn check_moment(&self, client: ClientId) -> Result<(), EngineError> {
        let now = self.lsm.history.time().clock_or_time();
        let ahead = client.moment().0.saturating_sub(now.0);
        match now > Moment(0) && ahead > CLIENT_AHEAD_MAX {
            true => Err(EngineError::Limit(BatchError::ClientAhead(ahead))),
            false => Ok(()),
        }
    }

    /// Makes sure that memory takes `batch`.
    fn make_room(&mut self, batch: &WriteBatch) -> Result<(), EngineError> {
        let Self { lsm, writer } = self;
        if writer
            .make_room(batch, &lsm.settings)
            .map_err(EngineError::Busy)?
        {
            // The version stays the same, so nothing large ends with the view before.
            drop(lsm.shown.replace(writer));
            lsm.wake();
        }
        Ok(())
    }

    /// Where the region's time is below `least`, makes it `now`, which is not below, and which the clock has
    /// reached. Returns the LSN of the record that tells it.
    pub(super) fn tell_time(&mut self, least: Moment, now: Moment) -> Result<Lsn, EngineError> {
        let time = self.lsm.history.time();
        if self.writer.time() >= least {
            return Ok(time.lsn());
        }
        let now = now.max(least);
        // A memtable may be full of records of time alone.
        self.make_room(&WriteBatch::new())?;
        self.append_with(|writer| writer.append_time(now))?;
        time.set(now, self.writer.last());
        Ok(self.writer.last())
    }

    /// Closes what is open of the windows and tells the observer.
    pub(super) fn force_flushes(&mut self) -> bool {
        let Self { lsm, writer } = self;
        let flushes = writer.queue_flushes(true);
        if let Some(observer) = lsm.serving.observer() {
            for log in LOGS {
                let padded = flushes.iter().any(|range| range.log == log);
                let end: Option<LogEnd> = writer.logs.log(log).end().filter(|_| padded);
                if let Some(end) = end {
                    observer.appended(end, writer.last());
                }
            }
            flushes.iter().for_each(|range| observer.flush(*range));
        }
        !flushes.is_empty()
    }

    /// Ends logs that did not go on since they were flushed in a mark. Returns whether any lacked it.
    pub(super) fn mark_idle(&mut self) -> bool {
        self.writer.lacks_mark() && self.append_marks()
    }

    /// Appends marks, and has them flushed.
    fn append_marks(&mut self) -> bool {
        if self.lsm.settings.mutants.forget_mark() {
            return false;
        }
        Counts::add(&self.lsm.counts.logs.marks, self.writer.append_marks());
        self.force_flushes()
    }
}

/// Writes, once what has to be known of the keys was looked up.
pub(super) fn write(
    lsm: &Lsm,
    batch: &WriteBatch,
    options: WriteOptions,
    looked: Option<Looked>,
) -> Result<Written, EngineError> {
    if batch.is_void() {
        return Ok(Written::up_to(lsm.visible()));
    }
    let mut appender = Appender::of(lsm);
    // Whoever closes the region flushes, under this lock, what was written before.
    lsm.check_open()?;
    let request = batch.request();
    if let Some(request) = request
        && let Some(lsn) = appender.applied_before(request)?
    {
        return Ok(Written::before(lsn));
    }
    if looked.is_none() && !batch.expires() {
        let appended = appender.append(batch, request);
        appended.map_err(|error| sent_away(lsm, error))?;
        return Ok(Written::up_to(appender.writer.last()));
    }
    let now = lsm.history.time().clock_or_time();
    let mut answer = match looked {
        Some(looked) => looked.decide(&mut appender, batch, options, now)?,
        None => Answer::default(),
    };
    let appended = match answer.comes_to(batch, now)? {
        // It was asked only whether what it was computed on is still so.
        Some(batch) if batch.is_empty() => Some(Lsn(0)),
        Some(batch) => {
            appender
                .append(&batch, request)
                .map_err(|error| sent_away(lsm, error))?;
            Some(appender.writer.last())
        }
        None => None,
    };
    let appended = appended.map(|lsn| lsn.max(answer.seen()));
    Ok(answer.written(appended))
}

/// Tells where the logs end now. Only the last call names the new LSN: before it, not all of
/// the group's bytes have been announced.
fn tell_appended(observer: &dyn Observer, writer: &Writer, touched: Touched, before: Lsn) {
    let ends = LOGS.map(|log| {
        let end = writer.logs.log(log).end();
        end.filter(|_| touched.logs[log.index()])
    });
    let mut ends = ends.into_iter().flatten().peekable();
    while let Some(end) = ends.next() {
        let complete = ends.peek().is_none();
        observer.appended(end, if complete { writer.last() } else { before });
    }
}

/// Appends the marks that somebody waits for, once what they are to say is so.
pub(super) fn mark_as_asked(lsm: &Lsm) -> bool {
    let asked = lsm.steps.logs().mark_asked();
    if asked == Lsn(0) {
        return false;
    }
    let mut appender = Appender::of(lsm);
    let writer = &appender.writer;
    let said = writer
        .marked(lsm.history.edits().everywhere())
        .max(writer.logs.last_mark());
    let is_due = asked > said && writer.logs.durable(writer.last()) >= asked;
    is_due && appender.append_marks()
}

/// Counts why a writer was sent away, and says so when the true reason is a full device.
fn sent_away(lsm: &Lsm, error: EngineError) -> EngineError {
    let EngineError::Busy(reason) = error else {
        return error;
    };
    let reason = if lsm.is_full() {
        BusyReason::DeviceFull
    } else {
        reason
    };
    lsm.counts.busy(reason);
    EngineError::Busy(reason)
}
