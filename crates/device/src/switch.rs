//! How the catalog changes: a state machine that writes both slots, one after the other.
//!
//! 1. A change is put into the wanted catalog. If a round is under way, it waits for the next one,
//!    together with all others that come meanwhile.
//! 2. A round writes slot 0, syncs, writes slot 1, syncs. The first sync is the commit point; the
//!    changes of the round are reported after the second, when no damage to one slot can take
//!    them back any more.
//! 3. What an entry referred to before stays referred to until the round has ended.
//!
//! A write that finds no room beneath the device, where overwriting needs some, is tried again: the round waits for it.
//! After any other error nothing is tried again: every change fails until the store is reopened.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::DeviceSegment;

use crate::buffer::Buffer;
use crate::catalog::{
    CATALOG_BYTES_MAX, Catalog, RegionChange, RegionEntry, SLOTS_AT, encoded_len,
};
use crate::io::{Device, DeviceError, Io, Ticket};

#[derive(Debug)]
enum Phase {
    Idle,
    /// The slot is being written.
    Writing {
        slot: usize,
        ticket: Ticket,
    },
    /// The slot was written and is being synced.
    Syncing {
        slot: usize,
        ticket: Ticket,
    },
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct CatalogSwitch {
    /// What the caller asked for last.
    wanted: Catalog,
    /// What the present or last round writes.
    written: Catalog,
    /// How many changes were asked for, are part of the present or last round, have ended.
    asked: u64,
    begun: u64,
    ended: u64,
    phase: Phase,
    failed: Option<DeviceError>,
    /// What the catalog no longer refers to once so many changes have ended; in rising order.
    leaving: VecDeque<(u64, Vec<DeviceSegment>)>,
}

impl CatalogSwitch {
    /// A switch of the catalog that both slots hold.
    pub(crate) fn new(catalog: Catalog) -> Self {
        Self {
            wanted: catalog.clone(),
            written: catalog,
            asked: 0,
            begun: 0,
            ended: 0,
            phase: Phase::Idle,
            failed: None,
            leaving: VecDeque::new(),
        }
    }

    /// What was asked for last, durable or not.
    pub(crate) fn wanted(&self) -> &Catalog {
        &self.wanted
    }

    /// How often the catalog has changed, with the round that is under way.
    pub(crate) const fn generation(&self) -> u64 {
        self.written.generation
    }

    /// Asks for `changes`, all of them or none. Returns the number of the change, or `None` where the catalog has no
    /// room for it.
    ///
    /// The caller has taken a reference to each segment of the new entries.
    pub(crate) fn change(&mut self, changes: Vec<RegionChange>) -> Option<u64> {
        let regions = &self.wanted.regions;
        let stays = |entry: &&RegionEntry| changes.iter().all(|it| it.region() != entry.region);
        let new = changes.iter().filter_map(RegionChange::entry);
        if encoded_len(regions.values().filter(stays).chain(new)) > CATALOG_BYTES_MAX {
            return None;
        }
        self.asked += 1;
        for change in changes {
            let old = match change {
                RegionChange::Set(entry) => self.wanted.regions.insert(entry.region, entry),
                RegionChange::Remove(region) => self.wanted.regions.remove(&region),
            };
            if let Some(old) = old {
                self.leaving.push_back((self.asked, old.manifest));
            }
        }
        Some(self.asked)
    }

    /// The number of the last change that was asked for.
    pub(crate) const fn last(&self) -> u64 {
        self.asked
    }

    /// How change `number` ended, or `None` while it is under way.
    pub(crate) fn result(&self, number: u64) -> Option<Result<(), DeviceError>> {
        if self.ended >= number {
            return Some(Ok(()));
        }
        self.failed.clone().map(Err)
    }

    /// What is waited for, if anything.
    pub(crate) fn waits_for(&self) -> Option<Ticket> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Writing { ticket, .. } | Phase::Syncing { ticket, .. } => Some(ticket.clone()),
        }
    }

    /// Goes on as far as it can. Returns what the catalog no longer refers to.
    #[must_use]
    pub(crate) fn advance(&mut self, device: &dyn Device) -> Vec<DeviceSegment> {
        while self.failed.is_none() && self.step(device) {}
        let mut left = Vec::new();
        while let Some((number, _)) = self.leaving.front() {
            if *number > self.ended {
                break;
            }
            let (_, segments) = self.leaving.pop_front().expect("just seen");
            left.extend(segments);
        }
        left
    }

    /// One step of a round. Returns whether another may be possible at once.
    fn step(&mut self, device: &dyn Device) -> bool {
        let next = match &self.phase {
            Phase::Idle if self.asked == self.ended => return false,
            Phase::Idle => {
                self.begun = self.asked;
                self.wanted.generation = self.written.generation + 1;
                self.written = self.wanted.clone();
                self.write(device, 0)
            }
            Phase::Writing { slot, ticket } | Phase::Syncing { slot, ticket } => {
                let slot = *slot;
                match ticket.poll() {
                    None => return false,
                    Some(Err(error)) if error.is_full() => {
                        self.phase = self.write(device, slot);
                        return false;
                    }
                    Some(Err(error)) => {
                        self.failed = Some(error);
                        Phase::Idle
                    }
                    Some(Ok(())) => self.after(device, slot),
                }
            }
        };
        self.phase = next;
        true
    }

    /// What follows the present phase, which has succeeded.
    fn after(&mut self, device: &dyn Device, slot: usize) -> Phase {
        match (&self.phase, slot) {
            (Phase::Writing { .. }, _) => Phase::Syncing {
                slot,
                ticket: device.submit(Io::Sync),
            },
            (_, 0) => self.write(device, 1),
            _ => {
                self.ended = self.begun;
                Phase::Idle
            }
        }
    }

    fn write(&self, device: &dyn Device, slot: usize) -> Phase {
        let ticket = device.submit(write_slot(&self.written, slot));
        Phase::Writing { slot, ticket }
    }
}

/// The request that writes `catalog` to `slot`.
pub(crate) fn write_slot(catalog: &Catalog, slot: usize) -> Io {
    let data = Buffer::from_slice(&catalog.encode(slot));
    let range = 0..data.len();
    Io::Write {
        at: u64::from(SLOTS_AT[slot]),
        data: Arc::new(data),
        range,
    }
}
