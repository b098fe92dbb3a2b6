//! The memtables of a backup that builds its own levels.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{Lsn, Moment, Pointer};
use argosy_log::{Binding, Replayed};

use crate::duplicates::Duplicates;
use crate::memtable::Memtable;
use crate::memtable::range_tombstones::bound_bytes;
use crate::names::Entry;
use crate::names::logs::{LARGE_LOG, LOGS, RECOVERY_LOG};
use crate::settings::Settings;
use crate::work::frozen::Frozen;

/// The memtables of a backup.
pub(super) struct Tables {
    pub(super) settings: Settings,
    pub(super) active: Arc<Memtable>,
    /// Bytes of both logs that the active one stands for, padding included, up to its last records.
    active_log_bytes: u64,
    /// Where the last record of each log begins.
    at: [Option<Pointer>; LOGS.len()],
    /// The last LSN in any of them.
    pub(super) last: Lsn,
    /// The last LSN in front of the active one.
    frozen_to: Lsn,
    /// The region's time, as the logs tell it.
    pub(super) time: Moment,
    /// Which requests were applied.
    duplicates: Arc<Duplicates>,
    pub(super) frozen: VecDeque<Frozen>,
}

impl Tables {
    /// Those behind a history up to `last`, of which these requests are known.
    pub(super) fn new(settings: &Settings, last: Lsn, duplicates: &Arc<Duplicates>) -> Self {
        Self {
            settings: settings.clone(),
            active: Arc::new(Memtable::new(settings.memtables.bytes)),
            active_log_bytes: 0,
            at: Default::default(),
            last,
            frozen_to: last,
            time: Moment(0),
            duplicates: Arc::clone(duplicates),
            frozen: VecDeque::new(),
        }
    }

    pub(super) fn insert(&mut self, replayed: &Replayed<'_>) {
        let log_bytes = self.log_bytes_to(replayed);
        let bytes = Memtable::entry_bytes_max(replayed.key.len(), &Entry::of(replayed));
        let range = replayed.range();
        let takes = |range| self.active.takes_ranges(1, bound_bytes(range));
        let long = self.active_log_bytes + log_bytes >= self.settings.memtables.log_bytes;
        if long || !self.active.fits(bytes) || !range.as_ref().is_none_or(takes) {
            self.freeze(bytes);
        }
        self.active_log_bytes += log_bytes;
        if let Some(time) = replayed.time() {
            self.time = self.time.max(time);
            self.last = replayed.lsn;
            return;
        }
        match &range {
            Some(range) => self.active.delete_range(range, replayed.lsn),
            None => self
                .active
                .insert(replayed.key, replayed.lsn, Entry::of(replayed)),
        }
        if let Some(request) = replayed.request {
            Arc::make_mut(&mut self.duplicates).note(request.id, request.last);
        }
        self.last = replayed.lsn;
    }

    /// Bytes of its log from the record before to this one. Segments that hold only marks do not count.
    fn log_bytes_to(&mut self, replayed: &Replayed<'_>) -> u64 {
        let log = match replayed.binding {
            Binding::Logged { .. } => LARGE_LOG,
            _ => RECOVERY_LOG,
        };
        let at = replayed.at;
        match self.at[log.index()].replace(at) {
            Some(before) if before.segment() == at.segment() => {
                at.offset().saturating_sub(before.offset()).into()
            }
            Some(before) => {
                let rest = self.settings.layout.segment_bytes as u64 - u64::from(before.offset());
                rest + u64::from(at.offset())
            }
            None => 0,
        }
    }

    /// Freezes the active table, if it stands for any record, and begins one that takes `needed`.
    pub(super) fn freeze(&mut self, needed: usize) {
        let size = self.settings.memtables.bytes.max(2 * needed);
        let fresh = Arc::new(Memtable::with_shared(size, self.active.shared()));
        let full = std::mem::replace(&mut self.active, fresh);
        self.active_log_bytes = 0;
        // One that is empty may stand for records of time.
        if self.last > self.frozen_to {
            self.frozen_to = self.last;
            self.frozen.push_back(Frozen {
                table: full,
                last: self.last,
                // Log bytes are covered by the points that each own flush names.
                large: None,
                unsealed: Vec::new(),
                time: self.time,
                duplicates: Arc::clone(&self.duplicates),
            });
        }
    }

    /// Whether a further range might freeze a table, and so many are waiting that none may.
    pub(super) fn is_full(&self, runs: usize) -> bool {
        let Settings {
            memtables,
            layout,
            levels,
            ..
        } = &self.settings;
        let waits = self.frozen.len() + 1 >= memtables.count_max || runs >= levels.l1_runs_max;
        waits && self.active.used_bytes() + 2 * layout.window_bytes > memtables.bytes
    }

    pub(super) fn bytes(&self) -> usize {
        let frozen = self.frozen.iter().map(|frozen| frozen.table.memory_bytes());
        self.active.memory_bytes() + frozen.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use argosy_base::SegmentNumber;

    use super::*;

    fn insert(tables: &mut Tables, lsn: u64, segment: u64, offset: u32) {
        tables.insert(&Replayed {
            key: b"key",
            lsn: Lsn(lsn),
            binding: Binding::Inline(b"value"),
            at: Pointer::new(SegmentNumber(segment), offset),
            request: None,
            expiry: None,
            removes_range: false,
        });
    }

    #[test]
    fn a_table_of_nothing_but_a_time_is_frozen() {
        let mut tables = Tables::new(&Settings::small(), Lsn(0), &Arc::default());
        tables.insert(&Replayed {
            key: b"",
            lsn: Lsn(1),
            binding: Binding::Nothing,
            at: Pointer::new(SegmentNumber(1), 64),
            request: None,
            expiry: Some(7),
            removes_range: false,
        });
        for _ in 0..2 {
            tables.freeze(0);
            let frozen: Vec<_> = tables.frozen.iter().map(|f| (f.last, f.time)).collect();
            assert_eq!(frozen, [(Lsn(1), Moment(7))]);
        }
    }

    #[test]
    fn what_a_table_stands_for_has_its_padding() {
        let mut tables = Tables::new(&Settings::small(), Lsn(0), &Arc::default());
        let segment_bytes = u32::try_from(tables.settings.layout.segment_bytes).unwrap();
        let apart = 4096;
        let segments = 1 + tables.settings.memtables.log_bytes / u64::from(segment_bytes);
        let places = (1..=segments)
            .flat_map(|segment| (0..segment_bytes / apart).map(move |at| (segment, at * apart)));
        for (lsn, (segment, offset)) in (1..).zip(places) {
            insert(&mut tables, lsn, segment, offset);
        }
        assert_eq!(tables.frozen.len(), 1);
        let stands_for = tables.settings.memtables.log_bytes / u64::from(apart);
        assert_eq!(tables.frozen[0].last, Lsn(stands_for));
    }
}
