//! What a sweep finds is what was written, and nothing else.

use std::convert::Infallible;

use super::super::LogSource;
use super::super::NoRoom;
use super::super::testing::{Operation, REGION, Random, Region};
use super::*;
use crate::testing::LARGE_LOG;

fn filled(seed: u64) -> Region {
    let random = Random::new(seed);
    let mut region = Region::new(Geometry::new(32 << 10, 8 << 10, 6));
    for _ in 0..200 {
        let group = region.group(&random);
        match region.append(&group) {
            Ok(()) | Err(NoRoom::TooLarge) => {}
            Err(NoRoom::Full) => {
                region.flush(true);
                region.append(&group).unwrap();
            }
        }
        if random.below(9) == 0 {
            region.flush(random.below(2) == 0);
        }
    }
    region.flush(true);
    region
}

#[test]
fn a_sweep_finds_every_value_where_it_begins() {
    let (mut swept, mut in_parts) = (0, 0);
    for seed in 0..20 {
        let region = filled(seed);
        let mut read = |segment: &LogSegment, offset: u32, out: &mut [u8]| {
            LogSource::read(&region, *segment, offset, out)
        };
        for segment in &region.chains[LARGE_LOG.index()] {
            if segment.end.is_none() {
                continue;
            }
            let of_segment = |at: Pointer| at.segment() == segment.number;
            let mut written = region
                .history
                .iter()
                .filter(|w| of_segment(w.at) && w.operation.value.is_some());
            let mut sweep = Sweep::new(REGION, region.geometry, *segment);
            while let Some(found) = sweep.next(&mut read).unwrap() {
                let expected = written.next().unwrap();
                assert_eq!(
                    (found.at, found.key),
                    (expected.at, &expected.operation.key[..])
                );
                match found.value {
                    Some(value) => assert_eq!(Some(value), expected.operation.value.as_deref()),
                    None => in_parts += 1,
                }
                swept += 1;
            }
            assert!(written.next().is_none(), "{segment:?}");
        }
    }
    assert!(swept > 200 && in_parts > 20, "{swept} {in_parts}");
}

/// A value is in parts where it goes on in the next segment: there it stands first.
#[test]
fn segments_that_begin_with_the_rest_of_a_value_are_told_from_others() {
    let mut seen = [0, 0];
    for seed in 0..20 {
        let region = filled(seed);
        let mut read = |segment: &LogSegment, offset: u32, out: &mut [u8]| {
            LogSource::read(&region, *segment, offset, out)
        };
        let mut before: Option<LogSegment> = None;
        for segment in &region.chains[LARGE_LOG.index()] {
            if segment.end.is_none() {
                continue;
            }
            let inside: Result<bool, Infallible> =
                begins_inside_value(REGION, region.geometry, segment, &mut read);
            let inside = inside.unwrap();
            // The last value of the segment before takes more than is left there.
            let last = before.and_then(|before| {
                let mut of = region.history.iter();
                of.rfind(|w| w.at.segment() == before.number && w.operation.value.is_some())
            });
            if let Some(last) = last {
                let len = last.operation.value.as_ref().map_or(0, Vec::len) as u64;
                let end = u64::from(last.at.offset()) + len;
                assert!(!inside || end + 64 > u64::from(32u32 << 10) - 4096);
                if end > 32 << 10 {
                    assert!(inside, "seed {seed}: {segment:?}");
                }
            }
            seen[usize::from(inside)] += 1;
            before = Some(*segment);
        }
    }
    assert!(seen[0] > 20 && seen[1] > 5, "{seen:?}");
}

#[test]
fn damage_ends_a_sweep() {
    let region = filled(3);
    let chain = &region.chains[LARGE_LOG.index()];
    let segment = chain.iter().find(|segment| segment.end.is_some()).unwrap();
    let bytes = &mut region.device.borrow_mut();
    let bytes = bytes.get_mut(&segment.number).unwrap();
    bytes[SEGMENT_HEADER_BYTES as usize + 2] ^= 1;
    let bytes = bytes.clone();
    let mut read = |_: &LogSegment, offset: u32, out: &mut [u8]| -> Result<(), Infallible> {
        let offset = offset as usize;
        out.copy_from_slice(&bytes[offset..offset + out.len()]);
        Ok(())
    };
    let mut sweep = Sweep::new(REGION, region.geometry, *segment);
    let swept = sweep.next(&mut read);
    assert!(matches!(swept, Err(SweepError::Damaged { offset: 64 })));
    let inside = begins_inside_value(REGION, region.geometry, segment, &mut read);
    assert_eq!(
        inside,
        Ok(true),
        "what cannot be told is taken for the rest"
    );
}

/// A device has lost the write of one block: it has zeros there. A sweep that took them for padding would have the
/// segment given up, by all members, with what lives in it.
#[test]
fn a_lost_write_ends_a_sweep() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..20 {
        let region = filled(seed);
        for segment in &region.chains[LARGE_LOG.index()] {
            let Some(end) = segment.end else { continue };
            for block in 0..end.div_ceil(BLOCK_BYTES) {
                let (from, to) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
                let mut read = |segment: &LogSegment, offset: u32, out: &mut [u8]| {
                    let read = LogSource::read(&region, *segment, offset, out);
                    for (at, byte) in (offset..).zip(out) {
                        *byte *= u8::from(!(from..to).contains(&at));
                    }
                    read
                };
                let begins = region.history.iter().filter(|w| {
                    w.at.segment() == segment.number && (from..to).contains(&w.at.offset())
                });
                if begins.filter(|w| w.operation.value.is_some()).count() == 0 {
                    kept += 1;
                    continue;
                }
                let mut sweep = Sweep::new(REGION, region.geometry, *segment);
                let ended = loop {
                    match sweep.next(&mut read) {
                        Ok(Some(swept)) => assert!(!(from..to).contains(&swept.at.offset())),
                        Ok(None) => break false,
                        Err(SweepError::Damaged { .. }) => break true,
                        Err(SweepError::Read(error)) => match error {},
                    }
                };
                assert!(ended, "seed {seed}: block {block} of {segment:?}");
                lost += 1;
            }
        }
    }
    assert!(lost > 100, "{lost} {kept}");
}

/// A loss of power has left a closing mark, and older bytes in place of the padding behind it.
#[test]
fn nothing_is_read_behind_a_closing_mark() {
    // What is longer than a 16th of a window is cut.
    let (window, padding) = (512 << 10, 4 * BLOCK_BYTES as usize);
    let mut region = Region::new(Geometry::new(4 * window, window, 4));
    let put = |len: usize| Operation {
        log: LARGE_LOG,
        key: b"key".to_vec(),
        value: Some(vec![b'v'; len]),
    };
    while region.logs.log(LARGE_LOG).at() < (window - padding - 1000) as u64 {
        region.append(&[put(500)]).unwrap();
    }
    region.flush(true);
    region.append(&[put(padding + 2000)]).unwrap();
    region.logs.log_mut(LARGE_LOG).seal();
    region.flush(true);
    let segment = region.chains[LARGE_LOG.index()][0];
    let mut stale = 0;
    let mut read = |segment: &LogSegment, offset: u32, out: &mut [u8]| {
        LogSource::read(&region, *segment, offset, out)?;
        for block in out.chunks_mut(BLOCK_BYTES as usize) {
            if block.iter().all(|byte| *byte == 0) {
                block.fill(0xa5);
                stale += 1;
            }
        }
        Ok::<(), Infallible>(())
    };
    let mut sweep = Sweep::new(REGION, region.geometry, segment);
    let mut swept = 0;
    while sweep.next(&mut read).unwrap().is_some() {
        swept += 1;
    }
    assert_eq!(swept, region.history.len());
    assert!(stale > 0);
}
