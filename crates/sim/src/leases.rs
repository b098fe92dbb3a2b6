//! Clients that keep snapshots open, beside the load: they lease one of all regions, read objects of the load as of
//! it, in pages and by keys, of any server, renew the lease, close it or let it end. From a stream of their own.
//!
//! 1. What a snapshot shows of an object is what the object was bound to at some moment between asking for the
//!    snapshot and being told its number: a read of that time to the [checkers](crate::check). A group of keys is
//!    whole, also across pages.
//! 2. It shows the same whenever it is asked again.
//! 3. It is open until its lease ends, unless something went wrong meanwhile, and not longer, nor when it was closed.
//!
//! Where servers lose power and what was acknowledged with it, snapshots are given up when a process ends. Nothing
//! of it is done on small devices.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use argosy_base::{Direction, Instant, KeyRange};
use argosy_engine::Wanted;
use argosy_server::service::{Failure, KeyList, Lease, Paging, Request, Response, SnapshotId};

use crate::coverage::Coverage;
use crate::failover::Failover;
use crate::load::{Load, Pairs, Wrong};
use crate::objects::{ObjectKey, Objects};
use crate::plan::Plan;
use crate::random::Random;

/// What tokens of these clients have, and those of other clients do not.
pub(crate) const TOKEN: u64 = 1 << 43;
/// How many snapshots are open at a time, at most.
pub(crate) const SLOTS: usize = 2;
/// Millionths of a span.
const MILLION: u32 = 1_000_000;
/// Objects that are read together, at most.
const OBJECTS_MAX: usize = 16;

/// What is to be asked of a server.
pub(crate) enum Call {
    /// What is to become of a snapshot.
    Lease(Option<SnapshotId>, Lease),
    /// These keys as of a snapshot.
    Keys(KeyList, SnapshotId),
    /// A page of this range.
    Page(KeyRange, Paging),
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Renew,
    Close,
    Keys,
    Page,
}

/// A read under way.
struct Reading {
    /// All of it, and what is left.
    range: KeyRange,
    left: KeyRange,
    direction: Direction,
    pairs: Pairs,
}

/// What a request waits for.
struct Waits {
    token: u64,
    session: u32,
    step: Step,
    asked: Instant,
    span: Duration,
    /// By how much servers' clocks may be off within that.
    slack: Duration,
}

/// A snapshot.
struct Held {
    id: Option<SnapshotId>,
    /// Between which moments of the load it was taken.
    when: Range<u64>,
    /// It is open until then at least.
    least: Instant,
    /// And no longer than until then, where that is known.
    most: Option<Instant>,
    /// Something went wrong since it was opened: it may have ended early.
    excused: bool,
    waits: Option<Waits>,
    reading: Option<Reading>,
    /// What it has shown: the values of each object's keys.
    shown: BTreeMap<usize, Vec<Option<Vec<u8>>>>,
}

/// See the module documentation.
pub(crate) struct Leases {
    random: Random,
    /// Of 1000 ticks, in how many a snapshot is opened.
    permille: usize,
    powerless: bool,
    /// How many millionths the servers' clocks gain or lose, at most.
    drift_ppm: u32,
    slots: [Option<Held>; SLOTS],
    tokens: u64,
}

/// What an answer is judged by.
pub(crate) struct World<'a> {
    /// The load that wrote what is read.
    pub load: &'a mut Load,
    /// Its objects.
    pub objects: &'a Objects,
    /// What has happened.
    pub coverage: &'a mut Coverage,
    /// The time.
    pub now: Instant,
}

impl Leases {
    /// As `plan` says.
    #[must_use]
    pub(crate) fn new(plan: &Plan, seed: u64) -> Self {
        let mut random = Random::new(seed, 21);
        let permille = random.pick(&[0, 4, 15]);
        Self {
            permille: if plan.devices.small.is_none() {
                permille
            } else {
                0
            },
            random,
            powerless: plan.loses_ends(),
            drift_ppm: plan.groups.changes.as_ref().map_or(0, Failover::drift_ppm),
            slots: Default::default(),
            tokens: TOKEN,
        }
    }

    /// A server to ask about snapshot `slot`, of so many; `None`: nothing is to be asked now.
    pub(crate) fn whom(&mut self, slot: usize, starts: bool, servers: usize) -> Option<usize> {
        if self.permille == 0 {
            return None;
        }
        let asks = match &self.slots[slot] {
            None => starts && self.random.below(1000) < self.permille,
            Some(held) if held.waits.is_some() => false,
            Some(held) if held.reading.is_some() => self.random.chance(50),
            Some(_) => !starts || self.random.chance(8),
        };
        asks.then(|| self.random.below(servers))
    }

    /// What is asked about snapshot `slot` next, of the process `session`. Where nothing `starts`, it is closed.
    pub(crate) fn next(
        &mut self,
        slot: usize,
        session: u32,
        starts: bool,
        world: &mut World<'_>,
    ) -> (u64, Call) {
        let token = self.tokens;
        self.tokens += 1;
        // Servers tell each other of spans in milliseconds.
        let span = Duration::from_millis(self.random.between(3, 300) as u64);
        let held = self.slots[slot].get_or_insert_with(|| Held::new(world));
        let (step, call) = match held.id {
            None => (Step::Open, Call::Lease(None, Lease::Open(span))),
            Some(id) => match self.random.below(20) {
                _ if !starts => (Step::Close, Call::Lease(Some(id), Lease::Close)),
                _ if held.reading.is_some() => (Step::Page, held.page(id, &mut self.random)),
                0 => (Step::Close, Call::Lease(Some(id), Lease::Close)),
                1..4 => (Step::Renew, Call::Lease(Some(id), Lease::Renew(span))),
                4..8 => {
                    let object = held.choose(world.objects, 1, &mut self.random);
                    let keys = &world.objects.get(object).keys;
                    let keys = KeyList::of(keys.iter().map(Vec::as_slice));
                    (Step::Keys, Call::Keys(keys, id))
                }
                _ => {
                    held.choose(world.objects, OBJECTS_MAX, &mut self.random);
                    (Step::Page, held.page(id, &mut self.random))
                }
            },
        };
        let asked = world.now;
        held.waits = Some(Waits {
            token,
            session,
            step,
            asked,
            span,
            slack: span * self.drift_ppm / MILLION,
        });
        (token, call)
    }

    /// Something goes wrong, or is mended.
    pub(crate) fn excuse(&mut self) {
        let held = self.slots.iter_mut().flatten();
        held.for_each(|held| held.excused = true);
    }

    /// The process is gone: nothing that it was asked is answered any more.
    pub(crate) fn lost(&mut self, session: u32) {
        if self.powerless {
            return self.clear();
        }
        self.excuse();
        for slot in &mut self.slots {
            let of_it = |waits: &Waits| waits.session == session;
            slot.take_if(|held| held.waits.as_ref().is_some_and(of_it));
        }
    }

    /// Gives all of them up.
    pub(crate) fn clear(&mut self) {
        self.slots = Default::default();
    }

    /// Whether anything is under way.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.slots.iter().flatten().any(|held| held.waits.is_some())
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn answer(
        &mut self,
        token: u64,
        response: Response,
        world: &mut World<'_>,
    ) -> Result<(), Wrong> {
        for slot in &mut self.slots {
            let Some(held) = slot else { continue };
            let Some(waits) = held.waits.take_if(|waits| waits.token == token) else {
                continue;
            };
            let id = held.id;
            let wrong = |what: String| format!("snapshot {id:?}, {:?}: {what}", waits.step);
            let stays = held.answered(&waits, response, world).map_err(wrong)?;
            if !stays {
                *slot = None;
            }
            return Ok(());
        }
        // Whoever asked has been given up, with the snapshot or the process that was asked.
        Ok(())
    }
}

impl Held {
    fn new(world: &mut World<'_>) -> Self {
        let began = world.load.snapshot_moment().start;
        Self {
            id: None,
            when: began..began,
            least: world.now,
            most: None,
            excused: false,
            waits: None,
            reading: None,
            shown: BTreeMap::new(),
        }
    }

    /// Begins to read up to so many objects, perhaps some that were shown before. Returns the first.
    fn choose(&mut self, objects: &Objects, count_max: usize, random: &mut Random) -> usize {
        let shown: Vec<usize> = self.shown.keys().copied().collect();
        let first = match shown.is_empty() || random.chance(50) {
            true => random.below(objects.len()),
            false => random.pick(&shown),
        };
        let behind = (first + random.between(1, count_max)).min(objects.len());
        let key = |object: usize| objects.get(object).keys[0].clone();
        let to = (behind < objects.len()).then(|| key(behind));
        let range = KeyRange::new(key(first), to);
        self.reading = Some(Reading {
            left: range.clone(),
            range,
            direction: random.pick(&[Direction::Up, Direction::Down]),
            pairs: Vec::new(),
        });
        first
    }

    /// The next page of what is read.
    fn page(&self, id: SnapshotId, random: &mut Random) -> Call {
        let reading = self.reading.as_ref().expect("the caller has looked");
        let paging = Paging {
            direction: reading.direction,
            pairs_max: random.between(1, 20),
            bytes_max: random.between(100, crate::asks::PAGE_BYTES_MAX),
            keys_only: false,
            at: Some(id),
        };
        Call::Page(reading.left.clone(), paging)
    }

    /// Takes an answer. Returns whether the snapshot is still of use.
    fn answered(
        &mut self,
        waits: &Waits,
        response: Response,
        world: &mut World<'_>,
    ) -> Result<bool, Wrong> {
        let reads = matches!(waits.step, Step::Keys | Step::Page);
        match (waits.step, response) {
            (Step::Open, Response::Snapshot(Some(id))) => {
                self.id = Some(id);
                self.when.end = world.load.snapshot_moment().end;
                self.lease(waits, world.now);
                Ok(true)
            }
            (Step::Renew, Response::Snapshot(Some(_))) => {
                self.lease(waits, world.now);
                world.coverage.add("leases renewed", 1);
                Ok(true)
            }
            (Step::Close, Response::Snapshot(Some(_))) => {
                world.coverage.add("leases closed", 1);
                self.most = Some(world.now);
                Ok(true)
            }
            (Step::Renew | Step::Close, Response::Snapshot(None)) => self.is_gone("", world),
            (_, Response::Failed(Failure::Invalid(why))) if reads => self.is_gone(&why, world),
            // It may have ended, or not.
            (Step::Renew | Step::Close | Step::Open, Response::Failed(_)) => Ok(false),
            (_, Response::Failed(_)) => {
                self.reading = None;
                Ok(true)
            }
            (Step::Keys | Step::Page, _) if self.most.is_some_and(|most| most <= waits.asked) => {
                Err("it is read, though its lease has ended or it was closed".to_owned())
            }
            (Step::Keys, Response::Values(values)) => {
                let reading = self.reading.take().expect("it was begun");
                let found = world.objects.within(&reading.range).next();
                let keys = found.map_or(&[][..], |at| &world.objects.get(at.object).keys);
                // What does not fit is left out.
                if values.len() == keys.len() {
                    let pairs = keys.iter().zip(values);
                    let pairs = pairs.filter_map(|(key, value)| Some((key.clone(), value?)));
                    self.read(&reading.range, pairs.collect(), world)?;
                }
                Ok(true)
            }
            (Step::Page, Response::Page { pairs, next }) => {
                let mut reading = self.reading.take().expect("it was begun");
                if pairs.iter().any(|(key, _)| !reading.left.contains(key)) {
                    return Err(format!("a page is not one of {}", reading.left));
                }
                reading.pairs.extend(pairs);
                match next {
                    Some(next) => {
                        reading.left.go_on_at(reading.direction, next);
                        self.reading = Some(reading);
                    }
                    None => self.read(&reading.range, reading.pairs, world)?,
                }
                Ok(true)
            }
            (_, odd) => Err(format!("it was answered by {odd:?}")),
        }
    }

    /// The lease goes on.
    fn lease(&mut self, waits: &Waits, now: Instant) {
        self.least = waits.asked + (waits.span - waits.slack);
        self.most = Some(now + waits.span + 2 * waits.slack);
    }

    /// It is not there any more. Never of use again.
    fn is_gone(&self, why: &str, world: &mut World<'_>) -> Result<bool, Wrong> {
        let over = self.least <= world.now;
        let closed = self.most.is_some_and(|most| most <= world.now);
        world
            .coverage
            .add("leases that ended", u64::from(over || closed));
        match over || closed || self.excused {
            true => Ok(false),
            false => Err(format!(
                "it is gone at {:?}, before its lease has ended at {:?}: {why}",
                world.now, self.least
            )),
        }
    }

    /// All that the snapshot has in a range.
    fn read(&mut self, range: &KeyRange, pairs: Pairs, world: &mut World<'_>) -> Result<(), Wrong> {
        let mut found: BTreeMap<&[u8], &Vec<u8>> = BTreeMap::new();
        for (key, value) in &pairs {
            if found.insert(key, value).is_some() {
                return Err("it shows a key twice".to_owned());
            }
        }
        let (mut new, mut again) = (0, 0);
        for ObjectKey { object, .. } in world.objects.within(range) {
            let keys = world.objects.get(object).keys.iter();
            let values = keys.map(|key| found.get(key.as_slice()).map(|value| (*value).clone()));
            let values: Vec<_> = values.collect();
            match self.shown.get(&object) {
                None => {
                    self.shown.insert(object, values);
                    new += 1;
                }
                Some(shown) if *shown == values => again += 1,
                Some(shown) => return Err(differs(object, shown, &values)),
            }
        }
        world.coverage.add("leased snapshots read", 1);
        world.coverage.add("leased snapshots read again", again);
        match new {
            0 => Ok(()),
            _ => world
                .load
                .snapshot(world.objects, range, pairs, self.when.clone()),
        }
    }
}

/// That a snapshot does not show of an object what it has shown.
fn differs(object: usize, shown: &[Option<Vec<u8>>], values: &[Option<Vec<u8>>]) -> Wrong {
    let short = |value: &Option<Vec<u8>>| {
        let head = |value: &Vec<u8>| value[..value.len().min(12)].to_vec();
        value.as_ref().map(|value| (value.len(), head(value)))
    };
    let before: Vec<_> = shown.iter().map(short).collect();
    let now: Vec<_> = values.iter().map(short).collect();
    format!("object {object}: it has shown {before:?}, and shows {now:?}")
}

impl Call {
    /// The request, handed to `ask`.
    pub(crate) fn request<T>(&self, ask: impl FnOnce(Request<'_>) -> T) -> T {
        match self {
            Self::Lease(id, lease) => ask(Request::Snapshot {
                id: *id,
                lease: *lease,
            }),
            Self::Keys(keys, id) => ask(Request::GetMany {
                keys,
                wanted: Wanted::Values(1 << 16),
                at: Some(*id),
            }),
            Self::Page(range, paging) => ask(Request::Scan {
                range,
                paging: *paging,
            }),
        }
    }
}
