//! Pins: versions of a region that are kept under a name, beside the one that goes on.
//!
//! A pin is a second manifest. The catalog names it like a region's, under an id of its own
//! ([`FIRST_PIN`] and above), and it states one version: the levels as they were, with the segments of the
//! large log that they point into. So a pin copies nothing; the store counts one more reference to each of
//! its segments, when it is made as at every opening, and what the region removes stays for as long as a pin
//! names it. That the catalog names it is the commit point: before, nothing of a pin exists, and a crash
//! leaves nothing behind.
//!
//! ```text
//! manifest of a pin := one record (see manifest/format.rs), whose edit is
//! pin := version: u16 = 1  name: string  edit: string
//! ```
//!
//! The edit is that of a checkpoint of the region, and the record's places are those of all segments that it
//! adds. What a pin shows is everything up to the LSN before its `replay_from`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use argosy_base::codec::{Reader, put_string};
use argosy_base::{DeviceSegment, Lsn, Moment, RegionId, SegmentNumber};
use argosy_device::{DeviceError, RegionEntry, Store};
pub use argosy_engine::catalog::FIRST_PIN;
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_log::value::reach;
use parking_lot::{Mutex, MutexGuard};

use crate::edit::Edit;
use crate::manifest::{self, Manifest, ManifestError, ManifestRecord};
use crate::names::logs::LARGE_LOG;
use crate::segments::StoredSegment;
use crate::settings::Settings;
use crate::shape::Shape;
use crate::version::Version;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Most pins of a store.
pub const PINS_MAX: usize = 1024;

const FORMAT: u16 = 1;

/// Longest edit; as a record's.
const EDIT_BYTES_MAX: usize = 1 << 30;

/// Why a pin was not made, found or removed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// No pin can have that name. Correct it.
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes; this one has {0}")]
    Name(usize),
    /// There is one of that name.
    #[error("there is one of the name {0} already")]
    Exists(String),
    /// There is none of that name.
    #[error("there is none of the name {0}")]
    Unknown(String),
    /// There are too many. Remove some.
    #[error("there are {PINS_MAX} already, the most that there may be")]
    TooMany,
    /// It consists of too many segments, or of segments with too long keys.
    #[error(
        "what names its segments would take {bytes} bytes, and {max} is the most: use more regions, or shorter keys"
    )]
    TooLong {
        /// Bytes that it would take.
        bytes: usize,
        /// Bytes that it may take.
        max: usize,
    },
    /// The device's.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What is stored of a pin cannot be read.
    #[error(transparent)]
    Manifest(ManifestError),
    /// What is stored of a pin means nothing.
    #[error("{0}, a pin: {1}")]
    Corrupt(RegionId, &'static str),
}

impl From<ManifestError> for PinError {
    fn from(error: ManifestError) -> Self {
        match error {
            ManifestError::Device(error) => Self::Device(error),
            ManifestError::TooLong { bytes, max, .. } => Self::TooLong { bytes, max },
            other => Self::Manifest(other),
        }
    }
}

/// A version that is kept.
pub struct Pin {
    id: RegionId,
    name: String,
    version: Arc<Version>,
    /// The catalog names it no more.
    removed: AtomicBool,
}

impl Pin {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Under which id the catalog names it.
    #[must_use]
    pub const fn id(&self) -> RegionId {
        self.id
    }

    /// What is kept.
    #[must_use]
    pub const fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Everything up to here is in it.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.version.replay_from().0.saturating_sub(1))
    }
}

/// What a pin consists of stays on the device when its holder ends: only its removal frees it.
impl Drop for Pin {
    fn drop(&mut self) {
        if !self.removed.load(Ordering::Acquire) {
            let segments = self.version.table().values();
            segments.for_each(|stored| stored.keep());
        }
    }
}

/// The pins of a region that is alone on its device. All methods may be called from any thread.
pub struct Pins {
    store: Arc<Store>,
    region: RegionId,
    segment_bytes: usize,
    shape: Shape,
    pins: Mutex<BTreeMap<String, Arc<Pin>>>,
}

impl Pins {
    /// Finds the pins of `region` that the catalog names, and claims what they consist of. During the
    /// recovery of `store` only. Blocks.
    ///
    /// # Errors
    /// The device's; damage.
    pub fn open(
        store: &Arc<Store>,
        region: RegionId,
        settings: &Settings,
    ) -> Result<Self, PinError> {
        let mut pins = BTreeMap::new();
        for entry in store
            .regions()
            .iter()
            .filter(|entry| kind_of(entry) == EntryKind::Pin)
        {
            let (name, version) = read(store, entry, region, settings)?;
            for stored in version.table().values() {
                stored.claim()?;
            }
            let pin = Pin {
                id: entry.region,
                name: name.clone(),
                version: Arc::new(version),
                removed: AtomicBool::new(false),
            };
            pins.insert(name, Arc::new(pin));
        }
        Ok(Self {
            store: Arc::clone(store),
            region,
            segment_bytes: settings.layout.segment_bytes,
            shape: Shape::of(settings),
            pins: Mutex::new(pins),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Pin>>> {
        self.pins.lock()
    }

    /// All pins, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Pin>> {
        self.lock().values().cloned().collect()
    }

    /// The pin of this name.
    ///
    /// # Errors
    /// [`PinError::Unknown`].
    pub fn find(&self, name: &str) -> Result<Arc<Pin>, PinError> {
        let found = self.lock().get(name).cloned();
        found.ok_or_else(|| PinError::Unknown(name.to_owned()))
    }

    /// Keeps the levels of `version`, which is durable, under `name`, as they are at `time`, which is
    /// committed: what has expired by then does not come back. Blocks until that is durable.
    ///
    /// # Errors
    /// [`PinError::Name`], [`PinError::Exists`], [`PinError::TooMany`], [`PinError::TooLong`]; the device's, which may
    /// be full.
    pub fn add(&self, name: &str, version: &Version, time: Moment) -> Result<Arc<Pin>, PinError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(PinError::Name(name.len()));
        }
        // Held until the pin is durable: one change at a time.
        let mut pins = self.lock();
        if pins.contains_key(name) {
            return Err(PinError::Exists(name.to_owned()));
        }
        if pins.len() >= PINS_MAX {
            return Err(PinError::TooMany);
        }
        let taken: BTreeSet<_> = pins.values().map(|pin| pin.id).collect();
        let mut ids = (FIRST_PIN.0..).map(RegionId);
        let id = ids.find(|id| !taken.contains(id)).expect("pins are few");
        let mut edit = self.edit_of(version);
        edit.numbers.time = edit
            .numbers
            .time
            .max(Some(time).filter(|time| *time > Moment(0)));
        let table = version.table().iter();
        let stored = table.map(|(number, stored)| (*number, Arc::clone(stored)));
        let kept = pinned(self.region, self.shape, &edit, &stored.collect());
        let version = kept.map_err(|what| PinError::Corrupt(id, what))?;
        let record = ManifestRecord {
            edit: encode(name, &edit),
            places: places_of(&version),
        };
        let segment_bytes = u32::try_from(self.segment_bytes).expect("settings are validated");
        let shape = self.shape.to_word();
        // The catalog keeps the manifest's segments from now on.
        drop(Manifest::create(
            &self.store,
            id,
            segment_bytes,
            shape,
            &record,
        )?);
        let pin = Arc::new(Pin {
            id,
            name: name.to_owned(),
            version: Arc::new(version),
            removed: AtomicBool::new(false),
        });
        pins.insert(name.to_owned(), Arc::clone(&pin));
        Ok(pin)
    }

    /// Gives a pin up. Blocks until that is durable. What nobody else names or reads is free then.
    ///
    /// # Errors
    /// [`PinError::Unknown`]; the device's.
    pub fn remove(&self, name: &str) -> Result<(), PinError> {
        let mut pins = self.lock();
        let Some(pin) = pins.get(name) else {
            return Err(PinError::Unknown(name.to_owned()));
        };
        self.store.remove_region(pin.id).wait()?;
        pin.removed.store(true, Ordering::Release);
        pins.remove(name);
        Ok(())
    }

    /// The checkpoint of what `version` needs to be read: levels, and what of the large log they point into,
    /// or reach into with a value that goes on in the next segment.
    fn edit_of(&self, version: &Version) -> Edit {
        let reach = reach(self.segment_bytes);
        let mut needed = BTreeSet::new();
        for entry in version.log(LARGE_LOG) {
            if version.log_refs(entry.segment.number) > 0 {
                let ordinal = entry.segment.ordinal;
                needed.extend(ordinal..=ordinal + reach);
            }
        }
        let mut edit = version.checkpoint();
        edit.logs
            .added
            .retain(|log| log.log == LARGE_LOG && needed.contains(&log.ordinal));
        edit
    }
}

/// What the catalog's entry of a pin of `region` says. Claims nothing. Blocks.
///
/// # Errors
/// The device's; damage.
pub fn read(
    store: &Arc<Store>,
    entry: &RegionEntry,
    region: RegionId,
    settings: &Settings,
) -> Result<(String, Version), PinError> {
    let corrupt = |what| PinError::Corrupt(entry.region, what);
    let shape = Shape::from_word(entry.words[1]);
    let shape = shape.ok_or_else(|| corrupt("its address mode or sizes are of a later version"))?;
    let segment_bytes =
        u32::try_from(settings.layout.segment_bytes).expect("settings are validated");
    let replayed = manifest::replay(store, entry, segment_bytes)?;
    let [record] = replayed.records.as_slice() else {
        return Err(corrupt("its manifest does not have one record"));
    };
    let (name, edit) = decode(&record.edit).map_err(corrupt)?;
    let stored = |(number, place): &(SegmentNumber, DeviceSegment)| {
        let stored = StoredSegment::unclaimed(*number, Arc::clone(store), *place);
        (*number, stored)
    };
    let places = record.places.iter().map(stored).collect();
    let version = pinned(region, shape, &edit, &places).map_err(corrupt)?;
    Ok((name, version))
}

fn pinned(
    region: RegionId,
    shape: Shape,
    edit: &Edit,
    stored: &BTreeMap<SegmentNumber, Arc<StoredSegment>>,
) -> Result<Version, &'static str> {
    let empty = Version::empty(region, shape.addresses);
    let version = empty.apply(edit, stored);
    version.map_err(|_| "its edit does not fit")
}

fn places_of(version: &Version) -> Vec<(SegmentNumber, DeviceSegment)> {
    let segments = version.table().values();
    segments
        .map(|stored| (stored.number(), stored.place()))
        .collect()
}

fn encode(name: &str, edit: &Edit) -> Vec<u8> {
    let mut out = FORMAT.to_le_bytes().to_vec();
    put_string(&mut out, name.as_bytes());
    put_string(&mut out, &edit.encode());
    out
}

fn decode(bytes: &[u8]) -> Result<(String, Edit), &'static str> {
    const MALFORMED: &str = "its record means nothing";
    let mut reader = Reader::new("a pin is malformed", bytes);
    if reader.u16().map_err(|_| MALFORMED)? != FORMAT {
        return Err("it is of a later version");
    }
    let name = reader.string(NAME_BYTES_MAX).map_err(|_| MALFORMED)?;
    let name = String::from_utf8(name.to_vec()).map_err(|_| MALFORMED)?;
    let edit = reader.string(EDIT_BYTES_MAX).map_err(|_| MALFORMED)?;
    let edit = Edit::decode(edit).map_err(|_| MALFORMED)?;
    reader.finish().map_err(|_| MALFORMED)?;
    if !edit.checkpoint {
        return Err("it does not state a version");
    }
    Ok((name, edit))
}
