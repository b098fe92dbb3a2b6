//! The admin port over real sockets.

use std::net::Ipv4Addr;

use super::*;
use parking_lot::Mutex;

/// A clock of the tests' own: it stands still until it is moved.
#[derive(Default)]
struct Hand(Mutex<Instant>);

impl Clock for Hand {
    fn now(&self) -> Instant {
        *self.0.lock()
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

#[derive(Default)]
struct Answer(Mutex<Readiness>);

impl StatusSource for Answer {
    fn ready(&self) -> Readiness {
        self.0.lock().clone()
    }

    fn metrics(&self) -> String {
        "argosy_ready 1\n".to_owned()
    }

    fn region_metrics(&self) -> String {
        "argosy_region_edit{region=\"1\"} 2\n".to_owned()
    }

    fn status(&self) -> String {
        "{}\n".to_owned()
    }
}

fn start() -> (Admin, Arc<Answer>, Arc<Hand>) {
    let answer = Arc::new(Answer::default());
    let hand = Arc::new(Hand::default());
    let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let admin = Admin::start(
        socket,
        Hosts::new(Ipv4Addr::LOCALHOST.into(), &["here".to_owned()]),
        Arc::clone(&answer) as Arc<dyn StatusSource>,
        Arc::clone(&hand) as Arc<dyn Clock>,
    )
    .unwrap();
    (admin, answer, hand)
}

fn exchange(admin: &Admin, request: &str) -> String {
    let mut stream = TcpStream::connect(admin.local_address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn health_is_told() {
    let (admin, answer, _) = start();
    let live = exchange(&admin, "GET /livez HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(
        live.starts_with("HTTP/1.1 200 OK\r\n") && live.ends_with("\r\n\r\nok\n"),
        "{live}"
    );
    let ready = exchange(&admin, "GET /readyz?verbose HTTP/1.1\r\n\r\n");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");

    // What is degraded is told, and does not keep anybody from being sent here.
    let ready = |what: &str| exchange(&admin, &format!("GET {what} HTTP/1.1\r\n\r\n"));
    let waits = || Some("region 3 waits for server 2".to_owned());
    *answer.0.lock() = Readiness {
        writes: waits(),
        degraded: waits().into_iter().collect(),
        ..Readiness::default()
    };
    let reads = ready("/readyz");
    assert!(reads.starts_with("HTTP/1.1 200 "), "{reads}");
    assert!(reads.ends_with("\r\n\r\nready\n"), "{reads}");
    let reads = ready("/readyz?verbose");
    assert!(reads.starts_with("HTTP/1.1 200 "), "{reads}");
    let told = "\r\n\r\nready\ndegraded: region 3 waits for server 2\n";
    assert!(reads.ends_with(told), "{reads}");
    let writes = ready("/readyz?writes");
    assert!(writes.starts_with("HTTP/1.1 503 "), "{writes}");
    assert!(
        writes.ends_with("not ready: region 3 waits for server 2\n"),
        "{writes}"
    );

    answer.0.lock().reads = waits();
    let ready = exchange(&admin, "GET /readyz HTTP/1.1\r\n\r\n");
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    assert!(
        ready.ends_with("not ready: region 3 waits for server 2\n"),
        "{ready}"
    );
    let head = exchange(&admin, "HEAD /readyz HTTP/1.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 503 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let live = exchange(&admin, "GET /livez HTTP/1.1\r\n\r\n");
    assert!(live.starts_with("HTTP/1.1 200 "), "alive all the same");
}

#[test]
fn everything_else_is_refused() {
    let (admin, ..) = start();
    let long = format!(
        "GET /livez HTTP/1.1\r\nX: {}\r\n\r\n",
        "x".repeat(http::HEAD_BYTES_MAX)
    );
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /metrics/ HTTP/1.1\r\n\r\n", "404"),
        (
            "GET /livez HTTP/1.1\r\nHost: evil.example.org\r\n\r\n",
            "421",
        ),
        ("GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", "421"),
        (
            "POST /livez HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405",
        ),
        ("GET /livez HTTP/2\r\n\r\n", "505"),
        ("nonsense\r\n\r\n", "400"),
        (&long, "431"),
    ] {
        let response = exchange(&admin, request);
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{response}"
        );
    }
}

/// A client that says nothing keeps nobody else waiting, and is sent away after its time.
#[test]
fn a_silent_client_is_sent_away() {
    let (admin, _, hand) = start();
    let mut silent: Vec<TcpStream> = (0..CONNECTIONS_MAX - 1)
        .map(|_| TcpStream::connect(admin.local_address()).unwrap())
        .collect();
    silent[0].write_all(b"GET /livez").unwrap();
    let live = exchange(&admin, "GET /livez HTTP/1.1\r\n\r\n");
    assert!(live.starts_with("HTTP/1.1 200 "));

    *hand.0.lock() = Instant::default() + TIME_MAX;
    // Something has to wake the thread to look at its clock, which only we move.
    let live = exchange(&admin, "GET /livez HTTP/1.1\r\n\r\n");
    assert!(live.starts_with("HTTP/1.1 200 "));
    for stream in &mut silent {
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    }
}

/// As many silent clients as there is room for, and more, do not keep a health check waiting: the one that has been
/// silent longest goes.
#[test]
fn silent_clients_make_room() {
    let (admin, ..) = start();
    let connect = || TcpStream::connect(admin.local_address()).unwrap();
    let live = || {
        let live = exchange(&admin, "GET /livez HTTP/1.1\r\n\r\n");
        assert!(live.starts_with("HTTP/1.1 200 "), "{live}");
    };
    let mut silent: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
    live();
    let mut response = String::new();
    silent[0].read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    // The others are there still, and are answered once they ask.
    let last = CONNECTIONS_MAX - 1;
    silent[last]
        .write_all(b"GET /livez HTTP/1.1\r\n\r\n")
        .unwrap();
    response.clear();
    silent[last].read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let more: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX).map(|_| connect()).collect();
    live();
    drop(more);
}

/// Nor do clients that have asked and do not read what they are answered.
#[test]
fn clients_that_do_not_read_make_room() {
    let (admin, ..) = start();
    let greedy: Vec<TcpStream> = (0..CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(admin.local_address()).unwrap();
            stream.write_all(b"GET /status HTTP/1.1\r\n\r\n").unwrap();
            // It has been answered, and does not close.
            stream.peek(&mut [0]).unwrap();
            stream
        })
        .collect();
    let live = exchange(&admin, "GET /livez HTTP/1.1\r\n\r\n");
    assert!(live.starts_with("HTTP/1.1 200 "), "{live}");
    drop(greedy);
}

#[test]
fn pages_say_what_they_are() {
    let (admin, ..) = start();
    for (path, kind, body) in [
        ("/metrics", "text/plain; version=0.0.4", "argosy_ready 1\n"),
        (
            "/metrics/regions",
            "text/plain; version=0.0.4",
            "argosy_region_edit{region=\"1\"} 2\n",
        ),
        ("/status", "application/json", "{}\n"),
    ] {
        let page = exchange(&admin, &format!("GET {path} HTTP/1.1\r\n\r\n"));
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
        let content = format!("\r\nContent-Type: {kind}");
        assert!(
            page.contains(&content) && page.ends_with(&format!("\r\n\r\n{body}")),
            "{page}"
        );
    }
}
