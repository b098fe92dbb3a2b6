//! What an attachment writes into a backup's windows, over a simulated fabric.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{
    EditSeq, FlushRange, Incarnation, LogId, PerLog, Position, RegionId, SegmentNumber,
    SegmentPart, ServerId,
};
use argosy_device::Buffer;
use argosy_engine::source::{LogPlace, Next, Piece};
use argosy_engine::{EngineError, LogEnd, LogSpec, Pin, PinnedCheckpoint, Source};
use argosy_fabric::sim::SimWorld;
use argosy_fabric::{Descriptor, Fabric, FabricError};
use argosy_memory::SharedMemory;
use parking_lot::Mutex;

use super::{Attachment, Granting, ShipError};
use crate::node::keys;

const REGION: RegionId = RegionId(1);
const IDS: [ServerId; 2] = [ServerId(0), ServerId(1)];
const LOG: LogSpec = LogSpec {
    id: LogId::FIRST,
    name: "log",
    slots: 2,
    window_bytes: 4096,
    segment_windows: 1,
    slot_bytes: 8192,
};
const END: LogEnd = LogEnd {
    log: LOG.id,
    ordinal: 3,
    segment: SegmentNumber(103),
    end: 500,
};

const fn place(ordinal: u64, offset: u32) -> LogPlace {
    LogPlace { ordinal, offset }
}

/// What is written: the log, and one that no backup has.
fn ends() -> PerLog<LogEnd> {
    let other = LogId::all().last().expect("there are several");
    [(LOG.id, END), (other, LogEnd { log: other, ..END })]
        .into_iter()
        .collect()
}

/// A log that is asked for these places, and answers so.
struct Scripted(Mutex<VecDeque<(LogPlace, Next, Piece)>>);

impl Scripted {
    fn new(answers: impl IntoIterator<Item = (LogPlace, Next, Piece)>) -> Self {
        Self(Mutex::new(answers.into_iter().collect()))
    }
}

impl Source for Scripted {
    fn piece(&self, log: LogId, from: LogPlace, end: LogPlace, piece: &mut Piece) -> Next {
        let answer = self.0.lock().pop_front();
        let (asked, next, filled) = answer.expect("there is an answer");
        let expected = (LOG.id, asked, place(END.ordinal, END.end));
        assert_eq!((log, from, end), expected);
        *piece = filled;
        next
    }

    fn flushed_everywhere(&self, _: LogId, _: SegmentNumber, _: u32) {}

    fn edit_applied_everywhere(&self, _: EditSeq) {}

    fn covers_flushed(&self) -> bool {
        false
    }

    fn checkpoint(&self) -> PinnedCheckpoint {
        unreachable!("an attachment ships the log alone")
    }

    fn read(&self, _: SegmentPart, _: &[Pin]) -> Option<Result<Buffer, EngineError>> {
        None
    }
}

/// The backup, which grants these windows.
fn attach(windows: &[Descriptor]) -> Attachment {
    let backup = Granting {
        region: REGION,
        member: IDS[1],
        windows,
    };
    Attachment::new(&backup, &[LOG], &Position::default(), 0)
}

#[test]
fn pieces_are_written_where_they_belong() {
    let world = SimWorld::new(1);
    let backup = world.fabric(IDS[1], Incarnation(1));
    let theirs = Arc::new(SharedMemory::anonymous(LOG.slot_bytes));
    let key = keys::window(REGION, LOG.id, 1);
    let granted = backup.grant(key, Arc::clone(&theirs), IDS[0]);
    let granted = granted.expect("it is fresh");

    let first = Piece {
        slot: 1,
        header: vec![1; 64],
        at: 4096,
        bytes: vec![2; 300],
        next: place(3, 300),
    };
    let second = Piece {
        header: Vec::new(),
        at: 4396,
        bytes: vec![3; 200],
        next: place(3, 500),
        ..first
    };
    let source = Scripted::new([
        (place(0, 0), Next::Skip(place(3, 0)), Piece::default()),
        (place(3, 0), Next::Write, first.clone()),
        (place(3, 0), Next::Write, first),
        (place(3, 300), Next::Write, second),
        (place(3, 500), Next::End, Piece::default()),
    ]);
    let fabric = world.fabric(IDS[0], Incarnation(1));
    let mut attachment = attach(&[granted]);
    let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
    assert_eq!(shipped.expect("nothing is against it"), None);
    world.settle();
    assert_eq!(attachment.poll().expect("it is reached"), None);
    let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
    assert_eq!(shipped.expect("it is reached"), Some(1));
    world.settle();
    assert_eq!(attachment.poll().expect("it is reached"), Some(1));
    assert_eq!(attachment.bytes_written(), 500);
    assert_eq!(theirs.read_vec(0, 64), [1; 64]);
    assert_eq!(theirs.read_vec(4096, 300), [2; 300]);
    assert_eq!(theirs.read_vec(4396, 200), [3; 200]);
}

#[test]
fn a_backup_that_needs_what_is_gone_is_too_far_behind() {
    let source = Scripted::new([
        (place(0, 0), Next::Skip(place(2, 0)), Piece::default()),
        (place(2, 0), Next::Gone, Piece::default()),
    ]);
    let fabric = SimWorld::new(1).fabric(IDS[0], Incarnation(1));
    let mut attachment = attach(&[]);
    let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
    assert!(matches!(
        shipped,
        Err(ShipError::TooFarBehind {
            segment: 2,
            end: 0,
            ..
        })
    ));
}

/// Two windows: the fourth takes the slot of the second.
#[test]
fn no_window_is_written_over_one_that_is_not_flushed() {
    let unflushed = |ordinal| FlushRange {
        log: LOG.id,
        ordinal,
        segment: SegmentNumber(100 + ordinal),
        from: 0,
        to: 4096,
    };
    for (ordinal, is_lost) in [(0, true), (1, true), (2, false), (3, false)] {
        let piece = Piece {
            slot: 1,
            header: vec![1; 64],
            at: 4096,
            bytes: vec![2; 300],
            next: place(3, 500),
        };
        let source = Scripted::new([
            (place(0, 0), Next::Skip(place(3, 0)), Piece::default()),
            (place(3, 0), Next::Write, piece),
            (place(3, 500), Next::End, Piece::default()),
        ]);
        let world = SimWorld::new(1);
        let backup = world.fabric(IDS[1], Incarnation(1));
        let theirs = Arc::new(SharedMemory::anonymous(LOG.slot_bytes));
        let granted = backup.grant(keys::window(REGION, LOG.id, 1), theirs, IDS[0]);
        let fabric = world.fabric(IDS[0], Incarnation(1));
        let mut attachment = attach(&[granted.expect("it is fresh")]);
        let kept = |_| Some(unflushed(ordinal));
        let shipped = attachment.ship(&*fabric, &source, &ends(), &kept);
        assert_eq!(shipped.is_err(), is_lost, "{ordinal}");
    }
}

/// A backup has reported to another attempt since: its windows are granted anew, and this attachment connects to none
/// of them.
#[test]
fn an_attachment_writes_to_no_window_of_a_later_grant() {
    let world = SimWorld::new(1);
    let backup = world.fabric(IDS[1], Incarnation(1));
    let key = keys::window(REGION, LOG.id, 1);
    let grant = || {
        let theirs = Arc::new(SharedMemory::anonymous(LOG.slot_bytes));
        let granted = backup.grant(key, Arc::clone(&theirs), IDS[0]);
        (theirs, granted.expect("it is fresh"))
    };
    let (_, earlier) = grant();
    let (theirs, _) = grant();
    let piece = Piece {
        slot: 1,
        header: vec![1; 64],
        at: 4096,
        bytes: vec![2; 300],
        next: place(0, 300),
    };
    let fabric = world.fabric(IDS[0], Incarnation(1));
    for windows in [&[earlier][..], &[]] {
        let source = Scripted::new([(place(0, 0), Next::Write, piece.clone())]);
        let mut attachment = attach(windows);
        let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
        world.settle();
        let ended = shipped.and_then(|_| attachment.poll());
        assert!(matches!(
            ended,
            Err(ShipError::Fabric(FabricError::Revoked))
        ));
    }
    world.settle();
    assert_eq!(theirs.read_vec(0, 64), [0; 64]);
}

/// A backup whose two windows are granted, and what is to be written to the second.
struct Slow {
    world: SimWorld,
    theirs: Arc<SharedMemory>,
    windows: [Descriptor; 2],
}

impl Slow {
    fn new() -> Self {
        let world = SimWorld::new(1);
        let backup = world.fabric(IDS[1], Incarnation(1));
        let theirs = Arc::new(SharedMemory::anonymous(LOG.slot_bytes));
        let other = Arc::new(SharedMemory::anonymous(LOG.slot_bytes));
        let grant = |slot, memory| backup.grant(keys::window(REGION, LOG.id, slot), memory, IDS[0]);
        let windows = [grant(0, other), grant(1, Arc::clone(&theirs))];
        Self {
            windows: windows.map(|granted| granted.expect("it is fresh")),
            world,
            theirs,
        }
    }

    /// Nothing has been written to the backup.
    fn is_untouched(&self) -> bool {
        self.theirs.read_vec(0, LOG.slot_bytes) == vec![0; LOG.slot_bytes]
    }
}

/// So many bytes from the log's beginning.
fn piece(bytes: usize) -> Piece {
    Piece {
        slot: 1,
        header: vec![1; 64],
        at: 4096,
        bytes: vec![2; bytes],
        next: place(0, u32::try_from(bytes).expect("they are few")),
    }
}

/// Between attach and connected nothing is shipped, how often it may be tried; what is appended meanwhile is part of
/// the first ship, and that is one.
#[test]
fn what_is_appended_while_connecting_goes_with_the_first_ship() {
    let slow = Slow::new();
    let source = Scripted::new([
        (place(0, 0), Next::Write, piece(100)),
        (place(0, 0), Next::Write, piece(200)),
        (place(0, 0), Next::Write, piece(300)),
        (place(0, 300), Next::End, Piece::default()),
    ]);
    let fabric = slow.world.fabric(IDS[0], Incarnation(1));
    let mut attachment = attach(&slow.windows);
    assert!(!attachment.is_under_way(), "there is nothing to write");
    for _ in 0..2 {
        let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
        assert_eq!(shipped.expect("nothing is against it"), None);
        assert_eq!(attachment.poll().expect("nor here"), None);
        assert!(attachment.is_under_way(), "it is connecting");
        assert!(
            !attachment.goes_on(),
            "there is nothing to do before that ends"
        );
    }
    let begun = slow.world.counters().connections.begun;
    assert_eq!(begun, 2, "to each window once");
    slow.world.settle();
    assert!(slow.is_untouched());
    assert_eq!(attachment.poll().expect("it is reached"), None);
    assert!(attachment.goes_on());
    let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
    assert_eq!(shipped.expect("it is reached"), Some(1));
    slow.world.settle();
    assert_eq!(attachment.poll().expect("it is reached"), Some(1));
    assert_eq!(slow.theirs.read_vec(4096, 300), [2; 300]);
    assert_eq!(attachment.bytes_written(), 300);
    assert!(!attachment.is_under_way());
}

/// While one window is connected to and the other is not, nothing is written either.
#[test]
fn nothing_is_written_before_the_last_window_is_connected_to() {
    let slow = Slow::new();
    let again = (place(0, 0), Next::Write, piece(100));
    let end = (place(0, 100), Next::End, Piece::default());
    let source = Scripted::new([again.clone(), again, end]);
    let fabric = slow.world.fabric(IDS[0], Incarnation(1));
    let mut attachment = attach(&slow.windows);
    let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
    assert_eq!(shipped.expect("nothing is against it"), None);
    // Two questions and two answers: the second answer is the last of them.
    for _ in 0..3 {
        slow.world
            .step(slow.world.next_event().expect("it is on its way"));
        assert_eq!(attachment.poll().expect("nothing is against it"), None);
        assert!(!attachment.goes_on());
    }
    slow.world.step(slow.world.next_event().expect("the last"));
    assert_eq!(attachment.poll().expect("it is reached"), None);
    assert!(attachment.goes_on());
    let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
    assert_eq!(shipped.expect("it is reached"), Some(1));
}

/// An attachment that is dropped gives its connections up, and writes nothing; another one is connected to the same
/// windows.
#[test]
fn a_detach_gives_up_what_is_being_connected_to() {
    let slow = Slow::new();
    let fabric = slow.world.fabric(IDS[0], Incarnation(1));
    let source = Scripted::new([(place(0, 0), Next::Write, piece(100))]);
    let mut attachment = attach(&slow.windows);
    let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
    assert_eq!(shipped.expect("nothing is against it"), None);
    drop(attachment);
    slow.world.settle();
    assert_eq!(slow.world.counters().connections.dropped, 2);
    assert!(slow.is_untouched());

    let again = (place(0, 0), Next::Write, piece(100));
    let end = (place(0, 100), Next::End, Piece::default());
    let source = Scripted::new([again.clone(), again, end]);
    let mut attachment = attach(&slow.windows);
    let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
    assert_eq!(shipped.expect("nothing is against it"), None);
    slow.world.settle();
    assert_eq!(attachment.poll().expect("it is reached"), None);
    let shipped = attachment.ship(&*fabric, &source, &ends(), &|_| None);
    assert_eq!(shipped.expect("it is reached"), Some(1));
}
