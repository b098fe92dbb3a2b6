//! The model, run with planners in the place of its masters: one region, two to four servers, two masters that read
//! when they like, and failures at random. Leases take no time, as with `Lease = 0` there.
//!
//! 1. An event is drawn from the seed: a server writes, ships, prepares, looks at the map and reports, asks for
//!    changes, is killed, loses its power or its device, starts; a master reads, or takes a step; time passes.
//! 2. After each event the invariants of the model are checked: `OnePrimary`, `NeverBack`, `WholeHolds`.
//! 3. With each change of the map it is checked that it is the next one, that a promotion is for what the promoted
//!    server has reported under that epoch, never for a partial copy, that members voted or were chosen, and that who
//!    is added was asked for.
//! 4. Without a mistake no seed breaks anything. Each planted mistake is found by one of them.

use std::time::Duration;

use argosy_base::{EditSeq, Incarnation, Lsn};
use argosy_coordinator::{
    ClusterMap, CopyReport, EntryVersion, JobLog, MapShards, Presence, PromotionClaim,
    ServerReport, Wish,
};

use super::tests::map;
use super::*;
use crate::cluster::LiveServer;

const REGION: RegionId = RegionId(1);
const STEPS: u32 = 600;
const SEEDS: u64 = 2_000;

/// The generator known as splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    None,
    Opening,
    Serving,
}

/// From whom a member takes writes, and under which epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Allowed {
    peer: usize,
    epoch: Epoch,
}

#[derive(Debug)]
struct Member {
    up: bool,
    incarnation: u64,
    ep: Epoch,
    view: Option<Region>,
    role: Role,
    log: Vec<u32>,
    mark: usize,
    cut: Epoch,
    status: CopyStatus,
    grant: Option<Allowed>,
    done: Vec<usize>,
    commit: usize,
    /// What the coordinator has of it; `None` after its session has ended.
    live: Option<LiveServer>,
}

impl Member {
    fn demote(&mut self) {
        self.view = None;
        self.role = Role::None;
        self.done.fill(0);
        self.commit = 0;
    }
}

struct Reader {
    planner: Planner,
    seen: Option<Cluster>,
}

/// How often something happened, so that the seeds are known to be worth something.
#[derive(Default, Debug)]
struct Counts {
    promotions: u64,
    cuts: u64,
    strangers: u64,
    former: u64,
    removals: u64,
    additions: u64,
    conflicts: u64,
    refusals: u64,
}

struct World {
    random: Random,
    mutants: Mutants,
    map: ClusterMap,
    version: EntryVersion,
    servers: Vec<Member>,
    readers: Vec<Reader>,
    shown: Vec<u32>,
    synced: usize,
    faults: u32,
    now: Instant,
    counts: Counts,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Whether the copy of `server` still is what the claim says.
fn holds(claim: PromotionClaim, server: &Member) -> bool {
    let whole = claim.status == CopyStatus::Whole && claim.member;
    let same = server.cut == claim.cut && server.log.len() as u64 == claim.lsn.0;
    server.status == claim.status && (whole || same)
}

fn name(server: usize) -> ServerId {
    ServerId(u32::try_from(server).unwrap())
}

fn index(id: ServerId) -> usize {
    usize::try_from(id.0).unwrap()
}

impl World {
    fn new(seed: u64, mutants: Mutants) -> Self {
        let mut random = Random(seed);
        let count = 2 + random.index(3);
        let copies = 2 + random.index(count.min(3) - 1);
        let map = map(
            u32::try_from(count).unwrap(),
            1,
            u32::try_from(copies).unwrap(),
        );
        let server = |id: usize| {
            let is_member = id < copies;
            Member {
                up: true,
                incarnation: 1,
                ep: Epoch(1),
                view: (id == 0).then(|| map.regions()[0].clone()),
                role: if id == 0 { Role::Serving } else { Role::None },
                log: Vec::new(),
                mark: 0,
                cut: Epoch(u32::from(is_member)),
                status: match is_member {
                    true => CopyStatus::Whole,
                    false => CopyStatus::Partial,
                },
                grant: (id != 0 && is_member).then_some(Allowed {
                    peer: 0,
                    epoch: Epoch(1),
                }),
                done: vec![0; count],
                commit: 0,
                live: None,
            }
        };
        let settings = PlanSettings {
            leave_after: Duration::ZERO,
            min_copies: 1 + random.index(5) / 4,
            report_within: Duration::from_millis(100),
            open_within: Duration::from_secs(2),
            replace_after: Duration::from_secs(1),
            absent_after: Duration::from_secs(1),
            rejoin_after: Duration::from_millis(100),
            rejoin_after_most: Duration::from_secs(2),
            map: MapBounds::default(),
        };
        let now = Instant::from_nanos(1);
        let reader = |_| Reader {
            planner: Planner::new(settings, mutants, now),
            seen: None,
        };
        let mut world = Self {
            servers: (0..count).map(server).collect(),
            readers: (0..2).map(reader).collect(),
            faults: 2 + u32::try_from(random.below(8)).unwrap(),
            map,
            version: EntryVersion(1),
            mutants,
            shown: Vec::new(),
            synced: 0,
            now,
            counts: Counts::default(),
            random,
        };
        (0..count).for_each(|id| world.say(id));
        world
    }

    fn region(&self) -> &Region {
        &self.map.regions()[0]
    }

    /// Writes what `s` is and has to the coordinator.
    fn say(&mut self, s: usize) {
        let region = self.region().clone();
        let version = self.version;
        let wish = self.wish(s);
        let me = &mut self.servers[s];
        let mut report = ServerReport {
            incarnation: Incarnation(me.incarnation),
            map: version,
            ..ServerReport::default()
        };
        let in_doubt = region.state == RegionState::Recovering && me.ep == region.epoch;
        // Who has lost its device and is in no group has no copy.
        let has_copy = me.cut > Epoch(0) || !me.log.is_empty();
        if in_doubt || has_copy && !region.has(name(s)) {
            let copy = CopyReport {
                epoch: me.ep,
                status: me.status,
                cut: me.cut,
                edit: EditSeq(0),
                lsn: Lsn(me.log.len() as u64),
            };
            report.copies.insert(REGION, copy);
        }
        let mine = region.primary == name(s) && region.state == RegionState::Serving;
        if mine && me.ep == region.epoch && me.view.is_none() {
            report.refused.insert(REGION, region.epoch);
            self.counts.refusals += 1;
        }
        if me.role == Role::Opening {
            report.opening.insert(REGION);
        }
        report.wishes.extend(wish.map(|wish| (REGION, wish)));
        let mut unreachable = BTreeSet::new();
        if self.random.one_in(6) {
            unreachable.insert(name(self.random.index(self.servers.len())));
        }
        self.servers[s].live = Some(LiveServer {
            presence: Presence {
                incarnation: report.incarnation,
                leaving: self.random.one_in(40),
                heard: self.random.one_in(2).then(|| name(0)).into_iter().collect(),
                unreachable,
            },
            report: Some(report),
        });
    }

    fn wish(&mut self, s: usize) -> Option<Wish> {
        let view = self.servers[s].view.clone()?;
        let mut wish = Wish {
            epoch: view.epoch,
            ..Wish::default()
        };
        for other in (0..self.servers.len()).filter(|other| *other != s) {
            let id = name(other);
            let patience = if self.servers[other].up { 30 } else { 2 };
            if view.members.contains(&id) && self.random.one_in(patience) {
                wish.remove.push(id);
            } else if view.filling.contains(&id) && self.has_caught_up(s, other) {
                wish.add.push(id);
            } else if !view.has(id) && self.random.one_in(8) {
                wish.fill.push(id);
            }
        }
        Some(wish)
    }

    fn is_attached(&self, p: usize, m: usize) -> bool {
        let epoch = self.servers[p].view.as_ref().map(|view| view.epoch);
        let grant = self.servers[m].grant;
        grant.is_some() && grant == epoch.map(|epoch| Allowed { peer: p, epoch })
    }

    fn has_caught_up(&self, p: usize, m: usize) -> bool {
        let primary = &self.servers[p];
        primary.role == Role::Serving && self.is_attached(p, m) && primary.commit <= primary.done[m]
    }

    fn others(&self, p: usize) -> Vec<usize> {
        let members = self.servers[p].view.iter().flat_map(|view| &view.members);
        members.map(|id| index(*id)).filter(|m| *m != p).collect()
    }

    fn commit(&mut self, p: usize) {
        let me = &self.servers[p];
        if me.role == Role::Serving {
            let held = self.others(p).into_iter().map(|m| me.done[m]);
            let held = held.fold(me.log.len(), usize::min);
            let commit = me.commit.max(held);
            self.servers[p].commit = commit;
        }
    }

    fn is_open(&self, p: usize) -> bool {
        let me = &self.servers[p];
        let Some(view) = me
            .view
            .as_ref()
            .filter(|_| me.up && me.role == Role::Serving)
        else {
            return false;
        };
        let grants = |m: &usize| self.servers[*m].up && self.servers[*m].ep <= view.epoch;
        self.others(p).iter().all(grants)
    }

    fn step(&mut self) -> Result<(), String> {
        let s = self.random.index(self.servers.len());
        let m = self.random.index(self.servers.len());
        // Most of what a server does it does as a primary.
        let leads: Vec<_> = (0..self.servers.len())
            .filter(|s| self.servers[*s].view.is_some())
            .collect();
        let p = match leads.is_empty() || self.random.one_in(8) {
            true => s,
            false => leads[self.random.index(leads.len())],
        };
        match self.random.below(100) {
            0..8 => self.write(p),
            8..22 => self.land(p, m),
            22..26 => self.flush(s),
            26..38 => self.reveal(p),
            38..50 => self.prepare(p, m),
            50..52 => self.adopt(p, m),
            52..57 => self.make_whole(p, m),
            57..68 => self.look(s),
            68..73 => self.serve(p),
            73..76 => self.now = self.now + Duration::from_millis(self.random.below(900)),
            76..78 => self.fail(s),
            78..84 => self.start(s),
            84..86 => {
                let me = &mut self.servers[s];
                me.live = me.live.take().filter(|_| me.up);
            }
            86..89 => self.now = self.now + Duration::from_millis(self.random.below(900)),
            89..94 => self.read(),
            _ => self.plan()?,
        }
        self.check()
    }

    fn write(&mut self, p: usize) {
        let me = &mut self.servers[p];
        if let Some(view) = me.view.as_ref()
            && me.up
            && me.role == Role::Serving
            && me.log.len() < 12
        {
            me.log.push(view.epoch.0);
            self.commit(p);
        }
    }

    /// A one-sided write lands: only the grant counts.
    fn land(&mut self, p: usize, m: usize) {
        let lsn = self.servers[p].done[m];
        let entry = self.servers[p].log.get(lsn).copied();
        let log = &mut self.servers[m].log;
        if let Some(entry) = entry
            && p != m
            && lsn <= log.len()
            && self.is_attached(p, m)
        {
            let log = &mut self.servers[m].log;
            match log.get_mut(lsn) {
                Some(place) => *place = entry,
                None => log.push(entry),
            }
            self.servers[p].done[m] = lsn + 1;
            self.commit(p);
        }
    }

    fn flush(&mut self, m: usize) {
        if self.servers[m].up {
            self.servers[m].mark = self.servers[m].log.len();
            self.sync();
        }
    }

    /// How much of what was seen every member has on its device.
    fn sync(&mut self) {
        let on_device = |id: &ServerId| {
            let member = &self.servers[index(*id)];
            member.mark.min(common(&member.log, &self.shown))
        };
        let synced = self.region().members.iter().map(on_device).min();
        self.synced = self.synced.max(synced.unwrap_or_default());
    }

    fn reveal(&mut self, p: usize) {
        if self.is_open(p) {
            self.shown = self.servers[p].log[..self.servers[p].commit].to_vec();
            self.sync();
        }
    }

    fn prepare(&mut self, p: usize, m: usize) {
        let Some(view) = self.servers[p].view.clone() else {
            return;
        };
        let (primary, member) = (&self.servers[p], &self.servers[m]);
        let serves = primary.role == Role::Serving;
        let is_filled = view.filling.contains(&name(m));
        let may = p != m
            && primary.up
            && member.up
            && view.has(name(m))
            && member.ep <= view.epoch
            && !self.is_attached(p, m)
            && (serves || !is_filled);
        if !may {
            return;
        }
        let kept = common(&member.log, &primary.log);
        let cut = primary.cut;
        let member = &mut self.servers[m];
        member.demote();
        member.ep = view.epoch;
        member.grant = Some(Allowed {
            peer: p,
            epoch: view.epoch,
        });
        member.log.truncate(kept);
        member.mark = member.mark.min(kept);
        member.cut = cut;
        if is_filled {
            member.status = CopyStatus::Partial;
        }
        self.servers[p].done[m] = kept;
        self.commit(p);
    }

    fn adopt(&mut self, p: usize, m: usize) {
        let (primary, member) = (&self.servers[p], &self.servers[m]);
        let Some(view) = primary.view.as_ref() else {
            return;
        };
        let claimed = view.claim.map_or(Epoch(0), |claim| claim.cut);
        let may = primary.up
            && member.up
            && primary.role == Role::Opening
            && self.others(p).contains(&m)
            && !self.is_attached(p, m)
            && member.ep <= view.epoch
            && member.status != CopyStatus::Partial
            && member.cut == claimed
            && primary.log.len() < member.log.len()
            && common(&primary.log, &member.log) == primary.log.len();
        if may {
            self.servers[p].log = member.log.clone();
        }
    }

    fn make_whole(&mut self, p: usize, m: usize) {
        let both = self.servers[p].up && self.servers[m].up;
        if both && self.others(p).contains(&m) && self.has_caught_up(p, m) {
            self.servers[m].status = CopyStatus::Whole;
        }
    }

    /// `s` looks at the map, and says what it has.
    fn look(&mut self, s: usize) {
        if !self.servers[s].up {
            return;
        }
        let region = self.region().clone();
        let concerned = region.has(name(s)) || region.last.contains(&name(s));
        let me = &mut self.servers[s];
        if region.state == RegionState::Recovering && concerned && me.ep <= region.epoch {
            me.demote();
            me.ep = region.epoch;
            me.grant = None;
        } else if me.ep < region.epoch && (me.view.is_some() || region.primary == name(s)) {
            self.take(s, &region);
        }
        self.say(s);
    }

    fn take(&mut self, s: usize, region: &Region) {
        let me = &mut self.servers[s];
        let mine = region.state == RegionState::Serving && region.primary == name(s);
        let since = me.view.as_ref().map(|view| view.since);
        let claim_holds = region.claim.is_some_and(|claim| holds(claim, me));
        let opens = match me.cut < region.since {
            true => claim_holds,
            false => me.status == CopyStatus::Whole,
        };
        me.ep = region.epoch;
        if mine && since == Some(region.since) {
            me.view = Some(region.clone());
            me.done.fill(0);
            self.commit(s);
            return;
        }
        me.demote();
        me.grant = None;
        if mine && opens {
            me.view = Some(region.clone());
            me.role = Role::Opening;
            me.cut = region.since;
        }
    }

    fn serve(&mut self, s: usize) {
        let length = self.servers[s].log.len();
        let is_equal = |m: &usize| self.is_attached(s, *m) && self.servers[s].done[*m] == length;
        let may = self.servers[s].up && self.servers[s].role == Role::Opening;
        if may && self.others(s).iter().all(is_equal) {
            let me = &mut self.servers[s];
            me.role = Role::Serving;
            me.status = CopyStatus::Whole;
            me.commit = length;
        }
    }

    fn fail(&mut self, s: usize) {
        if self.faults == 0 {
            return;
        }
        self.faults -= 1;
        let kind = self.random.below(10);
        let me = &mut self.servers[s];
        me.up = false;
        if kind < 3 {
            return;
        }
        me.demote();
        me.grant = None;
        me.log.truncate(me.mark);
        if me.status == CopyStatus::Whole {
            me.status = CopyStatus::Cut;
        }
        if kind == 9 {
            me.log.clear();
            (me.mark, me.cut, me.status) = (0, Epoch(0), CopyStatus::Partial);
        }
    }

    fn start(&mut self, s: usize) {
        if self.servers[s].up {
            return;
        }
        let region = self.region().clone();
        let me = &mut self.servers[s];
        me.up = true;
        me.incarnation += 1;
        me.demote();
        me.grant = None;
        self.take(s, &region);
        self.say(s);
    }

    fn read(&mut self) {
        let live = self.servers.iter().enumerate();
        let live = live.filter_map(|(s, me)| Some((name(s), me.live.clone()?)));
        let cluster = Cluster {
            map: Arc::new(self.map.clone()),
            shards: MapShards::default(),
            version: self.version,
            jobs: JobLog::default(),
            jobs_version: EntryVersion(0),
            servers: live.collect(),
        };
        let reader = self.random.index(self.readers.len());
        self.readers[reader].seen = Some(cluster);
    }

    fn plan(&mut self) -> Result<(), String> {
        let reader = self.random.index(self.readers.len());
        let reader = &mut self.readers[reader];
        let Some(seen) = reader.seen.clone() else {
            return Ok(());
        };
        let Some(next) = reader.planner.step(&seen, self.now).map else {
            return Ok(());
        };
        reader.seen = None;
        if seen.version != self.version && !self.mutants.no_compare() {
            self.counts.conflicts += 1;
            return Ok(());
        }
        self.change(&seen, Arc::unwrap_or_clone(next))
    }

    /// The map is `next` now, which was planned from what was `seen`.
    fn change(&mut self, seen: &Cluster, next: ClusterMap) -> Result<(), String> {
        let (old, new) = (self.region().clone(), next.regions()[0].clone());
        let demand = |holds: bool, what: &str| match holds {
            true => Ok(()),
            false => Err(format!("{what}: {old:?} -> {new:?}")),
        };
        demand(
            new.epoch == old.epoch.next(),
            "an epoch is not the next one",
        )?;
        if new.since == old.since {
            let wish = seen.wish(&old).cloned().unwrap_or_default();
            let came = new.members.iter().filter(|id| !old.members.contains(id));
            let came: Vec<_> = came.collect();
            let asked = |id: &&ServerId| wish.add.contains(id);
            demand(came.iter().all(asked), "who is added has not caught up")?;
            self.counts.additions += came.len() as u64;
            self.counts.removals += u64::from(new.members.len() < old.members.len());
        } else {
            let report = seen.copy(new.primary, &old);
            let report = report.ok_or("who is promoted has not reported")?;
            let claim = new.claim.ok_or("a promotion without a claim")?;
            demand(
                report.status != CopyStatus::Partial,
                "a partial copy is promoted",
            )?;
            demand(report.status == claim.status, "a claim is not the report")?;
            let same = (report.cut, report.lsn) == (claim.cut, claim.lsn);
            demand(same, "a claim is not the report")?;
            let voted = |id: &ServerId| *id == new.primary || new.last.contains(id);
            demand(
                new.members.iter().all(voted),
                "who is a member did not vote",
            )?;
            let min = self.readers[0].planner.settings.min_copies;
            demand(min <= new.members.len(), "too few members")?;
            self.counts.promotions += 1;
            self.counts.cuts += u64::from(claim.status == CopyStatus::Cut);
            self.counts.strangers += u64::from(!claim.member);
            self.counts.former += u64::from(new.last != old.members);
            let chosen = &self.servers[index(new.primary)];
            let remains = self.remains(&old, &chosen.log);
            // What has changed since the report it does not open.
            let opens = chosen.up && holds(claim, chosen);
            let keeps = remains <= common(&self.shown, &chosen.log);
            demand(keeps || !opens, "what was seen is given up")?;
            self.shown.truncate(remains);
            self.synced = self.synced.min(remains);
        }
        self.map = next;
        self.version.0 += 1;
        // The worst moment to fail is before anybody knows of it.
        if new.since != old.since && self.random.one_in(4) {
            self.fail(index(new.primary));
        }
        Ok(())
    }

    /// What of `shown` may not be given up, by what is really there.
    fn remains(&self, old: &Region, log: &[u32]) -> usize {
        let primary = &self.servers[index(old.primary)];
        let never_opened = primary.cut < old.since && primary.status != CopyStatus::Partial;
        let voters = if never_opened {
            &old.last
        } else {
            &old.members
        };
        let has = |status| {
            let mut all = voters.iter().map(|id| self.servers[index(*id)].status);
            all.any(|found| found == status)
        };
        let kept = common(&self.shown, log);
        match (has(CopyStatus::Whole), has(CopyStatus::Cut)) {
            (true, _) => self.shown.len(),
            (false, true) => kept.max(self.synced),
            (false, false) => kept,
        }
    }

    fn check(&self) -> Result<(), String> {
        let open: Vec<_> = (0..self.servers.len())
            .filter(|s| self.is_open(*s))
            .collect();
        if open.len() > 1 {
            return Err("two primaries could answer".to_owned());
        }
        let holds = |log: &[u32]| common(&self.shown, log) == self.shown.len();
        for s in open {
            let me = &self.servers[s];
            if !holds(&me.log[..me.commit]) {
                return Err(format!("what was seen is lost: {:?}, {me:?}", self.shown));
            }
        }
        for id in &self.region().members {
            let me = &self.servers[index(*id)];
            if me.status == CopyStatus::Whole && !holds(&me.log) {
                return Err(format!("a whole copy is none: {:?}, {me:?}", self.shown));
            }
        }
        Ok(())
    }
}

/// Runs `seeds` with a mistake, up to the first that breaks something.
fn run(seeds: u64, mutants: Mutants, counts: &mut Counts) -> Result<(), String> {
    for seed in 0..seeds {
        let mut world = World::new(seed, mutants);
        for step in 0..STEPS {
            let stepped = world.step();
            stepped.map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
        }
        let new = world.counts;
        counts.promotions += new.promotions;
        counts.cuts += new.cuts;
        counts.strangers += new.strangers;
        counts.former += new.former;
        counts.removals += new.removals;
        counts.additions += new.additions;
        counts.conflicts += new.conflicts;
        counts.refusals += new.refusals;
    }
    Ok(())
}

#[test]
fn nothing_that_was_seen_is_lost() {
    let mut counts = Counts::default();
    run(SEEDS, Mutants::default(), &mut counts).unwrap();
    let Counts {
        promotions,
        cuts,
        strangers,
        former,
        removals,
        additions,
        conflicts,
        refusals,
    } = counts;
    for count in [
        promotions, cuts, strangers, former, removals, additions, conflicts, refusals,
    ] {
        assert!(count > 10, "{counts:?}");
    }
}

#[test]
fn every_mistake_is_found() {
    // Others are found where they matter: killed_tests.rs, apart_tests.rs.
    let of_plans =
        |name: &&&str| !["note_after_act", "act_unelected", "rejoin_at_once"].contains(*name);
    for name in Mutants::NAMES.iter().filter(of_plans) {
        let mut mutants = Mutants::default();
        assert!(mutants.plant(name));
        let found = run(8 * SEEDS, mutants, &mut Counts::default());
        assert!(found.is_err(), "{name} is not found");
    }
}
