//! Windows in files: on tmpfs, so that they outlive a killed process and cost no device anything;
//! where tmpfs has no room, in the data directory, unless peers have to reach it.
//!
//! ```text
//! NAME.window      what a restart finds; NAME is 16 hexadecimal digits
//! NAME.new         new memory, while NAME.window is still needed
//! NAME.of-DEVICE   what was NAME.window, of another device; DEVICE is 32 hexadecimal digits, with -1, -2,
//!                  and so on behind them where that name was taken
//! ```
//!
//! Each file's stamp has a boot id, an incarnation, a serial number, and the id of the device whose logs
//! are filled in it (the control block of [`shared`](crate::shared)). At opening:
//!
//! 0. If a `NAME.window` belongs to another device, that is an error, and nothing is changed; or it is *set
//!    aside*, where the opener asks for that ([`Others`]): it gets its third name, and nobody looks at it
//!    any more, nor removes it: it may hold what is on no device. One that does
//!    not say, or any where the opener does not say which device it has, is taken.
//! 1. Every `NAME.new` is removed: whoever made it did not finish.
//! 2. Every `NAME.window` is opened and *revoked*, so that a peer which still writes into it
//!    learns so, before anyone reads it. It is kept as the survivor of its name. One of another
//!    boot is removed: after a reboot what lies in a file need not be what was written last.
//! 3. Of two files of one name (one in each directory) the one with the higher serial number is
//!    kept: a crash came between a rename here and a removal there.
//! 4. Whatever cannot be understood is removed too, and reported.
//!
//! One process at a time uses the directories: it holds the lock of its device, and, where stores of
//! other devices could be given the same directory, that of the directory ([`lock_windows`]).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use argosy_base::Incarnation;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::directory::make_directory;
use crate::error::MemoryError;
use crate::shared::{BootId, SharedMemory, Stamp};
use crate::windows::{Named, WindowStore};

const WINDOW: &str = "window";
const NEW: &str = "new";
/// What the extension of a window begins with that was set aside.
const ASIDE: &str = "of-";

/// How often windows of one name and one device are set aside, at most.
const ASIDE_MAX: u32 = 1000;

/// Where windows are kept, and who keeps them.
#[derive(Clone, Debug)]
pub struct WindowFilesOptions {
    /// A directory of this server's own, on tmpfs. Made where there is none.
    pub directory: PathBuf,
    /// Where memory lies that finds no room there.
    pub fallback: Option<Fallback>,
    /// The machine's present boot.
    pub boot: BootId,
    /// This start of the server.
    pub incarnation: Incarnation,
    /// The device whose logs are filled; 0 where windows are not told apart by it.
    pub device: u128,
    /// What becomes of windows of other devices.
    pub others: Others,
}

/// What becomes of windows of other devices than that whose windows are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They are an error, and stay as they are.
    Refuse,
    /// They are renamed, and stay.
    SetAside,
}

impl WindowFilesOptions {
    /// Where windows are looked for.
    fn directories(&self) -> impl Iterator<Item = &Path> {
        let fallback = self.fallback.as_ref();
        let second = fallback.map(|fallback| fallback.directory.as_path());
        std::iter::once(self.directory.as_path()).chain(second)
    }

    /// Where the memory of `name` may lie if there is no room in the first directory.
    fn fallback_of(&self, name: u64) -> Option<&Path> {
        let fallback = self.fallback.as_ref()?;
        let listed = fallback.names.iter().any(|names| names.contains(&name));
        listed.then_some(fallback.directory.as_path())
    }
}

/// Where memory lies that finds no room on the tmpfs.
#[derive(Clone, Debug)]
pub struct Fallback {
    /// A directory of this server's own, on a disk. Made where there is none.
    pub directory: PathBuf,
    /// The names whose memory may lie there: what peers have to reach may not.
    pub names: Vec<RangeInclusive<u64>>,
}

/// See the module documentation.
pub struct WindowFiles {
    options: WindowFilesOptions,
    state: Mutex<State>,
    findings: Vec<String>,
    set_aside: Vec<WindowsSetAside>,
}

/// Windows of another device, in one directory, that were renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowsSetAside {
    /// Where they lie.
    pub directory: PathBuf,
    /// The device that they belong to.
    pub device: u128,
    /// How many.
    pub windows: usize,
}

impl fmt::Display for WindowsSetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (windows, device) = (self.windows, self.device);
        let directory = self.directory.display();
        write!(
            f,
            "{windows} of device {device:032x} were set aside in {directory}, as *.of-{device:032x}: they may hold \
             writes that are on no device; remove them when that device is gone for good"
        )
    }
}

#[derive(Default)]
struct State {
    named: BTreeMap<u64, Entry>,
    serial: u64,
}

/// Memory under one name, and where the files of both are.
#[derive(Default)]
struct Entry {
    memory: Named,
    /// The directory of the survivor's `NAME.window`.
    survivor_in: Option<PathBuf>,
    /// The directory of the newest memory's file: `NAME.new` where there is a survivor, and
    /// `NAME.window` where there is none.
    current_in: Option<PathBuf>,
}

impl WindowFiles {
    /// Opens the windows that are there, as the module documentation says.
    ///
    /// # Errors
    /// [`MemoryError::OtherWindows`]; [`MemoryError::Refused`] where a directory cannot be made, read or cleaned.
    pub fn open(options: WindowFilesOptions) -> Result<Self, MemoryError> {
        let set_aside = match options.others {
            Others::Refuse => Self::refuse_others(&options).map(|()| Vec::new())?,
            Others::SetAside => set_others_aside(&options)?,
        };
        let directories: Vec<_> = options.directories().map(Path::to_path_buf).collect();
        let mut windows = Self {
            options,
            state: Mutex::default(),
            findings: Vec::new(),
            set_aside,
        };
        for directory in &directories {
            let refused = |e| MemoryError::refused("use the windows in", directory, e);
            make_directory(directory).map_err(refused)?;
            for file in std::fs::read_dir(directory).map_err(refused)? {
                windows.find(directory, &file.map_err(refused)?.path())?;
            }
        }
        Ok(windows)
    }

    /// Where windows are kept, and who keeps them.
    #[must_use]
    pub const fn options(&self) -> &WindowFilesOptions {
        &self.options
    }

    /// What opening removed, and why: a line each, for the log.
    #[must_use]
    pub fn findings(&self) -> &[String] {
        &self.findings
    }

    /// The windows of other devices that opening has renamed.
    #[must_use]
    pub fn set_aside(&self) -> &[WindowsSetAside] {
        &self.set_aside
    }

    /// Makes sure that no window that is there belongs to another device. Changes nothing.
    ///
    /// # Errors
    /// [`MemoryError::OtherWindows`]; [`MemoryError::Refused`] where a directory cannot be read.
    pub fn refuse_others(options: &WindowFilesOptions) -> Result<(), MemoryError> {
        if let Some((_, path, found)) = windows_of_others(options)?.into_iter().next() {
            return Err(MemoryError::OtherWindows {
                path: path.display().to_string(),
                found,
                device: options.device,
            });
        }
        Ok(())
    }

    /// Keeps the file at `path` as a survivor, or removes it.
    fn find(&mut self, directory: &Path, path: &Path) -> Result<(), MemoryError> {
        let extension = path.extension().and_then(|e| e.to_str());
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        if extension.is_some_and(|extension| extension.starts_with(ASIDE)) {
            return Ok(());
        }
        let (Some(name), Some(extension @ (WINDOW | NEW))) = (name, extension) else {
            // Not ours to remove: somebody put it here.
            self.findings
                .push(format!("{}: not a window", path.display()));
            return Ok(());
        };
        if extension == NEW {
            return remove(path);
        }
        let memory = match SharedMemory::open(path) {
            Ok(memory) => memory,
            Err(MemoryError::Unusable { what, .. }) => {
                let finding = format!("{} was removed: {what}", path.display());
                self.findings.push(finding);
                return remove(path);
            }
            Err(other) => return Err(other),
        };
        memory.revoke();
        let stamp = memory.stamp();
        if stamp.boot != self.options.boot {
            let finding = format!("{} was removed: it is of another boot", path.display());
            self.findings.push(finding);
            return remove(path);
        }
        let state = self.state.get_mut().expect("no holder of the lock panics");
        state.serial = state.serial.max(stamp.serial);
        let entry = state.named.entry(name).or_default();
        if let (Some(other), Some(at)) = (&entry.memory.survivor, &entry.survivor_in) {
            if other.stamp().serial > stamp.serial {
                return remove(path);
            }
            remove(&file(at, name, WINDOW))?;
        }
        entry.memory.survivor = Some(Arc::new(memory));
        entry.survivor_in = Some(directory.to_path_buf());
        Ok(())
    }

    /// What `create` makes of a path and a stamp, under `name`.
    fn make(
        &self,
        name: u64,
        create: impl Fn(&Path, Stamp) -> Result<SharedMemory, MemoryError>,
    ) -> Result<Arc<SharedMemory>, MemoryError> {
        let mut state = self.state();
        state.serial += 1;
        let stamp = Stamp {
            incarnation: self.options.incarnation,
            boot: self.options.boot,
            serial: state.serial,
            device: self.options.device,
        };
        let entry = state.named.entry(name).or_default();
        // What a restart finds now is what it finds until the name is given away.
        let old_current_in = entry.current_in.take();
        if entry.memory.survivor.is_some() {
            // The earlier memory never had the name; its file makes room for the new one.
            if let Some(at) = old_current_in {
                remove(&file(&at, name, NEW))?;
            }
        } else {
            entry.survivor_in = old_current_in;
        }
        entry.memory.retire();
        let extension = match entry.memory.survivor {
            Some(_) => NEW,
            None => WINDOW,
        };
        let (memory, directory) = make_where_room_is(
            &self.options.directory,
            self.options.fallback_of(name),
            |directory| create(&file(directory, name, extension), stamp),
        )?;
        let memory = Arc::new(memory);
        entry.memory.current = Some(memory.clone());
        entry.current_in = Some(directory.to_path_buf());
        Ok(memory)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }
}

/// The windows that belong to other devices, each with its directory and its device. Changes nothing.
fn windows_of_others(
    options: &WindowFilesOptions,
) -> Result<Vec<(&Path, PathBuf, u128)>, MemoryError> {
    let mut others = Vec::new();
    for directory in options.directories().filter(|_| options.device != 0) {
        for Stamped { path, stamp } in stamped(directory)? {
            if stamp.device != 0 && stamp.device != options.device {
                others.push((directory, path, stamp.device));
            }
        }
    }
    Ok(others)
}

/// The latest incarnation that windows in `directories` tell of, where they belong to `device`. No device that has not
/// gone back in time knows of an earlier one than that. Changes nothing.
///
/// # Errors
/// [`MemoryError::Refused`] where a directory cannot be read. One that is not there has no windows.
pub fn latest_incarnation(
    directories: &[PathBuf],
    device: u128,
) -> Result<Option<Incarnation>, MemoryError> {
    let mut latest = None;
    for directory in directories {
        let stamps = stamped(directory)?.into_iter().map(|found| found.stamp);
        let own = stamps.filter(|stamp| stamp.device == device);
        latest = latest.max(own.map(|stamp| stamp.incarnation).max());
    }
    Ok(latest)
}

/// A window, and whose it is.
struct Stamped {
    path: PathBuf,
    stamp: Stamp,
}

/// The windows in `directory` that can be understood.
fn stamped(directory: &Path) -> Result<Vec<Stamped>, MemoryError> {
    let refused = |e| MemoryError::refused("use the windows in", directory, e);
    let files = match std::fs::read_dir(directory) {
        Ok(files) => files,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(refused(e)),
    };
    let mut found = Vec::new();
    for file in files {
        let path = file.map_err(refused)?.path();
        if path.extension().is_none_or(|extension| extension != WINDOW) {
            continue;
        }
        // What cannot be understood says nothing about a device.
        if let Ok(memory) = SharedMemory::open(&path) {
            let stamp = memory.stamp();
            found.push(Stamped { path, stamp });
        }
    }
    Ok(found)
}

/// Renames the windows of other devices, so that whoever still writes into one by its name finds none.
fn set_others_aside(options: &WindowFilesOptions) -> Result<Vec<WindowsSetAside>, MemoryError> {
    let mut all: Vec<WindowsSetAside> = Vec::new();
    for (directory, path, device) in windows_of_others(options)? {
        let refused = |e| MemoryError::refused("set aside the window", &path, e);
        // Peers learn that nobody takes what they write there.
        if let Ok(memory) = SharedMemory::open(&path) {
            memory.revoke();
        }
        let name = |number: u32| match number {
            0 => path.with_extension(format!("{ASIDE}{device:032x}")),
            _ => path.with_extension(format!("{ASIDE}{device:032x}-{number}")),
        };
        let free = (0..ASIDE_MAX).map(name).find(|name| !name.exists());
        let free = free.ok_or_else(|| refused(io::ErrorKind::AlreadyExists.into()))?;
        std::fs::rename(&path, free).map_err(refused)?;
        let known =
            |other: &&mut WindowsSetAside| other.directory == directory && other.device == device;
        match all.iter_mut().find(known) {
            Some(known) => known.windows += 1,
            None => all.push(WindowsSetAside {
                directory: directory.to_path_buf(),
                device,
                windows: 1,
            }),
        }
    }
    Ok(all)
}

/// Takes the lock of a directory for windows, which is made where there is none, for as long as the file
/// that comes back is open. It falls with the process that holds it.
///
/// # Errors
/// [`MemoryError::WindowsInUse`]; [`MemoryError::Refused`] where the system refuses.
pub fn lock_windows(directory: &Path) -> Result<File, MemoryError> {
    let refused = |e| MemoryError::refused("lock the windows in", directory, e);
    make_directory(directory).map_err(refused)?;
    let file = File::open(directory).map_err(refused)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(MemoryError::WindowsInUse {
            path: directory.display().to_string(),
        }),
        Err(error) => Err(refused(error.into())),
    }
}

/// What `make` makes of the first directory, or, where that has no room, of the second.
fn make_where_room_is<'a, T>(
    first: &'a Path,
    second: Option<&'a Path>,
    make: impl Fn(&Path) -> Result<T, MemoryError>,
) -> Result<(T, &'a Path), MemoryError> {
    match (make(first), second) {
        (Err(error), Some(second)) if error.is_full() => make(second).map(|made| (made, second)),
        (made, _) => made.map(|made| (made, first)),
    }
}

impl WindowStore for WindowFiles {
    fn survivor_names(&self) -> Vec<u64> {
        let state = self.state();
        let survived =
            |(name, entry): (&u64, &Entry)| entry.memory.survivor.is_some().then_some(*name);
        state.named.iter().filter_map(survived).collect()
    }

    fn survivors(&self, name: u64) -> Option<Arc<SharedMemory>> {
        self.state().named.get(&name)?.memory.survivor.clone()
    }

    fn create(&self, name: u64, len: usize) -> Result<Arc<SharedMemory>, MemoryError> {
        self.make(name, |path, stamp| {
            SharedMemory::create_stamped(path, len, stamp)
        })
    }

    fn create_released(&self, name: u64, len: usize) -> Result<Arc<SharedMemory>, MemoryError> {
        self.make(name, |path, stamp| {
            SharedMemory::create_released(path, len, stamp)
        })
    }

    fn forget_survivors(&self, name: u64) -> Result<(), MemoryError> {
        let mut state = self.state();
        let Some(entry) = state.named.get_mut(&name) else {
            return Ok(());
        };
        let Some(old) = &entry.survivor_in else {
            return Ok(());
        };
        if let Some(new) = &entry.current_in {
            let (from, to) = (file(new, name, NEW), file(new, name, WINDOW));
            std::fs::rename(&from, &to)
                .map_err(|e| MemoryError::refused("give its name to", &from, e))?;
        }
        // Where both are in one directory, the rename has removed the old file.
        if entry.current_in.as_ref() != Some(old) {
            remove(&file(old, name, WINDOW))?;
        }
        entry.survivor_in = None;
        entry.memory.survivor = None;
        if entry.memory.current.is_none() {
            state.named.remove(&name);
        }
        Ok(())
    }
}

fn file(directory: &Path, name: u64, extension: &str) -> PathBuf {
    directory.join(format!("{name:016x}.{extension}"))
}

fn remove(path: &Path) -> Result<(), MemoryError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(MemoryError::refused("remove the window", path, e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_have_to_reach_stays_in_the_first_directory() {
        let mut options = WindowFilesOptions {
            directory: PathBuf::from("first"),
            fallback: Some(Fallback {
                directory: PathBuf::from("second"),
                names: vec![3..=5, 9..=9],
            }),
            boot: BootId(1),
            incarnation: Incarnation(1),
            device: 0,
            others: Others::Refuse,
        };
        let listed = (0..12).filter(|name| options.fallback_of(*name).is_some());
        assert_eq!(listed.collect::<Vec<_>>(), [3, 4, 5, 9]);
        options.fallback = None;
        assert_eq!(options.fallback_of(3), None);
    }

    #[test]
    fn the_second_directory_is_used_only_for_want_of_room() {
        use io::ErrorKind::{PermissionDenied, StorageFull};
        let (first, second) = (Path::new("first"), Path::new("second"));
        let made_in = |kind: Option<io::ErrorKind>, second| {
            let make = |at: &Path| match kind {
                Some(kind) if at == first => {
                    Err(MemoryError::refused("make", at, io::Error::from(kind)))
                }
                _ => Ok(()),
            };
            let made = make_where_room_is(first, second, make);
            made.ok().map(|((), at)| at.to_path_buf())
        };
        assert_eq!(made_in(None, Some(second)).as_deref(), Some(first));
        assert_eq!(
            made_in(Some(StorageFull), Some(second)).as_deref(),
            Some(second)
        );
        assert_eq!(made_in(Some(StorageFull), None), None);
        assert_eq!(made_in(Some(PermissionDenied), Some(second)), None);
    }
}
