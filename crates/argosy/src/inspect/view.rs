//! What of a store and its regions is printed: plain data, for people and for programs.

use argosy_base::{KeyRange, RegionId};
use argosy_device::{HeadBlock, Superblock};
use argosy_lsm::inspect::{InspectedRegion, LogEnds, Owner, Problem};
use argosy_lsm::names::logs::{LOGS, log_word};
use argosy_lsm::scrub::Damage;
use argosy_lsm::shape::Shape;
use serde::Serialize;

use super::cut::CutView;
use crate::bytes::to_base64;
use crate::sparse::SparseFile;

/// A copy of superblock or catalog.
#[derive(Serialize)]
pub(super) struct HeadView {
    what: &'static str,
    copy: usize,
    offset: u32,
    generation: Option<u64>,
    trouble: Option<String>,
}

impl From<&HeadBlock> for HeadView {
    fn from(block: &HeadBlock) -> Self {
        Self {
            what: block.what,
            copy: block.copy,
            offset: block.offset,
            generation: block.generation,
            trouble: block.trouble.clone(),
        }
    }
}

/// The superblock.
#[derive(Serialize)]
pub(super) struct SuperblockView {
    pub(super) server: u32,
    pub(super) device_id: String,
    pub(super) cluster_id: String,
    pub(super) created_by: String,
    pub(super) segments: u32,
    pub(super) incarnation: u64,
    pub(super) generation: u64,
    /// Bytes of its file, and what it takes of the file system, where that is less.
    pub(super) file_bytes: Option<u64>,
    pub(super) taken_bytes: Option<u64>,
}

impl SuperblockView {
    pub(super) fn new(superblock: &Superblock, file: Option<SparseFile>) -> Self {
        Self {
            server: superblock.server.0,
            device_id: format!("{:032x}", superblock.device_id),
            cluster_id: format!("{:032x}", superblock.cluster_id),
            created_by: superblock.created_by.clone(),
            segments: superblock.segments,
            incarnation: superblock.incarnation.0,
            generation: superblock.generation,
            file_bytes: file.map(|file| file.bytes),
            taken_bytes: file.map(|file| file.taken),
        }
    }
}

/// A region.
#[derive(Serialize)]
pub(super) struct RegionView {
    pub(super) region: u32,
    /// What pointers inside its level segments name; `None` where this program does not know.
    pub(super) addresses: Option<&'static str>,
    pub(super) manifest: ManifestView,
    pub(super) version: Option<VersionView>,
    /// Its cut segments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) cut_segments: Vec<CutView>,
    pub(super) problems: Vec<ProblemView>,
}

/// A checkpoint: a version that is kept under a name.
#[derive(Default, Serialize)]
pub(super) struct CheckpointView {
    /// Under which the catalog names it.
    pub(super) id: u32,
    pub(super) name: Option<String>,
    /// Everything up to here is in it.
    pub(super) last_lsn: u64,
    pub(super) segments: usize,
    /// How many of these are of levels, of the medium log, and of the large log.
    pub(super) level_segments: usize,
    pub(super) medium_segments: usize,
    pub(super) log_segments: usize,
    /// Those that nothing else refers to: they are free once the checkpoint is dropped.
    pub(super) own_segments: usize,
    /// Bytes of device that these take, without the manifest.
    pub(super) own_bytes: u64,
    /// Their numbers, and where they lie.
    pub(super) pinned: Vec<PlaceView>,
    /// Why it cannot be read.
    pub(super) trouble: Option<String>,
}

/// A manifest.
#[derive(Serialize)]
pub(super) struct ManifestView {
    pub(super) generation: u64,
    pub(super) device_segments: Vec<u32>,
    pub(super) edits: Vec<EditView>,
}

/// An edit of a manifest.
#[derive(Serialize)]
pub(super) struct EditView {
    pub(super) seq: u64,
    pub(super) checkpoint: bool,
    pub(super) text: String,
    pub(super) places: Vec<PlaceView>,
}

/// Where a segment lies.
#[derive(Serialize)]
pub(super) struct PlaceView {
    pub(super) number: u64,
    pub(super) device_segment: u32,
}

/// A version.
#[derive(Serialize)]
pub(super) struct VersionView {
    pub(super) edit: u64,
    pub(super) epoch: u32,
    pub(super) replay_from: u64,
    pub(super) durable: u64,
    pub(super) mark: u64,
    pub(super) digest: String,
    pub(super) levels: Vec<LevelView>,
    pub(super) medium_log: Vec<MediumView>,
    pub(super) trees: Vec<TreeView>,
    pub(super) logs: Vec<LogView>,
}

/// A run that is a tree across its segments, and where that begins.
#[derive(Serialize)]
pub(super) struct TreeView {
    pub(super) level: u8,
    pub(super) run: u64,
    pub(super) root_number: u64,
    pub(super) root_offset: u32,
    pub(super) root_bytes: u32,
    pub(super) height: u8,
}

/// A level segment.
#[derive(Serialize)]
pub(super) struct LevelView {
    pub(super) level: u8,
    pub(super) run: u64,
    pub(super) number: u64,
    /// "self-contained", or of a tree: "leaves", "index 1", "index 2", …
    pub(super) form: String,
    pub(super) device_segment: u32,
    pub(super) epoch: u32,
    pub(super) bytes: u32,
    pub(super) checksum: String,
    pub(super) entries: u32,
    pub(super) tombstones: u32,
    #[serde(flatten)]
    pub(super) keys: RangeView,
    #[serde(flatten)]
    pub(super) referenced: ReferencedView,
}

/// A segment of the medium log.
#[derive(Serialize)]
pub(super) struct MediumView {
    pub(super) number: u64,
    pub(super) device_segment: u32,
    pub(super) epoch: u32,
    pub(super) bytes: u32,
    pub(super) checksum: String,
    pub(super) values: u32,
    #[serde(flatten)]
    pub(super) keys: RangeView,
    /// Bytes of pairs that levels point to in it.
    pub(super) referenced: u64,
}

/// A range of keys, without its end.
#[derive(Serialize)]
pub(super) struct RangeView {
    pub(super) from: KeyView,
    pub(super) to: Option<KeyView>,
}

impl RangeView {
    fn of(range: &KeyRange) -> Self {
        Self {
            from: KeyView::of(&range.from),
            to: range.to.as_deref().map(KeyView::of),
        }
    }
}

/// Bytes of keys and values in logs that a level segment points to.
#[derive(Serialize)]
pub(super) struct ReferencedView {
    /// In the large log.
    pub(super) large_bytes: u64,
    /// In the medium log.
    pub(super) medium_bytes: u64,
}

/// A key: its bytes, and what a person can read of them.
#[derive(Serialize)]
pub(super) struct KeyView {
    pub(super) text: String,
    pub(super) base64: String,
}

impl KeyView {
    pub(super) fn of(key: &[u8]) -> Self {
        Self {
            text: key.escape_ascii().to_string(),
            base64: to_base64(key),
        }
    }
}

/// A log segment.
#[derive(Serialize)]
pub(super) struct LogView {
    pub(super) log: &'static str,
    pub(super) ordinal: u64,
    pub(super) number: u64,
    pub(super) device_segment: u32,
    pub(super) epoch: u32,
    pub(super) base_lsn: u64,
    /// Where it was sealed; `None`: it goes on.
    pub(super) sealed_at: Option<u32>,
    /// How many bytes of it belong to the history; `None` where that cannot be told.
    pub(super) held: Option<u32>,
    /// Bytes that levels point to.
    pub(super) referenced: u64,
    /// Of the large log: bytes that nothing leads to, as garbage collection counts them; `None` of another
    /// log, or where it cannot be told.
    pub(super) dead: Option<u64>,
}

/// Something wrong.
#[derive(Serialize)]
pub(super) struct ProblemView {
    kind: &'static str,
    part: String,
    region: Option<u32>,
    number: Option<u64>,
    device_segment: Option<u32>,
    offset: u32,
    what: String,
    advice: &'static str,
}

impl ProblemView {
    /// For people, in a few words.
    pub(super) fn text(&self) -> String {
        format!("{}: {}: {}", self.kind, self.part, self.what)
    }
}

/// Something damaged, and the keys that it concerns.
#[derive(Serialize)]
pub(super) struct DamageView {
    kind: &'static str,
    region: u32,
    part: String,
    number: u64,
    device_segment: u32,
    offset: u32,
    what: String,
    keys: Vec<RangeView>,
    /// Ranges of keys that are left out.
    more_keys: usize,
    #[serde(skip)]
    text: String,
}

impl DamageView {
    /// For people.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl From<&Damage> for DamageView {
    fn from(damage: &Damage) -> Self {
        Self {
            kind: damage.kind.name(),
            region: damage.region.0,
            part: damage.part.clone(),
            number: damage.number.0,
            device_segment: damage.place.0,
            offset: damage.offset,
            what: damage.what.clone(),
            keys: damage.keys.iter().map(RangeView::of).collect(),
            more_keys: damage.more_keys,
            text: damage.to_string(),
        }
    }
}

impl From<&Problem> for ProblemView {
    fn from(problem: &Problem) -> Self {
        Self {
            kind: problem.kind.name(),
            part: problem.part.clone(),
            region: problem.region.map(|region| region.0),
            number: problem.number.map(|number| number.0),
            device_segment: problem.place.map(|place| place.0),
            offset: problem.offset,
            what: problem.what.clone(),
            advice: problem.advice(),
        }
    }
}

/// Who refers to a device segment.
#[derive(Serialize)]
pub(super) struct SegmentView {
    pub(super) device_segment: u32,
    pub(super) references: usize,
    pub(super) owners: Vec<OwnerView>,
}

/// One who does.
#[derive(Serialize)]
pub(super) struct OwnerView {
    region: u32,
    part: String,
    number: Option<u64>,
}

impl OwnerView {
    /// For people.
    pub(super) fn text(&self) -> String {
        let Self { region, part, .. } = self;
        match self.number {
            Some(number) => format!("region {region} {part} segment {number}"),
            None => format!("region {region} {part}"),
        }
    }
}

impl From<&Owner> for OwnerView {
    fn from(owner: &Owner) -> Self {
        Self {
            region: owner.region().0,
            part: owner.part(),
            number: owner.number().map(|number| number.0),
        }
    }
}

impl RegionView {
    /// The region, and where its logs end if that is known.
    pub(super) fn new(region: &InspectedRegion, ends: Option<&LogEnds>) -> Self {
        let RegionId(id) = region.entry.region;
        Self {
            region: id,
            addresses: Shape::from_word(region.entry.words[1]).map(|shape| shape.addresses.name()),
            manifest: ManifestView {
                generation: region.entry.words[0],
                device_segments: region.entry.manifest.iter().map(|place| place.0).collect(),
                edits: region.edits.iter().map(edit_view).collect(),
            },
            version: region.version.as_ref().map(|version| VersionView {
                edit: version.seq().0,
                epoch: version.epoch().0,
                replay_from: version.replay_from().0,
                durable: version.durable().0,
                mark: version.mark().0,
                digest: format!("{:016x}", version.levels_digest()),
                levels: level_views(version),
                medium_log: medium_views(version),
                trees: tree_views(version),
                logs: log_views(version, ends),
            }),
            cut_segments: Vec::new(),
            problems: region.problems.iter().map(ProblemView::from).collect(),
        }
    }
}

fn edit_view(record: &argosy_lsm::inspect::EditRecord) -> EditView {
    let place =
        |(number, place): &(argosy_base::SegmentNumber, argosy_base::DeviceSegment)| PlaceView {
            number: number.0,
            device_segment: place.0,
        };
    EditView {
        seq: record.edit.seq.0,
        checkpoint: record.edit.checkpoint,
        text: record.edit.to_string(),
        places: record.places.iter().map(place).collect(),
    }
}

fn level_views(version: &argosy_lsm::Version) -> Vec<LevelView> {
    let runs = version.runs();
    let entries = runs.flat_map(|(level, run)| {
        let segments = run.entries();
        segments.map(move |entry| (level, run.id.0, entry))
    });
    entries
        .map(|(level, run, entry)| {
            let segment = &entry.segment;
            LevelView {
                level,
                run,
                number: segment.number.0,
                form: segment.form.to_string(),
                device_segment: entry.stored.place().0,
                epoch: segment.epoch.0,
                bytes: segment.len,
                checksum: format!("{:08x}", segment.checksum),
                entries: segment.entries,
                tombstones: segment.tombstones,
                keys: RangeView::of(&segment.range),
                referenced: ReferencedView {
                    large_bytes: segment.large_bytes,
                    medium_bytes: segment.medium_bytes,
                },
            }
        })
        .collect()
}

fn medium_views(version: &argosy_lsm::Version) -> Vec<MediumView> {
    let entries = version.medium_log().values();
    entries
        .map(|entry| {
            let segment = &entry.segment;
            MediumView {
                number: segment.number.0,
                device_segment: entry.stored.place().0,
                epoch: segment.epoch.0,
                bytes: segment.len,
                checksum: format!("{:08x}", segment.checksum),
                values: segment.entries,
                keys: RangeView::of(&segment.range),
                referenced: version.log_refs(segment.number),
            }
        })
        .collect()
}

fn tree_views(version: &argosy_lsm::Version) -> Vec<TreeView> {
    let runs = version.runs();
    let trees = runs.filter_map(|(level, run)| Some((level, run.id.0, run.tree.as_ref()?.tree)));
    trees
        .map(|(level, run, tree)| TreeView {
            level,
            run,
            root_number: tree.root.segment().0,
            root_offset: tree.root.offset(),
            root_bytes: tree.len,
            height: tree.height,
        })
        .collect()
}

fn log_views(version: &argosy_lsm::Version, ends: Option<&LogEnds>) -> Vec<LogView> {
    let entries = LOGS.into_iter().flat_map(|log| version.log(log));
    entries
        .map(|entry| {
            let segment = &entry.segment;
            LogView {
                log: log_word(segment.log),
                ordinal: segment.ordinal,
                number: segment.number.0,
                device_segment: entry.stored.place().0,
                epoch: segment.epoch.0,
                base_lsn: segment.base_lsn.0,
                sealed_at: segment.end,
                held: ends.map(|ends| ends.held(segment).min(segment_bytes())),
                referenced: version.log_refs(segment.number),
                dead: ends.and_then(|ends| ends.dead(version, segment)),
            }
        })
        .collect()
}

/// Bytes of a segment, as offsets count them.
fn segment_bytes() -> u32 {
    u32::try_from(argosy_base::SEGMENT_SIZE).expect("2 MiB fit")
}
