//! `argosy playground kill` and its like: they ask the playground that runs, and print what it answers.
//!
//! 1. Find the playground: the one in `--data-dir`; without that the one whose data goes away with it, of which
//!    there must be one alone.
//! 2. Send the request to its socket, and read the answer: as much as an answer can be, for as long as one may take.
//! 3. Print the servers that were asked for, in the state that they are in now.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::control;
use super::protocol::{
    ANSWER_BYTES_MAX, Answer, NoAnswer, RefusalKind, Request, ServerLine, Verb, parse_answer,
};
use super::say;
use crate::cli::OutputFormat;
use crate::cluster::{lock, scratch};
use crate::failure::CommandFailure;

/// The schema of the line that `-o json` prints.
const SCHEMA: &str = "argosy.playground-status.v1";

/// How long an answer may take: longer than the playground waits for signals to have their effect.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// What can be asked of a running playground.
#[derive(Subcommand, Debug)]
pub(crate) enum PlaygroundCommand {
    /// Show what the servers of a running playground do
    ///
    /// A line for each server: running, stopped (by a signal), ended, or started by hand; its process and addresses.
    #[command(after_help = "Examples:\n  argosy playground status\n  \
        argosy playground status --data-dir ./data -o json\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such playground or server, 4 no answer (try again)")]
    Status(StatusArgs),
    /// Kill servers of a running playground (SIGKILL)
    ///
    /// Nothing that was acknowledged is lost: it is in shared memory, which outlives a process. The playground and
    /// its other servers go on.
    #[command(after_help = "Examples:\n  argosy playground kill 1\n  \
        argosy playground kill 1 2 --data-dir ./data\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such server or it has ended, 4 no answer (try again)")]
    Kill(NamedArgs),
    /// Halt servers of a running playground (SIGSTOP)
    ///
    /// A halted server keeps its ports and its memory, and does not answer: it looks like one that hangs.
    #[command(after_help = "Examples:\n  argosy playground stop 1\n  \
        argosy playground stop 0 2 --data-dir ./data\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such server or it does not run, 4 no answer (try again)")]
    Stop(NamedArgs),
    /// Let stopped servers of a running playground go on (SIGCONT)
    #[command(after_help = "Examples:\n  argosy playground cont 1\n  \
        argosy playground cont 0 2 --data-dir ./data\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such server or it is not stopped, 4 no answer (try again)")]
    Cont(NamedArgs),
    /// Start servers of a running playground that have ended; kill them first where they have not
    ///
    /// Returns when they are started. Each reads its configuration anew, and is ready when its admin port says so.
    #[command(after_help = "Examples:\n  argosy playground restart 1\n  \
        argosy playground restart 0 1 2 --data-dir ./data\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 no such server or it was started by hand, 4 no answer (try again)")]
    Restart(NamedArgs),
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Only these servers [default: all]
    #[arg(value_name = "N")]
    servers: Vec<usize>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct NamedArgs {
    /// The numbers of the servers, as `argosy playground status` shows them
    #[arg(required = true, value_name = "N")]
    servers: Vec<usize>,
    #[command(flatten)]
    common: Common,
}

/// What all of them take.
#[derive(Args, Debug)]
struct Common {
    /// Data directory of the playground [default: that of the one that was started without --data-dir]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    data_dir: &'a Path,
    servers: Vec<ReportedServer>,
}

/// A server in [`Report`].
#[derive(Serialize)]
struct ReportedServer {
    id: usize,
    state: &'static str,
    pid: Option<u32>,
    resp: String,
    admin: String,
}

impl PlaygroundCommand {
    /// Asks, and prints the answer.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        let (verb, servers, common) = match self {
            Self::Status(status) => (Verb::Status, status.servers, status.common),
            Self::Kill(named) => (Verb::Kill, named.servers, named.common),
            Self::Stop(named) => (Verb::Stop, named.servers, named.common),
            Self::Cont(named) => (Verb::Cont, named.servers, named.common),
            Self::Restart(named) => (Verb::Restart, named.servers, named.common),
        };
        let request = Request { verb, servers };
        let (dir, stream) = match &common.data_dir {
            Some(dir) => (dir.clone(), connect(dir)?),
            None => find(&std::env::temp_dir())?,
        };
        let answer = ask(&dir, stream, &request)?;
        let servers = answer.map_err(|refused| match refused.kind {
            RefusalKind::Usage => CommandFailure::Usage(refused.words),
            RefusalKind::NotFound => CommandFailure::NotFound(refused.words),
            RefusalKind::Failed => CommandFailure::Failed(refused.words),
        })?;
        match (common.output, verb) {
            (OutputFormat::Json, _) => print_json(&dir, &servers),
            (OutputFormat::Table, Verb::Status) => print_table(&servers),
            (OutputFormat::Table, _) => print_states(&servers),
        }
        Ok(())
    }
}

/// Connects to the playground in `dir`.
fn connect(dir: &Path) -> Result<UnixStream, CommandFailure> {
    let shown = dir.display();
    control::connect(dir).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => {
            match lock::held(dir) {
                true => CommandFailure::Unreachable(format!(
                    "{shown}: a playground is starting or ending there; try again when it has printed its \
                     addresses, or start another one when it has ended"
                )),
                false => CommandFailure::NotFound(format!(
                    "{shown}: no playground runs there; start one with argosy playground --data-dir {shown}, or \
                     name the directory of one that runs with --data-dir"
                )),
            }
        }
        _ => CommandFailure::io("reach the playground in", dir, &error),
    })
}

/// The one playground that runs in a directory of this user's in `root` that goes away with it.
pub(super) fn find(root: &Path) -> Result<(PathBuf, UnixStream), CommandFailure> {
    let dirs = scratch::own_directories(root).into_iter();
    let mut found: Vec<_> = dirs
        .filter_map(|dir| {
            let stream = control::connect(&dir).ok()?;
            Some((dir, stream))
        })
        .collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(CommandFailure::NotFound(
            "no playground runs that was started without --data-dir; name the directory of one that runs with \
             --data-dir, or start one with argosy playground"
                .to_owned(),
        )),
        _ => {
            let dirs: Vec<_> = found.iter().map(|(dir, _)| dir.display().to_string()).collect();
            Err(CommandFailure::Usage(format!(
                "several playgrounds run, in {}; name one of these directories with --data-dir",
                dirs.join(" and ")
            )))
        }
    }
}

/// What the playground in `dir` answers to `request`.
fn ask(dir: &Path, mut stream: UnixStream, request: &Request) -> Result<Answer, CommandFailure> {
    let shown = dir.display();
    let silent = |error: std::io::Error| {
        CommandFailure::Unreachable(format!(
            "{shown}: the playground does not answer: {error}; see what it prints, and try again"
        ))
    };
    stream
        .set_read_timeout(Some(ANSWER_TIME_MAX))
        .map_err(silent)?;
    stream
        .set_write_timeout(Some(ANSWER_TIME_MAX))
        .map_err(silent)?;
    stream.write_all(&request.to_bytes()).map_err(silent)?;
    let mut bytes = Vec::new();
    let most = ANSWER_BYTES_MAX as u64 + 1;
    stream.take(most).read_to_end(&mut bytes).map_err(silent)?;
    parse_answer(&bytes).map_err(|error| match error {
        NoAnswer::CutOff => CommandFailure::Unreachable(format!(
            "{shown}: {error}; whether anything was done says argosy playground status"
        )),
        NoAnswer::OtherVersion => CommandFailure::Failed(format!(
            "{shown}: what listens there is no playground of this version: {error}; use the program that it was \
             started with"
        )),
    })
}

fn print_json(dir: &Path, servers: &[ServerLine]) {
    let servers = servers.iter().map(|server| ReportedServer {
        id: server.id,
        state: server.state.name(),
        pid: server.process,
        resp: server.resp.to_string(),
        admin: server.admin.to_string(),
    });
    let report = Report {
        schema: SCHEMA,
        data_dir: dir,
        servers: servers.collect(),
    };
    say(&serde_json::to_string(&report).expect("plain data has a JSON form"));
}

fn print_table(servers: &[ServerLine]) {
    say("server  state    process  redis protocol    admin");
    for server in servers {
        say(&format!(
            "{:<7} {:<8} {:<8} {:<17} {}",
            server.id,
            server.state.name(),
            process(server).unwrap_or_else(|| "-".to_owned()),
            server.resp.to_string(),
            server.admin
        ));
    }
}

fn print_states(servers: &[ServerLine]) {
    for server in servers {
        let process = process(server).map_or_else(String::new, |id| format!(", process {id}"));
        say(&format!(
            "server {}: {}{process}",
            server.id,
            server.state.name()
        ));
    }
}

fn process(server: &ServerLine) -> Option<String> {
    server.process.map(|process| process.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Without a name there must be one playground alone, and a directory that has none counts as little as one
    /// whose playground is dead.
    #[test]
    fn the_one_playground_that_runs_is_found() {
        let root = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let dir = root.path().join(format!("argosy-scratch-{name}"));
            std::fs::create_dir(&dir).unwrap();
            dir
        };
        let code = || match find(root.path()) {
            Ok((found, _)) => Ok(found),
            Err(CommandFailure::NotFound(_)) => Err(3),
            Err(CommandFailure::Usage(words)) => {
                assert!(words.contains("argosy-scratch-1-0 and "), "{words}");
                Err(2)
            }
            Err(other) => panic!("{other}"),
        };
        dir("7-0");
        drop(UnixListener::bind(dir("8-0").join(control::NAME)).unwrap());
        assert_eq!(code(), Err(3));
        let one = dir("1-0");
        let _one = UnixListener::bind(one.join(control::NAME)).unwrap();
        assert_eq!(code(), Ok(one.clone()));
        // It is reached by another name, of a link, which anybody may have made.
        std::os::unix::fs::symlink(&one, root.path().join("argosy-scratch-9-0")).unwrap();
        assert_eq!(code(), Ok(one));
        let _two = UnixListener::bind(dir("2-0").join(control::NAME)).unwrap();
        assert_eq!(code(), Err(2));
    }

    /// Whoever holds the lock and does not listen yet, or any more, is to be asked again.
    #[test]
    fn a_playground_that_starts_or_ends_is_told_from_none() {
        let dir = tempfile::tempdir().unwrap();
        let failed = || connect(dir.path()).unwrap_err();
        assert!(matches!(failed(), CommandFailure::NotFound(_)));
        let lock = lock::DirLock::take(dir.path()).unwrap();
        assert!(matches!(failed(), CommandFailure::Unreachable(_)));
        drop(lock);
        assert!(matches!(failed(), CommandFailure::NotFound(_)));
    }

    #[test]
    fn what_answers_otherwise_is_no_playground() {
        for (said, words) in [
            ("argosy-playground/1\nserver 0 ru", "cut off"),
            ("", "cut off"),
            (
                "argosy-playground/2\ndone\n",
                "does not speak argosy-playground/1",
            ),
            (
                "-ERR unknown command\r\n",
                "does not speak argosy-playground/1",
            ),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(said.as_bytes()).unwrap();
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            let request = Request {
                verb: Verb::Status,
                servers: Vec::new(),
            };
            let failed = ask(Path::new("DIR"), ours, &request).unwrap_err();
            assert!(failed.to_string().contains(words), "{failed}");
        }
    }
}
