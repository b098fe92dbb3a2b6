//! What an edit tells of is used once every member has the edit: numbers of segments, and segments of logs. The tests
//! that crash a backup at every request look at that; here are the mistakes that they have to find.

use super::*;
use crate::names::logs::LOGS;

/// The planted mistake: the log goes on in a segment that the backup does not know. The records are in the backup's
/// windows, but an opening does not look for that segment there.
#[test]
fn a_log_that_goes_on_before_the_backup_has_the_edit_is_noticed() {
    for builds in [None, Some(ServerId(2))] {
        let planted = settings().with(|of| {
            of.mutants = Mutants {
                provide_early: true,
                ..Mutants::default()
            }
        });
        let forks = crashes::crash_at_every_request(1, planted, builds);
        let wrong = forks.wrong.expect("a crash shows it");
        let is_lost = wrong.ends_with("a kill loses nothing that was shipped");
        assert!(is_lost, "{wrong}");
    }
}

/// A pair whose numbers are given out in small blocks.
fn few_numbers(number_early: bool) -> Pair {
    let settings = settings().with(|of| {
        of.mutants = Mutants {
            number_early,
            ..Mutants::default()
        };
        of.levels.number_block = 16;
    });
    Pair::new(1, settings)
}

/// Writes for 300 rounds. In some of them the backup's device does nothing: the primary could use up more than a block
/// of numbers before the backup has the edit that reserves them. `look` is called after each round.
fn beside_a_slow_backup(pair: &mut Pair, mut look: impl FnMut(&Pair)) {
    for round in 0..300 {
        pair.stands_still = round % 100 >= 40;
        pair.go_on(1);
        look(pair);
    }
    assert!(pair.given_out > SegmentNumber(24), "{}", pair.given_out);
}

/// The planted mistake: the backup does not know that numbers are in use.
#[test]
fn a_number_that_is_used_before_the_backup_has_the_edit_is_noticed() {
    let forks = |number_early| {
        let mut pair = few_numbers(number_early);
        pair.forks = Some(crashes::Forks::default());
        beside_a_slow_backup(&mut pair, |_| {});
        pair.forks.expect("it was tried")
    };
    let right = forks(false);
    assert_eq!(right.wrong, None);
    assert!(right.requests > 50, "{}", right.requests);
    let wrong = forks(true).wrong.expect("a crash shows it");
    assert!(wrong.ends_with("would be used twice"), "{wrong}");
}

/// After each round the primary is lost for good, and a copy of the backup is promoted. Returns the numbers that such a
/// copy gives out although the primary has used them. Two segments have one name then: a cache cannot tell them apart,
/// and the bytes of one pass for those of the other.
fn used_twice(number_early: bool) -> BTreeSet<SegmentNumber> {
    let mut twice = BTreeSet::new();
    beside_a_slow_backup(&mut few_numbers(number_early), |pair| {
        let mut machine = pair.backup_machine.crashed(Crash::Kill, pair.now);
        let heir = machine.open(&pair.settings, true).unwrap();
        let found = Arc::clone(heir.version());
        let cache = Arc::new(NodeCache::new(0));
        let service = Service {
            epoch: pair.epoch,
            ..Service::default()
        };
        let heir = Lsm::promote(heir, &cache, service).unwrap().version();
        let logs = LOGS.iter().flat_map(|log| heir.log(*log));
        let numbers = logs.map(|entry| entry.segment.number);
        let begun = numbers.filter(|number| found.stored(*number).is_none());
        twice.extend(begun.filter(|number| *number <= pair.given_out));
    });
    twice
}

#[test]
fn no_number_is_used_twice_whenever_the_primary_is_lost() {
    assert_eq!(used_twice(false), BTreeSet::new());
    let twice = used_twice(true);
    assert!(twice.len() > 1, "{twice:?}");
}
