//! Window memory as the engine's callers hold it, and as a replica does.

use argosy_engine::Windows;

use super::{Slots, Survivors};

/// The memory of `windows` for a replica.
///
/// # Panics
/// When a region has no such log.
#[must_use]
pub fn slots_of(windows: Windows) -> Slots {
    let mut slots = Slots::default();
    for of_log in windows {
        slots[of_log.log.index()] = of_log.slots;
    }
    slots
}

/// What is left of windows, for a replica.
///
/// # Panics
/// When a region has no such log.
#[must_use]
pub fn survivors_of(left: argosy_engine::Survivors) -> Survivors {
    let mut survivors = Survivors::default();
    for of_log in left {
        survivors[of_log.log.index()] = of_log.slots;
    }
    survivors
}
