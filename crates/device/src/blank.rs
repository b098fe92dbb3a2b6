//! Whether a device without a superblock is new, so that a store may be made of it.
//!
//! It is *blank* where nothing lies on it but what a making that was cut short has written. All of segment 0 is
//! looked at, where superblocks and catalog belong, and what others put there: file systems, partition tables,
//! volume managers. Behind it the device is looked at in places, at most 640, since it may be large: the ends,
//! the first segments, which are the first that a store uses, some between, and, of a file, where
//! its file system says that something was written. A store whose segment 0 is lost is seen in this way, and kept.

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};

use crate::buffer::Buffer;
use crate::catalog::{Catalog, SLOTS_AT};
use crate::io::{Device, DeviceError};

/// Segments of which the first block is looked at: so many from the first on, and as many all over the device.
const SEGMENTS: u64 = 256;
/// Places that a file system names, of which the first are looked at.
const EXTENTS: u32 = 64;
/// Bytes at the end of the device, where partition tables and volume managers keep their copies.
const END_BYTES: u64 = 256 << 10;

/// The first byte found that is not zero and was not written by a making that was cut short.
pub(crate) fn first_foreign_byte(device: &dyn Device) -> Result<Option<u64>, DeviceError> {
    let mut head = Buffer::zeroed(SEGMENT_SIZE);
    device.read(0, &mut head)?;
    for (slot, at) in SLOTS_AT.into_iter().enumerate() {
        let stored = &mut head[at as usize..];
        // A catalog that has regions, or has changed, was in use.
        if Catalog::decode(slot, stored).is_ok_and(|catalog| catalog == Catalog::first()) {
            let len = Catalog::first().encode(slot).len();
            stored[..len].fill(0);
        }
    }
    match not_zero(&head) {
        Some(at) => Ok(Some(at)),
        None => first_behind(device),
    }
}

/// The first byte behind segment 0 that is found not to be zero.
fn first_behind(device: &dyn Device) -> Result<Option<u64>, DeviceError> {
    let segment = SEGMENT_SIZE as u64;
    let (blocks, segments) = (device.len() / BLOCK_SIZE as u64, device.len() / segment);
    let near = (1..segments).take(usize::try_from(SEGMENTS).unwrap_or(usize::MAX));
    let step = (segments / SEGMENTS).max(1);
    let far = (1..=SEGMENTS).map(|n| n * step).filter(|n| *n < segments);
    let firsts = near.chain(far).map(|n| n * segment / BLOCK_SIZE as u64);
    let ends = blocks.saturating_sub(END_BYTES / BLOCK_SIZE as u64)..blocks;
    let ends = ends.filter(|block| block * BLOCK_SIZE as u64 >= segment);
    for block in firsts.chain(ends) {
        let at = block * BLOCK_SIZE as u64;
        if let found @ Some(_) = in_block(device, at)? {
            return Ok(found);
        }
    }
    let mut from = segment;
    for _ in 0..EXTENTS {
        let Some((at, end)) = device.written_from(from) else {
            break;
        };
        if let found @ Some(_) = in_block(device, at - at % BLOCK_SIZE as u64)? {
            return Ok(found);
        }
        from = end;
    }
    Ok(None)
}

fn in_block(device: &dyn Device, at: u64) -> Result<Option<u64>, DeviceError> {
    if at + BLOCK_SIZE as u64 > device.len() {
        return Ok(None);
    }
    let mut block = Buffer::zeroed(BLOCK_SIZE);
    device.read(at, &mut block)?;
    Ok(not_zero(&block).map(|byte| at + byte))
}

fn not_zero(bytes: &[u8]) -> Option<u64> {
    bytes.iter().position(|b| *b != 0).map(|at| at as u64)
}

#[cfg(test)]
#[path = "blank_tests.rs"]
mod tests;
