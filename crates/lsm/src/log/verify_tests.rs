//! What a device has lost of a log is found before another member is given it.

use std::convert::Infallible;

use argosy_engine::FlushRange;

use super::super::testing::{REGION, Random, Region};
use super::*;

/// What is wrong with the segment that `range` is in.
fn fault(region: &Region, range: &FlushRange) -> Option<LogFault> {
    let mut chain = region.chains[range.log.index()].iter();
    let segment = chain.find(|segment| segment.number == range.segment);
    let segment = segment.expect("it was provided");
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

/// A write to the device was lost, and its place reads as zeros. That is found wherever another write follows it.
#[test]
fn a_lost_write_is_found_where_there_are_zeros() {
    let (mut found, mut missed) = (0, 0);
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
            let mut later = ranges.iter();
            let goes_on =
                later.any(|other| other.segment == range.segment && range.to <= other.from);
            match fault(&region, range) {
                Some(_) => found += 1,
                None => missed += u32::from(goes_on),
            }
            region.write_device(range, &bytes);
        }
    }
    assert!(
        found > 1000 && missed < found / 20,
        "{found} found, {missed} missed"
    );
}
