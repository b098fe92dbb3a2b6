//! The cluster of a trial: `argosy playground` as a process of its own, and the commands that it takes.
//!
//! ```text
//! DIR/data         its data directory
//! DIR/playground   what it says
//! ```
//!
//! Commands are given as a user gives them, by the program. Servers are asked over their admin ports
//! ([`crate::status`]). What no command does is done to a server's process itself, which its `lock` names, or to its
//! directory: a clean stop, and a start that makes another device.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use argosy_coordinator::{Embedded, MASTER_KEY};
use argosy_device::random;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::error::TrialError;
use crate::status::{Region, Status, page, regions_of, status_of};

/// A server of the cluster.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Server {
    /// Where it speaks the Redis protocol.
    pub resp: SocketAddr,
    /// Where its health is asked for.
    pub admin: SocketAddr,
}

/// What the playground prints when it is ready.
#[derive(Deserialize)]
struct Ready {
    servers: Vec<Server>,
}

/// What says who leads, under [`MASTER_KEY`].
#[derive(Deserialize)]
struct Master {
    server: usize,
}

/// Which servers lead the regions of a new cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leads {
    /// Each of them leads as many.
    All,
    /// Server 0 leads all.
    First,
}

/// A running cluster. It ends with this.
pub(crate) struct Cluster {
    program: PathBuf,
    data: PathBuf,
    process: Child,
    /// Servers that the playground has not started.
    by_hand: Mutex<Vec<Child>>,
    /// Its servers, by number.
    pub servers: Vec<Server>,
}

impl Cluster {
    /// Starts `program` as a playground whose data lie in `dir`, with so many regions, and waits until it is ready.
    ///
    /// # Errors
    /// There are data in `dir` already, or the cluster does not start.
    pub(crate) fn start(
        program: &Path,
        dir: &Path,
        regions: usize,
        leads: Leads,
    ) -> Result<Self, TrialError> {
        std::fs::create_dir_all(dir).map_err(TrialError::file("make", dir))?;
        let data = dir.join("data");
        if data.exists() {
            return Err(TrialError::Cluster(format!(
                "{} has the data of another trial, which failed or was interrupted; move them away, or remove them",
                data.display()
            )));
        }
        let said = dir.join("playground");
        let log = File::create(&said).map_err(TrialError::file("write", &said))?;
        let mut process = Command::new(program)
            .args(["playground", "-o", "json", "--servers", "3"])
            .args(["--memory", "128MiB", "--l0-bytes", "1MiB"])
            .args(["--regions", &regions.to_string()])
            .args(match leads {
                Leads::All => ["--layout", "spread"],
                Leads::First => ["--layout", "split"],
            })
            .arg("--data-dir")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(TrialError::file("start", program))?;
        let mut line = String::new();
        let stdout = process.stdout.take().expect("stdout is a pipe");
        // It gives up by itself where it does not get ready.
        let read = BufReader::new(stdout).read_line(&mut line);
        let ready = read.ok().and_then(|_| serde_json::from_str(&line).ok());
        let mut cluster = Self {
            program: program.to_path_buf(),
            data,
            process,
            by_hand: Mutex::default(),
            servers: Vec::new(),
        };
        let Ready { servers } = ready.ok_or_else(|| {
            let said = said.display();
            TrialError::Cluster(format!("the playground did not get ready; see {said}"))
        })?;
        cluster.servers = servers;
        Ok(cluster)
    }

    /// Gives a command to one server: `kill`, `stop`, `cont` or `restart`.
    ///
    /// # Errors
    /// What the program says where it was not carried out.
    pub(crate) fn command(&self, verb: &str, server: usize) -> Result<(), TrialError> {
        let output = Command::new(&self.program)
            .args(["playground", verb, &server.to_string(), "--data-dir"])
            .arg(&self.data)
            .output()
            .map_err(TrialError::file("start", &self.program))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(TrialError::Cluster(format!(
            "playground {verb} {server}: {}",
            said.trim()
        )))
    }

    /// Whether a server is ready and no member of its regions is missing.
    #[must_use]
    pub(crate) fn is_ready(&self, server: usize) -> bool {
        let page = page(self.servers[server].admin, "/readyz?verbose");
        page.is_ok_and(|page| page.code == "200" && !page.body.contains("waiting for"))
    }

    /// The regions as the first server sees them that answers, in the order of their keys.
    ///
    /// # Errors
    /// None does.
    pub(crate) fn regions(&self) -> Result<Vec<Region>, TrialError> {
        let mut last = String::new();
        for server in &self.servers {
            match page(server.admin, "/status") {
                Ok(page) => return regions_of(&page.body),
                Err(error) => last = error.to_string(),
            }
        }
        Err(TrialError::Cluster(format!("no server answers: {last}")))
    }

    /// What a server says of itself.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn status(&self, server: usize) -> Result<Status, TrialError> {
        let admin = self.servers[server].admin;
        let answered = page(admin, "/status").map_err(|error| {
            TrialError::Cluster(format!("server {server} does not answer: {error}"))
        })?;
        status_of(&answered.body)
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The directory of a server.
    pub(crate) fn directory(&self, server: usize) -> PathBuf {
        self.data.join(format!("server-{server}"))
    }

    /// The server that is the master, as the coordinator's directory has it.
    ///
    /// # Errors
    /// None is, or the directory cannot be read.
    pub(crate) fn master(&self) -> Result<usize, TrialError> {
        let failed = |why: String| TrialError::Cluster(format!("no master is known: {why}"));
        let name = random::number().map_err(|error| failed(error.to_string()))?;
        let read = Embedded::open(&self.data.join("coordinator"), name)
            .and_then(|mut coordinator| coordinator.read_now(MASTER_KEY));
        let entry = read.map_err(|error| failed(error.to_string()))?;
        let master: Master =
            serde_json::from_slice(&entry.value).map_err(|error| failed(error.to_string()))?;
        Ok(master.server)
    }

    /// Sends a signal to the process of a server, which runs.
    ///
    /// # Errors
    /// Its process is not known.
    pub(crate) fn signal_server(&self, server: usize, signal: Signal) -> Result<(), TrialError> {
        let lock = self.directory(server).join("lock");
        let text = std::fs::read_to_string(&lock).map_err(TrialError::file("read", &lock))?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw);
        let sent = pid.is_some_and(|pid| kill_process(pid, signal).is_ok());
        match sent {
            true => Ok(()),
            false => Err(TrialError::Cluster(format!(
                "server {server} has no process that could be sent a signal"
            ))),
        }
    }

    /// Starts a server that has ended, and has it make another device.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start_with_new_device(&self, server: usize) -> Result<(), TrialError> {
        let dir = self.directory(server);
        let path = dir.join("log");
        let log = File::options().append(true).open(&path);
        let child = Command::new(&self.program)
            .args(["server", "--new-device", "--config"])
            .arg(dir.join("argosy.toml"))
            .args(["--parent", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_err(TrialError::file("open", &path))?)
            .spawn()
            .map_err(TrialError::file("start", &self.program))?;
        self.by_hand.lock().push(child);
        Ok(())
    }

    /// Ends it as Ctrl-C does, and waits for that.
    ///
    /// # Errors
    /// Not every server ended as it should.
    pub(crate) fn stop(mut self) -> Result<(), TrialError> {
        self.signal(Signal::INT);
        let ended = self.process.wait();
        if ended.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        Err(TrialError::Cluster(
            "the cluster did not end cleanly".to_owned(),
        ))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw)
        {
            // Where it is gone already, that is as good.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal(Signal::TERM);
            let _ = self.process.wait();
        }
        // The playground has ended them, where they had not ended before.
        for child in self.by_hand.get_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
