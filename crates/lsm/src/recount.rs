//! Counts the pointers of levels again, from the leaves.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{KeyRange, SegmentNumber};
use argosy_engine::damage::Miscount;

use crate::compaction::uncounted::count;
use crate::names::{Form, LevelError};
use crate::version::{LevelEntry, Version};

/// Counts the pointers in the leaves of `version` and in its uncounted parts, and compares
/// [its own counts](Version::log_uses) with that. Reads every level segment that has pointers, and blocks for
/// the device.
///
/// # Errors
/// A leaf cannot be read.
pub fn recount(version: &Version) -> Result<Vec<Miscount>, LevelError> {
    let runs = version.runs().flat_map(|(_, run)| &run.segments);
    let parts = version.uncounted().values().flat_map(|rest| &rest.parts);
    let mut by_number: BTreeMap<SegmentNumber, Vec<&LevelEntry>> = BTreeMap::new();
    for entry in runs.chain(parts) {
        let has_leaves = matches!(entry.segment.form, Form::SelfContained | Form::Leaves);
        if has_leaves && entry.segment.points_into_logs() {
            by_number
                .entry(entry.segment.number)
                .or_default()
                .push(entry);
        }
    }
    let mut found = BTreeMap::new();
    for entries in by_number.values() {
        let ranges: Vec<&KeyRange> = entries.iter().map(|entry| &entry.segment.range).collect();
        count(version, entries[0], &ranges, &mut found)?;
    }
    let counted = version.log_uses();
    let numbers: BTreeSet<_> = counted.keys().chain(found.keys()).copied().collect();
    let all = numbers.into_iter().map(|number| Miscount {
        number,
        counted: version.log_refs(number),
        found: found.get(&number).copied().unwrap_or_default(),
    });
    Ok(all.filter(|m| m.counted != m.found).collect())
}
