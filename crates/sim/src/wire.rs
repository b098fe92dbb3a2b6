//! Bits that flip on the way from one server to another.
//!
//! They flip in what lands in the slots for segments, and in messages: whoever takes these checks them, and breaks
//! the link where they are damaged. They do not flip in words, and not in windows, which a writer counts as
//! written: what flips there is damage of that member (see `rotting.rs`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use argosy_fabric::MemoryKey;
use argosy_server::node::checked_from;
use parking_lot::Mutex;

use crate::plan::{Episode, Event, Plan, WorldKind};
use crate::random::Random;

/// Of 100 seeds with backups, in how many bits flip; of 100 of their episodes, in how many.
const SEEDS_PERCENT: usize = 30;
const EPISODES_PERCENT: usize = 50;

/// What all servers write over.
pub(crate) struct Wire {
    random: Mutex<Random>,
    /// Of 1000 writes, in how many a bit flips.
    permille: AtomicU32,
    flipped: AtomicU64,
}

impl Wire {
    /// A wire that is good.
    pub(crate) fn new(random: Random) -> Self {
        Self {
            random: Mutex::new(random),
            permille: AtomicU32::new(0),
            flipped: AtomicU64::new(0),
        }
    }

    /// Has a bit flip in so many of 1000 writes from now on.
    pub(crate) fn set(&self, permille: u32) {
        self.permille.store(permille, Ordering::Relaxed);
    }

    /// How many bits have flipped.
    pub(crate) fn flipped(&self) -> u64 {
        self.flipped.load(Ordering::Relaxed)
    }

    /// What becomes of `bytes` on their way to byte `offset` of the memory of `key`; `None`: they stay as they are.
    pub(crate) fn damage(&self, key: MemoryKey, offset: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let permille = self.permille.load(Ordering::Relaxed) as usize;
        let checked = checked_from(key).is_some_and(|from| offset >= from);
        if permille == 0 || !checked || bytes.is_empty() {
            return None;
        }
        let mut random = self.random.lock();
        if random.below(1000) >= permille {
            return None;
        }
        let mut bytes = bytes.to_vec();
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        self.flipped.fetch_add(1, Ordering::Relaxed);
        Some(bytes)
    }
}

/// The plan, with a wire on which bits flip where the seed says so.
pub(crate) fn with_bad_wires(mut plan: Plan, random: &mut Random) -> Plan {
    if plan.kind != WorldKind::Replicated || !random.chance(SEEDS_PERCENT) {
        return plan;
    }
    for episode in &mut plan.episodes {
        if random.chance(EPISODES_PERCENT) {
            flip(episode, random);
        }
    }
    plan
}

/// Has bits flip in an episode for a while.
fn flip(episode: &mut Episode, random: &mut Random) {
    let from = random.micros(0, 20_000);
    let permille = random.pick(&[2, 20, 100]);
    episode.events.push((from, Event::Flip(permille)));
    let until = from + random.micros(20_000, 300_000);
    episode.events.push((until, Event::Flip(0)));
    episode.events.sort_by_key(|(at, _)| *at);
}
