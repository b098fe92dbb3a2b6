//! Groups that change while something is under way, in every mode: a table of modes, moments and changes.
//!
//! | moment | what is under way |
//! |---|---|
//! | merge | segments of a merge have been shipped, or written, and no edit names them |
//! | bulk load | pairs wait to be taken into the levels |
//! | snapshots | snapshots of several moments are held at the primary |
//! | garbage | values have been moved out of a segment of the large log that is not free yet |
//! | ranges | a range was removed, and so were segments; the removal of another one is under way |
//! | full | the device of a member is full, or all are |
//!
//! | change | what happens |
//! |---|---|
//! | removed | a backup leaves the group, and is filled again |
//! | added | a copy that was away is filled, and becomes a member |
//! | lost | the primary is killed, and another member promoted; it comes back and is filled |
//! | moved | another member is promoted while the primary goes on |
//!
//! In each cell the group goes on: it takes writes, flushes, merges and frees what is dead. Then all members are
//! compared ([`Trio::judge`](trio_tests::Trio::judge)), and each of them leads the region once, which shows
//! that it has everything.

#[path = "trio_judging_tests.rs"]
mod trio_judging_tests;
#[path = "trio_model_tests.rs"]
mod trio_model_tests;
#[path = "trio_tests.rs"]
mod trio_tests;

use std::ops::Range;

use argosy_coordinator::Replication;
use argosy_engine::Snapshot;

use trio_judging_tests::pairs_of;
use trio_tests::{MODES, Mode, REGION, Trio};

/// Keys that are written before anything happens, and over and over.
const KEYS: Range<u32> = 0..160;
/// Keys that are removed as ranges.
const REMOVED: [Range<u32>; 2] = [40..80, 100..130];
/// Keys that are there while it is looked whether writes are taken.
const FRESH: Range<u32> = 500..504;
/// How often it is asked until a device is seen to be full, or to have room, at most.
const ASKED_MAX: usize = 50;
/// Keys that are bulk-loaded.
const LOADED: Range<u32> = 1000..1060;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Removed,
    Added,
    Lost,
    Moved,
}

const CHANGES: [Change; 4] = [Change::Removed, Change::Added, Change::Lost, Change::Moved];

/// The cell of the table that is looked at.
#[derive(Clone, Copy, Debug)]
struct Cell {
    mode: Mode,
    change: Change,
    /// Which of all.
    nth: usize,
}

/// Each mode and each change, at one moment.
fn each(moment: fn(Cell)) {
    let modes = MODES
        .into_iter()
        .flat_map(|mode| CHANGES.map(|change| (mode, change)));
    for (nth, (mode, change)) in modes.enumerate() {
        moment(Cell { mode, change, nth });
    }
}

impl Cell {
    /// One of three, by turns: each mode and each change has all of them.
    fn one_of<T: Copy>(self, choices: [T; 3]) -> T {
        choices[self.nth % choices.len()]
    }

    /// A region with levels, logs and dead values; of two members where a copy is to be added.
    fn begin(self) -> Trio {
        let mut trio = Trio::new(self.mode);
        trio.write(KEYS);
        if self.change == Change::Added {
            trio.regroup(&[0, 1], &[]);
            trio.open();
        }
        for _ in 0..2 {
            trio.write(KEYS);
            trio.note_numbers();
        }
        trio
    }

    /// Changes the group, at once.
    fn change(self, trio: &mut Trio) {
        match self.change {
            Change::Removed => trio.regroup(&[0, 1], &[]),
            Change::Added => trio.regroup(&[0, 1], &[2]),
            Change::Lost => {
                trio.kill(0);
                trio.promote(1, &[1, 2]);
            }
            Change::Moved => trio.promote(1, &[0, 1, 2]),
        }
    }

    /// The group is as large as it was.
    fn come_back(self, trio: &mut Trio) {
        match self.change {
            Change::Removed | Change::Added => trio.fill(2),
            Change::Lost => {
                trio.start(0);
                trio.fill(0);
            }
            Change::Moved => {}
        }
    }

    /// The group changes, goes on, and is judged.
    fn go_through(self, trio: &mut Trio) {
        self.change(trio);
        trio.open();
        trio.settle();
        trio.judge_pairs("after the change");
        goes_on(trio);
        self.come_back(trio);
        goes_on(trio);
        trio.judge("at the end");
        leads_in_turn(trio);
    }
}

/// Writes are taken, and memtables flushed: everything is written over twice.
fn goes_on(trio: &mut Trio) {
    for _ in 0..2 {
        let before = trio.stats().work;
        trio.write(KEYS);
        trio.note_numbers();
        let after = trio.stats().work;
        assert!(
            after.flushes > before.flushes && after.edits > before.edits,
            "{:?}: {after:?} after {before:?}",
            trio.mode
        );
    }
    trio.judge_pairs("while it goes on");
}

/// Each member is promoted once, and has everything.
fn leads_in_turn(trio: &mut Trio) {
    for server in [2, 0, 1] {
        if server == trio.primary() {
            continue;
        }
        trio.promote(server, &[0, 1, 2]);
        trio.open();
        trio.judge_pairs("where another member leads");
        trio.write(0..8);
    }
    trio.judge("where each member has led");
}

// --- Merges ---

/// Until a segment of a merge is written, and shipped where it is to be, and no edit names it.
fn until_a_merge_ships(trio: &mut Trio) {
    let mut key = KEYS.start;
    let state = |trio: &Trio| {
        let (work, counts) = (trio.stats().work, trio.nodes[0].inspect().counts());
        (work.edits, work.write_bytes, counts.shipments)
    };
    let mut at_edit = state(trio);
    let ships = trio.mode.replication == Replication::SendIndex;
    trio.run_until("a merge ships", |trio| {
        let now = state(trio);
        if now.0 != at_edit.0 {
            at_edit = now;
        }
        let built = now.1 > at_edit.1;
        let shipped = now.2 > at_edit.2;
        if built && (shipped || !ships) {
            return true;
        }
        if !trio.is_asking() {
            trio.put(key..key + 4);
            key = (key + 4) % KEYS.end;
        }
        false
    });
}

#[test]
fn a_group_changes_while_a_merge_ships() {
    each(|cell| {
        let mut trio = cell.begin();
        until_a_merge_ships(&mut trio);
        cell.go_through(&mut trio);
    });
}

// --- Bulk loads ---

#[test]
fn a_group_changes_while_a_bulk_load_waits() {
    each(|cell| {
        let steps = cell.one_of([0, 3, 12]);
        let mut trio = cell.begin();
        // Some of it is in levels, some in memtables.
        trio.put([0, 1, 2, 3]);
        trio.bulk_load(LOADED);
        for _ in 0..steps {
            trio.step();
        }
        cell.go_through(&mut trio);
        // What was loaded is like everything else.
        trio.settle();
        trio.delete(LOADED);
        assert_eq!(trio.settle().applied, 1);
        trio.bulk_load(LOADED);
        assert_eq!(trio.settle().applied, 1, "{cell:?}");
        trio.judge("loaded again");
    });
}

// --- Snapshots ---

#[test]
fn a_group_changes_while_snapshots_are_held() {
    each(|cell| {
        let mut trio = cell.begin();
        let mut held: Vec<(Box<dyn Snapshot>, _)> = Vec::new();
        for _ in 0..3 {
            let snapshot = trio.nodes[0].inspect().snapshot(REGION);
            let snapshot = snapshot.expect("the region shows what it has");
            let pairs = pairs_of(&*snapshot);
            held.push((snapshot, pairs));
            trio.write(KEYS);
        }
        cell.change(&mut trio);
        trio.open();
        goes_on(&mut trio);
        if matches!(cell.change, Change::Removed | Change::Added) {
            for (snapshot, pairs) in &held {
                assert_eq!(pairs_of(&**snapshot), *pairs, "{cell:?}");
            }
        }
        cell.come_back(&mut trio);
        goes_on(&mut trio);
        drop(held);
        goes_on(&mut trio);
        trio.judge("at the end");
        leads_in_turn(&mut trio);
    });
}

// --- Garbage ---

/// Until values have been moved, out of a segment that is not free.
fn until_garbage_moves(trio: &mut Trio) {
    let mut round = 0;
    let mut before = trio.stats().gc;
    trio.run_until("values are moved", |trio| {
        let now = trio.stats().gc;
        if now.segments > before.segments {
            before = now;
        }
        if now.moved > before.moved {
            return true;
        }
        if !trio.is_asking() {
            // Every other large value dies.
            let key = (round * 8 + 3) % KEYS.end;
            trio.put([key, (key + 16) % KEYS.end]);
            round += 1;
        }
        false
    });
}

#[test]
fn a_group_changes_while_garbage_is_collected() {
    each(|cell| {
        let mut trio = cell.begin();
        until_garbage_moves(&mut trio);
        cell.go_through(&mut trio);
    });
}

// --- Ranges ---

#[test]
fn a_group_changes_while_ranges_are_removed() {
    each(|cell| {
        let steps = cell.one_of([0, 2, 40]);
        let mut trio = cell.begin();
        trio.delete_range(REMOVED[0].clone());
        assert_eq!(trio.settle().applied, 1);
        trio.put([0, 1, 2, 3]);
        trio.delete_range(REMOVED[1].clone());
        for _ in 0..steps {
            trio.step();
        }
        cell.go_through(&mut trio);
    });
}

// --- Full devices ---

/// Whether a write is taken, or refused because a device is full, and what is said of that.
fn is_taken(trio: &mut Trio) -> Result<(), String> {
    trio.put(FRESH);
    let told = trio.settle();
    match (told.applied, told.refused) {
        (1, 0) => Ok(()),
        (0, 1) => Err(told.why),
        _ => panic!("{:?}: {told:?}", trio.mode),
    }
}

/// Members of the group whose device is full.
fn full_members(trio: &Trio) -> Vec<usize> {
    let region = &trio.map.regions()[0];
    let members = region.members.iter().map(|id| id.0 as usize);
    members.filter(|server| trio.is_full(*server)).collect()
}

/// Where a member's device is full the region says so, names whom, reads and deletes; elsewhere it takes writes.
fn says_who_is_full(cell: Cell, trio: &mut Trio) {
    let full = full_members(trio);
    let mut taken = is_taken(trio);
    // Whoever frees a segment has room until others take it.
    for _ in 0..ASKED_MAX {
        if taken.is_ok() == full.is_empty() {
            break;
        }
        trio.run(20);
        taken = is_taken(trio);
    }
    match (&taken, full.is_empty()) {
        (Ok(()), true) => {}
        (Err(why), false) => {
            let is_named =
                |server: &usize| why.contains(&format!("the device of server {server} is full"));
            let named: Vec<usize> = (0..3).filter(is_named).collect();
            let are_full = named.iter().all(|server| full.contains(server));
            assert!(!named.is_empty() && are_full, "{cell:?}, {full:?}: {why}");
        }
        _ => panic!(
            "{cell:?}: {full:?} are full, and {taken:?}\n{}",
            trio.in_words()
        ),
    }
    trio.delete(FRESH);
    let told = trio.settle();
    assert_eq!(told.applied, 1, "{cell:?}: {told:?}\n{}", trio.in_words());
    trio.judge_pairs("while a device is full");
}

#[test]
fn a_group_changes_while_devices_are_full() {
    each(|cell| {
        let who = cell.one_of([&[1][..], &[2], &[0, 1, 2]]);
        let mut trio = cell.begin();
        for server in who {
            trio.make_full(*server);
        }
        trio.run(50);
        says_who_is_full(cell, &mut trio);
        cell.change(&mut trio);
        trio.open();
        trio.settle();
        trio.run(50);
        says_who_is_full(cell, &mut trio);
        trio.run(300);
        says_who_is_full(cell, &mut trio);
        // Writes are taken again once there is room, with nobody's help.
        (0..3).for_each(|server| trio.give_room(server));
        trio.run_until("writes are taken again", |trio| is_taken(trio).is_ok());
        cell.come_back(&mut trio);
        goes_on(&mut trio);
        trio.judge("at the end");
        leads_in_turn(&mut trio);
    });
}

/// A copy that becomes a member counts from then on, although its device has been full for long; one that leaves
/// counts no more.
#[test]
fn a_full_device_counts_while_its_server_is_a_member() {
    for mode in MODES {
        let cell = Cell {
            mode,
            change: Change::Added,
            nth: 0,
        };
        let mut trio = cell.begin();
        cell.change(&mut trio);
        trio.run(500);
        trio.make_full(2);
        trio.run(50);
        assert_eq!(is_taken(&mut trio), Ok(()), "{cell:?}: it is no member");
        trio.delete(FRESH);
        trio.settle();
        for (members, is_full) in [(&[0, 1, 2][..], true), (&[0, 1], false)] {
            trio.regroup(members, &[]);
            trio.run(50);
            assert_eq!(full_members(&trio).is_empty(), !is_full);
            says_who_is_full(cell, &mut trio);
        }
    }
}
