//! Snapshots that are held for a while, and what a region holds.

use std::ops::Range;

use argosy_base::{Direction, KeyRange};
use argosy_engine::Snapshot;

use super::Run;
use crate::load::{Pairs, Wrong};
use crate::many;

/// A snapshot that is held.
pub(super) struct Held {
    snapshot: Box<dyn Snapshot>,
    pub(super) region: usize,
    server: usize,
    pub(super) session: u32,
    when: Range<u64>,
    until: u64,
}

impl Run {
    /// The range of a region, without what [`many`] brings into it, which is not read as a whole.
    pub(super) fn range_of(&self, region: usize) -> KeyRange {
        let mut range = self.objects.region_ranges()[region].clone();
        if self.plan.devices.many.is_some() {
            range.from = range.from.max(many::behind());
        }
        range
    }

    /// Takes a snapshot now and then if `starts`, and reads those that were held long enough.
    pub(super) fn hold_snapshots(&mut self, starts: bool) -> Result<(), Wrong> {
        if starts
            && self.snapshots.len() < self.snapshots_max
            && self.random.chance(1)
            && (self.plan.devices.small.is_none() || self.random.chance(10))
        {
            let region = self.random.below(self.plan.regions);
            let server = self.cluster.primary_of(region);
            let id = self.cluster.map.regions()[region].id;
            let open = self
                .cluster
                .active(server)
                .filter(|_| self.uncounted.is_empty());
            let taken = open.and_then(|up| Some((up.node.inspect().snapshot(id)?, up.session)));
            if let Some((snapshot, session)) = taken {
                let when = self.load.snapshot_moment();
                let until = self.ticks + self.random.between(1, 1500) as u64;
                self.snapshots.push(Held {
                    snapshot,
                    region,
                    server,
                    session,
                    when,
                    until,
                });
            }
        }
        let due = |held: &Held| held.until <= self.ticks;
        let Some(at) = self.snapshots.iter().position(due) else {
            return Ok(());
        };
        let held = self.snapshots.swap_remove(at);
        if self.cluster.active(held.server).is_none() {
            return Ok(());
        }
        let range = self.range_of(held.region);
        let direction = self.random.pick(&[Direction::Up, Direction::Down]);
        let pairs = match read_all(&*held.snapshot, &range, direction) {
            Err(_) if self.may_be_damaged(held.server) => return Ok(()),
            pairs => pairs?,
        };
        self.cluster.coverage.add("snapshots read", 1);
        self.load.snapshot(&self.objects, &range, pairs, held.when)
    }
}

/// What a snapshot has in `range`, read in `direction`.
pub(super) fn read_all(
    snapshot: &dyn Snapshot,
    range: &KeyRange,
    direction: Direction,
) -> Result<Pairs, Wrong> {
    let wrong = |error: argosy_engine::EngineError| format!("a snapshot cannot be read: {error}");
    let mut scan = snapshot.scan(range, direction).map_err(wrong)?;
    let mut pairs = Vec::new();
    while let Some(pair) = scan.next().map_err(wrong)? {
        pairs.push(pair);
    }
    Ok(pairs)
}
