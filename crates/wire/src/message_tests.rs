//! Every message returns as it was, and no bytes make a decoder panic.

use alloc::vec;
use alloc::vec::Vec;

use core::time::Duration;

use argosy_base::{
    AddressMode, Descriptor, DeviceSegment, EditSeq, Epoch, FlushRange, Incarnation, LogId,
    LogPosition, Lsn, MemoryKey, Position, RegionId, SegmentNumber, Standing,
};

use crate::message::{
    EPOCH_BYTES_MAX, FetchStatus, HolderSession, LeaseAsked, LeaseMessage, Message, ObeyedEpoch,
    PART_FRAME_BYTES, PLACE_BYTES_MAX, WINDOWS_MAX,
};

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
    let session = HolderSession {
        incarnation: Incarnation(u64::MAX),
        number: 70_000,
    };
    let asked = LeaseAsked {
        session,
        number: 300,
        term: Duration::from_secs(1),
    };
    vec![
        Message::Lease(LeaseMessage::Wanted(asked)),
        Message::Lease(LeaseMessage::Granted { asked, rise: 200 }),
        Message::Lease(LeaseMessage::HandedBack {
            incarnation: Incarnation(1),
            through: u64::MAX,
        }),
        Message::Lease(LeaseMessage::EpochsRisen {
            rise: 3,
            goes_on: true,
            epochs: vec![
                ObeyedEpoch {
                    region: RegionId(u32::MAX),
                    epoch: Epoch(2),
                },
                ObeyedEpoch {
                    region: RegionId(1),
                    epoch: Epoch(u32::MAX),
                },
            ],
        }),
        Message::Lease(LeaseMessage::ViewsTaken { session, rise: 0 }),
        Message::Prepare {
            attempt: 1,
            addresses: AddressMode::Rewrite,
            refill: true,
        },
        Message::Report {
            attempt: 2,
            position,
            standing: Standing::PutBack,
            windows: vec![
                Descriptor {
                    key: MemoryKey(3 << 56),
                    grant: u64::MAX,
                };
                WINDOWS_MAX
            ],
        },
        Message::Whole { attempt: 3 },
        Message::Rest { attempt: 3 },
        Message::Wake { attempt: 300 },
        Message::Awake { attempt: 70_000 },
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
        Message::Applied {
            attempt: 7,
            seq: EditSeq(4),
        },
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
        Message::Flushed { attempt: 8, range },
        Message::Ship {
            attempt: 1,
            segment: SegmentNumber::MAX,
            len: 1 << 21,
            checksum: u32::MAX,
            slot: 1,
            place: DeviceSegment(u32::MAX),
        },
        Message::Stored {
            attempt: u64::MAX,
            slot: 1,
        },
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
        Message::Seated,
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
        Message::Call(b""),
        Message::Answer(b"an answer"),
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
    // Whoever reads calls and answers looks for their end.
    let framed = |message: &Message<'_>| !matches!(message, Message::Call(_) | Message::Answer(_));
    for message in samples().into_iter().filter(framed) {
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
    let risen = ObeyedEpoch {
        region: RegionId(u32::MAX),
        epoch: Epoch(u32::MAX),
    };
    payload.clear();
    let message = Message::Lease(LeaseMessage::EpochsRisen {
        rise: u64::MAX,
        goes_on: true,
        epochs: vec![risen; 10],
    });
    message.encode(&mut payload);
    assert!(payload.len() <= 10 * EPOCH_BYTES_MAX + PART_FRAME_BYTES);
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
        let _ = Message::decode((random() % 36) as u8, &bytes);
    }
}
