//! Memory that other threads and processes write while its owner does nothing.
//!
//! ```text
//! 0                        4096                                   4096 + len
//! +------------------------+--------------------------------------+
//! | control block          | payload                              |
//! +------------------------+--------------------------------------+
//!
//! control := magic: u64  version: u32  zero: u32  access: u64  incarnation: u64
//!            len: u64  boot: u64  serial: u64  zero: u64  device: u128  grantee: u64
//!            zero: [u8; 4008]
//! ```
//!
//! Version 1 had no `device`, and zeros in its place, which is no device's: it is read as memory of a
//! device that nobody knows. Version 2 had no `grantee`, and counted its grants in front of `device`. Later versions
//! than 3 are refused.
//!
//! `access` is the number of the grant under which `grantee` may write, and zero once the memory is revoked; every
//! grant has a number that this memory never had before, so that a writer which was revoked cannot
//! mistake a later grant for its own. New memory begins revoked. A file on tmpfs outlives the
//! process that made it; anonymous memory does not, and serves the simulator.
//!
//! How a peer writes ([`SharedMemory::write_checked`]) and how the owner takes the memory back:
//!
//! ```text
//! peer                                    owner
//! 1. access == mine, else give up         a. access := 0
//! 2. copy the bytes                       b. full fence
//! 3. full fence                           c. copy the payload out, and check the copy
//! 4. access == mine, else it failed
//! ```
//!
//! The two fences order (2 before 4) against (a before c): either the peer sees the new word and
//! reports failure, or the owner's copy holds all of the peer's bytes. What lands after (c) lands
//! in memory that nobody reads any more.
//!
//! A checked write stores every byte once, so that its reader may use the space again as soon as it
//! has found all bytes there. Nothing here promises that bytes which are read were not being
//! written at that moment. Readers
//! of anything but an aligned 8-byte word take a private copy and verify a checksum in it before
//! they believe it (I2). That is why no method lends out the payload as a slice.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use argosy_base::limits::BLOCK_SIZE;
use argosy_base::{Grant, Incarnation, ServerId};
use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::MemoryError;

mod access;
mod allocation;
mod copy;
mod passed;
mod stamp;
mod sync;

use access::Access;

pub use stamp::{BootId, Stamp};

/// Bytes in front of the payload.
pub const CONTROL_BYTES: usize = BLOCK_SIZE;

/// "argosymm", read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"argosymm");
/// The present layout; the upper half of its word is the zero field.
const VERSION: u64 = 3;
/// The earliest layout that is read.
const VERSION_MIN: u64 = 1;

/// Memory is a file of its name, not where a link leads.
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// Where the words of the control block lie, in bytes.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const ACCESS: usize = 16;
    pub(super) const INCARNATION: usize = 24;
    pub(super) const LEN: usize = 32;
    pub(super) const BOOT: usize = 40;
    pub(super) const SERIAL: usize = 48;
    pub(super) const DEVICE: usize = 64;
    pub(super) const GRANTEE: usize = 80;
}

/// The memory was revoked before the write was complete. Whether its bytes were seen is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory was revoked")]
pub struct Revoked;

enum Backing {
    Anonymous(Layout),
    File { file: File, path: PathBuf },
}

/// See the module documentation.
pub struct SharedMemory {
    /// The control block; the payload follows it.
    base: NonNull<u8>,
    /// Bytes of the payload.
    len: usize,
    backing: Backing,
    /// What the owner writes has no effect any more.
    disowned: AtomicBool,
    /// The payload has no memory: see [`release`](Self::release).
    released: AtomicBool,
    /// There is no memory for the payload: see [`set_scarce`](Self::set_scarce).
    scarce: AtomicBool,
}

// SAFETY: the bytes are reached through raw copies and atomics only, by design from many threads.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; no method lends out a reference into the payload.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// `len` zero bytes that live as long as this value. Revoked at first.
    #[must_use]
    pub fn anonymous(len: usize) -> Self {
        let bytes = CONTROL_BYTES + len;
        let layout = Layout::from_size_align(bytes, BLOCK_SIZE).expect("far below address space");
        // SAFETY: the layout's size is not zero: it holds a control block.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        let memory = Self {
            base,
            len,
            backing: Backing::Anonymous(layout),
            disowned: AtomicBool::new(false),
            released: AtomicBool::new(false),
            scarce: AtomicBool::new(false),
        };
        memory.initialise(Stamp::default());
        memory
    }

    /// Memory of this process with what this one holds at this moment, for somebody who decides by it while others may
    /// go on writing.
    #[must_use]
    pub fn private_copy(&self) -> Self {
        let copy = Self::anonymous(self.len());
        copy.write(0, &self.peek(0, self.len()));
        copy
    }

    /// `len` zero bytes in a new file at `path`, allocated in full. Whatever had that name is unlinked
    /// first; processes that have it mapped keep it. Revoked at first.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] when the system refuses, above all for want of room.
    pub fn create(path: &Path, len: usize, incarnation: Incarnation) -> Result<Self, MemoryError> {
        let stamp = Stamp {
            incarnation,
            ..Stamp::default()
        };
        Self::create_stamped(path, len, stamp)
    }

    /// [`create`](Self::create), with all of the stamp.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_stamped(path: &Path, len: usize, stamp: Stamp) -> Result<Self, MemoryError> {
        Self::create_with(path, stamp, |file| {
            allocation::allocate_in_full(&file, CONTROL_BYTES + len)
                .map_err(|e| MemoryError::refused("find room for shared memory in", path, e))?;
            Self::map(file, path, len, MapFlags::empty())
        })
    }

    /// [`create_stamped`](Self::create_stamped), without memory for the payload: it is
    /// [released](Self::release) from the start.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_released(path: &Path, len: usize, stamp: Stamp) -> Result<Self, MemoryError> {
        Self::create_with(path, stamp, |file| {
            allocation::allocate_in_full(&file, CONTROL_BYTES)
                .and_then(|()| file.set_len((CONTROL_BYTES + len) as u64))
                .map_err(|e| MemoryError::refused("find room for shared memory in", path, e))?;
            let memory = Self::map(file, path, len, MapFlags::empty())?;
            memory.release()?;
            Ok(memory)
        })
    }

    /// Memory of what `make` makes of a new file at `path`.
    fn create_with(
        path: &Path,
        stamp: Stamp,
        make: impl FnOnce(File) -> Result<Self, MemoryError>,
    ) -> Result<Self, MemoryError> {
        let refused = |e: io::Error| MemoryError::refused("create shared memory in", path, e);
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(refused(e)),
            _ => {}
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(refused)?;
        match make(file) {
            Ok(memory) => {
                memory.initialise(stamp);
                Ok(memory)
            }
            Err(error) => {
                // It holds no room for nothing: the first error is the one to report.
                let _ = std::fs::remove_file(path);
                Err(error)
            }
        }
    }

    /// Maps the memory that another process, or an earlier one, made at `path`. Pages that this process does not
    /// touch are not mapped.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] when the system refuses (see [`MemoryError::is_not_found`]);
    /// [`MemoryError::Unusable`] when the file is no shared memory, or not complete.
    pub fn open(path: &Path) -> Result<Self, MemoryError> {
        let refused = |e| MemoryError::refused("open shared memory in", path, e);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(NOFOLLOW)
            .open(path)
            .map_err(refused)?;
        Self::map_checked(file, path)
    }

    /// Maps `file`, which should hold shared memory.
    fn map_checked(file: File, path: &Path) -> Result<Self, MemoryError> {
        let refused = |e| MemoryError::refused("open shared memory in", path, e);
        let bytes = file.metadata().map_err(refused)?.len();
        let len = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| bytes.checked_sub(CONTROL_BYTES))
            .ok_or_else(|| MemoryError::unusable(path, "too short to be shared memory"))?;
        let memory = Self::map(file, path, len, MapFlags::empty())?;
        let magic = memory.control(at::MAGIC).load(Ordering::Acquire);
        if magic != MAGIC.to_le() {
            return Err(MemoryError::unusable(path, "not shared memory of Argosy"));
        }
        let version = u64::from_le(memory.control(at::VERSION).load(Ordering::Relaxed));
        if !(VERSION_MIN..=VERSION).contains(&version) {
            let what = format!("shared memory of version {version}; this program knows {VERSION}");
            return Err(MemoryError::unusable(path, what));
        }
        if u64::from_le(memory.control(at::LEN).load(Ordering::Relaxed)) != len as u64 {
            return Err(MemoryError::unusable(path, "not as long as it says it is"));
        }
        Ok(memory)
    }

    /// Maps all of `file`. With [`MapFlags::POPULATE`] all of its pages are present; only for memory that was just
    /// allocated in full, since the kernel would fill the holes of other memory.
    fn map(file: File, path: &Path, len: usize, populate: MapFlags) -> Result<Self, MemoryError> {
        let bytes = CONTROL_BYTES + len;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | populate;
        // SAFETY: a new mapping, at an address of the kernel's choice, aliases nothing. The file
        // is at least this long: it was just allocated or measured, and no one ever shortens it.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, &file, 0) }
            .map_err(|e| MemoryError::refused("map shared memory in", path, e.into()))?;
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        let path = path.to_path_buf();
        Ok(Self {
            base,
            len,
            backing: Backing::File { file, path },
            disowned: AtomicBool::new(false),
            released: AtomicBool::new(false),
            scarce: AtomicBool::new(false),
        })
    }

    /// Fills in the control block of new, zero memory; the magic comes last.
    fn initialise(&self, stamp: Stamp) {
        let set = |at, value: u64| self.control(at).store(value.to_le(), Ordering::Relaxed);
        set(at::VERSION, VERSION);
        set(at::INCARNATION, stamp.incarnation.0);
        set(at::LEN, self.len as u64);
        set(at::BOOT, stamp.boot.0);
        set(at::SERIAL, stamp.serial);
        let half = |shift: u32| u64::try_from(stamp.device >> shift & u128::from(u64::MAX));
        set(at::DEVICE, half(0).expect("64 bits"));
        set(at::DEVICE + 8, half(64).expect("64 bits"));
        let magic = self.control(at::MAGIC);
        magic.store(MAGIC.to_le(), Ordering::Release);
    }

    /// Bytes of the payload.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the payload has no bytes.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The name under which the file was made or opened; `None` for anonymous memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.backing {
            Backing::Anonymous(_) => None,
            Backing::File { path, .. } => Some(path),
        }
    }

    /// Gives the file one more name, `path`, in place of whatever had it, at once. A peer that
    /// opens `path` finds this memory, whatever becomes of its other names.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] when `path` lies on another file system, or the system refuses.
    ///
    /// # Panics
    /// For anonymous memory, which has no file.
    pub fn publish(&self, path: &Path) -> Result<(), MemoryError> {
        let Backing::File { file, .. } = &self.backing else {
            panic!("anonymous memory has no file to publish")
        };
        let refused = |e| MemoryError::refused("publish shared memory as", path, e);
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".publishing");
        let temporary = PathBuf::from(temporary);
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        let _ = std::fs::remove_file(&temporary);
        linkat(CWD, source, CWD, &temporary, AtFlags::SYMLINK_FOLLOW)
            .map_err(|e| refused(e.into()))?;
        std::fs::rename(&temporary, path).map_err(refused)
    }

    // --- The payload ---

    /// Copies `bytes` to byte `offset`. For the owner: access is not checked.
    ///
    /// # Panics
    /// When the range is not inside the payload. So do all methods of this block.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        if self.disowned.load(Ordering::Relaxed) {
            return;
        }
        let to = self.payload(offset, bytes.len());
        // SAFETY: `to` has room for `bytes.len()` bytes, to which no reference exists. Others may write or
        // read the same bytes at the same time: readers take what they copied as raw bytes and check it
        // (see the module).
        unsafe { copy::write(to, bytes) }
    }

    /// Copies the bytes at `offset` to `out`. They may be half of one write and half of another.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.payload(offset, out.len());
        // SAFETY: as in `write`, in the other direction.
        unsafe { copy::read(from.cast_const(), out) }
    }

    /// A copy of `len` bytes at `offset`; see [`read`](Self::read).
    #[must_use]
    pub fn read_vec(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes);
        bytes
    }

    /// The aligned little-endian word at `offset`; pairs with [`store_u64`](Self::store_u64), so
    /// that whatever its writer wrote before is seen.
    #[inline]
    #[must_use]
    pub fn load_u64(&self, offset: usize) -> u64 {
        u64::from_le(self.payload_word(offset).load(Ordering::Acquire))
    }

    /// Writes the aligned word at `offset`, whole and after everything written before.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64) {
        if !self.disowned.load(Ordering::Relaxed) {
            self.land_word(offset, value);
        }
    }

    /// Makes `range` of the payload zero.
    pub fn fill_zero(&self, range: std::ops::Range<usize>) {
        if self.disowned.load(Ordering::Relaxed) {
            return;
        }
        assert!(range.start <= range.end, "a range ends behind its start");
        let len = range.end - range.start;
        let to = self.payload(range.start, len);
        // SAFETY: `to` has room for `len` bytes; for other writers see `write`.
        unsafe { copy::zero(to, len) }
    }

    /// From now on the methods with which an owner writes have no effect; peers write on. Stands
    /// for the owner's death while its code, which does not know of it, runs to the step's end.
    pub fn disown(&self) {
        self.disowned.store(true, Ordering::Relaxed);
    }

    /// Flips bit `bit` (0 to 7) of byte `offset`, whoever owns it: what damage does. For tests.
    pub fn flip_bit(&self, offset: usize, bit: u32) {
        // SAFETY: one byte of the payload, alive as long as `self`; for other writers see `write`.
        let byte = unsafe { AtomicU8::from_ptr(self.payload(offset, 1)) };
        byte.fetch_xor(1 << bit, Ordering::Relaxed);
    }

    // --- Access ---

    /// The number of the present grant, or 0 where no peer may write.
    #[inline]
    #[must_use]
    pub fn access(&self) -> u64 {
        self.access_word().number()
    }

    /// Lets one peer write, under a number that this memory never had, and says in whose name.
    /// For the owner, which grants and revokes from one thread at a time.
    ///
    /// # Panics
    /// When the number is 0, which is none.
    pub fn grant(&self, grant: Grant) {
        assert_ne!(grant.number, 0, "a grant has a number");
        let set = |at, value: u64| self.control(at).store(value.to_le(), Ordering::Relaxed);
        set(at::INCARNATION, grant.by.0);
        set(at::GRANTEE, grant.to.0.into());
        self.access_word().grant(grant.number);
    }

    /// Who may write, or was the last that might. Read it behind [`access`](Self::access), and believe it while that
    /// stays as it was.
    #[must_use]
    pub fn grantee(&self) -> Option<ServerId> {
        let grantee = u64::from_le(self.control(at::GRANTEE).load(Ordering::Acquire));
        u32::try_from(grantee).ok().map(ServerId)
    }

    /// Takes the memory back: no checked write that ends after this succeeds, and every one that
    /// succeeded is in what the caller reads from now on.
    pub fn revoke(&self) {
        self.access_word().revoke();
    }

    /// Writes as a peer that holds grant `access`: fails if the memory was, or meanwhile is,
    /// revoked.
    ///
    /// # Errors
    /// [`Revoked`]; then nobody may rely on the bytes, nor on their absence.
    #[inline]
    pub fn write_checked(&self, access: u64, offset: usize, bytes: &[u8]) -> Result<(), Revoked> {
        self.access_word().write(access, || {
            match (offset % 8, <[u8; 8]>::try_from(bytes)) {
                // An aligned word lands whole.
                (0, Ok(word)) => self.land_word(offset, u64::from_le_bytes(word)),
                _ => self.land(offset, bytes),
            }
        })
    }

    #[inline]
    fn access_word(&self) -> Access<'_> {
        Access(self.control(at::ACCESS))
    }

    /// Stores a word whole, and after everything written before.
    fn land_word(&self, offset: usize, value: u64) {
        let word = self.payload_word(offset);
        word.store(value.to_le(), Ordering::Release);
    }

    /// Stores each byte once, front to back. A library's copy may store a byte twice, with time in
    /// between, and a reader who has found the bytes complete, and has zeroed them for the next
    /// round, would find them back.
    fn land(&self, offset: usize, bytes: &[u8]) {
        let to = self.payload(offset, bytes.len());
        let ahead = offset.next_multiple_of(8) - offset;
        let (first, rest) = bytes.split_at(ahead.min(bytes.len()));
        let (words, last) = rest.as_chunks::<8>();
        let byte = |at: usize, value: u8| {
            // SAFETY: `at` is inside the range that `payload` checked, alive as long as `self`.
            let byte = unsafe { AtomicU8::from_ptr(to.wrapping_add(at)) };
            byte.store(value, Ordering::Relaxed);
        };
        for (at, value) in first.iter().enumerate() {
            byte(at, *value);
        }
        for (index, value) in words.iter().enumerate() {
            let word = self.payload_word(offset + ahead + index * 8);
            word.store(u64::from_le_bytes(*value).to_le(), Ordering::Relaxed);
        }
        for (at, value) in last.iter().enumerate() {
            byte(bytes.len() - last.len() + at, *value);
        }
    }

    /// In whose name the memory was made, or last granted.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.stamp().incarnation
    }

    /// Who made this memory, and when.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let get = |at| u64::from_le(self.control(at).load(Ordering::Acquire));
        Stamp {
            incarnation: Incarnation(get(at::INCARNATION)),
            boot: BootId(get(at::BOOT)),
            serial: get(at::SERIAL),
            device: u128::from(get(at::DEVICE)) | u128::from(get(at::DEVICE + 8)) << 64,
        }
    }

    // --- Addresses ---

    /// The address of `len` payload bytes at `offset`.
    #[inline]
    fn payload(&self, offset: usize, len: usize) -> *mut u8 {
        let inside = offset <= self.len && len <= self.len - offset;
        assert!(
            inside,
            "bytes {offset}+{len} of {} are outside the memory",
            self.len
        );
        self.base.as_ptr().wrapping_add(CONTROL_BYTES + offset)
    }

    #[inline]
    fn payload_word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word lies at a multiple of 8");
        let address = self.payload(offset, 8);
        // SAFETY: 8 bytes inside the mapping, aligned as the mapping and the offset are, that
        // live as long as `self`.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }

    #[inline]
    fn control(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= CONTROL_BYTES && at.is_multiple_of(8));
        let address = self.base.as_ptr().wrapping_add(at);
        // SAFETY: one of the words of the control block, which only atomics reach.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        match &self.backing {
            Backing::Anonymous(layout) => {
                // SAFETY: allocated in `anonymous` with this very layout.
                unsafe { dealloc(self.base.as_ptr(), *layout) }
            }
            Backing::File { .. } => {
                let start: *mut c_void = self.base.as_ptr().cast();
                // SAFETY: mapped in `map` with this length; nothing refers to it any more.
                let unmapped = unsafe { munmap(start, CONTROL_BYTES + self.len) };
                debug_assert!(unmapped.is_ok(), "a mapping can be undone");
            }
        }
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory")
            .field("path", &self.path())
            .field("len", &self.len)
            .field("access", &self.access())
            .field("stamp", &self.stamp())
            .finish()
    }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
