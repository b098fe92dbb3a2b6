//! Segments that come ahead of their edits, and backups that build levels of their own.

use std::collections::BTreeSet;

use argosy_base::{EditSeq, Epoch, Instant, KeyRange, SegmentNumber, ServerId};
use argosy_device::Buffer;

use super::{Backup, Group, Stage};
use crate::conformance::{Machine, STEPS_MAX, collect};
use crate::shipment::Shipment;
use crate::{CopyError, SealedSegment, Settings};

impl Backup {
    /// Gives it a finished segment, if it takes segments ahead of their edits.
    fn take_ahead(&mut self, segment: &SealedSegment, epoch: Epoch) {
        let SealedSegment {
            number,
            checksum,
            place,
            ..
        } = *segment;
        let bytes = Buffer::from_slice(&segment.bytes);
        let mut shipment = Shipment::new(number, epoch, bytes, checksum, place);
        let whole = shipment.check(self.copy.region());
        whole.expect("a segment as it was finished");
        match self.copy.rewrite(&mut shipment) {
            Ok(()) => {}
            // It points to a segment that only its edit makes known.
            Err(CopyError::Unplaced { .. }) => return,
            Err(error) => panic!("{number} is not rewritten: {error}"),
        }
        match self.copy.put(shipment) {
            Ok(()) => {}
            Err(CopyError::Refused { .. }) => {
                assert!(!self.copy.holds_unnamed(), "{number} was refused");
            }
            Err(error) => panic!("{number} is not put: {error}"),
        }
    }

    /// Has it build levels for a while.
    pub(super) fn build(&mut self, now: u64) {
        let now = Instant::from_nanos(now);
        for _ in 0..4 {
            let built = self.copy.build(now).expect("a device without faults");
            if !built {
                return;
            }
        }
    }
}

impl Group {
    /// From now on about so many of 100 segments come ahead of their edits.
    pub(in crate::conformance::group) const fn send_ahead(&mut self, percent: u64) {
        self.ahead_percent = percent;
    }

    /// A backup more, as [`add_backup`](Self::add_backup), with levels of its own if the engine has levels.
    pub(in crate::conformance::group) fn add_builder(&mut self, settings: &dyn Settings) {
        let seed = self.choices.bits();
        let server = ServerId(2 + u32::try_from(self.backups.len()).expect("there are few"));
        self.add(Machine::new(settings, seed).with_own_levels(server));
    }

    /// Carries finished segments.
    pub(super) fn ship_segments(&mut self) {
        let built = self
            .recorder
            .heard(|heard| std::mem::take(&mut heard.built));
        for segment in built {
            for backup in &mut self.backups {
                let takes = backup.stage == Stage::Live && !backup.copy.builds_levels();
                if self.choices.chance(self.ahead_percent) && takes {
                    backup.take_ahead(&segment, self.epoch);
                }
            }
        }
    }

    pub(super) fn came_ahead(&mut self, index: usize, number: SegmentNumber) {
        self.tally.met.ahead += 1;
        self.backups[index].ahead.insert(number);
    }

    /// Steps all members until each of them has every edit, every flush and every level.
    fn settle(&mut self) {
        self.store.flush_now();
        for _ in 0..STEPS_MAX {
            self.round();
            let edit = self.store.edit();
            let is_behind = |backup: &Backup| backup.applied < edit || backup.copy.is_building();
            let is_behind = self.backups.iter().any(is_behind);
            if !is_behind && self.flushes.is_empty() && self.store.background_pending() == 0 {
                return;
            }
        }
        panic!("the group does not come to rest");
    }

    /// All members end up with the same pairs. Backups that were shipped levels have the primary's levels. Backups that
    /// built their own levels show every acknowledged write.
    pub(in crate::conformance::group) fn levels_are_equal(&mut self) {
        self.settle();
        let (edit, digest) = (self.store.edit(), self.store.stored().digest());
        for index in 0..self.backups.len() {
            let backup = &mut self.backups[index];
            if let Some(snapshot) = backup.copy.snapshot() {
                let shown = collect(snapshot.as_ref(), &KeyRange::all());
                let pairs = self.pairs_at(snapshot.lsn());
                let pairs = pairs.expect("a backup shows whole writes");
                assert!(
                    shown.into_iter().eq(pairs),
                    "what backup {index} has built shows what was written"
                );
                let (last, built) = (self.store.durable_lsn(), snapshot.lsn());
                assert!(built >= last, "{last} is flushed, and it has built {built}");
                self.tally.met.built += 1;
                continue;
            }
            assert_eq!(backup.copy.edit(), edit, "backup {index} has all edits");
            let copy = backup.copy.stored();
            assert_eq!(copy.digest(), digest, "the levels of backup {index}");
            let stored = |number: &SegmentNumber| copy.holds(*number);
            let lost: BTreeSet<_> = copy.parts().into_iter().map(|part| part.number).collect();
            assert!(lost.iter().all(stored), "backup {index} holds its parts");
            backup.copy.forget_unnamed();
            assert!(!backup.copy.holds_unnamed(), "what no edit named is free");
        }
        assert!(edit > EditSeq(0), "there is an edit at least");
    }
}
