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
    allocator.release(DeviceSegment(2));
    assert_eq!(
        allocator.freed(),
        0,
        "nothing is freed before recovery ends"
    );
    assert_eq!(allocator.used(), 2);
    allocator.finish_recovery();
    let free: Vec<_> =
        std::iter::from_fn(|| allocator.allocate(Purpose::Write, u32::MAX)).collect();
    assert_eq!(free, [1, 2, 3, 5].map(DeviceSegment));
}

#[test]
fn a_leaving_segment_is_nobodys() {
    let mut allocator = ready(2, 0);
    let segment = allocator.allocate(Purpose::Write, u32::MAX).unwrap();
    allocator.retain(segment);
    allocator.release(segment);
    assert_eq!((allocator.used(), allocator.freed()), (2, 0));
    allocator.release(segment);
    assert_eq!((allocator.used(), allocator.freed()), (1, 1));
    assert_eq!(allocator.take_freed(), Some(segment));
    assert_eq!(allocator.allocate(Purpose::Write, u32::MAX), None);
    allocator.give_back(segment);
    assert_eq!((allocator.used(), allocator.freed()), (1, 0));
    assert_eq!(allocator.allocate(Purpose::Write, u32::MAX), Some(segment));
}

#[test]
fn each_purpose_leaves_the_reserve_to_those_behind_it() {
    let mut allocator = ready(20, 16);
    let mut taken = |purpose| std::iter::from_fn(|| allocator.allocate(purpose, u32::MAX)).count();
    assert_eq!(taken(Purpose::Write), 3);
    assert_eq!(taken(Purpose::Log), 4);
    assert_eq!(taken(Purpose::Write), 0);
    assert_eq!(taken(Purpose::Opening), 4);
    assert_eq!(taken(Purpose::Log), 0);
    assert_eq!(taken(Purpose::Flush), 2);
    assert_eq!(taken(Purpose::Merge), 4);
    assert_eq!(taken(Purpose::Opening), 0);
    assert_eq!(taken(Purpose::Pack), 1);
    assert_eq!(taken(Purpose::Merge), 0);
    assert_eq!(taken(Purpose::Metadata), 1);
    assert_eq!(taken(Purpose::Metadata), 0);
}

#[test]
#[should_panic(expected = "is not in use")]
fn a_free_segment_cannot_be_released() {
    let mut allocator = ready(4, 0);
    let segment = allocator.allocate(Purpose::Write, u32::MAX).unwrap();
    allocator.release(segment);
    allocator.release(segment);
}

#[test]
fn what_takes_room_beneath_is_not_handed_out() {
    let mut allocator = Allocator::recovering(8, 0);
    allocator.finish_recovery();
    let mut take = || allocator.allocate(Purpose::Write, u32::MAX).unwrap();
    let taken = [take(), take(), take()];
    for segment in taken {
        allocator.release(segment);
    }
    assert_eq!(allocator.take_freed(), Some(taken[0]));
    allocator.give_back(taken[0]);
    assert_eq!(allocator.allocate(Purpose::Write, u32::MAX), Some(taken[0]));
    // What is found to take room counts as freed, what is in use does not.
    allocator.are_written(&[taken[0], DeviceSegment(7)]);
    assert_eq!(allocator.freed(), 3);
    assert_eq!(allocator.free(), 6);
    for _ in 0..3 {
        assert!(allocator.allocate(Purpose::Write, u32::MAX).is_some());
    }
    assert!(allocator.lacks_free());
    assert_eq!(allocator.allocate(Purpose::Write, u32::MAX), None);
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
            (_, _) if rng.below(10) == 0 => {
                if let Some(segment) = allocator.take_freed() {
                    assert!(!model.contains_key(&segment), "{segment}");
                    allocator.give_back(segment);
                }
            }
            (0 | 1, _) => match allocator.allocate(Purpose::Write, u32::MAX) {
                Some(segment) => assert_eq!(model.insert(segment, 1), None, "{segment}"),
                None if allocator.lacks_free() => {
                    let segment = allocator.take_freed().unwrap();
                    allocator.give_back(segment);
                }
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
                let before = allocator.freed();
                allocator.release(segment);
                assert_eq!(allocator.freed(), before + usize::from(last));
                if last {
                    model.remove(&segment);
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
