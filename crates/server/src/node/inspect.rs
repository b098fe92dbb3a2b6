//! What tests and the simulator may see of a node beyond its answers: snapshots of its regions,
//! the versions that its copies stand at, their bytes, and what it has counted.

use argosy_base::{DeviceSegment, Lsn, RegionId, SegmentNumber, SegmentPart, ServerId, Standing};
use argosy_engine::damage::{Damage, Miscount};
use argosy_engine::long::SweepStats;
use argosy_engine::scrub::Pass;
use argosy_engine::stats::Stats;
use argosy_engine::{Checkpoint, Snapshot};

use super::context::Context;
use super::counters::NodeCounts;
use super::gate::{Gate, Reveals, Verdict};
use super::region::{Driver, copy_of, engine_of};
use super::stage::Stage;
use super::whole::WholeMark;

/// Why a copy has failed that was [made to](Inspect::fail_copy).
pub const MADE_TO_FAIL: &str = "it was made to fail";

/// One copy of a region.
#[derive(Clone, Debug)]
pub struct CopyState {
    /// Everything that the copy's version consists of; its points tell how far the open segments
    /// of the logs go: on a primary what is durable, on a backup what is known to be there.
    pub checkpoint: Checkpoint,
}

/// See the module documentation.
#[derive(Clone, Copy)]
pub struct Inspect<'a> {
    context: Context<'a>,
}

impl<'a> Inspect<'a> {
    pub(super) const fn new(context: Context<'a>) -> Self {
        Self { context }
    }

    /// A view of everything that is committed in a region that is open here, which pins what it
    /// sees until it is dropped. `None` while that may be less than was once acknowledged.
    #[must_use]
    pub fn snapshot(&self, region: RegionId) -> Option<Box<dyn Snapshot>> {
        let region = self.context.region(region)?;
        let engine = engine_of(region)?;
        let shown = region.gate().show_committed(&engine, Reveals::Snapshot);
        (shown == Verdict::Now).then(|| engine.snapshot())
    }

    /// Whether this server would answer for a region at this moment: no two do (I5).
    #[must_use]
    pub fn shows(&self, region: RegionId) -> bool {
        let region = self.context.region(region);
        let open = region.and_then(|region| Some((region, engine_of(region)?)));
        open.is_some_and(|(region, engine)| {
            region.gate().show_committed(&engine, Reveals::Values) == Verdict::Now
        })
    }

    /// What the engine of a region that is open here has done and holds.
    #[must_use]
    pub fn engine_stats(&self, region: RegionId) -> Option<Stats> {
        Some(engine_of(self.context.region(region)?)?.stats())
    }

    /// Up to where a region is committed that is open here.
    #[must_use]
    pub fn committed(&self, region: RegionId) -> Option<Lsn> {
        Some(Gate::committed(&*engine_of(self.context.region(region)?)?))
    }

    /// What this server's copy does about a device that is full, in words for a report.
    #[must_use]
    pub fn space_in_words(&self, region: RegionId) -> Option<String> {
        let region = self.context.region(region)?;
        match &*region.driver() {
            Driver::Backup(copy) => Some(copy.space_in_words()),
            Driver::Primary(_) => Some(engine_of(region)?.space_in_words()),
            Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => None,
        }
    }

    /// The state of this server's copy.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn copy_state(&self, region: RegionId) -> Result<CopyState, String> {
        let region = self
            .context
            .region(region)
            .ok_or("this server is not a member")?;
        if let Some(engine) = engine_of(region) {
            let source = engine.source().ok_or("its engine has no checkpoints")?;
            let checkpoint = source.checkpoint().checkpoint;
            return Ok(CopyState { checkpoint });
        }
        match &*region.driver() {
            Driver::Backup(copy) => {
                if let Some(why) = copy.failed() {
                    return Err(why.to_owned());
                }
                Ok(CopyState {
                    checkpoint: copy.replica().checkpoint(),
                })
            }
            Driver::Primary(driver) => Err(driver
                .lacks(&self.context)
                .unwrap_or_else(|| "it opens".into())),
            Driver::AtDevice(what) => Err((*what).into()),
            Driver::Failed(copy) => Err(copy.why.clone()),
            Driver::Absent => Err("this server has no copy".into()),
        }
    }

    /// The log segments of which this server's copy of `region` counts other pointers than its levels hold:
    /// none. Reads all levels, and blocks for the device.
    ///
    /// # Errors
    /// This server is no member, the copy has failed or is not open, or a leaf cannot be read, in words.
    pub fn recount(&self, region: RegionId) -> Result<Vec<Miscount>, String> {
        let region = self
            .context
            .region(region)
            .ok_or("this server is not a member")?;
        let copy = copy_of(region).ok_or("it is not open")?;
        copy.recount().map_err(|error| error.to_string())
    }

    /// What this server's copy of a region holds: of the primary everything that is committed, of a
    /// backup that builds its own levels everything that has been flushed. `None` for others.
    #[must_use]
    pub fn copy_snapshot(&self, region: RegionId) -> Option<Box<dyn Snapshot>> {
        let region = self.context.region(region)?;
        if let Some(engine) = engine_of(region) {
            return Some(engine.snapshot());
        }
        match &*region.driver() {
            Driver::Backup(copy) => copy.replica().snapshot(),
            Driver::Primary(_) | Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => None,
        }
    }

    /// What a backup has done and holds that builds its own levels.
    #[must_use]
    pub fn builder_stats(&self, region: RegionId) -> Option<Stats> {
        match &*self.context.region(region)?.driver() {
            Driver::Backup(copy) => copy.replica().stats(),
            Driver::Primary(_) | Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => None,
        }
    }

    /// Bytes `from..to`, whole blocks, of a segment of this server's copy.
    ///
    /// # Errors
    /// Why they cannot be had, in words.
    pub fn copy_bytes(&self, region: RegionId, part: SegmentPart) -> Result<Vec<u8>, String> {
        let region = self
            .context
            .region(region)
            .ok_or("this server is not a member")?;
        let bytes = match &*region.driver() {
            Driver::Primary(driver) => driver.read(part),
            Driver::Backup(copy) => copy.read(part),
            Driver::AtDevice(what) => Some(Err((*what).into())),
            Driver::Failed(copy) => Some(Err(copy.why.clone())),
            Driver::Absent => None,
        };
        let SegmentPart { number, to, .. } = part;
        bytes.unwrap_or_else(|| Err(format!("{number} is not held up to byte {to}")))
    }

    /// Has this server's copy of a region fail as if something that it was sent could not be applied,
    /// where it is a backup's. Returns whether it was one that had not failed.
    pub fn fail_copy(&self, region: RegionId) -> bool {
        let Some(region) = self.context.region(region) else {
            return false;
        };
        match &mut *region.driver() {
            Driver::Backup(copy) if copy.failed().is_none() => {
                copy.fail(&MADE_TO_FAIL, &self.context);
                true
            }
            _ => false,
        }
    }

    /// What this server's copy of a region is certain to hold; `None` where it has none that can be used, or nothing
    /// says.
    #[must_use]
    pub fn standing(&self, region: RegionId) -> Option<Standing> {
        match &*self.context.region(region)?.driver() {
            Driver::Backup(copy) if copy.failed().is_none() => Some(copy.standing()),
            Driver::Primary(driver) => match &driver.stage {
                Stage::Opening(copy) => Some(copy.standing()),
                Stage::Serving(_) => driver.mark.as_ref().map(WholeMark::standing),
                Stage::Damaged(_) | Stage::Closed(_) => None,
            },
            _ => None,
        }
    }

    /// Why this server's copy of a region has failed, where it is a backup's.
    #[must_use]
    pub fn copy_failure(&self, region: RegionId) -> Option<String> {
        match &*self.context.region(region)?.driver() {
            Driver::Backup(copy) => copy.failed().map(str::to_owned),
            _ => None,
        }
    }

    /// A peer to which there is no open link at present.
    #[must_use]
    pub fn peer_apart(&self) -> Option<ServerId> {
        let mut peers = self.context.links.peers();
        peers.find(|peer| !self.context.link(*peer).is_open())
    }

    /// What the node has done since it was opened.
    #[must_use]
    pub fn counts(&self) -> NodeCounts {
        self.context.telling.counters().counts()
    }

    /// Reads and checks everything that is finished of this server's copy of a region, at once; what is damaged is
    /// repaired as if a scrub had found it. For tests. Blocks for the device. Returns what is damaged.
    #[must_use]
    pub fn look_through(&self, region: RegionId) -> Vec<Damage> {
        let Some(region) = self.context.region(region) else {
            return Vec::new();
        };
        let Some(copy) = copy_of(region) else {
            return Vec::new();
        };
        let (mut pass, mut found) = (Pass::new(), Vec::new());
        while let Some(scrubbed) = copy.scrub(&mut pass) {
            for damage in scrubbed.damages {
                copy.note_damaged(damage.number, &damage.what);
                found.push(damage);
            }
        }
        self.context.wake(region.id());
        found
    }

    /// Where the finished level segments of this server's copy of a region lie that other members can have, each with
    /// its number and its length. For tests.
    #[must_use]
    pub fn level_places(&self, region: RegionId) -> Vec<(SegmentNumber, DeviceSegment, u32)> {
        let copy = self
            .context
            .region(region)
            .and_then(|region| copy_of(region));
        let Some(copy) = copy else {
            return Vec::new();
        };
        let levels = copy.parts().into_iter().filter(|part| part.log.is_none());
        let levels = levels.filter(|part| copy.wanted(part.number).is_some());
        levels
            .map(|part| (part.number, part.place, part.len))
            .collect()
    }

    /// What sweeping has done, over all regions.
    #[must_use]
    pub fn sweep_stats(&self) -> SweepStats {
        let mut all = SweepStats::default();
        for region in self.context.regions.iter() {
            let stats = region.sweeper().stats();
            all.passes += stats.passes;
            all.swept += stats.swept;
            all.versions += stats.versions;
        }
        all
    }

    /// Bytes of memory of the newest versions of all copies here.
    #[must_use]
    pub fn versions_bytes(&self) -> usize {
        let regions = self.context.regions.iter();
        let copies = regions.filter_map(|region| copy_of(region));
        copies.map(|copy| copy.memory_bytes()).sum()
    }

    /// Bytes that are charged to the cache: of versions, of memtables that only snapshots see, and of what arrives.
    #[must_use]
    pub fn charged_bytes(&self) -> u64 {
        self.context.memory.cache_stats().charged_bytes
    }

    /// Device segments of copies that are set aside, but for those of their manifests.
    #[must_use]
    pub fn set_aside_segments(&self) -> usize {
        self.context.device_care.set_aside_segments()
    }

    /// The regions of which a copy is set aside.
    #[must_use]
    pub fn set_aside_regions(&self) -> Vec<RegionId> {
        self.context.device_care.set_aside_regions()
    }
}
