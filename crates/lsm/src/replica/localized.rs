//! What the primary's edits mean to a backup that builds its own levels.
//!
//! The backup takes from each edit what concerns the logs. It takes log points from checkpoints only, because it may
//! take over their levels. The log points of other edits cover what the primary's levels point to, and waiting for
//! those bytes would only delay this member. Its own flush edits state how far the logs must be durable for its own
//! levels.
//! Records behind those points are replayed. A missing record is damage, as on every member, if its LSN is not above
//! the one that the group declares durable.
//!
//! A checkpoint replaces the backup's levels if the logs do not reach back to its own start of replay. The new levels
//! may hold segments that an earlier copy on this server built: a primary that had lost its own copy adopted them. Such
//! segments have numbers of this server's own range, and the present copy would use the same numbers again. Therefore
//! the copy continues behind the highest of these numbers, and its version records that.

use argosy_base::{LogKind, Lsn, SegmentNumber};

use super::Replica;
use crate::edit::{Edit, LogSegment};

impl Replica {
    /// `edit`, the group's, as this member applies it: the same, unless it builds its own levels.
    pub(super) fn localized(&self, edit: Edit) -> Edit {
        if self.builder.is_none() {
            return edit;
        }
        let head = self.storage.head();
        let seq = head.seq().next();
        let follows = Some(edit.seq);
        if !edit.checkpoint {
            return Edit {
                seq,
                follows,
                replay_from: None,
                removed: Vec::new(),
                clipped: Vec::new(),
                added: Vec::new(),
                trees: Vec::new(),
                references: Vec::new(),
                log_points: Vec::new(),
                logs_removed: Vec::new(),
                evacuated: Vec::new(),
                ..edit
            };
        }
        match self.kept_logs(&edit) {
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
                let kept = self.declared(head).filter(|point| goes_on(point.number));
                let log_points = kept.chain(edit.log_points).collect();
                Edit {
                    seq,
                    follows,
                    epoch: edit.epoch.max(head.epoch()),
                    durable: edit.durable.max(Some(head.durable())),
                    mark: edit.mark,
                    logs_added,
                    log_points,
                    ..own
                }
            }
            None => {
                let behind = self.storage.behind_own(&edit).unwrap_or_default();
                Edit {
                    seq,
                    follows,
                    own_mark: Some(behind.max(head.own_mark())),
                    ..edit
                }
            }
        }
    }

    /// The chains of `checkpoint`, with what this member still needs of its own in front and in
    /// between; `None` where both together do not reach back to the own start of replay.
    fn kept_logs(&self, checkpoint: &Edit) -> Option<Vec<LogSegment>> {
        let head = self.storage.head();
        let theirs = checkpoint.replay_from.unwrap_or(Lsn(1));
        let reaches_back = theirs <= head.replay_from();
        if !reaches_back && self.lsn.next() < theirs {
            return None;
        }
        let mut logs = checkpoint.logs_added.clone();
        for log in LogKind::ALL {
            for entry in head.log(log) {
                let segment = entry.segment;
                let named = logs.iter().find(|other| other.number == segment.number);
                if let Some(end) = named.map(|named| named.end) {
                    let fill = self.fills.get(&segment.number);
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
                logs.push(segment);
            }
        }
        logs.sort_by_key(|segment| (segment.log, segment.ordinal));
        let twice = logs
            .windows(2)
            .any(|pair| (pair[0].log, pair[0].ordinal) == (pair[1].log, pair[1].ordinal));
        (!twice).then_some(logs)
    }

    /// Whether `edit`, localized and the next one, replaces the levels.
    pub(super) fn replaces_levels(&self, edit: &Edit) -> bool {
        self.builder.is_some() && edit.checkpoint && {
            let head = self.storage.head();
            edit.replay_from != Some(head.replay_from()) || edit.added != head.checkpoint().added
        }
    }

    /// Makes way for the levels of `edit`, localized.
    ///
    /// If the edit replaces the levels that are here, it may name numbers of this member's own range. An earlier copy
    /// on this server used those numbers, and this copy must never use them: it skips them. If a checkpoint keeps the
    /// levels, its numbers stand for the segments that are here, so arrivals under the same numbers are given up.
    pub(super) fn make_way(&mut self, edit: &Edit) {
        if !self.replaces_levels(edit) {
            if self.builder.is_some() && edit.checkpoint {
                self.give_up_doubles();
            }
            return;
        }
        let Some(behind) = self.storage.behind_own(edit) else {
            return;
        };
        self.storage.skip_own_numbers(behind);
        let mut added = edit.added.iter().map(|(_, _, segment)| segment.number);
        let is_built = |number: SegmentNumber| {
            let mut pending = self.storage.pending();
            pending.any(|built| built.number() == number) && !self.arrivals.contains_key(&number)
        };
        if added.any(is_built) {
            self.levels_replaced();
        }
    }

    /// They are replaced, or are about to be.
    pub(super) fn levels_replaced(&mut self) {
        if let Some(builder) = &mut self.builder {
            builder.jobs.levels_replaced(&mut self.storage);
        }
    }
}
