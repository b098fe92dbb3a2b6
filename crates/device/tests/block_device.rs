//! A raw block device: a loop device, where the machine lets the test make one. Elsewhere the test is
//! skipped, and says why.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::io::{Write as _, stderr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_device::{
    Buffer, Device, DeviceError, FileDevice, FileSettings, FormatOptions, Io, Store, StoreSettings,
};

const SEGMENTS: u64 = 8;

/// A loop device over a file, both removed at the end.
struct Loop {
    _file: tempfile::NamedTempFile,
    device: PathBuf,
}

impl Loop {
    fn make() -> Result<Self, String> {
        let file = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
        // A few bytes more than whole segments.
        let len = SEGMENTS * SEGMENT_SIZE as u64 + 4096;
        file.as_file().set_len(len).map_err(|e| e.to_string())?;
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file.path())
            .output();
        let device = match made {
            Ok(made) if made.status.success() => String::from_utf8(made.stdout).unwrap(),
            other => return Err(format!("no loop device: {other:?}")),
        };
        let device = PathBuf::from(device.trim());
        Ok(Self {
            _file: file,
            device,
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.device).output();
    }
}

fn open(path: &Path) -> Result<FileDevice, DeviceError> {
    FileDevice::open_or_create(path, 1 << 40, &FileSettings::default())
}

#[test]
fn a_store_lies_on_a_block_device() {
    let made = match Loop::make() {
        Ok(made) => made,
        Err(why) => {
            // Past what keeps the output of tests that pass.
            let test = "a_store_lies_on_a_block_device";
            return writeln!(stderr(), "\ntest result: skipped: {test}: {why}").unwrap();
        }
    };
    let path = made.device.as_path();
    let device = open(path).unwrap();
    assert_eq!(device.len(), SEGMENTS * SEGMENT_SIZE as u64, "its own size");
    assert_eq!(device.room_beneath(0, 0), None, "there is no file system");
    let again = open(path).err().unwrap();
    assert!(matches!(again, DeviceError::InUse { .. }), "{again}");

    // What holds something else stays as it is.
    let mut block = Buffer::zeroed(4096);
    block[1080] = 0x53;
    let data = Arc::new(block);
    let io = Io::Write {
        at: 0,
        data: Arc::clone(&data),
        range: 0..4096,
    };
    device.submit(io).wait().unwrap();
    let foreign = Store::format(&device, &FormatOptions::default()).unwrap_err();
    assert!(foreign.to_string().contains("byte 1080"), "{foreign}");
    let io = Io::Write {
        at: 0,
        data: Arc::new(Buffer::zeroed(4096)),
        range: 0..4096,
    };
    device.submit(io).wait().unwrap();
    Store::format(&device, &FormatOptions::default()).unwrap();
    drop(device);

    // Somebody has it for himself, like a file system that is mounted.
    let flags = i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let holder = options.read(true).custom_flags(flags).open(path).unwrap();
    let busy = open(path).err().unwrap();
    assert!(busy.to_string().contains("in use"), "{busy}");
    drop(holder);

    let device: Arc<dyn Device> = Arc::new(open(path).unwrap());
    let store = Store::open(device, &StoreSettings::default()).unwrap();
    assert_eq!(u64::from(store.total()), SEGMENTS);
    assert_eq!(store.incarnation().0, 1);
}
