//! Tests of the pace of a scrubber: see [`super`]. What it finds is tested in `tests/scrubbing.rs`.

use argosy_base::{AddressMode, RegionId};

use super::*;

#[test]
fn one_that_is_off_does_nothing() {
    let pace = Pace {
        period: Duration::ZERO,
        ..Pace::default()
    };
    let version = Version::empty(RegionId(1), AddressMode::Logical);
    let mut scrubber = Scrubber::new(pace);
    let settings = Settings::default();
    for seconds in 0..1_000 {
        let now = Instant::from_nanos(seconds * 1_000_000_000);
        assert_eq!(scrubber.step(&version, &settings, now), (vec![], None));
    }
    assert_eq!(scrubber.stats(), ScrubStats::default());
}

#[test]
fn a_region_without_segments_is_looked_at_now_and_then() {
    let version = Version::empty(RegionId(1), AddressMode::Logical);
    let mut scrubber = Scrubber::new(Pace::default());
    let settings = Settings::default();
    let mut now = Instant::from_nanos(1);
    for steps in 0..10 {
        let (found, idle) = scrubber.step(&version, &settings, now);
        assert_eq!(found, vec![]);
        assert_eq!(idle, Some(NOTHING_YET), "{steps}");
        now = now + NOTHING_YET;
    }
    assert_eq!(scrubber.stats().passes, 9);
    assert_eq!(scrubber.stats().bytes, 0);
}
