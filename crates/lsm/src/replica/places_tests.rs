//! Pointers that hold places, between a primary and its backup.

use argosy_base::Direction;

use super::*;
use crate::addresses::place_in;
use crate::inspect::{self, InspectedRegion, LeftWindows, Member};
use crate::level::pointers::for_each_pointer_mut;
use crate::version::LevelEntry;

/// A pair whose members use their devices differently from the beginning, and that has levels with
/// pointers.
fn with_levels(seed: u64) -> Pair {
    let mut pair = Pair::new(seed, in_places());
    for _ in 0..900 {
        pair.write();
        pair.pump();
    }
    pair.settle();
    pair
}

fn bytes_of(entry: &LevelEntry) -> Buffer {
    let mut bytes = Buffer::zeroed(entry.segment.len as usize);
    entry.stored.read(0, &mut bytes).unwrap();
    bytes
}

/// The pointers of `entry` as they stand on the device.
fn pointers_of(version: &Version, entry: &LevelEntry) -> Vec<argosy_base::Pointer> {
    let mut found = Vec::new();
    let name = version.name_of(&entry.segment);
    for_each_pointer_mut(name, &mut bytes_of(entry), |_, at| {
        found.push(at);
        Some(at)
    })
    .unwrap();
    found
}

fn with_pointers(version: &Version) -> Vec<LevelEntry> {
    let levels = version.levels().iter();
    let entries = levels.flat_map(|level| level.entries());
    entries
        .filter(|entry| has_pointers(&entry.segment))
        .cloned()
        .collect()
}

/// Each member's pointers lead to its own places, and to the same log segments.
#[test]
fn what_is_shipped_is_rewritten() {
    let mut pair = with_levels(3);
    let rewritten = pair.backup.take_rewritten();
    assert!(
        rewritten.segments > 10 && rewritten.pointers > 500,
        "{rewritten:?}"
    );
    assert_eq!(pair.backup.take_rewritten(), Rewritten::default());
    let own = Arc::clone(pair.backup.version());
    let pin = pair.primary.checkpoint().pin;
    let mut differ = 0;
    for entry in with_pointers(&own) {
        let number = entry.segment.number;
        let part = front(number, entry.segment.len);
        let neutral = pair.primary.read(part, std::slice::from_ref(&pin));
        let neutral = neutral.unwrap().unwrap();
        differ += usize::from(*neutral != *bytes_of(&entry));
        if entry.segment.form.is_index() {
            continue;
        }
        for at in pointers_of(&own, &entry) {
            let to = own.resolve(at).expect("it leads to a place of the version");
            let stored = own.stored(to.segment()).expect("to a segment");
            assert_eq!(Some(stored.place()), place_in(at));
        }
    }
    assert!(differ > 0, "places are not numbers");
    assert_equal_on_devices(&pair);
    pair.promote_backup();
}

/// Nodes of trees lead to their children by place, too: each member's own.
#[test]
fn nodes_of_trees_are_rewritten() {
    // A seed whose levels are built whole.
    let mut pair = with_levels(8);
    let own = Arc::clone(pair.backup.version());
    let pin = pair.primary.checkpoint().pin;
    let (mut children, mut differ) = (0, 0);
    for entry in with_pointers(&own) {
        if !entry.segment.form.is_index() {
            continue;
        }
        let part = front(entry.segment.number, entry.segment.len);
        let neutral = pair.primary.read(part, std::slice::from_ref(&pin));
        differ += usize::from(*neutral.unwrap().unwrap() != *bytes_of(&entry));
        let alive = pointers_of(&own, &entry).into_iter();
        for at in alive.filter_map(|at| own.resolve(at)) {
            assert!(own.stored(at.segment()).is_some());
            children += 1;
        }
    }
    assert!(children > 1 && differ > 0, "{children} {differ}");
    // One that comes without anything fetches children before parents.
    pair.backup_machine = Machine::new(99);
    pair.backup = pair.backup_machine.open(&pair.settings, false).unwrap();
    pair.catch_up();
    pair.settle();
    pair.assert_equal();
    assert_equal_on_devices(&pair);
    pair.promote_backup();
}

/// A node whose child has not come is not taken before it.
#[test]
fn a_parent_waits_for_its_children() {
    let pair = with_levels(8);
    let version = pair.backup.version();
    let mut parents = with_pointers(version).into_iter();
    let parent = parents.find(|entry| entry.segment.form.is_index());
    let parent = parent.expect("a tree has an index");
    let (number, len) = (parent.segment.number, parent.segment.len);
    let bytes = Arc::new(pair.backup.read(number, 0, len).unwrap());
    let mut machine = Machine::new(9);
    let mut other = machine.open(&pair.settings, false).unwrap();
    let missing = other.missing(&pair.backup.checkpoint().bytes).unwrap();
    let place = |number: SegmentNumber| missing.iter().position(|part| part.number == number);
    let children = pointers_of(version, &parent);
    for at in children {
        let Some(child) = version.resolve(at).map(argosy_base::Pointer::segment) else {
            continue;
        };
        assert!(place(child) < place(number), "{child} before {number}");
    }
    let refused = other.put_part(number, 0, &bytes);
    assert!(
        matches!(refused, Err(ReplicaError::Copy(CopyError::Unplaced { .. }))),
        "{refused:?}"
    );
    assert!(
        other
            .missing(&pair.backup.checkpoint().bytes)
            .unwrap()
            .iter()
            .any(|part| part.number == number)
    );
}

/// A primary may have removed a leaf segment since it built the index segment that leads to it. A member that has the
/// leaf segment, which no edit names any more, takes the index segment all the same.
#[test]
fn a_parent_outlives_its_child() {
    let pair = with_levels(8);
    let version = pair.backup.version();
    let mut parents = with_pointers(version).into_iter();
    let parent = parents.find(|entry| entry.segment.form.is_index());
    let parent = parent.expect("a tree has an index");
    let mut children = pointers_of(version, &parent).into_iter();
    let child = children.find_map(|at| version.resolve(at));
    let child = child.expect("it leads to a segment").segment();
    let mut machine = Machine::new(9);
    let mut other = machine.open(&pair.settings, false).unwrap();
    let mut fetch = |edit: &Edit| {
        let missing = other.missing(&edit.encode()).unwrap();
        for part in &missing {
            let bytes = pair.backup.read(part.number, part.from, part.to);
            other
                .put_part(part.number, part.from, &Arc::new(bytes.unwrap()))
                .unwrap();
        }
        missing
            .iter()
            .any(|part| part.number == parent.segment.number)
    };
    let mut checkpoint = pair.backup.whole_edit();
    assert!(fetch(&checkpoint) && !fetch(&checkpoint));
    checkpoint
        .added
        .retain(|(_, _, segment)| segment.number != child);
    assert!(!fetch(&checkpoint), "it was fetched before");
}

/// What the command to compare members finds: nothing.
fn assert_equal_on_devices(pair: &Pair) {
    let clones = [&pair.primary_machine, &pair.backup_machine]
        .map(|machine| Arc::new(machine.device.crash_clone(Crash::Kill, 1)));
    let stores = clones.map(|device| Store::open_read_only(device).unwrap());
    let regions = stores
        .each_ref()
        .map(|store| InspectedRegion::read(store, &store.regions()[0], &pair.settings));
    let windows = LeftWindows::default();
    let member = |which: usize| Member {
        store: &stores[which],
        region: &regions[which],
        windows: &windows,
    };
    let found = inspect::compare([member(0), member(1)], &pair.settings);
    assert!(found.expect("no difference").level_segments > 0);
    for region in &regions {
        let version = region.version.as_ref().unwrap();
        let (checked, problems, _) = inspect::verify_region(version, &windows, &pair.settings);
        assert_eq!(problems, []);
        assert!(checked.pointers > 20);
    }
}

/// The log map has what the primary's large log has, and no more; the index map nothing that an edit
/// has made part of the version.
#[test]
fn maps_live_as_long_as_what_they_name() {
    let mut pair = with_levels(4);
    let places = pair.primary.places();
    assert_eq!(pair.backup.log_map_len(), places.len());
    for (number, place) in places {
        assert_eq!(pair.backup.incoming.log_map.get(&number), Some(&place));
    }
    let version = Arc::clone(pair.backup.version());
    let mut left = pair.backup.index_map();
    assert!(left.all(|(_, number)| version.stored(number).is_none()));
    drop(left);
    let mut seen = false;
    for _ in 0..400 {
        pair.write();
        pair.pump();
        seen |= pair.backup.index_map().count() > 0;
    }
    assert!(seen, "segments arrive ahead of their edits");
    pair.detach_backup();
    assert_eq!(pair.backup.log_map_len(), 0);
    pair.catch_up();
    pair.settle();
    pair.assert_equal();
}

/// Without the map nothing is guessed: what points into the log is fetched, and right.
#[test]
fn what_cannot_be_rewritten_is_fetched() {
    let mut pair = with_levels(5);
    let before = (pair.fetched, pair.unplaced);
    for round in 0..600 {
        if round % 40 == 0 {
            pair.backup.incoming.log_map.clear();
        }
        pair.write();
        pair.pump();
    }
    assert!(pair.unplaced > before.1 && pair.fetched > before.0);
    pair.settle();
    pair.assert_equal();
    pair.promote_backup();
}

/// A level segment with pointers, as it goes to other members.
fn one_of(pair: &Pair) -> (LevelEntry, Buffer) {
    let entries = with_pointers(pair.backup.version());
    let mut entries = entries.into_iter();
    let entry = entries
        .find(|entry| !entry.segment.form.is_index())
        .unwrap();
    let (number, len) = (entry.segment.number, entry.segment.len);
    let bytes = pair.backup.read(number, 0, len).unwrap();
    (entry, bytes)
}

#[test]
fn bytes_that_hold_other_pointers_than_announced_are_refused() {
    let pair = with_levels(6);
    let (entry, neutral) = one_of(&pair);
    let (number, epoch) = (entry.segment.number, entry.segment.epoch);
    let mut machine = Machine::new(9);
    let mut other = machine.open(&pair.settings, false).unwrap();
    let shipment = |bytes: &Buffer| {
        let (bytes, checksum) = (Buffer::from_slice(bytes), entry.segment.checksum);
        Shipment::new(number, epoch, bytes, checksum, DeviceSegment(7))
    };
    // It does not know where the sender's log is.
    let refused = other.rewrite(&mut shipment(&neutral));
    assert!(
        matches!(refused, Err(ReplicaError::Copy(CopyError::Unplaced { .. }))),
        "{refused:?}"
    );
    // It knows, but has no such log segment itself.
    let name = pair.backup.version().name_of(&entry.segment);
    let (_, listed) = crate::level::form_and_refs(name, &neutral).unwrap();
    let (log, _) = listed[0];
    other.learn_places(&[(log, DeviceSegment(9))]);
    let refused = other.rewrite(&mut shipment(&neutral));
    assert!(
        matches!(refused, Err(ReplicaError::Copy(CopyError::Unplaced { .. }))),
        "{refused:?}"
    );
    // Nobody said that this log segment comes.
    let refused = other.rewrite_fetched(&mut shipment(&neutral));
    assert!(
        matches!(refused, Err(ReplicaError::Copy(CopyError::Damaged { .. }))),
        "{refused:?}"
    );
    // Bits fall over anywhere: nothing but a refusal, or the same bytes.
    let mut backup = pair.backup;
    let mut random = Random::new(6);
    let mut intact = shipment(&neutral);
    backup.rewrite_fetched(&mut intact).unwrap();
    for _ in 0..200 {
        let mut damaged = Buffer::from_slice(&neutral);
        let at = random.below(damaged.len() as u64) as usize;
        damaged[at] ^= 1 << random.below(8);
        let mut shipment = shipment(&damaged);
        match backup.rewrite_fetched(&mut shipment) {
            Err(ReplicaError::Copy(CopyError::Damaged { .. })) => {}
            Err(error) => panic!("{error}"),
            Ok(()) => assert!(*shipment.bytes == *intact.bytes, "byte {at}"),
        }
    }
}

/// A pointer that leads nowhere is damage that is named, for gets and for scans.
#[test]
fn a_pointer_to_a_place_without_a_segment_is_damage() {
    let pair = with_levels(7);
    let version = Arc::clone(pair.backup.version());
    let nowhere = crate::addresses::as_high_bits(DeviceSegment(500));
    for entry in with_pointers(&version) {
        let name = version.name_of(&entry.segment);
        let mut bytes = bytes_of(&entry);
        for_each_pointer_mut(name, &mut bytes, |_, at| {
            Some(argosy_base::Pointer::new(nowhere, at.offset()))
        })
        .unwrap();
        let len = bytes.len();
        let _ = entry.stored.write(0, Arc::new(bytes), 0..len);
    }
    pair.backup_machine.device.run_all();
    let number = with_pointers(&version)[0].segment.number;
    let len = with_pointers(&version)[0].segment.len;
    let read = pair.backup.read(number, 0, len);
    assert!(
        matches!(read, Err(ReplicaError::CorruptLevel(_))),
        "{:?}",
        read.err()
    );
    let cache = Arc::new(NodeCache::new(pair.settings.cache_bytes));
    let service = Service {
        epoch: Epoch(2),
        ..Service::default()
    };
    let promoted = Lsm::promote(pair.backup, &cache, service).unwrap();
    let mut damaged = 0;
    for (key, value) in &pair.model {
        match promoted.get(key) {
            Ok(found) => assert_eq!(found.value.as_ref(), Some(value)),
            Err(EngineError::Corrupt { .. }) => damaged += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(damaged > 20, "{damaged}");
    let snapshot = promoted.snapshot();
    let all = argosy_base::KeyRange::all();
    let scanned = snapshot.scan(&all, Direction::Up).and_then(|mut scan| {
        while scan.next()?.is_some() {}
        Ok(())
    });
    assert!(
        matches!(scanned, Err(EngineError::Corrupt { .. })),
        "{scanned:?}"
    );
}

/// A region keeps the mode that it was made with.
#[test]
fn another_mode_is_refused() {
    for (made, asked) in [(settings(), in_places()), (in_places(), settings())] {
        let mut pair = Pair::new(1, made);
        pair.write();
        pair.crash_backup(Crash::Kill);
        let Err(error) = pair.backup_machine.open(&asked, true) else {
            panic!("it was opened");
        };
        let text = error.to_string();
        assert!(text.contains("address mode"), "{text}");
        assert_eq!(error.remedy(), Remedy::Correct);
    }
}

/// The planted mistake: a pointer that stays as it came leads somewhere else, or nowhere.
#[test]
fn a_pointer_that_was_not_rewritten_is_noticed() {
    let mutants = Mutants {
        skip_rewrite: true,
        ..Mutants::default()
    };
    let planted = in_places().with(|of| of.mutants = mutants);
    let mut noticed = 0;
    for seed in 1..9 {
        let mut pair = Pair::new(seed, in_places());
        let mut machine = Machine::new(seed + 20);
        pair.backup = machine.open(&planted, false).unwrap();
        pair.backup_machine = machine;
        pair.applied = EditSeq(0);
        pair.catch_up();
        for _ in 0..500 {
            pair.write();
            pair.pump();
        }
        pair.settle();
        let entries = with_pointers(pair.backup.version());
        noticed += usize::from(!entries.iter().all(|entry| {
            let (number, len) = (entry.segment.number, entry.segment.len);
            let own = pair.backup.read(number, 0, len);
            let theirs = pair.primary.read(front(number, len), &[]);
            own.is_ok_and(|own| *own == *theirs.unwrap().unwrap())
        }));
    }
    assert!(noticed > 1, "{noticed}");
}
