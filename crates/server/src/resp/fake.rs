//! A service in memory, to test the front end and to measure it alone. It carries requests out at
//! once, in the order of the calls, and answers at once; or, when told to, keeps the answers until
//! they are released, in whatever order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use argosy_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use argosy_base::range::successor;
use argosy_base::{Direction, KeyRange, Lsn, Moment, RegionId, RequestName};
use argosy_engine::batch::{Op, check_key};
use argosy_engine::composite::{Composite, is_composite};
use argosy_engine::long::check_users;
use argosy_engine::{Changed, Condition, Guard, Reach, Wanted, Was, WriteBatch, WriteOptions};
use argosy_wire::api::Examined;

use super::session::CallToken;
use crate::service::{
    Begun, Failure, InfoSection, KeyList, Lease, Paging, Readiness, ReplyTo, Request, Response,
    Service, SnapshotId, too_slow,
};

/// Here it is always this time.
const NOW: Moment = Moment(1_000_000);

/// What somebody else does to what is stored.
type Other = Box<dyn FnOnce(&mut WriteBatch) + Send>;

/// A service in memory.
#[derive(Default)]
pub struct Fake {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stored: Stored,
    counts: Counts,
    late: bool,
    held: Vec<(ReplyTo, Response)>,
    /// How the next requests fail, one behind the other.
    failures: VecDeque<Failure>,
    cold: usize,
    at_flush: Option<Box<dyn FnOnce() + Send>>,
    /// What others do before the next write, one in front of each.
    others: VecDeque<Other>,
    /// Keys from this one on lie in another region.
    second_region: Option<Vec<u8>>,
    not_ready: Option<String>,
}

/// What is bound to what, and when that was written and expires.
#[derive(Default)]
struct Stored {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    snapshots: BTreeMap<SnapshotId, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// When keys were written last.
    written: BTreeMap<Vec<u8>, u64>,
    writes: u64,
    /// Of pairs that expire.
    expiries: BTreeMap<Vec<u8>, Moment>,
    /// Requests that were applied. Nothing is remembered of sequence numbers above a thousand.
    applied: BTreeMap<RequestName, Lsn>,
}

/// How often it was called.
#[derive(Default)]
struct Counts {
    calls: u64,
    /// The same by connection, as tokens name it.
    calls_by_connection: BTreeMap<u64, u64>,
    flushes: u64,
    /// Calls at the last flush, and the most between two.
    flushed: u64,
    round_max: u64,
}

impl Counts {
    fn called(&mut self, connection: u64) {
        self.calls += 1;
        *self.calls_by_connection.entry(connection).or_default() += 1;
    }

    fn flushed(&mut self) {
        self.flushes += 1;
        self.round_max = self.round_max.max(self.calls - self.flushed);
        self.flushed = self.calls;
    }
}

impl Fake {
    /// An empty store that answers at once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is stored.
    #[cfg(test)]
    pub fn pairs(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.state().stored.pairs.clone()
    }

    /// Changes what is stored.
    #[cfg(test)]
    pub fn change(&self, change: impl FnOnce(&mut BTreeMap<Vec<u8>, Vec<u8>>)) {
        change(&mut self.state().stored.pairs);
    }

    /// Calls `action` at the next flush, on the thread that flushes.
    #[cfg(test)]
    pub fn at_flush(&self, action: impl FnOnce() + Send + 'static) {
        self.state().at_flush = Some(Box::new(action));
    }

    /// Before the next write, or the one behind those for which others were told to write, somebody else writes what
    /// `fill` puts into a batch.
    pub fn write_before(&self, fill: impl FnOnce(&mut WriteBatch) + Send + 'static) {
        self.state().others.push_back(Box::new(fill));
    }

    /// Keys from `from` on lie in a second region.
    pub fn split_at(&self, from: &[u8]) {
        self.state().second_region = Some(from.to_vec());
    }

    /// From now on, keeps answers until they are released, or not any more.
    pub fn set_late(&self, late: bool) {
        self.state().late = late;
    }

    /// What the next request is answered, instead of being carried out.
    pub fn fail_next(&self, failure: Failure) {
        self.state().failures.push_back(failure);
    }

    /// The next request would have to wait for the device.
    pub fn cool_next(&self) {
        self.cool(1);
    }

    /// The next `requests` would have to.
    pub fn cool(&self, requests: usize) {
        self.state().cold = requests;
    }

    /// What [`Service::ready`] says from now on.
    pub fn set_not_ready(&self, what: Option<String>) {
        self.state().not_ready = what;
    }

    /// Answers that are kept.
    #[must_use]
    pub fn held(&self) -> usize {
        self.state().held.len()
    }

    /// Snapshots that are open.
    #[must_use]
    pub fn snapshots(&self) -> usize {
        self.state().stored.snapshots.len()
    }

    /// Calls and flushes so far.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.counts.calls, state.counts.flushes)
    }

    /// The most calls between two flushes since this was asked last.
    #[cfg(test)]
    pub fn take_round_max(&self) -> u64 {
        std::mem::take(&mut self.state().counts.round_max)
    }

    /// The calls of each connection since this was asked last.
    #[cfg(test)]
    pub fn take_calls_by_connection(&self) -> Vec<u64> {
        let calls = std::mem::take(&mut self.state().counts.calls_by_connection);
        calls.into_values().collect()
    }

    /// Delivers the answer that is kept at `index`, counted from the oldest. `false`: there is none.
    pub fn release(&self, index: usize) -> bool {
        let mut state = self.state();
        if index >= state.held.len() {
            return false;
        }
        let (reply, response) = state.held.remove(index);
        drop(state);
        reply.send(response);
        true
    }
}

impl Service for Fake {
    fn call(&self, request: Request<'_>, reach: Reach, reply: ReplyTo) -> Begun {
        let mut state = self.state();
        if reach == Reach::Memory && state.cold > 0 {
            state.cold -= 1;
            return Begun::NeedsDevice;
        }
        state.counts.called(reply.token >> CallToken::BITS);
        if request.writes()
            && let Some(other) = state.others.pop_front()
        {
            let mut batch = WriteBatch::new();
            other(&mut batch);
            state.stored.write(&batch, WriteOptions::default());
        }
        let response = match state.failures.pop_front() {
            Some(failure) => Response::Failed(failure),
            None => state.stored.carry_out(request),
        };
        if !state.late {
            return Begun::Answered(response);
        }
        state.held.push((reply, response));
        Begun::Waits
    }

    fn flush(&self) {
        let mut state = self.state();
        state.counts.flushed();
        let at_flush = state.at_flush.take();
        drop(state);
        if let Some(at_flush) = at_flush {
            at_flush();
        }
    }

    fn region_of(&self, key: &[u8]) -> RegionId {
        let second = self.state().second_region.clone();
        RegionId(second.is_some_and(|from| key >= from.as_slice()).into())
    }

    fn info(&self) -> Vec<InfoSection> {
        let keys = self.state().stored.pairs.len().to_string();
        vec![("argosy", vec![("keys".to_owned(), keys)])]
    }

    fn ready(&self) -> Readiness {
        let waits_for = self.state().not_ready.clone();
        Readiness {
            reads: waits_for.clone(),
            writes: waits_for,
            ..Readiness::default()
        }
    }
}

impl Stored {
    fn carry_out(&mut self, request: Request<'_>) -> Response {
        match request {
            Request::Get { key } => match check_key(key) {
                Ok(()) => Response::Value(self.pairs.get(key).cloned()),
                Err(error) => Response::Failed(Failure::Invalid(error.to_string())),
            },
            Request::GetVersion { key } => match check_key(key).and_then(|()| check_users(key)) {
                Ok(()) => Response::Versioned {
                    value: self.pairs.get(key).cloned(),
                    version: self.version_of(key),
                },
                Err(error) => Response::Failed(Failure::Invalid(error.to_string())),
            },
            Request::GetMany { keys, wanted, at } => {
                self.shown(at, |stored| stored.get_many(keys, wanted))
            }
            Request::Examine { keys, wanted } => self.examine(keys, wanted),
            Request::Snapshot { id, lease } => self.lease(id, lease),
            Request::Expiry { key } => Response::Expiry {
                len: self.pairs.get(key).map(|value| value.len() as u64),
                at: self.expiries.get(key).copied(),
                now: NOW,
            },
            Request::Write { batch, options } => self.write(batch, options),
            Request::Ingest { batch } => self.bulk_load(batch),
            Request::Scan { range, paging } => {
                self.shown(paging.at, |stored| stored.scan(range, paging))
            }
            Request::Count => Response::Count(self.pairs.len() as u64),
            Request::Maintain { .. } => Response::Done,
        }
    }

    fn bulk_load(&mut self, batch: &WriteBatch) -> Response {
        let mut keys = batch.ops().map(|op| op.key().to_vec());
        if !keys.clone().is_sorted_by(|one, next| one < next) {
            let what = "pairs are bulk-loaded by rising keys".to_owned();
            return Response::Failed(Failure::Invalid(what));
        }
        let first = keys.next().unwrap_or_default();
        let last = keys.last().unwrap_or_else(|| first.clone());
        if self.pairs.range(first..=last).next().is_some() {
            let what = "the range of these pairs is not empty".to_owned();
            return Response::Failed(Failure::Invalid(what));
        }
        self.write(batch, WriteOptions::default())
    }

    /// What `look` finds now, or in a snapshot.
    fn shown(&self, at: Option<SnapshotId>, look: impl Fn(&Self) -> Response) -> Response {
        let Some(id) = at else {
            return look(self);
        };
        match self.snapshots.get(&id) {
            Some(pairs) => look(&Self {
                pairs: pairs.clone(),
                ..Self::default()
            }),
            None => {
                let what = format!("snapshot {id} is not open");
                Response::Failed(Failure::Invalid(what))
            }
        }
    }

    fn lease(&mut self, id: Option<SnapshotId>, lease: Lease) -> Response {
        let id = id.unwrap_or(SnapshotId(0x10 + self.snapshots.len() as u64));
        let is_open = match lease {
            Lease::Open(_) => {
                self.snapshots.insert(id, self.pairs.clone());
                true
            }
            Lease::Renew(_) => self.snapshots.contains_key(&id),
            Lease::Close => self.snapshots.remove(&id).is_some(),
        };
        Response::Snapshot(is_open.then_some(id))
    }

    fn get_many(&self, keys: &KeyList, wanted: Wanted) -> Response {
        if let Some(error) = keys.iter().find_map(|key| check_key(key).err()) {
            return Response::Failed(Failure::Invalid(error.to_string()));
        }
        let mut values = Vec::new();
        let mut bytes = 0;
        for key in keys.iter().take(keys.page(0)) {
            let value = self.pairs.get(key).cloned();
            match wanted {
                Wanted::Values(max) => {
                    bytes += value.as_ref().map_or(0, Vec::len);
                    values.push(value);
                    if bytes >= max {
                        break;
                    }
                }
                Wanted::Presence => values.push(value.map(|_| Vec::new())),
            }
        }
        Response::Values(values)
    }

    fn examine(&self, keys: &KeyList, wanted: Wanted) -> Response {
        let Response::Values(values) = self.get_many(keys, wanted) else {
            let odd = "these are no keys".to_owned();
            return Response::Failed(Failure::Invalid(odd));
        };
        let found = values.into_iter().zip(keys.iter());
        let found = found.map(|(value, key)| Examined {
            value,
            expiry: self.expiries.get(key).copied(),
            version: self.version_of(key),
        });
        Response::Examined {
            now: NOW,
            found: found.collect(),
        }
    }

    fn write(&mut self, batch: &WriteBatch, options: WriteOptions) -> Response {
        let Some(request) = batch.request() else {
            return self.write_anew(batch, options);
        };
        if request.seq > 1000 {
            return Response::Failed(Failure::Forgotten(format!("{request} is forgotten")));
        }
        if let Some(version) = self.applied.get(&request) {
            return Response::WrittenBefore { version: *version };
        }
        let response = self.write_anew(batch, options);
        if response.tells_of_effect() {
            self.applied.insert(request, Lsn(self.writes));
        }
        response
    }

    fn write_anew(&mut self, batch: &WriteBatch, options: WriteOptions) -> Response {
        let looks = options.condition != Condition::Always || options.return_previous;
        let mut existed = Vec::new();
        let mut previous = Vec::new();
        for op in batch.ops() {
            if looks || matches!(op, Op::Delete { .. }) {
                existed.push(self.pairs.contains_key(op.key()));
            }
            if options.return_previous {
                previous.push(self.pairs.get(op.key()).cloned());
            }
        }
        if let Some(changed) = self.change_one(batch) {
            let (applied, told) = changed;
            return Response::Written {
                applied,
                existed,
                previous,
                changed: Some(told),
            };
        }
        let tells = !previous.iter().flatten().any(|value| is_composite(value));
        let head = self.counted(batch);
        let holds = self.holds(batch, options.condition, &existed) && self.is_as_seen(batch);
        let applied = tells && holds && head.is_ok();
        if applied && !self.is_guarded_well(batch) {
            return Response::Failed(too_slow());
        }
        for op in batch.ops().take(if applied { usize::MAX } else { 0 }) {
            self.writes += 1;
            self.written.insert(op.key().to_vec(), self.writes);
            match op {
                Op::Put { key, value, expiry } => {
                    assert!(key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX);
                    match self.pairs.get_mut(key) {
                        Some(bound) => {
                            bound.clear();
                            bound.extend_from_slice(value);
                        }
                        None => drop(self.pairs.insert(key.to_vec(), value.to_vec())),
                    }
                    let kept = self.expiries.get(key).copied();
                    self.expire(key, expiry.resolve(NOW, kept));
                }
                Op::Delete { key } => {
                    self.pairs.remove(key);
                    self.expiries.remove(key);
                }
                Op::DeleteRange { .. } => {
                    self.pairs.retain(|key, _| !op.concerns(key));
                    self.expiries.retain(|key, _| !op.concerns(key));
                }
            }
        }
        if let (true, Ok(Some(head))) = (applied, head) {
            self.put_head(&head);
        }
        Response::Written {
            applied,
            existed,
            previous,
            changed: None,
        }
    }

    /// Makes the change that `batch` is, if it is one. Returns whether anything was written, and what it tells.
    fn change_one(&mut self, batch: &WriteBatch) -> Option<(bool, Changed)> {
        let (Some(change), Some(Op::Put { key, value, .. })) =
            (batch.changes(), batch.ops().next())
        else {
            return None;
        };
        let was = Was {
            value: self.pairs.get(key).map(Vec::as_slice),
            expiry: self.expiries.get(key).copied(),
            now: NOW,
        };
        let effect = change.of(value, was);
        let applied = effect.value.is_some();
        if let Some(value) = effect.value {
            self.pairs.insert(key.to_vec(), value);
            self.expire(key, effect.expiry);
        }
        Some((applied, effect.told))
    }

    fn put_head(&mut self, head: &Composite) {
        self.writes += 1;
        self.written.insert(head.key.clone(), self.writes);
        match head.number {
            0 => drop(self.pairs.remove(&head.key)),
            _ => drop(self.pairs.insert(head.key.clone(), head.to_value())),
        }
    }

    /// What the head comes to that guards `batch`, if one does.
    ///
    /// # Errors
    /// There is no such head.
    fn counted(&self, batch: &WriteBatch) -> Result<Option<Composite>, ()> {
        let Some((key, Guard::Counts { version, change })) = batch.guarded() else {
            return Ok(None);
        };
        let head = self.pairs.get(key);
        let head = head.and_then(|value| Composite::parse(value)).ok_or(())?;
        let number = head.number.checked_add_signed(change).ok_or(())?;
        match head.version == version {
            true => Ok(Some(Composite { number, ..head })),
            false => Err(()),
        }
    }

    fn holds(&self, batch: &WriteBatch, condition: Condition, existed: &[bool]) -> bool {
        let equal = |key: &[u8]| self.pairs.get(key).is_some_and(|it| it == batch.expected());
        match condition {
            Condition::Always => true,
            Condition::Version(version) => {
                let mut ops = batch.ops();
                ops.all(|op| self.version_of(op.key()) <= version)
            }
            Condition::Equals => batch.ops().all(|op| equal(op.key())),
            Condition::Absent => existed.iter().all(|existed| !existed),
            Condition::Present => existed.iter().all(|existed| *existed),
        }
    }

    /// Whether everything is so that `batch` was computed on.
    fn is_as_seen(&self, batch: &WriteBatch) -> bool {
        batch.seen().all(|seen| {
            let bound = self.pairs.contains_key(seen.key);
            bound == seen.bound && self.version_of(seen.key) <= seen.version
        })
    }

    /// When `key` was written last, by the number of the write.
    fn version_of(&self, key: &[u8]) -> Lsn {
        Lsn(self.written.get(key).copied().unwrap_or_default())
    }

    fn is_guarded_well(&self, batch: &WriteBatch) -> bool {
        let mut guard = batch.guarded().into_iter();
        guard.all(|(key, guard)| match guard {
            // What counts is a condition.
            Guard::Counts { .. } => true,
            _ => self.pairs.contains_key(key),
        })
    }

    /// The pair of `key` expires then; at once, if that is past.
    fn expire(&mut self, key: &[u8], at: Option<Moment>) {
        self.expiries.remove(key);
        match at {
            Some(at) if at <= NOW => drop(self.pairs.remove(key)),
            Some(at) => drop(self.expiries.insert(key.to_vec(), at)),
            None => {}
        }
    }

    fn scan(&self, range: &KeyRange, paging: Paging) -> Response {
        let mut pairs = Vec::new();
        let mut bytes = 0;
        let from = Bound::Included(range.from.as_slice());
        let to = match &range.to {
            Some(to) if *to <= range.from => Bound::Excluded(range.from.as_slice()),
            Some(to) => Bound::Excluded(to.as_slice()),
            None => Bound::Unbounded,
        };
        if range.is_empty() {
            return Response::Page { pairs, next: None };
        }
        let up = self.pairs.range::<[u8], _>((from, to));
        let found: Vec<_> = match paging.direction {
            Direction::Up => up.collect(),
            Direction::Down => up.rev().collect(),
        };
        for (key, value) in found {
            if pairs.len() >= paging.pairs_max || bytes >= paging.bytes_max {
                let next = Some(match paging.direction {
                    Direction::Up => key.clone(),
                    Direction::Down => successor(key),
                });
                return Response::Page { pairs, next };
            }
            let value = if paging.keys_only {
                Vec::new()
            } else {
                value.clone()
            };
            bytes += key.len() + value.len();
            pairs.push((key.clone(), value));
        }
        Response::Page { pairs, next: None }
    }
}
