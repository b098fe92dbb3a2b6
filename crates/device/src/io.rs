//! Requests to a device, and the tickets that tell how they ended.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{DeviceSegment, Remedy};

use crate::ahead::BegunRead;
use crate::buffer::Buffer;
use crate::ring::IoMethod;

/// How often it is looked whether a device is still in its place.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What was asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush of the device's own cache.
    Sync,
    /// Opening or sizing the device.
    Open,
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Open => "open",
        })
    }
}

/// Why a device, or what it stores, failed. Variants differ in what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system refused. Reopen the device: a sync must not be tried twice, and nothing is
    /// written behind a write that failed.
    #[error("{op} of {len} bytes at byte {at} of the device failed: {source}")]
    Io {
        /// What was asked.
        op: OpKind,
        /// Where on the device, in bytes.
        at: u64,
        /// How many bytes.
        len: usize,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// The bytes are not the bytes that were written. Fetch them from another member.
    #[error("{segment}, byte {offset}: {what}")]
    Corrupt {
        /// The damaged segment.
        segment: DeviceSegment,
        /// Where in it.
        offset: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// Every segment is in use. Retry once space has been freed.
    #[error("the device is full: {used} of {total} segments are in use")]
    Full {
        /// Segments in use.
        used: u32,
        /// Segments that the device has.
        total: u32,
    },
    /// The catalog has no room for another region, or for a manifest that long.
    #[error("the catalog of a device is at most {max} bytes long")]
    CatalogFull {
        /// Bytes that it may have.
        max: usize,
    },
    /// The system refused to open, make or name a file. Correct the cause and start again.
    #[error("cannot {what} {path}: {source}")]
    Refused {
        /// What was tried, such as "open".
        what: &'static str,
        /// With what.
        path: String,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// The device is open already: it belongs to one process at a time. Close the other first.
    #[error("{path}: {} has it open; a device belongs to one process at a time", match here {
        true => "this process",
        false => "another process",
    })]
    InUse {
        /// The device.
        path: String,
        /// Whether this process has it open.
        here: bool,
    },
    /// The device was written by something else, or by a version that this one does not know.
    #[error("{path}: {what}")]
    Unusable {
        /// The device.
        path: String,
        /// What it is and what would help.
        what: String,
    },
    /// What is written cannot be found by whoever opens the device the next time. Nothing is written any more.
    #[error(
        "the device {path} is gone: its file was removed or moved, or another one is in its place; nothing is \
         written any more; put it back, or mount what has it, and start again"
    )]
    Gone {
        /// Where the device was opened.
        path: String,
    },
}

impl DeviceError {
    /// The system refused to do `what` with the file `path`.
    pub(crate) fn refused(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Refused {
            what,
            path: path.display().to_string(),
            source: Arc::new(source),
        }
    }

    /// `path` cannot be used, because it is `what`.
    pub(crate) fn unusable(path: &Path, what: impl Into<String>) -> Self {
        Self::Unusable {
            path: path.display().to_string(),
            what: what.into(),
        }
    }

    /// What the caller does next. A file system without room is a passing state, like a full
    /// device: the write that met it did nothing.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Io { .. } if self.is_full() => Remedy::Retry,
            Self::Io { .. } => Remedy::Reopen,
            Self::Corrupt { .. } => Remedy::Repair,
            Self::Full { .. } | Self::InUse { .. } => Remedy::Retry,
            Self::CatalogFull { .. }
            | Self::Refused { .. }
            | Self::Unusable { .. }
            | Self::Gone { .. } => Remedy::Correct,
        }
    }

    /// Whether there was no room: on the device, or on the file system that holds it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Io { source, .. } | Self::Refused { source, .. } => {
                source.kind() == std::io::ErrorKind::StorageFull
            }
            _ => false,
        }
    }
}

/// A request that a device works on while its submitter goes on.
#[derive(Clone, Debug)]
pub enum Io {
    /// Write blocks `from..to` (bytes of `data`, whole blocks) at byte `at` of the device.
    Write {
        /// Where on the device; a multiple of the block size.
        at: u64,
        /// What holds the bytes.
        data: Arc<Buffer>,
        /// The bytes of `data` that are written; both bounds multiples of the block size.
        range: std::ops::Range<usize>,
    },
    /// Make everything durable that had completed when this was submitted.
    Sync,
}

impl Io {
    /// Which kind of request this is.
    #[must_use]
    pub const fn kind(&self) -> OpKind {
        match self {
            Self::Write { .. } => OpKind::Write,
            Self::Sync => OpKind::Sync,
        }
    }

    /// The failure of this request on a device that takes no more since `earlier`.
    pub(crate) fn refused_since(&self, earlier: &DeviceError) -> DeviceError {
        let why =
            format!("nothing is written any more until the device is reopened, since {earlier}");
        self.error(std::io::Error::other(why))
    }

    /// The request's failure, for what the system said.
    pub(crate) fn error(&self, source: std::io::Error) -> DeviceError {
        let (at, len) = match self {
            Self::Write { at, range, .. } => (*at, range.len()),
            Self::Sync => (0, 0),
        };
        DeviceError::Io {
            op: self.kind(),
            at,
            len,
            source: Arc::new(source),
        }
    }

    /// Asserts what the submitter promised: whole blocks, inside buffer and device.
    pub(crate) fn check(&self, device_len: u64) {
        let Self::Write { at, data, range } = self else {
            return;
        };
        assert!(
            range.start < range.end && range.end <= data.len(),
            "a write has bytes, and they are in its buffer"
        );
        assert!(
            range.start.is_multiple_of(BLOCK_SIZE),
            "a write begins at a block of its buffer"
        );
        check_range(device_len, *at, range.len());
    }
}

/// Asserts that `len` bytes at `at` are whole blocks of a device of `device_len` bytes.
pub(crate) fn check_range(device_len: u64, at: u64, len: usize) {
    let block = BLOCK_SIZE as u64;
    assert!(
        at.is_multiple_of(block) && len.is_multiple_of(BLOCK_SIZE),
        "bytes {at}+{len} are not whole blocks"
    );
    let inside = at <= device_len && len as u64 <= device_len - at;
    assert!(
        inside,
        "bytes {at}+{len} are outside a device of {device_len}"
    );
}

/// The end of a submitted request, once it is known.
#[derive(Clone, Debug, Default)]
pub struct Ticket(Arc<OnceLock<Result<(), DeviceError>>>);

impl Ticket {
    /// A ticket whose request is under way.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A ticket that has ended already.
    #[must_use]
    pub fn ended(result: Result<(), DeviceError>) -> Self {
        let ticket = Self::new();
        ticket.end(result);
        ticket
    }

    /// How the request ended, or `None` while it is under way.
    #[must_use]
    pub fn poll(&self) -> Option<Result<(), DeviceError>> {
        self.0.get().cloned()
    }

    /// Blocks the calling thread until the request has ended. For opening, closing and tools: no
    /// step waits. With a device that makes progress only when it is told to, use
    /// [`Device::wait`].
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.0.wait().clone()
    }

    /// Whether both tell of the same request.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Tells how the request ended. For devices.
    pub fn end(&self, result: Result<(), DeviceError>) {
        let first = self.0.set(result).is_ok();
        assert!(first, "a request ends once");
    }
}

/// What has been transferred since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Reads that went through io_uring.
    pub ring_reads: u64,
    /// Those of them into registered memory.
    pub fixed_reads: u64,
    /// And those that were begun while something else went on.
    pub ahead_reads: u64,
    /// Segments whose space was given back.
    pub discards: u64,
}

/// One of several reads that are asked for together.
#[derive(Debug)]
pub struct Read<'a> {
    /// Where on the device, in bytes; a multiple of the block size.
    pub at: u64,
    /// Whole blocks.
    pub buffer: &'a mut [u8],
    /// How it ended. Of no meaning before.
    pub result: Result<(), DeviceError>,
}

impl<'a> Read<'a> {
    /// A read of `buffer` at byte `at`.
    #[must_use]
    pub const fn new(at: u64, buffer: &'a mut [u8]) -> Self {
        Self {
            at,
            buffer,
            result: Ok(()),
        }
    }
}

/// Wakes whoever polls tickets.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// A file or block device, real or simulated. All methods may be called from any thread.
pub trait Device: Send + Sync {
    /// Bytes of the device: whole segments.
    fn len(&self) -> u64;

    /// Whether the device has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads whole blocks at byte `at` into `buffer`. Blocks the calling thread.
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError>;

    /// Performs all of `reads`, in any order, with one submission where the device is able to. Blocks the
    /// calling thread until all have ended.
    fn read_together(&self, reads: &mut [Read<'_>]) {
        for read in reads {
            read.result = self.read(read.at, read.buffer);
        }
    }

    /// Begins to read whole blocks at byte `at` into `buffer`, for whoever goes on and wants them soon, where
    /// the device is able to. An error is told when it is [fetched](BegunRead::finish).
    #[must_use]
    fn begin_read(&self, at: u64, buffer: Buffer) -> BegunRead {
        let _ = at;
        BegunRead::later(buffer)
    }

    /// The first bytes at or behind `at` that were ever written, from where to where, as far as a file system beneath
    /// knows; more may be named than there are. `None`: there are none, or it is not known.
    fn written_from(&self, at: u64) -> Option<(u64, u64)> {
        let _ = at;
        None
    }

    /// The byte of `range` from which on nothing was written since it was last discarded: what lies there reads as
    /// zeros. The end of the range where the file system beneath does not tell.
    fn written_up_to(&self, range: Range<u64>) -> u64 {
        range.end
    }

    /// Begins `io`. Requests may end in any order. A completed write is durable only after a sync
    /// that was submitted after its completion. A write for which the file system has no room stays
    /// under way until there is some, or until somebody [waits](Self::wait) for it.
    fn submit(&self, io: Io) -> Ticket;

    /// Blocks the calling thread until the request behind `ticket` has ended. For opening, closing
    /// and tools: no step waits. A write that finds no room then ends with that error.
    fn wait(&self, ticket: &Ticket) -> Result<(), DeviceError> {
        ticket.wait()
    }

    /// Gives the space of a free segment back to the file system, where there is one. Done when
    /// this returns: a write submitted afterwards is not undone by it.
    fn discard(&self, segment: DeviceSegment);

    /// Whom to wake when a request has ended. The waker must not keep the device alive: a device
    /// keeps its waker.
    fn set_waker(&self, waker: Waker);

    /// What has been transferred.
    fn counters(&self) -> Counters;

    /// The best of the ways by which bytes come from the device. [`counters`](Self::counters) tell how
    /// many did.
    fn io_method(&self) -> IoMethod {
        IoMethod::Plain
    }

    /// The write or sync that failed and ended all writing: every later one fails, until the device is
    /// opened anew. A write that only finds no room is none such: it waits.
    fn failure(&self) -> Option<DeviceError> {
        None
    }

    /// Looks whether whoever opens the device the next time finds what is written here. Where not, that counts
    /// as a write that failed: see [`failure`](Self::failure). A look at the file system; for a background
    /// thread, once a second ([`LOOK_EVERY`]).
    fn look_for_place(&self) {}

    /// Whether space that was never written, or was discarded, takes no room beneath.
    fn is_sparse(&self) -> bool {
        false
    }

    /// Whether a write waits for room beneath.
    fn wants_room(&self) -> bool {
        false
    }

    /// Bytes that can be stored at present where nothing is in use, while `used` bytes are, and `freed` ones, which
    /// are not in use any more, were not discarded yet;
    /// `None` where that is everything else: there is no file system beneath, or it has the room.
    fn room_beneath(&self, used: u64, freed: u64) -> Option<u64> {
        let _ = (used, freed);
        None
    }
}
