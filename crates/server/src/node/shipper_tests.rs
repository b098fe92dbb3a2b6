//! What an attachment writes into a backup's windows, over a simulated fabric.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{
    Epoch, Incarnation, LogKind, LogPosition, Lsn, Position, RegionId, SegmentNumber, ServerId,
};
use argosy_device::SharedMemory;
use argosy_engine::LogEnd;
use argosy_fabric::sim::SimWorld;
use argosy_fabric::{Bell, Fabric, FabricError, MemoryKey, RemoteMemory};
use argosy_lsm::edit::LogSegment;
use argosy_lsm::log::segment::{
    WINDOW_HEADER_BYTES, Writer, decode_window_header, encode_window_header,
};
use argosy_lsm::log::{Geometry, LogWindows, WindowName};

use super::Attachment;
use crate::node::keys;

const REGION: RegionId = RegionId(1);
const IDS: [ServerId; 2] = [ServerId(0), ServerId(1)];

const fn segment(ordinal: u64) -> LogSegment {
    LogSegment {
        log: LogKind::Recovery,
        number: SegmentNumber(100 + ordinal),
        ordinal,
        epoch: Epoch(1),
        base_lsn: Lsn(0),
        end: None,
    }
}

/// A fabric that gives the own slot to another window whenever a peer's memory is connected: between reading
/// what is to be shipped and writing it.
struct Overtaken {
    inner: Arc<dyn Fabric>,
    slot: Arc<SharedMemory>,
    header: Vec<u8>,
}

impl Fabric for Overtaken {
    fn register(&self, key: MemoryKey, memory: Arc<SharedMemory>) -> Result<(), FabricError> {
        self.inner.register(key, memory)
    }

    fn revoke(&self, key: MemoryKey) {
        self.inner.revoke(key);
    }

    fn connect(
        &self,
        peer: ServerId,
        key: MemoryKey,
        least: usize,
    ) -> Result<Box<dyn RemoteMemory>, FabricError> {
        self.slot.write(0, &self.header);
        self.inner.connect(peer, key, least)
    }

    fn notify(&self, peer: ServerId) {
        self.inner.notify(peer);
    }

    fn bell(&self) -> Bell {
        self.inner.bell()
    }

    fn park(&self, seen: Bell, timeout: Duration) {
        self.inner.park(seen, timeout);
    }
}

/// The header that a backup gets is that of the window whose bytes it gets, whatever the primary's own slot holds
/// by then.
#[test]
fn a_window_is_shipped_under_its_own_header() {
    let geometry = Geometry::new(32 * BLOCK_SIZE, 16 * BLOCK_SIZE, 2);
    let memory = || Arc::new(SharedMemory::anonymous(geometry.slot_bytes()));
    let (here, later) = (segment(0), segment(1));
    let slots = vec![memory(), memory()];
    let name = encode_window_header(REGION, &here, 0, Writer::default());
    slots[0].write(0, &name);
    slots[0].write(WINDOW_HEADER_BYTES, &[7; 1000]);
    let own = LogWindows::new(REGION, LogKind::Recovery, geometry, slots.clone());
    let own = own.as_found([here]);
    let unused = LogWindows::new(REGION, LogKind::Large, geometry, vec![memory(), memory()]);

    let world = SimWorld::new(1);
    let backup = world.fabric(IDS[1], Incarnation(1));
    let theirs = memory();
    let key = keys::window(REGION, LogKind::Recovery, 0);
    backup
        .register(key, Arc::clone(&theirs))
        .expect("it is fresh");
    let fabric = Overtaken {
        inner: world.fabric(IDS[0], Incarnation(1)),
        slot: Arc::clone(&slots[0]),
        header: encode_window_header(REGION, &later, 0, Writer::default()).to_vec(),
    };
    let mut attachment = Attachment::new(REGION, IDS[1], 2, &Position::default(), 0);
    let end = LogEnd {
        log: LogKind::Recovery,
        ordinal: 0,
        segment: here.number,
        end: 1000,
    };
    let shipped = attachment.ship(&fabric, [&own, &unused], [&[here], &[]], [Some(end), None]);
    assert_eq!(shipped.expect("it is reached"), Some(1));
    world.settle();
    assert_eq!(attachment.poll().expect("it is reached"), Some(1));
    let header = theirs.read_vec(0, BLOCK_SIZE);
    let (name, _) = decode_window_header(&header).expect("a header");
    assert_eq!(name, WindowName::new(REGION, &here, 0));
    assert_eq!(theirs.read_vec(WINDOW_HEADER_BYTES, 1000), [7; 1000]);
}

/// The primary asks for its closing marks to be flushed like all that it writes. A backup that is attached once their
/// segment is sealed gets them, too, as long as the primary has the window.
#[test]
fn the_closing_mark_of_a_sealed_segment_is_shipped() {
    let geometry = Geometry::new(32 * BLOCK_SIZE, 16 * BLOCK_SIZE, 2);
    let memory = || Arc::new(SharedMemory::anonymous(geometry.slot_bytes()));
    let block = u32::try_from(BLOCK_SIZE).expect("it is small");
    let sealed = LogSegment {
        end: Some(17 * block),
        ..segment(0)
    };
    for is_held in [true, false] {
        let slots = vec![memory(), memory()];
        let name = encode_window_header(REGION, &sealed, 1, Writer::default());
        slots[1].write(0, &name);
        slots[1].write(WINDOW_HEADER_BYTES + BLOCK_SIZE, &[7; 20]);
        let own = LogWindows::new(REGION, LogKind::Recovery, geometry, slots);
        let own = if is_held { own.as_found([sealed]) } else { own };
        let unused = LogWindows::new(REGION, LogKind::Large, geometry, vec![memory(), memory()]);

        let world = SimWorld::new(1);
        let backup = world.fabric(IDS[1], Incarnation(1));
        let theirs = memory();
        let key = keys::window(REGION, LogKind::Recovery, 1);
        let registered = backup.register(key, Arc::clone(&theirs));
        registered.expect("it is fresh");
        let mut position = Position::default();
        position.logs[LogKind::Recovery.index()] = Some(LogPosition {
            ordinal: 0,
            segment: sealed.number,
            end: 17 * block,
            flushed: 17 * block,
        });
        let mut attachment = Attachment::new(REGION, IDS[1], 2, &position, 0);
        let end = LogEnd {
            log: LogKind::Recovery,
            ordinal: 1,
            segment: segment(1).number,
            end: 0,
        };
        let fabric = world.fabric(IDS[0], Incarnation(1));
        let chain = [sealed, segment(1)];
        let shipped = attachment.ship(&*fabric, [&own, &unused], [&chain, &[]], [Some(end), None]);
        assert_eq!(shipped.expect("it is reached"), Some(1));
        world.settle();
        let mark = theirs.read_vec(WINDOW_HEADER_BYTES + BLOCK_SIZE, 20);
        assert_eq!(mark, [if is_held { 7 } else { 0 }; 20]);
    }
}
