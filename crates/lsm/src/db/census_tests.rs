//! What is chosen, from a census alone.

use super::*;

fn census(settled: &[u64]) -> Census {
    let numbered = (1..).zip(settled.iter().copied());
    let settled_of = |(ordinal, refs)| Settled {
        number: SegmentNumber(ordinal),
        ordinal,
        refs,
    };
    Census {
        segment_bytes: 100,
        allocated: 1000,
        unsettled: 0,
        level_bytes: 0,
        refs: settled.iter().sum(),
        medium_refs: 0,
        medium_bytes: 0,
        stale: 0,
        settled: numbered.map(settled_of).collect(),
    }
}

fn chosen_in(episode: &mut Episode, census: &Census, goal: u64, moved: &[u64]) -> Choice {
    let wanted = Wanted {
        goal,
        refs_max: 75,
        moved: &moved.iter().copied().map(SegmentNumber).collect(),
        skipped: &BTreeSet::from([SegmentNumber(9)]),
    };
    choose(census, &wanted, episode)
}

fn chosen(census: &Census, goal: u64, moved: &[u64]) -> Choice {
    chosen_in(&mut Episode::default(), census, goal, moved)
}

#[test]
fn the_segment_in_which_least_lives_is_moved() {
    let census = census(&[90, 40, 0, 30, 76]);
    assert_eq!(chosen(&census, 0, &[]), Choice::Rest);
    assert_eq!(chosen(&census, 1, &[]), Choice::Move(SegmentNumber(4)));
    assert_eq!(chosen(&census, 500, &[4]), Choice::Move(SegmentNumber(2)));
    assert_eq!(chosen(&census, 500, &[4, 2]), Choice::Merge);
    assert_eq!(
        chosen(&census, 100, &[4]),
        Choice::Merge,
        "enough was moved"
    );
}

#[test]
fn what_may_be_overwritten_is_merged_first() {
    let mut census = census(&[40, 40]);
    census.stale = 20;
    assert_eq!(chosen(&census, 1, &[]), Choice::Move(SegmentNumber(1)));
    census.stale = 21;
    assert_eq!(chosen(&census, 1, &[]), Choice::Merge);
}

#[test]
fn nothing_is_done_where_nothing_is_to_be_won() {
    assert_eq!(chosen(&census(&[76, 100, 0]), 500, &[]), Choice::Rest);
}

/// It begins beyond the bound, and ends a quarter of what is allowed below.
#[test]
fn collecting_ends_well_below_the_bound() {
    let settings = Settings {
        max_space_amplification: 150,
        space_floor_bytes: Some(0),
        ..Settings::default()
    };
    let mut pressure = Pressure::default();
    let mut goal = |allocated| {
        let census = Census {
            allocated,
            level_bytes: 800,
            ..Census::default()
        };
        (pressure.goal(&census, &settings), pressure.steps())
    };
    assert_eq!(goal(1200), (0, 1));
    assert_eq!(goal(1201), (101, 2));
    assert_eq!(goal(1150), (50, 1));
    assert_eq!(goal(1100), (0, 1));
    assert_eq!(goal(1200), (0, 1));
    assert_eq!(goal(1400), (300, 6));
    assert_eq!(goal(9000), (7900, 8));
}

/// What memtables stand for is not dead before they are flushed.
#[test]
fn the_logs_of_memtables_are_allowed() {
    let settings = Settings {
        max_space_amplification: 150,
        space_floor_bytes: Some(10),
        ..Settings::default()
    };
    let goal = |unsettled| {
        let census = Census {
            allocated: 1250,
            unsettled,
            level_bytes: 800,
            ..Census::default()
        };
        Pressure::default().goal(&census, &settings)
    };
    assert_eq!(goal(40), 0);
    assert!(goal(39) > 0);
}

/// What was moved is not moved again for being as loose as before.
#[test]
fn an_episode_takes_what_was_there_and_needs_more_to_begin_again() {
    let mut episode = Episode::default();
    let first = census(&[40, 50]);
    let second = Choice::Move(SegmentNumber(2));
    assert_eq!(chosen_in(&mut episode, &first, 900, &[1]), second);
    let third = census(&[40, 50, 30]);
    assert_eq!(chosen_in(&mut episode, &third, 900, &[1]), second);
    assert_eq!(chosen_in(&mut episode, &third, 900, &[1, 2]), Choice::Merge);
    let loose = census(&[60, 60]);
    assert_eq!(chosen_in(&mut episode, &loose, 900, &[]), Choice::Rest);
    let more = census(&[40, 30, 50]);
    let victim = Choice::Move(SegmentNumber(2));
    assert_eq!(chosen_in(&mut episode, &more, 900, &[]), victim);
}
