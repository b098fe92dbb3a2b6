//! Opens this server's copies of all regions, with what is set aside beside them.
//!
//! Nothing is allocated before everything that the catalog names has been claimed: first by the copies that can be
//! opened, then what is known of the others.

use std::collections::BTreeMap;

use argosy_base::{RegionId, ServerId};
use argosy_coordinator::{ClusterMap, Replication};
use argosy_device::DeviceError;
use argosy_engine::catalog::{EntryKind, kind_of};
use argosy_engine::set_aside::{SetAside, was_put_back};
use argosy_engine::{CopyError, CopyOf, Engine, NewCopy, Survivors};
use argosy_memory::MemoryError;

use super::awake::Permits;
use super::follower::Follower;
use super::primary::PrimaryDriver;
use super::refilling::{SetAsides, Unusable};
use super::region::Driver;
use super::views::{Part, View};
use super::whole::WholeMark;
use super::windows::WindowsOf;
use super::{NodeSettings, World};

/// Why a node was not opened. See the error's own remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device cannot be used: a later version wrote it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no memory for windows, marks or links, or it cannot be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// What is needed to open the copies of a server.
pub(super) struct Opener<'a> {
    pub(super) id: ServerId,
    pub(super) map: &'a ClusterMap,
    pub(super) settings: &'a NodeSettings,
    pub(super) world: &'a World,
    pub(super) engine: &'a dyn Engine,
    pub(super) permits: &'a Permits,
}

/// What was opened.
pub(super) struct Opened {
    pub(super) drivers: BTreeMap<RegionId, Driver>,
    pub(super) set_aside: SetAsides,
}

impl Opener<'_> {
    /// Opens all copies, and makes those that the device has not. One that is damaged keeps no other from opening.
    ///
    /// # Errors
    /// No memory; a manifest of a later version: nothing may be freed then.
    pub(super) fn open(&self) -> Result<Opened, OpenError> {
        let store = &self.world.store;
        let entries = store.regions();
        let regions = self.map.regions().iter();
        let entry_of = |id: RegionId| entries.iter().find(|entry| entry.region == id);
        let (old, others): (Vec<_>, Vec<_>) =
            regions.partition(|region| entry_of(region.id).is_some());
        // Copies that were put back come last: segments that were given to others meanwhile belong to those.
        let is_put_back =
            |region: &&argosy_coordinator::Region| entry_of(region.id).is_some_and(was_put_back);
        let (put_back, mut old): (Vec<_>, Vec<_>) = old.into_iter().partition(is_put_back);
        // Copies with a mark that they are whole come first. A copy that could not be read for a while has none: what
        // others were given meanwhile is theirs.
        old.sort_by_key(|region| !WholeMark::is_left(region.id, self.world));
        let mut drivers = BTreeMap::new();
        let mut set_aside = SetAsides::new();
        let mut some_cannot_be_read = false;
        for regions in [old, put_back] {
            let mut closed = Vec::new();
            for region in regions {
                match self.copy(region)? {
                    Ok(copy) => _ = drivers.insert(region.id, self.driver(region, Ok(copy))),
                    Err(error) => closed.push((region, error)),
                }
            }
            some_cannot_be_read |= !closed.is_empty();
            for (region, error) in closed {
                let entry = entry_of(region.id).expect("it is an old one");
                let left = self.engine.claim(store, entry);
                let copy = Err(unusable(region.id, &error, Some(left)));
                drivers.insert(region.id, self.driver(region, copy));
            }
            for entry in &entries {
                if let EntryKind::SetAside(id) = kind_of(entry) {
                    let claim = || self.engine.claim(store, entry);
                    set_aside.entry(id).or_insert_with(claim);
                }
            }
        }
        store.finish_recovery();
        if some_cannot_be_read {
            store.quarantine();
        }
        let is_mine = |region: &&argosy_coordinator::Region| View::of(region).concerns(self.id);
        let (new, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_mine);
        drivers.extend(others.iter().map(|region| (region.id, Driver::Absent)));
        for (copy, region) in self.make(&new)?.into_iter().zip(new) {
            let copy = copy.map_err(|error| unusable(region.id, &error, None));
            drivers.insert(region.id, self.driver(region, copy));
        }
        Ok(Opened { drivers, set_aside })
    }

    /// Makes copies of regions that the device does not know, all together, since each waits for the device several
    /// times. Returns the result of each, in their order.
    fn make(
        &self,
        regions: &[&argosy_coordinator::Region],
    ) -> Result<Vec<Result<Follower, CopyError>>, OpenError> {
        let (engine, world) = (self.engine, self.world);
        let windows_of = |region: &argosy_coordinator::Region| WindowsOf {
            region: region.id,
            logs: engine.logs(),
        };
        let needed = engine.needs_memory(&Survivors::new());
        let (mut copies, mut marks) = (Vec::new(), Vec::new());
        for region in regions {
            marks.push(WholeMark::renew(region.id, false, world)?);
            let of = CopyOf {
                store: &world.store,
                region: region.id,
                own_levels: self.own_levels(region),
            };
            let windows = windows_of(region).fresh(needed, world)?;
            copies.push(NewCopy { of, windows });
        }
        let made = engine.create_all(copies).into_iter();
        let made = made.zip(marks).zip(regions);
        let followers = made.map(|((replica, mark), region)| -> Result<_, CopyError> {
            let replica = replica?;
            windows_of(region).keep(world)?;
            let copy = Follower::of(region.id, &View::of(region), replica, mark);
            Ok(self.permitted(region, copy.with_fresh_windows()))
        });
        Ok(followers.collect())
    }

    /// `copy` of `region`. Until it is open, at least, a primary's needs what an earlier process left in windows.
    fn permitted(&self, region: &argosy_coordinator::Region, copy: Follower) -> Follower {
        let leads = View::of(region).part_of(self.id) == Part::Primary;
        if leads && !copy.replica().is_at_rest() {
            self.permits.take_anyway(region.id);
        }
        copy
    }

    /// As which server a copy of `region` builds levels of its own, if it does.
    fn own_levels(&self, region: &argosy_coordinator::Region) -> Option<ServerId> {
        let builds = self.map.replication() == Replication::BuildIndex;
        let leads = View::of(region).part_of(self.id) == Part::Primary;
        (builds && !leads).then_some(self.id)
    }

    /// Opens the copy of `region`. An error of the copy is the inner one.
    fn copy(
        &self,
        region: &argosy_coordinator::Region,
    ) -> Result<Result<Follower, CopyError>, OpenError> {
        match Follower::open(region, self.own_levels(region), self.engine, self.world) {
            Ok(copy) => Ok(Ok(self.permitted(region, copy))),
            // The copy is as good as before: there is no room for its windows.
            Err(CopyError::Windows(error)) if error.is_full() => Err(error.into()),
            Err(CopyError::OtherVersion(what)) => Err(OpenError::Device(DeviceError::Unusable {
                path: "the device".into(),
                what,
            })),
            Err(error) => {
                if error.is_damage() {
                    // What cannot be read of it may be overwritten, so it is no longer certain to be whole.
                    WholeMark::renew(region.id, false, self.world)?;
                }
                Ok(Err(error))
            }
        }
    }

    fn driver(
        &self,
        region: &argosy_coordinator::Region,
        copy: Result<Follower, Unusable>,
    ) -> Driver {
        let view = View::of(region);
        let leads = view.part_of(self.id) == Part::Primary;
        match copy {
            // Where there is no other copy, none can ever be whole.
            Err(unusable) if !leads || !unusable.is_damaged() || region.members.len() == 1 => {
                Driver::Failed(Box::new(unusable))
            }
            Ok(copy) if !leads => Driver::Backup(Box::new(copy)),
            copy => {
                let builds = self.map.replication() == Replication::BuildIndex;
                let mutants = self.settings.replication_mutants;
                let driver = PrimaryDriver::new(region.id, &view, copy, builds, mutants);
                Driver::Primary(Box::new(driver))
            }
        }
    }
}

/// A copy that cannot be opened because of `error`.
fn unusable(region: RegionId, error: &CopyError, left: Option<SetAside>) -> Unusable {
    tracing::error!(region = region.0, %error, "this copy cannot be used");
    let why = format!("this server's copy cannot be used: {error}");
    match error.is_damage() {
        true => Unusable::damaged(why, left),
        false => Unusable::kept(why, left),
    }
}
