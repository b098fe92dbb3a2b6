//! What operators of a server ask of all its connections together: the log of slow commands, which connections are to
//! be ended, and where random numbers come from.
//!
//! A connection belongs to a thread. So whoever ends another one notes its number in [`Ends`]; the thread that ran the
//! command takes the notes at the end of its round, and hands each to the thread that it concerns.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::front::Settings;
use super::random::Dice;
use super::slow_log::SlowLog;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Operators {
    pub(super) slow_log: SlowLog,
    pub(super) ends: Ends,
    pub(super) dice: Dice,
}

impl Operators {
    /// As the server is set up.
    pub(super) fn new(settings: &Settings, random: u64) -> Self {
        Self {
            slow_log: SlowLog::new(settings.policy.slow_log),
            ends: Ends::default(),
            dice: Dice::new(random),
        }
    }
}

/// The connections that are to be ended, by number.
#[derive(Debug, Default)]
pub(super) struct Ends {
    any: AtomicBool,
    numbers: Mutex<BTreeSet<u64>>,
}

impl Ends {
    /// These are to be ended, too.
    pub(super) fn add(&self, numbers: &BTreeSet<u64>) {
        if !numbers.is_empty() {
            self.numbers().extend(numbers);
            // Relaxed, here and below: the lock orders what it stands for, and who sets it looks in the same round.
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Takes them; empty, and without a lock, where there are none.
    #[inline]
    pub(super) fn take(&self) -> BTreeSet<u64> {
        if !self.any.load(Ordering::Relaxed) {
            return BTreeSet::new();
        }
        let mut numbers = self.numbers();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut numbers)
    }

    fn numbers(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
