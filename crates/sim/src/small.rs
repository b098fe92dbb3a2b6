//! Small devices: which seeds have some, how small, and what the load does so that they fill.
//!
//! A device is as small as a server would still start with: twice the reserve that it keeps from
//! writers ([`Settings::reserve_segments`]), or a little more. All servers have such a device, or
//! one has (a backup, where it is not the first), or each has another.
//!
//! What fills it are pairs that lie in the levels. What lies in the large log is given back by whole
//! segments only, so that deleting half of it need not free anything.

use crate::asks::{Ask, Target};
use crate::check::{Bound, When};
use crate::engine::{Placement, Settings};
use crate::objects::{Objects, VALUE_BYTES_MIN};
use crate::plan::{Plan, SERVERS, WorldKind};
use crate::random::Random;

/// Of 100 seeds, how many have small devices.
const SMALL_PERCENT: usize = 25;
/// Segments of a device that are neither reserve nor data: store, manifests, logs.
const OVERHEAD: u64 = 4;
/// Objects of one write that fills or empties, at most.
const SEVERAL_MAX: usize = 24;

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Small {
    /// Segments of each server's device; `None`: it never fills.
    pub segments: Vec<Option<u64>>,
    /// Segments that each server keeps from writers.
    pub reserves: Vec<u32>,
    /// What the devices are filled with.
    pub filler: Filler,
    aims: Vec<Aim>,
    /// Whether what is deleted to make room lies here and there, and not side by side.
    pub scattered: bool,
}

/// What the load of an episode is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Everything.
    Anything,
    /// Writing.
    Fill,
    /// Deleting.
    Empty,
}

/// Chooses what fills a device.
#[derive(Clone, Debug)]
pub(crate) struct Filler {
    /// Bytes of a value.
    value_bytes: usize,
    /// Bytes of a pair that lies in the levels, at most.
    pair_bytes_max: usize,
    /// Bytes of the values of one write, at most.
    batch_bytes_max: usize,
    /// In the order of the keys, and not as it comes.
    sorted: bool,
    next: usize,
}

/// The plan, with small devices where the seed says so.
pub(crate) fn with_small_devices(mut plan: Plan, random: &mut Random) -> Plan {
    let percent = match plan.kind {
        WorldKind::Replicated => SMALL_PERCENT,
        WorldKind::Killed => 2 * SMALL_PERCENT,
        // A single copy without power is judged by the order in which it was handed its writes, and
        // on a full device that is not the order in which it took them.
        WorldKind::Powerless => 0,
    };
    if !random.chance(percent) {
        return plan;
    }
    const KIB: usize = 1 << 10;
    let engine = &mut plan.engine;
    // Little data fills them, and so all of it is in the levels.
    let (segment, window) = random.pick(&[
        (24 * KIB, 8 * KIB),
        (24 * KIB, 12 * KIB),
        (32 * KIB, 8 * KIB),
        (32 * KIB, 16 * KIB),
    ]);
    engine.layout.segment_bytes = segment;
    engine.layout.window_bytes = window;
    engine.layout.window_slots = engine.layout.window_slots.max(3);
    engine.layout.node_bytes = random.pick(&[1024, 2048]);
    engine.values.placement = random.pick(&[Placement::Hybrid, Placement::InPlace]);
    engine.levels.part_bytes = (segment * random.between(1, 4)) as u64;
    plan.regions = if random.chance(75) { 1 } else { 2 };
    plan.load.large_percent = 0;
    let filler = Filler::new(&plan.engine, random);
    let reserves = (0..plan.servers()).map(|server| reserve(&plan, server));
    let reserves: Vec<u32> = reserves.collect();
    let smallest = reserves.iter().map(|reserve| Some(2 * u64::from(*reserve)));
    let mut segments: Vec<Option<u64>> = smallest.collect();
    match random.below(3) {
        0 => {}
        1 => {
            let only = random.below(plan.servers());
            for (server, segments) in segments.iter_mut().enumerate() {
                *segments = segments.filter(|_| server == only);
            }
        }
        _ => {
            for segments in segments.iter_mut().flatten() {
                *segments += random.below(8) as u64;
            }
        }
    }
    let most = segments.iter().flatten().zip(&reserves);
    let most = most.map(|(segments, reserve)| segments - u64::from(*reserve) - OVERHEAD);
    let bytes = most.max().unwrap_or(0) * segment as u64;
    let pair = filler.value_bytes + 16;
    let pairs = usize::try_from(bytes).unwrap_or(usize::MAX) / pair;
    // A sixth of the objects are several pairs.
    plan.objects = (pairs * 5 / 4).clamp(200, 9000);
    plan.load.last_ops = 200;
    let aims = (0..plan.episodes.len()).map(|index| match random.below(10) {
        _ if index == 0 => Aim::Fill,
        0..6 => Aim::Fill,
        6..9 => Aim::Empty,
        _ => Aim::Anything,
    });
    plan.devices.small = Some(Small {
        segments,
        reserves,
        filler,
        aims: aims.collect(),
        scattered: random.chance(50),
    });
    plan
}

/// What a server keeps from writers.
fn reserve(plan: &Plan, server: usize) -> u32 {
    let regions = match plan.kind {
        WorldKind::Replicated => plan.regions,
        WorldKind::Killed | WorldKind::Powerless => (0..plan.regions)
            .filter(|region| region % SERVERS == server)
            .count(),
    };
    plan.engine.reserve_segments(regions)
}

impl Small {
    /// What the load of an episode is about.
    #[must_use]
    pub(crate) fn aim(&self, episode: usize) -> Aim {
        self.aims.get(episode).copied().unwrap_or(Aim::Anything)
    }
}

impl Filler {
    fn new(engine: &Settings, random: &mut Random) -> Self {
        let in_leaf = engine.layout.node_bytes / 4;
        let pair_bytes_max = match engine.values.placement {
            Placement::Hybrid => in_leaf.min(engine.values.large_bytes - 1),
            Placement::InPlace | Placement::Separated => in_leaf,
        };
        let windows = engine.layout.window_bytes * (engine.layout.window_slots - 1);
        Self {
            value_bytes: random.between(120, pair_bytes_max - 24),
            pair_bytes_max,
            batch_bytes_max: (windows / 2).min(engine.memtables.bytes / 2),
            sorted: random.chance(50),
            next: 0,
        }
    }

    /// The longest value of an object that lies in the levels.
    #[must_use]
    pub(crate) fn len_max(&self, objects: &Objects, object: usize) -> usize {
        let longest = objects.get(object).keys.iter().map(Vec::len).max();
        let left = self.pair_bytes_max.saturating_sub(longest.unwrap_or(0));
        left.max(VALUE_BYTES_MIN)
    }

    /// Bytes of an object's pairs, as they are written to fill.
    #[must_use]
    pub(crate) fn object_bytes(&self, objects: &Objects, object: usize) -> usize {
        let len = self.len_max(objects, object).min(self.value_bytes);
        objects
            .get(object)
            .keys
            .iter()
            .map(|key| key.len() + len)
            .sum()
    }

    /// Several objects of one region, for one write.
    pub(crate) fn several(&mut self, objects: &Objects, random: &mut Random) -> Vec<usize> {
        let first = if self.sorted {
            self.next
        } else {
            random.below(objects.len())
        };
        let stride = random.pick(&[1, 1, 1, 3]);
        let others = (first..objects.len()).step_by(stride).take(SEVERAL_MAX);
        let several = self.fitting(objects, others);
        self.next = (first + several.len() * stride) % objects.len();
        several
    }

    /// The first of `from` that go into one write: all of one region.
    pub(crate) fn fitting(
        &self,
        objects: &Objects,
        from: impl Iterator<Item = usize>,
    ) -> Vec<usize> {
        let mut bytes = 0;
        let mut region = None;
        from.take_while(|object| {
            let object = objects.get(*object);
            let first = bytes == 0;
            bytes += object
                .keys
                .iter()
                .map(|key| key.len() + self.value_bytes + 16)
                .sum::<usize>();
            let same = *region.get_or_insert(object.region) == object.region;
            first || same && bytes <= self.batch_bytes_max
        })
        .collect()
    }

    /// A write of these objects: of values of operation `op`, or deletes.
    #[must_use]
    pub(crate) fn write(&self, objects: &Objects, several: &[usize], op: Option<u32>) -> Ask {
        let longest = several
            .iter()
            .map(|object| self.len_max(objects, *object))
            .min();
        let len = longest.map_or(self.value_bytes, |longest| longest.min(self.value_bytes));
        let (to, len) = match op {
            Some(op) => (Bound::To(op), len),
            None => (Bound::Absent, 0),
        };
        let target = |object: &usize| Target {
            object: *object,
            to,
            len,
        };
        Ask::Write {
            targets: several.iter().map(target).collect(),
            condition: When::Always,
            previous: false,
        }
    }
}
