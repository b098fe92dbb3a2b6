//! Ports for the servers of a cluster on this machine.
//!
//! Server 0 gets 7379 (Redis protocol) and 7480 (admin); each further server the next pair, 10
//! higher, of which both ports are free. A port is free where it can be bound at this moment;
//! [`PortClaim`] keeps other playgrounds from finding the same ones free until the servers listen, and
//! [`Held`] keeps them from taking those of a server that is down for a while.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::failure::CommandFailure;

/// The first server's port for the Redis protocol.
pub const RESP_PORT: u16 = 7379;

/// From a server's Redis port to its admin port.
const ADMIN_ABOVE: u16 = 101;

/// From one candidate to the next.
const STRIDE: u16 = 10;

/// How many candidates are tried.
const CANDIDATES_MAX: u16 = 2000;

/// Where one server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The Redis protocol.
    pub resp: SocketAddr,
    /// Health.
    pub admin: SocketAddr,
}

impl Ports {
    /// On this machine, the Redis protocol at `resp`.
    pub(crate) fn at(resp: u16) -> Self {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            resp: local(resp),
            admin: local(resp + ADMIN_ABOVE),
        }
    }

    fn free(&self) -> bool {
        // The listener is closed at once; a port that was only listened on can be bound again.
        [self.resp, self.admin]
            .iter()
            .all(|addr| TcpListener::bind(addr).is_ok())
    }
}

/// The right to look for free ports, among all playgrounds of this machine, until dropped.
pub struct PortClaim(#[expect(dead_code, reason = "closing the file gives up its lock")] File);

/// Ports that no other playground of this machine takes, until dropped.
#[derive(Default)]
pub struct Held(Vec<File>);

impl Held {
    /// Holds `ports` as well, if they are free and nobody else holds them.
    fn hold(&mut self, ports: &Ports) -> Result<bool, CommandFailure> {
        let path = held_path(ports.resp.port());
        let file = open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(CommandFailure::io("lock", &path, &error.into())),
        }
        let free = ports.free();
        if free {
            self.0.push(file);
        }
        Ok(free)
    }
}

impl PortClaim {
    /// Waits until nobody else is starting servers.
    pub fn wait() -> Result<Self, CommandFailure> {
        let path = lock_path();
        let file = open(&path)?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| CommandFailure::io("lock", &path, &error.into()))?;
        Ok(Self(file))
    }

    /// Ports for `count` servers: those `wanted`, where they are still free, else the first free
    /// ones.
    pub fn choose(
        &self,
        count: usize,
        wanted: &[Ports],
    ) -> Result<(Vec<Ports>, Held), CommandFailure> {
        let candidates = (0..CANDIDATES_MAX).map(|step| Ports::at(RESP_PORT + step * STRIDE));
        let wanted = wanted.iter().copied().take(count);
        let (chosen, held) = hold_first(count, wanted)?;
        if chosen.len() == count {
            return Ok((chosen, held));
        }
        drop(held);
        let (chosen, held) = hold_first(count, candidates)?;
        if chosen.len() < count {
            return Err(CommandFailure::Failed(format!(
                "no {count} free pairs of ports from {RESP_PORT} on"
            )));
        }
        Ok((chosen, held))
    }
}

/// The first `count` of `ports` that can be had.
fn hold_first(
    count: usize,
    ports: impl Iterator<Item = Ports>,
) -> Result<(Vec<Ports>, Held), CommandFailure> {
    let (mut chosen, mut held) = (Vec::with_capacity(count), Held::default());
    for ports in ports {
        if chosen.len() == count {
            break;
        }
        if held.hold(&ports)? {
            chosen.push(ports);
        }
    }
    Ok((chosen, held))
}

fn open(path: &Path) -> Result<File, CommandFailure> {
    let mut options = File::options();
    let options = options.create(true).truncate(false).write(true).mode(0o600);
    // The name can be guessed: somebody's link there is not followed.
    options
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
        .map_err(|error| CommandFailure::io("lock", path, &error))
}

/// One empty file for each pair of ports that was ever held.
fn held_path(resp: u16) -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("argosy-ports-{user}-{resp}.lock"))
}

/// One file a user, since one user's file may not be another's to write.
fn lock_path() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("argosy-ports-{user}.lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_ports_are_passed_over() {
        let claim = PortClaim::wait().unwrap();
        let (before, held) = claim.choose(2, &[]).unwrap();
        let (others, _) = claim.choose(2, &before).unwrap();
        assert!(!others.contains(&before[0]) && !others.contains(&before[1]));
        drop(held);
        let _busy = TcpListener::bind(before[0].admin).unwrap();
        let (after, held) = claim.choose(2, &before).unwrap();
        assert!(!after.contains(&before[0]), "one of its ports is busy");
        assert!(after[0].resp.port() < after[1].resp.port());
        assert_eq!(after[1].resp.port() % 10, 9);
        drop(held);
        let (again, _) = claim.choose(2, &after).unwrap();
        assert_eq!(again, after, "what is wanted and free is taken");
    }

    /// Whatever stands under the name of a lock, it is not followed to another file.
    #[test]
    fn a_link_is_no_lock_and_what_it_leads_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [lock, target, missing] =
            ["lock", "target", "missing"].map(|name| dir.path().join(name));
        std::fs::write(&target, b"somebody's").unwrap();
        for to in [&target, &missing] {
            std::os::unix::fs::symlink(to, &lock).unwrap();
            let refused = open(&lock).err();
            assert!(refused.is_some(), "{}", to.display());
            assert!(lock.is_symlink());
            std::fs::remove_file(&lock).unwrap();
        }
        assert_eq!(std::fs::read(&target).unwrap(), b"somebody's");
        assert!(!missing.exists());
        assert!(open(&lock).is_ok() && lock.is_file());
    }
}
