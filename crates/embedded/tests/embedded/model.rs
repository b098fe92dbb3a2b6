//! Random operations against a map: what a store shows is what a `BTreeMap` would, whatever its settings,
//! and however often it is closed and opened again.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use argosy_embedded::{
    Builder, Change, Changed, Condition, Db, Durability, KeyRange, Placement, Refusal, Settings,
    Snapshot, WriteBatch,
};

use crate::support::{Dir, Random, small};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Different keys that there may be.
const KEYS: u64 = 600;

struct World {
    db: Db,
    map: Map,
    held: Vec<(Snapshot, Map)>,
    random: Random,
}

fn builder(random: &mut Random) -> Builder {
    let placements = [Placement::Hybrid, Placement::InPlace, Placement::Separated];
    let durabilities = [
        Durability::FlushInterval(Duration::from_millis(20)),
        Durability::Sync,
        Durability::Windows,
    ];
    let engine = Settings::small().with(|of| {
        of.values.placement = placements[usize::try_from(random.below(3)).unwrap()];
        of.levels.growth_factor = 2 + u32::try_from(random.below(4)).unwrap();
        of.levels.l1_runs = 2 + usize::try_from(random.below(4)).unwrap();
    });
    small()
        .engine(engine)
        .l0_bytes(16 << 10 << random.below(3))
        .durability(durabilities[usize::try_from(random.below(3)).unwrap()])
        .patience(Duration::from_secs(60))
}

impl World {
    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(KEYS);
        // Of different lengths, and many with a beginning in common.
        format!("{:03}/{number}", number % 20).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let most = [12, 150, 1500, 6000][usize::try_from(self.random.below(4)).unwrap()];
        let len = self.random.below(most);
        self.random.bytes(len)
    }

    /// A value of any length that one put takes.
    fn long_or_short(&mut self) -> Vec<u8> {
        match self.random.below(400) {
            0 => {
                let more = self.random.below(700_000);
                let len = usize::try_from((1 << 20) + more).unwrap();
                let mut value = self.random.bytes(4099).repeat(len / 4099 + 1);
                value.truncate(len);
                value
            }
            _ => self.value(),
        }
    }

    fn write(&mut self) {
        let key = self.key();
        let value = self.long_or_short();
        let existed = self.map.contains_key(&key);
        match self.random.below(11) {
            0..4 => {
                self.db.put(&key, &value).unwrap();
                self.map.insert(key, value);
            }
            4 => {
                assert_eq!(self.db.delete(&key).unwrap(), existed);
                self.map.remove(&key);
            }
            5 => {
                let applied = self.db.put_if(&key, &value, Condition::Absent).unwrap();
                assert_eq!(applied, !existed);
                self.map.entry(key).or_insert(value);
            }
            6 => {
                let applied = self.db.put_if(&key, &value, Condition::Present).unwrap();
                assert_eq!(applied, existed);
                if existed {
                    self.map.insert(key, value);
                }
            }
            7 => {
                let (found, version) = self.db.get_with_version(&key).unwrap();
                assert_eq!(found.as_ref(), self.map.get(&key));
                let unchanged = self.random.below(2) == 0;
                if !unchanged {
                    self.db.put(&key, b"between").unwrap();
                    self.map.insert(key.clone(), b"between".to_vec());
                }
                let applied = self.db.put_if(&key, &value, Condition::Version(version));
                // It may fail though nobody wrote, but never succeed though somebody did.
                if applied.unwrap() {
                    assert!(unchanged);
                    self.map.insert(key, value);
                }
            }
            8 => self.swap(key, &value),
            9 => {
                let changed = self.db.change(&key, Change::Append, b"+").unwrap();
                let bound = self.map.entry(key).or_default();
                if bound.len() > 1 << 20 {
                    assert_eq!(changed, Changed::Refused(Refusal::Long));
                    return;
                }
                bound.push(b'+');
                assert_eq!(
                    changed,
                    Changed::Number(i64::try_from(bound.len()).unwrap())
                );
            }
            _ if self.random.below(4) == 0 => self.delete_range(key),
            _ => self.write_batch(),
        }
    }

    fn swap(&mut self, key: Vec<u8>, value: &[u8]) {
        let right = self.random.below(2) == 0;
        // What is expected is not long.
        let known = self.map.get(&key).cloned();
        let right = right && known.as_ref().is_none_or(|known| known.len() <= 1 << 20);
        let expected = if right {
            known.clone()
        } else {
            Some(b"?".to_vec())
        };
        let new = (self.random.below(3) > 0).then_some(value);
        let swapped = self.db.compare_and_swap(&key, expected.as_deref(), new);
        assert_eq!(swapped.unwrap(), expected == known);
        if expected == known {
            match new {
                Some(new) => drop(self.map.insert(key, new.to_vec())),
                None => drop(self.map.remove(&key)),
            }
        }
    }

    fn delete_range(&mut self, from: Vec<u8>) {
        match self.random.below(3) {
            0 => {
                let prefix = &from[..from.len().min(5)];
                self.db.delete_prefix(prefix).unwrap();
                self.map.retain(|key, _| !key.starts_with(prefix));
            }
            1 => {
                let keys = usize::try_from(self.random.below(30)).unwrap();
                let to = self.map.keys().filter(|key| **key >= from).nth(keys);
                let to = to.cloned().unwrap_or_else(|| from.clone());
                self.db.delete_range(from.clone()..to.clone()).unwrap();
                self.map.retain(|key, _| *key < from || *key >= to);
            }
            _ => {
                let mut batch = WriteBatch::new();
                batch.put(&from, b"before").unwrap();
                let mut to = from.clone();
                to.push(b'4');
                let range = KeyRange::new(from.clone(), Some(to.clone()));
                batch.delete_range(&range).unwrap();
                let stays = self.random.below(2) == 0;
                self.map.retain(|key, _| *key < from || *key >= to);
                if stays {
                    batch.put(&from, b"behind").unwrap();
                    self.map.insert(from, b"behind".to_vec());
                }
                self.db.write(&batch).unwrap();
            }
        }
    }

    fn write_batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.random.below(20) {
            let key = self.key();
            if self.random.below(4) == 0 {
                batch.delete(&key).unwrap();
                self.map.remove(&key);
            } else {
                let value = self.value();
                batch.put(&key, &value).unwrap();
                self.map.insert(key, value);
            }
        }
        self.db.write(&batch).unwrap();
    }

    fn look(&mut self) {
        let key = self.key();
        assert_eq!(self.db.get(&key).unwrap().as_ref(), self.map.get(&key));
        let keys: Vec<_> = (0..self.random.below(50)).map(|_| self.key()).collect();
        let found = self.db.get_many(&keys).unwrap();
        let expected: Vec<_> = keys.iter().map(|key| self.map.get(key).cloned()).collect();
        assert!(found == expected);
        let (from, to) = (self.key(), self.key());
        let snapshot = self.db.snapshot();
        assert!(snapshot.get_many(&keys).unwrap() == expected);
        check_range(&snapshot, &self.map, &from, &to, self.random.below(4));
        let prefix = &from[..3];
        let mut all = self.db.prefix(prefix).map(|pair| pair.unwrap());
        let expected = self.map.iter().filter(|(key, _)| key.starts_with(prefix));
        for (key, value) in expected {
            assert_eq!(all.next(), Some((key.clone(), value.clone())));
        }
        assert_eq!(all.next(), None);
    }

    fn step(&mut self, dir: &Dir) {
        match self.random.below(400) {
            0 => {
                self.held.clear();
                // Both ways to stop.
                if self.random.below(2) == 0 {
                    self.db.close().unwrap();
                }
                let builder = builder(&mut self.random);
                // The only handle goes before the next is made.
                let other = Dir::new("placeholder");
                self.db = small().open(&other).unwrap();
                self.db = builder.open(dir).unwrap();
            }
            1 => self.db.compact().unwrap(),
            12..14 => {
                let pairs: Map = (0..self.random.below(300))
                    .map(|_| (self.key(), self.value()))
                    .collect();
                assert_eq!(
                    self.db.bulk_load(pairs.clone()).unwrap(),
                    pairs.len() as u64
                );
                self.map.extend(pairs);
            }
            2 => self.db.flush().unwrap(),
            3..6 => {
                let snapshot = self.db.snapshot();
                self.held.push((snapshot, self.map.clone()));
                if self.held.len() > 3 {
                    self.held.remove(0);
                }
            }
            6..12 => {
                let (from, to) = (self.key(), self.key());
                let way = self.random.below(4);
                for (snapshot, map) in &self.held {
                    check_range(snapshot, map, &from, &to, way);
                }
            }
            14..40 => self.look(),
            _ => self.write(),
        }
    }
}

fn check_range(snapshot: &Snapshot, map: &Map, from: &[u8], to: &[u8], way: u64) {
    let (from, to) = (from.min(to), from.max(to));
    let bounds = match way {
        0 => (Bound::Included(from), Bound::Excluded(to)),
        1 => (Bound::Included(from), Bound::Included(to)),
        2 => (Bound::Unbounded, Bound::Excluded(to)),
        _ => (Bound::Included(from), Bound::Unbounded),
    };
    let pairs = |scan: &mut dyn Iterator<Item = argosy_embedded::Result<(Vec<u8>, Vec<u8>)>>| {
        scan.collect::<Result<Vec<_>, _>>().unwrap()
    };
    let mut expected: Vec<_> = map
        .range::<[u8], _>(bounds)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    assert!(pairs(&mut snapshot.range(bounds)) == expected);
    expected.reverse();
    assert!(pairs(&mut snapshot.range(bounds).rev()) == expected);
}

fn history(seed: u64, steps: usize) {
    println!("seed {seed}");
    let dir = Dir::new("model");
    let mut random = Random::new(seed);
    let db = builder(&mut random).open(&dir).unwrap();
    let mut world = World {
        db,
        map: Map::new(),
        held: Vec::new(),
        random,
    };
    for _ in 0..steps {
        world.step(&dir);
    }
    let all: Result<Map, _> = world.db.iter().collect();
    assert!(all.unwrap() == world.map, "seed {seed}");
}

#[test]
fn a_store_is_a_map() {
    // More of them: ARGOSY_MODEL_SEEDS=100.
    let seeds = std::env::var("ARGOSY_MODEL_SEEDS");
    let seeds = seeds.map_or(4, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        history(seed, 3000);
    }
}
