//! A device in memory that fails as real ones do, for tests and the simulator. One seed decides
//! everything.
//!
//! Submitted requests wait until [`MemoryDevice::run_one`] completes one, in any order (an *eager*
//! device completes them at once). For every block the device keeps what is durable and, until a
//! sync covers them, each later content: a power loss may leave any of these.
//!
//! What survives, by kind of crash:
//!
//! | | synced | completed, not synced | in flight |
//! |---|---|---|---|
//! | [`Crash::Kill`] | all | all (and still not synced) | each write wholly, in part, or not |
//! | [`Crash::PowerLoss`] | all | any content since the sync, block by block | as if half completed |
//!
//! A power loss also tears at most one block: some of its 512-byte sectors are of one content, some
//! of the next.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use argosy_base::DeviceSegment;
use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};

use crate::io::{Counters, Device, DeviceError, Io, OpKind, Ticket, Waker, check_range};
use crate::rng::Rng;

mod misdirect;
mod versions;

use misdirect::Misdirect;
pub use misdirect::Misdirected;
use versions::{Block, Versions};

/// What a device writes at once, whatever happens: the atomicity that is assumed at a power loss.
const SECTOR_SIZE: usize = 512;

/// How a device's user ends; see the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies, the machine goes on.
    Kill,
    /// The machine loses power.
    PowerLoss,
}

/// What has been done to a device and those that it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Writes that landed elsewhere.
    pub misdirected_writes: u64,
    /// Bits that were flipped.
    pub flipped_bits: u64,
    /// Blocks that kept sectors of two contents.
    pub torn_blocks: u64,
    /// Blocks that fell back to an earlier content.
    pub lost_unsynced_blocks: u64,
    /// Writes in flight of which nothing, or only a part, was kept.
    pub lost_in_flight_writes: u64,
}

#[derive(Debug)]
struct Pending {
    io: Io,
    ticket: Ticket,
    /// Writes that had completed when this was submitted: those that a sync covers.
    covers: u64,
}

#[derive(Debug, Default)]
struct Faults {
    /// How many more requests of a kind succeed before one fails.
    fail_after: BTreeMap<u8, u64>,
    misdirect: Misdirect,
    full: bool,
    /// What the file system beneath has left for what is not stored yet.
    room: Option<u64>,
    /// Set by a failed write or sync, for good: no write and no sync succeeds any more.
    broken: Option<DeviceError>,
    /// Set by a crash: nothing succeeds any more.
    crashed: bool,
}

struct State {
    rng: Rng,
    blocks: BTreeMap<u64, Versions>,
    /// Blocks with unsynced contents.
    dirty: BTreeSet<u64>,
    /// How many writes have completed.
    completed: u64,
    pending: Vec<Pending>,
    faults: Faults,
    fault_counters: FaultCounters,
    counters: Counters,
    waker: Option<Waker>,
}

/// See the module documentation.
pub struct MemoryDevice {
    len: u64,
    eager: bool,
    state: Mutex<State>,
}

impl MemoryDevice {
    /// `len` zero bytes, whole segments; requests wait for [`run_one`](Self::run_one).
    #[must_use]
    pub fn new(len: u64, seed: u64) -> Self {
        Self::build(len, seed, false)
    }

    /// `len` zero bytes, whole segments; requests complete when they are submitted.
    #[must_use]
    pub fn eager(len: u64, seed: u64) -> Self {
        Self::build(len, seed, true)
    }

    /// This device, whose requests wait from now on for [`run_one`](Self::run_one).
    #[must_use]
    pub fn lazy(mut self) -> Self {
        self.eager = false;
        self
    }

    fn build(len: u64, seed: u64, eager: bool) -> Self {
        assert!(
            len.is_multiple_of(SEGMENT_SIZE as u64),
            "a device has whole segments"
        );
        let state = State {
            rng: Rng::new(seed),
            blocks: BTreeMap::new(),
            dirty: BTreeSet::new(),
            completed: 0,
            pending: Vec::new(),
            faults: Faults::default(),
            fault_counters: FaultCounters::default(),
            counters: Counters::default(),
            waker: None,
        };
        let state = Mutex::new(state);
        Self { len, eager, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    // --- Progress ---

    /// How many requests wait.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state().pending.len()
    }

    /// Completes one of the waiting requests, of the seed's choice. Returns whether there was one; while
    /// the device is full, writes go on waiting.
    pub fn run_one(&self) -> bool {
        let mut state = self.state();
        let full = state.faults.full && state.faults.broken.is_none();
        let able = |pending: &Pending| !(full && pending.io.kind() == OpKind::Write);
        let able: Vec<usize> = (0..state.pending.len())
            .filter(|index| able(&state.pending[*index]))
            .collect();
        if able.is_empty() {
            return false;
        }
        let index = able[state.rng.below(able.len())];
        let pending = state.pending.swap_remove(index);
        let result = state.perform(self.len, &pending.io, pending.covers);
        let waker = state.waker.clone();
        drop(state);
        pending.ticket.end(result);
        if let Some(waker) = waker {
            waker();
        }
        true
    }

    /// Completes all waiting requests.
    pub fn run_all(&self) {
        while self.run_one() {}
    }

    // --- Crashes ---

    /// Ends this device as `kind` says: whoever still has it gets errors. Returns the device that
    /// the next process finds.
    #[must_use]
    pub fn crash(&self, kind: Crash) -> Self {
        let seed = self.state().rng.next();
        let after = self.crash_clone(kind, seed);
        let mut state = self.state();
        state.blocks.clear();
        state.dirty.clear();
        state.faults.crashed = true;
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        for Pending { io, ticket, .. } in pending {
            ticket.end(Err(
                io.error(io::Error::other("the device was lost in a crash"))
            ));
        }
        after
    }

    /// What [`crash`](Self::crash) would return under another `seed`; this device goes on. So one
    /// moment can be crashed in many ways.
    #[must_use]
    pub fn crash_clone(&self, kind: Crash, seed: u64) -> Self {
        let state = self.state();
        let mut after = State {
            rng: Rng::new(seed),
            blocks: state.blocks.clone(),
            dirty: state.dirty.clone(),
            completed: state.completed,
            pending: Vec::new(),
            faults: Faults::default(),
            fault_counters: state.fault_counters,
            counters: Counters::default(),
            waker: None,
        };
        for pending in &state.pending {
            if let Io::Write { at, data, range } = &pending.io {
                after.keep_in_flight(*at, &data[range.clone()], kind);
            }
        }
        if kind == Crash::PowerLoss {
            after.lose_power();
        }
        Self {
            len: self.len,
            eager: self.eager,
            state: Mutex::new(after),
        }
    }

    /// What crashes have done so far.
    #[must_use]
    pub fn fault_counters(&self) -> FaultCounters {
        self.state().fault_counters
    }

    // --- Faults ---

    /// Lets `count` more requests of kind `op` succeed and the one after them fail with an I/O
    /// error. A write or sync that fails breaks the device for all later ones.
    pub fn fail_after(&self, op: OpKind, count: u64) {
        self.state().faults.fail_after.insert(op as u8, count);
    }

    /// Makes writes wait for want of room, or no longer.
    pub fn set_full(&self, full: bool) {
        self.state().faults.full = full;
        if self.eager {
            self.run_all();
        }
    }

    /// Says that so many bytes can be stored where nothing is stored yet; `None`: everywhere.
    pub fn set_room_beneath(&self, room: Option<u64>) {
        self.state().faults.room = room;
    }

    /// Flips bit `bit` (0 to 7) of byte `at`, in whatever is stored there.
    pub fn flip_bit(&self, at: u64, bit: u32) {
        assert!(at < self.len && bit < 8, "a bit of the device");
        let mut state = self.state();
        state.fault_counters.flipped_bits += 1;
        let index = at / BLOCK_SIZE as u64;
        let offset = offset_in_block(at);
        let versions = state.blocks.entry(index).or_default();
        let flip = |block: &[u8]| -> Block {
            let mut bytes = block.to_vec();
            bytes[offset] ^= 1 << bit;
            bytes.into()
        };
        let durable = versions.durable.take();
        let durable = durable.unwrap_or_else(|| vec![0; BLOCK_SIZE].into());
        versions.durable = Some(flip(&durable));
        for (_, block) in &mut versions.unsynced {
            *block = flip(block);
        }
    }

    /// Overwrites bytes at once and durably, past all rules. For tests of torn and stale content.
    pub fn poke(&self, at: u64, bytes: &[u8]) {
        let mut state = self.state();
        assert!(at + bytes.len() as u64 <= self.len, "bytes of the device");
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let from = offset_in_block(at);
            let (here, behind) = rest.split_at(rest.len().min(BLOCK_SIZE - from));
            let versions = state.blocks.entry(at / BLOCK_SIZE as u64).or_default();
            let mut block = match versions.newest() {
                Some(block) => block.to_vec(),
                None => vec![0; BLOCK_SIZE],
            };
            block[from..from + here.len()].copy_from_slice(here);
            versions.durable = Some(block.into());
            versions.unsynced.clear();
            state.dirty.remove(&(at / BLOCK_SIZE as u64));
            (at, rest) = (at + here.len() as u64, behind);
        }
    }
}

impl State {
    fn perform(&mut self, len: u64, io: &Io, covers: u64) -> Result<(), DeviceError> {
        let op = io.kind();
        if self.faults.crashed {
            return Err(io.error(io::Error::other("the device was lost in a crash")));
        }
        if let Some(earlier) = &self.faults.broken {
            return Err(io.refused_since(earlier));
        }
        if self.must_fail(op) {
            let error = io.error(io::Error::from_raw_os_error(EIO));
            self.faults.broken = Some(error.clone());
            return Err(error);
        }
        match io {
            Io::Write { at, data, range } => {
                let bytes = &data[range.clone()];
                self.counters.write_bytes += bytes.len() as u64;
                let landed = self.faults.misdirect.landing(len, *at, bytes.len());
                self.fault_counters.misdirected_writes += u64::from(landed != *at);
                self.write_blocks(landed, bytes);
                Ok(())
            }
            Io::Sync => {
                self.counters.syncs += 1;
                self.sync(covers);
                Ok(())
            }
        }
    }

    fn must_fail(&mut self, op: OpKind) -> bool {
        match self.faults.fail_after.get_mut(&(op as u8)) {
            None => false,
            Some(0) => {
                self.faults.fail_after.remove(&(op as u8));
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    fn write_blocks(&mut self, at: u64, bytes: &[u8]) {
        self.completed += 1;
        for (index, block) in (at / BLOCK_SIZE as u64..).zip(bytes.chunks(BLOCK_SIZE)) {
            let versions = self.blocks.entry(index).or_default();
            versions.unsynced.push((self.completed, block.into()));
            self.dirty.insert(index);
        }
    }

    /// Makes durable what the first `covers` writes brought.
    fn sync(&mut self, covers: u64) {
        let blocks = &mut self.blocks;
        self.dirty.retain(|index| {
            let versions = blocks.get_mut(index).expect("a dirty block has contents");
            let covered = versions.unsynced.partition_point(|(n, _)| *n <= covers);
            if let Some((_, newest)) = versions.unsynced.drain(..covered).next_back() {
                versions.durable = Some(newest);
            }
            !versions.unsynced.is_empty()
        });
    }

    /// Decides how much of a write that was in flight took place.
    fn keep_in_flight(&mut self, at: u64, bytes: &[u8], kind: Crash) {
        let blocks = bytes.len() / BLOCK_SIZE;
        let kept = match self.rng.below(3) {
            0 => 0,
            1 => blocks,
            // A power loss picks among a write's blocks by itself.
            _ if kind == Crash::PowerLoss => blocks,
            _ => self.rng.below(blocks + 1),
        };
        if kept < blocks {
            self.fault_counters.lost_in_flight_writes += 1;
        }
        if kept > 0 {
            self.write_blocks(at, &bytes[..kept * BLOCK_SIZE]);
        }
    }

    fn lose_power(&mut self) {
        // Sometimes nearly all is kept, sometimes nearly nothing.
        let newest_percent = [0, 25, 50, 75, 100][self.rng.below(5)];
        let dirty: Vec<u64> = std::mem::take(&mut self.dirty).into_iter().collect();
        let torn =
            (!dirty.is_empty() && self.rng.chance(50)).then(|| dirty[self.rng.below(dirty.len())]);
        for index in dirty {
            let mut versions = self
                .blocks
                .remove(&index)
                .expect("a dirty block has contents");
            let count = versions.unsynced.len();
            let kept = if self.rng.chance(newest_percent) {
                count
            } else {
                self.rng.below(count + 1)
            };
            let content = if torn == Some(index) {
                // Between two neighbouring contents.
                let older = kept.min(count - 1);
                self.fault_counters.torn_blocks += 1;
                Some(self.tear(versions.get(older), versions.get(older + 1)))
            } else {
                if kept < count {
                    self.fault_counters.lost_unsynced_blocks += 1;
                }
                versions.get(kept).cloned()
            };
            versions.unsynced.clear();
            versions.durable = content;
            if versions.durable.is_some() {
                self.blocks.insert(index, versions);
            }
        }
    }

    /// A block of which some sectors are from `old` and some from `new`.
    fn tear(&mut self, old: Option<&Block>, new: Option<&Block>) -> Block {
        let sectors = BLOCK_SIZE / SECTOR_SIZE;
        // At least one sector of each.
        let pattern = 1 + self.rng.below((1 << sectors) - 2);
        let mut bytes = vec![0; BLOCK_SIZE];
        for sector in 0..sectors {
            let from = if pattern >> sector & 1 == 1 { new } else { old };
            let range = sector * SECTOR_SIZE..(sector + 1) * SECTOR_SIZE;
            if let Some(from) = from {
                bytes[range.clone()].copy_from_slice(&from[range]);
            }
        }
        bytes.into()
    }
}

impl Device for MemoryDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self.len, at, buffer.len());
        let failed = |source| DeviceError::Io {
            op: OpKind::Read,
            at,
            len: buffer.len(),
            source: Arc::new(source),
        };
        let mut state = self.state();
        if state.faults.crashed {
            return Err(failed(io::Error::other("the device was lost in a crash")));
        }
        if state.must_fail(OpKind::Read) {
            return Err(failed(io::Error::from_raw_os_error(EIO)));
        }
        state.counters.read_bytes += buffer.len() as u64;
        for (index, out) in (at / BLOCK_SIZE as u64..).zip(buffer.chunks_mut(BLOCK_SIZE)) {
            match state.blocks.get(&index).and_then(Versions::newest) {
                Some(block) => out.copy_from_slice(block),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    fn submit(&self, io: Io) -> Ticket {
        io.check(self.len);
        let ticket = Ticket::new();
        let mut state = self.state();
        let covers = state.completed;
        let full = state.faults.full && io.kind() == OpKind::Write;
        if (self.eager && !full) || state.faults.crashed {
            let result = state.perform(self.len, &io, covers);
            let waker = state.waker.clone();
            drop(state);
            ticket.end(result);
            if let Some(waker) = waker {
                waker();
            }
        } else {
            state.pending.push(Pending {
                io,
                ticket: ticket.clone(),
                covers,
            });
        }
        ticket
    }

    fn wait(&self, ticket: &Ticket) -> Result<(), DeviceError> {
        while ticket.poll().is_none() && self.run_one() {}
        let mut state = self.state();
        let mut held = state.pending.iter();
        let held = held
            .position(|pending| pending.ticket.is(ticket))
            .filter(|_| state.faults.full);
        if let Some(held) = held {
            let pending = state.pending.swap_remove(held);
            drop(state);
            let error = pending.io.error(io::ErrorKind::StorageFull.into());
            pending.ticket.end(Err(error));
        } else {
            drop(state);
        }
        ticket.wait()
    }

    fn discard(&self, segment: DeviceSegment) {
        let first = segment.start() / BLOCK_SIZE as u64;
        let behind = first + (SEGMENT_SIZE / BLOCK_SIZE) as u64;
        let mut state = self.state();
        state.counters.discards += 1;
        let gone: Vec<u64> = state
            .blocks
            .range(first..behind)
            .map(|(at, _)| *at)
            .collect();
        for at in gone {
            state.blocks.remove(&at);
            state.dirty.remove(&at);
        }
    }

    fn set_waker(&self, waker: Waker) {
        self.state().waker = Some(waker);
    }

    fn counters(&self) -> Counters {
        self.state().counters
    }

    fn failure(&self) -> Option<DeviceError> {
        self.state().faults.broken.clone()
    }

    fn written_from(&self, at: u64) -> Option<(u64, u64)> {
        let state = self.state();
        let mut blocks = state.blocks.range(at / BLOCK_SIZE as u64..);
        let (from, _) = blocks.next()?;
        let from = from * BLOCK_SIZE as u64;
        Some((from, from + BLOCK_SIZE as u64))
    }

    fn written_up_to(&self, range: Range<u64>) -> u64 {
        let block = BLOCK_SIZE as u64;
        let state = self.state();
        let mut blocks = state
            .blocks
            .range(range.start / block..range.end.div_ceil(block));
        let last = blocks.next_back().map(|(at, _)| (at + 1) * block);
        last.unwrap_or(range.start).clamp(range.start, range.end)
    }

    fn room_beneath(&self, _used: u64, _freed: u64) -> Option<u64> {
        self.state().faults.room
    }
}

/// "Input/output error", the number that every Linux gives it.
const EIO: i32 = 5;

fn offset_in_block(at: u64) -> usize {
    usize::try_from(at % BLOCK_SIZE as u64).expect("below a block")
}

#[cfg(test)]
#[path = "mem_device_tests.rs"]
mod tests;
