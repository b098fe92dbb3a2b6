//! Latency over time, as a picture: plain SVG, drawn here.
//!
//! The upper panel has the worst latency and the 99th percentile of each second on a scale of decades, from 0.1 ms to
//! 100 s; the lower one how many requests were answered. Failures are bands behind both, from when a server failed
//! until all were ready. What went through the failed server itself is drawn in gray.

use std::fmt::{self, Write};

use crate::summary::{Second, Summary};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 520.0;
/// Where the plot areas begin, and how wide they are.
const LEFT: f64 = 80.0;
const PANEL: f64 = 1090.0;
/// Of the upper panel.
const TOP: f64 = 60.0;
const LATENCY: f64 = 260.0;
/// Of the lower one.
const LOWER: f64 = 370.0;
const ANSWERS: f64 = 100.0;

/// The lowest latency drawn, in microseconds, and how many decades there are above it.
const LOWEST_US: f64 = 100.0;
const DECADES: u32 = 6;
const MARKS: [&str; 7] = ["0.1 ms", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"];

/// A line of the upper panel.
struct Line {
    name: &'static str,
    color: &'static str,
    of: fn(&Second) -> u64,
}

const LINES: [Line; 3] = [
    Line {
        name: "worst through the failed server",
        color: "#999999",
        of: |second| second.worst_through_failed_us,
    },
    Line {
        name: "worst",
        color: "#c1440e",
        of: |second| second.worst_us,
    },
    Line {
        name: "p99",
        color: "#1f6fb4",
        of: |second| second.p99_us,
    },
];

/// The picture, as the text of an SVG file.
#[must_use]
pub(crate) fn svg(summary: &Summary) -> String {
    let mut out = String::new();
    draw(summary, &mut out).expect("a string takes all that is written to it");
    out
}

fn draw(summary: &Summary, out: &mut String) -> fmt::Result {
    let seconds = number(summary.timeline.len()).max(summary.seconds).max(1.0);
    let x = |at: f64| LEFT + (at / seconds).min(1.0) * PANEL;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>"
    )?;
    for failure in &summary.failures {
        let from = x(failure.at);
        let to = x(failure.at + failure.away + failure.ready_after.unwrap_or(0.0));
        let (name, server) = (failure.kind.name(), failure.server);
        writeln!(
            out,
            "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f4e3c1\"/>\
             <text x=\"{from:.1}\" y=\"{:.1}\" font-size=\"10\">{name} {server}</text>",
            (to - from).max(1.0),
            LOWER + ANSWERS - TOP,
            TOP - 6.0
        )?;
    }
    for (decade, mark) in (0..=DECADES).zip(MARKS) {
        let at = TOP + LATENCY * (1.0 - f64::from(decade) / f64::from(DECADES));
        writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}h{PANEL}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
            LEFT - 6.0,
            at + 4.0
        )?;
    }
    for (place, line) in LINES.iter().enumerate() {
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"20\" fill=\"{}\">{}</text>",
            LEFT + 260.0 * number(place),
            line.color,
            line.name
        )?;
        let points = summary.timeline.iter().map(line.of).map(height);
        draw_line(points, TOP + LATENCY, line.color, seconds, out)?;
    }
    draw_answers(summary, seconds, out)
}

fn draw_answers(summary: &Summary, seconds: f64, out: &mut String) -> fmt::Result {
    let most = summary.timeline.iter().map(|second| second.answered).max();
    let most = most.unwrap_or(0).max(1);
    let points = summary.timeline.iter().map(|second| {
        let part = real(second.answered) / real(most);
        Some(part * ANSWERS)
    });
    draw_line(points, LOWER + ANSWERS, "#3c7d3c", seconds, out)?;
    writeln!(
        out,
        "<path d=\"M{LEFT} {LOWER}v{ANSWERS}h{PANEL}\" fill=\"none\" stroke=\"black\"/>\
         <text x=\"{LEFT}\" y=\"{}\">answers a second, at most {most}</text>\
         <text x=\"{LEFT}\" y=\"{}\" text-anchor=\"middle\">0</text>\
         <text x=\"{}\" y=\"{1}\" text-anchor=\"end\">{seconds:.0} s since the load began</text>\n</svg>",
        LOWER - 8.0,
        LOWER + ANSWERS + 18.0,
        LEFT + PANEL
    )
}

/// A line of one point a second, so high above `bottom`; where there is none the line is broken.
fn draw_line(
    points: impl Iterator<Item = Option<f64>>,
    bottom: f64,
    color: &str,
    seconds: f64,
    out: &mut String,
) -> fmt::Result {
    let mut path = String::new();
    let mut drawn = false;
    for (second, point) in points.enumerate() {
        if let Some(point) = point {
            let x = LEFT + (number(second) + 0.5) / seconds * PANEL;
            let verb = if drawn { 'L' } else { 'M' };
            write!(path, "{verb}{x:.1} {:.1}h0.5", bottom - point)?;
        }
        drawn = point.is_some();
    }
    writeln!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.2\"/>"
    )
}

/// How high a latency is drawn; nothing where there is none.
fn height(micros: u64) -> Option<f64> {
    let decades = (real(micros) / LOWEST_US).log10();
    let part = (decades / f64::from(DECADES)).clamp(0.0, 1.0);
    (micros > 0).then_some(part * LATENCY)
}

fn number(count: usize) -> f64 {
    real(u64::try_from(count).unwrap_or(u64::MAX))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a picture has a thousand points"
)]
const fn real(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_are_as_high_as_each_other() {
        assert_eq!(height(0), None);
        assert_eq!(height(50), Some(0.0));
        let step = LATENCY / f64::from(DECADES);
        assert!((height(1000).unwrap() - step).abs() < 1e-9);
        assert!((height(1_000_000).unwrap() - 4.0 * step).abs() < 1e-9);
    }

    #[test]
    fn seconds_without_an_answer_break_the_line() {
        let mut out = String::new();
        let points = [Some(1.0), None, Some(1.0), Some(2.0)];
        draw_line(points.into_iter(), 10.0, "red", 4.0, &mut out).unwrap();
        assert_eq!((out.matches('M').count(), out.matches('L').count()), (2, 1));
    }
}
