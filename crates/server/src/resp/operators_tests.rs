//! What operators ask of all connections, over real sockets and threads.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use argosy_base::{Clock, Instant};

use crate::meter::{Op, Timed};
use crate::resp::fake::Fake;
use crate::resp::slow_log::SlowLogSettings;
use crate::resp::{ClientPolicy, Listener, Settings, Threads, command};
use crate::service::Service;

/// A clock that stands still until it is moved.
#[derive(Default)]
struct Hand(Mutex<Instant>);

impl Hand {
    fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap();
        *now = *now + by;
    }
}

impl Clock for Hand {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

struct Scene {
    listener: Listener,
    fake: Arc<Fake>,
    hand: Arc<Hand>,
}

impl Scene {
    fn new(threads: usize, slow_log: SlowLogSettings) -> Self {
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (fake, hand) = (Arc::new(Fake::new()), Arc::new(Hand::default()));
        let service = Arc::clone(&fake) as Arc<dyn Service>;
        let clock = Arc::clone(&hand) as Arc<dyn Clock>;
        let settings = Settings {
            policy: ClientPolicy {
                slow_log,
                ..ClientPolicy::default()
            },
            ..Settings::default()
        };
        let threads = Threads {
            count: NonZeroUsize::new(threads).unwrap(),
            ..Threads::default()
        };
        let listener = Listener::start(socket, settings, threads, &service, &clock).unwrap();
        Self {
            listener,
            fake,
            hand,
        }
    }

    fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.listener.local_address()).unwrap();
        exchange(&mut stream, "PING\r\n", "+PONG\r\n");
        stream
    }

    /// A command that is answered once so much time has passed.
    fn slow(&self, client: &mut TcpStream, request: &str, reply: &str, time: Duration) {
        self.fake.set_late(true);
        client.write_all(request.as_bytes()).unwrap();
        until(|| self.fake.held() == 1);
        self.hand.advance(time);
        self.fake.set_late(false);
        assert!(self.fake.release(0));
        assert_eq!(read(client, reply.len()), reply);
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

fn until(mut happened: impl FnMut() -> bool) {
    for _ in 0..100_000_000 {
        if happened() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("it never happened");
}

/// Whether the other side has closed.
fn is_ended(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 16]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn connections_of_all_threads_are_ended_by_name_and_all_but_ones_own() {
    let scene = Scene::new(3, SlowLogSettings::default());
    let mut clients: Vec<TcpStream> = (0..7).map(|_| scene.connect()).collect();
    let address = clients[3].local_addr().unwrap();
    exchange(
        &mut clients[0],
        &format!("CLIENT KILL {address}\r\n"),
        "+OK\r\n",
    );
    assert!(is_ended(&mut clients[3]));
    let again = format!("CLIENT KILL ADDR {address}\r\n");
    exchange(&mut clients[0], &again, ":0\r\n");
    exchange(&mut clients[4], "CLIENT ID\r\n", ":5\r\n");
    exchange(
        &mut clients[0],
        "CLIENT KILL ID 5 ID 6 ID 1 ID 99\r\n",
        ":2\r\n",
    );
    assert!(is_ended(&mut clients[4]) && is_ended(&mut clients[5]));
    exchange(&mut clients[1], "PING\r\n", "+PONG\r\n");
    // One of them has a request under way.
    scene.fake.set_late(true);
    clients[6].write_all(b"SET a 1\r\n").unwrap();
    until(|| scene.fake.held() == 1);
    exchange(&mut clients[0], "CLIENT KILL TYPE normal\r\n", ":3\r\n");
    for place in [1, 2, 6] {
        assert!(is_ended(&mut clients[place]), "{place}");
    }
    assert!(scene.fake.release(0), "its answer is dropped");
    exchange(&mut clients[0], "PING\r\n", "+PONG\r\n");
    assert_eq!(scene.listener.front().clients().len(), 1);
    exchange(&mut clients[0], "CLIENT KILL SKIPME no ID 1\r\n", ":1\r\n");
    assert!(is_ended(&mut clients[0]));
}

#[test]
fn what_waits_long_is_in_the_slow_log_and_nothing_else() {
    let slower_than = Duration::from_millis(10);
    let scene = Scene::new(
        1,
        SlowLogSettings {
            slower_than,
            entries_max: 2,
        },
    );
    let mut client = scene.connect();
    exchange(&mut client, "SET quick 1\r\n", "+OK\r\n");
    scene.slow(
        &mut client,
        "GET quick\r\n",
        "$1\r\n1\r\n",
        slower_than - Duration::from_micros(1),
    );
    exchange(&mut client, "SLOWLOG LEN\r\n", ":0\r\n");
    exchange(&mut client, "CLIENT SETNAME me\r\n", "+OK\r\n");
    scene.slow(
        &mut client,
        "SET a 1\r\n",
        "+OK\r\n",
        Duration::from_micros(12_345),
    );
    let address = client.local_addr().unwrap().to_string();
    client.write_all(b"SLOWLOG GET\r\n").unwrap();
    let head = "*1\r\n*6\r\n:0\r\n:";
    assert_eq!(read(&mut client, head.len()), head);
    let mut second = String::new();
    while !second.ends_with("\r\n") {
        second.push_str(&read(&mut client, 1));
    }
    let rest = format!(
        ":12345\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n${}\r\n{address}\r\n$2\r\nme\r\n",
        address.len()
    );
    assert_eq!(read(&mut client, rest.len()), rest);
    // The latest are kept, and their numbers go on.
    for key in ["b", "c"] {
        scene.slow(
            &mut client,
            &format!("DEL {key}\r\n"),
            ":0\r\n",
            slower_than,
        );
    }
    exchange(&mut client, "SLOWLOG LEN\r\n", ":2\r\n");
    exchange(&mut client, "SLOWLOG RESET\r\n", "+OK\r\n");
    exchange(&mut client, "SLOWLOG LEN\r\n", ":0\r\n");
    scene.slow(&mut client, "DEL d\r\n", ":0\r\n", slower_than);
    client.write_all(b"SLOWLOG GET 1\r\n").unwrap();
    let head = "*1\r\n*6\r\n:3\r\n";
    assert_eq!(read(&mut client, head.len()), head);
}

#[test]
fn requests_are_cut_short_in_the_slow_log() {
    let scene = Scene::new(
        1,
        SlowLogSettings {
            slower_than: Duration::ZERO,
            entries_max: 1,
        },
    );
    let mut client = scene.connect();
    let long = "v".repeat(1000);
    scene.slow(
        &mut client,
        &format!("SET a {long} GET\r\n"),
        "$-1\r\n",
        Duration::ZERO,
    );
    let front = scene.listener.front();
    let args = || front.operators.slow_log.latest_args().unwrap();
    assert_eq!(args()[..2], [b"SET".to_vec(), b"a".to_vec()]);
    assert_eq!(
        args()[2],
        format!("{}... (876 more bytes)", &long[..124]).as_bytes()
    );
    assert_eq!(args()[3..], [b"... (1 more arguments)".to_vec()]);
    let keys: Vec<String> = (0..20).map(|key| format!("k{key}")).collect();
    scene.slow(
        &mut client,
        &format!("DEL {}\r\n", keys.join(" ")),
        ":0\r\n",
        Duration::ZERO,
    );
    assert_eq!(args().len(), 13);
    assert_eq!(args()[12], b"... (9 more arguments)");
}

#[test]
fn histograms_tell_of_the_calls_that_were_timed() {
    let scene = Scene::new(1, SlowLogSettings::default());
    let mut client = scene.connect();
    let meter = &scene.listener.front().meter;
    for micros in [20, 60, 70, 20_000_000] {
        let timed = Timed {
            op: Op::Write,
            command: command::number_of(b"set"),
        };
        meter.observe(timed, Duration::from_micros(micros));
    }
    let told = "*2\r\n$3\r\nset\r\n*4\r\n$5\r\ncalls\r\n:4\r\n$14\r\nhistogram_usec\r\n*6\r\n\
                :25\r\n:1\r\n:100\r\n:3\r\n:20000000\r\n:4\r\n";
    exchange(&mut client, "LATENCY HISTOGRAM\r\n", told);
    exchange(&mut client, "LATENCY HISTOGRAM get SET set\r\n", told);
}
