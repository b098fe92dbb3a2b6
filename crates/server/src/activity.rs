//! What the threads of a server use CPU for.
//!
//! Each thread is at one *activity* at a time. Where it turns to another it reads its own CPU
//! clock, and what it has used since it last read it is charged to the activity that it leaves. So
//! nothing is counted twice, and nothing is left out but what a thread has used since its last
//! reading, at most `SETTLE_EVERY` for one that goes on. A thread that looks for work and finds
//! none, sleeps, or is woken, is charged to what it did last.
//!
//! Reading that clock is a system call of a few hundred nanoseconds: once or twice for a round of
//! requests and for a step of a compaction, never for a request or a record.
//!
//! Threads of the device do what others submitted, and charge it to what those were at.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Clock, Instant, info};
use argosy_device::Accounts;

/// How often a thread that stays at one activity reads its clock.
const SETTLE_EVERY: Duration = Duration::from_millis(1);

/// What CPU is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Clients' requests: the protocol, sockets, engines' reads and writes, forwarding.
    Request,
    /// Logs: shipping records to backups, and writing them to the devices of all members.
    LogReplication,
    /// Flushes of memtables and compactions: merging, building, writing what they build.
    Compaction,
    /// Finished segments and edits on their way to backups, and there: sending, checking, writing,
    /// applying; also what a backup that returns fetches.
    IndexShipping,
    /// Opening regions and links.
    Other,
}

impl Activity {
    /// All of them, in the order of their names in [`info::ACTIVITIES_CPU_US`].
    pub const ALL: [Self; 5] = [
        Self::Request,
        Self::LogReplication,
        Self::Compaction,
        Self::IndexShipping,
        Self::Other,
    ];

    const fn index(self) -> usize {
        self as usize
    }
}

/// Where a thread is.
#[derive(Clone, Copy)]
struct Here {
    activity: Activity,
    /// Its CPU clock at the last reading, in nanoseconds.
    read: u64,
    /// When that was, as far as it was told.
    read_at: Instant,
}

thread_local! {
    static HERE: Cell<Here> = const {
        Cell::new(Here {
            activity: Activity::Other,
            read: 0,
            read_at: Instant::from_nanos(0),
        })
    };
}

/// The CPU of all threads of one server, by activity. See the module documentation.
pub struct Ledger {
    clock: Arc<dyn Clock>,
    nanos: [AtomicU64; Activity::ALL.len()],
}

impl Ledger {
    /// Nothing charged yet; threads' CPU is read from `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            nanos: Default::default(),
        }
    }

    /// The calling thread turns to `activity`, and stays at it.
    pub fn turn_to(&self, activity: Activity) {
        let here = HERE.get();
        if here.activity != activity {
            self.charge_to(here.activity);
            HERE.set(Here {
                activity,
                ..HERE.get()
            });
        }
    }

    /// The calling thread is at `activity` until the span is dropped.
    #[must_use]
    pub fn during(&self, activity: Activity) -> Span<'_> {
        let before = HERE.get().activity;
        self.turn_to(activity);
        Span {
            ledger: self,
            before,
        }
    }

    /// What the calling thread has done since it last turned from anything was `activity`.
    pub fn was(&self, activity: Activity) {
        HERE.set(Here {
            activity,
            ..HERE.get()
        });
    }

    /// Charges what the calling thread has used, where that has not been done for a while.
    pub fn settle(&self, now: Instant) {
        let here = HERE.get();
        if now.since(here.read_at) >= SETTLE_EVERY {
            self.charge_to(here.activity);
            HERE.set(Here {
                read_at: now,
                ..HERE.get()
            });
        }
    }

    /// What has been charged, in microseconds, by the names of [`info::ACTIVITIES_CPU_US`]; what
    /// the calling thread has used is among it.
    pub fn micros(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.charge_to(HERE.get().activity);
        let micros = |nanos: &AtomicU64| nanos.load(Ordering::Relaxed) / 1000;
        info::ACTIVITIES_CPU_US
            .into_iter()
            .zip(self.nanos.iter().map(micros))
    }

    /// Charges what the calling thread has used since its last reading.
    fn charge_to(&self, activity: Activity) {
        let used = u64::try_from(self.clock.thread_cpu().as_nanos()).unwrap_or(u64::MAX);
        let here = HERE.get();
        // Only counts, read by nobody who relies on their order.
        self.nanos[activity.index()].fetch_add(used.saturating_sub(here.read), Ordering::Relaxed);
        HERE.set(Here { read: used, ..here });
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ledger({:?})", self.nanos)
    }
}

impl Accounts for Ledger {
    fn account(&self) -> u8 {
        HERE.get().activity as u8
    }

    fn charge(&self, account: u8) {
        let activity = Activity::ALL.get(usize::from(account));
        self.charge_to(activity.copied().unwrap_or(Activity::Other));
    }
}

/// Time at an activity; see [`Ledger::during`].
pub struct Span<'a> {
    ledger: &'a Ledger,
    before: Activity,
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        self.ledger.turn_to(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Microseconds of CPU, set by hand.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Hand {
        fn use_cpu(&self, micros: u64) {
            self.0.fetch_add(micros, Ordering::Relaxed);
        }
    }

    impl Clock for Hand {
        fn now(&self) -> Instant {
            Instant::from_nanos(0)
        }

        fn thread_cpu(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }
    }

    /// As a thread begins.
    fn begin() -> (Arc<Hand>, Ledger) {
        HERE.set(Here {
            activity: Activity::Other,
            read: 0,
            read_at: Instant::from_nanos(0),
        });
        let clock = Arc::new(Hand::default());
        let ledger = Ledger::new(Arc::clone(&clock) as Arc<dyn Clock>);
        (clock, ledger)
    }

    fn charged(ledger: &Ledger) -> Vec<u64> {
        ledger.micros().map(|(_, micros)| micros).collect()
    }

    #[test]
    fn every_activity_has_its_name() {
        for (index, activity) in Activity::ALL.into_iter().enumerate() {
            assert_eq!(activity.index(), index);
        }
        assert_eq!(info::ACTIVITIES_CPU_US.len(), Activity::ALL.len());
    }

    #[test]
    fn what_is_used_is_charged_once_to_what_it_was_used_for() {
        let (clock, ledger) = begin();
        clock.use_cpu(1);
        ledger.turn_to(Activity::Request);
        clock.use_cpu(10);
        {
            let _shipping = ledger.during(Activity::LogReplication);
            clock.use_cpu(100);
            {
                let _segment = ledger.during(Activity::IndexShipping);
                clock.use_cpu(1000);
            }
            clock.use_cpu(200);
        }
        clock.use_cpu(20);
        assert_eq!(charged(&ledger), [30, 300, 0, 1000, 1]);
        clock.use_cpu(5);
        ledger.was(Activity::Compaction);
        clock.use_cpu(5);
        assert_eq!(charged(&ledger), [30, 300, 10, 1000, 1]);
        clock.use_cpu(7);
        ledger.charge(Activity::IndexShipping as u8);
        clock.use_cpu(1);
        ledger.charge(99);
        assert_eq!(charged(&ledger), [30, 300, 10, 1007, 2]);
    }

    #[test]
    fn a_thread_that_stays_is_charged_now_and_then() {
        let (clock, ledger) = begin();
        let at = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1000);
        let request = |ledger: &Ledger| {
            ledger.nanos[Activity::Request.index()].load(Ordering::Relaxed) / 1000
        };
        ledger.turn_to(Activity::Request);
        clock.use_cpu(3);
        ledger.settle(at(0));
        assert_eq!(request(&ledger), 3);
        clock.use_cpu(3);
        ledger.settle(at(999));
        assert_eq!(request(&ledger), 3);
        ledger.settle(at(1000));
        assert_eq!(request(&ledger), 6);
    }
}
