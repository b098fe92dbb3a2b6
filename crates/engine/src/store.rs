//! The contract of an engine: what a region can be asked, and how it is kept moving.

use std::sync::Arc;

use argosy_base::{Direction, EditSeq, Instant, KeyRange, Lsn, Moment};
use argosy_device::Room;

use crate::batch::WriteBatch;
use crate::bulk_load::{BulkLoadError, Taken, Ticket};
use crate::stats::{PinnedBySnapshots, Stats};
use crate::stored::Stored;
use crate::windows::Windows;
use crate::{
    EngineError, Follower, Found, NotDemoted, Outline, Progress, Reach, Snapshot, Wanted,
    WriteOptions, Written,
};

/// What a store can do beyond reads and writes of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Most bytes of key and value of a pair that [`bulk_load`](Store::bulk_load) takes. `None`: it takes none,
    /// and sorted pairs have to be written as a batch.
    pub bulk_load_pair_bytes_max: Option<usize>,
}

/// One region's storage. All methods may be called from any thread.
pub trait Store: Send + Sync {
    /// The newest value of `key`, committed or not: the caller answers once [`Found::wait`] is
    /// over. Within [`Reach::Device`] it may block its thread for a device read.
    ///
    /// # Errors
    /// [`EngineError::NotInMemory`] within [`Reach::Memory`] alone: from an engine that cannot tell, always.
    fn get_within(&self, key: &[u8], reach: Reach) -> Result<Found, EngineError> {
        let found = self.get_some(&[key], Wanted::Values(usize::MAX), reach)?;
        Ok(found.into_iter().next().expect("one was asked for"))
    }

    /// [`get_within`](Self::get_within) reach of the device.
    ///
    /// # Errors
    /// As [`get_within`](Self::get_within)'s.
    fn get(&self, key: &[u8]) -> Result<Found, EngineError> {
        self.get_within(key, Reach::Device)
    }

    /// [`get`](Self::get) of each of `keys`, in their order, as of one moment. An engine that is able to asks the
    /// device for all that it needs together.
    ///
    /// # Errors
    /// As [`get_within`](Self::get_within)'s, of any of them.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Found>, EngineError> {
        self.get_some(keys, Wanted::Values(usize::MAX), Reach::Device)
    }

    /// What is `wanted` of the first of `keys`, as [`get_many`](Self::get_many) has it.
    ///
    /// # Errors
    /// As [`get_within`](Self::get_within)'s, of any of them.
    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
        reach: Reach,
    ) -> Result<Vec<Found>, EngineError>;

    /// What is known of `key` without its value, which is not read where it lies apart.
    ///
    /// # Errors
    /// As [`get_within`](Self::get_within)'s.
    fn outline(&self, key: &[u8], reach: Reach) -> Result<Outline, EngineError> {
        self.get_within(key, reach).map(Outline::from)
    }

    /// Appends `batch` to the log and makes it visible to [`get`](Self::get). Returns at once;
    /// when it is committed is for the driver to find out. Writes of one region are serialised. Within
    /// [`Reach::Device`] it may block its thread for a device read, where a condition or the answer depends on what
    /// the keys are bound to.
    ///
    /// # Errors
    /// Whatever the error, nothing of `batch` was written: all that can fail comes before.
    /// [`EngineError::NotInMemory`] as [`get_within`](Self::get_within).
    fn write_within(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        reach: Reach,
    ) -> Result<Written, EngineError>;

    /// [`write_within`](Self::write_within) reach of the device.
    ///
    /// # Errors
    /// As [`write_within`](Self::write_within)'s.
    fn write(&self, batch: &WriteBatch, options: WriteOptions) -> Result<Written, EngineError> {
        self.write_within(batch, options, Reach::Device)
    }

    /// A view of everything up to the commit LSN.
    fn snapshot(&self) -> Box<dyn Snapshot>;

    /// A view of everything that was appended. Answers from it wait for [`Snapshot::wait`].
    fn snapshot_of_all(&self) -> Box<dyn Snapshot>;

    /// What `snapshots` of this region pin that the region itself no longer needs.
    fn pinned_by(&self, snapshots: &[Arc<dyn Snapshot>]) -> PinnedBySnapshots {
        let _ = snapshots;
        PinnedBySnapshots::default()
    }

    /// Whether no key of `range` is bound, by what is visible.
    ///
    /// # Errors
    /// Those of a scan.
    fn is_unbound(&self, range: &KeyRange) -> Result<bool, EngineError> {
        let snapshot = self.snapshot_of_all();
        let mut scan = snapshot.scan(range, Direction::Up)?;
        Ok(scan.next()?.is_none())
    }

    /// An estimate of the number of keys.
    fn count_estimate(&self) -> u64;

    /// The highest LSN appended.
    fn last_lsn(&self) -> Lsn;

    /// The commit LSN as the engine knows it.
    fn committed_lsn(&self) -> Lsn;

    /// Raises the commit LSN. Without an observer the engine does this by itself.
    fn commit(&self, lsn: Lsn);

    /// The highest LSN up to which everything is durable on every member.
    fn durable_lsn(&self) -> Lsn;

    /// The highest LSN of which a mark on the device says that everything up to it is durable on every member; not
    /// above [`durable_lsn`](Self::durable_lsn). A damaged record up to there is recognised as damaged when the logs
    /// are read. A damaged record behind it may look like one that was never written.
    fn marked_lsn(&self) -> Lsn {
        self.durable_lsn()
    }

    /// The last edit that is durable here.
    fn edit(&self) -> EditSeq {
        EditSeq(0)
    }

    /// Whether every member has applied `edit`.
    fn is_everywhere(&self, edit: EditSeq) -> bool {
        let _ = edit;
        true
    }

    /// The region's time: what its clock shows, but never less than what was once told of, here or on an
    /// earlier primary. A pair whose expiry it has reached is not there any more.
    fn time(&self) -> Moment;

    /// Advances the TTL clock, which is the region's time, to what the clock shows, for readers who want to see that.
    /// Returns whether it is there: it stands still where nothing expires, or where there is no room for it.
    fn advance_ttl_clock(&self) -> bool {
        false
    }

    /// Does a bounded piece of background work: flushes, compaction, manifest. An error is final:
    /// the engine takes no more writes.
    fn step(&self, now: Instant) -> Result<Progress, EngineError>;

    /// Does the part of [`step`](Self::step) that makes logs durable. Another thread than that which calls
    /// [`step`](Self::step) may call it, so that no merge holds a write up. From the first call on this part is left to
    /// whoever calls it: both are called then whenever the waker rings, and `step` again when this has done something.
    ///
    /// # Errors
    /// As [`step`](Self::step)'s.
    fn step_logs(&self, now: Instant) -> Result<Progress, EngineError> {
        let _ = now;
        Ok(Progress::default())
    }

    /// Background work that is left: memtables to flush, compactions, edits under way, writes that
    /// are not committed. 0 once the region has come to rest, as of the last step.
    fn background_pending(&self) -> usize;

    /// Has the next step make everything durable that was appended before.
    fn flush_now(&self);

    /// Has the next steps make everything durable that was appended before, and then say so on the device:
    /// [`marked_lsn`](Self::marked_lsn) advances to the last LSN.
    fn flush_and_mark(&self) {
        self.flush_now();
    }

    /// Others wait for the memory of the windows: has the next steps make all of the logs durable and say so, whereupon
    /// the windows rest. Until then whoever writes is sent away ([`BusyReason::LogWindows`]). Or, where `soon` is
    /// false, takes that back.
    ///
    /// [`BusyReason::LogWindows`]: crate::BusyReason::LogWindows
    fn rest_soon(&self, soon: bool) {
        let _ = soon;
    }

    /// Has the next steps write the newest pairs, which are in memory and in a log only, into the levels. Returns
    /// whether they will.
    fn freeze_now(&self) -> bool {
        false
    }

    /// Requests a full compaction: the next steps merge everything into one level. Returns the number of this
    /// request: those of an engine rise.
    fn compact_now(&self) -> u64 {
        0
    }

    /// The edit with which the [request](Self::compact_now) of this number was done, or a later one; `None`
    /// where it is not done yet.
    fn compacted(&self, number: u64) -> Option<EditSeq> {
        let _ = number;
        Some(self.edit())
    }

    /// What it can do beyond reads and writes of keys.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Has the background bulk-load `pairs`, whose keys rise, all of them or none.
    /// [`bulk_loads_ended`](Self::bulk_loads_ended) returns the result. Nothing is written to a log.
    ///
    /// # Errors
    /// Nothing of it will be loaded. [`EngineError::Busy`] while too many bytes wait;
    /// [`EngineError::Unsupported`] where the [capabilities](Self::capabilities) exclude it.
    fn bulk_load(&self, pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Ticket, BulkLoadError> {
        let _ = pairs;
        Err(EngineError::Unsupported("this engine has no bulk load").into())
    }

    /// Parts that have come to an end since the last call.
    fn bulk_loads_ended(&self) -> Vec<(Ticket, Taken)> {
        Vec::new()
    }

    /// Withdraws a part. Returns whether nothing of it was begun: then nothing ever will be.
    fn take_back(&self, ticket: Ticket) -> bool {
        let _ = ticket;
        false
    }

    /// The least room that the devices of the other members have: where one is full, so is the
    /// region.
    fn set_members_room(&self, room: Option<Room>) {
        let _ = room;
    }

    /// What is done at present about a device that is full, in words for a report.
    fn space_in_words(&self) -> String {
        String::new()
    }

    /// What the engine has done and holds. An engine that does not count says 0 to everything.
    fn stats(&self) -> Stats {
        Stats::default()
    }

    /// What the copy consists of now.
    fn stored(&self) -> Arc<dyn Stored>;

    /// Makes everything durable that was written, and takes no more writes. Blocks. Background
    /// work that is under way is given up: reopening begins it again.
    ///
    /// # Errors
    /// As the device's. What was acknowledged is then as safe as after a kill.
    fn close(&self) -> Result<(), EngineError>;

    /// Becomes a passive copy, as [`Engine::open`](crate::Engine::open) would make it of the same device and windows,
    /// without reading levels again. The caller has fenced writes; `fresh` is as for [`Follower::detach`]. Blocks.
    ///
    /// Work under way is waited for, or given up as a crash gives it up: nothing of it has been told to anybody.
    /// Records that only memtables and windows have stay in the log, up to where the next primary cuts it.
    ///
    /// From the call on, everything that would read, write or step is refused ([`EngineError::NotServing`]), and so is
    /// the next use of each snapshot and scan that is held. What these see stays on the device until they are dropped
    /// (I1). Tickets of pairs that were to be ingested are not told any more.
    ///
    /// # Errors
    /// The device's; damage to the logs. The store has ended all the same.
    fn demote(self: Arc<Self>, fresh: Windows) -> Result<Box<dyn Follower>, Box<NotDemoted>> {
        let _ = fresh;
        let error = EngineError::Unsupported("stores of this engine do not become copies again");
        Err(Box::new(NotDemoted {
            error: error.into(),
            left: None,
        }))
    }
}
