//! What keys were bound to before a write, for conditions and for answers that tell it.
//!
//! Levels may have to be read from the device, which should not happen under the writer lock. So:
//!
//! 1. [`Looked::before`], without the lock, reads what the levels say of keys that no memtable has,
//!    and values that the answer may need.
//! 2. [`Looked::decide`], under the lock, asks the memtables again. What was read before stands, unless
//!    what the levels bind has changed meanwhile ([`ReadView::levels`]), which is rare; then they are asked
//!    again.
//!
//! A condition is about the keys before the batch. What is reported per operation is what that
//! operation found, so an operation sees those before it in the batch. A change is evaluated here, too,
//! and becomes the put of what it comes to.
//!
//! A batch may be guarded by a key that it does not write ([`WriteBatch::guard`]): that is looked at in the
//! same way, and where it does not hold nothing is written, as where the condition does not; the answer tells
//! which of the two it was.
//!
//! A range that is removed is about no key: no condition concerns it, and nothing is told of what was there.
//!
//! A pair that has expired by the clock is none here. The record that tells the time goes in front of
//! what is written ([`time`](super::time)).
//!
//! Levels do not tell LSNs. A key that no memtable has was not written since the last memtable went to
//! the levels, so that LSN is its version: it may be told a higher version than before although nobody
//! wrote, never the same one although somebody did. A key that is not in the levels either may have been removed by a
//! merge because it had expired, so its version covers the record that tells the time of merges, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_base::{KeyRange, Lsn, Moment};
use argosy_engine::{
    Changed, Condition, EngineError, Expiry, Guard, Op, Reach, Store, Was, WriteBatch, WriteOptions,
};

use super::Lsm;
use super::write::Appender;
use crate::names::OwnedEntry;
use crate::read::ReadView;
use crate::segments::fetch::Fetch;

/// What a key was bound to at some moment. Of a range: nothing.
#[derive(Clone, Debug, Default)]
struct Binding {
    entry: Option<OwnedEntry>,
    lsn: Lsn,
    /// The value, where it was read.
    value: Option<Option<Vec<u8>>>,
}

impl Binding {
    /// Of `key` in `view`, inserted but unpublished writes included.
    fn of(
        lsm: &Lsm,
        view: &ReadView,
        key: &[u8],
        with_value: bool,
        fetch: Fetch<'_>,
    ) -> Result<Self, EngineError> {
        let newest = match with_value && lsm.settings.mutants.change_committed() {
            true => lsm.committed_lsn(),
            false => Lsn(u64::MAX),
        };
        let located = view.locate(key, newest, &lsm.reading, fetch)?;
        let value = match &located.entry {
            Some(entry) if with_value => {
                Some(view.value(key, entry.clone(), &lsm.reading, fetch)?)
            }
            _ => None,
        };
        Ok(Self {
            entry: located.entry,
            lsn: located.lsn,
            value,
        })
    }

    fn exists(&self) -> bool {
        !matches!(self.entry, None | Some(OwnedEntry::Tombstone))
    }

    /// When the pair expires.
    fn expiry(&self) -> Option<Moment> {
        self.entry.as_ref().and_then(OwnedEntry::expiry)
    }

    /// The value, where it was read and there is one.
    fn value(&self) -> Option<&[u8]> {
        self.value.as_ref()?.as_deref()
    }
}

/// What an operation leaves its key bound to: a value, and when it expires.
type Left<'b> = Option<(&'b [u8], Option<Moment>)>;

/// What was found without the lock.
pub(super) struct Looked {
    view: Arc<ReadView>,
    /// One for each operation.
    bindings: Vec<Binding>,
    /// Of the key that the batch is guarded by.
    guard: Option<Binding>,
}

/// What a write answers about what was there before.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Set where the condition does not hold: the LSN of what it failed on.
    pub(super) failed_on: Option<Lsn>,
    /// It is what guards the batch that does not hold.
    pub(super) unguarded: bool,
    pub(super) existed: Vec<bool>,
    pub(super) previous: Vec<Option<Vec<u8>>>,
    /// Per operation, when the pair that is there expires.
    pub(super) kept: Vec<Option<Moment>>,
    /// What the change comes to, if the batch is one.
    pub(super) change: Option<Outcome>,
}

/// What a change comes to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) told: Changed,
    /// What to write; `None`: nothing.
    pub(super) batch: Option<WriteBatch>,
    /// The LSN of what it was evaluated on.
    pub(super) lsn: Lsn,
}

impl Looked {
    /// Looks, if the write has to know; `None` where it does not.
    ///
    /// # Errors
    /// When what a key is bound to cannot be read; [`EngineError::NotInMemory`] as `reach` says.
    pub(super) fn before(
        lsm: &Lsm,
        batch: &WriteBatch,
        options: WriteOptions,
        reach: Reach,
    ) -> Result<Option<Self>, EngineError> {
        if !batch.depends_on_values(options) {
            return Ok(None);
        }
        let view = lsm.shown.view_to_keep();
        let fetch = Fetch::within(reach);
        let bindings = batch
            .ops()
            .map(|op| match op {
                Op::DeleteRange { .. } => Ok(Binding::default()),
                _ => Binding::of(lsm, &view, op.key(), needs_values(batch, options), fetch),
            })
            .collect::<Result<_, _>>()?;
        let guard = batch
            .guarded()
            .map(|(key, _)| Binding::of(lsm, &view, key, false, fetch));
        let guard = guard.transpose()?;
        Ok(Some(Self {
            view,
            bindings,
            guard,
        }))
    }

    /// Decides under the writer lock, at the time `now`.
    pub(super) fn decide(
        self,
        appender: &mut Appender<'_>,
        batch: &WriteBatch,
        options: WriteOptions,
        now: Moment,
    ) -> Result<Answer, EngineError> {
        let lsm = appender.lsm;
        let (mut bindings, guard) = self.current(lsm, batch, needs_values(batch, options))?;
        expire(appender, &mut bindings, now)?;
        let view = lsm.shown.view();
        let version = |binding: &Binding| match lsm.settings.mutants.forget_version() {
            true => binding.lsn,
            false => view.version_of(binding.lsn, binding.exists()),
        };
        let unmet = failed_on(batch, options.condition, &bindings, version);
        // What the keys were bound to may be told all the same, so the answer waits for the newest of all.
        let newest = bindings.iter().map(|binding| binding.lsn).max();
        let unguarded = guard_failed_on(batch, guard.as_ref(), version)
            .filter(|_| unmet.is_none())
            .map(|lsn| newest.map_or(lsn, |newest| newest.max(lsn)));
        let failed_on = unmet.or(unguarded);
        let mut answer = Answer {
            failed_on,
            unguarded: unguarded.is_some(),
            change: match failed_on {
                None => outcome(batch, &bindings, now)?,
                Some(_) => None,
            },
            ..Answer::default()
        };
        // What earlier operations of the batch leave behind, where they take effect: value and expiry.
        let mut overlay: BTreeMap<&[u8], Left<'_>> = BTreeMap::new();
        let mut deleted: Vec<KeyRange> = Vec::new();
        for (op, binding) in batch.ops().zip(bindings) {
            if let Some(range) = op.range() {
                overlay.retain(|key, _| !range.contains(key));
                deleted.push(range);
            }
            // The first key of the range among them: nothing is told of a range.
            let removed = deleted.iter().any(|range| range.contains(op.key()));
            let nothing: Option<&Left<'_>> = removed.then_some(&None);
            let earlier = overlay.get(op.key()).or(nothing);
            let earlier = earlier.filter(|_| failed_on.is_none());
            let (existed, previous, kept) = match earlier {
                Some(pair) => (
                    pair.is_some(),
                    pair.map(|(value, _)| value.to_vec()),
                    pair.and_then(|(_, expiry)| expiry),
                ),
                None => {
                    let kept = binding.expiry();
                    (binding.exists(), binding.value.flatten(), kept)
                }
            };
            answer.existed.push(existed);
            answer.kept.push(kept);
            if options.return_previous {
                answer.previous.push(previous);
            }
            let (key, left) = match op {
                Op::Put { key, value, expiry } => {
                    let expiry = expiry.resolve(now, kept);
                    let over = expiry.is_some_and(|expiry| expiry <= now);
                    (key, (!over).then_some((value, expiry)))
                }
                Op::Delete { key } => (key, None),
                Op::DeleteRange { .. } => continue,
            };
            overlay.insert(key, left);
        }
        Ok(answer)
    }

    /// The bindings as they are now.
    fn current(
        self,
        lsm: &Lsm,
        batch: &WriteBatch,
        with_value: bool,
    ) -> Result<(Vec<Binding>, Option<Binding>), EngineError> {
        let view = lsm.shown.view_to_keep();
        let retired = view.levels() != self.view.levels();
        let stands = |key: &[u8], binding: &Binding| match view.in_memory(key, Lsn(u64::MAX)) {
            Some((lsn, _)) => lsn == binding.lsn,
            None => !retired,
        };
        let (mut bindings, mut guard) = (self.bindings, self.guard);
        let ops = batch.ops().zip(&mut bindings);
        for (op, binding) in ops.filter(|(op, _)| op.range().is_none()) {
            if !stands(op.key(), binding) {
                *binding = Binding::of(lsm, &view, op.key(), with_value, Fetch::Device)?;
            }
        }
        if let (Some((key, _)), Some(binding)) = (batch.guarded(), &mut guard)
            && !stands(key, binding)
        {
            *binding = Binding::of(lsm, &view, key, false, Fetch::Device)?;
        }
        Ok((bindings, guard))
    }
}

/// Whether the values matter that its keys are bound to.
fn needs_values(batch: &WriteBatch, options: WriteOptions) -> bool {
    options.return_previous || options.condition == Condition::Equals || batch.changes().is_some()
}

/// Where a binding breaks `condition`, which may compare with what is expected: the highest LSN of any.
fn failed_on(
    batch: &WriteBatch,
    condition: Condition,
    bindings: &[Binding],
    version_of: impl Fn(&Binding) -> Lsn,
) -> Option<Lsn> {
    let expected = batch.expected();
    let holds = |binding: &Binding| match condition {
        Condition::Always => true,
        Condition::Absent => !binding.exists(),
        Condition::Present => binding.exists(),
        Condition::Equals => binding.value() == Some(expected),
        Condition::Version(version) => version_of(binding) <= version,
    };
    // All of them may be told, so the answer waits for the newest.
    let newest = || bindings.iter().map(|binding| binding.lsn).max();
    let of_keys = batch.ops().zip(bindings);
    let mut of_keys = of_keys.filter(|(op, _)| op.range().is_none());
    match of_keys.all(|(_, binding)| holds(binding)) {
        true => None,
        false => newest(),
    }
}

/// Where what a batch is guarded by does not hold: the LSN of what it failed on.
fn guard_failed_on(
    batch: &WriteBatch,
    binding: Option<&Binding>,
    version_of: impl Fn(&Binding) -> Lsn,
) -> Option<Lsn> {
    let ((_, guard), binding) = (batch.guarded()?, binding?);
    let holds = match guard {
        Guard::Present => binding.exists(),
        Guard::Unwritten(version) => version_of(binding) <= version,
    };
    (!holds).then_some(binding.lsn)
}

/// Takes those of `bindings` for none that have expired at `now`, once the history tells the time.
fn expire(
    appender: &mut Appender<'_>,
    bindings: &mut [Binding],
    now: Moment,
) -> Result<(), EngineError> {
    let over = |binding: &&mut Binding| binding.expiry().is_some_and(|expiry| expiry <= now);
    for binding in bindings.iter_mut().filter(over) {
        let expiry = binding.expiry().unwrap_or_default();
        let told = appender.tell_time(expiry, now)?;
        *binding = Binding {
            entry: None,
            lsn: binding.lsn.max(told),
            value: None,
        };
    }
    Ok(())
}

/// `batch` with moments for expiries: what has expired already becomes a delete. `kept` tells when the
/// pairs expire that are there.
pub(super) fn resolve(
    batch: &WriteBatch,
    now: Moment,
    kept: &[Option<Moment>],
) -> Result<WriteBatch, EngineError> {
    let mut resolved = WriteBatch::new();
    for (at, op) in batch.ops().enumerate() {
        match op {
            Op::Put { key, value, expiry } => {
                let kept = kept.get(at).copied().flatten();
                let expiry = expiry.resolve(now, kept);
                put_or_delete(&mut resolved, key, value, expiry, now)?;
            }
            Op::Delete { key } => resolved.delete_any(key)?,
            Op::DeleteRange { .. } => resolved.delete_range_any(&op.range().unwrap_or_default())?,
        }
    }
    Ok(resolved)
}

fn put_or_delete(
    batch: &mut WriteBatch,
    key: &[u8],
    value: &[u8],
    expiry: Option<Moment>,
    now: Moment,
) -> Result<(), EngineError> {
    match expiry {
        None => batch.put_any(key, value, Expiry::Never)?,
        Some(expiry) if expiry <= now => batch.delete_any(key)?,
        Some(expiry) => batch.put_any(key, value, Expiry::At(expiry))?,
    }
    Ok(())
}

/// What the change that `batch` is comes to.
fn outcome(
    batch: &WriteBatch,
    bindings: &[Binding],
    now: Moment,
) -> Result<Option<Outcome>, EngineError> {
    let (Some(change), Some(binding)) = (batch.changes(), bindings.first()) else {
        return Ok(None);
    };
    let op = batch.ops().next();
    let Some(Op::Put { key, value, .. }) = op else {
        return Ok(None);
    };
    let was = Was {
        value: binding.value(),
        expiry: binding.expiry(),
        now,
    };
    let effect = change.of(value, was);
    let batch = match effect.value {
        Some(value) => {
            let mut batch = WriteBatch::new();
            put_or_delete(&mut batch, key, &value, effect.expiry, now)?;
            Some(batch)
        }
        None => None,
    };
    Ok(Some(Outcome {
        told: effect.told,
        batch,
        lsn: binding.lsn,
    }))
}
