//! Whole segments: builders, readers and cursors against a sorted map.

#![allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]

use crate::names::LevelError;
use argosy_device::Buffer;
use std::sync::Arc;

use argosy_base::{BLOCK_SIZE, Epoch, KeyRange, Pointer, Remedy, SegmentNumber};
use argosy_engine::EngineError;

use super::cursor::{LevelCursor, ReadAhead};
use super::nodes::get_in_segment;
use crate::cache::NodeCache;
use crate::filter::KeyHash;
use crate::level::stand::DOWN;
use crate::level::testing::{Counted, Dice, KeyShape, Model, NAME, SMALL, build, model};
use crate::level::*;
use crate::merge::{Merge, Source};
use crate::names::{Entry, OwnedEntry, SegmentName};

const GEOMETRIES: [SegmentGeometry; 4] = [
    SMALL,
    SegmentGeometry {
        node_bytes: 1024,
        segment_bytes: 64 << 10,
    },
    SegmentGeometry {
        node_bytes: 4096,
        segment_bytes: 256 << 10,
    },
    SegmentGeometry {
        node_bytes: 8192,
        segment_bytes: 2 << 20,
    },
];

fn len(built: &BuiltSegment) -> u32 {
    built.bytes.len() as u32
}

fn open(built: BuiltSegment) -> (Arc<SegmentReader>, Arc<Counted>) {
    let len = len(&built);
    let reader = SegmentReader::open(built.name, len, &built.bytes).unwrap();
    assert_eq!(reader.first_key(), built.first_key);
    assert_eq!(reader.last_key(), built.last_key);
    assert_eq!(reader.entries(), built.entries);
    assert_eq!(reader.tombstones(), built.tombstones);
    assert_eq!(reader.log_refs(), built.log_refs);
    (Arc::new(reader), Arc::new(Counted::new(built.bytes)))
}

fn drain(mut source: impl Source) -> Vec<(Vec<u8>, OwnedEntry)> {
    let mut pairs = vec![];
    while let Some(key) = source.key() {
        pairs.push((key.to_vec(), source.entry().to_owned()));
        source.advance().unwrap();
    }
    source.advance().unwrap();
    assert_eq!(source.key(), None, "an ended source stays at its end");
    pairs
}

fn pairs(model: &Model, range: &KeyRange) -> Vec<(Vec<u8>, OwnedEntry)> {
    model
        .iter()
        .filter(|(key, _)| range.contains(key))
        .map(|(key, entry)| (key.clone(), entry.clone()))
        .collect()
}

/// Keys of the model, keys next to them, and others.
fn probes(model: &Model, shape: KeyShape, dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut probes: Vec<_> = (0..200).map(|_| shape.key(dice)).collect();
    for key in model.keys() {
        probes.push(key.clone());
        if dice.below(4) == 0 {
            probes.push([key.as_slice(), &[0]].concat());
            probes.push(key[..key.len() - 1].to_vec());
        }
    }
    probes
}

/// The part of `model` that a segment was built of.
fn part(model: &Model, built: &BuiltSegment) -> Model {
    model
        .range(built.first_key.clone()..=built.last_key.clone())
        .map(|(key, entry)| (key.clone(), entry.clone()))
        .collect()
}

fn check_against(model: &Model, built: BuiltSegment, shape: KeyShape, dice: &mut Dice) {
    let (segment, source) = open(built);
    let cache = Arc::new(NodeCache::new(256 << 10));
    let probes = probes(model, shape, dice);
    for key in &probes {
        let cached = (dice.below(2) == 0).then_some(&*cache);
        if !segment.may_contain(KeyHash::of(key)) {
            assert!(!model.contains_key(key), "{shape:?} {key:?}");
            continue;
        }
        let found = get_in_segment(&segment, key, &*source, cached).unwrap();
        assert_eq!(found.as_ref(), model.get(key), "{shape:?} {key:?}");
    }
    let cursor = |range: &KeyRange, ahead, cache| {
        let source = source.clone();
        LevelCursor::new(segment.clone(), source, cache, range, ahead).unwrap()
    };
    let down = |range: &KeyRange, ahead, cache| {
        let (segment, source) = (segment.clone(), source.clone());
        let cursor = LevelCursor::<_, DOWN>::either_way(segment, source, cache, range, ahead);
        let mut pairs = drain(cursor.unwrap());
        pairs.reverse();
        pairs
    };
    let all = KeyRange::all();
    let expected = pairs(model, &all);
    assert_eq!(drain(cursor(&all, ReadAhead::COMPACTION, None)), expected);
    let cached = Some(cache.clone());
    assert_eq!(drain(cursor(&all, ReadAhead::SCAN, cached)), expected);
    assert_eq!(down(&all, ReadAhead::COMPACTION, None), expected);
    assert_eq!(down(&all, ReadAhead::SCAN, Some(cache.clone())), expected);
    let mut seeking = cursor(&all, ReadAhead::SCAN, Some(cache.clone()));
    for key in &probes {
        seeking.seek(key).unwrap();
        let expected = model.range(key.clone()..).next();
        assert_eq!(seeking.key(), expected.map(|(key, _)| key.as_slice()));
        if let Some((_, entry)) = expected {
            assert_eq!(seeking.entry(), entry.as_entry());
        }
    }
    for _ in 0..10 {
        let from = probes[dice.below(probes.len())].clone();
        let to = (dice.below(4) > 0).then(|| probes[dice.below(probes.len())].clone());
        let range = KeyRange::new(from, to);
        let ahead = ReadAhead {
            first: dice.below(3000),
            max: dice.below(9000),
            begun: dice.below(4),
        };
        let cached = (dice.below(2) == 0).then(|| cache.clone());
        let expected = pairs(model, &range);
        assert_eq!(drain(cursor(&range, ahead, cached.clone())), expected);
        assert_eq!(down(&range, ahead, cached), expected, "{range}, downwards");
    }
}

#[test]
fn segments_agree_with_a_sorted_map() {
    for (round, geometry) in GEOMETRIES.into_iter().enumerate() {
        for shape in KeyShape::ALL {
            let mut dice = Dice::new(round as u64);
            let model = model(shape, 600, &mut dice);
            let mut seen = 0;
            for built in build(&model, geometry) {
                assert!(built.bytes.len() <= geometry.segment_bytes);
                assert!(built.bytes.len().is_multiple_of(BLOCK_SIZE));
                assert_eq!(built.checksum, NAME.checksum(&built.bytes));
                let part = part(&model, &built);
                assert_eq!(built.entries as usize, part.len());
                seen += part.len();
                check_against(&part, built, shape, &mut dice);
            }
            assert_eq!(seen, model.len());
        }
    }
}

#[test]
fn log_references_add_up() {
    let mut dice = Dice::new(9);
    let model = model(KeyShape::Hashed, 2000, &mut dice);
    for built in build(&model, SMALL) {
        let mut expected = std::collections::BTreeMap::new();
        let mut tombstones = 0;
        for (key, entry) in part(&model, &built) {
            match entry {
                OwnedEntry::Pointer { at, value_len } => {
                    *expected.entry(at.segment()).or_insert(0) +=
                        key.len() as u64 + u64::from(value_len);
                }
                OwnedEntry::Tombstone => tombstones += 1,
                OwnedEntry::Inline(_) | OwnedEntry::Until(..) => {}
            }
        }
        assert_eq!(built.log_refs, expected.into_iter().collect::<Vec<_>>());
        assert_eq!(built.tombstones, tombstones);
    }
}

#[test]
fn full_segments_are_nearly_full_and_equal_pairs_make_equal_bytes() {
    let mut dice = Dice::new(3);
    let model = model(KeyShape::Hashed, 60_000, &mut dice);
    let geometry = GEOMETRIES[3];
    let built = build(&model, geometry);
    assert!(built.len() > 1, "the test needs a full segment");
    let full = &built[..built.len() - 1];
    for segment in full {
        let used = segment.bytes.iter().filter(|byte| **byte != 0).count();
        assert_eq!(segment.bytes.len(), geometry.segment_bytes);
        assert!(used > geometry.segment_bytes * 9 / 10, "{used}");
    }
    for (one, other) in built.iter().zip(build(&model, geometry)) {
        assert!(*one.bytes == *other.bytes && one.checksum == other.checksum);
    }
}

/// Every pair that an empty segment has to take, in the smallest segment that is allowed.
#[test]
fn the_largest_pairs_fit_the_smallest_segment() {
    for node_bytes in [512, 4096, 8192, 32 << 10] {
        let geometry = SegmentGeometry {
            node_bytes,
            segment_bytes: format::segment_bytes_min(node_bytes),
        };
        let longest = vec![0xaa; 4096];
        let inline = vec![1; node_bytes / 4];
        let pointer = Entry::Pointer {
            at: Pointer::from_raw(u64::MAX),
            value_len: 1 << 20,
        };
        for (key, entry) in [
            (&longest, pointer),
            (&longest, Entry::Tombstone),
            (&vec![1], Entry::Inline(&inline)),
        ] {
            let mut builder = SegmentBuilder::new(NAME, geometry);
            assert!(builder.add(key, entry));
            let built = builder.finish();
            let model = Model::from([(key.clone(), entry.to_owned())]);
            check_against(&model, built, KeyShape::Nested, &mut Dice::new(1));
        }
    }
}

#[test]
#[should_panic(expected = "keys rise strictly")]
fn a_key_out_of_order_is_a_bug() {
    let mut builder = SegmentBuilder::new(NAME, SMALL);
    assert!(builder.add(b"b", Entry::Tombstone));
    let _ = builder.add(b"b", Entry::Tombstone);
}

/// Few pairs in several leaves, so that a segment is a few blocks long.
fn tiny() -> (Model, BuiltSegment) {
    let mut dice = Dice::new(11);
    let mut model = model(KeyShape::Hashed, 30, &mut dice);
    model.extend(testing::model(KeyShape::LongCommon, 40, &mut dice));
    let mut built = build(&model, SMALL);
    assert_eq!(built.len(), 1);
    let built = built.remove(0);
    (model, built)
}

/// Opens the segment and uses it in every way; what it answers is right or an error.
fn use_all(model: &Model, len: u32, bytes: &Arc<Counted>) -> Result<(), LevelError> {
    let reader = Arc::new(SegmentReader::open(NAME, len, &**bytes)?);
    for (key, entry) in model {
        let found = get_in_segment(&reader, key, &**bytes, None)?;
        assert_eq!(found.as_ref(), Some(entry), "wrong data");
    }
    let ahead = ReadAhead {
        first: 1000,
        max: 2000,
        begun: 0,
    };
    let mut cursor = LevelCursor::new(reader, bytes.clone(), None, &KeyRange::all(), ahead)?;
    for (key, entry) in model {
        assert_eq!(cursor.key(), Some(key.as_slice()), "wrong data");
        assert_eq!(cursor.entry(), entry.as_entry(), "wrong data");
        cursor.advance()?;
    }
    Ok(())
}

#[test]
fn every_flipped_byte_is_found() {
    let (model, built) = tiny();
    let bytes = built.bytes.to_vec();
    let whole = Arc::new(Counted::new(built.bytes));
    use_all(&model, bytes.len() as u32, &whole).unwrap();
    let mut dice = Dice::new(12);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << dice.below(8);
        let source = Arc::new(Counted::new(Buffer::from_slice(&damaged)));
        match use_all(&model, bytes.len() as u32, &source) {
            Err(LevelError::Corrupt {
                segment, offset, ..
            }) => {
                assert_eq!(segment, NAME.number);
                assert!(offset as usize <= at, "byte {at} is reported at {offset}");
            }
            other => panic!("byte {at}: {other:?}"),
        }
        assert_ne!(NAME.checksum(&damaged), built.checksum);
    }
}

#[test]
fn a_cut_swapped_or_foreign_segment_is_refused() {
    let (model, built) = tiny();
    let bytes = built.bytes.to_vec();
    let open = |name, bytes: &[u8]| {
        SegmentReader::open(name, bytes.len() as u32, &Buffer::from_slice(bytes)).map(|_| ())
    };
    assert!(open(NAME, &bytes).is_ok());
    let whole = bytes.len();
    assert!(whole > 4096);
    for len in [0, 1, 4095, 4096, whole - 4096, whole - 1, whole + 4096] {
        let mut cut = bytes.clone();
        cut.resize(len, 0);
        assert!(open(NAME, &cut).is_err(), "{len} bytes");
    }
    let others = [
        SegmentName {
            region: argosy_base::RegionId(8),
            ..NAME
        },
        SegmentName {
            number: SegmentNumber(22),
            ..NAME
        },
        SegmentName {
            epoch: Epoch(4),
            ..NAME
        },
    ];
    for name in others {
        assert!(open(name, &bytes).is_err(), "{name:?}");
    }
    let mut swapped = bytes.clone();
    let (front, back) = swapped.split_at_mut(512);
    front.swap_with_slice(&mut back[..512]);
    let len = bytes.len() as u32;
    let source = Arc::new(Counted::new(Buffer::from_slice(&swapped)));
    let error = use_all(&model, len, &source).unwrap_err();
    let error: EngineError = error.into();
    assert!(matches!(error, EngineError::Corrupt { segment, .. } if segment == NAME.number));
    assert_eq!(error.remedy(), Remedy::Repair);
}

/// Two leaves of another segment with the same name and place: whole, but not where they belong.
#[test]
fn leaves_that_the_index_does_not_know_are_refused() {
    let mut dice = Dice::new(13);
    let one = build(&model(KeyShape::Hashed, 30, &mut dice), SMALL).remove(0);
    let other = build(&model(KeyShape::Hashed, 30, &mut dice), SMALL).remove(0);
    let mut mixed = Buffer::from_slice(&one.bytes);
    mixed[512..1024].copy_from_slice(&other.bytes[512..1024]);
    let len = mixed.len() as u32;
    let reader = Arc::new(SegmentReader::open(NAME, len, &mixed).unwrap());
    let source = Arc::new(mixed);
    let all = KeyRange::all();
    let cursor = LevelCursor::new(reader, source, None, &all, ReadAhead::COMPACTION);
    let result = cursor.and_then(|mut cursor| {
        while cursor.key().is_some() {
            cursor.advance()?;
        }
        Ok(())
    });
    assert!(matches!(
        result,
        Err(LevelError::Corrupt { offset: 512, .. })
    ));
}

/// A leaf of another segment of the same name whose keys the index cannot tell from the right ones.
#[test]
fn tied_leaves_that_overlap_are_refused() {
    let keys = |from: usize| -> Model {
        (from..from + 200)
            .map(|number| {
                let key = format!("{}{number:04}", "x".repeat(100));
                (key.into_bytes(), OwnedEntry::Tombstone)
            })
            .collect()
    };
    let one = build(&keys(100), SMALL).remove(0);
    let other = build(&keys(98), SMALL).remove(0);
    let mut mixed = Buffer::from_slice(&one.bytes);
    mixed[1024..1536].copy_from_slice(&other.bytes[1024..1536]);
    let len = mixed.len() as u32;
    let reader = Arc::new(SegmentReader::open(NAME, len, &mixed).unwrap());
    assert!(reader.leaves() > 4);
    let all = KeyRange::all();
    let mut cursor =
        LevelCursor::new(reader, Arc::new(mixed), None, &all, ReadAhead::COMPACTION).unwrap();
    let error = loop {
        assert!(cursor.key().is_some(), "the wrong leaf was believed");
        if let Err(error) = cursor.advance() {
            break error;
        }
    };
    assert!(matches!(error, LevelError::Corrupt { offset: 1024, .. }));
}

#[test]
fn random_segments_are_refused() {
    let mut dice = Dice::new(14);
    for _ in 0..300 {
        let random = Buffer::from_slice(&dice.bytes(8192));
        assert!(SegmentReader::open(NAME, 8192, &random).is_err());
    }
}

#[test]
fn reads_are_as_few_as_promised() {
    let mut dice = Dice::new(15);
    let geometry = GEOMETRIES[3];
    let model = model(KeyShape::Hashed, 20_000, &mut dice);
    let built = build(&model, geometry).remove(0);
    let part = part(&model, &built);
    let (segment, source) = open(built);
    let leaves = segment.leaves() as u32;
    assert!(leaves > 50, "{leaves}");

    let cache = Arc::new(NodeCache::new(8 << 20));
    let key = part.keys().nth(part.len() / 2).unwrap();
    let get = |cache| {
        let before = source.reads();
        let found = get_in_segment(&segment, key, &*source, cache).unwrap();
        assert!(found.is_some());
        source.reads() - before
    };
    assert_eq!(get(None), 1, "one leaf");
    assert_eq!(get(Some(&*cache)), 1);
    assert_eq!(get(Some(&*cache)), 0, "from the cache");

    let before = source.reads();
    let absent = (0..1000).filter(|_| {
        let key = dice.bytes(24);
        let passes = segment.may_contain(KeyHash::of(&key));
        !passes
            || get_in_segment(&segment, &key, &*source, None)
                .unwrap()
                .is_none()
    });
    assert_eq!(absent.count(), 1000);
    let passed = source.reads() - before;
    assert!(passed < 30, "{passed} of 1000 absent keys cost a read");

    a_walk_reads_ahead::<false>(&segment, &source, part.len());
    a_walk_reads_ahead::<DOWN>(&segment, &source, part.len());
}

fn a_walk_reads_ahead<const DOWN: bool>(
    segment: &Arc<SegmentReader>,
    source: &Arc<Counted>,
    pairs: usize,
) {
    let all = KeyRange::all();
    let walk = |ahead, cache| {
        let before = source.reads();
        let (segment, source) = (segment.clone(), source.clone());
        let cursor =
            LevelCursor::<_, DOWN>::either_way(segment, source.clone(), cache, &all, ahead);
        assert_eq!(drain(cursor.unwrap()).len(), pairs);
        source.reads() - before
    };
    let bytes = segment.leaves_bytes();
    assert_eq!(walk(ReadAhead::COMPACTION, None), bytes.div_ceil(256 << 10));
    let cache = Arc::new(NodeCache::new(1 << 20));
    let growing = walk(ReadAhead::SCAN, Some(cache.clone()));
    assert!(growing <= 6 + bytes.div_ceil(128 << 10), "{growing}");
    let kept = cache.stats().bytes;
    assert!(kept < 10 * 8192, "a long scan leaves the cache alone");

    // The first pairs on its way cost one leaf.
    let before = source.reads();
    let (segment, source) = (segment.clone(), source.clone());
    let ahead = ReadAhead::SCAN;
    let cursor = LevelCursor::<_, DOWN>::either_way(segment, source.clone(), None, &all, ahead);
    let mut cursor = cursor.unwrap();
    (0..10).for_each(|_| cursor.advance().unwrap());
    assert_eq!(source.reads() - before, 1);
}

#[test]
fn cursors_merge() {
    let mut dice = Dice::new(16);
    let newer = model(KeyShape::Numbered, 900, &mut dice);
    let older = model(KeyShape::Numbered, 5000, &mut dice);
    let cursors = |model: &Model| -> Vec<_> {
        build(model, SMALL)
            .into_iter()
            .map(|built| {
                let (segment, source) = open(built);
                let all = KeyRange::all();
                LevelCursor::new(segment, source, None, &all, ReadAhead::COMPACTION).unwrap()
            })
            .collect()
    };
    let sources = cursors(&newer).into_iter().chain(cursors(&older)).collect();
    let mut expected = older;
    expected.extend(newer);
    let all = KeyRange::all();
    assert_eq!(drain(Merge::new(sources)), pairs(&expected, &all));
}

#[test]
fn the_memory_of_a_reader_is_reported() {
    let mut dice = Dice::new(17);
    let model = model(KeyShape::Hashed, 40_000, &mut dice);
    let built = build(&model, GEOMETRIES[3]).remove(0);
    let entries = built.entries as usize;
    let (segment, _) = open(built);
    let bytes = segment.memory_bytes();
    assert!(bytes > entries * 10 / 8, "{bytes}");
    assert!(bytes < entries * 10 / 8 + segment.leaves() * 100, "{bytes}");
}
