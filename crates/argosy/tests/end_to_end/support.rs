//! What the end-to-end tests share: playgrounds, servers that are restarted by hand, clients.
//!
//! Everything runs as a user would run it: the built binary, separate processes, sockets. Whatever
//! a test starts ends with it, also where it fails.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use argosy::cluster::ports::PortClaim;
use argosy_bench::resp::{Connection, Reply};
use argosy_bench::run::parse_info;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long anything may take before the test gives up. Nothing here is a measurement.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The binary under test.
pub(crate) fn argosy() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_argosy"));
    command.env("RUST_BACKTRACE", "1");
    command
}

/// A cluster started by `argosy playground`.
pub(crate) struct Playground {
    process: Child,
    pub(crate) data_dir: PathBuf,
    pub(crate) servers: Vec<Server>,
}

/// A server of a playground.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) pid: u32,
    pub(crate) config: PathBuf,
    pub(crate) resp: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// The environment variable that turns failover off.
const FIXED: (&str, &str) = ("ARGOSY_FAILOVER__ENABLED", "false");

impl Playground {
    /// Starts `argosy playground -o json` with `args`, and waits until it is ready.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_by(&mut argosy(), args)
    }

    /// The same with failover off.
    pub(crate) fn start_fixed(args: &[&str]) -> Self {
        Self::start_by(argosy().env(FIXED.0, FIXED.1), args)
    }

    /// The same with a variable that has this value.
    pub(crate) fn start_with(variable: &str, value: &str, args: &[&str]) -> Self {
        Self::start_by(argosy().env(variable, value), args)
    }

    fn start_by(argosy: &mut Command, args: &[&str]) -> Self {
        let memory: &[&str] = match args.contains(&"--memory") {
            true => &[],
            false => &["--memory", "128MiB"],
        };
        let mut process = argosy
            .args(["playground", "-o", "json", "--l0-bytes", "1MiB"])
            .args(memory)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let line = first_line(&mut process);
        let ready: Value = serde_json::from_str(&line).expect("one line of JSON");
        assert_eq!(ready["schema"], "argosy.playground.v1");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let number = |value: &Value| value.as_u64().expect("a number");
        let servers = ready["servers"].as_array().expect("servers");
        for (id, server) in servers.iter().enumerate() {
            assert_eq!(server["id"], id);
        }
        Self {
            data_dir: PathBuf::from(text(&ready["data_dir"])),
            servers: servers
                .iter()
                .map(|server| Server {
                    pid: u32::try_from(number(&server["pid"])).unwrap(),
                    config: PathBuf::from(text(&server["config"])),
                    resp: text(&server["resp"]).parse().expect("an address"),
                    admin: text(&server["admin"]).parse().expect("an address"),
                })
                .collect(),
            process,
        }
    }

    /// The process id of the playground itself.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends SIGINT, as Ctrl-C does, and waits for the end.
    pub(crate) fn interrupt(mut self) -> ExitStatus {
        signal(self.process.id(), Signal::INT);
        wait_for_end(&mut self.process)
    }

    /// Ends the playground at once, without a chance to stop its servers.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            signal(self.process.id(), Signal::TERM);
            if wait(&mut self.process).is_none() {
                let _ = self.process.kill();
            }
        }
    }
}

/// Keeps playgrounds that start from taking the ports of servers that are dead meanwhile, until it
/// is dropped.
pub(crate) fn keep_ports() -> PortClaim {
    PortClaim::wait().expect("the lock of ports can be taken")
}

/// A server that was started by hand.
pub(crate) struct ByHand {
    process: Child,
}

impl ByHand {
    /// `argosy server --config config`; what it says goes to the server's log.
    pub(crate) fn start(config: &Path) -> Self {
        Self::start_with(config, &[])
    }

    /// The same with failover off.
    pub(crate) fn start_fixed(config: &Path) -> Self {
        Self::start_by(argosy().env(FIXED.0, FIXED.1), config, &[])
    }

    /// The same as [`start`](Self::start), with more options.
    pub(crate) fn start_with(config: &Path, options: &[&str]) -> Self {
        Self::start_by(&mut argosy(), config, options)
    }

    fn start_by(argosy: &mut Command, config: &Path, options: &[&str]) -> Self {
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(config.with_file_name("log"))
            .expect("the log can be written");
        let process = argosy
            .arg("server")
            .arg("--config")
            .arg(config)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        Self { process }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for_end(&mut self.process)
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The first line that a process prints. What it says on stderr is shown only where it prints
/// nothing.
fn first_line(process: &mut Child) -> String {
    let stdout = process.stdout.take().expect("stdout is a pipe");
    let stderr = process.stderr.take().expect("stderr is a pipe");
    let (send, receive) = mpsc::channel();
    std::thread::Builder::new()
        .spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            let _ = send.send(read.map(|_| line));
        })
        .expect("a thread starts");
    let said = std::thread::Builder::new()
        .spawn(move || std::io::read_to_string(stderr).unwrap_or_default())
        .expect("a thread starts");
    match receive.recv_timeout(PATIENCE) {
        Ok(Ok(line)) if !line.is_empty() => line,
        other => {
            let _ = process.kill();
            let said = said.join().unwrap_or_default();
            panic!("the playground did not get ready: {other:?}\n{said}");
        }
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), signal).expect("it runs and is ours");
}

#[expect(clippy::disallowed_methods, reason = "a test has to give up some time")]
fn wait(process: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(status) = process.try_wait().expect("it is our child") {
            return Some(status);
        }
        pause();
    }
    None
}

pub(crate) fn wait_for_end(process: &mut Child) -> ExitStatus {
    wait(process).expect("the process ends when it is asked to")
}

/// Whether a process of that id lives; one that has ended and was not waited for does not.
pub(crate) fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| {
            stat.rsplit_once(") ")
                .map(|(_, rest)| !rest.starts_with('Z'))
        })
        .unwrap_or(false)
}

/// A short wait between two looks at something that nobody reports.
#[expect(
    clippy::disallowed_methods,
    reason = "a test polls processes from outside"
)]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Waits until `done` says yes.
#[expect(clippy::disallowed_methods, reason = "a test has to give up some time")]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        pause();
    }
}

/// Waits until a server's admin port says that it is ready, and that no member of its regions is missing.
pub(crate) fn until_ready(admin: SocketAddr) {
    until("the server gets ready", || {
        argosy::cluster::ready::ask(admin) == argosy::cluster::ready::ReadyAnswer::Ready
            && !crate::admin::ask(admin, "/readyz?verbose")
                .1
                .contains("waiting for")
    });
}

pub(crate) fn connect(addr: SocketAddr) -> Connection {
    Connection::open(addr).expect("the server accepts connections")
}

/// Sets a key of a server's configuration, which counts from its next start on.
pub(crate) fn configure(server: &Server, key: &str, value: &str) {
    let config = std::fs::read_to_string(&server.config).expect("a configuration");
    let set = |line: &str| match line.split_once(" = ") {
        Some((name, _)) if name == key => format!("{key} = \"{value}\"\n"),
        _ => format!("{line}\n"),
    };
    let changed: String = config.lines().map(set).collect();
    assert_ne!(config, changed, "{key} is not {value} yet");
    std::fs::write(&server.config, changed).expect("it can be written");
}

/// How many warnings of a server's log hold `what`.
pub(crate) fn warnings(server: &Server, what: &str) -> usize {
    lines_with(server, &["WARN", what])
}

/// How many lines of a server's log hold all of `words`.
pub(crate) fn lines_with(server: &Server, words: &[&str]) -> usize {
    let log = std::fs::read_to_string(server.config.with_file_name("log")).expect("a log");
    let lines = log.lines();
    lines
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .count()
}

/// The reply to a command of words.
pub(crate) fn call(connection: &mut Connection, command: &[&[u8]]) -> Reply {
    connection.call(command).expect("the server answers")
}

pub(crate) fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(Some(text.as_ref().to_vec()))
}

/// A section of a server's INFO.
pub(crate) fn info(addr: SocketAddr, section: &str) -> std::collections::BTreeMap<String, String> {
    match call(&mut connect(addr), &[b"INFO", section.as_bytes()]) {
        Reply::Bulk(Some(text)) => parse_info(&String::from_utf8_lossy(&text)),
        other => panic!("INFO {section}: {other:?}"),
    }
}

/// Runs a program that the tests need; a missing one is a failure that says what to do.
pub(crate) fn run(program: &str, args: &[&str]) -> Output {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; run `make test`, which installs it"));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}\n{out}\n{err}",
        output.status
    );
    output
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The Python that has redis-py: `venv` beside the folder that the binary was built in.
pub(crate) fn python() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_argosy"));
    let target = binary.ancestors().nth(2).expect("TARGET/debug/argosy");
    let python = target.join("venv/bin/python");
    assert!(
        python.exists(),
        "{} is missing; run `make test`, which makes it",
        python.display()
    );
    python
}

/// A small random sequence from a seed, for choices that a test makes.
pub(crate) use argosy_bench::rng::Rng;

/// A directory for a test's own data, empty.
pub(crate) fn empty_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("argosy-test-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory for the test");
    dir
}
