//! The engine of a run: its settings, and what its checkpoints state.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

use argosy_base::{AddressMode, EditSeq, Epoch, RegionId, SegmentNumber};
use argosy_engine::Checkpoint;
use argosy_engine::conformance::toy;
use argosy_log::verify::visit_records;
use argosy_log::{Geometry, LogLayout};
use argosy_lsm::addresses::has_pointers;
use argosy_lsm::edit::{Edit, LogSegment, MEDIUM_LOG};

use crate::load::Wrong;

#[cfg(test)]
pub(crate) use argosy_lsm as lsm;
pub(crate) use argosy_lsm::db::bulk_load::held_bytes as pairs_bytes;
pub(crate) use argosy_lsm::memtable::allocated::bytes as memtable_bytes;
pub(crate) use argosy_lsm::version::held_bytes as version_bytes;
pub(crate) use argosy_lsm::{Compaction, Mutants, Placement, Settings};

/// What a segment of a copy is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartKind {
    /// The levels.
    Level,
    /// Values of medium pairs, which levels point to.
    Medium,
    /// A log.
    Log,
}

/// A segment of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// The segment.
    pub number: SegmentNumber,
    /// Bytes of it that count and are durable. What lies behind the end of a sealed log is never read again.
    pub len: u32,
    /// Its epoch and the checksum of these bytes, where they are equal on all members.
    pub checksum: Option<(Epoch, u32)>,
    /// What it is of.
    pub kind: PartKind,
}

/// What a checkpoint states.
#[derive(Clone, Debug)]
pub(crate) struct Stated {
    /// The last edit that it includes.
    pub seq: EditSeq,
    /// The version without what may differ among members, which is how far logs are durable. Equal versions have equal
    /// bytes.
    pub essence: Vec<u8>,
    /// Its segments.
    pub parts: Vec<Part>,
    /// Device segments of the copy beside those that the catalog lists for it.
    pub unlisted: usize,
    /// The checkpoint itself.
    bytes: Vec<u8>,
}

/// Reads the checkpoints of an engine, so that members can be compared.
pub(crate) trait Reader {
    /// What `checkpoint` states.
    ///
    /// # Errors
    /// It makes no sense.
    fn read(&self, checkpoint: &Checkpoint) -> Result<Stated, Wrong>;

    /// Whether log segment `number` of `stated`, a copy of `region`, has the same records in `one` as in `other`,
    /// which are its first bytes, and nothing else between them. False for a segment of no log.
    fn same_records(
        &self,
        region: RegionId,
        stated: &Stated,
        number: SegmentNumber,
        both: [&[u8]; 2],
    ) -> bool;
}

/// The engine of a run: this one, or a toy in its place.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// The settings of `argosy_lsm`.
    pub lsm: Settings,
    /// Those of the toy, where it is that.
    pub toy: Option<toy::Settings>,
}

impl Chosen {
    /// The settings with which servers start it.
    pub(crate) fn settings(self) -> Arc<dyn argosy_engine::Settings> {
        match self.toy {
            Some(toy) => Arc::new(toy),
            None => Arc::new(self.lsm),
        }
    }

    /// The reader of its checkpoints.
    pub(crate) fn reader(&self) -> Box<dyn Reader> {
        match self.toy {
            Some(_) => Box::new(ToyReader),
            None => Box::new(LsmReader {
                addresses: self.lsm.layout.addresses,
                geometry: self.lsm.layout.log_geometry(),
            }),
        }
    }
}

/// Reads the checkpoints of the toy.
struct ToyReader;

impl Reader for ToyReader {
    fn read(&self, checkpoint: &Checkpoint) -> Result<Stated, Wrong> {
        let edit = toy::edit::ToyEdit::decode(&checkpoint.bytes);
        let mut edit = edit.map_err(|error| error.to_string())?;
        edit.logs.clear();
        Ok(Stated {
            seq: checkpoint.seq,
            essence: edit.encode(),
            parts: Vec::new(),
            unlisted: 0,
            bytes: Vec::new(),
        })
    }

    /// It has none: an edit has the image, and no copy hands out the log.
    fn same_records(&self, _: RegionId, _: &Stated, _: SegmentNumber, _: [&[u8]; 2]) -> bool {
        false
    }
}

/// Reads the checkpoints of `argosy_lsm`, which are edits.
struct LsmReader {
    addresses: AddressMode,
    geometry: Geometry,
}

fn decoded(bytes: &[u8]) -> Result<Edit, Wrong> {
    Edit::decode(bytes).map_err(|error| error.to_string())
}

impl LsmReader {
    fn parts(&self, edit: &Edit) -> BTreeSet<Part> {
        let levels = edit.added.iter().map(|(level, _, segment)| {
            // Where pointers hold places, it is that of the bytes as they were first built.
            let known = self.addresses == AddressMode::Logical || !has_pointers(segment);
            Part {
                number: segment.number,
                len: segment.len,
                checksum: known.then_some((segment.epoch, segment.checksum)),
                kind: match *level == MEDIUM_LOG {
                    true => PartKind::Medium,
                    false => PartKind::Level,
                },
            }
        });
        let logs = edit.logs.added.iter().map(|log| {
            let flushed = edit.logs.points.iter().find(|at| at.number == log.number);
            Part {
                number: log.number,
                len: log.end.or(flushed.map(|at| at.to)).unwrap_or(0),
                checksum: None,
                kind: PartKind::Log,
            }
        });
        levels.chain(logs).collect()
    }
}

impl Reader for LsmReader {
    fn read(&self, checkpoint: &Checkpoint) -> Result<Stated, Wrong> {
        let mut edit = decoded(&checkpoint.bytes)?;
        let parts = self.parts(&edit);
        let numbers: BTreeSet<SegmentNumber> = parts.iter().map(|part| part.number).collect();
        edit.logs.points.clear();
        Ok(Stated {
            seq: checkpoint.seq,
            essence: edit.encode(),
            parts: parts.into_iter().collect(),
            unlisted: numbers.len(),
            bytes: checkpoint.bytes.clone(),
        })
    }

    fn same_records(
        &self,
        region: RegionId,
        stated: &Stated,
        number: SegmentNumber,
        both: [&[u8]; 2],
    ) -> bool {
        let Ok(edit) = decoded(&stated.bytes) else {
            return false;
        };
        let mut logs = edit.logs.added.iter();
        let Some(segment) = logs.find(|log| log.number == number) else {
            return false;
        };
        let [one, other] = both.map(|bytes| records_of(region, self.geometry, segment, bytes));
        one.is_some() && one == other
    }
}

/// The records of `segment` with the bytes at which they begin, where it begins with `bytes`; `None` where something
/// stands between them that is none.
fn records_of(
    region: RegionId,
    geometry: Geometry,
    segment: &LogSegment,
    bytes: &[u8],
) -> Option<Vec<(u32, String)>> {
    let mut records = Vec::new();
    let mut read = |_: &LogSegment, at: u32, out: &mut [u8]| -> Result<(), Infallible> {
        let rest = bytes.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        out[len..].fill(0);
        Ok(())
    };
    let fault = visit_records(
        LogLayout { region, geometry },
        segment,
        &mut read,
        &mut |at, record| {
            records.push((at, format!("{record:?}")));
            ControlFlow::Continue(())
        },
    );
    let Ok(fault) = fault;
    fault.is_none().then_some(records)
}
