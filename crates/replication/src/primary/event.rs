//! What a primary hears, and what it has its driver do.

use argosy_base::{EditSeq, FlushRange, LogId, Lsn, Position, SegmentNumber, ServerId, Standing};

use super::members::Group;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The group is another one, under a new epoch of the same promotion. What members that stay were sent goes on:
    /// whoever has the links begin anew tells that, too.
    Group {
        /// The group from now on.
        group: Group,
    },
    /// No earlier primary holds a lease any more that this server has granted.
    LeaseOver,
    /// A link to `member` was established; whatever was sent over an earlier one may be lost.
    LinkUp {
        /// The backup.
        member: ServerId,
    },
    /// The link to `member` is gone, or one of its windows was revoked.
    LinkDown {
        /// The backup.
        member: ServerId,
    },
    /// `member` revoked its windows and stands at `position`.
    Report {
        /// The backup.
        member: ServerId,
        /// Which [`Action::Prepare`] this answers.
        attempt: u64,
        /// Where it stands.
        position: Position,
        /// What it is certain to hold.
        standing: Standing,
    },
    /// Before the region is open: the primary's own copy has turned out to be too damaged to be used.
    OwnDamaged,
    /// The primary's own copy was set aside and begun anew, and stands at this position.
    Refilled {
        /// Where the primary's own copy stands.
        position: Position,
    },
    /// While opening: the primary's own copy now stands at this position.
    Adopted {
        /// Where the primary's own copy stands.
        position: Position,
    },
    /// The primary is promoted: its log goes on behind `position`, and it takes writes.
    Opened {
        /// Where the primary's own copy stands.
        position: Position,
    },
    /// `member` holds the checkpoint that it was offered and every log byte below its `position`.
    CaughtUp {
        /// The backup.
        member: ServerId,
        /// Which [`Action::Prepare`] its windows date from.
        attempt: u64,
        /// Where it stands.
        position: Position,
    },
    /// Something was appended to the own log, up to LSN `last`.
    Appended {
        /// The highest LSN.
        last: Lsn,
    },
    /// All bytes up to LSN `last` are being written to `member`, as ship number `ship`.
    Shipped {
        /// The backup.
        member: ServerId,
        /// Rises from ship to ship of one member.
        ship: u64,
        /// The highest LSN in this or an earlier ship.
        last: Lsn,
    },
    /// All writes of all ships up to `ship` are in `member`'s memory.
    Written {
        /// The backup.
        member: ServerId,
        /// The ship.
        ship: u64,
    },
    /// The primary has begun to flush `range`. Comes before the ship that covers it, or at the
    /// latest together with it: the next ship of each member covers the range.
    Flush {
        /// What is flushed.
        range: FlushRange,
    },
    /// `member` has `range` durable.
    Flushed {
        /// The backup.
        member: ServerId,
        /// Under which attempt it was asked.
        attempt: u64,
        /// What it was asked to flush.
        range: FlushRange,
    },
    /// The primary's logs rest: every member has all that was appended durable, with marks that say so.
    LogsRest,
    /// There is something to be written to `member`'s windows, which are not awake.
    Wanted {
        /// The backup.
        member: ServerId,
    },
    /// `member`'s windows have memory again.
    Awake {
        /// The backup.
        member: ServerId,
        /// Which [`Action::Prepare`] its windows date from.
        attempt: u64,
    },
    /// The primary's store has come to `seq`. Edits up to it are told later, when what they name is with the members. A
    /// checkpoint that was offered may hold them already.
    StoreAt {
        /// The last edit.
        seq: EditSeq,
    },
    /// Edit `seq` is durable on the primary.
    EditCommitted {
        /// The edit.
        seq: EditSeq,
    },
    /// `member` has applied every edit up to `seq`.
    EditApplied {
        /// The backup.
        member: ServerId,
        /// Under which attempt it was sent.
        attempt: u64,
        /// The edit.
        seq: EditSeq,
    },
    /// What `member`'s copy of the log lacks behind its position is in the primary's windows no
    /// more.
    TooFarBehind {
        /// The backup.
        member: ServerId,
    },
    /// `member` cannot have what an edit names any more and needs a new checkpoint.
    CheckpointWanted {
        /// The backup.
        member: ServerId,
        /// Which [`Action::Prepare`] it belongs to.
        attempt: u64,
    },
    /// `member`'s copy has failed: it has revoked its windows and follows no more.
    Failed {
        /// The backup.
        member: ServerId,
        /// Which [`Action::Prepare`] it belongs to, or answers.
        attempt: u64,
        /// What is stored there is damaged, and the member can refill its copy.
        damaged: bool,
    },
}

/// What the driver has to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask `member` to revoke its windows and to report.
    Prepare {
        /// The backup.
        member: ServerId,
        /// To be repeated in the report.
        attempt: u64,
        /// Its copy is damaged: it sets that aside and begins anew, empty, before it reports.
        refill: bool,
    },
    /// Tell `member` that its copy is whole: it holds everything that was acknowledged, and nothing will be that it
    /// does not hold.
    TellWhole {
        /// The backup.
        member: ServerId,
        /// The member's present attempt.
        attempt: u64,
    },
    /// Set the primary's own copy, which is damaged, aside and begin it anew, empty; then tell `Refilled`.
    RefillOwn,
    /// Bring the primary's own copy to at least `from`'s version and log, then tell `Adopted`.
    Adopt {
        /// Who has more.
        from: ServerId,
    },
    /// Cut the log, take writes and show nothing, and tell `Opened`.
    Promote,
    /// Show what is committed from now on: all members are equal.
    Serve,
    /// The copy of `member`, which is being filled, holds all that was committed when it went live: wish that it
    /// becomes a member. Told again when the group has changed.
    Filled {
        /// Whose copy.
        member: ServerId,
    },
    /// Send `member` a checkpoint of the present version, and pin that version until the member
    /// has applied it.
    Offer {
        /// The backup.
        member: ServerId,
        /// The member's present attempt.
        attempt: u64,
    },
    /// Connect to `member`'s windows and ship everything behind `position`, then all that comes.
    Attach {
        /// The backup.
        member: ServerId,
        /// The member's present attempt.
        attempt: u64,
        /// Where its copy of the log ends.
        position: Position,
    },
    /// Forget connections to `member`'s windows, and the version pinned for it.
    Detach {
        /// The backup.
        member: ServerId,
    },
    /// Send `member` the committed edit `seq`.
    SendEdit {
        /// The backup.
        member: ServerId,
        /// The member's present attempt.
        attempt: u64,
        /// The edit.
        seq: EditSeq,
    },
    /// Ask `member` to flush `range`.
    SendFlush {
        /// The backup.
        member: ServerId,
        /// The member's present attempt.
        attempt: u64,
        /// What to flush.
        range: FlushRange,
    },
    /// Tell `member` that its windows may give their memory back. Nothing is written to them from now on.
    SendRest {
        /// The backup.
        member: ServerId,
        /// The member's present attempt.
        attempt: u64,
    },
    /// Ask `member` to take memory for its windows again.
    SendWake {
        /// The backup.
        member: ServerId,
        /// The member's present attempt.
        attempt: u64,
    },
    /// Write what waits to `member`'s windows.
    Ship {
        /// The backup.
        member: ServerId,
    },
    /// Every member holds everything up to `lsn`.
    Commit {
        /// The new commit LSN.
        lsn: Lsn,
    },
    /// Every backup has the log durable up to byte `to` of `segment`.
    FlushedEverywhere {
        /// Which log.
        log: LogId,
        /// The log segment.
        segment: SegmentNumber,
        /// Byte behind the last.
        to: u32,
    },
    /// Every backup has applied all edits up to `seq`.
    AppliedEverywhere {
        /// The edit.
        seq: EditSeq,
    },
}
