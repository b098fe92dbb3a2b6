//! Meeting a server: its Unix socket is found, it is told what is wished, and passes the shared memory
//! and its bell.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use argosy_base::{Outcome, info};
use argosy_memory::SharedMemory;
use argosy_wire::native::{Hello, Shape, VERSION, Welcome};
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType, recvmsg, socket_with,
};

use crate::error::ClientError;
use crate::resp::{Reply, RespClient};

/// Longest that a server has to answer when it is met.
const TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// The least: none at all would be without a limit.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Longest name that is used as an address as it is.
const ADDRESS_BYTES_MAX: usize = 100;

/// What a server gave.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) socket: UnixStream,
    pub(super) memory: SharedMemory,
    pub(super) bell: OwnedFd,
    pub(super) shape: Shape,
    /// The cluster's name.
    pub(super) cluster: u128,
}

/// The socket of the server that is called `address`: `host:port` of its Redis protocol, or a path.
pub(super) fn find(address: &str) -> Result<PathBuf, ClientError> {
    if address.contains('/') {
        return Ok(PathBuf::from(address));
    }
    let unknown = |why: String| ClientError::Invalid {
        what: format!("{address} is neither host:port nor the path of a socket: {why}"),
    };
    let mut found = address
        .to_socket_addrs()
        .map_err(|error| unknown(error.to_string()))?;
    let found: SocketAddr = found.next().ok_or_else(|| unknown("no such host".into()))?;
    let mut client = RespClient::connect(found)?;
    let reply = client.command(&[b"INFO", info::SECTION_NATIVE.as_bytes()])?;
    let Reply::Bulk(Some(text)) = reply else {
        return Err(ClientError::Protocol {
            what: format!("INFO of {address} was answered by {reply:?}"),
            outcome: Outcome::NotApplied,
        });
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name == info::NATIVE_SOCKET).then(|| PathBuf::from(value))
    });
    line.ok_or(ClientError::Unsupported {
        what: "the server serves no native clients (native.threads = 0): use the Redis protocol",
    })
}

/// Meets the server at `path`, and asks for memory of `wished`. Each thing that the server has to do
/// may take as long as `limit`.
pub(super) fn meet(path: &Path, wished: Shape, limit: Duration) -> Result<Met, ClientError> {
    let limit = limit.clamp(TIMEOUT_MIN, TIMEOUT_MAX);
    let failed = |what: &str, error: io::Error| ClientError::Lost {
        what: format!("cannot {what} the server at {}: {error}", path.display()),
        outcome: Outcome::NotApplied,
    };
    let socket = at_address(path, |address| connect(address, limit));
    let socket = socket.map_err(|error| failed("reach", error))?;
    let (welcome, memory, bell) =
        talk(&socket, wished, limit).map_err(|error| failed("agree with", error))?;
    let welcome = match welcome {
        Ok(welcome) => welcome,
        Err(refusal) => {
            return Err(ClientError::Unavailable {
                what: format!("the server at {}: {refusal}", path.display()),
                outcome: Outcome::NotApplied,
            });
        }
    };
    let shape = Shape::new(welcome.requests as usize, welcome.replies as usize);
    let memory = memory.map(SharedMemory::receive).transpose();
    let memory = memory.map_err(|error| failed("share memory with", io::Error::other(error)))?;
    match (shape, memory, bell) {
        (Some(shape), Some(memory), Some(bell)) if memory.len() == shape.bytes() => Ok(Met {
            socket,
            memory,
            bell,
            shape,
            cluster: welcome.cluster,
        }),
        _ => Err(ClientError::Protocol {
            what: format!("the server at {} shares no memory", path.display()),
            outcome: Outcome::NotApplied,
        }),
    }
}

type Heard = (
    Result<Welcome, argosy_wire::native::Refusal>,
    Option<OwnedFd>,
    Option<OwnedFd>,
);

/// Connects. A server that takes nobody in for now is waited for, but not for ever.
fn connect(address: &Path, limit: Duration) -> io::Result<UnixStream> {
    let kind = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    let address = SocketAddrUnix::new(address)?;
    retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    Ok(socket.into())
}

fn talk(mut socket: &UnixStream, wished: Shape, limit: Duration) -> io::Result<Heard> {
    socket.set_read_timeout(Some(limit))?;
    let narrow = |bytes: usize| u32::try_from(bytes).expect("a few megabytes");
    let hello = Hello {
        lowest: VERSION,
        highest: VERSION,
        requests: narrow(wished.requests()),
        replies: narrow(wished.replies()),
    };
    socket.write_all(&hello.encode())?;

    let mut bytes = [0; Welcome::BYTES];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        match recvmsg(socket.as_fd(), &mut parts, &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?.bytes,
        }
    };
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let mut rights = descriptors.next().into_iter().flatten();
    let (memory, bell) = (rights.next(), rights.next());
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    socket.read_exact(&mut bytes[received..])?;
    let garbled = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let welcome = match Welcome::decode(&bytes).map_err(garbled)? {
        Ok(welcome) => Ok(welcome),
        Err((refusal, len)) => {
            let mut text = vec![0; len];
            socket.read_exact(&mut text)?;
            Err(refusal.with_text(String::from_utf8_lossy(&text).into_owned()))
        }
    };
    socket.set_nonblocking(true)?;
    Ok((welcome, memory, bell))
}

/// Does `what` with an address of `path` that is short enough.
fn at_address<T>(path: &Path, what: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= ADDRESS_BYTES_MAX {
        return what(path);
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty())?;
    let address = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    what(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_says_nothing_is_not_waited_for_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let server = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        );
        let server = server.unwrap();
        rustix::net::bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // One may wait to be taken in; nobody ever is.
        rustix::net::listen(&server, 0).unwrap();
        let shape = Shape::new(4096, 4096).unwrap();
        let limit = Duration::from_millis(20);
        let waiting = connect(&path, limit).unwrap();
        let unheard = talk(&waiting, shape, limit).unwrap_err();
        assert_eq!(unheard.kind(), io::ErrorKind::WouldBlock);
        let error = meet(&path, shape, limit).unwrap_err();
        assert!(error.to_string().contains("cannot reach"), "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
}
