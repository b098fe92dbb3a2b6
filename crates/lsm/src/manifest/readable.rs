//! What can still be read of a manifest that is damaged.

use argosy_base::limits::BLOCK_SIZE;
use argosy_device::{Buffer, RegionEntry, Store};

use super::format::{FIRST, Fragment, LAST, ManifestRecord};

/// All intact records of the chain that the catalog names in `entry`, in order. Damaged and unreadable blocks are
/// passed over. Nothing is claimed. Blocks.
pub(crate) fn readable(
    store: &Store,
    entry: &RegionEntry,
    segment_bytes: u32,
) -> Vec<ManifestRecord> {
    let mut records = Vec::new();
    let mut open: Option<Open> = None;
    for place in &entry.manifest {
        let bytes = read_what_can_be(store, *place, segment_bytes);
        let mut offset = 0;
        while offset < segment_bytes {
            let found = Fragment::parse(entry.region, entry.words[0], &bytes, offset);
            let Some(fragment) = found else {
                offset += block();
                continue;
            };
            offset += fragment.blocks.max(block());
            open = Open::with(open, &fragment);
            if fragment.flags & LAST != 0
                && let Some(Open { payload, .. }) = open.take()
                && let Ok(record) = ManifestRecord::decode(&payload)
            {
                records.push(record);
            }
        }
    }
    records
}

/// A record whose first fragment was found.
struct Open {
    payload: Vec<u8>,
    /// The index of the fragment that has to follow.
    next: u32,
}

impl Open {
    /// The record that `fragment` begins or continues, if it does either.
    fn with(before: Option<Self>, fragment: &Fragment<'_>) -> Option<Self> {
        let mut open = match before {
            _ if fragment.flags & FIRST != 0 => Self {
                payload: Vec::new(),
                next: fragment.index,
            },
            Some(open) if open.next == fragment.index => open,
            _ => return None,
        };
        open.payload.extend_from_slice(fragment.payload);
        open.next = fragment.index.wrapping_add(1);
        Some(open)
    }
}

fn block() -> u32 {
    u32::try_from(BLOCK_SIZE).expect("a block is small")
}

/// The bytes of a segment of the chain, with zeros where the device cannot read.
fn read_what_can_be(store: &Store, place: argosy_base::DeviceSegment, len: u32) -> Buffer {
    let mut bytes = Buffer::zeroed(len as usize);
    if store.read(place, 0, &mut bytes).is_ok() {
        return bytes;
    }
    for (offset, part) in (0..len)
        .step_by(BLOCK_SIZE)
        .zip(bytes.chunks_mut(BLOCK_SIZE))
    {
        let mut block = Buffer::zeroed(part.len());
        if store.read(place, offset, &mut block).is_ok() {
            part.copy_from_slice(&block);
        } else {
            part.fill(0);
        }
    }
    bytes
}
