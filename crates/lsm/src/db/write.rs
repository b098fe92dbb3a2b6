//! How a write goes into logs and memtable, under the writer lock ([`writer`](super::writer)).

use std::sync::atomic::Ordering;

use argosy_base::{LogKind, Lsn, Moment};
use argosy_engine::{
    BusyReason, EngineError, LogEnd, Observer, Op, WriteBatch, WriteOptions, Written,
};

use super::Lsm;
use super::condition::{self, Looked};
use super::writer::{Touched, Writer};
use crate::work::stats::Counts;

impl Lsm {
    /// Writes, once what has to be known of the keys was looked up.
    pub(super) fn write_looked(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        looked: Option<Looked>,
    ) -> Result<Written, EngineError> {
        if batch.is_empty() {
            return Ok(Written {
                applied: true,
                unguarded: false,
                lsn: self.visible(),
                previous: Vec::new(),
                existed: Vec::new(),
                changed: None,
            });
        }
        let mut writer = self.lock();
        // Whoever closes the region flushes, under this lock, what was written before.
        self.check_open()?;
        let now = match looked.is_some() || batch.expires() {
            true => self.clock_or_time(),
            false => Moment(0),
        };
        let answer = match looked {
            Some(looked) => looked.decide(self, (batch, options), (&mut writer, now))?,
            None => condition::Answer::default(),
        };
        let (instead, changed, evaluated_on) = match answer.change {
            Some(outcome) => (Some(outcome.batch), Some(outcome.told), outcome.lsn),
            None => (None, None, Lsn(0)),
        };
        let resolved;
        let batch = match &instead {
            None if batch.expires() => {
                resolved = condition::resolve(batch, now, &answer.kept)?;
                Some(&resolved)
            }
            None => Some(batch),
            Some(instead) => instead.as_ref(),
        };
        let lsn = match (answer.failed_on, batch) {
            (Some(failed_on), _) => Err(failed_on),
            (None, None) => Err(evaluated_on),
            (None, Some(batch)) => {
                self.append(&mut writer, batch)
                    .map_err(|error| self.sent_away(error))?;
                Ok(writer.last())
            }
        };
        Ok(Written {
            applied: lsn.is_ok(),
            unguarded: answer.unguarded,
            lsn: lsn.unwrap_or_else(|lsn| lsn),
            previous: answer.previous,
            existed: answer.existed,
            changed,
        })
    }

    /// Appends and inserts `batch`, publishes it, and tells the observer. Under the writer lock.
    fn append(&self, writer: &mut Writer, batch: &WriteBatch) -> Result<(), EngineError> {
        if self.is_full() && batch.ops().any(|op| matches!(op, Op::Put { .. })) {
            return Err(EngineError::Busy(BusyReason::DeviceFull));
        }
        if writer.holds(batch) {
            return Err(EngineError::Busy(BusyReason::Ingest));
        }
        // On a full device only deletes are left, and these make room.
        if !self.is_full() {
            writer.admission.admit().map_err(EngineError::Busy)?;
        }
        self.append_any(writer, batch)?;
        writer.admission.admitted(batch.bytes());
        Ok(())
    }

    /// [`append`](Self::append), on a full device, too.
    pub(super) fn append_any(
        &self,
        writer: &mut Writer,
        batch: &WriteBatch,
    ) -> Result<(), EngineError> {
        if batch.expires() && writer.time() == Moment(0) {
            // From here on it matters.
            let now = self.clock_or_time();
            self.tell_time(writer, (Moment(1), now))?;
        }
        self.make_room(writer, batch)?;
        self.append_with(writer, |writer| writer.append(batch, &self.settings))
    }

    /// Appends something for which there is room in memory, publishes it, and tells the observer.
    pub(super) fn append_with(
        &self,
        writer: &mut Writer,
        append: impl FnOnce(&mut Writer) -> Result<Touched, EngineError>,
    ) -> Result<(), EngineError> {
        let before = writer.last();
        let touched = append(writer)?;
        let last = writer.last();
        self.last.store(last.0, Ordering::Release);
        if self.observer.is_none() {
            self.committed.store(last.0, Ordering::Release);
        }
        let flushes = writer.queue_flushes(false);
        if let Some(observer) = &self.observer {
            self.tell_appended(&**observer, writer, touched, before);
            flushes.iter().for_each(|range| observer.flush(*range));
        }
        if !flushes.is_empty() {
            self.wake();
        }
        Ok(())
    }

    /// Makes sure that memory takes `batch`.
    pub(super) fn make_room(
        &self,
        writer: &mut Writer,
        batch: &WriteBatch,
    ) -> Result<(), EngineError> {
        if writer
            .make_room(batch, &self.settings)
            .map_err(EngineError::Busy)?
        {
            // The version stays the same, so nothing large ends with the view before.
            drop(self.show(writer));
            self.wake();
        }
        Ok(())
    }

    /// Tells where the logs end now. Only the last call names the new LSN: before it, not all of
    /// the group's bytes have been announced.
    fn tell_appended(
        &self,
        observer: &dyn Observer,
        writer: &Writer,
        touched: Touched,
        before: Lsn,
    ) {
        let ends = LogKind::ALL.map(|log| {
            let end = writer.logs.log(log).end();
            end.filter(|_| touched.logs[log.index()])
        });
        let mut ends = ends.into_iter().flatten().peekable();
        while let Some(end) = ends.next() {
            let complete = ends.peek().is_none();
            observer.appended(end, if complete { writer.last() } else { before });
        }
    }

    /// Closes what is open of the windows and tells the observer. Under the writer lock.
    pub(super) fn force_flushes(&self, writer: &mut Writer) -> bool {
        let flushes = writer.queue_flushes(true);
        if let Some(observer) = &self.observer {
            for log in LogKind::ALL {
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
    pub(super) fn mark_idle(&self) -> bool {
        let mut writer = self.lock();
        writer.lacks_mark() && self.append_marks(&mut writer)
    }

    /// Appends the marks that somebody waits for, once what they are to say is so.
    pub(super) fn mark_as_asked(&self) -> bool {
        let asked = Lsn(self.mark_asked.load(Ordering::Acquire));
        if asked == Lsn(0) {
            return false;
        }
        let mut writer = self.lock();
        let said = writer
            .marked(self.edits.everywhere())
            .max(writer.logs.last_mark());
        let is_due = asked > said && writer.logs.durable(writer.last()) >= asked;
        is_due && self.append_marks(&mut writer)
    }

    /// Appends marks, and has them flushed. Under the writer lock.
    fn append_marks(&self, writer: &mut Writer) -> bool {
        if self.settings.mutants.forget_mark() {
            return false;
        }
        Counts::add(&self.counts.log_marks, writer.append_marks());
        self.force_flushes(writer)
    }

    /// Counts why a writer was sent away, and says so when the true reason is a full device.
    fn sent_away(&self, error: EngineError) -> EngineError {
        let EngineError::Busy(reason) = error else {
            return error;
        };
        let reason = if self.is_full() {
            BusyReason::DeviceFull
        } else {
            reason
        };
        self.counts.busy(reason);
        EngineError::Busy(reason)
    }
}
