//! One server process of a cluster.
//!
//! It is a process group of its own, so that Ctrl-C in the terminal reaches only the parent, which
//! then stops its children in order; and it is told its parent's process id, so that it stops by
//! itself should the parent die first. What it says goes to a file, which is bounded ([`logs`]).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid,
};

use crate::cluster::logs;
use crate::failure::CommandFailure;

/// How much of a dead server's log is shown.
const LOG_TAIL_BYTES: i64 = 2000;

/// A server process.
pub(crate) struct Child {
    process: std::process::Child,
    /// Becomes readable when the process has ended.
    pub ended: OwnedFd,
    log: PathBuf,
}

impl Child {
    /// Starts `argosy server --config config` with `options`; what it says is appended to `log`.
    pub(crate) fn start(
        config: &Path,
        log: PathBuf,
        options: &[&str],
    ) -> Result<Self, CommandFailure> {
        let failed = |what: &str, error: std::io::Error| CommandFailure::io(what, config, &error);
        logs::rotate(&log);
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|error| CommandFailure::io("write", &log, &error))?;
        let program = std::env::current_exe().map_err(|error| failed("find itself for", error))?;
        let process = Command::new(program)
            .arg("server")
            .arg("--config")
            .arg(config)
            .args(options)
            .arg("--parent")
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .process_group(0)
            .spawn()
            .map_err(|error| failed("start a server with", error))?;
        let ended = pidfd_open(pid_of(&process), PidfdFlags::empty())
            .map_err(|error| failed("watch the server of", error.into()))?;
        Ok(Self {
            process,
            ended,
            log,
        })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, or `None` while it runs.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().unwrap_or(None)
    }

    /// Sends it a signal, unless it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.exited().is_none() {
            // It is ours and has not been waited for, so the id is still its own.
            let _ = kill_process(pid_of(&self.process), signal);
        }
    }

    /// Whether all of it is halted (SIGSTOP), by whomever.
    pub(crate) fn is_stopped(&mut self) -> bool {
        // It is asked as often as one likes: what is not waited for stays.
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.exited().is_none()
            && matches!(
                waitid(WaitId::Pid(pid_of(&self.process)), look),
                Ok(Some(_))
            )
    }

    /// Ends it at once, and waits for the end.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// The end of what it said.
    pub(crate) fn log_tail(&self) -> String {
        let tail = || -> std::io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = i64::try_from(file.metadata()?.len()).unwrap_or(i64::MAX);
            file.seek(SeekFrom::End(-length.min(LOG_TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        tail().unwrap_or_default()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pid_of(process: &std::process::Child) -> Pid {
    Pid::from_child(process)
}
