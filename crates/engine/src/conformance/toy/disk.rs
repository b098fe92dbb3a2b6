//! What a copy has on its device: a manifest with its last edit, and the segments that the edit names.
//!
//! ```text
//! manifest := slot  slot                                each takes half of the segment
//! slot     := count: u64  len: u64 (of the places)  checksum: u64 (of all fields but this one)  place[]: u32  edit
//! ```
//!
//! An edit is written to the slots by turns, after what it names has been made durable (I3). The slot with the higher
//! count is the newer one; if its write was torn, the other one is the last edit. `place[]` is where the segments of
//! the edit lie, in its order.
//!
//! Everything here blocks until the device is done: a toy has no time to lose.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::codec::Reader;
use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use argosy_base::{DeviceSegment, Epoch, Identity, Kind, RegionId, SegmentNumber, Standing};
use argosy_device::{Buffer, DeviceError, Purpose, RegionEntry, SegmentHandle, Store, Ticket};
use argosy_memory::SharedMemory;

use super::edit::{ImagePart, RingSegment, ToyEdit, decode_image, encode_image};
use super::map::Map;
use super::record::{Assembler, fragments};
use super::ring;
use crate::CopyError;
use crate::catalog::{generation, standing, with_standing};

const SLOT_BYTES: usize = SEGMENT_SIZE / 2;
const HEAD_BYTES: usize = 24;

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

    /// Writes whole blocks at `at`, and waits until they are written. They are not durable then.
    pub(super) fn write(&self, at: u32, bytes: &[u8]) -> Result<(), DeviceError> {
        let bytes = Arc::new(Buffer::from_slice(bytes));
        let len = bytes.len();
        let ticket = self.store.submit_write(self.place(), at, bytes, 0..len);
        self.store.wait(&ticket)
    }
}

/// The segments of a copy, by number.
pub(super) type Table = BTreeMap<SegmentNumber, Arc<Stored>>;

/// See the module documentation.
pub(super) struct Disk {
    pub(super) store: Arc<Store>,
    pub(super) region: RegionId,
    pub(super) window_bytes: u32,
    pub(super) standing: Standing,
    pub(super) edit: ToyEdit,
    /// Its segments, and those that came for the next edit.
    pub(super) table: Table,
    manifest: SegmentHandle,
    generation: u64,
    /// Of the slot that was written last.
    count: u64,
}

impl Disk {
    /// Begins an empty copy, in place of one that the catalog may name.
    pub(super) fn create(
        store: &Arc<Store>,
        region: RegionId,
        window_bytes: u32,
    ) -> Result<Self, CopyError> {
        let aside = store.region(crate::catalog::id_of_set_aside(region));
        let before = store.region(region);
        let mut disk = Self {
            store: Arc::clone(store),
            region,
            window_bytes,
            standing: match aside {
                Some(_) => Standing::BegunAnew,
                None => Standing::Ordinary,
            },
            edit: ToyEdit {
                next_number: SegmentNumber(1),
                ..ToyEdit::default()
            },
            table: Table::new(),
            manifest: store.allocate(Purpose::Metadata)?,
            generation: before.as_ref().map_or(0, generation) + 1,
            count: 0,
        };
        let edit = disk.edit.clone();
        disk.commit(edit)?;
        disk.enter()?;
        Ok(disk)
    }

    /// Opens the copy that the catalog names by `entry`.
    pub(super) fn open(
        store: &Arc<Store>,
        entry: &RegionEntry,
        window_bytes: u32,
    ) -> Result<Self, CopyError> {
        let place = entry.manifest.first().copied().unwrap_or_default();
        let last = read_manifest(store, place)?.ok_or(CopyError::Damaged {
            number: SegmentNumber(0),
            what: "no slot of its manifest has an edit",
        })?;
        let mut table = Table::new();
        for (number, place) in last.edit.numbers().zip(&last.places) {
            let handle = store.claim(*place)?;
            table.insert(number, stored(store, handle));
        }
        Ok(Self {
            store: Arc::clone(store),
            region: entry.region,
            window_bytes,
            standing: standing(entry.words[1]).unwrap_or_default(),
            edit: last.edit,
            table,
            manifest: store.claim(place)?,
            generation: generation(entry),
            count: last.count,
        })
    }

    /// Has the catalog name the copy, with its standing.
    pub(super) fn enter(&self) -> Result<(), DeviceError> {
        let entry = RegionEntry {
            region: self.region,
            manifest: vec![self.manifest.segment()],
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
        let handle = self.store.allocate(purpose)?;
        let stored = stored(&self.store, handle);
        self.table.insert(number, Arc::clone(&stored));
        Ok(stored)
    }

    pub(super) fn sync(&self) -> Result<(), DeviceError> {
        let ticket: Ticket = self.store.sync();
        self.store.wait(&ticket)
    }

    /// Makes `edit` the last one, and frees what it does not name.
    pub(super) fn commit(&mut self, edit: ToyEdit) -> Result<(), DeviceError> {
        self.sync()?;
        let count = self.count + 1;
        let mut bytes = count.to_le_bytes().to_vec();
        for number in edit.numbers() {
            bytes.extend_from_slice(&self.table[&number].place().0.to_le_bytes());
        }
        let places = bytes.len() - 8;
        bytes.splice(8..8, (places as u64).to_le_bytes());
        let checksum = Identity::of_server(Kind::Manifest, 1).checksum(&bytes);
        bytes.splice(16..16, u64::from(checksum).to_le_bytes());
        bytes.extend_from_slice(&edit.encode());
        assert!(bytes.len() <= SLOT_BYTES, "an edit fits half a segment");
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        let slot = if count.is_multiple_of(2) {
            0
        } else {
            SLOT_BYTES
        };
        let at = u32::try_from(slot).expect("a byte of a segment");
        let len = bytes.len();
        let bytes = Arc::new(Buffer::from_slice(&bytes));
        let place = self.manifest.segment();
        let ticket = self.store.submit_write(place, at, bytes, 0..len);
        self.store.wait(&ticket)?;
        self.sync()?;
        self.count = count;
        let named: Vec<_> = edit.numbers().collect();
        self.table.retain(|number, _| named.contains(number));
        self.edit = edit;
        Ok(())
    }

    /// Writes an image of `map`. Returns its parts, which have to be committed, and its bytes.
    pub(super) fn write_image(
        &mut self,
        map: &Map,
        epoch: Epoch,
        part_bytes: usize,
        next: &mut SegmentNumber,
    ) -> Result<Image, DeviceError> {
        let bytes = encode_image(map);
        let mut parts = Vec::new();
        for part in bytes.chunks(part_bytes) {
            let number = *next;
            *next = next.next();
            let mut part = part.to_vec();
            part.resize(part.len().next_multiple_of(BLOCK_SIZE), 0);
            self.allocate(number, Purpose::Flush)?.write(0, &part)?;
            parts.push(ImagePart {
                number,
                epoch,
                len: u32::try_from(part.len()).expect("a segment is short"),
                checksum: ImagePart::checksum_of(self.region, number, epoch, &part),
            });
        }
        Ok(Image {
            parts,
            bytes: bytes.len() as u64,
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
                return Err(CopyError::Damaged {
                    number: part.number,
                    what: "the checksum of a part of the image",
                });
            }
            bytes.extend_from_slice(&read);
        }
        let len = usize::try_from(self.edit.image_bytes).unwrap_or(usize::MAX);
        let image = bytes
            .get(..len)
            .and_then(|bytes| decode_image(&self.edit, bytes).ok());
        image.ok_or(CopyError::Damaged {
            number: SegmentNumber(0),
            what: "the image",
        })
    }

    /// Follows the log behind the image, in `windows` and on the device, up to the first LSN that is missing. Hands its
    /// groups to `visit`.
    pub(super) fn read_log(
        &self,
        windows: &[Option<Arc<SharedMemory>>],
        mut visit: impl FnMut(&super::record::Group),
    ) -> Result<Log, DeviceError> {
        let mut assembler = Assembler::new(self.edit.last.next());
        let mut log = Log {
            last: self.edit.last,
            ends: Vec::new(),
        };
        let mut goes_on = true;
        // The ends of fragments of a group that is not complete.
        let mut pending = Vec::new();
        for (index, segment) in self.edit.logs.iter().enumerate() {
            let bytes = self.longest(segment, windows)?;
            log.ends.push(LogEnd { end: 0, bytes });
            if !goes_on {
                continue;
            }
            let bytes = log.ends[index].bytes.clone();
            for (fragment, end) in fragments(self.region, segment, &bytes) {
                let Ok(group) = assembler.take(fragment) else {
                    goes_on = false;
                    break;
                };
                pending.push((index, end));
                if let Some(group) = group {
                    visit(&group);
                    for (index, end) in pending.drain(..) {
                        log.ends[index].end = u32::try_from(end).expect("a byte of a segment");
                    }
                }
            }
        }
        log.last = assembler.last();
        for end in &mut log.ends {
            end.bytes.truncate(end.end as usize);
        }
        Ok(log)
    }

    /// The bytes of a log segment, of the device or of a window, whichever has more fragments.
    fn longest(
        &self,
        segment: &RingSegment,
        windows: &[Option<Arc<SharedMemory>>],
    ) -> Result<Vec<u8>, DeviceError> {
        let device = self.table[&segment.number]
            .read(0, self.window_bytes)?
            .to_vec();
        let window = ring::found(windows, self.region, segment, self.window_bytes);
        let end = |bytes: &[u8]| {
            let all = fragments(self.region, segment, bytes);
            all.last().map_or(0, |(_, end)| *end)
        };
        Ok(match window {
            Some(window) if end(&window) > end(&device) => window,
            _ => device,
        })
    }
}

/// An image that was written.
pub(super) struct Image {
    pub(super) parts: Vec<ImagePart>,
    pub(super) bytes: u64,
}

/// What was found of the log.
#[derive(Default)]
pub(super) struct Log {
    /// The last LSN of the history.
    pub(super) last: argosy_base::Lsn,
    /// Of each segment of the edit, in order.
    pub(super) ends: Vec<LogEnd>,
}

/// Where the history ends in a segment, and the bytes in front of that.
#[derive(Default)]
pub(super) struct LogEnd {
    pub(super) end: u32,
    pub(super) bytes: Vec<u8>,
}

struct LastEdit {
    count: u64,
    places: Vec<DeviceSegment>,
    edit: ToyEdit,
}

/// The last edit of the manifest in `place`, if any slot has one.
fn read_manifest(store: &Store, place: DeviceSegment) -> Result<Option<LastEdit>, DeviceError> {
    let mut bytes = Buffer::zeroed(SEGMENT_SIZE);
    store.read(place, 0, &mut bytes)?;
    let slots = bytes.chunks(SLOT_BYTES).filter_map(read_slot);
    Ok(slots.max_by_key(|last| last.count))
}

fn read_slot(bytes: &[u8]) -> Option<LastEdit> {
    let mut from = Reader::new("toy manifest", bytes);
    let count = from.u64().ok()?;
    let len = usize::try_from(from.u64().ok()?).ok()?;
    let checksum = from.u64().ok()?;
    let places = from.take(len).ok()?;
    let covered = [&bytes[..HEAD_BYTES - 8], places].concat();
    if u64::from(Identity::of_server(Kind::Manifest, 1).checksum(&covered)) != checksum {
        return None;
    }
    let edit = ToyEdit::decode(from.rest()).ok()?;
    let places: Vec<_> = places.chunks_exact(4).map(place_of).collect();
    (places.len() == edit.numbers().count()).then_some(LastEdit {
        count,
        places,
        edit,
    })
}

fn place_of(bytes: &[u8]) -> DeviceSegment {
    let mut place = [0; 4];
    place.copy_from_slice(bytes);
    DeviceSegment(u32::from_le_bytes(place))
}

fn stored(store: &Arc<Store>, handle: SegmentHandle) -> Arc<Stored> {
    Arc::new(Stored {
        store: Arc::clone(store),
        handle,
    })
}

/// The segments that the manifest of `entry` names and that nobody has claimed, for a copy that cannot be opened.
pub(super) fn claim_rest(store: &Arc<Store>, entry: &RegionEntry) -> Vec<SegmentHandle> {
    let place = entry.manifest.first().copied().unwrap_or_default();
    let last = read_manifest(store, place).ok().flatten();
    let places = last.into_iter().flat_map(|last| last.places);
    places
        .filter_map(|place| store.claim_unclaimed(place))
        .collect()
}
