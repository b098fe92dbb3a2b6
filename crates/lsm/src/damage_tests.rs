//! What is open beside what is shut, and what is known: see [`super`].

use argosy_base::{AddressMode, RegionId};

use super::*;

fn range(from: &str, to: &str) -> KeyRange {
    KeyRange::new(from, (!to.is_empty()).then(|| to.into()))
}

fn shut(ranges: &[KeyRange]) -> Shut {
    Shut {
        segments: BTreeSet::from([SegmentNumber(1)]),
        ranges: ranges.to_vec(),
        medium: false,
    }
}

#[test]
fn what_is_open_lies_between_what_is_shut() {
    let cases = [
        (vec![range("b", "d")], range("a", "f"), "a-b d-f"),
        (vec![range("b", "d")], range("c", "f"), "d-f"),
        (vec![range("b", "d")], range("b", "d"), ""),
        (vec![range("b", "")], range("a", ""), "a-b"),
        (
            vec![range("", "c"), range("e", "f")],
            range("", ""),
            "c-e f-",
        ),
        (vec![range("b", "d")], range("e", "f"), "e-f"),
    ];
    for (ranges, of, wanted) in cases {
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
        let parts = shut(&ranges).open_parts(&of);
        let parts = parts.iter().map(|part| {
            let to = part.to.as_deref().map_or(String::new(), text);
            format!("{}-{to}", text(&part.from))
        });
        assert_eq!(parts.collect::<Vec<_>>().join(" "), wanted, "{of}");
    }
}

#[test]
fn damage_of_what_the_region_does_not_have_is_not_known() {
    let damages = Damages::default();
    let version = Version::empty(RegionId(1), AddressMode::Logical);
    assert!(!damages.note_segment(&version, SegmentNumber(3), "bad"));
    assert!(damages.is_empty() && damages.take_new().is_empty());
    assert_eq!(damages.stats(), DamageStats::default());
}
