//! How long regions were silent, and what of that was what.
//!
//! A region is *silent* where no request for its keys was answered for [`SILENCE_MIN`]. Clients send every
//! [`TICK`](crate::load::TICK), so less means nothing. With a failure goes the longest silence that ended behind its
//! beginning and began before all servers were started again; with the return of a server the longest that began later.

use std::time::Duration;

use argosy_base::Instant;

use crate::faults::said::{Offset, Said, What};
use crate::record::Sample;

/// Less is no silence.
pub(crate) const SILENCE_MIN: Duration = Duration::from_millis(250);

/// A line of a log may come so much later than what it tells of.
const LINE_LATE: Duration = Duration::from_millis(50);

/// A time in which nothing was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    /// When the last answer before it came.
    pub from: Instant,
    /// When the first one behind it came; when the load ended, where none did.
    pub to: Instant,
}

impl Silence {
    /// How long it was.
    #[must_use]
    pub(crate) fn span(self) -> Duration {
        self.to.since(self.from)
    }
}

/// When something was done, and the load around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// When the load began.
    pub load: Instant,
    /// When the failure began.
    pub failed: Instant,
    /// When all that was to be done about it was done.
    pub mended: Instant,
    /// When the load ended.
    pub ended: Instant,
}

/// How silent a region was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Silences {
    /// With the failure.
    pub failure: Option<Silence>,
    /// With what was done about it.
    pub mending: Option<Silence>,
}

/// The silences of the region at this place.
#[must_use]
pub(crate) fn silences(samples: &[Sample], region: usize, times: Times) -> Silences {
    let own = |sample: &&Sample| usize::from(sample.region) == region && sample.came.is_answer();
    let answers = samples.iter().filter(own);
    let mut answers: Vec<_> = answers.map(|one| Instant::from_nanos(one.ended)).collect();
    answers.push(times.ended);
    answers.sort_unstable();
    let mut found = Silences::default();
    let mut from = times.load;
    for to in answers {
        let silence = Silence { from, to };
        from = to.max(from);
        if silence.span() < SILENCE_MIN || to <= times.failed {
            continue;
        }
        let place = match silence.from < times.mended {
            true => &mut found.failure,
            false => &mut found.mending,
        };
        if place.is_none_or(|known| known.span() < silence.span()) {
            *place = Some(silence);
        }
    }
    found
}

/// When what was done that ends a silence, each counted from the beginning of the failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The master has changed the region's group, or said that nobody serves it.
    pub noticed: Option<Duration>,
    /// A primary was chosen.
    pub chosen: Option<Duration>,
    /// The one before could not answer any more.
    pub lease_over: Option<Duration>,
    /// The logs were replayed.
    pub open: Option<Duration>,
}

/// What was done of `region`, as logs tell it, from `failed` until `silence` was over: of each the last time.
#[must_use]
pub(crate) fn steps(
    said: &[Said],
    region: u64,
    failed: Instant,
    silence: Silence,
    offset: Offset,
) -> Steps {
    let mut steps = Steps::default();
    let mut own: Vec<_> = said.iter().filter(|said| said.region == region).collect();
    own.sort_by_key(|said| said.micros);
    for said in own {
        let at = offset.moment(said.micros);
        // A region answers before its log says that it is open.
        let latest = match said.what {
            What::Opened => silence.to + LINE_LATE,
            _ => silence.to,
        };
        if at < failed || at > latest {
            continue;
        }
        let at = Some(at.since(failed));
        match said.what {
            What::Raised => {
                steps = Steps {
                    noticed: at,
                    ..Steps::default()
                };
            }
            // A group that changes behind a promotion is not what was waited for.
            What::Regrouped if steps.chosen.is_none() => steps.noticed = at,
            What::Regrouped => {}
            What::Promoted(_) => steps.chosen = at,
            What::LeaseOver => steps.lease_over = at,
            What::Opened => steps.open = at,
        }
    }
    steps
}

#[cfg(test)]
#[path = "silence_tests.rs"]
pub(super) mod tests;
