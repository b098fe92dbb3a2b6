//! The medium log between a primary and its backup: shipped, fetched, rewritten to, freed by the same edits,
//! or built by each by itself.

use super::*;
use crate::names::logs::LOGS;

/// Several levels of little data, and most pairs medium.
pub(super) fn medium(settings: Settings) -> Settings {
    settings.with(|of| {
        of.memtables.bytes = 4096;
        of.levels.l1_runs = 3;
        of.levels.growth_factor = 2;
        of.values.small_bytes = 12;
        of.values.medium_log_percent = 400;
        of.values.medium_levels_min = 2;
    })
}

/// What happened to medium pairs.
#[derive(Debug, Default)]
struct Met {
    segments: u64,
    placed: u64,
    freed: u64,
    /// Times at which a backup had a medium log.
    held: u64,
}

impl Met {
    fn take(&mut self, stats: &crate::db::Stats) {
        self.segments += stats.medium.segments;
        self.placed += stats.medium.placed;
        self.freed += stats.medium.freed;
    }

    fn assert_all(&self) {
        let Self {
            segments,
            placed,
            freed,
            held,
        } = self;
        assert!(
            *segments > 10 && *placed > 10 && *freed > 10 && *held > 10,
            "{self:?}"
        );
    }
}

fn go_on(pair: &mut Pair, rounds: u64, met: &mut Met) {
    for _ in 0..rounds {
        pair.write();
        pair.pump();
        met.held += u64::from(!pair.backup.version().medium_log().is_empty());
    }
}

/// Goes through everything that may happen to a backup, and compares.
fn follows(settings: &Settings) {
    let mut met = Met::default();
    let mut unplaced = 0;
    for seed in 1..9 {
        let mut pair = Pair::new(seed, medium(settings.clone()));
        for _ in 0..6 {
            let rounds = pair.random.below(250);
            go_on(&mut pair, rounds, &mut met);
            match pair.random.below(4) {
                0 => pair.crash_backup(Crash::Kill),
                1 => pair.crash_backup(Crash::PowerLoss),
                2 => pair.detach_backup(),
                _ => continue,
            }
            let rounds = pair.random.below(60);
            go_on(&mut pair, rounds, &mut met);
            pair.catch_up();
        }
        pair.settle();
        pair.assert_equal();
        met.take(&pair.primary.stats());
        unplaced += pair.unplaced;
        let version = pair.backup.version();
        let whole = |entry: &crate::version::LevelEntry| is_whole(version, entry);
        assert!(version.medium_log().values().all(whole));
        pair.promote_backup();
    }
    met.assert_all();
    let in_places = settings.layout.addresses == AddressMode::Rewrite;
    assert_eq!(unplaced > 0, in_places, "medium segments were lost, too");
}

#[test]
fn a_backup_holds_the_medium_log() {
    follows(&settings());
}

#[test]
fn a_backup_holds_the_medium_log_of_places() {
    follows(&in_places());
}

/// Where the primary's medium segments lie is known as long as they are there.
#[test]
fn the_log_map_has_the_medium_log() {
    let mut seen = 0;
    for seed in 1..12 {
        let mut pair = Pair::new(seed, medium(in_places()));
        go_on(&mut pair, 900, &mut Met::default());
        pair.settle();
        seen += pair.primary.stats().medium.log_segments;
        let places = pair.primary.places();
        // A place may be told when its segment is gone already: it is forgotten with the next that goes.
        let head = Arc::clone(pair.backup.storage.head());
        pair.backup.incoming.prune_log_map(&head);
        let named = |number: &&SegmentNumber| places.iter().any(|(at, _)| at == *number);
        let known = pair.backup.incoming.log_map.keys();
        let more: Vec<_> = known.filter(|number| !named(number)).collect();
        // After a checkpoint, what comes behind the last log segment may have been told of edits to come.
        let head = pair.backup.version();
        let logs = LOGS.iter().flat_map(|log| head.log(*log));
        let last = logs.map(|entry| entry.segment.number).max().unwrap();
        assert!(more.iter().all(|number| **number > last), "{more:?}");
        for (number, place) in places {
            assert_eq!(pair.backup.incoming.log_map.get(&number), Some(&place));
        }
    }
    assert!(seen > 0, "{seen} segments");
}

/// What points into a medium segment that has not come is not taken before that.
#[test]
fn leaves_are_taken_behind_what_they_point_to() {
    let (pair, version) = (1..200)
        .find_map(|seed| {
            let mut pair = Pair::new(seed, medium(in_places()));
            go_on(&mut pair, 300, &mut Met::default());
            pair.settle();
            let version = Arc::clone(pair.backup.version());
            let levels = version.levels().iter().flat_map(|level| level.entries());
            let mut segments = levels.map(|entry| &entry.segment);
            let alone = segments.any(|s| s.medium_bytes > 0 && s.large_bytes == 0);
            alone.then(|| (pair, Arc::clone(&version)))
        })
        .expect("a medium log");
    let mut machine = Machine::new(9);
    let mut other = machine.open(&pair.settings, false).unwrap();
    let edit = version.checkpoint();
    let missing = other.missing(&edit.encode()).unwrap();
    let medium = version.medium_log();
    let first = missing.iter().take(medium.len());
    let first: Vec<_> = first.map(|part| part.number).collect();
    assert!(first.iter().eq(medium.keys()), "{first:?}");
    let points = |entry: &&crate::version::LevelEntry| {
        let segment = &entry.segment;
        segment.medium_bytes > 0 && segment.large_bytes == 0
    };
    let mut levels = version.levels().iter().flat_map(|level| level.entries());
    let leaf = levels.find(points).expect("something points there");
    let (number, len) = (leaf.segment.number, leaf.segment.len);
    let read = |number, len| {
        let read = pair.primary.read(front(number, len), &[]);
        Arc::new(read.expect("it is there").unwrap())
    };
    let refused = other.put_part(number, 0, &read(number, len));
    assert!(
        matches!(refused, Err(ReplicaError::Copy(CopyError::Unplaced { .. }))),
        "{refused:?}"
    );
    for (number, entry) in medium {
        let bytes = read(*number, entry.segment.len);
        let mut damaged = Buffer::from_slice(&bytes);
        damaged[9] ^= 1;
        assert!(other.put_part(*number, 0, &Arc::new(damaged)).is_err());
        other.put_part(*number, 0, &bytes).unwrap();
    }
    other.put_part(number, 0, &read(number, len)).unwrap();
}

/// A backup that builds its own levels has a medium log of its own, with numbers of its own.
#[test]
fn a_backup_that_builds_levels_has_a_medium_log_of_its_own() {
    const SERVER: ServerId = ServerId(2);
    for settings in [settings(), in_places()] {
        let mut met = Met::default();
        for seed in 1..9 {
            let mut pair = Pair::with_backup(seed, medium(settings.clone()), Some(SERVER));
            go_on(&mut pair, 700, &mut met);
            match seed % 3 {
                0 => pair.crash_backup(Crash::Kill),
                1 => pair.detach_backup(),
                _ => {}
            }
            let version = pair.backup.version();
            let own = SegmentNumber::first_own(SERVER);
            assert!(version.medium_log().keys().all(|number| *number >= own));
            met.take(&pair.backup.stats().expect("it builds"));
            if !pair.live {
                pair.catch_up();
                go_on(&mut pair, 200, &mut met);
            }
            pair.ship();
            pair.promote_backup();
        }
        met.assert_all();
    }
}
