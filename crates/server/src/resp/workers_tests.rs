//! Requests that need the device, over real sockets: who waits for them, what is read together, and what keeps its
//! order.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use argosy_base::Clock;
use argosy_device::SystemClock;
use argosy_engine::Reach;

use super::fake::Fake;
use super::front::Settings;
use super::{Listener, Threads};
use crate::service::{Begun, InfoSection, KeyList, Readiness, ReplyTo, Request, Service};
use crate::tasks::{TaskCounts, Tasks, Workers};

/// A service that has keys with a `c` on a device only, which does not answer until its gate is opened.
#[derive(Default)]
struct Gated {
    fake: Fake,
    open: Mutex<bool>,
    bell: Condvar,
    /// Calls that reached the device.
    reads: AtomicUsize,
    /// How many keys were read together, each time.
    together: Mutex<Vec<usize>>,
}

impl Gated {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.bell.notify_all();
    }
}

fn needs_device(request: &Request<'_>) -> bool {
    match request {
        Request::Get { key } => key.starts_with(b"c"),
        Request::Write { batch, options } => {
            options.return_previous && batch.ops().any(|op| op.key().starts_with(b"c"))
        }
        _ => false,
    }
}

impl Service for Gated {
    fn call(&self, request: Request<'_>, reach: Reach, reply: ReplyTo) -> Begun {
        if needs_device(&request) {
            if reach == Reach::Memory {
                return Begun::NeedsDevice;
            }
            self.reads.fetch_add(1, Ordering::Relaxed);
            let open = self.open.lock().unwrap();
            drop(self.bell.wait_while(open, |open| !*open).unwrap());
        }
        self.fake.call(request, reach, reply)
    }

    fn get_each(&self, keys: &KeyList, replies: &[ReplyTo]) {
        self.together.lock().unwrap().push(keys.len());
        self.fake.get_each(keys, replies);
    }

    fn flush(&self) {
        self.fake.flush();
    }

    fn info(&self) -> Vec<InfoSection> {
        self.fake.info()
    }

    fn ready(&self) -> Readiness {
        self.fake.ready()
    }
}

/// One thread for sockets and one worker.
struct Served {
    gated: Arc<Gated>,
    listener: Listener,
    tasks: Arc<Tasks>,
    _workers: Workers,
}

fn serve(tasks_max: usize) -> Served {
    let gated = Arc::new(Gated::default());
    let service: Arc<dyn Service> = Arc::<Gated>::clone(&gated);
    let tasks = Arc::new(Tasks::new(tasks_max));
    let workers = Workers::start(&tasks, 1, &service).unwrap();
    let threads = Threads {
        tasks: Some(Arc::clone(&tasks)),
        ..Threads::default()
    };
    let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let listener = Listener::start(socket, Settings::default(), threads, &service, &clock);
    Served {
        gated,
        listener: listener.unwrap(),
        tasks,
        _workers: workers,
    }
}

impl Served {
    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.listener.local_address()).unwrap()
    }

    fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.gated.fake.pairs().get(key.as_bytes()).cloned()
    }
}

fn send(stream: &mut TcpStream, lines: &str) {
    stream.write_all(lines.as_bytes()).unwrap();
}

fn expect(stream: &mut TcpStream, expected: &str) {
    let mut out = vec![0; expected.len()];
    stream.read_exact(&mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

/// Waits until `what` holds.
fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn gets_that_wait_for_the_device_hold_up_no_other_connection_and_are_read_together() {
    let served = serve(64);
    let (mut cold, mut warm) = (served.connect(), served.connect());
    send(&mut cold, "GET c0\r\n");
    until(|| served.gated.reads.load(Ordering::Relaxed) == 1);
    let pipeline: String = (0..16).map(|n| format!("GET c{n}\r\n")).collect();
    let (mut second, mut third) = (served.connect(), served.connect());
    send(&mut second, &pipeline);
    send(&mut third, &pipeline);
    for n in 100..300 {
        send(&mut warm, &format!("SET w {n}\r\nGET w\r\n"));
        expect(&mut warm, &format!("+OK\r\n$3\r\n{n}\r\n"));
    }
    until(|| served.tasks.counts().queued == 32);
    served.gated.open();
    expect(&mut cold, "$-1\r\n");
    expect(&mut second, &"$-1\r\n".repeat(16));
    expect(&mut third, &"$-1\r\n".repeat(16));
    assert_eq!(*served.gated.together.lock().unwrap(), [32]);
    let counts = TaskCounts {
        workers: 1,
        queued: 0,
        done: 33,
        batches: 2,
        queue_full: 0,
    };
    until(|| served.tasks.counts() == counts);
}

#[test]
fn a_pipeline_reads_what_it_wrote_before_and_nothing_that_it_wrote_behind() {
    let served = serve(64);
    let mut client = served.connect();
    let lines = [
        "SET c1 a", "GET c1", "SET w 1", "GET w", "SET c1 b", "GET c1", "PING",
    ];
    send(&mut client, &(lines.join("\r\n") + "\r\n"));
    expect(&mut client, "+OK\r\n");
    // What is about another key is carried out, and answered in its turn.
    until(|| served.value("w").is_some());
    until(|| served.gated.reads.load(Ordering::Relaxed) == 1);
    assert_eq!(served.value("c1").unwrap(), b"a");
    served.gated.open();
    expect(
        &mut client,
        "$1\r\na\r\n+OK\r\n$1\r\n1\r\n+OK\r\n$1\r\nb\r\n+PONG\r\n",
    );
}

#[test]
fn nothing_overtakes_a_write_that_waits_for_the_device() {
    let served = serve(64);
    let (mut client, mut other) = (served.connect(), served.connect());
    send(&mut client, "GETSET c1 a\r\nSET w 1\r\nGET c1\r\n");
    until(|| served.gated.reads.load(Ordering::Relaxed) == 1);
    send(&mut other, "SET v 1\r\nGET w\r\n");
    expect(&mut other, "+OK\r\n$-1\r\n");
    assert_eq!(served.value("w"), None);
    served.gated.open();
    expect(&mut client, "$-1\r\n+OK\r\n$1\r\na\r\n");
}

#[test]
fn the_thread_itself_reads_what_finds_no_room_with_the_workers() {
    let served = serve(1);
    served.gated.open();
    let mut client = served.connect();
    let gets = 200;
    send(&mut client, &"GET c1\r\nGET c2\r\n".repeat(gets / 2));
    expect(&mut client, &"$-1\r\n".repeat(gets));
    let counts = served.tasks.counts();
    let reads = served.gated.reads.load(Ordering::Relaxed);
    assert_eq!(counts.queued, 0);
    assert!(counts.done > 0 && reads == gets, "{counts:?}, {reads}");
}
