//! The redo log: what the master is about to do to the region map, written before it does it.
//!
//! A [job](RedoJob) is about one server: another is promoted in its place, it leaves groups, or it is filled and
//! becomes a member. A job that an operator orders opens a region that has no whole copy left. The log is one value, so
//! jobs begin and end by compare-and-set. `jobs_format.rs` has its bytes.
//!
//! 1. Who plans adds regions to the open job of that kind and server, or begins one ([`JobLog::cover`]). Each region
//!    stands there with the *epoch* under which the decision was made.
//! 2. The map alone says how far a job is ([`standing`]). So jobs are idempotent, and a master needs nothing but the
//!    map to finish another's.
//! 3. A region is *done* with when that has come to pass, and *dropped* when the group has changed otherwise, or the
//!    cause is gone. A job ends when none of its regions is open ([`JobLog::settle`]).
//! 4. What a person has cancelled is not planned again while the region has that epoch, and the job is kept
//!    ([`JobLog::is_held`]).
//!
//! Bounds: [`OPEN_MAX`] open jobs, of which there is one of a kind and server (those of persons apart), [`ENDED_KEPT`]
//! that have ended, and [`REGIONS_MAX`] regions in all of them. The oldest that have ended go first. So the log has
//! [`LOG_BYTES_MAX`](crate::jobs_format::LOG_BYTES_MAX) bytes at most; 10,000 regions are some 30 KiB. A server that
//! has
//! more regions than that is replaced in several turns: what has no room waits until a job has ended.

use std::collections::BTreeMap;

use argosy_base::{Epoch, RegionId, ServerId};

use crate::contract::SessionId;
use crate::job::{
    Deed, DeedStanding, JobId, JobKind, JobRegion, JobState, RedoJob, RegionStage, standing,
};
use crate::map::ClusterMap;
use crate::region::Region;

/// The key of the redo log.
pub const JOBS_KEY: &str = "jobs";

/// Most jobs that have not ended.
pub const OPEN_MAX: usize = 256;

/// Most jobs that have ended and are kept.
pub const ENDED_KEPT: usize = 64;

/// Most regions of all jobs together.
pub const REGIONS_MAX: usize = 1 << 15;

/// Why a job cannot be had, or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// There are too many. Wait until some have ended, or cancel some.
    #[error("there are {what} already, which is the most: wait until jobs have ended")]
    Full {
        /// How many of what.
        what: String,
    },
    /// There is none of this name. Name one that is there.
    #[error("there is no {0}: the oldest that have ended are forgotten")]
    Unknown(JobId),
    /// It is not in a state in which this can be done. Look at it again.
    #[error("{id} is {state}: {why}", state = state.name())]
    NotNow {
        /// The job.
        id: JobId,
        /// Its state.
        state: JobState,
        /// What would have to be.
        why: &'static str,
    },
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLog {
    /// The number that the next job gets.
    next: u64,
    jobs: BTreeMap<JobId, RedoJob>,
}

impl Default for JobLog {
    fn default() -> Self {
        Self {
            next: 1,
            jobs: BTreeMap::new(),
        }
    }
}

impl JobLog {
    /// One of these parts; `None` where a number is not below `next`, or a bound is broken.
    pub(crate) fn of(next: u64, jobs: BTreeMap<JobId, RedoJob>) -> Option<Self> {
        let log = Self { next, jobs };
        let first = log.jobs.keys().next().is_none_or(|first| first.0 > 0);
        let last = log.jobs.keys().next_back();
        let fits = log.open().count() <= OPEN_MAX
            && log.jobs.len() - log.open().count() <= ENDED_KEPT
            && log.regions() <= REGIONS_MAX;
        (first && next > 0 && fits && last.is_none_or(|last| last.0 < next)).then_some(log)
    }

    /// The number that the next job gets.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// All jobs, the oldest first.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = &RedoJob> + ExactSizeIterator {
        self.jobs.values()
    }

    /// Those that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &RedoJob> {
        self.jobs.values().filter(|job| job.state.is_open())
    }

    /// The job of that name.
    ///
    /// # Errors
    /// [`JobError::Unknown`].
    pub fn job(&self, id: JobId) -> Result<&RedoJob, JobError> {
        self.jobs.get(&id).ok_or(JobError::Unknown(id))
    }

    fn regions(&self) -> usize {
        self.jobs.values().map(|job| job.regions.len()).sum()
    }

    /// What open jobs have to do in `region`.
    pub fn deeds<'a>(&'a self, region: &'a Region) -> impl Iterator<Item = OpenDeed> + 'a {
        let jobs = self.open();
        jobs.filter_map(|job| {
            let entry = job.regions.get(&region.id)?;
            let is_open = entry.stage == RegionStage::Open;
            is_open.then(|| OpenDeed {
                kind: job.kind,
                server: job.server,
                standing: standing(job.kind, job.server, entry.epoch, Some(region)),
            })
        })
    }

    /// Whether an open job has it to do.
    #[must_use]
    pub fn covers(&self, deed: Deed, map: &ClusterMap) -> bool {
        let Some(region) = map.region(deed.region) else {
            return false;
        };
        let mut open = self.deeds(region);
        open.any(|open| {
            let is_for = open.kind == deed.kind
                || (open.kind, deed.kind) == (JobKind::Recover, JobKind::Promote);
            let is_due = matches!(open.standing, DeedStanding::Planned | DeedStanding::Begun);
            is_for && is_due && open.server == deed.server
        })
    }

    /// Whether a person has cancelled this, and the group has not changed since.
    #[must_use]
    pub fn is_held(&self, kind: JobKind, server: ServerId, region: &Region) -> bool {
        let mut cancelled = self.jobs.values().filter(|job| {
            job.state == JobState::Cancelled && job.kind == kind && job.server == server
        });
        cancelled.any(|job| {
            let entry = job.regions.get(&region.id);
            entry.is_some_and(|entry| {
                entry.stage == RegionStage::Open && entry.epoch == region.epoch
            })
        })
    }

    /// Has a job do it: the open one of that kind and server, or a new one.
    ///
    /// # Errors
    /// [`JobError::Full`].
    pub fn cover(&mut self, deed: Deed, epoch: Epoch, by: SessionId) -> Result<JobId, JobError> {
        let entry = JobRegion {
            epoch,
            stage: RegionStage::Open,
        };
        if self.regions() >= REGIONS_MAX {
            self.forget_regions(1);
        }
        if self.regions() >= REGIONS_MAX {
            let what = format!("{REGIONS_MAX} regions in jobs");
            return Err(JobError::Full { what });
        }
        let mut jobs = self.jobs.values_mut();
        let same = jobs
            .find(|job| job.state.is_open() && job.kind == deed.kind && job.server == deed.server);
        if let Some(job) = same {
            job.regions.insert(deed.region, entry);
            return Ok(job.id);
        }
        self.begin(RedoJob {
            id: JobId(self.next),
            kind: deed.kind,
            state: JobState::Planned,
            server: deed.server,
            actor: Some(by),
            attempts: 1,
            regions: BTreeMap::from([(deed.region, entry)]),
            remark: String::new(),
        })
    }

    /// A person orders that `region` opens with what is left. The job is the master's to carry out.
    ///
    /// # Errors
    /// [`JobError::Full`].
    pub fn order_recovery(&mut self, region: &Region) -> Result<JobId, JobError> {
        let entry = JobRegion {
            epoch: region.epoch,
            stage: RegionStage::Open,
        };
        self.begin(RedoJob {
            id: JobId(self.next),
            kind: JobKind::Recover,
            state: JobState::Planned,
            server: region.primary,
            actor: None,
            attempts: 0,
            regions: BTreeMap::from([(region.id, entry)]),
            remark: String::new(),
        })
    }

    fn begin(&mut self, job: RedoJob) -> Result<JobId, JobError> {
        if self.open().count() >= OPEN_MAX {
            let what = format!("{OPEN_MAX} open jobs");
            return Err(JobError::Full { what });
        }
        let id = job.id;
        self.next += 1;
        self.jobs.insert(id, job);
        Ok(id)
    }

    /// A person wants a job that has failed, or was cancelled, done after all, whatever became of the groups.
    ///
    /// # Errors
    /// [`JobError::Unknown`], [`JobError::NotNow`], [`JobError::Full`].
    pub fn retry(&mut self, id: JobId, map: &ClusterMap) -> Result<(), JobError> {
        let state = self.job(id)?.state;
        if !matches!(state, JobState::Failed | JobState::Cancelled) {
            let why = "only one that has failed, or was cancelled, can be tried again";
            return Err(JobError::NotNow { id, state, why });
        }
        if self.open().count() >= OPEN_MAX {
            let what = format!("{OPEN_MAX} open jobs");
            return Err(JobError::Full { what });
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            for (region, entry) in &mut job.regions {
                if let Some(region) = map.region(*region)
                    && entry.stage != RegionStage::Done
                {
                    (entry.epoch, entry.stage) = (region.epoch, RegionStage::Open);
                }
            }
            job.actor = None;
            job.turn(JobState::Planned, "");
        }
        Ok(())
    }

    /// A person does not want a job done. What was begun is not undone, so only one that was not can be cancelled.
    ///
    /// # Errors
    /// [`JobError::Unknown`], [`JobError::NotNow`].
    pub fn cancel(&mut self, id: JobId, map: &ClusterMap) -> Result<(), JobError> {
        let job = self.job(id)?;
        let state = job.state;
        let is_begun = |(region, entry): (&RegionId, &JobRegion)| {
            let found = standing(job.kind, job.server, entry.epoch, map.region(*region));
            entry.stage == RegionStage::Open && found == DeedStanding::Begun
        };
        // An order asks for nothing that the master would not do without it, until it is carried out.
        let has_begun = job.kind != JobKind::Recover && job.regions.iter().any(is_begun);
        if !state.is_open() || has_begun || state == JobState::Acting {
            let why = match state.is_open() {
                true => "it has begun, and what was begun is finished",
                false => "it has ended",
            };
            return Err(JobError::NotNow { id, state, why });
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.turn(JobState::Cancelled, "by an operator");
        }
        self.trim();
        Ok(())
    }

    /// The master of session `by` takes up what another has left. Returns how many jobs that are.
    pub fn take_over(&mut self, by: SessionId) -> usize {
        let jobs = self.jobs.values_mut();
        let left = jobs.filter(|job| job.state.is_open() && job.actor != Some(by));
        let mut count = 0;
        for job in left {
            job.actor = Some(by);
            job.attempts = job.attempts.saturating_add(1);
            count += 1;
        }
        count
    }

    /// Something of it is about to be done, in the same transaction as this is written.
    pub fn act(&mut self, deed: Deed) {
        for job in self.jobs.values_mut() {
            let is_of = job.kind == deed.kind
                || (job.kind, deed.kind) == (JobKind::Recover, JobKind::Promote);
            let has = job.regions.contains_key(&deed.region);
            if job.state.is_open() && is_of && has && job.server == deed.server {
                job.state = JobState::Acting;
            }
        }
    }

    /// The cause of it is gone, or it cannot be done.
    pub fn drop_deed(&mut self, deed: Deed, state: JobState, remark: &str) {
        let jobs = self.jobs.values_mut();
        let of = jobs.filter(|job| {
            job.state.is_open() && job.kind == deed.kind && job.server == deed.server
        });
        for job in of {
            if let Some(entry) = job.regions.get_mut(&deed.region)
                && entry.stage == RegionStage::Open
            {
                entry.stage = RegionStage::Dropped;
                let left = job.regions_in(RegionStage::Open).next().is_some();
                if !left && job.regions_in(RegionStage::Done).next().is_none() {
                    job.turn(state, remark);
                }
            }
        }
    }

    /// Takes note of what `map` says has come to pass, or cannot any more; ends jobs that have nothing left, and
    /// forgets the oldest of too many.
    pub fn settle(&mut self, map: &ClusterMap) {
        for job in self.jobs.values_mut().filter(|job| job.state.is_open()) {
            for (region, entry) in &mut job.regions {
                if entry.stage != RegionStage::Open {
                    continue;
                }
                match standing(job.kind, job.server, entry.epoch, map.region(*region)) {
                    DeedStanding::Planned | DeedStanding::Begun => {}
                    DeedStanding::Done => entry.stage = RegionStage::Done,
                    DeedStanding::Overtaken => entry.stage = RegionStage::Dropped,
                }
            }
            let has = |stage| job.regions_in(stage).next().is_some();
            match (has(RegionStage::Open), has(RegionStage::Done)) {
                (true, _) => {}
                (false, true) => job.turn(JobState::Done, ""),
                (false, false) => {
                    job.turn(
                        JobState::Cancelled,
                        "overtaken: the groups have changed otherwise",
                    );
                }
            }
        }
        self.trim();
    }

    /// Forgets the oldest that have ended, if there are too many.
    fn trim(&mut self) {
        let ended = self.jobs.values().filter(|job| !job.state.is_open());
        let ended: Vec<JobId> = ended.map(|job| job.id).collect();
        let surplus = ended.len().saturating_sub(ENDED_KEPT);
        for id in &ended[..surplus] {
            self.jobs.remove(id);
        }
    }

    /// Forgets the oldest that have ended until `more` regions have room.
    fn forget_regions(&mut self, more: usize) {
        while self.regions() + more > REGIONS_MAX {
            let mut ended = self.jobs.values().filter(|job| !job.state.is_open());
            let Some(oldest) = ended.next().map(|job| job.id) else {
                return;
            };
            self.jobs.remove(&oldest);
        }
    }
}

/// What an open job has to do in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenDeed {
    /// What.
    pub kind: JobKind,
    /// About whom.
    pub server: ServerId,
    /// How far the map is with it.
    pub standing: DeedStanding,
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
