//! What a device has lost of a log is found before another member is given it.

use std::convert::Infallible;

use argosy_base::FlushRange;

use super::super::testing::{Operation, REGION, Random, Region};
use super::*;
use crate::testing::LARGE_LOG;

/// The segment that `range` is in.
fn segment_of<'a>(region: &'a Region, range: &FlushRange) -> &'a LogSegment {
    let mut chain = region.chains[range.log.index()].iter();
    let segment = chain.find(|segment| segment.number == range.segment);
    segment.expect("it was provided")
}

/// What is wrong with the segment that `range` is in.
fn fault(region: &Region, range: &FlushRange) -> Option<LogFault> {
    let segment = segment_of(region, range);
    let durable = region.logs.log(range.log).flushed_here(segment);
    let device = region.device.borrow();
    let mut read = |segment: &LogSegment, at: u32, out: &mut [u8]| {
        let at = at as usize;
        out.copy_from_slice(&device[&segment.number][at..at + out.len()]);
        Ok::<(), Infallible>(())
    };
    let of = LogLayout {
        region: REGION,
        geometry: region.geometry,
    };
    let found = fault_before(of, segment, durable, &mut read);
    found.expect("it can be read")
}

/// A write to the device was lost, and its place reads as zeros. That is found, also where nothing follows it.
#[test]
fn a_lost_write_is_found_where_there_are_zeros() {
    let mut found = 0;
    for seed in 0..60 {
        let random = Random::new(seed);
        let window = 8192 << random.below(2);
        let mut region = Region::new(Geometry::new(4 * window, window, 4));
        let mut ranges = Vec::new();
        for _ in 0..120 {
            let group = region.group(&random);
            if region.append(&group).is_err() {
                ranges.extend(region.flush(true));
            } else if random.below(4) == 0 {
                ranges.extend(region.flush(random.below(2) == 0));
            }
        }
        ranges.extend(region.flush(true));
        for range in &ranges {
            assert_eq!(fault(&region, range), None, "seed {seed}: nothing is lost");
            let bytes = region.device_bytes(range);
            region.write_device(range, &vec![0; bytes.len()]);
            let is_found = fault(&region, range).is_some();
            let end = segment_of(&region, range).end.unwrap_or(u32::MAX);
            assert_eq!(is_found, range.from < end, "seed {seed}: {range:?}");
            found += u32::from(is_found);
            region.write_device(range, &bytes);
        }
    }
    assert!(found > 1000, "{found} found");
}

/// A closing mark that was lost is written again without what it said, and bytes of an older window may lie behind it.
#[test]
fn copies_that_differ_behind_a_record_only_in_closing_marks_hold_the_same() {
    let window = 512 << 10;
    let mut region = Region::new(Geometry::new(4 * window, window, 4));
    let put = |len: usize| Operation {
        log: LARGE_LOG,
        key: b"key".to_vec(),
        value: Some(vec![b'v'; len]),
    };
    while region.logs.log(LARGE_LOG).at() < window as u64 - 20_000 {
        region.append(&[put(500)]).unwrap();
    }
    region.flush(true);
    region.append(&[put(20_000)]).unwrap();
    region.flush(true);
    let segment = region.chains[LARGE_LOG.index()][0];
    let level = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        level_closing_marks(REGION, region.geometry, &segment, &mut bytes);
        bytes
    };
    let all = region.device.borrow()[&segment.number].to_vec();
    let identity = |at: usize| {
        let at = u32::try_from(at).expect("less than a segment");
        identity(Kind::LogRecord, REGION, &segment, at)
    };
    let marks: Vec<_> = (0..window)
        .filter(|at| {
            let here = identity(*at);
            matches!(decode(&all[*at..window], here, segment.base_lsn),
                Decoded::Record(record, _) if record.kind == RecordKind::ClosingMark)
        })
        .collect();
    let [mark] = marks[..] else {
        panic!("{marks:?}");
    };

    let mut again = all.clone();
    let here = identity(mark);
    let mut bytes = Vec::new();
    Record::closing_mark(Lsn(0)).encode(here, segment.base_lsn, &mut bytes);
    again[mark..mark + 100].fill(0xa5);
    again[mark..mark + bytes.len()].copy_from_slice(&bytes);
    assert_ne!(all, again);
    assert_eq!(level(&all), level(&again));
    // What lies before the mark stays, and a mark that is missing is a difference.
    assert_eq!(level(&all)[..mark], all[..mark]);
    again[mark..window].fill(0);
    assert_ne!(level(&all), level(&again));
}
