//! Memtables that wait to become runs.

use std::sync::Arc;

use argosy_base::{Lsn, Moment};
use argosy_engine::LogEnd;

use crate::duplicates::Duplicates;
use crate::edit::LogPoint;
use crate::memtable::Memtable;

/// A memtable that is full and waits to become a run of L1.
#[derive(Clone)]
pub(crate) struct Frozen {
    /// The memtable.
    pub(crate) table: Arc<Memtable>,
    /// The highest LSN in it.
    pub(crate) last: Lsn,
    /// Where the large log ended when it was frozen: its pointers lie below.
    pub(crate) large: Option<LogEnd>,
    /// The ends of earlier segments of the large log that were not sealed then: it may point into them, too.
    pub(crate) unsealed: Vec<LogPoint>,
    /// The region's time then.
    pub(crate) time: Moment,
    /// Which requests had been applied then.
    pub(crate) duplicates: Arc<Duplicates>,
}
