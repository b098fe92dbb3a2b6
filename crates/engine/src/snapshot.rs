//! Views of a region at one moment, and scans of them.

use std::any::Any;

use argosy_base::{Direction, KeyRange, Lsn};

use crate::request::first_wanted;
use crate::{EngineError, Reach, WaitFor, Wanted};

/// A consistent view of the region at one LSN. Pins what it sees until it is dropped (I1).
pub trait Snapshot: Any + Send + Sync {
    /// The LSN up to which this view sees.
    fn lsn(&self) -> Lsn;

    /// What answers wait for that show what it sees.
    fn wait(&self) -> WaitFor {
        WaitFor::committed(self.lsn())
    }

    /// Whether it has shown a pair that is past its expiry by the clock, though not yet by the region's
    /// time, which goes on with what is committed. Whoever can wait takes another one.
    fn shows_overdue(&self) -> bool {
        false
    }

    /// What `key` was bound to.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

    /// What each of `keys` was bound to, in their order.
    ///
    /// # Errors
    /// As [`get`](Self::get)'s, of any of them.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.get_some(keys, Wanted::Values(usize::MAX))
    }

    /// What is `wanted` of the first of `keys`, in their order. An engine that has no better way gets one after the
    /// other.
    ///
    /// # Errors
    /// As [`get`](Self::get)'s, of any of them.
    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
    ) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        let found = keys.iter().map(|key| self.get(key));
        first_wanted(wanted, found, |value| value)
    }

    /// The pairs of `range` in the order of their keys, or from the highest down. Either way a scan
    /// costs what it returns, not what the range holds.
    ///
    /// # Errors
    /// When it cannot begin. Within [`Reach::Memory`] this call or the scan returns [`EngineError::NotInMemory`] if
    /// something has to be read from the device, or if the engine cannot tell.
    fn scan_within(
        &self,
        range: &KeyRange,
        direction: Direction,
        reach: Reach,
    ) -> Result<Box<dyn Scan>, EngineError>;

    /// [`scan_within`](Self::scan_within) reach of the device.
    ///
    /// # Errors
    /// As [`scan_within`](Self::scan_within)'s.
    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Scan>, EngineError> {
        self.scan_within(range, direction, Reach::Device)
    }
}

/// The pairs of a range, one after the other.
pub trait Scan: Send {
    /// Its caller will take at most `pairs` more pairs: so many are read ahead, and no more. Best said before
    /// the first is asked for. Without this word a scan finds out by and by.
    fn expect(&mut self, pairs: usize) {
        let _ = pairs;
    }

    /// Its caller has no use for values: they need not be read, and may be left out.
    fn leave_values_out(&mut self) {}

    /// The next pair, or `None` at the end of the range.
    #[expect(
        clippy::type_complexity,
        reason = "a pair of a key and a value, nothing more"
    )]
    fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>, EngineError>;
}
