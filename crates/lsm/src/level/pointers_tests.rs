//! Pointers are found where pairs have them, and what is changed is a sound segment.

use argosy_base::{Pointer, SegmentNumber};
use argosy_device::Buffer;

use super::super::testing::{Dice, KeyShape, NAME, SMALL, build, model};
use super::super::verify::verify_segment;
use super::*;
use crate::names::{Entry, OwnedEntry};

fn moved(at: Pointer) -> Pointer {
    Pointer::new(SegmentNumber(at.segment().0 + 1000), at.offset())
}

#[test]
fn every_pointer_is_shown_and_changed() {
    for shape in KeyShape::ALL {
        let mut dice = Dice::new(shape as u64 + 5);
        let model = model(shape, 900, &mut dice);
        let mut entries = model.iter();
        for mut built in build(&model, SMALL) {
            let whole = Buffer::from_slice(&built.bytes);
            let mut shown = vec![];
            let visited = for_each_pointer_mut(NAME, &mut built.bytes, |_, at| {
                shown.push(at);
                Some(at)
            })
            .unwrap();
            assert_eq!((visited.pointers, visited.changed), (shown.len() as u64, 0));
            assert_eq!(*built.bytes, *whole, "nothing was changed");
            let visited =
                for_each_pointer_mut(NAME, &mut built.bytes, |_, at| Some(moved(at))).unwrap();
            assert_eq!(visited.changed, visited.pointers);
            let mut there = vec![];
            let (_, faults) =
                verify_segment(NAME, &built.bytes, SegmentNumber(2000), |key, entry| {
                    let (expected_key, expected) = entries.next().expect("no pair is new");
                    assert_eq!(key, expected_key);
                    match (entry, expected) {
                        (Entry::Pointer { at, .. }, OwnedEntry::Pointer { at: old, .. }) => {
                            assert_eq!(at, moved(*old));
                            there.push(*old);
                            // The table's references are numbers, and stay what they were.
                            Some(old.segment())
                        }
                        (entry, expected) => {
                            assert_eq!(entry, expected.as_entry());
                            None
                        }
                    }
                });
            assert_eq!(faults, []);
            assert_eq!(shown, there);
            let back = |_, at: Pointer| {
                let number = SegmentNumber(at.segment().0 - 1000);
                Some(Pointer::new(number, at.offset()))
            };
            for_each_pointer_mut(NAME, &mut built.bytes, back).unwrap();
            assert_eq!(*built.bytes, *whole, "there and back");
        }
        assert!(entries.next().is_none());
    }
}

#[test]
fn what_is_unknown_is_named() {
    let mut dice = Dice::new(3);
    let model = model(KeyShape::Hashed, 200, &mut dice);
    let mut built = build(&model, SMALL).remove(0);
    let mut left = 3;
    let result = for_each_pointer_mut(NAME, &mut built.bytes, |_, at| {
        left -= 1;
        (left > 0).then_some(at)
    });
    assert!(matches!(
        result,
        Err(VisitError::Unknown {
            kind: PointerKind::Log,
            ..
        })
    ));
}

/// No damage is passed on under a checksum that hides it, and none panics.
#[test]
fn damage_is_found() {
    let mut dice = Dice::new(11);
    let model = model(KeyShape::Mixed, 300, &mut dice);
    let built = build(&model, SMALL).remove(0);
    for_each_pointer_mut(NAME, &mut Buffer::from_slice(&built.bytes), |_, at| {
        Some(at)
    })
    .unwrap();
    let leaves = super::super::SegmentReader::open(
        NAME,
        u32::try_from(built.bytes.len()).unwrap(),
        &built.bytes,
    )
    .unwrap()
    .leaves_bytes() as usize;
    for _ in 0..2000 {
        let mut bytes = Buffer::from_slice(&built.bytes);
        let at = dice.below(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
        let result = for_each_pointer_mut(NAME, &mut bytes, |_, at| Some(moved(at)));
        let touched = at < leaves || at >= bytes.len() - FOOTER_BYTES;
        assert_eq!(result.is_err(), touched, "byte {at}");
        let cut = dice.below(bytes.len());
        let mut random = dice.bytes(cut.min(4096));
        assert!(for_each_pointer_mut(NAME, &mut random, |_, at| Some(at)).is_err());
        assert!(for_each_pointer_mut(NAME, &mut bytes[..cut], |_, at| Some(at)).is_err());
    }
}
