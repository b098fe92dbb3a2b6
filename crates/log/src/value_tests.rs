//! Values from windows, from the device, in chunks over segments, and damaged.

#![allow(clippy::cast_possible_truncation, reason = "tests use small numbers")]

use super::super::NoRoom;
use super::super::segment::Geometry;
use super::super::testing::{Random, Region, Written};
use super::*;
use crate::testing::LARGE_LOG;

fn value_of<'a>(written: &'a Written) -> Option<(ValueRef<'a>, &'a [u8])> {
    let value = written.operation.value.as_ref()?;
    let wanted = ValueRef {
        at: written.at,
        value_len: value.len() as u32,
        key: &written.operation.key,
    };
    Some((wanted, value))
}

fn windows_of<'a>(region: &'a Region, written: &Written) -> &'a LogWindows {
    region.logs.log(written.operation.log).windows()
}

fn filled(seed: u64) -> Region {
    let random = Random::new(seed);
    let mut region = Region::new(Geometry::new(32 << 10, 8 << 10, 3));
    for n in 0..120 {
        let group = region.group(&random);
        match region.append(&group) {
            Ok(()) | Err(NoRoom::TooLarge) => {}
            Err(NoRoom::Full) => {
                region.flush(true);
                region.append(&group).unwrap();
            }
        }
        if n % 11 == 0 {
            region.flush(random.below(2) == 0);
        }
    }
    region
}

#[test]
fn every_value_is_found_wherever_it_is() {
    let mut chunked = 0;
    for seed in 0..20 {
        let region = filled(seed);
        let mut before = Lsn(0);
        for written in &region.history {
            if let Some((wanted, value)) = value_of(written) {
                let windows = windows_of(&region, written);
                let found = read_value(&wanted, windows, &region).unwrap();
                assert!(found == value, "seed {seed}, {}", written.lsn);
            }
            chunked += usize::from(written.lsn.0 - before.0 > 1);
            before = written.lsn;
        }
    }
    assert!(chunked > 20, "{chunked}");
}

#[test]
fn the_wrong_key_length_or_place_is_an_error() {
    let region = filled(1);
    let mut checked = 0;
    for written in &region.history {
        let Some((wanted, value)) = value_of(written).filter(|(_, value)| !value.is_empty()) else {
            continue;
        };
        let windows = windows_of(&region, written);
        let offset = wanted.at.offset();
        let wrong = [
            ValueRef {
                key: b"#",
                ..wanted
            },
            ValueRef {
                value_len: value.len() as u32 - 1,
                ..wanted
            },
            ValueRef {
                value_len: value.len() as u32 + 1,
                ..wanted
            },
            ValueRef {
                at: Pointer::new(wanted.at.segment(), offset + 1),
                ..wanted
            },
            ValueRef {
                at: Pointer::new(SegmentNumber(999), offset),
                ..wanted
            },
        ];
        for wrong in wrong {
            let found = read_value(&wrong, windows, &region);
            assert!(matches!(found, Err(ReadError::Corrupt { .. })), "{wrong:?}");
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn damage_is_an_error_or_harmless() {
    let mut refused = 0;
    for seed in 0..300 {
        let region = filled(seed % 10);
        let random = Random::new(seed);
        for _ in 0..8 {
            region.flip_a_bit(&random, true);
        }
        for written in &region.history {
            let Some((wanted, value)) = value_of(written) else {
                continue;
            };
            match read_value(&wanted, windows_of(&region, written), &region) {
                Ok(found) => assert!(found == value, "never wrong data"),
                Err(ReadError::Corrupt { .. }) => refused += 1,
                Err(ReadError::Source(never)) => match never {},
            }
        }
    }
    assert!(refused > 300, "{refused}");
}

/// Readers that run into a window being taken over find the value on the device.
#[test]
fn readers_and_the_writer_meet_in_a_window() {
    let geometry = Geometry::new(32 << 10, 8 << 10, 2);
    let mut region = Region::new(geometry);
    let windows = std::sync::Arc::clone(region.logs.log(LARGE_LOG).windows());
    let source = std::sync::Mutex::new((Vec::<Written>::new(), Snapshot::default()));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let random = Random::new(5);
            for _ in 0..400 {
                let mut group = region.group(&random);
                group.retain(|operation| operation.value.is_some());
                group
                    .iter_mut()
                    .for_each(|operation| operation.log = LARGE_LOG);
                if group.is_empty() || region.append(&group) == Err(NoRoom::TooLarge) {
                    continue;
                }
                let mut shared = source.lock().unwrap();
                *shared = (region.history.clone(), Snapshot::of(&region));
                drop(shared);
                region.flush(true);
                let mut shared = source.lock().unwrap();
                shared.1 = Snapshot::of(&region);
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        let mut round = 0;
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            round += 1;
            let shared = source.lock().unwrap();
            let (history, snapshot) = (shared.0.last().cloned(), shared.1.clone());
            drop(shared);
            let Some(written) = history else { continue };
            let (wanted, value) = value_of(&written).unwrap();
            // What the version of a moment ago says may by now be in neither of its places.
            if let Ok(found) = read_value(&wanted, &windows, &snapshot) {
                assert!(found == value, "round {round}");
            }
        }
    });
    assert!(region.history.len() > 300);
}

/// What the device held at a moment.
#[derive(Clone, Default)]
struct Snapshot {
    chain: Vec<LogSegment>,
    device: std::collections::BTreeMap<SegmentNumber, Vec<u8>>,
}

impl Snapshot {
    fn of(region: &Region) -> Self {
        Self {
            chain: region.chains[1].clone(),
            device: region.device.borrow().clone(),
        }
    }
}

impl LogSource for Snapshot {
    type Error = std::convert::Infallible;
    type Segment = LogSegment;

    fn segment(&self, number: SegmentNumber) -> Option<LogSegment> {
        self.chain.iter().find(|s| s.number == number).copied()
    }

    fn after(&self, segment: LogSegment) -> Option<LogSegment> {
        self.chain.get(segment.ordinal as usize + 1).copied()
    }

    fn read(&self, segment: LogSegment, offset: u32, out: &mut [u8]) -> Result<(), Self::Error> {
        let from = offset as usize;
        out.copy_from_slice(&self.device[&segment.number][from..from + out.len()]);
        Ok(())
    }
}
