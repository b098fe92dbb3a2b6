//! Planted mistakes of a node: of what it answers, of windows, of links, and of what arrives.

use super::context::Context;
use super::follower::Follower;

argosy_base::mutants! {
    /// Mistakes that the simulator plants to show that its checkers find them. All off otherwise.
    pub struct Mutants {
        /// A read is answered although what it shows is not committed (breaks I5).
        read_uncommitted,
        /// A failed condition is answered although the write that made it fail is not committed (breaks I5).
        fail_uncommitted,
        /// Reads of a snapshot show what is committed by now.
        snapshot_of_now,
        /// A backup that is prepared keeps its windows, and whoever wrote to them may go on (breaks I6).
        keep_grant,
        /// A primary goes on with a backup's windows where it was when their link broke (breaks I4, I6).
        keep_attachment,
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
        /// A damaged segment counts as repaired once bytes of it have come, which are not written (breaks I2).
        claim_repair,
        /// The memory of an edit that arrives is not given back when its link breaks (breaks I9).
        keep_share,
        /// Messages are written without ringing for whoever is to read them.
        forget_ring,
        /// A server opens whatever device it finds. Asked by whoever starts a node on a device.
        take_any_device,
    }
}

impl Follower {
    /// Where that is planted: finds where the log ends, in windows to which their writer goes on writing.
    pub(super) fn keeps_grant(&mut self, context: &Context<'_>) -> bool {
        let offered = || self.replica.windows()[0][0].access() != 0;
        let keeps = context.node.settings.mutants.keep_grant() && offered();
        let same = self.replica.windows().clone();
        keeps && self.replica.detach(same).is_ok()
    }
}
