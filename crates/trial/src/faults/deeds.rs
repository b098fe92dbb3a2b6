//! How each failure is done, and mended.
//!
//! Servers are killed and stopped by signals to their processes, halted and started by the commands of the playground.
//! What no command does is done to the directory: a device is removed, or is what it was before, and the coordinator's
//! directory gets another name.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use argosy_base::{Clock as _, Instant};
use argosy_device::SystemClock;
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::error::TrialError;
use crate::failures::until_ready;
use crate::faults::AGAIN;
use crate::faults::fault::FaultKind;
use crate::faults::filler::Filler;
use crate::faults::said::{Log, Said, What};
use crate::time::End;

/// How long a server is away.
const AWAY: Duration = Duration::from_secs(4);

/// How long one server is started before the next, where all were killed.
const APART: Duration = Duration::from_secs(1);

/// How long the coordinator's directory is away.
const COORDINATOR_AWAY: Duration = Duration::from_secs(10);

/// How long a primary is halted.
const HALTED: Duration = Duration::from_secs(30);

/// Bytes that are written while a backup is away that is to catch up for long.
const MISSED_BYTES: usize = 24 << 20;

/// Bytes that are written behind the moment to which a device goes back.
const SINCE_BYTES: usize = 6 << 20;

/// How long a moment is waited for in which something is to be done.
const MOMENT_MAX: Duration = Duration::from_secs(15);

/// Where a failure is done.
pub(crate) struct Scene<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The end of the load.
    pub end: &'a End,
    /// What is written beside the load.
    pub filler: &'a Filler,
}

/// When a copy of a device was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    /// Before the last start of its server.
    BeforeItsStart,
    /// Behind that, while the server was halted.
    SinceItsStart,
}

/// What was done.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    /// When.
    pub failed: Instant,
    /// When all servers were started again, or all else was as before.
    pub mended: Instant,
    /// The servers that failed.
    pub servers: Vec<usize>,
    /// The primary of each region when it began, where that was known.
    pub primaries: Vec<Option<usize>>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

impl Scene<'_> {
    /// Does it, and has everything as before.
    ///
    /// # Errors
    /// Something could not be done.
    pub(crate) fn carry_out(&self, kind: FaultKind) -> Result<Deed, TrialError> {
        let master = self.cluster.master()?;
        let others: Vec<_> = (1..self.servers())
            .map(|step| (master + step) % self.servers())
            .collect();
        // One that is not the master, and leads no region where server 0 leads all.
        let other = *others.iter().max().expect("there are three servers");
        let all: Vec<_> = (0..self.servers()).collect();
        match kind {
            FaultKind::BackupKilled | FaultKind::PrimaryKilled => self.killed(&[other]),
            FaultKind::MasterKilled => self.killed(&[master]),
            FaultKind::TwoKilled => self.killed(&[master, other]),
            FaultKind::AllKilledForward => self.all_killed(&all),
            FaultKind::AllKilledBackward => self.all_killed(&[2, 1, 0]),
            FaultKind::AllKilledMiddle => self.all_killed(&[1, 2, 0]),
            FaultKind::KilledInPromotion => self.killed_in_promotion(),
            FaultKind::MasterInRaise => self.with_master(other, Signal::KILL, What::is_raised),
            FaultKind::MasterInPromotion => {
                self.with_master(other, Signal::KILL, What::is_promoted)
            }
            FaultKind::MasterInRemoval => self.with_master(other, Signal::KILL, What::is_regrouped),
            FaultKind::MasterInReturn => self.master_in_return(other),
            FaultKind::MasterInCleanStop => self.with_master(other, Signal::TERM, What::is_raised),
            FaultKind::KilledInCatchUp => self.killed_in_catch_up(other, &[0]),
            FaultKind::LeftInCatchUp => self.killed_in_catch_up(other, &[3 - other, 0]),
            FaultKind::DeviceLost => self.device_lost(other),
            FaultKind::OldDevice => self.old_device(other, &[other], Copied::BeforeItsStart),
            FaultKind::OldDeviceFirst => self.old_device(other, &all, Copied::BeforeItsStart),
            FaultKind::SnapshotFirst => self.old_device(other, &all, Copied::SinceItsStart),
            FaultKind::CoordinatorAway => self.coordinator_away(),
            FaultKind::PrimaryHalted => self.halted(other),
            FaultKind::CleanStop => self.stopped(other),
        }
    }

    fn servers(&self) -> usize {
        self.cluster.servers.len()
    }

    fn wait(&self, span: Duration) {
        self.end.wait_until(SystemClock.now() + span);
    }

    /// A failure of these servers begins now.
    fn begin(&self, servers: &[usize]) -> Deed {
        // Where nobody says, nobody is known.
        let regions = self.cluster.regions().unwrap_or_default();
        let now = SystemClock.now();
        Deed {
            failed: now,
            mended: now,
            servers: servers.to_vec(),
            primaries: regions.iter().map(|region| region.primary).collect(),
            notes: Vec::new(),
        }
    }

    fn kill(&self, servers: &[usize]) -> Result<(), TrialError> {
        for server in servers {
            self.cluster.signal_server(*server, Signal::KILL)?;
        }
        Ok(())
    }

    /// Starts servers, one after the other.
    fn start(&self, servers: &[usize], apart: Duration) -> Result<(), TrialError> {
        for (n, server) in servers.iter().enumerate() {
            if n > 0 {
                self.wait(apart);
            }
            self.cluster.command("restart", *server)?;
        }
        Ok(())
    }

    fn killed(&self, servers: &[usize]) -> Result<Deed, TrialError> {
        let deed = self.begin(servers);
        self.kill(servers)?;
        self.wait(AWAY);
        self.start(servers, Duration::ZERO)?;
        Ok(deed.mended())
    }

    fn all_killed(&self, order: &[usize]) -> Result<Deed, TrialError> {
        let deed = self.begin(order);
        self.kill(order)?;
        self.wait(APART);
        self.start(order, APART)?;
        Ok(deed.mended())
    }

    fn stopped(&self, server: usize) -> Result<Deed, TrialError> {
        let deed = self.begin(&[server]);
        self.cluster.signal_server(server, Signal::TERM)?;
        self.wait(AWAY);
        self.cluster.command("restart", server)?;
        Ok(deed.mended())
    }

    fn halted(&self, server: usize) -> Result<Deed, TrialError> {
        let deed = self.begin(&[server]);
        self.cluster.command("stop", server)?;
        self.wait(HALTED);
        self.cluster.command("cont", server)?;
        Ok(deed.mended())
    }

    /// The primary of all regions is killed, and with it whoever is chosen first to lead one of them.
    fn killed_in_promotion(&self) -> Result<Deed, TrialError> {
        let mut logs = self.logs();
        for log in &mut logs {
            log.news();
        }
        let mut deed = self.begin(&[0]);
        self.kill(&[0])?;
        let chosen = self.until_said(&mut logs, What::is_promoted)?;
        let chosen = match chosen.what {
            What::Promoted(server) => usize::try_from(server).expect("a server of this cluster"),
            _ => unreachable!("it was waited for a promotion"),
        };
        self.kill(&[chosen])?;
        let after = SystemClock.now().since(deed.failed).as_secs_f64();
        deed.servers.push(chosen);
        deed.notes.push(format!(
            "server {chosen} was killed {after:.2} s after server 0"
        ));
        self.wait(AWAY);
        self.start(&[0, chosen], Duration::ZERO)?;
        Ok(deed.mended())
    }

    /// Waits until a server says this of a region.
    fn until_said(&self, logs: &mut [Log], is_it: fn(What) -> bool) -> Result<Said, TrialError> {
        let latest = SystemClock.now() + MOMENT_MAX;
        loop {
            let mut news = logs.iter_mut().flat_map(Log::news);
            if let Some(said) = news.find(|said| is_it(said.what)) {
                return Ok(said);
            }
            if SystemClock.now() > latest {
                return Err(TrialError::Cluster(
                    "no server said what was waited for".to_owned(),
                ));
            }
            self.wait(AGAIN);
        }
    }

    /// The master is killed as soon as it says this of a region. It has recorded it then, and done nothing behind it.
    fn kill_master(
        &self,
        deed: &mut Deed,
        mut log: Log,
        is_it: fn(What) -> bool,
    ) -> Result<(), TrialError> {
        let master = self.cluster.master()?;
        self.until_said(std::slice::from_mut(&mut log), is_it)?;
        self.kill(&[master])?;
        let after = SystemClock.now().since(deed.failed).as_secs_f64();
        deed.notes.push(format!(
            "the master, server {master}, was killed {after:.2} s later"
        ));
        deed.servers.push(master);
        Ok(())
    }

    /// The log of the master, from now on.
    fn master_log(&self) -> Result<Log, TrialError> {
        let mut log = self.logs().swap_remove(self.cluster.master()?);
        log.news();
        Ok(log)
    }

    /// `server` is killed or stopped, and the master at a step of what it does about that.
    fn with_master(
        &self,
        server: usize,
        signal: Signal,
        is_it: fn(What) -> bool,
    ) -> Result<Deed, TrialError> {
        let log = self.master_log()?;
        let mut deed = self.begin(&[server]);
        self.cluster.signal_server(server, signal)?;
        self.kill_master(&mut deed, log, is_it)?;
        self.wait(AWAY);
        self.start(&deed.servers, Duration::ZERO)?;
        Ok(deed.mended())
    }

    /// `server` returns, and the master is killed when the first group has it again.
    fn master_in_return(&self, server: usize) -> Result<Deed, TrialError> {
        self.kill(&[server])?;
        self.wait(AWAY);
        let log = self.master_log()?;
        let mut deed = self.begin(&[server]);
        self.cluster.command("restart", server)?;
        self.kill_master(&mut deed, log, What::is_regrouped)?;
        self.wait(AWAY);
        self.start(&deed.servers[1..], Duration::ZERO)?;
        Ok(deed.mended())
    }

    /// `backup` is away while much is written. While it catches up, `killed` are killed.
    fn killed_in_catch_up(&self, backup: usize, killed: &[usize]) -> Result<Deed, TrialError> {
        self.kill(&[backup])?;
        // Its groups are to go on without it.
        self.wait(AWAY);
        self.filler
            .write(self.cluster.servers[0].resp, MISSED_BYTES)?;
        self.cluster.command("restart", backup)?;
        let seen = self.until_it_catches_up(backup);
        let mut deed = self.begin(killed);
        self.kill(killed)?;
        deed.notes.push(match seen {
            Some(state) => format!("server {backup} was {state} then"),
            None => format!("server {backup} was not seen to catch up"),
        });
        self.wait(AWAY);
        self.start(killed, APART)?;
        deed.servers.push(backup);
        Ok(deed.mended())
    }

    /// Waits until a server is being filled, as server 0 sees it; tells what it saw.
    fn until_it_catches_up(&self, backup: usize) -> Option<String> {
        let latest = SystemClock.now() + MOMENT_MAX;
        while SystemClock.now() < latest {
            let status = self.cluster.status(0).ok();
            let regions = status.into_iter().flat_map(|status| status.regions);
            let mut backups = regions.flat_map(|region| region.backups);
            let is_it = |server: u64| usize::try_from(server).is_ok_and(|server| server == backup);
            let under_way = ["syncing", "reported"];
            let found = backups.find(|of| is_it(of.server) && under_way.contains(&&*of.state));
            if let Some(found) = found {
                return Some(found.state);
            }
            self.wait(Duration::from_millis(2));
        }
        None
    }

    fn device_lost(&self, server: usize) -> Result<Deed, TrialError> {
        let deed = self.begin(&[server]);
        self.kill(&[server])?;
        self.wait(AWAY);
        let device = self.cluster.directory(server).join("device");
        std::fs::remove_file(&device).map_err(TrialError::file("remove", &device))?;
        self.cluster.start_with_new_device(server)?;
        Ok(deed.mended())
    }

    /// The device of `server` goes back in time while `killed`, of which it is one, are away.
    fn old_device(
        &self,
        server: usize,
        killed: &[usize],
        copied: Copied,
    ) -> Result<Deed, TrialError> {
        let device = self.cluster.directory(server).join("device");
        let old = self.cluster.data().with_file_name("device.old");
        match copied {
            Copied::BeforeItsStart => {
                self.kill(&[server])?;
                self.wait(APART);
                copy(&device, &old)?;
                self.cluster.command("restart", server)?;
            }
            Copied::SinceItsStart => {
                self.cluster.command("stop", server)?;
                copy(&device, &old)?;
                self.cluster.command("cont", server)?;
            }
        }
        until_ready(self.cluster, SystemClock.now() + MOMENT_MAX, self.end);
        let beside = (server + 1) % self.servers();
        self.filler
            .write(self.cluster.servers[beside].resp, SINCE_BYTES)?;
        self.wait(APART);
        let mut deed = self.begin(killed);
        self.kill(killed)?;
        self.wait(AWAY);
        std::fs::rename(&old, &device).map_err(TrialError::file("replace", &device))?;
        self.cluster.command("restart", server)?;
        self.wait(AWAY);
        let is_refused = self.cluster.status(server).is_err();
        let others: Vec<_> = killed.iter().copied().filter(|id| *id != server).collect();
        self.start(&others, APART)?;
        deed.notes.push(match is_refused {
            true => format!("server {server} did not start with the old device"),
            false => format!("server {server} started with the old device"),
        });
        if is_refused {
            // As an operator would do whose device is lost.
            std::fs::remove_file(&device).map_err(TrialError::file("remove", &device))?;
            self.cluster.start_with_new_device(server)?;
        }
        Ok(deed.mended())
    }

    fn coordinator_away(&self) -> Result<Deed, TrialError> {
        let here = self.cluster.data().join("coordinator");
        let away = self.cluster.data().join("coordinator.away");
        let deed = self.begin(&[]);
        std::fs::rename(&here, &away).map_err(TrialError::file("rename", &here))?;
        self.wait(COORDINATOR_AWAY);
        std::fs::rename(&away, &here).map_err(TrialError::file("rename", &away))?;
        Ok(deed.mended())
    }

    fn logs(&self) -> Vec<Log> {
        logs_of(self.cluster)
    }
}

impl Deed {
    /// All that is to be done is done now.
    fn mended(self) -> Self {
        Self {
            mended: SystemClock.now(),
            ..self
        }
    }
}

/// The logs of all servers, from their beginning.
#[must_use]
pub(crate) fn logs_of(cluster: &Cluster) -> Vec<Log> {
    let servers = 0..cluster.servers.len();
    servers
        .map(|server| Log::at(cluster.directory(server).join("log")))
        .collect()
}

/// Copies a device, and no more of it than is there.
fn copy(from: &PathBuf, to: &PathBuf) -> Result<(), TrialError> {
    let copied = Command::new("cp")
        .arg("--sparse=always")
        .args([from, to])
        .status()
        .map_err(TrialError::file("copy", from))?;
    match copied.success() {
        true => Ok(()),
        false => Err(TrialError::Cluster(format!(
            "{} was not copied",
            from.display()
        ))),
    }
}
