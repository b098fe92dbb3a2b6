//! What came of a figure: medians, ratios to build-index, and the paper's claims beside what was
//! measured.

use std::fmt::Write;

use serde::Serialize;

use super::papers::{BUILD, REWRITE, SEND};
use super::{Claim, Figure, Measure, Scale};
use crate::report::{Activities, Row, ServerRow, medians, rounded, table_header};

/// The schema of [`FigureOutcome`]'s JSON.
pub const SCHEMA: &str = "argosy.figure.v1";

/// A figure, rerun.
#[derive(Clone, Debug, Serialize)]
pub struct FigureOutcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// As it was asked for.
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The paper, with section and figure.
    pub source: &'static str,
    /// Records that were loaded.
    pub records: u64,
    /// Repetitions, of which each row is the median by throughput.
    pub repetitions: usize,
    /// Where it differs from the paper's.
    pub notes: &'static [&'static str],
    /// Systems that this program does not have.
    pub not_available: Vec<&'static str>,
    /// Point by point, system by system, workload by workload.
    pub runs: Vec<FigureRun>,
    /// Each system beside build-index.
    pub ratios: Vec<Ratios>,
    /// What the paper says, and what was measured.
    pub claims: Vec<ClaimOutcome>,
}

/// One workload of one system at one point.
#[derive(Clone, Debug, Serialize)]
pub struct FigureRun {
    /// The system.
    pub system: &'static str,
    /// How many times larger a level is than the one above.
    pub growth_factor: u32,
    /// What was measured.
    pub row: Row,
}

/// How much better a system is than build-index: above 1 it is better.
#[derive(Clone, Debug, Serialize)]
pub struct Ratios {
    /// The workload.
    pub workload: String,
    /// The mix of pair sizes.
    pub mix: String,
    /// How many times larger a level is than the one above.
    pub growth_factor: u32,
    /// The system.
    pub system: &'static str,
    /// Its operations a second over build-index's.
    pub throughput: Option<f64>,
    /// Build-index's CPU for each operation over its.
    pub cpu: Option<f64>,
    /// Build-index's I/O amplification over its.
    pub io: Option<f64>,
    /// Build-index's network amplification over its.
    pub network: Option<f64>,
}

/// A claim, and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimOutcome {
    /// What is compared.
    pub measure: &'static str,
    /// The system that is said to be better.
    pub better: &'static str,
    /// Than which; none where the value is that of `better` itself.
    pub than: Option<&'static str>,
    /// Workloads that are meant; all where there are none.
    pub workloads: &'static [&'static str],
    /// The growth factor that is meant; all where there is none.
    pub growth_factor: Option<u32>,
    /// The paper's range.
    pub paper: (f64, f64),
    /// The section that says so.
    pub section: &'static str,
    /// The least and the most that was measured; none where a system is not available.
    pub measured: Option<(f64, f64)>,
}

/// Everything that one system did at one point: the rows of each repetition.
#[derive(Clone, Debug)]
pub struct Takes {
    /// The system's label.
    pub system: &'static str,
    /// The point's growth factor.
    pub growth_factor: u32,
    /// Rows, by repetition and workload.
    pub rows: Vec<Vec<Row>>,
}

impl FigureOutcome {
    /// Draws up `takes`, which are in the order in which they are to be shown.
    #[must_use]
    pub fn new(
        figure: &Figure,
        scale: Scale,
        takes: &[Takes],
        not_available: Vec<&'static str>,
    ) -> Self {
        let mut runs = Vec::new();
        for take in takes {
            runs.extend(medians(&take.rows).into_iter().map(|row| FigureRun {
                system: take.system,
                growth_factor: take.growth_factor,
                row,
            }));
        }
        let mut claims = Vec::new();
        for claim in figure.claims {
            claims.extend(variants(figure, claim).map(|claim| judge(&claim, &runs)));
        }
        Self {
            schema: SCHEMA,
            figure: figure.name,
            title: figure.title,
            source: figure.source,
            records: scale.records,
            repetitions: takes.first().map_or(0, |take| take.rows.len()),
            notes: figure.notes,
            not_available,
            ratios: ratios(&runs),
            claims,
            runs,
        }
    }

    /// All of it, for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        self.write(&mut out)
            .expect("a string takes all that is written to it");
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{:>18} gf {}", "system", table_header())?;
        for run in &self.runs {
            writeln!(
                out,
                "{:>18} {:>2} {}",
                run.system, run.growth_factor, run.row
            )?;
        }
        for system in &self.not_available {
            writeln!(out, "{system:>18}  not available")?;
        }
        self.write_roles(out)?;
        self.write_ratios(out)?;
        self.write_claims(out)?;
        writeln!(out, "\nNotes")?;
        for note in self.notes {
            writeln!(out, "- {note}")?;
        }
        Ok(())
    }

    fn write_roles(&self, out: &mut String) -> std::fmt::Result {
        let split = Figure::named(self.figure).is_some_and(|figure| figure.cluster.split);
        writeln!(
            out,
            "\nCPU by activity and role, us/op\n{:>18} {:>8} {:>3} gf {:>8} {:>8} {:>8} {:>8} {:>10} \
             {:>10} {:>8} {:>8}",
            "system",
            "workload",
            "mix",
            "server",
            "cpu",
            "request",
            "log repl",
            "compaction",
            "index ship",
            "rewrite",
            "other"
        )?;
        for run in &self.runs {
            let row = &run.row;
            write_role(
                out,
                run,
                "all",
                row.cpu.cpu_us_per_op,
                row.cpu.activity_cpu_us_per_op,
            )?;
            // Where every server has both roles, one server says no more than all.
            for server in row.per_server.iter().filter(|_| split) {
                let role = if server.id == 0 { "primary" } else { "backup" };
                write_role(
                    out,
                    run,
                    role,
                    server.cpu_us_per_op,
                    server.activity_cpu_us_per_op,
                )?;
            }
        }
        Ok(())
    }

    fn write_ratios(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nBeside build-index (above 1: so many times better)")?;
        if self.ratios.is_empty() {
            return writeln!(out, "not available");
        }
        writeln!(
            out,
            "{:>18} {:>8} {:>3} gf {:>10} {:>8} {:>8} {:>8}",
            "system", "workload", "mix", "throughput", "cpu", "i/o", "network"
        )?;
        for ratio in &self.ratios {
            writeln!(
                out,
                "{:>18} {:>8} {:>3} {:>2} {:>10} {:>8} {:>8} {:>8}",
                ratio.system,
                ratio.workload,
                ratio.mix,
                ratio.growth_factor,
                figure(ratio.throughput),
                figure(ratio.cpu),
                figure(ratio.io),
                figure(ratio.network),
            )?;
        }
        Ok(())
    }

    fn write_claims(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n{}\n{:>14} {:>14}", self.source, "paper", "measured")?;
        for claim in &self.claims {
            let measured = claim.measured.map_or_else(
                || "not available".to_owned(),
                |(low, high)| range(low, high),
            );
            writeln!(
                out,
                "{:>14} {measured:>14}  {}",
                range(claim.paper.0, claim.paper.1),
                claim.what()
            )?;
        }
        Ok(())
    }
}

impl ClaimOutcome {
    /// In words.
    #[must_use]
    pub fn what(&self) -> String {
        let mut text = match self.than {
            Some(than) => format!("{}: {} over {than}", self.measure, self.better),
            None => format!("{} of {}, not a ratio", self.measure, self.better),
        };
        if !self.workloads.is_empty() {
            text += &format!(", {}", self.workloads.join(" "));
        }
        if let Some(factor) = self.growth_factor {
            text += &format!(", growth factor {factor}");
        }
        text + &format!(" (section {})", self.section)
    }
}

fn write_role(
    out: &mut String,
    run: &FigureRun,
    role: &str,
    cpu: f64,
    activities: Activities,
) -> std::fmt::Result {
    let [request, log, compaction, index, rewrite, other] = activities.parts();
    writeln!(
        out,
        "{:>18} {:>8} {:>3} {:>2} {role:>8} {cpu:>8.2} {request:>8.2} {log:>8.2} \
         {compaction:>10.2} {index:>10.2} {rewrite:>8.2} {other:>8.2}",
        run.system, run.row.subject.workload, run.row.subject.mix, run.growth_factor
    )
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

fn range(low: f64, high: f64) -> String {
    if format!("{low:.2}") == format!("{high:.2}") {
        format!("{low:.2}")
    } else {
        format!("{low:.2} - {high:.2}")
    }
}

/// `claim`, and the same of send-index with the papers' address mode.
fn variants(figure: &Figure, claim: &Claim) -> impl Iterator<Item = Claim> {
    let swap = |label| if label == SEND { REWRITE } else { label };
    let other = Claim {
        better: swap(claim.better),
        than: claim.than.map(swap),
        ..*claim
    };
    let differs = (other.better, other.than) != (claim.better, claim.than);
    let there = figure.systems.iter().any(|system| system.label == REWRITE);
    std::iter::once(*claim).chain((differs && there).then_some(other))
}

fn judge(claim: &Claim, runs: &[FigureRun]) -> ClaimOutcome {
    let mut measured: Option<(f64, f64)> = None;
    for run in runs.iter().filter(|run| claim.means(run)) {
        let value = match claim.than {
            None => claim.measure.of(&run.row),
            Some(than) => beside(runs, run, than)
                .and_then(|than| claim.measure.improvement(&run.row, &than.row)),
        };
        if let Some(value) = value {
            let value = rounded(value, 3);
            let (low, high) = measured.unwrap_or((value, value));
            measured = Some((low.min(value), high.max(value)));
        }
    }
    ClaimOutcome {
        measure: claim.measure.name(),
        better: claim.better,
        than: claim.than,
        workloads: claim.workloads,
        growth_factor: claim.growth_factor,
        paper: claim.range,
        section: claim.at,
        measured,
    }
}

/// What `system` did at the point and on the workload of `run`.
fn beside<'a>(runs: &'a [FigureRun], run: &FigureRun, system: &str) -> Option<&'a FigureRun> {
    runs.iter().find(|other| {
        other.system == system
            && other.growth_factor == run.growth_factor
            && (&other.row.subject.mix, &other.row.subject.workload)
                == (&run.row.subject.mix, &run.row.subject.workload)
    })
}

fn ratios(runs: &[FigureRun]) -> Vec<Ratios> {
    let mut ratios = Vec::new();
    for run in runs.iter().filter(|run| run.system != BUILD) {
        let Some(build) = beside(runs, run, BUILD) else {
            continue;
        };
        let of = |measure: Measure| {
            let ratio = measure.improvement(&run.row, &build.row);
            ratio.map(|ratio| rounded(ratio, 3))
        };
        ratios.push(Ratios {
            workload: run.row.subject.workload.clone(),
            mix: run.row.subject.mix.clone(),
            growth_factor: run.growth_factor,
            system: run.system,
            throughput: of(Measure::Throughput),
            cpu: of(Measure::Cpu),
            io: of(Measure::IoAmplification),
            network: of(Measure::NetworkAmplification),
        });
    }
    ratios
}

impl Claim {
    /// Whether `run` is one of the better system's that are meant.
    fn means(&self, run: &FigureRun) -> bool {
        let workload = run.row.subject.workload.as_str();
        run.system == self.better
            && (self.workloads.is_empty() || self.workloads.contains(&workload))
            && self
                .growth_factor
                .is_none_or(|factor| factor == run.growth_factor)
    }
}

impl Measure {
    /// Its value. Of roles: where server 0 is primary of all regions.
    #[must_use]
    pub fn of(self, row: &Row) -> Option<f64> {
        let backups = || row.per_server.iter().skip(1);
        let sum = |of: fn(&ServerRow) -> f64| backups().map(of).sum::<f64>();
        // Bytes of requests are those of the device over the amplification.
        let device = row.devices.device_read_bytes + row.devices.device_write_bytes;
        let part = |bytes: u64| match device {
            0 => 0.0,
            _ => row.devices.io_amplification * crate::report::ratio(bytes, device),
        };
        Some(match self {
            Self::Throughput => row.speed.ops_per_second,
            Self::Cpu => row.cpu.cpu_us_per_op,
            Self::IoAmplification => row.devices.io_amplification,
            Self::NetworkAmplification => row.network.network_amplification,
            Self::P99 => row.times.latency_us.p99,
            Self::P999 => row.times.latency_us.p999,
            Self::P9999 => row.times.latency_us.p9999,
            Self::BackupCpu => sum(|server| server.cpu_us_per_op),
            Self::IndexCpu => {
                let of = &row.cpu.activity_cpu_us_per_op;
                let compacting = sum(|server| server.compaction_cpu_us_per_op);
                of.index_shipping + of.rewriting + compacting
            }
            Self::PrimaryIo => {
                let primary = row.per_server.first()?;
                part(primary.device_read_bytes + primary.device_write_bytes)
            }
            Self::BackupReads => part(backups().map(|server| server.device_read_bytes).sum()),
        })
    }

    /// How many times better `better` is than `than`; none where that is no number.
    #[must_use]
    pub fn improvement(self, better: &Row, than: &Row) -> Option<f64> {
        let (better, than) = (self.of(better)?, self.of(than)?);
        let (above, below) = if self.rises() {
            (better, than)
        } else {
            (than, better)
        };
        (below > 0.0).then(|| above / below)
    }
}
