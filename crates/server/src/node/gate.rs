//! The gate: whether an answer may be given.
//!
//! What an answer reveals is committed first (invariant I5). Every answer that shows data passes [`Gate::show`].
//! Nothing else in the server asks an engine how far it is committed, but reports, which show no data; a test of the
//! tree holds that. What decides is read at the moment of the call.

use std::sync::atomic::{AtomicU64, Ordering};

use super::serving::Serving;
use argosy_base::Lsn;
use argosy_engine::WaitFor;

use super::Mutants;

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
    /// That pairs were ingested, or that a key is in their way.
    Ingest,
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
            Self::Ingest => mutants.ingest_uncommitted(),
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
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// The LSN up to which the history went when the region was opened here. While less than that is known to be
    /// committed, the commit LSN does not cover all that was once acknowledged. Relaxed: it is set before the engine
    /// is published.
    opened: AtomicU64,
    mutants: Mutants,
}

impl Gate {
    /// A gate of a region that is not open.
    pub(crate) const fn new(mutants: Mutants) -> Self {
        Self {
            opened: AtomicU64::new(0),
            mutants,
        }
    }

    /// The region opens with a history that goes up to `last`.
    pub(crate) fn open(&self, last: Lsn) {
        self.opened.store(last.0, Ordering::Relaxed);
    }

    /// When an answer may be given that reveals `what` and depends on `wait`.
    pub(crate) fn show(&self, engine: &Serving, what: Reveals, wait: WaitFor) -> Verdict {
        if wait.is_over(engine.committed_lsn()) || what.passes_unasked(self.mutants) {
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

    /// Up to where everything is committed: for answers that were kept until then, and for reports.
    pub(crate) fn committed(engine: &Serving) -> Lsn {
        engine.committed_lsn()
    }
}
