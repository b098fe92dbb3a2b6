//! The bell of a server on this host: how a peer, or another thread, wakes its parked thread.
//!
//! ```text
//! 0         8          12     64        68       72     4096
//! +---------+----------+------+---------+--------+------+
//! | magic   | version  | zero | rings   | parked | zero |
//! +---------+----------+------+---------+--------+------+
//! ```
//!
//! `rings` counts notifications and wraps; `parked` is 1 while the owner's thread is, or is about
//! to be, asleep. Little-endian, except that the two words are native: they never leave the host.
//! The file is made once and kept over restarts, so that peers need not map it again.
//!
//! No wakeup is lost, because both sides write before they read, with full fences between:
//!
//! ```text
//! owner                                  peer
//! 1. seen := rings, then look for work   a. make work visible (a write)
//! 2. parked := 1                         b. rings += 1
//! 3. sleep while rings == seen           c. parked? then wake
//! ```
//!
//! If (c) reads no parked thread, (b) comes before (2), and (3) sees the new `rings` and does not
//! sleep. A peer thus pays for a system call only where someone sleeps.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use rustix::fs::{OFlags, Timespec};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

mod sync;
mod words;

use sync::{AtomicU32, Ordering};
use words::Words;

/// Bytes of a bell's file.
const FILE_BYTES: usize = 4096;
/// "argosyab", read as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"argosyab");
const VERSION: u32 = 1;
/// A bell is a file of its name, not where a link leads.
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();
/// Bytes of the header: magic and version.
const HEADER_BYTES: usize = 12;
const RINGS_AT: usize = 64;
const PARKED_AT: usize = 68;

/// What a thread saw of a bell before it looked for work; see [`BellFile::park`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell(pub u32);

/// A mapped bell: the server's own, or a peer's.
#[derive(Debug)]
pub struct BellFile {
    base: NonNull<u8>,
}

// SAFETY: the mapping is reached through atomics only.
unsafe impl Send for BellFile {}
// SAFETY: as above.
unsafe impl Sync for BellFile {}

impl BellFile {
    /// The bell at `path`, made there if there is none (or none that can be used). For its owner.
    ///
    /// # Errors
    /// What the system says when it refuses.
    pub fn create(path: &Path) -> io::Result<Self> {
        let bell = match Self::open(path) {
            Ok(bell) => bell,
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::InvalidData
                ) =>
            {
                Self::make(path)?;
                Self::open(path)?
            }
            Err(other) => return Err(other),
        };
        // Left by an earlier process that was killed in its sleep.
        bell.words().parked.store(0, Ordering::SeqCst);
        Ok(bell)
    }

    /// The bell that a server has made at `path`.
    ///
    /// # Errors
    /// `NotFound` where there is none, `InvalidData` where the file is something else, or what the
    /// system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(NOFOLLOW)
            .open(path)?;
        let mut header = [0; HEADER_BYTES];
        let len = file.metadata()?.len();
        if len != FILE_BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        file.read_exact_at(&mut header, 0)?;
        if header != header_bytes() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(&file)
    }

    /// Puts a whole new bell at `path`, at once.
    fn make(path: &Path) -> io::Result<()> {
        let temporary = path.with_extension("new");
        match std::fs::remove_file(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        let mut bytes = vec![0; FILE_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&header_bytes());
        file.write_all_at(&bytes, 0)?;
        std::fs::rename(&temporary, path)
    }

    fn map(file: &File) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping, at an address of the kernel's choice, aliases nothing. The file
        // has this length, and nobody shortens it.
        let base = unsafe { mmap(null, FILE_BYTES, protection, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        Ok(Self { base })
    }

    /// How often it has been rung. Read it before looking for work.
    #[inline]
    #[must_use]
    pub fn rings(&self) -> Bell {
        Bell(self.words().rings())
    }

    /// Rings: wakes the owner if it is parked.
    #[inline]
    pub fn ring(&self) {
        self.words().ring(|rings| {
            // A failure would mean that the address is wrong, which it is not.
            let _ = futex::wake(rings, futex::Flags::empty(), u32::MAX >> 1);
        });
    }

    /// Sleeps until the bell is rung after `seen` was read, or `timeout` has passed; a signal may
    /// end it early. One thread at a time.
    pub fn park(&self, seen: Bell, timeout: Duration) {
        self.words().park(seen.0, |rings| {
            let timeout = Timespec {
                tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            };
            // Woken, rung meanwhile, interrupted, out of time: the caller looks for work in any
            // case.
            let _ = futex::wait(rings, futex::Flags::empty(), seen.0, Some(&timeout));
        });
    }

    /// Whether a thread is parked, or about to be.
    #[inline]
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.words().is_parked()
    }

    #[inline]
    fn words(&self) -> Words<'_> {
        Words {
            rings: self.word(RINGS_AT),
            parked: self.word(PARKED_AT),
        }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= FILE_BYTES && at.is_multiple_of(4));
        let address = self.base.as_ptr().wrapping_add(at);
        // SAFETY: an aligned word inside the mapping, which lives as long as `self`, and which
        // only atomics reach.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }
}

impl Drop for BellFile {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; nothing refers to it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), FILE_BYTES) };
        debug_assert!(unmapped.is_ok(), "a mapping can be undone");
    }
}

fn header_bytes() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}
