//! Tests of the allocator: see [`super`].

use std::collections::BTreeMap;

use super::*;
use crate::rng::Rng;

fn ready(segments: u32, reserve: u32) -> Allocator {
    let mut allocator = Allocator::recovering(segments, reserve);
    allocator.finish_recovery();
    allocator
}

#[test]
fn recovery_frees_what_nobody_claims() {
    let mut allocator = Allocator::recovering(6, 0);
    assert!(allocator.claim(DeviceSegment(2)));
    assert!(allocator.claim(DeviceSegment(4)));
    assert!(allocator.claim(DeviceSegment(4)));
    assert!(
        !allocator.claim(DeviceSegment(0)),
        "nobody's but the store's"
    );
    assert!(!allocator.claim(DeviceSegment(6)), "behind the end");
    assert!(
        !allocator.release(DeviceSegment(2)),
        "nothing leaves before recovery ends"
    );
    assert_eq!(allocator.used(), 2);
    allocator.finish_recovery();
    let free: Vec<_> = std::iter::from_fn(|| allocator.allocate(false)).collect();
    assert_eq!(free, [1, 2, 3, 5].map(DeviceSegment));
}

#[test]
fn a_leaving_segment_is_nobodys() {
    let mut allocator = ready(2, 0);
    let segment = allocator.allocate(false).unwrap();
    allocator.retain(segment);
    assert!(!allocator.release(segment));
    assert!(allocator.release(segment));
    assert_eq!(allocator.allocate(false), None);
    assert_eq!(allocator.used(), 2);
    allocator.give_back(segment);
    assert_eq!(allocator.used(), 1);
    assert_eq!(allocator.allocate(false), Some(segment));
}

#[test]
fn the_reserve_is_for_those_who_may_use_it() {
    let mut allocator = ready(4, 2);
    assert!(allocator.allocate(false).is_some());
    assert!(allocator.allocate(false).is_none());
    assert!(allocator.allocate(true).is_some());
    assert!(allocator.allocate(true).is_some());
    assert!(allocator.allocate(true).is_none());
}

#[test]
#[should_panic(expected = "is not in use")]
fn a_free_segment_cannot_be_released() {
    let mut allocator = ready(4, 0);
    let segment = allocator.allocate(false).unwrap();
    let _ = allocator.release(segment);
    let _ = allocator.release(segment);
}

/// Random use against a map of counts.
#[test]
fn counts_agree_with_a_model() {
    let mut rng = Rng::new(1);
    let mut allocator = Allocator::recovering(20, 0);
    let mut model: BTreeMap<DeviceSegment, u32> = BTreeMap::new();
    for _ in 0..15 {
        let segment = DeviceSegment(u32::try_from(1 + rng.below(19)).unwrap());
        assert!(allocator.claim(segment));
        *model.entry(segment).or_default() += 1;
    }
    allocator.finish_recovery();
    let mut full = 0;
    for _ in 0..50_000 {
        let held: Vec<_> = model.keys().copied().collect();
        let some = held.get(rng.below(held.len().max(1))).copied();
        match (rng.below(4), some) {
            (0 | 1, _) => match allocator.allocate(false) {
                Some(segment) => assert_eq!(model.insert(segment, 1), None, "{segment}"),
                None => {
                    assert_eq!(model.len(), 19, "everything is in use");
                    full += 1;
                }
            },
            (2, Some(segment)) => {
                allocator.retain(segment);
                *model.get_mut(&segment).unwrap() += 1;
            }
            (_, Some(segment)) => {
                let count = model.get_mut(&segment).unwrap();
                *count -= 1;
                let last = *count == 0;
                assert_eq!(allocator.release(segment), last);
                if last {
                    model.remove(&segment);
                    allocator.give_back(segment);
                }
            }
            (_, None) => {}
        }
        assert_eq!(allocator.used() as usize, 1 + model.len());
        for n in 1..20 {
            let expected = model.get(&DeviceSegment(n)).copied().unwrap_or(0);
            assert_eq!(allocator.references(DeviceSegment(n)), expected);
        }
    }
    assert!(full > 1000, "the test reaches a full device: {full}");
}
