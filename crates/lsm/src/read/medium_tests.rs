//! Medium segments: what comes out, one value at a time, and every kind of damage.

use super::medium::MediumRef;
use crate::cache::{CacheKey, NodeCache};
use crate::level::form_and_refs;
use crate::level::medium::*;
use crate::level::testing::{Dice, NAME};
use crate::level::{BuiltSegment, ReadAt};
use crate::names::{Form, SegmentName};
use argosy_base::Kind;
use argosy_device::Buffer;

fn medium(segment_len: u32, at: u32, value_len: u32, key: &[u8]) -> MediumRef<'_> {
    MediumRef {
        name: NAME,
        segment_len,
        at,
        value_len,
        key,
    }
}

/// A pair, and where its value's record begins.
type Placed = (Vec<u8>, Vec<u8>, u32);

/// A segment with some values, and where each is.
fn built(pairs: usize) -> (BuiltSegment, Vec<Placed>) {
    let mut dice = Dice::new(1);
    let mut builder = MediumBuilder::new(NAME, 64 << 10);
    let mut placed = Vec::new();
    for number in 0..pairs {
        let key = format!("key{number:05}").into_bytes();
        let len = dice.below(300);
        let value = dice.bytes(len);
        let at = builder.add(&key, &value).unwrap();
        placed.push((key, value, at));
    }
    (builder.finish(), placed)
}

#[test]
fn values_are_found_again_one_by_one() {
    let (built, placed) = built(200);
    assert_eq!((built.entries, built.form), (200, Form::Medium));
    assert_eq!(built.first_key, placed[0].0);
    assert_eq!(built.last_key, placed[199].0);
    assert_eq!(built.checksum, NAME.checksum(&built.bytes));
    let found = form_and_refs(NAME, &built.bytes).unwrap();
    assert_eq!(found, (Form::Medium, Vec::new()));
    let len = u32::try_from(built.bytes.len()).unwrap();
    for (key, value, at) in &placed {
        let value_len = u32::try_from(value.len()).unwrap();
        let read = medium(len, *at, value_len, key)
            .read(&built.bytes, None)
            .unwrap();
        assert_eq!(read, *value);
        assert!(
            medium(len, *at, value_len, b"another")
                .read(&built.bytes, None)
                .is_err(),
            "it is the value of that key only"
        );
        assert!(
            medium(len, *at, value_len + 1, key)
                .read(&built.bytes, None)
                .is_err()
        );
    }
    let behind = medium(len, len - 2, 40, b"key").read(&built.bytes, None);
    assert!(behind.unwrap_err().to_string().contains("behind the end"));
    assert_eq!(
        verify_medium_segment(NAME, &built.bytes),
        (Some(200), vec![])
    );
}

/// A cache without room to spare.
fn full_cache() -> NodeCache {
    let cache = NodeCache::new(1 << 20);
    let other = SegmentName {
        region: argosy_base::RegionId(NAME.region.0 + 1),
        ..NAME
    };
    for offset in (0..).step_by(PAGE_BYTES as usize) {
        if !cache.has_room(PAGE_BYTES as usize) {
            break;
        }
        cache.keep_page(CacheKey::page(other, offset), [7; 4000].as_slice().into());
    }
    cache
}

/// Whoever goes through the values in order, up or down, has the second read of a page keep it: two reads for
/// each page, and none when they are asked for again. Where there is room to spare, the first read keeps it.
#[test]
fn pages_are_kept_for_whoever_reads_in_order() {
    for (cache, reads) in [(full_cache(), 2), (NodeCache::new(1 << 20), 1)] {
        read_in_order(&cache, reads);
    }
}

/// Each page is read `expected` times.
fn read_in_order(cache: &NodeCache, expected: u32) {
    let (built, placed) = built(200);
    let len = u32::try_from(built.bytes.len()).unwrap();
    let reads = std::cell::Cell::new(0u32);
    let source = |from: u32, out: &mut [u8]| {
        reads.set(reads.get() + 1);
        built.bytes.read_at(from, out)
    };
    for (key, value, at) in placed.iter().rev().chain(&placed) {
        let value_len = u32::try_from(value.len()).unwrap();
        let read = medium(len, *at, value_len, key)
            .read(&source, Some(cache))
            .unwrap();
        assert_eq!(read, *value);
        let kept = medium(len, *at, value_len, key).cached(cache);
        assert_eq!(kept.as_ref(), Some(value));
        let last = at + u32::try_from(record_len(value.len())).unwrap() - 1;
        assert_eq!(at / PAGE_BYTES, last / PAGE_BYTES, "no page ends in it");
    }
    let (_, _, last) = placed.last().unwrap();
    assert_eq!(reads.get(), expected * (last / PAGE_BYTES + 1));
}

/// Of pages that are read once only the values are kept that were asked for, unless there is room to spare.
#[test]
fn values_are_kept_where_pages_are_read_once() {
    let (built, placed) = built(200);
    let len = u32::try_from(built.bytes.len()).unwrap();
    let cache = full_cache();
    let before = cache.stats().bytes;
    let pages = placed.chunk_by(|(_, _, a), (_, _, b)| a / PAGE_BYTES == b / PAGE_BYTES);
    for page in pages.clone() {
        for (index, (key, value, at)) in page.iter().enumerate() {
            let value_len = u32::try_from(value.len()).unwrap();
            if index == 0 {
                let read = medium(len, *at, value_len, key).read(&built.bytes, Some(&cache));
                assert_eq!(read.unwrap(), *value);
            }
            let kept = medium(len, *at, value_len, key).cached(&cache);
            assert_eq!(kept.is_some(), index == 0);
        }
    }
    let pages = pages.count() as u64;
    assert!(pages > 4 && cache.stats().bytes < before + pages * 1024);
}

#[test]
fn a_full_segment_takes_no_more() {
    let mut builder = MediumBuilder::new(NAME, 8 << 10);
    let mut count = 0u32;
    while builder
        .add(format!("{count:04}").as_bytes(), &[7; 100])
        .is_some()
    {
        count += 1;
    }
    assert!(count >= (8192 - 128 - 32) / 104 - 3, "{count} values");
    let built = builder.finish();
    assert_eq!((built.entries, built.bytes.len()), (count, 8192));
    assert_eq!(verify_medium_segment(NAME, &built.bytes).0, Some(count));
}

#[test]
fn the_format_never_changes() {
    let mut builder = MediumBuilder::new(NAME, 4 << 10);
    assert_eq!(builder.add(b"a", b"one"), Some(0));
    assert_eq!(builder.add(b"b", b"three"), Some(7));
    let built = builder.finish();
    let mut expected = Vec::new();
    for (at, parts) in [(0, [&b"a"[..], b"one"]), (7, [b"b", b"three"])] {
        let crc = NAME.identity(Kind::Medium, at).checksum(&parts.concat());
        expected.extend(crc.to_le_bytes());
        expected.extend(parts[1]);
    }
    assert_eq!(built.bytes[..16], expected);
    assert_eq!(built.bytes[20..25], *b"\x01a\x01b\0");
}

/// Damage of a value is found by whoever reads it, and of anything else by whoever verifies the segment.
#[test]
fn damage_is_found() {
    let (built, placed) = built(20);
    let len = u32::try_from(built.bytes.len()).unwrap();
    let (last_key, last_value, last_at) = placed.last().unwrap();
    let records = *last_at as usize + record_len(last_value.len());
    assert!(!last_key.is_empty());
    for byte in (0..built.bytes.len()).step_by(7) {
        let mut damaged = Buffer::from_slice(&built.bytes);
        damaged[byte] ^= 0x10;
        let hurt = placed.iter().rev().find(|(_, _, at)| *at as usize <= byte);
        if byte < records {
            let (key, value, at) = hurt.unwrap();
            if byte >= *at as usize + record_len(value.len()) {
                // Between two pages: of no meaning.
                continue;
            }
            let value_len = u32::try_from(value.len()).unwrap();
            let read = medium(len, *at, value_len, key).read(&damaged, None);
            assert!(read.is_err(), "byte {byte}");
        } else {
            let (_, faults) = verify_medium_segment(NAME, &damaged);
            assert_eq!(faults.len(), 1, "byte {byte}");
        }
    }
    let other = SegmentName {
        number: argosy_base::SegmentNumber(NAME.number.0 + 1),
        ..NAME
    };
    let (_, faults) = verify_medium_segment(other, &built.bytes);
    assert!(faults[0].stale, "{faults:?}");
}
