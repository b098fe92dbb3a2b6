//! Damaged logs do not spread: who is asked for one looks at the records first.

use super::*;
use crate::names::logs::LOGS;
use crate::settings::Placement;

/// Sealed log segments of the backup, with where on its device a record's byte lies.
fn sealed(version: &Version) -> Vec<(LogSegment, u64)> {
    let logs = LOGS.iter().flat_map(|log| version.log(*log));
    let sealed = logs.filter(|entry| entry.segment.end > Some(200));
    let at = |place: DeviceSegment| u64::from(place.0) * SEGMENT_SIZE as u64 + 100;
    sealed
        .map(|entry| (entry.segment, at(entry.stored.place())))
        .collect()
}

#[test]
fn a_sealed_log_segment_goes_out_only_whole() {
    let mut seen = 0;
    for seed in 1..9 {
        let mut pair = Pair::new(seed, settings());
        pair.go_on(400);
        pair.settle();
        for (segment, at) in sealed(pair.backup.version()) {
            let (number, end) = (segment.number, segment.end.unwrap());
            // In parts, too, whichever of them the damage is in.
            let parts = [
                (0, block_up(end)),
                (BLOCK.min(block_down(end)), block_up(end)),
            ];
            let read = |pair: &Pair, (from, to)| pair.backup.read(number, from, to - from);
            assert!(parts.iter().all(|part| read(&pair, *part).is_ok()));
            pair.backup_machine.device.flip_bit(at, 3);
            for part in parts {
                let refused = read(&pair, part).map(drop);
                let names = matches!(refused, Err(ReplicaError::CorruptLog { segment, .. }) if segment == number);
                assert!(names, "{part:?} of {segment:?}: {refused:?}");
            }
            seen += 1;
        }
        let pin = pair.primary.checkpoint().pin;
        let version = pair.primary.version();
        for (segment, at) in sealed(&version) {
            let (number, to) = (segment.number, block_up(segment.end.unwrap()));
            let read = || {
                pair.primary
                    .read(front(number, to), std::slice::from_ref(&pin))
            };
            assert!(read().unwrap().is_ok());
            pair.primary_machine.device.flip_bit(at, 3);
            let refused = read().unwrap().map(drop);
            let names =
                matches!(refused, Err(EngineError::Corrupt { segment, .. }) if segment == number);
            assert!(names, "{segment:?}: {refused:?}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} segments");
}

#[test]
fn a_log_segment_that_goes_on_goes_out_whole_as_far_as_it_is_durable() {
    let mut seen = 0;
    for seed in 1..6 {
        let mut pair = Pair::new(seed, settings());
        pair.go_on(400);
        pair.settle();
        let PinnedCheckpoint { checkpoint, pin } = pair.primary.checkpoint();
        let bytes = checkpoint.bytes;
        let mut points = Edit::decode(&bytes).unwrap().logs.points;
        points.retain(LogPoint::is_in_blocks);
        let at = |version: &Version, number| {
            let place = version.stored(number).unwrap().place();
            u64::from(place.0) * SEGMENT_SIZE as u64 + 100
        };
        for LogPoint { number, to, .. } in points {
            let read = |pair: &Pair| pair.backup.read(number, 0, to);
            assert!(read(&pair).is_ok());
            let damaged = at(pair.backup.version(), number);
            pair.backup_machine.device.flip_bit(damaged, 3);
            let refused = read(&pair).map(drop);
            let names = matches!(refused, Err(ReplicaError::CorruptLog { segment, .. }) if segment == number);
            assert!(names, "{number}: {refused:?}");

            let read = |pair: &Pair| {
                let primary = &pair.primary;
                primary.read(front(number, to), std::slice::from_ref(&pin))
            };
            assert!(read(&pair).unwrap().is_ok());
            let damaged = at(&pair.primary.version(), number);
            pair.primary_machine.device.flip_bit(damaged, 3);
            let refused = read(&pair).unwrap().map(drop);
            let names =
                matches!(refused, Err(EngineError::Corrupt { segment, .. }) if segment == number);
            assert!(names, "{number}: {refused:?}");
            seen += 1;
        }
    }
    assert!(seen > 4, "{seen} segments");
}

/// A record may begin in front of what is durable here, and end behind it, where the device has something else.
#[test]
fn a_record_of_which_a_part_is_durable_is_no_damage() {
    let mut seen = 0;
    for seed in 1..60 {
        let mut pair = Pair::new(seed, settings());
        pair.go_on(100 + seed);
        let fills = pair.backup.logs.fills.values();
        let fills: Vec<_> = fills
            .map(|fill| (fill.segment, fill.durable, fill.end))
            .collect();
        for (segment, durable, end) in fills {
            let place = pair
                .backup
                .version()
                .stored(segment.number)
                .unwrap()
                .place();
            for to in (BLOCK..durable.min(end)).step_by(BLOCK as usize) {
                if pair.backup.logs.window(&segment, to).is_none() {
                    continue;
                }
                let behind = u64::from(place.0) * SEGMENT_SIZE as u64 + u64::from(to);
                let flip = |pair: &Pair| {
                    (0..8).for_each(|byte| pair.backup_machine.device.flip_bit(behind + byte, 3));
                };
                flip(&pair);
                pair.backup
                    .logs
                    .fills
                    .get_mut(&segment.number)
                    .unwrap()
                    .durable = to;
                let read = pair.backup.read(segment.number, 0, to).map(drop);
                assert!(
                    read.is_ok(),
                    "seed {seed}: {segment:?} up to {to}: {read:?}"
                );
                pair.backup
                    .logs
                    .fills
                    .get_mut(&segment.number)
                    .unwrap()
                    .durable = durable;
                flip(&pair);
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen} segments");
}

/// A level segment without pointers is the same everywhere, and compared with its checksum also where pointers hold
/// places.
#[test]
fn a_level_segment_that_was_damaged_on_the_way_is_refused() {
    for settings in [settings(), in_places()] {
        let in_places = settings.layout.addresses == AddressMode::Rewrite;
        let mut pair = Pair::new(
            7,
            settings.with(|of| {
                of.values.placement = Placement::InPlace;
                of.layout.node_bytes = 8 << 10;
            }),
        );
        pair.go_on(600);
        pair.backup_machine = Machine::new(8);
        pair.backup = pair.backup_machine.open(&pair.settings, false).unwrap();
        let PinnedCheckpoint { checkpoint, pin } = pair.primary.checkpoint();
        let bytes = checkpoint.bytes;
        let edit = Edit::decode(&bytes).unwrap();
        let levels = edit.added.iter().map(|(_, _, segment)| segment);
        let levels = levels.filter(|segment| !has_pointers(segment));
        let levels: BTreeSet<_> = levels.map(|segment| segment.number).collect();
        let mut seen = 0;
        for part in pair.backup.missing(&bytes).unwrap() {
            if !levels.contains(&part.number) {
                continue;
            }
            let read = pair.primary.read(part, std::slice::from_ref(&pin));
            let mut bytes = read.unwrap().unwrap();
            bytes[100] ^= 1;
            let put = pair
                .backup
                .put_part(part.number, part.from, &Arc::new(bytes));
            let refused = matches!(
                put,
                Err(ReplicaError::Copy(CopyError::Damaged { number, .. })) if number == part.number
            );
            assert!(refused, "in places: {in_places}; {put:?}");
            seen += 1;
        }
        assert!(seen > 0, "it has levels");
    }
}
