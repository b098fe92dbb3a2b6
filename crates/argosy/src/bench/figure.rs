//! `argosy bench --figure`: a paper's comparison, rerun at a scale.

use std::collections::BTreeMap;
use std::path::PathBuf;

use argosy_base::{AddressMode, DurabilityMode};
use argosy_bench::Workload;
use argosy_bench::figure::bars;
use argosy_bench::figure::outcome::{FigureOutcome, Takes};
use argosy_bench::figure::{BackupL0, Figure, Point, RECORDS_AT_SCALE_1, Scale, System as Asked};
use argosy_bench::report::Row;
use clap::{Args, ValueEnum};

use super::asked::{BenchOutput, ClusterArgs};
use super::{Bench, Running, System};
use crate::budget;
use crate::cluster::Spec;
use crate::cluster::layout::{Primaries, Replication, Split, new_map};
use crate::cluster::ports::Ports;
use crate::config::{
    AdminSection, CompactionName, CoordinatorSection, FabricSection, FailoverSection, LogSection,
    NativeSection, PlacementName, ReplicationSection, RespSection, ServerConfig, ServerSection,
};
use crate::failure::CommandFailure;
use crate::server::RESP_THREADS;
use crate::units::Size;

/// Repetitions, of which the median is reported.
const REPEAT: usize = 3;

/// Most memory that a server of a figure is given.
const MEMORY_MIB_MAX: u64 = 1 << 20;

/// Least and most `--scale`.
const SCALE_RANGE: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

/// Which comparison is rerun, and how large.
#[derive(Args, Clone, Debug)]
pub(super) struct Rerun {
    /// Rerun a paper's comparison: talos-6, talos-8, talos-9, talos-10, tebis-8, tebis-9, tebis-10,
    /// tebis-12. --mix and --workload leave out others; --records, --ops and --l0-bytes replace what
    /// --scale says
    #[arg(
        long,
        value_name = "NAME",
        value_parser = parse_figure,
        conflicts_with_all = [
            "small_percent", "sizes", "placement", "replication", "address", "durability", "servers", "replicas",
            "layout", "growth_factor", "medium_log_percent", "node_bytes", "large_bytes", "memory",
            "embedded", "peer",
        ]
    )]
    pub(super) figure: Option<&'static Figure>,
    /// How large a figure is: 1 is 500,000 records, and some minutes on two cores
    #[arg(
        long,
        value_name = "X",
        value_parser = parse_scale,
        default_value = "1",
        requires = "figure"
    )]
    pub(super) scale: u64,
}

/// What of a figure is measured: every system at every point.
struct Sweep {
    figure: &'static Figure,
    scale: Scale,
    points: Vec<&'static Point>,
    systems: Vec<&'static Asked>,
}

/// A figure by its name.
pub(super) fn parse_figure(name: &str) -> Result<&'static Figure, String> {
    Figure::named(name).ok_or_else(|| {
        let names = Figure::names().join(", ");
        format!("no figure is called '{name}'; there are {names}")
    })
}

/// A scale, as a percentage.
pub(super) fn parse_scale(text: &str) -> Result<u64, String> {
    let scale = text
        .parse()
        .ok()
        .filter(|scale| SCALE_RANGE.contains(scale));
    let scale: f64 = scale.ok_or_else(|| {
        let (least, most) = (SCALE_RANGE.start(), SCALE_RANGE.end());
        format!("a scale is a number from {least} to {most}; 1 is {RECORDS_AT_SCALE_1} records")
    })?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked"
    )]
    let percent = (scale * 100.0).round() as u64;
    Ok(percent)
}

impl Bench {
    /// Reruns `figure`.
    pub(super) fn run_figure(&self, figure: &'static Figure) -> Result<(), CommandFailure> {
        let mut scale = Scale::of(self.rerun.scale);
        scale.records = self.load.records.unwrap_or(scale.records);
        scale.ops = self.load.ops.unwrap_or(scale.records / 2);
        if let Some(l0_bytes) = self.engine.l0_bytes {
            scale.l0_bytes = l0_bytes.0;
        }
        let points = figure.points.iter();
        let points: Vec<&'static Point> = points
            .filter(|point| self.load.mix.is_empty() || self.load.mix.contains(&point.mix()))
            .collect();
        let names = figure.workloads.iter();
        let workloads: Result<Vec<Workload>, _> = names.map(|name| name.parse()).collect();
        let mut workloads = workloads.map_err(CommandFailure::Usage)?;
        workloads.retain(|one| self.load.workload.is_empty() || self.load.workload.contains(one));
        if points.is_empty() || workloads.is_empty() {
            let name = figure.name;
            let why =
                format!("{name} has none of the mixes, or of the workloads, that were asked for");
            return Err(CommandFailure::Usage(why));
        }
        if self.output == BenchOutput::Csv {
            let why = "-o csv: figures are printed as a table or as JSON".to_owned();
            return Err(CommandFailure::Usage(why));
        }
        let running = Running::watched()?;
        let table = self.output == BenchOutput::Table;
        if table {
            println!("{}\n", self.figure_options(figure, scale));
        }
        let (present, missing): (Vec<&'static Asked>, Vec<&'static Asked>) = figure
            .systems
            .iter()
            .partition(|asked| system_of(figure, asked).is_some());
        let sweep = Sweep {
            figure,
            scale,
            points,
            systems: present,
        };
        let mut limits = self.clone();
        limits.load.workload = workloads;
        limits.load.records = Some(scale.records);
        limits.load.ops = Some(scale.ops);
        limits.engine.l0_bytes = Some(Size(scale.l0_bytes));
        let takes = limits.take(&sweep, &running)?;
        let missing = missing.iter().map(|asked| asked.label).collect();
        let outcome = FigureOutcome::new(figure, scale, &takes, missing);
        if let Some(path) = &self.plot {
            let written = std::fs::write(path, bars::svg(&outcome));
            written.map_err(|error| CommandFailure::io("write the plot", path, &error))?;
        }
        if table {
            println!("{}", outcome.table());
        } else {
            let json = serde_json::to_string(&outcome);
            println!("{}", json.expect("plain data has a JSON form"));
        }
        Ok(())
    }

    /// What a reader of the table has to know.
    fn figure_options(&self, figure: &Figure, scale: Scale) -> String {
        format!(
            "{} ({}): {}\nrecords {} ops {} sizes {} | servers {} members {} placement {} | \
             clients {} pipeline {} | l0 {} a server | seed {} | median of {}",
            figure.name,
            figure.source,
            figure.title,
            scale.records,
            scale.ops,
            figure.sizes,
            figure.cluster.servers,
            figure.cluster.replicas,
            figure.placement,
            self.clients(),
            self.asking.pipeline,
            Size(scale.l0_bytes),
            self.seed,
            self.repeat.unwrap_or(REPEAT),
        )
    }

    /// Runs everything: all systems side by side, then all of them again.
    fn take(&self, sweep: &Sweep, running: &Running) -> Result<Vec<Takes>, CommandFailure> {
        let repeat = self.repeat.unwrap_or(REPEAT);
        let mut takes = BTreeMap::new();
        for repetition in 1..=repeat {
            for (p, point) in sweep.points.iter().enumerate() {
                for (s, asked) in sweep.systems.iter().enumerate() {
                    eprintln!(
                        "{repetition}/{repeat}: {}, mix {}, growth factor {}",
                        asked.label,
                        point.mix(),
                        point.growth_factor
                    );
                    let rows = self.measure_point(sweep, point, asked, running)?;
                    let take = takes.entry((p, s)).or_insert_with(|| Takes {
                        system: asked.label,
                        growth_factor: point.growth_factor,
                        rows: Vec::new(),
                    });
                    take.rows.push(rows);
                }
            }
        }
        Ok(takes.into_values().collect())
    }

    fn measure_point(
        &self,
        sweep: &Sweep,
        point: &Point,
        asked: &Asked,
        running: &Running,
    ) -> Result<Vec<Row>, CommandFailure> {
        let figure = sweep.figure;
        let system = system_of(figure, asked);
        let mut system = system.expect("only what there is is measured");
        system.mix = point.mix();
        system.compaction = self.systems.compaction.first().copied().unwrap_or_default();
        let mut bench = self.clone();
        bench.load.sizes = figure.sizes();
        bench.cluster = ClusterArgs {
            servers: figure.cluster.servers,
            replicas: Some(figure.cluster.replicas),
            regions: Some(self.cluster.regions.unwrap_or(figure.cluster.servers)),
            layout: if figure.cluster.split {
                Primaries::Split
            } else {
                Primaries::Spread
            },
        };
        bench.engine.growth_factor = point.growth_factor;
        bench.engine.l0_per_replica = asked.l0 == BackupL0::Own;
        bench.engine.memory = bench.memory_for(&system, sweep.scale.cache_bytes(figure, point))?;
        bench.measure(&system, running)
    }

    /// The least memory, in whole MiB, with which every server has a cache of `cache_bytes`.
    fn memory_for(&self, system: &System, cache_bytes: u64) -> Result<Size, CommandFailure> {
        let ports: Vec<_> = (1..).take(self.cluster.servers).map(Ports::at).collect();
        let map = new_map(&self.shape(system), Split::Hex, &ports)?;
        let spec = self.spec(system);
        let suffices = |limit: Size| {
            let servers = map.servers().iter().zip(&ports);
            servers.into_iter().all(|(server, ports)| {
                let mut config = config_of(server.id.0, *ports, &spec);
                config.memory.limit = limit;
                let settings = budget::node_settings(&config, &map, RESP_THREADS.get());
                settings.is_ok_and(|settings| settings.node.memory.cache as u64 >= cache_bytes)
            })
        };
        let (mut low, mut high) = (0, MEMORY_MIB_MAX);
        while low + 1 < high {
            let middle = low.midpoint(high);
            if suffices(Size::mib(middle)) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(Size::mib(high))
    }
}

/// The system that a figure asks for; `None` where there is no such mode.
fn system_of(figure: &Figure, asked: &Asked) -> Option<System> {
    Some(System {
        peer: None,
        replication: Replication::from_name(asked.replication)?,
        addresses: AddressMode::from_name(asked.address)?,
        durability: DurabilityMode::default(),
        placement: PlacementName::from_str(figure.placement, false).ok()?,
        compaction: CompactionName::default(),
        mix: figure.points.first()?.mix(),
    })
}

/// The configuration of a server that is only asked how it would divide its memory.
fn config_of(id: u32, ports: Ports, spec: &Spec) -> ServerConfig {
    ServerConfig {
        server: ServerSection {
            id,
            data_dir: PathBuf::from("."),
        },
        resp: RespSection::at(ports.resp),
        native: NativeSection::default(),
        admin: AdminSection::at(ports.admin),
        coordinator: CoordinatorSection {
            dir: PathBuf::from("."),
        },
        fabric: FabricSection {
            shm_dir: PathBuf::from("."),
        },
        memory: spec.memory.clone(),
        storage: spec.storage.clone(),
        replication: ReplicationSection::default(),
        failover: FailoverSection::default(),
        log: LogSection::default(),
    }
}
