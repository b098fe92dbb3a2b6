//! One channel with the server's end in the hand of the test: what becomes of requests that were laid, and
//! how the server is woken for them.

use std::io::{ErrorKind, Read};
use std::sync::atomic::fence;
use std::thread;

use argosy_wire::native::{RequestReader, Status, write_reply};

use super::*;

pub(in super::super) const PUT: Lay<'_> = Lay {
    op: Op::Put,
    flags: Flags(0),
    region: RegionId(1),
    epoch: Epoch(1),
    parts: &[b"\x01\0kvalue"],
    reply_bytes: 64,
};

/// A channel, the server's view of its memory, and the server's end of its socket, into which the
/// bell is rung, too.
pub(in super::super) fn channel() -> (Arc<Channel>, SharedMemory, UnixStream) {
    let shape = Shape::new(4096, 4096).unwrap();
    let theirs = SharedMemory::passed(shape.bytes()).unwrap();
    let passed = theirs.descriptor().try_clone_to_owned().unwrap();
    let (socket, there) = UnixStream::pair().unwrap();
    let channel = Channel::new(Met {
        bell: socket.try_clone().unwrap().into(),
        socket,
        memory: SharedMemory::receive(passed).unwrap(),
        shape,
        cluster: 1,
    });
    (channel, theirs, there)
}

/// How often the bell was rung since this was last asked.
pub(in super::super) fn rings(there: &mut UnixStream) -> usize {
    there.set_nonblocking(true).unwrap();
    let mut rung = [0; 1024];
    let bytes = match there.read(&mut rung) {
        Ok(bytes) => bytes,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            0
        }
    };
    there.set_nonblocking(false).unwrap();
    bytes / 8
}

#[test]
fn a_server_that_sleeps_is_rung_once_for_what_was_laid() {
    let (channel, theirs, mut there) = channel();
    channel.lay(&PUT).unwrap();
    channel.ring();
    assert_eq!(rings(&mut there), 0, "it is awake");
    theirs.sign(ASLEEP_AT).store(1, Ordering::SeqCst);
    channel.ring();
    assert_eq!(rings(&mut there), 0, "it was awake when that was laid");
    channel.lay(&PUT).unwrap();
    channel.lay(&PUT).unwrap();
    assert_eq!(rings(&mut there), 0, "nobody waits yet");
    channel.ring();
    channel.ring();
    assert_eq!(rings(&mut there), 1);
}

/// The server sleeps whenever it finds nothing, as the real one does. A ring that is lost would have
/// it sleep for good.
#[test]
fn no_ring_is_lost_between_threads() {
    const THREADS: usize = 4;
    const EACH: usize = 5000;
    let (channel, theirs, mut there) = channel();
    there
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let lay = |number: usize| {
        loop {
            match channel.lay(&PUT) {
                Ok(place) => return channel.abandon(place),
                Err(refused) => assert!(matches!(refused, Refused::Full | Refused::TooMany)),
            }
            channel.ring();
            thread::yield_now();
            assert!(!channel.is_lost(), "{number}");
        }
    };
    let mut serve = || {
        let mut reader = RequestReader::new(channel.shape);
        let (memory, mut payload) = (&theirs, Vec::new());
        let (mut taken, mut rung) = (0, 0);
        while taken < THREADS * EACH {
            if let Some(request) = reader.next(memory, &mut payload).unwrap() {
                taken += 1;
                let reply = ReplyHeader {
                    status: Status::Done,
                    flags: Flags(0),
                    id: request.id,
                    needed: 0,
                    map: 0,
                };
                write_reply(memory, channel.shape, request.slot, reply, &[]);
                continue;
            }
            reader.publish(memory);
            let asleep = theirs.sign(ASLEEP_AT);
            asleep.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if !reader.has_next(memory) {
                there.read_exact(&mut [0; 8]).expect("it is rung");
                rung += 1;
            }
            asleep.store(0, Ordering::SeqCst);
        }
        rung
    };
    let rung = thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for number in 0..EACH {
                    lay(number);
                    // Some threads ring for the others.
                    if number % 3 == 0 {
                        channel.ring();
                    }
                }
                channel.ring();
            });
        }
        serve()
    });
    assert!(
        rung <= THREADS * EACH,
        "{rung} for {} requests",
        THREADS * EACH
    );
}

#[test]
fn what_was_not_taken_may_still_be_while_the_server_lives() {
    let (channel, theirs, there) = channel();
    let places = [(); 3].map(|()| channel.lay(&PUT).unwrap());
    let first_slot = channel.shape.replies_at();
    theirs.store_u64(first_slot + RENDEZVOUS_AT, 1);
    let poll = |place: usize| channel.poll(places[place], &mut Vec::new());
    assert_eq!(poll(0), Err(Refused::Lost), "garbled");
    assert_eq!(poll(1), Err(Refused::Lost), "the server may yet take it");
    drop(there);
    channel.look_for_life();
    assert_eq!(poll(2), Err(Refused::NotTaken));
}

#[test]
fn only_writes_without_an_answer_in_front_of_a_request_are_waited_for() {
    let (channel, theirs, _there) = channel();
    let get = Lay { op: Op::Get, ..PUT };
    channel.lay(&get).unwrap();
    assert!(!channel.may_be_writing());
    let put = channel.lay(&PUT).unwrap();
    let next = channel.next_id();
    channel.lay(&PUT).unwrap();
    assert!(channel.may_be_writing() && channel.is_writing(next));
    channel.abandon(put);
    assert!(channel.is_writing(next), "it may still be carried out");
    let answer = |slot: usize| {
        let at = channel.shape.replies_at() + slot * 64;
        theirs.store_u64(at + RENDEZVOUS_AT, 1);
    };
    answer(1);
    assert!(!channel.is_writing(next), "the other one is behind");
    assert!(channel.may_be_writing());
    answer(2);
    assert!(!channel.is_writing(channel.next_id()));
    assert!(!channel.may_be_writing());
}
