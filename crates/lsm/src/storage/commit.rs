//! How edits become durable and current: the queue, and the stages that its front goes through.
//!
//! ```text
//!            all writes of the front's segments have ended
//! Nothing ──────────────────────────────────────────────────▶ Syncing ──▶ Ready ──▶ Appending
//!  │ ▲ │ ▲ ▲      (or straight to Ready where there is no data)             │ ▲         │
//!  │ │ │ │ └──────────────────── durable: the versions are current ─────────┼─┼─────────┘
//!  │ │ ▼ │                                                                  └─┘ no room yet
//!  │ │ Checkpointing (where the manifest has grown too long)
//!  ▼ │
//! Witnessing (where nothing else can be appended behind the last append)
//! ```
//!
//! A damaged last append looks like one that a crash tore ([`replay`](crate::manifest::replay)). So what an append
//! took away is kept until a later append, a checkpoint or a *witness* is durable, a block that says that the append
//! was. [`Storage::witnessed`] is the last edit of which that is so. While edits follow each other no witness is
//! written; behind the last one it is written at once. At most what one append frees is kept, of [`QUEUE_MAX`] edits,
//! for the time of one write and one sync. A witness needs no room: the manifest has two blocks for it.
//!
//! The order of data, manifest and release of what was removed (I3, I1) is kept here and nowhere
//! else.

use std::borrow::Cow;
use std::sync::Arc;

use argosy_base::{EditSeq, SegmentNumber, Standing};
use argosy_device::{DeviceError, Ticket};
use argosy_engine::EditNotice;

use super::{Committed, QUEUE_MAX, Storage, StorageError, checkpoint_record};
use crate::addresses::Addressing;
use crate::edit::{Edit, MEDIUM_LOG};
use crate::manifest::{ManifestError, ManifestRecord, Moved};
use crate::names::logs::LARGE_LOG;
use crate::segments::StoredSegment;
use crate::shape::Shape;
use crate::version::Version;

/// An edit on its way.
pub(super) struct Queued {
    notice: EditNotice,
    record: ManifestRecord,
    /// The segments whose bytes have to be durable first.
    needs: Vec<Arc<StoredSegment>>,
    /// The version after it.
    pub(super) version: Arc<Version>,
}

/// What is being done about the first edits of the queue.
pub(super) enum Work {
    Nothing,
    /// The first `count` edits' data is being made durable.
    Syncing {
        sync: Ticket,
        count: usize,
    },
    /// The first `count` edits are to be appended as soon as the manifest has room.
    Ready {
        count: usize,
    },
    /// They are being appended.
    Appending {
        count: usize,
    },
    /// The last append is getting its witness.
    Witnessing,
    /// The manifest is begun anew.
    Checkpointing,
}

impl Storage {
    /// `edit`, with log points that only whole records lie in front of. A checkpoint states some in whole blocks.
    fn with_record_points<'e>(&self, edit: &'e Edit) -> Cow<'e, Edit> {
        if !edit.checkpoint || edit.logs.points.is_empty() {
            return Cow::Borrowed(edit);
        }
        let geometry = self.settings.layout.log_geometry();
        let mut edit = edit.clone();
        let in_blocks = edit.logs.points.iter_mut().filter(|p| p.is_in_blocks());
        for point in in_blocks {
            point.to = geometry.durable_records(point.to);
        }
        Cow::Owned(edit)
    }

    /// Takes `edit` into the queue. Its order is that of the calls; [`step`](Self::step) says when
    /// it is committed. A crash before leaves nothing of it.
    ///
    /// The caller has begun the writes of every byte that the edit names through
    /// [`StoredSegment::write`]; their ends are waited for.
    ///
    /// # Errors
    /// [`StorageError::Edit`] when it does not fit the head version, [`StorageError::QueueFull`].
    pub fn commit(&mut self, edit: &Edit) -> Result<(), StorageError> {
        if self.queue.len() == QUEUE_MAX {
            return Err(StorageError::QueueFull);
        }
        let edit = &*self.with_record_points(edit);
        let version = Arc::new(self.head().apply(edit, &self.pending)?);
        let mut places = Vec::new();
        let mut needs = Vec::new();
        let levels = edit.added.iter().map(|(_, _, segment)| segment.number);
        let logs = edit.logs.added.iter().map(|log| log.number);
        for number in levels.chain(logs) {
            let stored = version.stored(number).expect("the edit added it");
            let moved = self.head().stored(number).filter(|_| !edit.checkpoint);
            if moved.is_some() {
                continue;
            }
            if !places.iter().any(|(named, _)| *named == number) {
                places.push((number, stored.place()));
                needs.push(Arc::clone(stored));
            }
            self.pending.remove(&number);
        }
        let points = edit.logs.sealed.iter().chain(&edit.logs.points);
        let logs = points.filter_map(|point| version.stored(point.number));
        needs.extend(logs.cloned());
        let bytes: Arc<[u8]> = edit.encode().into();
        let logs = logs_of(edit).filter_map(|log| version.stored(log));
        let log_places = version.addresses().log_map(logs).into();
        self.queue.push_back(Queued {
            record: ManifestRecord {
                edit: bytes.to_vec(),
                places,
            },
            notice: EditNotice {
                seq: edit.seq,
                bytes,
                log_places,
            },
            needs,
            version: Arc::clone(&version),
        });
        self.versions.queued(version);
        Ok(())
    }

    /// Whether every edit is committed and nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && matches!(self.work, Work::Nothing)
    }

    /// Goes on with commits and checkpoints as far as that is possible without waiting, and tells
    /// which edits became durable, in order.
    ///
    /// # Errors
    /// The device's, final: what is durable is unknown then. A full device is no error here: the
    /// edits wait.
    pub fn step(&mut self) -> Result<Vec<Committed>, StorageError> {
        let mut committed = Vec::new();
        match self.step_standing() {
            // It is tried again.
            Err(error) if error.is_full() => {}
            result => result?,
        }
        while self.advance(&mut committed)? {}
        Ok(committed)
    }

    /// One stage of what is under way. Whether there may be more to do at once.
    fn advance(&mut self, committed: &mut Vec<Committed>) -> Result<bool, StorageError> {
        match &self.work {
            Work::Nothing => {
                let begun = self.begin_checkpoint()? || self.begin_commit()?;
                Ok(begun || self.begin_witness())
            }
            Work::Syncing { sync, count } => match sync.poll() {
                None => Ok(false),
                Some(Err(error)) => Err(error.into()),
                Some(Ok(())) => {
                    self.work = Work::Ready { count: *count };
                    Ok(true)
                }
            },
            Work::Ready { count } => {
                let count = *count;
                let batch = self.queue.iter().take(count);
                let records = batch.map(|queued| queued.record.clone()).collect();
                match self.manifest.append(records) {
                    // What the last append freed may be the room.
                    Err(ManifestError::Device(error)) if error.is_full() => {
                        Ok(self.begin_witness())
                    }
                    Err(error) => Err(error.into()),
                    Ok(()) => {
                        self.work = Work::Appending { count };
                        Ok(true)
                    }
                }
            }
            Work::Appending { count } => {
                let count = *count;
                if self.manifest.step()? == Moved::Waiting {
                    return Ok(false);
                }
                self.work = Work::Nothing;
                self.versions.note_witnessed();
                for queued in self.queue.drain(..count) {
                    if self.settings.mutants.free_under_snapshot() {
                        release_removed(self.versions.current(), &queued.version);
                    }
                    self.versions.committed(&queued.version);
                    committed.push(Committed {
                        notice: queued.notice,
                        version: queued.version,
                    });
                }
                if self.settings.mutants.forget_witness() {
                    self.versions.note_witnessed();
                }
                Ok(true)
            }
            // Of a checkpoint the catalog says that it is there.
            Work::Witnessing | Work::Checkpointing => {
                let waiting = self.manifest.step()? == Moved::Waiting;
                if !waiting {
                    self.work = Work::Nothing;
                    self.versions.note_witnessed();
                }
                Ok(!waiting)
            }
        }
    }

    /// Begins to write a witness of the last append, unless it has one.
    fn begin_witness(&mut self) -> bool {
        if self.manifest.is_witnessed() || self.settings.mutants.forget_witness() {
            return false;
        }
        self.manifest.begin_witness();
        self.work = Work::Witnessing;
        true
    }

    /// The last edit that has its witness, or a later append or a checkpoint behind it, so that damage to it is told.
    /// Before that no segment is given away that it took away, and nobody depends on what it adds: neither log
    /// segments nor numbers, nor pairs that were bulk-loaded.
    #[must_use]
    pub fn witnessed(&self) -> EditSeq {
        self.versions.witnessed().seq()
    }

    /// How many of the last committed edits have none yet.
    #[must_use]
    pub const fn unwitnessed(&self) -> usize {
        self.versions.unwitnessed_len()
    }

    /// Begins the next generation of the manifest where it is time for it, unless the device has no room for it, or
    /// the version no room in a record: then the present one goes on growing.
    fn begin_checkpoint(&mut self) -> Result<bool, StorageError> {
        if !self.manifest.wants_checkpoint() {
            return Ok(false);
        }
        match self.manifest.checkpoint(&checkpoint_record(self.current())) {
            Ok(()) => {
                self.work = Work::Checkpointing;
                Ok(true)
            }
            Err(ManifestError::Device(error)) if error.is_full() => Ok(false),
            Err(ManifestError::TooLong { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Begins to commit the first edits of the queue whose data has reached the device.
    fn begin_commit(&mut self) -> Result<bool, StorageError> {
        let planted = self.settings.mutants.commit_before_durable();
        let mut count = 0;
        let mut needs_sync = false;
        'queue: for queued in &self.queue {
            for stored in queued.needs.iter().filter(|_| !planted) {
                match stored.settled() {
                    None => break 'queue,
                    Some(Err(error)) => return Err(error.into()),
                    Some(Ok(())) => needs_sync = true,
                }
            }
            count += 1;
        }
        if count == 0 {
            return Ok(false);
        }
        self.work = if needs_sync {
            let sync = self.store.sync();
            Work::Syncing { sync, count }
        } else {
            Work::Ready { count }
        };
        Ok(true)
    }

    /// Steps until every edit is committed and has its witness. Blocks: for opening, closing and tools.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`DeviceError::Full`] when there is no room to go on.
    pub fn settle(&mut self) -> Result<Vec<Committed>, StorageError> {
        let mut committed = Vec::new();
        loop {
            committed.extend(self.step()?);
            if self.is_idle() {
                return Ok(committed);
            }
            self.check_room()?;
            self.wait_for_data()?;
        }
    }

    /// Makes sure that no edit waits for room on the device.
    ///
    /// # Errors
    /// [`DeviceError::Full`].
    pub(crate) fn check_room(&self) -> Result<(), DeviceError> {
        match &self.work {
            Work::Ready { .. } => Err(DeviceError::Full {
                used: self.store.used(),
                total: self.store.total(),
            }),
            _ => Ok(()),
        }
    }

    /// Blocks until the device has done what the next step waits for, be it the data of edits.
    ///
    /// # Errors
    /// Those of a write of data; as those of [`wait_for_device`](Self::wait_for_device).
    pub(crate) fn wait_for_data(&self) -> Result<(), DeviceError> {
        match &self.work {
            Work::Nothing => {
                let data = self.queue.iter().flat_map(|queued| &queued.needs);
                data.into_iter().try_for_each(|stored| stored.wait())
            }
            _ => self.wait_for_device(),
        }
    }

    /// Gives up the edits of the queue that no append has begun to write, with the segments that they add, and waits
    /// for what is under way. Returns the edits that became durable. Blocks.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub(crate) fn end_queue(&mut self) -> Result<Vec<Committed>, StorageError> {
        let mut committed = Vec::new();
        while matches!(self.work, Work::Appending { .. }) {
            self.wait_for_device()?;
            self.advance(&mut committed)?;
        }
        if matches!(self.work, Work::Syncing { .. } | Work::Ready { .. }) {
            self.work = Work::Nothing;
        }
        self.queue.clear();
        self.versions.forget_queued();
        // What is left is a witness, or a checkpoint.
        committed.extend(self.settle()?);
        Ok(committed)
    }

    /// [Says](Self::become_ordinary) that the copy holds everything that was acknowledged, durable on return. Blocks.
    ///
    /// # Errors
    /// As those of [`settle`](Self::settle).
    pub(crate) fn settle_standing(&mut self) -> Result<Vec<Committed>, StorageError> {
        self.become_ordinary();
        let committed = self.settle()?;
        // The manifest is idle now.
        self.step_standing()?;
        self.standing.wait()?;
        Ok(committed)
    }

    /// Says that the copy, of no member, is being filled, durable on return, unless it is begun anew or put back. What
    /// the manifest has under way is waited for; `committed` gets the edits that are durable. Blocks.
    ///
    /// # Errors
    /// As [`step`](Self::step); where the device is full, call it again.
    pub(crate) fn begin_filling(
        &mut self,
        committed: &mut Vec<Committed>,
    ) -> Result<(), StorageError> {
        if self.standing() == Standing::Ordinary {
            self.standing.change_to(Standing::Filling);
        }
        loop {
            self.step_standing()?;
            if self.standing.wait()? {
                return Ok(());
            }
            while self.advance(committed)? {}
            self.wait_for_device()?;
        }
    }

    fn step_standing(&mut self) -> Result<(), DeviceError> {
        self.standing
            .step(&mut self.manifest, Shape::of(&self.settings))
    }

    /// Blocks until the device has done what the next step waits for. What became of it is for that step to tell.
    ///
    /// # Errors
    /// Those of [`CatalogChange::wait`](argosy_device::CatalogChange::wait).
    pub fn wait_for_device(&self) -> Result<(), DeviceError> {
        match &self.work {
            Work::Nothing | Work::Ready { .. } => {}
            Work::Syncing { sync, .. } => {
                let _ = self.store.wait(sync);
            }
            Work::Appending { .. } | Work::Witnessing | Work::Checkpointing => {
                self.manifest.wait_for_device()?;
            }
        }
        Ok(())
    }
}

/// The segments of the large and the medium log that `edit` adds.
fn logs_of(edit: &Edit) -> impl Iterator<Item = SegmentNumber> {
    let large = edit.logs.added.iter().filter(|log| log.log == LARGE_LOG);
    let large = large.map(|log| log.number);
    let added = edit.added.iter();
    let medium = added.filter(|(level, ..)| *level == MEDIUM_LOG);
    large.chain(medium.map(|(_, _, segment)| segment.number))
}

/// The planted mistake `free_under_snapshot`.
fn release_removed(before: &Version, after: &Version) {
    for (number, stored) in before.table() {
        if after.stored(*number).is_none() {
            stored.release_now();
        }
    }
}
