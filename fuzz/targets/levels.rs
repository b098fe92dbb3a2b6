//! Segments of levels and of the medium log: leaves, indexes, filters, footers, index nodes, values.
#![no_main]

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{Epoch, Identity, Kind, RegionId, SegmentNumber};
use argosy_device::Buffer;
use argosy_lsm::filter::Filter;
use argosy_lsm::level::leaf::Leaf;
use argosy_lsm::level::medium::{read_value, verify_medium_segment};
use argosy_lsm::level::verify::{leaves_of, verify_index_segment, verify_segment};
use argosy_lsm::level::{Entry, SegmentName};
use libfuzzer_sys::fuzz_target;

const NAME: SegmentName = SegmentName {
    region: RegionId(1),
    number: SegmentNumber(2),
    epoch: Epoch(3),
};

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else {
        return;
    };
    match which % 6 {
        0 => {
            if let Ok(leaf) = Leaf::parse(bytes, NAME, 0) {
                for pair in 0..leaf.count() {
                    assert_eq!(leaf.search(leaf.key(pair)), Ok(pair));
                    let _ = leaf.entry(pair);
                }
            }
        }
        1 => {
            let _ = Filter::parse(bytes, Identity::of_server(Kind::Filter, 0));
        }
        2 => {
            let bytes = blocks(bytes);
            let visit = |_: &[u8], entry: Entry<'_>| entry.pointer().map(|(at, _)| at.segment());
            let _ = verify_segment(NAME, &bytes, SegmentNumber(8), visit);
        }
        3 => {
            let _ = leaves_of(NAME, &blocks(bytes));
        }
        4 => {
            let _ = verify_index_segment(NAME, 1, &blocks(bytes), Some);
        }
        _ => {
            let segment = blocks(bytes);
            let _ = verify_medium_segment(NAME, &segment);
            if let Some((at, rest)) = bytes.split_first_chunk::<4>() {
                let at = u32::from_le_bytes(*at) % (2 << 20);
                let len = u32::try_from(segment.len()).unwrap_or(0);
                let value = (at, u32::try_from(rest.len()).unwrap_or(0));
                let _ = read_value((NAME, len), &segment, value, b"key", None);
            }
        }
    }
});

/// A segment that ends with `bytes`: footers stand at the end.
fn blocks(bytes: &[u8]) -> Buffer {
    let bytes = &bytes[..bytes.len().min(2 << 20)];
    let len = bytes.len().next_multiple_of(BLOCK_SIZE).max(BLOCK_SIZE);
    let mut buffer = Buffer::zeroed(len);
    buffer[len - bytes.len()..].copy_from_slice(bytes);
    buffer
}
