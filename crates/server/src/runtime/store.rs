//! Opening a server's device: only the one that the region map names, or one that the server was told is new.
//!
//! 1. Look at what is there, without a write ([`found`]).
//! 2. Decide ([`ownership`]).
//! 3. Make a device where that was decided; refuse one that is what it was some time ago. Put its id into the
//!    region map.
//! 4. Open it.

use std::path::Path;
use std::sync::Arc;

use argosy_coordinator::DeviceId;
use argosy_device::{
    Accounts, Device as _, DeviceError, FileDevice, FileSettings, FormatOptions, Store,
    StoreSettings, buffer, check_blank,
};
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_memory::latest_incarnation;

use super::{ServerOptions, StartError};
use crate::activity::Ledger;
use crate::ownership::{self, Begin, FoundDevice};

/// The store on the server's device.
pub(super) fn open_store(
    options: &mut ServerOptions,
    ledger: &Arc<Ledger>,
) -> Result<Arc<Store>, StartError> {
    buffer::keep_at_most(buffer::share_of(options.node.memory.limit()));
    let settings = FileSettings {
        accounts: Some(Arc::clone(ledger) as Arc<dyn Accounts>),
        ..FileSettings::default()
    };
    let (mut device, found) = found(options, &settings)?;
    let known = options.map.device(options.id);
    let decided = ownership::decide(options.id, known, found, options.device.is_new);
    let path = options.device.path.clone();
    match decided.map_err(|refusal| StartError::NotItsDevice { path, refusal })? {
        Begin::Open => check_age(options, device.as_ref())?,
        Begin::Make => {
            let made = make(options, device.take(), &settings)?;
            device = Some(made);
            record(options, DeviceId(options.device.id))?;
        }
        Begin::Record(id) => {
            check_age(options, device.as_ref())?;
            record(options, id)?;
        }
    }
    let device = device.expect("one that is not there is made, or the start refused");
    if !device.is_direct() {
        tracing::warn!("this file system does no direct I/O: the page cache is used as well");
    }
    tracing::info!("device: reads go by {}", device.io_method());
    let settings = StoreSettings {
        reserve_segments: options.device.reserve_segments,
    };
    let store = Store::open(Arc::new(device), &settings)?;
    check_regions(&store, options)?;
    for finding in store.findings() {
        tracing::warn!("device: {finding}");
    }
    Ok(store)
}

/// Whether the device is the one of today: windows tell of no later start than it knows. Writes nothing.
fn check_age(options: &ServerOptions, device: Option<&FileDevice>) -> Result<(), StartError> {
    let device = device.expect("it was found");
    let superblock = Store::inspect(device)?.superblock;
    let (shared, data) = (&options.shared_memory, super::data_directory(options));
    let directories = super::windows_directories(options.id, Some(shared), data);
    let windows = latest_incarnation(&directories, superblock.device_id)?;
    let (id, known) = (options.id, DeviceId(superblock.device_id));
    let checked = ownership::check_age(id, known, superblock.incarnation, windows);
    checked.map_err(|refusal| StartError::NotItsDevice {
        path: options.device.path.clone(),
        refusal,
    })
}

/// What is at the place of the device. Writes nothing.
fn found(
    options: &ServerOptions,
    settings: &FileSettings,
) -> Result<(Option<FileDevice>, FoundDevice), StartError> {
    let path = &options.device.path;
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() == 0 => return Ok((None, FoundDevice::Empty)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok((None, FoundDevice::Nothing));
        }
        // Opening says what else is wrong.
        _ => {}
    }
    let device = FileDevice::open(path, settings)?;
    if !Store::is_formatted(&device)? {
        check_blank(&device)?;
        return Ok((Some(device), FoundDevice::Empty));
    }
    let superblock = Store::inspect(&device)?.superblock;
    if superblock.cluster_id != options.map.cluster().0 || superblock.server != options.id {
        return Err(unusable(
            path,
            format!(
                "this device belongs to {} of cluster {:032x}, not to {} of cluster {}; \
                 point server.data-dir at the right directory",
                superblock.server,
                superblock.cluster_id,
                options.id,
                options.map.cluster(),
            ),
        ));
    }
    Ok((
        Some(device),
        FoundDevice::Device(DeviceId(superblock.device_id)),
    ))
}

/// Makes the server's device: of the empty one that is there, or of a new file.
fn make(
    options: &ServerOptions,
    empty: Option<FileDevice>,
    settings: &FileSettings,
) -> Result<FileDevice, StartError> {
    let device = match empty {
        Some(device) => device,
        None => FileDevice::open_or_create(&options.device.path, options.device.bytes, settings)?,
    };
    let format = FormatOptions {
        device_id: options.device.id,
        cluster_id: options.map.cluster().0,
        server: options.id,
        created_by: concat!("argosy ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    Store::format(&device, &format)?;
    Ok(device)
}

/// Puts the id of the device that is there into the region map.
fn record(options: &mut ServerOptions, device: DeviceId) -> Result<(), StartError> {
    let (id, path) = (options.id, options.device.path.display());
    (options.device.record)(device)?;
    match options.map.device(id) {
        None => tracing::info!("device {device} of {id} in {path} is new"),
        Some(earlier) => tracing::warn!(
            "device {device} in {path} takes the place of {id}'s device {earlier}: what other members have of \
             its regions is fetched from them"
        ),
    }
    options.map = options.map.clone().with_device(id, device);
    Ok(())
}

/// Whether the device holds only regions that the map knows: data of another one is never taken for free space. What it
/// has of a region that went elsewhere is kept, for the time when the server is given a copy again.
fn check_regions(store: &Store, options: &ServerOptions) -> Result<(), StartError> {
    for entry in store.regions() {
        // What is kept of a region belongs to it.
        let of = match kind_of(&entry) {
            EntryKind::Cut(region, _) | EntryKind::SetAside(region) => region,
            EntryKind::Region | EntryKind::Pin => entry.region,
        };
        if options.map.region(of).is_none() {
            let what = format!(
                "it holds {of}, which the region map does not have; \
                 restore the region map that this device was written under"
            );
            return Err(unusable(&options.device.path, what));
        }
    }
    Ok(())
}

fn unusable(path: &Path, what: String) -> StartError {
    let path = path.display().to_string();
    StartError::Device(DeviceError::Unusable { path, what })
}
