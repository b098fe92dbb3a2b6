//! Which regions' log windows have memory: so many at one time as the server has memory for.
//!
//! Windows rest while nobody writes to a region. So a server has memory for those of a few regions, however many it
//! has, and gives it out by *permits*, one for all windows of a region:
//!
//! ```text
//!           take, while one is free         the logs rest             the backups were told
//!   at rest ───────────────────────▶ awake ───────────────▶ resting ───────────────────────▶ at rest
//!      │                              ▲ ▲                      │
//!      │ take: it stands in line      │ └──────── take ────────┘
//!      ▼        a permit is free      │ take
//!   in line ──────────────────────▶ granted ────────────────────────────────────────────────▶ at rest
//!                                       a step of the region finds that nobody waits for it
//! ```
//!
//! 1. A region of which this server is primary needs a permit before its windows take memory. It
//!    holds it until they have none any more *and* its backups were told: who gets the permit next
//!    cannot overtake that on a link.
//! 2. Where none is free the region stands in line. What it was to write waits as for any other
//!    room, for its deadline at most. For each region in line another one is told to *yield*: the
//!    one that was written to longest ago, of those that lack no member. It takes no more writes,
//!    has its logs made durable everywhere, and rests. If it cannot within half a deadline, it goes
//!    on, and another one is asked.
//! 3. A permit that comes back goes to the first in line. So each region has its turn, even where more are written to
//!    all the time than there are permits.
//! 4. A region that lacks a member cannot rest, for as long as the member is away. Where no other one is awake, as many
//!    more permits are given as there are such regions: they hold up nobody. The cache gives way to what all windows
//!    take beyond their share ([`Memory::look`](super::memory::Memory::look)), here and at the backups.
//!
//! A backup's windows need none: they are awake only while its primary holds a permit there, or just did. So with as
//! many permits at each server, a server needs memory for those of its own, and for those of each other server whose
//! regions it backs up ([`Awake::of`]). No region ever waits for a permit while it holds one, here or elsewhere, so
//! that none waits for another in a circle.
//!
//! What an earlier process left in windows counts whether or not a permit is free: there were no more of those.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Instant, RegionId, ServerId};
use argosy_coordinator::ClusterMap;
use argosy_engine::WindowRoom;
use parking_lot::{Mutex, MutexGuard};

use super::context::Context;
use super::local::LocalRegion;
use super::region::{Driver, Region, engine_of};

/// What a region does with its permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permit {
    /// It has just been given one, and has not come for it.
    Granted,
    /// Its windows have memory.
    Awake,
    /// They have, and are to rest soon, since then.
    Yielding(Instant),
    /// They have none, and its backups have still to be told.
    Resting,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<RegionId, Permit>,
    /// Regions that wait for one, the first in front.
    line: VecDeque<RegionId>,
    /// Most that were held at one time.
    most: usize,
}

/// The permits of a server. See the module documentation.
#[derive(Debug)]
pub(super) struct Permits {
    /// How many there are; 0: as many as anyone asks for.
    max: usize,
    /// Where that is planted: none comes back.
    kept: bool,
    /// Taken with any other lock held, and none is taken behind it.
    state: Mutex<State>,
}

impl Permits {
    /// `max` of them; 0: as many as anyone asks for. None comes back where that is planted (`kept`).
    pub(super) fn new(max: usize, kept: bool) -> Self {
        Self {
            max,
            kept,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The windows of `region` are about to take memory. False: it stands in line.
    fn take(&self, region: RegionId) -> bool {
        let mut state = self.state();
        if let Some(permit) = state.held.get_mut(&region) {
            *permit = Permit::Awake;
            return true;
        }
        if self.max > 0 && state.held.len() >= self.max {
            if !state.line.contains(&region) {
                state.line.push_back(region);
            }
            return false;
        }
        state.hold(region, Permit::Awake);
        true
    }

    /// The windows of `region` have memory already, whether or not there is a permit.
    pub(super) fn take_anyway(&self, region: RegionId) {
        self.state().hold(region, Permit::Awake);
    }

    /// The windows of `region` have no memory any more.
    fn gave_back(&self, region: RegionId) {
        if let Some(permit) = self.state().held.get_mut(&region) {
            *permit = Permit::Resting;
        }
    }

    /// The backups of `region` know that it rests, if it does. Returns who has its permit now.
    #[must_use]
    pub(super) fn told(&self, region: RegionId) -> Option<RegionId> {
        match self.kept {
            true => None,
            false => self.pass_on(region, Permit::Resting),
        }
    }

    /// `region` has nothing to write: it needs no permit that it has not come for. Returns who has it now.
    #[must_use]
    fn unused(&self, region: RegionId) -> Option<RegionId> {
        self.pass_on(region, Permit::Granted)
    }

    /// The windows that `region` had are gone. Returns who has its permit now.
    #[must_use]
    pub(super) fn forget(&self, region: RegionId) -> Option<RegionId> {
        let mut state = self.state();
        state.held.remove(&region)?;
        state.grant(self.max)
    }

    /// Gives the first in line a permit although `stuck` regions hold some that cannot rest. Returns who has it now.
    #[must_use]
    fn grant_beside(&self, stuck: usize) -> Option<RegionId> {
        self.state().grant(self.max + stuck)
    }

    fn pass_on(&self, region: RegionId, from: Permit) -> Option<RegionId> {
        let mut state = self.state();
        if state.held.get(&region) != Some(&from) {
            return None;
        }
        state.held.remove(&region);
        state.grant(self.max)
    }

    /// Regions to be told to yield, so that each in line comes to a permit: of those that are awake, with none that
    /// yields or rests. Empty where enough do.
    fn to_choose_from(&self) -> (usize, Vec<RegionId>) {
        let state = self.state();
        let is_awake = |permit: &Permit| *permit == Permit::Awake;
        let is_coming = |permit: &Permit| matches!(permit, Permit::Yielding(_) | Permit::Resting);
        let coming = state.held.values().filter(|permit| is_coming(permit));
        let lacking = state.line.len().saturating_sub(coming.count());
        if lacking == 0 {
            return (0, Vec::new());
        }
        let awake = state.held.iter().filter(|(_, permit)| is_awake(permit));
        (lacking, awake.map(|(region, _)| *region).collect())
    }

    /// `region` yields from `now` on, if it is awake.
    fn begin_to_yield(&self, region: RegionId, now: Instant) -> bool {
        let mut state = self.state();
        let awake = state.held.get_mut(&region);
        let Some(permit) = awake.filter(|permit| **permit == Permit::Awake) else {
            return false;
        };
        *permit = Permit::Yielding(now);
        true
    }

    /// The regions that have been yielding for `span`: they go on.
    fn end_yielding(&self, now: Instant, span: Duration) -> Vec<RegionId> {
        let mut over = Vec::new();
        for (region, permit) in &mut self.state().held {
            if let Permit::Yielding(since) = *permit
                && now >= since + span
            {
                *permit = Permit::Awake;
                over.push(*region);
            }
        }
        over
    }

    /// How many are held now, and how many were at most.
    pub(super) fn held(&self) -> (usize, usize) {
        let state = self.state();
        (state.held.len(), state.most)
    }
}

impl State {
    fn hold(&mut self, region: RegionId, permit: Permit) {
        self.held.insert(region, permit);
        self.most = self.most.max(self.held.len());
    }

    /// Gives a permit that came back to the first in line. `max` may be held; more are, where memory was taken without.
    fn grant(&mut self, max: usize) -> Option<RegionId> {
        if self.held.len() >= max {
            return None;
        }
        let first = self.line.pop_front()?;
        self.hold(first, Permit::Granted);
        Some(first)
    }
}

/// The permit of one region, for its engine.
pub(super) struct RegionPermit {
    pub(super) region: RegionId,
    pub(super) permits: Arc<Permits>,
}

impl WindowRoom for RegionPermit {
    fn take(&self) -> bool {
        self.permits.take(self.region)
    }

    fn gave_back(&self) {
        self.permits.gave_back(self.region);
    }
}

/// Of how many regions a server has windows, and of how many they may have memory at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awake {
    /// Regions that the server is a member of.
    pub members: usize,
    /// Regions whose windows may have memory at one time.
    pub awake: usize,
}

impl Awake {
    /// Those of server `id` of `map`, where each server lets the windows of `max` regions that it is primary of have
    /// memory at one time.
    #[must_use]
    pub fn of(map: &ClusterMap, id: ServerId, max: usize) -> Self {
        let mut by_primary = BTreeMap::<ServerId, usize>::new();
        let regions = map.regions().iter();
        for region in regions.filter(|region| region.members.contains(&id)) {
            *by_primary.entry(region.primary).or_default() += 1;
        }
        Self {
            members: by_primary.values().sum(),
            awake: by_primary.values().map(|regions| max.min(*regions)).sum(),
        }
    }
}

/// Has regions rest that others need permits of, and gives one back that nobody came for. In the background.
pub(super) fn take_turns(local: &LocalRegion<'_>, now: Instant) {
    let LocalRegion { context, region } = *local;
    let permits = context.memory.permits();
    if permits.max == 0 {
        return;
    }
    if !region.waiting().is_queueing()
        && let Some(next) = permits.unused(region.id())
    {
        context.wake(next);
    }
    let at = |id| context.region(id).map(Arc::as_ref);
    for id in permits.end_yielding(now, context.settings.deadline / 2) {
        if let Some(region) = at(id) {
            // It is asked last the next time.
            region.note_written(now);
            rest_soon(region, false);
        }
    }
    let (lacking, awake) = permits.to_choose_from();
    if lacking == 0 {
        return;
    }
    let mut awake: Vec<&Region> = awake.into_iter().filter_map(at).collect();
    awake.sort_by_key(|region| region.last_written());
    let may_rest = |region: &&Region| LocalRegion::new(context, region).lacks().is_none();
    let (may_rest, stuck): (Vec<_>, Vec<_>) = awake.into_iter().partition(may_rest);
    for region in may_rest.iter().take(lacking) {
        if permits.begin_to_yield(region.id(), now) {
            rest_soon(region, true);
            context.wake_logs(region.id());
        }
    }
    for _ in may_rest.len()..lacking {
        if let Some(next) = permits.grant_beside(stuck.len()) {
            context.wake(next);
        }
    }
}

impl Context<'_> {
    /// Of how many regions there are windows here, and how many have memory.
    pub(super) fn awake(&self) -> Awake {
        let is_awake = |region: &&Arc<Region>| match &*region.driver() {
            Driver::Backup(copy) => !copy.replica().is_at_rest(),
            // A primary's has a permit, or its windows are not open yet.
            Driver::Primary(_) | Driver::AtDevice(_) | Driver::Failed(_) | Driver::Absent => false,
        };
        let of_others = self.regions.iter().filter(is_awake).count();
        Awake {
            members: self.regions.len(),
            awake: self.memory.permits().held().0 + of_others,
        }
    }
}

/// Has the windows of `region` rest soon, or not.
fn rest_soon(region: &Region, soon: bool) {
    if let Some(engine) = engine_of(region) {
        engine.rest_soon(soon);
    }
}

#[cfg(test)]
#[path = "awake_tests.rs"]
mod tests;
