//! `argosy inspect put-back`: a copy that was set aside takes its place again.

use std::path::PathBuf;

use argosy_base::RegionId;
use argosy_device::{Store, StoreSettings};
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_engine::set_aside;
use clap::Args;

use super::{of_device, open_to_write, say};
use crate::failure::CommandFailure;

/// Put a copy back that was set aside
///
/// A server sets a copy aside that is too damaged to be used, and fills another one in its place from the other
/// members. This puts the old copy back, and sets the new one aside: for a device that could not be read for a
/// while, and can be now, where the other copies have been lost. The server must be stopped. The old copy counts only
/// where no other copy of the region has anything; where another one is whole, it is filled anew. Running it again
/// before the server starts undoes it. Without --region, lists the copies that are set aside.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  argosy inspect put-back ./data/server-0\n  \
    argosy inspect put-back ./data/server-0 --region 1\n\n\
    Exit codes: 0 done, 1 failed or in use, 3 no device there, or none is set aside"
)]
pub(super) struct PutBack {
    /// The server's data directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The region whose copy is put back
    #[arg(long, value_name = "N")]
    region: Option<u32>,
}

impl PutBack {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let (_lock, device) = open_to_write(&self.dir)?;
        let Some(region) = self.region else {
            let dump = Store::inspect(&*device).map_err(of_device)?;
            for entry in &dump.regions {
                if let EntryKind::SetAside(region) = kind_of(entry) {
                    say(&format!("a copy of {region} is set aside"));
                }
            }
            return Ok(());
        };
        let store = Store::open(device, &StoreSettings::default()).map_err(of_device)?;
        match set_aside::put_back(&store, RegionId(region)).map_err(of_device)? {
            true => {
                say(&format!(
                    "the copy of region {region} that was set aside is in use again, and the other one is set aside"
                ));
                Ok(())
            }
            false => Err(CommandFailure::NotFound(format!(
                "no copy of region {region} is set aside in {}",
                self.dir.display()
            ))),
        }
    }
}
