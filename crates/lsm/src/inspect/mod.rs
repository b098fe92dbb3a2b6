//! A region of a stopped server, looked at from outside: nothing is claimed, repaired or written.
//!
//! 1. [`InspectedRegion::read`] replays the manifest edit by edit, and keeps going over what is wrong with
//!    it as [`Problem`]s instead of refusing the region.
//! 2. [`owners`] says who refers to each device segment, over all regions; [`verify_owners`] finds
//!    what two refer to, or what lies nowhere.
//! 3. [`verify_region`] checks every byte that the region's version names, and every reference.
//! 4. [`compare`](fn@compare) holds two members' copies against each other.
//!
//! The rules are those of the server, and of its own code: the same replay, the same readers, the
//! same recovery of logs. What is said here to be whole is what a server would open.

mod checked;
mod compare;
pub mod contents;
mod ends;
mod left;
mod logs;
mod pairs;
mod pointers;
mod references;
pub mod salvage;
mod verify;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use argosy_base::{DeviceSegment, LogId, RegionId, SegmentNumber};
use argosy_device::{RegionEntry, Store};
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_memory::SharedMemory;

use crate::edit::{Edit, RunId};
use crate::manifest::{self, ManifestError};
use crate::names::logs::{LOGS, log_name};
use crate::segments::StoredSegment;
use crate::settings::Settings;
use crate::shape::Shape;
use crate::version::Version;

pub use crate::problem::{MEDIUM_LOG, Problem, ProblemKind};
pub use crate::recount::recount;
pub use argosy_engine::damage::Miscount;
pub use checked::Checked;
pub use compare::{Comparison, Difference, Member, compare};
pub use ends::{LogEnds, log_ends};
pub use left::verify_windows;
pub use verify::{verify_pin, verify_region};

/// What is left of a stopped server's log windows, by [`LogId::index`] and slot.
pub type LeftWindows = [Vec<Option<Arc<SharedMemory>>>; LOGS.len()];

/// An edit of a manifest, and where this member put the segments that it adds.
#[derive(Clone, Debug)]
pub struct EditRecord {
    /// The edit.
    pub edit: Edit,
    /// The places.
    pub places: Vec<(SegmentNumber, DeviceSegment)>,
}

/// A place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InSegment {
    number: SegmentNumber,
    offset: u32,
}

impl InSegment {
    /// Byte `offset` of segment `number`.
    const fn at(number: SegmentNumber, offset: u32) -> Self {
        Self { number, offset }
    }

    /// Where segment `number` begins.
    const fn start(number: SegmentNumber) -> Self {
        Self::at(number, 0)
    }
}

/// A region, as it lies on a device.
pub struct InspectedRegion {
    /// What the catalog says of it.
    pub entry: RegionEntry,
    /// Its manifest, as far as it could be read.
    pub edits: Vec<EditRecord>,
    /// The version after the last edit that could be read; `None` where more than the last append is damaged.
    pub version: Option<Version>,
    /// The last append of the manifest is damaged, and was whole: `version` is the one before it.
    pub lacks_last: bool,
    /// What is wrong with the manifest.
    pub problems: Vec<Problem>,
}

impl InspectedRegion {
    /// Reads the region that the catalog of `store` names in `entry`. Blocks.
    #[must_use]
    pub fn read(store: &Arc<Store>, entry: &RegionEntry, settings: &Settings) -> Self {
        let mut region = Self {
            entry: entry.clone(),
            edits: Vec::new(),
            version: None,
            lacks_last: false,
            problems: Vec::new(),
        };
        let Some(shape) = Shape::from_word(entry.words[1]) else {
            let what = format!(
                "its address mode or its sizes, {:#x}, are those of a later version",
                entry.words[1]
            );
            region.report(ProblemKind::Unreadable, None, what);
            return region;
        };
        let segment_bytes =
            u32::try_from(settings.layout.segment_bytes).expect("settings are validated");
        let records = match manifest::replay(store, entry, segment_bytes) {
            Ok(replayed) => {
                for torn in [replayed.torn, replayed.damaged_witness]
                    .into_iter()
                    .flatten()
                {
                    let at = Some((torn.segment, torn.offset));
                    region.report(ProblemKind::Damaged, at, torn.what);
                }
                replayed.records
            }
            Err(error) => {
                region.refuse(&error);
                let records = manifest::replay_without_last(store, entry, segment_bytes);
                let Some(records) = records else {
                    return region;
                };
                region.lacks_last = true;
                records
            }
        };
        let mut version = Version::empty(entry.region, shape.addresses);
        for record in records {
            let applied = apply(store, &version, &record);
            let first = region.edits.is_empty();
            match applied {
                Ok((_, edit)) if first && !edit.checkpoint => {
                    let at = entry.manifest.first().map(|place| (*place, 0));
                    let what = "it does not begin with a checkpoint";
                    region.report(ProblemKind::Damaged, at, what);
                    return region;
                }
                Ok((next, edit)) => {
                    version = next;
                    let places = record.places;
                    region.edits.push(EditRecord { edit, places });
                }
                Err(what) => {
                    let first = entry.manifest.first().map(|place| (*place, 0));
                    let what = format!("edit {} of it {what}", region.edits.len());
                    region.report(ProblemKind::Reference, first, what);
                    return region;
                }
            }
        }
        region.version = Some(version);
        region
    }

    fn refuse(&mut self, error: &ManifestError) {
        match error {
            ManifestError::Corrupt {
                segment,
                offset,
                what,
                ..
            } => self.report(ProblemKind::Damaged, Some((*segment, *offset)), *what),
            other => self.report(ProblemKind::Unreadable, None, other.to_string()),
        }
    }

    fn report(
        &mut self,
        kind: ProblemKind,
        at: Option<(DeviceSegment, u32)>,
        what: impl Into<String>,
    ) {
        self.problems.push(Problem {
            kind,
            part: "manifest".to_owned(),
            region: Some(self.entry.region),
            number: None,
            place: at.map(|(place, _)| place),
            offset: at.map_or(0, |(_, offset)| offset),
            what: what.into(),
        });
    }

    /// The version after edit `seq`, if the manifest still has it.
    #[must_use]
    pub fn version_at(&self, store: &Arc<Store>, seq: argosy_base::EditSeq) -> Option<Version> {
        let shape = Shape::from_word(self.entry.words[1])?;
        let mut version = Version::empty(self.entry.region, shape.addresses);
        for record in &self.edits {
            let record = manifest::ManifestRecord {
                edit: record.edit.encode(),
                places: record.places.clone(),
            };
            version = apply(store, &version, &record).ok()?.0;
            if version.seq() == seq {
                return Some(version);
            }
        }
        None
    }
}

/// The version after the edit in `record`.
fn apply(
    store: &Arc<Store>,
    version: &Version,
    record: &manifest::ManifestRecord,
) -> Result<(Version, Edit), String> {
    let edit = Edit::decode(&record.edit).map_err(|error| error.to_string())?;
    let stored = |(number, place): &(SegmentNumber, DeviceSegment)| {
        let stored = StoredSegment::unclaimed(*number, Arc::clone(store), *place);
        (*number, stored)
    };
    let places = record.places.iter().map(stored).collect();
    let next = version.apply(&edit, &places);
    let next = next.map_err(|error| format!("does not fit: {error}"))?;
    Ok((next, edit))
}

/// Who refers to a device segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A manifest's chain: the region, and the place in the chain.
    Manifest(RegionId, usize),
    /// A level: the region, the level, its run, the segment's number.
    Level(RegionId, u8, RunId, SegmentNumber),
    /// The medium log: the region, the segment's number.
    Medium(RegionId, SegmentNumber),
    /// A log's chain: the region, the log, the place in the chain, the segment's number.
    Log(RegionId, LogId, u64, SegmentNumber),
    /// A pinned version, by the id under which the catalog names it: the segment's number. Beside the
    /// region that it is of, or alone.
    Pin(RegionId, SegmentNumber),
    /// The cut segments of a region's log. Beside the log, or alone.
    Cut(RegionId, LogId),
}

impl Owner {
    /// The region.
    #[must_use]
    pub const fn region(&self) -> RegionId {
        match self {
            Self::Manifest(region, _)
            | Self::Level(region, ..)
            | Self::Medium(region, _)
            | Self::Log(region, ..)
            | Self::Pin(region, _)
            | Self::Cut(region, _) => *region,
        }
    }

    /// The segment's number. A manifest's segment has none; a cut segment's is in its header.
    #[must_use]
    pub const fn number(&self) -> Option<SegmentNumber> {
        match self {
            Self::Manifest(..) | Self::Cut(..) => None,
            Self::Level(_, _, _, number)
            | Self::Medium(_, number)
            | Self::Log(_, _, _, number)
            | Self::Pin(_, number) => Some(*number),
        }
    }

    /// What of the region: "manifest", "L1", "recovery log", …
    #[must_use]
    pub fn part(&self) -> String {
        match self {
            Self::Manifest(..) => "manifest".to_owned(),
            Self::Level(_, level, ..) => format!("L{level}"),
            Self::Medium(..) => MEDIUM_LOG.to_owned(),
            Self::Log(_, log, ..) => log_name(*log).to_owned(),
            Self::Pin(..) => "checkpoint".to_owned(),
            Self::Cut(_, log) => format!("cut segments of the {}", log_name(*log)),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.region(), self.part())?;
        match self.number() {
            Some(number) => write!(f, " {number}"),
            None => Ok(()),
        }
    }
}

/// Who refers to each device segment, over all regions of a device. The number of owners is the
/// count of references with which a server opens, but for level segments that no level shows and whose pointers have
/// yet to be counted: they have no owner here.
#[must_use]
pub fn owners(regions: &[InspectedRegion]) -> BTreeMap<DeviceSegment, Vec<Owner>> {
    let mut owners: BTreeMap<DeviceSegment, Vec<Owner>> = BTreeMap::new();
    for region in regions {
        let id = region.entry.region;
        for (index, place) in region.entry.manifest.iter().enumerate() {
            let owner = Owner::Manifest(id, index);
            owners.entry(*place).or_default().push(owner);
        }
        let Some(version) = &region.version else {
            continue;
        };
        for (level, run) in version.runs() {
            for entry in run.entries() {
                let owner = Owner::Level(id, level, run.id, entry.segment.number);
                let list = owners.entry(entry.stored.place()).or_default();
                // A segment whose middle was consumed is named once for each of its bounds.
                if !list.contains(&owner) {
                    list.push(owner);
                }
            }
        }
        for (number, entry) in version.medium_log() {
            let owner = Owner::Medium(id, *number);
            owners.entry(entry.stored.place()).or_default().push(owner);
        }
        for log in LOGS {
            for entry in version.log(log) {
                let owner = Owner::Log(id, log, entry.segment.ordinal, entry.segment.number);
                owners.entry(entry.stored.place()).or_default().push(owner);
            }
        }
    }
    owners
}

/// Adds what a pin refers to, of which the catalog says `entry`.
pub fn add_pin(
    owners: &mut BTreeMap<DeviceSegment, Vec<Owner>>,
    entry: &RegionEntry,
    version: &Version,
) {
    for (index, place) in entry.manifest.iter().enumerate() {
        let owner = Owner::Manifest(entry.region, index);
        owners.entry(*place).or_default().push(owner);
    }
    for stored in version.table().values() {
        let owner = Owner::Pin(entry.region, stored.number());
        owners.entry(stored.place()).or_default().push(owner);
    }
}

/// Adds what the catalog's `entry` keeps, if that is of cut segments.
pub fn add_cut(owners: &mut BTreeMap<DeviceSegment, Vec<Owner>>, entry: &RegionEntry) {
    if let EntryKind::Cut(region, log) = kind_of(entry) {
        for place in &entry.manifest {
            let owner = Owner::Cut(region, log);
            owners.entry(*place).or_default().push(owner);
        }
    }
}

/// Device segments that have more than one owner beside pins and cut segments, or that the device does not have for
/// anyone.
#[must_use]
pub fn verify_owners(owners: &BTreeMap<DeviceSegment, Vec<Owner>>, segments: u32) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (place, owners) in owners {
        let mut report = |kind, owner: &Owner, what: String| {
            problems.push(Problem {
                kind,
                part: owner.part(),
                region: Some(owner.region()),
                number: owner.number(),
                place: Some(*place),
                offset: 0,
                what,
            });
        };
        if place.0 == 0 || place.0 >= segments {
            for owner in owners {
                let what = format!("the device has segments 1 to {} for regions", segments - 1);
                report(ProblemKind::Missing, owner, what);
            }
            continue;
        }
        let shares = |owner: &&Owner| matches!(owner, Owner::Pin(..) | Owner::Cut(..));
        let owners: Vec<_> = owners.iter().filter(|owner| !shares(owner)).collect();
        if let [first, others @ ..] = owners.as_slice()
            && !others.is_empty()
        {
            let others: Vec<_> = others.iter().map(|owner| owner.to_string()).collect();
            let count = owners.len();
            let what = format!("{count} refer to this segment: also {}", others.join(", "));
            report(ProblemKind::DoublyOwned, first, what);
        }
    }
    problems
}
