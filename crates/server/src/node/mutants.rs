//! Planted mistakes of a node: of what it answers, of windows, of links, and of what arrives.

use argosy_engine::{Reach, WriteBatch};

use super::region::{Region, engine_of};
use crate::service::{Request, Response};

argosy_base::mutants! {
    /// Mistakes that the simulator plants to show that its checkers find them. All off otherwise.
    pub struct Mutants {
        /// A read is answered although what it shows is not committed (breaks I5).
        read_uncommitted,
        /// A failed condition is answered although the write that made it fail is not committed (breaks I5).
        fail_uncommitted,
        /// Reads of a snapshot show what is committed by now.
        snapshot_of_now,
        /// A read that finds its key in memory is answered although what it shows is not committed (breaks I5).
        hit_uncommitted,
        /// A page of a scan is answered although what it shows is not committed (breaks I5).
        page_uncommitted,
        /// A snapshot is opened although less is known to be committed than was once acknowledged (breaks I5).
        snapshot_uncommitted,
        /// The number of keys is answered although some are not committed (breaks I5).
        count_uncommitted,
        /// A batch is written whatever has become of what it was computed on: transactions overwrite each other.
        skip_validation,
        /// A read that another server has passed on is answered although what it shows is not committed (breaks I5).
        forward_uncommitted,
        /// Pairs are not bulk-loaded because of a key that is not committed, and that is answered (breaks I5).
        bulk_load_uncommitted,
        /// Where writes are synced, one is acknowledged once all members hold it, on their devices or not (breaks I7).
        acknowledge_unsynced,
        /// A flush that was asked for is answered before anything is durable (breaks I7).
        flush_early,
        /// A backup that is prepared keeps its windows, and whoever wrote to them may go on (breaks I6).
        keep_grant,
        /// A primary goes on with a backup's windows where it was when their link broke (breaks I4, I6).
        keep_attachment,
        /// A backup's windows are connected to with the descriptors of its first report, whatever it grants later: no
        /// later attempt succeeds.
        use_earlier_grant,
        /// A message of another epoch keeps the landing slot that it is about (breaks I9: no link has more of them).
        keep_declined,
        /// Inbox and landing slots stay the same when a peer begins a new session.
        keep_link_memory,
        /// Segments are taken as they were shipped, whatever their checksum (breaks I2).
        trust_shipments,
        /// What follows of an edit that is longer than a message is sent without being asked for: a backup that keeps
        /// to what it asked for never catches up.
        send_unasked,
        /// A copy that fails neither says so nor gives landing slots back, which other regions of the same two servers
        /// need.
        fail_silently,
        /// However much waits for a peer, a link takes more (breaks I9).
        unbounded_backlog,
        /// A request is sent to a server that shows no sign of life, and it is told that nothing was applied.
        refuse_what_was_sent,
        /// A write whose link breaks is sent again, though it may have been applied.
        send_lost_again,
        /// A write that was refused is sent again, though a later one was done meanwhile.
        send_after_later,
        /// A damaged segment counts as repaired once bytes of it have come, which are not written (breaks I2).
        claim_repair,
        /// The memory of an edit that arrives is not given back when its link breaks (breaks I9).
        keep_share,
        /// The permit of a region whose windows rest does not come back: others that need one wait in vain.
        keep_permit,
        /// Windows that a primary was let write to count as fresh: what it wrote is not looked at (breaks I6).
        trust_fresh,
        /// Messages are written without ringing for whoever is to read them.
        forget_ring,
        /// A server stays what it is to its regions, whatever it hears of them (breaks I6).
        keep_view,
        /// The thread that moves links reads the device for what a peer passes on, and holds the links up.
        read_on_fabric,
        /// An answer is given without a look at the clock, however long ago the leases have run out (breaks I4, I5).
        bypass_lease,
        /// The same, of values, versions and expiries.
        bypass_lease_of_values,
        /// The same, of what is found in memory.
        bypass_lease_of_hits,
        /// The same, of conditions that failed.
        bypass_lease_of_conditions,
        /// The same, of pages of a scan.
        bypass_lease_of_pages,
        /// The same, of snapshots.
        bypass_lease_of_snapshots,
        /// The same, of the number of keys.
        bypass_lease_of_counts,
        /// The same, of what bulk loads are answered.
        bypass_lease_of_bulk_loads,
        /// The gate takes the time at which the last step began: a request may have come after it (breaks I5).
        stale_clock,
        /// A new primary does not wait for the lease that it has granted to the one before (breaks I5).
        serve_before_lease,
        /// What another server passes on under an epoch that is over is answered (breaks I5).
        answer_old_epoch,
        /// A server opens whatever device it finds. Asked by whoever starts a node on a device.
        take_any_device,
    }
}

impl Mutants {
    /// Where that is planted: `batch` without what it was computed on.
    pub(super) fn unseeing(&self, batch: &WriteBatch) -> Option<WriteBatch> {
        let planted = self.skip_validation() && batch.seen().len() > 0 && !batch.is_empty();
        planted.then(|| {
            let mut blind = WriteBatch::new();
            for op in batch.ops() {
                blind
                    .add_any(&op)
                    .expect("part of a batch that is within the limits");
            }
            blind
        })
    }

    /// Where that is planted: what a peer has passed on of a read, as it is now.
    pub(super) fn passes_early(&self, region: &Region, request: Request<'_>) -> Option<Response> {
        let engine = engine_of(region).filter(|_| self.forward_uncommitted())?;
        let Request::Get { key } = request else {
            return None;
        };
        let found = engine.get_within(key, Reach::Device).ok()?;
        Some(Response::Value(found.value))
    }
}
