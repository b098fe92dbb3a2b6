//! What goes wrong in a run, and how it is mended.

use std::time::Duration;

use argosy_base::Instant;

use super::Run;
use crate::cluster::Started;
use crate::coverage;
use crate::load::Wrong;
use crate::plan::{Event, SERVERS, WorldKind};

/// How long ago a write has to be for its loss with the power not to be excused by the time that a
/// flush takes.
const FLUSH_SLACK: Duration = Duration::from_millis(300);

impl Run {
    pub(super) fn happen(&mut self, event: Event) -> Result<(), Wrong> {
        self.answers()?;
        self.leases.excuse();
        match event {
            Event::Kill(server) => {
                let ended = self.cluster.kill(server);
                self.ended(server, ended, "is killed");
            }
            Event::KillAfter(server, effects) => {
                if let Some(up) = self.cluster.up(server) {
                    up.mortal.die_after(effects);
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
            Event::Stop(server) | Event::Resume(server) => {
                let stop = matches!(event, Event::Stop(_));
                self.cluster.set_stopped(server, stop);
                let how = if stop { "does nothing" } else { "goes on" };
                self.say(format_args!("server {server} {how}"));
            }
            Event::Stall(server) | Event::Unstall(server) => {
                let stall = matches!(event, Event::Stall(_));
                self.cluster.set_stalled(server, stall);
                self.stalled |= stall;
                let how = if stall { "does nothing" } else { "goes on" };
                self.say(format_args!("the device of server {server} {how}"));
            }
            Event::Fail(server, op, count) => {
                if self.cluster.up(server).is_some() {
                    self.faulted.insert(server);
                    self.cluster.fail_device(server, op, count);
                    self.say(format_args!(
                        "the device of server {server} fails at {op} {count}"
                    ));
                }
            }
            Event::Full(server) | Event::Room(server) => {
                let full = matches!(event, Event::Full(_));
                if self.cluster.up(server).is_some() {
                    self.cluster.set_full(server, full);
                    let what = if full { "no room" } else { "room" };
                    self.say(format_args!("the device of server {server} has {what}"));
                }
            }
        }
        Ok(())
    }

    /// Takes power from servers, as far as that leaves a member of each region what it had.
    fn power(&mut self, bits: u8) {
        let mut servers: Vec<usize> = Vec::new();
        for server in (0..SERVERS).filter(|server| bits & 1 << server != 0) {
            let others = self.lost.iter().filter(|lost| **lost != server).count();
            if self.plan.kind == WorldKind::Powerless || others + 1 < SERVERS {
                self.lost.insert(server);
                servers.push(server);
            }
        }
        let now = self.cluster.now();
        let durable_by = now.as_nanos().saturating_sub(
            u64::try_from((self.plan.engine.flush_interval + FLUSH_SLACK).as_nanos()).unwrap_or(0),
        );
        for server in &servers {
            let by = if self.stalled { 0 } else { durable_by };
            self.expect_to_hold(*server, Instant::from_nanos(by));
        }
        if !servers.is_empty() {
            self.say(format_args!("servers {servers:?} lose power"));
            for session in self.cluster.cut_power(&servers) {
                self.forget(session);
            }
        }
    }

    /// The process of a server has ended without loss of power.
    pub(super) fn ended(&mut self, server: usize, session: Option<u32>, how: &str) {
        if let Some(session) = session {
            self.say(format_args!("server {server} {how}"));
            self.expect_to_hold(server, self.cluster.now());
            self.forget(session);
        }
    }

    /// Ends the processes whose device has failed, or may fail still.
    fn end_faulted(&mut self) -> Result<(), Wrong> {
        self.answers()?;
        for server in 0..SERVERS {
            if self.cluster.found_no_room_to_open(server) {
                self.faulted.insert(server);
                let coverage = &mut self.cluster.coverage;
                coverage.add(coverage::NO_ROOM_TO_OPEN, 1);
            }
        }
        for server in std::mem::take(&mut self.faulted) {
            let loses = self.failing.chance(50);
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

    fn forget(&mut self, session: u32) {
        self.snapshots.retain(|held| held.session != session);
        self.load.lost(session, &mut self.cluster.coverage);
        self.longs.lost(session);
        self.bulks.lost(session);
        self.changes.lost(session);
        self.leases.lost(session);
    }

    /// Whatever a single copy applied by `moment` has to be there when its server is back.
    fn expect_to_hold(&mut self, server: usize, moment: Instant) {
        if self.plan.kind == WorldKind::Powerless {
            for region in 0..self.plan.regions {
                if self.cluster.primary_of(region) == server {
                    let least = self.load.applied_by(region, moment);
                    self.uncounted.entry(region).or_insert(least);
                }
            }
        }
    }

    pub(super) fn start(&mut self, server: usize, die_after: Option<u64>) -> Result<(), Wrong> {
        match self.cluster.start(server, die_after) {
            Started::Up => self.say(format_args!("server {server} is up")),
            Started::Died => self.say(format_args!("server {server} died while it started")),
            Started::Refused(why) => return Err(format!("server {server} cannot start: {why}")),
        }
        Ok(())
    }

    pub(crate) fn start_all(&mut self) -> Result<(), Wrong> {
        for server in 0..SERVERS {
            if self.cluster.up(server).is_none() {
                self.start(server, None)?;
            }
        }
        Ok(())
    }

    /// Undoes all harm.
    pub(crate) fn mend(&mut self) -> Result<(), Wrong> {
        self.leases.excuse();
        self.cluster.world.heal_all();
        for server in 0..SERVERS {
            self.cluster.set_stopped(server, false);
            self.cluster.set_stalled(server, false);
            self.cluster.set_full(server, false);
            if let Some(up) = self.cluster.up(server) {
                up.mortal.die_after(u64::MAX);
            }
        }
        self.stalled = false;
        self.end_faulted()?;
        self.start_all()?;
        self.say(format_args!("everything is mended"));
        Ok(())
    }
}
