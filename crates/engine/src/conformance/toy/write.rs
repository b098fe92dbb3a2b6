//! Writes: what they depend on, and what they come to.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{Changed, Condition, Guard, KeyRange, Moment, Op, Was};

use super::map::Seen;
use super::record::Record;
use super::store::{State, ToyStore};
use crate::{EngineError, WaitFor, WriteBatch, WriteOptions, Written};

/// Does what `batch` asks for, if its condition and its guard hold.
pub(super) fn write(
    store: &ToyStore,
    state: &mut State,
    batch: &WriteBatch,
    options: WriteOptions,
) -> Result<Written, EngineError> {
    if batch.is_empty() {
        return Ok(Written {
            applied: true,
            unguarded: false,
            wait: WaitFor::committed(state.all.last),
            previous: Vec::new(),
            existed: Vec::new(),
            changed: None,
        });
    }
    let now = state.all.time.max(store.wall());
    expire(store, state, batch, now)?;
    if batch.expires() && state.all.time == Moment(0) {
        // From here on it matters.
        store.tell_time(state, Moment(1), now)?;
    }
    let seen: Vec<_> = batch.ops().map(|op| state.all.seen(op.key())).collect();
    let guard = batch.guarded();
    let guarding = guard.map(|(key, guard)| (state.all.seen(key), guard));
    let newest = seen.iter().map(|seen| seen.lsn).max().unwrap_or_default();
    let unmet = !holds(batch, options.condition, &seen);
    let unguarded = !unmet
        && guarding
            .as_ref()
            .is_some_and(|(seen, guard)| !guards(seen, *guard));
    let mut outcome = Outcome::of(batch, &seen, now);
    let mut written = Written {
        applied: false,
        unguarded,
        wait: WaitFor::committed(newest),
        previous: Vec::new(),
        existed: Vec::new(),
        changed: None,
    };
    if unmet || unguarded {
        if let Some((seen, _)) = guarding.filter(|_| unguarded) {
            written.wait = WaitFor::committed(newest.max(seen.lsn));
        }
        let keys = batch
            .ops()
            .zip(&seen)
            .filter(|(op, _)| op.range().is_none());
        if options.return_previous {
            let value = |seen: &Seen| seen.value.as_ref().map(|value| value.to_vec());
            written.previous = keys.clone().map(|(_, seen)| value(seen)).collect();
        }
        written.existed = keys.map(|(_, seen)| seen.value.is_some()).collect();
        return Ok(written);
    }
    if !outcome.records.is_empty() {
        let records = std::mem::take(&mut outcome.records);
        written.wait = WaitFor::committed(store.append(state, records)?);
        written.applied = true;
    }
    written.changed = outcome.changed;
    if options.return_previous {
        written.previous = outcome.previous;
    }
    if batch.depends_on_values(options) {
        written.existed = outcome.existed;
    }
    Ok(written)
}

/// Has the region's time pass what keys of `batch` have expired by.
fn expire(
    store: &ToyStore,
    state: &mut State,
    batch: &WriteBatch,
    now: Moment,
) -> Result<(), EngineError> {
    let guard = batch.guarded().map(|(key, _)| key);
    let keys = batch.ops().map(|op| op.key()).chain(guard);
    let expiries = keys.filter_map(|key| state.all.seen(key).expiry);
    match expiries.filter(|expiry| *expiry <= now).max() {
        Some(expiry) => store.tell_time(state, expiry, now),
        None => Ok(()),
    }
}

/// Whether the condition holds of every key. A range is no key.
fn holds(batch: &WriteBatch, condition: Condition, seen: &[Seen]) -> bool {
    let mut keys = batch.ops().zip(seen).filter(|(op, _)| op.range().is_none());
    keys.all(|(_, seen)| match condition {
        Condition::Always => true,
        Condition::Absent => seen.value.is_none(),
        Condition::Present => seen.value.is_some(),
        Condition::Equals => seen.value.as_deref() == Some(batch.expected()),
        Condition::Version(version) => seen.lsn <= version,
    })
}

fn guards(seen: &Seen, guard: Guard) -> bool {
    match guard {
        Guard::Present => seen.value.is_some(),
        Guard::Unwritten(version) => seen.lsn <= version,
    }
}

/// What a key is bound to in the middle of a batch.
type Bound = Option<(Arc<[u8]>, Option<Moment>)>;

/// What a batch comes to whose condition holds.
#[derive(Default)]
struct Outcome {
    records: Vec<Record>,
    previous: Vec<Option<Vec<u8>>>,
    existed: Vec<bool>,
    changed: Option<Changed>,
}

impl Outcome {
    /// Of `batch`, whose keys are bound as `seen`. An operation sees those before it.
    fn of(batch: &WriteBatch, seen: &[Seen], now: Moment) -> Self {
        let mut outcome = Self::default();
        let mut overlay: BTreeMap<Vec<u8>, Bound> = BTreeMap::new();
        let mut removed: Vec<KeyRange> = Vec::new();
        for (op, seen) in batch.ops().zip(seen) {
            if let Some(range) = op.range() {
                overlay.retain(|key, _| !range.contains(key));
                removed.push(range.clone());
                outcome.records.push(Record::DeleteRange(range));
                outcome.previous.push(None);
                outcome.existed.push(false);
                continue;
            }
            let key = op.key();
            let bound = match overlay.get(key) {
                Some(bound) => bound.clone(),
                None if removed.iter().any(|range| range.contains(key)) => None,
                None => seen.value.clone().map(|value| (value, seen.expiry)),
            };
            let left = outcome.left(batch, op, bound.as_ref(), now);
            outcome.existed.push(bound.is_some());
            let value = bound.as_ref().map(|(value, _)| value.to_vec());
            outcome.previous.push(value);
            let left = left.unwrap_or(bound);
            overlay.insert(key.to_vec(), left);
        }
        outcome
    }

    /// What `op` leaves its key bound to, which was `bound`; `None` where it changes nothing.
    fn left(
        &mut self,
        batch: &WriteBatch,
        op: Op<'_>,
        bound: Option<&(Arc<[u8]>, Option<Moment>)>,
        now: Moment,
    ) -> Option<Bound> {
        let key = op.key().to_vec();
        let before = bound.and_then(|(_, expiry)| *expiry);
        let (value, expiry): (Arc<[u8]>, _) = match (op, batch.changes()) {
            (Op::Put { value, .. }, Some(change)) => {
                let effect = change.of(
                    value,
                    Was {
                        value: bound.map(|(value, _)| &**value),
                        expiry: before,
                        now,
                    },
                );
                self.changed = Some(effect.told);
                (effect.value?.into(), effect.expiry)
            }
            (Op::Put { value, expiry, .. }, None) => (value.into(), expiry.resolve(now, before)),
            (Op::Delete { .. } | Op::DeleteRange { .. }, _) => {
                self.records.push(Record::Delete { key });
                return Some(None);
            }
        };
        if expiry.is_some_and(|expiry| expiry <= now) {
            self.records.push(Record::Delete { key });
            return Some(None);
        }
        let put = Record::Put {
            key,
            value: Arc::clone(&value),
            expiry,
        };
        self.records.push(put);
        Some(Some((value, expiry)))
    }
}
