//! Asks a server's admin port whether it is ready, and decides how long to go on asking.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use argosy_base::Instant;

/// How long one question may take.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Longest answer read, in bytes.
const ANSWER_MAX: u64 = 16 << 10;

/// How long a server may be silent before it counts as one that does not start.
const SILENT_MAX: Duration = Duration::from_secs(120);

/// The shortest time between two messages about what a server waits for, and before the first.
const TOLD_AFTER: Duration = Duration::from_secs(5);

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyAnswer {
    /// It is ready.
    Ready,
    /// It runs, and this is what it waits for.
    NotYet(String),
    /// It does not answer, for this reason.
    Silent(String),
}

/// Asks once.
pub fn ask(admin: SocketAddr) -> ReadyAnswer {
    let answer = match get(admin) {
        Ok(answer) => answer,
        Err(error) => return ReadyAnswer::Silent(format!("{admin} does not answer: {error}")),
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => ReadyAnswer::Ready,
        Some(_) => {
            let body = body.trim();
            let reason = body.strip_prefix("not ready: ").unwrap_or(body);
            ReadyAnswer::NotYet(reason.to_owned())
        }
        None => ReadyAnswer::Silent(format!("{admin} does not answer as a server does")),
    }
}

/// How long one server is waited for: as long as it answers. Filling a copy takes as long as it takes, and a server
/// that waits for an operator says so.
pub struct Patience {
    heard: Instant,
    told: Instant,
    reason: String,
    listens: bool,
}

/// What to do after a [`ReadyAnswer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the server is ready.
    Done,
    /// Ask again: it waits for this.
    Wait(String),
    /// Ask again, and print what it waits for.
    Tell(String),
    /// It has been silent for too long.
    GiveUp(String),
}

impl Patience {
    /// The server was started at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            heard: now,
            told: now,
            reason: String::new(),
            listens: false,
        }
    }

    /// Whether it has answered once.
    pub fn listens(&self) -> bool {
        self.listens
    }

    /// It gave `answer` at `now`.
    pub fn judge(&mut self, now: Instant, answer: ReadyAnswer) -> Verdict {
        match answer {
            ReadyAnswer::Silent(reason) if now - self.heard > SILENT_MAX => Verdict::GiveUp(
                format!("not ready after {} s: {reason}", SILENT_MAX.as_secs()),
            ),
            ReadyAnswer::Silent(reason) => Verdict::Wait(reason),
            ReadyAnswer::Ready => {
                self.hear(now);
                Verdict::Done
            }
            ReadyAnswer::NotYet(reason) => {
                self.hear(now);
                if now - self.told < TOLD_AFTER || self.reason == reason {
                    return Verdict::Wait(reason);
                }
                self.told = now;
                self.reason.clone_from(&reason);
                Verdict::Tell(reason)
            }
        }
    }

    fn hear(&mut self, now: Instant) {
        self.heard = now;
        self.listens = true;
    }
}

fn get(admin: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_200_is_ready() {
        for (answer, ready) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n",
                ReadyAnswer::Ready,
            ),
            (
                "HTTP/1.1 503 Service Unavailable\r\n\r\nnot ready: region 1: 2 of 3 members\n",
                ReadyAnswer::NotYet("region 1: 2 of 3 members".to_owned()),
            ),
            (
                "+PONG\r\n",
                ReadyAnswer::Silent("ADDR does not answer as a server does".to_owned()),
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            let server = std::thread::Builder::new().spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let read = stream.read(&mut request).unwrap();
                assert!(request[..read].starts_with(b"GET /readyz "));
                stream.write_all(answer.as_bytes()).unwrap();
            });
            let ready = match ready {
                ReadyAnswer::Silent(reason) => {
                    ReadyAnswer::Silent(reason.replace("ADDR", &addr.to_string()))
                }
                other => other,
            };
            assert_eq!(ask(addr), ready);
            server.unwrap().join().unwrap();
        }
    }

    #[test]
    fn a_server_is_waited_for_as_long_as_it_answers() {
        let mut patience = Patience::new(at(0));
        let filled = "region 1 is being filled".to_owned();
        let opened = "region 1 is being opened".to_owned();
        let wait = || Verdict::Wait(filled.clone());
        let mut judge = |seconds, reason: &String| {
            patience.judge(at(seconds), ReadyAnswer::NotYet(reason.clone()))
        };
        assert_eq!(judge(1, &filled), wait(), "too early to tell");
        assert_eq!(judge(5, &filled), Verdict::Tell(filled.clone()));
        for hour in 1..100 {
            assert_eq!(judge(hour * 3600, &filled), wait(), "it was told");
        }
        assert_eq!(judge(360_000, &opened), Verdict::Tell(opened.clone()));
        assert_eq!(judge(360_001, &filled), wait(), "one was just told");
        assert_eq!(
            patience.judge(at(360_002), ReadyAnswer::Ready),
            Verdict::Done
        );
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let mut patience = Patience::new(at(0));
        let refused = || ReadyAnswer::Silent("connection refused".to_owned());
        let wait = || Verdict::Wait("connection refused".to_owned());
        assert_eq!(patience.judge(at(120), refused()), wait());
        assert!(!patience.listens());
        patience.judge(at(120), ReadyAnswer::NotYet("it is opened".to_owned()));
        assert!(patience.listens());
        assert_eq!(patience.judge(at(240), refused()), wait());
        let words = "not ready after 120 s: connection refused".to_owned();
        assert_eq!(patience.judge(at(241), refused()), Verdict::GiveUp(words));
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }
}
