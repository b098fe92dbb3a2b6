//! The gate: whether an answer may be given.
//!
//! Everything that an answer reveals has to be committed first (invariant I5). Every answer that shows data passes
//! [`Gate::show`], which reads the commit LSN at that moment. No other file of the server reads it; reports, which show
//! no data, get it from [`Gate::committed`]. A tidy test holds that.
//!
//! Nothing is shown before the region *serves*: the members have been equal since it was opened here. Otherwise a
//! failure right after could lose what was shown.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argosy_base::Lsn;
use argosy_engine::WaitFor;

use super::Mutants;
use super::serving::Serving;

/// What an answer reveals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reveals {
    /// Values, versions or expiries of keys.
    Values,
    /// The same, found by a thread that does not wait for the device.
    Hit,
    /// That a write was applied.
    Write,
    /// That a condition failed.
    FailedCondition,
    /// A page of a scan.
    Page,
    /// A snapshot, by its name.
    Snapshot,
    /// An estimate of the number of keys.
    Count,
    /// That pairs were bulk-loaded, or that a key is in their way.
    BulkLoad,
}

impl Reveals {
    /// Whether this passes unasked, by a planted mistake.
    const fn passes_unasked(self, mutants: Mutants) -> bool {
        match self {
            Self::Values => mutants.read_uncommitted(),
            Self::Hit => mutants.hit_uncommitted() || mutants.read_uncommitted(),
            Self::Write => false,
            Self::FailedCondition => mutants.fail_uncommitted(),
            Self::Page => mutants.page_uncommitted(),
            Self::Snapshot => mutants.snapshot_uncommitted(),
            Self::Count => mutants.count_uncommitted(),
            Self::BulkLoad => mutants.bulk_load_uncommitted(),
        }
    }
}

/// When an answer may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// At once.
    Now,
    /// Once what it waits for is over.
    Later,
}

/// The gate of one region. See the module documentation.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The last LSN of the history when the region was opened here. While the commit LSN is below that, it does not
    /// cover everything that was once acknowledged. Relaxed: it is set before the engine is published.
    opened: AtomicU64,
    /// Whether the region serves. Set with Release, read with Acquire: what was committed by then is seen.
    serves: AtomicBool,
    mutants: Mutants,
}

impl Gate {
    /// A gate of a region that is not open.
    pub(crate) const fn new(mutants: Mutants) -> Self {
        Self {
            opened: AtomicU64::new(0),
            serves: AtomicBool::new(false),
            mutants,
        }
    }

    /// The region opens with a history that goes up to `last`. It does not serve yet.
    pub(crate) fn open(&self, last: Lsn) {
        self.serves.store(false, Ordering::Release);
        self.opened.store(last.0, Ordering::Relaxed);
    }

    /// The region serves.
    pub(crate) fn serve(&self) {
        self.serves.store(true, Ordering::Release);
    }

    /// Whether it does.
    pub(super) fn serves(&self) -> bool {
        self.serves.load(Ordering::Acquire)
    }

    /// When an answer may be given that reveals `what` and waits for `wait`.
    pub(crate) fn show(&self, engine: &Serving, what: Reveals, wait: WaitFor) -> Verdict {
        let is_over = self.serves() && wait.is_over(engine.committed_lsn());
        if is_over || what.passes_unasked(self.mutants) {
            Verdict::Now
        } else {
            Verdict::Later
        }
    }

    /// When a view of what is committed may be shown: not while that may be less than was once acknowledged.
    pub(crate) fn show_committed(&self, engine: &Serving, what: Reveals) -> Verdict {
        let opened = Lsn(self.opened.load(Ordering::Relaxed));
        self.show(engine, what, WaitFor::committed(opened))
    }

    /// The commit LSN, for the release of answers that wait for it, and for reports.
    pub(crate) fn committed(engine: &Serving) -> Lsn {
        engine.committed_lsn()
    }
}
