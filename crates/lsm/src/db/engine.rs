//! An engine behind the contract of all engines: reads, writes, and what a driver tells it.
//!
//! Reads fail where they meet [damage](crate::damage), and take note of the segment.

use std::sync::atomic::Ordering;

use argosy_base::{EditSeq, Instant, LogKind, Lsn, Moment, SegmentNumber};
use argosy_engine::batch::check_key;
use argosy_engine::{
    Engine, EngineError, Found, Outline, Progress, Reach, Snapshot, Wanted, WriteBatch,
    WriteOptions, Written,
};

use super::Lsm;
use super::condition::Looked;
use crate::read::ReadView;
use crate::read::many::Keys;
use crate::segments::fetch::Fetch;

impl Engine for Lsm {
    fn get_within(&self, key: &[u8], reach: Reach) -> Result<Found, EngineError> {
        check_key(key)?;
        let fetch = Fetch::within(reach);
        let look = |view: &ReadView, lsn| view.locate(key, lsn, &self.reading, fetch);
        let (view, located) = self.noting_within(reach, self.look(look))?;
        let expiry = located.entry.as_ref().and_then(|entry| entry.expiry());
        let value = match located.entry {
            Some(entry) => {
                let value = view.value(key, entry, &self.reading, fetch);
                self.noting_within(reach, value)?
            }
            None => None,
        };
        Ok(Found {
            version: view.version_of(located.lsn, value.is_some()),
            value,
            lsn: located.lsn,
            expiry,
        })
    }

    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
        reach: Reach,
    ) -> Result<Vec<Found>, EngineError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let (now, told) = self.told();
        let (lsn, view) = self.shown();
        let found = view.get_some(Keys { keys, wanted }, lsn, &self.reading, reach);
        let found = self.noting_within(reach, found)?.into_iter().zip(keys);
        let found = found.map(|(found, key)| {
            let (value, lsn, expiry) = match found.expiry {
                Some(expiry) if expiry <= now => (None, found.lsn.max(told), None),
                Some(expiry) if self.reached(expiry).is_some() => {
                    let found = self.get_within(key, reach)?;
                    let value = match wanted {
                        Wanted::Values(_) => found.value,
                        Wanted::Presence => found.value.map(|_| Vec::new()),
                    };
                    return Ok(Found { value, ..found });
                }
                expiry => (found.value, found.lsn, expiry),
            };
            Ok(Found {
                version: view.version_of(lsn, value.is_some()),
                value,
                lsn,
                expiry,
            })
        });
        found.collect()
    }

    fn outline(&self, key: &[u8], reach: Reach) -> Result<Outline, EngineError> {
        check_key(key)?;
        let fetch = Fetch::within(reach);
        let look = |view: &ReadView, lsn| view.locate(key, lsn, &self.reading, fetch);
        let (_, located) = self.noting_within(reach, self.look(look))?;
        Ok(located.outline())
    }

    fn write_within(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        reach: Reach,
    ) -> Result<Written, EngineError> {
        self.check_open()?;
        let looked = self.noting_within(reach, Looked::before(self, batch, options, reach))?;
        self.write_looked(batch, options, looked)
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(self.snapshot_of_committed())
    }

    fn last_lsn(&self) -> Lsn {
        self.visible()
    }

    fn time(&self) -> Moment {
        self.clock_or_time()
    }

    fn committed_lsn(&self) -> Lsn {
        Lsn(self.committed.load(Ordering::Acquire))
    }

    fn commit(&self, lsn: Lsn) {
        assert!(
            lsn <= self.visible(),
            "what was not written is not committed"
        );
        let before = self.committed.fetch_max(lsn.0, Ordering::AcqRel);
        let waiting = self.view.load().memtables.len() > 1;
        if before < lsn.0 && waiting {
            self.wake();
        }
    }

    fn flushed_everywhere(&self, log: LogKind, segment: SegmentNumber, to: u32) {
        let mut writer = self.lock();
        let log = writer.logs.log_mut(log);
        log.flushed_everywhere(segment, to);
        writer.note_durable();
        let asked = self.mark_asked.load(Ordering::Acquire);
        let waits = writer.marked(self.edits.everywhere()).0 < asked;
        drop(writer);
        if waits {
            // What is durable everywhere now is marked by the next step.
            self.wake();
        }
    }

    fn edit_applied_everywhere(&self, seq: EditSeq) {
        self.edits.note_everywhere(seq);
        let usable = self.edits.usable();
        self.lock().provide_spares(usable);
        self.wake();
    }

    fn step(&self, now: Instant) -> Result<Progress, EngineError> {
        let stepped = self.with_background(|background| background.step(self, now))?;
        Ok(stepped.unwrap_or_default())
    }
}

impl Lsm {
    /// Takes note of damage that a read within `reach` met. One that keeps to memory leaves that to the read that
    /// follows it: whatever is wrong there, it is [not in memory](EngineError::NotInMemory).
    fn noting_within<T>(
        &self,
        reach: Reach,
        read: Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match (reach, read) {
            (_, Ok(read)) => Ok(read),
            (Reach::Memory, Err(_)) => Err(EngineError::NotInMemory),
            (Reach::Device, failed) => {
                let damages = &self.reading.damages;
                damages.noting(&self.view.load().version, failed)
            }
        }
    }
}
