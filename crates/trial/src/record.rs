//! What was asked and answered: of each key its history, and of each request when it was and what became of it.
//!
//! # Memory
//!
//! A request takes [`BYTES_EACH`] bytes at most. Clients keep a pace ([`crate::load`]), so their number is bounded
//! by the length of a trial: of 20 minutes, with 24 clients of 40 requests a second, 1.2 million requests and some
//! 100 MB. Histories are checked whole at the end; nothing is cut.

use std::sync::atomic::{AtomicU32, Ordering};

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
}

impl Op {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Get,
        Self::Exists,
        Self::Set,
        Self::Swap,
        Self::SetAbsent,
        Self::SetPresent,
        Self::SetEqual,
        Self::Delete,
        Self::Increment,
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

/// Histories that many threads write. What a key holds that nobody wrote is kept beside them, in words.
#[derive(Debug)]
pub(crate) struct Record {
    histories: Vec<Mutex<History>>,
    next: AtomicU32,
    foreign: Mutex<Vec<String>>,
}

/// Most values that nobody wrote, and errors that are not expected, of which the words are kept.
const WORDS_MAX: usize = 20;

impl Record {
    /// Of so many keys, none of which was asked for yet.
    #[must_use]
    pub(crate) fn of(keys: usize) -> Self {
        let empty = |key| match keys::use_of(key) {
            Use::Register => History::Register(Vec::new()),
            Use::Counter => History::Counter(Vec::new()),
        };
        Self {
            histories: (0..keys).map(|key| Mutex::new(empty(key))).collect(),
            next: AtomicU32::new(0),
            foreign: Mutex::new(Vec::new()),
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

    /// A key held what nobody wrote, or an answer was none.
    pub(crate) fn wrong(&self, words: String) {
        let mut foreign = self.foreign.lock();
        if foreign.len() < WORDS_MAX {
            foreign.push(words);
        }
    }

    /// All histories, and what was wrong besides, in words.
    #[must_use]
    pub(crate) fn into_parts(self) -> Parts {
        Parts {
            histories: self.histories.into_iter().map(Mutex::into_inner).collect(),
            wrong: self.foreign.into_inner(),
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
}
