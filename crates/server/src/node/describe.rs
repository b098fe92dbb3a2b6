//! What a node tells of itself in `INFO`, under the names of [`argosy_base::info`].

use std::collections::BTreeSet;

use argosy_base::info;
use argosy_base::limits::SEGMENT_SIZE;

use super::context::Context;
use super::gate::Gate;
use super::region::{Driver, Region, engine_of};
use super::report::{Reports, primary_state};
use super::snapshots;
use crate::service::InfoSection;

impl Reports<'_> {
    /// All sections.
    pub(crate) fn info(&self) -> Vec<InfoSection> {
        let regions = self
            .context
            .regions
            .iter()
            .filter(|region| region.has_copy())
            .map(|region| describe_region(region, &self.context))
            .collect();
        let mut sections = vec![
            (info::SECTION, self.describe_server()),
            (info::SECTION_REGIONS, regions),
            (
                info::SECTION_MEMORY,
                self.context.memory.describe(&self.context),
            ),
            snapshots::describe(&self.context),
            self.describe_copies(),
            self.describe_keys(),
        ];
        sections.extend(self.context.telling.native().map(|front| front.describe()));
        sections
    }

    /// The cluster's modes, and how many other servers have a copy of a region which is led here, and follow it.
    fn describe_copies(&self) -> InfoSection {
        let mut servers = BTreeSet::new();
        for region in self.context.regions.iter() {
            if let Driver::Primary(driver) = &*region.driver() {
                let members = driver.machine().members();
                let live = members.filter(|member| member.state == "live");
                servers.extend(live.map(|member| member.id));
            }
        }
        let map = self.context.views.map();
        let fields = [
            ("connected_slaves", servers.len().to_string()),
            ("replication_mode", map.replication().name().to_owned()),
            ("durability_mode", map.durability().name().to_owned()),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        ("Replication", fields.into())
    }

    /// How many keys there are in the regions that are led here, as an estimate.
    fn describe_keys(&self) -> InfoSection {
        let led = self
            .context
            .regions
            .iter()
            .filter(|region| region.is_led_here());
        let counts = led.filter_map(|region| Some(engine_of(region)?.count_estimate()));
        let keys: u64 = counts.sum();
        let line = (0 < keys).then(|| format!("keys={keys},expires=0,avg_ttl=0"));
        let fields = line.map(|line| ("db0".to_owned(), line));
        ("Keyspace", fields.into_iter().collect())
    }

    fn describe_server(&self) -> Vec<(String, String)> {
        let device = self.context.world.store.device().counters();
        let mut network: u64 = self
            .context
            .links
            .peers()
            .map(|peer| self.context.link(peer).sent().all())
            .sum();
        let (mut compactions, mut levels) = (0, 0);
        for region in self.context.regions.iter() {
            if let Some(engine) = engine_of(region) {
                let stats = engine.stats();
                compactions += stats.work.flushes + stats.work.compactions;
                let deepest = stats.levels.iter().filter(|level| level.segments > 0);
                levels = levels.max(deepest.map(|level| level.level).max().unwrap_or(0));
            }
            match &*region.driver() {
                Driver::Primary(driver) => network += driver.log_bytes().values().sum::<u64>(),
                Driver::Backup(copy) => {
                    if let Some(stats) = copy.replica().stats() {
                        compactions += stats.work.flushes + stats.work.compactions;
                    }
                }
                Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => {}
            }
        }
        let space = u64::from(self.context.world.store.used()) * SEGMENT_SIZE as u64;
        let own = self.context.telling.counters().counts();
        let counters = [
            (info::NETWORK_BYTES, network),
            (info::DEVICE_READ_BYTES, device.read_bytes),
            (info::DEVICE_WRITE_BYTES, device.write_bytes),
            (info::DEVICE_RING_READS, device.ring_reads),
            (info::DEVICE_FIXED_READS, device.fixed_reads),
            (info::COMPACTIONS, compactions),
            (info::CATCH_UP_BYTES, own.catch_up_bytes),
            (info::REWRITTEN_SEGMENTS, own.rewritten.segments),
            (info::REWRITTEN_BYTES, own.rewritten.bytes),
            (info::REWRITTEN_POINTERS, own.rewritten.pointers),
            (info::BACKGROUND_PENDING, self.background_pending() as u64),
            (info::LEVELS, u64::from(levels)),
            (info::SPACE_BYTES, space),
            (
                info::DEVICE_FAILED,
                u64::from(self.context.world.store.failure().is_some()),
            ),
        ];
        let activities = self.context.world.ledger.micros();
        let method = self.context.world.store.device().io_method();
        let numbers = activities
            .chain(counters)
            .map(|(name, value)| (name.to_owned(), value.to_string()));
        let words = [(info::DEVICE_IO.to_owned(), method.to_string())];
        numbers.chain(words).collect()
    }
}

impl Reports<'_> {
    /// See [`info::BACKGROUND_PENDING`].
    pub(super) fn background_pending(&self) -> usize {
        let pending = |region: &Region| {
            let engine = engine_of(region).map_or(0, |engine| engine.background_pending());
            let waiting = region.waiting().len();
            let driver = match &*region.driver() {
                Driver::Primary(driver) => driver.pending(),
                Driver::Backup(copy) => copy.pending(),
                Driver::AtDevice(_) => 1,
                Driver::Failed(_) | Driver::Absent => 0,
            };
            engine + waiting + driver
        };
        self.context
            .regions
            .iter()
            .map(|region| pending(region))
            .sum()
    }
}

/// The line of one region; see [`argosy_base::info`].
fn describe_region(region: &Region, context: &Context<'_>) -> (String, String) {
    let engine = engine_of(region);
    let (role, state, lsn, edit, digest) = match &*region.driver() {
        Driver::Primary(driver) => {
            let (state, _) = primary_state(driver, region, context);
            let lsn = engine
                .as_ref()
                .map_or(0, |engine| Gate::committed(engine).0);
            let digest = engine.as_ref().map_or(0, |engine| engine.stored().digest());
            ("primary", state, lsn, driver.edit(), digest)
        }
        Driver::Backup(copy) => {
            let state = if copy.failed().is_some() {
                "failed"
            } else {
                "following"
            };
            let at = copy.position();
            (
                "backup",
                state,
                at.lsn.0,
                at.edit,
                copy.replica().stored().digest(),
            )
        }
        Driver::AtDevice(_) => {
            let (role, state) = context.at_device(region);
            (role, state, 0, Default::default(), 0)
        }
        Driver::Failed(_) => ("member", "failed", 0, Default::default(), 0),
        Driver::Absent => ("none", "absent", 0, Default::default(), 0),
    };
    let line = format!(
        "role={role},state={state},epoch={},lsn={lsn},edit={},digest={digest:016x}",
        region.view().epoch.0,
        edit.0
    );
    (format!("region_{}", region.id().0), line)
}
