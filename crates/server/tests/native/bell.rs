//! What a client may do to its bell, and that it harms nobody else.

use std::io::{IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use argosy_wire::native::{Hello, VERSION, Welcome};
use rustix::fs::OFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::*;

/// A client of `server` that was taken in, and its bell.
fn meet(server: &Running) -> (UnixStream, OwnedFd) {
    let dir = std::fs::File::open(server.socket.parent().unwrap()).unwrap();
    let address = format!("/proc/self/fd/{}/native", dir.as_raw_fd());
    let mut socket = UnixStream::connect(address).unwrap();
    let hello = Hello {
        lowest: VERSION,
        highest: VERSION,
        requests: 4096,
        replies: 4096,
    };
    socket.write_all(&hello.encode()).unwrap();
    let mut bytes = [0; Welcome::BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    recvmsg(
        socket.as_fd(),
        &mut parts,
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )
    .unwrap();
    let bell = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.nth(1),
        _ => None,
    });
    (socket, bell.unwrap())
}

fn ring(bell: &OwnedFd, count: u64) {
    assert_eq!(rustix::io::write(bell, &count.to_le_bytes()), Ok(8));
}

/// Nobody but the client reads a bell, so whatever is in it, and whether reading it blocks, is the client's own affair.
#[test]
fn bells_are_watched_and_never_read() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let (_socket, bell) = meet(&servers[0]);
    rustix::fs::fcntl_setfl(&bell, OFlags::empty()).unwrap();
    for rings in 1..=20 {
        ring(&bell, 1);
        client.put(b"argo", b"sails").unwrap();
        // The thread falls asleep again now and then.
        std::thread::park_timeout(Duration::from_millis(1));
        let mut count = [0; 8];
        if rings % 5 == 0 {
            assert_eq!(rustix::io::read(&bell, &mut count), Ok(8));
            assert_eq!(u64::from_le_bytes(count), 5);
        }
    }
}

/// A bell that is full is the client's own, and no other client's.
#[test]
fn a_bell_that_is_full_keeps_no_other_client_from_being_heard() {
    let dir = temp();
    let servers = both(&dir);
    let (socket, bell) = meet(&servers[0]);
    ring(&bell, u64::MAX - 1);
    rustix::fs::fcntl_setfl(&bell, OFlags::empty()).unwrap();
    let client = client_of(&servers[0]);
    for _ in 0..20 {
        client.put(b"argo", b"sails").unwrap();
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert_eq!(client.get(b"argo").unwrap().unwrap(), b"sails");
    // It goes, and its bell with it, although somebody holds that still.
    drop(socket);
    until(|| servers[0].front.clients() == 1);
    client.put(b"argo", b"lands").unwrap();
}
