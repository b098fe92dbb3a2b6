//! What the kernel has counted for a process: CPU time, device bytes, memory.
//!
//! - CPU: the process's CPU clock (`clock_getcpuclockid`), in nanoseconds, exited threads included.
//!   The ticks of `/proc/PID/stat` are 10 ms apart: more than a short run uses.
//! - Device bytes: `read_bytes` and `write_bytes` of `/proc/PID/io`, what the process caused to be
//!   fetched from and sent to storage. Writes to tmpfs are not among them.
//! - Memory: `VmHWM` of `/proc/PID/status`, the most that was ever resident at once.

use std::path::Path;
use std::time::Duration;

use nix::time::ClockId;
use nix::unistd::Pid;

/// One look at a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// CPU time used so far, in microseconds.
    pub cpu_us: u64,
    /// Bytes read from devices so far.
    pub read_bytes: u64,
    /// Bytes written to devices so far.
    pub write_bytes: u64,
    /// Peak resident memory, in bytes.
    pub peak_rss_bytes: u64,
}

/// Why a process could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It has ended, or belongs to another user.
    #[error("cannot read {file} of process {pid}")]
    Read {
        /// The process.
        pid: u32,
        /// The file under `/proc/PID`.
        file: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// It has ended.
    #[error("cannot read the CPU clock of process {pid}")]
    Clock {
        /// The process.
        pid: u32,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file has no such field: not a Linux that we know.
    #[error("{file} of process {pid} has no {field}")]
    Field {
        /// The process.
        pid: u32,
        /// The file under `/proc/PID`.
        file: &'static str,
        /// What is not in it.
        field: &'static str,
    },
}

impl Sample {
    /// Looks at process `pid`.
    pub fn of(pid: u32) -> Result<Self, ProcessError> {
        let io = read(pid, "io")?;
        let status = read(pid, "status")?;
        let field =
            |file, field, value: Option<u64>| value.ok_or(ProcessError::Field { pid, file, field });
        Ok(Self {
            cpu_us: u64::try_from(cpu_time(pid)?.as_micros()).unwrap_or(u64::MAX),
            read_bytes: field("io", "read_bytes", labelled(&io, "read_bytes:"))?,
            write_bytes: field("io", "write_bytes", labelled(&io, "write_bytes:"))?,
            peak_rss_bytes: field("status", "VmHWM", labelled(&status, "VmHWM:"))? * 1024,
        })
    }

    /// What was used since `earlier`; the peak stays the peak.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            peak_rss_bytes: self.peak_rss_bytes,
        }
    }
}

fn read(pid: u32, file: &'static str) -> Result<String, ProcessError> {
    let path = Path::new("/proc").join(pid.to_string()).join(file);
    std::fs::read_to_string(path).map_err(|source| ProcessError::Read { pid, file, source })
}

/// User and system time of all threads that process `pid` has and had.
fn cpu_time(pid: u32) -> Result<Duration, ProcessError> {
    let number = i32::try_from(pid).unwrap_or(i32::MAX);
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(number));
    let time = clock.and_then(ClockId::now);
    time.map(Duration::from).map_err(|why| ProcessError::Clock {
        pid,
        source: why.into(),
    })
}

/// The number behind `label` at the start of a line.
fn labelled(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_whole() {
        let io = "rchar: 1\ncancelled_write_bytes: 3\nwrite_bytes: 4096\n";
        assert_eq!(labelled(io, "write_bytes:"), Some(4096));
        assert_eq!(labelled(io, "read_bytes:"), None);
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let sample = Sample::of(std::process::id()).unwrap();
        assert!(sample.peak_rss_bytes > 100_000);
        assert!(sample.cpu_us > 0);
        assert!(Sample::of(u32::MAX).is_err());
    }
}
