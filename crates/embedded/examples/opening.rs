//! How long a store with much in it takes to open: the manifest of so many gibibytes of live data is made,
//! without the data, and opened.
//!
//! The manifest is a checkpoint and edits behind it, as many as there can be before it is begun anew: nearly as many
//! bytes as the checkpoint has. Each is that of a merge: ten segments go, ten come in their place, and pointers into
//! twenty segments of the large log are dropped.
//!
//! ```sh
//! cargo run --release -p argosy-embedded --example opening -- DIR [GIB] [LARGE-LOG-PERCENT]
//! ```
//!
//! `DIR` must not exist. LARGE-LOG-PERCENT of the data (default 50) lie in the large log, and half of the
//! log is garbage. The device is a sparse file: nothing is written to segments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argosy_base::{
    Clock as _, DeviceSegment, EditSeq, Identity, KeyRange, Kind, Lsn, RegionId, SEGMENT_SIZE,
    SegmentNumber,
};
use argosy_device::{
    Buffer, Device, FileDevice, FileSettings, FormatOptions, Purpose, Store, StoreSettings,
    SystemClock,
};
use argosy_engine::Store as _;
use argosy_log::Record;
use argosy_log::segment::encode_segment_header;
use argosy_lsm::edit::{Edit, LevelSegment, LogSegment, Place, Reference, RunId};
use argosy_lsm::inspect::InspectedRegion;
use argosy_lsm::manifest::{self, Manifest};
use argosy_lsm::names::logs::LARGE_LOG;
use argosy_lsm::{Lsm, Settings};
use argosy_memory::AnonymousWindows;

type Error = Box<dyn std::error::Error>;

const REGION: RegionId = RegionId(1);

/// What the data are.
struct Shape {
    level_segments: u64,
    log_segments: u64,
}

/// The level that has the segments.
const LEVEL: u8 = 5;

/// Segments that a merge takes away and brings.
const MERGED: u64 = 10;

/// Segments of the large log into which it drops pointers.
const DROPPED: u64 = 20;

/// The manifest that was made.
#[derive(Default)]
struct Made {
    checkpoint_bytes: usize,
    edits: u64,
    edit_bytes: usize,
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments
        .next()
        .ok_or("name a directory that does not exist")?;
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (gib, percent) = (number(100)?, number(50)?);
    let segments = (gib << 30) / SEGMENT_SIZE as u64;
    let log_segments = segments * percent.min(99) / 100;
    let shape = Shape {
        level_segments: segments - log_segments,
        log_segments,
    };
    std::fs::create_dir(&dir)?;
    let path = PathBuf::from(dir).join("device");
    let bytes = (gib << 30) + (4 << 30);
    let made = make(&path, bytes, &shape)?;
    println!(
        "{gib} GiB: {} level segments, {} of the large log; a checkpoint of {} KiB, {} edits of {} KiB behind it",
        shape.level_segments,
        shape.log_segments,
        made.checkpoint_bytes >> 10,
        made.edits,
        made.edit_bytes >> 10,
    );
    for round in 1..=5 {
        let began = SystemClock.now();
        let store = open(&path)?;
        let windows = AnonymousWindows::new();
        let engine = Lsm::open(&store, REGION, &windows, &Settings::default(), None)?;
        let took = SystemClock.now().since(began);
        let read = store.device().counters().read_bytes;
        println!(
            "opening {round}: {} ms, {} KiB read, {} segments in use",
            took.as_millis(),
            read >> 10,
            store.used()
        );
        engine.close()?;
    }
    Ok(())
}

fn open(path: &Path) -> Result<Arc<Store>, Error> {
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(path, &FileSettings::default())?);
    Ok(Store::open(device, &StoreSettings::default())?)
}

/// Makes the store.
fn make(path: &Path, bytes: u64, shape: &Shape) -> Result<Made, Error> {
    let settings = Settings::default();
    let device = FileDevice::open_or_create(path, bytes, &FileSettings::default())?;
    Store::format(&device, &FormatOptions::default())?;
    drop(device);
    let store = open(path)?;
    let windows = AnonymousWindows::new();
    let engine = Lsm::open(&store, REGION, &windows, &settings, None)?;
    engine.close()?;
    drop((engine, store));

    let store = open(path)?;
    let entry = store.regions()[0].clone();
    let version = InspectedRegion::read(&store, &entry, &settings).version;
    let version = version.ok_or("the region cannot be read")?;
    let segment_bytes = u32::try_from(settings.layout.segment_bytes)?;
    let (mut manifest, _) = Manifest::open(&store, &entry, segment_bytes)?;
    let mut places: Vec<_> = version
        .table()
        .iter()
        .map(|(number, stored)| (*number, stored.place()))
        .collect();
    for (_, place) in &places {
        store.claim(*place)?.keep();
    }
    store.finish_recovery();
    let mut edit = version.checkpoint();
    let first = edit.numbers.mark.unwrap_or(SegmentNumber(1)).0;
    fill(&mut edit, first, shape);
    for number in first..first + shape.level_segments + shape.log_segments {
        let place = store.allocate(Purpose::Metadata)?;
        places.push((SegmentNumber(number), place.segment()));
        if number + 1 == first + shape.log_segments {
            begin_log(&store, place.segment(), &edit, SegmentNumber(number))?;
        }
        place.keep();
    }
    edit.seq = EditSeq(edit.seq.0 + 1);
    let record = manifest::ManifestRecord {
        edit: edit.encode(),
        places,
    };
    manifest.checkpoint(&record)?;
    manifest.wait()?;
    merge(&mut manifest, &edit, first, shape, record.places)
}

/// Bytes of a place in a record, roughly.
const PLACE_BYTES: usize = 8;

/// Appends edits of merges, up to a sixteenth before the manifest would be begun anew.
fn merge(
    manifest: &mut Manifest,
    checkpoint: &Edit,
    first: u64,
    shape: &Shape,
    places: Vec<(SegmentNumber, DeviceSegment)>,
) -> Result<Made, Error> {
    let mut made = Made {
        checkpoint_bytes: checkpoint.encode().len() + PLACE_BYTES * places.len(),
        ..Made::default()
    };
    let most = made.checkpoint_bytes.max(SEGMENT_SIZE / 2) / 16 * 15;
    let mut places: BTreeMap<_, _> = places.into_iter().collect();
    let mut segments: Vec<_> = checkpoint
        .added
        .iter()
        .map(|(_, _, segment)| segment.clone())
        .collect();
    let mut next = checkpoint.numbers.mark.unwrap_or(SegmentNumber(1)).0;
    let mut batch = Vec::new();
    while made.edit_bytes < most && !manifest.wants_checkpoint() {
        let mut edit = Edit::new(EditSeq(checkpoint.seq.0 + 1 + made.edits), checkpoint.epoch);
        edit.numbers.mark = Some(SegmentNumber(next + MERGED));
        let mut record = manifest::ManifestRecord {
            edit: Vec::new(),
            places: Vec::new(),
        };
        // All over the level, as merges of parts of many levels are.
        let begin = made.edits * 7919 * MERGED % (shape.level_segments - MERGED);
        for segment in &mut segments[usize::try_from(begin)?..][..usize::try_from(MERGED)?] {
            edit.removed.push(Place {
                level: LEVEL,
                run: RunId(0),
                number: segment.number,
            });
            // What went is where the next comes.
            let place = places.remove(&segment.number).ok_or("it has a place")?;
            segment.number = SegmentNumber(next);
            next += 1;
            places.insert(segment.number, place);
            record.places.push((segment.number, place));
            edit.added.push((LEVEL, RunId(0), segment.clone()));
        }
        let step = (shape.log_segments / DROPPED).max(1);
        let dropped = (0..DROPPED.min(shape.log_segments)).map(|n| Reference {
            number: SegmentNumber(first + (n * step + made.edits) % shape.log_segments),
            added: 0,
            dropped: 100,
        });
        edit.references = dropped.collect();
        edit.references.sort_by_key(|dropped| dropped.number);
        record.edit = edit.encode();
        made.edits += 1;
        made.edit_bytes += record.edit.len() + PLACE_BYTES * record.places.len();
        batch.push(record);
        if batch.len() == 64 {
            manifest.append(std::mem::take(&mut batch))?;
            manifest.wait()?;
        }
    }
    if !batch.is_empty() {
        manifest.append(batch)?;
        manifest.wait()?;
    }
    Ok(made)
}

/// Writes header and a record of the last segment of the large log in front of its tail: opening looks there
/// for where the history begins.
fn begin_log(
    store: &Store,
    place: DeviceSegment,
    edit: &Edit,
    number: SegmentNumber,
) -> Result<(), Error> {
    let segment = edit.logs.added.iter().find(|log| log.number == number);
    let segment = segment.ok_or("there is no such log segment")?;
    let mut bytes = encode_segment_header(REGION, segment).to_vec();
    let here = Identity {
        kind: Kind::LogRecord,
        region: REGION,
        segment: number,
        epoch: segment.epoch,
        offset: u32::try_from(bytes.len())?,
    };
    Record::put(segment.base_lsn.max(Lsn(1)), b"key", b"value").encode(
        here,
        segment.base_lsn,
        &mut bytes,
    );
    bytes.resize(4096, 0);
    let data = Arc::new(Buffer::from_slice(&bytes));
    let written = store.submit_write(place, 0, data, 0..4096);
    store.wait(&written)?;
    Ok(store.wait(&store.sync())?)
}

/// Adds the segments of `shape` to `edit`, with numbers from `first` on.
fn fill(edit: &mut Edit, first: u64, shape: &Shape) {
    let logs = edit.logs.added.iter().filter(|log| log.log == LARGE_LOG);
    let ordinal = logs.clone().map(|log| log.ordinal).min().unwrap_or(0);
    let base_lsn = logs.map(|log| log.base_lsn).min().unwrap_or_default();
    // They lie in front of the tail, which counts on from them.
    for log in &mut edit.logs.added {
        if log.log == LARGE_LOG {
            log.ordinal += shape.log_segments;
        }
    }
    let whole = u32::try_from(SEGMENT_SIZE).expect("2 MiB");
    for n in 0..shape.log_segments {
        let segment = LogSegment {
            log: LARGE_LOG,
            ordinal: ordinal + n,
            number: SegmentNumber(first + n),
            epoch: edit.epoch,
            base_lsn,
            end: Some(whole),
        };
        let at = usize::try_from(n).unwrap_or(usize::MAX);
        edit.logs
            .added
            .insert(at.min(edit.logs.added.len()), segment);
    }
    let behind = first + shape.log_segments;
    let key = |n: u64| format!("user{:020}", n << 32).into_bytes();
    for n in 0..shape.level_segments {
        let segment = LevelSegment {
            number: SegmentNumber(behind + n),
            epoch: edit.epoch,
            len: whole,
            checksum: 0,
            entries: 40_000,
            tombstones: 0,
            range: KeyRange::new(key(n), Some(key(n + 1))),
            large_bytes: shape.log_segments * u64::from(whole) / shape.level_segments.max(1),
            medium_bytes: 0,
            form: argosy_lsm::names::Form::SelfContained,
        };
        edit.added.push((LEVEL, RunId(0), segment));
    }
    let live = u64::from(whole) / 2;
    let reference = |n| Reference {
        number: SegmentNumber(first + n),
        added: u64::from(whole),
        dropped: u64::from(whole) - live,
    };
    edit.references
        .extend((0..shape.log_segments).map(reference));
    edit.numbers.mark = Some(SegmentNumber(behind + shape.level_segments));
}
