//! The map at one moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use argosy_base::range::successor;
use argosy_base::{Direction, KeyRange, Lsn, Moment};

use super::map::{Entry, Map};
use crate::batch::check_key;
use crate::deciding::BoundKey;
use crate::{EngineError, Scan, Snapshot};

/// See the module documentation.
pub(super) struct ToySnapshot(Arc<View>);

struct View {
    map: Map,
    /// What the clock showed.
    wall: Moment,
    shows_overdue: AtomicBool,
}

impl ToySnapshot {
    /// Of `map`, when the clock showed `wall`.
    pub(super) fn new(map: Map, wall: Moment) -> Self {
        let shows_overdue = AtomicBool::new(false);
        Self(Arc::new(View {
            map,
            wall,
            shows_overdue,
        }))
    }
}

impl View {
    /// Takes note that `entry` is shown.
    fn show(&self, entry: &Entry) {
        if entry.expiry.is_some_and(|expiry| expiry <= self.wall) {
            self.shows_overdue.store(true, Ordering::Relaxed);
        }
    }
}

impl Snapshot for ToySnapshot {
    fn lsn(&self) -> Lsn {
        self.0.map.last
    }

    fn shows_overdue(&self) -> bool {
        self.0.shows_overdue.load(Ordering::Relaxed)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        check_key(key)?;
        let seen = self.0.map.seen(key);
        self.0.show(&seen);
        Ok(seen.into_value())
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Scan>, EngineError> {
        Ok(Box::new(ToyScan {
            view: Arc::clone(&self.0),
            rest: range.clone(),
            direction,
        }))
    }
}

struct ToyScan {
    view: Arc<View>,
    rest: KeyRange,
    direction: Direction,
}

impl Scan for ToyScan {
    fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>, EngineError> {
        let mut pairs = self.view.map.bound(&self.rest);
        let next = match self.direction {
            Direction::Up => pairs.next(),
            Direction::Down => pairs.next_back(),
        };
        let Some((key, entry)) = next else {
            return Ok(None);
        };
        self.view.show(entry);
        let (key, entry) = (key.clone(), entry.clone());
        let go_on_at = match self.direction {
            Direction::Up => successor(&key),
            Direction::Down => key.clone(),
        };
        drop(pairs);
        self.rest.go_on_at(self.direction, go_on_at);
        Ok(Some((key, entry.into_value().unwrap_or_default())))
    }
}
