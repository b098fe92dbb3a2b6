//! All or nothing, chunks, and what never fits.

use argosy_base::Lsn;

use super::super::segment::Geometry;
use super::super::testing::{Operation, Random, Region};
use super::*;
use crate::testing::{LARGE_LOG, LOGS, RECOVERY_LOG};

fn put(log: LogId, len: usize) -> Operation {
    Operation {
        log,
        key: b"key".to_vec(),
        value: Some((0..len).map(|n| u8::try_from(n % 251).unwrap()).collect()),
    }
}

#[test]
fn lsns_follow_each_other_over_both_logs() {
    let mut region = Region::new(Geometry::new(32 << 10, 8 << 10, 4));
    let group = [
        put(RECOVERY_LOG, 10),
        put(LARGE_LOG, 12_000),
        put(RECOVERY_LOG, 10),
    ];
    region.append(&group).unwrap();
    let lsns: Vec<_> = region.history.iter().map(|written| written.lsn.0).collect();
    // 12,000 bytes do not fit a window of 8 KiB: two records, and the pair sorts by the last.
    assert_eq!(lsns, [1, 3, 4]);
    assert_eq!(region.last, Lsn(4));
    assert_eq!(region.history[1].at.offset(), 64);
    assert_eq!(region.logs.durable(region.last), Lsn(0));
    region.flush(true);
    assert_eq!(region.logs.durable(region.last), Lsn(4));
}

#[test]
fn a_group_without_room_in_one_log_leaves_both_alone() {
    let mut region = Region::new(Geometry::new(32 << 10, 8 << 10, 2));
    region.append(&[put(LARGE_LOG, 9000)]).unwrap();
    let before = LOGS.map(|log| region.logs.log(log).end());
    let group = [put(RECOVERY_LOG, 10), put(LARGE_LOG, 9000)];
    assert_eq!(region.append(&group), Err(NoRoom::Full));
    let after = LOGS.map(|log| region.logs.log(log).end());
    assert_eq!(before, after);
    assert_eq!(region.last, Lsn(2));
    region.flush(true);
    region.append(&group[..1]).unwrap();
}

#[test]
fn what_never_fits_is_told_apart() {
    let mut region = Region::new(Geometry::new(32 << 10, 8 << 10, 2));
    assert_eq!(
        region.append(&[put(LARGE_LOG, 20_000)]),
        Err(NoRoom::TooLarge)
    );
    assert_eq!(region.append(&[put(RECOVERY_LOG, 10_000)]), Ok(()));
    assert_eq!(
        region.append(&[put(RECOVERY_LOG, 15_000)]),
        Err(NoRoom::TooLarge)
    );
}

/// Short records move to the next window rather than be cut; the rest of a window is not wasted on
/// account of a long one.
#[test]
fn only_long_values_are_cut() {
    let mut region = Region::new(Geometry::new(64 << 10, 32 << 10, 4));
    let window = 32 << 10;
    region
        .append(&[put(LARGE_LOG, window - 64 - 1000)])
        .unwrap();
    assert_eq!(region.last, Lsn(1));
    region.append(&[put(LARGE_LOG, 1500)]).unwrap();
    assert_eq!(region.last, Lsn(2), "one record");
    assert_eq!(
        region.history[1].at.offset(),
        32 << 10,
        "in the next window"
    );
    region.append(&[put(LARGE_LOG, 40_000)]).unwrap();
    assert_eq!(region.last, Lsn(4), "two records");
    assert!(region.history[2].at.offset() < (32 << 10) + 1600);
}

/// The first pass finds out exactly what the second one does.
#[test]
fn groups_that_are_found_to_fit_do() {
    let mut appended = 0;
    let mut full = 0;
    let mut large = 0;
    for seed in 0..60 {
        let random = Random::new(9_000 + seed);
        let slots = 2 + random.below(2);
        let mut region = Region::new(Geometry::new(16 << 10, 8 << 10, slots));
        for _ in 0..100 {
            let group = [region.group(&random), region.group(&random)].concat();
            match region.append(&group) {
                Ok(()) => appended += 1,
                Err(NoRoom::TooLarge) => large += 1,
                Err(NoRoom::Full) => {
                    full += 1;
                    region.flush(true);
                    region.append(&group).expect("it was only full");
                }
            }
            if random.below(10) == 0 {
                region.flush(random.below(2) == 0);
            }
        }
    }
    assert!(
        appended > 1000 && full > 100 && large > 5,
        "{appended} {full} {large}"
    );
}
