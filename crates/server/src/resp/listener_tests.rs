//! The front end over real sockets: threads, late answers, bounds, and the end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_base::Instant;
use argosy_engine::Cache;
use argosy_engine::stats::CacheStats;

use super::*;
use crate::resp::ClientPolicy;
use crate::resp::fake::Fake;
use crate::resp::front::Limits;

/// A clock of the tests' own: it moves by so much each time it is looked at.
#[derive(Default)]
struct Hand(Mutex<Instant>, Duration);

impl Hand {
    fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap();
        *now = *now + by;
    }
}

impl Clock for Hand {
    fn now(&self) -> Instant {
        let mut now = self.0.lock().unwrap();
        *now = *now + self.1;
        *now
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

struct Served {
    listener: Listener,
    fake: Arc<Fake>,
}

fn serve(count: usize, settings: Settings) -> Served {
    let threads = Threads {
        count: NonZeroUsize::new(count).unwrap(),
        ..Threads::default()
    };
    serve_by(Hand::default(), threads, settings)
}

fn serve_by(hand: Hand, threads: Threads, settings: Settings) -> Served {
    let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    serve_on(socket, &Arc::new(hand), threads, settings)
}

fn serve_on(socket: TcpListener, hand: &Arc<Hand>, threads: Threads, settings: Settings) -> Served {
    let fake = Arc::new(Fake::new());
    let service = Arc::clone(&fake) as Arc<dyn Service>;
    let clock = Arc::clone(hand) as Arc<dyn Clock>;
    let listener = Listener::start(socket, settings, threads, &service, &clock).unwrap();
    Served { listener, fake }
}

impl Served {
    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.listener.local_address()).unwrap()
    }
}

fn read(stream: &mut TcpStream, bytes: usize) -> String {
    let mut out = vec![0; bytes];
    stream.read_exact(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn exchange(stream: &mut TcpStream, request: &str, reply: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(read(stream, reply.len()), reply);
}

fn read_to_end(stream: &mut TcpStream) -> String {
    let mut out = String::new();
    stream.read_to_string(&mut out).unwrap();
    out
}

/// Waits for what another thread does, by asking again.
fn until(mut happened: impl FnMut() -> bool) {
    for _ in 0..100_000_000 {
        if happened() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("it never happened");
}

#[test]
fn many_clients_are_served_on_several_threads() {
    let served = serve(3, Settings::default());
    let mut clients: Vec<TcpStream> = (0..20).map(|_| served.connect()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        let text = format!("SET key{index} value{index:02}\r\nGET key{index}\r\n");
        exchange(client, &text, &format!("+OK\r\n$7\r\nvalue{index:02}\r\n"));
    }
    exchange(&mut clients[0], "GET key19\r\n", "$7\r\nvalue19\r\n");
    exchange(&mut clients[1], "DBSIZE\r\n", ":20\r\n");
    assert_eq!(served.listener.front().clients().len(), 20);
    drop(clients);
    until(|| served.listener.front().clients().is_empty());
    served.listener.stop();
}

/// One flush a round, however many calls the round has made.
#[test]
fn a_pipeline_is_flushed_once() {
    let served = serve(1, Settings::default());
    let mut client = served.connect();
    exchange(&mut client, "PING\r\n", "+PONG\r\n");
    let (calls, flushes) = served.fake.counts();
    let pipeline = "SET a 1\r\n".repeat(100);
    exchange(&mut client, &pipeline, &"+OK\r\n".repeat(100));
    let (calls_after, flushes_after) = served.fake.counts();
    assert_eq!(calls_after - calls, 100);
    assert!(
        (1..=5).contains(&(flushes_after - flushes)),
        "a round or a few"
    );
}

#[test]
fn answers_from_other_threads_arrive_in_order() {
    let served = serve(2, Settings::default());
    let mut clients = [served.connect(), served.connect(), served.connect()];
    for (index, client) in clients.iter_mut().enumerate() {
        exchange(client, &format!("MSET a{index} {index} b 2\r\n"), "+OK\r\n");
    }
    served.fake.set_late(true);
    for (index, client) in clients.iter_mut().enumerate() {
        let text = format!("GET a{index}\r\nPING\r\nMGET b a{index}\r\n");
        client.write_all(text.as_bytes()).unwrap();
    }
    until(|| served.fake.held() == 6);
    for _ in 0..6 {
        assert!(served.fake.release(served.fake.held() - 1));
    }
    for (index, client) in clients.iter_mut().enumerate() {
        let reply = format!("$1\r\n{index}\r\n+PONG\r\n*2\r\n$1\r\n2\r\n$1\r\n{index}\r\n");
        assert_eq!(read(client, reply.len()), reply);
    }
}

/// A client that leaves while its calls are being answered disturbs nobody, and its place is used
/// again only when the last of them has been answered.
#[test]
fn answers_to_a_client_that_left_are_dropped() {
    let served = serve(1, Settings::default());
    let front = Arc::clone(served.listener.front());
    let open = || front.open.load(Ordering::Relaxed);
    served.fake.set_late(true);
    let mut leaving = served.connect();
    leaving.write_all(b"GET a\r\nGET b\r\n").unwrap();
    until(|| served.fake.held() == 2);
    // Closing over unread replies resets the connection; then there is an error to be seen.
    leaving.write_all(b"PI").unwrap();
    drop(leaving);
    let mut staying = served.connect();
    staying.write_all(b"SET c 1\r\n").unwrap();
    until(|| served.fake.held() == 3);
    assert!(served.fake.release(0));
    assert!(served.fake.release(1));
    assert_eq!(read(&mut staying, 5), "+OK\r\n");
    assert_eq!(open(), 2, "one answer is outstanding");
    assert!(served.fake.release(0));
    until(|| open() == 1);
    served.fake.set_late(false);
    let mut next = served.connect();
    exchange(&mut next, "GET c\r\n", "$1\r\n1\r\n");
    exchange(&mut staying, "GET c\r\n", "$1\r\n1\r\n");
}

#[test]
fn too_many_clients_are_told_so() {
    let settings = Settings {
        policy: ClientPolicy {
            connections_max: 2,
            ..ClientPolicy::default()
        },
        ..Settings::default()
    };
    let served = serve(2, settings);
    let mut clients = [served.connect(), served.connect()];
    for client in &mut clients {
        exchange(client, "PING\r\n", "+PONG\r\n");
    }
    let text = read_to_end(&mut served.connect());
    assert_eq!(
        text,
        "-ERR max number of clients reached (2, maxclients)\r\n"
    );
    let [first, mut second] = clients;
    drop(first);
    until(|| served.listener.front().clients().len() == 1);
    exchange(&mut second, "PING\r\n", "+PONG\r\n");
    exchange(&mut served.connect(), "PING\r\n", "+PONG\r\n");
}

/// Garbage from some clients: each is told and closed; another one is served all the while.
#[test]
fn malformed_input_closes_only_its_own_connection() {
    let served = serve(1, Settings::default());
    let mut other = served.connect();
    let nested = "*1\r\n".repeat(1_000_000);
    for (bytes, message) in [
        ("*-1\r\n", "invalid multibulk length"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$9999999999\r\n", "invalid bulk length"),
        ("*1\r\n$3\r\nPING\r\n", "expected CRLF"),
        (&nested, "expected '$', got '*'"),
    ] {
        let mut client = served.connect();
        client.write_all(b"PING\r\n").unwrap();
        // The server stops reading and closes before all of it is sent.
        let _ = client.write_all(bytes.as_bytes());
        let mut out = Vec::new();
        let _ = client.read_to_end(&mut out);
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with("+PONG\r\n-ERR Protocol error: "), "{out}");
        assert!(out.contains(message) && out.ends_with("\r\n"), "{out}");
        exchange(&mut other, "PING\r\n", "+PONG\r\n");
    }
}

#[test]
fn the_end_of_input_is_answered_and_closed() {
    let served = serve(1, Settings::default());
    let mut client = served.connect();
    client.write_all(b"SET a 1\r\nGET a\r\nGET").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut client), "+OK\r\n$1\r\n1\r\n");
    let mut client = served.connect();
    client.write_all(b"PING\r\nQUIT\r\nPING\r\n").unwrap();
    assert_eq!(read_to_end(&mut client), "+PONG\r\n+OK\r\n");
}

/// A client that sends and does not read is not read from, and gets everything once it reads.
#[test]
fn a_slow_reader_is_bounded_and_loses_nothing() {
    let limits = Limits {
        asked_bytes_max: usize::MAX,
        output_bytes_max: 64 << 10,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        ..Settings::default()
    };
    let served = serve(1, settings);
    let mut slow = served.connect();
    let value = "v".repeat(100_000);
    exchange(
        &mut slow,
        &format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n{value}\r\n"),
        "+OK\r\n",
    );

    // Far more than sockets keep on the way. Nothing here reads until the writer is stuck.
    let count = 2000;
    slow.set_nonblocking(true).unwrap();
    let request = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(count);
    let mut sent = 0;
    let mut other = served.connect();
    loop {
        match slow.write(&request[sent..]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        if sent == request.len() {
            break;
        }
        exchange(&mut other, "PING\r\n", "+PONG\r\n");
    }
    let (calls, _) = served.fake.counts();
    exchange(&mut other, "PING\r\n", "+PONG\r\n");
    assert!(
        calls < 1 + count as u64,
        "{calls} calls: not all was carried out"
    );

    slow.set_nonblocking(false).unwrap();
    let reply = format!("$100000\r\n{value}\r\n");
    for index in 0..count {
        assert_eq!(read(&mut slow, reply.len()), reply, "reply {index}");
    }
    exchange(&mut slow, "PING\r\n", "+PONG\r\n");
}

/// A cache that gives way to whatever it is charged.
#[derive(Debug)]
struct GivesWay;

impl Cache for GivesWay {
    fn charge(&self, charged: &AtomicUsize, bytes: usize) {
        charged.store(bytes, Ordering::Relaxed);
    }

    fn gives_at_most(&self) -> usize {
        usize::MAX
    }

    fn stats(&self) -> CacheStats {
        CacheStats::default()
    }
}

#[test]
fn the_cache_has_what_clients_do_not_take() {
    const SHARE: usize = 32 << 20;
    let lent = Arc::new(Lent::new(Arc::new(GivesWay), SHARE));
    let threads = Threads {
        lent: Some(Arc::clone(&lent)),
        ..Threads::default()
    };
    let served = serve_by(Hand::default(), threads, Settings::default());
    let idle = lent.bytes();
    assert!(idle + THREAD_BYTES <= SHARE, "a thread's own is taken");
    let value = "v".repeat(900_000);
    let begun = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{value}");
    let mut clients: Vec<TcpStream> = (0..8).map(|_| served.connect()).collect();
    for client in &mut clients {
        client.write_all(begun.as_bytes()).unwrap();
    }
    let front = Arc::clone(served.listener.front());
    until(|| front.held_bytes() >= 8 * 900_000);
    until(|| lent.bytes() + front.held_bytes() + THREAD_BYTES <= SHARE);
    assert!(lent.bytes() < idle);
    drop(clients);
    // It is given back a step later than it was taken.
    until(|| lent.bytes() + SHARE / 32 >= idle);
}

/// When clients hold too much together, the one that holds most is told so and closed; the others
/// go on, and what it held is free.
#[test]
fn the_client_that_holds_most_is_ended_when_all_hold_too_much() {
    let settings = Settings {
        memory_bytes_slow: 4 << 20,
        memory_bytes_max: 4 << 20,
        ..Settings::default()
    };
    let served = serve(1, settings);
    let front = Arc::clone(served.listener.front());
    let held = || front.held_bytes();
    // The first bytes of a value that has more.
    let begun = |bytes: usize, all: usize| {
        let value = "v".repeat(bytes);
        format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${all}\r\n{value}")
    };
    let mut small = served.connect();
    small.write_all(begun(300_000, 500_000).as_bytes()).unwrap();
    until(|| held() >= 300_000);
    let mut large: Vec<TcpStream> = (0..6).map(|_| served.connect()).collect();
    for client in &mut large {
        // One of them may be closed while it is still sending.
        let _ = client.write_all(begun(900_000, 1_000_000).as_bytes());
    }
    until(|| front.evicted.load(Ordering::Relaxed) >= 2);
    until(|| held() <= 4 << 20);
    // With all of its value it still holds less than each of them.
    exchange(&mut small, &("v".repeat(200_000) + "\r\n"), "+OK\r\n");
    let mut told = 0;
    for client in &mut large {
        client.set_nonblocking(true).unwrap();
        let mut out = Vec::new();
        let _ = client.read_to_end(&mut out);
        told += usize::from(String::from_utf8_lossy(&out).contains("maxmemory_clients"));
    }
    assert!((2..6).contains(&told), "{told} were told");
    drop((small, large));
    until(|| held() == 0);
}

/// When clients hold much together they wait for each other: every request is carried out, nobody
/// is ended, and no more is held than the bound and one round's reading.
#[test]
fn clients_wait_for_each_other_when_they_hold_much() {
    let settings = Settings {
        memory_bytes_slow: 2 << 20,
        memory_bytes_max: 8 << 20,
        ..Settings::default()
    };
    let served = serve(1, settings);
    let front = Arc::clone(served.listener.front());
    let highest = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12)
            .map(|_| {
                let mut client = served.connect();
                let front = &front;
                scope.spawn(move || {
                    let value = "v".repeat(1_000_000);
                    let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{value}\r\n");
                    let mut highest = 0;
                    for _ in 0..3 {
                        exchange(&mut client, &request, "+OK\r\n");
                        highest = highest.max(front.held_bytes());
                    }
                    highest
                })
            })
            .collect();
        let highest = clients.into_iter().map(|client| client.join().unwrap());
        highest.max().unwrap()
    });
    assert_eq!(front.evicted.load(Ordering::Relaxed), 0);
    assert!(highest <= 8 << 20, "{highest}");
    until(|| front.held_bytes() == 0);
}

/// A client that sends half a request, and no more, does not hold up the others for long.
#[test]
fn a_client_that_stands_still_is_ended_when_others_wait_for_its_memory() {
    let settings = Settings {
        memory_bytes_slow: 500_000,
        memory_bytes_max: 8 << 20,
        ..Settings::default()
    };
    let hand = Hand(Mutex::default(), Duration::from_millis(100));
    let served = serve_by(hand, Threads::default(), settings);
    let front = Arc::clone(served.listener.front());
    let mut half = served.connect();
    let value = "v".repeat(600_000);
    let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{value}");
    half.write_all(request.as_bytes()).unwrap();
    let mut other = served.connect();
    exchange(&mut other, "SET a 1\r\n", "+OK\r\n");
    until(|| front.evicted.load(Ordering::Relaxed) == 1);
    exchange(&mut other, "PING\r\n", "+PONG\r\n");
    let told = read_to_end(&mut half);
    assert!(told.contains("stood still"), "{told}");
}

/// What was received before the stop is answered, and the port is free afterwards.
#[test]
fn stopping_finishes_what_was_received() {
    let served = serve(2, Settings::default());
    let address = served.listener.local_address();
    let mut idle = served.connect();
    exchange(&mut idle, "PING\r\n", "+PONG\r\n");
    served.fake.set_late(true);
    let mut busy = served.connect();
    busy.write_all(b"SET a 1\r\n").unwrap();
    until(|| served.fake.held() == 1);
    let fake = Arc::clone(&served.fake);
    let releasing = std::thread::Builder::new()
        .spawn(move || {
            // Only when the other connection was closed is the stop under way.
            assert_eq!(read_to_end(&mut idle), "");
            assert!(fake.release(0));
            read_to_end(&mut busy)
        })
        .unwrap();
    served.listener.stop();
    assert_eq!(releasing.join().unwrap(), "+OK\r\n");
    assert!(
        TcpStream::connect(address).is_err(),
        "nobody listens any more"
    );
}

/// A call that is never answered does not keep the server from stopping.
#[test]
fn stopping_takes_no_longer_than_it_may() {
    let hand = Hand(Mutex::default(), Duration::from_secs(1));
    let threads = Threads {
        drain: Duration::from_millis(1),
        ..Threads::default()
    };
    let served = serve_by(hand, threads, Settings::default());
    served.fake.set_late(true);
    let mut busy = served.connect();
    busy.write_all(b"SET a 1\r\n").unwrap();
    until(|| served.fake.held() == 1);
    served.listener.stop();
    assert_eq!(served.fake.held(), 1, "it was not waited for");
    assert_eq!(read_to_end(&mut busy), "");
}

/// A thread may be told to stop while it makes calls: connections that are idle end all the same, and not only when
/// the time to drain is over.
#[test]
fn a_stop_between_calls_ends_idle_connections() {
    let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let hand = Arc::new(Hand::default());
    let served = serve_on(socket, &hand, Threads::default(), Settings::default());
    let mut idle = served.connect();
    let patience = Some(Duration::from_secs(5));
    idle.set_read_timeout(patience).unwrap();
    exchange(&mut idle, "GET a\r\n", "$-1\r\n");
    let mailboxes = served.listener.mailboxes.clone();
    served.fake.at_flush(move || {
        for mailbox in &mailboxes {
            mailbox.stop();
        }
    });
    let mut busy = served.connect();
    exchange(&mut busy, "GET a\r\n", "$-1\r\n");
    let ended = idle.read(&mut [0]);
    // What is left ends now in any case.
    hand.advance(Threads::default().drain);
    assert_eq!(ended.unwrap(), 0);
}

#[path = "stalled_tests.rs"]
mod stalled;
