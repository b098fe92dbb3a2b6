//! Where medium values go, and how they are read ahead.

use super::*;

const TREE: MediumExtent = MediumExtent {
    levels: 3,
    bytes: 100,
    bound: 100,
};

#[test]
fn a_flush_puts_values_apart_where_a_level_between_spares_rewriting_them() {
    let is_so = |placement, extent: &MediumExtent| {
        let settings = Settings::default().with(|of| of.values.placement = placement);
        is_apart(&settings, extent)
    };
    assert!(is_so(Placement::Hybrid, &TREE));
    for levels in 0..3 {
        let shallow = MediumExtent { levels, ..TREE };
        assert!(!is_so(Placement::Hybrid, &shallow), "{levels} levels");
    }
    let long = MediumExtent { bytes: 101, ..TREE };
    assert!(
        !is_so(Placement::Hybrid, &long),
        "the medium log is too long"
    );
    let none = MediumExtent {
        bytes: 0,
        bound: 0,
        ..TREE
    };
    assert!(!is_so(Placement::Hybrid, &none), "there is to be none");
    assert!(!is_so(Placement::InPlace, &TREE));
    assert!(!is_so(Placement::Separated, &TREE));
}

#[test]
fn a_merge_into_the_last_level_puts_values_in_place() {
    assert!(!is_in_place(2, &TREE));
    assert!(is_in_place(3, &TREE));
    assert!(is_in_place(4, &TREE), "that is the last from then on");
}

#[test]
fn the_bound_follows_the_levels() {
    let settings = Settings::default().with(|of| {
        of.memtables.bytes = 1000;
        of.levels.l1_runs = 4;
        of.memtables.count_max = 3;
        of.values.medium_log_percent = 50;
    });
    assert_eq!(settings.medium_log_bound(0), 7000);
    assert_eq!(settings.medium_log_bound(10_000), 12_000);
    let none = settings.with(|of| of.values.medium_log_percent = 0);
    assert_eq!(none.medium_log_bound(10_000), 0);
}
