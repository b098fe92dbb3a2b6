//! How patient a master is, and the planted mistakes that prove its tests.

use std::time::Duration;

use argosy_coordinator::SHARD_BYTES_MAX;

/// When a group is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSettings {
    /// No change leaves a group with fewer members.
    pub min_copies: usize,
    /// A server leaves when it has said for so long that it does. Where all servers stop at one time, that gives all of
    /// them time to say so, and no region moves.
    pub leave_after: Duration,
    /// After a region has lost its primary, members that are there have so long to report. Who has not is left out.
    pub report_within: Duration,
    /// A primary that has not opened a region for so long gives way to another member.
    pub open_within: Duration,
    /// A group has had too few members for so long when another server is filled.
    pub replace_after: Duration,
    /// A server that a planner has never seen is lost when the planner is so old: all servers start at one time, and
    /// the planner's is the first.
    pub absent_after: Duration,
    /// A member that has left because its primary did not hear it is not filled again before the two have heard each
    /// other for so long; for twice as long each further time.
    pub rejoin_after: Duration,
    /// The longest that becomes.
    pub rejoin_after_most: Duration,
    /// Where the map is cut.
    pub map: MapBounds,
}

/// How the map is cut, and how much of it one change may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapBounds {
    /// A shard that would be longer is cut in two.
    pub shard_bytes: usize,
    /// Once a change concerns shards of so many bytes, it is full: the rest is for the next one.
    pub change_bytes: usize,
}

impl Default for MapBounds {
    fn default() -> Self {
        Self {
            shard_bytes: SHARD_BYTES_MAX,
            change_bytes: 2 * SHARD_BYTES_MAX,
        }
    }
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self {
            min_copies: 1,
            leave_after: Duration::from_millis(60),
            report_within: Duration::from_secs(1),
            open_within: Duration::from_secs(30),
            replace_after: Duration::from_secs(300),
            absent_after: Duration::from_secs(10),
            rejoin_after: Duration::from_secs(1),
            rejoin_after_most: Duration::from_secs(300),
            map: MapBounds::default(),
        }
    }
}

/// When a master's loop does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MasterTimes {
    /// Another master takes over when this one has not been heard from for so long.
    pub session_timeout: Duration,
    /// Everything is read again after this time, hint or not.
    pub read_every: Duration,
    /// While an answer is outstanding, or regions wait for reports, the coordinator is polled so often.
    pub poll_every: Duration,
}

impl Default for MasterTimes {
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_secs(2),
            read_every: Duration::from_secs(1),
            poll_every: Duration::from_millis(5),
        }
    }
}

argosy_base::mutants! {
    /// Mistakes that tests plant to show that they are found. They are those of the model that a master can make, and
    /// those of the redo log.
    pub struct Mutants {
        /// The map is written without comparing.
        no_compare,
        /// A partial copy counts as a whole one.
        promote_partial,
        /// Of cut copies the one with the highest LSN is chosen.
        lsn_over_epoch,
        /// A cut copy is chosen although a member has not reported.
        open_without_all,
        /// The members of a promotion count although the promoted server never opened.
        drop_early,
        /// A spare becomes a member before it has caught up.
        count_early,
        /// What is to be done is written down after it was done.
        note_after_act,
        /// A master acts that does not hold the election any more.
        act_unelected,
        /// A member that its primary does not hear is filled again at once, however often that happens.
        rejoin_at_once,
    }
}
