//! A device that is looked at and never changed: for tools that read what a stopped server left.
//!
//! The file is opened for reading only, and a shared lock keeps a server from opening it meanwhile
//! (and this from being opened while a server runs). Every write and sync fails; a discard does
//! nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::DeviceSegment;
use argosy_base::limits::SEGMENT_SIZE;
use rustix::fs::OFlags;

use crate::io::{Counters, Device, DeviceError, Io, Ticket, Waker, check_range};
use crate::lock::{OpenHere, lock_device};
use crate::ring::read_at;

/// See the module documentation.
pub struct ReadOnlyFile {
    file: File,
    _here: OpenHere,
    len: u64,
    direct: bool,
    read_bytes: AtomicU64,
}

impl ReadOnlyFile {
    /// Opens the device at `path`.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] where the system refuses; [`DeviceError::InUse`] where somebody has the device
    /// open to write, and still has after a second; [`DeviceError::Unusable`] where it is shorter than a segment.
    pub fn open(path: &Path) -> Result<Self, DeviceError> {
        let refused = |e| DeviceError::refused("open the device", path, e);
        let (mut file, direct) = match open_file(path, true) {
            Ok(file) => (file, true),
            // How a file system without direct I/O answers.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                (open_file(path, false).map_err(refused)?, false)
            }
            Err(e) => return Err(refused(e)),
        };
        let here = lock_device(&file, path, true)?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(refused)?;
        let len = bytes - bytes % SEGMENT_SIZE as u64;
        if len == 0 {
            return Err(DeviceError::unusable(path, "shorter than a segment"));
        }
        Ok(Self {
            file,
            _here: here,
            len,
            direct,
            read_bytes: AtomicU64::new(0),
        })
    }
}

fn open_file(path: &Path, direct: bool) -> io::Result<File> {
    let flags = match direct {
        true => i32::try_from(OFlags::DIRECT.bits()).expect("a flag of open"),
        false => 0,
    };
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

impl Device for ReadOnlyFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let len = buffer.len();
        check_range(self.len, at, len);
        self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        read_at(&self.file, self.direct, at, buffer)
    }

    fn submit(&self, io: Io) -> Ticket {
        let refused = io::Error::new(
            io::ErrorKind::ReadOnlyFilesystem,
            "the device was opened for reading only",
        );
        Ticket::ended(Err(io.error(refused)))
    }

    fn discard(&self, _segment: DeviceSegment) {}

    fn set_waker(&self, _waker: Waker) {}

    fn counters(&self) -> Counters {
        Counters {
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            ..Counters::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::TempDir;
    use crate::{FileDevice, FileSettings, FormatOptions, Store, StoreSettings};

    #[test]
    fn a_device_that_is_only_read_stays_as_it_is() {
        let scratch = TempDir::new();
        let path = scratch.join("device");
        let device =
            FileDevice::open_or_create(&path, 8 * SEGMENT_SIZE as u64, &FileSettings::default())
                .unwrap();
        Store::format(&device, &FormatOptions::default()).unwrap();
        let busy = ReadOnlyFile::open(&path).err().expect("it is in use");
        assert!(
            matches!(busy, DeviceError::InUse { here: true, .. }),
            "{busy}"
        );
        drop(device);

        let before = std::fs::read(&path).unwrap();
        let device = Arc::new(ReadOnlyFile::open(&path).unwrap());
        let store = Store::open_read_only(device.clone()).unwrap();
        assert_eq!(store.incarnation().0, 0, "it counts as no opening");
        let refused = device.submit(Io::Sync).wait();
        assert!(refused.is_err());
        device.discard(DeviceSegment(1));
        let kept_out = FileDevice::open(&path, &FileSettings::default());
        assert!(kept_out.is_err(), "no server opens it meanwhile");
        drop((store, device));
        assert!(before == std::fs::read(&path).unwrap());

        let device = FileDevice::open(&path, &FileSettings::default()).unwrap();
        let store = Store::open(Arc::new(device), &StoreSettings::default()).unwrap();
        assert_eq!(store.incarnation().0, 1);
    }
}
