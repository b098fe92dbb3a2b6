//! What a checkpoint names and is here for fewer keys.

use argosy_base::range::successor;

use super::*;
use crate::edit::{Place, RunId};

/// A pair whose primary has gone on alone, and a segment of both that stands for fewer keys at the backup.
struct Trimmed {
    pair: Pair,
    number: SegmentNumber,
    /// The index segments of its tree, if it is of one.
    parents: Vec<SegmentNumber>,
    /// The primary's.
    checkpoint: Vec<u8>,
}

impl Pair {
    /// The primary goes on by two edits, as a group does that has removed the backup.
    fn go_on_without(&mut self) {
        self.live = false;
        for _ in 0..400 {
            if self.edits.len() >= 2 {
                return;
            }
            self.write();
            self.pump();
            self.primary_machine.device.run_all();
            for range in std::mem::take(&mut self.flushes) {
                self.acknowledge(range);
            }
            let last = self.recorder.0.lock().unwrap().1;
            self.primary.commit(last);
        }
    }

    fn place_of(&self, number: SegmentNumber) -> DeviceSegment {
        let stored = self.backup.version().stored(number);
        stored.expect("it is here").place()
    }
}

/// `None` where the members share no segment with pointers.
fn trimmed(seed: u64, mutants: Mutants) -> Option<Trimmed> {
    let mut pair = Pair::new(seed, in_places());
    pair.go_on(900);
    pair.settings.mutants = mutants;
    pair.backup_machine = Machine::new(seed + 100);
    pair.backup = pair.backup_machine.open(&pair.settings, false).unwrap();
    pair.catch_up();
    pair.settle();
    pair.go_on_without();
    let bytes = pair.primary.checkpoint().checkpoint.bytes;
    let checkpoint = Edit::decode(&bytes).unwrap();
    let head = Arc::clone(pair.backup.version());
    let mut edit = pair.backup.storage.next_edit(EPOCH);
    if checkpoint.seq < edit.seq {
        return None;
    }
    let shared = checkpoint.added.iter().filter(|(level, run, segment)| {
        let mut runs = head.runs();
        let here = runs.find(|(other, here)| (other, &here.id) == (level, run));
        let here = here.and_then(|(_, here)| here.entry(segment.number));
        has_pointers(segment)
            && !segment.form.is_index()
            && segment.entries > 1
            && here.is_some_and(|here| *here.segment == *segment)
    });
    // One of a tree, if there is one.
    let parents_of = |level: u8, run: RunId| {
        let of_tree = checkpoint.added.iter();
        let of_tree = of_tree.filter(move |(at, of, _)| (*at, *of) == (level, run));
        let parents = of_tree.filter(|(_, _, segment)| segment.form.is_index());
        parents.map(|(_, _, segment)| segment.number)
    };
    let (level, run, segment) =
        shared.max_by_key(|(level, run, _)| parents_of(*level, *run).count())?;
    let parents: Vec<_> = parents_of(*level, *run).collect();
    let number = segment.number;
    let place = Place {
        level: *level,
        run: *run,
        number,
    };
    let from = &segment.range.from;
    let first = KeyRange::new(from.clone(), Some(successor(from)));
    edit.bounds.push((place, first));
    let seq = pair.backup.submit_edit(&edit.encode()).unwrap();
    let applied = CopyEvent::EditApplied(seq);
    while !pair.backup.step().unwrap().contains(&applied) {
        assert!(pair.run_backup_request(), "something is under way");
    }
    Some(Trimmed {
        pair,
        number,
        parents,
        checkpoint: bytes,
    })
}

fn missing(trimmed: &mut Trimmed) -> BTreeSet<SegmentNumber> {
    let missing = trimmed.pair.backup.missing(&trimmed.checkpoint).unwrap();
    missing.iter().map(|part| part.number).collect()
}

/// What its other pointers lead to may be gone. So it is fetched, and takes another place, and the nodes that lead to
/// it are told.
#[test]
fn what_stands_for_fewer_keys_here_is_fetched_again() {
    let (mut seen, mut above) = (0, 0);
    for seed in 1..13 {
        let Some(mut trimmed) = trimmed(seed, Mutants::default()) else {
            continue;
        };
        let missing = missing(&mut trimmed);
        let Trimmed {
            mut pair,
            number,
            parents,
            ..
        } = trimmed;
        assert!(missing.contains(&number), "seed {seed}: {missing:?}");
        assert!(parents.iter().all(|parent| missing.contains(parent)));
        let before = pair.place_of(number);
        pair.catch_up();
        assert_ne!(pair.place_of(number), before, "seed {seed}");
        assert!(pair.backup_is_whole(), "seed {seed}");
        pair.go_on(100);
        pair.settle();
        pair.assert_equal();
        pair.promote_backup();
        (seen, above) = (seen + 1, above + parents.len());
    }
    assert!(seen > 0 && above > 0, "{seen} segments, {above} above them");
}

/// The planted mistake: it is taken for what the checkpoint names.
#[test]
fn a_mistake_that_keeps_what_stands_for_fewer_keys_asks_for_nothing() {
    let mutants = Mutants {
        keep_trimmed: true,
        ..Mutants::default()
    };
    let mut seen = 0;
    for seed in 1..13 {
        if let Some(mut trimmed) = trimmed(seed, mutants) {
            let missing = missing(&mut trimmed);
            assert!(!missing.contains(&trimmed.number), "seed {seed}");
            seen += 1;
        }
    }
    assert!(seen > 0, "{seen} segments");
}
