//! What the system tells of the process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::status::ProcessStatus;

/// The time of day, since 1970.
pub(super) fn wall() -> Duration {
    read(ClockId::Realtime)
}

/// The process at present. What the system does not tell is 0.
pub(super) fn process(started: Duration) -> ProcessStatus {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let fds = std::fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count() as u64);
    ProcessStatus {
        pid: std::process::id(),
        cpu_seconds_total: read(ClockId::ProcessCPUTime).as_secs_f64(),
        resident_bytes: resident_bytes(&status),
        open_fds: fds,
        start_time_seconds: started.as_secs_f64(),
    }
}

/// Bytes of memory that the process has to itself: neither of files nor shared.
pub(crate) fn unshared_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

/// From the line `VmRSS:     1234 kB`.
fn resident_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_told_by_the_system() {
        let told = process(Duration::from_secs(5));
        assert_eq!(told.pid, std::process::id());
        assert!(
            told.resident_bytes > 1 << 20 && told.open_fds >= 3,
            "{told:?}"
        );
        assert!(told.cpu_seconds_total >= 0.0);
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\n"), 12 << 10);
        assert_eq!(resident_bytes("VmRSS:\t"), 0);
    }
}
