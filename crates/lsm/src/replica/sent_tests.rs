//! Damaged logs do not spread: who is asked for one looks at the records first.

use super::*;
use crate::level::LevelError;

/// Sealed log segments of the backup, with where on its device a record's byte lies.
fn sealed(version: &Version) -> Vec<(LogSegment, u64)> {
    let logs = LogKind::ALL.iter().flat_map(|log| version.log(*log));
    let sealed = logs.filter(|entry| entry.segment.end > Some(200));
    let at = |place: DeviceSegment| u64::from(place.0) * SEGMENT_SIZE as u64 + 100;
    sealed
        .map(|entry| (entry.segment, at(entry.stored.place())))
        .collect()
}

#[test]
fn a_sealed_log_segment_goes_out_only_whole() {
    let mut seen = 0;
    for seed in 1..6 {
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
        let (_, _, pin) = pair.primary.checkpoint();
        let version = pair.primary.version();
        for (segment, at) in sealed(&version) {
            let (number, to) = (segment.number, block_up(segment.end.unwrap()));
            let read = || {
                pair.primary
                    .read_segment(number, (0, to), [&pin].into_iter())
            };
            assert!(read().unwrap().is_ok());
            pair.primary_machine.device.flip_bit(at, 3);
            let refused = read().unwrap().map(drop);
            let names =
                matches!(refused, Err(LevelError::Corrupt { segment, .. }) if segment == number);
            assert!(names, "{segment:?}: {refused:?}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} segments");
}
