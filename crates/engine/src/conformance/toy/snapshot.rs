//! The map at one moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use argosy_base::range::successor;
use argosy_base::{Direction, KeyRange, Lsn, Moment};

use super::map::{Entry, Map};
use super::store::wanted_of;
use crate::batch::check_key;
use crate::{EngineError, Scan, Snapshot, Wanted};

/// See the module documentation.
pub(super) struct ToySnapshot(Arc<View>);

struct View {
    map: Map,
    lsn: Lsn,
    /// What the clock showed.
    wall: Moment,
    shows_overdue: AtomicBool,
}

impl ToySnapshot {
    /// Of `map`, when the clock showed `wall`.
    pub(super) fn new(map: Map, lsn: Lsn, wall: Moment) -> Self {
        Self(Arc::new(View {
            map,
            lsn,
            wall,
            shows_overdue: AtomicBool::new(false),
        }))
    }
}

impl View {
    /// Whether a pair that expires then is shown.
    fn shows(&self, expiry: Option<Moment>) -> bool {
        let Some(expiry) = expiry else {
            return true;
        };
        let shown = expiry > self.map.time;
        if shown && expiry <= self.wall {
            self.shows_overdue.store(true, Ordering::Relaxed);
        }
        shown
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let seen = self.map.seen(key);
        let value = seen.value.filter(|_| self.shows(seen.expiry));
        value.map(|value| value.to_vec())
    }
}

impl Snapshot for ToySnapshot {
    fn lsn(&self) -> Lsn {
        self.0.lsn
    }

    fn shows_overdue(&self) -> bool {
        self.0.shows_overdue.load(Ordering::Relaxed)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        check_key(key)?;
        Ok(self.0.get(key))
    }

    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
    ) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let mut found: Vec<_> = keys.iter().map(|key| self.0.get(key)).collect();
        let lens = found.iter().map(|value| value.as_ref().map_or(0, Vec::len));
        found.truncate(wanted_of(wanted, lens));
        if wanted == Wanted::Presence {
            for value in &mut found {
                *value = value.take().map(|_| Vec::new());
            }
        }
        Ok(found)
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
        let view = Arc::clone(&self.view);
        let mut pairs = view.map.bound(&self.rest);
        let shown = |pair: &(&Vec<u8>, &Entry)| view.shows(pair.1.expiry);
        let next = match self.direction {
            Direction::Up => pairs.find(shown),
            Direction::Down => pairs.rfind(shown),
        };
        let Some((key, entry)) = next else {
            return Ok(None);
        };
        let value = entry.value.as_deref().unwrap_or_default().to_vec();
        let go_on_at = match self.direction {
            Direction::Up => successor(key),
            Direction::Down => key.clone(),
        };
        self.rest.go_on_at(self.direction, go_on_at);
        Ok(Some((key.clone(), value)))
    }
}
