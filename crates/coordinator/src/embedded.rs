//! A coordinator in a directory that all servers of one machine share: one file a key.
//!
//! ```text
//! file   := header value
//! header := "argosy.coordinator.v1 key=" key " version=" decimal " bytes=" decimal
//!           " checksum=" 8 hexadecimal digits "\n"
//! ```
//!
//! The checksum covers key, version (8 bytes, little-endian) and value. A change, step by step:
//!
//! 1. Take the exclusive lock on the file `lock`; while another process holds it, try again at the
//!    next poll. A process that dies gives it up.
//! 2. Read the file, and stop where its version is not the expected one.
//! 3. Write the new file under a temporary name, sync it, rename it over the old one, sync the
//!    directory. A crash at any instant leaves the old file or the new, whole.
//!
//! A reader needs no lock: it sees the old file or the new one, and verifies it. Requests run in
//! `poll`, one a call; they take as long as a small file takes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argosy_base::checksum::extend;
use argosy_base::{Identity, Kind};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::contract::{
    Coordinator, CoordinatorAnswer, CoordinatorError, Entry, EntryVersion, Request, RequestId,
    VALUE_BYTES_MAX,
};

const SCHEMA: &str = "argosy.coordinator.v1";

/// More than the longest header, in bytes: 26 + 64 + 29 + 15 + 19.
const HEADER_BYTES_MAX: usize = 256;

/// See the module documentation.
#[derive(Debug)]
pub struct Embedded {
    directory: PathBuf,
    lock: File,
    waiting: VecDeque<(RequestId, Request)>,
    submitted: u64,
}

impl Embedded {
    /// The coordinator in `directory`, which is made if there is none.
    ///
    /// # Errors
    /// [`CoordinatorError::Refused`].
    pub fn open(directory: &Path) -> Result<Self, CoordinatorError> {
        let refused = |e| refused("open the coordinator in", directory, e);
        // For one user alone, as all directories with data.
        let mut make = std::fs::DirBuilder::new();
        let made = make.recursive(true).mode(0o700).create(directory);
        made.map_err(refused)?;
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("lock"))
            .map_err(refused)?;
        Ok(Self {
            directory: directory.to_path_buf(),
            lock,
            waiting: VecDeque::new(),
            submitted: 0,
        })
    }

    /// Reads what is under `key`, at once. For opening and tools; a step uses `submit` and `poll`.
    ///
    /// # Errors
    /// As a [`Request::Read`].
    pub fn read_now(&self, key: &str) -> Result<Entry, CoordinatorError> {
        let key = key.to_owned();
        let request = Request::Read { key };
        request.check()?;
        self.read(request.key())
    }

    /// Replaces what is under `key`, at once; waits for others that do. For tools, as
    /// [`read_now`](Self::read_now).
    ///
    /// # Errors
    /// As a [`Request::CompareAndSet`].
    pub fn set_now(
        &self,
        key: &str,
        expected: EntryVersion,
        value: Vec<u8>,
    ) -> Result<Entry, CoordinatorError> {
        let request = Request::CompareAndSet {
            key: key.to_owned(),
            expected,
            value,
        };
        // A signal may interrupt the wait for the lock.
        loop {
            if let Some(answer) = self.answer(&request, FlockOperation::LockExclusive) {
                return answer;
            }
        }
    }

    /// The answer, or `None` while another process holds the lock.
    fn answer(
        &self,
        request: &Request,
        how: FlockOperation,
    ) -> Option<Result<Entry, CoordinatorError>> {
        if let Err(error) = request.check() {
            return Some(Err(error));
        }
        let Request::CompareAndSet {
            key,
            expected,
            value,
        } = request
        else {
            return Some(self.read(request.key()));
        };
        match flock(&self.lock, how) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return None,
            Err(e) => return Some(Err(refused("lock", &self.directory, e.into()))),
        }
        let result = self.change(key, *expected, value);
        // Given up at the latest when the process ends.
        let _ = flock(&self.lock, FlockOperation::Unlock);
        Some(result)
    }

    fn read(&self, key: &str) -> Result<Entry, CoordinatorError> {
        let path = self.path(key);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Entry::default()),
            Err(e) => return Err(refused("open", &path, e)),
        };
        let mut bytes = Vec::new();
        let most = (HEADER_BYTES_MAX + VALUE_BYTES_MAX) as u64;
        file.take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| refused("read", &path, e))?;
        decode(key, &bytes).map_err(|what| CoordinatorError::Damaged {
            path: path.display().to_string(),
            what,
        })
    }

    fn change(
        &self,
        key: &str,
        expected: EntryVersion,
        value: &[u8],
    ) -> Result<Entry, CoordinatorError> {
        let found = self.read(key)?.version;
        if found != expected {
            return Err(CoordinatorError::Conflict {
                key: key.to_owned(),
                expected,
                found,
            });
        }
        let entry = Entry {
            version: EntryVersion(expected.0 + 1),
            value: value.to_vec(),
        };
        let path = self.path(key);
        let replaced = self.replace(&path, &encode(key, &entry));
        replaced.map_err(|e| refused("write", &path, e))?;
        Ok(entry)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = path.with_extension("new");
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        File::open(&self.directory)?.sync_all()
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}.value"))
    }
}

impl Coordinator for Embedded {
    fn submit(&mut self, request: Request) -> RequestId {
        self.submitted += 1;
        let id = RequestId(self.submitted);
        self.waiting.push_back((id, request));
        id
    }

    fn poll(&mut self) -> Option<CoordinatorAnswer> {
        let (id, request) = self.waiting.front()?;
        let answer = self.answer(request, FlockOperation::NonBlockingLockExclusive)?;
        let id = *id;
        self.waiting.pop_front();
        Some((id, answer))
    }
}

fn refused(what: &'static str, path: &Path, source: io::Error) -> CoordinatorError {
    CoordinatorError::Refused {
        what,
        path: path.display().to_string(),
        source: Arc::new(source),
    }
}

fn checksum(key: &str, entry: &Entry) -> u32 {
    let identity = Identity::of_server(Kind::Coordinator, 0);
    let named = extend(identity.seed(), key.as_bytes());
    let versioned = extend(named, &entry.version.0.to_le_bytes());
    extend(versioned, &entry.value)
}

/// The file of `key`.
#[must_use]
pub fn encode(key: &str, entry: &Entry) -> Vec<u8> {
    let (version, bytes) = (entry.version.0, entry.value.len());
    let checksum = checksum(key, entry);
    let header =
        format!("{SCHEMA} key={key} version={version} bytes={bytes} checksum={checksum:08x}\n");
    let mut file = header.into_bytes();
    file.extend_from_slice(&entry.value);
    file
}

/// What `file`, which is that of `key`, holds.
///
/// # Errors
/// Why it is not that file as it was written.
pub fn decode(key: &str, file: &[u8]) -> Result<Entry, &'static str> {
    let end = file
        .iter()
        .take(HEADER_BYTES_MAX)
        .position(|byte| *byte == b'\n')
        .ok_or("it does not begin with a header line")?;
    let header = std::str::from_utf8(&file[..end]).map_err(|_| "its header is no text")?;
    let value = &file[end + 1..];
    let mut fields = header.split(' ');
    match fields.next() {
        Some(SCHEMA) => {}
        Some(other) if other.starts_with("argosy.coordinator.") => {
            return Err("it was written by a later version");
        }
        _ => return Err("it is no file of a coordinator"),
    }
    let mut field =
        |name: &str| -> Option<&str> { fields.next()?.strip_prefix(name)?.strip_prefix('=') };
    let malformed = "its header is damaged";
    if field("key").ok_or(malformed)? != key {
        return Err("it holds another key");
    }
    let version: u64 = field("version")
        .and_then(|digits| digits.parse().ok())
        .ok_or(malformed)?;
    let bytes: usize = field("bytes")
        .and_then(|digits| digits.parse().ok())
        .ok_or(malformed)?;
    let stated = field("checksum")
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .ok_or(malformed)?;
    if bytes != value.len() {
        return Err("it is not as long as its header says");
    }
    let entry = Entry {
        version: EntryVersion(version),
        value: value.to_vec(),
    };
    if version == 0 || version == u64::MAX || checksum(key, &entry) != stated {
        return Err("its checksum is wrong");
    }
    Ok(entry)
}

#[cfg(test)]
#[path = "embedded_tests.rs"]
mod tests;
