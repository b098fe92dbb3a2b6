//! What the kernel has counted for a process: CPU time, device bytes, memory.
//!
//! - CPU: `utime` and `stime` of `/proc/PID/stat`, in ticks of 10 ms, exited threads included.
//! - Device bytes: `read_bytes` and `write_bytes` of `/proc/PID/io`, what the process caused to be
//!   fetched from and sent to storage. Writes to tmpfs are not among them.
//! - Memory: `VmHWM` of `/proc/PID/status`, the most that was ever resident at once.

use std::path::Path;

/// Microseconds in a tick of `/proc/PID/stat`. `USER_HZ` is 100 in Linux' interface on every
/// architecture that Argosy builds for.
const TICK_US: u64 = 10_000;

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
        let stat = read(pid, "stat")?;
        let io = read(pid, "io")?;
        let status = read(pid, "status")?;
        let field =
            |file, field, value: Option<u64>| value.ok_or(ProcessError::Field { pid, file, field });
        let ticks = field("stat", "utime and stime", cpu_ticks(&stat))?;
        Ok(Self {
            cpu_us: ticks * TICK_US,
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

/// `utime + stime`: the 14th and 15th field, counted behind the command's closing parenthesis,
/// since the command itself may hold spaces and parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
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
    fn the_fields_are_found_behind_any_command_name() {
        let stat = "7 (a) (b c) S 1 7 7 0 -1 4194560 100 0 0 0 250 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(280));
        assert_eq!(cpu_ticks("7 nonsense"), None);
    }

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
        assert!(Sample::of(u32::MAX).is_err());
    }
}
