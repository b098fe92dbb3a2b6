//! A backup that builds its levels becomes the primary: whatever it was at, it holds every pair that it
//! was sent, and its edits are the group's from then on.

use super::*;

/// What promotions have met.
#[derive(Default)]
struct Met {
    promotions: u64,
    /// Levels of its own had been built.
    built: u64,
    /// It was in the middle of building.
    building: u64,
    /// Something was under way on its device.
    in_flight: u64,
    /// It had just come back from a crash, or was cut off.
    came_back: u64,
}

const SERVER: ServerId = ServerId(2);

/// Promotes a builder at a moment that `seed` decides.
fn promote_builder(seed: u64, settings: Settings, met: &mut Met) {
    let mut pair = Pair::with_backup(seed, settings, Some(SERVER));
    for _ in 0..200 + pair.random.below(600) {
        pair.write();
        pair.pump();
    }
    pair.ship();
    match pair.random.below(4) {
        0 => pair.crash_backup(Crash::Kill),
        1 => pair.detach_backup(),
        _ => {}
    }
    met.came_back += u64::from(!pair.live);
    met.promotions += 1;
    met.building += u64::from(pair.backup.is_building());
    met.in_flight += u64::from(pair.backup_machine.device.in_flight() > 0);
    let version = Arc::clone(pair.backup.version());
    let mut entries = version.levels().iter().flat_map(|level| level.entries());
    let own = SegmentNumber::first_own(SERVER);
    met.built += u64::from(entries.any(|entry| entry.segment.number >= own));
    pair.promote_backup();
}

fn promotes_builders(settings: &Settings) {
    for compaction in [Compaction::Partial, Compaction::WholeLevel] {
        let mut met = Met::default();
        // The seed decides how the pair compacts: see `Pair::with_backup`.
        let is_so = |seed: &u64| (seed % 3 == 2) == (compaction == Compaction::WholeLevel);
        for seed in (1..60).filter(is_so).take(12) {
            promote_builder(seed, settings.clone(), &mut met);
        }
        let Met {
            promotions,
            built,
            building,
            in_flight,
            came_back,
        } = met;
        assert_eq!(promotions, 12);
        assert!(
            built > 6 && building > 0 && in_flight > 0 && came_back > 0,
            "{compaction:?}: {built} built, {building} building, {in_flight} in flight, {came_back} came back"
        );
    }
}

#[test]
fn a_backup_that_builds_levels_can_be_promoted_at_any_moment() {
    promotes_builders(&settings());
}

#[test]
fn a_backup_that_builds_levels_of_places_can_be_promoted_at_any_moment() {
    promotes_builders(&in_places());
}
