//! The coordinator of a cluster whose groups change, and what each server has to do with it: its
//! [`Membership`], and a [`Master`] that waits to be elected.
//!
//! Each has a handle of its own to one [`InMemory`] coordinator, through a wrapper that ends with the process, and that
//! knows what is on its way. The cluster itself *observes*: it reads the region map whenever that changes, through a
//! handle that nothing happens to, so that clients know who serves what, and what may go wrong next.
//!
//! The coordinator's time is the common one, whatever the servers' clocks show.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::{Clock, Instant, RegionId, ServerId, Standing};
use argosy_coordinator::contract::CoordinatorAnswer;
use argosy_coordinator::reports::report_key;
use argosy_coordinator::{
    CLUSTER_KEY, ClusterMap, Coordinator, CoordinatorEvent, CoordinatorReply, CopyStatus, Entry,
    EntryVersion, InMemory, JOBS_KEY, MASTER_KEY, MapWrite, Region, RegionState, Request,
    ServerReport, StoredMap,
};
use argosy_master::{GroupStep, Master, MasterRole, RaiseReason};
use argosy_server::membership::Membership;
use argosy_server::node::Node;
use parking_lot::Mutex;

use super::handle::{Change, Handle, Sent};
use super::jobs::{self, Jobs};
use super::{Cluster, Doing, id};
use crate::clock::SimClock;
use crate::coverage::Coverage;
use crate::crash_point::CrashPoint;
use crate::failover::{Failover, Loss, Trouble};
use crate::leaving::{LOOK_EVERY, Leaving};

/// What a process does in its cluster.
pub(super) struct Attending {
    membership: Membership,
    master: Master,
    due: Instant,
    was_there: bool,
    /// Elections and conflicts that are counted already.
    elections: u64,
    conflicts: u64,
    handles: [Handle; 2],
    pub(super) leaving: Option<Leaving>,
}

impl Attending {
    /// Its server is to stop as it should.
    pub(super) fn leave(&mut self, now: Instant) {
        let membership = &self.membership;
        self.leaving
            .get_or_insert_with(|| Leaving::begin(membership, now));
    }

    /// Goes on with that.
    fn step_leaving(&mut self, node: &Node, now: Instant) {
        let has_left = self.leaving.as_mut().map(|of| of.step(node, now));
        if has_left == Some(true) {
            self.master.resign();
        }
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.handles.iter().for_each(Handle::end);
    }
}

/// What lies between a server and the coordinator, whatever process it has.
#[derive(Clone, Copy, Default)]
struct Way {
    is_cut: bool,
    delay: std::time::Duration,
}

/// See the module documentation.
pub(super) struct Coordination {
    of: Failover,
    mutants: argosy_master::Mutants,
    clock: Arc<SimClock>,
    observer: InMemory,
    /// The region map that was read last.
    stored: Option<StoredMap>,
    ways: Vec<Way>,
    sent: Arc<Sent>,
    handles: AtomicU64,
    jobs: Jobs,
    /// Members that have left, and have not come back.
    left: BTreeSet<(RegionId, ServerId)>,
}

impl Coordination {
    /// A coordinator that knows `map`.
    pub(super) fn new(
        of: &Failover,
        mutants: argosy_master::Mutants,
        map: &ClusterMap,
        clock: &Arc<SimClock>,
    ) -> Self {
        let mut observer = InMemory::new();
        observer
            .watch(CLUSTER_KEY)
            .and_then(|()| observer.watch(JOBS_KEY))
            .expect("a handle watches two keys");
        let mut coordination = Self {
            of: of.clone(),
            observer,
            stored: None,
            mutants,
            clock: Arc::clone(clock),
            ways: vec![Way::default(); map.servers().len()],
            sent: Arc::default(),
            handles: AtomicU64::new(0),
            jobs: Jobs::default(),
            left: BTreeSet::new(),
        };
        coordination.write(map, clock.now());
        coordination
    }

    /// A group has changed. Returns how many members are back.
    fn regrouped(&mut self, before: &Region, after: &Region) -> u64 {
        let gone = before.members.iter();
        let gone = gone.filter(|member| !after.members.contains(member));
        self.left.extend(gone.map(|member| (after.id, *member)));
        let members = after.members.iter();
        let back = members.filter(|member| self.left.remove(&(after.id, **member)));
        back.count() as u64
    }

    /// Looks at who has written the redo log, if it has changed.
    fn look_at_jobs(&mut self, now: Instant) {
        let log = self.read(JOBS_KEY, now);
        let owner = self.read(MASTER_KEY, now).owner;
        self.jobs.look(&log.value, owner);
    }

    fn ask(&mut self, request: Request, now: Instant) -> CoordinatorAnswer {
        let asked = self.observer.submit(request);
        loop {
            match self.observer.poll(now).expect("it answers at once") {
                CoordinatorEvent::Ended { id, answer } if id == asked => return answer,
                _ => {}
            }
        }
    }

    fn read(&mut self, key: &str, now: Instant) -> Entry {
        let key = key.to_owned();
        match self.ask(Request::Read { key }, now) {
            Ok(CoordinatorReply::Entry(entry)) => entry,
            odd => panic!("a read is answered by {odd:?}"),
        }
    }

    /// The version of the map that was read last.
    fn version(&self) -> Option<EntryVersion> {
        self.stored.as_ref().map(|stored| stored.version)
    }

    /// An operator writes `map`, which follows the one that was read last.
    fn write(&mut self, map: &ClusterMap, now: Instant) {
        let (next, bound) = (Arc::new(map.clone()), self.of.plan.map.shard_bytes);
        let write = match &self.stored {
            Some(before) => MapWrite::change(before, next, bound),
            None => MapWrite::first(next, bound),
        };
        let write = write.expect("it is a small one");
        let ops = write.ops().expect("it is a small one");
        match self.ask(Request::Multi { ops, under: None }, now) {
            Ok(_) => self.stored = Some(write.stored()),
            odd => panic!("a change of the map is answered by {odd:?}"),
        }
    }

    /// The part that a process takes in its cluster, which begins `now` by its own clock.
    pub(super) fn attend(
        &self,
        server: usize,
        node: &Arc<Node>,
        crash_point: &Arc<CrashPoint>,
        now: Instant,
    ) -> Attending {
        let way = self.ways[server];
        let handle = || {
            let mut inner = self.observer.clone();
            inner.cut_off(way.is_cut);
            inner.delay(way.delay);
            Handle {
                number: self.handles.fetch_add(1, Ordering::Relaxed),
                inner: Arc::new(Mutex::new(inner)),
                clock: Arc::clone(&self.clock),
                crash_point: Arc::clone(crash_point),
                sent: Arc::clone(&self.sent),
                wrong: Arc::clone(&self.jobs.wrong),
            }
        };
        let handles = [handle(), handle()];
        let own = |index: usize| Box::new(handles[index].clone()) as Box<dyn Coordinator>;
        let membership = Membership::new(
            own(0),
            Arc::clone(node),
            node.incarnation(),
            self.of.membership,
        );
        let membership = membership.expect("a handle watches one key");
        let master = Master::new(own(1), id(server), self.of.plan, self.of.master, now);
        let master = master.with_mutants(self.of.plan, self.mutants, now);
        Attending {
            membership,
            master,
            due: now,
            was_there: false,
            elections: 0,
            conflicts: 0,
            handles,
            leaving: None,
        }
    }
}

impl Cluster {
    /// A step of a server's part in its cluster, if one is due. Returns what its master has done, in words.
    pub(crate) fn step_coordination(&mut self, server: usize) -> Vec<String> {
        let now = self.server_now(server);
        let up = self.servers[server].up.as_mut();
        let Some(up) = up.filter(|up| matches!(up.doing, Doing::Steps)) else {
            return Vec::new();
        };
        let Some(attending) = up.attending.as_mut().filter(|of| of.due <= now) else {
            return Vec::new();
        };
        attending.step_leaving(&up.node, now);
        attending.due = attending.membership.step(now);
        if let Some(due) = attending.master.step(now) {
            attending.due = attending.due.min(due);
        }
        if attending.leaving.is_some() {
            attending.due = attending.due.min(now + LOOK_EVERY);
        }
        let is_there = attending.membership.is_there();
        let has_ended = attending.was_there && !is_there;
        attending.was_there = is_there;
        let tally = attending.master.tally();
        let counts = [
            (SESSIONS_ENDED, u64::from(has_ended)),
            (ELECTIONS, tally.elections - attending.elections),
            (CONFLICTS, tally.conflicts - attending.conflicts),
        ];
        (attending.elections, attending.conflicts) = (tally.elections, tally.conflicts);
        let steps: Vec<GroupStep> = attending.master.take_steps().collect();
        for (name, count) in counts {
            self.coverage.add(name, count);
        }
        for step in &steps {
            count_step(step, &mut self.coverage);
        }
        steps.iter().map(in_words).collect()
    }

    /// Reads the region map, if it has changed. Returns in words what has.
    pub(crate) fn observe(&mut self) -> Vec<String> {
        let now = self.now();
        let Some(coordination) = &mut self.coordination else {
            return Vec::new();
        };
        let mut has_changed = false;
        while let Some(event) = coordination.observer.poll(now) {
            has_changed |= matches!(event, CoordinatorEvent::MayHaveChanged { .. });
        }
        if !has_changed {
            return Vec::new();
        }
        coordination.look_at_jobs(now);
        let stored = jobs::stored(&mut coordination.observer.clone(), now);
        let stored = stored.expect("masters write maps");
        if Some(stored.version) == coordination.version() {
            return Vec::new();
        }
        let map = (*stored.map).clone();
        coordination.stored = Some(stored);
        let before = std::mem::replace(&mut self.map, map);
        let regions = before.regions().iter().zip(self.map.regions());
        let changed: Vec<_> = regions.filter(|(before, after)| before != after).collect();
        let is_up = |server: ServerId| self.up(server.0 as usize).is_some();
        let demoted = changed
            .iter()
            .filter(|(before, after)| before.primary != after.primary && is_up(before.primary));
        let demoted = demoted.count();
        let groups = changed.iter();
        let back = self.coordination.as_mut().map_or(0, |coordination| {
            let back = groups.map(|(before, after)| coordination.regrouped(before, after));
            back.sum()
        });
        let words = changed.iter().map(|(_, after)| after.to_string()).collect();
        self.coverage.add(DEMOTED, demoted as u64);
        self.coverage.add(RETURNED, back);
        words
    }

    /// How many epochs a region has had since the map was `before`: the most of all regions.
    pub(crate) fn epochs_since(&self, before: &ClusterMap) -> u32 {
        let regions = before.regions().iter().zip(self.map.regions());
        let epochs = regions.map(|(before, now)| now.epoch.0 - before.epoch.0);
        epochs.max().unwrap_or_default()
    }

    /// Writes a change of the map that no master has made.
    pub(super) fn write_map(&mut self) {
        let now = self.now();
        if let Some(coordination) = &mut self.coordination {
            coordination.write(&self.map, now);
        }
    }

    /// Something goes wrong between a server and the coordinator, or is mended.
    pub(crate) fn suffer(&mut self, server: usize, trouble: Trouble) {
        let Some(coordination) = &mut self.coordination else {
            return;
        };
        let way = &mut coordination.ways[server];
        match trouble {
            Trouble::CutOff => way.is_cut = true,
            Trouble::Connect => way.is_cut = false,
            Trouble::Delay(delay) => way.delay = delay,
            Trouble::LoseRequests(_) | Trouble::LoseReplies(_) => {}
        }
        self.coverage
            .add(OUTAGES, u64::from(trouble == Trouble::CutOff));
        let up = self.servers[server].up.as_ref();
        let attending = up.and_then(|up| up.attending.as_ref());
        for handle in attending.iter().flat_map(|of| &of.handles) {
            handle.suffer(trouble);
        }
    }

    /// What masters have done that they may not, if they have.
    pub(crate) fn wrong_of_masters(&self) -> Option<String> {
        let coordination = self.coordination.as_ref()?;
        coordination.jobs.wrong.lock().take()
    }

    /// Why the groups are not what they should be, or `None`. One may have more members than it needs: a spare was
    /// filled in place of a server that came back.
    pub(super) fn lacks_of_groups(&self) -> Option<String> {
        let coordination = self.coordination.as_ref()?;
        for region in self.map.regions() {
            let copies = usize::try_from(self.map.copies()).unwrap_or(usize::MAX);
            if region.state != RegionState::Serving
                || region.members.len() < copies
                || !region.filling.is_empty()
            {
                return Some(region.to_string());
            }
        }
        let attending = |server| self.up(server)?.attending.as_ref();
        let version = coordination.version();
        let has_old = |server: &usize| {
            attending(*server).is_none_or(|of| Some(of.membership.map_version()) != version)
        };
        if let Some(old) = self.indices().find(has_old) {
            return Some(format!("server {old} does not know the region map"));
        }
        let leads =
            |server| attending(server).is_some_and(|of| of.master.role() == MasterRole::Leading);
        match self.indices().any(leads) {
            true => None,
            false => Some("no master leads".to_owned()),
        }
    }

    // --- What may be lost ---

    /// Whether each region keeps copies that are whole, and count, on servers that are not among `gone`: whatever a
    /// master has done, or does for what it has been asked. Where the last promotion comes to nothing since power is
    /// lost, the members before it count, too.
    pub(crate) fn keeps_all_without(&mut self, gone: &BTreeSet<usize>, loss: Loss) -> bool {
        let removed = self.removals();
        let Some(coordination) = &self.coordination else {
            return true;
        };
        let least = match loss {
            Loss::Power => 1,
            // Groups do not open with fewer members that have something.
            Loss::Device => coordination.of.plan.min_copies,
        };
        let sent = coordination.sent.lock();
        let counts = |region: &Region, server: usize| {
            let member = id(server);
            let in_map = |map: &ClusterMap| {
                let there = map.region(region.id);
                there.is_some_and(|there| {
                    let may_count = loss == Loss::Power && there.since == region.since;
                    let is_last = there.last.contains(&member) && may_count;
                    there.members.contains(&member) || is_last && self.never_opens(region)
                })
            };
            let all = sent.values().all(|change| match change {
                Change::Map(map) => in_map(map),
                Change::Report(_) => true,
            });
            all && in_map(&self.map) && !removed.contains(&(region.id, member))
        };
        self.map.regions().iter().all(|region| {
            let servers = self.indices().filter(|server| !gone.contains(server));
            let kept = servers
                .filter(|server| self.is_whole(*server, region.id) && counts(region, *server));
            kept.count() >= least
        })
    }

    /// Whether a region has not been opened since its last promotion, for certain, so that the members before still
    /// count: the server that was promoted has not heard of it.
    fn never_opens(&self, region: &Region) -> bool {
        let up = self.between_steps(region.primary.0 as usize);
        let own = up.and_then(|up| up.node.map().region(region.id).map(|of| of.since));
        own.is_some_and(|since| since < region.since)
    }

    /// Members whose removal has been asked for, or would be now.
    fn removals(&mut self) -> BTreeSet<(RegionId, ServerId)> {
        let mut reports = Vec::new();
        for server in self.indices() {
            let now = self.server_now(server);
            if let Some(up) = self.between_steps(server) {
                reports.push(up.node.report_to_master(now));
            }
        }
        let (now, servers) = (self.now(), self.indices());
        if let Some(coordination) = &mut self.coordination {
            for server in servers {
                let entry = coordination.read(&report_key(id(server)), now);
                reports.extend(ServerReport::parse(&entry.value));
            }
            for change in coordination.sent.lock().values() {
                if let Change::Report(report) = change {
                    reports.push((**report).clone());
                }
            }
        }
        let mut removed = BTreeSet::new();
        for (region, wish) in reports.iter().flat_map(|report| &report.wishes) {
            removed.extend(wish.remove.iter().map(|server| (*region, *server)));
        }
        removed
    }

    /// Whether a server's copy is certain to hold all that was acknowledged while its server was a member.
    fn is_whole(&self, server: usize, region: RegionId) -> bool {
        match self.up(server) {
            // One that is inside a step cannot be asked.
            Some(_) => self
                .between_steps(server)
                .is_some_and(|up| up.node.inspect().standing(region) == Some(Standing::Whole)),
            None => self.servers[server].whole.contains(&region),
        }
    }

    /// What a server keeps in its memory when its process ends.
    pub(super) fn note_whole(&mut self, server: usize, node: &Node) {
        let regions = self.map.regions().iter().map(|region| region.id);
        let whole = |region: &RegionId| node.inspect().standing(*region) == Some(Standing::Whole);
        self.servers[server].whole = regions.filter(whole).collect();
    }

    /// Counts regions that two servers take themselves for primaries of.
    pub(crate) fn count_primaries(&mut self) {
        if self.coordination.is_none() {
            return;
        }
        for region in self.map.regions() {
            let serves = |server: &usize| {
                let up = self.between_steps(*server);
                up.is_some_and(|up| up.node.inspect().committed(region.id).is_some())
            };
            if self.indices().filter(serves).count() > 1 {
                self.coverage.add(TWO_PRIMARIES, 1);
            }
        }
    }
}

/// What is counted.
pub(crate) const RAISED: &str = "regions raised";
pub(crate) const RAISED_REFUSED: &str = "claims refused";
pub(crate) const PROMOTED: &str = "regions promoted, whole";
pub(crate) const PROMOTED_CUT: &str = "regions promoted, cut";
pub(crate) const REMOVED: &str = "members removed";
pub(crate) const ADDED: &str = "members added";
pub(crate) const RETURNED: &str = "members that came back";
pub(crate) const FILLED: &str = "copies to be filled";
pub(crate) const ELECTIONS: &str = "masters elected";
pub(crate) const CONFLICTS: &str = "changes of masters that came late";
pub(crate) const SESSIONS_ENDED: &str = "sessions that ended while a server was up";
pub(crate) const DEMOTED: &str = "primaries that others took the place of while they were up";
pub(crate) const OUTAGES: &str = "servers cut off from the coordinator";
pub(crate) const TWO_PRIMARIES: &str = "moments with two primaries";

fn count_step(step: &GroupStep, coverage: &mut Coverage) {
    match step {
        GroupStep::Raise { reason, .. } => {
            coverage.add(RAISED, 1);
            coverage.add(RAISED_REFUSED, u64::from(*reason == RaiseReason::Refused));
        }
        GroupStep::Promote { claim, .. } => {
            let is_cut = claim.status == CopyStatus::Cut;
            coverage.add(if is_cut { PROMOTED_CUT } else { PROMOTED }, 1);
        }
        GroupStep::Regroup { change, .. } => {
            coverage.add(REMOVED, change.remove.len() as u64);
            coverage.add(ADDED, change.add.len() as u64);
            coverage.add(FILLED, change.fill.len() as u64);
        }
    }
}

fn in_words(step: &GroupStep) -> String {
    match step {
        GroupStep::Raise {
            region,
            primary,
            reason,
        } => format!("{region} is raised: {primary} is lost, {reason:?}"),
        GroupStep::Promote {
            region,
            primary,
            claim,
        } => format!("{region} is given to {primary}: {claim:?}"),
        GroupStep::Regroup { region, change } => format!("{region} has another group: {change:?}"),
    }
}
