//! Clients that stand still, by the playground's memory, and one beside them that does not. The clock
//! stands, too, but for the turns that a test gives it: what passes without one waited for nobody.

use std::sync::mpsc;

use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::*;
use crate::resp::pace::TURN;
use crate::resp::worker::ROUND_BYTES;

/// The memory of a server of the playground.
const LIMIT: usize = 256 << 20;
/// Bytes that the kernel keeps of a connection on each side, as far as it lets us say.
const SOCKET_BYTES: usize = 16 << 10;

/// Bytes of the value of `large`.
const LARGE_BYTES: usize = 60_000;

struct Scene {
    served: Served,
    hand: Arc<Hand>,
    good: TcpStream,
}

impl Scene {
    fn new() -> Self {
        Self::within(LIMIT)
    }

    /// A server with so much memory.
    fn within(limit: usize) -> Self {
        Self::with_sockets(limit, SOCKET_BYTES)
    }

    /// The same. Its kernel takes so many bytes of each connection, as far as it lets us say.
    fn with_sockets(limit: usize, socket_bytes: usize) -> Self {
        // A test has both ends of each connection.
        let mut files = getrlimit(Resource::Nofile);
        files.current = files.maximum;
        setrlimit(Resource::Nofile, files).unwrap();
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        // Those that are accepted inherit it.
        sockopt::set_socket_send_buffer_size(&socket, socket_bytes).unwrap();
        let hand = Arc::new(Hand::default());
        let threads = Threads::default();
        let settings = Settings::within(limit, threads.count.get());
        let served = serve_on(socket, &hand, threads, settings);
        let mut good = served.connect();
        good.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        exchange(&mut good, "SET small here\r\n", "+OK\r\n");
        let large = "v".repeat(LARGE_BYTES);
        let set = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$60000\r\n{large}\r\n");
        exchange(&mut good, &set, "+OK\r\n");
        Self { served, hand, good }
    }

    fn front(&self) -> &FrontEnd {
        self.served.listener.front()
    }

    fn evicted(&self) -> u64 {
        let evicted = &self.front().evicted;
        evicted.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn held(&self) -> usize {
        self.front().held_bytes()
    }

    /// Whoever asks for little is served, without anything that has to happen before.
    fn good_is_served(&mut self) {
        for _ in 0..2 {
            exchange(&mut self.good, "GET small\r\n", "$4\r\nhere\r\n");
        }
        let large = format!("$60000\r\n{}\r\n", "v".repeat(LARGE_BYTES));
        exchange(&mut self.good, "GET large\r\n", &large);
    }

    /// A turn goes by, and the thread has seen that.
    fn turn(&mut self) {
        self.hand.advance(TURN);
        self.good_is_served();
    }

    /// A client that does not read, and whose kernel keeps little for it.
    fn reader(&self) -> TcpStream {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES).unwrap();
        rustix::net::connect(&socket, &self.served.listener.local_address()).unwrap();
        TcpStream::from(socket)
    }
}

fn beside_stalled_readers(count: usize) {
    let mut scene = Scene::new();
    let readers: Vec<_> = (0..count)
        .map(|_| {
            let mut reader = scene.reader();
            let ask = "GET large\r\n".repeat(500);
            // It may have been ended before it has asked for everything.
            let _ = reader.write_all(ask.as_bytes());
            reader
        })
        .collect();
    scene.good_is_served();
    // All of them have been sent something, or were ended.
    for reader in &readers {
        let _ = reader.peek(&mut [0]);
    }
    if count >= 30 {
        until(|| scene.front().is_pressed() || scene.evicted() > 0);
    }
    scene.good_is_served();
    let before = scene.evicted();
    scene.turn();
    scene.turn();
    until(|| !scene.front().is_pressed());
    assert!(before < count as u64, "{before} at once");
    // Whoever needs much has it now, without another turn.
    let mut large = scene.served.connect();
    large
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let value = "v".repeat(1_000_000);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{value}\r\n");
    exchange(&mut large, &set, "+OK\r\n");
    drop(readers);
}

#[test]
fn a_good_client_is_served_beside_one_that_does_not_read() {
    beside_stalled_readers(1);
}

#[test]
fn a_good_client_is_served_beside_30_that_do_not_read() {
    beside_stalled_readers(30);
}

#[test]
fn a_good_client_is_served_beside_1000_that_do_not_read() {
    beside_stalled_readers(1000);
}

fn beside_half_sent_values(count: usize, bytes: usize) {
    let mut scene = Scene::new();
    let half = format!(
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{}",
        "v".repeat(bytes)
    );
    let senders: Vec<_> = (0..count)
        .map(|_| {
            let sender = scene.served.connect();
            sender.set_nonblocking(true).unwrap();
            // What the server does not read now stays where it is.
            let _ = (&sender).write(half.as_bytes());
            sender
        })
        .collect();
    until(|| scene.front().is_pressed());
    scene.good_is_served();
    // Those that have sent more than was read are each given a turn to go on.
    let mut turns = 0;
    while scene.front().is_pressed() {
        turns += 1;
        assert!(turns < 4 * count, "it does not end");
        scene.turn();
        // What was let go has gone on.
        scene.good_is_served();
    }
    drop(senders);
}

#[test]
fn a_good_client_is_served_beside_30_that_send_half_a_value() {
    beside_half_sent_values(30, 900_000);
}

#[test]
fn a_good_client_is_served_beside_200_that_send_a_part_of_a_value() {
    beside_half_sent_values(200, 40_000);
}

/// Stopping under pressure: what was sent in half is given up, for nobody sends the rest. Until then it would keep the
/// others waiting, and itself.
#[test]
fn stopping_ends_clients_that_have_sent_half_a_value() {
    let scene = Scene::new();
    let half = format!(
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{}",
        "v".repeat(900_000)
    );
    let senders: Vec<_> = (0..30)
        .map(|_| {
            let sender = scene.served.connect();
            sender.set_nonblocking(true).unwrap();
            let _ = (&sender).write(half.as_bytes());
            sender.set_nonblocking(false).unwrap();
            let patience = Some(Duration::from_secs(10));
            sender.set_read_timeout(patience).unwrap();
            sender
        })
        .collect();
    until(|| scene.front().is_pressed());
    let hand = Arc::clone(&scene.hand);
    let reading = std::thread::Builder::new().spawn(move || {
        let read = |mut sender: TcpStream| {
            // What was sent and not read makes the end a reset.
            let read = move || match sender.read_to_end(&mut Vec::new()) {
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::ConnectionReset,
            };
            std::thread::Builder::new().spawn(read).unwrap()
        };
        let readers: Vec<_> = senders.into_iter().map(read).collect();
        let ended = readers.into_iter().map(|reader| reader.join().unwrap());
        let ended = ended.filter(|ended| *ended).count();
        // What is left ends now in any case.
        hand.advance(Threads::default().drain);
        ended
    });
    drop(scene);
    assert_eq!(reading.unwrap().join().unwrap(), 30);
}

/// Where clients stand still that have sent all that they sent, two turns end them all.
#[test]
fn half_sent_values_are_ended_together() {
    let mut scene = Scene::new();
    let head = format!(
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{}",
        "v".repeat(60_000)
    );
    // More than what a good client has on its way for a moment.
    let enough = scene.front().settings.memory_bytes_slow + (200 << 10);
    let mut senders = Vec::new();
    while scene.held() < enough {
        let mut sender = scene.served.connect();
        sender.write_all(head.as_bytes()).unwrap();
        senders.push(sender);
        scene.good_is_served();
    }
    assert!(senders.len() > 30, "{}", senders.len());
    scene.turn();
    scene.turn();
    until(|| !scene.front().is_pressed());
    // Of the last ones not all was read.
    let most = senders.len() as u64;
    assert!((most - 16..=most).contains(&scene.evicted()), "{most}");
}

/// The thread of the server, held in the middle of a round.
struct Halt {
    begun: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

impl Scene {
    /// Holds the server's thread at its next flush, until it may go on. Whatever comes meanwhile is there at its next
    /// round.
    fn at_flush(&self) -> Halt {
        let (begin, begun) = mpsc::channel();
        let (go_on, told) = mpsc::channel();
        self.served.fake.at_flush(move || {
            begin.send(()).unwrap();
            told.recv().unwrap();
        });
        Halt { begun, go_on }
    }

    /// Holds the server's thread now.
    fn halt(&mut self) -> Halt {
        let halt = self.at_flush();
        self.good.write_all(b"GET small\r\n").unwrap();
        halt.begun.recv().unwrap();
        self.served.fake.take_round_max();
        halt
    }

    /// Lets it go on until it has made the calls of another round.
    fn next_round(&self, halt: &Halt) -> Halt {
        let next = self.at_flush();
        halt.go_on.send(()).unwrap();
        next.begun.recv().unwrap();
        next
    }

    /// Of the calls since the thread was held, few were made in any round: those for so many long replies, two that go
    /// beyond, a turn of two in any case, and that of the good client.
    #[track_caller]
    fn assert_rounds_are_short(&self) {
        let most = self.served.fake.take_round_max();
        let bound = (ROUND_BYTES / LARGE_BYTES) as u64 + 5;
        assert!(most <= bound, "{most} calls in a round, not {bound}");
    }

    /// Lets it go on, and reads what `readers` are sent until `calls` more have been made.
    fn go_on(&mut self, halt: &Halt, readers: &mut [TcpStream], calls: u64) {
        let fake = &self.served.fake;
        let before = fake.counts().0;
        halt.go_on.send(()).unwrap();
        assert_eq!(read(&mut self.good, 10), "$4\r\nhere\r\n");
        until(|| {
            for reader in &mut *readers {
                reader.set_nonblocking(true).unwrap();
                let _ = reader.read(&mut [0; 64 << 10]);
            }
            fake.counts().0 >= before + calls
        });
    }
}

/// Each of them asks for the large value so many times.
fn ask_for_large(readers: &mut [TcpStream], times: usize) {
    let ask = "GET large\r\n".repeat(times);
    for reader in readers {
        reader.write_all(ask.as_bytes()).unwrap();
    }
}

fn read_what_is_there(readers: &mut [TcpStream]) {
    for reader in readers {
        reader.set_nonblocking(true).unwrap();
        while reader.read(&mut [0; 64 << 10]).is_ok() {}
    }
}

/// Clients that ask for much, and read it, take their turns a few at a time. Whoever asks for little waits for those
/// few, however many there are.
#[test]
fn few_large_connections_take_part_in_a_round() {
    let mut scene = Scene::within(16 * LIMIT);
    let mut readers: Vec<_> = (0..60).map(|_| scene.reader()).collect();
    ask_for_large(&mut readers, 100);
    // Each of them holds more than what it is written at a time.
    until(|| scene.held() > 60 * 120_000);
    let halt = scene.halt();
    read_what_is_there(&mut readers);
    scene.go_on(&halt, &mut readers, 500);
    scene.assert_rounds_are_short();
    scene.good_is_served();
}

/// Many that turn out to ask for much, all at once, make a few calls in each round, too.
#[test]
fn a_crowd_makes_few_calls_for_long_replies_in_a_round() {
    let mut scene = Scene::within(16 * LIMIT);
    let mut readers: Vec<_> = (0..200).map(|_| scene.reader()).collect();
    for reader in &mut readers {
        exchange(reader, "GET small\r\n", "$4\r\nhere\r\n");
    }
    let halt = scene.halt();
    ask_for_large(&mut readers, 4);
    scene.go_on(&halt, &mut readers, 4 * 200);
    scene.assert_rounds_are_short();
    scene.good_is_served();
}

/// Clients whose sockets take all that they are sent hold nothing, and have asked for more. They take turns, too.
#[test]
fn who_is_sent_much_and_goes_on_takes_turns() {
    let mut scene = Scene::with_sockets(16 * LIMIT, 1 << 20);
    let mut readers: Vec<_> = (0..60).map(|_| scene.served.connect()).collect();
    let halt = scene.halt();
    ask_for_large(&mut readers, 300);
    scene.served.fake.take_calls_by_connection();
    scene.go_on(&halt, &mut readers, 500);
    scene.assert_rounds_are_short();
    // Eight each, if they take turns.
    let calls = scene.served.fake.take_calls_by_connection();
    let served = calls.iter().filter(|calls| **calls >= 4).count();
    assert!(served == 60, "{served} of 60 had their turns: {calls:?}");
    scene.good_is_served();
}

/// An answer that comes late was expected to be as long as the one before. It is short, and the client has asked for no
/// more: it is written in the round in which it comes.
#[test]
fn a_late_answer_waits_for_no_turn() {
    let mut scene = Scene::within(16 * LIMIT);
    scene.good_is_served();
    let before = scene.served.fake.counts().0;
    let mut readers: Vec<_> = (0..200).map(|_| scene.reader()).collect();
    ask_for_large(&mut readers, 5);
    // All calls are made, and most of what they brought is kept.
    until(|| scene.served.fake.counts().0 == before + 200 * 5);
    let mut late = std::mem::replace(&mut scene.good, scene.served.connect());
    scene.served.fake.set_late(true);
    late.write_all(b"GET small\r\n").unwrap();
    until(|| scene.served.fake.held() == 1);
    scene.served.fake.set_late(false);
    let halt = scene.halt();
    read_what_is_there(&mut readers);
    scene.good.write_all(b"GET small\r\n").unwrap();
    let halt = scene.next_round(&halt);
    assert!(scene.served.fake.release(0));
    scene.good.write_all(b"GET small\r\n").unwrap();
    let halt = scene.next_round(&halt);
    assert_eq!(read(&mut late, 10), "$4\r\nhere\r\n");
    halt.go_on.send(()).unwrap();
}

/// Who asks for little goes before the many requests of others, however many came first.
#[test]
fn who_asks_for_little_waits_for_nobodys_many_requests() {
    let mut scene = Scene::within(16 * LIMIT);
    let mut readers: Vec<_> = (0..200).map(|_| scene.reader()).collect();
    for reader in &mut readers {
        exchange(reader, "GET small\r\n", "$4\r\nhere\r\n");
    }
    let mut other = scene.served.connect();
    other
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    exchange(&mut other, "GET small\r\n", "$4\r\nhere\r\n");
    let halt = scene.halt();
    ask_for_large(&mut readers, 200);
    other.write_all(b"GET small\r\n").unwrap();
    // The first round reads from all, the second makes its call, and its end writes the reply.
    let halt = scene.next_round(&halt);
    let halt = scene.next_round(&halt);
    let halt = scene.next_round(&halt);
    assert_eq!(read(&mut other, 10), "$4\r\nhere\r\n");
    halt.go_on.send(()).unwrap();
}
