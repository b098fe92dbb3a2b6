//! Every message returns as it was, and no bytes make a decoder panic.

use alloc::vec;
use alloc::vec::Vec;

use argosy_base::codec::Reader;
use argosy_base::{
    AddressMode, DeviceSegment, Direction, EditSeq, FlushRange, LogId, LogPosition, Lsn, Outcome,
    Position, SegmentNumber, Standing,
};

use crate::call::{Answer, Call, ERASE, FailureKind, Leasing, When, WireMaintenance, WireTold};
use crate::message::{FetchStatus, Message, PART_FRAME_BYTES, PLACE_BYTES_MAX};

#[expect(clippy::too_many_lines, reason = "a list with one sample a line")]
fn samples() -> Vec<Message<'static>> {
    let log = LogPosition {
        ordinal: 3,
        segment: SegmentNumber(70),
        end: 5000,
        flushed: 4096,
    };
    let highest = LogId::all().last().unwrap();
    let position = Position {
        edit: EditSeq(9),
        lsn: Lsn(1 << 40),
        logs: [LogId::FIRST, highest]
            .map(|id| (id, log))
            .into_iter()
            .collect(),
    };
    let range = FlushRange {
        log: highest,
        ordinal: 1,
        segment: SegmentNumber(8),
        from: 4096,
        to: 1 << 21,
    };
    vec![
        Message::Prepare {
            attempt: 1,
            addresses: AddressMode::Rewrite,
            refill: true,
        },
        Message::Report {
            attempt: 2,
            position,
            standing: Standing::PutBack,
        },
        Message::Whole { attempt: 3 },
        Message::CaughtUp {
            attempt: 2,
            position: Position::default(),
        },
        Message::Offer {
            attempt: 1,
            seq: EditSeq(4),
            len: 1 << 40,
            bytes: b"edit",
        },
        Message::Edit {
            attempt: 1,
            seq: EditSeq(4),
            len: 4,
            bytes: b"edit",
        },
        Message::Edit {
            attempt: 1,
            seq: EditSeq(4),
            len: 0,
            bytes: b"",
        },
        Message::More {
            attempt: 1,
            seq: EditSeq(4),
            from: u64::MAX,
            bytes: b"on",
        },
        Message::MoreWanted {
            attempt: u64::MAX,
            seq: EditSeq(4),
            to: u64::MAX,
        },
        Message::Applied { seq: EditSeq(4) },
        Message::CheckpointWanted { attempt: 9 },
        Message::Failed {
            attempt: 4,
            damaged: true,
            why: "a read failed",
        },
        Message::Flush {
            attempt: 1,
            range,
            commit: Lsn(u64::MAX),
        },
        Message::Commit { commit: Lsn(300) },
        Message::Compact { upto: Lsn(301) },
        Message::Compacted {
            upto: Lsn(u64::MAX),
        },
        Message::Flushed { range },
        Message::Ship {
            attempt: 1,
            segment: SegmentNumber::MAX,
            len: 1 << 21,
            checksum: u32::MAX,
            slot: 1,
            place: DeviceSegment(u32::MAX),
        },
        Message::Stored { slot: 0 },
        Message::Fetch {
            segment: SegmentNumber(1),
            from: 0,
            to: 4096,
            slot: 3,
        },
        Message::Fetched {
            slot: 3,
            status: FetchStatus::Gone,
            len: 0,
            checksum: 7,
        },
        Message::Adopt,
        Message::Room {
            free: u32::MAX,
            reserve: 8,
        },
        Message::Places {
            attempt: 3,
            places: vec![
                (SegmentNumber::MAX, DeviceSegment(u32::MAX)),
                (SegmentNumber(1), DeviceSegment(0)),
            ],
        },
        Message::Call(Call::Get { key: b"k" }),
        Message::Call(Call::Write {
            when: When::Present,
            previous: true,
            change: None,
            ops: vec![(b"a", Some(b"1")), (b"b", None)],
            until: vec![],
        }),
        Message::Call(Call::Write {
            when: When::Equals(b"old"),
            previous: false,
            change: Some((3, u64::MAX)),
            ops: vec![(b"a", Some(b"1"))],
            until: vec![(3, 1 << 50)],
        }),
        Message::Call(Call::Write {
            when: When::Version(1 << 40),
            previous: false,
            change: None,
            ops: vec![(b"a", None), (b"b", Some(b"1")), (b"c", Some(b"1"))],
            until: vec![(0, 0), (1, 0)],
        }),
        Message::Call(Call::Write {
            when: When::Always,
            previous: false,
            change: None,
            ops: vec![(b"a", Some(b"b")), (b"c", Some(b"")), (b"d", None)],
            until: vec![ERASE, ERASE],
        }),
        Message::Call(Call::Scan {
            from: b"",
            to: Some(b"z"),
            direction: Direction::Up,
            pairs_max: 10,
            bytes_max: 1 << 20,
            keys_only: true,
            at: u64::MAX,
        }),
        Message::Call(Call::Scan {
            from: b"a",
            to: None,
            direction: Direction::Down,
            pairs_max: 1,
            bytes_max: 0,
            keys_only: false,
            at: 0,
        }),
        Message::Call(Call::Count),
        Message::Call(Call::Expiry { key: b"k" }),
        Message::Call(Call::GetVersion { key: b"k" }),
        Message::Call(Call::GetMany {
            keys: vec![b"k", b"", b"kk"],
            bytes_max: Some(1 << 40),
            at: 1 << 50,
        }),
        Message::Call(Call::GetMany {
            keys: vec![b"k"],
            bytes_max: None,
            at: 0,
        }),
        Message::Call(Call::Snapshot {
            what: Leasing::Open,
            id: 1 << 60,
            millis: 60_000,
        }),
        Message::Call(Call::Snapshot {
            what: Leasing::Renew,
            id: 1,
            millis: 1,
        }),
        Message::Call(Call::Snapshot {
            what: Leasing::Close,
            id: u64::MAX,
            millis: 0,
        }),
        Message::Call(Call::Ingest {
            pairs: vec![(b"a", b"1"), (b"b", b"")],
        }),
        Message::Call(Call::Maintain {
            what: WireMaintenance::Flush,
        }),
        Message::Call(Call::Maintain {
            what: WireMaintenance::Compact,
        }),
        Message::Answer(Answer::Done),
        Message::Answer(Answer::Snapshot(Some(u64::MAX))),
        Message::Answer(Answer::Snapshot(None)),
        Message::Answer(Answer::Values(vec![Some(b"v"), None, Some(b"")])),
        Message::Answer(Answer::Expiry {
            len: Some(300),
            at: Some(7),
            now: 5,
        }),
        Message::Answer(Answer::Expiry {
            len: None,
            at: None,
            now: 5,
        }),
        Message::Answer(Answer::Versioned {
            value: Some(b"v"),
            version: u64::MAX,
        }),
        Message::Answer(Answer::Versioned {
            value: None,
            version: 0,
        }),
        Message::Answer(Answer::Value(None)),
        Message::Answer(Answer::Value(Some(b""))),
        Message::Answer(Answer::Written {
            applied: true,
            existed: vec![true, false],
            previous: vec![Some(b"x"), None],
            told: None,
        }),
        Message::Answer(Answer::Written {
            applied: true,
            existed: vec![],
            previous: vec![],
            told: Some(WireTold::Number(-7)),
        }),
        Message::Answer(Answer::Written {
            applied: false,
            existed: vec![true],
            previous: vec![],
            told: Some(WireTold::Refused(4)),
        }),
        Message::Answer(Answer::Written {
            applied: true,
            existed: vec![],
            previous: vec![],
            told: Some(WireTold::Value(b"0.5")),
        }),
        Message::Answer(Answer::Page {
            pairs: vec![(b"k", b"v")],
            next: Some(b"l"),
        }),
        Message::Answer(Answer::Count(77)),
        Message::Answer(Answer::Failed {
            kind: FailureKind::Busy,
            outcome: Outcome::NotApplied,
            text: b"full",
        }),
    ]
}

#[test]
fn messages_return_as_they_were() {
    for message in samples() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(Message::decode(message.kind(), &bytes), Ok(message));
    }
}

#[test]
fn cut_and_padded_payloads_are_refused() {
    for message in samples() {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert!(
                Message::decode(message.kind(), &bytes[..cut]).is_err(),
                "{message:?} at {cut}"
            );
        }
        bytes.push(0);
        assert!(
            Message::decode(message.kind(), &bytes).is_err(),
            "{message:?} padded"
        );
    }
}

#[test]
fn the_first_bytes_of_an_edit_are_not_more_than_all_of_it() {
    for (len, good) in [(3, false), (4, true), (5, true)] {
        let (attempt, seq, bytes) = (1, EditSeq(4), b"edit".as_slice());
        let edit = Message::Edit {
            attempt,
            seq,
            len,
            bytes,
        };
        let offer = Message::Offer {
            attempt,
            seq,
            len,
            bytes,
        };
        for message in [edit, offer] {
            let mut payload = Vec::new();
            message.encode(&mut payload);
            let decoded = Message::decode(message.kind(), &payload);
            assert_eq!(decoded.is_ok(), good, "{message:?}");
        }
    }
}

#[test]
fn what_frames_a_part_is_bounded() {
    let bytes = vec![7; 1000];
    let (attempt, seq, len) = (u64::MAX, EditSeq(u64::MAX), u64::MAX);
    let parts = [
        Message::Edit {
            attempt,
            seq,
            len,
            bytes: &bytes,
        },
        Message::Offer {
            attempt,
            seq,
            len,
            bytes: &bytes,
        },
        Message::More {
            attempt,
            seq,
            from: len,
            bytes: &bytes,
        },
    ];
    for message in parts {
        let mut payload = Vec::new();
        message.encode(&mut payload);
        assert!(payload.len() <= bytes.len() + PART_FRAME_BYTES);
    }
    let place = (SegmentNumber::MAX, DeviceSegment(u32::MAX));
    let places = vec![place; 10];
    let mut payload = Vec::new();
    Message::Places { attempt, places }.encode(&mut payload);
    assert!(payload.len() <= 10 * PLACE_BYTES_MAX + PART_FRAME_BYTES);
}

#[test]
fn a_scan_that_is_wanted_in_an_unknown_way_is_refused() {
    for how in 0..=u8::MAX {
        let bytes = [3, 0, 0, 1, 1, how, 0];
        let call = Call::decode(&mut Reader::new("a scan", &bytes));
        assert_eq!(call.is_ok(), how < 4, "{how}");
    }
}

#[test]
fn no_bytes_make_the_decoder_panic() {
    let mut state = 7u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random() % 40)
            .map(|_| (random() & 0xff) as u8)
            .collect();
        let _ = Message::decode((random() % 24) as u8, &bytes);
    }
}
