//! What a device has lost of a log is found before another member is given it.

use std::convert::Infallible;

use argosy_engine::FlushRange;

use super::super::testing::{REGION, Random, Region};
use super::*;

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
    let found = fault_before((REGION, region.geometry), segment, durable, &mut read);
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
