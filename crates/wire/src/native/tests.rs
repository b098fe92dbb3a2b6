//! The protocol over plain memory, and against bytes of all kinds.

use alloc::string::ToString;
use alloc::vec;
use core::cell::RefCell;

use argosy_base::{Epoch, Incarnation, KeyList, KeyRange, Outcome, RegionId, ServerId, Shared};
use proptest::prelude::*;

use super::*;
use crate::api::{Failure, SnapshotId};

/// A connection's memory without another process.
struct Plain(RefCell<Vec<u8>>);

use alloc::vec::Vec;

impl Plain {
    fn new(shape: Shape) -> Self {
        Self(RefCell::new(vec![0; shape.bytes()]))
    }
}

impl Shared for Plain {
    fn load(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0.borrow()[at..at + 8].try_into().unwrap())
    }
    fn store(&self, at: usize, word: u64) {
        self.0.borrow_mut()[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    fn read(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.borrow()[at..at + out.len()]);
    }
    fn write(&self, at: usize, bytes: &[u8]) {
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }
    fn zero(&self, at: usize, len: usize) {
        self.0.borrow_mut()[at..at + len].fill(0);
    }
}

fn shape() -> Shape {
    Shape::new(4096, 8192).unwrap()
}

fn request(id: u32) -> Request {
    Request {
        op: Op::Put,
        flags: Flags::IF_ABSENT,
        id,
        region: RegionId(3),
        epoch: Epoch(7),
        slot: Slot {
            offset: 96,
            bytes: 128,
        },
    }
}

const fn reply(status: Status, id: u32) -> ReplyHeader {
    ReplyHeader {
        status,
        flags: Flags::APPLIED,
        id,
        needed: 0,
        map: 0xfeed,
    }
}

#[test]
fn messages_are_multiples_of_the_header() {
    assert_eq!(message_bytes(0), 64);
    assert_eq!(message_bytes(28), 64);
    assert_eq!(message_bytes(29), 96);
}

#[test]
fn requests_of_all_lengths_go_round_the_ring() {
    let (memory, shape) = (Plain::new(shape()), shape());
    let (mut writer, mut reader) = (RequestWriter::new(shape), RequestReader::new(shape));
    let mut payload = Vec::new();
    let mut laid = 0;
    for lap in 0..40u32 {
        for len in [0, 1, 28, 29, 500, 1337, shape.payload_max()] {
            let bytes = vec![u8::try_from(lap).unwrap(); len];
            while let Err(error) = writer.push(
                &memory,
                request(laid),
                &[&bytes[..len / 2], &bytes[len / 2..]],
            ) {
                assert_eq!(error, LayError::Full);
                // A NOOP may have to be taken first.
                assert_eq!(reader.next(&memory, &mut payload), Ok(None));
                reader.publish(&memory);
            }
            assert!(reader.has_next(&memory));
            assert_eq!(reader.next(&memory, &mut payload), Ok(Some(request(laid))));
            assert_eq!(payload, bytes);
            reader.publish(&memory);
            assert!(writer.is_taken(&memory));
            laid += 1;
        }
    }
    let ring = &memory.0.borrow()[REQUESTS_AT..shape.replies_at()];
    assert!(ring.iter().all(|byte| *byte == 0), "what was taken is zero");
}

#[test]
fn a_ring_that_is_not_read_fills_and_loses_nothing() {
    let (memory, shape) = (Plain::new(shape()), shape());
    let (mut writer, mut reader) = (RequestWriter::new(shape), RequestReader::new(shape));
    let mut laid = 0;
    while writer.push(&memory, request(laid), &[&[1; 100]]).is_ok() {
        laid += 1;
    }
    assert_eq!(laid, 25, "160 bytes each");
    let mut payload = Vec::new();
    for id in 0..laid {
        assert_eq!(reader.next(&memory, &mut payload), Ok(Some(request(id))));
    }
    assert_eq!(
        writer.push(&memory, request(0), &[&[1; 100]]),
        Err(LayError::Full)
    );
    reader.publish(&memory);
    assert_eq!(
        writer.push(&memory, request(0), &[&[1; 4000]]),
        Err(LayError::Full)
    );
    let max = shape.payload_max();
    let long = vec![0; max + 1];
    let refused = writer.push(&memory, request(0), &[&long]);
    assert_eq!(refused, Err(LayError::TooLarge { len: max + 1, max }));
}

#[test]
fn what_was_not_taken_is_known() {
    let (memory, shape) = (Plain::new(shape()), shape());
    let (mut writer, mut reader) = (RequestWriter::new(shape), RequestReader::new(shape));
    let first = writer.push(&memory, request(0), &[&[1; 4000]]).unwrap();
    assert!(!first.is_taken(&memory));
    reader.next(&memory, &mut Vec::new()).unwrap();
    reader.publish(&memory);
    assert!(first.is_taken(&memory));
    while reader.next(&memory, &mut Vec::new()) == Ok(None) {
        reader.publish(&memory);
        let _ = writer.push(&memory, request(0), &[&[1; 4000]]);
    }
    writer.push(&memory, request(0), &[&[1; 8]]).unwrap_err();
    reader.publish(&memory);
    let second = writer.push(&memory, request(0), &[&[1; 4000]]);
    let _ = (
        second,
        assert!(first.is_taken(&memory), "another lies in its place"),
    );
}

#[test]
fn replies_come_in_their_slots_or_say_what_they_need() {
    let (memory, shape) = (Plain::new(shape()), shape());
    let slot = request(0).slot;
    let mut payload = Vec::new();
    let mut read = |id| {
        let found = read_reply(&memory, shape, slot, id, &mut payload).unwrap();
        memory.store(shape.replies_at() + slot.offset + 24, 0);
        found.map(|reply| (reply, payload.clone()))
    };
    assert_eq!(read(5), None);
    write_reply(
        &memory,
        shape,
        slot,
        reply(Status::Value, 5),
        &[b"fifty", b" oars"],
    );
    assert_eq!(
        read(5),
        Some((reply(Status::Value, 5), b"fifty oars".to_vec()))
    );
    write_reply(&memory, shape, slot, reply(Status::Value, 6), &[&[9; 92]]);
    assert_eq!(read(6).unwrap().1.len(), 92);
    write_reply(&memory, shape, slot, reply(Status::Value, 7), &[&[9; 93]]);
    let (answer, empty) = read(7).unwrap();
    assert_eq!((answer.status, answer.needed), (Status::TooSmall, 160));
    assert!(answer.flags.has(Flags::APPLIED) && empty.is_empty());
    let mut text = Vec::new();
    let outcome = Outcome::Unknown;
    let what = "x".repeat(500);
    put_failure(&Failure::Busy { what, outcome }, &mut text);
    write_reply(&memory, shape, slot, reply(Status::Failed, 8), &[&text]);
    let (answer, text) = read(8).unwrap();
    assert_eq!(answer.status, Status::Failed);
    let what = "x".repeat(90);
    assert_eq!(read_failure(&text), Ok(Failure::Busy { what, outcome }));
}

#[test]
fn an_answer_to_another_request_is_garbage() {
    let (memory, shape) = (Plain::new(shape()), shape());
    let slot = request(0).slot;
    write_reply(&memory, shape, slot, reply(Status::Done, 1), &[]);
    let mut payload = Vec::new();
    assert_eq!(read_reply(&memory, shape, slot, 2, &mut payload), Ok(None));
    assert!(
        read_reply(&memory, shape, slot, 1, &mut payload)
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_value_that_looks_like_a_request_is_none() {
    let (memory, shape) = (Plain::new(shape()), shape());
    let (mut writer, mut reader) = (RequestWriter::new(shape), RequestReader::new(shape));
    // What the second request will look like, as part of the first.
    let other = Plain::new(shape);
    let mut forger = RequestWriter::new(shape);
    forger.push(&other, request(0), &[&[0; 28]]).unwrap();
    let forged = other.0.borrow()[REQUESTS_AT..REQUESTS_AT + 64].to_vec();
    let mut payload = Vec::new();
    // Fills the ring with it, in all places where a request may begin.
    writer
        .push(&memory, request(0), &[&forged.repeat(60)])
        .unwrap();
    assert!(reader.next(&memory, &mut payload).unwrap().is_some());
    reader.publish(&memory);
    writer.push(&memory, request(1), &[&[0; 3]]).unwrap();
    while let Ok(Some(found)) = reader.next(&memory, &mut payload) {
        assert_eq!((found, payload.len()), (request(1), 3));
    }
}

#[test]
fn noops_are_only_where_they_are_of_use() {
    let shape = shape();
    let noop = Request {
        op: Op::Noop,
        ..request(0)
    };
    for (before, len) in [(0, 0), (100, 1)] {
        let memory = Plain::new(shape);
        let (mut writer, mut reader) = (RequestWriter::new(shape), RequestReader::new(shape));
        let mut payload = Vec::new();
        if before > 0 {
            writer.push(&memory, request(1), &[&[1; 100]]).unwrap();
            assert!(reader.next(&memory, &mut payload).unwrap().is_some());
        }
        writer.push(&memory, noop, &[&[1][..len]]).unwrap();
        assert!(reader.has_next(&memory));
        let garbage = reader.next(&memory, &mut payload).unwrap_err();
        assert!(garbage.what.contains("NOOP"), "{garbage}");
    }
}

#[test]
fn a_request_that_is_there_in_part_is_none_yet() {
    let (memory, shape) = (Plain::new(shape()), shape());
    let (mut writer, mut reader) = (RequestWriter::new(shape), RequestReader::new(shape));
    writer.push(&memory, request(0), &[&[1; 28]]).unwrap();
    let end = REQUESTS_AT + message_bytes(28) - END_BYTES;
    let mut mark = [0; END_BYTES];
    memory.read(end, &mut mark);
    memory.zero(end, END_BYTES);
    assert!(!reader.has_next(&memory));
    assert_eq!(reader.next(&memory, &mut Vec::new()), Ok(None));
    memory.write(end, &mark);
    assert!(reader.has_next(&memory));
    assert_eq!(reader.next(&memory, &mut Vec::new()), Ok(Some(request(0))));
}

#[test]
fn greetings_and_maps_come_back() {
    let hello = Hello {
        lowest: 1,
        highest: 9,
        requests: 4096,
        replies: 1 << 20,
    };
    assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    let welcome = Welcome {
        version: 1,
        server: ServerId(2),
        incarnation: Incarnation(77),
        cluster: 1 << 100 | 5,
        requests: 4096,
        replies: 8192,
        map: 0xabcd,
    };
    assert_eq!(Welcome::decode(&welcome.encode()), Ok(Ok(welcome)));
    let refusal = Refusal::NoRoom("full".to_string());
    let bytes = refusal.encode();
    let head = bytes[..Welcome::BYTES].try_into().unwrap();
    let (without, len) = Welcome::decode(head).unwrap().unwrap_err();
    assert_eq!(bytes.len(), Welcome::BYTES + len);
    assert_eq!(without.with_text("full".to_string()), refusal);
    let bytes = map().encoded();
    assert_eq!(RegionMap::decode(&bytes), Ok(map()));
    let starts = map().starts();
    assert_eq!(map().index_of(&starts, b"l"), 0);
    assert_eq!(map().index_of(&starts, b"m"), 1);
}

#[test]
fn a_map_with_a_gap_or_an_unknown_primary_is_refused() {
    for spoil in [
        |map: &mut RegionMap| map.regions[1].range.from = b"n".to_vec(),
        |map: &mut RegionMap| map.regions[0].range.from = b"a".to_vec(),
        |map: &mut RegionMap| map.regions[1].range.to = Some(b"z".to_vec()),
        |map: &mut RegionMap| map.regions[1].primary = ServerId(9),
        |map: &mut RegionMap| map.regions.clear(),
    ] {
        let mut map = map();
        spoil(&mut map);
        assert!(RegionMap::decode(&map.encoded()).is_err(), "{map:?}");
    }
}

/// As documented: how long a map is that a client is told, and what it takes.
#[test]
fn a_map_of_many_regions_has_a_known_size() {
    let key = |nth: u32| alloc::format!("{nth:012x}").into_bytes();
    for count in [1_000_u32, 100_000] {
        let region = |nth: u32| MapRegion {
            id: RegionId(nth + 1),
            range: KeyRange {
                from: if nth == 0 { Vec::new() } else { key(nth) },
                to: (nth + 1 < count).then(|| key(nth + 1)),
            },
            epoch: Epoch(300),
            primary: ServerId(1),
        };
        let map = RegionMap {
            regions: (0..count).map(region).collect(),
            ..map()
        };
        let bytes = map.encoded();
        let each = bytes.len() / map.regions.len();
        assert!(each <= 40, "{each}");
        let fits = bytes.len() <= Shape::BYTES_MAX;
        assert_eq!(fits, count == 1_000);
        assert_eq!(RegionMap::decode(&bytes), Ok(map));
    }
    assert!(size_of::<MapRegion>() + 2 * 32 <= 150);
}

impl RegionMap {
    fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }
}

fn map() -> RegionMap {
    let region = |id, from: &str, to: Option<&str>| MapRegion {
        id: RegionId(id),
        range: KeyRange::new(from, to.map(Into::into)),
        epoch: Epoch(4),
        primary: ServerId(1),
    };
    RegionMap {
        servers: vec![MapServer {
            id: ServerId(1),
            resp: "127.0.0.1:7379".to_string(),
            native: "/tmp/native".to_string(),
        }],
        regions: vec![region(1, "", Some("m")), region(2, "m", None)],
    }
}

proptest! {
    /// Whatever a client writes, and wherever, the server reads requests, nothing, or garbage.
    #[test]
    fn any_bytes_in_the_ring_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 1..400),
        at in 0usize..3700,
        keep_mark in any::<bool>(),
    ) {
        let (memory, shape) = (Plain::new(shape()), shape());
        let (mut writer, mut reader) = (RequestWriter::new(shape), RequestReader::new(shape));
        for id in 0..8 {
            writer.push(&memory, request(id), &[&[2; 300]]).unwrap();
        }
        let mark = memory.load(REQUESTS_AT + 24);
        memory.write(REQUESTS_AT + at, &bytes);
        if keep_mark {
            memory.store(REQUESTS_AT + 24, mark);
        }
        let mut payload = Vec::new();
        for _ in 0..100 {
            if !matches!(reader.next(&memory, &mut payload), Ok(Some(_))) {
                break;
            }
        }
        reader.publish(&memory);
    }

    /// The same for a client and what a server writes.
    #[test]
    fn any_bytes_in_a_slot_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 1..128),
        at in 0usize..128,
    ) {
        let (memory, shape) = (Plain::new(shape()), shape());
        let slot = request(0).slot;
        write_reply(&memory, shape, slot, reply(Status::Value, 1), &[b"value"]);
        memory.write(shape.replies_at() + slot.offset + at, &bytes);
        let mut payload = Vec::new();
        let _ = read_reply(&memory, shape, slot, 1, &mut payload);
    }

    #[test]
    fn any_body_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (split_pair(&bytes), read_failure(&bytes), RegionMap::decode(&bytes));
        let _ = read_keys(&bytes, &mut KeyList::default());
        let _ = (Long::decode(&bytes), PartOf::decode(&bytes));
        let mut values = Values::of(&bytes);
        while values.next_value().is_ok() {}
        if let Some(head) = bytes.first_chunk() {
            let _ = Hello::decode(head);
        }
        if let Some(head) = bytes.first_chunk() {
            let _ = Welcome::decode(head);
        }
    }

    #[test]
    fn bodies_come_back(
        key in proptest::collection::vec(any::<u8>(), 0..40),
        values in proptest::collection::vec(proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)), 0..9),
        at in any::<u64>(),
    ) {
        let at = (at > 0).then_some(SnapshotId(at));
        let mut bytes = Vec::new();
        put_pair(&key, &mut bytes);
        bytes.extend_from_slice(b"value");
        prop_assert_eq!(split_pair(&bytes).unwrap(), (key.as_slice(), &b"value"[..]));
        bytes.clear();
        put_keys([&key[..], b"other"].into_iter(), at, &mut bytes);
        let mut keys = KeyList::default();
        prop_assert_eq!(read_keys(&bytes, &mut keys), Ok(at));
        prop_assert_eq!(keys, KeyList::of([&key[..], b"other"]));
        bytes.clear();
        for value in &values {
            put_value(value.as_deref(), &mut bytes);
        }
        let mut read = Values::of(&bytes);
        for value in &values {
            let value = value.as_deref().map_or(OneValue::Absent, OneValue::Whole);
            prop_assert_eq!(read.next_value().unwrap(), value);
        }
    }

    #[test]
    fn what_stands_for_a_long_value_comes_back(
        key in proptest::collection::vec(any::<u8>(), 0..40),
        (version, len, checksum) in (any::<u128>(), 0..=64u64 << 20, any::<u32>()),
        (part_len, index, at) in (1..=u32::MAX, any::<u32>(), any::<u64>()),
    ) {
        let long = Long { version, len, part_len, checksum };
        let at = (at > 0).then_some(SnapshotId(at));
        let mut bytes = Vec::new();
        put_long(&long, &mut bytes);
        put_value(Some(b"other"), &mut bytes);
        let mut read = Values::of(&bytes);
        prop_assert_eq!(read.next_value().unwrap(), OneValue::Long(long));
        prop_assert_eq!(read.next_value().unwrap(), OneValue::Whole(b"other"));
        prop_assert_eq!(Long::decode(&long.encode()), Ok(long));
        let part = PartOf { long, index, at, key: &key, bytes: b"bytes" };
        bytes.clear();
        part.encode(&mut bytes);
        for cut in 0..bytes.len() {
            prop_assert!(PartOf::decode(&bytes[..cut]).is_err());
        }
        bytes.extend_from_slice(part.bytes);
        prop_assert_eq!(PartOf::decode(&bytes), Ok(part));
        let over = Long { len: (64 << 20) + 1, ..long }.encode();
        prop_assert!(Long::decode(&over).is_err());
        let none = Long { part_len: 0, ..long }.encode();
        prop_assert!(Long::decode(&none).is_err());
    }
}
