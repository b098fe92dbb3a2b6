//! What a copy has on its device: a manifest with its last edit, and the segments that the edit names.
//!
//! ```text
//! manifest := sealed: edit: string  place[]: varint          where the segments of the edit lie, in its order
//! ```
//!
//! Each edit has a manifest of its own, which is made durable after what the edit names (I3). Then the catalog names
//! that manifest in place of the one before.
//!
//! Everything here blocks until the device is done: a toy has no time to lose.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::codec::{Malformed, Reader, put_string, put_varint};
use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{DeviceSegment, Epoch, Identity, Kind, Lsn, RegionId, SegmentNumber, Standing};
use argosy_device::{Buffer, DeviceError, Purpose, RegionEntry, SegmentHandle, Store};

use super::Settings;
use super::edit::{ImagePart, RingSegment, ToyEdit};
use super::map::Map;
use super::record::{Logged, groups, seal, unseal};
use super::ring::Slots;
use crate::CopyError;
use crate::catalog::{generation, id_of_set_aside, standing, with_standing};

/// A segment on the device, for as long as anybody reads it (I1).
pub(super) struct Stored {
    store: Arc<Store>,
    handle: SegmentHandle,
}

impl Stored {
    pub(super) fn place(&self) -> DeviceSegment {
        self.handle.segment()
    }

    /// Reads `len` bytes from `from` on, whole blocks.
    pub(super) fn read(&self, from: u32, len: u32) -> Result<Buffer, DeviceError> {
        let mut bytes = Buffer::zeroed(len as usize);
        self.store.read(self.place(), from, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes `bytes`, filled up to whole blocks, at `at`, and waits until they are written. They are not durable then.
    pub(super) fn write(&self, at: u32, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut buffer = Buffer::zeroed(bytes.len().next_multiple_of(BLOCK_SIZE));
        buffer[..bytes.len()].copy_from_slice(bytes);
        let len = buffer.len();
        let (store, place) = (&self.store, self.place());
        store.wait(&store.submit_write(place, at, Arc::new(buffer), 0..len))
    }
}

/// The segments of a copy, by number.
pub(super) type Table = BTreeMap<SegmentNumber, Arc<Stored>>;

/// See the module documentation.
pub(super) struct Disk {
    pub(super) store: Arc<Store>,
    pub(super) region: RegionId,
    pub(super) settings: Settings,
    pub(super) standing: Standing,
    pub(super) edit: ToyEdit,
    /// Its segments, and those that came for the next edit.
    pub(super) table: Table,
    manifest: Arc<Stored>,
    generation: u64,
}

impl Disk {
    /// Begins an empty copy, in place of one that the catalog may name.
    pub(super) fn create(
        store: &Arc<Store>,
        region: RegionId,
        settings: Settings,
    ) -> Result<Self, CopyError> {
        let mut disk = Self {
            store: Arc::clone(store),
            region,
            settings,
            standing: match store.region(id_of_set_aside(region)) {
                Some(_) => Standing::BegunAnew,
                None => Standing::Ordinary,
            },
            edit: ToyEdit::default(),
            table: Table::new(),
            manifest: stored(store, store.allocate(Purpose::Metadata)?),
            generation: store.region(region).as_ref().map_or(0, generation),
        };
        let next_number = SegmentNumber(1);
        disk.commit(ToyEdit {
            next_number,
            ..ToyEdit::default()
        })?;
        Ok(disk)
    }

    /// Opens the copy that the catalog names by `entry`.
    pub(super) fn open(
        store: &Arc<Store>,
        entry: &RegionEntry,
        settings: Settings,
    ) -> Result<Self, CopyError> {
        let (edit, places) = read_manifest(store, entry)?.ok_or(damaged("its manifest"))?;
        let segments = edit.numbers().zip(places);
        let claimed = segments
            .map(|(number, place)| Ok((number, stored(store, store.claim(place)?))))
            .collect::<Result<_, DeviceError>>();
        Ok(Self {
            store: Arc::clone(store),
            region: entry.region,
            settings,
            standing: standing(entry.words[1]).unwrap_or_default(),
            table: claimed?,
            edit,
            manifest: stored(store, store.claim(place_of_manifest(entry))?),
            generation: generation(entry),
        })
    }

    /// Has the catalog name the copy, with its standing.
    pub(super) fn enter(&self) -> Result<(), DeviceError> {
        let entry = RegionEntry {
            region: self.region,
            manifest: vec![self.manifest.place()],
            words: [self.generation, with_standing(0, self.standing)],
        };
        self.store.set_region(entry).wait()
    }

    /// Takes a place for segment `number`.
    pub(super) fn allocate(
        &mut self,
        number: SegmentNumber,
        purpose: Purpose,
    ) -> Result<Arc<Stored>, DeviceError> {
        let stored = stored(&self.store, self.store.allocate(purpose)?);
        self.table.insert(number, Arc::clone(&stored));
        Ok(stored)
    }

    pub(super) fn sync(&self) -> Result<(), DeviceError> {
        self.store.wait(&self.store.sync())
    }

    /// Makes `edit` the last one, and frees what it does not name.
    pub(super) fn commit(&mut self, edit: ToyEdit) -> Result<(), DeviceError> {
        let mut body = Vec::new();
        put_string(&mut body, &edit.encode());
        for number in edit.numbers() {
            put_varint(&mut body, self.table[&number].place().0.into());
        }
        let manifest = stored(&self.store, self.store.allocate(Purpose::Metadata)?);
        self.sync()?;
        manifest.write(0, &seal(identity(), &body))?;
        self.sync()?;
        // The one before is free once the catalog does not name it.
        let before = std::mem::replace(&mut self.manifest, manifest);
        self.generation += 1;
        self.enter()?;
        drop(before);
        self.table
            .retain(|number, _| edit.numbers().any(|named| named == *number));
        self.edit = edit;
        Ok(())
    }

    /// Makes an image of `map` in place of what is in front of log segment `ordinal`, in `epoch`, and completes the
    /// log: an edit says so.
    pub(super) fn renew(
        &mut self,
        map: &Map,
        ordinal: u64,
        epoch: Epoch,
    ) -> Result<(), DeviceError> {
        let mut next = self.edit.next_number;
        let mut number = || {
            let number = next;
            next = number.next();
            number
        };
        let mut image = Vec::new();
        for part in map.encode().chunks(self.settings.part_bytes) {
            let number = number();
            let mut part = part.to_vec();
            part.resize(part.len().next_multiple_of(BLOCK_SIZE), 0);
            self.allocate(number, Purpose::Flush)?.write(0, &part)?;
            image.push(ImagePart::of(self.region, number, epoch, &part));
        }
        let mut logs = self.edit.logs.clone();
        logs.retain(|log| log.ordinal >= ordinal);
        let first = logs.first().map_or(ordinal, |log| log.ordinal);
        for ordinal in first + logs.len() as u64..first + self.settings.windows as u64 {
            let number = number();
            self.allocate(number, Purpose::Log)?;
            logs.push(RingSegment {
                ordinal,
                number,
                epoch,
                needed: 0,
            });
        }
        self.commit(ToyEdit {
            seq: self.edit.seq.next(),
            epoch,
            checkpoint: false,
            last: map.last,
            time: map.time,
            next_number: next,
            image,
            logs,
        })
    }

    /// Gives up the copy, and returns what it takes of the device.
    pub(super) fn into_handles(self) -> Vec<SegmentHandle> {
        let stored = self.table.into_values();
        stored.map(|stored| stored.handle.clone()).collect()
    }

    /// The map of the last edit's image.
    pub(super) fn read_image(&self) -> Result<Map, CopyError> {
        let mut bytes = Vec::new();
        for part in &self.edit.image {
            let read = self.table[&part.number].read(0, part.len)?;
            if !part.is_of(self.region, &read) {
                return Err(damaged("a part of the image"));
            }
            bytes.extend_from_slice(&read);
        }
        let map = Map::decode(&bytes, self.edit.last, self.edit.time);
        map.map_err(|_| damaged("the image"))
    }

    /// Follows the log behind the image, in `windows` and on the device, up to the first LSN that is missing. Hands the
    /// groups that are not in the image to `visit`.
    pub(super) fn read_log(
        &self,
        windows: &Slots,
        mut visit: impl FnMut(&Logged),
    ) -> Result<Log, DeviceError> {
        let mut log = Log {
            last: self.edit.last,
            found: BTreeMap::new(),
        };
        for segment in &self.edit.logs {
            let mut bytes = self.longest(segment, windows)?;
            let mut end = 0;
            for (group, behind) in groups(self.region, segment, &bytes) {
                if group.first > log.last.next() {
                    break;
                }
                if group.first > log.last {
                    visit(&group);
                    log.last = group.last();
                }
                end = behind;
            }
            bytes.truncate(end);
            log.found.insert(segment.number, bytes);
        }
        Ok(log)
    }

    /// The bytes of a log segment, of the device or of a window, whichever has more groups.
    fn longest(&self, segment: &RingSegment, windows: &Slots) -> Result<Vec<u8>, DeviceError> {
        let stored = &self.table[&segment.number];
        let device = stored.read(0, self.settings.segment_bytes())?.to_vec();
        let end = |bytes: &[u8]| {
            groups(self.region, segment, bytes)
                .last()
                .map(|(_, end)| end)
        };
        let window = windows.found(self.region, segment);
        let window = window.filter(|window| end(window) > end(&device));
        Ok(window.unwrap_or(device))
    }
}

/// What was found of the log.
#[derive(Default)]
pub(super) struct Log {
    /// The last LSN of the history.
    pub(super) last: Lsn,
    /// Of each segment of the edit, what lies in front of the end of the history.
    pub(super) found: BTreeMap<SegmentNumber, Vec<u8>>,
}

/// Something of a copy is damaged.
pub(super) const fn damaged(what: &'static str) -> CopyError {
    let number = SegmentNumber(0);
    CopyError::Damaged { number, what }
}

fn place_of_manifest(entry: &RegionEntry) -> DeviceSegment {
    entry.manifest.first().copied().unwrap_or_default()
}

/// The edit of the manifest of `entry`, and where its segments lie; `None` where it is damaged.
fn read_manifest(
    store: &Store,
    entry: &RegionEntry,
) -> Result<Option<(ToyEdit, Vec<DeviceSegment>)>, DeviceError> {
    let mut bytes = Buffer::zeroed(SEGMENT_SIZE);
    store.read(place_of_manifest(entry), 0, &mut bytes)?;
    let decode = |body| -> Result<_, Malformed> {
        let mut from = Reader::new("toy manifest", body);
        let edit = ToyEdit::decode(from.string(SEGMENT_SIZE)?)?;
        let mut place = || u32::try_from(from.varint()?).map_err(|_| from.malformed());
        let places = edit.numbers().map(|_| Ok(DeviceSegment(place()?)));
        let places = places.collect::<Result<_, Malformed>>()?;
        Ok((edit, places))
    };
    Ok(unseal(identity(), &bytes).and_then(|body| decode(body).ok()))
}

const fn identity() -> Identity {
    Identity::of_server(Kind::Manifest, 1)
}

fn stored(store: &Arc<Store>, handle: SegmentHandle) -> Arc<Stored> {
    Arc::new(Stored {
        store: Arc::clone(store),
        handle,
    })
}

/// The segments that the manifest of `entry` names and that nobody has claimed, for a copy that cannot be opened.
pub(super) fn claim_rest(store: &Arc<Store>, entry: &RegionEntry) -> Vec<SegmentHandle> {
    let manifest = read_manifest(store, entry).ok().flatten();
    let places = manifest.into_iter().flat_map(|(_, places)| places);
    places
        .filter_map(|place| store.claim_unclaimed(place))
        .collect()
}
