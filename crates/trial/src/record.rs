//! What was asked and answered: of each key its history, and of each request when it was and what became of it.
//!
//! # Memory
//!
//! A request takes [`BYTES_EACH`] bytes at most. Clients keep a pace ([`crate::load`]), so their number is bounded
//! by the length of a trial: of 20 minutes, with 24 clients of 40 requests a second, 1.2 million requests and some
//! 100 MB. Histories are checked whole at the end; nothing is cut.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use argosy_base::Instant;
use argosy_history::counter::Increment;
use argosy_history::register::Access;
use parking_lot::Mutex;

use crate::doors::Door;
use crate::keys::{self, Use};

/// Bytes of memory that a request takes, but for what vectors have to spare.
pub(crate) const BYTES_EACH: usize = size_of::<Access>() + size_of::<Sample>();

const _: () = assert!(BYTES_EACH <= 104);

/// The history of one key.
#[derive(Debug)]
pub(crate) enum History {
    /// Of a register. It begins unbound.
    Register(Vec<Access>),
    /// Of a counter.
    Counter(Vec<Increment>),
}

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    /// Read the value.
    Get,
    /// Read whether there is one.
    Exists,
    /// Bind, whatever is there.
    Set,
    /// The same, and tell what was there.
    Swap,
    /// Bind what is not bound.
    SetAbsent,
    /// Bind what is bound.
    SetPresent,
    /// Bind what is bound to a certain value.
    SetEqual,
    /// Remove.
    Delete,
    /// Add one.
    Increment,
    /// Add one to a field of a hash.
    AddToField,
    /// Add one to a score in a sorted set.
    AddToScore,
    /// Put an element into a set.
    AddMember,
    /// Take an element out of a set.
    RemoveMember,
    /// Read whether a set has an element.
    HasMember,
    /// A transaction ([`transactions`](crate::transactions)).
    Transact,
}

impl Op {
    /// Whether it adds one to a counter.
    #[must_use]
    pub(crate) const fn is_increment(self) -> bool {
        matches!(self, Self::Increment | Self::AddToField | Self::AddToScore)
    }

    /// Whether it only reads.
    #[must_use]
    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Exists | Self::HasMember)
    }

    /// All of them.
    pub(crate) const ALL: [Self; 15] = [
        Self::Get,
        Self::Exists,
        Self::Set,
        Self::Swap,
        Self::SetAbsent,
        Self::SetPresent,
        Self::SetEqual,
        Self::Delete,
        Self::Increment,
        Self::AddToField,
        Self::AddToScore,
        Self::AddMember,
        Self::RemoveMember,
        Self::HasMember,
        Self::Transact,
    ];

    /// Its name in a summary.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Exists => "exists",
            Self::Set => "set",
            Self::Swap => "swap",
            Self::SetAbsent => "set-if-absent",
            Self::SetPresent => "set-if-present",
            Self::SetEqual => "set-if-equal",
            Self::Delete => "delete",
            Self::Increment => "increment",
            Self::AddToField => "hash-increment",
            Self::AddToScore => "zset-increment",
            Self::AddMember => "set-add",
            Self::RemoveMember => "set-remove",
            Self::HasMember => "set-has",
            Self::Transact => "transaction",
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Came {
    /// It was answered. A write whose condition held took effect.
    Answered,
    /// It was answered that its condition did not hold.
    Unmet,
    /// An error: it had no effect.
    NotApplied,
    /// An error: a write may have taken effect, or may yet.
    Unknown,
}

impl Came {
    /// Whether the cluster has said what there is to say.
    #[must_use]
    pub(crate) const fn is_answer(self) -> bool {
        matches!(self, Self::Answered | Self::Unmet)
    }
}

/// One request, as far as its time matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When it was sent, in nanoseconds of the trial's clock.
    pub began: u64,
    /// When it was answered, or an error was known.
    pub ended: u64,
    /// The region of its key.
    pub region: u8,
    /// How it was asked.
    pub door: Door,
    /// What for.
    pub op: Op,
    /// What became of it.
    pub came: Came,
}

/// An error that is not expected of a cluster, whatever fails in it, and that proves nothing wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Odd {
    /// How often there was one of these words.
    pub count: u64,
    /// When the first was known.
    pub first: Instant,
}

/// Histories that many threads write, and beside them what is wrong or odd, in words.
#[derive(Debug)]
pub(crate) struct Record {
    histories: Vec<Mutex<History>>,
    next: AtomicU32,
    wrong: Mutex<Vec<String>>,
    odd: Mutex<BTreeMap<String, Odd>>,
}

/// Most words that are kept of what is wrong, and of what is odd.
const WORDS_MAX: usize = 20;

impl Record {
    /// Of so many keys, none of which was asked for yet.
    #[must_use]
    pub(crate) fn of(keys: usize) -> Self {
        let empty = |key| match keys::use_of(key) {
            Use::Register | Use::Member => History::Register(Vec::new()),
            Use::Counter | Use::Field | Use::Score => History::Counter(Vec::new()),
        };
        Self {
            histories: (0..keys).map(|key| Mutex::new(empty(key))).collect(),
            next: AtomicU32::new(0),
            wrong: Mutex::new(Vec::new()),
            odd: Mutex::new(BTreeMap::new()),
        }
    }

    /// A number for the next request, which no other has.
    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A register was asked for.
    ///
    /// # Panics
    /// `key` is none.
    pub(crate) fn access(&self, key: usize, access: Access) {
        match &mut *self.histories[key].lock() {
            History::Register(accesses) => accesses.push(access),
            History::Counter(_) => panic!("key {key} is a counter"),
        }
    }

    /// A counter was incremented, or may have been.
    ///
    /// # Panics
    /// `key` is none.
    pub(crate) fn increment(&self, key: usize, increment: Increment) {
        match &mut *self.histories[key].lock() {
            History::Counter(increments) => increments.push(increment),
            History::Register(_) => panic!("key {key} is a register"),
        }
    }

    /// A key held what nobody wrote, an answer was none, or the cluster did not do what it was told.
    pub(crate) fn wrong(&self, words: String) {
        let mut wrong = self.wrong.lock();
        if wrong.len() < WORDS_MAX {
            wrong.push(words);
        }
    }

    /// There was an error of a kind that is not expected.
    pub(crate) fn odd(&self, words: String, now: Instant) {
        let mut odd = self.odd.lock();
        if let Some(known) = odd.get_mut(&words) {
            known.count += 1;
        } else if odd.len() < WORDS_MAX {
            odd.insert(
                words,
                Odd {
                    count: 1,
                    first: now,
                },
            );
        }
    }

    /// All histories, and what was wrong besides, in words.
    #[must_use]
    pub(crate) fn into_parts(self) -> Parts {
        Parts {
            histories: self.histories.into_iter().map(Mutex::into_inner).collect(),
            wrong: self.wrong.into_inner(),
            odd: self.odd.into_inner(),
        }
    }
}

/// What a [`Record`] holds.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Of each key.
    pub histories: Vec<History>,
    /// What was wrong besides, in words.
    pub wrong: Vec<String>,
    /// What was odd, by words.
    pub odd: BTreeMap<String, Odd>,
}
