//! Memory without a name, which its maker passes to another process by its descriptor.
//!
//! The file lies in memory, is allocated in full, and sealed: whoever has the descriptor can write
//! it, but make it neither shorter (which would kill the maker when it next looks) nor longer. It
//! goes when the last process that has it mapped or open has ended.
//!
//! It is not granted and not revoked: whoever has it writes. Its words are for signs between the
//! two, its bytes for messages that are checked in a private copy.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use std::time::Duration;

use argosy_base::Shared;
use rustix::fs::{MemfdFlags, SealFlags, Timespec, fcntl_add_seals, memfd_create};
use rustix::mm::MapFlags;
use rustix::thread::futex;

use super::allocation::allocate_in_full;
use super::{Backing, CONTROL_BYTES, SharedMemory, Stamp};
use crate::error::MemoryError;

/// How such memory is called in errors, and in `/proc`.
const NAME: &str = "argosy-passed";

impl SharedMemory {
    /// `len` zero bytes in a file without a name.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] when the system refuses, above all for want of memory.
    pub fn passed(len: usize) -> Result<Self, MemoryError> {
        let path = Path::new(NAME);
        let refused = |e: rustix::io::Errno| {
            MemoryError::refused("make memory to be passed on, as", path, e.into())
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(NAME, flags).map_err(refused)?);
        allocate_in_full(&file, CONTROL_BYTES + len).map_err(|e| {
            MemoryError::refused("find room for memory to be passed on, as", path, e)
        })?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(refused)?;
        let memory = Self::map(file, path, len, MapFlags::POPULATE)?;
        memory.initialise(Stamp::default());
        Ok(memory)
    }

    /// Maps memory that another process made with [`passed`](Self::passed).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn receive(file: OwnedFd) -> Result<Self, MemoryError> {
        Self::map_checked(File::from(file), Path::new(NAME))
    }

    /// The descriptor to pass on.
    ///
    /// # Panics
    /// For anonymous memory, which has none.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.backing {
            Backing::Anonymous(_) => panic!("anonymous memory has no file to pass on"),
            Backing::File { file, .. } => file.as_fd(),
        }
    }

    /// The aligned word of 4 bytes at `offset`, as an atomic in the machine's order: a sign that
    /// never leaves the host.
    ///
    /// # Panics
    /// When it is not inside the payload, or not aligned.
    #[inline]
    #[must_use]
    pub fn sign(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "a sign lies at a multiple of 4");
        let address = self.payload(offset, 4);
        // SAFETY: 4 bytes inside the mapping, aligned as the mapping and the offset are, that live
        // as long as `self`; signs are reached through atomics only.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }

    /// Sleeps while the sign at `offset` is `seen`, until [`wake`](Self::wake) or for `timeout`. May
    /// return early.
    pub fn sleep_while(&self, offset: usize, seen: u32, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // Woken, changed meanwhile, interrupted, out of time: the caller looks again in any case.
        let _ = futex::wait(
            self.sign(offset),
            futex::Flags::empty(),
            seen,
            Some(&timeout),
        );
    }

    /// Wakes all who sleep on the sign at `offset`.
    pub fn wake(&self, offset: usize) {
        // A failure would mean that the address is wrong, which it is not.
        let _ = futex::wake(self.sign(offset), futex::Flags::empty(), u32::MAX >> 1);
    }
}

/// As the protocol of clients and servers sees it.
///
/// No fence of the processor stands here. Where a side sleeps after it has stored and looked, the order of the two
/// is kept where it sleeps: `Asleep` and `Parking` of the protocol have the full fences, on both sides. What
/// [`zero`](Shared::zero) promises is looked at only after the thread that zeroed has died. A thread dies between two
/// instructions, and whoever learns of it from the kernel sees all stores in front: so only the compiler must not
/// move what is done about a request in front of its removal.
impl Shared for SharedMemory {
    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.load_u64(at)
    }

    #[inline]
    fn store(&self, at: usize, word: u64) {
        self.store_u64(at, word);
    }

    #[inline]
    fn read(&self, at: usize, out: &mut [u8]) {
        self.read(at, out);
    }

    #[inline]
    fn write(&self, at: usize, bytes: &[u8]) {
        self.write(at, bytes);
    }

    #[inline]
    fn zero(&self, at: usize, len: usize) {
        self.fill_zero(at..at + len);
        compiler_fence(Ordering::SeqCst);
    }
}
