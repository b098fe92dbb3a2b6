//! What lies in a store's directory when it is opened: who has it, and whether a store may be made there.
//!
//! A store is made where nothing is left of one: no device, or one on which nothing is found, and no windows. What
//! is left of making one that was cut short counts as nothing.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use argosy_base::{RegionId, Remedy, ServerId};
use argosy_device::lock::lock_unless;
use argosy_device::{Device, FormatOptions, RegionEntry, Store, StoreSettings, check_blank};
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_lsm::{Settings, StorageError, shape};

use crate::builder::random_id;
use crate::error::{Error, Result};

/// The cluster that stores of single programs belong to: a device of a server has another one.
pub const CLUSTER: u128 = u128::from_le_bytes(*b"argosy, embedded");

/// The one region of such a store.
pub(crate) const REGION: RegionId = RegionId(1);

/// Where a store is, or is to be.
pub(crate) struct Place<'a> {
    /// The directory.
    pub(crate) path: &'a Path,
    /// That of its windows, from the root on.
    pub(crate) windows: &'a Path,
    /// Whether one is made where there is none.
    pub(crate) create: bool,
}

impl Place<'_> {
    /// Opens what the device holds, or makes a store of it.
    pub(crate) fn open_store(
        &self,
        device: Arc<dyn Device>,
        settings: &Settings,
    ) -> Result<Arc<Store>> {
        let failed = |error| Error::opening(self.path, &error);
        if !Store::is_formatted(&*device).map_err(failed)? {
            self.format(&*device)?;
        }
        let foreign = |what| Error::Foreign {
            path: self.path.to_path_buf(),
            what,
        };
        // Opening writes to the device, so it is looked at first.
        let dump = Store::inspect(&*device).map_err(failed)?;
        if dump.superblock.cluster_id != CLUSTER {
            return Err(foreign(
                "belongs to a server; start `argosy server` with it",
            ));
        }
        let store_settings = StoreSettings {
            reserve_segments: settings.reserve_segments(1),
        };
        let store = Store::open(device, &store_settings).map_err(failed)?;
        let regions = store.regions();
        let is_own = |entry: &RegionEntry| match kind_of(entry) {
            EntryKind::Region => entry.region == REGION,
            EntryKind::Cut(region, _) => region == REGION,
            EntryKind::Pin => true,
            EntryKind::SetAside(_) => false,
        };
        if !regions.iter().all(is_own) {
            return Err(foreign("holds regions that a later version has made"));
        }
        // Before windows are touched that it needs as they are.
        for entry in &regions {
            let checked = shape::check(entry, settings);
            checked
                .map_err(|error| Error::recovering(self.path, &StorageError::from(error).into()))?;
        }
        Ok(store)
    }

    fn format(&self, device: &dyn Device) -> Result<()> {
        let failed = |error| Error::opening(self.path, &error);
        check_blank(device).map_err(failed)?;
        self.check_new()?;
        if !self.create {
            let what = "the making of its store was cut short: open it with `create(true)`";
            return Err(self.refused(what.to_owned(), Remedy::Correct));
        }
        let options = FormatOptions {
            device_id: random_id()?,
            cluster_id: CLUSTER,
            server: ServerId(0),
            created_by: concat!("argosy ", env!("CARGO_PKG_VERSION"), ", embedded").to_owned(),
        };
        Store::format(device, &options).map_err(failed)
    }

    /// Refuses to make a store where windows of one are left: they are made after the device. Of those that
    /// lie elsewhere it is looked later whose they are.
    pub(crate) fn check_new(&self) -> Result<()> {
        let home = std::path::absolute(self.path);
        if !home.is_ok_and(|home| self.windows.starts_with(home)) {
            return Ok(());
        }
        let Ok(files) = std::fs::read_dir(self.windows) else {
            return Ok(());
        };
        let is_window = |path: &Path| path.extension().is_some_and(|ext| ext == "window");
        if files.flatten().all(|file| !is_window(&file.path())) {
            return Ok(());
        }
        let what = format!(
            "its `device` is not there, or empty, but {} has the ends of a store's logs; put the device back \
             that belongs to them, or remove that directory, so that a store is made anew",
            self.windows.display()
        );
        Err(self.refused(what, Remedy::Repair))
    }

    fn refused(&self, what: String, remedy: Remedy) -> Error {
        let path = self.path.to_path_buf();
        Error::Open { path, what, remedy }
    }
}

/// Whether there is no such file, or one without a byte, which is left of making one.
pub(crate) fn is_none_or_empty(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |meta| meta.is_file() && meta.len() == 0)
}

/// Takes the lock of the directory. It falls with the process that holds it.
pub(crate) fn take_lock(path: &Path) -> Result<File> {
    let name = path.join("lock");
    let refused = |e: std::io::Error| Error::system("lock", &name, &e);
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&name)
        .map_err(refused)?;
    let is_ours = || holder(&file) == Some(std::process::id());
    if !lock_unless(&file, false, is_ours).map_err(refused)? {
        return Err(match holder(&file) {
            Some(id) if id != std::process::id() => Error::InUse {
                path: path.to_path_buf(),
                by: format!(" in process {id}"),
            },
            id => Error::in_use(path, id.is_some()),
        });
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "{}", std::process::id()));
    written.map_err(refused)?;
    Ok(file)
}

/// The process that has written itself into the lock.
fn holder(mut file: &File) -> Option<u32> {
    let mut id = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut id).ok()?;
    id.parse().ok()
}
