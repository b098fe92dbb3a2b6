//! A copy's version and what of it is damaged, for those who check and repair it.

use std::sync::Arc;

use argosy_base::{SegmentNumber, SegmentPart};
use argosy_device::Buffer;
use argosy_engine::EngineError;
use argosy_engine::damage::{DamagedSegment, Miscount};
use argosy_engine::repair::{Repair, RepairError};
use argosy_engine::scrub::{Pass, Scrubbed};
use argosy_engine::stats::{DamageStats, LevelStats, LogStats};
pub use argosy_engine::stored::{Stored, StoredPart};
use argosy_log::Geometry;

use crate::damage::Damages;
use crate::names::logs::LOGS;
use crate::recount::recount;
use crate::settings::Settings;
use crate::version::Version;
use crate::work::stats::{level_stats, log_stats};
use crate::{repair, scrub};

/// A version of a copy, and what of the copy is damaged.
pub struct StoredVersion {
    version: Arc<Version>,
    damages: Arc<Damages>,
    geometry: Geometry,
}

impl StoredVersion {
    /// That of `version`, a copy's with these settings.
    #[must_use]
    pub fn new(version: Arc<Version>, damages: Arc<Damages>, settings: &Settings) -> Self {
        Self {
            version,
            damages,
            geometry: settings.layout.log_geometry(),
        }
    }
}

impl Stored for StoredVersion {
    fn holds(&self, number: SegmentNumber) -> bool {
        self.version.stored(number).is_some()
    }

    fn parts(&self) -> Vec<StoredPart> {
        let finished = self.version.finished().map(|entry| StoredPart {
            number: entry.segment.number,
            place: entry.stored.place(),
            len: entry.segment.len,
            log: None,
        });
        let logs = LOGS.into_iter().flat_map(|log| self.version.log(log));
        let sealed = logs.filter_map(|entry| {
            Some(StoredPart {
                number: entry.segment.number,
                place: entry.stored.place(),
                len: entry.segment.end?,
                log: Some(entry.segment.log),
            })
        });
        finished.chain(sealed).collect()
    }

    fn digest(&self) -> u64 {
        self.version.levels_digest()
    }

    fn levels(&self) -> Vec<LevelStats> {
        level_stats(&self.version)
    }

    fn logs(&self) -> Vec<LogStats> {
        log_stats(&self.version)
    }

    fn memory_bytes(&self) -> usize {
        self.version.memory_bytes()
    }

    fn recount(&self) -> Result<Vec<Miscount>, EngineError> {
        Ok(recount(&self.version)?)
    }

    fn begin_pass(&self) -> Pass {
        scrub::pass_over(&self.version)
    }

    fn scrub(&self, pass: &mut Pass) -> Option<Scrubbed> {
        scrub::next(&self.version, self.geometry, pass)
    }

    fn wanted(&self, number: SegmentNumber) -> Option<SegmentPart> {
        repair::wanted(&self.version, number)
    }

    fn begin_repair(&self, number: SegmentNumber, bytes: Buffer) -> Result<Repair, RepairError> {
        repair::begin(&self.version, self.geometry, number, bytes)
    }

    fn end_repair(&self, number: SegmentNumber) -> Result<(), RepairError> {
        repair::check(&self.version, self.geometry, number)?;
        self.damages.repaired(number);
        Ok(())
    }

    fn damaged(&self) -> Vec<DamagedSegment> {
        self.damages.list()
    }

    fn take_new_damaged(&self) -> Vec<DamagedSegment> {
        self.damages.take_new()
    }

    fn damage_stats(&self) -> DamageStats {
        self.damages.stats()
    }

    fn note_damaged(&self, number: SegmentNumber, what: &str) {
        self.damages.note_segment(&self.version, number, what);
    }

    fn note_only_here(&self, number: SegmentNumber) {
        self.damages.note_only_here(number);
    }

    fn note_repaired(&self, number: SegmentNumber) {
        self.damages.repaired(number);
    }
}
