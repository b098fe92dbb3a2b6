//! The engine, as a server has it. Its passive copies are in `db/passive.rs`.

use std::sync::Arc;

use argosy_base::AddressMode;
use argosy_device::{RegionEntry, Store};
use argosy_engine::memory::Memory;
use argosy_engine::set_aside::SetAside;
use argosy_engine::{Cache, CopyError, CopyOf, Engine, Follower, LogSpec, NewCopy, Windows};

use crate::cache::NodeCache;
use crate::db::passive::{Passive, slots_of};
use crate::db::process_memory;
use crate::db::server_memory::ServerMemory;
use crate::names::logs::LOGS;
use crate::replica::{Replica, ReplicaError, ReplicaSurvivors, holds_a_window};
use crate::set_aside;
use crate::settings::Settings;

impl argosy_engine::Settings for Settings {
    fn start(&self) -> Arc<dyn Engine> {
        Arc::new(Started {
            memory: ServerMemory::new(Arc::new(NodeCache::with_lent(
                self.cache_bytes,
                self.cache_lent,
            ))),
            logs: self.layout.logs(),
            settings: self.clone(),
        })
    }
}

/// The engine of one server.
struct Started {
    settings: Settings,
    logs: [LogSpec; LOGS.len()],
    /// Of all regions of the server.
    memory: Arc<ServerMemory>,
}

impl Started {
    fn follower(
        &self,
        mut replica: Replica,
        copy: &CopyOf<'_>,
    ) -> Result<Box<dyn Follower>, CopyError> {
        if let Some(server) = copy.own_levels {
            replica.build_levels(server)?;
        }
        replica.charge_to(self.memory.cache());
        Ok(Box::new(Passive::new(replica, Arc::clone(&self.memory))))
    }
}

impl Engine for Started {
    fn logs(&self) -> &[LogSpec] {
        &self.logs
    }

    fn addresses(&self) -> AddressMode {
        self.settings.layout.addresses
    }

    fn cache(&self) -> Arc<dyn Cache> {
        Arc::<NodeCache>::clone(self.memory.cache())
    }

    fn memory(&self) -> Memory {
        process_memory(self.memory.cache())
    }

    fn needs_memory(&self, left: &argosy_engine::Survivors) -> bool {
        let slots = left.iter().flat_map(|log| &log.slots);
        slots.flatten().any(holds_a_window)
    }

    fn open(
        &self,
        copy: &CopyOf<'_>,
        windows: Windows,
        left: argosy_engine::Survivors,
    ) -> Result<Box<dyn Follower>, CopyError> {
        let (windows, left) = (slots_of(windows), survivors_of(left));
        let replica = Replica::open(copy.store, copy.region, windows, &left, &self.settings)?;
        self.follower(replica, copy)
    }

    fn create(&self, copy: &CopyOf<'_>, windows: Windows) -> Result<Box<dyn Follower>, CopyError> {
        let windows = slots_of(windows);
        let replica = Replica::create(copy.store, copy.region, windows, &self.settings)?;
        self.follower(replica, copy)
    }

    fn create_all(&self, copies: Vec<NewCopy<'_>>) -> Vec<Result<Box<dyn Follower>, CopyError>> {
        let (mut of, mut begun) = (Vec::new(), Vec::new());
        for copy in copies {
            let windows = slots_of(copy.windows);
            let (store, region) = (copy.of.store, copy.of.region);
            begun.push(Replica::begin(store, region, windows, &self.settings));
            of.push(copy.of);
        }
        finish(&mut begun);
        let made = begun.into_iter().zip(of);
        made.map(|(replica, copy)| self.follower(replica?, &copy))
            .collect()
    }

    fn claim(&self, store: &Arc<Store>, entry: &RegionEntry) -> SetAside {
        let segment_bytes = u32::try_from(self.settings.layout.segment_bytes);
        let segment_bytes = segment_bytes.expect("settings are validated");
        set_aside::claim(store, entry, segment_bytes)
    }
}

/// Steps all of the replicas that were `begun` until each is idle, or has failed. Blocks. They go on in step: one sync
/// of the device serves all of them, and so does one change of the catalog.
fn finish(begun: &mut [Result<Replica, ReplicaError>]) {
    loop {
        let mut waits = false;
        for begun in begun.iter_mut() {
            if let Ok(replica) = begun {
                match replica.step() {
                    Ok(_) => waits |= !replica.is_idle(),
                    Err(error) => *begun = Err(error),
                }
            }
        }
        if !waits {
            return;
        }
        for begun in begun.iter_mut() {
            if let Ok(replica) = begun
                && let Err(error) = replica.wait_for_device()
            {
                *begun = Err(error);
            }
        }
    }
}

/// What is left of windows, as a replica has it.
///
/// # Panics
/// When a region has no such log.
#[must_use]
pub fn survivors_of(left: argosy_engine::Survivors) -> ReplicaSurvivors {
    let mut survivors = ReplicaSurvivors::default();
    for of_log in left {
        survivors[of_log.log.index()] = of_log.slots;
    }
    survivors
}
