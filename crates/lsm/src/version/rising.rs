//! What edits state of a region beside its segments: numbers that only rise.

use argosy_base::{EditSeq, Epoch, Lsn, Moment, SegmentNumber};

use crate::edit::{Edit, EditNumbers};

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rising {
    /// The last edit.
    pub(super) seq: EditSeq,
    /// Its epoch.
    pub(super) epoch: Epoch,
    pub(super) replay_from: Lsn,
    pub(super) durable: Lsn,
    /// See [`EditNumbers::logged_from`]; 0 where nothing is missing.
    pub(super) logged_from: Lsn,
    pub(super) time: Moment,
    pub(super) mark: SegmentNumber,
    /// See [`EditNumbers::follows`].
    pub(super) follows: Option<EditSeq>,
    /// See [`EditNumbers::own_mark`]; 0 where there is none.
    pub(super) own_mark: SegmentNumber,
}

impl Rising {
    /// Those of a region that has nothing.
    pub(super) const BEGINNING: Self = Self {
        seq: EditSeq(0),
        epoch: Epoch(0),
        replay_from: Lsn(1),
        durable: Lsn(0),
        logged_from: Lsn(0),
        time: Moment(0),
        mark: SegmentNumber(1),
        follows: None,
        own_mark: SegmentNumber(0),
    };

    /// As a checkpoint states them.
    pub(super) fn stated(self) -> EditNumbers {
        EditNumbers {
            replay_from: Some(self.replay_from),
            durable: Some(self.durable),
            mark: Some(self.mark),
            follows: self.follows,
            own_mark: Some(self.own_mark).filter(|mark| mark.0 > 0),
            time: Some(self.time).filter(|time| time.0 > 0),
            logged_from: Some(self.logged_from).filter(|lsn| lsn.0 > 0),
        }
    }

    /// Those after `edit`, where the member's own mark was `own_mark` before: a checkpoint does not take that back.
    ///
    /// # Errors
    /// What goes back.
    pub(super) fn after(self, edit: &Edit, own_mark: SegmentNumber) -> Result<Self, &'static str> {
        let next = Self {
            seq: edit.seq,
            epoch: edit.epoch,
            replay_from: edit.numbers.replay_from.unwrap_or(self.replay_from),
            durable: edit.numbers.durable.unwrap_or(self.durable),
            logged_from: edit.numbers.logged_from.unwrap_or(self.logged_from),
            time: edit.numbers.time.unwrap_or_default().max(self.time),
            mark: edit.numbers.mark.unwrap_or(self.mark),
            follows: edit.numbers.follows.or(self.follows),
            own_mark: edit.numbers.own_mark.unwrap_or(own_mark),
        };
        let rules = [
            (next.epoch >= self.epoch, "the epoch goes back"),
            (
                next.replay_from >= self.replay_from,
                "the start of replay goes back",
            ),
            (next.durable >= self.durable, "the durable mark goes back"),
            (
                next.mark >= self.mark,
                "the mark of segment numbers goes back",
            ),
            (
                next.own_mark >= own_mark,
                "the own mark of segment numbers goes back",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, what)) => Err(what),
            None => Ok(next),
        }
    }
}
