//! The admin port: HTTP for whoever watches the server. Its pages:
//!
//! - `/livez`: 200 while the process serves this port at all.
//! - `/readyz`: 200 while reads of all regions that the server is primary of are answered, and
//!   `/readyz?writes` while writes, too, are acknowledged; otherwise 503, and what is waited for.
//!   `/readyz?verbose` is `/readyz`, and names in further lines what is degraded all the same.
//! - `/metrics`: counters and gauges of the whole server, for Prometheus; `/metrics/regions`: such as
//!   are told for each region.
//! - `/status`: all that the server knows of itself, as JSON.
//!
//! One thread serves it, asleep while nobody asks. Each connection is answered once and closed, has
//! [`TIME_MAX`] for everything, and sends a bounded head ([`http`]), which is addressed to this server ([`hosts`]).
//!
//! At most [`CONNECTIONS_MAX`] are served at a time. One more takes the place of another: of the one that has been
//! silent longest, and where all have sent their requests, of the oldest. So nobody who says nothing, or does not read,
//! keeps a health check waiting.

pub mod hosts;
pub mod http;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use argosy_base::{Clock, Instant};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

pub use self::hosts::Hosts;
use self::http::{Body, Method, Status};
use crate::service::Readiness;

/// Most connections that are served at a time.
pub const CONNECTIONS_MAX: usize = 64;

/// How long a connection has to send its request and to take the response.
pub const TIME_MAX: Duration = Duration::from_secs(5);

/// How long nothing is accepted after the system was out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the pages come from. Called from the admin thread, one at a time.
pub trait StatusSource: Send + Sync {
    /// Whether the server does what it is there for.
    fn ready(&self) -> Readiness;

    /// The metrics of the server, in the text format of Prometheus.
    fn metrics(&self) -> String;

    /// The metrics of its regions.
    fn region_metrics(&self) -> String;

    /// The status, as JSON.
    fn status(&self) -> String;
}

/// An admin port that is served. Dropping it ends that.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Serves `socket`, which is bound already.
    ///
    /// # Errors
    /// Where the operating system has no more descriptors or threads.
    pub fn start(
        socket: TcpListener,
        hosts: Hosts,
        source: Arc<dyn StatusSource>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let server = Server {
            socket,
            bell: Arc::clone(&bell),
            pages: Pages { hosts, source },
            clock,
            connections: Vec::new(),
            accept_again: None,
        };
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || server.run())?;
        Ok(Self {
            address,
            bell,
            thread: Some(thread),
        })
    }

    /// The address that clients connect to.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        // Any count but zero rings the bell.
        const ONE: [u8; 8] = 1u64.to_le_bytes();
        // Fails only where the bell rings already.
        let _ = rustix::io::write(&self.bell, &ONE);
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("admin: the thread panicked");
        }
    }
}

struct Server {
    socket: TcpListener,
    bell: Arc<OwnedFd>,
    pages: Pages,
    clock: Arc<dyn Clock>,
    connections: Vec<Connection>,
    accept_again: Option<Instant>,
}

/// What is answered, and to whom.
struct Pages {
    hosts: Hosts,
    source: Arc<dyn StatusSource>,
}

struct Connection {
    stream: TcpStream,
    until: Instant,
    input: Vec<u8>,
    /// Empty while the request is being read.
    output: Vec<u8>,
    written: usize,
    /// All is written, and we wait for the client to close.
    shut: bool,
}

/// What to do with a connection after it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Keep,
    Close,
}

impl Server {
    fn run(mut self) {
        loop {
            match self.wait() {
                Ok(Some(ready)) => self.serve(&ready),
                Ok(None) => return,
                // A set of descriptors that we own cannot fail to be waited for.
                Err(error) => panic!("admin: poll failed: {error}"),
            }
        }
    }

    /// Waits until something is to be done. Gives per connection whether it is ready, behind whether
    /// one can be accepted; `None` when the bell rang.
    fn wait(&self) -> io::Result<Option<Vec<bool>>> {
        let now = self.clock.now();
        let accept_flags = match self.accept_again {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let mut fds = vec![
            PollFd::new(&*self.bell, PollFlags::IN),
            PollFd::new(&self.socket, accept_flags),
        ];
        fds.extend(self.connections.iter().map(|connection| {
            let writes = connection.written < connection.output.len();
            let flags = if writes {
                PollFlags::OUT
            } else {
                PollFlags::IN
            };
            PollFd::new(&connection.stream, flags)
        }));
        let until = self.connections.iter().map(|connection| connection.until);
        let timeout = until.chain(self.accept_again).min().map(|until| {
            // One more, since poll counts whole milliseconds and may wake a little early.
            let left = until - now + Duration::from_millis(1);
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_millis()) * 1_000_000,
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        Ok(match ready.next() {
            Some(false) => Some(ready.collect()),
            _ => None,
        })
    }

    fn serve(&mut self, ready: &[bool]) {
        let now = self.clock.now();
        let mut index = 0;
        let pages = &self.pages;
        self.connections.retain_mut(|connection| {
            index += 1;
            let mut next = Next::Keep;
            if ready.get(index).is_some_and(|ready| *ready) {
                next = connection.advance(pages);
            }
            if next == Next::Keep && connection.until <= now {
                next = connection.time_out();
            }
            next == Next::Keep
        });
        if self.accept_again.is_some_and(|again| again <= now) {
            self.accept_again = None;
        }
        if ready.first().is_some_and(|ready| *ready) {
            self.accept(now);
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..CONNECTIONS_MAX {
            match self.socket.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_ok() {
                        self.make_room();
                        self.connections.push(Connection {
                            stream,
                            until: now + TIME_MAX,
                            input: Vec::new(),
                            output: Vec::new(),
                            written: 0,
                            shut: false,
                        });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!("admin: no connection can be accepted: {error}");
                    self.accept_again = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }
}

impl Server {
    /// Ends a connection, where there are as many as there may be: the one that has been silent longest, or the oldest.
    fn make_room(&mut self) {
        if self.connections.len() >= CONNECTIONS_MAX {
            let is_silent = |connection: &Connection| connection.output.is_empty();
            // They stand in the order in which they came.
            let at = self.connections.iter().position(is_silent).unwrap_or(0);
            self.connections.remove(at).time_out();
        }
    }
}

impl Connection {
    /// Reads what there is and writes what fits.
    fn advance(&mut self, pages: &Pages) -> Next {
        if self.output.is_empty() || self.shut {
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return Next::Close,
                Ok(_) if self.shut => return Next::Keep,
                Ok(bytes) => self.input.extend_from_slice(&piece[..bytes]),
                Err(error) => return after_error(&error),
            }
            let local = self.stream.local_addr().ok().map(|address| address.ip());
            match answer(&self.input, local, pages) {
                Some(output) => self.output = output,
                None => return Next::Keep,
            }
        }
        self.write()
    }

    fn write(&mut self) -> Next {
        match self.stream.write(&self.output[self.written..]) {
            Ok(bytes) => self.written += bytes,
            Err(error) => return after_error(&error),
        }
        if self.written == self.output.len() {
            // The client closes when it has read all; closing first could take it from it.
            self.shut = true;
            if self.stream.shutdown(Shutdown::Write).is_err() {
                return Next::Close;
            }
        }
        Next::Keep
    }

    fn time_out(&mut self) -> Next {
        if self.output.is_empty() {
            let text = http::response(
                Status::Timeout,
                Body::Text("the request did not end in time\n"),
                false,
            );
            let _ = self.stream.write(&text);
        }
        Next::Close
    }
}

fn after_error(error: &io::Error) -> Next {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Next::Keep,
        _ => Next::Close,
    }
}

/// The response to a request of which `input` has arrived, or `None` where it has not ended.
fn answer(input: &[u8], local: Option<IpAddr>, pages: &Pages) -> Option<Vec<u8>> {
    let source = &pages.source;
    let head = match http::parse(input) {
        Ok(Some(head)) => head,
        Ok(None) => return None,
        Err(status) => return Some(http::response(status, Body::Text(""), false)),
    };
    let head_only = head.method == Method::Head;
    let text = |status, text: &str| Some(http::response(status, Body::Text(text), head_only));
    if head
        .host
        .is_some_and(|host| !pages.hosts.allow(host, local))
    {
        return text(
            Status::Misdirected,
            "this server does not go by the name in Host: ask for its address, or add the name to admin.hosts\n",
        );
    }
    if !PAGES.contains(&head.path) {
        return text(
            Status::NotFound,
            &format!("there are {}\n", PAGES.join(" ")),
        );
    }
    if head.method == Method::Other {
        return text(Status::MethodNotAllowed, "only GET and HEAD\n");
    }
    let metrics = |page: &str| Some(http::response(Status::Ok, Body::Metrics(page), head_only));
    match head.path {
        "/livez" => text(Status::Ok, "ok\n"),
        "/metrics" => metrics(&source.metrics()),
        "/metrics/regions" => metrics(&source.region_metrics()),
        "/status" => {
            let status = source.status();
            Some(http::response(Status::Ok, Body::Json(&status), head_only))
        }
        _ => {
            let ready = source.ready();
            let waits_for = match head.query {
                "writes" => ready.writes,
                _ => ready.reads,
            };
            match waits_for {
                Some(what) => text(Status::Unavailable, &format!("not ready: {what}\n")),
                None if head.query == "verbose" => text(Status::Ok, &verbose(&ready.degraded)),
                None => text(Status::Ok, "ready\n"),
            }
        }
    }
}

/// Troubles that `/readyz?verbose` tells of; `/status` names all.
const TROUBLES_MAX: usize = 16;

/// That a server is ready, and what is wrong nevertheless, a line each.
fn verbose(degraded: &[String]) -> String {
    let mut text = "ready\n".to_owned();
    for what in degraded.iter().take(TROUBLES_MAX) {
        text.push_str("degraded: ");
        text.push_str(what);
        text.push('\n');
    }
    text
}

/// All pages.
const PAGES: [&str; 5] = [
    "/livez",
    "/readyz",
    "/metrics",
    "/metrics/regions",
    "/status",
];

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
