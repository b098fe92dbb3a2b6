//! Round trips of requests and responses, and bytes that are neither.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use argosy_base::limits::{BATCH_RANGES_MAX, KEY_BYTES_MAX};
use argosy_base::{
    BatchError, Change, Changed, ClientId, Condition, Direction, Expiry, Guard, KeyList, KeyRange,
    Lsn, Moment, Only, Outcome, Refusal, RequestName, Seen, Wanted, WriteBatch, WriteOptions,
};

use super::*;

/// Sees each of some requests.
fn with_requests(mut see: impl FnMut(Request<'_>)) {
    let key = &b"k"[..];
    see(Request::Get { key });
    see(Request::GetVersion { key });
    see(Request::Expiry { key });
    see(Request::Count);
    let keys = &KeyList::of([&b"k"[..], b"", b"kk"]);
    for (wanted, at) in [
        (Wanted::Values(1 << 40), Some(SnapshotId(1 << 50))),
        (Wanted::Presence, None),
    ] {
        see(Request::GetMany { keys, wanted, at });
        see(Request::Examine { keys, wanted });
    }
    let minute = Duration::from_secs(60);
    for (id, lease) in [
        (None, Lease::Open(minute)),
        (Some(SnapshotId(1)), Lease::Renew(Duration::from_millis(1))),
        (Some(SnapshotId(u64::MAX)), Lease::Close),
    ] {
        see(Request::Snapshot { id, lease });
    }
    for what in [Maintenance::Flush, Maintenance::Compact] {
        see(Request::Maintain { what });
    }
    let paging = Paging {
        direction: Direction::Up,
        pairs_max: 10,
        bytes_max: 1 << 20,
        keys_only: true,
        at: Some(SnapshotId(u64::MAX)),
    };
    let range = &KeyRange::new("", Some(b"z".to_vec()));
    see(Request::Scan { range, paging });
    let paging = Paging {
        direction: Direction::Down,
        keys_only: false,
        at: None,
        ..paging
    };
    let range = &KeyRange::new("a", None);
    see(Request::Scan { range, paging });
    with_batches(see);
}

/// What a batch may have been computed on.
const SEEN: [Seen<'static>; 2] = [
    Seen {
        key: b"s",
        bound: true,
        version: Lsn(300),
    },
    Seen {
        key: b"sealed",
        bound: false,
        version: Lsn(0),
    },
];

/// The name of a write.
const NAME: RequestName = RequestName {
    client: ClientId(u64::MAX),
    seq: 300,
};

fn with_batches(mut see: impl FnMut(Request<'_>)) {
    let mut write = |batch: &WriteBatch, condition, return_previous| {
        let options = WriteOptions {
            condition,
            return_previous,
        };
        see(Request::Write { batch, options });
    };
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").unwrap();
    batch.delete(b"b").unwrap();
    batch.put_until(b"c", b"", Expiry::Keep).unwrap();
    let at = Expiry::At(Moment(u64::MAX));
    batch.put_until(b"d", b"2", at).unwrap();
    write(&batch, Condition::Absent, true);
    write(&batch, Condition::Version(Lsn(1 << 40)), false);
    batch.expect(b"old").unwrap();
    write(&batch, Condition::Equals, false);
    batch.clear();
    for to in [Some(b"b".to_vec()), None] {
        batch.delete_range(&KeyRange::new("a", to)).unwrap();
    }
    write(&batch, Condition::Always, false);
    batch.guard(b"head", Guard::Present);
    write(&batch, Condition::Present, false);
    let (version, change) = (u128::MAX - 7, -3);
    batch.guard(b"head", Guard::Counts { version, change });
    write(&batch, Condition::Always, false);
    for seen in SEEN {
        batch.saw(seen).unwrap();
    }
    write(&batch, Condition::Always, false);
    batch.clear();
    batch.saw(SEEN[0]).unwrap();
    write(&batch, Condition::Always, false);
    let ten = Expiry::After(10);
    for change in [
        Change::Add(-7),
        Change::Append,
        Change::Expire(ten, Only::Later),
    ] {
        batch.clear();
        batch.change(b"k", change, b"operand").unwrap();
        write(&batch, Condition::Always, true);
        batch.name(NAME);
        write(&batch, Condition::Always, true);
    }
    batch.clear();
    write(&batch, Condition::Always, false);
    batch.put(b"a", b"1").unwrap();
    batch.put(b"b", b"").unwrap();
    let batch = &batch;
    see(Request::Ingest { batch });
}

fn responses() -> Vec<Response> {
    let written = |changed| Response::Written {
        applied: true,
        existed: vec![true, false],
        previous: vec![Some(b"x".to_vec()), None],
        changed,
    };
    let failed = |outcome| {
        let what = "full".into();
        Response::Failed(Failure::Busy { what, outcome })
    };
    vec![
        Response::Done,
        Response::WrittenBefore {
            version: Lsn(u64::MAX),
        },
        Response::Failed(Failure::Forgotten("long ago".into())),
        Response::Snapshot(Some(SnapshotId(u64::MAX))),
        Response::Snapshot(None),
        Response::Values(vec![Some(b"v".to_vec()), None, Some(vec![])]),
        Response::Examined {
            now: Moment(300),
            found: vec![
                Examined {
                    value: Some(b"v".to_vec()),
                    expiry: Some(Moment(301)),
                    version: Lsn(u64::MAX),
                },
                Examined::default(),
            ],
        },
        Response::Expiry {
            len: Some(300),
            at: Some(Moment(7)),
            now: Moment(5),
        },
        Response::Expiry {
            len: None,
            at: None,
            now: Moment(5),
        },
        Response::Versioned {
            value: Some(b"v".to_vec()),
            version: Lsn(u64::MAX),
        },
        Response::Value(None),
        Response::Value(Some(vec![])),
        written(None),
        written(Some(Changed::Number(-7))),
        written(Some(Changed::Refused(Refusal::Long))),
        written(Some(Changed::Value(b"0.5".to_vec()))),
        Response::Page {
            pairs: vec![(b"k".to_vec(), b"v".to_vec())],
            next: Some(b"l".to_vec()),
        },
        Response::Count(77),
        Response::Failed(Failure::Invalid("no".into())),
        failed(Outcome::NotApplied),
        failed(Outcome::Unknown),
    ]
}

fn decoded(bytes: &[u8], scratch: &mut Scratch) -> Result<(), BadRequest> {
    Request::decode(bytes, Sender::Server, scratch).map(drop)
}

#[test]
fn a_request_that_is_kept_is_the_same() {
    let mut scratch = Scratch::default();
    with_requests(|request| {
        let plan = scratch.keep(request);
        assert_eq!(scratch.request(plan), request);
    });
}

#[test]
fn requests_return_as_they_were() {
    let mut scratch = Scratch::default();
    with_requests(|request| {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let read = Request::decode(&bytes, Sender::Server, &mut scratch);
        assert_eq!(read, Ok(request));
    });
}

#[test]
fn responses_return_as_they_were() {
    for response in responses() {
        let mut bytes = Vec::new();
        response.encode(&mut bytes);
        assert_eq!(Response::decode(&bytes), Ok(response));
    }
}

#[test]
fn what_is_cut_or_padded_is_refused() {
    let mut scratch = Scratch::default();
    with_requests(|request| {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        for cut in 0..bytes.len() {
            let short = decoded(&bytes[..cut], &mut scratch);
            assert!(short.is_err(), "{request:?} at {cut}");
        }
        bytes.push(0);
        assert!(decoded(&bytes, &mut scratch).is_err(), "{request:?} padded");
    });
    for response in responses() {
        let mut bytes = Vec::new();
        response.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert!(Response::decode(&bytes[..cut]).is_err(), "{response:?}");
        }
        bytes.push(0);
        assert!(Response::decode(&bytes).is_err(), "{response:?} padded");
    }
}

#[test]
fn the_bytes_are_those_of_the_grammar() {
    let bytes_of = |request: Request<'_>| {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        bytes
    };
    let mut batch = WriteBatch::new();
    batch.put_until(b"k", b"v", Expiry::After(9)).unwrap();
    batch
        .delete_range(&KeyRange::new("l", Some(b"m".to_vec())))
        .unwrap();
    batch.guard(b"g", Guard::Present);
    batch.saw(SEEN[0]).unwrap();
    batch.name(RequestName {
        client: ClientId(258),
        seq: 300,
    });
    let options = WriteOptions::default();
    assert_eq!(
        bytes_of(Request::Write {
            batch: &batch,
            options
        }),
        b"\x02\x00\x00\x00\x05\x02\x01k\x01v\x03\x09\x03\x01l\x01m\x04\x01g\x05\x01s\x01\xac\x02\
          \x06\x02\x01\x00\x00\x00\x00\x00\x00\xac\x02"
    );
    let lease = Lease::Open(Duration::from_micros(1500));
    assert_eq!(
        bytes_of(Request::Snapshot { id: None, lease }),
        [7, 1, 0, 2]
    );
}

#[test]
fn clients_write_keys_of_users_only() {
    let mut scratch = Scratch::default();
    let mut bytes = Vec::new();
    let mut batch = WriteBatch::new();
    batch.put_any(&[0xff; 9], b"part", Expiry::Never).unwrap();
    let options = WriteOptions::default();
    let request = Request::Write {
        batch: &batch,
        options,
    };
    request.encode(&mut bytes);
    assert_eq!(decoded(&bytes, &mut scratch), Ok(()));
    let refused = Request::decode(&bytes, Sender::Client, &mut scratch);
    assert_eq!(refused, Err(BadRequest::Limit(BatchError::KeyReserved)));

    let guarded = b"\x02\x00\x00\x00\x01\x04\x01g";
    let computed = b"\x02\x00\x00\x00\x01\x05\x01g\x00\x07";
    let examines = b"\x0b\x00\x01\x01k\x00";
    for bytes in [&guarded[..], computed, examines] {
        assert_eq!(decoded(bytes, &mut scratch), Ok(()));
        let refused = Request::decode(bytes, Sender::Client, &mut scratch);
        assert!(matches!(refused, Err(BadRequest::Malformed(_))));
    }
}

#[test]
fn what_a_batch_may_not_be_is_refused() {
    let mut scratch = Scratch::default();
    let empty = decoded(b"\x02\x00\x00\x00\x01\x01\x00\x01v", &mut scratch);
    assert_eq!(empty, Err(BadRequest::Limit(BatchError::KeyEmpty)));
    let mut ranges = b"\x02\x00\x00\x00".to_vec();
    argosy_base::codec::put_varint(&mut ranges, BATCH_RANGES_MAX as u64 + 1);
    for _ in 0..=BATCH_RANGES_MAX {
        ranges.extend_from_slice(b"\x03\x01a\x01b");
    }
    let many = decoded(&ranges, &mut scratch);
    assert_eq!(many, Err(BadRequest::Limit(BatchError::TooManyRanges)));
    for (malformed, why) in [
        (&b"\x02\x00\x00\x03\x00\x00"[..], "a change of nothing"),
        (b"\x02\x00\x00\x03\x00\x01\x00\x01k", "a change by a delete"),
        (
            b"\x02\x00\x00\x63\x00\x01\x01\x01k\x00",
            "an unknown change",
        ),
        (
            b"\x02\x00\x00\x00\x01\x02\x01k\x00\x04\x00",
            "an unknown expiry",
        ),
        (b"\x02\x00\x00\x00\x01\x07\x01k", "an unknown operation"),
        (b"\x02\x00\x00\x00\x01\x06\x01k", "half a name"),
        (b"\x0b\x00\x01\x01k\x07", "to examine a snapshot"),
        (b"\x02\x05\x00\x00\x00", "an unknown condition"),
    ] {
        let read = decoded(malformed, &mut scratch);
        assert!(matches!(read, Err(BadRequest::Malformed(_))), "{why}");
    }
    let long = [&[1, 0x81, 0x20][..], &[b'k'; KEY_BYTES_MAX + 1]].concat();
    assert!(decoded(&long, &mut scratch).is_err(), "too long a key");
}

#[test]
fn a_scan_that_is_wanted_in_an_unknown_way_is_refused() {
    let mut scratch = Scratch::default();
    for how in 0..=u8::MAX {
        let read = decoded(&[3, 0, 0, 1, 1, how, 0], &mut scratch);
        assert_eq!(read.is_ok(), how < 4, "{how}");
    }
}

#[test]
fn no_bytes_make_the_decoders_panic() {
    let mut scratch = Scratch::default();
    let mut state = 7u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..1 + random() % 40)
            .map(|_| (random() & 0xff) as u8)
            .collect();
        bytes[0] %= 14;
        let _ = decoded(&bytes, &mut scratch);
        let _ = Request::decode(&bytes, Sender::Client, &mut scratch);
        let _ = Response::decode(&bytes);
    }
}
