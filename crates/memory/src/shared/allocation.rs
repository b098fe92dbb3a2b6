//! Room for the payload: taken when memory is made, given back while nobody uses it, and taken again.
//!
//! ```text
//! allocated   the control block and the payload are mapped from the file, which has room for both
//! released    the control block is mapped from the file; the payload is a hole of the file, and private zeros here
//! ```
//!
//! A store into a hole of a mapped file takes room, and a process that finds none there dies (SIGBUS). So do loads,
//! on tmpfs. While memory is released the owner's mapping therefore leads to no file: a thread that reads late
//! reads zeros, and what it writes is lost. Other processes map the file itself. They may not touch the payload while
//! the owner has released it, and agree on that with the owner by other means. Whoever opens memory that
//! an earlier process left looks at it by [`peek`](SharedMemory::peek), which fills no holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::limits::BLOCK_SIZE;
use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pread};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::{Backing, CONTROL_BYTES, SharedMemory};
use crate::error::MemoryError;

/// Where the payload begins in the file.
const PAYLOAD_AT: u64 = CONTROL_BYTES as u64;

impl SharedMemory {
    /// Gives the payload's memory back to the system. What it held is lost: it reads as zeros, and writes to it have
    /// no effect until [`allocate`](Self::allocate). The control block stays. Nothing happens where it was released
    /// before.
    ///
    /// For the owner, which releases and allocates from one thread at a time, while no peer writes.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] where the system cannot. The memory is still allocated, then, unless
    /// [`is_allocated`](Self::is_allocated) denies it.
    pub fn release(&self) -> Result<(), MemoryError> {
        if self.disowned.load(Ordering::Relaxed) || !self.is_allocated() || self.is_empty() {
            return Ok(());
        }
        let Backing::File { file, path } = &self.backing else {
            self.fill_zero(0..self.len);
            self.released.store(true, Ordering::Relaxed);
            return Ok(());
        };
        let refused = |e: Errno| MemoryError::refused("release memory of", path, e.into());
        self.map_zeros().map_err(refused)?;
        self.released.store(true, Ordering::Relaxed);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = fallocate(file, hole, PAYLOAD_AT, self.payload_pages() as u64);
        punched.map_err(|error| {
            if self.map_payload(file).is_ok() {
                self.released.store(false, Ordering::Relaxed);
            }
            refused(error)
        })
    }

    /// Takes memory for the payload again; it is zero. Nothing happens where it has its memory.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] where there is no room ([`MemoryError::is_full`]) or the system refuses. The memory
    /// is still released, then.
    pub fn allocate(&self) -> Result<(), MemoryError> {
        if self.disowned.load(Ordering::Relaxed) || self.is_allocated() {
            return Ok(());
        }
        if self.scarce.load(Ordering::Relaxed) {
            return Err(MemoryError::Refused {
                what: "find room in",
                path: "memory".to_owned(),
                source: Arc::new(io::ErrorKind::StorageFull.into()),
            });
        }
        match &self.backing {
            // What was written meanwhile is lost, as it would be in a file's memory.
            Backing::Anonymous(_) => self.fill_zero(0..self.len),
            Backing::File { file, path } => {
                let refused = |e: Errno| MemoryError::refused("find room in", path, e.into());
                let len = self.len as u64;
                fallocate(file, FallocateFlags::empty(), PAYLOAD_AT, len).map_err(refused)?;
                self.map_payload(file).map_err(refused)?;
            }
        }
        self.released.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// While it is `scarce`, there is no memory for a payload that was released. For tests.
    pub fn set_scarce(&self, scarce: bool) {
        self.scarce.store(scarce, Ordering::Relaxed);
    }

    /// Whether the payload has its memory.
    #[must_use]
    pub fn is_allocated(&self) -> bool {
        !self.released.load(Ordering::Relaxed)
    }

    /// A copy of `len` bytes at `offset`, as [`read_vec`](Self::read_vec). Holes of a file read as zeros, and stay.
    ///
    /// # Panics
    /// When the range is not inside the payload.
    #[must_use]
    pub fn peek(&self, offset: usize, len: usize) -> Vec<u8> {
        if let Backing::File { file, .. } = &self.backing {
            let inside = offset <= self.len && len <= self.len - offset;
            assert!(inside, "bytes {offset}+{len} are inside the memory");
            if let Ok(bytes) = read_exact_at(file, PAYLOAD_AT + offset as u64, len) {
                return bytes;
            }
        }
        self.read_vec(offset, len)
    }

    /// Bytes of the pages of the payload.
    const fn payload_pages(&self) -> usize {
        self.len.next_multiple_of(BLOCK_SIZE)
    }

    /// Has the payload's addresses lead to private zeros.
    fn map_zeros(&self) -> Result<(), Errno> {
        let start = self.base.as_ptr().wrapping_add(CONTROL_BYTES);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: these pages are this memory's own, mapped by `map`, and are replaced as a whole. They are reached
        // by raw copies and atomics only, which find the one mapping or the other.
        unsafe { mmap_anonymous(start.cast(), self.payload_pages(), protection, flags) }?;
        Ok(())
    }

    /// Has the payload's addresses lead to `file`, which has room for it.
    fn map_payload(&self, file: &File) -> Result<(), Errno> {
        let start = self.base.as_ptr().wrapping_add(CONTROL_BYTES);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let bytes = self.payload_pages();
        // SAFETY: as in `map_zeros`; the file is as long as it was when it was mapped, and no one ever shortens it.
        unsafe { mmap(start.cast(), bytes, protection, flags, file, PAYLOAD_AT) }?;
        Ok(())
    }
}

/// `len` bytes of `file`, from `at` on.
fn read_exact_at(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let from = at + bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Gives `file` room for `bytes` zero bytes, so that no later write to the mapping can find the
/// file system full (which would kill the process).
pub(super) fn allocate_in_full(file: &File, bytes: usize) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes as u64) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = vec![0; 1 << 20];
            let mut at = 0;
            while at < bytes {
                let part = zeros.len().min(bytes - at);
                file.write_all_at(&zeros[..part], at as u64)?;
                at += part;
            }
            Ok(())
        }
        Err(other) => Err(other.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write as _, stderr};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::process::Command;

    use argosy_base::Incarnation;

    use super::*;
    use crate::shared::Stamp;
    use crate::testing::TempDir;
    use crate::testing::grant;

    /// A window slot of the default settings.
    const SLOT: usize = 516 << 10;

    /// What the file takes on its file system, and what of `memory` is resident in this process.
    fn taken(path: &Path, memory: &SharedMemory) -> (usize, usize) {
        let blocks = std::fs::metadata(path).unwrap().blocks();
        let from = memory.base.as_ptr().addr();
        let pages = from..from + CONTROL_BYTES + memory.payload_pages();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_ours = false;
        let mut resident = 0;
        for line in maps.lines() {
            let first = line.split(' ').next().unwrap();
            let range = first.split_once('-');
            if let Some((from, _)) = range.filter(|_| !first.ends_with(':')) {
                is_ours = usize::from_str_radix(from, 16).is_ok_and(|from| pages.contains(&from));
            } else if is_ours && first == "Rss:" {
                let kib = line.split_whitespace().nth(1).unwrap();
                resident += kib.parse::<usize>().unwrap() << 10;
            }
        }
        (usize::try_from(blocks).unwrap() * 512, resident)
    }

    #[test]
    fn a_mapping_takes_no_more_than_what_is_touched() {
        let dir = TempDir::in_memory();
        let path = dir.join("memory");
        let owner = SharedMemory::create(&path, SLOT, Incarnation(1)).unwrap();
        let all = CONTROL_BYTES + SLOT;
        let peer = SharedMemory::open(&path).unwrap();
        for memory in [&owner, &peer] {
            let (blocks, resident) = taken(&path, memory);
            assert_eq!(blocks, all);
            assert!(
                resident < all / 2,
                "{resident} bytes of a mapping that nobody has used"
            );
        }
        peer.write(0, b"here");
        assert_eq!(owner.read_vec(0, 4), b"here");
    }

    #[test]
    fn released_memory_takes_its_control_block_alone() {
        let dir = TempDir::in_memory();
        let path = dir.join("memory");
        let owner = SharedMemory::create(&path, SLOT, Incarnation(1)).unwrap();
        owner.grant(grant(1, 1));
        let access = owner.access();
        owner.write(0, &[7; SLOT]);
        owner.release().unwrap();
        assert!(!owner.is_allocated());
        assert_eq!(taken(&path, &owner), (CONTROL_BYTES, CONTROL_BYTES));
        // Whoever comes late reads zeros, and what it writes reaches nobody.
        assert_eq!(owner.read_vec(SLOT - 9, 9), [0; 9]);
        owner.write(5, b"lost");
        assert_eq!(taken(&path, &owner).0, CONTROL_BYTES);
        // An earlier process's memory is looked at without filling it.
        let left = SharedMemory::open(&path).unwrap();
        assert_eq!(left.peek(0, SLOT), vec![0; SLOT]);
        assert_eq!(taken(&path, &left).0, CONTROL_BYTES);
        assert_eq!((owner.access(), left.access()), (access, access));

        owner.allocate().unwrap();
        assert!(owner.is_allocated());
        assert_eq!(taken(&path, &owner).0, CONTROL_BYTES + SLOT);
        assert_eq!(owner.read_vec(0, SLOT), vec![0; SLOT]);
        left.write_checked(access, 100, b"of a peer").unwrap();
        assert_eq!(owner.read_vec(100, 9), b"of a peer");
        assert_eq!(left.peek(100, 9), b"of a peer");
    }

    #[test]
    fn memory_is_made_without_room_for_its_payload() {
        let dir = TempDir::in_memory();
        let path = dir.join("memory");
        let stamp = Stamp::default();
        let owner = SharedMemory::create_released(&path, SLOT, stamp).unwrap();
        assert!(!owner.is_allocated());
        assert_eq!(owner.len(), SLOT);
        assert_eq!(taken(&path, &owner).0, CONTROL_BYTES);
        let left = SharedMemory::open(&path).unwrap();
        assert_eq!(left.peek(SLOT - 9, 9), [0; 9]);
        owner.allocate().unwrap();
        assert_eq!(taken(&path, &owner).0, CONTROL_BYTES + SLOT);
        owner.write(SLOT - 4, b"here");
        assert_eq!(left.peek(SLOT - 4, 4), b"here");
    }

    #[test]
    fn memory_that_finds_no_room_stays_released() {
        let dir = TempDir::new();
        let small = dir.join("small");
        std::fs::create_dir(&small).unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=1m", "argosy-test"];
        let mounted = Command::new("mount").args(mount).arg(&small).output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            // Past what keeps the output of tests that pass.
            let why = "only root may mount";
            let test = "memory_that_finds_no_room_stays_released";
            return writeln!(stderr(), "\ntest result: skipped: {test}: {why}").unwrap();
        }
        let path = small.join("memory");
        let owner = SharedMemory::create(&path, SLOT, Incarnation(1)).unwrap();
        owner.release().unwrap();
        std::fs::write(small.join("other"), vec![1; 700 << 10]).unwrap();
        assert!(owner.allocate().unwrap_err().is_full());
        assert!(!owner.is_allocated());
        // With no room left at all nothing that looks at it or writes to it needs any.
        let rest = std::fs::write(small.join("rest"), vec![1; 1 << 20]);
        assert!(rest.is_err(), "it is full");
        owner.write(0, &[7; SLOT]);
        assert_eq!(owner.peek(0, SLOT), vec![0; SLOT]);
        assert_eq!(taken(&path, &owner).0, CONTROL_BYTES);
        std::fs::remove_file(small.join("other")).unwrap();
        std::fs::remove_file(small.join("rest")).unwrap();
        owner.allocate().unwrap();
        owner.write(0, &[7; SLOT]);
        assert_eq!(owner.peek(0, SLOT), vec![7; SLOT]);
        drop(owner);
        let unmounted = Command::new("umount").arg(&small).status();
        assert!(unmounted.unwrap().success());
    }

    #[test]
    fn memory_without_a_file_is_released_likewise() {
        let memory = SharedMemory::anonymous(SLOT);
        memory.write(3, b"kept");
        memory.allocate().unwrap();
        assert_eq!(memory.peek(3, 4), b"kept");
        memory.release().unwrap();
        assert_eq!(memory.peek(3, 4), [0; 4]);
        memory.write(3, b"lost");
        memory.allocate().unwrap();
        assert_eq!(memory.peek(3, 4), [0; 4]);
        memory.write(3, b"kept");
        memory.disown();
        memory.release().unwrap();
        assert_eq!(memory.peek(3, 4), b"kept", "the owner is dead");
    }
}
