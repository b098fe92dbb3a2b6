//! What a copy of the toy consists of. It is never repaired: whoever finds damage fetches the copy anew.

use argosy_base::{Identity, Kind, RegionId, SegmentNumber, SegmentPart};
use argosy_device::Buffer;

use super::disk::Table;
use super::edit::ToyEdit;
use super::ring::LOG;
use crate::damage::{Damage, DamagedSegment, Miscount, ProblemKind};
use crate::repair::{Repair, RepairError};
use crate::scrub::{Pass, Scrubbed};
use crate::stats::{DamageStats, LevelStats, LogStats};
use crate::stored::StoredPart;
use crate::{EngineError, Stored};

/// See the module documentation.
pub(super) struct ToyStored {
    region: RegionId,
    edit: ToyEdit,
    table: Table,
}

impl ToyStored {
    /// What `edit` names, which lies in the segments of `table`.
    pub(super) const fn new(region: RegionId, edit: ToyEdit, table: Table) -> Self {
        Self {
            region,
            edit,
            table,
        }
    }
}

impl Stored for ToyStored {
    fn holds(&self, number: SegmentNumber) -> bool {
        self.table.contains_key(&number)
    }

    fn parts(&self) -> Vec<StoredPart> {
        let image = self.edit.image.iter().map(|part| StoredPart {
            number: part.number,
            place: self.table[&part.number].place(),
            len: part.len,
            log: None,
        });
        image.collect()
    }

    fn digest(&self) -> u64 {
        let parts = self.edit.image.iter();
        let checksums: Vec<u8> = parts.flat_map(|part| part.checksum.to_le_bytes()).collect();
        let of_image = Identity::of_server(Kind::Manifest, 2).checksum(&checksums);
        u64::from(of_image) << 32 ^ self.edit.last.0
    }

    fn levels(&self) -> Vec<LevelStats> {
        vec![LevelStats {
            level: 1,
            runs: usize::from(!self.edit.image.is_empty()),
            segments: self.edit.image.len(),
            bytes: self.edit.image_bytes,
            ..LevelStats::default()
        }]
    }

    fn logs(&self) -> Vec<LogStats> {
        vec![LogStats {
            log: LOG,
            name: "log",
            segments: self.edit.logs.len(),
            bytes: 0,
            dead_bytes: 0,
        }]
    }

    fn memory_bytes(&self) -> usize {
        let segments = self.edit.image.len() + self.edit.logs.len();
        size_of::<ToyEdit>() + segments * size_of::<super::edit::ImagePart>()
    }

    fn recount(&self) -> Result<Vec<Miscount>, EngineError> {
        Ok(Vec::new())
    }

    fn begin_pass(&self) -> Pass {
        let numbers = self.edit.image.iter().map(|part| part.number);
        let bytes = self.edit.image.iter().map(|part| u64::from(part.len)).sum();
        Pass::over(numbers, bytes)
    }

    fn scrub(&self, pass: &mut Pass) -> Option<Scrubbed> {
        let next =
            |part: &&super::edit::ImagePart| pass.last().is_none_or(|last| part.number > last);
        let part = self
            .edit
            .image
            .iter()
            .filter(next)
            .min_by_key(|part| part.number)?;
        if !pass.go_to(part.number) {
            return None;
        }
        let stored = &self.table[&part.number];
        let problem = match stored.read(0, part.len) {
            Ok(bytes) if part.is_of(self.region, &bytes) => None,
            Ok(_) => Some((ProblemKind::Damaged, "its checksum".to_owned())),
            Err(error) => Some((ProblemKind::Unreadable, error.to_string())),
        };
        let damages = problem.map(|(kind, what)| Damage {
            kind,
            region: self.region,
            part: "image".to_owned(),
            number: part.number,
            place: stored.place(),
            offset: 0,
            what,
            keys: Vec::new(),
            more_keys: 0,
        });
        Some(Scrubbed {
            bytes: u64::from(part.len),
            damages: damages.into_iter().collect(),
        })
    }

    fn wanted(&self, _number: SegmentNumber) -> Option<SegmentPart> {
        None
    }

    fn begin_repair(&self, number: SegmentNumber, _bytes: Buffer) -> Result<Repair, RepairError> {
        Err(RepairError::Wrong {
            number,
            what: "this engine repairs nothing".to_owned(),
        })
    }

    fn end_repair(&self, number: SegmentNumber) -> Result<(), RepairError> {
        Err(RepairError::StillDamaged {
            number,
            what: "this engine repairs nothing".to_owned(),
        })
    }

    fn damaged(&self) -> Vec<DamagedSegment> {
        Vec::new()
    }

    fn take_new_damaged(&self) -> Vec<DamagedSegment> {
        Vec::new()
    }

    fn damage_stats(&self) -> DamageStats {
        DamageStats::default()
    }

    fn note_damaged(&self, _number: SegmentNumber, _what: &str) {}

    fn note_only_here(&self, _number: SegmentNumber) {}

    fn note_repaired(&self, _number: SegmentNumber) {}
}
