//! What says that a store was not closed: a file beside its device, from when its windows are made until
//! everything is on the device. Who opens it again in the same boot then knows that there have to be windows,
//! and where.
//!
//! ```text
//! PATH/unclosed := "argosy.unclosed.v1\n"
//!                  "device " 32 hexadecimal digits "\n"    the device's id
//!                  "boot " 16 hexadecimal digits "\n"      the boot of the machine
//!                  "windows " bytes                        the directory of the windows, up to the file's end
//! ```
//!
//! It means nothing for another device or in another boot, so it need not survive a loss of power, and is not
//! synced. It takes another's place by its name. What cannot be understood is as if it were not there.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use argosy_base::{RegionId, Remedy};
use argosy_lsm::Settings;
use argosy_lsm::db::promote::window_name;
use argosy_lsm::names::logs::LOGS;
use argosy_memory::{BootId, SharedMemory};

use crate::error::Error;

const NAME: &str = "unclosed";
const VERSION: &str = "argosy.unclosed.v1";

/// Longest file that is believed, in bytes.
const BYTES_MAX: u64 = 8 << 10;

/// What is left in the directory of a store that was not closed: its log windows are needed, while the machine is not
/// restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclosed {
    /// The id of its device.
    pub device: u128,
    /// The boot of the machine in which it was open.
    pub boot: BootId,
    /// Where its windows lie.
    pub windows: PathBuf,
}

impl Unclosed {
    /// What lies in the directory `path`; `None` where nothing does, or what cannot be understood.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let file = path.join(NAME);
        let len = std::fs::metadata(&file).ok()?.len();
        Self::decode(&std::fs::read(&file).ok().filter(|_| len <= BYTES_MAX)?)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.splitn(4, |byte| *byte == b'\n');
        let mut line = |name: &str| lines.next()?.strip_prefix(name.as_bytes());
        let rest = line(VERSION)?;
        let (device, boot) = (line("device ")?, line("boot ")?);
        let windows = line("windows ").filter(|windows| !windows.is_empty())?;
        let digits = |digits: &[u8], count| {
            let text = std::str::from_utf8(digits).ok()?;
            let all = text.bytes().all(|digit| digit.is_ascii_hexdigit());
            u128::from_str_radix(text, 16)
                .ok()
                .filter(|_| all && text.len() == count)
        };
        rest.is_empty().then_some(Self {
            device: digits(device, 32)?,
            boot: BootId(u64::try_from(digits(boot, 16)?).ok()?),
            windows: PathBuf::from(OsStr::from_bytes(windows)),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let (device, BootId(boot)) = (self.device, self.boot);
        let mut out =
            format!("{VERSION}\ndevice {device:032x}\nboot {boot:016x}\nwindows ").into_bytes();
        out.extend_from_slice(self.windows.as_os_str().as_bytes());
        out
    }

    /// Has it say so in the directory `path`, if it does not yet. Where the file system is full it is left
    /// unsaid.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        if Self::read(path).as_ref() == Some(self) {
            return Ok(());
        }
        let (file, new) = (path.join(NAME), path.join("unclosed.new"));
        let written =
            std::fs::write(&new, self.encode()).and_then(|()| std::fs::rename(&new, &file));
        match written {
            Err(e) if e.kind() == io::ErrorKind::StorageFull => {
                let _ = std::fs::remove_file(&new);
                Ok(())
            }
            Err(e) => Err(Error::system("write", file, &e)),
            Ok(()) => Ok(()),
        }
    }

    /// Everything is on the device: windows are needed no more.
    pub(crate) fn remove(path: &Path) {
        // Where it stays, opening asks for windows that are there.
        let _ = std::fs::remove_file(path.join(NAME));
    }

    /// Whether it is about this device, in this boot.
    #[must_use]
    pub fn concerns(&self, device: u128, boot: BootId) -> bool {
        (self.device, self.boot) == (device, boot)
    }

    /// What is wrong with the windows of `region` in `directory`, in words: those that have to be there and
    /// are not, or cannot be used. Changes nothing.
    #[must_use]
    pub fn missing_in(
        &self,
        directory: &Path,
        region: RegionId,
        settings: &Settings,
    ) -> Option<String> {
        let names = LOGS.iter().flat_map(|log| {
            (0..settings.layout.window_slots).map(|slot| window_name(region, *log, slot))
        });
        let trouble = |name: u64| {
            let file = directory.join(format!("{name:016x}.window"));
            match SharedMemory::open(&file) {
                Ok(memory) if memory.stamp().boot == self.boot => None,
                Ok(_) => Some(format!("{}: it is of another boot", file.display())),
                Err(error) => Some(error.to_string()),
            }
        };
        let troubles: Vec<_> = names.filter_map(trouble).collect();
        let first = troubles.first()?;
        let elsewhere = match self.windows == directory {
            true => String::new(),
            false => format!("; they were in {}", self.windows.display()),
        };
        Some(format!(
            "{} of {} log windows are not there or cannot be used, though the store was not closed and the \
             machine has not been restarted ({first}{elsewhere})",
            troubles.len(),
            LOGS.len() * settings.layout.window_slots,
        ))
    }
}

/// What can be done where windows are missing or damaged.
pub(crate) const WAYS_ON: &str = "nothing was changed; what was acknowledged and is not on the device was in the \
    windows: put them back as they were, or name their directory with `windows_in`; to give up what is missing \
    and all that was written behind it, open the store with `Builder::accept_loss`";

/// Windows of the store in `path` that are missing or damaged: `what`.
pub(crate) fn lost(path: &Path, what: &str) -> Error {
    Error::Windows {
        path: path.to_path_buf(),
        what: format!("{what}; {WAYS_ON}"),
        remedy: Remedy::Repair,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let unclosed = Unclosed {
            device: 0xab << 100,
            boot: BootId(7),
            windows: PathBuf::from(OsStr::from_bytes(b"/dev/shm/a\n\xff b")),
        };
        let bytes = unclosed.encode();
        assert_eq!(Unclosed::decode(&bytes), Some(unclosed.clone()));
        let head = bytes.len() - unclosed.windows.as_os_str().len();
        for cut in 0..=head {
            assert_eq!(Unclosed::decode(&bytes[..cut]), None, "{cut} bytes");
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] ^= flip;
                assert_ne!(
                    Unclosed::decode(&other),
                    Some(unclosed.clone()),
                    "byte {at}"
                );
            }
        }
    }
}
