//! Where clients meet the server: a Unix socket. Each says what it would like, and is given its
//! memory and its bell, or told why not.
//!
//! The socket's name may be longer than an address can hold: it is reached through its directory's
//! descriptor then.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argosy_base::Instant;
use argosy_memory::SharedMemory;
use argosy_wire::native::{Hello, Refusal, Shape, VERSION, Welcome};
use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::bell::ClientBell;
use super::client::Arrival;
use super::front::Front;
use super::share::{Share, admit};

/// Longest name that is used as an address as it is.
const ADDRESS_BYTES_MAX: usize = 100;

/// Listens at `path`; what had that name goes away.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = at_address(path, |address| UnixListener::bind(address))?;
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
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

/// A client that has come and not said yet what it would like.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) socket: UnixStream,
    /// When it is sent away.
    pub(super) until: Instant,
    heard: [u8; Hello::BYTES],
    len: usize,
}

impl Guest {
    pub(super) const fn new(socket: UnixStream, until: Instant) -> Self {
        Self {
            socket,
            until,
            heard: [0; Hello::BYTES],
            len: 0,
        }
    }

    /// Listens to it. `None`: it has not said everything.
    ///
    /// # Errors
    /// When it has gone, or said something else.
    pub(super) fn listen(&mut self) -> io::Result<Option<Hello>> {
        match self.socket.read(&mut self.heard[self.len..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => self.len += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if self.len < Hello::BYTES {
            return Ok(None);
        }
        let hello = Hello::decode(&self.heard);
        hello
            .map(Some)
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Takes it in, or says why not.
    ///
    /// # Errors
    /// When it is not taken in.
    pub(super) fn take_in(
        mut self,
        hello: &Hello,
        front: &Arc<Front>,
        now: Instant,
    ) -> io::Result<Arrival> {
        let (share, memory, shape) = match prepare(hello, front) {
            Ok(prepared) => prepared,
            Err(refusal) => {
                if let Some(left_out) = front.line(now) {
                    tracing::warn!(left_out, "native: a client was refused: {refusal}");
                }
                front.count_guest(false);
                // It may be gone; it is not waited for.
                let _ = self.socket.write_all(&refusal.encode());
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        };
        let settings = &front.settings;
        let welcome = Welcome {
            version: VERSION,
            server: settings.server,
            incarnation: settings.incarnation,
            cluster: front.routes().cluster(),
            requests: narrow(shape.requests()),
            replies: narrow(shape.replies()),
            map: front.routes().fingerprint(),
        };
        let bell = ClientBell::new()?;
        let descriptors = [memory.descriptor(), bell.descriptor()];
        pass(&self.socket, &welcome.encode(), descriptors)?;
        front.count_guest(true);
        Ok(Arrival {
            socket: Some(self.socket),
            bell: Some(bell),
            memory: Arc::new(memory),
            shape,
            share: Some(share),
        })
    }
}

fn prepare(hello: &Hello, front: &Arc<Front>) -> Result<(Share, SharedMemory, Shape), Refusal> {
    if hello.lowest > VERSION || hello.highest < VERSION {
        return Err(Refusal::Version(format!(
            "the client speaks versions {} to {} of the native protocol; server {} speaks version \
             {VERSION} only",
            hello.lowest, hello.highest, front.settings.server.0
        )));
    }
    let possible = |bytes: u32| {
        let bytes = (bytes as usize).clamp(Shape::BYTES_MIN, Shape::BYTES_MAX);
        bytes.next_multiple_of(Shape::BYTES_MIN)
    };
    let wished = Shape::new(possible(hello.requests), possible(hello.replies));
    let wished = wished.expect("made possible");
    let (share, shape) = admit(front, wished).map_err(Refusal::NoRoom)?;
    let memory = SharedMemory::passed(shape.bytes());
    let memory = memory.map_err(|error| Refusal::NoRoom(error.to_string()))?;
    Ok((share, memory, shape))
}

fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a few megabytes")
}

/// Sends `bytes` together with `descriptors`.
fn pass(socket: &UnixStream, bytes: &[u8], descriptors: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let pushed = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(pushed, "the room was made for two");
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(
        socket.as_fd(),
        &[IoSlice::new(bytes)],
        &mut ancillary,
        flags,
    )?;
    // A new socket has room for a few bytes.
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}
