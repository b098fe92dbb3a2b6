//! `argosy bench`: YCSB against clusters that are started for it.

mod asked;
mod embedded;
mod figure;
mod servers;

use std::path::PathBuf;
use std::sync::Arc;

use argosy_base::{AddressMode, DurabilityMode};
use argosy_bench::driver::PIPELINE_MAX;
use argosy_bench::report::{self, Report, Row};
use argosy_bench::run::{self, BenchError, Configuration, Labels, Notice};
use argosy_bench::{Mix, csv, heads, plot};
use clap::Args;
use parking_lot::{Mutex, MutexGuard};

use crate::cluster::layout::{Replication, Shape, Split};
use crate::cluster::scratch::ScratchDir;
use crate::cluster::{Cluster, Spec};
use crate::config::{CompactionName, MemorySection, PlacementName, StorageSection, ValueKeys};
use crate::failure::{CommandFailure, chain};
use crate::frugal;
use crate::signals::Signals;
use asked::{BenchOutput, ClientArgs, ClusterArgs, EngineArgs, LoadArgs, StoreArgs, SystemArgs};
use embedded::Peer;
use figure::Rerun;
use servers::target_of;

/// Run YCSB and measure
///
/// Every combination of --replication, --address, --durability, --placement, --compaction and --mix gets a cluster of
/// its own, which is loaded once and then runs the workloads on that data. Each read is verified. A run
/// ends when the servers have drained, and all figures include the drain.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    argosy bench --workload load-a,run-a --mix s,sd --records 2000000 --ops 1000000\n  \
    argosy bench --workload load-a,run-a,run-b,run-c,run-f,run-d --sizes talos --plot ycsb.svg\n  \
    argosy bench --embedded --workload load-a,run-a,run-c --mix s -o json\n  \
    argosy bench --embedded --records 100000 -o csv > rows.csv\n  \
    argosy bench --embedded --peer rocksdb --mix s,sd --records 5000000\n  \
    argosy bench --figure tebis-9 --scale 0.5 --plot tebis-9.svg")]
pub(crate) struct Bench {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    systems: SystemArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    asking: ClientArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Seed of keys, values and choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Measure each workload so often, on clusters of their own, and report the median [default: 1;
    /// figures: 3]
    #[arg(long, value_name = "N")]
    repeat: Option<usize>,
    #[command(flatten)]
    rerun: Rerun,
    #[command(flatten)]
    stores: StoreArgs,
    /// Where clusters put their data while they run [default: the temporary directory]
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,
    /// Draw throughput and latency over time into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON or comma-separated values instead of a table
    #[arg(short, long, value_enum, default_value_t)]
    output: BenchOutput,
}

/// The exit code after Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// One system under test.
struct System {
    /// `None`: ours.
    peer: Option<Peer>,
    replication: Replication,
    addresses: AddressMode,
    durability: DurabilityMode,
    placement: PlacementName,
    compaction: CompactionName,
    mix: Mix,
}

impl Bench {
    /// Runs everything that was asked for.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        self.check()?;
        if self.stores.embedded {
            frugal::decide(self.engine.memory.0);
        } else {
            frugal::may_have_huge_pages();
        }
        // Better now than after hours of measuring.
        self.draw(&[])?;
        if let Some(figure) = self.rerun.figure {
            return self.run_figure(figure);
        }
        let running = Running::watched()?;
        let table = self.output == BenchOutput::Table;
        if table {
            println!("{}", self.options());
            self.print_embedded_options();
            println!("{}", report::table_header());
        }
        let rows = self.measure_all(&running)?;
        self.draw(&rows)?;
        if self.plot.is_some()
            && let Some(told) = plot::too_short(&rows)
        {
            eprintln!("note: {told}");
        }
        if table {
            println!(
                "\n{}\n\n{}",
                report::activity_table(&rows),
                heads::explained()
            );
        } else if self.output == BenchOutput::Csv {
            print!("{}", csv::csv(&rows));
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
                    if self.output == BenchOutput::Table {
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
        if self.load.records() == 0 || self.clients() == 0 || self.repeat == Some(0) {
            return refuse("--records, --clients and --repeat are at least 1");
        }
        self.stores.peer.iter().try_for_each(|peer| peer.check())?;
        if self.engine.sync && self.stores.peer.iter().any(|&peer| peer != Peer::Rocksdb) {
            return refuse(
                "--sync: the bench syncs the writes of our store and of RocksDB alone; leave the other peers out, or \
                 run them without --sync",
            );
        }
        if !(1..=PIPELINE_MAX).contains(&self.asking.pipeline) {
            return Err(CommandFailure::Usage(format!(
                "--pipeline is 1 to {PIPELINE_MAX}"
            )));
        }
        Ok(())
    }

    /// Everything that is compared, in the order in which it runs: each peer behind ours.
    fn systems(&self) -> Vec<System> {
        if !self.stores.embedded {
            let modes = self.systems.replication.iter();
            return modes.flat_map(|&mode| self.placed(mode)).collect();
        }
        let mut systems = Vec::new();
        for mix in self.mixes() {
            let ours = self.placed(Replication::None);
            systems.extend(ours.into_iter().filter(|system| system.mix == mix));
            systems.extend(self.stores.peer.iter().map(|&peer| System {
                peer: Some(peer),
                replication: Replication::None,
                addresses: AddressMode::Logical,
                durability: DurabilityMode::LastWrite,
                placement: PlacementName::InPlace,
                compaction: CompactionName::Partial,
                mix,
            }));
        }
        systems
    }

    /// Every placement with every way of compaction.
    fn layouts(&self) -> impl Iterator<Item = (&PlacementName, &CompactionName)> {
        let placements = self.systems.placement.iter();
        placements.flat_map(|placement| {
            self.systems
                .compaction
                .iter()
                .map(move |way| (placement, way))
        })
    }

    fn placed(&self, replication: Replication) -> Vec<System> {
        let mut systems = Vec::new();
        for &durability in &self.systems.durability {
            for &addresses in &self.systems.address {
                for (&placement, &compaction) in self.layouts() {
                    systems.extend(self.mixes().into_iter().map(|mix| System {
                        peer: None,
                        replication,
                        addresses,
                        durability,
                        placement,
                        compaction,
                        mix,
                    }));
                }
            }
        }
        systems
    }

    fn mixes(&self) -> Vec<Mix> {
        if self.load.small_percent.is_empty() {
            return self.load.named_mixes();
        }
        let percents = self.load.small_percent.iter();
        percents
            .filter_map(|&percent| Mix::of_small(percent))
            .collect()
    }

    fn clients(&self) -> usize {
        let default = if self.stores.embedded { 1 } else { 4 };
        self.asking.clients.unwrap_or(default)
    }

    /// The options that a reader of the table has to know.
    fn options(&self) -> String {
        let system = if self.stores.embedded {
            format!("stores in this process | clients {}", self.clients())
        } else {
            format!(
                "servers {} regions {} | clients {} pipeline {}",
                self.cluster.servers,
                self.cluster.regions.unwrap_or(self.cluster.servers),
                self.clients(),
                self.asking.pipeline
            )
        };
        let takes = match self.repeat.unwrap_or(1) {
            1 => "one run".to_owned(),
            n => format!("median of {n}"),
        };
        format!(
            "{system} | records {} ops {} sizes {} | l0 {} growth {} memory {} | seed {} | {takes}\n",
            self.load.records(),
            self.load.ops(),
            self.load.sizes,
            self.engine.l0_bytes(),
            self.engine.growth_factor,
            self.engine.memory,
            self.seed,
        )
    }

    /// What each store in this process is told, once for each placement.
    fn print_embedded_options(&self) {
        let mut told = Vec::new();
        for system in self.systems().iter().filter(|_| self.stores.embedded) {
            let name = system.peer.map_or("lsm", Peer::name);
            let line = format!("{name}: {}", self.embedded_options(system));
            if !told.contains(&line) {
                println!("{line}");
                told.push(line);
            }
        }
        if self.stores.embedded {
            println!();
        }
    }

    /// What one system is told, beside what its row has fields for.
    fn options_of(&self, system: &System) -> String {
        if self.stores.embedded {
            return self.embedded_options(system);
        }
        format!(
            "client={} layout={} l0_bytes={}{} growth_factor={} medium_log_percent={} \
             node_bytes={} large_bytes={} memory_limit={} durability={}",
            self.asking.client,
            self.cluster.layout.name(),
            self.engine.l0_bytes().0,
            ["", " l0_per_replica"][usize::from(self.engine.l0_per_replica)],
            self.engine.growth_factor,
            self.medium_log_percent(),
            self.engine.node_bytes.0,
            self.engine.large_bytes.0,
            self.engine.memory.0,
            system.durability
        )
    }

    fn medium_log_percent(&self) -> u32 {
        let default = ValueKeys::default().medium_log_percent;
        self.engine.medium_log_percent.unwrap_or(default)
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
                fabric: if self.stores.embedded { "none" } else { "shm" },
                options: self.options_of(system),
                replicas: shape.replicas_or_default(),
                regions: shape.regions_or_default(),
            },
            mix: system.mix,
            sizes: self.load.sizes,
            records: self.load.records(),
            ops: self.load.ops(),
            clients: self.clients(),
            transport: self.asking.client,
            pipeline: self.asking.pipeline,
            seed: self.seed,
            workloads: self.load.workloads(),
        }
    }

    fn measure(&self, system: &System, running: &Running) -> Result<Vec<Row>, CommandFailure> {
        if self.stores.embedded {
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

    // --- The cluster of a system ---

    fn shape(&self, system: &System) -> Shape {
        let replication = system.replication;
        Shape {
            servers: Some(self.cluster.servers),
            replicas: match replication {
                Replication::None => None,
                _ => self.cluster.replicas,
            },
            regions: self.cluster.regions,
            replication: Some(replication),
            primaries: Some(self.cluster.layout),
            addresses: Some(system.addresses),
            durability: Some(system.durability),
        }
    }

    fn spec(&self, system: &System) -> Spec {
        Spec {
            shape: self.shape(system),
            split: Split::Hex,
            data_dir: None,
            scratch_root: self.root(),
            memory: MemorySection {
                limit: self.engine.memory,
                ..MemorySection::default()
            },
            storage: StorageSection {
                device_bytes: self.engine.device_bytes,
                l0_bytes: self.engine.l0_bytes(),
                l0_per_replica: self.engine.l0_per_replica,
                values: ValueKeys {
                    placement: system.placement,
                    large_bytes: self.engine.large_bytes,
                    medium_log_percent: self.medium_log_percent(),
                },
                growth_factor: self.engine.growth_factor,
                compaction: system.compaction,
                node_bytes: self.engine.node_bytes,
                ..StorageSection::default()
            },
            new_devices: Vec::new(),
            discard_windows: false,
        }
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
        self.0.lock()
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
