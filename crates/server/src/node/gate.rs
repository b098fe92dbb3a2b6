//! The gate: whether an answer may be given.
//!
//! Every answer that shows data passes [`Gate::show`] at the moment when it is given. What it asks:
//!
//! 1. Everything that the answer reveals is committed (invariant I5), or on its way where that is enough to
//!    acknowledge a write ([`DurabilityMode::LastFlush`]). The gate reads the commit LSN, and no other file
//!    of the server does; reports, which show no data, get it from [`Gate::committed`]. A tidy test holds that.
//! 2. The region *serves*: the members have been equal since it was opened here, and no earlier primary can hold a
//!    lease any more. Otherwise a failure right after could lose what was shown, or another server show something else.
//! 3. This server leads the region by its present view, under the promotion under which the store was opened.
//! 4. It holds leases from all other members (I4), by the clock as it is read *then*: behind 1, so that it is after the
//!    last completion, and after the request has come. A group of one needs none, and no clock is read for it.
//!
//! What 2 to 4 come to is one word of the store that is open, its [`Right`]: a moment before which it may show what it
//! has. So an answer costs a load, a comparison, and a look at the clock. Whoever changes what it comes to sets it,
//! under the gate's lock. Once a store serves the region no more its right is nothing for ever: a thread that still
//! reads it shows nothing of it, even if the region is opened here again meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::{Clock, DurabilityMode, Epoch, Instant, Lsn};
use argosy_engine::WaitFor;
use argosy_replication::lease::leases::FOR_EVER;
use parking_lot::{Mutex, MutexGuard};

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

    /// Whether this passes without a look at the leases, by a planted mistake.
    const fn bypasses_leases(self, mutants: Mutants) -> bool {
        let of_its_kind = match self {
            Self::Values => mutants.bypass_lease_of_values(),
            Self::Hit => mutants.bypass_lease_of_hits(),
            Self::Write => false,
            Self::FailedCondition => mutants.bypass_lease_of_conditions(),
            Self::Page => mutants.bypass_lease_of_pages(),
            Self::Snapshot => mutants.bypass_lease_of_snapshots(),
            Self::Count => mutants.bypass_lease_of_counts(),
            Self::BulkLoad => mutants.bypass_lease_of_bulk_loads(),
        };
        of_its_kind || mutants.bypass_lease()
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

/// Before no moment.
const NEVER: Instant = Instant::from_nanos(0);

/// Up to when a store may show what it has: *before* this moment. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Right(AtomicU64);

impl Right {
    /// Acquire: whoever sees it sees what was committed when the region began to serve.
    fn until(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Acquire))
    }

    fn set(&self, until: Instant) {
        self.0.store(until.as_nanos(), Ordering::Release);
    }
}

/// What the right of the store that is open depends on.
#[derive(Debug)]
struct Terms {
    right: Arc<Right>,
    /// The promotion under which this server leads the region, by its present view.
    leads: Option<Epoch>,
    /// The promotion under which the region serves.
    serves: Option<Epoch>,
    /// Leases from all other members are held before this moment.
    leases: Instant,
}

impl Terms {
    fn publish(&self) {
        self.right.set(match self.serves {
            Some(_) if self.serves == self.leads => self.leases,
            _ => NEVER,
        });
    }
}

/// The gate of one region. See the module documentation.
pub(crate) struct Gate {
    /// The last LSN of the history when the region was opened here. While the commit LSN is below that, it does not
    /// cover everything that was once acknowledged. Relaxed: it is set before the engine is published.
    opened: AtomicU64,
    terms: Mutex<Terms>,
    clock: Arc<dyn Clock>,
    durability: DurabilityMode,
    /// For a planted mistake: the time at which the step began that is under way.
    stepped: AtomicU64,
    mutants: Mutants,
}

impl Gate {
    /// A gate of a region that is not open, and in which this server leads nothing.
    pub(crate) fn new(clock: Arc<dyn Clock>, durability: DurabilityMode, mutants: Mutants) -> Self {
        Self {
            opened: AtomicU64::new(0),
            terms: Mutex::new(Terms {
                right: Arc::default(),
                leads: None,
                serves: None,
                leases: NEVER,
            }),
            clock,
            durability,
            stepped: AtomicU64::new(0),
            mutants,
        }
    }

    /// The region opens with a history that goes up to `last`. It does not serve yet.
    pub(crate) fn open(&self, engine: &Serving, last: Lsn) {
        self.opened.store(last.0, Ordering::Relaxed);
        let mut terms = self.terms();
        terms.right.set(NEVER);
        (terms.right, terms.serves) = (Arc::clone(engine.right()), None);
        terms.publish();
    }

    /// The region is open here no more.
    pub(crate) fn close(&self) {
        let mut terms = self.terms();
        terms.right.set(NEVER);
        (terms.right, terms.serves) = (Arc::default(), None);
    }

    /// The region serves, under the promotion `since`.
    pub(crate) fn serve(&self, since: Epoch) {
        let mut terms = self.terms();
        terms.serves = Some(since);
        terms.publish();
    }

    /// This server leads the region under the promotion `leads`, if at all, and holds leases from all other members
    /// before `leases`. Returns whether there are answers that may be given now and could not before.
    pub(crate) fn set(&self, leads: Option<Epoch>, leases: Option<Instant>) -> bool {
        let mut terms = self.terms();
        let before = terms.right.until();
        (terms.leads, terms.leases) = (leads, leases.unwrap_or(NEVER));
        terms.publish();
        let after = terms.right.until();
        drop(terms);
        after > before && before <= self.clock.now()
    }

    /// When an answer may be given that reveals `what` and waits for `wait`.
    pub(crate) fn show(&self, engine: &Serving, what: Reveals, wait: WaitFor) -> Verdict {
        // In this order: the lease counts that is held after everything is committed.
        let may_show = || self.may_show(engine) || self.has_lost_lease(engine, what);
        let is_over = wait.is_over(self.acknowledged(engine)) && may_show();
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

    /// Up to where answers that have waited may be given now; `None` where none may.
    pub(crate) fn show_up_to(&self, engine: &Serving) -> Option<Lsn> {
        let acknowledged = self.acknowledged(engine);
        self.may_show(engine).then_some(acknowledged)
    }

    /// Whether answers may show what is not committed.
    pub(crate) fn shows_uncommitted(&self) -> bool {
        self.durability == DurabilityMode::LastFlush
    }

    /// Up to where writes are acknowledged.
    fn acknowledged(&self, engine: &Serving) -> Lsn {
        let committed = engine.committed_lsn();
        match self.durability {
            // A commit LSN that waits for the devices is the primary's: see its driver.
            DurabilityMode::LastWrite | DurabilityMode::Sync => committed,
            DurabilityMode::LastFlush => committed.max(engine.issued_lsn()),
        }
    }

    /// The commit LSN, for reports.
    pub(crate) fn committed(engine: &Serving) -> Lsn {
        engine.committed_lsn()
    }

    /// For a planted mistake: a step begins.
    pub(super) fn begin_step(&self, now: Instant) {
        self.stepped.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Whether what `engine` has may be shown at this moment.
    fn may_show(&self, engine: &Serving) -> bool {
        let until = engine.right().until();
        match until {
            NEVER => false,
            FOR_EVER => true,
            _ if self.mutants.bypass_lease() => true,
            _ if self.mutants.stale_clock() => {
                self.stepped.load(Ordering::Relaxed) < until.as_nanos()
            }
            _ => self.clock.now() < until,
        }
    }

    /// Whether it would be shown if leases did not matter, where that is planted.
    fn has_lost_lease(&self, engine: &Serving, what: Reveals) -> bool {
        what.bypasses_leases(self.mutants) && engine.right().until() != NEVER
    }

    fn terms(&self) -> MutexGuard<'_, Terms> {
        self.terms.lock()
    }
}
