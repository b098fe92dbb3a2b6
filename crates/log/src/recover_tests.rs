//! Random histories and what stops leave of them, and the table of decisions.

#![allow(clippy::cast_possible_truncation, reason = "tests use small numbers")]

use std::collections::BTreeSet;

use argosy_base::FlushRange;
use argosy_base::limits::BLOCK_SIZE;

use super::super::NoRoom;
use super::super::testing::{Operation, Random, Region};
use super::*;
use crate::testing::{LARGE_LOG, LOGS, RECOVERY_LOG};

fn small() -> Geometry {
    Geometry::new(32 << 10, 8 << 10, 4)
}

fn put(log: LogId, key: &str, len: usize) -> Operation {
    Operation {
        log,
        key: key.into(),
        value: Some(vec![7; len]),
    }
}

#[test]
fn each_row_of_the_table() {
    let ends = [
        LogEnd::Ends,
        LogEnd::Stops { durable: false },
        LogEnd::Stops { durable: true },
        LogEnd::GoesOn { sealed: false },
        LogEnd::GoesOn { sealed: true },
    ];
    let mut corrupt = 0;
    for was_durable in [false, true] {
        for first in ends {
            for second in ends {
                let both = [first, second];
                let cut_short = both.contains(&LogEnd::Stops { durable: true });
                let enclosed = both == [LogEnd::GoesOn { sealed: true }; 2];
                let expected = was_durable || cut_short || enclosed;
                let verdict = decide(was_durable, &both);
                assert_eq!(
                    matches!(verdict, Verdict::Corrupt(_)),
                    expected,
                    "{was_durable} {both:?}"
                );
                corrupt += usize::from(expected);
                if cut_short {
                    let Verdict::Corrupt(log) = verdict else {
                        panic!("{both:?}")
                    };
                    assert_eq!(both[log.index()], LogEnd::Stops { durable: true });
                }
            }
        }
    }
    assert_eq!(corrupt, 25 + 9 + 1, "all that was durable, and 10 more");
}

/// The same table as a script, in words.
#[test]
fn decision_scripts() {
    datadriven::walk("src/testdata/recover", |file| {
        file.run(|case| {
            let was_durable = match case.directive.as_str() {
                "declared-durable" => true,
                "not-declared" => false,
                other => panic!("what is {other}?"),
            };
            let end = |word: &str| match word {
                "ends" => LogEnd::Ends,
                "stops" => LogEnd::Stops { durable: false },
                "stops-durable" => LogEnd::Stops { durable: true },
                "goes-on" => LogEnd::GoesOn { sealed: false },
                "goes-on-sealed" => LogEnd::GoesOn { sealed: true },
                other => panic!("what is {other}?"),
            };
            let mut out = String::new();
            for line in case.input.lines() {
                let (recovery, large) = line.split_once(' ').expect("both logs");
                let verdict = match decide(was_durable, &[end(recovery), end(large.trim())]) {
                    Verdict::End => "the end of the history".to_owned(),
                    Verdict::Corrupt(RECOVERY_LOG) => "corruption of the recovery log".to_owned(),
                    Verdict::Corrupt(_) => "corruption of the large log".to_owned(),
                };
                out.push_str(&format!("{line}: {verdict}\n"));
            }
            out
        });
    });
}

#[test]
fn nothing_written_is_an_empty_history() {
    let mut region = Region::new(small());
    for survive in [true, false] {
        let (recovered, seen) = region.recover(survive, Lsn(0)).unwrap();
        assert_eq!(recovered.last, Lsn(0));
        assert!(recovered.logs.iter().all(|log| log.end.is_none()));
        assert_eq!(recovered.logs[0].windows_survived, survive);
        assert!(seen.is_empty());
        region.provide();
    }
}

#[test]
fn windows_alone_hold_the_history() {
    let mut region = Region::new(small());
    region.append(&[put(RECOVERY_LOG, "a", 10)]).unwrap();
    region.append(&[put(LARGE_LOG, "b", 2000)]).unwrap();
    let (recovered, seen) = region.recover(true, Lsn(0)).unwrap();
    assert_eq!(recovered.last, Lsn(2));
    assert_eq!(seen, region.expected(Lsn(0), Lsn(2)));
    for log in LOGS {
        let tail = &recovered.logs[log.index()];
        assert_eq!(
            tail.end.unwrap().offset,
            region.logs.log(log).end().unwrap().end
        );
        assert_eq!(tail.unflushed.len(), 1);
        assert_eq!(tail.unflushed[0].from, 0);
        assert_eq!(tail.unflushed[0].bytes.len(), BLOCK_SIZE);
    }
    let (recovered, seen) = region.recover(false, Lsn(0)).unwrap();
    assert_eq!(
        recovered.last,
        Lsn(0),
        "without the windows there is nothing"
    );
    assert!(seen.is_empty());
}

#[test]
fn a_hole_between_the_logs_ends_the_history() {
    let mut region = Region::new(small());
    for round in 0..3 {
        region.append(&[put(RECOVERY_LOG, "r", round)]).unwrap();
        region.append(&[put(LARGE_LOG, "l", round)]).unwrap();
    }
    // The large log's second record is LSN 4.
    let lost = region.history[3].at;
    let byte = region.in_slot(lost.offset()) + 6;
    let slot = &region.memory[1][0];
    slot.write(byte, &[!slot.read_vec(byte, 1)[0]]);
    let (recovered, seen) = region.recover(true, Lsn(0)).unwrap();
    assert_eq!(recovered.last, Lsn(3));
    assert_eq!(seen, region.expected(Lsn(0), Lsn(3)));
    let end = recovered.logs[0].end.unwrap();
    assert_eq!(
        end.offset,
        region.history[4].at.offset(),
        "in front of LSN 5"
    );
    assert_eq!(recovered.logs[1].end.unwrap().offset, lost.offset());
}

/// What levels alone hold is missing in logs whose windows were lost: that is no damage, and it is told.
#[test]
fn a_gap_in_front_of_the_start_of_replay_is_told() {
    let mut region = Region::new(small());
    region.append(&[put(RECOVERY_LOG, "a", 10)]).unwrap();
    region.append(&[put(LARGE_LOG, "b", 10)]).unwrap();
    region.flush(true);
    let durable = region.last;
    region.append(&[put(RECOVERY_LOG, "c", 10)]).unwrap();
    region.append(&[put(LARGE_LOG, "d", 10)]).unwrap();
    let gap = |region: &mut Region, survive, replay_from| {
        let (recovered, seen) = region.recover(survive, replay_from).unwrap();
        assert!(seen.is_empty(), "{seen:?}");
        recovered.gap
    };
    let behind = region.last.next();
    assert!(!gap(&mut region, true, behind));
    assert!(gap(&mut region, false, behind));
    assert!(!gap(&mut region, false, durable.next()));
}

#[test]
fn an_incomplete_group_never_was() {
    let mut region = Region::new(small());
    region.append(&[put(RECOVERY_LOG, "first", 5)]).unwrap();
    let group = [
        put(RECOVERY_LOG, "a", 5),
        put(LARGE_LOG, "b", 5),
        put(RECOVERY_LOG, "c", 5),
    ];
    region.append(&group).unwrap();
    let last = region.history[3].at;
    let byte = region.in_slot(last.offset());
    region.memory[0][0].write(byte, &[0x55]);
    let (recovered, seen) = region.recover(true, Lsn(0)).unwrap();
    assert_eq!(recovered.last, Lsn(1));
    assert_eq!(seen.len(), 1);
    assert!(recovered.logs[1].end.is_none(), "the large log has no part");
}

/// What the levels point to lies below the start of replay, where no LSN can be missing.
#[test]
fn damage_in_front_of_a_point_is_corruption_and_behind_it_is_not() {
    let mut region = Region::new(small());
    for n in 0..8 {
        region.append(&[put(LARGE_LOG, "large", 1500 + n)]).unwrap();
    }
    region.flush(true);
    let in_levels = region.history[5].clone();
    for n in 0..8 {
        region.append(&[put(RECOVERY_LOG, "key", n)]).unwrap();
    }
    region.flush(true);
    let replay_from = region.last;
    let point = LogPoint {
        log: LARGE_LOG,
        number: in_levels.at.segment(),
        to: region.history[6].at.offset(),
    };
    let flip = |region: &Region, victim: usize| {
        let at = region.history[victim].at;
        let mut device = region.device.borrow_mut();
        device.get_mut(&at.segment()).unwrap()[at.offset() as usize + 7] ^= 4;
    };
    for victim in [0, 3, 5] {
        flip(&region, victim);
        region.points = vec![];
        let cut = region.recover(false, replay_from).unwrap().0;
        let to = cut.logs[1].end.map_or(0, |end| end.offset);
        assert!(to < point.to, "nothing says that it was durable");
        region.points = vec![point];
        let error = region.recover(false, replay_from).unwrap_err();
        let offset = region.history[victim].at.offset();
        assert!(
            matches!(error, RecoverError::Corrupt { log: LARGE_LOG, offset: at, .. } if at == offset),
            "{error}"
        );
        flip(&region, victim);
    }
    flip(&region, 6);
    let (recovered, _) = region.recover(false, replay_from).unwrap();
    assert_eq!(recovered.logs[1].end.unwrap().offset, point.to);
}

/// In front of a point no damage passes for padding: neither a record that begins with a zero byte now, nor blocks
/// that a device has lost.
#[test]
fn zeros_in_front_of_a_point_are_no_padding() {
    let mut region = Region::new(small());
    for n in 0..8 {
        region.append(&[put(LARGE_LOG, "large", 500 + n)]).unwrap();
        // Two or three to a block.
        region.flush(n % 3 == 2);
    }
    region.flush(true);
    let at = region.history[7].at;
    region.points = vec![LogPoint {
        log: LARGE_LOG,
        number: at.segment(),
        to: at.offset(),
    }];
    region.append(&[put(RECOVERY_LOG, "key", 1)]).unwrap();
    region.flush(true);
    let replay_from = region.last;
    let whole = region.device.borrow()[&at.segment()].clone();
    for victim in 0..7 {
        let byte = region.history[victim].at.offset() as usize;
        let block = byte / BLOCK_SIZE * BLOCK_SIZE;
        for zeros in [byte..byte + 1, block..block + BLOCK_SIZE] {
            let mut hurt = whole.clone();
            hurt[zeros.clone()].fill(0);
            region.device.borrow_mut().insert(at.segment(), hurt);
            let recovered = region.recover(false, replay_from);
            let found = matches!(recovered, Err(RecoverError::Corrupt { log: LARGE_LOG, offset, .. })
                if offset as usize == zeros.start);
            assert!(found, "{zeros:?}: {recovered:?}");
        }
    }
}

#[test]
fn damage_below_a_mark_is_corruption_though_nothing_else_says_so() {
    let mut region = Region::new(small());
    for n in 0..50 {
        region.append(&[put(RECOVERY_LOG, "key", n)]).unwrap();
    }
    region.flush(true);
    let before = region.history.len();
    region.append(&[put(RECOVERY_LOG, "marked", 1)]).unwrap();
    region.flush(true);
    for victim in [0, 20, before - 1] {
        let at = region.history[victim].at;
        let flip = |region: &Region| {
            let mut device = region.device.borrow_mut();
            device.get_mut(&at.segment()).unwrap()[at.offset() as usize + 7] ^= 4;
        };
        flip(&region);
        let error = region.recover(false, Lsn(0)).unwrap_err();
        let expected = RecoverError::Corrupt {
            log: RECOVERY_LOG,
            segment: at.segment(),
            offset: at.offset(),
            what: "no record",
            missing: region.history[victim].lsn,
        };
        assert_eq!(error, expected);
        let (recovered, _) = region.recover(true, Lsn(0)).unwrap();
        assert_eq!(recovered.last, region.last, "the window still has it");
        assert!(!recovered.logs[0].unflushed.is_empty(), "to be repaired");
        // A copy that is being filled has the mark, and never had the rest.
        region.holes = Holes::End;
        let (recovered, _) = region.recover(false, Lsn(0)).unwrap();
        assert_eq!(recovered.last.next(), region.history[victim].lsn);
        region.holes = Holes::Judged;
        flip(&region);
    }
    // What no mark covers can only have been torn.
    let at = region.history[before].at;
    region.device.borrow_mut().get_mut(&at.segment()).unwrap()[at.offset() as usize] ^= 4;
    let (recovered, _) = region.recover(false, Lsn(0)).unwrap();
    assert_eq!(recovered.last, Lsn(before as u64));
}

#[test]
fn what_is_below_the_start_of_replay_is_not_handed_out() {
    let mut region = Region::new(small());
    let random = Random::new(3);
    let mut seals = vec![];
    for n in 0..600 {
        region.flush(n % 7 == 0);
        let group = region.group(&random);
        if region.append(&group) == Err(NoRoom::Full) {
            region.flush(true);
            region.append(&group).unwrap();
        }
        if n % 90 == 0 {
            region.logs.log_mut(RECOVERY_LOG).seal();
            region.logs.log_mut(LARGE_LOG).seal();
            seals.push(region.last.next());
        }
    }
    region.flush(true);
    assert!(region.chains.iter().all(|chain| chain.len() > 6));
    for from in seals {
        let (recovered, seen) = region.recover(false, from).unwrap();
        assert_eq!(recovered.last, region.last);
        assert_eq!(seen, region.expected(from, region.last));
    }
}

/// A loss of power has left a record, and not the closing mark in front of it, in a range of its own. No record is
/// missing, so nothing counts as lost once the segment is sealed.
#[test]
fn a_closing_mark_that_a_crash_has_lost_is_written_again() {
    closing_mark_lost(0);
}

/// The same where everything that the other log has in between is in levels, and so is what lies in front of the mark.
#[test]
fn a_closing_mark_from_before_the_start_of_replay_is_written_again() {
    closing_mark_lost(3);
}

/// The other log has so many records behind the closing mark's window, and replay starts behind them.
fn closing_mark_lost(others: usize) {
    // A record that is not cut is longer than a block only where windows are long.
    let (window, last) = (128 << 10, (128 << 10) - BLOCK_SIZE as u32);
    let mut region = Region::new(Geometry::new(4 * window, window, 4));
    region.stale = 0;
    let put = |len: usize| Operation {
        log: RECOVERY_LOG,
        key: b"key".to_vec(),
        value: Some(vec![b'v'; len]),
    };
    while region.logs.log(RECOVERY_LOG).at() < u64::from(last) - 1000 {
        region.append(&[put(500)]).unwrap();
    }
    for n in 0..others {
        let other = Operation {
            log: LARGE_LOG,
            ..put(500 + n)
        };
        region.append(&[other]).unwrap();
    }
    region.flush(true);
    let replay_from = match others {
        0 => Lsn(0),
        _ => region.last.next(),
    };
    region.append(&[put(5000)]).unwrap();
    let mut ranges = std::iter::from_fn(|| region.logs.log_mut(RECOVERY_LOG).take_flush(true));
    let (mark, record) = (ranges.next().unwrap(), ranges.next().unwrap());
    assert_eq!(
        (mark.from, mark.to, record.from),
        (last, 128 << 10, 128 << 10)
    );
    region.write_device(&record, &region.window_bytes(&record));
    let (recovered, _) = region.recover(false, replay_from).unwrap();
    assert_eq!(recovered.last, region.last);
    assert_eq!(recovered.logs[0].closing.len(), 1);
    assert_eq!(region.cut(&recovered), []);
}

/// What a stop left on a device and in memory, cut and torn at random, always recovers to a prefix
/// of whole groups that holds all that was flushed and, with windows, all that was written.
#[test]
fn random_histories_recover_to_what_was_there() {
    let mut lost = 0;
    let mut torn_groups = 0;
    for seed in 0..300 {
        let random = Random::new(seed);
        let slots = 2 + random.below(3);
        let mut region = Region::new(Geometry::new(32 << 10, 8 << 10, slots));
        region.stale = [0xa5, 0][random.below(2)];
        let mut pending: Vec<FlushRange> = vec![];
        for _ in 0..random.below(120) {
            let group = region.group(&random);
            match region.append(&group) {
                Ok(()) => {}
                Err(NoRoom::TooLarge) => continue,
                Err(NoRoom::Full) => {
                    region.flush(true);
                    region.append(&group).unwrap();
                }
            }
            if random.below(10) == 0 {
                region.logs.log_mut(LOGS[random.below(2)]).seal();
            }
            if random.below(8) == 0 {
                region.flush(random.below(2) == 0);
                if random.below(4) == 0 {
                    region.rest();
                }
            }
        }
        let flushed = region.logs.durable(region.last);
        // The last flush is under way: any of its blocks may be there.
        for log in LOGS {
            while let Some(range) = region.logs.log_mut(log).take_flush(true) {
                pending.push(range);
            }
        }
        region.flush_some_blocks(&pending, &random);
        let (recovered, seen) = region.recover(true, Lsn(0)).unwrap();
        assert_eq!(recovered.last, region.last, "seed {seed}: windows survive");
        assert_eq!(seen, region.expected(Lsn(0), region.last));
        let (recovered, seen) = region.recover(false, Lsn(0)).unwrap();
        let last = recovered.last;
        assert!(
            region.group_end_below(flushed) <= last,
            "seed {seed}: {flushed} was flushed"
        );
        assert_eq!(
            region.group_end_below(last),
            last,
            "seed {seed}: whole groups"
        );
        assert_eq!(seen, region.expected(Lsn(0), last), "seed {seed}");
        assert_eq!(region.cut(&recovered), [], "seed {seed}");
        lost += usize::from(last < region.last);
        torn_groups += usize::from(last < region.last && last > flushed);
    }
    assert!(lost > 100, "{lost}");
    assert!(torn_groups > 10, "{torn_groups}");
}

/// Writing what recovery says is in windows only makes the device alone recover to the same.
#[test]
fn unflushed_bytes_complete_the_device() {
    let mut written = 0;
    for seed in 0..200 {
        let random = Random::new(1000 + seed);
        let mut region = Region::new(Geometry::new(16 << 10, 8 << 10, 3));
        for _ in 0..random.below(60) {
            let group = region.group(&random);
            match region.append(&group) {
                Ok(()) | Err(NoRoom::TooLarge) => {}
                Err(NoRoom::Full) => {
                    region.flush(true);
                    region.append(&group).unwrap();
                }
            }
            if random.below(6) == 0 {
                region.flush(random.below(2) == 0);
                if random.below(4) == 0 {
                    region.rest();
                }
            }
        }
        let mut pending = vec![];
        if random.below(2) == 0 {
            for log in LOGS {
                pending.extend(std::iter::from_fn(|| {
                    region.logs.log_mut(log).take_flush(true)
                }));
            }
        }
        region.flush_some_blocks(&pending, &random);
        // A record at the end of a log's window is torn: the cut is inside of what windows hold.
        if let Some(last) = region.history.last().filter(|_| random.below(3) == 0) {
            let segment = region.chains.iter().flatten();
            let segment = *segment
                .clone()
                .find(|s| s.number == last.at.segment())
                .unwrap();
            let index = region.geometry.window_index(last.at.offset());
            let slot = region.geometry.slot(segment.ordinal, index);
            let byte = region.in_slot(last.at.offset()) + 2;
            region.memory[segment.log.index()][slot].write(byte, &[0xee, 0xee]);
        }
        let (first, seen) = region.recover(true, Lsn(0)).unwrap();
        for tail in &first.logs {
            for part in &tail.unflushed {
                assert!(part.from.is_multiple_of(BLOCK_SIZE as u32));
                assert!(part.bytes.len().is_multiple_of(BLOCK_SIZE) && !part.bytes.is_empty());
                let mut device = region.device.borrow_mut();
                let segment = device.get_mut(&part.segment.number).unwrap();
                segment[part.from as usize..][..part.bytes.len()].copy_from_slice(&part.bytes);
                written += 1;
            }
        }
        let (second, again) = region.recover(false, Lsn(0)).unwrap();
        assert_eq!(second.last, first.last, "seed {seed}");
        assert_eq!(again, seen, "seed {seed}");
        let ends = |r: &RecoveredLogs<2>| [r.logs[0].end, r.logs[1].end];
        assert_eq!(ends(&second), ends(&first), "seed {seed}");
        let (third, _) = region.recover(true, Lsn(0)).unwrap();
        assert!(
            third.logs.iter().all(|log| log.unflushed.is_empty()),
            "seed {seed}: done"
        );
    }
    assert!(written > 200, "{written}");
}

/// Flipped bits anywhere never bring out anything that was not written.
#[test]
fn damage_is_found_or_harmless() {
    let mut refused = 0;
    let mut cut = 0;
    for seed in 0..400 {
        let random = Random::new(50_000 + seed);
        let mut region = Region::new(small());
        for n in 0..10 + random.below(60) {
            let group = region.group(&random);
            if region.append(&group) == Err(NoRoom::Full) {
                region.flush(true);
                region.append(&group).unwrap();
            }
            if n % 9 == 0 {
                region.flush(true);
            }
        }
        for _ in 0..1 + random.below(3) {
            region.flip_a_bit(&random, true);
        }
        match region.recover(random.below(2) == 0, Lsn(0)) {
            Err(RecoverError::Corrupt { missing, .. }) => {
                refused += 1;
                assert!(missing <= region.last);
            }
            Err(RecoverError::Read { .. }) => unreachable!("the device does not fail"),
            Ok((recovered, seen)) => {
                assert_eq!(seen, region.expected(Lsn(0), recovered.last), "seed {seed}");
                cut += usize::from(recovered.last < region.last);
            }
        }
    }
    assert!(refused > 50 && cut > 20, "{refused} {cut}");
}

/// Segments are found in their chain although they were provided early and never used.
#[test]
fn a_cut_is_where_the_next_history_begins() {
    let random = Random::new(77);
    let mut region = Region::new(small());
    let mut numbers = BTreeSet::new();
    for _ in 0..40 {
        let group = region.group(&random);
        if region.append(&group) == Err(NoRoom::Full) {
            region.flush(true);
            region.append(&group).unwrap();
        }
    }
    region.flush(true);
    let (recovered, _) = region.recover(false, Lsn(0)).unwrap();
    for log in LOGS {
        let end = recovered.logs[log.index()].end.unwrap();
        let chain = &mut region.chains[log.index()];
        chain.retain(|segment| segment.ordinal <= end.ordinal);
        for segment in chain.iter_mut() {
            assert!(numbers.insert(segment.number));
            if segment.ordinal == end.ordinal {
                segment.end = Some(end.offset);
            }
        }
    }
    let (again, seen) = region.recover(false, Lsn(0)).unwrap();
    assert_eq!(again.last, recovered.last);
    assert_eq!(seen, region.expected(Lsn(0), region.last));
    // One byte less, and the seal is not kept.
    let chain = region.chains[0].last_mut().unwrap();
    chain.end = chain.end.map(|end| end - 1);
    assert!(region.recover(false, Lsn(0)).is_err());
}
