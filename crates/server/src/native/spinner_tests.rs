//! The spinner with clients that write whatever they like.

use argosy_base::{Epoch, RegionId, ServerId};
use argosy_coordinator::{ClusterId, ClusterMap, Region, Replication, Server};
use argosy_device::SharedMemory;
use argosy_wire::native::{
    Flags, Op, REQUESTS_AT, Reply, Request, RequestWriter, Shape, Slot, Status, put_pair,
    read_reply,
};

use super::*;
use crate::native::client::Mapped;
use crate::native::{Routes, Settings};
use crate::resp::fake::Fake;

struct Sink;

impl ReplySink for Sink {
    fn deliver(&self, _: u64, _: Response) {}
}

fn spinner(fake: &Arc<Fake>) -> (Spinner, Arc<Front>) {
    let region = Region {
        id: RegionId(1),
        range: argosy_base::KeyRange::all(),
        epoch: Epoch(3),
        primary: ServerId(0),
        members: vec![ServerId(0)],
    };
    let server = Server {
        id: ServerId(0),
        resp: "127.0.0.1:1".into(),
        admin: "127.0.0.1:2".into(),
    };
    let map = ClusterMap::new(ClusterId(1), Replication::None, vec![server], vec![region]).unwrap();
    let routes = Routes::new(ServerId(0), &map, |_| "socket".into());
    let settings = Settings {
        in_flight_max: 4,
        ..Settings::default()
    };
    let front = Arc::new(Front::new(settings, routes, std::path::Path::new("socket")));
    let service = Arc::clone(fake) as Arc<dyn Service>;
    (
        Spinner::new(service, Arc::new(Sink), Arc::clone(&front)),
        front,
    )
}

/// A client by hand.
struct Hand {
    memory: Arc<SharedMemory>,
    shape: Shape,
    writer: RequestWriter,
    number: usize,
}

fn join(spinner: &mut Spinner) -> Hand {
    let shape = Shape::new(4096, 4096).unwrap();
    let memory = Arc::new(SharedMemory::passed(shape.bytes()).unwrap());
    let number = spinner.add(Arrival {
        socket: None,
        memory: Arc::clone(&memory),
        shape,
        share: None,
    });
    Hand {
        memory,
        shape,
        writer: RequestWriter::new(shape),
        number,
    }
}

impl Hand {
    fn put(&mut self, id: u32, epoch: u32) {
        let mut pair = Vec::new();
        put_pair(b"key", &mut pair);
        let request = Request {
            op: Op::Put,
            flags: Flags::default(),
            id,
            region: RegionId(1),
            epoch: Epoch(epoch),
            slot: self.slot(id),
        };
        self.writer
            .push(&Mapped(&self.memory), request, &[&pair, b"value"])
            .unwrap();
    }

    fn slot(&self, id: u32) -> Slot {
        Slot {
            offset: id as usize * 64,
            bytes: 64,
        }
    }

    fn reply(&self, id: u32) -> Option<Reply> {
        let of = (self.slot(id), id);
        read_reply(&Mapped(&self.memory), self.shape, of, &mut Vec::new()).unwrap()
    }
}

#[test]
fn garbage_ends_the_client_that_wrote_it_and_no_other() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, front) = spinner(&fake);
    let (mut good, bad) = (join(&mut spinner), join(&mut spinner));
    bad.memory.write(REQUESTS_AT, &[0xff; 4096]);
    good.put(0, 3);
    assert!(spinner.step(Instant::default()));
    assert_eq!(front.garbled(), 1);
    assert!(spinner.client(bad.number).is_none());
    assert_eq!(good.reply(0).unwrap().status, Status::Done);
    assert_eq!(Arc::strong_count(&bad.memory), 1, "given back");
    assert!(!spinner.step(Instant::default()));
}

#[test]
fn a_request_by_an_old_map_is_told_so_and_not_carried_out() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, front) = spinner(&fake);
    let mut client = join(&mut spinner);
    client.put(0, 2);
    spinner.step(Instant::default());
    let reply = client.reply(0).unwrap();
    assert_eq!(reply.status, Status::WrongServer);
    assert_eq!(reply.map, front.routes.fingerprint());
    assert_eq!(fake.counts(), (0, 0));
}

#[test]
fn no_more_is_taken_than_may_be_in_flight_and_late_answers_find_their_slots() {
    let fake = Arc::new(Fake::new());
    fake.set_late(true);
    let (mut spinner, _) = spinner(&fake);
    let mut client = join(&mut spinner);
    for id in 0..6 {
        client.put(id, 3);
    }
    assert!(spinner.may_sleep() || fake.held() == 0);
    spinner.step(Instant::default());
    assert_eq!((fake.held(), spinner.in_flight()), (4, 4));
    assert!(spinner.may_sleep(), "the others cannot be taken yet");
    // As the service would deliver it: client 0, place 2.
    let written = Response::Written {
        applied: true,
        existed: Vec::new(),
        previous: Vec::new(),
    };
    spinner.answer(2 << ELEMENT_BITS, written.clone());
    assert_eq!(client.reply(2).unwrap().flags, Flags::APPLIED);
    assert_eq!(client.reply(0), None);
    assert!(!spinner.may_sleep());
    spinner.step(Instant::default());
    assert_eq!(spinner.in_flight(), 4);
    // It goes; its answers still come, and then its number is used again.
    spinner.leave(client.number);
    for place in [0, 1, 2, 3] {
        spinner.answer(place << ELEMENT_BITS, written.clone());
    }
    assert_eq!(join(&mut spinner).number, client.number);
}
