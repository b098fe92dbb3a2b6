//! The spinner with clients that write whatever they like.

use std::time::Duration;

use argosy_base::{
    EditSeq, Epoch, Guard, KeyRange, Lsn, RegionId, ServerId, WriteBatch, WriteOptions,
};
use argosy_coordinator::{
    ClusterId, ClusterMap, CopyStatus, PromotionClaim, Region, Replication, Server,
};
use argosy_memory::SharedMemory;
use argosy_wire::api::{Lease, Request as Ask, SnapshotId};
use argosy_wire::native::{
    Flags, LayError, Long, Op, PartOf, REQUESTS_AT, ReplyHeader, Request, RequestWriter, Shape,
    Slot, Status, put_pair, read_reply,
};
use parking_lot::Mutex;

use super::*;
use crate::native::{Routes, Settings};
use crate::resp::fake::Fake;

/// Keeps late answers for the test to bring to the spinner.
#[derive(Default)]
struct Sink(Mutex<Vec<(u64, Response)>>);

impl ReplySink for Sink {
    fn deliver(&self, token: u64, response: Response) {
        self.0.lock().push((token, response));
    }
}

fn spinner(fake: &Arc<Fake>) -> (Spinner, Arc<Front>) {
    with_tasks(fake, &Arc::default(), None)
}

/// A spinner with a queue of `tasks_max` tasks, on which no worker is.
fn with_queue(fake: &Arc<Fake>, tasks_max: usize) -> (Spinner, Arc<Tasks>, Arc<Sink>) {
    let (tasks, sink) = (Arc::new(Tasks::new(tasks_max)), Arc::default());
    let (spinner, _) = with_tasks(fake, &sink, Some(Arc::clone(&tasks)));
    (spinner, tasks, sink)
}

/// A worker carries out one task, and the answers go where they belong.
fn work(spinner: &mut Spinner, tasks: &Tasks, fake: &Fake, sink: &Sink) -> bool {
    let worked = tasks.step(fake);
    let answers = std::mem::take(&mut *sink.0.lock());
    for (token, response) in answers {
        spinner.answer(token, response);
    }
    worked
}

fn step(spinner: &mut Spinner) -> bool {
    spinner.step(Instant::default())
}

fn with_tasks(
    fake: &Arc<Fake>,
    sink: &Arc<Sink>,
    tasks: Option<Arc<Tasks>>,
) -> (Spinner, Arc<Front>) {
    let routes = Routes::new(ServerId(0), &map(3, 0), |_| "socket".into());
    let settings = Settings {
        in_flight_max: 4,
        ..Settings::default()
    };
    let front = Arc::new(Front::new(settings, routes, std::path::Path::new("socket")));
    let service = Arc::clone(fake) as Arc<dyn Service>;
    (
        Spinner::new(
            service,
            Arc::clone(sink) as Arc<dyn ReplySink>,
            Arc::clone(&front),
            tasks,
        ),
        front,
    )
}

/// Two servers and one region, which server `primary` serves at this epoch.
fn map(epoch: u32, primary: u32) -> ClusterMap {
    let servers = [0, 1].map(|id| Server {
        id: ServerId(id),
        resp: format!("127.0.0.1:1{id}"),
        admin: format!("127.0.0.1:2{id}"),
    });
    let (range, id) = (argosy_base::KeyRange::all(), ServerId(primary));
    let region = Region {
        epoch: Epoch(epoch + 1),
        since: Epoch(epoch),
        claim: Some(PromotionClaim {
            status: CopyStatus::Whole,
            cut: Epoch(1),
            edit: EditSeq(1),
            lsn: Lsn(1),
            member: true,
        }),
        ..Region::first(RegionId(1), range, id, vec![id])
    };
    let servers = servers.to_vec();
    ClusterMap::new(ClusterId(1), Replication::None, servers, vec![region]).unwrap()
}

/// A client by hand.
struct Hand {
    memory: Arc<SharedMemory>,
    shape: Shape,
    writer: RequestWriter,
    number: usize,
}

fn join(spinner: &mut Spinner) -> Hand {
    join_with(spinner, 4096)
}

/// A client with so many bytes for requests.
fn join_with(spinner: &mut Spinner, requests: usize) -> Hand {
    let shape = Shape::new(requests, 4096).unwrap();
    let memory = Arc::new(SharedMemory::passed(shape.bytes()).unwrap());
    let number = spinner.add(Arrival {
        socket: None,
        bell: None,
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
        self.put_value(id, epoch, b"value");
    }

    fn put_value(&mut self, id: u32, epoch: u32, value: &[u8]) {
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
            .push(&*self.memory, request, &[&pair, value])
            .unwrap();
    }

    /// Asks for `op` of the same key, in the present epoch.
    fn ask(&mut self, op: Op, id: u32) {
        let request = Request {
            op,
            flags: Flags::default(),
            id,
            region: RegionId(1),
            epoch: Epoch(3),
            slot: self.slot(id),
        };
        self.writer.push(&*self.memory, request, &[b"key"]).unwrap();
    }

    /// Asks for something about a snapshot: of no region, by whatever map.
    fn lease(&mut self, id: u32, flags: Flags, ask: Ask<'_>) {
        let mut body = Vec::new();
        ask.encode(&mut body);
        let request = Request {
            op: Op::Snapshot,
            flags,
            id,
            region: RegionId(0),
            epoch: Epoch(0),
            slot: self.slot(id),
        };
        self.writer.push(&*self.memory, request, &[&body]).unwrap();
    }

    /// Asks for something of the region.
    fn send(&mut self, id: u32, op: Op, flags: Flags, body: &[u8]) {
        let request = Request {
            op,
            flags,
            id,
            region: RegionId(1),
            epoch: Epoch(3),
            slot: self.slot(id),
        };
        self.writer.push(&*self.memory, request, &[body]).unwrap();
    }

    fn status(&self, id: u32) -> Option<Status> {
        self.reply(id).map(|reply| reply.status)
    }

    fn slot(&self, id: u32) -> Slot {
        Slot {
            offset: id as usize * 128,
            bytes: 128,
        }
    }

    fn reply(&self, id: u32) -> Option<ReplyHeader> {
        let slot = self.slot(id);
        read_reply(&*self.memory, self.shape, slot, id, &mut Vec::new()).unwrap()
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
    assert_eq!(reply.map, front.routes().fingerprint());
    assert_eq!(fake.counts(), (0, 0));
}

#[test]
fn a_map_that_is_replaced_counts_from_the_next_step() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, front) = spinner(&fake);
    let mut client = join(&mut spinner);
    let before = front.routes();
    front.set_map(&map(3, 0));
    assert!(Arc::ptr_eq(&before, &front.routes()), "it is the same map");
    // Under a new epoch, then at another server, then here again.
    let maps = [(4, 0), (5, 1), (6, 0)];
    for (id, (epoch, primary)) in (0..).zip(maps) {
        front.set_map(&map(epoch, primary));
        for (id, named) in [(2 * id, epoch - 1), (2 * id + 1, epoch)] {
            client.put(id, named);
            spinner.step(Instant::default());
            let reply = client.reply(id).unwrap();
            let is_served = (named, primary) == (epoch, 0);
            let status = if is_served {
                Status::Done
            } else {
                Status::WrongServer
            };
            assert_eq!(reply.status, status, "epoch {named} at {epoch}");
            assert_eq!(reply.map, front.routes().fingerprint());
        }
    }
    assert_eq!(fake.counts().0, 2);
    assert_eq!(front.routes().cluster(), before.cluster());
    let told = String::from_utf8_lossy(front.routes().encoded()).into_owned();
    assert!(
        told.contains("socket"),
        "clients still know where servers are met"
    );
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
        changed: None,
    };
    spinner.answer(2, written.clone());
    assert_eq!(client.reply(2).unwrap().flags, Flags::APPLIED);
    assert_eq!(client.reply(0), None);
    assert!(!spinner.may_sleep());
    spinner.step(Instant::default());
    assert_eq!(spinner.in_flight(), 4);
    // It goes; its answers still come, and then its number is used again.
    spinner.leave(client.number);
    for place in [0, 1, 2, 3] {
        spinner.answer(place, written.clone());
    }
    assert_eq!(join(&mut spinner).number, client.number);
}

#[test]
fn what_needs_the_device_goes_to_a_worker_and_holds_up_nobody() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, tasks, sink) = with_queue(&fake, 4);
    let (mut cold, mut warm) = (join(&mut spinner), join(&mut spinner));
    cold.ask(Op::Get, 0);
    fake.cool_next();
    assert!(step(&mut spinner));
    assert_eq!(tasks.counts().queued, 1);
    // The others are served, and so is what the same client asks for behind it.
    warm.put(0, 3);
    cold.put(1, 3);
    cold.ask(Op::Get, 2);
    step(&mut spinner);
    assert_eq!(warm.status(0), Some(Status::Done));
    assert_eq!(cold.status(0), None);
    assert_eq!(cold.status(1), Some(Status::Done));
    assert_eq!(cold.status(2), Some(Status::Value));
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    // It began before the put and ends behind it: it may find either.
    assert_eq!(cold.status(0), Some(Status::Value));
    assert!(!work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!(spinner.in_flight(), 0);
}

#[test]
fn gets_that_wait_for_a_worker_are_carried_out_together() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, tasks, sink) = with_queue(&fake, 8);
    let mut client = join(&mut spinner);
    client.put(3, 3);
    for id in 0..3 {
        client.ask(Op::Get, id);
    }
    step(&mut spinner);
    for id in 0..3 {
        assert_eq!(client.status(id), Some(Status::Value));
    }
    for id in 0..3 {
        client.ask(Op::Get, id);
    }
    fake.cool(3);
    step(&mut spinner);
    assert_eq!((tasks.counts().queued, spinner.in_flight()), (3, 3));
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!((tasks.counts().queued, spinner.in_flight()), (0, 0));
    assert_eq!((tasks.counts().done, tasks.counts().batches), (3, 1));
    assert!(!work(&mut spinner, &tasks, &fake, &sink));
    // One that goes away meanwhile leaves nothing behind.
    client.ask(Op::Get, 0);
    client.ask(Op::Get, 1);
    fake.cool(2);
    step(&mut spinner);
    spinner.leave(client.number);
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!(spinner.in_flight(), 0);
    assert_eq!(join(&mut spinner).number, client.number);
}

#[test]
fn a_full_queue_stops_the_client_that_has_more_and_is_told_of() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, tasks, sink) = with_queue(&fake, 1);
    let (mut cold, mut warm) = (join(&mut spinner), join(&mut spinner));
    for id in 0..2 {
        cold.ask(Op::Get, id);
        fake.cool_next();
        step(&mut spinner);
    }
    assert_eq!((tasks.counts().queued, tasks.counts().queue_full), (1, 1));
    cold.put(2, 3);
    warm.put(0, 3);
    assert!(step(&mut spinner));
    assert_eq!(warm.status(0), Some(Status::Done));
    assert_eq!(cold.status(2), None, "nothing more is taken");
    assert!(spinner.may_sleep(), "a worker will say when there is room");
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!(cold.status(0), Some(Status::Value));
    assert!(step(&mut spinner));
    assert_eq!(tasks.counts().queued, 1, "the second one has gone");
    assert_eq!(cold.status(2), Some(Status::Done));
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!(cold.status(1), Some(Status::Value));
    assert_eq!(tasks.counts().queue_full, 1);
}

#[test]
fn room_that_only_a_noop_took_is_given_back() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, _) = spinner(&fake);
    let mut client = join(&mut spinner);
    client.put_value(0, 3, &[1; 1500]);
    assert!(step(&mut spinner));
    // Where the ring ends there is no room for it, and from the start neither, before that is known.
    let request = Request {
        op: Op::Delete,
        flags: Flags::default(),
        id: 1,
        region: RegionId(1),
        epoch: Epoch(3),
        slot: client.slot(1),
    };
    let long: &[&[u8]] = &[&[2; 3000]];
    let memory = Arc::clone(&client.memory);
    let full = client.writer.push(&*memory, request, long);
    assert_eq!(full, Err(LayError::Full));
    assert!(!spinner.may_sleep());
    assert!(!step(&mut spinner));
    assert!(spinner.may_sleep());
    client.writer.push(&*memory, request, long).unwrap();
    assert!(step(&mut spinner));
    assert_eq!(client.status(1), Some(Status::Done));
}

#[test]
fn what_is_given_up_for_want_of_room_is_timed_no_longer() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, tasks, sink) = with_queue(&fake, 1);
    let (mut cold, mut warm) = (join(&mut spinner), join(&mut spinner));
    let timed = |spinner: &Spinner| -> u64 {
        let gets = spinner.desk.front.meter.durations().next().unwrap();
        gets.cumulative.last().copied().unwrap()
    };
    // The first call is timed, and every sixteenth after it.
    cold.ask(Op::Get, 0);
    fake.cool_next();
    step(&mut spinner);
    for id in 0..15 {
        warm.put(id, 3);
        step(&mut spinner);
    }
    cold.ask(Op::Get, 1);
    fake.cool_next();
    step(&mut spinner);
    assert_eq!((tasks.counts().queued, tasks.counts().queue_full), (1, 1));
    spinner.leave(cold.number);
    spinner.settle(Instant::default());
    assert_eq!(timed(&spinner), 1);
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    spinner.settle(Instant::default());
    assert_eq!(timed(&spinner), 2);
}

#[test]
fn a_long_task_is_not_passed_by_those_behind_it() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, tasks, sink) = with_queue(&fake, 4);
    let (mut first, mut last) = (join(&mut spinner), join(&mut spinner));
    let mut long = join_with(&mut spinner, Shape::BYTES_MAX);
    first.ask(Op::Get, 0);
    fake.cool_next();
    step(&mut spinner);
    long.put_value(0, 3, &vec![1; 1 << 20]);
    fake.cool_next();
    step(&mut spinner);
    last.ask(Op::Get, 0);
    fake.cool_next();
    step(&mut spinner);
    assert_eq!((tasks.counts().queued, tasks.counts().queue_full), (1, 2));
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!(first.status(0), Some(Status::Absent));
    assert!(step(&mut spinner));
    assert_eq!(tasks.counts().queued, 1, "the long one, by itself");
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!((long.status(0), last.status(0)), (Some(Status::Done), None));
    assert!(step(&mut spinner));
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    // It finds more than fits its slot.
    assert_eq!(last.status(0), Some(Status::TooSmall));
}

#[test]
fn a_client_that_goes_while_it_waits_for_room_leaves_its_turn_to_others() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, tasks, sink) = with_queue(&fake, 1);
    let (mut gone, mut left) = (join(&mut spinner), join(&mut spinner));
    for id in 0..2 {
        gone.ask(Op::Get, id);
        fake.cool_next();
        step(&mut spinner);
    }
    left.ask(Op::Get, 0);
    fake.cool_next();
    step(&mut spinner);
    assert_eq!((tasks.counts().queued, tasks.counts().queue_full), (1, 2));
    spinner.leave(gone.number);
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert!(step(&mut spinner));
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!(left.status(0), Some(Status::Absent));
}

#[test]
fn writes_of_a_client_keep_their_order_where_one_has_to_look() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, tasks, sink) = with_queue(&fake, 4);
    let (mut client, mut other) = (join(&mut spinner), join(&mut spinner));
    client.put(0, 3);
    step(&mut spinner);
    client.ask(Op::Delete, 1);
    fake.cool_next();
    client.put(2, 3);
    client.ask(Op::Get, 3);
    step(&mut spinner);
    other.ask(Op::Get, 0);
    step(&mut spinner);
    assert_eq!(other.status(0), Some(Status::Value), "not deleted yet");
    assert_eq!((client.status(2), client.status(3)), (None, None));
    assert!(spinner.may_sleep());
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!(
        client.reply(1).unwrap().flags.0 & Flags::EXISTED.0,
        Flags::EXISTED.0
    );
    assert!(!spinner.may_sleep(), "now there is something to take");
    step(&mut spinner);
    assert_eq!(client.status(2), Some(Status::Done));
    assert_eq!(client.status(3), Some(Status::Value));
}

#[test]
fn a_client_that_goes_with_tasks_in_the_queue_is_forgotten_once_they_are_done() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, tasks, sink) = with_queue(&fake, 1);
    let mut client = join(&mut spinner);
    for id in 0..3 {
        client.ask(Op::Get, id);
        fake.cool_next();
        step(&mut spinner);
    }
    assert_eq!((tasks.counts().queued, spinner.in_flight()), (1, 2));
    spinner.leave(client.number);
    assert_eq!(spinner.in_flight(), 1, "what found no room is given up");
    assert!(work(&mut spinner, &tasks, &fake, &sink));
    assert_eq!(spinner.in_flight(), 0);
    assert_eq!(join(&mut spinner).number, client.number);
    assert!(!step(&mut spinner));
}

#[test]
fn snapshots_of_a_client_that_goes_are_given_back() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, _) = spinner(&fake);
    let (mut client, mut other) = (join(&mut spinner), join(&mut spinner));
    let open = Ask::Snapshot {
        id: None,
        lease: Lease::Open(Duration::from_secs(1)),
    };
    client.lease(0, Flags::OPEN, open);
    client.lease(1, Flags::OPEN, open);
    other.lease(0, Flags::OPEN, open);
    step(&mut spinner);
    assert_eq!(client.status(1), Some(Status::Answer));
    assert_eq!(fake.snapshots(), 3);
    // What was closed is not closed again.
    let close = Ask::Snapshot {
        id: Some(SnapshotId(0x10)),
        lease: Lease::Close,
    };
    client.lease(2, Flags::default(), close);
    step(&mut spinner);
    assert_eq!(fake.snapshots(), 2);
    let calls = fake.counts().0;
    spinner.leave(client.number);
    assert_eq!((fake.snapshots(), fake.counts().0), (1, calls + 1));
    // One that is opened when its client has gone is closed as soon as it is there.
    fake.set_late(true);
    let mut late = join(&mut spinner);
    late.lease(0, Flags::OPEN, open);
    step(&mut spinner);
    spinner.leave(late.number);
    assert_eq!(fake.snapshots(), 2);
    fake.set_late(false);
    let opened = crate::service::SnapshotId(0x11);
    let token = (late.number as u64) << 16;
    spinner.answer(token, Response::Snapshot(Some(opened)));
    assert_eq!(fake.snapshots(), 1);
}

#[test]
fn a_request_about_a_snapshot_that_makes_no_sense_is_refused() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, _) = spinner(&fake);
    let mut client = join(&mut spinner);
    let second = Duration::from_secs(1);
    let ask = |lease, id| Ask::Snapshot { id, lease };
    let (open, seven) = (Lease::Open(second), Some(SnapshotId(7)));
    client.lease(0, Flags::OPEN, ask(open, seven));
    client.lease(1, Flags::OPEN, ask(Lease::Close, seven));
    client.lease(2, Flags::default(), ask(open, None));
    client.lease(3, Flags::default(), ask(Lease::Renew(second), None));
    client.lease(4, Flags::default(), Ask::Count);
    client.ask(Op::Snapshot, 5);
    step(&mut spinner);
    for id in 0..6 {
        assert_eq!(client.status(id), Some(Status::Failed), "request {id}");
    }
    assert_eq!(fake.counts().0, 0);
}

/// What stands for a value of three bytes, that is, of one part.
const SHORT: Long = Long {
    version: 7,
    len: 3,
    part_len: 512 << 10,
    checksum: 0,
};

/// A part of it, or of something else.
fn part_of(long: Long, index: u32, bytes: &[u8]) -> Vec<u8> {
    let (at, key) = (None, &b"key"[..]);
    let mut body = Vec::new();
    let part = PartOf {
        long,
        index,
        at,
        key,
        bytes,
    };
    part.encode(&mut body);
    body.extend_from_slice(bytes);
    body
}

/// A write of what stands for it.
fn head_of(long: &[u8]) -> Vec<u8> {
    let mut batch = WriteBatch::new();
    batch.put(b"key", long).unwrap();
    sent(&batch)
}

/// A write as it travels.
fn sent(batch: &WriteBatch) -> Vec<u8> {
    let mut body = Vec::new();
    let options = WriteOptions::default();
    Ask::Write { batch, options }.encode(&mut body);
    body
}

#[test]
fn parts_of_values_are_what_a_server_would_have_written_or_refused() {
    let fake = Arc::new(Fake::new());
    let (mut spinner, _) = spinner(&fake);
    let mut client = join(&mut spinner);
    let (none, long) = (Flags::default(), Flags::LONG);
    let other = Long {
        part_len: 512,
        ..SHORT
    };
    let head = SHORT.encode();
    let (mut range, mut several, mut guarded) = Default::default();
    let upto = KeyRange::new("key", Some(b"l".to_vec()));
    WriteBatch::delete_range(&mut range, &upto).unwrap();
    WriteBatch::put(&mut several, b"key", head).unwrap();
    several.delete(b"key").unwrap();
    WriteBatch::put(&mut guarded, b"key", b"v").unwrap();
    guarded.guard(b"a", Guard::Present);
    let refused = [
        // The parts have a length and a number, and it is the server that says which.
        (Op::PutPart, none, part_of(SHORT, 0, b"four")),
        (Op::PutPart, none, part_of(SHORT, 1, b"")),
        (Op::PutPart, none, part_of(other, 0, b"abc")),
        (Op::PutPart, none, b"nonsense".to_vec()),
        (Op::GetPart, none, b"nonsense".to_vec()),
        (Op::Begin, none, b"nonsense".to_vec()),
        // What stands for a value is put alone, and nothing else is.
        (Op::Write, long, head_of(&other.encode())),
        (Op::Write, long, head_of(b"no long")),
        (Op::Write, long, sent(&range)),
        (Op::Write, long, sent(&several)),
        // Nor is a guard, or a head, a client's affair otherwise.
        (Op::Write, none, sent(&guarded)),
    ];
    for (id, (op, flags, body)) in (0..).zip(refused) {
        client.send(id, op, flags, &body);
        step(&mut spinner);
        assert_eq!(client.status(id), Some(Status::Failed), "request {id}");
    }
    assert_eq!(fake.counts().0, 0, "none of them was carried out");
    // Without its first part it does not become visible.
    client.send(20, Op::Write, long, &head_of(&head));
    step(&mut spinner);
    assert_eq!(client.status(20), Some(Status::Failed));
    client.send(21, Op::GetPart, none, &part_of(SHORT, 0, b""));
    client.send(22, Op::PutPart, none, &part_of(SHORT, 0, b"abc"));
    client.send(23, Op::GetPart, none, &part_of(SHORT, 0, b""));
    client.send(24, Op::Get, none, b"key");
    client.send(25, Op::Write, long, &head_of(&head));
    step(&mut spinner);
    client.send(26, Op::Get, none, b"key");
    step(&mut spinner);
    let told = [21, 22, 23, 24, 25, 26].map(|id| client.status(id).unwrap());
    let (absent, value) = (Status::Absent, Status::Value);
    let expected = [
        absent,
        Status::Done,
        value,
        absent,
        Status::Answer,
        Status::Long,
    ];
    assert_eq!(told, expected);
    // Each value has a version of its own.
    let asked = part_of(Long { len: 9, ..SHORT }, 0, b"");
    let versions = [30, 31].map(|id| {
        client.send(id, Op::Begin, none, &asked);
        step(&mut spinner);
        let mut long = Vec::new();
        let slot = client.slot(id);
        read_reply(&*client.memory, client.shape, slot, id, &mut long).unwrap();
        Long::decode(&long).unwrap().version
    });
    assert_ne!(versions[0], versions[1]);
}
