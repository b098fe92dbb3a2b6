//! A figure as a picture: groups of bars, as the papers draw them.
//!
//! Each workload gets a band of four panels. A group stands for a point
//! (a mix, and a growth factor where these differ), and has a bar for each system, in the order and
//! the colours of the legend on top. Each panel has a scale of its own, from zero on.

use std::fmt::{self, Write};

use super::outcome::{FigureOutcome, FigureRun};
use crate::plot::{Axis, escaped};
use crate::report::Row;

const PANEL_WIDTH: f64 = 300.0;
const PANEL_HEIGHT: f64 = 150.0;
/// From one panel to the next; the axis's numbers stand in between.
const PANEL_STEP: f64 = 365.0;
const LEFT: f64 = 60.0;
/// The legend's height, and that of a band.
const TOP: f64 = 70.0;
const BAND: f64 = 240.0;
/// Of a group's width, what its bars take.
const FILLED: f64 = 0.8;
const COLORS: [&str; 6] = [
    "#9a9a9a", "#c1440e", "#e8a33d", "#1f6fb4", "#6db6e8", "#3c8c50",
];

/// A title, and what is shown.
type Panel = (&'static str, fn(&Row) -> f64);

const PANELS: [Panel; 4] = [
    ("throughput (kops/s)", |row| {
        row.speed.ops_per_second / 1000.0
    }),
    ("CPU of servers (us/op)", |row| row.cpu.cpu_us_per_op),
    ("I/O amplification", |row| row.devices.io_amplification),
    ("network amplification", |row| {
        row.network.network_amplification
    }),
];

/// The picture of `outcome`, as the text of an SVG file.
#[must_use]
pub fn svg(outcome: &FigureOutcome) -> String {
    let mut out = String::new();
    draw(outcome, &mut out).expect("a string takes all that is written to it");
    out
}

/// What each of `runs` is in one respect, in the order of their first appearance.
fn distinct<T: PartialEq>(runs: &[FigureRun], of: impl Fn(&FigureRun) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for run in runs {
        let value = of(run);
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

fn draw(outcome: &FigureOutcome, out: &mut String) -> fmt::Result {
    let workloads = distinct(&outcome.runs, |run| run.row.subject.workload.clone());
    let systems = distinct(&outcome.runs, |run| run.system);
    let width = LEFT + PANEL_STEP * count(PANELS.len());
    let height = TOP + BAND * count(workloads.len());
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"14\" font-weight=\"bold\">{}</text>",
        escaped(&format!(
            "{}: {} ({} records, median of {})",
            outcome.source, outcome.title, outcome.records, outcome.repetitions
        ))
    )?;
    let mut at = LEFT;
    for (system, color) in systems.iter().zip(COLORS.iter().cycle()) {
        writeln!(
            out,
            "<rect x=\"{at}\" y=\"35\" width=\"12\" height=\"12\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"46\">{}</text>",
            at + 17.0,
            escaped(system)
        )?;
        at += 170.0;
    }
    for (band, workload) in workloads.iter().enumerate() {
        let runs: Vec<_> = outcome
            .runs
            .iter()
            .filter(|run| run.row.subject.workload == *workload)
            .cloned()
            .collect();
        for (panel, &(title, of)) in PANELS.iter().enumerate() {
            let (x, y) = (
                LEFT + PANEL_STEP * count(panel),
                TOP + BAND * count(band) + 30.0,
            );
            writeln!(out, "<g transform=\"translate({x} {y})\">")?;
            writeln!(
                out,
                "<text x=\"0\" y=\"-10\">{}: {title}</text>",
                escaped(workload)
            )?;
            draw_panel(&runs, &systems, of, out)?;
            writeln!(out, "</g>")?;
        }
    }
    writeln!(out, "</svg>")
}

fn draw_panel(
    runs: &[FigureRun],
    systems: &[&'static str],
    of: fn(&Row) -> f64,
    out: &mut String,
) -> fmt::Result {
    let groups = distinct(runs, |run| (run.row.subject.mix.clone(), run.growth_factor));
    let one_factor = distinct(runs, |run| run.growth_factor).len() == 1;
    let axis = Axis::to(runs.iter().map(|run| of(&run.row)).fold(0.0, f64::max));
    for tick in axis.ticks() {
        let at = PANEL_HEIGHT - axis.part(tick) * PANEL_HEIGHT;
        writeln!(
            out,
            "<path d=\"M0 {at:.1}H{PANEL_WIDTH}\" stroke=\"#dddddd\"/>\
             <text x=\"-6\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            at + 4.0,
            axis.label(tick)
        )?;
    }
    let group_width = PANEL_WIDTH / count(groups.len()).max(1.0);
    let bar_width = group_width * FILLED / count(systems.len()).max(1.0);
    for (group, (mix, factor)) in groups.iter().enumerate() {
        let left = group_width * count(group) + group_width * (1.0 - FILLED) / 2.0;
        for (bar, (system, color)) in systems.iter().zip(COLORS.iter().cycle()).enumerate() {
            let is = |run: &&FigureRun| {
                run.system == *system && (&run.row.subject.mix, run.growth_factor) == (mix, *factor)
            };
            let Some(run) = runs.iter().find(is) else {
                continue;
            };
            let high = axis.part(of(&run.row)) * PANEL_HEIGHT;
            writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{bar_width:.1}\" height=\"{high:.1}\" \
                 fill=\"{color}\"/>",
                left + bar_width * count(bar),
                PANEL_HEIGHT - high
            )?;
        }
        let name = if one_factor {
            mix.clone()
        } else {
            format!("{mix}, {factor}")
        };
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            group_width * (count(group) + 0.5),
            PANEL_HEIGHT + 17.0,
            escaped(&name)
        )?;
    }
    writeln!(
        out,
        "<path d=\"M0 0V{PANEL_HEIGHT}H{PANEL_WIDTH}\" fill=\"none\" stroke=\"black\"/>"
    )
}
