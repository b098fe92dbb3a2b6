//! What windows hand out for another member's windows.

use std::sync::Arc;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{Epoch, Lsn, RegionId, SegmentNumber};
use argosy_engine::source::{LogPlace, Next, Piece};
use argosy_memory::SharedMemory;

use crate::segment::{WINDOW_HEADER_BYTES, Writer, decode_window_header, encode_window_header};
use crate::testing::RECOVERY_LOG;
use crate::{Geometry, LogSegment, LogWindows, WindowName};

const REGION: RegionId = RegionId(1);
const BLOCK: u32 = 4096;

const fn segment(ordinal: u64) -> LogSegment {
    LogSegment {
        log: RECOVERY_LOG,
        number: SegmentNumber(100 + ordinal),
        ordinal,
        epoch: Epoch(1),
        base_lsn: Lsn(0),
        end: None,
    }
}

const fn place(ordinal: u64, offset: u32) -> LogPlace {
    LogPlace { ordinal, offset }
}

fn geometry() -> Geometry {
    Geometry::new(32 * BLOCK_SIZE, 16 * BLOCK_SIZE, 2)
}

/// Empty windows, and their memory.
fn windows() -> (LogWindows, Vec<Arc<SharedMemory>>) {
    let memory = || Arc::new(SharedMemory::anonymous(geometry().slot_bytes()));
    let slots = vec![memory(), memory()];
    let windows = LogWindows::new(REGION, RECOVERY_LOG, geometry(), slots.clone());
    (windows, slots)
}

/// The header is that of the window that the bytes are of, whatever the own slot holds by then.
#[test]
fn a_window_is_handed_out_under_its_own_header() {
    let (windows, slots) = windows();
    let (here, later) = (segment(0), segment(1));
    let header_of = |segment| encode_window_header(REGION, segment, 0, Writer::default());
    slots[0].write(0, &header_of(&here));
    slots[0].write(WINDOW_HEADER_BYTES, &[7; 1000]);
    let windows = windows.as_found([here]);
    slots[0].write(0, &header_of(&later));

    let mut piece = Piece::default();
    let next = windows.piece(&here, 0, place(0, 600), &mut piece);
    assert_eq!(next, Next::Write);
    let (name, _) = decode_window_header(&piece.header).expect("a header");
    assert_eq!(name, WindowName::new(REGION, &here, 0));
    assert_eq!(piece.header.len(), WINDOW_HEADER_BYTES);
    assert_eq!((piece.slot, piece.at), (0, WINDOW_HEADER_BYTES));
    assert_eq!(
        (piece.bytes.as_slice(), piece.next),
        (&[7; 600][..], place(0, 600))
    );

    let next = windows.piece(&here, 600, place(0, 1000), &mut piece);
    assert_eq!(next, Next::Write);
    assert!(piece.header.is_empty(), "the window has its header already");
    assert_eq!((piece.slot, piece.at), (0, WINDOW_HEADER_BYTES + 600));
    assert_eq!(
        (piece.bytes.as_slice(), piece.next),
        (&[7; 400][..], place(0, 1000))
    );
}

/// The primary asks for its closing marks to be flushed like all that it writes. A member that comes once their segment
/// is sealed gets them, too, as long as the primary has the window.
#[test]
fn the_closing_mark_of_a_sealed_segment_is_handed_out() {
    let sealed = LogSegment {
        end: Some(17 * BLOCK),
        ..segment(0)
    };
    let end = place(1, 64);
    let mut piece = Piece::default();
    let (empty, slots) = windows();
    let next = empty.piece(&sealed, 17 * BLOCK, end, &mut piece);
    assert_eq!(next, Next::Skip(place(1, 0)));

    let header = encode_window_header(REGION, &sealed, 1, Writer::default());
    slots[1].write(0, &header);
    slots[1].write(WINDOW_HEADER_BYTES, &[6; BLOCK_SIZE]);
    slots[1].write(WINDOW_HEADER_BYTES + BLOCK_SIZE, &[7; 20]);
    let held = empty.as_found([sealed]);
    let next = held.piece(&sealed, 17 * BLOCK, end, &mut piece);
    assert_eq!(next, Next::Write);
    assert_eq!(
        (piece.slot, piece.at),
        (1, WINDOW_HEADER_BYTES + BLOCK_SIZE)
    );
    assert_eq!(
        (&piece.bytes[..20], piece.next),
        (&[7; 20][..], place(0, 32 * BLOCK))
    );
    assert!(piece.header.is_empty());
    let next = held.piece(&sealed, 32 * BLOCK, end, &mut piece);
    assert_eq!(next, Next::Skip(place(1, 0)));
}

/// What is needed and has left the windows has to be fetched.
#[test]
fn bytes_that_have_left_the_windows_are_gone() {
    let (windows, _) = windows();
    let mut piece = Piece::default();
    let sealed = LogSegment {
        end: Some(17 * BLOCK),
        ..segment(0)
    };
    for (segment, from) in [(sealed, 16 * BLOCK), (segment(0), 31 * BLOCK)] {
        let next = windows.piece(&segment, from, place(1, 64), &mut piece);
        assert_eq!(next, Next::Gone);
    }
}
