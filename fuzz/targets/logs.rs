//! Logs: records with all their options, the segments and windows in which they stand, the recovery of a history
//! from whatever is there, and the feed of a member that makes its own levels.

use std::ops::ControlFlow;
use std::sync::Arc;

use argosy_base::{
    ClientId, Epoch, Identity, Incarnation, Kind, LogId, Lsn, RegionId, RequestName, SegmentNumber,
};
use argosy_log::feed::{Fed, Feed};
use argosy_log::record::{Decoded, decode};
use argosy_log::segment::{
    HeaderError, SEGMENT_HEADER_BYTES, WINDOW_HEADER_BYTES, check_segment_header,
    decode_window_header, encode_segment_header, encode_window_header, named_by_header,
};
use argosy_log::verify::visit_records;
use argosy_log::{Geometry, Holes, LogLayout, Record, RecordKind, Recovery, Writer, recover};
use argosy_lsm::names::logs::{LARGE_LOG, LOGS, RECOVERY_LOG};
use argosy_lsm::{LogPoint, LogSegment};
use argosy_memory::{BootId, SharedMemory};

use super::{Target, input};

pub(crate) const TARGET: Target = Target {
    name: "logs",
    run,
    seeds,
};

const REGION: RegionId = RegionId(1);
const SEGMENT: usize = 32 << 10;
const WINDOW: usize = SEGMENT / 2;
/// Of an input of windows, bytes of each: its header and as much of what it holds.
const WINDOW_INPUT: usize = 64 + 8192;

fn geometry() -> Geometry {
    Geometry::new(SEGMENT, WINDOW, 4)
}

fn segment(log: LogId, sealed: bool) -> LogSegment {
    LogSegment {
        log,
        ordinal: 0,
        number: SegmentNumber(1 + u64::from(log.raw())),
        epoch: Epoch(1),
        base_lsn: Lsn(1),
        end: sealed.then_some(u32::try_from(SEGMENT).expect("segments are short")),
    }
}

/// Of a device with the recovery log's segment and then the large log's, which are `bytes`.
fn reader(bytes: &[u8]) -> impl FnMut(&LogSegment, u32, &mut [u8]) -> Result<(), ()> {
    |segment: &LogSegment, at: u32, out: &mut [u8]| {
        let skip = at as usize + usize::from(segment.log == LARGE_LOG) * SEGMENT;
        let from = bytes.get(skip..).unwrap_or_default();
        let len = from.len().min(out.len());
        out[..len].copy_from_slice(&from[..len]);
        out[len..].fill(0);
        Ok(())
    }
}

fn run(data: &[u8]) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    match which % 8 {
        0 => {
            let here = Identity::of_server(Kind::LogRecord, 0);
            matches!(decode(bytes, here, Lsn(1)), Decoded::Record(..))
        }
        1 => {
            let mut found = false;
            let mut visit = |_: u32, _: Record<'_>| {
                found = true;
                ControlFlow::Continue(())
            };
            let segment = segment(RECOVERY_LOG, which & 8 != 0);
            let of = LogLayout {
                region: REGION,
                geometry: geometry(),
            };
            let _ = visit_records(of, &segment, &mut reader(bytes), &mut visit);
            found
        }
        2 => headers(bytes),
        3 => feed(bytes),
        4 | 5 => {
            let slots = windows(bytes);
            let device = if which % 8 == 5 { bytes } else { &[] };
            recovered(*which, device, [&slots[0], &slots[1]])
        }
        _ => recovered(*which, bytes, [&[], &[]]),
    }
}

fn headers(bytes: &[u8]) -> bool {
    let window = decode_window_header(bytes);
    let log = check_segment_header(bytes, REGION, &segment(RECOVERY_LOG, false));
    let known = |error: HeaderError| !error.to_string().is_empty();
    assert!(window.is_ok() || window.is_err_and(known));
    named_by_header(bytes).is_some() || log.is_ok() || window.is_ok()
}

/// The two logs, one after the other, a range of each window.
fn feed(bytes: &[u8]) -> bool {
    let mut feed = Feed::<{ LOGS.len() }>::new(REGION, geometry(), Lsn(0));
    let mut found = false;
    for (log, bytes) in LOGS.into_iter().zip(bytes.chunks(SEGMENT)) {
        let segment = segment(log, false);
        for (window, bytes) in (0..).zip(bytes.chunks(WINDOW)) {
            let range = Fed {
                segment: &segment,
                from: window * u32::try_from(WINDOW).expect("windows are short"),
                bytes,
            };
            let fed = feed.feed(range, |replayed| {
                found = true;
                let _ = (replayed.range(), replayed.time());
            });
            if fed.is_err() {
                return found;
            }
        }
    }
    found
}

/// Windows that survived, two of each log.
fn windows(bytes: &[u8]) -> [Vec<Option<Arc<SharedMemory>>>; 2] {
    let mut pieces = bytes.chunks(WINDOW_INPUT);
    let slots = geometry().slots();
    LOGS.map(|_| {
        let mut windows: Vec<_> = pieces
            .by_ref()
            .take(2)
            .map(|bytes| {
                let memory = SharedMemory::anonymous(geometry().slot_bytes());
                let (header, rest) = bytes.split_at(bytes.len().min(64));
                memory.write(0, header);
                memory.write(WINDOW_HEADER_BYTES, rest);
                Some(Arc::new(memory))
            })
            .collect();
        windows.resize(slots, None);
        windows
    })
}

fn recovered(which: u8, device: &[u8], windows: [&[Option<Arc<SharedMemory>>]; 2]) -> bool {
    let sealed = which & 8 != 0;
    let chains = LOGS.map(|log| [segment(log, sealed)]);
    let points = LOGS.map(|log| LogPoint {
        log,
        number: segment(log, sealed).number,
        to: 64 * u32::from(which),
    });
    let recovery = Recovery {
        region: REGION,
        geometry: geometry(),
        chains: [&chains[0], &chains[1]],
        points: &points,
        windows,
        replay_from: Lsn(1),
        durable: Lsn(u64::from(which >> 5)),
        holes: match which & 16 {
            0 => Holes::Judged,
            _ => Holes::Passed,
        },
        written: &|_| u32::try_from(device.len()).unwrap_or(u32::MAX),
    };
    let mut found = false;
    let _ = recover(&recovery, reader(device), |replayed| {
        found = true;
        let _ = (replayed.range(), replayed.time());
    });
    found
}

/// The beginning of the segment of `log`: a header, and records of all kinds, every other of which is in the other log.
fn log(log: LogId) -> Vec<u8> {
    let segment = segment(log, false);
    let mut bytes = encode_segment_header(REGION, &segment).to_vec();
    assert_eq!(bytes.len(), SEGMENT_HEADER_BYTES as usize);
    for (at, record) in records().into_iter().enumerate() {
        let large = record.kind == RecordKind::Put && at % 2 == 1;
        if large == (log == LARGE_LOG) {
            let here = Identity::of_server(Kind::LogRecord, 0);
            record.encode(here, segment.base_lsn, &mut bytes);
        }
    }
    bytes
}

fn records() -> Vec<Record<'static>> {
    let mut records = vec![
        Record::put(Lsn(1), b"key", b"value"),
        Record::put(Lsn(2), b"large", &[b'v'; 2000]),
        Record::delete(Lsn(3), b"gone"),
        Record {
            more: true,
            request: Some(RequestName {
                client: ClientId(7),
                seq: 8,
            }),
            expiry: Some(1 << 40),
            ..Record::put(Lsn(4), b"first", b"of two")
        },
        Record::delete_range(Lsn(5), b"a", Some(b"b")),
        Record {
            chunk: true,
            more: true,
            ..Record::put(Lsn(6), b"cut", &[b'c'; 300])
        },
        Record::put(Lsn(7), b"", b"its end"),
        Record::time(Lsn(8), 1 << 41),
        Record::mark(Lsn(5)),
    ];
    // The parts of a value are in one log.
    records.insert(6, Record::closing_mark(Lsn(4)));
    records
}

fn seeds() -> Vec<Vec<u8>> {
    let here = Identity::of_server(Kind::LogRecord, 0);
    let mut seeds = Vec::new();
    for record in records() {
        let mut bytes = Vec::new();
        record.encode(here, Lsn(1), &mut bytes);
        seeds.push(input(0, &bytes));
    }
    let logs = LOGS.map(log);
    let mut device = logs[0].clone();
    device.resize(SEGMENT, 0);
    device.extend_from_slice(&logs[1]);
    let mut windows = Vec::new();
    let writer = Writer {
        boot: BootId(5),
        incarnation: Incarnation(6),
    };
    for (log, bytes) in LOGS.into_iter().zip(&logs) {
        let header = encode_window_header(REGION, &segment(log, false), 0, writer);
        windows.extend_from_slice(&header);
        windows.extend_from_slice(bytes);
        windows.resize(windows.len().next_multiple_of(WINDOW_INPUT), 0);
        windows.resize(windows.len() + WINDOW_INPUT, 0);
        seeds.push(input(2, &header));
        seeds.push(input(2, bytes));
    }
    seeds.push(input(1, &logs[0]));
    seeds.push(input(3, &device));
    seeds.push(input(4, &windows));
    seeds.push(input(6, &device));
    seeds.push(input(6 + 16, &device));
    seeds
}
