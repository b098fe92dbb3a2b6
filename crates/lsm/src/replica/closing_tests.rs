//! A closing mark that a loss of power has taken from a backup's log.

use super::*;
use crate::names::logs::RECOVERY_LOG;

const WINDOW: u32 = 128 << 10;
/// Where the last block of the first window begins.
const LAST: u32 = WINDOW - 4096;
/// Longer than the interval between two flushes, in nanoseconds.
const INTERVAL: u64 = 2_000_000_000;

/// Windows that are long enough for a whole record to be longer than a block.
fn long_windows() -> Settings {
    settings().with(|of| {
        of.memtables.bytes = 1 << 20;
        of.memtables.log_bytes = 4 << 20;
        of.levels.part_bytes = 1 << 20;
        of.values.placement = Placement::InPlace;
        of.layout.node_bytes = 32 << 10;
        of.layout.segment_bytes = 512 << 10;
        of.layout.window_bytes = WINDOW as usize;
        of.layout.window_slots = 4;
    })
}

fn put(pair: &Pair, len: usize) {
    let mut batch = WriteBatch::new();
    batch.put(b"key", vec![b'v'; len]).unwrap();
    let written = pair.primary.write(&batch, WriteOptions::default());
    assert!(written.unwrap().applied);
}

/// Where the recovery log ends, as far as the primary has told.
fn end(pair: &Pair) -> Option<LogEnd> {
    pair.recorder.0.lock().unwrap().2[RECOVERY_LOG.index()]
}

/// Everything is on both devices.
fn write_all(pair: &mut Pair) {
    for _ in 0..10 {
        pair.pump();
        pair.primary_machine.device.run_all();
        while pair.run_backup_request() {}
    }
}

/// What a loss of power leaves of the last block of the first window.
fn on_device(pair: &Pair, segment: SegmentNumber, seed: u64) -> Buffer {
    let device = pair.backup_machine.crashed(Crash::PowerLoss, seed).device;
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    let stored = pair.backup.storage.head().stored(segment).unwrap().place();
    let mut block = Buffer::zeroed(4096);
    store.read(stored, LAST, &mut block).unwrap();
    block
}

/// Power is lost while a closing mark and the record behind it are being written. A backup that has kept the record
/// writes the mark again.
#[test]
fn a_closing_mark_that_a_backup_has_lost_is_written_again() {
    let mut pair = Pair::new(1, long_windows());
    write_all(&mut pair);
    while end(&pair).is_none_or(|end| end.end < LAST - 1000) {
        put(&pair, 500);
        pair.primary.step(Instant::from_nanos(pair.now)).unwrap();
    }
    pair.now += INTERVAL;
    write_all(&mut pair);
    assert_eq!(
        (end(&pair).unwrap().end, &pair.flushes[..]),
        (LAST, &[][..])
    );

    put(&pair, 5000);
    pair.now += INTERVAL;
    for _ in 0..5 {
        pair.primary.step(Instant::from_nanos(pair.now)).unwrap();
    }
    pair.listen();
    pair.ship();
    let ranges: Vec<(u32, u32)> = pair.flushes.iter().map(|f| (f.from, f.to)).collect();
    assert_eq!(ranges, [(LAST, WINDOW), (WINDOW, WINDOW + 8192)]);
    for range in &pair.flushes {
        pair.backup.flush(*range);
    }

    let segment = end(&pair).unwrap().segment;
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let mut written_again = 0;
    for seed in 0..64 {
        let lost = is_zero(&on_device(&pair, segment, seed));
        let mut machine = pair.backup_machine.crashed(Crash::PowerLoss, seed);
        let replica = machine.open(&pair.settings, false).unwrap();
        if lost && replica.position().lsn == pair.shipped {
            assert!(!is_zero(&replica.read(segment, LAST, 4096).unwrap()));
            written_again += 1;
        }
    }
    assert!(
        written_again > 4,
        "{written_again} of 64 have the record only"
    );
}
