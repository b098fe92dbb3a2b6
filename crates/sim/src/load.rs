//! What clients have asked and been answered.
//!
//! A write stands in the history of its objects from the moment it is asked, as one of unknown
//! outcome; its answer, if one comes, fills in the rest. A read enters it with its answer. What is
//! wrong with an answer by itself is told at once; whether all answers together are possible is
//! for the [checkers](crate::check), at the end.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use argosy_base::range::Printable;
use argosy_base::{Direction, Instant, Moment, Outcome};
use argosy_engine::Changed;
use argosy_server::service::{Failure, Response};

use crate::asks::{Ask, COUNTERS};
use crate::check::counter::Increment;
use crate::check::order::Handed;
use crate::check::register::{Before, Kind, Saw};
use crate::check::{Access, Bound, When, prefix};
use crate::coverage::Coverage;
use crate::objects::{ObjectKey, Objects};

mod expiring;
mod looks;
mod pages;
mod parts;
mod request;

pub(crate) use looks::Fate;
pub(crate) use looks::no_space;
use looks::{had_waited_for_room, is_failure, names_damage};
use request::Answered;
pub(crate) use request::{Answer, Asking, Expect, Pending};

/// A write, as the one copy of a region was handed it.
#[derive(Clone, Debug)]
pub(crate) struct HandedWrite {
    pub(crate) write: prefix::Write,
    /// When it was answered as applied.
    pub(crate) applied: Option<Instant>,
    /// It was answered as not applied.
    pub(crate) void: bool,
}

/// One object's history.
pub(crate) struct History {
    pub(crate) first: Bound,
    pub(crate) accesses: Vec<Access>,
}

/// See the module documentation.
pub(crate) struct Load {
    pub(crate) histories: Vec<History>,
    pending: BTreeMap<u32, Pending>,
    /// What each process's primary of each region was handed directly, in order.
    pub(crate) sessions: BTreeMap<(u32, usize), Vec<Handed>>,
    /// What each region was handed since it was last counted, if that is kept.
    pub(crate) handed: Vec<Vec<HandedWrite>>,
    /// What was asked of the numbers that are only incremented.
    pub(crate) counters: [Vec<Increment>; COUNTERS],
    /// When what operations write expires, where it does.
    pub(crate) expiries: BTreeMap<u32, Moment>,
    /// Operations that remove ranges, and do not tell what was there.
    pub(crate) erasures: BTreeSet<u32>,
    /// What has not expired by any clock: when it will, the object, the operation.
    due: BTreeSet<(Moment, usize, u32)>,
    /// By now nothing is there any more that expires.
    all_expired: bool,
    /// How often something was there that expires.
    expiring_seen: Cell<u64>,
    /// The highest moment that any clock has shown.
    reached: Moment,
    /// Writes under way of each object.
    busy: Vec<usize>,
    /// The last write that was answered as applied.
    last_applied: Option<u32>,
    /// Bytes of the values of each operation.
    pub(crate) lens: Vec<usize>,
    /// Devices may be full: then deletes overtake writes that wait for room.
    deletes_overtake: bool,
    /// Devices may fail.
    fails: bool,
    /// A device is damaged, or was since every region was whole.
    pub(crate) damaged: bool,
    /// What the last request was told that failed.
    pub(crate) last_failure: String,
    moment: u64,
}

/// An answer that is wrong, in words.
pub(crate) type Wrong = String;

impl Load {
    /// Nothing has been asked of these objects.
    #[must_use]
    pub(crate) fn new(objects: usize, regions: usize, deletes_overtake: bool) -> Self {
        let history = || History {
            first: Bound::Absent,
            accesses: Vec::new(),
        };
        Self {
            histories: std::iter::repeat_with(history).take(objects).collect(),
            pending: BTreeMap::new(),
            sessions: BTreeMap::new(),
            handed: vec![Vec::new(); regions],
            counters: <[Vec<Increment>; COUNTERS]>::default(),
            expiries: BTreeMap::new(),
            erasures: BTreeSet::new(),
            due: BTreeSet::new(),
            all_expired: false,
            expiring_seen: Cell::new(0),
            reached: Moment(0),
            busy: vec![0; objects],
            last_applied: None,
            lens: Vec::new(),
            deletes_overtake,
            fails: false,
            damaged: false,
            last_failure: String::new(),
            moment: 0,
        }
    }

    /// The same, on devices that may fail if `fails`.
    #[must_use]
    pub(crate) const fn on_devices_that_fail(mut self, fails: bool) -> Self {
        self.fails = fails;
        self
    }

    fn take(&mut self, op: u32) -> Option<Pending> {
        let pending = self.pending.remove(&op)?;
        for (object, _) in &pending.accesses {
            self.busy[*object] -= 1;
        }
        Some(pending)
    }

    fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    // --- Asking ---

    /// `ask` is being asked, as the next operation.
    pub(crate) fn ask(&mut self, objects: &Objects, ask: Ask, asking: Asking) {
        let op = self.next_op();
        let began = self.moment();
        let mut pending = Pending {
            ask,
            asking,
            damaged: self.damaged,
            began,
            several_regions: false,
            accesses: Vec::new(),
            handed: Vec::new(),
        };
        if let Ask::Add { counter } = pending.ask {
            let told = None;
            self.counters[counter].push(Increment { op, began, told });
        }
        let mut len = 0;
        if let Ask::Write {
            targets, condition, ..
        } = &pending.ask
        {
            len = targets.iter().map(|target| target.len).max().unwrap_or(0);
            pending.several_regions = self.has_parts(objects, op, targets);
            for target in targets {
                let kind = Kind::Write {
                    to: target.to,
                    condition: *condition,
                    saw: None,
                };
                let accesses = &mut self.histories[target.object].accesses;
                pending.accesses.push((target.object, accesses.len()));
                self.busy[target.object] += 1;
                accesses.push(Access {
                    op,
                    kind,
                    began,
                    ended: None,
                });
                if let Some(at) = self.expiries.get(&op)
                    && target.to == Bound::To(op)
                {
                    self.due.insert((*at, target.object, op));
                }
            }
            if asking.direct {
                pending.handed = self.hand(objects, &pending);
            }
        }
        self.lens.push(len);
        self.pending.insert(op, pending);
        self.time_reached(self.reached);
    }

    /// Hands a write to its regions. Returns its places in what they were handed.
    fn hand(&mut self, objects: &Objects, pending: &Pending) -> Vec<(usize, usize)> {
        let Ask::Write {
            targets, condition, ..
        } = &pending.ask
        else {
            panic!("the caller has looked");
        };
        let (condition, session) = (*condition, pending.asking.session);
        let mut by_region: BTreeMap<usize, Vec<(usize, Bound)>> = BTreeMap::new();
        for target in targets {
            let region = objects.get(target.object).region;
            by_region
                .entry(region)
                .or_default()
                .push((target.object, target.to));
        }
        for (region, to) in &by_region {
            let deletes = to.iter().all(|(_, bound)| *bound == Bound::Absent);
            if deletes && self.deletes_overtake {
                continue;
            }
            let session = self.sessions.entry((session, *region)).or_default();
            session.extend(to.iter().map(|(object, _)| Handed {
                object: *object,
                access: self.histories[*object].accesses.len() - 1,
            }));
        }
        let mut places = Vec::new();
        for (region, to) in by_region {
            places.push((region, self.handed[region].len()));
            let write = prefix::Write { to, condition };
            self.handed[region].push(HandedWrite {
                write,
                applied: None,
                void: false,
            });
        }
        places
    }

    // --- Answers ---

    /// The process is gone: nothing that it was asked is answered any more.
    pub(crate) fn lost(&mut self, session: u32, coverage: &mut Coverage) {
        let of_it = |pending: &Pending| pending.asking.session == session;
        let gone: Vec<u32> = self
            .pending
            .iter()
            .filter(|(_, p)| of_it(p))
            .map(|(op, _)| *op)
            .collect();
        for op in gone {
            let pending = self.take(op).expect("it was just there");
            self.forget_order(&pending);
            coverage.add("unknown outcomes", u64::from(!pending.accesses.is_empty()));
        }
    }

    /// An operation is answered.
    ///
    /// # Errors
    /// What is wrong with the answer by itself.
    pub(crate) fn answer(
        &mut self,
        objects: &Objects,
        answer: Answer,
        coverage: &mut Coverage,
    ) -> Result<(), Wrong> {
        let Answer { op, at, response } = answer;
        let Some(pending) = self.take(op) else {
            return Err(format!("op {op} is answered twice"));
        };
        let ended = self.moment();
        let answered = Answered {
            op,
            pending: &pending,
            at,
            ended,
        };
        let response = match response {
            // A get among others: the first.
            Response::Values(values) => Response::Value(values.into_iter().next().flatten()),
            response => response,
        };
        match (&pending.ask, response) {
            (_, Response::Failed(error)) => self.failed(op, &pending, &error, coverage),
            (Ask::Get { key }, Response::Value(value)) => {
                let bound = match value {
                    None => Bound::Absent,
                    Some(value) => self.read(objects, *key, &value)?,
                };
                self.count_expired(key.object, bound, coverage);
                self.saw(op, key.object, Kind::Read(bound), pending.began..ended);
                Ok(())
            }
            (Ask::Scan { paging, .. }, Response::Page { pairs, next }) => {
                coverage.add("scan pages", 1);
                let down = paging.direction == Direction::Down;
                coverage.add("scan pages downwards", u64::from(down));
                self.page(objects, answered, pairs, next)
            }
            (
                Ask::Add { counter },
                Response::Written {
                    changed: Some(Changed::Number(sum)),
                    ..
                },
            ) => {
                coverage.add("increments", 1);
                let mut requests = self.counters[*counter].iter_mut().rev();
                let request = requests.find(|request| request.op == op);
                request.expect("it was asked").told = Some((ended, sum));
                Ok(())
            }
            (
                Ask::Write { .. },
                Response::Written {
                    applied,
                    existed,
                    previous,
                    ..
                },
            ) => {
                let told = Told {
                    applied,
                    existed,
                    previous,
                };
                self.written(objects, answered, &told, coverage)
            }
            (ask, response) => Err(format!("op {op}, {ask:?}, is answered with {response:?}")),
        }
    }

    fn failed(
        &mut self,
        op: u32,
        pending: &Pending,
        error: &Failure,
        coverage: &mut Coverage,
    ) -> Result<(), Wrong> {
        let outcome = match error {
            Failure::Unavailable { outcome, .. } | Failure::Busy { outcome, .. } => *outcome,
            Failure::Storage { what, outcome } if self.fails && is_failure(what) => {
                let read = matches!(pending.ask, Ask::Get { .. } | Ask::Scan { .. });
                coverage.add("reads that failed", u64::from(read));
                *outcome
            }
            Failure::Storage { what, outcome }
                if (self.damaged || pending.damaged) && names_damage(what) =>
            {
                let read = matches!(pending.ask, Ask::Get { .. } | Ask::Scan { .. });
                coverage.add("reads that named damage", u64::from(read));
                *outcome
            }
            Failure::Invalid(what) | Failure::Storage { what, .. } => {
                return Err(format!("op {op} failed: {what}"));
            }
        };
        // Of a write over several regions, one may have had room.
        let slow = matches!(error, Failure::Busy { .. }) || pending.several_regions;
        let excused = match pending.asking.expect {
            Expect::Anything => true,
            Expect::Slowness => slow || had_waited_for_room(error),
            Expect::Success => false,
        };
        if !excused {
            return Err(format!("op {op} failed though nothing was wrong: {error}"));
        }
        let write = !pending.accesses.is_empty();
        if matches!(error, Failure::Busy { .. })
            && outcome != Outcome::NotApplied
            && !pending.several_regions
        {
            return Err(format!(
                "op {op} found no room, yet is not refused: {error}"
            ));
        }
        self.last_failure = error.to_string();
        coverage.add(
            "writes refused for space",
            u64::from(write && no_space(&self.last_failure)),
        );
        match outcome {
            Outcome::Applied => return Err(format!("op {op} failed, yet was applied: {error}")),
            Outcome::Unknown => {
                coverage.add("unknown outcomes", u64::from(write));
                self.forget_order(pending);
            }
            Outcome::NotApplied => {
                if let Ask::Add { counter } = pending.ask {
                    self.counters[counter].retain(|request| request.op != op);
                }
                for (object, access) in &pending.accesses {
                    self.histories[*object].accesses[*access].kind = Kind::Void;
                }
                for (region, place) in &pending.handed {
                    self.handed[*region][*place].void = true;
                }
                coverage.add("not applied", u64::from(write));
                coverage.add("reads unavailable", u64::from(!write));
            }
        }
        Ok(())
    }

    fn written(
        &mut self,
        objects: &Objects,
        answered: Answered<'_>,
        told: &Told,
        coverage: &mut Coverage,
    ) -> Result<(), Wrong> {
        let Answered { op, pending, .. } = answered;
        let Ask::Write {
            targets,
            condition,
            previous,
        } = &pending.ask
        else {
            panic!("the caller has looked");
        };
        if !told.applied && *condition == When::Always {
            return Err(format!("op {op} had no condition, and was not applied"));
        }
        coverage.add("conditions that failed", u64::from(!told.applied));
        if matches!(condition, When::Is(_)) {
            coverage.add("values compared, equal", u64::from(told.applied));
            coverage.add("values compared, other", u64::from(!told.applied));
        }
        let region = objects.get(targets[0].object).region;
        let one_region = targets
            .iter()
            .all(|target| objects.get(target.object).region == region);
        let deletes = targets.iter().any(|target| target.to == Bound::Absent);
        let looks = one_region
            && !self.erasures.contains(&op)
            && (*condition != When::Always || *previous || deletes);
        let mut first = 0;
        for (target, (object, access)) in targets.iter().zip(&pending.accesses) {
            let keys = objects.get(target.object).keys.len();
            let mut before = Before::Untold;
            if *previous {
                before = self.previous(objects, op, target.object, &told.previous)?;
            } else if looks {
                let existed = told.existed.get(first..first + keys);
                let existed =
                    existed.ok_or_else(|| format!("op {op} does not tell what existed"))?;
                if existed.iter().any(|e| *e != existed[0]) {
                    return Err(format!("op {op} found part of a group: {existed:?}"));
                }
                before = Before::Existed(existed[0]);
            }
            first += keys;
            let access = &mut self.histories[*object].accesses[*access];
            let saw = Some(Saw {
                applied: told.applied,
                before,
            });
            access.kind = Kind::Write {
                to: target.to,
                condition: *condition,
                saw,
            };
            access.ended = Some(answered.ended);
            coverage.add("groups", u64::from(keys > 1));
        }
        let erased = u64::from(self.erasures.contains(&op));
        coverage.add("ranges removed", erased);
        for (region, place) in &pending.handed {
            self.handed[*region][*place].applied = Some(answered.at);
        }
        self.last_applied = Some(op);
        Ok(())
    }

    /// What a write tells of the values before it.
    fn previous(
        &self,
        objects: &Objects,
        op: u32,
        object: usize,
        values: &[Option<Vec<u8>>],
    ) -> Result<Before, Wrong> {
        let mut bounds = Vec::new();
        for (index, value) in values.iter().enumerate() {
            bounds.push(match value {
                None => Bound::Absent,
                Some(value) => self.read(objects, ObjectKey { object, index }, value)?,
            });
        }
        if bounds.len() != objects.get(object).keys.len() {
            return Err(format!("op {op} tells {} values before", bounds.len()));
        }
        if bounds.iter().any(|bound| *bound != bounds[0]) {
            return Err(format!(
                "op {op} found a group that is not whole: {bounds:?}"
            ));
        }
        Ok(Before::Was(bounds[0]))
    }

    /// What a value tells. It has to be one that was asked for, whole.
    fn read(&self, objects: &Objects, key: ObjectKey, value: &[u8]) -> Result<Bound, Wrong> {
        let bound = objects.read(key, value)?;
        if let Bound::To(op) = bound
            && self.lens.get(op as usize) != Some(&value.len())
        {
            let key = Printable(objects.key(key)).to_string();
            return Err(format!(
                "key {key} has {} bytes of the value of op {op}",
                value.len()
            ));
        }
        if let Bound::To(op) = bound
            && self.expiries.contains_key(&op)
        {
            if self.all_expired {
                return Err(format!("the value of op {op} has not expired"));
            }
            self.expiring_seen.update(|seen| seen + 1);
        }
        Ok(bound)
    }

    fn saw(&mut self, op: u32, object: usize, kind: Kind, when: Range<u64>) {
        let access = Access {
            op,
            kind,
            began: when.start,
            ended: Some(when.end),
        };
        self.histories[object].accesses.push(access);
    }
}

/// Keys and values.
pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// What a write was answered.
struct Told {
    applied: bool,
    existed: Vec<bool>,
    previous: Vec<Option<Vec<u8>>>,
}
