//! How much room the file system beneath a device has for what is not stored yet.

use std::fs::File;

use rustix::fs::{FileType, fstat, fstatvfs};

/// Bytes written after which the file system is asked again.
const ASK_AGAIN_BYTES: u64 = 1 << 20;

/// How much room the file system had when it was asked last.
#[derive(Default)]
pub(crate) struct Beneath {
    /// Bytes that the device had written then.
    at: u64,
    known: bool,
    /// Bytes of the device that take room; bytes that there are beside. `None`: enough for all of it.
    scarce: Option<(u64, u64)>,
}

impl Beneath {
    /// See [`Device::room_beneath`](crate::Device::room_beneath): of `file` with `len` bytes, to which
    /// `written` bytes were written so far. `used` bytes are in use, and `freed` ones keep their room. The
    /// file system is asked once for each so many bytes written, and each time while it has too little.
    pub(crate) fn left(
        &mut self,
        file: &File,
        len: u64,
        written: u64,
        (used, freed): (u64, u64),
    ) -> Option<u64> {
        let due = self.scarce.is_some() || written >= self.at + ASK_AGAIN_BYTES;
        if due || !self.known {
            *self = Self {
                at: written,
                known: true,
                scarce: scarce_room(file, len),
            };
        }
        let (taken, left) = self.scarce?;
        // What is in use may have parts that take no room either.
        Some(left + freed.min(taken.saturating_sub(used)))
    }
}

/// Bytes of `file` that take room, and bytes that its file system has left, if those are fewer than the
/// rest of its `len` bytes needs.
pub(crate) fn scarce_room(file: &File, len: u64) -> Option<(u64, u64)> {
    let stat = fstat(file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let taken = u64::try_from(stat.st_blocks).ok()?.saturating_mul(512);
    let beneath = fstatvfs(file).ok()?;
    let left = beneath.f_bavail.saturating_mul(beneath.f_frsize);
    (left < len.saturating_sub(taken)).then_some((taken, left))
}
