//! Memtables out of a replayed log.
//!
//! What recovery finds above the start of replay goes into memtables again, in LSN order, as many
//! as it takes. They begin their life frozen: the first steps turn them into runs.

use std::collections::VecDeque;
use std::sync::Arc;

use argosy_base::{KeyRange, Lsn};
use argosy_log::Replayed;

use super::time::ToldTime;
use crate::duplicates::Duplicates;
use crate::memtable::Memtable;
use crate::memtable::range_tombstones::bound_bytes;
use crate::names::Entry;
use crate::settings::Settings;
use crate::work::frozen::Frozen;

/// See the module documentation.
pub struct Tables {
    table_bytes: usize,
    full: VecDeque<Frozen>,
    open: Option<Memtable>,
    last: Lsn,
    /// The region's time.
    time: ToldTime,
    /// Which requests were applied.
    duplicates: Arc<Duplicates>,
}

impl Tables {
    /// No memtables yet, each of the size that `settings` give them.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            table_bytes: settings.memtables.bytes,
            full: VecDeque::new(),
            open: None,
            last: Lsn(0),
            time: ToldTime::NONE,
            duplicates: Arc::default(),
        }
    }

    /// The same behind a history of which these requests are known.
    pub(super) fn behind(mut self, duplicates: &Arc<Duplicates>) -> Self {
        self.duplicates = Arc::clone(duplicates);
        self
    }

    /// Which requests were applied, as the logs tell it.
    pub(super) const fn duplicates(&self) -> &Arc<Duplicates> {
        &self.duplicates
    }

    /// Adds what was found in the logs.
    pub(crate) fn replay(&mut self, replayed: &Replayed<'_>) {
        match (replayed.time(), replayed.range()) {
            (Some(time), _) => {
                self.time = ToldTime {
                    time: time.max(self.time.time),
                    lsn: replayed.lsn,
                };
                self.last = replayed.lsn;
            }
            (None, Some(range)) => self.delete_range(&range, replayed.lsn),
            (None, None) => self.insert(replayed.key, replayed.lsn, Entry::of(replayed)),
        }
        // Behind it: a memtable that was closed in front of it does not stand for the request.
        if let Some(request) = replayed.request {
            Arc::make_mut(&mut self.duplicates).note(request.id, request.last);
        }
    }

    /// Adds that the history removes a range of keys.
    ///
    /// # Panics
    /// As [`insert`](Self::insert).
    pub fn delete_range(&mut self, range: &KeyRange, lsn: Lsn) {
        assert!(self.last < lsn, "a history is replayed in order");
        let takes = |table: &Memtable| table.takes_ranges(1, bound_bytes(range));
        if self.open.as_ref().is_some_and(|table| !takes(table)) {
            self.close();
        }
        let table = self
            .open
            .get_or_insert_with(|| Memtable::new(self.table_bytes));
        table.delete_range(range, lsn);
        self.last = lsn;
    }

    /// The region's time as the logs tell it.
    #[must_use]
    pub(super) const fn time(&self) -> ToldTime {
        self.time
    }

    /// Adds a write of the history.
    ///
    /// # Panics
    /// Unless writes come in rising LSN order.
    pub fn insert(&mut self, key: &[u8], lsn: Lsn, entry: Entry<'_>) {
        assert!(self.last < lsn, "a history is replayed in order");
        let bytes = Memtable::entry_bytes_max(key.len(), &entry);
        if self.open.as_ref().is_some_and(|table| !table.fits(bytes)) {
            self.close();
        }
        let size = self.table_bytes.max(2 * bytes);
        let table = self.open.get_or_insert_with(|| Memtable::new(size));
        table.insert(key, lsn, entry);
        self.last = lsn;
    }

    /// How many writes of keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let full: usize = self.full.iter().map(|frozen| frozen.table.len()).sum();
        full + self.open.as_ref().map_or(0, Memtable::len)
    }

    /// Whether there is no write, not even of a range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.open.is_none()
    }

    fn close(&mut self) {
        if let Some(table) = self.open.take() {
            self.full.push_back(Frozen {
                table: Arc::new(table),
                last: self.last,
                // The old logs were sealed and are durable before an engine starts.
                large: None,
                unsealed: Vec::new(),
                time: self.time.time,
                duplicates: Arc::clone(&self.duplicates),
            });
        }
    }

    /// The memtables, newest first.
    pub(crate) fn into_newest_first(self) -> Vec<Arc<Memtable>> {
        let frozen = self.into_frozen().into_iter().rev();
        frozen.map(|frozen| frozen.table).collect()
    }

    /// The memtables, oldest first. Behind them, records of time have one that is empty: with its flush the log can go.
    pub(super) fn into_frozen(mut self) -> VecDeque<Frozen> {
        let told = self.time.lsn == self.last && self.last > Lsn(0);
        if told {
            self.open
                .get_or_insert_with(|| Memtable::new(self.table_bytes));
        }
        self.close();
        self.full
    }
}
