//! Geometry by example, and headers against damage.

use argosy_base::Lsn;

use super::*;
use crate::testing::{LARGE_LOG, RECOVERY_LOG};

const REGION: RegionId = RegionId(3);

fn segment() -> LogSegment {
    LogSegment {
        log: LARGE_LOG,
        ordinal: 5,
        number: SegmentNumber(77),
        epoch: Epoch(2),
        base_lsn: Lsn(1234),
        end: None,
    }
}

#[test]
fn windows_take_their_slots_in_turn() {
    let geometry = Geometry::new(48 << 10, 16 << 10, 2);
    assert_eq!(geometry.windows_per_segment(), 3);
    assert_eq!(geometry.slot_bytes(), 20 << 10);
    let mut slots = vec![];
    for ordinal in 0..4 {
        for offset in [0, 16 << 10, (48 << 10) - 1] {
            slots.push(geometry.slot(ordinal, geometry.window_index(offset)));
        }
    }
    assert_eq!(slots, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(geometry.window_index((32 << 10) - 1), 1);
    assert_eq!(geometry.window_end(1), 32 << 10);
}

#[test]
fn neighbouring_windows_have_different_slots() {
    for slots in 2..7 {
        let geometry = Geometry::new(48 << 10, 16 << 10, slots);
        let mut previous = slots - 1;
        for ordinal in 0..9 {
            for window in 0..geometry.windows_per_segment() {
                let slot = geometry.slot(ordinal, window);
                assert_eq!(slot, (previous + 1) % slots);
                previous = slot;
            }
        }
    }
}

#[test]
#[should_panic(expected = "a key fits")]
fn a_window_holds_the_longest_key() {
    let _ = Geometry::new(32 << 10, 4 << 10, 2);
}

#[test]
fn a_segment_header_is_that_of_its_segment_alone() {
    let bytes = encode_segment_header(REGION, &segment());
    assert_eq!(check_segment_header(&bytes, REGION, &segment()), Ok(()));
    let others = [
        LogSegment {
            log: RECOVERY_LOG,
            ..segment()
        },
        LogSegment {
            ordinal: 6,
            ..segment()
        },
        LogSegment {
            number: SegmentNumber(78),
            ..segment()
        },
        LogSegment {
            epoch: Epoch(3),
            ..segment()
        },
        LogSegment {
            base_lsn: Lsn(1),
            ..segment()
        },
    ];
    for other in others {
        let found = check_segment_header(&bytes, REGION, &other);
        assert_eq!(found, Err(HeaderError::Invalid), "{other:?}");
    }
    let found = check_segment_header(&bytes, RegionId(4), &segment());
    assert_eq!(found, Err(HeaderError::Invalid));
    let sealed = LogSegment {
        end: Some(99),
        ..segment()
    };
    assert_eq!(check_segment_header(&bytes, REGION, &sealed), Ok(()));
}

#[test]
fn a_segment_is_known_by_its_header_alone() {
    let sealed = LogSegment {
        end: Some(99),
        ..segment()
    };
    for segment in [segment(), sealed] {
        let bytes = encode_segment_header(REGION, &segment);
        let found = decode_segment_header(&bytes);
        assert_eq!(
            found,
            Ok((
                REGION,
                LogSegment {
                    end: None,
                    ..segment
                }
            ))
        );
    }
    let zeros = decode_segment_header(&[0; HEADER_BYTES]);
    assert_eq!(zeros, Err(HeaderError::Invalid));
}

#[test]
fn a_window_header_returns() {
    let writer = Writer {
        boot: BootId(9),
        incarnation: Incarnation(10),
    };
    let bytes = encode_window_header(REGION, &segment(), 3, writer);
    let name = WindowName::new(REGION, &segment(), 3);
    assert_eq!(decode_window_header(&bytes), Ok((name, writer)));
    assert_eq!(name.log, LARGE_LOG);
    assert_eq!((name.number, name.epoch), (SegmentNumber(77), Epoch(2)));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let windows = encode_window_header(REGION, &segment(), 3, Writer::default());
    let segments = encode_segment_header(REGION, &segment());
    for byte in 0..HEADER_BYTES {
        for bit in 0..8 {
            let mut bytes = windows;
            bytes[byte] ^= 1 << bit;
            assert!(decode_window_header(&bytes).is_err(), "{byte}.{bit}");
            let mut bytes = segments;
            bytes[byte] ^= 1 << bit;
            let found = check_segment_header(&bytes, REGION, &segment());
            assert!(found.is_err(), "{byte}.{bit}");
            assert!(decode_segment_header(&bytes).is_err(), "{byte}.{bit}");
        }
        assert!(decode_window_header(&windows[..byte]).is_err());
        assert!(check_segment_header(&segments[..byte], REGION, &segment()).is_err());
    }
    assert!(decode_window_header(&[0; HEADER_BYTES]).is_err());
}

#[test]
fn a_newer_format_is_named() {
    let mut bytes = encode_segment_header(REGION, &segment());
    bytes[8] = 5;
    let crc = identity(Kind::LogHeader, REGION, &segment(), 0).checksum(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    let found = check_segment_header(&bytes, REGION, &segment());
    assert_eq!(found, Err(HeaderError::Version(5)));
    let mut bytes = encode_window_header(REGION, &segment(), 3, Writer::default());
    bytes[8] = 5;
    let crc = identity(Kind::Window, REGION, &segment(), 0).checksum(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(decode_window_header(&bytes), Err(HeaderError::Version(5)));
}
