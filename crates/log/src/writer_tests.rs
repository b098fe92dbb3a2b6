//! One log: windows, ranges, marks, seals and reuse, by example and at random.

#![allow(clippy::cast_possible_truncation, reason = "tests use small numbers")]

use std::collections::BTreeMap;

use argosy_base::Epoch;
use argosy_base::limits::BLOCK_SIZE;
use argosy_memory::SharedMemory;

use super::super::record::{Decoded, RecordKind, decode};
use super::super::segment::{Geometry, decode_window_header};
use super::super::testing::{REGION, Random};
use super::*;
use crate::testing::RECOVERY_LOG;

const W: u32 = 8 << 10;
const S: u32 = 32 << 10;

fn segment(ordinal: u64) -> LogSegment {
    LogSegment {
        log: RECOVERY_LOG,
        ordinal,
        number: SegmentNumber(100 + ordinal),
        epoch: Epoch(1),
        base_lsn: Lsn(0),
        end: None,
    }
}

fn writer(slots: usize, first: u64) -> LogWriter {
    writer_of(Geometry::new(S as usize, W as usize, slots), first)
}

fn writer_of(geometry: Geometry, first: u64) -> LogWriter {
    let memory = |_| Arc::new(SharedMemory::anonymous(geometry.slot_bytes()));
    let memories = (0..geometry.slots()).map(memory).collect();
    let windows = LogWindows::new(REGION, RECOVERY_LOG, geometry, memories);
    let mut log = LogWriter::new(Arc::new(windows), Writer::default());
    log.provide_segment(segment(first));
    log
}

fn range(ordinal: u64, from: u32, to: u32) -> FlushRange {
    FlushRange {
        log: RECOVERY_LOG,
        ordinal,
        segment: SegmentNumber(100 + ordinal),
        from,
        to,
    }
}

fn flush(log: &mut LogWriter, range: FlushRange) {
    log.flushed_locally(range.segment, range.to);
    log.flushed_everywhere(range.segment, range.to);
}

fn read(log: &LogWriter, at: Pointer) -> (RecordKind, Lsn, Vec<u8>) {
    let segment = segment(at.segment().0 - 100);
    let mut bytes = vec![0; (W - at.offset() % W) as usize];
    assert!(log.windows().read(&segment, at.offset(), &mut bytes));
    let here = identity(Kind::LogRecord, REGION, &segment, at.offset());
    match decode(&bytes, here, Lsn(0)) {
        Decoded::Record(record, _) => (record.kind, record.lsn, record.value.to_vec()),
        other => panic!("{other:?} at {at}"),
    }
}

#[test]
fn nothing_can_be_written_without_a_segment() {
    let mut log = writer(2, 0);
    assert_eq!(log.end(), None);
    assert_eq!(log.room(), 2 * W as usize);
    let mut lsn = 0;
    while log.room() > 0 {
        lsn += 1;
        if log
            .append(&Record::put(Lsn(lsn), b"key", &[7; 2000]))
            .is_err()
        {
            break;
        }
        if let Some(full) = log.take_flush(false) {
            flush(&mut log, full);
        }
    }
    assert!(lsn > 12);
    assert!(log.wants_segment(0));
    let end = log.end();
    let record = Record::put(Lsn(lsn), b"key", &[7; 2000]);
    assert_eq!(log.append(&record), Err(NoRoom::Full));
    assert_eq!(log.end(), end, "nothing changed");
    log.provide_segment(segment(1));
    let at = log.append(&record).unwrap();
    assert_eq!(at, Pointer::new(SegmentNumber(101), 64));
}

#[test]
fn a_window_is_reused_once_it_is_flushed_everywhere() {
    let mut log = writer(2, 7);
    let record = Record::put(Lsn(1), b"key", &[7; 5000]);
    let first = log.append(&record).unwrap();
    let second = log
        .append(&Record {
            lsn: Lsn(2),
            ..record
        })
        .unwrap();
    assert_eq!((first.offset(), second.offset()), (64, W));
    let third = Record {
        lsn: Lsn(3),
        ..record
    };
    assert_eq!(log.append(&third), Err(NoRoom::Full));
    let full = log.take_flush(false).unwrap();
    assert_eq!(full, range(7, 0, W), "whole, with its padding");
    assert_eq!(log.take_flush(false), None);
    log.flushed_locally(full.segment, full.to);
    assert_eq!(log.append(&third), Err(NoRoom::Full), "not everywhere");
    assert_eq!(log.first_unflushed(), Some(Lsn(1)));
    log.flushed_everywhere(full.segment, full.to);
    assert_eq!(log.first_unflushed(), Some(Lsn(2)));
    assert_eq!(read(&log, first).1, Lsn(1), "still there");
    assert_eq!(log.append(&third).unwrap().offset(), 2 * W);
    let mut bytes = [0; 8];
    assert!(
        !log.windows().read(&segment(7), 64, &mut bytes),
        "taken over"
    );
    let header = log.windows().memory(28 % 2).read_vec(0, 64);
    let (name, _) = decode_window_header(&header).unwrap();
    assert_eq!((name.number, name.index), (SegmentNumber(107), 2));
}

#[test]
fn forced_flushes_end_at_blocks_and_new_ranges_begin_with_a_mark() {
    let mut log = writer(3, 0);
    assert_eq!(log.take_flush(true), None, "nothing to flush");
    log.append(&Record::put(Lsn(1), b"a", b"1")).unwrap();
    let first = log.take_flush(true).unwrap();
    assert_eq!(first, range(0, 0, BLOCK_SIZE as u32));
    assert_eq!(log.take_flush(true), None, "nothing new");
    assert_eq!(log.end().unwrap().end, BLOCK_SIZE as u32);
    log.append(&Record::put(Lsn(2), b"b", b"2")).unwrap();
    let unmarked = Pointer::new(SegmentNumber(100), BLOCK_SIZE as u32);
    assert_eq!(
        read(&log, unmarked).0,
        RecordKind::Put,
        "nothing is durable yet"
    );
    flush(&mut log, first);
    assert_eq!(log.first_unflushed(), Some(Lsn(2)));
    log.set_durable(Lsn(1));
    let second = log.take_flush(true).unwrap();
    assert_eq!(second, range(0, BLOCK_SIZE as u32, 2 * BLOCK_SIZE as u32));
    assert_eq!(second.to, W, "up to the end of the window");
    let put = log.append(&Record::put(Lsn(3), b"c", b"3")).unwrap();
    let mark = Pointer::new(SegmentNumber(100), W);
    assert_eq!(read(&log, mark), (RecordKind::Mark, Lsn(1), vec![]));
    assert!(put > mark);
    log.append(&Record::put(Lsn(4), b"d", b"4")).unwrap();
    assert_eq!(read(&log, put).1, Lsn(3));
}

#[test]
fn sealing_ends_a_segment_behind_its_last_record() {
    let mut log = writer(2, 0);
    log.seal();
    assert_eq!(log.take_sealed(), None, "nothing was written");
    log.append(&Record::put(Lsn(1), b"a", b"1")).unwrap();
    let behind = log.end().unwrap().end;
    log.seal();
    let point = LogPoint {
        log: RECOVERY_LOG,
        number: SegmentNumber(100),
        to: behind,
    };
    assert_eq!(log.take_sealed(), Some(point));
    assert_eq!(log.end().unwrap().end, BLOCK_SIZE as u32, "padded");
    log.seal();
    assert_eq!(log.take_sealed(), None, "once");
    assert_eq!(
        log.append(&Record::put(Lsn(2), b"b", b"")),
        Err(NoRoom::Full)
    );
    log.provide_segment(segment(1));
    // Window 4 has the slot of window 0, which is not flushed.
    assert_eq!(
        log.append(&Record::put(Lsn(2), b"b", b"")),
        Err(NoRoom::Full)
    );
    let last = log.take_flush(false).unwrap();
    assert_eq!(last, range(0, 0, BLOCK_SIZE as u32));
    flush(&mut log, last);
    assert_eq!(log.first_unflushed(), None);
    let at = log.append(&Record::put(Lsn(2), b"b", b"")).unwrap();
    assert_eq!(at, Pointer::new(SegmentNumber(101), 64));
    assert_eq!(log.end().unwrap().ordinal, 1);
}

#[test]
fn a_segment_sealed_right_after_a_flush_frees_its_windows() {
    let mut log = writer(2, 0);
    log.append(&Record::put(Lsn(1), b"a", b"1")).unwrap();
    let all = log.take_flush(true).unwrap();
    log.seal();
    assert!(log.take_sealed().unwrap().to < all.to);
    log.provide_segment(segment(1));
    assert!(log.append(&Record::put(Lsn(2), b"b", b"")).is_err());
    flush(&mut log, all);
    log.append(&Record::put(Lsn(2), b"b", b"")).unwrap();
    // And with everything flushed before the seal.
    let all = log.take_flush(true).unwrap();
    flush(&mut log, all);
    log.seal();
    log.provide_segment(segment(2));
    log.append(&Record::put(Lsn(3), b"c", b"")).unwrap();
    assert_eq!(log.take_flush(false), None);
}

/// The record at `at`, if the ranges on `device` have it.
fn find(device: &BTreeMap<(u64, u32), Vec<u8>>, at: Pointer) -> Option<(RecordKind, Lsn, Vec<u8>)> {
    let segment = segment(at.segment().0 - 100);
    let mut up_to = device.range((segment.ordinal, 0)..=(segment.ordinal, at.offset()));
    let ((_, from), bytes) = up_to.next_back()?;
    let bytes = bytes.get((at.offset() - from) as usize..);
    let bytes = bytes.filter(|bytes| !bytes.is_empty())?;
    let here = identity(Kind::LogRecord, REGION, &segment, at.offset());
    match decode(bytes, here, Lsn(0)) {
        Decoded::Record(record, _) => Some((record.kind, record.lsn, record.value.to_vec())),
        other => panic!("{other:?} at {at}"),
    }
}

/// Any sequence: no record is lost, ranges follow each other without overlap, a byte that was handed
/// out to be flushed never changes.
#[test]
fn ranges_cover_every_record_once() {
    let mut windows_reused = 0;
    for seed in 0..100 {
        let random = Random::new(seed);
        let slots = 2 + random.below(4);
        let mut log = writer(slots, 3);
        let mut device = BTreeMap::new();
        let mut waiting = std::collections::VecDeque::new();
        let mut placed = vec![];
        let mut covered: Option<FlushRange> = None;
        let mut sealed = vec![];
        for _ in 0..300 {
            let lsn = Lsn(1 + placed.len() as u64);
            let value = vec![lsn.0 as u8; random.below(1 << random.below(13))];
            if let Ok(at) = log.append(&Record::put(lsn, b"key", &value)) {
                placed.push((at, lsn, value));
            }
            if log.wants_segment(0) && random.below(3) > 0 {
                let next = log.bounds().provided_end / u64::from(S);
                log.provide_segment(segment(next));
            }
            if random.below(30) == 0 {
                log.seal();
            }
            while let Some(point) = log.take_sealed() {
                sealed.push(point);
            }
            while let Some(range) = log.take_flush(random.below(12) == 0) {
                let follows = covered.is_none_or(|before| {
                    (before.ordinal, before.to) == (range.ordinal, range.from)
                        || (before.ordinal + 1 == range.ordinal && range.from == 0)
                });
                assert!(follows, "{covered:?} {range:?}");
                assert_eq!(range.from / W, (range.to - 1) / W, "in one window");
                let mut bytes = vec![0; (range.to - range.from) as usize];
                assert!(
                    log.windows()
                        .read(&segment(range.ordinal), range.from, &mut bytes)
                );
                waiting.push_back((range, bytes.clone()));
                device.insert((range.ordinal, range.from), bytes);
                covered = Some(range);
            }
            while random.below(4) == 0
                && let Some((range, bytes)) = waiting.pop_front()
            {
                let mut now = vec![0; bytes.len()];
                assert!(
                    log.windows()
                        .read(&segment(range.ordinal), range.from, &mut now)
                );
                assert!(now == bytes, "never changed since");
                flush(&mut log, range);
                windows_reused += usize::from(range.ordinal > 3);
            }
        }
        for (at, lsn, value) in &placed {
            let seal = sealed.iter().find(|point| point.number == at.segment());
            assert!(seal.is_none_or(|point| at.offset() < point.to));
            let found = find(&device, *at).unwrap_or_else(|| read(&log, *at));
            assert!(
                found == (RecordKind::Put, *lsn, value.clone()),
                "seed {seed}, {at}"
            );
        }
        assert!(placed.len() > 20, "seed {seed}");
    }
    assert!(windows_reused > 100, "{windows_reused}");
}

#[test]
fn a_log_that_rests_has_no_windows_and_continues_where_it_was() {
    let mut log = writer_of(Geometry::new(32 << 10, 16 << 10, 2), 0);
    let first = log.append(&Record::put(Lsn(1), b"key", &[7; 500])).unwrap();
    assert!(!log.is_settled(), "nobody has it durable");
    let taken = log.take_flush(true).unwrap();
    log.flushed_locally(taken.segment, taken.to);
    assert!(!log.is_settled(), "not every member has");
    log.flushed_everywhere(taken.segment, taken.to);
    assert!(!log.is_settled(), "no mark says so");
    log.set_durable(Lsn(1));
    log.append_mark().unwrap();
    let marked = log.take_flush(false).unwrap();
    flush(&mut log, marked);
    assert!(log.is_settled());

    let end = log.end();
    log.rest();
    let mut bytes = [0; 8];
    assert!(!log.windows().read(&segment(0), first.offset(), &mut bytes));
    let slots = [0, 1].map(|slot| Arc::clone(log.windows().memory(slot)));
    assert!(slots.iter().all(|slot| !slot.is_allocated()));
    assert_eq!(
        (log.end(), log.take_flush(true)),
        (end, None),
        "nothing was appended"
    );

    log.wake().unwrap();
    assert!(slots.iter().all(|slot| slot.is_allocated()));
    assert!(
        !log.windows().has(&segment(0), first.offset()),
        "the device has it"
    );
    let second = log.append(&Record::put(Lsn(2), b"key", &[8; 20])).unwrap();
    assert_eq!(second.offset() / BLOCK_BYTES, marked.to / BLOCK_BYTES);
    let mut bytes = [0; 60];
    assert!(log.windows().read(&segment(0), second.offset(), &mut bytes));
    let here = identity(Kind::LogRecord, REGION, &segment(0), second.offset());
    assert!(
        matches!(decode(&bytes, here, Lsn(0)), Decoded::Record(found, _) if found.lsn == Lsn(2))
    );
    let (name, _) = decode_window_header(&slots[0].read_vec(0, 64)).unwrap();
    assert_eq!((name.number, name.index), (SegmentNumber(100), 0));
    assert!(log.windows().resumes_at(&segment(0), marked.to));
    let flushed = log.take_flush(true).unwrap();
    assert_eq!(flushed, range(0, marked.to, marked.to + BLOCK_BYTES));
}

#[test]
fn a_log_rests_at_the_end_of_a_window_and_of_a_segment() {
    let mut log = writer(2, 0);
    let mut provided = 0;
    for lsn in 1..=8 {
        log.append(&Record::put(Lsn(lsn), b"key", &[7; 5000]))
            .unwrap();
        while let Some(taken) = log.take_flush(true) {
            flush(&mut log, taken);
        }
        log.set_durable(Lsn(lsn));
        log.append_mark().unwrap();
        let marked = log.take_flush(false).unwrap();
        flush(&mut log, marked);
        if lsn % 3 == 0 {
            log.seal();
        }
        log.rest();
        log.wake().unwrap();
        while log.wants_segment(0) {
            provided += 1;
            log.provide_segment(segment(provided));
        }
    }
    assert!(log.is_settled());
}
