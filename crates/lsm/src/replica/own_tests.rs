//! Numbers of a member's own range that come back to it in another member's levels.

use super::*;
use crate::names::logs::LARGE_LOG;

const SERVER: ServerId = ServerId(2);

impl Pair {
    /// Has the backup fetch what it lacks of the primary's version, and no more.
    fn fetch(&mut self) {
        let PinnedCheckpoint { checkpoint, pin } = self.primary.checkpoint();
        self.fetch_missing(&checkpoint.bytes, &pin);
    }

    /// The backup's segments that have numbers of its own.
    fn own_numbers(&self) -> BTreeSet<SegmentNumber> {
        let numbers = self.backup.version().table().keys();
        numbers.filter(|number| number.is_own()).copied().collect()
    }
}

fn is_compacting(replica: &Replica) -> bool {
    let builder = replica.builder.as_deref();
    builder.is_some_and(|builder| builder.jobs.compaction.is_some())
}

/// Pointers hold numbers, or places.
fn either(seed: u64) -> Settings {
    match seed % 2 {
        0 => settings(),
        _ => in_places(),
    }
}

/// A copy that was lost built levels that others have. The one made in its place takes numbers behind
/// theirs, and does so after it has been opened again.
#[test]
fn a_copy_made_anew_gives_no_number_that_it_adopts() {
    let mut adopted = 0;
    for seed in 1..12 {
        let mut pair = Pair::with_backup(seed, either(seed), Some(SERVER));
        pair.go_on(300 + 20 * seed);
        pair.lose_primary(true);
        let theirs = pair.own_numbers();
        pair.backup_machine = Machine {
            builds: Some(SERVER),
            ..Machine::new(seed + 100)
        };
        pair.backup = pair.backup_machine.open(&pair.settings, false).unwrap();
        // It reserves its first numbers before it hears of any.
        for _ in 0..20 {
            pair.backup.build(Instant::default()).unwrap();
            pair.backup_machine.device.run_all();
            pair.backup.step().unwrap();
        }
        pair.catch_up();
        adopted += pair.own_numbers().len();
        assert_eq!(pair.own_numbers(), theirs, "seed {seed}");
        if seed % 3 == 0 {
            pair.crash_backup(Crash::Kill);
            pair.catch_up();
        }
        pair.go_on(400);
        let last = theirs.last();
        let built = pair.own_numbers();
        let built: Vec<_> = built.difference(&theirs).collect();
        assert!(built.iter().all(|number| last < Some(number)), "{built:?}");
        assert!(pair.backup_is_whole(), "seed {seed}");
        pair.ship();
        pair.promote_backup();
    }
    assert!(adopted > 40, "{adopted} segments");
}

/// What it builds is given up where it has the number of something that it is about to adopt.
#[test]
fn what_is_built_makes_way_for_what_is_adopted() {
    let (mut met, mut replaced) = (0, 0);
    for seed in 1..60 {
        let mut pair = Pair::with_backup(seed, either(seed), Some(SERVER));
        pair.go_on(100 + 20 * seed);
        // From here on there are two of them, which give the same numbers; the other one is adopted later.
        let mut other = pair.backup_machine.crashed(Crash::Kill, seed);
        let behind = pair.backup.version().own_mark();
        let compacts = |pair: &Pair| {
            let mut pending = pair.backup.storage.pending();
            pending.any(|built| built.number() > behind) && is_compacting(&pair.backup)
        };
        while !compacts(&pair) {
            pair.go_on(1);
        }
        let replica = other.open(&pair.settings, false).unwrap();
        let before = std::mem::replace(&mut pair.backup, replica);
        let machine = std::mem::replace(&mut pair.backup_machine, other);
        pair.catch_up();
        let built: BTreeSet<_> = before.storage.pending().map(|s| s.number()).collect();
        for _ in 0..2000 {
            if !pair.own_numbers().is_disjoint(&built) {
                break;
            }
            pair.go_on(1);
        }
        pair.lose_primary(true);
        let theirs = pair.own_numbers();
        (pair.backup, pair.backup_machine) = (before, machine);
        let fresh = fresh_slots(&pair.settings);
        pair.backup_machine.slots = fresh.clone();
        pair.backup.detach(fresh).unwrap();
        let pending = pair.backup.storage.pending();
        let built: BTreeSet<_> = pending.map(|built| built.number()).collect();
        met += u64::from(!built.is_disjoint(&theirs));
        pair.fetch();
        for _ in 0..100 {
            pair.backup.build(Instant::default()).unwrap();
            pair.backup_machine.device.run_all();
            pair.backup.step().unwrap();
        }
        assert!(pair.backup_is_whole(), "seed {seed}");
        // Where its logs reach back far enough by now, its own levels stay.
        let checkpoint = Edit::decode(&pair.primary.checkpoint().checkpoint.bytes).unwrap();
        let checkpoint = localized::localized(checkpoint, &pair.backup.storage, &pair.backup.logs);
        let replaces = pair.backup.replaces_levels(&checkpoint);
        pair.catch_up();
        if replaces {
            replaced += 1;
            let own = pair.own_numbers();
            assert_eq!(own, theirs, "seed {seed}: its levels are replaced");
        }
        pair.go_on(300);
        assert!(pair.backup_is_whole(), "seed {seed}");
        pair.ship();
        pair.promote_backup();
    }
    assert!(met > 12, "{met} were building");
    assert!(replaced > 20, "{replaced} times its levels were replaced");
}

/// Records that a scan found in a block that may be torn count as written. A checkpoint asks no other member for the
/// padding behind them, although an edit declares it durable.
#[test]
fn what_a_scan_found_is_declared_and_nothing_behind_it() {
    let mut pair = Pair::new(1, in_places());
    let (version, point) = loop {
        pair.go_on(20);
        let version = Arc::clone(pair.backup.storage.head());
        let point = version.log_points().find(|point| point.to > 4096);
        if let Some(point) = point {
            break (version, point);
        }
    };
    let found = point.to - 100;
    let fill = pair.backup.logs.fills.get_mut(&point.number).unwrap();
    let blocks = block_down(found);
    (fill.written, fill.durable) = (blocks, blocks);
    (fill.found, fill.end, fill.closed) = (found, found, found);
    assert_eq!(fill.written_records(&pair.backup.logs.geometry), found);
    let mut declared = pair.backup.logs.declared(&version);
    let declared = declared.find(|declared| declared.number == point.number);
    assert_eq!(declared, Some(LogPoint { to: found, ..point }));
}

/// What the primary's levels point to is no concern of a copy that builds its own: it waits for no byte of it.
#[test]
fn log_points_of_others_ask_a_copy_with_own_levels_for_nothing() {
    for builds in [None, Some(SERVER)] {
        let mut pair = Pair::with_backup(1, settings(), builds);
        pair.go_on(100);
        let version = Arc::clone(pair.backup.storage.head());
        let segment = version.tail(LARGE_LOG).unwrap().segment;
        let mut edit = Edit::new(version.group_edit().next(), EPOCH);
        edit.logs.points.push(LogPoint {
            log: segment.log,
            number: segment.number,
            to: pair.backup.logs.geometry.segment_bytes(),
        });
        let missing = pair.backup.missing(&edit.encode()).unwrap();
        assert_eq!(missing.is_empty(), builds.is_some(), "{missing:?}");
    }
}
