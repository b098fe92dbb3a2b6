//! What a command says to the playground that it is for, and what it is answered.
//!
//! The playground listens on a Unix socket, `DIR/control`. A connection carries one request and its answer;
//! then the playground closes it.
//!
//! ```text
//! request := VERSION " " verb { " " number } LF            at most REQUEST_BYTES_MAX bytes
//! verb    := "status" | "kill" | "stop" | "cont" | "restart"
//! number  := the number of a server, in decimal
//!
//! answer  := VERSION LF { server LF } end LF               at most ANSWER_BYTES_MAX bytes
//! server  := "server " number " " state " " process " " resp " " admin
//! state   := "running" | "stopped" | "ended" | "by-hand"
//! process := a process id in decimal | "-"
//! resp    := address and port of the Redis protocol
//! admin   := address and port for health
//! end     := "done" | "refused " kind " " words
//! kind    := "usage" | "not-found" | "failed"
//!
//! VERSION := "argosy-playground/1"
//! ```
//!
//! Invariants:
//!
//! - A request names each server once. One without a number is about all servers, and only `status` may be.
//! - Bytes that are no request of this version are answered by a refusal of kind `usage`.
//! - An answer names the servers that were asked for, in their state afterwards, or it is a refusal.
//! - An answer without its `end` was cut off, and counts as none.
//! - No byte of a line is a control character.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::cluster::layout::SERVERS_MAX;
use crate::cluster::member::ServerState;

/// What each request and each answer begins with.
pub(crate) const VERSION: &str = "argosy-playground/1";

/// Longest request with its end of line: the longest verb, and as many servers as a cluster may have, of two
/// digits each.
pub(crate) const REQUEST_BYTES_MAX: usize = VERSION.len() + " restart".len() + 3 * SERVERS_MAX + 1;

/// Longest answer: a line of each server, of at most 128 bytes, and the words of a refusal.
pub(crate) const ANSWER_BYTES_MAX: usize = 128 * SERVERS_MAX + WORDS_BYTES_MAX + 64;

/// Longest words of a refusal. The rest is cut off.
const WORDS_BYTES_MAX: usize = 8 << 10;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// What servers do.
    Status,
    /// End servers at once (SIGKILL).
    Kill,
    /// Halt servers (SIGSTOP).
    Stop,
    /// Let stopped servers go on (SIGCONT).
    Cont,
    /// Start servers that have ended; kill the others first.
    Restart,
}

impl Verb {
    pub(crate) const ALL: [Self; 5] = [
        Self::Status,
        Self::Kill,
        Self::Stop,
        Self::Cont,
        Self::Restart,
    ];

    /// Its word.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Cont => "cont",
            Self::Restart => "restart",
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    /// Which servers; none for all.
    pub(crate) servers: Vec<usize>,
}

/// Why a request was refused, by what the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// Correct the request.
    Usage,
    /// Name a server that exists, or one that is in another state.
    NotFound,
    /// Look at the words.
    Failed,
}

impl RefusalKind {
    const ALL: [Self; 3] = [Self::Usage, Self::NotFound, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::NotFound => "not-found",
            Self::Failed => "failed",
        }
    }
}

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    pub(crate) words: String,
}

impl Refusal {
    pub(crate) const fn new(kind: RefusalKind, words: String) -> Self {
        Self { kind, words }
    }

    pub(crate) fn usage(words: impl Into<String>) -> Self {
        Self::new(RefusalKind::Usage, words.into())
    }
}

/// A server in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerLine {
    pub(crate) id: usize,
    pub(crate) state: ServerState,
    /// Its process, if it has one that is known.
    pub(crate) process: Option<u32>,
    pub(crate) resp: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// What a playground answers.
pub(crate) type Answer = Result<Vec<ServerLine>, Refusal>;

/// Why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// Ask for the state: what was asked for may be done.
    #[error("the answer was cut off")]
    CutOff,
    /// Use the program that the playground was started with.
    #[error("it does not speak {VERSION}")]
    OtherVersion,
}

impl Request {
    /// The bytes of it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut line = format!("{VERSION} {}", self.verb.name());
        for server in &self.servers {
            write!(line, " {server}").expect("a text can grow");
        }
        line.push('\n');
        line.into_bytes()
    }

    /// Reads `bytes`: all that was received up to the first end of line, or more.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let line = whole_line(bytes)?;
        let mut words = line.split(' ');
        if words.next() != Some(VERSION) {
            let words = format!("this playground speaks {VERSION}, and the request does not");
            return Err(Refusal::usage(words));
        }
        let verb = words.next().unwrap_or_default();
        let verb = Verb::ALL.into_iter().find(|known| known.name() == verb);
        let verb = verb.ok_or_else(|| {
            let known = Verb::ALL.map(Verb::name).join(", ");
            Refusal::usage(format!("the request has none of the verbs {known}"))
        })?;
        let mut servers = Vec::new();
        for word in words {
            let server = number(word).ok_or_else(|| {
                Refusal::usage("the request names a server by something that is no number")
            })?;
            if servers.contains(&server) {
                return Err(Refusal::usage(format!("server {server} is named twice")));
            }
            servers.push(server);
        }
        if servers.is_empty() && verb != Verb::Status {
            let words = format!("{} wants the number of a server at least", verb.name());
            return Err(Refusal::usage(words));
        }
        Ok(Self { verb, servers })
    }
}

/// The one line that `bytes` are.
fn whole_line(bytes: &[u8]) -> Result<&str, Refusal> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    match end {
        _ if bytes.len() > REQUEST_BYTES_MAX => Err(Refusal::usage(format!(
            "the request is longer than {REQUEST_BYTES_MAX} bytes"
        ))),
        None => Err(Refusal::usage("the request was cut off")),
        Some(end) if end + 1 < bytes.len() => {
            Err(Refusal::usage("there are bytes behind the request"))
        }
        Some(end) => {
            std::str::from_utf8(&bytes[..end]).map_err(|_| Refusal::usage("the request is no text"))
        }
    }
}

/// A number without sign or superfluous zeros.
fn number(word: &str) -> Option<usize> {
    let number: usize = word.parse().ok()?;
    (number.to_string() == word).then_some(number)
}

/// The bytes of an answer.
pub(crate) fn answer_to_bytes(answer: &Answer) -> Vec<u8> {
    let mut text = format!("{VERSION}\n");
    match answer {
        Ok(servers) => {
            for server in servers {
                text.push_str(&line_of(server));
                text.push('\n');
            }
            text.push_str("done\n");
        }
        Err(Refusal { kind, words }) => {
            let printable = |c: char| if c.is_control() { ' ' } else { c };
            let mut words: String = words.chars().map(printable).collect();
            words.truncate(words.floor_char_boundary(WORDS_BYTES_MAX));
            text.push_str(&format!("refused {} {words}\n", kind.name()));
        }
    }
    text.into_bytes()
}

fn line_of(server: &ServerLine) -> String {
    let process = server.process.map(|process| process.to_string());
    format!(
        "server {} {} {} {} {}",
        server.id,
        server.state.name(),
        process.as_deref().unwrap_or("-"),
        server.resp,
        server.admin
    )
}

/// Reads an answer.
pub(crate) fn parse_answer(bytes: &[u8]) -> Result<Answer, NoAnswer> {
    let text = std::str::from_utf8(bytes).map_err(|_| NoAnswer::OtherVersion)?;
    let version = format!("{VERSION}\n");
    let Some(mut rest) = text.strip_prefix(&version) else {
        return Err(match version.starts_with(text) {
            true => NoAnswer::CutOff,
            false => NoAnswer::OtherVersion,
        });
    };
    let mut servers = Vec::new();
    loop {
        let (line, behind) = rest.split_once('\n').ok_or(NoAnswer::CutOff)?;
        rest = behind;
        if line.chars().any(char::is_control) {
            return Err(NoAnswer::OtherVersion);
        }
        if let Some(server) = line.strip_prefix("server ") {
            servers.push(parse_server(server).ok_or(NoAnswer::OtherVersion)?);
            continue;
        }
        let answer = match line.strip_prefix("refused ") {
            Some(refused) => Err(parse_refusal(refused).ok_or(NoAnswer::OtherVersion)?),
            None if line == "done" => Ok(servers),
            None => return Err(NoAnswer::OtherVersion),
        };
        return match rest.is_empty() {
            true => Ok(answer),
            false => Err(NoAnswer::OtherVersion),
        };
    }
}

fn parse_server(line: &str) -> Option<ServerLine> {
    let mut words = line.split(' ');
    let mut next = || words.next();
    let (id, state, process) = (next()?, next()?, next()?);
    let (resp, admin) = (next()?, next()?);
    if next().is_some() {
        return None;
    }
    let mut states = ServerState::ALL.into_iter();
    Some(ServerLine {
        id: number(id)?,
        state: states.find(|known| known.name() == state)?,
        process: match process {
            "-" => None,
            process => Some(process.parse().ok()?),
        },
        resp: resp.parse().ok()?,
        admin: admin.parse().ok()?,
    })
}

fn parse_refusal(line: &str) -> Option<Refusal> {
    let (kind, words) = line.split_once(' ')?;
    let mut kinds = RefusalKind::ALL.into_iter();
    let kind = kinds.find(|known| known.name() == kind)?;
    Some(Refusal::new(kind, words.to_owned()))
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
