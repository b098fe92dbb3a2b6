//! The map at one moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use argosy_base::{Direction, KeyRange, Lsn, Moment};

use super::map::{Entry, Map};
use crate::batch::check_key;
use crate::deciding::BoundKey;
use crate::{EngineError, Reach, Scan, Snapshot};

/// See the module documentation.
pub(super) struct ToySnapshot {
    map: Map,
    /// What the clock showed.
    wall: Moment,
    shows_overdue: AtomicBool,
    /// The store serves no more.
    ended: Arc<AtomicBool>,
}

impl ToySnapshot {
    /// Of `map`, when the clock showed `wall`, until the store has `ended`.
    pub(super) const fn new(map: Map, wall: Moment, ended: Arc<AtomicBool>) -> Self {
        let shows_overdue = AtomicBool::new(false);
        Self {
            map,
            wall,
            shows_overdue,
            ended,
        }
    }

    /// Takes note that `entry` is shown.
    fn show(&self, entry: &Entry) {
        if entry.expiry.is_some_and(|expiry| expiry <= self.wall) {
            self.shows_overdue.store(true, Ordering::Relaxed);
        }
    }
}

impl Snapshot for ToySnapshot {
    fn lsn(&self) -> Lsn {
        self.map.last
    }

    fn shows_overdue(&self) -> bool {
        self.shows_overdue.load(Ordering::Relaxed)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        check_key(key)?;
        check_serving(&self.ended)?;
        let seen = self.map.seen(key);
        self.show(&seen);
        Ok(seen.into_value())
    }

    /// All pairs of the range count as shown.
    fn scan_within(
        &self,
        range: &KeyRange,
        direction: Direction,
        _reach: Reach,
    ) -> Result<Box<dyn Scan>, EngineError> {
        check_serving(&self.ended)?;
        let pairs = self.map.bound(range).map(|(key, entry)| {
            self.show(entry);
            (key.clone(), entry.clone().into_value().unwrap_or_default())
        });
        let mut pairs: Vec<_> = pairs.collect();
        if direction == Direction::Down {
            pairs.reverse();
        }
        let (pairs, ended) = (pairs.into_iter(), Arc::clone(&self.ended));
        Ok(Box::new(ToyScan { pairs, ended }))
    }
}

fn check_serving(ended: &AtomicBool) -> Result<(), EngineError> {
    match ended.load(Ordering::Acquire) {
        true => Err(EngineError::NotServing),
        false => Ok(()),
    }
}

type Pair = (Vec<u8>, Vec<u8>);

struct ToyScan {
    pairs: std::vec::IntoIter<Pair>,
    ended: Arc<AtomicBool>,
}

impl Scan for ToyScan {
    fn next(&mut self) -> Result<Option<Pair>, EngineError> {
        check_serving(&self.ended)?;
        Ok(self.pairs.next())
    }
}
