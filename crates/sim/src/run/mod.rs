//! One run: a seed from its beginning to its end.
//!
//! A *tick* moves the clock on by a little, lets the fabric, the devices and the servers do some of
//! what they have to do, each at its own pace, takes the answers and asks something new. Everything
//! else is ticks: until so much has been asked, until so much time has passed, until every region
//! is whole.
//!
//! 1. All servers start, and the region opens.
//! 2. The plan's episodes ([`crate::plan`]).
//! 3. Everything is mended, and from then on every request has to succeed.
//! 4. The members are compared, and the histories judged; all servers are stopped and started
//!    again, and both is done once more (`finish`).

mod asking;
mod bringing;
mod clients;
mod harm;
mod repeats;
mod snapshots;
mod transactions;
mod wrongs;

use std::time::Duration;

use argosy_base::{Direction, DurabilityMode, Instant};
use argosy_server::service::Response;

use crate::asks::Chooser;
use crate::budget;
use crate::cluster::Cluster;
use crate::coverage::{self, Coverage};
use crate::depend::Depend;
use crate::erase::Erase;
use crate::finish::Ending;
use crate::full;
use crate::leases;
use crate::leaving::Leavers;
use crate::load::{Answer, Expect, Load, Wrong};
use crate::maintain;
use crate::many;
use crate::moved::AskingFormer;
use crate::objects::Objects;
use crate::partitions;
use crate::plan::{Episode, Plan};
use crate::planted::Mutants;
use crate::profile::Profile;
use crate::random::Random;
use crate::small::Aim;
use crate::words::Words;
pub(crate) use bringing::Bringing;
use clients::Clients;
use repeats::Repeats;
use snapshots::{HeldSnapshots, read_all};
use transactions::Transactions;
use wrongs::Harm;

/// How long, in simulated time, every region may take to be whole again once nothing is wrong.
const WHOLE_WITHIN: Duration = Duration::from_secs(20);
/// How much longer than its deadline a request may take to be answered.
const ANSWER_SLACK: Duration = Duration::from_secs(1);
/// Operations while something is wrong, at most, in an episode.
const TROUBLED_OPS_MAX: usize = 160;

/// What a run is told beside its seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// A planted mistake.
    pub mutants: Mutants,
    /// What a seed stands for.
    pub profile: Profile,
    /// Print what happens.
    pub print: bool,
}

/// How a run went.
pub struct RunReport {
    /// What the checkers found wrong, if anything.
    pub wrong: Option<Wrong>,
    /// What has happened.
    pub coverage: Coverage,
    /// Of everything that happened: the same for every run of a seed.
    pub hash: u64,
    /// The last lines of the log.
    pub recent: Vec<String>,
    /// Simulated time.
    pub time: Duration,
}

/// How eagerly clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As much as may be under way.
    Full,
    /// About one request a millisecond, or in several.
    Slow,
    /// Nothing.
    None,
}

/// See the module documentation.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) objects: Objects,
    pub(crate) cluster: Cluster,
    pub(crate) load: Load,
    pub(crate) words: Words,
    pub(crate) asks: Asks,
    pub(crate) clients: Clients,
    pub(crate) random: Random,
    pub(crate) held: HeldSnapshots,
    /// How requests may be answered at present.
    pub(crate) expect: Expect,
    pub(crate) harm: Harm,
    pub(crate) pacing: Pacing,
}

/// What chooses what the load asks.
pub(crate) struct Asks {
    chooser: Chooser,
    pub(crate) depend: Depend,
    erase: Erase,
}

/// How far a run is.
#[derive(Default)]
pub(crate) struct Pacing {
    pub(crate) ticks: u64,
    /// How long nothing has happened.
    idle: u32,
    troubled_ops: usize,
    /// Milliseconds between two of them.
    troubled_every: usize,
}

/// Runs `seed`.
#[must_use]
pub fn run(seed: u64, options: &RunOptions) -> RunReport {
    let mut run = Run::new(seed, options);
    let mut wrong = run.go().err();
    if let Some(two) = run.clients.moved.take_wrong() {
        wrong = Some(wrong.map_or_else(|| two.clone(), |wrong| format!("{wrong}; {two}")));
    }
    if run.harm.no_room_to_return {
        // That is so for ever: what was answered is all that there is to judge.
        run.cluster.coverage.add(coverage::NO_ROOM_TO_RETURN, 1);
        let why = wrong.take().unwrap_or_default();
        run.say(format_args!("the run ends early: {why}"));
        wrong = run.judge().err();
    }
    if let Some(wrong) = &wrong {
        run.say(format_args!("WRONG: {wrong}"));
    }
    run.cluster.count_faults();
    RunReport {
        wrong,
        coverage: std::mem::take(&mut run.cluster.coverage),
        hash: run.words.hash(),
        recent: run.words.recent().map(str::to_owned).collect(),
        time: run.cluster.now().since(Instant::default()),
    }
}

impl Run {
    fn new(seed: u64, options: &RunOptions) -> Self {
        let plan = Plan::of(seed, options.profile);
        let objects = Objects::new(plan.objects, plan.regions, &mut Random::new(seed, 2));
        let mut machines = Random::new(seed, 3);
        let mut held = HeldSnapshots::default();
        // They show what is committed, which may be less than what was acknowledged.
        held.allow(plan.groups.durability != DurabilityMode::LastFlush);
        let cluster = Cluster::new(&plan, &objects, options.mutants, &mut machines);
        Self {
            load: Load::new(
                objects.len(),
                plan.regions,
                plan.devices.small.is_some() || plan.devices.fails,
            )
            .on_devices_that_fail(plan.devices.fails),
            asks: Asks {
                chooser: Chooser::new(&plan, Random::new(seed, 4)),
                depend: Depend::new(&plan, seed),
                erase: Erase::new(&plan, seed),
            },
            clients: Clients::new(&plan, seed),
            random: Random::new(seed, 5),
            words: Words::new(options.print),
            plan,
            objects,
            cluster,
            held,
            expect: Expect::Anything,
            harm: Harm::new(seed),
            pacing: Pacing::default(),
        }
    }

    pub(crate) fn say(&mut self, what: std::fmt::Arguments<'_>) {
        self.words.say(self.cluster.now(), what);
    }

    fn go(&mut self) -> Result<(), Wrong> {
        let (kind, regions, cost) = (
            self.plan.kind,
            self.plan.regions,
            self.plan.devices.read_cost,
        );
        self.say(format_args!(
            "{kind:?} world of {regions} regions, {} objects; a read takes {cost:?}",
            self.objects.len()
        ));
        self.start_all()?;
        self.wait_whole(Pace::None)?;
        Bringing::of(self).bring(many::SEGMENTS_EARLY)?;
        for (index, episode) in std::mem::take(&mut self.plan.episodes).iter().enumerate() {
            let small = self.plan.devices.small.as_ref();
            self.asks.chooser.aim = small.map_or(Aim::Anything, |small| small.aim(index));
            self.episode(episode)?;
        }
        self.asks.chooser.aim = Aim::Anything;
        Ending::of(self).finish()?;
        Bringing::of(self).count()
    }

    fn episode(&mut self, episode: &Episode) -> Result<(), Wrong> {
        let until = self.load.next_op() as usize + episode.calm_ops;
        while (self.load.next_op() as usize) < until {
            self.tick(Pace::Full)?;
        }
        self.pacing.troubled_ops = TROUBLED_OPS_MAX;
        self.pacing.troubled_every = self.clients.moved.begin();
        self.say(format_args!(
            "an episode of {} events",
            episode.events.len()
        ));
        let (begin, before) = (self.cluster.now(), self.cluster.map.clone());
        for (after, event) in &episode.events {
            while self.cluster.now() < begin + *after {
                self.tick(Pace::Slow)?;
            }
            self.happen(*event)?;
        }
        if let Some(most) = episode.epochs_max {
            let epochs = self.cluster.epochs_since(&before);
            let span = self.cluster.now().since(begin);
            self.say(format_args!("{epochs} epochs at most, in {span:?}"));
            self.cluster.coverage.add(partitions::EPOCHS, epochs.into());
            if epochs > most {
                return Err(format!(
                    "a region had {epochs} epochs in {span:?}, and {most} are due at most"
                ));
            }
        }
        self.mend()?;
        if episode.wait || self.plan.loses_ends() {
            self.finish_episode()?;
        }
        Ok(())
    }

    /// Waits until everything is as it should be, and looks at all of it.
    pub(crate) fn finish_episode(&mut self) -> Result<(), Wrong> {
        self.wait_whole(Pace::Slow)?;
        self.recount()?;
        self.sweep()
    }

    pub(crate) fn forget_snapshots(&mut self) {
        self.held.clear();
        self.clients.leases.clear();
    }

    /// Ticks until every region is whole.
    pub(crate) fn wait_whole(&mut self, pace: Pace) -> Result<(), Wrong> {
        let begin = self.cluster.now();
        let within = self
            .plan
            .devices
            .many
            .map_or(WHOLE_WITHIN, |_| many::WHOLE_WITHIN);
        while let Some(lacks) = self.cluster.lacks() {
            if self.cluster.now().since(begin) > within {
                let mut failed = self.cluster.failed_copies();
                if self.plan.devices.small.is_some() {
                    failed.push_str(&full::space_in_words(
                        &self.cluster,
                        self.plan.engine.layout.segment_bytes,
                    ));
                    self.harm.no_room_to_return = full::has_no_room(&self.cluster);
                }
                return Err(format!(
                    "not whole again within {within:?}: {lacks}{failed}"
                ));
            }
            self.tick(pace)?;
        }
        let took = self.cluster.now().since(begin);
        self.say(format_args!("every region is whole, after {took:?}"));
        self.heal()?;
        self.harm.lost.clear();
        self.harm.emptied.clear();
        self.load.devices.damaged = false;
        Ok(())
    }

    /// Finds out what regions hold whose only process ended.
    fn recount(&mut self) -> Result<(), Wrong> {
        if self.harm.uncounted.is_empty() {
            return Ok(());
        }
        self.drain()?;
        self.clients.leases.clear();
        for (region, end) in std::mem::take(&mut self.harm.uncounted) {
            let server = self.cluster.primary_of(region);
            let node = &self.cluster.up(server).expect("every server is up").node;
            let id = self.cluster.map.regions()[region].id;
            let snapshot = node.inspect().snapshot(id).expect("the region is open");
            let pairs = read_all(
                &*snapshot,
                &self.objects.region_ranges()[region],
                self.random.pick(&[Direction::Up, Direction::Down]),
            )?;
            let lost = self.load.recount(&self.objects, region, pairs, end)?;
            self.cluster.coverage.add("prefixes after power loss", 1);
            self.cluster
                .coverage
                .add("writes lost with power", lost as u64);
            self.held.forget_region(region);
            self.say(format_args!(
                "region {} has lost its last {lost} writes",
                region + 1
            ));
        }
        Ok(())
    }

    /// Judges all histories.
    pub(crate) fn judge(&mut self) -> Result<(), Wrong> {
        let judged = self.load.judge(&self.objects)?;
        self.cluster
            .coverage
            .add("outcomes proven by order", judged.proven as u64);
        self.cluster
            .coverage
            .add("histories undecided", judged.undecided as u64);
        self.say(format_args!("every history is possible"));
        Ok(())
    }

    /// Ticks until nothing is under way.
    pub(crate) fn drain(&mut self) -> Result<(), Wrong> {
        while !self.load.pending().is_empty() || self.clients.are_busy() {
            self.tick(Pace::None)?;
        }
        Ok(())
    }

    // --- Ticks ---

    /// See the module documentation.
    pub(crate) fn tick(&mut self, pace: Pace) -> Result<(), Wrong> {
        self.pacing.ticks += 1;
        let span = if self.pacing.idle == 0 {
            self.random.micros(5, 120)
        } else {
            self.random.micros(20, 100 << self.pacing.idle.min(5))
        };
        self.cluster.clock.advance(span);
        self.walls();
        let now = self.cluster.now();
        let mut busy = self.cluster.world.step(now) > 0;
        let mut order: Vec<usize> = self.cluster.indices().collect();
        self.random.shuffle(&mut order);
        for server in order {
            busy |= self.step(server)?;
        }
        self.clocks_reached();
        self.observe()?;
        busy |= self.answers()?;
        self.overdue()?;
        budget::look(&mut self.cluster, self.pacing.ticks)?;
        self.hold_snapshots(pace != Pace::None)?;
        busy |= self.ask_some(pace, span)?;
        busy |= AskingFormer::of(self).go_on()?;
        busy |= self.ask_long(pace != Pace::None)?;
        busy |= self.ask_bulk_load(pace != Pace::None)?;
        busy |= self.ask_changes(pace != Pace::None)?;
        busy |= Transactions::of(self).go_on(pace != Pace::None)?;
        busy |= Repeats::of(self).go_on(pace != Pace::None)?;
        busy |= self.ask_leases(pace != Pace::None)?;
        busy |= self.ask_maintenance(pace != Pace::None)?;
        busy |= Bringing::of(self).ask(pace != Pace::None)?;
        self.pacing.idle = if busy { 0 } else { self.pacing.idle + 1 };
        Ok(())
    }

    /// Sets a clock now and then.
    fn walls(&mut self) {
        if let Some((server, began)) = self.asks.depend.skew() {
            self.cluster.set_wall(server, began);
        }
        self.clocks_reached();
    }

    /// Notes how far clocks have gone. Where reads cost time, they go on in a step and in a call, too.
    pub(super) fn clocks_reached(&mut self) {
        let walls = self
            .cluster
            .indices()
            .map(|server| self.cluster.wall(server));
        let reached = walls.max().unwrap_or_default();
        self.load.time_reached(reached);
        let right = self.cluster.right_time();
        self.clients
            .changes
            .time_reached(right, self.load.expiries.reached());
    }

    /// Takes note of changes to groups.
    fn observe(&mut self) -> Result<(), Wrong> {
        if self.plan.groups.changes.is_none() {
            return Ok(());
        }
        let changed = self.cluster.observe();
        if !changed.is_empty() {
            self.clients.leases.excuse();
        }
        for region in changed {
            self.say(format_args!("the map has {region}"));
        }
        self.cluster.count_primaries();
        AskingFormer::of(self).look();
        match self.cluster.wrong_of_masters() {
            Some(wrong) => Err(wrong),
            None => Ok(()),
        }
    }

    /// Moves one server on.
    fn step(&mut self, server: usize) -> Result<bool, Wrong> {
        let mut requests = self.random.below(5);
        let pace = self.cluster.pace(server);
        if pace < 100 && !self.harm.failing.chance(pace) {
            requests = 0;
        }
        let mut busy = self.cluster.run_device(server, requests);
        let does_steps = self.cluster.active(server).is_some();
        let (fabric, background) = (self.random.chance(90), self.random.chance(70));
        // Where reads cost time, it has gone on since the last one.
        if fabric {
            busy |= self.cluster.step_fabric(server);
        }
        self.bury(server)?;
        if background {
            busy |= self.cluster.step_background(server);
        }
        self.bury(server)?;
        if self.plan.groups.changes.is_some() {
            for done in self.cluster.step_coordination(server) {
                self.say(format_args!("{done}"));
            }
            self.bury(server)?;
            Leavers::of(self).go_on(server)?;
        }
        busy |= self.cluster.step_worker(server);
        self.bury(server)?;
        if does_steps && self.cluster.is_halted(server) {
            self.say(format_args!("server {server} does nothing, inside a step"));
        }
        Ok(busy)
    }

    pub(crate) fn bury(&mut self, server: usize) -> Result<(), Wrong> {
        let Some(up) = self.cluster.up(server) else {
            return Ok(());
        };
        if up.crash_point.is_dead() {
            self.hear(server)?;
            let session = self.cluster.bury(server);
            self.ended(server, session, "has died in the middle");
        }
        Ok(())
    }

    /// Takes late answers. Returns whether there were any.
    pub(crate) fn answers(&mut self) -> Result<bool, Wrong> {
        let mut any = false;
        for server in self.cluster.indices() {
            any |= self.hear(server)?;
        }
        Ok(any)
    }

    /// Takes what a server has answered, before it died if it has. That it did not apply a write
    /// is known then, too: later ones may have been applied.
    fn hear(&mut self, server: usize) -> Result<bool, Wrong> {
        let answers = match self.cluster.up(server) {
            Some(up) => up.mailbox.take(),
            None => Vec::new(),
        };
        let any = !answers.is_empty();
        if any {
            self.clocks_reached();
        }
        for (token, response) in answers {
            if (leases::TOKEN..maintain::TOKEN).contains(&token) {
                self.answer_lease(token, response)?;
                continue;
            }
            let coverage = &mut self.cluster.coverage;
            let Some(response) = self.clients.answer(token, response, coverage)? else {
                continue;
            };
            let op = u32::try_from(token).expect("a token is an operation");
            self.answered(op, response)?;
        }
        Ok(any)
    }

    fn answered(&mut self, op: u32, response: Response) -> Result<(), Wrong> {
        self.clocks_reached();
        let now = self.cluster.now();
        self.words
            .say(now, format_args!("op {op}: {}", in_short(&response)));
        let server = self
            .load
            .pending()
            .get(&op)
            .map(|pending| pending.asking.server);
        let failed = server.is_some_and(|server| self.cluster.failure(server).is_some());
        if failed && matches!(response, Response::Value(Some(_))) {
            let name = "reads on a device that has failed";
            self.cluster.coverage.add(name, 1);
        }
        let answer = Answer {
            op,
            at: now,
            response,
        };
        self.load
            .answer(&self.objects, answer, &mut self.cluster.coverage)
    }

    /// Every request is answered soon after its deadline, by a server that does something.
    fn overdue(&mut self) -> Result<(), Wrong> {
        let now = self.cluster.now();
        for (op, pending) in self.load.pending().iter().take(4) {
            let Some(up) = self.cluster.active(pending.asking.server) else {
                continue;
            };
            let since = pending.asking.at.max(up.since);
            if now.since(since) > self.plan.load.deadline + ANSWER_SLACK {
                return Err(format!(
                    "op {op}, asked of server {}, is not answered",
                    pending.asking.server
                ));
            }
        }
        if let Some((server, asked)) = self.clients.maintainer.pending()
            && let Some(up) = self.cluster.active(server)
            && now.since(asked.max(up.since)) > self.plan.load.deadline * 5 / 4 + ANSWER_SLACK
        {
            return Err(format!(
                "maintenance, asked of server {server}, is not answered"
            ));
        }
        Ok(())
    }
}

fn in_short(response: &Response) -> String {
    match response {
        Response::Value(None) => "nothing".to_owned(),
        Response::Value(Some(value)) => format!("{} bytes", value.len()),
        Response::Versioned { version, .. } => format!("version {version}"),
        Response::Values(values) => format!("{} values", values.len()),
        Response::Written { applied: true, .. } => "applied".to_owned(),
        Response::Written { applied: false, .. } => "refused".to_owned(),
        Response::Page { pairs, next } => {
            let more = if next.is_some() { ", and more" } else { "" };
            format!("{} pairs{more}", pairs.len())
        }
        Response::Count(count) => format!("about {count}"),
        Response::Done => "done".to_owned(),
        Response::Failed(error) => format!("failed: {error}"),
        other => format!("{other:?}"),
    }
}
