//! Versions by script (`testdata/version/*.txt`, `REWRITE=1` writes the answers), against a model,
//! and against edits that mean nothing.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of the tests are small"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{KeyRange, Pointer, ServerId};
use argosy_device::{FormatOptions, MemoryDevice, Purpose, Store, StoreSettings};

use super::*;
use crate::compaction::cut::Cut;
use crate::edit::{LogPoint, MEDIUM_LOG, Place};
use crate::memtable::range_tombstones::{left_of, union};
use crate::names::logs::{LARGE_LOG, RECOVERY_LOG};
use crate::names::{Form, Tree};

/// A store with room for everything that a test names.
pub(crate) fn store() -> Arc<Store> {
    let device = MemoryDevice::eager(4096 * SEGMENT_SIZE as u64, 1);
    let options = FormatOptions {
        device_id: 1,
        cluster_id: 1,
        server: ServerId(1),
        created_by: "test".to_owned(),
    };
    Store::format(&device, &options).unwrap();
    let store = Store::open(Arc::new(device), &StoreSettings::default()).unwrap();
    store.finish_recovery();
    store
}

type New = BTreeMap<SegmentNumber, Arc<StoredSegment>>;

/// All that `version` has.
fn table_of(version: &Version) -> New {
    let table = version.table().iter();
    let stored = table.map(|(number, stored)| (*number, Arc::clone(stored)));
    stored.collect()
}

/// Something to stand for every segment that `edit` adds.
fn stored_for(store: &Arc<Store>, edit: &Edit) -> New {
    let levels = edit.added.iter().map(|(_, _, segment)| segment.number);
    let logs = edit.logs.added.iter().map(|log| log.number);
    let stored = |number| {
        let handle = store.allocate(Purpose::Write).unwrap();
        (
            number,
            StoredSegment::new(number, Arc::clone(store), handle),
        )
    };
    levels.chain(logs).map(stored).collect()
}

// --- Scripts ---

fn parse_log(word: &str) -> (LogId, &str) {
    let (log, rest) = word.split_at(word.find([':', '#']).unwrap());
    let log = match log {
        "recovery" => RECOVERY_LOG,
        "large" => LARGE_LOG,
        other => panic!("no log: {other}"),
    };
    (log, &rest[1..])
}

fn parse_point(word: &str) -> LogPoint {
    let (log, rest) = parse_log(word);
    let (number, to) = rest.split_once('@').unwrap();
    LogPoint {
        log,
        number: SegmentNumber(number.parse().unwrap()),
        to: to.parse().unwrap(),
    }
}

fn parse_place(word: &str) -> Place {
    let outside = [("medium:", MEDIUM_LOG), ("uncounted:", UNCOUNTED)];
    let mut outside = outside.into_iter();
    if let Some((number, level)) =
        outside.find_map(|(name, level)| Some((word.strip_prefix(name)?, level)))
    {
        return Place {
            level,
            run: RunId(0),
            number: SegmentNumber(number.parse().unwrap()),
        };
    }
    let (level, rest) = word[1..].split_once('.').unwrap();
    let (run, number) = rest.split_once(':').unwrap();
    Place {
        level: level.parse().unwrap(),
        run: RunId(run.parse().unwrap()),
        number: SegmentNumber(number.parse().unwrap()),
    }
}

/// `[from, to)`, as two words.
fn parse_range(words: &[&str]) -> KeyRange {
    let from = words[0].trim_start_matches('[').trim_end_matches(',');
    let to = words[1].trim_end_matches(')');
    KeyRange::new(from, (to != "end").then(|| to.into()))
}

/// The word behind `name`, or `default`.
fn after<T: std::str::FromStr>(words: &[&str], name: &str, default: T) -> T {
    let at = words.iter().position(|word| *word == name);
    at.map_or(default, |at| words[at + 1].parse().ok().unwrap())
}

fn parse_level_segment(number: SegmentNumber, words: &[&str]) -> LevelSegment {
    LevelSegment {
        number,
        epoch: Epoch(after(words, "epoch", 1)),
        len: after(words, "len", 4096),
        checksum: 0,
        entries: after(words, "entries", 1),
        tombstones: after(words, "tombstones", 0),
        range: parse_range(words),
        large_bytes: after(words, "large", 0),
        medium_bytes: after(words, "medium", 0),
        form: match words
            .iter()
            .position(|word| ["leaves", "index"].contains(word))
        {
            None => Form::SelfContained,
            Some(at) if words[at] == "leaves" => Form::Leaves,
            Some(at) => Form::Index(words[at + 1].parse().unwrap()),
        },
    }
}

/// What follows "tree": `L1.3 root 7@0 len 512 height 1`.
fn parse_tree(place: &str, words: &[&str]) -> (u8, RunId, Tree) {
    let (level, run) = place[1..].split_once('.').unwrap();
    let root: String = after(words, "root", String::new());
    let (number, offset) = root.split_once('@').unwrap();
    let number = SegmentNumber(number.parse().unwrap());
    let tree = Tree {
        root: Pointer::new(number, offset.parse().unwrap()),
        len: after(words, "len", 512),
        height: after(words, "height", 1),
    };
    (level.parse().unwrap(), RunId(run.parse().unwrap()), tree)
}

fn parse_log_segment(word: &str, words: &[&str]) -> LogSegment {
    let (log, rest) = parse_log(word);
    let (ordinal, number) = rest.split_once(':').unwrap();
    let end = words.contains(&"end").then(|| after(words, "end", 0));
    LogSegment {
        log,
        ordinal: ordinal.parse().unwrap(),
        number: SegmentNumber(number.parse().unwrap()),
        epoch: Epoch(after(words, "epoch", 1)),
        base_lsn: Lsn(after(words, "base", 1)),
        end,
    }
}

/// An edit as its `Display` writes it; what is left out has a default.
fn parse_edit(next: EditSeq, text: &str) -> Edit {
    let mut edit = Edit::new(next, Epoch(1));
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["edit" | "checkpoint", seq, ref rest @ ..] => {
                edit.checkpoint = words[0] == "checkpoint";
                edit.seq = EditSeq(seq.parse().unwrap());
                edit.epoch = Epoch(after(rest, "epoch", 1));
            }
            ["numbers", ref rest @ ..] => {
                let get = |name| Some(after(rest, name, 0u64)).filter(|n| *n > 0);
                edit.numbers.replay_from = get("replay").map(Lsn);
                edit.numbers.durable = get("durable").map(Lsn);
                edit.numbers.mark = get("mark").map(SegmentNumber);
            }
            ["-", place] if place.starts_with(['L', 'm', 'u']) => {
                edit.removed.push(parse_place(place))
            }
            ["-", log] => {
                let (log, number) = parse_log(log);
                let number = SegmentNumber(number.parse().unwrap());
                edit.logs.removed.push((log, number));
            }
            ["bounds", place, ref range @ ..] => {
                edit.bounds.push((parse_place(place), parse_range(range)));
            }
            ["+", place, ref rest @ ..] if place.starts_with(['L', 'm', 'u']) => {
                let place = parse_place(place);
                let mut segment = parse_level_segment(place.number, rest);
                if place.level == MEDIUM_LOG {
                    segment.form = Form::Medium;
                }
                edit.added.push((place.level, place.run, segment));
            }
            ["tree", place, ref rest @ ..] => edit.trees.push(parse_tree(place, rest)),
            ["+", log, ref rest @ ..] => edit.logs.added.push(parse_log_segment(log, rest)),
            ["seal", at] => edit.logs.sealed.push(parse_point(at)),
            ["evacuated", number] => edit.evacuated.push(SegmentNumber(number.parse().unwrap())),
            ["need", at] => edit.logs.points.push(parse_point(at)),
            ["references", number, added, "added,", dropped, "dropped"] => {
                edit.references.push(Reference {
                    number: SegmentNumber(number.trim_end_matches(':').parse().unwrap()),
                    added: added.parse().unwrap(),
                    dropped: dropped.parse().unwrap(),
                });
            }
            _ => panic!("not a line of an edit: {line}"),
        }
    }
    edit
}

#[test]
fn scripts() {
    datadriven::walk("src/testdata/version", |file| {
        let store = store();
        let mut version = Version::empty(RegionId(1), AddressMode::Rewrite);
        file.run(|case| match case.directive.as_str() {
            "logical" => {
                version = Version::empty(RegionId(1), AddressMode::Logical);
                String::new()
            }
            "restated" => {
                let edit = version.checkpoint();
                assert_eq!(Edit::decode(&edit.encode()).as_ref(), Ok(&edit));
                let empty = Version::empty(version.region(), version.addresses());
                let again = empty.apply(&edit, &table_of(&version)).unwrap();
                assert_eq!(again.to_string(), version.to_string());
                format!("{again}\n")
            }
            "apply" => {
                let edit = parse_edit(EditSeq(version.seq().0 + 1), &case.input);
                assert_eq!(Edit::decode(&edit.encode()).as_ref(), Ok(&edit));
                let mut new = stored_for(&store, &edit);
                if let Some(without) = case.args.get("without") {
                    let number = without[0].parse().unwrap();
                    new.remove(&SegmentNumber(number));
                }
                // A moved or restated segment is found in the version.
                new.retain(|number, _| version.stored(*number).is_none());
                match version.apply(&edit, &new) {
                    Ok(next) => {
                        assert_eq!(next.check(), Ok(()));
                        version = next;
                        format!("{version}\n")
                    }
                    Err(error) => format!("{error}\n"),
                }
            }
            "find" => {
                let key = case.args["key"][0].as_bytes();
                let mut found = String::new();
                for (level, run) in version.runs() {
                    if let Some(entry) = run.find(key) {
                        let number = entry.segment.number.0;
                        writeln!(found, "L{level}.{}:{number}", run.id.0).unwrap();
                    }
                }
                found
            }
            "overlapping" => {
                let range = parse_range(&case.input.split_whitespace().collect::<Vec<_>>());
                let mut found = String::new();
                for (level, run) in version.runs() {
                    for entry in run.overlapping(&range) {
                        let number = entry.segment.number.0;
                        writeln!(found, "L{level}.{}:{number}", run.id.0).unwrap();
                    }
                }
                found
            }
            other => panic!("unknown directive: {other}"),
        });
    });
}

// --- A model ---

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What a version should be, in the plainest form: level segments by their bounds, and chains.
#[derive(Default)]
struct Model {
    /// (level, run, from, to, number)
    bounded: Vec<(u8, u64, u64, u64, u64)>,
    /// Of the large log: (ordinal, number, sealed).
    chain: Vec<(u64, u64, bool)>,
    /// The index segments of runs that are trees, by (level, run), and their leaf segments.
    trees: BTreeMap<(u8, u64), (u64, Vec<u64>)>,
    next_number: u64,
    next_run: u64,
    /// The pointer of a level segment, as long as it counts: into which large-log segment it leads, and
    /// its key.
    refs: BTreeMap<u64, Pointed>,
    /// Level segments of which a range tombstone cut parts off, and the large-log segment to which a pointer
    /// in these leads.
    uncounted: BTreeMap<u64, Option<u64>>,
    /// What the edit in the making drops, by large-log segment.
    dropped: Vec<u64>,
}

/// A pointer of 10 bytes.
struct Pointed {
    log: u64,
    key: u64,
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:04}").into_bytes()
}

const KEYS: u64 = 1000;

impl Model {
    fn segment(&mut self, from: u64, to: u64) -> LevelSegment {
        self.next_number += 1;
        let number = SegmentNumber(self.next_number);
        let large_bytes = match self.chain.first() {
            Some((_, log, _)) if !number.0.is_multiple_of(3) => {
                let (log, key) = (*log, from);
                self.refs.insert(number.0, Pointed { log, key });
                10
            }
            _ => 0,
        };
        LevelSegment {
            number,
            epoch: Epoch(1),
            len: 4096,
            checksum: 7,
            entries: 1,
            tombstones: 0,
            range: KeyRange::new(key(from), Some(key(to))),
            large_bytes,
            medium_bytes: 0,
            form: Form::SelfContained,
        }
    }

    /// Has `edit` count the pointers that it adds, and those that were dropped.
    fn count(&mut self, edit: &mut Edit) {
        let mut counts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let added = edit.added.iter();
        let added =
            added.filter(|(level, _, segment)| *level != UNCOUNTED && segment.large_bytes > 0);
        for (_, _, segment) in added {
            let log = self.refs[&segment.number.0].log;
            counts.entry(log).or_default().0 += 10;
        }
        for log in self.dropped.drain(..) {
            counts.entry(log).or_default().1 += 10;
        }
        let reference = |(number, (added, dropped))| Reference {
            number: SegmentNumber(number),
            added,
            dropped,
        };
        edit.references = counts.into_iter().map(reference).collect();
    }

    /// Lets the uncounted parts of a segment go.
    fn count_uncounted(&mut self, edit: &mut Edit) {
        if let Some((number, log)) = self.uncounted.pop_first() {
            self.dropped.extend(log);
            edit.removed.push(Place {
                level: UNCOUNTED,
                run: RunId(0),
                number: SegmentNumber(number),
            });
        }
    }

    /// Makes the segments that `edit` adds to a run from place `first` on the leaves of a tree.
    fn grow_tree(&mut self, edit: &mut Edit, first: usize) {
        let Some((level, run, _)) = edit.added.get(first).cloned() else {
            return;
        };
        let mut leaves = Vec::new();
        for (_, _, segment) in &mut edit.added[first..] {
            segment.form = Form::Leaves;
            leaves.push(segment.number.0);
        }
        let mut index = self.segment(0, KEYS);
        index.form = Form::Index(1);
        (index.entries, index.large_bytes) = (0, 0);
        self.refs.remove(&index.number.0);
        let tree = Tree {
            root: Pointer::new(index.number, 0),
            len: 512,
            height: 1,
        };
        self.trees.insert((level, run.0), (index.number.0, leaves));
        edit.added.push((level, run, index));
        edit.trees.push((level, run, tree));
    }

    /// Takes away the index of every tree that has no leaves any more.
    fn fell_trees(&mut self, edit: &mut Edit) {
        let bounded = &self.bounded;
        let gone = |(level, run): &(u8, u64), leaves: &[u64]| {
            !bounded
                .iter()
                .any(|p| (p.0, p.1) == (*level, *run) && leaves.contains(&p.4))
        };
        for ((level, run), (index, _)) in self
            .trees
            .extract_if(.., |run, (_, leaves)| gone(run, leaves))
        {
            edit.removed.push(Place {
                level,
                run: RunId(run),
                number: SegmentNumber(index),
            });
        }
    }

    /// A new run of L1 over some keys.
    fn flush(&mut self, random: &mut Random, edit: &mut Edit) {
        self.next_run += 1;
        let mut at = random.below(KEYS / 2);
        while at < KEYS && random.below(8) > 0 {
            let to = at + 1 + random.below(KEYS / 4);
            let segment = self.segment(at, to);
            let one = (1, self.next_run, at, to, segment.number.0);
            self.bounded.push(one);
            edit.added.push((1, RunId(self.next_run), segment));
            at = to + random.below(2);
        }
        if random.below(2) == 0 {
            self.grow_tree(edit, 0);
        }
    }

    /// Consumes the keys of one part in `level` and below, and puts one segment for them below.
    fn compact(&mut self, random: &mut Random, edit: &mut Edit) {
        let level = 1 + random.below(3) as u8;
        let mut from = random.below(KEYS);
        let mut to = from + 1 + random.below(KEYS / 3);
        // What overlaps below is consumed whole.
        for (_, _, low, high, _) in self.bounded.iter().filter(|p| p.0 == level + 1) {
            if *low < to && from < *high {
                (from, to) = (from.min(*low), to.max(*high));
            }
        }
        let mut bounded = Vec::new();
        for one in std::mem::take(&mut self.bounded) {
            let (l, run, low, high, number) = one;
            if !(l == level || l == level + 1) || high <= from || to <= low {
                bounded.push(one);
                continue;
            }
            let read = low.max(from)..high.min(to);
            if let Some(pointed) = self.refs.remove(&number) {
                match read.contains(&pointed.key) {
                    true => self.dropped.push(pointed.log),
                    false => drop(self.refs.insert(number, pointed)),
                }
            }
            for (low, high) in [(low, high.min(from)), (low.max(to), high)] {
                if low < high {
                    bounded.push((l, run, low, high, number));
                }
            }
            let place = |number| Place {
                level: l,
                run: RunId(run),
                number: SegmentNumber(number),
            };
            if !edit.removed.contains(&place(number)) {
                edit.removed.push(place(number));
            }
        }
        self.bounded = bounded;
        // Whatever has bounds left is trimmed to these instead.
        edit.removed.retain(|place| {
            let left = self.bounded.iter().filter(|p| p.4 == place.number.0);
            let before = edit.bounds.len();
            for (_, _, low, high, _) in left {
                let range = KeyRange::new(key(*low), Some(key(*high)));
                edit.bounds.push((*place, range));
            }
            edit.bounds.len() == before
        });
        self.fell_trees(edit);
        let segment = self.segment(from, to);
        self.bounded
            .push((level + 1, 0, from, to, segment.number.0));
        edit.added.push((level + 1, RunId(0), segment));
        // A run has one tree at most.
        if random.below(2) == 0 && !self.trees.contains_key(&(level + 1, 0)) {
            self.grow_tree(edit, 0);
        }
    }

    /// Takes the keys of some ranges out of every run.
    fn cut(&mut self, random: &mut Random, version: &Version, edit: &mut Edit) {
        let ranges = (0..=random.below(3)).map(|_| {
            let from = random.below(KEYS);
            let to = from + 1 + random.below(KEYS / 3);
            KeyRange::new(key(from), (to < KEYS).then(|| key(to)))
        });
        let union = union(ranges.collect::<Vec<_>>().iter());
        Cut::new(version, &union).take_away(edit);
        let bounded = std::mem::take(&mut self.bounded);
        for (level, run, low, high, number) in bounded {
            let left = left_of(&KeyRange::new(key(low), Some(key(high))), &union);
            let number_of =
                |key: Vec<u8>| std::str::from_utf8(&key).unwrap().parse::<u64>().unwrap();
            let left = left.map(|left| (number_of(left.from), number_of(left.to.unwrap())));
            let left = left.map(|(low, high)| (level, run, low, high, number));
            self.bounded.extend(left);
        }
        for (level, _, segment) in &edit.added {
            assert_eq!(*level, UNCOUNTED);
            let number = segment.number.0;
            let found = self.uncounted.entry(number).or_default();
            let pointed = self.refs.get(&number);
            if pointed.is_some_and(|pointed| segment.range.contains(&key(pointed.key))) {
                *found = self.refs.remove(&number).map(|pointed| pointed.log);
            }
        }
        // The cut has told of the trees itself.
        self.fell_trees(&mut Edit::default());
    }

    /// Seals the tail of the large log, adds another, and removes what nothing points into.
    fn turn_log(&mut self, edit: &mut Edit) {
        let log = LARGE_LOG;
        if let Some((_, number, sealed)) = self.chain.last_mut() {
            *sealed = true;
            edit.logs.sealed.push(LogPoint {
                log,
                number: SegmentNumber(*number),
                to: 4096,
            });
        }
        self.next_number += 1;
        let ordinal = self.chain.last().map_or(0, |(ordinal, _, _)| ordinal + 1);
        self.chain.push((ordinal, self.next_number, false));
        edit.logs.added.push(LogSegment {
            log,
            ordinal,
            number: SegmentNumber(self.next_number),
            epoch: Epoch(1),
            base_lsn: Lsn(1),
            end: None,
        });
        let uncounted = self.uncounted.values().flatten().copied();
        let refs = self.refs.values().map(|pointed| pointed.log);
        let refs: Vec<u64> = refs.chain(uncounted).collect();
        self.chain.retain(|(_, number, sealed)| {
            let keep = !sealed || refs.contains(number);
            if !keep {
                edit.logs.removed.push((log, SegmentNumber(*number)));
            }
            keep
        });
    }

    fn check(&self, version: &Version) {
        assert_eq!(version.check(), Ok(()));
        let mut bounded = Vec::new();
        for (level, run) in version.runs() {
            for entry in &run.segments {
                let range = &entry.segment.range;
                let parse = |key: &[u8]| std::str::from_utf8(key).unwrap().parse().unwrap();
                let (from, to) = (parse(&range.from), parse(range.to.as_ref().unwrap()));
                bounded.push((level, run.id.0, from, to, entry.segment.number.0));
            }
        }
        bounded.sort_unstable();
        let mut expected = self.bounded.clone();
        expected.sort_unstable();
        assert_eq!(bounded, expected);
        let trees = version.runs().filter_map(|(level, run)| {
            let tree = run.tree.as_ref()?;
            Some(((level, run.id.0), tree.tree.root.segment().0))
        });
        let expected = self.trees.iter().map(|(run, (index, _))| (*run, *index));
        assert_eq!(trees.collect::<BTreeMap<_, _>>(), expected.collect());
        let chain = version.log(LARGE_LOG).iter().map(|e| e.segment);
        let chain: Vec<_> = chain
            .map(|s| (s.ordinal, s.number.0, s.end.is_some()))
            .collect();
        assert_eq!(chain, self.chain);
        for (_, number, _) in &self.chain {
            let counted = self.refs.values().map(|pointed| pointed.log);
            let all = counted.chain(self.uncounted.values().flatten().copied());
            let sum = 10 * all.filter(|log| log == number).count() as u64;
            assert_eq!(version.log_refs(SegmentNumber(*number)), sum);
        }
    }
}

#[test]
fn versions_are_what_a_model_says() {
    for seed in 1..=60u64 {
        let store = store();
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut model = Model::default();
        let mut version = Version::empty(RegionId(1), AddressMode::Rewrite);
        for _ in 0..40 {
            let mut edit = Edit::new(EditSeq(version.seq().0 + 1), Epoch(1));
            match random.below(7) {
                6 => model.count_uncounted(&mut edit),
                5 => model.cut(&mut random, &version, &mut edit),
                0 | 1 => model.flush(&mut random, &mut edit),
                2 | 3 => model.compact(&mut random, &mut edit),
                _ => model.turn_log(&mut edit),
            }
            model.count(&mut edit);
            edit.numbers.mark = Some(SegmentNumber(model.next_number + 1));
            let new = stored_for(&store, &edit);
            version = version.apply(&edit, &new).unwrap();
            model.check(&version);

            // A damaged edit is refused, or leads to another version that breaks no rule.
            let mut bytes = edit.encode();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            if let Ok(mut damaged) = Edit::decode(&bytes) {
                damaged.seq = EditSeq(version.seq().0 + 1);
                if let Ok(other) = version.apply(&damaged, &new) {
                    assert_eq!(other.check(), Ok(()));
                }
            }
        }
        let checkpoint = Edit::decode(&version.checkpoint().encode()).unwrap();
        let table = table_of(&version);
        let empty = Version::empty(RegionId(1), AddressMode::Logical);
        let restated = empty.apply(&checkpoint, &table).unwrap();
        assert_eq!(restated.to_string(), version.to_string());
        // Restating it over itself needs nothing new.
        let over = version.apply(&checkpoint, &New::new()).unwrap();
        assert_eq!(over.to_string(), version.to_string());
    }
}

/// I1: a segment's space is free when the last version that names it is gone, not before.
#[test]
fn a_version_keeps_its_segments() {
    let store = store();
    let used = store.used();
    let first = parse_edit(
        EditSeq(1),
        "numbers mark 9\n+ L1.1:1 [a, b)\n+ L1.1:2 [b, c)",
    );
    let empty = Version::empty(RegionId(1), AddressMode::Logical);
    let version = empty.apply(&first, &stored_for(&store, &first)).unwrap();
    assert_eq!(store.used(), used + 2);
    let second = parse_edit(EditSeq(2), "- L1.1:1\n- L1.1:2\n+ L2.0:2 [b, c)");
    let next = version.apply(&second, &New::new()).unwrap();
    assert_eq!(store.used(), used + 2, "the old version is still there");
    drop(version);
    assert_eq!(store.used(), used + 1);
    drop(next);
    assert_eq!(store.used(), used);
}
