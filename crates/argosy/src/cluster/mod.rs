//! A cluster of server processes on this machine: what `argosy playground` and `argosy bench`
//! start, watch and stop.
//!
//! Starting, in steps:
//!
//! 1. Make or take over the directories (`layout`); take the lock on a data directory that is to
//!    stay, or make one that goes away ([`scratch`]).
//! 2. Choose ports ([`ports`]), and put the region map, with the addresses in it, into the
//!    coordinator.
//! 3. Write each server's configuration and start it (`child`).
//! 4. Ask each until it is ready ([`ready`]): then all its regions are open. Filling a copy may take
//!    hours. So the user sees what the start waits for, and can end it with Ctrl-C.
//!
//! Stopping lets halted servers go on, asks all to stop, waits, and kills what is left. A server that somebody
//! restarted by hand (`argosy server --config`) is no child, and is found by its lock ([`lock`]). What one server
//! does is known to `member`.

pub(crate) mod child;
pub(crate) mod layout;
pub mod lock;
pub(crate) mod logs;
pub(crate) mod member;
pub(crate) mod memory;
pub mod ports;
pub mod ready;
pub mod scratch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use argosy_base::{Clock, ServerId};
use argosy_coordinator::ClusterMap;
use argosy_device::SystemClock;
use argosy_memory::make_directory;
use rustix::process::{Signal, kill_process};

use crate::config::{
    AdminSection, CoordinatorSection, FabricSection, FailoverSection, LogSection, MemorySection,
    NativeSection, ReplicationSection, RespSection, ServerConfig, ServerSection, StorageSection,
};
use crate::failure::CommandFailure;
use child::Child;
use layout::{Layout, Shape, Split};
use lock::DirLock;
pub(crate) use member::Member;
use memory::ClusterMemory;
use ports::{Held, PortClaim, Ports};
use ready::{Patience, Verdict};
use scratch::ScratchDir;

/// How long they may take to stop before they are killed.
const STOP_MAX: Duration = Duration::from_secs(20);

/// How often a state is looked at that nobody reports.
const POLL: Duration = Duration::from_millis(10);

/// The longest time between two questions to a server that is not ready.
const POLL_MAX: Duration = Duration::from_secs(1);

/// What cluster to start.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// How many of what.
    pub(crate) shape: Shape,
    /// Where regions are cut.
    pub(crate) split: Split,
    /// Where the data stays; `None` for a directory that goes away with the cluster.
    pub(crate) data_dir: Option<PathBuf>,
    /// Where directories that go away are made.
    pub(crate) scratch_root: PathBuf,
    /// Memory of each server.
    pub(crate) memory: MemorySection,
    /// Storage of each server.
    pub(crate) storage: StorageSection,
    /// The servers that get a device in place of the one that the region map names.
    pub(crate) new_devices: Vec<usize>,
    /// Whether a new cluster takes the place of one that is gone, but for windows with its records.
    pub(crate) discard_windows: bool,
}

/// A running cluster.
pub(crate) struct Cluster {
    /// Its directories.
    pub(crate) layout: Layout,
    /// The region map it was started with.
    pub(crate) map: ClusterMap,
    /// Its servers.
    pub(crate) members: Vec<Member>,
    /// Its ports are its own, also while a server is down.
    #[expect(dead_code, reason = "dropping it gives them up")]
    held: Held,
    /// Until each server has answered once.
    claim: Option<PortClaim>,
    // Dropped last: processes end before their directories go away.
    places: Places,
}

/// What keeps the directories.
enum Places {
    /// They go away.
    Scratch(#[expect(dead_code, reason = "dropping them removes them")] Vec<ScratchDir>),
    /// The data stays.
    Kept {
        #[expect(dead_code, reason = "dropping it gives it up")]
        lock: DirLock,
        memory: ClusterMemory,
    },
}

impl Places {
    /// Every server has stopped. Where all of them stopped as they should, whatever is in shared memory is on
    /// devices, too.
    fn servers_have_stopped(self, not_well: &[usize]) {
        let Self::Kept { memory, .. } = self else {
            return;
        };
        if not_well.is_empty() {
            memory.remove();
        } else {
            let which: Vec<_> = not_well.iter().map(ToString::to_string).collect();
            eprintln!(
                "{} stays: server {} did not stop cleanly, and what it acknowledged last may lie there alone; \
                 the next start finds it",
                memory.path().display(),
                which.join(", ")
            );
        }
    }
}

impl Cluster {
    /// Starts the servers of a cluster.
    pub(crate) fn start(spec: &Spec) -> Result<Self, CommandFailure> {
        spec.shape.check()?;
        let (layout, places) = make_places(spec)?;
        let claim = PortClaim::wait()?;
        let (map, held) = settle_map(spec, &layout, &claim)?;
        let mut cluster = Self {
            members: Vec::new(),
            layout,
            map,
            held,
            claim: Some(claim),
            places,
        };
        for id in 0..cluster.map.servers().len() {
            let member = cluster.start_member(id, spec)?;
            cluster.members.push(member);
        }
        Ok(cluster)
    }

    /// Whether the data goes away with the cluster.
    pub(crate) fn is_scratch(&self) -> bool {
        matches!(self.places, Places::Scratch(_))
    }

    /// The command line that has the running playground do `verb` to `server`.
    pub(crate) fn command(&self, verb: &str, server: usize) -> String {
        command_in(&self.layout, &self.places, verb, server)
    }

    /// Keeps the logs of the servers within their bounds.
    pub(crate) fn rotate_logs(&self) {
        self.members
            .iter()
            .for_each(|member| logs::rotate(&member.log()));
    }

    /// Tells of each server whose process has ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for member in &mut self.members {
            if member.ended {
                continue;
            }
            if let Some(status) = member.child.exited() {
                member.ended = true;
                told.push(format!(
                    "server {} (process {}) ended: {status}; the others go on. What it said: {}\n\
                     Restart it: {}",
                    member.id,
                    member.child.pid(),
                    member.log().display(),
                    command_in(&self.layout, &self.places, "restart", member.id)
                ));
            }
        }
        told
    }

    /// Stops all servers; false where one had to be killed or had failed by itself.
    pub(crate) fn stop(mut self) -> bool {
        let began = SystemClock.now();
        for member in &mut self.members {
            // A halted process does not hear that it shall end.
            member.child.signal(Signal::CONT);
            member.child.signal(Signal::TERM);
        }
        let mut clean = true;
        for member in &mut self.members {
            let status = loop {
                if let Some(status) = member.child.exited() {
                    break Some(status);
                }
                if SystemClock.now() - began > STOP_MAX {
                    break None;
                }
                std::thread::park_timeout(POLL);
            };
            if status.is_none() {
                tracing::warn!("server {} did not stop in time, and is killed", member.id);
                member.child.kill();
            }
            let success = status.is_some_and(|status| status.success());
            clean &= success || member.ended;
        }
        clean &= self.stop_restarted();
        // Whoever had been killed, or restarted by hand, is judged by its lock, as all others are.
        let members = self.members.iter().map(|member| member.id);
        let not_well: Vec<_> = members
            .filter(|id| !lock::all_is_well(&self.layout.server(*id)))
            .collect();
        self.places.servers_have_stopped(&not_well);
        clean
    }

    /// Stops the servers that were restarted by hand.
    fn stop_restarted(&self) -> bool {
        let mut clean = true;
        for member in &self.members {
            let dir = self.layout.server(member.id);
            let Some(pid) = lock::holder(&dir) else {
                continue;
            };
            let _ = kill_process(pid, Signal::CONT);
            let _ = kill_process(pid, Signal::TERM);
            let began = SystemClock.now();
            while lock::held(&dir) {
                if SystemClock.now() - began > STOP_MAX {
                    let _ = kill_process(pid, Signal::KILL);
                    clean = false;
                    break;
                }
                std::thread::park_timeout(POLL);
            }
        }
        clean
    }

    fn start_member(&self, id: usize, spec: &Spec) -> Result<Member, CommandFailure> {
        let dir = self.layout.server(id);
        make_directory(&dir).map_err(|error| CommandFailure::io("make", &dir, &error))?;
        let ports = ports_in(&self.map)?[id];
        let config = ServerConfig {
            server: ServerSection {
                id: u32::try_from(id).expect("servers are few"),
                data_dir: PathBuf::from("."),
            },
            resp: RespSection::at(ports.resp),
            native: NativeSection::default(),
            admin: AdminSection::at(ports.admin),
            coordinator: CoordinatorSection {
                dir: PathBuf::from("../coordinator"),
            },
            fabric: FabricSection {
                shm_dir: self.layout.shm.clone(),
            },
            memory: spec.memory.clone(),
            storage: spec.storage.clone(),
            replication: ReplicationSection::default(),
            failover: FailoverSection::default(),
            log: LogSection::default(),
        };
        let path = self.layout.config(id);
        std::fs::write(&path, config.to_toml())
            .map_err(|error| CommandFailure::io("write", &path, &error))?;
        // One that never had a device gets its first.
        let is_known = self.map.device(ServerId(config.server.id)).is_some();
        let options: &[&str] = match is_known && !spec.new_devices.contains(&id) {
            true => &[],
            false => &["--new-device"],
        };
        let child = Child::start(&path, dir.join("log"), options)?;
        Ok(Member {
            id,
            config: path,
            ports,
            child,
            ended: false,
        })
    }

    /// Waits until every server is ready. `pause` waits for that long at most, and says whether to stop waiting.
    ///
    /// # Errors
    /// A server ended, or has been silent for too long; [`CommandFailure::Unreachable`] where `pause` says so; it
    /// names the first server that is not ready, and why.
    pub(crate) fn wait_ready(
        &mut self,
        mut pause: impl FnMut(Duration) -> Result<bool, CommandFailure>,
    ) -> Result<(), CommandFailure> {
        let started = SystemClock.now();
        let mut waits: Vec<_> = self
            .members
            .iter()
            .map(|_| Patience::new(started))
            .collect();
        loop {
            self.check_living()?;
            let mut waits_for = None;
            for (member, patience) in self.members.iter().zip(&mut waits) {
                let says = |reason| format!("server {}: {reason}", member.id);
                let answer = ready::ask(member.ports.admin);
                match patience.judge(SystemClock.now(), answer) {
                    Verdict::Done => continue,
                    Verdict::Wait(reason) => waits_for.get_or_insert(says(reason)),
                    Verdict::Tell(reason) => {
                        eprintln!("waiting for {}", says(reason.clone()));
                        waits_for.get_or_insert(says(reason))
                    }
                    Verdict::GiveUp(reason) => {
                        return Err(CommandFailure::Unreachable(says(reason)));
                    }
                };
            }
            if waits.iter().all(Patience::listens) {
                self.claim = None;
            }
            let Some(reason) = waits_for else {
                return Ok(());
            };
            let waited = SystemClock.now() - started;
            if pause((waited / 20).clamp(POLL, POLL_MAX))? {
                let stopped = format!("stopped before every server was ready: {reason}");
                return Err(CommandFailure::Unreachable(stopped));
            }
        }
    }

    fn check_living(&mut self) -> Result<(), CommandFailure> {
        for member in &mut self.members {
            if let Some(status) = member.child.exited() {
                return Err(CommandFailure::Failed(format!(
                    "server {} ended before it was ready: {status}\n{}",
                    member.id,
                    member.child.log_tail()
                )));
            }
        }
        Ok(())
    }
}

fn command_in(layout: &Layout, places: &Places, verb: &str, server: usize) -> String {
    let command = format!("argosy playground {verb} {server}");
    match places {
        Places::Scratch(_) => command,
        Places::Kept { .. } => format!("{command} --data-dir {}", layout.dir.display()),
    }
}

/// The directories, and what keeps them.
fn make_places(spec: &Spec) -> Result<(Layout, Places), CommandFailure> {
    if let Some(dir) = &spec.data_dir {
        make_directory(dir).map_err(|error| CommandFailure::io("make", dir, &error))?;
        let dir = dir
            .canonicalize()
            .map_err(|error| CommandFailure::io("find", dir, &error))?;
        check_is_for_clusters(&dir)?;
        let lock = DirLock::take(&dir)?;
        let memory = ClusterMemory::of(&dir)?;
        let layout = Layout {
            dir,
            shm: memory.path().to_path_buf(),
        };
        return Ok((layout, Places::Kept { lock, memory }));
    }
    let data = ScratchDir::new(&spec.scratch_root)?;
    let shm = ScratchDir::new(&scratch::shared_memory_root(&spec.scratch_root))?;
    let layout = Layout {
        dir: data.path().to_path_buf(),
        shm: shm.path().to_path_buf(),
    };
    Ok((layout, Places::Scratch(vec![data, shm])))
}

/// Whether the servers that are to get a device are of the cluster's `servers`.
fn check_new_devices(spec: &Spec, servers: usize) -> Result<(), CommandFailure> {
    match spec.new_devices.iter().find(|id| **id >= servers) {
        None => Ok(()),
        Some(id) => Err(CommandFailure::Usage(format!(
            "--new-device {id}: there are servers 0 to {}",
            servers - 1
        ))),
    }
}

/// Refuses a directory that holds something else than a cluster: a store of one program, or anybody's files.
fn check_is_for_clusters(dir: &Path) -> Result<(), CommandFailure> {
    if dir.join("coordinator").exists() {
        return Ok(());
    }
    let failed = |error| CommandFailure::io("look into", dir, &error);
    // What a start that was ended early, and the making of a file system, leave.
    let known = ["lock", "lost+found"];
    let mut what = None;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        if name == "device" {
            what = Some("the store of a program, or of a single server".to_owned());
            break;
        }
        if !known.contains(&&*name) {
            what = Some(format!("{name}, and no cluster"));
        }
    }
    match what {
        None => Ok(()),
        Some(what) => Err(CommandFailure::Usage(format!(
            "--data-dir {}: it holds {what}; name an empty directory, one that does not exist yet, or that of a \
             cluster",
            dir.display()
        ))),
    }
}

/// The map that is there, at ports that are free now; or a new one.
fn settle_map(
    spec: &Spec,
    layout: &Layout,
    claim: &PortClaim,
) -> Result<(ClusterMap, Held), CommandFailure> {
    let coordinator = layout.coordinator();
    let (map, held) = match layout::read_map(&coordinator)? {
        Some(map) => {
            spec.shape.agrees_with(&Shape::of(&map))?;
            check_new_devices(spec, map.servers().len())?;
            if spec.discard_windows {
                return Err(CommandFailure::Usage(format!(
                    "--discard-windows: the cluster in {} is there, and its windows are its own",
                    layout.dir.display()
                )));
            }
            let wanted = ports_in(&map)?;
            let (ports, held) = claim.choose(wanted.len(), &wanted)?;
            (layout::moved(&map, &ports)?, held)
        }
        None => {
            memory::check_new(&layout.dir, &layout.shm, spec.discard_windows)?;
            let (ports, held) = claim.choose(spec.shape.servers_or_default(), &[])?;
            (layout::new_map(&spec.shape, spec.split, &ports)?, held)
        }
    };
    layout::write_map(&coordinator, &map)?;
    Ok((map, held))
}

fn ports_in(map: &ClusterMap) -> Result<Vec<Ports>, CommandFailure> {
    let parse = |text: &str| {
        text.parse().map_err(|_| {
            CommandFailure::Corrupt(format!("the region map has the address {text:?}"))
        })
    };
    let servers = map.servers().iter();
    servers
        .map(|server| {
            Ok(Ports {
                resp: parse(&server.resp)?,
                admin: parse(&server.admin)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playground_takes_a_directory_of_its_own_or_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let check = || check_is_for_clusters(dir.path());
        check().unwrap();
        std::fs::write(dir.path().join("lock"), "").unwrap();
        check().unwrap();
        for (name, told) in [
            ("notes.txt", "holds notes.txt"),
            ("device", "the store of a program"),
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
            let refused = check().unwrap_err().to_string();
            assert!(refused.contains(told), "{refused}");
        }
        std::fs::create_dir(dir.path().join("coordinator")).unwrap();
        check().unwrap();
    }
}
