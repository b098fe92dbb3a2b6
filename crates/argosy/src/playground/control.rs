//! The socket on which a running playground takes commands: `DIR/control`, of which `protocol` says what is spoken.
//!
//! It never blocks: whoever owns it polls its descriptors, and steps it when one is readable. A step takes new
//! connections, reads of each what has come, and answers those whose request is there, whole or not: with what is
//! done, or with why nothing is.
//!
//! - *Who may connect*: this user. The socket has mode 0600 before anybody can connect.
//! - *What is kept*: [`CALLERS_MAX`] connections of [`REQUEST_BYTES_MAX`] bytes each. One more, and the oldest is
//!   closed: whoever says nothing keeps nobody out.
//! - *Long names*: an address of a socket has room for 107 bytes, and the name of a data directory may be longer. So
//!   the directory is opened, and the socket named by way of that.
//! - *What a dead playground left*: its socket is removed. The lock on a directory that stays says that it is dead,
//!   and one that goes away has a name of its own. What is no socket is left alone.

use std::collections::VecDeque;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::protocol::{Answer, REQUEST_BYTES_MAX, Refusal, Request, answer_to_bytes};

/// The name of the socket.
pub(crate) const NAME: &str = "control";

/// Most connections that are open at one time.
const CALLERS_MAX: usize = 8;

/// Connections that the kernel keeps until they are taken.
const BACKLOG: i32 = 16;

/// The socket of a running playground.
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// The oldest first.
    callers: VecDeque<Caller>,
}

/// A connection whose request is not there yet.
struct Caller {
    stream: UnixStream,
    received: Vec<u8>,
}

/// What a caller has sent.
enum Heard {
    /// It may send more.
    Part,
    /// It will not, or nothing more is wanted.
    All,
    /// It has gone without a word, or its connection is broken.
    Nothing,
}

/// Calls `act` with a name of the socket in `dir` that is short enough for an address.
fn with_short_name<T>(dir: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let dir = File::open(dir)?;
    act(&PathBuf::from(format!(
        "/proc/self/fd/{}/{NAME}",
        dir.as_raw_fd()
    )))
}

/// Connects to the playground that runs in `dir`.
pub(crate) fn connect(dir: &Path) -> io::Result<UnixStream> {
    with_short_name(dir, |name| UnixStream::connect(name))
}

impl Control {
    /// Begins to take commands for the playground in `dir`, which is this process's.
    pub(crate) fn listen(dir: &Path) -> io::Result<Self> {
        let path = dir.join(NAME);
        match std::fs::symlink_metadata(&path) {
            Ok(left) if left.file_type().is_socket() => std::fs::remove_file(&path)?,
            Ok(_) => return Err(io::Error::other("there is a file of that name")),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        with_short_name(dir, |name| Ok(bind(&socket, &SocketAddrUnix::new(name)?)?))?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        // Until here nobody could connect.
        listen(&socket, BACKLOG)?;
        Ok(Self {
            listener: socket.into(),
            path,
            callers: VecDeque::new(),
        })
    }

    /// What is readable when there is something to do.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let callers = self.callers.iter().map(|caller| caller.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(callers)
    }

    /// Answers all whose requests have come, by what `answer` says to each.
    ///
    /// # Errors
    /// No more connections can be taken.
    pub(crate) fn step(&mut self, mut answer: impl FnMut(&Request) -> Answer) -> io::Result<()> {
        // Before others may take its place, whoever has sent a request is heard.
        self.hear(&mut answer);
        self.accept()?;
        self.hear(&mut answer);
        Ok(())
    }

    fn hear(&mut self, answer: &mut impl FnMut(&Request) -> Answer) {
        for mut caller in std::mem::take(&mut self.callers) {
            match caller.hear() {
                Heard::Part => self.callers.push_back(caller),
                Heard::All => {
                    let request = Request::parse(&caller.received);
                    caller.tell(&request.and_then(|request| answer(&request)));
                }
                Heard::Nothing => {}
            }
        }
    }

    /// Takes the connections that wait. Each step takes a bounded number; the others stay readable.
    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..CALLERS_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    _ => return Err(error),
                },
            };
            stream.set_nonblocking(true)?;
            if self.callers.len() == CALLERS_MAX
                && let Some(mut oldest) = self.callers.pop_front()
            {
                let words = "others came, and this request was not whole";
                oldest.tell(&Err(Refusal::usage(words)));
            }
            self.callers.push_back(Caller {
                stream,
                received: Vec::new(),
            });
        }
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Where it stays, nobody answers there, which is seen.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Caller {
    /// Reads what has come, and no more than can be a request and one byte.
    fn hear(&mut self) -> Heard {
        let mut bytes = [0; REQUEST_BYTES_MAX + 1];
        loop {
            let room = bytes.len() - self.received.len();
            match self.stream.read(&mut bytes[..room]) {
                Ok(0) if self.received.is_empty() => return Heard::Nothing,
                Ok(0) => return Heard::All,
                Ok(read) => self.received.extend_from_slice(&bytes[..read]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Heard::Part,
                    ErrorKind::Interrupted => continue,
                    _ => return Heard::Nothing,
                },
            }
            if self.received.contains(&b'\n') || self.received.len() == bytes.len() {
                return Heard::All;
            }
        }
    }

    /// Sends the answer. A caller that does not take it has its reasons: an answer fits into what the kernel keeps
    /// for a connection.
    fn tell(&mut self, answer: &Answer) {
        let _ = self.stream.write_all(&answer_to_bytes(answer));
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
