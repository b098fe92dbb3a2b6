//! The catalog: a device's regions, and where each one's manifest lies. Two slots in device
//! segment 0, which hold the same except while a change is written.
//!
//! ```text
//! catalog := magic: [u8; 8] = "ARGOSYCT"  version: u16  zero: u16
//!            checksum: u32 (of all other bytes, under (catalog, the slot's place))
//!            generation: u64  length: u32 (of the whole, in bytes)  count: u32  region[count]
//! region  := id: u32  words: [u64; 2]  count: u32  device segment: u32[count]
//! ```
//!
//! Regions are in rising order of their ids. Ids from 2^30 on name cut segments of a region (lsm/src/cut_segments.rs),
//! from 2^31 on pins: versions of a region that are kept under a name, each with a manifest of its own
//! (lsm/src/pins.rs), from 3 * 2^30 on copies that are set aside (lsm/src/set_aside.rs). Bytes 0 to 28 and what the
//! checksum covers are the same in every version.

use std::collections::BTreeMap;

use argosy_base::checksum::extend;
use argosy_base::codec::Reader;
use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{DeviceSegment, Identity, Kind, RegionId};

use crate::superblock::Rejected;

/// Where the slots lie, in bytes of device segment 0.
pub(crate) const SLOTS_AT: [u32; 2] = [128 << 10, 1088 << 10];

/// Longest catalog, in bytes: half of what the superblocks leave of the segment. Room for 34,000
/// regions whose manifests are one segment long.
pub(crate) const CATALOG_BYTES_MAX: usize = 960 << 10;

const _: () = assert!(SLOTS_AT[0] as usize + CATALOG_BYTES_MAX == SLOTS_AT[1] as usize);
const _: () = assert!(SLOTS_AT[1] as usize + CATALOG_BYTES_MAX == SEGMENT_SIZE);

const MAGIC: &[u8; 8] = b"ARGOSYCT";
const VERSION: u16 = 1;
const CHECKSUM_AT: usize = 12;
pub(crate) const HEADER_BYTES: usize = 32;
const REGION_BYTES: usize = 24;

/// A region, as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionEntry {
    /// The region.
    pub region: RegionId,
    /// Its manifest's device segments, in order.
    pub manifest: Vec<DeviceSegment>,
    /// Two words whose meaning is the owner's.
    pub words: [u64; 2],
}

/// A change of the entry of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionChange {
    /// The region has this entry, in place of an earlier one.
    Set(RegionEntry),
    /// The region has none.
    Remove(RegionId),
}

impl RegionChange {
    /// The region that is changed.
    #[must_use]
    pub const fn region(&self) -> RegionId {
        match self {
            Self::Set(entry) => entry.region,
            Self::Remove(region) => *region,
        }
    }

    /// The entry that is set.
    #[must_use]
    pub const fn entry(&self) -> Option<&RegionEntry> {
        match self {
            Self::Set(entry) => Some(entry),
            Self::Remove(_) => None,
        }
    }
}

/// All regions of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Of two good slots the higher is newer.
    pub(crate) generation: u64,
    pub(crate) regions: BTreeMap<RegionId, RegionEntry>,
}

fn checksum(slot: usize, bytes: &[u8]) -> u32 {
    let identity = Identity::of_server(Kind::Catalog, SLOTS_AT[slot]);
    let head = identity.checksum(&bytes[..CHECKSUM_AT]);
    extend(head, &bytes[CHECKSUM_AT + 4..])
}

/// Bytes of a catalog of these regions.
pub(crate) fn encoded_len<'a>(regions: impl Iterator<Item = &'a RegionEntry>) -> usize {
    let of_region = |entry: &RegionEntry| REGION_BYTES + 4 * entry.manifest.len();
    HEADER_BYTES + regions.map(of_region).sum::<usize>()
}

impl Catalog {
    /// That of a new store.
    pub(crate) fn first() -> Self {
        Self {
            generation: 1,
            ..Self::default()
        }
    }

    /// The bytes for `slot`.
    pub(crate) fn encode(&self, slot: usize) -> Vec<u8> {
        let length = encoded_len(self.regions.values());
        assert!(length <= CATALOG_BYTES_MAX, "a change is checked for room");
        let mut out = Vec::with_capacity(length);
        let count = |n: usize| u32::try_from(n).expect("a catalog is short").to_le_bytes();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&count(length));
        out.extend_from_slice(&count(self.regions.len()));
        for entry in self.regions.values() {
            out.extend_from_slice(&entry.region.0.to_le_bytes());
            out.extend_from_slice(&entry.words[0].to_le_bytes());
            out.extend_from_slice(&entry.words[1].to_le_bytes());
            out.extend_from_slice(&count(entry.manifest.len()));
            for segment in &entry.manifest {
                out.extend_from_slice(&segment.0.to_le_bytes());
            }
        }
        let sum = checksum(slot, &out);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// How many bytes the catalog has that begins with `head`; `None` where none begins.
    pub(crate) fn length(head: &[u8]) -> Option<usize> {
        let mut reader = Reader::new("catalog", head);
        let magic = reader.take(MAGIC.len()).ok()?;
        reader.take(16).ok()?;
        let length = usize::try_from(reader.u32().ok()?).ok()?;
        let possible = (HEADER_BYTES..=CATALOG_BYTES_MAX).contains(&length);
        (magic == MAGIC && possible).then_some(length)
    }

    /// Reads what is stored in `slot`; `bytes` are at least as long as [`length`](Self::length).
    pub(crate) fn decode(slot: usize, bytes: &[u8]) -> Result<Self, Rejected> {
        if bytes.get(..MAGIC.len()) != Some(MAGIC.as_slice()) {
            return Err(Rejected::Absent);
        }
        let length = Self::length(bytes).ok_or(Rejected::Damaged("a catalog is too long"))?;
        let bytes = bytes
            .get(..length)
            .ok_or(Rejected::Damaged("a catalog is cut short"))?;
        let mut reader = Reader::new("a catalog is malformed", bytes);
        reader.take(MAGIC.len())?;
        let (version, _zero) = (reader.u16()?, reader.u16()?);
        if reader.u32()? != checksum(slot, bytes) {
            return Err(Rejected::Damaged("the checksum of a catalog is wrong"));
        }
        if version != VERSION {
            return Err(Rejected::Unknown(format!(
                "its catalog has version {version}; this program knows {VERSION}"
            )));
        }
        let generation = reader.u64()?;
        let (_length, count) = (reader.u32()?, reader.u32()?);
        let mut regions = BTreeMap::new();
        for _ in 0..count {
            let entry = RegionEntry::decode(&mut reader)?;
            let rising = regions
                .last_key_value()
                .is_none_or(|(last, _)| *last < entry.region);
            if !rising {
                return Err(Rejected::Damaged("a catalog is out of order"));
            }
            regions.insert(entry.region, entry);
        }
        reader.finish()?;
        if generation == u64::MAX {
            return Err(Rejected::Damaged("a catalog's generation is the last"));
        }
        Ok(Self {
            generation,
            regions,
        })
    }
}

impl RegionEntry {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Rejected> {
        let region = RegionId(reader.u32()?);
        let words = [reader.u64()?, reader.u64()?];
        let count = reader.u32()? as usize;
        if count > reader.rest().len() / 4 {
            return Err(Rejected::Damaged("a catalog's manifest is too long"));
        }
        let manifest: Result<Vec<_>, _> = (0..count)
            .map(|_| reader.u32().map(DeviceSegment))
            .collect();
        Ok(Self {
            region,
            manifest: manifest?,
            words,
        })
    }
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
