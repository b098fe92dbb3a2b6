//! What is wrong in a run, and by which chances.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::Instant;

use crate::judge::ProcessEnd;
use crate::random::Random;

/// By which devices and copies are damaged.
#[derive(Debug)]
pub(super) struct Chances {
    pub(super) damaging: Random,
    pub(super) spoiling: Random,
}

/// What is wrong with servers, and what becomes of it.
pub(crate) struct Harm {
    /// Servers that have lost power since every region was whole.
    pub(super) lost: BTreeSet<usize>,
    /// The same, whose device is damaged or was replaced.
    pub(super) emptied: BTreeSet<usize>,
    /// Regions of which it is not known yet what they hold, and how their process ended.
    pub(super) uncounted: BTreeMap<usize, ProcessEnd>,
    /// When processes ended whose servers are down.
    pub(super) ended: BTreeMap<usize, Instant>,
    /// A device was stalled, or a server stopped, lately: what was appended may not be flushed for long.
    pub(super) stalled: bool,
    /// Servers whose device fails, or has failed, in this episode.
    pub(super) faulted: BTreeSet<usize>,
    /// What becomes of devices that have failed.
    pub(super) failing: Random,
    /// Servers whose device is damaged, and where.
    pub(super) damaged: BTreeSet<usize>,
    /// Servers of which levels are damaged, which the others have to repair.
    pub(super) healing: BTreeSet<usize>,
    /// Servers of which windows were damaged since every region was whole.
    pub(super) rotten: BTreeSet<usize>,
    pub(super) chances: Chances,
    /// A copy that has to take another member's has no room for it beside its own.
    pub(super) no_room_to_return: bool,
}

impl Harm {
    /// Nothing is wrong.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            lost: BTreeSet::new(),
            emptied: BTreeSet::new(),
            uncounted: BTreeMap::new(),
            ended: BTreeMap::new(),
            stalled: false,
            faulted: BTreeSet::new(),
            failing: Random::new(seed, 19),
            damaged: BTreeSet::new(),
            healing: BTreeSet::new(),
            rotten: BTreeSet::new(),
            chances: Chances {
                damaging: Random::new(seed, 23),
                spoiling: Random::new(seed, 44),
            },
            no_room_to_return: false,
        }
    }

    /// How many others than `server` have lost something.
    pub(super) fn others_gone(&self, server: usize) -> usize {
        let gone = self.lost.union(&self.emptied);
        gone.filter(|other| **other != server).count()
    }

    /// Whether no server has lost anything yet, or may.
    pub(super) fn all_have_what_they_had(&self) -> bool {
        self.lost.is_empty() && self.emptied.is_empty() && self.faulted.is_empty()
    }

    /// Whether a device fails or is damaged.
    pub(super) fn is_hurt(&self, server: usize) -> bool {
        let damaged = [&self.damaged, &self.healing, &self.rotten];
        let damaged = damaged.iter().any(|servers| servers.contains(&server));
        self.faulted.contains(&server) || damaged
    }
}
