//! The stored data of a copy, for those who check, repair and describe it.

use argosy_base::{DeviceSegment, LogId, SegmentNumber, SegmentPart};
use argosy_device::Buffer;

use crate::EngineError;
use crate::damage::{DamagedSegment, Miscount};
use crate::repair::{Repair, RepairError};
use crate::scrub::{Pass, Scrubbed};
use crate::stats::{DamageStats, LevelStats, LogStats};

/// A segment whose contents no longer change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPart {
    /// The segment.
    pub number: SegmentNumber,
    /// Where it lies on the device.
    pub place: DeviceSegment,
    /// Bytes of it that count.
    pub len: u32,
    /// The log that it belongs to; `None` for one of the levels.
    pub log: Option<LogId>,
}

/// What a copy consists of at one moment. Everything that it names stays stored for as long as it is held (I1).
///
/// What is known of damage is of now: all `Stored` of a copy share it.
pub trait Stored: Send + Sync {
    /// Whether it has this segment.
    fn holds(&self, number: SegmentNumber) -> bool {
        self.parts().iter().any(|part| part.number == number)
    }

    /// Its finished segments: those of levels, and sealed ones of logs.
    fn parts(&self) -> Vec<StoredPart> {
        Vec::new()
    }

    /// A digest of what the levels hold: equal on members whose levels are equal.
    fn digest(&self) -> u64;

    /// Its levels, from the first one. An engine without levels has none to name.
    fn levels(&self) -> Vec<LevelStats> {
        Vec::new()
    }

    /// Its logs, by an engine that counts what is in them.
    fn logs(&self) -> Vec<LogStats> {
        Vec::new()
    }

    /// Bytes of memory that describe it. 0 from an engine that does not count them.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// The log segments of which other pointers are counted than the levels hold: none. Reads all levels, and blocks
    /// for the device. An engine whose levels do not point into logs counts nothing.
    ///
    /// # Errors
    /// A level cannot be read.
    fn recount(&self) -> Result<Vec<Miscount>, EngineError> {
        Ok(Vec::new())
    }

    /// A pass over what there is now and nothing that comes later: it ends, however much is written meanwhile.
    /// An engine without a scrub has nothing in it.
    fn begin_pass(&self) -> Pass {
        Pass::new()
    }

    /// Reads and checks the next segment of `pass`; `None` at its end. Blocks for the device.
    fn scrub(&self, pass: &mut Pass) -> Option<Scrubbed> {
        let _ = pass;
        None
    }

    // What follows concerns engines that take note of damage and repair it. Of others nothing is known to be damaged:
    // a copy that cannot be read is fetched anew.

    /// What to ask another member for, to repair segment `number`: all of it. `None` where no other member can have
    /// it, or it is not part of this copy any more.
    fn wanted(&self, number: SegmentNumber) -> Option<SegmentPart> {
        let _ = number;
        None
    }

    /// Begins to write `bytes` over segment `number`, if they are right. May block for reads of the device.
    ///
    /// # Errors
    /// [`RepairError::Wrong`].
    fn begin_repair(&self, number: SegmentNumber, bytes: Buffer) -> Result<Repair, RepairError> {
        let _ = bytes;
        let what = "this engine repairs nothing".to_owned();
        Err(RepairError::Wrong { number, what })
    }

    /// Reads segment `number`, which was written again. If all of it is right it counts as damaged no more. Blocks
    /// for the device.
    ///
    /// # Errors
    /// [`RepairError::StillDamaged`].
    fn end_repair(&self, number: SegmentNumber) -> Result<(), RepairError> {
        let what = "this engine repairs nothing".to_owned();
        Err(RepairError::StillDamaged { number, what })
    }

    /// The segments that are known to be damaged.
    fn damaged(&self) -> Vec<DamagedSegment> {
        Vec::new()
    }

    /// Those that were found since this was asked last, each once.
    fn take_new_damaged(&self) -> Vec<DamagedSegment> {
        Vec::new()
    }

    /// How often damage was met.
    fn damage_stats(&self) -> DamageStats {
        DamageStats::default()
    }

    /// Takes note that segment `number` is damaged, and what is wrong with it.
    fn note_damaged(&self, number: SegmentNumber, what: &str) {
        let _ = (number, what);
    }

    /// Takes note that no other member has segment `number`, which is damaged.
    fn note_only_here(&self, number: SegmentNumber) {
        let _ = number;
    }

    /// Segment `number` counts as damaged no more.
    fn note_repaired(&self, number: SegmentNumber) {
        let _ = number;
    }
}
