//! Holds the pairs of two copies against each other: for members that each built their own levels,
//! and so have nothing but logs in common.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use argosy_base::{Direction, KeyRange, Lsn, Moment};
use argosy_engine::{EngineError, Scan, Snapshot};
use argosy_log::{Geometry, LogWindows};
use argosy_memory::SharedMemory;

use super::LeftWindows;
use super::logs::{chain_of, recover_logs};
use crate::cache::NodeCache;
use crate::db::replay::Tables;
use crate::memtable::Memtable;
use crate::names::OwnedEntry;
use crate::names::logs::LARGE_LOG;
use crate::read::snapshot::LsmSnapshot;
use crate::read::{FilterCounts, ReadView, Reading, ScanTime};
use crate::settings::Settings;
use crate::version::Version;

/// Bytes of the cache through which each copy is read.
const CACHE_BYTES: usize = 16 << 20;

/// A copy, as a reader would see it.
pub(super) struct Copy {
    view: Arc<ReadView>,
    reading: Arc<Reading>,
    /// The last LSN of its history.
    last: Lsn,
}

/// Pairs that both copies have, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pairs {
    pub(super) pairs: u64,
    pub(super) bytes: u64,
}

impl Copy {
    /// The copy whose manifest says `version`, and of whose windows this is left.
    pub(super) fn open(
        version: &Version,
        windows: &LeftWindows,
        settings: &Settings,
    ) -> Result<Self, String> {
        let geometry = settings.layout.log_geometry();
        let mut tables = Tables::new(settings);
        let recovered = recover_logs(version, geometry, windows, |replayed| {
            tables.replay(&replayed);
        });
        let last = recovered.map_err(|error| error.to_string())?.last;
        let mut memtables = tables.into_newest_first();
        if memtables.is_empty() {
            memtables.push(Arc::new(Memtable::new(0)));
        }
        let large = &windows[LARGE_LOG.index()];
        let slot = |slot: usize| match large.get(slot).and_then(Option::as_ref) {
            Some(memory) => Arc::clone(memory),
            None => Arc::new(SharedMemory::anonymous(geometry.slot_bytes())),
        };
        let slots = (0..geometry.slots()).map(slot).collect();
        let windows = LogWindows::new(version.region(), LARGE_LOG, geometry, slots);
        // What was written and not flushed is in windows only.
        let windows = windows.as_found(chain_of(version, LARGE_LOG));
        let copy = Self::of(version, memtables, windows);
        Ok(Self {
            last: last.max(copy.last),
            ..copy
        })
    }

    /// The levels of `version` alone, as a reader would see them.
    pub(super) fn of_levels(version: &Version, geometry: Geometry) -> Self {
        let memory = || Arc::new(SharedMemory::anonymous(geometry.slot_bytes()));
        let slots = (0..geometry.slots()).map(|_| memory()).collect();
        let windows = LogWindows::new(version.region(), LARGE_LOG, geometry, slots);
        Self::of(version, vec![Arc::new(Memtable::new(0))], windows)
    }

    /// The levels of `version`, and before them `memtables`, of which windows of the large log are left.
    fn of(version: &Version, memtables: Vec<Arc<Memtable>>, windows: LogWindows) -> Self {
        let levels_lsn = Lsn(version.replay_from().0.saturating_sub(1));
        Self {
            view: Arc::new(ReadView {
                memtables,
                version: Arc::new(version.clone()),
                levels_lsn,
                expired_lsn: Lsn(0),
                bulk_loads: 0,
            }),
            reading: Arc::new(Reading {
                region: version.region(),
                cache: Arc::new(NodeCache::new(CACHE_BYTES)),
                windows: Arc::new(windows),
                filters: FilterCounts::default(),
                damages: Arc::default(),
                ended: AtomicBool::new(false),
            }),
            last: levels_lsn,
        }
    }

    /// Those of `keys` that are bound to a value in a segment of the log that was evacuated, which none is
    /// ever to be, by their places among them.
    pub(super) fn bound_to_evacuated(&self, keys: &[&[u8]]) -> Result<Vec<usize>, EngineError> {
        let version = &self.view.version;
        let entries = self.view.locate_some(keys, &self.reading)?;
        let is_bound = |entry: &Option<OwnedEntry>| {
            let pointer = entry.as_ref().and_then(|entry| entry.as_entry().pointer());
            pointer.is_some_and(|(at, _)| version.is_evacuated(at.segment()))
        };
        let places = entries.iter().enumerate();
        let bound = places.filter(|(_, entry)| is_bound(entry));
        Ok(bound.map(|(place, _)| place).collect())
    }

    fn scan(&self, lsn: Lsn, now: Moment) -> Result<Box<dyn Scan>, String> {
        let (view, reading) = (Arc::clone(&self.view), Arc::clone(&self.reading));
        let time = ScanTime {
            now,
            ..ScanTime::default()
        };
        let snapshot = LsmSnapshot::new(view, lsn, reading, time);
        snapshot
            .scan(&KeyRange::all(), Direction::Up)
            .map_err(|error| error.to_string())
    }
}

/// Compares all pairs as of the last LSN that both copies have.
///
/// # Errors
/// The first difference, in words: what the first copy has, and the second.
pub(super) fn compare_pairs(copies: &[Copy; 2]) -> Result<Pairs, String> {
    let [first, second] = copies;
    let lsn = first.last.min(second.last);
    if let Some(ahead) = copies.iter().find(|copy| copy.view.levels_lsn > lsn) {
        return Err(format!(
            "one has {lsn} and no more, the levels of the other go up to {}",
            ahead.view.levels_lsn
        ));
    }
    // What has expired by then one of them may have forgotten.
    let times = copies.each_ref().map(|copy| copy.view.version.time());
    let time = times[0].max(times[1]);
    let (mut first, mut second) = (first.scan(lsn, time)?, second.scan(lsn, time)?);
    let mut found = Pairs::default();
    loop {
        let next = |which: &str, scan: &mut Box<dyn Scan>| {
            let pair = scan.next();
            pair.map_err(|error| format!("the {which} cannot be read: {error}"))
        };
        let (a, b) = (next("first", &mut first)?, next("second", &mut second)?);
        match (a, b) {
            (None, None) => return Ok(found),
            (Some(a), Some(b)) if a == b => {
                found.pairs += 1;
                found.bytes += (a.0.len() + a.1.len()) as u64;
            }
            (a, b) => {
                return Err(format!(
                    "as of {lsn} the first has {}, the second {}",
                    describe(a.as_ref()),
                    describe(b.as_ref())
                ));
            }
        }
    }
}

fn describe(pair: Option<&(Vec<u8>, Vec<u8>)>) -> String {
    match pair {
        None => "nothing more".to_owned(),
        Some((key, value)) => {
            let hash = xxhash_rust::xxh3::xxh3_64(value);
            let key = key.escape_ascii();
            format!("{key} with {} bytes ({hash:016x})", value.len())
        }
    }
}
