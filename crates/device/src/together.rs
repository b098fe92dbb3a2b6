//! Several reads of a file in one submission.
//!
//! Reads that are asked for one after the other cost a wait each, and in a virtual machine a call of the
//! host each. Where the kernel has io_uring they are submitted together and waited for once. Each thread
//! that reads has a ring of its own, made with its first such reads: nobody else submits or waits there.
//! Where the kernel has none, or it fails, reads go one after the other.
//!
//! The kernel writes into the readers' buffers until a read has ended. So nothing here returns, or gives
//! a ring up, while a read is under way.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use argosy_base::limits::BLOCK_SIZE;
use io_uring::types::Fd;
use io_uring::{EnterFlags, IoUring, opcode};

use crate::file::read_at;
use crate::io::Read;

/// Most reads of a submission. More are submitted in turn.
const TOGETHER_MAX: usize = 32;

/// A thread's ring.
enum Ring {
    Untried,
    Ready(Box<IoUring>),
    /// The kernel has none for us.
    Missing,
}

thread_local! {
    static RING: RefCell<Ring> = const { RefCell::new(Ring::Untried) };
}

/// Performs all `reads` of `file`, which was opened for direct I/O or not.
pub(crate) fn read_together(file: &File, direct: bool, reads: &mut [Read<'_>]) {
    let aligned = |read: &Read<'_>| read.buffer.as_ptr().addr().is_multiple_of(BLOCK_SIZE);
    let fits = |read: &Read<'_>| u32::try_from(read.buffer.len()).is_ok();
    let suited = reads
        .iter()
        .all(|read| fits(read) && (!direct || aligned(read)));
    if reads.len() < 2 || !suited {
        return one_by_one(file, direct, reads);
    }
    RING.with_borrow_mut(|ring| {
        if let Ring::Untried = ring {
            *ring = open();
        }
        for reads in reads.chunks_mut(TOGETHER_MAX) {
            let ended = match ring {
                Ring::Ready(ready) => submit(ready, file.as_raw_fd(), reads),
                Ring::Untried | Ring::Missing => [false; TOGETHER_MAX],
            };
            // What the ring did not read whole is read again, and its error found, in the plain way.
            for (read, ended) in reads.iter_mut().zip(ended) {
                if !ended {
                    read.result = read_at(file, direct, read.at, read.buffer);
                }
            }
            if let Ring::Ready(ready) = ring
                && !ready.submission().is_empty()
            {
                *ring = Ring::Missing;
            }
        }
    });
}

fn one_by_one(file: &File, direct: bool, reads: &mut [Read<'_>]) {
    for read in reads {
        read.result = read_at(file, direct, read.at, read.buffer);
    }
}

fn open() -> Ring {
    let entries = u32::try_from(TOGETHER_MAX).expect("a few");
    // Completions are handled by the thread that waits for them, where the kernel knows how.
    let quiet = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries);
    match quiet.or_else(|_| IoUring::new(entries)) {
        Ok(ring) => Ring::Ready(Box::new(ring)),
        Err(_) => Ring::Missing,
    }
}

/// Submits `reads` and waits until none is under way. Tells which of them were read whole. If the ring
/// took only some, the rest is still in its queue: it must not be used again.
fn submit(ring: &mut IoUring, file: RawFd, reads: &mut [Read<'_>]) -> [bool; TOGETHER_MAX] {
    for (place, read) in (0..).zip(reads.iter_mut()) {
        let len = u32::try_from(read.buffer.len()).expect("it was looked at before");
        let entry = opcode::Read::new(Fd(file), read.buffer.as_mut_ptr(), len)
            .offset(read.at)
            .build()
            .user_data(place);
        // SAFETY: buffer and file are borrowed until this function returns, and it returns when no read
        // is under way.
        let pushed = unsafe { ring.submission().push(&entry) };
        pushed.expect("the queue was empty and has room for all");
    }
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

/// Waits until `count` reads have ended, or a signal comes.
fn wait(ring: &IoUring, count: usize) -> io::Result<usize> {
    let count = u32::try_from(count).expect("a few");
    let flags = EnterFlags::GETEVENTS.bits();
    // SAFETY: it hands no memory to the kernel.
    unsafe { ring.submitter().enter::<()>(0, count, flags, None) }
}
