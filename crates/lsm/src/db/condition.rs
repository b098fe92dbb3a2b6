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
//! What the write comes to then is [decided](argosy_engine::deciding) as for every engine.
//!
//! A pair that has expired by the clock is none here. The record that tells the time goes in front of
//! what is written ([`time`](super::time)).
//!
//! Levels do not tell LSNs. A key that no memtable has was not written since the last memtable went to
//! the levels, so that LSN is its version: it may be told a higher version than before although nobody
//! wrote, never the same one although somebody did. A key that is not in the levels either may have been removed by a
//! merge because it had expired, so its version covers the record that tells the time of merges, too.
//!
//! Of what a batch [was computed on](WriteBatch::saw) the same is compared, and whether the key is bound. A bulk load
//! gives no key a new version, but binds keys only that are not bound, so that shows it.

use std::sync::Arc;

use argosy_base::{Lsn, Moment};
use argosy_engine::deciding::{Answer, Beside, BoundKey, Dependent, SeenNow};
use argosy_engine::{Condition, EngineError, Guard, Op, Reach, Store, WriteBatch, WriteOptions};

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
}

impl BoundKey for Binding {
    fn exists(&self) -> bool {
        !matches!(self.entry, None | Some(OwnedEntry::Tombstone))
    }

    fn expiry(&self) -> Option<Moment> {
        self.entry.as_ref().and_then(OwnedEntry::expiry)
    }

    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn value(&self) -> Option<&[u8]> {
        self.value.as_ref()?.as_deref()
    }

    fn into_value(self) -> Option<Vec<u8>> {
        self.value.flatten()
    }
}

/// What keys were bound to.
#[derive(Debug)]
struct Bindings {
    /// One for each operation.
    ops: Vec<Binding>,
    /// Of the key that the batch is guarded by.
    guard: Option<Binding>,
    /// Of those that it was computed on.
    seen: Vec<Binding>,
}

/// What was found without the lock.
pub(super) struct Looked {
    view: Arc<ReadView>,
    bindings: Bindings,
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
        let ops = batch
            .ops()
            .map(|op| match op {
                Op::DeleteRange { .. } => Ok(Binding::default()),
                _ => Binding::of(lsm, &view, op.key(), needs_values(batch, options), fetch),
            })
            .collect::<Result<_, _>>()?;
        let without_value = |key: &[u8]| Binding::of(lsm, &view, key, false, fetch);
        let guard = batch
            .guarded()
            .map(|(key, guard)| Binding::of(lsm, &view, key, needs_value(guard), fetch));
        let seen = batch.seen().map(|seen| without_value(seen.key));
        let bindings = Bindings {
            ops,
            guard: guard.transpose()?,
            seen: seen.collect::<Result<_, _>>()?,
        };
        Ok(Some(Self { view, bindings }))
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
        let mut bindings = self.current(lsm, batch, needs_values(batch, options))?;
        let version_in =
            |view: &ReadView, binding: &Binding| match lsm.settings.mutants.forget_version() {
                true => binding.lsn,
                false => view.version_of(binding.lsn, binding.exists()),
            };
        let view = lsm.shown.view();
        let versions = bindings.seen.iter();
        // Before what has expired is taken for none: that is told by whether the key is bound.
        let versions: Vec<Lsn> = versions.map(|of| version_in(&view, of)).collect();
        drop(view);
        expire(appender, &mut bindings.ops, now)?;
        expire(appender, &mut bindings.seen, now)?;
        let counts = batch.guarded().is_some_and(|(_, guard)| needs_value(guard));
        if let Some(guard) = bindings.guard.as_mut().filter(|_| counts) {
            expire(appender, std::slice::from_mut(guard), now)?;
        }
        let seen = bindings.seen.iter().zip(versions);
        let beside = Beside {
            guard: bindings.guard,
            seen: seen
                .map(|(binding, version)| SeenNow {
                    bound: binding.exists(),
                    version,
                    lsn: binding.lsn,
                })
                .collect(),
        };
        let view = lsm.shown.view();
        let version = |binding: &Binding| version_in(&view, binding);
        let asked = Dependent::new(batch, options, now);
        Ok(asked.decide(bindings.ops, &beside, version)?)
    }

    /// The bindings as they are now.
    fn current(
        self,
        lsm: &Lsm,
        batch: &WriteBatch,
        with_value: bool,
    ) -> Result<Bindings, EngineError> {
        let view = lsm.shown.view_to_keep();
        let retired = view.levels() != self.view.levels();
        let stands = |key: &[u8], binding: &Binding| match view.in_memory(key, Lsn(u64::MAX)) {
            Some((lsn, _)) => lsn == binding.lsn,
            None => !retired,
        };
        let look_again = |key: &[u8], binding: &mut Binding, with_value| {
            if !stands(key, binding) {
                *binding = Binding::of(lsm, &view, key, with_value, Fetch::Device)?;
            }
            Ok::<_, EngineError>(())
        };
        let mut bindings = self.bindings;
        let ops = batch.ops().zip(&mut bindings.ops);
        for (op, binding) in ops.filter(|(op, _)| op.range().is_none()) {
            look_again(op.key(), binding, with_value)?;
        }
        if let (Some((key, guard)), Some(binding)) = (batch.guarded(), &mut bindings.guard) {
            look_again(key, binding, needs_value(guard))?;
        }
        for (seen, binding) in batch.seen().zip(&mut bindings.seen) {
            look_again(seen.key, binding, false)?;
        }
        Ok(bindings)
    }
}

/// Whether the values matter that its keys are bound to.
fn needs_values(batch: &WriteBatch, options: WriteOptions) -> bool {
    options.return_previous || options.condition == Condition::Equals || batch.changes().is_some()
}

/// Whether the value matters that the key of a guard is bound to.
const fn needs_value(guard: Guard) -> bool {
    matches!(guard, Guard::Counts { .. })
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
