//! What the log is told of [`Trouble`]s: a warning when one begins, and a line when it is over.
//!
//! The node gives the whole list about once a second, and [`Watch`] compares it with the one before.
//! Each trouble has one line when it begins and one when it ends, however long it lasts; one that
//! comes and goes is bounded by [`LineRate`], and so is the number of lines about one list. What
//! follows from another trouble has no line of its own: that members of regions are missing where
//! their server is lost, or that regions are full where a device is.

use std::collections::BTreeMap;
use std::time::Duration;

use argosy_base::{Instant, RegionId};

use super::ready::{Kind, Subject, Trouble};
use super::report::Reports;
use super::telling::Telling;
use crate::line_rate::LineRate;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);
/// Lines about one list: a server that fails has as many troubles as regions.
const LINES_MAX: usize = 16;

type Key = (Subject, Kind);

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A trouble has begun; so many times it has come and gone without a line.
    Begun { what: String, left_out: u64 },
    /// It is over.
    Over { what: String },
    /// There are so many more.
    More(usize),
}

/// What the log was told. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Watch {
    looked: Option<Instant>,
    /// The troubles at the last look, and whether the log was told.
    present: BTreeMap<Key, (String, bool)>,
    /// Of those that ever were: at most a few for each peer and each region.
    rates: BTreeMap<Key, LineRate>,
}

impl Watch {
    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.since(looked) >= EVERY)
    }

    /// Takes the troubles that there are `now`, and says what the log is to be told.
    pub(super) fn look(&mut self, now: Instant, troubles: Vec<Trouble>) -> Vec<Line> {
        self.looked = Some(now);
        let mut lines = Vec::new();
        let mut present = BTreeMap::new();
        for trouble in troubles.into_iter().filter(has_line) {
            let key = (trouble.subject, trouble.kind);
            if let Some(before) = self.present.remove(&key) {
                present.insert(key, before);
                continue;
            }
            let left_out = match lines.len() < LINES_MAX {
                true => self.rates.entry(key).or_default().line(now),
                false => None,
            };
            present.insert(key, (trouble.what.clone(), left_out.is_some()));
            if let Some(left_out) = left_out {
                let what = trouble.what;
                lines.push(Line::Begun { what, left_out });
            }
        }
        let told = present.values().filter(|(_, told)| !told).count();
        let before = self.present.values();
        lines.extend(
            before
                .filter(|(_, told)| *told)
                .map(|(what, _)| Line::Over { what: what.clone() }),
        );
        if lines.len() >= LINES_MAX && told > 0 {
            lines.push(Line::More(told));
        }
        self.present = present;
        lines
    }
}

/// Whether a trouble is told by itself.
fn has_line(trouble: &Trouble) -> bool {
    match trouble.subject {
        Subject::Device | Subject::Peer(_) => true,
        Subject::Region(RegionId(_)) => !matches!(trouble.kind, Kind::Missing | Kind::Full),
    }
}

impl Telling {
    /// Tells the log what has become worse or better, about once a second.
    pub(super) fn tell_troubles(&self, reports: &Reports<'_>, now: Instant) {
        if reports.has_just_started(now) || !self.watch().is_due(now) {
            return;
        }
        let troubles = reports.troubles();
        let lines = self.watch().look(now, troubles);
        let me = reports.context.id.0;
        for line in lines {
            match line {
                Line::Begun { what, left_out: 0 } => tracing::warn!(me, "{what}"),
                Line::Begun { what, left_out } => {
                    tracing::warn!(me, left_out, "{what}; as so often before");
                }
                Line::Over { what } => tracing::info!(me, "well again, it is over: {what}"),
                Line::More(count) => {
                    tracing::warn!(
                        me,
                        count,
                        "there are more troubles: see degraded in /status"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use argosy_base::ServerId;

    use super::super::ready::Stops;
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn trouble(subject: Subject, kind: Kind, what: &str) -> Trouble {
        Trouble {
            subject,
            kind,
            stops: Stops::Nothing,
            what: what.to_owned(),
        }
    }

    fn lost(id: u32) -> Trouble {
        let what = format!("server {id} shows no sign of life");
        trouble(Subject::Peer(ServerId(id)), Kind::Lost, &what)
    }

    fn begun(trouble: &Trouble) -> Line {
        let what = trouble.what.clone();
        Line::Begun { what, left_out: 0 }
    }

    fn over(trouble: &Trouble) -> Line {
        let what = trouble.what.clone();
        Line::Over { what }
    }

    #[test]
    fn a_trouble_has_one_line_when_it_begins_and_one_when_it_ends() {
        let mut watch = Watch::default();
        assert!(watch.is_due(at(5)));
        assert_eq!(watch.look(at(5), vec![]), []);
        assert!(!watch.is_due(at(5)) && watch.is_due(at(6)));
        let full = trouble(Subject::Device, Kind::Full, "the device is full");
        assert_eq!(watch.look(at(6), vec![lost(2)]), [begun(&lost(2))]);
        assert_eq!(watch.look(at(7), vec![lost(2)]), []);
        let both = vec![lost(2), full.clone()];
        assert_eq!(watch.look(at(8), both), [begun(&full)]);
        assert_eq!(watch.look(at(9), vec![full.clone()]), [over(&lost(2))]);
        assert_eq!(watch.look(at(10), vec![]), [over(&full)]);
    }

    #[test]
    fn what_follows_from_another_trouble_has_no_line() {
        let mut watch = Watch::default();
        let region = Subject::Region(RegionId(1));
        let missing = trouble(region, Kind::Missing, "waiting for server 2");
        let stalled = trouble(region, Kind::Stalled, "writes were given up");
        let lines = watch.look(at(1), vec![lost(2), missing, stalled.clone()]);
        assert_eq!(lines, [begun(&lost(2)), begun(&stalled)]);
    }

    #[test]
    fn one_that_comes_and_goes_is_told_a_few_times() {
        let mut watch = Watch::default();
        let mut lines = 0;
        for second in 0..100 {
            let troubles = match second % 2 {
                0 => vec![lost(2)],
                _ => vec![],
            };
            lines += watch.look(at(second), troubles).len();
        }
        assert!((10..40).contains(&lines), "{lines}");
    }

    #[test]
    fn thousands_at_once_are_some_lines_and_a_number() {
        let mut watch = Watch::default();
        let failed = |id| trouble(Subject::Region(RegionId(id)), Kind::Failed, "it has failed");
        let lines = watch.look(at(1), (0..5000).map(failed).collect());
        assert_eq!(lines.len(), LINES_MAX + 1);
        assert_eq!(lines.last(), Some(&Line::More(5000 - LINES_MAX)));
        assert_eq!(watch.look(at(2), (0..5000).map(failed).collect()), []);
        assert_eq!(watch.look(at(3), vec![]).len(), LINES_MAX);
    }
}
