//! The cluster of a trial: `argosy playground` as a process of its own, and the commands that it takes.
//!
//! ```text
//! DIR/data         its data directory
//! DIR/playground   what it says
//! ```
//!
//! Commands are given as a user gives them, by the program. Servers are asked over their admin ports.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use argosy_base::KeyRange;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::error::TrialError;

/// How long an admin port may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Longest page of an admin port that is read.
const PAGE_BYTES_MAX: u64 = 1 << 20;

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

/// The part of a server's status that a trial looks at.
#[derive(Debug, Deserialize)]
struct Status {
    regions: Vec<RegionStatus>,
}

/// A region in [`Status`].
#[derive(Clone, Debug, Deserialize)]
struct RegionStatus {
    id: u64,
    primary: Option<u64>,
    from: Bound,
    to: Option<Bound>,
}

/// A bound of a region in [`RegionStatus`].
#[derive(Clone, Debug, Deserialize)]
struct Bound {
    base64: String,
}

/// A region as a server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Its keys.
    pub range: KeyRange,
    /// The server that is its primary, where one is known.
    pub primary: Option<usize>,
}

/// A running cluster. It ends with this.
pub(crate) struct Cluster {
    program: PathBuf,
    data: PathBuf,
    process: Child,
    /// Its servers, by number.
    pub servers: Vec<Server>,
}

impl Cluster {
    /// Starts `program` as a playground whose data lie in `dir`, with so many regions, and waits until it is ready.
    ///
    /// # Errors
    /// There are data in `dir` already, or the cluster does not start.
    pub(crate) fn start(program: &Path, dir: &Path, regions: usize) -> Result<Self, TrialError> {
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
    }
}

/// What an admin port answered.
struct Page {
    code: String,
    body: String,
}

/// A page of an admin port.
fn page(admin: SocketAddr, path: &str) -> std::io::Result<Page> {
    let mut stream = TcpStream::connect_timeout(&admin, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = body.to_owned();
    Ok(Page { code, body })
}

/// The regions that a status tells of.
fn regions_of(status: &str) -> Result<Vec<Region>, TrialError> {
    let odd = |what: String| TrialError::Cluster(format!("a server's status: {what}"));
    let status: Status = serde_json::from_str(status).map_err(|error| odd(error.to_string()))?;
    let bytes = |bound: &Bound| {
        let bytes = STANDARD.decode(&bound.base64);
        bytes.map_err(|error| odd(error.to_string()))
    };
    let mut regions = Vec::new();
    let mut found = status.regions;
    found.sort_by_key(|region| region.id);
    for region in &found {
        let to = region.to.as_ref().map(bytes).transpose()?;
        regions.push(Region {
            range: KeyRange::new(bytes(&region.from)?, to),
            primary: region
                .primary
                .and_then(|primary| usize::try_from(primary).ok()),
        });
    }
    Ok(regions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_of_regions() {
        let status = r#"{"regions": [
            {"id": 2, "primary": 0, "from": {"text": "c", "base64": "Yw=="}, "to": null},
            {"id": 1, "primary": 2, "from": {"text": "", "base64": ""}, "to": {"text": "c", "base64": "Yw=="}}
        ], "more": 1}"#;
        let regions = regions_of(status).unwrap();
        assert_eq!(regions.len(), 2);
        assert_eq!(
            regions[0].range,
            KeyRange::new("", Some(b"c".to_vec())),
            "they are ordered"
        );
        assert_eq!(regions[1].range, KeyRange::new("c", None));
        assert_eq!(regions[1].primary, Some(0));
        assert!(regions_of("{}").is_err());
    }
}
