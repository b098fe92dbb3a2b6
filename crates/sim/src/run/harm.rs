//! What goes wrong in a run, and how it is mended.

use std::collections::BTreeSet;
use std::time::Duration;

use argosy_base::Instant;

use super::{Pace, Run};
use crate::alone::BesideFailed;
use crate::asks::Ask;
use crate::cluster::{REFUSED, Started};
use crate::coverage;
use crate::damaging::Damage;
use crate::failover::{Loss, Trouble};
use crate::judge::ProcessEnd;
use crate::leaving::Leavers;
use crate::load::Wrong;
use crate::lone::Keeps;
use crate::moved::AskingFormer;
use crate::objects::ObjectKey;
use crate::plan::{Event, SERVERS};

/// How long ago a write has to be for its loss with the power not to be excused by the time that a
/// flush takes.
const FLUSH_SLACK: Duration = Duration::from_millis(300);

/// Within so long members have repaired each other's levels.
const HEALED_WITHIN: Duration = Duration::from_secs(120);

/// Between two looks whether they have.
const HEALING_TICKS: usize = 200;

/// Requests of all kinds while a device is damaged and all else is well, and so many reads besides.
const LOOKS_MAX: usize = 60;

impl Run {
    pub(super) fn happen(&mut self, event: Event) -> Result<(), Wrong> {
        self.answers()?;
        self.clients.leases.excuse();
        match event {
            Event::Kill(server) => {
                let ended = self.cluster.kill(server);
                self.ended(server, ended, "is killed");
            }
            Event::KillAfter(server, effects) => {
                if let Some(up) = self.cluster.up(server) {
                    up.crash_point.die_after(effects);
                    self.say(format_args!(
                        "server {server} will die after {effects} effects"
                    ));
                }
            }
            Event::Close(server) => {
                if self.cluster.active(server).is_some() {
                    let ended = self.cluster.close(server);
                    self.ended(server, ended, "is stopped cleanly");
                }
            }
            Event::Leave(server) => Leavers::of(self).begin(server),
            Event::Power(servers) => self.power(servers),
            Event::Start(server, die_after) => {
                if self.cluster.up(server).is_none() {
                    self.start(server, die_after)?;
                }
            }
            Event::Cut(from, to) | Event::Heal(from, to) => {
                let cut = matches!(event, Event::Cut(..));
                self.cluster.set_cut(from, to, cut);
                let how = if cut { "is cut" } else { "is healed" };
                self.say(format_args!("the link from {from} to {to} {how}"));
            }
            Event::Stop(_) | Event::Halt(..) | Event::Resume(_) => {
                self.harm.stalled |= self.plan.loses_ends();
                AskingFormer::of(self).stop(event)?;
            }
            Event::Stall(_)
            | Event::Unstall(_)
            | Event::Slow(..)
            | Event::Fail(..)
            | Event::FailCopy(..)
            | Event::Scarce(..)
            | Event::Full(_)
            | Event::Room(_) => self.happen_to_device(event),
            Event::Damage(..) | Event::Replace(_) => self.lose(event)?,
            Event::Spoil(server, alone) => self.spoil(server, alone),
            Event::Lone(server) => self.leave_alone(server, Keeps::Memory)?,
            Event::LonePowerless(server) => self.leave_alone(server, Keeps::Device)?,
            Event::Coordinator(server, trouble) => {
                self.cluster.suffer(server, trouble);
                self.say(format_args!(
                    "server {server} and the coordinator: {trouble:?}"
                ));
            }
            Event::Flip(permille) => {
                self.cluster.wire.set(permille);
                self.say(format_args!("bits flip in {permille} of 1000 writes"));
            }
        }
        Ok(())
    }

    /// A device does nothing, or less, for a while; or fails.
    fn happen_to_device(&mut self, event: Event) {
        match event {
            Event::Stall(server) | Event::Unstall(server) => {
                let stall = matches!(event, Event::Stall(_));
                self.cluster.set_stalled(server, stall);
                self.harm.stalled |= stall;
                let how = if stall { "does nothing" } else { "goes on" };
                self.say(format_args!("the device of server {server} {how}"));
            }
            Event::Fail(server, op, count) => {
                // It may lose what is not durable, as with the power.
                let up = self.cluster.up(server).is_some();
                if up && self.may_lose_power(server, &mut BTreeSet::new()) {
                    self.harm.faulted.insert(server);
                    self.cluster.fail_device(server, op, count);
                    self.say(format_args!(
                        "the device of server {server} fails at {op} {count}"
                    ));
                }
            }
            Event::FailCopy(server, region) => self.fail_copy(server, region),
            Event::Scarce(server, count) => self.refuse_memory(server, count),
            Event::Full(server) | Event::Room(server) => {
                let full = matches!(event, Event::Full(_));
                if self.cluster.up(server).is_some() {
                    self.cluster.set_full(server, full);
                    let what = if full { "no room" } else { "room" };
                    self.say(format_args!("the device of server {server} has {what}"));
                }
            }
            Event::Slow(server, percent) => {
                self.cluster.set_pace(server, percent);
                self.say(format_args!(
                    "the device of server {server} goes on in {percent} of 100 moments"
                ));
            }
            _ => {}
        }
    }

    /// A device is damaged, or replaced, where that leaves a member of each region what it had.
    fn lose(&mut self, event: Event) -> Result<(), Wrong> {
        match event {
            Event::Damage(server, damage) if self.may_lose_device(server) => {
                match damage {
                    Damage::Levels(_) => self.harm.healing.insert(server),
                    Damage::Window(_) => self.harm.rotten.insert(server),
                    _ => self.harm.damaged.insert(server),
                };
                self.load.damage();
                self.cluster
                    .damage(server, damage, &mut self.harm.chances.damaging);
                let what = match damage {
                    Damage::Window(_) => "the windows",
                    _ => "the device",
                };
                self.say(format_args!("{what} of server {server}: {damage:?}"));
            }
            Event::Replace(server) if self.may_lose_device(server) => {
                return self.replace(server);
            }
            _ => {}
        }
        Ok(())
    }

    /// All others lose their devices, where every region is whole at this moment.
    fn leave_alone(&mut self, server: usize, keeps: Keeps) -> Result<(), Wrong> {
        let hurt = self
            .cluster
            .indices()
            .find(|server| self.harm.is_hurt(*server));
        let hurt = hurt.map(|hurt| format!("the device of server {hurt} may be damaged"));
        if let Some(lacks) = hurt.or_else(|| self.cluster.lacks()) {
            self.say(format_args!("server {server} is not left alone: {lacks}"));
            return Ok(());
        }
        // Every member has all of it.
        self.harm.lost.clear();
        self.harm.emptied.clear();
        if keeps == Keeps::Device {
            self.power(1 << server);
        }
        for other in self.cluster.indices().filter(|other| *other != server) {
            self.harm.emptied.insert(other);
            self.replace(other)?;
        }
        self.cluster.coverage.add("members left alone", 1);
        Ok(())
    }

    /// Whether a server may lose power together with those that are `going`, so that a member of each region keeps
    /// what it had; if so, it does.
    fn may_lose_power(&mut self, server: usize, going: &mut BTreeSet<usize>) -> bool {
        let may = self.plan.loses_power() || self.may_be_gone(server, going, Loss::Power);
        if may {
            self.harm.lost.insert(server);
        }
        may
    }

    /// Whether a member of each region keeps what it had, without what `server` has and those that are `going`. If so,
    /// it is one of these.
    fn may_be_gone(&mut self, server: usize, going: &mut BTreeSet<usize>, loss: Loss) -> bool {
        if self.plan.groups.changes.is_none() {
            return self.harm.others_gone(server) + 1 < SERVERS;
        }
        let mut gone = going.clone();
        gone.insert(server);
        let may = self.cluster.keeps_all_without(&gone, loss);
        if may {
            *going = gone;
        }
        may
    }

    /// The same of all that is on its device.
    fn may_lose_device(&mut self, server: usize) -> bool {
        let may = self.may_be_gone(server, &mut BTreeSet::new(), Loss::Device);
        if may {
            self.harm.emptied.insert(server);
        }
        may
    }

    /// The copies of a server are filled anew: until then it has lost what it had.
    pub(crate) fn expects_refill(&mut self, server: usize) {
        self.harm.emptied.insert(server);
    }

    /// Takes power from servers, as far as that leaves a member of each region what it had.
    pub(crate) fn power(&mut self, bits: u8) {
        let mut servers: Vec<usize> = self
            .cluster
            .indices()
            .filter(|server| bits & 1 << server != 0)
            .collect();
        let mut going = BTreeSet::new();
        servers.retain(|server| self.may_lose_power(*server, &mut going));
        let now = self.cluster.now();
        let flush = self.plan.engine.logs.flush_interval + FLUSH_SLACK;
        let flush = u64::try_from(flush.as_nanos()).unwrap_or(0);
        for server in &servers {
            let down = self.cluster.up(*server).is_none();
            let ended = self.harm.ended.get(server).filter(|_| down);
            let ended = *ended.unwrap_or(&now);
            self.harm.ended.insert(*server, ended);
            let durable = ended.as_nanos().saturating_sub(flush);
            let by = if self.harm.stalled { 0 } else { durable };
            let flushed = self.clients.maintainer.flushed();
            self.expect_to_hold(*server, flushed.max(Instant::from_nanos(by)));
        }
        if !servers.is_empty() {
            self.say(format_args!("servers {servers:?} lose power"));
            for session in self.cluster.cut_power(&servers) {
                self.forget(session);
            }
        }
    }

    /// The process of a server has ended without loss of power.
    pub(crate) fn ended(&mut self, server: usize, session: Option<u32>, how: &str) {
        if let Some(session) = session {
            self.say(format_args!("server {server} {how}"));
            self.harm.ended.insert(server, self.cluster.now());
            self.expect_to_hold(server, self.cluster.now());
            self.forget(session);
        }
    }

    /// Ends the processes whose device has failed, or may fail still.
    fn end_faulted(&mut self) -> Result<(), Wrong> {
        self.answers()?;
        for server in self.cluster.indices() {
            if self.cluster.found_no_room_to_open(server) {
                self.harm.faulted.insert(server);
                let coverage = &mut self.cluster.coverage;
                coverage.add(coverage::NO_ROOM_TO_OPEN, 1);
            }
        }
        for server in std::mem::take(&mut self.harm.faulted) {
            let loses = self.harm.failing.chance(50);
            let failure = self.cluster.failure(server);
            let how = match &failure {
                Some(error) => format!("ends, since its device has failed: {error}"),
                None => "ends, since its device may fail".to_owned(),
            };
            let loses = loses && failure.is_some();
            let ended = self.cluster.end_failed(server, loses);
            self.ended(server, ended, &how);
        }
        Ok(())
    }

    /// Has damaged devices used for a while, and then replaced.
    fn end_damage(&mut self) -> Result<(), Wrong> {
        if self.harm.damaged.is_empty() && self.harm.healing.is_empty() {
            return Ok(());
        }
        self.use_damaged()?;
        let hurt = std::mem::take(&mut self.harm.damaged);
        for server in hurt.iter().copied() {
            self.cluster.count_noticed(server);
        }
        // Who began with nothing beside a damaged member may have its damage.
        for server in self.harm.emptied.clone() {
            if !self.harm.healing.contains(&server) || hurt.contains(&server) {
                self.replace(server)?;
            }
        }
        self.start_all()
    }

    /// Asks for this and that while something is damaged, and for all objects.
    fn use_damaged(&mut self) -> Result<(), Wrong> {
        self.pacing.troubled_ops = self.pacing.troubled_ops.max(LOOKS_MAX);
        let until = self.cluster.now() + self.harm.chances.damaging.micros(5_000, 150_000);
        while self.cluster.now() < until {
            self.tick(Pace::Slow)?;
        }
        let looks = self
            .harm
            .chances
            .damaging
            .between(1, 1 + self.objects.len() / LOOKS_MAX);
        for object in (0..self.objects.len()).step_by(looks) {
            let key = ObjectKey::first(object);
            self.ask_alone(Ask::Get { key })?;
            self.tick(Pace::None)?;
        }
        self.answers()?;
        Ok(())
    }

    /// Has damaged windows used for a while, and then recovered from: a copy that was opened has been read as far as
    /// its logs go.
    fn end_rot(&mut self) -> Result<(), Wrong> {
        if self.harm.rotten.is_empty() {
            return Ok(());
        }
        self.use_damaged()?;
        for server in self.harm.rotten.clone() {
            self.cluster.count_noticed(server);
        }
        let (all, powerless) = self.ends_rot();
        for server in self.cluster.indices() {
            if all || self.harm.rotten.contains(&server) {
                let ended = self.cluster.kill(server);
                self.ended(server, ended, "is killed, for what windows hold");
            }
        }
        self.power(powerless);
        self.start_all()
    }

    /// Whether all servers are killed at the end of an episode with damaged windows, and who loses power.
    fn ends_rot(&mut self) -> (bool, u8) {
        match self.harm.chances.damaging.below(4) {
            0 => (false, 0),
            1 => (false, 1 << self.harm.chances.damaging.below(SERVERS)),
            2 => (true, 1 << self.harm.chances.damaging.below(SERVERS)),
            _ => (true, 0),
        }
    }

    /// Waits until the members have repaired each other. All regions are open.
    pub(super) fn heal(&mut self) -> Result<(), Wrong> {
        let (healing, rotten) = (&mut self.harm.healing, &mut self.harm.rotten);
        if std::mem::take(healing).is_empty() && std::mem::take(rotten).is_empty() {
            return Ok(());
        }
        // A snapshot may have segments that no version has any more: nobody repairs those.
        self.held.clear();
        let until = self.cluster.now() + HEALED_WITHIN;
        loop {
            let mut servers = self.cluster.indices();
            let found = servers.find_map(|server| self.cluster.look_through(server).pop());
            let Some(damage) = found else {
                return Ok(());
            };
            if self.cluster.now() > until {
                return Err(format!("this was not repaired: {damage}"));
            }
            for _ in 0..HEALING_TICKS {
                self.tick(Pace::None)?;
            }
        }
    }

    /// A device is lost for good, and an empty one put in its place. The server takes it only when an operator
    /// says so.
    fn replace(&mut self, server: usize) -> Result<(), Wrong> {
        self.harm.damaged.remove(&server);
        self.harm.healing.remove(&server);
        self.harm.rotten.remove(&server);
        let ended = self
            .cluster
            .replace_device(server, &mut self.harm.chances.damaging);
        self.ended(server, ended, "ends");
        self.say(format_args!("the device of server {server} is replaced"));
        match self.cluster.allow_new_device(server) {
            false => Ok(()),
            true => Err(format!(
                "server {server} takes an empty device for its own, and nobody said that it is new"
            )),
        }
    }

    /// Whether what a server reads from its device may be damaged: it may have it from a damaged one.
    pub(crate) fn may_be_damaged(&self, server: usize) -> bool {
        self.harm.is_hurt(server)
            || self.load.devices.damaged && self.harm.emptied.contains(&server)
    }

    fn forget(&mut self, session: u32) {
        self.held.forget_session(session);
        self.load.lost(session, &mut self.cluster.coverage);
        self.clients.lost(session);
    }

    /// Whatever a primary that may lose the end applied by `moment` has to be there when its server is back.
    fn expect_to_hold(&mut self, server: usize, moment: Instant) {
        if !self.plan.loses_ends() {
            return;
        }
        for region in 0..self.plan.regions {
            if self.cluster.primary_of(region) == server {
                let at_least = self.load.orders.applied_by(region, moment);
                let end = ProcessEnd {
                    at_least,
                    moment: self.load.last_moment(),
                };
                let known = self.harm.uncounted.entry(region).or_insert(end);
                known.at_least = known.at_least.min(at_least);
            }
        }
    }

    pub(crate) fn start(&mut self, server: usize, die_after: Option<u64>) -> Result<(), Wrong> {
        match self.cluster.start(server, die_after) {
            Started::Up => self.say(format_args!("server {server} is up")),
            Started::Died => self.say(format_args!("server {server} died while it started")),
            Started::Refused(why) if self.harm.damaged.contains(&server) => {
                self.cluster.coverage.add(REFUSED, 1);
                self.say(format_args!("server {server} cannot start: {why}"));
            }
            Started::Refused(why) => return Err(format!("server {server} cannot start: {why}")),
        }
        Ok(())
    }

    pub(crate) fn start_all(&mut self) -> Result<(), Wrong> {
        for server in self.cluster.indices() {
            if self.cluster.up(server).is_none() {
                self.start(server, None)?;
            }
        }
        Ok(())
    }

    /// Undoes all harm.
    pub(crate) fn mend(&mut self) -> Result<(), Wrong> {
        self.clients.leases.excuse();
        self.clients.moved.rest();
        self.cluster.world.heal_all();
        self.cluster.wire.set(0);
        for server in self.cluster.indices() {
            self.cluster.set_stopped(server, false);
            self.bury(server)?;
            Leavers::of(self).hurry(server)?;
            self.cluster.set_stalled(server, false);
            self.cluster.set_pace(server, 100);
            self.cluster.set_full(server, false);
            self.cluster.suffer(server, Trouble::Connect);
            self.cluster.suffer(server, Trouble::Delay(Duration::ZERO));
            if let Some(up) = self.cluster.up(server) {
                up.crash_point.die_after(u64::MAX);
                let refused = up.crash_point.end_refusals();
                self.cluster.coverage.add("memory refused", refused);
            }
        }
        self.harm.stalled = false;
        self.end_faulted()?;
        self.unspoil()?;
        self.start_all()?;
        BesideFailed::of(self).go_on()?;
        self.end_damage()?;
        self.end_rot()?;
        self.say(format_args!("everything is mended"));
        Ok(())
    }

    pub(crate) fn fail_copy(&mut self, server: usize, region: usize) {
        let id = self.cluster.map.regions()[region].id;
        if let Some(up) = self.cluster.active(server)
            && up.node.inspect().fail_copy(id)
        {
            self.say(format_args!("the copy of {id} on server {server} fails"));
        }
    }

    pub(crate) fn refuse_memory(&mut self, server: usize, count: u64) {
        if let Some(up) = self.cluster.up(server) {
            up.crash_point.refuse_memory(count);
            self.say(format_args!(
                "server {server} gets no shared memory {count} times"
            ));
        }
    }

    /// The copies of a server cannot be opened when it is back. The other servers lose power, unless it is alone.
    pub(crate) fn spoil(&mut self, server: usize, alone: bool) {
        if !self.harm.all_have_what_they_had() {
            return;
        }
        match alone {
            true => self.expects_refill(server),
            false => self.power(0b111 & !(1 << server)),
        }
        let ended = self.cluster.spoil(server, &mut self.harm.chances.spoiling);
        self.ended(server, ended, "is killed, and its manifests are spoilt");
    }

    /// Undoes that, where it still can be undone.
    pub(crate) fn unspoil(&mut self) -> Result<(), Wrong> {
        for server in self.cluster.indices() {
            let ended = self.cluster.unspoil(server);
            self.ended(
                server,
                ended,
                "is killed, and its manifests are as they were",
            );
        }
        Ok(())
    }
}
