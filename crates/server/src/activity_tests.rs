//! The ledger with a clock that is set by hand.

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
        place: Place::NONE,
        read: 0,
        read_at: Instant::from_nanos(0),
    });
    let clock = Arc::new(Hand::default());
    let ledger = Ledger::new(
        Arc::clone(&clock) as Arc<dyn Clock>,
        [RegionId(7), RegionId(3)],
    );
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
    assert_eq!(charged(&ledger), [30, 300, 0, 1000, 0, 1]);
    clock.use_cpu(5);
    ledger.was(Activity::Compaction);
    clock.use_cpu(5);
    assert_eq!(charged(&ledger), [30, 300, 10, 1000, 0, 1]);
    clock.use_cpu(7);
    ledger.charge(Activity::IndexShipping as u32);
    clock.use_cpu(1);
    ledger.charge(u32::MAX);
    assert_eq!(charged(&ledger), [30, 300, 10, 1007, 0, 2]);
}

#[test]
fn a_thread_that_stays_is_charged_now_and_then() {
    let (clock, ledger) = begin();
    let at = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1000);
    let request = |ledger: &Ledger| ledger.used(Place::NONE, Activity::Request).cpu_nanos / 1000;
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

#[test]
fn regions_are_charged_what_is_done_for_them() {
    let (clock, ledger) = begin();
    let (three, seven) = (ledger.place_of(RegionId(3)), ledger.place_of(RegionId(7)));
    assert_eq!(ledger.place_of(RegionId(4)), Place::NONE);
    ledger.turn_to(Activity::Compaction);
    assert_eq!(ledger.at(seven), Place::NONE);
    clock.use_cpu(10);
    ledger.turn_to(Activity::Request);
    assert_eq!(ledger.at(three), seven);
    clock.use_cpu(5);
    let account = ledger.account();
    ledger.settle_now();
    let cpu = |place, activity| ledger.used(place, activity).cpu_nanos / 1000;
    assert_eq!(cpu(seven, Activity::Compaction), 10);
    assert_eq!(cpu(three, Activity::Request), 5);

    // A thread of the device does something for the third region.
    ledger.at(Place::NONE);
    clock.use_cpu(2);
    ledger.charge(account);
    ledger.moved(account, 4096, 8192);
    ledger.moved(u32::MAX, 1, 2);
    assert_eq!(cpu(three, Activity::Request), 7);
    let used = ledger.used(three, Activity::Request);
    assert_eq!((used.read_bytes, used.write_bytes), (4096, 8192));
    let odd = ledger.used(Place::NONE, Activity::Other);
    assert_eq!((odd.read_bytes, odd.write_bytes), (1, 2));
    assert_eq!(charged(&ledger), [7, 0, 10, 0, 0, 0]);
}
