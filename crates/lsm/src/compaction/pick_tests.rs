//! `testdata/pick.txt`: shapes in words, and what is picked. Set `REWRITE=1` to write the answers.

use std::fmt::Write as _;

use argosy_base::KeyRange;

use super::*;
use crate::compaction::pieces::Piece;
use crate::compaction::whole::pick_whole;

/// An owned segment of a script: `from-to:bytes`, `#number` where it matters, `!` with tombstones, `~`
/// where it is of a tree, `=bytes` at the end of what it points to in the medium log, `%` where removed ranges left
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

/// How many pieces of the segment called `number` there are in `run`.
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
                aim: Aim::Levels,
                sparse: sparse.map(|g| SegmentNumber(g.number)).collect(),
                l1_runs: usize::try_from(number("runs", 2)).unwrap(),
                l1_paid: number("paid", 0) == 1,
                growth_factor: u32::try_from(number("growth", 4)).unwrap(),
                l0_bytes: number("l0", 10),
                part_bytes: number("part", 30),
                segments_max: usize::try_from(number("segments", 1000)).unwrap(),
                whole_segments_max: usize::try_from(number("room", 1000)).unwrap(),
                reclaim: number("reclaim", 0) == 1,
                pack_bytes: number("pack", 0),
                pack_first: place("first"),
                nothing_shut: true,
                pack_segments: usize::try_from(number("segments", 1000)).unwrap(),
                drain: case.args.contains_key("drain").then(|| number("drain", 0)),
                lowers: number("lowers", 0) == 1,
                behind: place("behind"),
            };
            let shape = Shape {
                levels: given
                    .iter()
                    .map(|runs| {
                        runs.iter()
                            .map(|run| {
                                let pieces = run
                                    .iter()
                                    .map(|g| Piece {
                                        range: &g.range,
                                        bytes: g.bytes,
                                        number: g.number,
                                        tombstones: g.tombstones,
                                        in_tree: g.in_tree,
                                        medium: g.medium,
                                        siblings: of_segment(run, g.number),
                                    })
                                    .collect();
                                Pieces::given(pieces)
                            })
                            .collect()
                    })
                    .collect(),
            };
            let choice = match case.directive.as_str() {
                "pick" => pick(&shape, &policy),
                "whole" => pick_whole(&shape, &policy),
                "worth" => return format!("{:?}\n", l1_runs_worth_merging(&shape)),
                other => panic!("unknown directive: {other}"),
            };
            describe(&shape, &policy, &choice)
        });
    });
}

fn describe(shape: &Shape<'_>, policy: &Policy, choice: &Choice) -> String {
    let mut out = String::new();
    match choice {
        Choice::Rest => out.push_str("rest\n"),
        Choice::Merge { level, range } | Choice::Pack { level, range } => {
            let what = match choice {
                Choice::Pack { .. } => "pack",
                _ => "merge",
            };
            let bytes = input_bytes(shape, *level, range);
            writeln!(out, "{what} L{level} {range}: {bytes} bytes").unwrap();
            for below in overlapping_below(shape, *level, range) {
                assert!(
                    below.from >= range.from && range.to.is_none() || below.to <= range.to,
                    "the part cuts a segment of the lower level"
                );
            }
        }
        Choice::PackL1 { range } => writeln!(out, "pack L1 within itself {range}").unwrap(),
        Choice::Move { level, segments } => {
            write!(out, "move L{level}").unwrap();
            for at in segments {
                let piece = shape.levels[usize::from(*level) - 1][at.run].get(at.piece);
                write!(out, " {}", piece.range).unwrap();
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
    shape: &Shape<'_>,
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
        .flat_map(|run| run.within(range).map(|piece| piece.range.clone()))
        .collect();
    found.into_iter()
}
