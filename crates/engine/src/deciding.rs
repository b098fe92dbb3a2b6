//! What a write comes to, once it is known what its keys were bound to: for every engine in the same way.
//!
//! A condition is about the keys before the batch. What is reported per operation is what that operation found, so an
//! operation sees those before it in the batch. A change is evaluated here, too, and becomes the put of what it comes
//! to.
//!
//! A batch may be guarded by a key that it does not write ([`WriteBatch::guard`]): where that does not hold nothing is
//! written, as where the condition does not; the answer tells which of the two it was.
//!
//! A batch may be guarded by the head of a composite ([`Guard::Counts`]), of which it writes elements: the head is
//! evaluated here, and written with it. Where it names another version nothing is written, as where the condition does
//! not hold.
//!
//! A batch may name what it was computed on ([`WriteBatch::saw`]): where any of that is not so any more nothing is
//! written, as where the condition does not hold.
//!
//! What a composite was is not told as a value: where what a key was bound to before is wanted, and that is one,
//! nothing is written, as where the condition does not hold.
//!
//! A range that is removed is about no key: no condition concerns it, and nothing is told of what was there.

use std::borrow::Cow;
use std::collections::BTreeMap;

use argosy_base::composite::{Composite, is_composite};
use argosy_base::{KeyRange, Lsn, Moment};

use crate::{
    BatchError, Changed, Condition, Expiry, Guard, Op, WaitFor, Was, WriteBatch, WriteOptions,
    Written,
};

/// What a key was bound to at some moment. A pair that has expired is none.
pub trait BoundKey {
    /// Whether there is a pair.
    fn exists(&self) -> bool;

    /// When the pair expires.
    fn expiry(&self) -> Option<Moment>;

    /// The LSN of what was found.
    fn lsn(&self) -> Lsn;

    /// The value, where there is one and it matters.
    fn value(&self) -> Option<&[u8]>;

    /// The same.
    fn into_value(self) -> Option<Vec<u8>>;
}

/// What a key is now on which a batch was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenNow {
    /// Whether it is bound. A pair that has expired is none.
    pub bound: bool,
    /// No write of the key is above. That a pair has expired is no write.
    pub version: Lsn,
    /// The LSN of what was found, and of what told that it has expired.
    pub lsn: Lsn,
}

/// What is known beside the keys that a batch writes.
#[derive(Clone, Debug)]
pub struct Beside<B> {
    /// Of the key that it is guarded by.
    pub guard: Option<B>,
    /// Of those that it was computed on, in their order.
    pub seen: Vec<SeenNow>,
}

/// A write that depends on what its keys are bound to.
#[derive(Clone, Copy, Debug)]
pub struct Dependent<'a> {
    batch: &'a WriteBatch,
    options: WriteOptions,
    now: Moment,
}

/// What a key is bound to within a batch: a value, and when it expires.
type Left<'b> = Option<(&'b [u8], Option<Moment>)>;

/// What a write answers about what was there before.
#[derive(Debug, Default)]
pub struct Answer {
    /// Set where the condition does not hold: the LSN of what it failed on.
    failed_on: Option<Lsn>,
    /// It is what guards the batch that does not hold.
    unguarded: bool,
    existed: Vec<bool>,
    previous: Vec<Option<Vec<u8>>>,
    /// Per operation, when the pair that is there expires.
    kept: Vec<Option<Moment>>,
    /// What the change comes to, if the batch is one.
    change: Option<Outcome>,
    /// The highest LSN of what the batch was computed on.
    seen: Lsn,
    /// The head of a composite that is written with it.
    head: Option<Counted>,
}

/// What the head of a composite comes to.
#[derive(Debug)]
struct Counted {
    key: Vec<u8>,
    /// The new one; `None`: it is removed.
    value: Option<Vec<u8>>,
    expiry: Option<Moment>,
}

/// What a change comes to.
#[derive(Debug)]
struct Outcome {
    told: Changed,
    /// What to write; `None`: nothing.
    batch: Option<WriteBatch>,
    /// The LSN of what it was evaluated on.
    lsn: Lsn,
}

impl<'a> Dependent<'a> {
    /// The write of `batch` at the region's time `now`.
    #[must_use]
    pub const fn new(batch: &'a WriteBatch, options: WriteOptions, now: Moment) -> Self {
        Self {
            batch,
            options,
            now,
        }
    }

    /// Decides. `bindings` has one for each operation, and means nothing for a range. `version_of` tells the LSN that
    /// no write of a key is above.
    ///
    /// # Errors
    /// What a change comes to cannot be written.
    pub fn decide<B: BoundKey>(
        self,
        bindings: Vec<B>,
        beside: &Beside<B>,
        version_of: impl Fn(&B) -> Lsn,
    ) -> Result<Answer, BatchError> {
        let unmet = self.failed_on(&bindings, &version_of);
        // What the keys were bound to may be told all the same, so the answer waits for the newest of all.
        let newest = bindings.iter().map(BoundKey::lsn).max();
        let unguarded = self
            .guard_failed_on(beside.guard.as_ref(), version_of)
            .filter(|_| unmet.is_none())
            .map(|lsn| newest.map_or(lsn, |newest| newest.max(lsn)));
        let seen = beside.seen.iter().map(|now| now.lsn).max();
        let seen = seen.unwrap_or_default();
        let changed = self.has_changed(&beside.seen).then_some(seen);
        let (head, uncounted) = match self.counted(beside.guard.as_ref()) {
            Ok(head) => (head, None),
            Err(lsn) => (None, Some(lsn.max(seen))),
        };
        let failed_on = unmet.or(unguarded).or(changed).or(uncounted);
        let mut answer = Answer {
            failed_on,
            seen,
            head,
            unguarded: unguarded.is_some(),
            change: match failed_on {
                None => self.outcome(&bindings)?,
                Some(_) => None,
            },
            ..Answer::default()
        };
        self.tell(bindings, &mut answer);
        Ok(answer)
    }

    /// Has `answer` tell what each operation finds.
    fn tell<B: BoundKey>(self, bindings: Vec<B>, answer: &mut Answer) {
        // What earlier operations of the batch leave behind, where they take effect: value and expiry.
        let mut overlay: BTreeMap<&[u8], Left<'_>> = BTreeMap::new();
        let mut deleted: Vec<KeyRange> = Vec::new();
        for (op, binding) in self.batch.ops().zip(bindings) {
            if let Some(range) = op.range() {
                overlay.retain(|key, _| !range.contains(key));
                deleted.push(range);
            }
            // The first key of the range among them: nothing is told of a range.
            let removed = deleted.iter().any(|range| range.contains(op.key()));
            let nothing: Option<&Left<'_>> = removed.then_some(&None);
            let earlier = overlay.get(op.key()).or(nothing);
            let earlier = earlier.filter(|_| answer.failed_on.is_none());
            let (existed, previous, kept) = match earlier {
                Some(pair) => (
                    pair.is_some(),
                    pair.map(|(value, _)| value.to_vec()),
                    pair.and_then(|(_, expiry)| expiry),
                ),
                None => {
                    let kept = binding.expiry();
                    (binding.exists(), binding.into_value(), kept)
                }
            };
            answer.existed.push(existed);
            answer.kept.push(kept);
            if self.options.return_previous {
                answer.previous.push(previous);
            }
            let (key, left) = match op {
                Op::Put { key, value, expiry } => {
                    let expiry = expiry.resolve(self.now, kept);
                    let over = expiry.is_some_and(|expiry| expiry <= self.now);
                    (key, (!over).then_some((value, expiry)))
                }
                Op::Delete { key } => (key, None),
                Op::DeleteRange { .. } => continue,
            };
            overlay.insert(key, left);
        }
    }

    /// Where a binding breaks the condition, which may compare with what is expected: the highest LSN of any.
    fn failed_on<B: BoundKey>(self, bindings: &[B], version_of: impl Fn(&B) -> Lsn) -> Option<Lsn> {
        let expected = self.batch.expected();
        let holds = |binding: &B| match self.options.condition {
            Condition::Always => true,
            Condition::Absent => !binding.exists(),
            Condition::Present => binding.exists(),
            Condition::Equals => binding.value() == Some(expected),
            Condition::Version(version) => version_of(binding) <= version,
        };
        // All of them may be told, so the answer waits for the newest.
        let newest = || bindings.iter().map(BoundKey::lsn).max();
        let of_keys = self.batch.ops().zip(bindings);
        let mut of_keys = of_keys.filter(|(op, _)| op.range().is_none());
        let tells = |binding: &B| {
            !self.options.return_previous || !binding.value().is_some_and(is_composite)
        };
        match of_keys.all(|(_, binding)| holds(binding) && tells(binding)) {
            true => None,
            false => newest(),
        }
    }

    /// Where what the batch is guarded by does not hold: the LSN of what it failed on.
    fn guard_failed_on<B: BoundKey>(
        self,
        binding: Option<&B>,
        version_of: impl Fn(&B) -> Lsn,
    ) -> Option<Lsn> {
        let ((_, guard), binding) = (self.batch.guarded()?, binding?);
        let holds = match guard {
            Guard::Present => binding.exists(),
            Guard::Unwritten(version) => version_of(binding) <= version,
            Guard::Counts { .. } => true,
        };
        (!holds).then_some(binding.lsn())
    }

    /// What the head comes to that guards the batch, if one does.
    ///
    /// # Errors
    /// There is no such head: the LSN of what there is.
    fn counted<B: BoundKey>(self, binding: Option<&B>) -> Result<Option<Counted>, Lsn> {
        let Some((key, Guard::Counts { version, change })) = self.batch.guarded() else {
            return Ok(None);
        };
        let lsn = binding.map(BoundKey::lsn).unwrap_or_default();
        let head = binding.and_then(BoundKey::value).and_then(Composite::parse);
        let head = head.filter(|head| head.version == version).ok_or(lsn)?;
        let number = head.number.checked_add_signed(change).ok_or(lsn)?;
        let value = Composite { number, ..head }.to_value();
        Ok(Some(Counted {
            key: key.to_vec(),
            value: (number > 0).then_some(value),
            expiry: binding.and_then(BoundKey::expiry),
        }))
    }

    /// Whether anything is not so any more on which the batch was computed.
    fn has_changed(self, now: &[SeenNow]) -> bool {
        let mut seen = self.batch.seen().zip(now);
        seen.any(|(then, now)| now.bound != then.bound || now.version > then.version)
    }

    /// What the change that the batch is comes to.
    fn outcome<B: BoundKey>(self, bindings: &[B]) -> Result<Option<Outcome>, BatchError> {
        let (Some(change), Some(binding)) = (self.batch.changes(), bindings.first()) else {
            return Ok(None);
        };
        let op = self.batch.ops().next();
        let Some(Op::Put { key, value, .. }) = op else {
            return Ok(None);
        };
        let was = Was {
            value: binding.value(),
            expiry: binding.expiry(),
            now: self.now,
        };
        let effect = change.of(value, was);
        let batch = match effect.value {
            Some(value) => {
                let mut batch = WriteBatch::new();
                put_or_delete(&mut batch, key, &value, lasting(effect.expiry, self.now))?;
                Some(batch)
            }
            None => None,
        };
        Ok(Some(Outcome {
            told: effect.told,
            batch,
            lsn: binding.lsn(),
        }))
    }
}

impl Answer {
    /// What is to be written of `batch` at the time `now`: of a change what it comes to, and moments for expiries;
    /// `None` where the condition does not hold or the change comes to nothing.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn comes_to<'b>(
        &mut self,
        batch: &'b WriteBatch,
        now: Moment,
    ) -> Result<Option<Cow<'b, WriteBatch>>, BatchError> {
        if self.failed_on.is_some() {
            return Ok(None);
        }
        Ok(match &mut self.change {
            Some(outcome) => outcome.batch.take().map(Cow::Owned),
            None if batch.expires() || self.head.is_some() => {
                Some(Cow::Owned(self.resolve(batch, now)?))
            }
            None => Some(Cow::Borrowed(batch)),
        })
    }

    /// `batch` with moments for expiries: what has expired already becomes a delete. With it, the head that counts.
    fn resolve(&self, batch: &WriteBatch, now: Moment) -> Result<WriteBatch, BatchError> {
        let mut resolved = WriteBatch::new();
        for (at, op) in batch.ops().enumerate() {
            match op {
                Op::Put { key, value, expiry } => {
                    let kept = self.kept.get(at).copied().flatten();
                    let expiry = expiry.resolve(now, kept);
                    put_or_delete(&mut resolved, key, value, lasting(expiry, now))?;
                }
                Op::Delete { .. } | Op::DeleteRange { .. } => resolved.add_any(&op)?,
            }
        }
        if let Some(Counted { key, value, expiry }) = &self.head {
            match value {
                Some(value) => put_or_delete(&mut resolved, key, value, lasting(*expiry, now))?,
                None => resolved.delete_any(key)?,
            }
        }
        Ok(resolved)
    }

    /// The highest LSN of what the batch was computed on: what a batch without operations waits for.
    #[must_use]
    pub const fn seen(&self) -> Lsn {
        self.seen
    }

    /// What the write did that has `appended` up to this LSN; `None`: nothing.
    #[must_use]
    pub fn written(self, appended: Option<Lsn>) -> Written {
        let evaluated_on = self.change.as_ref().map(|outcome| outcome.lsn);
        let lsn = appended.or(self.failed_on).or(evaluated_on);
        Written {
            applied: appended.is_some(),
            unguarded: self.unguarded,
            before: false,
            wait: WaitFor::committed(lsn.unwrap_or_default()),
            previous: self.previous,
            existed: self.existed,
            changed: self.change.map(|outcome| outcome.told),
        }
    }
}

/// When a pair expires that does not have to be deleted at once.
fn lasting(expiry: Option<Moment>, now: Moment) -> Option<Expiry> {
    match expiry {
        None => Some(Expiry::Never),
        Some(expiry) => (expiry > now).then_some(Expiry::At(expiry)),
    }
}

/// Adds a put, or a delete where the pair is over.
fn put_or_delete(
    batch: &mut WriteBatch,
    key: &[u8],
    value: &[u8],
    expiry: Option<Expiry>,
) -> Result<(), BatchError> {
    match expiry {
        Some(expiry) => batch.put_any(key, value, expiry),
        None => batch.delete_any(key),
    }
}
