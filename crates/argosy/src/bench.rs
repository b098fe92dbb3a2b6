//! `argosy bench`: YCSB against clusters that are started for it.

mod asked;
mod embedded;
mod figure;
mod servers;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argosy_base::AddressMode;
use argosy_bench::driver::PIPELINE_MAX;
use argosy_bench::plot;
use argosy_bench::report::{self, Report, Row};
use argosy_bench::run::{self, BenchError, Configuration, Labels, Notice};
use argosy_bench::{Mix, PairSizes, Transport, Workload};
use clap::Args;

use crate::cli::{OutputFormat, parse_address, parse_replication};
use crate::cluster::Cluster;
use crate::cluster::layout::{Primaries, Replication};
use crate::cluster::scratch::ScratchDir;
use crate::config::{CompactionName, PlacementName, StorageSection};
use crate::failure::{CommandFailure, chain};
use crate::frugal;
use crate::signals::Signals;
use crate::units::Size;
use embedded::Peer;
use figure::Rerun;
use servers::target_of;

/// Run YCSB and measure
///
/// Every combination of --replication, --address, --placement, --compaction and --mix gets a cluster of
/// its own, which is loaded once and then runs the workloads on that data. Each read is verified. A run
/// ends when the servers have drained, and all figures include the drain.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    argosy bench --workload load-a,run-a --mix s,sd --records 2000000 --ops 1000000\n  \
    argosy bench --workload load-a,run-a,run-b,run-c,run-f,run-d --sizes talos --plot ycsb.svg\n  \
    argosy bench --embedded --workload load-a,run-a,run-c --mix s -o json\n  \
    argosy bench --embedded --peer rocksdb --mix s,sd --records 5000000\n  \
    argosy bench --figure tebis-9 --scale 0.5 --plot tebis-9.svg")]
pub(crate) struct Bench {
    /// Workloads: load-a, run-a, run-b, run-c, run-d, run-e, run-f, run-g [default: load-a,run-a,run-c]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Mixes of pair sizes: s, m, l, sd, md, ld [default: s]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    mix: Vec<Mix>,
    /// Instead of --mix: so many of a hundred records are small, the rest half medium, half large
    #[arg(
        long,
        value_name = "PERCENTS",
        value_delimiter = ',',
        conflicts_with = "mix",
        value_parser = clap::value_parser!(u64).range(0..=100)
    )]
    small_percent: Vec<u64>,
    /// Bytes of small, medium and large pairs: tebis (33, 148, 1228), talos (33, 123, 1023)
    #[arg(long, value_name = "NAME", default_value_t)]
    sizes: PairSizes,
    /// Records to load [default: 1000000]
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// Operations of each workload that does not load [default: 1000000]
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Where values lie
    #[arg(long, value_enum, value_delimiter = ',', default_value = "hybrid")]
    placement: Vec<PlacementName>,
    /// What a compaction takes: a part of a level, or all of it and of the one below
    #[arg(long, value_enum, value_delimiter = ',', default_value = "partial")]
    compaction: Vec<CompactionName>,
    /// How members become equal: none, send-index
    #[arg(
        long,
        value_name = "MODES",
        value_delimiter = ',',
        value_parser = parse_replication,
        default_value = "send-index"
    )]
    replication: Vec<Replication>,
    /// What pointers inside level segments name, and so who rewrites them: logical, rewrite
    #[arg(
        long,
        value_name = "MODES",
        value_delimiter = ',',
        value_parser = parse_address,
        default_value = "logical"
    )]
    address: Vec<AddressMode>,
    /// Server processes
    #[arg(long, value_name = "N", default_value_t = 3)]
    servers: usize,
    /// Members of each region, where there is replication [default: 3, or all servers]
    #[arg(long, value_name = "N")]
    replicas: Option<usize>,
    /// Regions [default: one for each server]
    #[arg(long, value_name = "N")]
    regions: Option<usize>,
    /// Which servers are primaries of regions: all, or server 0 alone
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    layout: Primaries,
    /// Client threads [default: 4; with --embedded 1]
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// How clients reach the servers: native (in shared memory), resp (the Redis protocol)
    #[arg(long, value_name = "HOW", default_value_t)]
    client: Transport,
    /// Operations in flight on each client
    #[arg(long, value_name = "N", default_value_t = 16)]
    pipeline: usize,
    /// Memtables of each server, divided over the regions it keeps memtables of; up to 3 of each exist
    /// [default: 16MiB]
    #[arg(long, value_name = "SIZE")]
    l0_bytes: Option<Size>,
    /// Under build-index: divide that by the regions a server is primary of alone
    #[arg(long)]
    l0_per_replica: bool,
    /// How many times larger a level is than the one above
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(2..=64)
    )]
    growth_factor: u32,
    /// What the medium log may take, in hundredths of what the levels take; 0: none [default: 200]
    #[arg(long, value_name = "N")]
    medium_log_percent: Option<u32>,
    /// Memory of each server
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    memory: Size,
    /// Bytes of a leaf
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    node_bytes: Size,
    /// With hybrid placement: pairs of at least as many bytes are in the large log
    #[arg(long, value_name = "SIZE", default_value = "1000")]
    large_bytes: Size,
    /// With --embedded: --memory is all that our store may take, log windows and what merges have in hand
    /// among it, as `Builder::memory` is. Else it is memtables and cache, as its peers are told
    #[arg(long, requires = "embedded")]
    budget: bool,
    /// With --embedded: a write is answered once the device has synced it
    #[arg(long, requires = "embedded")]
    sync: bool,
    /// Size of each server's device
    #[arg(long, value_name = "SIZE", default_value = "64GiB")]
    device_bytes: Size,
    /// Seed of keys, values and choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Measure each workload so often, on clusters of their own, and report the median [default: 1;
    /// figures: 3]
    #[arg(long, value_name = "N")]
    repeat: Option<usize>,
    #[command(flatten)]
    rerun: Rerun,
    /// Call the engine in this process instead of servers, with one background thread
    #[arg(long)]
    embedded: bool,
    /// With --embedded: the same with these stores, too, one after the other
    #[arg(
        long,
        value_enum,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "embedded"
    )]
    peer: Vec<Peer>,
    /// Where clusters put their data while they run [default: the temporary directory]
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,
    /// Draw throughput and latency over time into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// The exit code after Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// One system under test.
struct System {
    /// `None`: ours.
    peer: Option<Peer>,
    replication: Replication,
    addresses: AddressMode,
    placement: PlacementName,
    compaction: CompactionName,
    mix: Mix,
}

impl Bench {
    /// Runs everything that was asked for.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        self.check()?;
        if self.embedded {
            frugal::decide(self.memory.0);
        } else {
            frugal::may_have_huge_pages();
        }
        // Better now than after hours of measuring.
        self.draw(&[])?;
        if let Some(figure) = self.rerun.figure {
            return self.run_figure(figure);
        }
        let running = Running::watched()?;
        let table = self.output == OutputFormat::Table;
        if table {
            println!("{}", self.options());
            self.print_embedded_options();
            println!("{}", report::table_header());
        }
        let rows = self.measure_all(&running)?;
        self.draw(&rows)?;
        if table {
            println!("\n{}", report::activity_table(&rows));
        } else {
            let report = serde_json::to_string(&Report::new(rows));
            println!("{}", report.expect("plain data has a JSON form"));
        }
        Ok(())
    }

    /// Measures every system, then all of them again, as often as it was asked for: whatever else
    /// the machine does meets all of them alike. Prints each row of a table as soon as it stands.
    fn measure_all(&self, running: &Running) -> Result<Vec<Row>, CommandFailure> {
        let (systems, repeat) = (self.systems(), self.repeat.unwrap_or(1));
        let mut takes = vec![Vec::new(); systems.len()];
        let mut rows = Vec::new();
        for take in 1..=repeat {
            for (system, takes) in systems.iter().zip(&mut takes) {
                takes.push(self.measure(system, running)?);
                if take < repeat {
                    continue;
                }
                for row in report::medians(takes) {
                    if self.output == OutputFormat::Table {
                        println!("{row}");
                    }
                    rows.push(row);
                }
            }
        }
        Ok(rows)
    }

    /// Writes the picture of `rows`, where one is asked for.
    fn draw(&self, rows: &[Row]) -> Result<(), CommandFailure> {
        let Some(path) = &self.plot else {
            return Ok(());
        };
        let written = std::fs::write(path, plot::svg(rows));
        written.map_err(|error| CommandFailure::io("write the plot", path, &error))
    }

    fn check(&self) -> Result<(), CommandFailure> {
        let refuse = |reason: &str| Err(CommandFailure::Usage(reason.to_owned()));
        if self.records() == 0 || self.clients() == 0 || self.repeat == Some(0) {
            return refuse("--records, --clients and --repeat are at least 1");
        }
        self.peer.iter().try_for_each(|peer| peer.check())?;
        if self.sync && self.peer.iter().any(|&peer| peer != Peer::Rocksdb) {
            return refuse(
                "--sync: the bench syncs the writes of our store and of RocksDB alone; leave the other peers out, or \
                 run them without --sync",
            );
        }
        if !(1..=PIPELINE_MAX).contains(&self.pipeline) {
            return Err(CommandFailure::Usage(format!(
                "--pipeline is 1 to {PIPELINE_MAX}"
            )));
        }
        Ok(())
    }

    /// Everything that is compared, in the order in which it runs: each peer behind ours.
    fn systems(&self) -> Vec<System> {
        if !self.embedded {
            let modes = self.replication.iter();
            return modes.flat_map(|&mode| self.placed(mode)).collect();
        }
        let mut systems = Vec::new();
        for mix in self.mixes() {
            let ours = self.placed(Replication::None);
            systems.extend(ours.into_iter().filter(|system| system.mix == mix));
            systems.extend(self.peer.iter().map(|&peer| System {
                peer: Some(peer),
                replication: Replication::None,
                addresses: AddressMode::Logical,
                placement: PlacementName::InPlace,
                compaction: CompactionName::Partial,
                mix,
            }));
        }
        systems
    }

    /// Every placement with every way of compaction.
    fn layouts(&self) -> impl Iterator<Item = (&PlacementName, &CompactionName)> {
        let placements = self.placement.iter();
        placements.flat_map(|placement| self.compaction.iter().map(move |way| (placement, way)))
    }

    fn placed(&self, replication: Replication) -> Vec<System> {
        let mut systems = Vec::new();
        for &addresses in &self.address {
            for (&placement, &compaction) in self.layouts() {
                systems.extend(self.mixes().into_iter().map(|mix| System {
                    peer: None,
                    replication,
                    addresses,
                    placement,
                    compaction,
                    mix,
                }));
            }
        }
        systems
    }

    fn mixes(&self) -> Vec<Mix> {
        if self.small_percent.is_empty() {
            return self.named_mixes();
        }
        let percents = self.small_percent.iter();
        percents
            .filter_map(|&percent| Mix::of_small(percent))
            .collect()
    }

    fn clients(&self) -> usize {
        let default = if self.embedded { 1 } else { 4 };
        self.clients.unwrap_or(default)
    }

    /// The options that a reader of the table has to know.
    fn options(&self) -> String {
        let system = if self.embedded {
            format!("stores in this process | clients {}", self.clients())
        } else {
            format!(
                "servers {} regions {} | clients {} pipeline {}",
                self.servers,
                self.regions.unwrap_or(self.servers),
                self.clients(),
                self.pipeline
            )
        };
        let takes = match self.repeat.unwrap_or(1) {
            1 => "one run".to_owned(),
            n => format!("median of {n}"),
        };
        format!(
            "{system} | records {} ops {} sizes {} | l0 {} growth {} memory {} | seed {} | {takes}\n",
            self.records(),
            self.ops(),
            self.sizes,
            self.l0_bytes(),
            self.growth_factor,
            self.memory,
            self.seed,
        )
    }

    /// What each store in this process is told, once for each placement.
    fn print_embedded_options(&self) {
        let mut told = Vec::new();
        for system in self.systems().iter().filter(|_| self.embedded) {
            let name = system.peer.map_or("lsm", Peer::name);
            let line = format!("{name}: {}", self.embedded_options(system));
            if !told.contains(&line) {
                println!("{line}");
                told.push(line);
            }
        }
        if self.embedded {
            println!();
        }
    }

    /// What one system is told, beside what its row has fields for.
    fn options_of(&self, system: &System) -> String {
        if self.embedded {
            return self.embedded_options(system);
        }
        format!(
            "client={} layout={} l0_bytes={}{} growth_factor={} medium_log_percent={} \
             node_bytes={} large_bytes={} memory_limit={}",
            self.client,
            self.layout.name(),
            self.l0_bytes().0,
            ["", " l0_per_replica"][usize::from(self.l0_per_replica)],
            self.growth_factor,
            self.medium_log_percent(),
            self.node_bytes.0,
            self.large_bytes.0,
            self.memory.0
        )
    }

    fn medium_log_percent(&self) -> u32 {
        let default = StorageSection::default().medium_log_percent;
        self.medium_log_percent.unwrap_or(default)
    }

    fn configuration(&self, system: &System) -> Configuration {
        let shape = self.shape(system);
        Configuration {
            labels: Labels {
                engine: system.peer.map_or("lsm", Peer::name),
                placement: system.placement.name().to_owned(),
                compaction: match system.peer {
                    Some(_) => "own",
                    None => system.compaction.name(),
                },
                replication: system.replication.name().to_owned(),
                address_mode: if system.peer.is_some() {
                    "none"
                } else {
                    system.addresses.name()
                },
                fabric: if self.embedded { "none" } else { "shm" },
                options: self.options_of(system),
                replicas: shape.replicas_or_default(),
                regions: shape.regions_or_default(),
            },
            mix: system.mix,
            sizes: self.sizes,
            records: self.records(),
            ops: self.ops(),
            clients: self.clients(),
            transport: self.client,
            pipeline: self.pipeline,
            seed: self.seed,
            workloads: self.workloads(),
        }
    }

    fn measure(&self, system: &System, running: &Running) -> Result<Vec<Row>, CommandFailure> {
        if self.embedded {
            return self.measure_embedded(system, running);
        }
        let mut cluster = Cluster::start(&self.spec(system))?;
        cluster.wait_ready(|time| {
            std::thread::park_timeout(time);
            Ok(false)
        })?;
        let target = target_of(&cluster);
        running.begin(Stage::Cluster(Box::new(cluster)))?;
        let rows = collect(|tell| run::run(&target, &self.configuration(system), tell));
        let clean = running.end();
        let rows = rows?;
        if clean {
            Ok(rows)
        } else {
            Err(CommandFailure::Failed(
                "not every server stopped cleanly".to_owned(),
            ))
        }
    }

    fn root(&self) -> PathBuf {
        self.data_root.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// What is under test at the moment, so that Ctrl-C leaves nothing behind.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<Present>>);

#[derive(Default)]
struct Present {
    stage: Option<Stage>,
    interrupted: bool,
}

/// What has to be stopped or removed.
enum Stage {
    Cluster(Box<Cluster>),
    Embedded(#[expect(dead_code, reason = "dropping them removes them")] Vec<ScratchDir>),
}

impl Running {
    /// Nothing yet; a thread waits for signals from now on.
    fn watched() -> Result<Self, CommandFailure> {
        let failed = |error: std::io::Error| {
            CommandFailure::Failed(format!("cannot catch signals: {error}"))
        };
        let signals = Signals::catch().map_err(failed)?;
        let running = Self::default();
        let watched = running.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                if signals.wait().is_ok() {
                    eprintln!("stopping; Ctrl-C again stops at once");
                    watched.present().interrupted = true;
                    watched.stop();
                    std::process::exit(EXIT_INTERRUPTED);
                }
            })
            .map_err(failed)?;
        Ok(running)
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, stage: Stage) -> Result<(), CommandFailure> {
        let mut present = self.present();
        if present.interrupted {
            return Err(CommandFailure::Failed("interrupted".to_owned()));
        }
        present.stage = Some(stage);
        Ok(())
    }

    /// Stops what is under test; false where that was not clean. After a signal the process is
    /// about to end, and this does not return.
    fn end(&self) -> bool {
        let clean = self.stop();
        while self.present().interrupted {
            std::thread::park();
        }
        clean
    }

    fn stop(&self) -> bool {
        let mut present = self.present();
        match present.stage.take() {
            Some(Stage::Cluster(cluster)) => cluster.stop(),
            Some(Stage::Embedded(_)) | None => true,
        }
    }
}

/// Runs a benchmark, tells of errors as they come, and gathers the rows.
fn collect(
    run: impl FnOnce(&mut dyn FnMut(Notice)) -> Result<(), BenchError>,
) -> Result<Vec<Row>, CommandFailure> {
    let mut rows = Vec::new();
    let result = run(&mut |event| match event {
        Notice::Row(row) => rows.push(*row),
        Notice::Errors {
            workload,
            count,
            first,
        } => eprintln!("{workload}: {count} errors, the first: {first}"),
    });
    result.map_err(|error| {
        let text = chain(&error);
        match error {
            BenchError::Client(argosy_bench::driver::DriverError::Wrong { .. }) => {
                CommandFailure::Corrupt(text)
            }
            BenchError::Client(_) | BenchError::Resp(_) => CommandFailure::Unreachable(text),
            _ => CommandFailure::Failed(text),
        }
    })?;
    Ok(rows)
}
