//! What the primary's edits mean to a backup that builds its own levels.
//!
//! The backup takes from each edit what concerns the logs. It takes log points from checkpoints only, because it may
//! take over their levels. The log points of other edits cover what the primary's levels point to, and waiting for
//! those bytes would only delay this member. Its own flush edits state how far the logs must be durable for its own
//! levels.
//! Records behind those points are replayed. A missing record is damage, as on every member, if its LSN is not above
//! the one that the group declares durable.
//!
//! A checkpoint replaces the backup's levels if the logs do not reach back to its own start of replay. They do where
//! the replay of the checkpoint starts at an LSN that the backup has or lacks next. And they do where the chains that
//! it names go on, without a gap, in the segments in which the backup's logs end: then everything that the backup lacks
//! is in them, although the primary has some of that in levels by now. So one that was away fetches the difference.
//! That does not hold below the LSN from which the checkpoint says that its logs are whole: what had been in levels and
//! in windows was lost from the logs when the primary's windows were.
//!
//! New levels may hold segments that an earlier copy on this server built: a primary that had lost its own copy adopted
//! them. Such segments have numbers of this server's own range, and the present copy would use the same numbers again.
//! Therefore the copy continues behind the highest of these numbers, and its version records that.

use argosy_base::{LogId, Lsn};

use super::edits::one_segment;
use super::logs::Logs;
use crate::edit::{Edit, EditNumbers, LogChanges, LogSegment};
use crate::names::logs::LOGS;
use crate::storage::Storage;
use crate::version::Version;

/// `edit`, the group's, as a member applies it that builds its own levels.
pub(super) fn localized(edit: Edit, storage: &Storage, logs: &Logs) -> Edit {
    let head = storage.head();
    let seq = head.seq().next();
    let follows = Some(edit.seq);
    if !edit.checkpoint {
        return Edit {
            seq,
            numbers: EditNumbers {
                follows,
                replay_from: None,
                ..edit.numbers
            },
            removed: Vec::new(),
            bounds: Vec::new(),
            added: Vec::new(),
            trees: Vec::new(),
            references: Vec::new(),
            logs: LogChanges {
                points: Vec::new(),
                removed: Vec::new(),
                ..edit.logs
            },
            evacuated: Vec::new(),
            duplicates: None,
            ..edit
        };
    }
    match kept_logs(&edit, head, logs) {
        Some(logs_added) => {
            let mut own = head.checkpoint();
            // One that others have still comes back.
            let comes = |number| logs_added.iter().any(|log| log.number == number);
            own.evacuated.retain(|number| !comes(*number));
            // Its levels are kept, and so is what is known of the logs that these point into.
            let goes_on = |number| {
                let mut open = logs_added.iter().filter(|log| log.end.is_none());
                open.any(|log| log.number == number)
            };
            let kept = logs.declared(head).filter(|point| goes_on(point.number));
            let log_points = kept.chain(edit.logs.points).collect();
            Edit {
                seq,
                epoch: edit.epoch.max(head.epoch()),
                numbers: EditNumbers {
                    follows,
                    durable: edit.numbers.durable.max(Some(head.durable())),
                    mark: edit.numbers.mark,
                    logged_from: edit.numbers.logged_from.max(own.numbers.logged_from),
                    ..own.numbers
                },
                logs: LogChanges {
                    added: logs_added,
                    points: log_points,
                    ..own.logs
                },
                ..own
            }
        }
        None => {
            let behind = storage.behind_own(&edit).unwrap_or_default();
            Edit {
                seq,
                numbers: EditNumbers {
                    follows,
                    own_mark: Some(behind.max(head.own_mark())),
                    ..edit.numbers
                },
                ..edit
            }
        }
    }
}

/// The chains of `checkpoint`, with what this member still needs of its own in front and in
/// between; `None` where both together do not reach back to the own start of replay.
fn kept_logs(checkpoint: &Edit, head: &Version, logs: &Logs) -> Option<Vec<LogSegment>> {
    let theirs = checkpoint.numbers.replay_from.unwrap_or(Lsn(1));
    let reaches_back = theirs <= head.replay_from();
    let next = logs.lsn.next();
    let logged = Some(next) >= checkpoint.numbers.logged_from;
    if !reaches_back && next < theirs && !(logged && go_on(checkpoint, head, logs)) {
        return None;
    }
    let mut kept = checkpoint.logs.added.clone();
    for log in LOGS {
        for entry in head.log(log) {
            let segment = entry.segment;
            let named = kept.iter().find(|other| other.number == segment.number);
            if let Some(end) = named.map(|named| named.end) {
                let fill = logs.fills.get(&segment.number);
                let cut = end.is_some_and(|end| fill.is_some_and(|fill| fill.end > end));
                // The primary may have what it cuts off in its levels only.
                if cut && !reaches_back {
                    return None;
                }
                continue;
            }
            if segment.end.is_none() && reaches_back && head.log_refs(segment.number) == 0 {
                continue;
            }
            // One that ended, and where is not known here.
            segment.end?;
            kept.push(segment);
        }
    }
    kept.sort_by_key(|segment| (segment.log, segment.ordinal));
    let twice = kept
        .windows(2)
        .any(|pair| (pair[0].log, pair[0].ordinal) == (pair[1].log, pair[1].ordinal));
    (!twice).then_some(kept)
}

/// Whether the chains of `checkpoint` hold all that follows in the logs where those of this member end.
fn go_on(checkpoint: &Edit, head: &Version, logs: &Logs) -> bool {
    let goes_on = |log: LogId| {
        let added = checkpoint.logs.added.iter();
        let mut theirs: Vec<LogSegment> = added.filter(|of| of.log == log).copied().collect();
        theirs.sort_by_key(|segment| segment.ordinal);
        let Some(number) = logs.ends[log.index()] else {
            // It has nothing of that log.
            return theirs.is_empty();
        };
        let Some(last) = head.log_segment(number).map(|entry| entry.segment) else {
            return false;
        };
        // Of one that is sealed it has everything.
        let follows = |other: &LogSegment| {
            one_segment(other, &last)
                || last.end.is_some() && Some(other.ordinal) == last.ordinal.checked_add(1)
        };
        let Some(from) = theirs.iter().position(follows) else {
            return false;
        };
        let mut pairs = theirs[from..].windows(2);
        pairs.all(|pair| pair[0].ordinal + 1 == pair[1].ordinal)
    };
    LOGS.into_iter().all(goes_on)
}
