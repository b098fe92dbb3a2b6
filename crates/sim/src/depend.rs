//! Requests whose outcome depends on values: what the load asks for is made to depend on what an object
//! is bound to, or becomes an increment. From a stream of its own: what a seed asks otherwise it asks
//! still.

use argosy_base::Moment;

use crate::asks::{Ask, COUNTERS};
use crate::check::register::AccessKind;
use crate::check::{Bound, When};
use crate::clock::BEGAN;
use crate::load::Load;
use crate::objects::Objects;
use crate::plan::{Plan, SERVERS};
use crate::random::Random;

/// See the module documentation.
pub(crate) struct Depend {
    random: Random,
    /// Of 100 single puts and deletes, how many depend on the value.
    equal_percent: usize,
    /// Of 100 requests, how many become increments.
    add_percent: usize,
    /// Of 100 writes, how many write pairs that expire.
    expire_percent: usize,
}

impl Depend {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 12);
        let equal_percent = random.pick(&[0, 10, 40]);
        // After a loss of power a number may be lower than what was told.
        let add_percent = match plan.loses_ends() {
            true => 0,
            false => random.pick(&[0, 3, 15]),
        };
        // Nor does one copy remember after that what had expired.
        let expire_percent = match plan.loses_ends() {
            true => 0,
            false => random.pick(&[0, 10, 40]),
        };
        Self {
            random,
            equal_percent,
            add_percent,
            expire_percent,
        }
    }

    /// What is asked in the place of `ask`.
    pub(crate) fn on_values(&mut self, ask: Ask, objects: &Objects, load: &Load) -> Ask {
        if self.random.chance(self.add_percent) {
            let counter = self.random.below(COUNTERS);
            return Ask::Add { counter };
        }
        let Ask::Write {
            targets,
            condition: When::Always,
            previous,
        } = ask
        else {
            return ask;
        };
        let alone = targets.len() == 1 && objects.get(targets[0].object).keys.len() == 1;
        let condition = match alone && self.random.chance(self.equal_percent) {
            true => When::Is(self.guess(load, targets[0].object)),
            false => When::Always,
        };
        Ask::Write {
            targets,
            condition,
            previous,
        }
    }

    /// When what `ask` writes is to expire, if it is; the time should be `now`.
    pub(crate) fn expiry(&mut self, ask: &Ask, now: Moment) -> Option<Moment> {
        let Ask::Write { targets, .. } = ask else {
            return None;
        };
        // An empty value may be anybody's.
        let known = targets.iter().all(|target| target.to != Bound::Empty);
        if !known || !self.random.chance(self.expire_percent) {
            return None;
        }
        let span = match self.random.below(4) {
            0 => self.random.between(0, 3),
            1 => self.random.between(3, 30),
            _ => self.random.between(30, 600),
        };
        Some(now.after(span as u64))
    }

    /// From now on no clock is set any more.
    pub(crate) const fn leave_clocks(&mut self) {
        self.expire_percent = 0;
    }

    /// Where a clock is to be set now, and to which beginning of the run, seldom.
    pub(crate) fn skew(&mut self) -> Option<(usize, Moment)> {
        if self.expire_percent == 0 || !self.random.chance(1) || !self.random.chance(20) {
            return None;
        }
        let server = self.random.below(SERVERS);
        let began = BEGAN.0 - 300 + self.random.below(600) as u64;
        Some((server, Moment(began)))
    }

    /// A value that the object may have: mostly one of the last that were written.
    fn guess(&mut self, load: &Load, object: usize) -> Bound {
        let accesses = load.histories[object].accesses.iter().rev();
        let written: Vec<Bound> = accesses
            .filter_map(|access| match access.kind {
                AccessKind::Write { to, .. } => Some(to),
                _ => None,
            })
            .filter(|bound| *bound != Bound::Absent)
            .take(4)
            .collect();
        match self.random.below(10) {
            0 => Bound::Empty,
            at => *written
                .get(at / 3)
                .or(written.first())
                .unwrap_or(&Bound::Empty),
        }
    }
}
