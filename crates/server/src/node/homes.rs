//! Which regions a write concerns.

use std::ops::RangeInclusive;

use argosy_base::Direction;
use argosy_engine::{Op, WriteBatch, long};

use super::Node;

impl Node {
    /// The place of the region in which `key` lies: a part of a value, in that of the value.
    pub(super) fn home(&self, key: &[u8]) -> usize {
        self.map.index_of(long::home(key))
    }

    /// The places of the regions in which `op` has keys.
    pub(super) fn homes_of(&self, op: &Op<'_>) -> RangeInclusive<usize> {
        let first = self.home(op.key());
        let last = match op.range() {
            Some(range) => self.map.first_of(&range, Direction::Down),
            None => first,
        };
        first..=last
    }

    /// The place of the region in which all keys of `batch` are, if it is one.
    pub(super) fn home_of(&self, batch: &WriteBatch) -> Option<usize> {
        let mut ops = batch.ops();
        let home = self.homes_of(&ops.next()?);
        let alone = self.map.regions().len() == 1;
        let here = |op: Op<'_>| self.homes_of(&op) == home;
        let together = home.start() == home.end() && ops.all(here);
        (alone || together).then_some(*home.start())
    }
}
