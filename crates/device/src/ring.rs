//! Reads of a file through io_uring: several in one submission, and long ones into registered memory.
//!
//! Reads that are asked for one after the other cost a wait each, and in a virtual machine a call of the
//! host each. Where the kernel has io_uring they are submitted together and waited for once. Each thread
//! that reads has a ring of its own, made with its first such reads: nobody else submits or waits there.
//! Where the kernel has none, or it fails, reads go one after the other.
//!
//! A ring also gets to know the memory of [`fixed`]. Reads into it leave out what the kernel otherwise does
//! for each page, so they go through the ring even alone. The pages are locked once for the process and lent
//! to each ring, or where the kernel does not know how, locked for each; where it is forbidden, reads go as
//! without. A single short read costs the same in all ways, and goes by a plain call.
//!
//! The kernel writes into the readers' buffers until a read has ended. So nothing here returns, or gives
//! a ring up, while a read is under way.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use argosy_base::limits::BLOCK_SIZE;
use io_uring::types::Fd;
use io_uring::{EnterFlags, IoUring, opcode};

use crate::buffer::Buffer;
use crate::fixed;
use crate::io::{DeviceError, OpKind, Read};

/// Most reads of a submission. More are submitted in turn.
const TOGETHER_MAX: usize = 32;

/// How bytes come from a device: each way has what the one before has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoMethod {
    /// A system call for each read.
    Plain,
    /// Reads that are asked for together go through io_uring.
    Ring,
    /// And so do long reads, into memory that was registered.
    Registered,
}

impl IoMethod {
    /// Its name in `INFO` and in status pages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Ring => "io_uring",
            Self::Registered => "io_uring with registered buffers",
        }
    }
}

impl fmt::Display for IoMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many reads went through a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// All that did.
    pub(crate) ring: u64,
    /// Those of them into registered memory.
    pub(crate) fixed: u64,
}

/// A file, and how it is read.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a File,
    /// Whether it was opened for direct I/O.
    pub(crate) direct: bool,
    /// The most that is made use of.
    pub(crate) method: IoMethod,
}

/// A thread's ring.
enum Ring {
    Untried,
    Ready(Box<Own>),
    /// The kernel has none for us.
    Missing,
}

/// See [`Ring`].
struct Own {
    ring: IoUring,
    /// Whether it knows the memory of [`fixed`]; `None`: not tried.
    registered: Option<bool>,
}

thread_local! {
    static RING: RefCell<Ring> = const { RefCell::new(Ring::Untried) };
}

/// A ring on which nothing is submitted: it keeps the memory of [`fixed`] locked, for the others to share.
static KEEPER: OnceLock<Option<IoUring>> = OnceLock::new();

/// What this process can make use of, as the calling thread finds it. Makes that thread's ring.
pub(crate) fn method() -> IoMethod {
    RING.with_borrow_mut(|ring| match ring.ready().map(Own::is_registered) {
        None => IoMethod::Plain,
        Some(false) => IoMethod::Ring,
        Some(true) => IoMethod::Registered,
    })
}

/// Performs all `reads`. Tells which way they went.
pub(crate) fn read_together(source: Source<'_>, reads: &mut [Read<'_>]) -> Tally {
    let aligned = |read: &Read<'_>| read.buffer.as_ptr().addr().is_multiple_of(BLOCK_SIZE);
    let fits = |read: &Read<'_>| u32::try_from(read.buffer.len()).is_ok();
    let registers = source.method == IoMethod::Registered;
    let worth = match &*reads {
        [] => false,
        [read] => registers && fixed::holds(read.buffer),
        _ => source.method >= IoMethod::Ring,
    };
    let suited = |read: &Read<'_>| fits(read) && (!source.direct || aligned(read));
    if !worth || !reads.iter().all(suited) {
        return one_by_one(source, reads);
    }
    let mut tally = Tally::default();
    let ring_reads = |ring: &mut Ring| {
        for reads in reads.chunks_mut(TOGETHER_MAX) {
            let ended = match ring.ready() {
                Some(own) => own.submit(source, reads, &mut tally),
                None => [false; TOGETHER_MAX],
            };
            // What the ring did not read whole is read again, and its error found, in the plain way.
            for (read, ended) in reads.iter_mut().zip(ended) {
                if !ended {
                    read.result = read_at(source.file, source.direct, read.at, read.buffer);
                }
            }
            ring.give_up_if_stuck();
        }
    };
    RING.with_borrow_mut(ring_reads);
    tally
}

fn one_by_one(source: Source<'_>, reads: &mut [Read<'_>]) -> Tally {
    for read in reads {
        read.result = read_at(source.file, source.direct, read.at, read.buffer);
    }
    Tally::default()
}

impl Ring {
    /// The ring, made now if that was not tried; `None`: there is none.
    fn ready(&mut self) -> Option<&mut Own> {
        if let Self::Untried = self {
            *self = match open() {
                Ok(ring) => Self::Ready(Box::new(Own {
                    ring,
                    registered: None,
                })),
                Err(_) => Self::Missing,
            };
        }
        match self {
            Self::Ready(own) => Some(own),
            Self::Untried | Self::Missing => None,
        }
    }

    /// A ring that took not all must not be used again: the rest is still in its queue.
    fn give_up_if_stuck(&mut self) {
        if let Self::Ready(own) = self
            && !own.ring.submission().is_empty()
        {
            *self = Self::Missing;
        }
    }
}

fn open() -> io::Result<IoUring> {
    let entries = u32::try_from(TOGETHER_MAX).expect("a few");
    // Completions are handled by the thread that waits for them, where the kernel knows how.
    let quiet = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries);
    quiet.or_else(|_| IoUring::new(entries))
}

/// Lets `ring` know the memory of [`fixed`], whose pages are locked for it.
fn register(ring: &IoUring) -> bool {
    let Some((start, len)) = fixed::whole() else {
        return false;
    };
    let all = libc::iovec {
        iov_base: start.as_ptr().cast(),
        iov_len: len,
    };
    // SAFETY: that memory stays where it is as long as the process lives.
    unsafe { ring.submitter().register_buffers(&[all]) }.is_ok()
}

/// Lets `ring` know the memory of [`fixed`]. Whether that was allowed.
pub(crate) fn lend(ring: &IoUring) -> bool {
    let keeper = KEEPER.get_or_init(|| {
        let ring = IoUring::new(1).ok()?;
        register(&ring).then_some(ring)
    });
    let Some(keeper) = keeper else { return false };
    let lent = ring.submitter().register_buffers_clone(keeper.as_raw_fd());
    lent.is_ok() || register(ring)
}

impl Own {
    /// Whether the ring knows the memory of [`fixed`]; tries to, the first time.
    fn is_registered(&mut self) -> bool {
        let ring = &self.ring;
        *self.registered.get_or_insert_with(|| lend(ring))
    }

    /// Submits `reads` and waits until none is under way. Tells which of them were read whole. If the ring
    /// took only some, the rest is still in its queue: it must not be used again.
    fn submit(
        &mut self,
        source: Source<'_>,
        reads: &mut [Read<'_>],
        tally: &mut Tally,
    ) -> [bool; TOGETHER_MAX] {
        let file = source.file.as_raw_fd();
        for (place, read) in (0..).zip(reads.iter_mut()) {
            let fixed = source.method == IoMethod::Registered
                && fixed::holds(read.buffer)
                && self.is_registered();
            tally.ring += 1;
            tally.fixed += u64::from(fixed);
            let entry = entry(file, read, fixed).user_data(place);
            // SAFETY: buffer and file are borrowed until this function returns, and it returns when no
            // read is under way.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the queue was empty and has room for all");
        }
        self.wait_for_all(reads)
    }

    /// See [`submit`](Self::submit), whose second half this is.
    fn wait_for_all(&mut self, reads: &[Read<'_>]) -> [bool; TOGETHER_MAX] {
        let ring = &mut self.ring;
        let mut whole = [false; TOGETHER_MAX];
        let mut ended = 0;
        let mut submitted = ring.submit_and_wait(reads.len());
        loop {
            for completion in ring.completion() {
                let place = usize::try_from(completion.user_data()).expect("it was a place");
                let len = usize::try_from(completion.result());
                whole[place] = len == Ok(reads[place].buffer.len());
                ended += 1;
            }
            let under_way = reads.len() - ring.submission().len() - ended;
            submitted = match submitted {
                _ if under_way > 0 => wait(ring, under_way),
                // Nothing, or not all, was taken before a signal came.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    ring.submit_and_wait(reads.len() - ended)
                }
                _ => return whole,
            };
        }
    }
}

/// The request for `read`, whose buffer is `fixed` or not.
fn entry(file: RawFd, read: &mut Read<'_>, fixed: bool) -> io_uring::squeue::Entry {
    let len = u32::try_from(read.buffer.len()).expect("it was looked at before");
    let start = read.buffer.as_mut_ptr();
    match fixed {
        // All of that memory is registered as one.
        true => opcode::ReadFixed::new(Fd(file), start, len, 0)
            .offset(read.at)
            .build(),
        false => opcode::Read::new(Fd(file), start, len)
            .offset(read.at)
            .build(),
    }
}

/// Waits until `count` reads have ended, or a signal comes.
pub(crate) fn wait(ring: &IoUring, count: usize) -> io::Result<usize> {
    let count = u32::try_from(count).expect("a few");
    let flags = EnterFlags::GETEVENTS.bits();
    // SAFETY: it hands no memory to the kernel.
    unsafe { ring.submitter().enter::<()>(0, count, flags, None) }
}

/// Reads whole blocks of `file`, which was opened for direct I/O or not.
pub(crate) fn read_at(
    file: &File,
    direct: bool,
    at: u64,
    buffer: &mut [u8],
) -> Result<(), DeviceError> {
    let len = buffer.len();
    let aligned = buffer.as_ptr().addr().is_multiple_of(BLOCK_SIZE);
    let done = if aligned || !direct {
        file.read_exact_at(buffer, at)
    } else {
        // Direct I/O wants aligned memory.
        let mut aligned = Buffer::zeroed(len);
        let done = file.read_exact_at(&mut aligned[..len], at);
        buffer.copy_from_slice(&aligned[..len]);
        done
    };
    done.map_err(|source| DeviceError::Io {
        op: OpKind::Read,
        at,
        len,
        source: Arc::new(source),
    })
}

#[cfg(test)]
#[path = "ring_tests.rs"]
pub(crate) mod tests;
