//! The group that a primary leads: under which promotion, who is missing from it, whose copies are filled or have
//! failed, and what it should be instead.
//!
//! A member leaves that has been away, or whose copy has failed, for [`NodeSettings::remove_after`]; one that is there
//! and catches up has [`CATCH_UP`] times as long, and [`TURN`] for each region of this server: its copies take turns.
//! One
//! that is live leaves when it has been at the limit of what may
//! wait for it for so long, or has taken no edits and segments for [`CATCH_UP`] times as long
//! ([`limits`]). None leaves while the region opens and may need that member's
//! copy. A copy becomes a member that is being filled and holds all that is committed. Both are wishes: until the map
//! says so, writes wait.
//!
//! [`NodeSettings::remove_after`]: super::NodeSettings::remove_after

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use argosy_base::{Epoch, Instant, Position, ServerId, Standing};
use argosy_coordinator::reports::Wish;
use argosy_engine::Source;
use argosy_replication::Primary;
use argosy_replication::primary::Group;

use super::context::Context;
use super::limits::{self, AtLimit, Looked, Stuck};
use super::views::View;

/// How many times longer than one that is away a member may take that catches up.
const CATCH_UP: u32 = 8;

/// How long a copy's turn takes: while groups are opened or changed, each copy does a few writes to its device, and a
/// server does so for a few copies at one time.
const TURN: Duration = Duration::from_millis(20);

/// What the primary's own copy is, compared with the report for which it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// Not that any more: the region is not opened.
    Refused,
    /// That, or it has opened the region since.
    Holds,
    /// That, and it was cut: it was chosen when all had reported, so nobody has more.
    Cut,
}

impl Claimed {
    /// What a copy is that stands like that, under `view`.
    pub(super) fn of(view: &View, standing: Standing, at: &Position) -> Self {
        match view.claim_holds(standing, at) {
            false => Self::Refused,
            true if view.is_claimed(at) => Self::Cut,
            true => Self::Holds,
        }
    }
}

/// See the module documentation.
pub(super) struct LedGroup {
    /// The epoch in which this server was chosen.
    since: Epoch,
    /// What its copy was when it was to open the region.
    claimed: Claimed,
    /// Backups that are not live, or silent, and since when.
    missing: BTreeMap<ServerId, Missing>,
    /// Copies that are being filled, and hold all that is committed.
    filled: BTreeSet<ServerId>,
    /// Backups that have said that their copy has failed, and why, until they report again.
    failures: BTreeMap<ServerId, String>,
    /// Live backups, and copies that are being filled, that have been at the limit of what may wait for them.
    slow: BTreeMap<ServerId, Slow>,
}

/// How slow a backup has been of late.
#[derive(Clone, Copy, Debug, Default)]
struct Slow {
    windows: AtLimit,
    taking: Stuck,
}

impl LedGroup {
    /// That of `view`, whose primary's copy is `claimed`.
    pub(super) const fn new(view: &View, claimed: Claimed) -> Self {
        Self {
            since: view.since,
            claimed,
            missing: BTreeMap::new(),
            filled: BTreeSet::new(),
            failures: BTreeMap::new(),
            slow: BTreeMap::new(),
        }
    }

    /// The epoch in which this server was chosen.
    pub(super) const fn since(&self) -> Epoch {
        self.since
    }

    /// Whether this server's copy is not that for which it was chosen: another one has to be.
    pub(super) const fn is_refused(&self) -> bool {
        matches!(self.claimed, Claimed::Refused)
    }

    /// Whether this server's copy was cut when it was chosen: it may lack what was acknowledged last.
    pub(super) const fn opens_cut(&self) -> bool {
        matches!(self.claimed, Claimed::Cut)
    }

    /// From now on it is that of `view`, under the same promotion.
    pub(super) fn regrouped(&mut self, view: &View) -> Group {
        let group = of(view);
        self.filled.retain(|id| group.filling.contains(id));
        group
    }

    /// The copy of `member`, which is being filled, holds all that is committed.
    pub(super) fn filled(&mut self, member: ServerId) {
        self.filled.insert(member);
    }

    /// The copy of `member` has failed because of `why`. Returns whether that is news.
    pub(super) fn failed(&mut self, member: ServerId, why: &str) -> bool {
        let known = self.failures.insert(member, why.to_owned());
        known.as_deref() != Some(why)
    }

    /// `member` has reported: its copy can be used.
    pub(super) fn reported(&mut self, member: ServerId) {
        self.failures.remove(&member);
    }

    /// Backups that have said that their copy has failed, and why.
    pub(super) const fn failures(&self) -> &BTreeMap<ServerId, String> {
        &self.failures
    }

    /// Looks which of `looked`, whose copies are live, are at the limit of what may wait for them: what is durable
    /// in the logs of `source`, but not there; and what they have not taken.
    pub(super) fn note_limits(
        &mut self,
        looked: Vec<Looked>,
        machine: &Primary,
        source: &dyn Source,
        context: &Context<'_>,
    ) {
        let now = context.now();
        let logs = context.memory.engine().logs();
        for Looked { member, untaken } in looked {
            let mut logs = logs.iter();
            let waits = logs.any(|log| limits::wait_for(member, machine, source, log));
            // One that is silent leaves as such, when it has been for long enough.
            let is_heard = !context.link(member).is_quiet(now);
            let (waits, untaken) = (waits && is_heard, untaken.filter(|_| is_heard));
            if waits || untaken.is_some() || self.slow.contains_key(&member) {
                let slow = self.slow.entry(member).or_default();
                slow.windows.note(waits, now);
                slow.taking.note(untaken, now);
            }
        }
    }

    /// Who has been at its limit for too long by `now`. Those that are live no more are not.
    fn too_slow(&mut self, machine: &Primary, now: Instant, patience: Duration) -> Vec<ServerId> {
        let live = machine.members().filter(|member| member.state == "live");
        let live: BTreeSet<ServerId> = live.map(|member| member.id).collect();
        self.slow.retain(|id, _| live.contains(id));
        let slow = self.slow.iter_mut();
        let late = slow.filter_map(|(id, slow)| {
            let by_windows = slow.windows.is_long(now, patience);
            let is_late = by_windows || slow.taking.is_long(now, patience * CATCH_UP);
            is_late.then_some(*id)
        });
        late.collect()
    }

    fn note_missing(&mut self, machine: &Primary, now: Instant, context: &Context<'_>) {
        let before = std::mem::take(&mut self.missing);
        for member in machine.members() {
            let is_away = context.is_silent(member.id)
                || matches!(member.state, "down" | "failed" | "damaged");
            if !is_away && member.state == "live" {
                continue;
            }
            let known = before.get(&member.id);
            let away_since = known.and_then(|known| known.away_since).unwrap_or(now);
            let missing = Missing {
                since: known.map_or(now, |known| known.since),
                away_since: is_away.then_some(away_since),
            };
            self.missing.insert(member.id, missing);
        }
    }

    /// What the group of `view`, as `machine` sees it, should be, where it should be another one.
    pub(super) fn wish(
        &mut self,
        machine: &Primary,
        view: &View,
        now: Instant,
        context: &Context<'_>,
    ) -> Option<Wish> {
        self.note_missing(machine, now, context);
        let patience = context.settings.remove_after;
        let turns = TURN * u32::try_from(context.regions.len()).unwrap_or(u32::MAX);
        let too_slow = self.too_slow(machine, now, patience);
        let late = self
            .missing
            .iter()
            .filter(|(_, missing)| missing.is_late(now, patience, patience * CATCH_UP + turns))
            .map(|(id, _)| *id);
        let filled = self.filled.iter().copied();
        // Who has not reported to a primary that opens may have the only copy that is whole.
        let can_do_without = self.claimed == Claimed::Cut || machine.has_whole_copy();
        let goes = |id: ServerId| {
            let mut members = machine.members();
            let member = members.find(|member| member.id == id);
            member.is_some_and(|member| may_go(member.state, machine.is_open()))
        };
        let wish = Wish {
            epoch: view.epoch,
            remove: late
                .chain(too_slow)
                .filter(|id| can_do_without && view.has_member(*id) && goes(*id))
                .collect(),
            add: filled.filter(|id| view.filling().contains(id)).collect(),
            fill: Vec::new(),
        };
        (!wish.remove.is_empty() || !wish.add.is_empty()).then_some(wish)
    }
}

/// Whether a member in this `state` may leave a group. A primary that has not opened keeps those that have reported:
/// its own copy may be damaged, and theirs the only whole ones. Nor can it have brought them up to date yet.
fn may_go(state: &str, is_open: bool) -> bool {
    is_open || matches!(state, "down" | "failed" | "damaged" | "prepared")
}

/// A backup that is missing: its primary waits for it.
#[derive(Clone, Copy, Debug)]
struct Missing {
    since: Instant,
    /// Since when it has been away, or its copy has failed; `None` while it catches up.
    away_since: Option<Instant>,
}

impl Missing {
    /// Whether it has been away for as long as `patience` says, or has not caught up within `catch_up`.
    fn is_late(&self, now: Instant, patience: Duration, catch_up: Duration) -> bool {
        let is_away_long = |since| now.since(since) >= patience;
        self.away_since.is_some_and(is_away_long) || now.since(self.since) >= catch_up
    }
}

/// The group of `view`, as its primary sees it.
pub(super) fn of(view: &View) -> Group {
    Group {
        members: view.backups().collect(),
        filling: view.filling().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_catches_up_has_longer_than_who_is_away() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let [patience, catch_up] = [500, 4000].map(Duration::from_millis);
        let late = |away_since, now| {
            let since = at(0);
            Missing { since, away_since }.is_late(at(now), patience, catch_up)
        };
        assert!(!late(None, 3999) && late(None, 4000));
        assert!(!late(Some(at(100)), 599) && late(Some(at(100)), 600));
        // A server of a thousand regions brings its copies up one after the other.
        let turns = TURN * 1000;
        let since = Missing {
            since: at(0),
            away_since: None,
        };
        assert!(!since.is_late(at(20_000), patience, catch_up + turns));
        assert!(since.is_late(at(24_000), patience, catch_up + turns));
    }

    #[test]
    fn a_primary_that_opens_keeps_who_has_reported() {
        for state in ["down", "failed", "damaged", "prepared"] {
            assert!(may_go(state, false) && may_go(state, true), "{state}");
        }
        for state in ["reported", "syncing", "live"] {
            assert!(!may_go(state, false) && may_go(state, true), "{state}");
        }
    }
}

#[cfg(test)]
#[path = "regrouping_tests.rs"]
mod regrouping_tests;
