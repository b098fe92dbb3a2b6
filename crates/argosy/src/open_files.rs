//! How many files the process may have open: as many as the system lets it, and connections have what the rest leaves.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Most connections of Redis clients.
const CONNECTIONS_MAX: usize = 10_000;
/// Files that are kept for everything else: the device, the admin port, links, logs.
const FILES_KEPT: usize = 256;
/// The same for each region: its windows, and what others have of them.
const FILES_OF_REGION: usize = 16;

/// Has the process open as many files as it may, and says how many connections that allows beside what serves
/// `regions`.
pub(crate) fn connections_max(regions: usize) -> usize {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, files) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let kept = FILES_KEPT + regions * FILES_OF_REGION;
    let Some(files) = getrlimit(Resource::Nofile).current else {
        return CONNECTIONS_MAX;
    };
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let left = files.saturating_sub(kept).clamp(1, CONNECTIONS_MAX);
    if left < CONNECTIONS_MAX {
        tracing::warn!(
            files,
            kept,
            connections = left,
            "files allow fewer connections: raise the limit (ulimit -n)"
        );
    }
    left
}
