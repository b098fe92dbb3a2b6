//! For how long parts without a head are kept, and for whom: in a store alone, and on a server.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Machine, tiny};
use argosy_base::{Direction, Instant, KeyRange};
use argosy_engine::composite::{Composite, CompositeType, Name};
use argosy_engine::conformance::Host;
use argosy_engine::long::{LongWriter, Part, SweepPace, Sweeper, Uses, parts};
use argosy_engine::{Expiry, Store, WriteBatch, WriteOptions};
use argosy_lsm::Lsm;

/// Long values of two parts, of which each is told of as a server does it.
struct World {
    machine: Machine,
    engine: Lsm,
    uses: Arc<Uses>,
    sweeper: Sweeper,
    now: Instant,
    short: bool,
}

impl World {
    fn new(pace: SweepPace) -> Self {
        let mut machine = Machine::new(tiny(), 2048, 1);
        let engine = machine.open();
        let uses: Arc<Uses> = Arc::default();
        let mut world = Self {
            machine,
            engine,
            sweeper: Sweeper::new(pace, Arc::clone(&uses)),
            uses,
            now: Instant::from_nanos(1),
            short: false,
        };
        // The first pass is the opening's.
        world.sweep();
        world
    }

    fn write(&mut self, batch: &WriteBatch) -> bool {
        self.uses.writes(batch, self.now);
        let written = loop {
            if let Ok(written) = self.engine.write(batch, WriteOptions::default()) {
                break written;
            }
            self.machine.step(&self.engine);
        };
        self.uses.wrote(batch);
        written.applied
    }

    /// All but the head.
    fn put_parts(&mut self, key: &str, version: u128) -> LongWriter {
        let writer = LongWriter::new(key.as_bytes(), 200, version).unwrap();
        let mut writer = writer.in_parts_of(100);
        let mut batch = WriteBatch::new();
        while let Some(bytes) = writer.next_bytes() {
            writer.part(&vec![7; bytes], &mut batch);
            assert!(self.write(&batch));
        }
        writer
    }

    fn put_head(&mut self, writer: &LongWriter) -> bool {
        let mut batch = WriteBatch::new();
        writer.head(Expiry::Never, &mut batch);
        self.write(&batch)
    }

    fn put(&mut self, key: &str, version: u128) {
        let writer = self.put_parts(key, version);
        assert!(self.put_head(&writer));
    }

    /// A hash of so many fields.
    fn put_hash(&mut self, key: &str, version: u128, fields: u64) {
        let head = hash(key, version, fields);
        let mut batch = WriteBatch::new();
        for field in 0..fields {
            let name = field.to_le_bytes();
            let key = head.element(Name::Field(&name)).to_key();
            batch.put_any(&key, b"v", Expiry::Never).unwrap();
        }
        batch
            .put_any(key.as_bytes(), &head.to_value(), Expiry::Never)
            .unwrap();
        assert!(self.write(&batch));
    }

    /// How many elements of that hash there are.
    fn elements(&self, key: &str, version: u128) -> usize {
        let snapshot = self.engine.snapshot();
        let fields = hash(key, version, 0).fields();
        let mut scan = snapshot.scan(&fields, Direction::Up).unwrap();
        let mut elements = 0;
        while scan.next().unwrap().is_some() {
            elements += 1;
        }
        elements
    }

    fn read_part(&self, key: &str, version: u128) -> bool {
        let key = key.as_bytes();
        let index = 1;
        let key = Part {
            key,
            version,
            index,
        };
        self.uses.reads(&key.to_key(), self.now);
        self.engine.get(&key.to_key()).unwrap().value.is_some()
    }

    /// Steps until there is nothing to look at now.
    fn sweep(&mut self) {
        for _ in 0..100 {
            let wait = self.sweeper.step(&self.engine, self.now, self.short);
            self.machine.step(&self.engine);
            if wait.unwrap() != Some(Duration::ZERO) {
                return;
            }
        }
        panic!("there is always something to look at");
    }

    /// Lets so many seconds pass, and sweeps in each quarter of them.
    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds * 4 {
            self.now = self.now + Duration::from_millis(250);
            self.sweep();
        }
    }

    /// The versions of which there are parts.
    fn versions(&self) -> Vec<u128> {
        let snapshot = self.engine.snapshot();
        let mut scan = snapshot.scan(&parts(), Direction::Up).unwrap();
        let mut versions = Vec::new();
        while let Some((key, _)) = scan.next().unwrap() {
            versions.extend(Part::parse(&key).map(|part| part.version));
        }
        versions.dedup();
        versions
    }
}

fn hash(key: &str, version: u128, number: u64) -> Composite {
    Composite {
        kind: CompositeType::Hash,
        version,
        number,
        key: key.as_bytes().to_vec(),
    }
}

#[test]
fn elements_go_when_no_head_names_them() {
    let mut world = World::new(SweepPace::default());
    world.put_hash("stays", 1, 50);
    world.put_hash("few", 2, 3);
    world.put_hash("many", 3, 50);
    world.put_hash("again", 4, 3);
    // The same key has a long value next, and a hash again.
    world.put("again", 5);
    world.wait(5);
    assert_eq!(world.elements("again", 4), 0);
    assert_eq!(world.versions(), [5]);
    world.put_hash("again", 6, 3);
    let mut batch = WriteBatch::new();
    batch.delete(b"few").unwrap();
    batch.put(b"many", b"text").unwrap();
    assert!(world.write(&batch));
    world.wait(5);
    assert_eq!(world.elements("few", 2), 0);
    assert_eq!(world.elements("many", 3), 0);
    assert_eq!(world.elements("stays", 1), 50);
    assert_eq!(world.elements("again", 6), 3);
    assert_eq!(world.versions(), [0; 0]);
    assert_eq!(world.sweeper.stats().swept, 4);
}

#[test]
fn parts_that_nobody_is_at_go_within_seconds() {
    let mut world = World::new(SweepPace::default());
    for version in 0..20 {
        world.put("k", version);
    }
    world.wait(2);
    assert_eq!(world.versions(), [19]);
    for version in 20..30 {
        world.put(&format!("other{version}"), version);
    }
    let mut batch = WriteBatch::new();
    batch.delete_range(&KeyRange::all()).unwrap();
    assert!(world.write(&batch));
    world.wait(3);
    assert_eq!(world.versions(), [0; 0]);
    let swept = world.sweeper.stats().swept;
    assert_eq!(swept, 30);
    // And then there is nothing more to do.
    let passes = world.sweeper.stats().passes;
    world.wait(50);
    assert!(world.sweeper.stats().passes <= passes + 2);
}

#[test]
fn a_store_alone_keeps_parts_for_writers_only() {
    let mut world = World::new(SweepPace::alone());
    world.uses.begun(1);
    let writer = LongWriter::new(b"k", 100, 1).unwrap();
    let mut writer = writer.in_parts_of(100);
    let mut batch = WriteBatch::new();
    writer.part(&[7; 100], &mut batch);
    world.engine.write(&batch, WriteOptions::default()).unwrap();
    world.wait(600);
    assert_eq!(world.versions(), [1]);
    batch.clear();
    writer.head(Expiry::Never, &mut batch);
    let written = world.engine.write(&batch, WriteOptions::default()).unwrap();
    assert!(written.applied);
    world.uses.ended(b"k", 1);
    world.sweep();
    assert_eq!(world.versions(), [1]);
    // One that replaces it, and one that is given up.
    world.put("k", 2);
    let _given_up = world.put_parts("k", 3);
    world.uses.ended(b"k", 3);
    world.sweep();
    assert_eq!(world.versions(), [2], "at once");
}

#[test]
fn whoever_reads_a_part_finds_the_next_one() {
    let mut world = World::new(SweepPace::default());
    world.put("k", 1);
    assert!(world.read_part("k", 1));
    world.put("k", 2);
    world.short = true;
    for _ in 0..5 {
        world.wait(9);
        assert!(world.read_part("k", 1));
    }
    world.wait(12);
    assert_eq!(world.versions(), [2]);
}

#[test]
fn writers_have_a_minute_for_each_part_and_less_where_space_is_short() {
    for (short, kept) in [(false, 59), (true, 9)] {
        let mut world = World::new(SweepPace::default());
        world.short = short;
        let writer = world.put_parts("k", 1);
        world.wait(kept);
        assert!(world.put_head(&writer), "it was fast enough");
        let writer = world.put_parts("k", 2);
        world.wait(kept + 3);
        assert_eq!(world.versions(), [1]);
        assert!(
            !world.put_head(&writer),
            "it is told that nothing was applied"
        );
        assert_eq!(world.versions(), [1]);
    }
}

/// A server does not know who was at what before it was started; a store alone knows that nobody is.
#[test]
fn what_was_there_at_the_opening_is_kept_for_writers_of_before() {
    for (pace, short, kept) in [
        (SweepPace::default(), false, 59),
        (SweepPace::default(), true, 9),
        (SweepPace::alone(), false, 0),
    ] {
        let mut world = World::new(pace);
        let writer = world.put_parts("k", 1);
        let _late = world.put_parts("k", 2);
        world.uses = Arc::default();
        world.sweeper = Sweeper::new(pace, Arc::clone(&world.uses));
        world.short = short;
        world.sweep();
        world.wait(kept);
        if kept > 0 {
            assert_eq!(world.versions(), [1, 2]);
            assert!(world.put_head(&writer), "it was fast enough");
            world.wait(3);
            assert_eq!(world.versions(), [1]);
        } else {
            assert_eq!(world.versions(), [0; 0]);
        }
    }
}

/// Otherwise each look for something else would ask in vain again.
#[test]
fn while_the_engine_is_busy_nothing_is_looked_at_for_a_while() {
    let mut world = World::new(SweepPace::alone());
    world.put("k", 1);
    world.put("k", 2);
    let mut batch = WriteBatch::new();
    batch.put(b"filler", [7; 100]).unwrap();
    while world.engine.write(&batch, WriteOptions::default()).is_ok() {}

    let step = |world: &mut World| {
        let wait = world.sweeper.step(&world.engine, world.now, false);
        (wait.unwrap(), world.sweeper.stats().swept)
    };
    let pause = Some(Duration::from_millis(20));
    assert_eq!(step(&mut world), (pause, 0));
    while world.engine.write(&batch, WriteOptions::default()).is_err() {
        world.machine.step(&world.engine);
    }
    assert_eq!(step(&mut world), (pause, 0));
    world.now = world.now + Duration::from_millis(20);
    assert_eq!(step(&mut world).1, 1);
    assert_eq!(world.versions(), [2]);
}
