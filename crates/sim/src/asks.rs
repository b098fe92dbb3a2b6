//! What clients ask: requests, and how the load chooses them.

use argosy_base::{Direction, KeyRange};
use argosy_engine::{Expiry, WriteBatch};
use argosy_server::service::Paging;

use crate::check::{Bound, When};
use crate::objects::{ObjectKey, Objects, VALUE_BYTES_MIN};
use crate::plan::Plan;
use crate::random::Random;
use crate::small::{Aim, Filler};

/// How the load is mixed, in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Reads of a key.
    pub get: usize,
    /// Writes of a value.
    pub put: usize,
    /// Deletes.
    pub delete: usize,
    /// Writes with a condition, or that tell the value before.
    pub conditional: usize,
    /// Writes of several objects.
    pub batch: usize,
    /// Pages of a scan.
    pub scan: usize,
}

impl Mix {
    /// What a seed asks.
    pub(crate) fn drawn(random: &mut Random) -> Self {
        Self {
            get: random.between(10, 40),
            put: random.between(20, 60),
            delete: random.between(0, 15),
            conditional: random.between(0, 15),
            batch: random.between(0, 10),
            scan: random.between(0, 8),
        }
    }
}

/// What an object is to be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The object.
    pub object: usize,
    /// To what.
    pub to: Bound,
    /// Bytes of the value.
    pub len: usize,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// Read one key of an object.
    Get {
        /// Which.
        key: ObjectKey,
    },
    /// Read a page.
    Scan {
        /// Of this range.
        range: KeyRange,
        /// From which end, and how much.
        paging: Paging,
    },
    /// Add 1 to a number beside the objects.
    Add {
        /// Which.
        counter: usize,
    },
    /// Write objects, all different.
    Write {
        /// What to bind.
        targets: Vec<Target>,
        /// When only; of one object.
        condition: When,
        /// Whether to tell what was there before; of one object.
        previous: bool,
    },
}

impl Ask {
    /// The batch of a write.
    #[must_use]
    pub(crate) fn batch(
        objects: &Objects,
        op: u32,
        targets: &[Target],
        expiry: Expiry,
    ) -> WriteBatch {
        let mut batch = WriteBatch::new();
        Self::add_to(&mut batch, objects, op, targets, expiry);
        batch
    }

    /// Adds the operations of a write to `batch`.
    pub(crate) fn add_to(
        batch: &mut WriteBatch,
        objects: &Objects,
        op: u32,
        targets: &[Target],
        expiry: Expiry,
    ) {
        for target in targets {
            let object = target.object;
            for (index, key) in objects.get(object).keys.iter().enumerate() {
                let added = match target.to {
                    Bound::Absent => batch.delete(key),
                    Bound::Empty => batch.put(key, b""),
                    Bound::To(_) => {
                        let value = objects.value(op, ObjectKey { object, index }, target.len);
                        batch.put_until(key, &value, expiry)
                    }
                };
                added.expect("a batch of the load is within the limits");
            }
        }
    }
}

/// Numbers that are only incremented. Their keys lie in the first region, in front of all objects.
pub(crate) const COUNTERS: usize = 3;

/// The key of a number.
#[must_use]
pub(crate) fn counter_key(counter: usize) -> Vec<u8> {
    format!("c{counter}").into_bytes()
}

/// Whether this is the key of one.
#[must_use]
pub(crate) fn is_counter(key: &[u8]) -> bool {
    key.first() == Some(&b'c')
}

/// Chooses requests.
pub(crate) struct Chooser {
    random: Random,
    mix: Mix,
    hot_percent: usize,
    large_percent: usize,
    /// Bytes of a pair that is large; of a value in chunks, and the most of a group of values.
    large_bytes: usize,
    window_bytes: usize,
    batch_bytes_max: usize,
    /// What the load is about at present.
    pub aim: Aim,
    /// What it fills small devices with, where there are some.
    filler: Option<Filler>,
}

/// Bytes of a page of a scan, at most: it has to fit a message.
pub(crate) const PAGE_BYTES_MAX: usize = 48 << 10;

impl Chooser {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, random: Random) -> Self {
        let engine = &plan.engine;
        // A group has to fit the windows when all but one are waiting to be flushed.
        let windows = engine.layout.window_bytes * (engine.layout.window_slots - 1);
        Self {
            random,
            mix: plan.load.mix,
            hot_percent: plan.load.hot_percent,
            large_percent: plan.load.large_percent,
            large_bytes: engine.values.large_bytes.min(engine.layout.node_bytes / 4),
            window_bytes: engine.layout.window_bytes,
            batch_bytes_max: (windows / 2).min(engine.memtables.bytes).min(40 << 10),
            aim: Aim::Anything,
            filler: plan
                .devices
                .small
                .as_ref()
                .map(|small| small.filler.clone()),
        }
    }

    /// The request of operation `op`.
    pub(crate) fn next(&mut self, objects: &Objects, op: u32) -> Ask {
        if let Some(ask) = self.aimed(objects, op) {
            return ask;
        }
        let Mix {
            get,
            put,
            delete,
            conditional,
            batch,
            scan,
        } = self.mix;
        match self
            .random
            .weighted(&[get, put, delete, conditional, batch, scan])
        {
            0 => {
                let object = self.object(objects);
                let index = self.random.below(objects.get(object).keys.len());
                let key = ObjectKey { object, index };
                Ask::Get { key }
            }
            1 => write(vec![self.put(objects, op)], When::Always, false),
            2 => {
                let to = Target {
                    object: self.object(objects),
                    to: Bound::Absent,
                    len: 0,
                };
                write(vec![to], When::Always, false)
            }
            3 => {
                let mut target = self.put(objects, op);
                if self.random.chance(10) {
                    target = Target {
                        to: Bound::Absent,
                        len: 0,
                        ..target
                    };
                }
                let conditions = [When::Always, When::Absent, When::Present];
                let condition = self.random.pick(&conditions);
                let previous = condition == When::Always || self.random.chance(30);
                write(vec![target], condition, previous)
            }
            4 => self.batch(objects, op),
            _ => self.scan(objects),
        }
    }

    /// A request that has to do with what the load is about, for most of them.
    fn aimed(&mut self, objects: &Objects, op: u32) -> Option<Ask> {
        let percent = match self.aim {
            Aim::Anything => return None,
            Aim::Fill => 80,
            Aim::Empty => 50,
        };
        let filler = self.filler.as_mut()?;
        if !self.random.chance(percent) {
            return None;
        }
        let several = filler.several(objects, &mut self.random);
        let deletes = self.aim == Aim::Empty;
        Some(filler.write(objects, &several, (!deletes).then_some(op)))
    }

    fn object(&mut self, objects: &Objects) -> usize {
        if self.random.chance(self.hot_percent) {
            // Every tenth object is hot, so that each region has some.
            return self.random.below(objects.len().div_ceil(10)) * 10;
        }
        self.random.below(objects.len())
    }

    fn put(&mut self, objects: &Objects, op: u32) -> Target {
        let object = self.object(objects);
        let keys = objects.get(object).keys.len();
        let len = self.len().min(self.batch_bytes_max / keys);
        let small = self.filler.as_ref();
        let len = small.map_or(len, |filler| len.min(filler.len_max(objects, object)));
        if keys == 1 && self.random.chance(3) {
            return Target {
                object,
                to: Bound::Empty,
                len: 0,
            };
        }
        Target {
            object,
            to: Bound::To(op),
            len: len.max(VALUE_BYTES_MIN),
        }
    }

    fn len(&mut self) -> usize {
        if self.random.chance(self.large_percent) {
            return match self.random.below(12) {
                0 => self.window_bytes + self.random.below(self.window_bytes),
                _ => self.random.between(self.large_bytes, 4 * self.large_bytes),
            };
        }
        match self.random.below(3) {
            0 => self.random.between(VALUE_BYTES_MIN, 40),
            1 => self.random.between(40, 100),
            _ => self.random.between(100, self.large_bytes.max(101)),
        }
    }

    fn batch(&mut self, objects: &Objects, op: u32) -> Ask {
        let mut targets: Vec<Target> = Vec::new();
        let count = self.random.between(2, 6);
        for _ in 0..count {
            let mut target = self.put(objects, op);
            target.len = target
                .len
                .min(self.batch_bytes_max / (5 * count))
                .max(VALUE_BYTES_MIN);
            if self.random.chance(10) {
                target = Target {
                    to: Bound::Absent,
                    len: 0,
                    ..target
                };
            }
            if targets.iter().all(|other| other.object != target.object) {
                targets.push(target);
            }
        }
        // All of one length, so that an operation has one.
        let len = targets
            .iter()
            .map(|target| target.len)
            .filter(|len| *len > 0)
            .min()
            .unwrap_or(0);
        for target in targets
            .iter_mut()
            .filter(|target| matches!(target.to, Bound::To(_)))
        {
            target.len = len;
        }
        write(targets, When::Always, false)
    }

    fn scan(&mut self, objects: &Objects) -> Ask {
        let from = self.random.below(objects.len());
        let to = (from + self.random.between(1, 40)).min(objects.len());
        let key = |object: usize| objects.get(object).keys[0].clone();
        let mut range = KeyRange::new(key(from), (to < objects.len()).then(|| key(to)));
        if from == 0 && self.random.chance(50) {
            range.from.clear();
        }
        let directions = [Direction::Up, Direction::Down];
        let paging = Paging {
            direction: self.random.pick(&directions),
            pairs_max: self.random.between(1, 60),
            bytes_max: self.random.between(100, PAGE_BYTES_MAX),
            keys_only: self.random.chance(20),
            at: None,
        };
        Ask::Scan { range, paging }
    }
}

fn write(targets: Vec<Target>, condition: When, previous: bool) -> Ask {
    Ask::Write {
        targets,
        condition,
        previous,
    }
}
