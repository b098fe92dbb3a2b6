//! Where which kind of block lies on a device: the kinds of docs/formats.md, found by what the formats say.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use argosy_base::{DeviceSegment, Lsn, RegionId};
use argosy_device::{Buffer, Device, MemoryDevice, RegionEntry, Store};
use argosy_lsm::edit::LevelSegment;
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::inspect::contents::{Content, contents};
use argosy_lsm::names::Form;
use argosy_lsm::names::logs::{LOGS, RECOVERY_LOG};
use argosy_lsm::pins::{self, FIRST_PIN};
use argosy_lsm::{Settings, Version};

/// Every kind of block that a device can have.
pub(crate) const KINDS: [&str; 20] = [
    SUPERBLOCK,
    CATALOG,
    CHECKPOINT,
    EDITS,
    LAST_EDITS,
    WITNESS,
    PIN,
    "header of a recovery log segment",
    "header of a large log segment",
    OLD_HEADER,
    "record of the recovery log",
    "record of the large log",
    LEAF,
    "index",
    "index node",
    FILTER,
    "table",
    "footer",
    "medium value",
    "footer of a medium segment",
];

pub(crate) const SUPERBLOCK: &str = "superblock";
pub(crate) const CATALOG: &str = "catalog";
/// The first record of a manifest.
pub(crate) const CHECKPOINT: &str = "manifest, checkpoint";
/// What lies between its first and its last append.
pub(crate) const EDITS: &str = "manifest, edits";
/// Its last append.
pub(crate) const LAST_EDITS: &str = "manifest, last append";
/// The blocks that say that it was durable.
pub(crate) const WITNESS: &str = "manifest, witness";
/// The manifest of a pin.
pub(crate) const PIN: &str = "manifest of a pin";
/// The header of a segment of the large log in front of what an opening replays.
pub(crate) const OLD_HEADER: &str = "header of an old large log segment";
pub(crate) const LEAF: &str = "leaf";
pub(crate) const FILTER: &str = "filter";

/// By kind, where its blocks lie, in bytes of the device.
pub(crate) type Blocks = BTreeMap<&'static str, Vec<Range<u64>>>;

/// `len` bytes of a device, from any byte.
pub(crate) fn bytes_at(device: &MemoryDevice, at: u64, len: u64) -> Vec<u8> {
    let from = at / 4096 * 4096;
    let to = (at + len).next_multiple_of(4096);
    let mut bytes = Buffer::zeroed(usize::try_from(to - from).unwrap());
    device.read(from, &mut bytes).unwrap();
    let skip = usize::try_from(at - from).unwrap();
    bytes[skip..skip + usize::try_from(len).unwrap()].to_vec()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The version of the first region, as it lies on a device.
pub(crate) fn version_on(device: &Arc<MemoryDevice>, settings: &Settings) -> Version {
    let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    let store = Store::open_read_only(device).unwrap();
    let region = InspectedRegion::read(&store, &store.regions()[0], settings);
    region.version.unwrap()
}

/// All blocks of a device of one region that was closed, and of its pins.
pub(crate) fn blocks(device: &Arc<MemoryDevice>, settings: &Settings) -> Blocks {
    let opened: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    let store = Store::open_read_only(opened).unwrap();
    let mut found = Blocks::new();
    let copies = [0, 64 << 10].map(|at| at..at + 512);
    found.insert(SUPERBLOCK, copies.to_vec());
    let slots = [128 << 10, 1088 << 10].map(|at| {
        let head = bytes_at(device, at, 32);
        at..at + u64::from(u32_at(&head, 24))
    });
    found.insert(CATALOG, slots.to_vec());
    let mut versions = vec![version_on(device, settings)];
    for entry in store.regions() {
        manifest(device, &entry, settings, &mut found);
        if entry.region >= FIRST_PIN {
            let region: RegionId = store.regions()[0].region;
            let (_, pinned) = pins::read(&store, &entry, region, settings).unwrap();
            versions.push(pinned);
        }
    }
    let replay_from = versions[0].replay_from();
    for version in &versions {
        logs(version, replay_from, settings, &mut found);
        for entry in version.finished() {
            finished(device, entry.stored.place(), &entry.segment, &mut found);
        }
    }
    found
}

/// Bytes in front of the first append of a chain.
const WITNESSES_BYTES: u64 = 8192;

/// See `lsm/manifest/format.rs`.
fn manifest(device: &MemoryDevice, entry: &RegionEntry, settings: &Settings, found: &mut Blocks) {
    let (mut appends, mut index) = (Vec::new(), 0);
    let mut at = WITNESSES_BYTES;
    'chain: for segment in &entry.manifest {
        while at < settings.layout.segment_bytes as u64 {
            let head = bytes_at(device, segment.start() + at, 32);
            let generation = u64::from_le_bytes(head[8..16].try_into().unwrap());
            if generation != entry.words[0] || u32_at(&head, 16) != index {
                break 'chain;
            }
            let len = 32 + u64::from(u32_at(&head, 24));
            let from = segment.start() + at;
            appends.push((u32_at(&head, 20), from..from + len));
            index += 1;
            at += len.next_multiple_of(4096);
        }
        at = 0;
    }
    let first = appends[0].0;
    let last = appends.last().map(|(append, _)| *append);
    if Some(first) != last {
        let witnesses = entry.manifest[0].start();
        let witnesses = [0, 4096].map(|at| witnesses + at..witnesses + at + 32);
        let generation = entry.words[0].to_le_bytes();
        let written = |block: &Range<u64>| bytes_at(device, block.start + 8, 8) == generation;
        for block in witnesses.into_iter().filter(written) {
            found.entry(WITNESS).or_default().push(block);
        }
    }
    for (append, range) in appends {
        let kind = match append {
            _ if entry.region >= FIRST_PIN => PIN,
            append if append == first => CHECKPOINT,
            append if Some(append) == last => LAST_EDITS,
            _ => EDITS,
        };
        found.entry(kind).or_default().push(range);
    }
}

/// See `log/segment.rs` and `log/record.rs`.
fn logs(version: &Version, replay_from: Lsn, settings: &Settings, found: &mut Blocks) {
    for log in LOGS {
        let (header, record) = match log {
            RECOVERY_LOG => (
                "header of a recovery log segment",
                "record of the recovery log",
            ),
            _ => ("header of a large log segment", "record of the large log"),
        };
        for entry in version.log(log) {
            let start = entry.stored.place().start();
            let (mut records, mut replayed) = (Vec::new(), log == RECOVERY_LOG);
            let number = entry.segment.number;
            let _ = contents(version, number, settings, &mut |content| {
                if let Content::Record(at, record) = content {
                    replayed |= record.lsn >= replay_from;
                    // A record is at least so long.
                    let len = 8 + record.key.len() + record.value.len();
                    let at = start + u64::from(at);
                    records.push(at..at + len as u64);
                }
                ControlFlow::Continue(())
            });
            if !records.is_empty() {
                let header = if replayed { header } else { OLD_HEADER };
                found.entry(header).or_default().push(start..start + 64);
                found.entry(record).or_default().extend(records);
            }
        }
    }
}

/// See `lsm/level/format.rs`.
fn finished(
    device: &MemoryDevice,
    place: DeviceSegment,
    segment: &LevelSegment,
    found: &mut Blocks,
) {
    let (start, end) = (place.start(), place.start() + u64::from(segment.len));
    let footer = bytes_at(device, end - 128, 128);
    let word = |at| u64::from(u32_at(&footer, at));
    let (index, filter, table, leaves) = (word(56), word(60), word(64), word(68));
    let medium = segment.form == Form::Medium;
    let (kind, footer) = match segment.form {
        Form::Medium => ("medium value", "footer of a medium segment"),
        Form::Index(_) => ("index node", "footer"),
        _ => (LEAF, "footer"),
    };
    let mut add = |kind, from: u64, len: u64| {
        if len > 0 {
            found.entry(kind).or_default().push(from..from + len);
        }
    };
    add(kind, start, leaves);
    add("index", start + leaves, index);
    add(FILTER, start + leaves + index, filter);
    if !medium {
        add("table", start + leaves + index + filter, table);
    }
    add(footer, end - 128, 128);
}
