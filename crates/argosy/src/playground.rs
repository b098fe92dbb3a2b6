//! `argosy playground`: a cluster on this machine by one command, until Ctrl-C.
//!
//! 1. Start the servers as child processes, and wait until they are ready.
//! 2. Listen on the socket of [`control`] for commands to single servers, which [`deeds`] carries out.
//! 3. Wait for a signal, the end of a server or a command. A server that ends, however that came, ends nothing else:
//!    the others go on, and it can be started again, also where all have ended.
//! 4. At the first signal let stopped servers go on, and stop all.
//!
//! [`command`] is the other end of the socket: `argosy playground kill` and its like. [`protocol`] says what is spoken.

mod command;
mod control;
mod deeds;
mod protocol;

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use argosy_base::{AddressMode, Clock, DurabilityMode};
use argosy_device::SystemClock;
use clap::Args;
use rustix::event::Timespec;
use serde::Serialize;

use crate::cli::{OutputFormat, parse_address, parse_durability, parse_replication};
use crate::cluster::layout::{Primaries, Replication, Shape, Split};
use crate::cluster::{Cluster, Member, Spec, logs};
use crate::config::{CompactionName, MemorySection, PlacementName, StorageSection, ValueKeys};
use crate::failure::CommandFailure;
use crate::frugal;
use crate::signals::Signals;
use crate::units::Size;
use command::PlaygroundCommand;
use control::Control;

/// The schema of the line that `-o json` prints.
const SCHEMA: &str = "argosy.playground.v1";

/// Memory of each server unless said otherwise.
const MEMORY: Size = Size::mib(256);

/// Memory of one memtable unless said otherwise.
const L0: Size = Size::mib(8);

/// Start a cluster on this machine
///
/// Starts region servers as separate processes, with an embedded coordinator, and stops them all on
/// Ctrl-C. Without --data-dir everything is removed then; with it, the next start finds it again.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  argosy playground\n  \
    argosy playground --servers 5 --regions 10 --data-dir ./data\n\n\
    Then: redis-cli -p 7379 set hello world\n\n\
    To one that runs:\n  argosy playground status\n  \
    argosy playground kill 1\n  \
    argosy playground restart 1"
)]
pub(crate) struct Playground {
    #[command(subcommand)]
    command: Option<PlaygroundCommand>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// Keep the data here
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// This server has lost its device: make another, which is filled from the other members. Repeat it for
    /// more servers
    #[arg(long, value_name = "SERVER")]
    new_device: Vec<usize>,
    /// Where --data-dir is empty, but shared memory holds records of a cluster that was there: remove these
    #[arg(long)]
    discard_windows: bool,
    /// Memory of each server
    #[arg(long, value_name = "SIZE", default_value_t = MEMORY)]
    memory: Size,
    /// Memtables of each server, divided over the regions it keeps memtables of; up to 3 of each exist
    #[arg(long, value_name = "SIZE", default_value_t = L0)]
    l0_bytes: Size,
    /// Under build-index: divide that by the regions a server is primary of alone
    #[arg(long)]
    l0_per_replica: bool,
    /// Size of each server's device when it is made [default: 64GiB, of which only what is used is
    /// taken]
    #[arg(long, value_name = "SIZE")]
    device_bytes: Option<Size>,
    /// Where values lie
    #[arg(long, value_enum, default_value_t)]
    placement: PlacementName,
    /// What a compaction takes: a part of a level, or all of it and of the one below
    #[arg(long, value_enum, default_value_t)]
    compaction: CompactionName,
    /// Print one line of JSON when ready instead of text
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// Servers and regions.
#[derive(Args, Debug)]
struct ShapeArgs {
    /// Server processes [default: 3]
    #[arg(long, value_name = "N")]
    servers: Option<usize>,
    /// Members of each region [default: 3, or as many as there are servers]
    #[arg(long, value_name = "N")]
    replicas: Option<usize>,
    /// Regions that keys are cut into [default: one for each server]
    #[arg(long, value_name = "N")]
    regions: Option<usize>,
    /// How members become equal: none, send-index or build-index [default: send-index]
    #[arg(long, value_name = "MODE", value_parser = parse_replication)]
    replication: Option<Replication>,
    /// Which servers are primaries of regions: all, or server 0 alone [default: spread]
    #[arg(long, value_enum, value_name = "HOW")]
    layout: Option<Primaries>,
    /// What pointers inside level segments name, and so who rewrites them: logical or rewrite
    /// [default: logical]
    #[arg(long, value_name = "MODE", value_parser = parse_address)]
    address: Option<AddressMode>,
    /// When writes are acknowledged: last-write, last-flush or sync [default: last-write]
    #[arg(long, value_name = "MODE", value_parser = parse_durability)]
    durability: Option<DurabilityMode>,
}

/// What is printed before servers are asked to stop.
const STOPPING: &str = "stopping; Ctrl-C again stops at once";

/// What `-o json` prints.
#[derive(Serialize)]
struct Ready<'a> {
    schema: &'static str,
    data_dir: &'a PathBuf,
    servers: Vec<ReadyServer<'a>>,
}

/// A server in [`Ready`].
#[derive(Serialize)]
struct ReadyServer<'a> {
    id: usize,
    pid: u32,
    config: &'a PathBuf,
    resp: String,
    admin: String,
}

impl Playground {
    /// Whether it is about a playground that runs, and starts none.
    pub(crate) const fn is_command(&self) -> bool {
        self.command.is_some()
    }

    /// Does what was asked.
    pub(crate) fn run(mut self) -> Result<(), CommandFailure> {
        match self.command.take() {
            Some(command) => command.run(),
            None => self.start(),
        }
    }

    /// Runs servers until a signal comes.
    fn start(&self) -> Result<(), CommandFailure> {
        frugal::may_have_huge_pages();
        let began = SystemClock.now();
        let signals = Signals::catch().map_err(cannot_wait)?;
        let mut cluster = Cluster::start(&self.spec())?;
        let waited = cluster.wait_ready(|time| {
            let time = Timespec::try_from(time).ok();
            signals.wait_or(&[], time).map_err(cannot_wait)
        });
        if let Err(failure) = waited {
            eprintln!("{STOPPING}");
            cluster.stop();
            return Err(failure);
        }
        let took = SystemClock.now() - began;
        let control = Control::listen(&cluster.layout.dir);
        let control = control.inspect_err(say_unheard).ok();
        match self.output {
            OutputFormat::Json => print_json(&cluster),
            OutputFormat::Table => print_text(&cluster, took),
        }
        watch(&mut cluster, control, &signals)?;
        eprintln!("{STOPPING}");
        if cluster.stop() {
            Ok(())
        } else {
            Err(CommandFailure::Failed(
                "not every server stopped cleanly".to_owned(),
            ))
        }
    }

    fn spec(&self) -> Spec {
        Spec {
            shape: Shape {
                servers: self.shape.servers,
                replicas: self.shape.replicas,
                regions: self.shape.regions,
                replication: self.shape.replication,
                addresses: self.shape.address,
                durability: self.shape.durability,
                primaries: self.shape.layout,
            },
            split: Split::Text,
            data_dir: self.data_dir.clone(),
            scratch_root: std::env::temp_dir(),
            memory: MemorySection {
                limit: self.memory,
                ..MemorySection::default()
            },
            storage: self.storage(),
            new_devices: self.new_device.clone(),
            discard_windows: self.discard_windows,
        }
    }
}

impl Playground {
    fn storage(&self) -> StorageSection {
        let default = StorageSection::default();
        StorageSection {
            device_bytes: self.device_bytes.unwrap_or(default.device_bytes),
            l0_bytes: self.l0_bytes,
            l0_per_replica: self.l0_per_replica,
            values: ValueKeys {
                placement: self.placement,
                ..default.values
            },
            compaction: self.compaction,
            ..default
        }
    }
}

fn cannot_wait(error: std::io::Error) -> CommandFailure {
    CommandFailure::Failed(format!("cannot wait: {error}"))
}

fn say_unheard(error: &std::io::Error) {
    eprintln!("argosy playground kill and its like are not heard: {error}; the servers go on");
}

/// Tells of servers that end, and does what commands ask, until a signal comes.
fn watch(
    cluster: &mut Cluster,
    mut control: Option<Control>,
    signals: &Signals,
) -> Result<(), CommandFailure> {
    loop {
        let living = cluster.members.iter().filter(|member| !member.ended);
        let mut fds: Vec<BorrowedFd<'_>> =
            living.map(|member| member.child.ended.as_fd()).collect();
        fds.extend(control.iter().flat_map(Control::fds));
        let look = Timespec::try_from(logs::LOOK_EVERY).ok();
        if signals.wait_or(&fds, look).map_err(cannot_wait)? {
            return Ok(());
        }
        cluster.rotate_logs();
        for text in cluster.take_ended() {
            eprintln!("{text}");
        }
        let stepped = control.as_mut().map_or(Ok(()), |control| {
            control.step(|request| deeds::answer(cluster, request))
        });
        if let Err(error) = stepped {
            say_unheard(&error);
            control = None;
        }
    }
}

fn print_json(cluster: &Cluster) {
    let ready = Ready {
        schema: SCHEMA,
        data_dir: &cluster.layout.dir,
        servers: cluster.members.iter().map(ready_server).collect(),
    };
    let line = serde_json::to_string(&ready).expect("plain data has a JSON form");
    say(&line);
}

fn ready_server(member: &Member) -> ReadyServer<'_> {
    ReadyServer {
        id: member.id,
        pid: member.child.pid(),
        config: &member.config,
        resp: member.ports.resp.to_string(),
        admin: member.ports.admin.to_string(),
    }
}

fn print_text(cluster: &Cluster, took: Duration) {
    let map = &cluster.map;
    let members = map
        .regions()
        .iter()
        .map(|region| region.members.len())
        .max();
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    say(&format!(
        "Argosy: {}, {}, {} of each, replication {}{}{}; ready in {:.1} s\n",
        count(map.servers().len(), "server"),
        count(map.regions().len(), "region"),
        count(members.unwrap_or(0), "copy").replace("copys", "copies"),
        map.replication(),
        match map.addresses() {
            AddressMode::Logical => "",
            AddressMode::Rewrite => ", addresses rewritten",
        },
        match map.durability() {
            DurabilityMode::LastWrite => String::new(),
            other => format!(", durability {other}"),
        },
        took.as_secs_f64(),
    ));
    say("server  redis protocol    admin             process  configuration");
    for member in &cluster.members {
        say(&format!(
            "{:<7} {:<17} {:<17} {:<8} {}",
            member.id,
            member.ports.resp.to_string(),
            member.ports.admin.to_string(),
            member.child.pid(),
            member.config.display()
        ));
    }
    let port = |index: usize| cluster.members[index].ports.resp.port();
    let last = cluster.members.len() - 1;
    say(&format!(
        "\nEvery server answers for every key:\n  redis-cli -p {} set hello world\n  \
         redis-cli -p {} get hello\n",
        port(0),
        port(last)
    ));
    say(&format!(
        "Kill one of them, and start it again:\n  {}\n  {}\n",
        cluster.command("kill", last),
        cluster.command("restart", last)
    ));
    let dir = cluster.layout.dir.display();
    if cluster.is_scratch() {
        say(&format!("Ctrl-C stops everything and removes {dir}"));
    } else {
        say(&format!(
            "Ctrl-C stops everything; the data stays in {dir}, where ls shows devices longer than they are: they are \
             sparse files"
        ));
    }
}

/// The directory of the one playground that runs without a `--data-dir`.
pub(crate) fn scratch_that_runs() -> Result<PathBuf, CommandFailure> {
    command::find(&std::env::temp_dir()).map(|(dir, _)| dir)
}

/// Prints a line. Nobody may be reading, which is no reason to stop servers.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}");
    let _ = stdout.flush();
}
