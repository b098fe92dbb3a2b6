//! The passive copy of a region: what a backup keeps, and what every copy is before it serves.
//!
//! A follower takes what the primary sends and decides nothing by itself. Its life:
//!
//! 1. [`Engine::open`](crate::Engine::open) reads what is durable. It finds the ends of the logs in the windows that
//!    an earlier process left.
//! 2. [`Follower::position`] states that. To catch up, the copy gets a checkpoint, or edits:
//!    [`missing`](Follower::missing) names the parts of segments that it lacks, [`put_part`](Follower::put_part) takes
//!    them, and [`submit`](Follower::submit) applies the edit.
//! 3. From then on the primary writes log bytes straight to the windows. [`flush`](Follower::flush) makes ranges of
//!    them durable. Edits come in order; finished segments may come ahead of their edit ([`put`](Follower::put)).
//!    [`step`](Follower::step) returns what has been done.
//! 4. To take the windows back, the server revokes the memory and calls [`detach`](Follower::detach).
//! 5. [`promote`](Follower::promote) makes it a store that serves, and [`Store::demote`](crate::Store::demote) such a
//!    store a copy again. What it has then may have branched off from what the group goes on with: a checkpoint of the
//!    next primary replaces it, and only what is not here already is missing.
//!
//! It is also a source for other members: [`checkpoint`](Follower::checkpoint) and [`read`](Follower::read).
//!
//! An edit is applied only when everything that it names is durable here (I3), and it is durable itself before
//! [`CopyEvent::EditApplied`].

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{
    AddressMode, DeviceSegment, EditSeq, FlushRange, Instant, Lsn, Position, RegionId,
    SegmentNumber, SegmentPart, ServerId, Standing,
};
use argosy_device::{Buffer, Waker};

use crate::damage::DamagedSegment;
use crate::set_aside::SetAside;
use crate::shipment::{Rewritten, Shipment};
use crate::stats::Stats;
use crate::stored::Stored;
use crate::windows::Windows;
use crate::{
    Checkpoint, CopyError, EngineError, NotPromoted, Promoted, Promotion, Service, Snapshot,
};

/// Something that a copy has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyEvent {
    /// All bytes of a segment that was put have reached the device. They need not be durable.
    SegmentStored(SegmentNumber),
    /// The edit is durable, and the copy consists of what it states.
    EditApplied(EditSeq),
    /// The range is durable.
    Flushed(FlushRange),
    /// The windows do not hold this range. The member that asked for the flush is at fault, or a detach came first.
    /// Begin anew with that member.
    FlushRefused(FlushRange),
}

/// A passive copy of a region. See the module documentation. One thread uses it at a time.
pub trait Follower: Send {
    /// The region.
    fn region(&self) -> RegionId;

    /// What the copy is certain to hold; never [`Standing::Whole`].
    fn standing(&self) -> Standing;

    /// Takes note that the copy holds everything that was acknowledged. Later steps make that durable.
    fn become_ordinary(&mut self);

    /// Takes note that the copy, of no member, is being filled from now on ([`Standing::Filling`]), durable on return:
    /// what others declare durable may come before it is here. Nothing for one that is begun anew or was put back.
    /// Before a [`detach`](Self::detach), as that finds where the logs end. Blocks.
    ///
    /// # Errors
    /// The device's; where it is full, call it again.
    fn begin_filling(&mut self) -> Result<(), CopyError>;

    /// The last edit of the group that it has applied.
    fn edit(&self) -> EditSeq {
        self.position().edit
    }

    /// Where the copy stands, as it is reported to the primary. The edit is 0 where the copy has to begin with a
    /// checkpoint. The ends of the logs are those that were found when the copy was opened or detached, or had applied
    /// a checkpoint: what the primary has written to the windows since then is not included.
    fn position(&self) -> Position;

    /// The windows, as the primary writes them.
    fn windows(&self) -> Windows;

    /// Changes over to `fresh` windows, zero memory, or none where none is
    /// [needed](crate::Engine::needs_memory), after the caller has revoked the old ones: finds where the logs
    /// end, and copies what is not durable into the fresh windows. An edit under way is finished first, and only the
    /// returned position tells of it. Flushes that wait are forgotten. Blocks.
    ///
    /// # Errors
    /// Damage to what was durable of the logs; the device's.
    ///
    /// # Panics
    /// When the windows are not those of the engine's [logs](crate::Engine::logs).
    fn detach(&mut self, fresh: Windows) -> Result<Position, CopyError>;

    /// Carries edits, flushes and writes on as far as that is possible without waiting. Returns what has been done
    /// since the last call.
    ///
    /// # Errors
    /// The device's; damage to the logs after a checkpoint. The copy is then of no more use: open it again.
    fn step(&mut self) -> Result<Vec<CopyEvent>, CopyError>;

    /// Has later steps make `range` of the windows durable. The primary's writes of it have completed.
    /// [`CopyEvent::FlushRefused`] for a log that the engine does not have.
    fn flush(&mut self, range: FlushRange);

    /// Whether nothing of it is under way: a later [`step`](Self::step) does nothing of its own accord.
    fn is_idle(&self) -> bool;

    /// Gives the memory of the windows back, where everything in them is durable here. Nobody writes to them before
    /// [`wake`](Self::wake). Returns whether it did.
    fn rest(&mut self) -> bool {
        false
    }

    /// Whether the windows have no memory.
    fn is_at_rest(&self) -> bool {
        false
    }

    /// Whether windows at rest lack what lies in front of the end of the log in its window: the copy was opened or
    /// detached while they had no memory. The device has it.
    fn is_bare(&self) -> bool {
        false
    }

    /// Takes memory for the windows again. They are empty, but that what they [lack](Self::is_bare) is read from the
    /// device. That blocks.
    ///
    /// # Errors
    /// [`CopyError::Windows`] where there is none: call it again. The device's.
    fn wake(&mut self) -> Result<(), CopyError> {
        Ok(())
    }

    /// What has to be [put](Self::put_part) here before `edit`, the next edit or a checkpoint, can be submitted.
    /// Nothing where the edits of an engine have all that a copy needs.
    ///
    /// # Errors
    /// The bytes are no edit.
    fn missing(&mut self, edit: &[u8]) -> Result<Vec<SegmentPart>, CopyError> {
        let _ = edit;
        Ok(Vec::new())
    }

    /// Takes part of a segment, from byte `from` on, that [`missing`](Self::missing) has named.
    ///
    /// # Errors
    /// [`CopyError::Unplaced`]: put the other segment first, and examine the edit again. [`CopyError::Gone`]: the
    /// member that sent it has a newer version; ask for a checkpoint. [`CopyError::Damaged`],
    /// [`CopyError::Refused`]; the device's, above all that it is full: put it again later.
    fn put_part(
        &mut self,
        number: SegmentNumber,
        from: u32,
        bytes: &Arc<Buffer>,
    ) -> Result<(), CopyError> {
        let _ = (from, bytes);
        let what = "this part was not asked for";
        Err(CopyError::Refused { number, what })
    }

    /// Begins to apply `edit`, the next edit or a checkpoint. [`CopyEvent::EditApplied`] tells its end.
    ///
    /// # Errors
    /// [`CopyError::Missing`] when it names something that is not here; [`CopyError::Engine`] when it does not fit;
    /// the device's, above all that it is full. Nothing was begun then.
    fn submit(&mut self, edit: &[u8]) -> Result<EditSeq, CopyError>;

    /// [`submit`](Self::submit) of a checkpoint of a backup, which the copy of a primary that opens adopts. Another
    /// backup may have more of the block in which a log ends here, and it can be adopted from there afterwards.
    ///
    /// # Errors
    /// As [`submit`](Self::submit)'s.
    fn submit_adopted(&mut self, edit: &[u8]) -> Result<EditSeq, CopyError> {
        self.submit(edit)
    }

    /// The copy's state and the ends of its logs, for another member to start from. With the parts that
    /// [`read`](Self::read) returns, that member then has the same history.
    fn checkpoint(&self) -> Checkpoint;

    /// The checkpoint with which this copy comes to hold what another member has whose checkpoint is `theirs`. It is
    /// `theirs`, unless this copy has a later edit: then it is this copy's own, with the ends of the logs that `theirs`
    /// states.
    ///
    /// # Errors
    /// The bytes are no checkpoint.
    fn adopt(&self, theirs: Vec<u8>) -> Result<Vec<u8>, CopyError>;

    /// Reads part of a segment, whole blocks, in the form in which it goes to other members. Behind the end of a log
    /// the bytes are zero.
    ///
    /// # Errors
    /// [`CopyError::Gone`] when the segment is not here, or not so far; damage; the device's.
    fn read(&self, part: SegmentPart) -> Result<Buffer, CopyError> {
        let SegmentPart { number, to, .. } = part;
        Err(CopyError::Gone { number, to })
    }

    /// What the copy consists of now.
    fn stored(&self) -> Arc<dyn Stored>;

    /// What takes space here, in words for a report.
    fn space_in_words(&self) -> String {
        String::new()
    }

    /// Takes memory for what [`promote`](Self::promote) rebuilds from the logs. Promotions of many regions at one time
    /// might take more than the server has, so they take turns, in the order in which they ask. Returns `None` once it
    /// has the memory, which it then keeps, and otherwise for how long to wait: ask again after that, or when `waker`
    /// is called. Whoever does not ask may be promoted at any time.
    fn take_memory(&mut self, now: Instant, waker: &Waker) -> Option<Duration> {
        let _ = (now, waker);
        None
    }

    /// Becomes a store that serves, with all records that were found in logs and windows, up to the first that is
    /// missing. Blocks.
    ///
    /// # Errors
    /// Damage to the logs; the device's. The error has what is kept of a damaged copy.
    fn promote(self: Box<Self>, service: Service) -> Result<Promoted, Box<NotPromoted>>;

    /// Starts a [promotion](Self::promote), and returns before its writes are durable: so one sync of the device serves
    /// many promotions. Blocks while it reads.
    ///
    /// # Errors
    /// As [`promote`](Self::promote).
    fn begin_promotion(self: Box<Self>, service: Service) -> Result<Promotion, Box<NotPromoted>> {
        self.promote(service).map(Promotion::Done)
    }

    /// Closes a damaged copy and returns what is kept of it; `None` where the catalog does not name the region.
    fn set_aside(self: Box<Self>) -> Option<SetAside>;

    // What follows concerns engines whose primaries ship finished segments ahead of their edits.

    /// Turns the pointers of `shipment`, which was [checked](Shipment::check), from the sender's places to this
    /// member's. An engine whose pointers hold segment numbers does nothing here.
    ///
    /// # Errors
    /// [`CopyError::Unplaced`] when it points to a segment that is not known here: it can be fetched once an edit
    /// names it. [`CopyError::Damaged`] when it is no segment of a level.
    fn rewrite(&mut self, shipment: &mut Shipment) -> Result<(), CopyError> {
        let _ = shipment;
        Ok(())
    }

    /// Begins to write a finished segment, which was [checked](Shipment::check) and [rewritten](Self::rewrite).
    /// [`CopyEvent::SegmentStored`] tells its end. A segment that is here already counts as the same one.
    ///
    /// # Errors
    /// [`CopyError::Damaged`], [`CopyError::Refused`]; the device's, above all that it is full. An edit that names
    /// the segment has it fetched.
    fn put(&mut self, shipment: Shipment) -> Result<(), CopyError> {
        Err(CopyError::Refused {
            number: shipment.number,
            what: "copies of this engine take no segments ahead of their edit",
        })
    }

    /// Takes note of the places at which the primary has these segments.
    fn learn_places(&mut self, places: &[(SegmentNumber, DeviceSegment)]) {
        let _ = places;
    }

    /// What pointers inside segments hold.
    fn addresses(&self) -> AddressMode {
        AddressMode::Logical
    }

    /// What was rewritten since the last call.
    fn take_rewritten(&mut self) -> Rewritten {
        Rewritten::default()
    }

    /// Whether it holds segments that arrived ahead of their edit and that the edit examined last does not name.
    fn holds_unnamed(&self) -> bool {
        false
    }

    /// Frees those segments: the primary may have given up the work that they belong to. An edit that names one after
    /// all has it fetched.
    fn forget_unnamed(&mut self) {}

    /// Takes note that a checkpoint comes: segments that have arrived by now and that it does not name are freed when
    /// it is applied.
    fn expect_checkpoint(&mut self) {}

    /// Frees the segments that had arrived at the last [`expect_checkpoint`](Self::expect_checkpoint).
    fn give_up_arrivals(&mut self) {}

    // What follows concerns copies that build levels of their own: see `CopyOf::own_levels`.

    /// Whether it builds levels of its own.
    fn builds_levels(&self) -> bool {
        false
    }

    /// Builds levels of its own from now on, and numbers their segments as `server`: a copy that was the primary's
    /// until now. Nothing where it does already, or to an engine without levels. Blocks.
    ///
    /// # Errors
    /// Those of the logs, when what was durable is damaged; the device's.
    fn build_levels(&mut self, server: ServerId) -> Result<(), CopyError> {
        let _ = server;
        Ok(())
    }

    /// Whether levels are being built, and building can continue without news from the primary.
    fn is_building(&self) -> bool {
        false
    }

    /// Whether there is work for [`build`](Self::build) that was not there at the last call.
    fn take_work(&mut self) -> bool {
        false
    }

    /// Does a bounded piece of building levels. Returns whether it did anything. May block for reads.
    ///
    /// # Errors
    /// The device's, final; damage to levels.
    fn build(&mut self, now: Instant) -> Result<bool, EngineError> {
        let _ = now;
        Ok(false)
    }

    /// Takes note that everything up to `lsn` is committed.
    fn commit(&mut self, lsn: Lsn) {
        let _ = lsn;
    }

    /// Requests a full compaction: later builds merge everything up to `upto` into one level.
    fn compact(&mut self, upto: Lsn) {
        let _ = upto;
    }

    /// The last LSN of what was merged for [`compact`](Self::compact), if that has ended since the last call.
    fn take_compacted(&mut self) -> Option<Lsn> {
        None
    }

    /// A damaged segment of the levels that no other member has.
    fn damaged_only_here(&self) -> Option<DamagedSegment> {
        None
    }

    /// What was built here; `None` where nothing is built.
    fn stats(&self) -> Option<Stats> {
        None
    }

    /// What a reader would see here, for tests and tools that compare members; `None` where nothing is built.
    fn snapshot(&self) -> Option<Box<dyn Snapshot>> {
        None
    }
}
