//! A feed sees what recovery would, however the ranges of the two logs come.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use argosy_base::FlushRange;

use super::super::testing::{REGION, Random, Region, Seen};
use super::*;
use crate::Binding;
use crate::testing::LOGS;

fn seen(replayed: &Replayed<'_>) -> Seen {
    let what = match replayed.binding {
        Binding::Inline(value) => [b"inline ", value].concat(),
        Binding::Logged { value_len } => format!("{} {value_len}", replayed.at).into_bytes(),
        Binding::Nothing => b"deleted".to_vec(),
    };
    (replayed.lsn, replayed.key.to_vec(), what)
}

/// What is flushed, in the order in which it may come: each log's in its own order.
fn flushed(region: &mut Region, random: &Random, groups: usize) -> Vec<(FlushRange, Vec<u8>)> {
    let mut logs: [VecDeque<(FlushRange, Vec<u8>)>; 2] = Default::default();
    for _ in 0..groups {
        let group = region.group(random);
        while region.append(&group).is_err() {
            take(region, true, &mut logs);
        }
        if random.below(5) == 0 {
            take(region, random.below(2) == 0, &mut logs);
        }
    }
    take(region, true, &mut logs);
    let mut mixed = Vec::new();
    while let Some(log) = (0..2).find(|log| !logs[*log].is_empty()) {
        let other = 1 - log;
        let from = if random.below(2) == 0 && !logs[other].is_empty() {
            other
        } else {
            log
        };
        mixed.extend(logs[from].pop_front());
    }
    mixed
}

fn take(region: &mut Region, force: bool, logs: &mut [VecDeque<(FlushRange, Vec<u8>)>; 2]) {
    for log in LOGS {
        while let Some(range) = region.logs.log_mut(log).take_flush(force) {
            let bytes = region.window_bytes(&range);
            let writer = region.logs.log_mut(log);
            writer.flushed_locally(range.segment, range.to);
            writer.flushed_everywhere(range.segment, range.to);
            logs[log.index()].push_back((range, bytes));
        }
    }
    region.note_durable();
}

#[test]
fn ranges_in_any_order_become_the_history() {
    for seed in 0..60 {
        let random = Random::new(seed);
        let geometry = Geometry::new(64 << 10, 16 << 10, 3);
        let mut region = Region::new(geometry);
        let ranges = flushed(&mut region, &random, 60);
        let mut feed = Feed::<2>::new(REGION, geometry, Lsn(0));
        let mut found = Vec::new();
        for (range, bytes) in &ranges {
            let chain = &region.chains[range.log.index()];
            let segment = chain.iter().find(|segment| segment.number == range.segment);
            let fed = Fed {
                segment: segment.unwrap(),
                from: range.from,
                bytes,
            };
            feed.feed(fed, |replayed| found.push(seen(&replayed)))
                .unwrap();
            if random.below(6) == 0 {
                // A second time it changes nothing.
                let before = found.len();
                feed.feed(fed, |replayed| found.push(seen(&replayed)))
                    .unwrap();
                assert_eq!(found.len(), before, "seed {seed}");
            }
        }
        assert_eq!(feed.last(), region.last, "seed {seed}");
        assert_eq!(found, region.expected(Lsn(1), region.last), "seed {seed}");
        assert_eq!(feed.aside_bytes, 0, "seed {seed}");
    }
}

#[test]
fn what_is_no_record_is_an_error() {
    let random = Random::new(7);
    let geometry = Geometry::new(64 << 10, 16 << 10, 3);
    let mut region = Region::new(geometry);
    let ranges = flushed(&mut region, &random, 10);
    let (range, bytes) = &ranges[0];
    let chain = &region.chains[range.log.index()];
    let mut damaged = bytes.clone();
    damaged[SEGMENT_HEADER_BYTES as usize + 3] ^= 1;
    let fed = Fed {
        segment: &chain[0],
        from: range.from,
        bytes: &damaged,
    };
    let error = Feed::<2>::new(REGION, geometry, Lsn(0)).feed(fed, |_| {});
    assert_eq!(error.unwrap_err().offset, SEGMENT_HEADER_BYTES);
}
