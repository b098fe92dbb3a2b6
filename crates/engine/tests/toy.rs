//! The suites of conformance on the toy: what holds of one engine holds of another one.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Clock, Direction, Epoch, Instant, KeyRange, Lsn, Moment};
use argosy_device::Crash;
use argosy_engine::conformance::{self, FullHost, Host, Machine, group, toy};
use argosy_engine::stats::Stats;
use argosy_engine::{
    EngineError, Found, Progress, Reach, Service, Snapshot, Store, Stored, Wanted, WriteBatch,
    WriteOptions, Written,
};

/// Nanoseconds that a step takes.
const STEP_NANOS: u64 = 20_000_000;

#[derive(Default)]
struct Wall(AtomicU64);

impl Clock for Wall {
    fn now(&self) -> Instant {
        Instant::default()
    }

    fn thread_cpu(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> Moment {
        Moment(self.0.load(Ordering::Relaxed))
    }
}

/// A machine with a clock.
struct Clocked {
    machine: Machine,
    wall: Arc<Wall>,
    now: u64,
}

impl Clocked {
    fn new(settings: toy::Settings, seed: u64) -> Self {
        Self {
            machine: Machine::new(&settings, seed),
            wall: Arc::default(),
            now: 0,
        }
    }

    fn end(&mut self, engine: Opened, crash: Crash) {
        drop(engine);
        self.machine.end(crash);
    }
}

impl Host for Clocked {
    type Engine = Opened;

    fn open(&mut self) -> Opened {
        let copy = self.machine.open();
        let service = Service {
            epoch: Epoch(1),
            clock: Some(Arc::<Wall>::clone(&self.wall)),
            ..Service::default()
        };
        match copy.promote(service) {
            Ok(promoted) => Opened(promoted.store),
            Err(no) => panic!("it does not open: {}", no.error),
        }
    }

    fn step(&mut self, engine: &Opened) -> bool {
        self.now += STEP_NANOS;
        engine.step(Instant::from_nanos(self.now)).unwrap().made
    }

    fn close(&mut self, engine: Opened) {
        engine.close().unwrap();
        // A clean end needs no windows.
        self.end(engine, Crash::PowerLoss);
    }

    fn kill(&mut self, engine: Opened) {
        self.end(engine, Crash::Kill);
    }
}

impl FullHost for Clocked {
    fn set_time(&mut self, now: Moment) {
        self.wall.0.store(now.0, Ordering::Relaxed);
    }

    fn bulk_load(&mut self, engine: &Opened, pairs: &BTreeMap<Vec<u8>, Vec<u8>>) {
        assert_eq!(engine.0.capabilities().bulk_load_pair_bytes_max, None);
        for (key, value) in pairs {
            let mut batch = WriteBatch::new();
            batch.put(key, value).unwrap();
            while let Err(error) = engine.write(&batch, WriteOptions::default()) {
                assert!(matches!(error, EngineError::Busy(_)), "{error}");
                self.step(engine);
            }
        }
    }
}

/// A store of the toy, as the suite names it.
struct Opened(Arc<dyn Store>);

impl Store for Opened {
    fn get_within(&self, key: &[u8], reach: Reach) -> Result<Found, EngineError> {
        self.0.get_within(key, reach)
    }

    fn get_some(
        &self,
        keys: &[&[u8]],
        wanted: Wanted,
        reach: Reach,
    ) -> Result<Vec<Found>, EngineError> {
        self.0.get_some(keys, wanted, reach)
    }

    fn write_within(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        reach: Reach,
    ) -> Result<Written, EngineError> {
        self.0.write_within(batch, options, reach)
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.0.snapshot()
    }

    fn snapshot_of_all(&self) -> Box<dyn Snapshot> {
        self.0.snapshot_of_all()
    }

    fn count_estimate(&self) -> u64 {
        self.0.count_estimate()
    }

    fn last_lsn(&self) -> Lsn {
        self.0.last_lsn()
    }

    fn committed_lsn(&self) -> Lsn {
        self.0.committed_lsn()
    }

    fn commit(&self, lsn: Lsn) {
        self.0.commit(lsn);
    }

    fn durable_lsn(&self) -> Lsn {
        self.0.durable_lsn()
    }

    fn time(&self) -> Moment {
        self.0.time()
    }

    fn step(&self, now: Instant) -> Result<Progress, EngineError> {
        self.0.step(now)
    }

    fn background_pending(&self) -> usize {
        self.0.background_pending()
    }

    fn flush_now(&self) {
        self.0.flush_now();
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    fn stored(&self) -> Arc<dyn Stored> {
        self.0.stored()
    }

    fn close(&self) -> Result<(), EngineError> {
        self.0.close()
    }
}

/// Windows that a few hundred small writes fill.
fn tiny() -> toy::Settings {
    toy::Settings {
        window_bytes: 8 << 10,
        windows: 8,
        ..toy::Settings::default()
    }
}

#[test]
fn one_engine() {
    let mut seed = 0;
    let make = || {
        seed += 1;
        Clocked::new(toy::Settings::default(), seed)
    };
    conformance::run(make, 6000, 11);
}

#[test]
fn groups() {
    let met = group::run(&tiny(), 400, 1);
    assert!(met.dropped > 100 && met.branched > 10, "{met:?}");
    // It has neither levels nor windows that rest.
    let others = group::Met {
        dropped: 0,
        branched: 0,
        busy: 0,
        ..met
    };
    assert_eq!(others, group::Met::default());
}

/// A key that sorts as `number` does.
fn key_of(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// What was flushed survives a loss of power, and nothing else than what was written is there afterwards.
#[test]
fn what_is_durable_survives_a_loss_of_power() {
    let mut lost = 0;
    for seed in 0..40 {
        let mut machine = Clocked::new(tiny(), seed);
        let mut engine = machine.open();
        let mut written = 0_u64;
        for _ in 0..6 {
            for _ in 0..60 {
                let mut batch = WriteBatch::new();
                batch.put(key_of(written), [1; 200]).unwrap();
                while engine.write(&batch, WriteOptions::default()).is_err() {
                    machine.step(&engine);
                }
                written += 1;
                if written.is_multiple_of(7 + seed) {
                    machine.step(&engine);
                }
            }
            let durable = engine.durable_lsn();
            machine.end(engine, Crash::PowerLoss);
            engine = machine.open();
            let last = engine.last_lsn();
            assert!(last >= durable, "{durable} was durable, {last} is there");
            lost += written - last.0;
            written = last.0;
            let snapshot = engine.snapshot();
            let mut scan = snapshot.scan(&KeyRange::all(), Direction::Up).unwrap();
            for number in 0..written {
                let (key, _) = scan.next().unwrap().unwrap();
                assert_eq!(key, key_of(number));
            }
            assert_eq!(scan.next().unwrap(), None);
        }
    }
    assert!(lost > 100, "{lost} writes were lost");
}

/// What the suites find: `plants` one mistake in the toy.
fn found(name: &str, run: impl Fn(toy::Settings)) {
    let mut settings = tiny();
    assert!(settings.mutants.plant(name), "{name} is a mistake");
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(settings)));
    assert!(ran.is_err(), "no suite finds {name}");
}

#[test]
fn groups_find_planted_mistakes() {
    for name in [
        "forget_windows",
        "forget_logs",
        "use_early",
        "show_uncommitted",
        "flush_nothing",
    ] {
        found(name, |settings| {
            for seed in 1..8 {
                group::run(&settings, 400, seed);
            }
        });
    }
}

#[test]
fn the_suite_finds_planted_mistakes() {
    for name in ["forget_windows", "forget_floor"] {
        found(name, |settings| {
            let settings = toy::Settings {
                mutants: settings.mutants,
                ..toy::Settings::default()
            };
            conformance::run(|| Clocked::new(settings, 1), 2000, 11);
        });
    }
}
