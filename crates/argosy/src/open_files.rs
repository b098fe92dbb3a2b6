//! How many files the process may have open: as many as the system lets it, and connections of Redis clients have what
//! the rest leaves.
//!
//! The rest is a reserve: the device, the admin port and links to other servers; the windows of the regions; and native
//! clients. A native client takes [`FILES_OF_NATIVE_CLIENT`]. So Redis clients, however many there are, leave files for
//! health checks, for links that are made again, and for windows. Where the system allows few files, native
//! clients have a quarter of them at most.

use argosy_server::admin;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Most connections of Redis clients.
const CONNECTIONS_MAX: usize = 10_000;
/// Files that are kept for everything that does not grow: the device, links, logs, threads, the admin port.
const FILES_KEPT: usize = 192 + admin::CONNECTIONS_MAX;
/// The same for each region: its windows, and what others have of them.
const FILES_OF_REGION: usize = 16;
/// Files of a native client: its socket, its memory and its bell.
const FILES_OF_NATIVE_CLIENT: usize = 3;
/// Most native clients.
const NATIVE_CLIENTS_MAX: usize = 1024;

/// How many clients there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientCounts {
    /// Connections of Redis clients.
    pub(crate) connections: usize,
    /// Native clients.
    pub(crate) native: usize,
}

/// Has the process open as many files as it may, and says how many clients that allows beside what serves `regions`.
pub(crate) fn clients_max(regions: usize) -> ClientCounts {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, files) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let files = getrlimit(Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX)
    });
    let clients = within(files, regions);
    if clients.connections < CONNECTIONS_MAX {
        tracing::warn!(
            files,
            connections = clients.connections,
            native = clients.native,
            "files allow fewer connections: raise the limit (ulimit -n)"
        );
    }
    clients
}

/// How many clients so many files allow.
fn within(files: usize, regions: usize) -> ClientCounts {
    let kept = FILES_KEPT + regions * FILES_OF_REGION;
    let left = files.saturating_sub(kept);
    let native = (left / 4 / FILES_OF_NATIVE_CLIENT).clamp(1, NATIVE_CLIENTS_MAX);
    let left = left.saturating_sub(native * FILES_OF_NATIVE_CLIENT);
    ClientCounts {
        connections: left.clamp(1, CONNECTIONS_MAX),
        native,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clients_together_leave_the_reserve() {
        for (files, regions) in [
            (1024, 3),
            (1024, 20),
            (4096, 60),
            (20_000, 3),
            (65_536, 1000),
        ] {
            let of = within(files, regions);
            let taken = of.connections + of.native * FILES_OF_NATIVE_CLIENT;
            let kept = FILES_KEPT + regions * FILES_OF_REGION;
            assert!(taken + kept <= files, "{files}, {regions}: {of:?}");
        }
        let most = ClientCounts {
            connections: CONNECTIONS_MAX,
            native: NATIVE_CLIENTS_MAX,
        };
        assert_eq!(within(usize::MAX, 3), most);
        assert_eq!(within(20_000, 3), most);
        // Too few for anything: what there is is served.
        let least = ClientCounts {
            connections: 1,
            native: 1,
        };
        assert_eq!(within(64, 3), least);
    }
}
