//! What keys are bound to within a transaction: what was read, and over it what its commands have written so far.
//!
//! Commands are carried out on it as a region carries requests out, one behind the other, by the same rules
//! ([`deciding`](argosy_engine::deciding)). So each is answered as it would be alone, and sees those before it. What
//! is left at the end becomes one batch, with what was read: it is written where all of that is still so.
//!
//! A command that needs an element that was not read takes note of it ([`Wants`]) and comes to nothing
//! ([`Halt::NotRead`]): once it was read, all commands are carried out anew.
//!
//! Time stands still meanwhile: it is the region's when the first of the keys were read.

mod elements;

use elements::Counts;
pub(super) use elements::Elements;

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::limits::BATCH_BYTES_MAX;
use argosy_base::{Lsn, Moment};
use argosy_engine::batch::check_key;
use argosy_engine::deciding::{Beside, BoundKey, Dependent};
use argosy_engine::long::{Versions, check_users, is_head, is_reserved};
use argosy_engine::{
    BatchError, Change, Condition, Expiry, Op, Seen, Wanted, WriteBatch, WriteOptions,
};
use argosy_wire::api::Examined;

use super::read_set::{Keeps, ReadSet, Wants};
use crate::service::{Failure, Request, Response};

/// Of a long value, which is neither read nor changed in a transaction.
pub(super) const LONG: &str =
    "values of over 1 MiB are neither read nor changed inside a transaction";

/// How much has to be known of a key for a request to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Nothing.
    Nothing,
    /// Whether it is bound, and when it expires.
    Presence,
    /// Its value.
    Value,
}

/// Shows each key of `request` with what has to be known of it. `false`: the request has no place in a transaction.
pub(super) fn needs_of(request: &Request<'_>, mut see: impl FnMut(&[u8], Need)) -> bool {
    match *request {
        Request::Get { key } | Request::Expiry { key } => see(key, Need::Value),
        Request::GetMany {
            keys,
            wanted,
            at: None,
        } => {
            let need = match wanted {
                Wanted::Values(_) => Need::Value,
                Wanted::Presence => Need::Presence,
            };
            keys.iter().for_each(|key| see(key, need));
        }
        Request::Write { batch, options } if batch.ranges_len() == 0 => {
            let values = options.return_previous
                || options.condition == Condition::Equals
                || batch.changes().is_some();
            // Of a pair that expires the time has to be known, which is read with a key.
            let need = match batch.depends_on_values(options) || batch.expires() {
                true if values => Need::Value,
                true => Need::Presence,
                false => Need::Nothing,
            };
            batch.ops().for_each(|op| see(op.key(), need));
        }
        _ => return false,
    }
    true
}

/// What a key is bound to.
#[derive(Clone, Copy, Debug, Default)]
struct Binding<'a> {
    value: Option<&'a [u8]>,
    expiry: Option<Moment>,
}

impl BoundKey for Binding<'_> {
    fn exists(&self) -> bool {
        self.value.is_some()
    }

    fn expiry(&self) -> Option<Moment> {
        self.expiry
    }

    fn lsn(&self) -> Lsn {
        Lsn(0)
    }

    fn value(&self) -> Option<&[u8]> {
        self.value
    }

    fn into_value(self) -> Option<Vec<u8>> {
        self.value.map(<[u8]>::to_vec)
    }
}

/// A pair that a command has left.
#[derive(Debug)]
struct Pair {
    value: Vec<u8>,
    expiry: Option<Moment>,
}

/// Why a command comes to nothing.
#[derive(Debug)]
pub(super) enum Halt {
    /// What is left is more than a batch takes.
    Limit(BatchError),
    /// It needs what was not read, of which the overlay has taken note.
    NotRead,
    /// It is refused, in words for the client.
    Refused(String),
}

impl Halt {
    /// What a client is told, if nothing is left of all commands.
    pub(super) fn in_words(self) -> String {
        match self {
            Self::Limit(error) => format!("ERR {error} (not applied)"),
            Self::Refused(text) => text,
            Self::NotRead => {
                "ERR internal error: a command lacks what was not asked for".to_owned()
            }
        }
    }
}

impl From<BatchError> for Halt {
    fn from(error: BatchError) -> Self {
        Self::Limit(error)
    }
}

/// See the module documentation.
pub(super) struct Overlay<'a> {
    read: &'a ReadSet,
    /// What commands have left: a pair, or nothing.
    left: BTreeMap<Vec<u8>, Option<Pair>>,
    /// Bytes of that.
    bytes: usize,
    /// Versions for composites.
    versions: &'a Versions,
    /// Those that were drawn here: there are no elements of them but those in `left`.
    fresh: BTreeSet<u128>,
    /// What was needed and not read.
    wants: Wants,
    /// What is read of elements that are read in order.
    keeps: Keeps,
    /// Where random numbers come from: the same ones whenever commands are carried out anew.
    random: u64,
}

impl<'a> Overlay<'a> {
    /// What was `read`, and nothing over it. `random` is where random numbers come from.
    pub(super) fn new(read: &'a ReadSet, versions: &'a Versions, random: u64) -> Self {
        Self {
            read,
            left: BTreeMap::new(),
            bytes: 0,
            versions,
            fresh: BTreeSet::new(),
            wants: Wants::default(),
            keeps: Keeps::Pairs,
            random,
        }
    }

    /// Of elements that are read in order nobody asks for the values. The only command says so.
    pub(super) const fn ask_for_keys(&mut self) {
        self.keeps = Keeps::Keys;
    }

    /// What was needed and not read.
    pub(super) fn take_wants(&mut self) -> Wants {
        std::mem::take(&mut self.wants)
    }

    /// A number below `bound`, which is not zero, each as likely as another.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        // splitmix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// The value of `key`.
    pub(super) fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.binding(key).value
    }

    /// When the pair of `key` expires, and the time.
    pub(super) fn expiry(&self, key: &[u8]) -> (Option<Moment>, Moment) {
        (self.binding(key).expiry, self.read.now)
    }

    /// Binds `key`.
    ///
    /// # Errors
    /// As [`carry_out`](Self::carry_out), or the key or the value has another length than it may have.
    pub(super) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<(), BatchError> {
        let mut batch = WriteBatch::new();
        batch.put_until(key, value, expiry)?;
        self.write(&batch, WriteOptions::default()).map(drop)
    }

    /// Makes `change` of `key`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(super) fn change(&mut self, key: &[u8], change: Change) -> Result<(), BatchError> {
        let mut batch = WriteBatch::new();
        batch.change(key, change, b"")?;
        self.write(&batch, WriteOptions::default()).map(drop)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(super) fn delete(&mut self, key: &[u8]) -> Result<(), BatchError> {
        let mut batch = WriteBatch::new();
        batch.delete(key)?;
        self.write(&batch, WriteOptions::default()).map(drop)
    }

    fn binding(&self, key: &[u8]) -> Binding<'_> {
        match self.left.get(key) {
            Some(left) => left.as_ref().map_or_else(Binding::default, |pair| Binding {
                value: Some(&pair.value),
                expiry: pair.expiry,
            }),
            None => {
                let read = self.read.keys.get(key);
                read.map_or_else(Binding::default, |found| Binding {
                    value: found.value.as_deref(),
                    expiry: found.expiry,
                })
            }
        }
    }

    /// Carries `request` out.
    ///
    /// # Errors
    /// What commands have left is more than a batch takes.
    pub(super) fn carry_out(&mut self, request: &Request<'_>) -> Result<Response, BatchError> {
        let invalid = |error: BatchError| Response::Failed(Failure::Invalid(error.to_string()));
        let valid = |key: &[u8]| check_key(key).and_then(|()| check_users(key));
        Ok(match *request {
            Request::Get { key } => match valid(key) {
                Ok(()) => Response::Value(self.value(key).map(<[u8]>::to_vec)),
                Err(error) => invalid(error),
            },
            Request::Expiry { key } => match valid(key) {
                Ok(()) => Response::Expiry {
                    len: self.value(key).map(|value| value.len() as u64),
                    at: self.binding(key).expiry,
                    now: self.read.now,
                },
                Err(error) => invalid(error),
            },
            Request::GetMany { keys, wanted, .. } => {
                let told = |key| match wanted {
                    Wanted::Values(_) => self.value(key).map(<[u8]>::to_vec),
                    Wanted::Presence => self.value(key).map(|_| Vec::new()),
                };
                Response::Values(keys.iter().map(told).collect())
            }
            Request::Write { batch, options } => return self.write(batch, options),
            _ => {
                let what = "this has no place in a transaction".to_owned();
                Response::Failed(Failure::Invalid(what))
            }
        })
    }

    fn write(&mut self, batch: &WriteBatch, options: WriteOptions) -> Result<Response, BatchError> {
        let bindings = batch.ops().map(|op| self.binding(op.key()));
        let bindings: Vec<Binding<'_>> = bindings.collect();
        let is_long = |binding: &Binding<'_>| binding.value.is_some_and(is_head);
        if options.return_previous && bindings.iter().any(is_long) {
            return Ok(Response::Failed(Failure::Invalid(LONG.to_owned())));
        }
        let now = self.read.now;
        let beside = Beside {
            guard: None,
            seen: Vec::new(),
        };
        let asked = Dependent::new(batch, options, now);
        let mut answer = asked.decide(bindings, &beside, |_| Lsn(0))?;
        let comes_to = answer.comes_to(batch, now)?;
        let applied = comes_to.is_some();
        for op in comes_to.iter().flat_map(|batch| batch.ops()) {
            self.apply(&op)?;
        }
        let written = answer.written(applied.then_some(Lsn(0)));
        Ok(Response::Written {
            applied: written.applied,
            existed: written.existed,
            previous: written.previous,
            changed: written.changed,
        })
    }

    fn apply(&mut self, op: &Op<'_>) -> Result<(), BatchError> {
        let bytes_of = |pair: &Option<Pair>| pair.as_ref().map_or(0, |pair| pair.value.len());
        let left = match *op {
            Op::Put { value, expiry, .. } => Some(Pair {
                value: value.to_vec(),
                expiry: expiry.resolve(self.read.now, None),
            }),
            Op::Delete { .. } | Op::DeleteRange { .. } => None,
        };
        let key = op.key();
        self.bytes += bytes_of(&left);
        match self.left.get_mut(key) {
            Some(place) => self.bytes -= bytes_of(&std::mem::replace(place, left)),
            None => {
                self.bytes += key.len();
                self.left.insert(key.to_vec(), left);
            }
        }
        match self.bytes > BATCH_BYTES_MAX {
            true => Err(BatchError::TooManyBytes),
            false => Ok(()),
        }
    }

    /// Puts into `batch` what commands have left, and what was read. Returns whether anything is to be written. A
    /// single command that names the elements that it changes may `count`: others may change other elements of the
    /// composite at the same time.
    ///
    /// # Errors
    /// It is more than a batch takes.
    pub(super) fn into_batch(
        self,
        count: bool,
        batch: &mut WriteBatch,
    ) -> Result<bool, BatchError> {
        batch.clear();
        batch.keep_together();
        let counts = if count { self.counts() } else { None };
        let head = counts.as_ref().map(|counts| counts.key);
        for (key, left) in self.left.iter().filter(|(key, _)| Some(*key) != head) {
            match left {
                // Its composite has come and gone.
                _ if self.is_fresh(key) && !self.is_named(key) => {}
                Some(Pair { value, expiry }) => {
                    let expiry = expiry.map_or(Expiry::Never, Expiry::At);
                    batch.put_any(key, value, expiry)?;
                }
                // It is not there.
                None if self.is_fresh(key) => {}
                None if self.read.keys.get(key).is_some_and(is_unbound) => {}
                None => batch.delete_any(key)?,
            }
        }
        // What changes an element writes its head, so the head tells. One that counts does not.
        let tells = |key: &Vec<u8>| match head {
            Some(head) => key != head,
            None => !is_reserved(key),
        };
        if let Some(Counts { key, guard }) = counts {
            batch.guard(key, guard);
        }
        for (key, found) in self.read.keys.iter().filter(|(key, _)| tells(key)) {
            batch.saw(Seen {
                key,
                bound: found.value.is_some(),
                version: found.version,
            })?;
        }
        Ok(!batch.is_empty())
    }
}

const fn is_unbound(found: &Examined) -> bool {
    found.value.is_none()
}
