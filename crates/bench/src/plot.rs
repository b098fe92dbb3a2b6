//! Throughput and latency over time, as a picture: plain SVG, drawn here.
//!
//! Each row gets a band of two panels, throughput on the left and the 99th percentile of latency
//! on the right, both over the seconds since the workload's first request:
//!
//! ```text
//! title
//! kops/s |‾‾|__|‾‾‾     ms |__|‾‾|____
//!        +-------- s       +-------- s
//! ```
//!
//! A step of a line is one interval of the row's timeline. Both axes begin at zero, and each panel
//! has a scale of its own, which it says. Of fewer than [`POINTS_MIN`] intervals a panel says that the run was too
//! short: what it shows is how the run began.

use std::fmt::{self, Write};

use crate::report::Row;
use crate::timeline::Interval;

/// Intervals from which on a line shows how a run went.
pub const POINTS_MIN: usize = 10;

const WIDTH: f64 = 1040.0;
const BAND: f64 = 270.0;
/// Of a panel's plot area.
const PANEL_WIDTH: f64 = 410.0;
const PANEL_HEIGHT: f64 = 150.0;
/// Where the plot areas of a band begin.
const LEFT: [f64; 2] = [80.0, 600.0];
const TOP: f64 = 62.0;
/// About so many steps on an axis.
const TICKS: f64 = 5.0;

/// What a panel shows.
struct Panel {
    title: &'static str,
    /// Units from the smallest on: a name, and how many of the smallest it is.
    units: &'static [(&'static str, f64)],
    color: &'static str,
    of: fn(&Interval) -> f64,
}

const PANELS: [Panel; 2] = [
    Panel {
        title: "throughput",
        units: &[("ops/s", 1.0), ("kops/s", 1e3), ("Mops/s", 1e6)],
        color: "#1f6fb4",
        of: |point| point.ops_per_second,
    },
    Panel {
        title: "p99 latency",
        units: &[("us", 1.0), ("ms", 1e3), ("s", 1e6)],
        color: "#c1440e",
        of: |point| point.p99_us,
    },
];

/// The picture of `rows`, as the text of an SVG file.
#[must_use]
pub fn svg(rows: &[Row]) -> String {
    let mut out = String::new();
    draw(rows, &mut out).expect("a string takes all that is written to it");
    out
}

fn draw(rows: &[Row], out: &mut String) -> fmt::Result {
    let height = BAND * f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">"
    )?;
    writeln!(
        out,
        "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>"
    )?;
    for (band, row) in (0_u32..).zip(rows) {
        writeln!(
            out,
            "<g transform=\"translate(0 {})\">",
            BAND * f64::from(band)
        )?;
        let title = escaped(&title(row));
        writeln!(
            out,
            "<text x=\"{}\" y=\"24\" font-size=\"14\" font-weight=\"bold\">{title}</text>",
            LEFT[0]
        )?;
        for (panel, left) in PANELS.iter().zip(LEFT) {
            writeln!(out, "<g transform=\"translate({left} {TOP})\">")?;
            draw_panel(panel, &row.times.timeline, out)?;
            writeln!(out, "</g>")?;
        }
        writeln!(out, "</g>")?;
    }
    writeln!(out, "</svg>")
}

/// What is said of rows that are too short for a plot, if any are.
#[must_use]
pub fn too_short(rows: &[Row]) -> Option<String> {
    let short: Vec<_> = rows
        .iter()
        .filter(|row| row.times.timeline.len() < POINTS_MIN)
        .map(|row| {
            let (workload, points) = (&row.subject.workload, row.times.timeline.len());
            format!("{workload} ({points})")
        })
        .collect();
    (!short.is_empty()).then(|| {
        format!(
            "the plot has too few points to show how these runs went, {POINTS_MIN} seconds at least are needed: {}. \
             Raise --records and --ops",
            short.join(", ")
        )
    })
}

fn title(row: &Row) -> String {
    format!(
        "{}  {}  {}  {}  {}  {}: {:.1} kops/s with the drain, p99 {:.0} us",
        row.subject.workload,
        row.subject.mix,
        row.subject.engine,
        row.subject.placement,
        row.subject.replication,
        row.subject.address_mode,
        row.speed.ops_per_second / 1000.0,
        row.times.latency_us.p99,
    )
}

fn draw_panel(panel: &Panel, points: &[Interval], out: &mut String) -> fmt::Result {
    let highest = points.iter().map(panel.of).fold(0.0, f64::max);
    let end = points
        .last()
        .map_or(0.0, |point| point.at_seconds + point.seconds);
    let (unit, scale) = unit_for(panel.units, highest);
    let (x, y) = (Axis::to(end), Axis::to(highest / scale));
    for tick in y.ticks() {
        let at = PANEL_HEIGHT - y.part(tick) * PANEL_HEIGHT;
        writeln!(
            out,
            "<path d=\"M0 {at:.1}H{PANEL_WIDTH}\" stroke=\"#dddddd\"/>\
             <text x=\"-6\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            at + 4.0,
            y.label(tick)
        )?;
    }
    for tick in x.ticks() {
        let at = x.part(tick) * PANEL_WIDTH;
        writeln!(
            out,
            "<path d=\"M{at:.1} {PANEL_HEIGHT}v4\" stroke=\"black\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            PANEL_HEIGHT + 17.0,
            x.label(tick)
        )?;
    }
    writeln!(
        out,
        "<path d=\"M0 0V{PANEL_HEIGHT}H{PANEL_WIDTH}\" fill=\"none\" stroke=\"black\"/>\
         <text x=\"0\" y=\"-10\">{} ({unit})</text>\
         <text x=\"{PANEL_WIDTH}\" y=\"{}\" text-anchor=\"end\">seconds since the first \
         request</text>",
        panel.title,
        PANEL_HEIGHT + 34.0
    )?;
    if points.len() < POINTS_MIN {
        writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#888888\">too short a run: {} of {POINTS_MIN} \
             points</text>",
            PANEL_WIDTH / 2.0,
            PANEL_HEIGHT / 2.0,
            points.len()
        )?;
    }
    let mut line = String::new();
    for point in points {
        let from = x.part(point.at_seconds) * PANEL_WIDTH;
        let to = x.part(point.at_seconds + point.seconds) * PANEL_WIDTH;
        let at = PANEL_HEIGHT - y.part((panel.of)(point) / scale) * PANEL_HEIGHT;
        let move_to = if line.is_empty() { 'M' } else { 'L' };
        write!(line, "{move_to}{from:.1} {at:.1}H{to:.1}")?;
    }
    writeln!(
        out,
        "<path d=\"{line}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>",
        panel.color
    )
}

/// The largest unit of which `highest` is at least two.
fn unit_for(units: &'static [(&'static str, f64)], highest: f64) -> (&'static str, f64) {
    let fits = |&&(_, scale): &&(&str, f64)| highest >= 2.0 * scale;
    *units.iter().rfind(fits).unwrap_or(&units[0])
}

/// An axis from zero on.
pub(crate) struct Axis {
    step: f64,
    end: f64,
}

impl Axis {
    /// One that reaches `highest`, in whole steps of 1, 2 or 5 times a power of ten.
    pub(crate) fn to(highest: f64) -> Self {
        let rough = if highest > 0.0 { highest / TICKS } else { 0.2 };
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(10.0 * power);
        let end = step * (highest / step).ceil().max(1.0);
        Self { step, end }
    }

    /// Where its numbers stand.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = f64> {
        let (step, end) = (self.step, self.end);
        (0_u32..=10)
            .map(move |n| step * f64::from(n))
            .take_while(move |tick| *tick <= end * 1.001)
    }

    /// How far along the axis `value` is, of one.
    pub(crate) fn part(&self, value: f64) -> f64 {
        value / self.end
    }

    /// As many digits behind the point as the step needs.
    pub(crate) fn label(&self, tick: f64) -> String {
        let digits = if self.step >= 1.0 {
            0
        } else if self.step >= 0.1 {
            1
        } else if self.step >= 0.01 {
            2
        } else {
            4
        };
        format!("{tick:.digits$}")
    }
}

/// `text` as it stands in SVG.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(ops: &[u64]) -> Vec<Interval> {
        (0_u32..)
            .zip(ops)
            .map(|(second, &ops)| Interval {
                at_seconds: f64::from(second),
                seconds: 1.0,
                ops,
                ops_per_second: crate::report::ratio(ops, 1),
                p99_us: 250.0,
            })
            .collect()
    }

    fn panel(points: &[Interval], which: usize) -> String {
        let mut out = String::new();
        draw_panel(&PANELS[which], points, &mut out).unwrap();
        out
    }

    #[test]
    fn every_interval_is_a_step_on_axes_with_units() {
        let points = points(&[4000, 12_000, 8000]);
        let throughput = panel(&points, 0);
        assert!(throughput.contains("throughput (kops/s)"), "{throughput}");
        assert!(panel(&points, 1).contains("p99 latency (us)"));
        assert!(throughput.contains("seconds since the first request"));
        let line = throughput.lines().last().unwrap();
        assert_eq!(line.matches('H').count(), 3, "{line}");
        // 12 of at most 15 kops/s: a fifth of the panel's height is above it.
        assert!(line.contains(" 30.0H"), "{line}");
    }

    #[test]
    fn a_run_that_is_too_short_is_said_to_be() {
        let short = panel(&points(&[1; POINTS_MIN - 1]), 0);
        assert!(short.contains("too short a run: 9 of 10 points"), "{short}");
        assert!(!panel(&points(&[1; POINTS_MIN]), 0).contains("too short"));
        let mut row = crate::figure::tests::row(1.0, 2.0, 3.0, 4);
        let told = too_short(&[row.clone()]).unwrap();
        assert!(
            told.contains(&format!("{} (0)", row.subject.workload)),
            "{told}"
        );
        row.times.timeline = points(&[1; POINTS_MIN]);
        assert_eq!(too_short(&[row]), None);
    }

    #[test]
    fn nothing_at_all_can_be_drawn() {
        for which in 0..PANELS.len() {
            let text = panel(&[], which);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            let text = panel(&points(&[0, 0]), which);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
        assert!(svg(&[]).ends_with("</svg>\n"));
    }

    #[test]
    fn axes_reach_what_they_show_in_round_steps() {
        for (highest, step, end) in [
            (0.0, 0.2, 0.2),
            (1.0, 0.2, 1.0),
            (7.0, 2.0, 8.0),
            (12.0, 5.0, 15.0),
            (180.0, 50.0, 200.0),
        ] {
            let axis = Axis::to(highest);
            assert!((axis.step - step).abs() < 1e-9, "{highest}: {}", axis.step);
            assert!((axis.end - end).abs() < 1e-9, "{highest}: {}", axis.end);
            assert!(axis.ticks().count() <= 7);
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
