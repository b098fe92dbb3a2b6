//! What clients and other servers send: requests of the Redis protocol, messages and calls, the beginning of a
//! native client, its bodies, the region map.

use std::time::Duration;

use argosy_base::{
    Change, Changed, Condition, Descriptor, Direction, EditSeq, Epoch, Expiry, Incarnation,
    KeyList, KeyRange, LogId, LogPosition, Lsn, MemoryKey, Moment, Outcome, Position, RegionId,
    SegmentNumber, ServerId, Standing, Wanted, WriteBatch, WriteOptions,
};
use argosy_wire::api::{
    Failure, Lease, Maintenance, Paging, Request, Response, Scratch, Sender, SnapshotId,
};
use argosy_wire::message::{HolderSession, LeaseAsked, LeaseMessage, Message, ObeyedEpoch};
use argosy_wire::native::{
    Hello, Long, MapRegion, MapServer, PartOf, Refusal, RegionMap, Values, Welcome, put_failure,
    put_keys, put_long, put_pair, put_value, read_failure, read_keys, split_pair,
};
use argosy_wire::resp::parse::{Parser, Step};

use super::{Target, input};

pub(crate) const TARGET: Target = Target {
    name: "wire",
    run,
    seeds,
};

fn run(data: &[u8]) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    match which % 8 {
        0 => resp(bytes),
        1 => message(bytes),
        2 => {
            let (mut scratch, mut other) = (Scratch::default(), Scratch::default());
            let _ = Request::decode(bytes, Sender::Client, &mut scratch);
            Request::decode(bytes, Sender::Server, &mut scratch).is_ok_and(|request| {
                let mut out = Vec::new();
                request.encode(&mut out);
                let again = Request::decode(&out, Sender::Server, &mut other);
                assert_eq!(again, Ok(request), "it is written and read again");
                true
            })
        }
        3 => Response::decode(bytes).is_ok_and(|response| {
            let mut out = Vec::new();
            response.encode(&mut out);
            let again = Response::decode(&out);
            assert_eq!(again, Ok(response), "it is written and read again");
            true
        }),
        4 => {
            let hello = bytes.first_chunk().map(Hello::decode);
            let welcome = bytes.first_chunk().map(Welcome::decode);
            matches!(hello, Some(Ok(_))) || matches!(welcome, Some(Ok(_)))
        }
        5 => RegionMap::decode(bytes).is_ok_and(|map| {
            let mut out = Vec::new();
            map.encode(&mut out);
            assert_eq!(RegionMap::decode(&out), Ok(map), "and read again");
            true
        }),
        6 => part(bytes),
        _ => bodies(bytes),
    }
}

fn message(bytes: &[u8]) -> bool {
    let Some((kind, payload)) = bytes.split_first() else {
        return false;
    };
    Message::decode(*kind, payload).is_ok_and(|message| {
        let mut out = Vec::new();
        message.encode(&mut out);
        let again = Message::decode(message.kind(), &out);
        assert_eq!(again.as_ref(), Ok(&message), "it is written and read again");
        true
    })
}

fn part(bytes: &[u8]) -> bool {
    PartOf::decode(bytes).is_ok_and(|part| {
        let mut out = Vec::new();
        part.encode(&mut out);
        out.extend_from_slice(part.bytes);
        assert!(out == bytes, "what was read is written as it was");
        part.long.parts() > 0
    })
}

fn bodies(bytes: &[u8]) -> bool {
    let mut values = Values::of(bytes);
    let mut all = true;
    while all && !values.is_over() {
        all = values.next_value().is_ok();
    }
    let long = Long::decode(bytes).map(|long| long.parts());
    let (pair, keys) = (
        split_pair(bytes).is_ok(),
        read_keys(bytes, &mut KeyList::default()).is_ok(),
    );
    pair || keys || read_failure(bytes).is_ok() || long.is_ok() || all
}

/// Whatever comes in pieces is read as it is read at once.
fn resp(bytes: &[u8]) -> bool {
    let mut parser = Parser::default();
    let mut rest = bytes;
    let mut given = 0;
    let mut found = false;
    while given < rest.len() {
        given = (given + 1 + given / 2).min(rest.len());
        match parser.parse(&rest[..given]) {
            Err(_) => return found,
            Ok(Step::Request { bytes: len, .. }) => {
                let _ = parser.args(&rest[..given]);
                rest = &rest[len..];
                given = 0;
                found = true;
            }
            Ok(Step::Discard { bytes } | Step::Oversized { bytes, .. }) => {
                rest = &rest[bytes..];
                given = 0;
            }
            Ok(Step::Long { bytes, .. }) => {
                parser.take_long();
                rest = &rest[bytes..];
                let taken = parser.long_left().unwrap_or(0).min(rest.len());
                parser.took_long(taken);
                rest = &rest[taken..];
                given = 0;
                found = true;
            }
            Ok(Step::Incomplete) => {}
        }
    }
    found
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![
        input(
            0,
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nSET k 'v \\x00'\r\n*0\r\n",
        ),
        input(
            0,
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2097152\r\nthe beginning",
        ),
        input(4, &hello()),
        input(4, &welcome()),
        input(4, &Refusal::NoRoom("later".to_owned()).encode()),
    ];
    let leases = lease_messages().into_iter().map(Message::Lease);
    for message in messages().into_iter().chain(leases) {
        let mut bytes = vec![message.kind()];
        message.encode(&mut bytes);
        seeds.push(input(1, &bytes));
    }
    with_requests(|request| {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        seeds.push(input(2, &bytes));
    });
    for response in responses() {
        let mut bytes = Vec::new();
        response.encode(&mut bytes);
        seeds.push(input(3, &bytes));
    }
    let mut bytes = Vec::new();
    map().encode(&mut bytes);
    seeds.push(input(5, &bytes));
    seeds.extend(native());
    seeds
}

fn hello() -> [u8; Hello::BYTES] {
    let hello = Hello {
        lowest: 1,
        highest: 9,
        requests: 4096,
        replies: 8192,
    };
    hello.encode()
}

fn welcome() -> [u8; Welcome::BYTES] {
    let welcome = Welcome {
        version: 9,
        server: ServerId(2),
        incarnation: Incarnation(3),
        cluster: 1 << 100,
        requests: 4096,
        replies: 8192,
        map: 77,
    };
    welcome.encode()
}

fn messages() -> Vec<Message<'static>> {
    let log = LogPosition {
        ordinal: 3,
        segment: SegmentNumber(70),
        end: 5000,
        flushed: 4096,
    };
    let position = Position {
        edit: EditSeq(9),
        lsn: Lsn(1 << 40),
        logs: [(LogId::FIRST, log)].into_iter().collect(),
    };
    vec![
        Message::Report {
            attempt: 2,
            position,
            standing: Standing::BegunAnew,
            windows: vec![Descriptor {
                key: MemoryKey(3 << 56),
                grant: 9,
            }],
        },
        Message::Offer {
            attempt: 1,
            seq: EditSeq(4),
            len: 9,
            bytes: b"edit",
        },
        Message::More {
            attempt: 1,
            seq: EditSeq(4),
            from: 4,
            bytes: b"parts",
        },
        Message::MoreWanted {
            attempt: 1,
            seq: EditSeq(4),
            to: 9,
        },
        Message::Stored {
            attempt: 1 << 40,
            slot: 1,
        },
        Message::Fetch {
            segment: SegmentNumber(1),
            from: 0,
            to: 4096,
            slot: 3,
        },
        Message::Places {
            attempt: 3,
            places: vec![(SegmentNumber(1), argosy_base::DeviceSegment(4))],
        },
        Message::Compact { upto: Lsn(1 << 40) },
        Message::Compacted { upto: Lsn(7) },
        Message::Call(b"\x01\x01k"),
        Message::Answer(b"\x04\x4d"),
    ]
}

/// One of each kind of message about leases.
fn lease_messages() -> Vec<LeaseMessage> {
    let session = HolderSession {
        incarnation: Incarnation(5),
        number: 65_537,
    };
    let asked = LeaseAsked {
        session,
        number: 9,
        term: Duration::from_secs(1),
    };
    vec![
        LeaseMessage::Wanted(asked),
        LeaseMessage::Granted { asked, rise: 2 },
        LeaseMessage::HandedBack {
            incarnation: Incarnation(5),
            through: 9,
        },
        LeaseMessage::EpochsRisen {
            rise: 1,
            goes_on: false,
            epochs: vec![ObeyedEpoch {
                region: RegionId(1),
                epoch: Epoch(2),
            }],
        },
        LeaseMessage::ViewsTaken { session, rise: 1 },
    ]
}

/// Sees each of some requests.
fn with_requests(mut see: impl FnMut(Request<'_>)) {
    let written = "they are within the limits";
    let mut batch = WriteBatch::new();
    let mut write = |batch: &WriteBatch, condition| {
        let options = WriteOptions {
            condition,
            return_previous: true,
        };
        see(Request::Write { batch, options });
    };
    let put = batch.put_until(b"a", b"1", Expiry::After(1 << 50));
    put.and_then(|()| batch.delete(b"b")).expect(written);
    batch.expect(b"old").expect(written);
    write(&batch, Condition::Equals);
    batch.clear();
    let range = KeyRange::new("a", Some(b"b".to_vec()));
    batch.delete_range(&range).expect(written);
    write(&batch, Condition::Version(Lsn(9)));
    batch.clear();
    batch.change(b"a", Change::Append, b"1").expect(written);
    write(&batch, Condition::Always);
    batch.clear();
    let put = batch.put(b"a", b"1");
    put.and_then(|()| batch.put(b"b", b"")).expect(written);
    see(Request::Ingest { batch: &batch });
    let at = Some(SnapshotId(1 << 50));
    let paging = Paging {
        direction: Direction::Down,
        pairs_max: 10,
        bytes_max: 1 << 20,
        keys_only: true,
        at,
    };
    let range = &range;
    see(Request::Scan { range, paging });
    let keys = &KeyList::of([&b"k"[..], b"", b"kk"]);
    let wanted = Wanted::Values(1 << 40);
    see(Request::GetMany { keys, wanted, at });
    let lease = Lease::Renew(std::time::Duration::from_secs(60));
    see(Request::Snapshot { id: at, lease });
    let what = Maintenance::Compact;
    see(Request::Maintain { what });
}

fn responses() -> Vec<Response> {
    let outcome = Outcome::NotApplied;
    let what = "full".to_owned();
    vec![
        Response::Values(vec![Some(b"v".to_vec()), None, Some(vec![])]),
        Response::Expiry {
            len: Some(300),
            at: Some(Moment(7)),
            now: Moment(5),
        },
        Response::Versioned {
            value: Some(b"v".to_vec()),
            version: Lsn(u64::MAX),
        },
        Response::Written {
            applied: true,
            existed: vec![true, false],
            previous: vec![Some(b"x".to_vec()), None],
            changed: Some(Changed::Number(-7)),
        },
        Response::Page {
            pairs: vec![(b"k".to_vec(), b"v".to_vec()), (b"l".to_vec(), vec![])],
            next: Some(b"m".to_vec()),
        },
        Response::Failed(Failure::Busy { what, outcome }),
    ]
}

fn map() -> RegionMap {
    let region = |id, range| MapRegion {
        id: RegionId(id),
        range,
        epoch: Epoch(7),
        primary: ServerId(id),
    };
    let server = |id| MapServer {
        id: ServerId(id),
        resp: "127.0.0.1:7379".to_owned(),
        native: "native.sock".to_owned(),
    };
    RegionMap {
        servers: vec![server(1), server(2)],
        regions: vec![
            region(1, KeyRange::new(b"", Some(b"m".to_vec()))),
            region(2, KeyRange::new(b"m", None)),
        ],
    }
}

fn native() -> Vec<Vec<u8>> {
    let long = Long {
        version: 5,
        len: 100,
        part_len: 60,
        checksum: 7,
    };
    let part = PartOf {
        long,
        index: 1,
        at: None,
        key: b"key",
        bytes: b"",
    };
    let mut bodies = vec![Vec::new(); 4];
    part.encode(&mut bodies[0]);
    bodies[0].extend_from_slice(b"bytes");
    put_pair(b"key", &mut bodies[1]);
    put_keys(
        [&b"a"[..], b"bc"].into_iter(),
        Some(SnapshotId(9)),
        &mut bodies[2],
    );
    put_value(Some(b"v"), &mut bodies[3]);
    put_value(None, &mut bodies[3]);
    put_long(&long, &mut bodies[3]);
    let mut failed = Vec::new();
    let (what, outcome) = ("lost".to_owned(), Outcome::Unknown);
    put_failure(&Failure::Storage { what, outcome }, &mut failed);
    bodies.extend([failed, long.encode().to_vec()]);
    let place = |(at, body): (usize, Vec<u8>)| input(if at == 0 { 6 } else { 7 }, &body);
    bodies.into_iter().enumerate().map(place).collect()
}
