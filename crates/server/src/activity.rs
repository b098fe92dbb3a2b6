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
//! Threads of the device do what others submitted, and charge it to what those were at; the bytes
//! that the device moves are written down in the same places.
//!
//! A thread is also in a *place*: one of the server's regions, or none of them ([`Place`]). Turning
//! to another place reads no clock, so what a thread uses between two readings is charged to the
//! place that it was last in. Work on compactions and shipments has readings of its own; rounds of
//! requests for several regions are charged to one of them each, which is right on average.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Clock, Instant, RegionId, info};
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
    /// Rewriting the pointers of shipped segments, where they hold places.
    Rewriting,
    /// Opening regions and links.
    Other,
}

impl Activity {
    /// All of them, in the order of their names in [`info::ACTIVITIES_CPU_US`].
    pub const ALL: [Self; 6] = [
        Self::Request,
        Self::LogReplication,
        Self::Compaction,
        Self::IndexShipping,
        Self::Rewriting,
        Self::Other,
    ];

    const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics and in the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::LogReplication => "log_replication",
            Self::Compaction => "compaction",
            Self::IndexShipping => "index_shipping",
            Self::Rewriting => "rewriting",
            Self::Other => "other",
        }
    }
}

/// For which of the server's regions something is done; the default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u16);

impl Place {
    /// No region in particular.
    pub const NONE: Self = Self(0);
}

/// What has been charged to one activity in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPU.
    pub cpu_nanos: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Bytes written to the device.
    pub write_bytes: u64,
}

/// Where a thread is.
#[derive(Clone, Copy)]
struct Here {
    activity: Activity,
    place: Place,
    /// Its CPU clock at the last reading, in nanoseconds.
    read: u64,
    /// When that was, as far as it was told.
    read_at: Instant,
}

thread_local! {
    static HERE: Cell<Here> = const {
        Cell::new(Here {
            activity: Activity::Other,
            place: Place::NONE,
            read: 0,
            read_at: Instant::from_nanos(0),
        })
    };
}

/// What rises for one activity in one place.
#[derive(Default)]
struct Account {
    nanos: AtomicU64,
    read_bytes: AtomicU64,
    write_bytes: AtomicU64,
}

/// Most places: as many as an account's number can name.
const PLACES_MAX: usize = 1 << 16;
/// Bits of an account's number that name the activity.
const ACTIVITY_BITS: u32 = 4;
const _: () = assert!(Activity::ALL.len() <= 1 << ACTIVITY_BITS);

/// The CPU of all threads of one server, and the bytes of its device, by place and activity. See
/// the module documentation.
pub struct Ledger {
    clock: Arc<dyn Clock>,
    /// The regions that are places: the first is place 1.
    regions: Vec<RegionId>,
    accounts: Box<[[Account; Activity::ALL.len()]]>,
}

impl Ledger {
    /// Nothing charged yet; threads' CPU is read from `clock`. Each of `regions` is a place.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, regions: impl IntoIterator<Item = RegionId>) -> Self {
        let mut regions: Vec<RegionId> = regions.into_iter().take(PLACES_MAX - 1).collect();
        regions.sort_unstable();
        Self {
            clock,
            accounts: (0..=regions.len()).map(|_| Default::default()).collect(),
            regions,
        }
    }

    /// The place of `region`: none, where the ledger was not told of it.
    #[must_use]
    pub fn place_of(&self, region: RegionId) -> Place {
        let found = self.regions.binary_search(&region);
        let place = found.map_or(0, |at| at + 1);
        Place(u16::try_from(place).expect("there are at most PLACES_MAX"))
    }

    /// The calling thread is in `place` from now on. Returns where it was.
    #[inline]
    pub fn at(&self, place: Place) -> Place {
        let here = HERE.get();
        if here.place != place {
            HERE.set(Here { place, ..here });
        }
        here.place
    }

    /// What has been charged to `activity` in `place`.
    #[must_use]
    pub fn used(&self, place: Place, activity: Activity) -> Used {
        let account = &self.accounts[usize::from(place.0)][activity.index()];
        // Only counts, each by itself.
        Used {
            cpu_nanos: account.nanos.load(Ordering::Relaxed),
            read_bytes: account.read_bytes.load(Ordering::Relaxed),
            write_bytes: account.write_bytes.load(Ordering::Relaxed),
        }
    }

    /// Charges what the calling thread has used, so that [`used`](Self::used) shows it.
    pub fn settle_now(&self) {
        self.charge_to(HERE.get().activity);
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
    pub fn during(&self, activity: Activity) -> ActivitySpan<'_> {
        let before = HERE.get().activity;
        self.turn_to(activity);
        ActivitySpan {
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
        self.settle_now();
        let nanos = |activity: Activity| -> u64 {
            let places = self.accounts.iter().map(|place| &place[activity.index()]);
            places
                .map(|account| account.nanos.load(Ordering::Relaxed))
                .sum()
        };
        let micros = Activity::ALL.into_iter().map(move |a| nanos(a) / 1000);
        info::ACTIVITIES_CPU_US.into_iter().zip(micros)
    }

    /// Charges what the calling thread has used since its last reading.
    fn charge_to(&self, activity: Activity) {
        let used = u64::try_from(self.clock.thread_cpu().as_nanos()).unwrap_or(u64::MAX);
        let here = HERE.get();
        let account = &self.accounts[usize::from(here.place.0)][activity.index()];
        // Only counts, read by nobody who relies on their order.
        let since = used.saturating_sub(here.read);
        account.nanos.fetch_add(since, Ordering::Relaxed);
        HERE.set(Here { read: used, ..here });
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ledger({} regions)", self.regions.len())
    }
}

/// The place and the activity that an account's number names.
fn named(account: u32, places: usize) -> (Place, Activity) {
    let activity = Activity::ALL.get((account & ((1 << ACTIVITY_BITS) - 1)) as usize);
    let place = u16::try_from(account >> ACTIVITY_BITS).unwrap_or(0);
    let known = usize::from(place) < places;
    let place = if known { Place(place) } else { Place::NONE };
    (place, activity.copied().unwrap_or(Activity::Other))
}

impl Accounts for Ledger {
    fn account(&self) -> u32 {
        let here = HERE.get();
        u32::from(here.place.0) << ACTIVITY_BITS | here.activity as u32
    }

    fn charge(&self, account: u32) {
        let (place, activity) = named(account, self.accounts.len());
        self.at(place);
        self.charge_to(activity);
    }

    fn moved(&self, account: u32, read_bytes: u64, write_bytes: u64) {
        let (place, activity) = named(account, self.accounts.len());
        let account = &self.accounts[usize::from(place.0)][activity.index()];
        // Only counts, read by nobody who relies on their order.
        account.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        account
            .write_bytes
            .fetch_add(write_bytes, Ordering::Relaxed);
    }
}

/// Time at an activity; see [`Ledger::during`].
pub struct ActivitySpan<'a> {
    ledger: &'a Ledger,
    before: Activity,
}

impl Drop for ActivitySpan<'_> {
    fn drop(&mut self) {
        self.ledger.turn_to(self.before);
    }
}

#[cfg(test)]
#[path = "activity_tests.rs"]
mod tests;
