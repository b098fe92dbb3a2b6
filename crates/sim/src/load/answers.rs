//! What requests were answered, and what scans and snapshots saw.

use std::collections::BTreeMap;
use std::ops::Range;

use argosy_base::range::Printable;
use argosy_base::{Direction, KeyRange, Outcome};
use argosy_engine::Changed;
use argosy_server::service::{Failure, Response};

use super::looks::{gave_up, had_waited_for_room, is_failure, names_damage, no_space};
use super::request::Answered;
use super::{Answer, Expect, Load, Pairs, Pending, Wrong};
use crate::asks::{Ask, is_counter};
use crate::bulk_load::is_bulk_loaded;
use crate::changes::is_changed;
use crate::check::register::{AccessKind, Before, Saw};
use crate::check::{Access, Bound, When};
use crate::coverage::Coverage;
use crate::long::is_long;
use crate::many::is_of_many;
use crate::objects::{ObjectKey, Objects};

/// What a write was answered.
struct Told {
    applied: bool,
    existed: Vec<bool>,
    previous: Vec<Option<Vec<u8>>>,
}

/// All pairs that a range had at some moment.
struct Seen<'a> {
    range: &'a KeyRange,
    /// Values were not asked for.
    keys_only: bool,
    pairs: Pairs,
    /// The moment lies in this range.
    when: Range<u64>,
}

/// The region of the first key that is asked for by itself.
fn region_of(objects: &Objects, ask: &Ask) -> Option<usize> {
    let object = match ask {
        Ask::Get { key } => key.object,
        Ask::Write { targets, .. } => targets.first()?.object,
        Ask::Scan { .. } | Ask::Add { .. } => return None,
    };
    Some(objects.get(object).region)
}

impl Load {
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
            self.orders.forget(&pending);
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
            (_, Response::Failed(error)) => self.failed(objects, answered, &error, coverage),
            (Ask::Get { key }, Response::Value(value)) => {
                let bound = match value {
                    None => Bound::Absent,
                    Some(value) => self.read(objects, *key, &value)?,
                };
                self.histories[key.object].count_expired(bound, coverage);
                self.saw(
                    op,
                    key.object,
                    AccessKind::Read(bound),
                    pending.began..ended,
                );
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
        objects: &Objects,
        answered: Answered<'_>,
        error: &Failure,
        coverage: &mut Coverage,
    ) -> Result<(), Wrong> {
        let Answered {
            op, pending, ended, ..
        } = answered;
        let outcome = match error {
            Failure::Unavailable { outcome, .. } | Failure::Busy { outcome, .. } => *outcome,
            Failure::Storage { what, outcome } if self.devices.may_fail && is_failure(what) => {
                let read = matches!(pending.ask, Ask::Get { .. } | Ask::Scan { .. });
                coverage.add("reads that failed", u64::from(read));
                *outcome
            }
            Failure::Storage { what, outcome }
                if (self.devices.damaged || pending.damaged) && names_damage(what) =>
            {
                let read = matches!(pending.ask, Ask::Get { .. } | Ask::Scan { .. });
                coverage.add("reads that named damage", u64::from(read));
                *outcome
            }
            other => return Err(format!("op {op} failed: {}", other.what())),
        };
        let region = region_of(objects, &pending.ask);
        if let (Failure::Busy { .. }, Some(region)) = (error, region) {
            self.failures.sent_away.insert(region, ended);
        }
        // Of a write over several regions, one may have had room. A request may wait in the line of its region, behind
        // others that are sent away, until whoever forwarded it gives up.
        let sent_away = region.and_then(|region| self.failures.sent_away.get(&region));
        let waited = gave_up(error) && sent_away.is_some_and(|at| *at > pending.began);
        let slow = matches!(error, Failure::Busy { .. }) || pending.several_regions || waited;
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
        self.failures.last = error.to_string();
        coverage.add(
            "writes refused for space",
            u64::from(write && no_space(&self.failures.last)),
        );
        match outcome {
            Outcome::Applied => return Err(format!("op {op} failed, yet was applied: {error}")),
            Outcome::Unknown => {
                coverage.add("unknown outcomes", u64::from(write));
                self.orders.forget(pending);
            }
            Outcome::NotApplied => {
                if let Ask::Add { counter } = pending.ask {
                    self.counters[counter].retain(|request| request.op != op);
                }
                for (object, access) in &pending.accesses {
                    self.histories[*object].accesses[*access].kind = AccessKind::Void;
                }
                for (region, place) in &pending.handed {
                    self.orders.handed[*region][*place].void = true;
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
            access.kind = AccessKind::Write {
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
            self.orders.handed[*region][*place].applied = Some(answered.at);
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
        if let Bound::To(op) = bound {
            self.expiries.find(op)?;
        }
        Ok(bound)
    }

    fn saw(&mut self, op: u32, object: usize, kind: AccessKind, when: Range<u64>) {
        let access = Access {
            op,
            kind,
            began: when.start,
            ended: Some(when.end),
        };
        self.histories[object].accesses.push(access);
    }

    // --- Scans and snapshots ---

    fn page(
        &mut self,
        objects: &Objects,
        answered: Answered<'_>,
        pairs: Pairs,
        next: Option<Vec<u8>>,
    ) -> Result<(), Wrong> {
        let Answered { op, pending, .. } = answered;
        let Ask::Scan { range, paging } = &pending.ask else {
            panic!("the caller has looked");
        };
        let up = paging.direction == Direction::Up;
        let rises = |a: &[u8], b: &[u8]| if up { a < b } else { a > b };
        let in_order = pairs.windows(2).all(|two| rises(&two[0].0, &two[1].0));
        let inside = pairs.iter().all(|(key, _)| range.contains(key));
        // Upwards the next page begins with `next`, downwards below it.
        let goes_on = next.as_ref().is_none_or(|next| {
            let last = pairs.last().map(|(last, _)| last);
            if up {
                *next > range.from && last.is_none_or(|last| last < next)
            } else {
                range.to.as_ref().is_none_or(|to| next < to) && last.is_none_or(|last| last >= next)
            }
        });
        if !in_order || !inside || !goes_on || pairs.len() > paging.pairs_max {
            let count = pairs.len();
            return Err(format!(
                "op {op}: a page of {count} pairs is not one of {range}"
            ));
        }
        let mut covered = range.clone();
        if let Some(next) = next {
            // What is left for a scan the other way that begins where this one ended.
            let back = match paging.direction {
                Direction::Up => Direction::Down,
                Direction::Down => Direction::Up,
            };
            covered.go_on_at(back, next);
        }
        let seen = Seen {
            range: &covered,
            keys_only: paging.keys_only,
            pairs,
            when: pending.began..answered.ended,
        };
        self.pairs(objects, op, seen)
    }

    /// Operation `op` has seen this.
    ///
    /// # Errors
    /// What is wrong with it.
    fn pairs(&mut self, objects: &Objects, op: u32, seen: Seen<'_>) -> Result<(), Wrong> {
        let Seen {
            range,
            keys_only,
            pairs,
            when,
        } = seen;
        let mut found: BTreeMap<ObjectKey, Vec<u8>> = BTreeMap::new();
        for (key, value) in pairs {
            let of_clients = is_bulk_loaded(&key) || is_changed(&key) || is_of_many(&key);
            if is_counter(&key) || is_long(&key) || of_clients {
                continue;
            }
            let Some(at) = objects.find(&key) else {
                return Err(format!(
                    "op {op} found key {}, which nobody wrote",
                    Printable(&key)
                ));
            };
            found.insert(at, value);
        }
        for ObjectKey { object, index } in objects.within(range) {
            let keys = &objects.get(object).keys;
            let mut bounds = Vec::new();
            for index in (index..keys.len()).filter(|index| range.contains(&keys[*index])) {
                let at = ObjectKey { object, index };
                bounds.push(match found.get(&at) {
                    None => Bound::Absent,
                    Some(_) if keys_only => Bound::Empty,
                    Some(value) => self.read(objects, at, value)?,
                });
            }
            if bounds.iter().any(|bound| *bound != bounds[0]) {
                return Err(format!(
                    "op {op} saw object {object}, a group, not whole: {bounds:?}"
                ));
            }
            let kind = if keys_only {
                AccessKind::Exists(bounds[0] != Bound::Absent)
            } else {
                AccessKind::Read(bounds[0])
            };
            self.saw(op, object, kind, when.clone());
        }
        Ok(())
    }

    /// The moment of a snapshot that is taken now, and that is read later.
    pub(crate) fn snapshot_moment(&mut self) -> Range<u64> {
        self.moment()..self.moment()
    }

    /// A snapshot that was taken at `when` has these pairs in `range`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn snapshot(
        &mut self,
        objects: &Objects,
        range: &KeyRange,
        pairs: Pairs,
        when: Range<u64>,
    ) -> Result<(), Wrong> {
        let seen = Seen {
            range,
            keys_only: false,
            pairs,
            when,
        };
        self.pairs(objects, u32::MAX, seen)
    }
}
