//! Where [jobs](super::jobs) are done: what they may use, and what they make segments of.

use std::sync::Arc;

use argosy_base::{Epoch, Moment};
use argosy_device::Purpose;
use argosy_engine::Observer;

use super::stats::Counts;
use crate::addresses::Pointers;
use crate::cache::NodeCache;
use crate::compaction::build::{RunShape, Target, Tools};
use crate::duplicates::Duplicates;
use crate::edit::{Edit, LEVELS_MAX, LevelSegment, MEDIUM_LOG, RunId};
use crate::filter::BitsPerKey;
use crate::level::builder::SegmentGeometry;
use crate::names::Form;
use crate::settings::Settings;
use crate::storage::Storage;

/// Where jobs are done.
pub(crate) struct Site<'a> {
    pub(crate) storage: &'a mut Storage,
    pub(crate) settings: &'a Settings,
    /// The epoch in which segments and edits are made.
    pub(crate) epoch: Epoch,
    /// Who ships what is built.
    pub(crate) observer: Option<&'a dyn Observer>,
    /// Where leaves of what is built are kept, if they will be read here.
    pub(crate) cache: Option<&'a Arc<NodeCache>>,
    pub(crate) counts: &'a Counts,
    /// The region's time, as far as it is committed.
    pub(crate) time: Moment,
}

impl Site<'_> {
    /// A finished segment, as an edit adds it: to the run, or to the medium log.
    pub(crate) fn placed(
        &self,
        segment: &LevelSegment,
        level: u8,
        run: RunId,
    ) -> (u8, RunId, LevelSegment) {
        Counts::add(&self.counts.segment_write_bytes, segment.len.into());
        let (level, run) = match segment.form {
            Form::Medium => (MEDIUM_LOG, RunId(0)),
            _ => (level, run),
        };
        if level == MEDIUM_LOG {
            Counts::add(&self.counts.medium.segments, 1);
            Counts::add(&self.counts.medium.write_bytes, segment.len.into());
        }
        (level, run, segment.clone())
    }

    /// What segments are made of that go to `level`.
    pub(crate) fn target(&self, level: u8, shape: RunShape, pointers: Pointers) -> Target {
        Target {
            shape,
            filter_bits: BitsPerKey::of(level, self.storage.head().deepest()),
            region: self.storage.region(),
            epoch: self.epoch,
            geometry: SegmentGeometry {
                node_bytes: self.settings.layout.node_bytes,
                segment_bytes: self.settings.layout.segment_bytes,
            },
            pointers,
            time: self.time,
        }
    }

    /// What segments are made of whose pairs come from outside: they may go to any level.
    pub(crate) fn bulk_load_target(&self) -> Target {
        self.target(LEVELS_MAX, RunShape::SelfContained, Pointers::Numbers)
    }

    /// Has `edit` tell the time by which its outputs were made, or that passed before `time`.
    pub(crate) fn tell_time(&self, edit: &mut Edit, time: Moment) {
        let time = time.max(self.time);
        let forgets = self.settings.mutants.forget_time();
        edit.numbers.time =
            Some(time).filter(|time| *time > self.storage.head().time() && !forgets);
    }

    /// Has `edit` tell which requests were applied below its start of replay, where that has changed.
    pub(crate) fn tell_duplicates(&self, edit: &mut Edit, table: &Arc<Duplicates>) {
        let before = self.storage.head().duplicates();
        let same = Arc::ptr_eq(before, table) || before == table;
        let forgets = self.settings.mutants.forget_duplicates();
        edit.duplicates = (!same && !forgets).then(|| Arc::clone(table));
    }

    pub(crate) fn tools(&mut self, purpose: Purpose) -> Tools<'_> {
        Tools {
            storage: self.storage,
            observer: self.observer,
            cache: self.cache,
            purpose,
            step_bytes: self.settings.levels.step_bytes,
            forgets_expired: self.settings.mutants.drop_expired(),
        }
    }
}
