//! Tests of readers of the map, with others that change it between any two of their requests: see [`super`].

use argosy_base::{Epoch, Instant};

use super::*;
use crate::contract::{
    Coordinator, CoordinatorAnswer, CoordinatorEvent, CoordinatorReply, Request,
};
use crate::in_memory::InMemory;
use crate::map::tests::{build, promoted, regions};
use crate::map_write::MapWrite;

const REGIONS: usize = 24;
const BOUND: usize = 130;

/// How a change is written. All but the first are mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One transaction.
    Whole,
    /// The index, then the shards, each in a transaction of its own.
    IndexFirst,
    /// The shards, each in a transaction of its own, then the index.
    ShardsFirst,
}

impl Way {
    fn requests(self, write: &MapWrite) -> Vec<Request> {
        let mut ops = write.ops().unwrap();
        if self == Self::ShardsFirst {
            ops.rotate_left(1);
        }
        let multi = |ops: Vec<CoordinatorOp>| Request::Multi { ops, under: None };
        match self {
            Self::Whole => vec![multi(ops)],
            _ => ops.into_iter().map(|op| multi(vec![op])).collect(),
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound as u64).unwrap()
    }
}

fn ask(handle: &mut InMemory, request: Request) -> CoordinatorAnswer {
    let (now, asked) = (Instant::from_nanos(1), handle.submit(request));
    loop {
        match handle.poll(now).expect("it answers at once") {
            CoordinatorEvent::Ended { id, answer } if id == asked => return answer,
            _ => {}
        }
    }
}

fn entry(handle: &mut InMemory, key: String) -> Entry {
    match ask(handle, Request::Read { key }) {
        Ok(CoordinatorReply::Entry(entry)) => entry,
        odd => panic!("{odd:?}"),
    }
}

/// Somebody who reads, one request a step.
struct Reading {
    reader: MapReader,
    /// What was read, and not taken yet: answers come in any order.
    answers: Vec<(MapPart, Entry)>,
    /// The version of the map when it began.
    began: EntryVersion,
}

/// What became of a step of a reading.
enum Step {
    More,
    Whole(StoredMap),
}

impl Reading {
    fn step(&mut self, handle: &mut InMemory, random: &mut Random) -> Result<Step, String> {
        if let Some(part) = self.reader.ask() {
            let entry = entry(handle, part.key());
            self.answers.push((part, entry));
            if random.below(2) > 0 {
                return Ok(Step::More);
            }
        }
        if self.answers.is_empty() {
            return Ok(Step::More);
        }
        let nth = random.below(self.answers.len());
        let (part, entry) = self.answers.swap_remove(nth);
        match self
            .reader
            .take(part, &entry)
            .map_err(|error| error.to_string())?
        {
            MapProgress::More => Ok(Step::More),
            MapProgress::Absent => Err("there is none".to_owned()),
            MapProgress::Whole(stored) => Ok(Step::Whole(stored)),
        }
    }
}

/// Somebody who changes the map, one request a step.
#[derive(Default)]
struct Writing {
    /// What it has still to ask, the next last.
    requests: Vec<Request>,
    write: Option<MapWrite>,
}

/// A world of some writers and readers.
struct Scene {
    random: Random,
    way: Way,
    mutants: MapMutants,
    handle: InMemory,
    /// Every map that was written, by its version.
    written: BTreeMap<EntryVersion, ClusterMap>,
    writers: [Writing; 2],
    readings: Vec<Reading>,
    /// The last map of each reader.
    known: Vec<Option<StoredMap>>,
    /// Maps read; shards that were read for them.
    whole: usize,
}

impl Scene {
    fn new(seed: u64, way: Way, mutants: MapMutants) -> Self {
        let map = build(regions(REGIONS)).unwrap();
        let mut handle = InMemory::new();
        let write = MapWrite::first(Arc::new(map.clone()), BOUND).unwrap();
        let ops = write.ops().unwrap();
        ask(&mut handle, Request::Multi { ops, under: None }).unwrap();
        Self {
            random: Random(seed),
            way,
            mutants,
            handle,
            written: BTreeMap::from([(EntryVersion(1), map)]),
            writers: Default::default(),
            readings: Vec::new(),
            known: vec![None, None, None],
            whole: 0,
        }
    }

    fn version(&self) -> EntryVersion {
        *self.written.keys().next_back().unwrap()
    }

    /// The next map: some regions have other epochs, or are longer.
    fn change(&mut self, map: &ClusterMap) -> ClusterMap {
        let mut regions = map.regions().to_vec();
        for _ in 0..=self.random.below(6) {
            let place = self.random.below(REGIONS);
            let region = regions[place].clone();
            regions[place] = match self.random.below(4) {
                0 if region.since == Epoch(1) => Region {
                    epoch: Epoch(region.epoch.0 + 7),
                    ..promoted(region)
                },
                _ => Region {
                    epoch: Epoch(region.epoch.0 + 1),
                    ..region
                },
            };
        }
        map.with_regions(regions).unwrap()
    }

    fn write(&mut self, writer: usize) -> Result<(), String> {
        if self.writers[writer].requests.is_empty() {
            let Some(stored) = self.stored()? else {
                return Ok(());
            };
            let next = self.change(&stored.map);
            let write = MapWrite::change(&stored, Arc::new(next), BOUND).unwrap();
            let mut requests = self.way.requests(&write);
            requests.reverse();
            self.writers[writer] = Writing {
                requests,
                write: Some(write),
            };
            return Ok(());
        }
        // It dies between two requests.
        if self.random.below(20) == 0 {
            self.writers[writer] = Writing::default();
            return Ok(());
        }
        let Writing { requests, write } = &mut self.writers[writer];
        let Some(request) = requests.pop() else {
            return Ok(());
        };
        match ask(&mut self.handle, request) {
            Ok(_) if requests.is_empty() => {
                if let Some(write) = write.take() {
                    let stored = write.stored();
                    self.written.insert(stored.version, (*stored.map).clone());
                }
            }
            Ok(_) => {}
            Err(_) => self.writers[writer] = Writing::default(),
        }
        Ok(())
    }

    /// The map, read by somebody whom nobody disturbs.
    fn stored(&mut self) -> Result<Option<StoredMap>, String> {
        let handle = &mut self.handle;
        let read = read_map(|key| Ok(entry(handle, key)));
        read.map_err(|error| format!("nobody writes, and {error}"))
    }

    fn read(&mut self, reader: usize) -> Result<(), String> {
        while self.readings.len() <= reader {
            let began = self.version();
            let known = self.known[self.readings.len()].clone();
            self.readings.push(Reading {
                reader: MapReader::new(known, self.mutants),
                answers: Vec::new(),
                began,
            });
        }
        let step = self.readings[reader].step(&mut self.handle, &mut self.random)?;
        let Step::Whole(found) = step else {
            return Ok(());
        };
        let began = self.readings[reader].began;
        let Some(written) = self.written.get(&found.version) else {
            return Err(format!("{} was never written", found.version));
        };
        if found.version < began || *found.map != *written {
            return Err(format!("{} is not what was written", found.version));
        }
        self.whole += 1;
        // Some go on from what they know, others begin anew.
        self.known[reader] = Some(found).filter(|_| self.random.below(4) > 0);
        self.readings[reader] = Reading {
            reader: MapReader::new(self.known[reader].clone(), self.mutants),
            answers: Vec::new(),
            began: self.version(),
        };
        Ok(())
    }

    fn run(&mut self, steps: usize) -> Result<(), String> {
        for _ in 0..steps {
            match self.random.below(5) {
                // Writers are rarer, or nobody would read anything.
                0 if self.random.below(4) == 0 => {
                    let writer = self.random.below(2);
                    self.write(writer)?;
                }
                0 => {}
                reader => self.read((reader - 1) % 3)?,
            }
        }
        Ok(())
    }
}

fn runs(way: Way, mutants: MapMutants) -> Result<(usize, usize, usize), String> {
    let (mut whole, mut changes, mut shards) = (0, 0, 0);
    for seed in 0..40 {
        let mut scene = Scene::new(seed, way, mutants);
        scene.run(3000)?;
        whole += scene.whole;
        changes += scene.written.len();
        shards = shards.max(scene.stored()?.unwrap().shards.places().len());
    }
    Ok((whole, changes, shards))
}

#[test]
fn readers_between_writers_see_whole_maps() {
    let (whole, changes, shards) = runs(Way::Whole, MapMutants::default()).unwrap();
    assert!(whole > 1000 && changes > 1000, "{whole} {changes}");
    assert!(shards > 8, "{shards}: some have been cut");
}

#[test]
fn mistakes_of_writers_and_readers_are_found() {
    for way in [Way::IndexFirst, Way::ShardsFirst] {
        let found = runs(way, MapMutants::default());
        assert!(found.is_err(), "{way:?}: {found:?}");
    }
    let mut mutants = MapMutants::default();
    assert!(mutants.plant("trust_shards"));
    let found = runs(Way::Whole, mutants);
    assert!(found.is_err(), "{found:?}");
}

#[test]
fn only_what_has_changed_is_read() {
    let mut scene = Scene::new(1, Way::Whole, MapMutants::default());
    let mut known = scene.stored().unwrap();
    for _ in 0..50 {
        let before = scene.version();
        while scene.version() == before {
            scene.write(0).unwrap();
        }
        let (mut reader, mut asked) = (MapReader::new(known.clone(), MapMutants::default()), 0);
        let found = loop {
            let part = reader.ask().expect("it is not over");
            asked += 1;
            let entry = entry(&mut scene.handle, part.key());
            if let MapProgress::Whole(found) = reader.take(part, &entry).unwrap() {
                break found;
            }
        };
        let old = known.unwrap();
        let is_new = |place: &&ShardPlace| {
            let mut old = old.shards.places().iter();
            !old.any(|old| (old.shard, old.entry) == (place.shard, place.entry))
        };
        let new = found.shards.places().iter().filter(is_new).count();
        assert!(new > 0);
        assert_eq!(asked, 1 + new);
        known = Some(found);
    }
    // And if nothing has, the index.
    let mut reader = MapReader::new(known.clone(), MapMutants::default());
    let part = reader.ask().unwrap();
    let index = entry(&mut scene.handle, part.key());
    let found = reader.take(part, &index).unwrap();
    assert_eq!(found, MapProgress::Whole(known.unwrap()));
}

#[test]
fn a_reader_gives_up_when_others_never_stop() {
    let mut scene = Scene::new(3, Way::Whole, MapMutants::default());
    let mut reader = MapReader::new(None, MapMutants::default());
    let mut asked = 0;
    let error = loop {
        let part = reader.ask().expect("it is not over");
        asked += 1;
        // All regions change between any two of its requests.
        let stored = scene.stored().unwrap().unwrap();
        let all = stored.map.regions().iter().map(|region| Region {
            epoch: Epoch(region.epoch.0 + 1),
            ..region.clone()
        });
        let next = stored.map.with_regions(all.collect()).unwrap();
        let write = MapWrite::change(&stored, Arc::new(next), BOUND).unwrap();
        let ops = write.ops().unwrap();
        ask(&mut scene.handle, Request::Multi { ops, under: None }).unwrap();
        let entry = entry(&mut scene.handle, part.key());
        match reader.take(part, &entry) {
            Ok(MapProgress::More) => {}
            Ok(odd) => panic!("{odd:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, MapError::Unsteady { .. }), "{error}");
    assert_eq!(asked, 2 * ATTEMPTS_MAX, "an index and a shard each time");
}

#[test]
fn a_map_that_is_damaged_is_told_from_one_that_changes() {
    let mut scene = Scene::new(5, Way::Whole, MapMutants::default());
    let shard = scene.stored().unwrap().unwrap().shards.places()[1].shard;
    let good = entry(&mut scene.handle, shard_key(shard));
    let set = |value: Vec<u8>, expected| Request::CompareAndSet {
        key: shard_key(shard),
        expected,
        value,
    };
    // The bytes of another shard, or of another moment, are not taken for this one's.
    let other = scene.stored().unwrap().unwrap().shards.places()[0].shard;
    let other = entry(&mut scene.handle, shard_key(other));
    for value in [other.value, good.value.clone()] {
        let found = entry(&mut scene.handle, shard_key(shard));
        ask(&mut scene.handle, set(value, found.version)).unwrap();
        let error = scene.stored().unwrap_err();
        assert!(error.contains(&format!("shard {shard} ")), "{error}");
    }
    let found = entry(&mut scene.handle, shard_key(shard));
    let delete = CoordinatorOp::Delete {
        key: shard_key(shard),
        expected: found.version,
    };
    let ops = vec![delete];
    ask(&mut scene.handle, Request::Multi { ops, under: None }).unwrap();
    let error = scene.stored().unwrap_err();
    assert!(error.contains("is at version 0"), "{error}");
}
