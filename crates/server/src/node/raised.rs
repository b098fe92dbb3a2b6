//! Regions for which something is to be done soon, so that nobody has to look at all of them.
//!
//! A region raises a [`Flag`], and thereby enters a list, in which it stands once. Whoever takes it from the list
//! lowers the flag *before* it does what is to be done: a flag that is raised meanwhile enters the list again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use argosy_base::RegionId;
use parking_lot::{Mutex, MutexGuard};

/// The regions whose flag is raised, in the order in which they raised it.
#[derive(Debug, Default)]
pub(super) struct Raised(Mutex<VecDeque<RegionId>>);

impl Raised {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list().len()
    }

    /// Takes the first.
    pub(super) fn pop(&self) -> Option<RegionId> {
        self.list().pop_front()
    }

    fn list(&self) -> MutexGuard<'_, VecDeque<RegionId>> {
        self.0.lock()
    }
}

/// The flag of one region. See the module documentation.
#[derive(Debug)]
pub(super) struct Flag {
    region: RegionId,
    is_up: AtomicBool,
    raised: Arc<Raised>,
}

impl Flag {
    /// One that is down.
    pub(super) fn new(region: RegionId, raised: &Arc<Raised>) -> Self {
        Self {
            region,
            is_up: AtomicBool::new(false),
            raised: Arc::clone(raised),
        }
    }

    /// Enters the region into the list, unless it stands there.
    #[inline]
    pub(super) fn raise(&self) {
        // What was done before is seen by whoever lowers the flag.
        if !self.is_up.swap(true, Ordering::AcqRel) {
            self.raised.list().push_back(self.region);
        }
    }

    /// The region was taken from the list.
    pub(super) fn lower(&self) {
        self.is_up.swap(false, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_stands_in_the_list_once_until_it_is_lowered() {
        let raised: Arc<Raised> = Arc::default();
        let [a, b] = [1, 2].map(|id| Flag::new(RegionId(id), &raised));
        for flag in [&a, &b, &a] {
            flag.raise();
        }
        assert_eq!(raised.len(), 2);
        assert_eq!(raised.pop(), Some(RegionId(1)));
        a.raise();
        assert_eq!(raised.len(), 1, "whoever took it has not lowered it yet");
        a.lower();
        a.raise();
        assert_eq!(raised.pop(), Some(RegionId(2)));
        assert_eq!(raised.pop(), Some(RegionId(1)));
        assert_eq!(raised.pop(), None);
    }
}
