//! Requests whose outcome depends on values: what the load asks for is made to depend on what an object
//! is bound to, or becomes an increment. From a stream of its own: what a seed asks otherwise it asks
//! still.

use crate::asks::{Ask, COUNTERS};
use crate::check::register::Kind;
use crate::check::{Bound, When};
use crate::load::Load;
use crate::objects::Objects;
use crate::plan::{Plan, WorldKind};
use crate::random::Random;

/// See the module documentation.
pub struct Depend {
    random: Random,
    /// Of 100 single puts and deletes, how many depend on the value.
    equal_percent: usize,
    /// Of 100 requests, how many become increments.
    add_percent: usize,
}

impl Depend {
    /// As `plan` says.
    #[must_use]
    pub fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 12);
        let equal_percent = random.pick(&[0, 10, 40]);
        // After a loss of power a number may be lower than what was told.
        let add_percent = match plan.kind {
            WorldKind::Powerless => 0,
            _ => random.pick(&[0, 3, 15]),
        };
        Self {
            random,
            equal_percent,
            add_percent,
        }
    }

    /// What is asked in the place of `ask`.
    pub fn on_values(&mut self, ask: Ask, objects: &Objects, load: &Load) -> Ask {
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

    /// A value that the object may have: mostly one of the last that were written.
    fn guess(&mut self, load: &Load, object: usize) -> Bound {
        let accesses = load.histories[object].accesses.iter().rev();
        let written: Vec<Bound> = accesses
            .filter_map(|access| match access.kind {
                Kind::Write { to, .. } => Some(to),
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
