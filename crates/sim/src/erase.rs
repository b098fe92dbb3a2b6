//! Ranges of keys that are removed at once. From a stream of its own: what a seed asks otherwise it asks
//! still.
//!
//! A range is asked for as a write of all objects in it to nothing, or, of a few of them, to a value behind
//! that in the same batch. So to the checkers it is nothing new: an object in the range is bound to nothing
//! from then on, whoever looks, until it is bound to something again.

use argosy_base::KeyRange;
use argosy_engine::{Expiry, WriteBatch};

use crate::asks::{Ask, Target};
use crate::check::{Bound, When};
use crate::objects::{Objects, VALUE_BYTES_MIN};
use crate::plan::Plan;
use crate::random::Random;

/// See the module documentation.
pub(crate) struct Erase {
    random: Random,
    /// Of 1000 requests, how many become ranges.
    range_mille: usize,
    /// Of 100 writes that only delete several objects, how many become ranges.
    several_percent: usize,
    /// Bytes of a value that is written with a range.
    len_max: usize,
}

impl Erase {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 14);
        let range_mille = random.pick(&[0, 5, 30]);
        Self {
            several_percent: if range_mille > 0 { 50 } else { 0 },
            range_mille,
            random,
            len_max: (plan.engine.layout.node_bytes / 4).min(200),
        }
    }

    /// What is asked in the place of `ask`, as operation `op`, and whether ranges are removed by it.
    pub(crate) fn instead(&mut self, ask: Ask, objects: &Objects, op: u32) -> (Ask, bool) {
        if self.random.below(1000) < self.range_mille {
            return (self.range(objects, op), true);
        }
        let deletes = match &ask {
            Ask::Write {
                targets,
                condition: When::Always,
                previous: false,
            } => targets.len() > 1 && targets.iter().all(|target| target.to == Bound::Absent),
            _ => false,
        };
        let erases = deletes && self.random.chance(self.several_percent);
        (ask, erases)
    }

    fn range(&mut self, objects: &Objects, op: u32) -> Ask {
        let first = self.random.below(objects.len());
        let count = match self.random.below(20) {
            0 => self.random.between(12, 80),
            _ => self.random.between(1, 12),
        };
        let behind = (first + count).min(objects.len());
        let len = self.random.between(VALUE_BYTES_MIN, self.len_max);
        let writes = self.random.chance(30);
        let mut left = 3;
        let targets = (first..behind).map(|object| {
            let again = writes && left > 0 && self.random.chance(20);
            left -= usize::from(again);
            let (to, len) = match again {
                true => (Bound::To(op), len),
                false => (Bound::Absent, 0),
            };
            Target { object, to, len }
        });
        Ask::Write {
            targets: targets.collect(),
            condition: When::Always,
            previous: false,
        }
    }
}

/// The batch of a write that removes ranges: those of its objects, neighbours together, and then the values
/// that some are bound to.
#[must_use]
pub(crate) fn batch(objects: &Objects, op: u32, targets: &[Target], expiry: Expiry) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let mut sorted: Vec<usize> = targets.iter().map(|target| target.object).collect();
    sorted.sort_unstable();
    let first_key = |object: usize| objects.get(object).keys[0].clone();
    for neighbours in sorted.chunk_by(|a, b| a + 1 == *b) {
        let behind = neighbours[neighbours.len() - 1] + 1;
        let to = (behind < objects.len()).then(|| first_key(behind));
        let range = KeyRange::new(first_key(neighbours[0]), to);
        let added = batch.delete_range(&range);
        added.expect("a batch of the load is within the limits");
    }
    let written = targets.iter().filter(|target| target.to != Bound::Absent);
    let written: Vec<Target> = written.copied().collect();
    Ask::add_to(&mut batch, objects, op, &written, expiry);
    batch
}
