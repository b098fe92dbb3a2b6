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
    /// `None`: enough for all of the device.
    scarce: Option<Scarce>,
}

/// Room of a file system that has too little for all of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scarce {
    /// Bytes of the device that take room.
    pub(crate) taken: u64,
    /// Bytes that there are beside.
    pub(crate) left: u64,
}

impl Scarce {
    /// Bytes that a device can still store which uses `used` bytes and keeps the room of `freed` ones.
    pub(crate) fn room(self, used: u64, freed: u64) -> u64 {
        // What is in use may have parts that take no room either.
        self.left + freed.min(self.taken.saturating_sub(used))
    }
}

impl Beneath {
    /// See [`Device::room_beneath`](crate::Device::room_beneath): of `file` with `len` bytes, to which
    /// `written` bytes were written so far. The file system is asked once for each so many bytes written,
    /// and each time while it has too little.
    pub(crate) fn scarce(&mut self, file: &File, len: u64, written: u64) -> Option<Scarce> {
        let due = self.scarce.is_some() || written >= self.at + ASK_AGAIN_BYTES;
        if due || !self.known {
            *self = Self {
                at: written,
                known: true,
                scarce: scarce_room(file, len),
            };
        }
        self.scarce
    }
}

/// The room of `file`, if its file system has less left than the rest of its `len` bytes needs.
pub(crate) fn scarce_room(file: &File, len: u64) -> Option<Scarce> {
    let stat = fstat(file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let taken = u64::try_from(stat.st_blocks).ok()?.saturating_mul(512);
    let beneath = fstatvfs(file).ok()?;
    let left = beneath.f_bavail.saturating_mul(beneath.f_frsize);
    (left < len.saturating_sub(taken)).then_some(Scarce { taken, left })
}
