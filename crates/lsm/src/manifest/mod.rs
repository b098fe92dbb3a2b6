//! The manifest: a region's log of version edits on one member, and with it of allocations.
//!
//! The append of an edit is its commit point (invariant I3). A record is the edit's bytes, equal on
//! every member, and the places of the segments that it adds, this member's own. Records lie one
//! behind the other in a chain of device segments that the catalog names.
//!
//! How a manifest lives:
//!
//! 1. [`Manifest::create`] writes a checkpoint (an edit that states a whole version) into fresh
//!    segments and has the catalog name them, under a generation that no manifest of the region has
//!    had on the device. The catalog's two words of the region are the generation, and the region's
//!    [`Shape`](crate::shape::Shape) with the copy's standing.
//! 2. [`Manifest::append`] begins to add records: the chain grows by way of the catalog where it is
//!    too short; then the records are written in one go, then synced. [`Manifest::step`] moves it.
//!    What the last append took away has to be kept until a later one is durable, or a *witness*
//!    ([`Manifest::begin_witness`]). From then on damage to it is told from a torn end.
//! 3. Grown past twice the size of its checkpoint, and past one segment, the manifest is begun
//!    anew: [`Manifest::checkpoint`] writes the next generation into fresh segments, syncs them,
//!    and switches the catalog; only then is the old chain given back.
//! 4. [`Manifest::open`] reads the chain that the catalog names (`replay`).
//!
//! Until the catalog is switched the old generation is the whole truth, afterwards the new one. One
//! append is under way at a time, and the next begins when it is durable: so only the last append
//! can be torn, and what is damaged in front of a later one is corruption.

mod format;
mod readable;
mod replay;

use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{DeviceSegment, RegionId};
use argosy_device::{
    Buffer, CatalogChange, DeviceError, Purpose, RegionEntry, SegmentHandle, Store, Ticket,
};

pub use format::ManifestRecord;
use format::{Cursor, RECORD_BYTES_MAX, WITNESSES, Writer};
pub(crate) use readable::readable;
pub use replay::{ManifestError, ReplayedManifest, TornManifest, replay, replay_without_last};

/// A region's manifest on this member. See the module documentation.
pub struct Manifest {
    store: Arc<Store>,
    region: RegionId,
    /// Bytes of each segment of the chain that are used.
    segment_bytes: u32,
    /// The second word of the catalog's entry: the region's shape, which stays, and the copy's standing.
    shape: u64,
    chain: Vec<SegmentHandle>,
    /// Where the next append goes, and what it continues.
    cursor: Cursor,
    /// Bytes of the checkpoint that this generation began with, or of the chain when the next one was too long.
    checkpoint_bytes: u64,
    /// Longest record.
    record_bytes_max: usize,
    /// The last append has a durable witness, or is the checkpoint.
    is_witnessed: bool,
    /// The block in which the next witness goes.
    witness_place: u32,
    work: Work,
    /// The planted mistake `commit_before_durable`: appends are taken for durable once written.
    skip_sync: bool,
}

/// What is under way.
enum Work {
    Nothing,
    /// The catalog is being told of the longer chain, in which `records` will find room.
    Growing {
        change: CatalogChange,
        records: Vec<ManifestRecord>,
    },
    Writing {
        writes: Vec<Ticket>,
        then: Then,
    },
    Syncing {
        sync: Ticket,
        then: Then,
    },
    /// The next generation is being written beside the present one.
    Beginning(Box<Generation>),
    /// An error that cannot be survived.
    Failed(DeviceError),
}

/// What is so once what is written is durable.
#[derive(Clone, Copy)]
enum Then {
    /// An append ends at the cursor.
    Appended(Cursor),
    /// The last append has a witness.
    Witnessed,
}

/// A generation that the catalog does not name yet.
struct Generation {
    chain: Vec<SegmentHandle>,
    cursor: Cursor,
    stage: Stage,
}

enum Stage {
    Writing(Vec<Ticket>),
    Syncing(Ticket),
    Switching(CatalogChange),
}

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Nothing is under way.
    Idle,
    /// The device is still working.
    Waiting,
    /// What was under way has just become durable.
    Done,
}

impl Manifest {
    /// Makes the manifest of a region that the catalog does not know yet, or whose manifest is to
    /// be given up. Blocks until it is durable.
    ///
    /// # Errors
    /// As the device's; [`ManifestError::TooLong`].
    pub fn create(
        store: &Arc<Store>,
        region: RegionId,
        segment_bytes: u32,
        shape: u64,
        checkpoint: &ManifestRecord,
    ) -> Result<Self, ManifestError> {
        let mut manifest = Self::begin(store, region, segment_bytes, shape, checkpoint)?;
        manifest.wait()?;
        Ok(manifest)
    }

    /// [`create`](Self::create), without waiting: [`step`](Self::step) says when it is durable, and the catalog knows
    /// the region.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn begin(
        store: &Arc<Store>,
        region: RegionId,
        segment_bytes: u32,
        shape: u64,
        checkpoint: &ManifestRecord,
    ) -> Result<Self, ManifestError> {
        let mut manifest = Self {
            store: Arc::clone(store),
            region,
            segment_bytes,
            shape,
            chain: Vec::new(),
            cursor: Cursor::new(0),
            checkpoint_bytes: 0,
            record_bytes_max: RECORD_BYTES_MAX,
            is_witnessed: true,
            witness_place: 0,
            work: Work::Nothing,
            skip_sync: false,
        };
        manifest.checkpoint(checkpoint)?;
        Ok(manifest)
    }

    /// Reads the manifest that the catalog names in `entry`. Blocks. Every device segment of the
    /// chain is claimed; what the records name is for the caller to claim.
    ///
    /// # Errors
    /// [`ManifestError`]: the device's, or what was durable is damaged.
    pub fn open(
        store: &Arc<Store>,
        entry: &RegionEntry,
        segment_bytes: u32,
    ) -> Result<(Self, Vec<ManifestRecord>), ManifestError> {
        let chain = entry
            .manifest
            .iter()
            .map(|segment| store.claim(*segment))
            .collect::<Result<Vec<_>, _>>()?;
        let replayed = replay(store, entry, segment_bytes)?;
        let manifest = Self {
            store: Arc::clone(store),
            region: entry.region,
            segment_bytes,
            shape: entry.words[1],
            chain,
            cursor: replayed.cursor,
            checkpoint_bytes: replayed.checkpoint_bytes,
            record_bytes_max: RECORD_BYTES_MAX,
            is_witnessed: replayed.is_witnessed,
            witness_place: replayed.witness_place,
            work: Work::Nothing,
            skip_sync: false,
        };
        Ok((manifest, replayed.records))
    }

    /// What the catalog's entry says from its next change on.
    pub(crate) const fn set_shape(&mut self, word: u64) {
        self.shape = word;
    }

    /// Begins to write `word` into the catalog's entry.
    ///
    /// # Panics
    /// Unless the manifest is idle: what is under way may change the entry, too.
    pub(crate) fn change_shape(&mut self, word: u64) -> CatalogChange {
        assert!(
            self.is_idle(),
            "one change of the entry is under way at a time"
        );
        self.shape = word;
        self.set_region(&self.chain, self.cursor.generation())
    }

    /// Takes no longer records from now on.
    #[cfg(test)]
    pub(crate) const fn limit_records(&mut self, bytes: usize) {
        self.record_bytes_max = bytes;
    }

    /// Takes appends for durable once they are written: the planted mistake
    /// `commit_before_durable`.
    pub fn plant_skip_sync(&mut self) {
        self.skip_sync = true;
    }

    /// The device segments of the chain.
    pub fn chain(&self) -> impl Iterator<Item = DeviceSegment> {
        self.chain.iter().map(SegmentHandle::segment)
    }

    /// Whether nothing is under way, so that an append or a checkpoint may begin.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        matches!(self.work, Work::Nothing)
    }

    /// Whether the manifest has grown so much that it should begin anew.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        let bound = u64::from(self.segment_bytes).max(2 * self.checkpoint_bytes);
        self.cursor.bytes(self.segment_bytes) >= bound
    }

    /// Whether damage to the last append would be told from a torn end. Until then what it took away has to be kept.
    #[must_use]
    pub const fn is_witnessed(&self) -> bool {
        self.is_witnessed
    }

    /// Begins to write that the last append is durable. Needs no room.
    ///
    /// # Panics
    /// Unless the manifest is idle.
    pub fn begin_witness(&mut self) {
        assert!(self.is_idle(), "one append is under way at a time");
        let witness = format::witness(self.region, &self.cursor, self.witness_place);
        self.witness_place = (self.witness_place + 1) % WITNESSES;
        self.work = Work::Writing {
            writes: submit(&self.store, &self.chain, vec![witness]),
            then: Then::Witnessed,
        };
    }

    /// Begins to append `records`, in order. They are committed when [`step`](Self::step) says
    /// that it is done.
    ///
    /// # Errors
    /// [`DeviceError::Full`] when the chain would have to grow and cannot, [`ManifestError::TooLong`]: nothing was
    /// begun.
    ///
    /// # Panics
    /// Unless the manifest is idle.
    pub fn append(&mut self, records: Vec<ManifestRecord>) -> Result<(), ManifestError> {
        assert!(self.is_idle(), "one append is under way at a time");
        records
            .iter()
            .try_for_each(|record| self.check_len(record))?;
        let mut writer = Writer::new(self.region, self.cursor, self.segment_bytes);
        records.iter().for_each(|record| writer.put(record));
        if writer.segments() <= self.chain.len() {
            self.begin_write(writer);
            return Ok(());
        }
        let mut chain = self.chain.clone();
        while chain.len() < writer.segments() {
            chain.push(self.store.allocate(Purpose::Metadata)?);
        }
        let change = self.set_region(&chain, self.cursor.generation());
        self.chain = chain;
        self.work = Work::Growing { change, records };
        Ok(())
    }

    fn check_len(&self, record: &ManifestRecord) -> Result<(), ManifestError> {
        let (bytes, max) = (record.payload_len(), self.record_bytes_max);
        match bytes <= max {
            true => Ok(()),
            false => Err(ManifestError::TooLong {
                region: self.region,
                bytes,
                max,
            }),
        }
    }

    fn begin_write(&mut self, writer: Writer) {
        let (parts, then) = writer.finish();
        self.work = Work::Writing {
            writes: submit(&self.store, &self.chain, parts),
            then: Then::Appended(then),
        };
    }

    fn reached(&mut self, then: Then) -> Moved {
        match then {
            Then::Appended(cursor) => {
                self.cursor = cursor;
                self.is_witnessed = false;
            }
            Then::Witnessed => self.is_witnessed = true,
        }
        Moved::Done
    }

    /// Begins the next generation with `checkpoint`.
    ///
    /// # Errors
    /// [`DeviceError::Full`] when it finds no room, [`ManifestError::TooLong`]: nothing was begun. What is too long is
    /// not [wanted](Self::wants_checkpoint) again before the chain has twice its length.
    ///
    /// # Panics
    /// Unless the manifest is idle.
    pub fn checkpoint(&mut self, checkpoint: &ManifestRecord) -> Result<(), ManifestError> {
        assert!(self.is_idle(), "one append is under way at a time");
        if let Err(error) = self.check_len(checkpoint) {
            self.checkpoint_bytes = self.cursor.bytes(self.segment_bytes);
            return Err(error);
        }
        let cursor = Cursor::new(self.next_generation());
        let mut writer = Writer::new(self.region, cursor, self.segment_bytes);
        writer.put(checkpoint);
        let chain = (0..writer.segments())
            .map(|_| self.store.allocate(Purpose::Metadata))
            .collect::<Result<Vec<_>, _>>()?;
        let (mut parts, cursor) = writer.finish();
        // The device may have something else there.
        parts.push(format::no_witnesses());
        let stage = Stage::Writing(submit(&self.store, &chain, parts));
        self.work = Work::Beginning(Box::new(Generation {
            chain,
            cursor,
            stage,
        }));
        Ok(())
    }

    /// Above all that copies of the region have had on this device, those that are set aside or given up too: each
    /// was named by a change of the catalog, and was not higher than the catalog's own generation then. The device may
    /// not be able to discard what they wrote.
    fn next_generation(&self) -> u64 {
        let own = self.cursor.generation();
        own.max(self.store.catalog_generation()) + 1
    }

    fn set_region(&self, chain: &[SegmentHandle], generation: u64) -> CatalogChange {
        self.store.set_region(RegionEntry {
            region: self.region,
            manifest: chain.iter().map(SegmentHandle::segment).collect(),
            words: [generation, self.shape],
        })
    }

    /// Goes on with what is under way, as far as that is possible without waiting.
    ///
    /// # Errors
    /// The device's, from now on at every call: what is durable is then unknown.
    pub fn step(&mut self) -> Result<Moved, DeviceError> {
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Nothing => Ok(Moved::Idle),
            Work::Failed(error) => self.fail(error),
            Work::Growing { change, records } => match change.poll() {
                None => self.put_back(Work::Growing { change, records }),
                Some(Err(error)) => self.fail(error),
                Some(Ok(())) => {
                    let mut writer = Writer::new(self.region, self.cursor, self.segment_bytes);
                    records.iter().for_each(|record| writer.put(record));
                    self.begin_write(writer);
                    self.step()
                }
            },
            Work::Writing { writes, then } => match ended(&writes) {
                None => self.put_back(Work::Writing { writes, then }),
                Some(Err(error)) => self.fail(error),
                Some(Ok(())) if self.skip_sync => Ok(self.reached(then)),
                Some(Ok(())) => {
                    self.work = Work::Syncing {
                        sync: self.store.sync(),
                        then,
                    };
                    self.step()
                }
            },
            Work::Syncing { sync, then } => match sync.poll() {
                None => self.put_back(Work::Syncing { sync, then }),
                Some(Err(error)) => self.fail(error),
                Some(Ok(())) => Ok(self.reached(then)),
            },
            Work::Beginning(next) => self.step_generation(next),
        }
    }

    fn step_generation(&mut self, mut next: Box<Generation>) -> Result<Moved, DeviceError> {
        loop {
            let result = match &next.stage {
                Stage::Writing(writes) => ended(writes),
                Stage::Syncing(sync) => sync.poll(),
                Stage::Switching(change) => change.poll(),
            };
            match result {
                None => return self.put_back(Work::Beginning(next)),
                Some(Err(error)) => return self.fail(error),
                Some(Ok(())) => {}
            }
            next.stage = match next.stage {
                Stage::Writing(_) => Stage::Syncing(self.store.sync()),
                Stage::Syncing(_) => {
                    let generation = next.cursor.generation();
                    Stage::Switching(self.set_region(&next.chain, generation))
                }
                Stage::Switching(_) => {
                    // The old chain is dropped here: the catalog no longer names it.
                    self.chain = next.chain;
                    self.cursor = next.cursor;
                    (self.is_witnessed, self.witness_place) = (true, 0);
                    self.checkpoint_bytes = next.cursor.bytes(self.segment_bytes);
                    return Ok(Moved::Done);
                }
            };
        }
    }

    fn put_back(&mut self, work: Work) -> Result<Moved, DeviceError> {
        self.work = work;
        Ok(Moved::Waiting)
    }

    fn fail(&mut self, error: DeviceError) -> Result<Moved, DeviceError> {
        self.work = Work::Failed(error.clone());
        Err(error)
    }

    /// Blocks until what is under way has ended. For opening, closing and tools.
    ///
    /// # Errors
    /// As those of [`step`](Self::step) and [`wait_for_device`](Self::wait_for_device).
    pub fn wait(&mut self) -> Result<(), DeviceError> {
        while self.step()? == Moved::Waiting {
            self.wait_for_device()?;
        }
        Ok(())
    }

    /// Blocks until the device has done what the next step waits for. What became of it is for
    /// that step to tell.
    ///
    /// # Errors
    /// Those of [`CatalogChange::wait`]: without room beneath the device, the next step waits for more.
    pub fn wait_for_device(&self) -> Result<(), DeviceError> {
        match &self.work {
            Work::Growing { change, .. } => change.wait()?,
            Work::Writing { writes, .. } => wait_all(&self.store, writes),
            Work::Syncing { sync, .. } => wait_all(&self.store, [sync]),
            Work::Beginning(next) => match &next.stage {
                Stage::Writing(writes) => wait_all(&self.store, writes),
                Stage::Syncing(sync) => wait_all(&self.store, [sync]),
                Stage::Switching(change) => change.wait()?,
            },
            Work::Nothing | Work::Failed(_) => {}
        }
        Ok(())
    }
}

/// Begins to write each part into the segment of the chain that it belongs to.
fn submit(store: &Store, chain: &[SegmentHandle], parts: Vec<format::Part>) -> Vec<Ticket> {
    let begin = |part: format::Part| {
        let data = Arc::new(Buffer::from_slice(&part.bytes));
        let range = 0..part.bytes.len();
        debug_assert!(range.end.is_multiple_of(BLOCK_SIZE), "whole blocks");
        store.submit_write(chain[part.segment].segment(), part.offset, data, range)
    };
    parts.into_iter().map(begin).collect()
}

/// How all of `tickets` ended: `None` while one has not.
fn ended(tickets: &[Ticket]) -> Option<Result<(), DeviceError>> {
    let ends: Option<Vec<_>> = tickets.iter().map(Ticket::poll).collect();
    ends.map(|ends| ends.into_iter().collect())
}

/// Waits for all of `tickets`, however they end.
fn wait_all<'a>(store: &Store, tickets: impl IntoIterator<Item = &'a Ticket>) {
    for ticket in tickets {
        let _ = store.wait(ticket);
    }
}

#[cfg(test)]
pub(crate) mod tests;
