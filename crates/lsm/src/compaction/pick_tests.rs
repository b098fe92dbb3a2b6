//! `testdata/pick.txt`: shapes in words, and what is picked. Set `REWRITE=1` to write the answers.

use std::fmt::Write as _;

use argosy_base::{KeyRange, SegmentNumber};

use super::*;
use crate::compaction::bounded::Bounded;
use crate::compaction::policy::{Growth, L1Policy, Packing, PartLimits, Place};
use crate::compaction::whole::pick_whole;

/// An owned segment of a script: `from-to:bytes`, `#number` where it matters, `!` with tombstones, `~`
/// where it is of a tree, `=bytes` at the end of what it points to in the medium log, `%` where range tombstones left
/// little of it.
struct Given {
    in_tree: bool,
    sparse: bool,
    range: KeyRange,
    bytes: u64,
    number: u64,
    tombstones: bool,
    medium: u64,
}

fn given(word: &str, number: u64) -> Given {
    let (word, sparse) = match word.strip_suffix('%') {
        Some(word) => (word, true),
        None => (word, false),
    };
    let (word, medium) = match word.split_once('=') {
        Some((word, medium)) => (word, medium.parse().unwrap()),
        None => (word, 0),
    };
    let (word, in_tree) = match word.strip_suffix('~') {
        Some(word) => (word, true),
        None => (word, false),
    };
    let (word, tombstones) = match word.strip_suffix('!') {
        Some(word) => (word, true),
        None => (word, false),
    };
    let (word, number) = match word.split_once('#') {
        Some((word, number)) => (word, number.parse().unwrap()),
        None => (word, number),
    };
    let (range, bytes) = word.split_once(':').unwrap();
    let (from, to) = range.split_once('-').unwrap();
    Given {
        in_tree,
        sparse,
        range: KeyRange::new(from, (!to.is_empty()).then(|| to.into())),
        bytes: bytes.parse().unwrap(),
        number,
        tombstones,
        medium,
    }
}

/// How many bounds the segment called `number` has in `run`.
fn of_segment(run: &[Given], number: u64) -> u32 {
    let own = run.iter().filter(|given| given.number == number);
    u32::try_from(own.count()).unwrap()
}

fn parse(input: &str) -> Vec<Vec<Vec<Given>>> {
    let mut number = 0;
    input
        .lines()
        .enumerate()
        .map(|(index, line)| {
            let (name, runs) = line.split_once(':').unwrap();
            assert_eq!(name, format!("L{}", index + 1));
            runs.split('|')
                .map(|run| {
                    run.split_whitespace()
                        .map(|word| {
                            number += 1;
                            given(word, number)
                        })
                        .collect()
                })
                .filter(|run: &Vec<_>| !run.is_empty())
                .collect()
        })
        .collect()
}

fn piece_of<'g>(run: &[Given], given: &'g Given) -> Bounded<'g> {
    Bounded {
        range: &given.range,
        bytes: given.bytes,
        number: given.number,
        tombstones: given.tombstones,
        in_tree: given.in_tree,
        medium: given.medium,
        siblings: of_segment(run, given.number),
    }
}

fn bounded_of(run: &[Given]) -> BoundedRun<'_> {
    BoundedRun::given(run.iter().map(|given| piece_of(run, given)).collect())
}

fn shape_of(given: &[Vec<Vec<Given>>]) -> Levels<'_> {
    let levels = given.iter();
    let levels = levels.map(|runs| runs.iter().map(|run| bounded_of(run)).collect());
    Levels {
        levels: levels.collect(),
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/testdata/pick", |file| {
        file.run(|case| {
            let number = |name: &str, default: u64| {
                case.args
                    .get(name)
                    .and_then(|values| values.first())
                    .map_or(default, |value| value.parse().unwrap())
            };
            let place = |name: &str| {
                let words = case.args.get(name)?;
                let level = words[0].trim_start_matches('L').parse().unwrap();
                let key = words.get(1).map_or(&b""[..], |key| key.as_bytes());
                let key = key.to_vec();
                Some(Place { level, key })
            };
            let given = parse(&case.input);
            let sparse = given.iter().flatten().flatten().filter(|g| g.sparse);
            let policy = Policy {
                gather: None,
                aim: Aim::Levels,
                sparse: sparse.map(|g| SegmentNumber(g.number)).collect(),
                l1: L1Policy {
                    runs: usize::try_from(number("runs", 2)).unwrap(),
                    is_read_triggered: number("read-triggered", 0) == 1,
                },
                growth: Growth {
                    factor: u32::try_from(number("growth", 4)).unwrap(),
                    l0_bytes: number("l0", 10),
                },
                part: PartLimits {
                    bytes: number("part", 30),
                    segments_max: usize::try_from(number("segments", 1000)).unwrap(),
                    whole_segments_max: usize::try_from(number("room", 1000)).unwrap(),
                },
                reclaim: number("reclaim", 0) == 1,
                packing: Packing {
                    bytes: number("pack", 0),
                    segments: usize::try_from(number("segments", 1000)).unwrap(),
                    first: place("first"),
                },
                nothing_shut: true,
                drain: case.args.contains_key("drain").then(|| number("drain", 0)),
                lowers: number("lowers", 0) == 1,
                behind: place("behind"),
            };
            let shape = shape_of(&given);
            let picked = match case.directive.as_str() {
                "pick" => pick(&shape, &policy),
                "whole" => pick_whole(&shape, &policy),
                "worth" => return format!("{:?}\n", l1_runs_worth_merging(&shape)),
                other => panic!("unknown directive: {other}"),
            };
            describe(&shape, &policy, picked.as_ref())
        });
    });
}

fn describe(shape: &Levels<'_>, policy: &Policy, picked: Option<&Picked>) -> String {
    let mut out = String::new();
    let what = match picked.is_some_and(|picked| picked.why.packs()) {
        true => "pack",
        false => "merge",
    };
    match picked.map(|picked| &picked.choice) {
        None => out.push_str("rest\n"),
        Some(Choice::Merge { level, range }) => {
            let bytes = input_bytes(shape, *level, range);
            writeln!(out, "{what} L{level} {range}: {bytes} bytes").unwrap();
            for below in overlapping_below(shape, *level, range) {
                assert!(
                    below.from >= range.from && range.to.is_none() || below.to <= range.to,
                    "the part cuts a segment of the lower level"
                );
            }
        }
        Some(Choice::WithinL1 { range }) => {
            writeln!(out, "{what} L1 within itself {range}").unwrap();
        }
        Some(Choice::Move { level, segments }) => {
            write!(out, "move L{level}").unwrap();
            for at in segments {
                let bounded = shape.levels[usize::from(*level) - 1][at.run].get(at.place);
                write!(out, " {}", bounded.range).unwrap();
            }
            out.push('\n');
        }
    }
    for level in 1..=u8::try_from(shape.levels.len()).unwrap() {
        write!(out, "L{level} {}% ", score(shape, policy, level)).unwrap();
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn overlapping_below(
    shape: &Levels<'_>,
    level: u8,
    range: &KeyRange,
) -> impl Iterator<Item = KeyRange> {
    let below = shape
        .levels
        .get(usize::from(level))
        .cloned()
        .unwrap_or_default();
    let found: Vec<_> = below
        .iter()
        .flat_map(|run| run.within(range).map(|bounded| bounded.range.clone()))
        .collect();
    found.into_iter()
}

/// What is asked for, of everything that may be.
#[derive(Clone, Copy)]
struct Asked(u32);

impl Asked {
    const ALL: u32 = 1 << 7;

    const fn has(self, what: u32) -> bool {
        self.0 & (1 << what) != 0
    }

    fn policy(self, given: &[Vec<Vec<Given>>]) -> Policy {
        let all = given.iter().flatten().flatten();
        let sparse = all.filter(|given| given.sparse && self.has(6));
        Policy {
            gather: self.has(0).then(KeyRange::all),
            aim: Aim::Levels,
            sparse: sparse.map(|given| SegmentNumber(given.number)).collect(),
            l1: L1Policy {
                runs: 2,
                is_read_triggered: false,
            },
            growth: Growth {
                factor: 4,
                l0_bytes: if self.has(2) { 1 } else { 1000 },
            },
            part: PartLimits {
                bytes: 30,
                segments_max: 1000,
                whole_segments_max: 0,
            },
            reclaim: self.has(3),
            packing: Packing {
                bytes: 10,
                segments: 1000,
                first: self.has(1).then_some(Place::LOWEST),
            },
            nothing_shut: true,
            drain: self.has(4).then_some(1000),
            lowers: self.has(5),
            behind: None,
        }
    }
}

/// In the first situation every reason may be there; in the second one nothing is shadowed, nothing is to be lowered.
#[test]
fn of_two_reasons_the_first_decides() {
    use Why::{Cut, Damage, Full, Lower, Medium, NoRoom, Shadowed, Short};
    let order = [Damage, NoRoom, Full, Shadowed, Medium, Lower, Short, Cut];
    let mut met = Vec::new();
    for text in [
        "L1: a-b:1\nL2: a-b:5=3\nL3: a-b:5 p-q:2 q-r:2% r-s:2",
        "L1:\nL2: p-q:2=3 q-r:2% r-s:2",
    ] {
        let given = parse(text);
        let shape = shape_of(&given);
        for asked in (0..Asked::ALL).map(Asked) {
            let policy = asked.policy(&given);
            let is_there = |why: &Why| choose(*why, &shape, &policy).is_some();
            let there: Vec<_> = order.into_iter().filter(is_there).collect();
            let picked = pick(&shape, &policy).map(|picked| picked.why);
            assert_eq!(picked, there.first().copied(), "of {there:?}");
            let pairs = there.iter().skip(1).map(|other| (there[0], *other));
            met.extend(pairs.chain(there.first().map(|only| (*only, *only))));
        }
    }
    for (at, first) in order.iter().enumerate() {
        for other in &order[at..] {
            // Where there is something to be lowered, something is shadowed for whoever wants neighbours to be packed.
            let never = (*first, *other) == (Lower, Short);
            assert_eq!(
                met.contains(&(*first, *other)),
                !never,
                "{first:?}, {other:?}"
            );
        }
    }
}
