//! How many keys there are, as an estimate that costs next to nothing.
//!
//! It is what segments and memtables say of themselves. Of that is taken off what ranges in memtables shadow, and
//! the parts of long values ([`argosy_engine::long`]): whole segments by their ranges; in a memtable, and in the
//! segment of a run where parts begin, they are counted, up to [`COUNTED_MAX`].

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::{KeyRange, Lsn};
use argosy_engine::Reach;
use argosy_engine::long::{RESERVED, is_reserved, parts};

use crate::memtable::Memtable;
use crate::memtable::range_tombstones::{RangeTombstones, left_of, union};
use crate::merge::Source;
use crate::names::LevelError;
use crate::read::scan::Begun;
use crate::read::sources::{RunReading, RunSource};
use crate::read::{ReadAhead, ReadView, Reading};
use crate::version::Version;

/// How many entries are looked at, at most. What does not count among others is counted.
const COUNTED_MAX: u64 = 1 << 16;

/// As of when: now.
const EVERY: Lsn = Lsn(u64::MAX);

/// Entries of all levels and memtables, tombstones taken off twice. A key that stands in several places is counted
/// several times; one that a range removed is counted until a merge where its segment has others too. Parts of long
/// values are not counted.
pub(super) fn estimate(view: &ReadView, reading: &Reading) -> u64 {
    let tombstones = RangeTombstones::of(view.memtables.iter().map(Arc::as_ref), EVERY);
    let ranges = tombstones
        .as_ref()
        .map_or(&[][..], |tombstones| tombstones.union());
    let parts = parts();
    let gone = union(ranges.iter().chain([&parts]));
    let mut left = COUNTED_MAX;
    let mut count = 0;
    for table in &view.memtables {
        let shadowed = shadowed(table, tombstones.as_deref(), &mut left);
        count += (table.len() as u64).saturating_sub(shadowed);
    }
    for (place, (_, run)) in view.version.runs().enumerate() {
        let mut seen = BTreeSet::new();
        for entry in &run.segments {
            let segment = &entry.segment;
            // Of a segment with several bounds all have to be gone.
            let is_gone = left_of(&segment.range, &gone).next().is_none();
            if is_gone || !seen.insert(segment.number) {
                continue;
            }
            let keys = u64::from(segment.entries.saturating_sub(2 * segment.tombstones));
            let others = segment.range.intersection(&parts);
            // Where they cannot be read they are counted.
            let begun = Begun {
                run,
                place,
                places: run.places_overlapping(&others),
            };
            let others = entries_of(reading, &view.version, &begun, &others, &mut left);
            count += keys.saturating_sub(others.unwrap_or(0));
        }
    }
    count
}

/// How many entries the run has in `range`, in which it is `begun`.
fn entries_of(
    reading: &Reading,
    version: &Arc<Version>,
    begun: &Begun<'_>,
    range: &KeyRange,
    left: &mut u64,
) -> Result<u64, LevelError> {
    if range.is_empty() {
        return Ok(0);
    }
    let how = RunReading {
        region: reading.region,
        ahead: ReadAhead::SCAN,
        cache: Some(Arc::clone(&reading.cache)),
        reach: Reach::Device,
        resolve: None,
        counts: false,
    };
    let mut source = RunSource::<false>::in_range(how, version, begun, range, None)?;
    let mut count = 0;
    while *left > 0 && source.key().is_some() {
        source.advance()?;
        count += 1;
        *left -= 1;
    }
    Ok(count)
}

/// How many entries of `table` are of parts, or shadowed by a range.
fn shadowed(table: &Memtable, tombstones: Option<&RangeTombstones>, left: &mut u64) -> u64 {
    let mut cursor = table.cursor();
    match tombstones {
        Some(_) => cursor.seek_to_first(),
        None => cursor.seek(&RESERVED, EVERY),
    }
    let mut count = 0;
    while let Some((key, lsn, _)) = cursor.entry().filter(|_| *left > 0) {
        let newer =
            |tombstones: &RangeTombstones| tombstones.newest(key, Some(lsn), EVERY).is_some();
        count += u64::from(is_reserved(key) || tombstones.is_some_and(newer));
        *left -= 1;
        cursor.advance();
    }
    count
}
