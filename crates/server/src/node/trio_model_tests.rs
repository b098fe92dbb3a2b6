//! What a client of [three servers](super::trio_tests) knows: what each key may be bound to, by how it was answered.
//! What was begun is settled by its answer. Where the outcome is unknown, a key may be bound to either, and what is
//! found decides: all of a request was done, or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use argosy_base::Outcome;

use crate::service::{Failure, Response};

/// What a key is bound to: the number of the write, or nothing.
pub(super) type Bound = Option<u32>;

/// What a request does if it is carried out.
pub(super) type Effect = Vec<(u32, Bound)>;

/// What may be there.
#[derive(Debug, Default)]
pub(super) struct Model {
    may_be: BTreeMap<u32, BTreeSet<Bound>>,
    pub(super) pending: BTreeMap<u64, Effect>,
    /// Those of which it is unknown whether all of it was done, or none.
    undecided: Vec<Effect>,
    pub(super) asked: u64,
    pub(super) writes: u32,
    /// How writes were answered since this was looked at last.
    pub(super) told: Told,
}

/// Answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) applied: usize,
    pub(super) refused: usize,
    pub(super) unknown: usize,
    /// What the last one said that was not applied.
    pub(super) why: String,
}

impl Model {
    pub(super) fn settle(&mut self, token: u64, response: &Response) {
        let Some(effect) = self.pending.remove(&token) else {
            return;
        };
        let outcome = match response {
            Response::Written { applied: true, .. } => Outcome::Applied,
            Response::Failed(
                Failure::Unavailable { outcome, what }
                | Failure::Busy { outcome, what }
                | Failure::Storage { outcome, what },
            ) => {
                self.told.why.clone_from(what);
                *outcome
            }
            other => panic!("a write is answered by {other:?}"),
        };
        match outcome {
            Outcome::Applied => {
                self.told.applied += 1;
                for (key, bound) in effect {
                    self.may_be.insert(key, BTreeSet::from([bound]));
                }
            }
            Outcome::NotApplied => self.told.refused += 1,
            Outcome::Unknown => self.is_unknown(effect),
        }
    }

    fn is_unknown(&mut self, effect: Effect) {
        self.told.unknown += 1;
        for (key, bound) in &effect {
            let may_be = self.may_be.entry(*key).or_default();
            if may_be.is_empty() {
                may_be.insert(None);
            }
            may_be.insert(*bound);
        }
        self.undecided.push(effect);
    }

    /// Whoever was asked is gone.
    pub(super) fn give_up(&mut self) {
        for (_, effect) in std::mem::take(&mut self.pending) {
            self.is_unknown(effect);
        }
    }

    /// The keys that may be bound, in `range`.
    pub(super) fn keys(&self, range: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        self.may_be.range(range).map(|(key, _)| *key)
    }

    /// Finds what is wrong with `pairs`, all that there is. What is there decides what was unknown.
    pub(super) fn judge(&mut self, pairs: &BTreeMap<u32, u32>, what: &str) {
        for (key, may_be) in &self.may_be {
            let bound = pairs.get(key).copied();
            assert!(
                may_be.contains(&bound),
                "{what}: key {key} has {bound:?}, not one of {may_be:?}"
            );
        }
        for key in pairs.keys() {
            assert!(
                self.may_be.contains_key(key),
                "{what}: nobody wrote key {key}"
            );
        }
        for effect in std::mem::take(&mut self.undecided) {
            let is_done = |(key, bound): &(u32, Bound)| pairs.get(key).copied() == *bound;
            let done = effect.iter().filter(|one| is_done(one)).count();
            // Those that were bound to nothing before may look done.
            let any = effect
                .iter()
                .filter(|(_, bound)| bound.is_some())
                .any(is_done);
            assert!(
                !any || done == effect.len(),
                "{what}: part of a request was done: {effect:?}"
            );
        }
        let one = |(key, bound): (&u32, &u32)| (*key, BTreeSet::from([Some(*bound)]));
        self.may_be = pairs.iter().map(one).collect();
    }
}

pub(super) fn key_of(key: u32) -> Vec<u8> {
    format!("{key:08}").into_bytes()
}

/// Small, medium and large values by turns.
pub(super) fn value_of(key: u32, write: u32) -> Vec<u8> {
    let len = match key % 4 {
        0 => 20,
        1 | 2 => 240,
        _ => 1300,
    };
    let mut value = format!("{write:08}").into_bytes();
    value.resize(len, b'0' + u8::try_from(key % 64).expect("small"));
    value
}

/// The write that `value` of `key` is of.
pub(super) fn write_of(key: u32, value: &[u8]) -> u32 {
    let text = std::str::from_utf8(&value[..8]).expect("digits");
    let write = text.parse().expect("digits");
    assert_eq!(value, value_of(key, write), "key {key}");
    write
}
