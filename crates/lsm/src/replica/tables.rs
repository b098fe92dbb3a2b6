//! The memtables of a backup that builds its own levels.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{Lsn, Moment};

use crate::db::writer::Frozen;
use crate::level::Entry;
use crate::log::Replayed;
use crate::memtable::Memtable;
use crate::memtable::erased::bound_bytes;
use crate::settings::Settings;

/// Bytes that a record takes beside key and value.
const RECORD_OVERHEAD: u64 = 12;

/// The memtables of a backup.
pub(super) struct Tables {
    pub(super) settings: Settings,
    pub(super) active: Arc<Memtable>,
    /// Bytes of records that the active one stands for.
    pub(super) active_log_bytes: u64,
    /// The last LSN in any of them.
    pub(super) last: Lsn,
    /// The region's time, as the logs tell it.
    pub(super) time: Moment,
    pub(super) frozen: VecDeque<Frozen>,
}

impl Tables {
    pub(super) fn new(settings: &Settings, last: Lsn) -> Self {
        Self {
            settings: settings.clone(),
            active: Arc::new(Memtable::new(settings.l0_bytes)),
            active_log_bytes: 0,
            last,
            time: Moment(0),
            frozen: VecDeque::new(),
        }
    }

    pub(super) fn insert(&mut self, replayed: &Replayed<'_>) {
        let bytes = Memtable::entry_bytes_max(replayed.key.len(), &replayed.entry);
        let range = replayed.range();
        let takes = |range| self.active.takes_ranges(1, bound_bytes(range));
        let long = self.active_log_bytes >= self.settings.l0_log_bytes;
        if long || !self.active.fits(bytes) || !range.as_ref().is_none_or(takes) {
            self.freeze(bytes);
        }
        if let Some(time) = replayed.time() {
            self.time = self.time.max(time);
            self.active_log_bytes += RECORD_OVERHEAD + 8;
            self.last = replayed.lsn;
            return;
        }
        match &range {
            Some(range) => self.active.erase(range, replayed.lsn),
            None => self
                .active
                .insert(replayed.key, replayed.lsn, replayed.entry),
        }
        let value = match replayed.entry.lasting() {
            Entry::Inline(value) => value.len() as u64,
            Entry::Pointer { value_len, .. } => value_len.into(),
            Entry::Tombstone | Entry::Until(..) => 0,
        };
        self.active_log_bytes += replayed.key.len() as u64 + value + RECORD_OVERHEAD;
        self.last = replayed.lsn;
    }

    /// Freezes the active table, if there is anything in it, and begins one that takes `needed`.
    pub(super) fn freeze(&mut self, needed: usize) {
        let size = self.settings.l0_bytes.max(2 * needed);
        let fresh = Arc::new(Memtable::with_shared(size, self.active.shared()));
        let full = std::mem::replace(&mut self.active, fresh);
        // One that is empty may stand for records of time.
        let stands_for = std::mem::take(&mut self.active_log_bytes);
        if !full.is_empty() || stands_for > 0 {
            self.frozen.push_back(Frozen {
                table: full,
                last: self.last,
                // Log bytes are covered by the points that each own flush names.
                large: None,
                time: self.time,
            });
        }
    }

    /// Whether a further range might freeze a table, and so many are waiting that none may.
    pub(super) fn is_full(&self, runs: usize) -> bool {
        let Settings {
            l0_bytes,
            memtables_max,
            window_bytes,
            l1_runs_max,
            ..
        } = self.settings;
        let waits = self.frozen.len() + 1 >= memtables_max || runs >= l1_runs_max;
        waits && self.active.used_bytes() + 2 * window_bytes > l0_bytes
    }

    pub(super) fn bytes(&self) -> usize {
        let frozen = self.frozen.iter().map(|frozen| frozen.table.memory_bytes());
        self.active.memory_bytes() + frozen.sum::<usize>()
    }
}
