//! The memtables of an engine: the active one, which is written, and those that wait to be flushed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::server_memory::RegionMemory;
use crate::memtable::Memtable;
use crate::work::frozen::Frozen;

/// How far the logs were when a memtable was begun.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogsFrom {
    /// Bytes of all logs.
    pub(super) bytes: u64,
    /// The tail segment of the recovery log, by its place in the chain; `None` where that is not known.
    pub(super) tail: Option<u64>,
}

/// See the module documentation.
pub(super) struct Memtables {
    active: Arc<Memtable>,
    /// How far the logs were when the active one was begun.
    active_from: LogsFrom,
    /// Oldest first.
    frozen: VecDeque<Frozen>,
    /// What they may take.
    memory: Arc<RegionMemory>,
}

impl Memtables {
    /// `frozen`, oldest first, and an active one that is empty, of a region that has this `memory`.
    pub(super) fn new(frozen: VecDeque<Frozen>, memory: Arc<RegionMemory>) -> Self {
        let shared = frozen.back().map_or(&[][..], |last| last.table.shared());
        Self {
            active: new_table(memory.table_bytes(), shared),
            active_from: LogsFrom::default(),
            frozen,
            memory,
        }
    }

    /// Lets go of all of them, since the region is served no more. Returns them.
    pub(super) fn end(&mut self) -> Self {
        self.memory.leave();
        let none = Self {
            active: new_table(0, &[]),
            active_from: LogsFrom::default(),
            frozen: VecDeque::new(),
            memory: Arc::clone(&self.memory),
        };
        std::mem::replace(self, none)
    }

    /// The active one.
    #[inline]
    pub(super) fn active(&self) -> &Memtable {
        &self.active
    }

    /// All of them, newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let frozen = self.frozen.iter().rev().map(|frozen| &frozen.table);
        std::iter::once(&self.active).chain(frozen)
    }

    /// Bytes of logs that the active one stands for, where the logs have `bytes`.
    #[inline]
    pub(super) const fn active_log_bytes(&self, bytes: u64) -> u64 {
        bytes - self.active_from.bytes
    }

    /// The same; 0 while another one waits to be flushed.
    pub(super) fn only_active_log_bytes(&self, bytes: u64) -> u64 {
        match self.frozen.is_empty() && !self.active.is_empty() {
            true => self.active_log_bytes(bytes),
            false => 0,
        }
    }

    /// Whether the recovery log, whose tail is `tail` now, has begun a segment since the active one was begun: then
    /// the segment before goes with the active one.
    pub(super) fn spans_segments(&self, tail: Option<u64>) -> bool {
        self.active_from.tail.is_some() && tail > self.active_from.tail
    }

    /// Puts one that takes `needed` bytes in the place of the active one, which is empty.
    pub(super) fn replace_active(&mut self, needed: usize) {
        self.active = new_table(self.table_bytes(needed), self.active.shared());
    }

    /// Bytes for which a memtable is begun that has to take `needed`.
    fn table_bytes(&self, needed: usize) -> usize {
        self.memory.table_bytes().max(needed)
    }

    /// Whether the active one was begun when memtables might be larger, and would take more with `needed` bytes than
    /// it may by now.
    pub(super) fn outgrows_memory(&self, needed: usize) -> bool {
        self.memory
            .limit()
            .is_some_and(|limit| match self.active.is_empty() {
                true => self.active.capacity() > limit.max(needed),
                false => self.active.outgrows(limit, needed),
            })
    }

    /// Whether the active one takes more than it may by now.
    pub(super) fn is_beyond_memory(&self) -> bool {
        !self.active.is_empty() && self.outgrows_memory(0)
    }

    /// Bytes that each of them may take, where `set` bytes are set.
    pub(super) fn bytes_each(&self, set: usize) -> usize {
        let largest = || self.newest_first().map(|table| table.capacity()).max();
        match self.memory.limit() {
            None => set,
            Some(limit) => largest().unwrap_or(0).max(limit),
        }
    }

    /// Freezes the active one and begins one that takes `needed` bytes, where the logs are at `from`. `frozen` says
    /// what the former stands for.
    pub(super) fn freeze(
        &mut self,
        needed: usize,
        from: LogsFrom,
        frozen: impl FnOnce(Arc<Memtable>) -> Frozen,
    ) {
        let table = new_table(self.table_bytes(needed), self.active.shared());
        let active = std::mem::replace(&mut self.active, table);
        self.frozen.push_back(frozen(active));
        self.active_from = from;
    }

    /// Takes the oldest one that waits out, which was flushed.
    pub(super) fn retire(&mut self) -> Frozen {
        self.frozen.pop_front().expect("the memtable was there")
    }

    /// The oldest one that waits to be flushed.
    pub(super) fn oldest_frozen(&self) -> Option<&Frozen> {
        self.frozen.front()
    }

    /// The newest one that waits to be flushed.
    pub(super) fn newest_frozen(&self) -> Option<&Frozen> {
        self.frozen.back()
    }

    /// How many wait to be flushed.
    pub(super) fn frozen_count(&self) -> usize {
        self.frozen.len()
    }

    /// Whether anything is in them.
    pub(super) fn hold_entries(&self) -> bool {
        !self.frozen.is_empty() || !self.active.is_empty()
    }

    /// Bytes of their memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sum(Memtable::memory_bytes)
    }

    /// Bytes of that which are used.
    pub(super) fn used_bytes(&self) -> usize {
        self.sum(Memtable::used_bytes)
    }

    fn sum(&self, bytes: impl Fn(&Memtable) -> usize) -> usize {
        self.newest_first().map(|table| bytes(table)).sum()
    }
}

/// A memtable for keys like those of the one before it, which begin with `shared`.
fn new_table(capacity: usize, shared: &[u8]) -> Arc<Memtable> {
    Arc::new(Memtable::with_shared(capacity, shared))
}
