//! What is chosen, from a census alone.

use super::*;

fn census(settled: &[u64]) -> Census {
    let mut logs = SettledLogs::new(100);
    for (ordinal, refs) in (1..).zip(settled.iter().copied()) {
        logs.put(Settled {
            number: SegmentNumber(ordinal),
            ordinal,
            refs,
        });
    }
    Census {
        segment_bytes: 100,
        allocated: 1000,
        unsettled: 0,
        level_bytes: 0,
        refs: settled.iter().sum(),
        medium_refs: 0,
        medium_bytes: 0,
        stale: 0,
        settled: Arc::new(logs),
        evacuates: false,
        shadows: ShadowEstimate::ALL,
        merge: Lowering::default(),
    }
}

fn chosen_in(episode: &mut Episode, census: &Census, goal: u64, moved: &[u64]) -> Choice {
    let wanted = Wanted {
        goal,
        refs_max: 75,
        moved: &moved.iter().copied().map(SegmentNumber).collect(),
        unflushed: 0,
        batch: 0,
        active: 0,
        flushes: false,
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

/// What is wanted with segments `moved` of which `unflushed` bytes wait for a memtable, for which `active` bytes
/// of logs are.
fn chosen_where_segments_go_with_a_flush(moved: &[u64], unflushed: u64, active: u64) -> Choice {
    let census = Census {
        evacuates: true,
        stale: 80,
        ..census(&[40, 40, 50])
    };
    let wanted = Wanted {
        goal: 250,
        refs_max: 75,
        moved: &moved.iter().copied().map(SegmentNumber).collect(),
        unflushed,
        batch: 150,
        active,
        flushes: false,
        skipped: &BTreeSet::new(),
    };
    choose(&census, &wanted, &mut Episode::default())
}

/// A merge into the last level is worth while as long as it frees a byte for less than a move does.
#[test]
fn merges_are_weighed_against_moves() {
    let census = |frees| Census {
        merge: Lowering { costs: 300, frees },
        ..census(&[40, 80])
    };
    let [loose, dense] = [1, 2].map(SegmentNumber);
    // To free 60 bytes by moving 40 costs 140.
    assert!(census(129).lowers(Some(loose)) && !census(128).lowers(Some(loose)));
    // To free 20 by moving 80 costs 180.
    assert!(census(34).lowers(Some(dense)) && !census(33).lowers(Some(dense)));
    // Where there is none, 184 for 16.
    assert!(census(27).lowers(None) && !census(26).lowers(None));
    assert!(!census(0).lowers(None));
}

#[test]
fn what_was_moved_is_flushed_in_batches() {
    let chosen = chosen_where_segments_go_with_a_flush;
    let second = Choice::Move(SegmentNumber(2));
    assert_eq!(chosen(&[1], 100, 1), second, "vague or not");
    assert_eq!(chosen(&[1], 0, 1), second, "nothing waits for it");
    assert_eq!(chosen(&[1], 150, 1), Choice::Flush);
    assert_eq!(chosen(&[1], 150, 0), second, "a flush is under way");
    assert_eq!(chosen(&[1, 2, 3], 100, 0), Choice::Flush, "that is enough");
    assert_eq!(
        chosen(&[1, 2, 3], 0, 1),
        Choice::Merge,
        "they are on their way, and more is shadowed"
    );
    assert_eq!(chosen(&[], 0, 1599), Choice::Move(SegmentNumber(1)));
    assert_eq!(
        chosen(&[], 0, 1600),
        Choice::Flush,
        "what it shadows is unknown"
    );
}

#[test]
fn nothing_is_done_where_nothing_is_to_be_won() {
    assert_eq!(chosen(&census(&[76, 100, 0]), 500, &[]), Choice::Rest);
}

/// A region may take one and a half times what lives, and so many bytes.
fn half_again(floor: u64) -> Settings {
    Settings::default().with(|of| {
        of.space.amplification_max = 150;
        of.space.floor_bytes = Some(floor);
    })
}

/// It begins beyond the bound, and ends a quarter of what is allowed below.
#[test]
fn garbage_collection_ends_well_below_the_bound() {
    let settings = half_again(0);
    let mut pressure = Pressure::default();
    let mut goal = |allocated| {
        let census = Census {
            allocated,
            level_bytes: 800,
            ..Census::default()
        };
        (pressure.goal(&census, 0, &settings), pressure.steps())
    };
    assert_eq!(goal(1200), (0, 1));
    assert_eq!(goal(1201), (101, 2));
    assert_eq!(goal(1150), (50, 1));
    assert_eq!(goal(1100), (0, 1));
    assert_eq!(goal(1200), (0, 1));
    assert_eq!(goal(1400), (300, 6));
    assert_eq!(goal(9000), (7900, 8));
}

/// Writers are slowed from a quarter of what is allowed below the bound, told without what goes anyway.
#[test]
fn where_segments_are_evacuated_garbage_collection_begins_below_the_bound() {
    let settings = half_again(0);
    let mut pressure = Pressure::default();
    let mut goal = |allocated, going| {
        let census = Census {
            allocated,
            level_bytes: 800,
            evacuates: true,
            ..Census::default()
        };
        (pressure.goal(&census, going, &settings), pressure.steps())
    };
    assert_eq!(goal(1100, 0), (0, 1));
    assert_eq!(goal(1101, 0), (51, 3));
    assert_eq!(goal(1200, 0), (150, 8));
    assert_eq!(goal(1200, 100), (50, 3));
    assert_eq!(goal(1200, 150), (0, 1));
    assert_eq!(goal(1050, 0), (0, 1));
    let owed = [1100, 1150, 1200, 1300].map(|taken| pressure.owed(taken));
    let half = Share::of(1, 0, 2);
    let twice = Share::of(2, 0, 1);
    assert_eq!(owed, [Share::default(), half, Share::ALL, twice]);
}

/// What memtables stand for is not dead before they are flushed.
#[test]
fn the_logs_of_memtables_are_allowed() {
    let settings = half_again(10);
    let goal = |unsettled| {
        let census = Census {
            allocated: 1250,
            unsettled,
            level_bytes: 800,
            ..Census::default()
        };
        Pressure::default().goal(&census, 0, &settings)
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
