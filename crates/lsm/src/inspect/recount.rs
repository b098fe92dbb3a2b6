//! Counts the pointers of levels again, from the leaves.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{KeyRange, LogKind, SegmentNumber};
pub use argosy_engine::damage::Miscount;

use super::ProblemKind;
use super::verify::Verifier;
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
    let mut pieces: BTreeMap<SegmentNumber, Vec<&LevelEntry>> = BTreeMap::new();
    for entry in runs.chain(parts) {
        let has_leaves = matches!(entry.segment.form, Form::SelfContained | Form::Leaves);
        if has_leaves && entry.segment.points_into_logs() {
            pieces.entry(entry.segment.number).or_default().push(entry);
        }
    }
    let mut found = BTreeMap::new();
    for pieces in pieces.values() {
        let ranges: Vec<&KeyRange> = pieces.iter().map(|piece| &piece.segment.range).collect();
        count(version, pieces[0], &ranges, &mut found)?;
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

/// What pointers count, as part of a region.
pub(super) const COUNTS: &str = "references";

/// Most log segments that a note names.
const NAMED_MAX: usize = 16;

impl Verifier<'_> {
    /// Whether as many pointers count as there are. Where a leaf cannot be read nobody knows, and a note says so.
    pub(super) fn references(&mut self) {
        let damaged = self.problems.iter().any(|problem| {
            let is_log = |log: &LogKind| problem.part == log.to_string();
            !LogKind::ALL.iter().any(is_log)
        });
        let mut all = self.version.finished();
        if damaged || !all.all(|entry| self.is_inside(entry.segment.number)) {
            return self.note_unknown();
        }
        let counted = self.version.log_uses();
        let counted = counted.iter().map(|(number, used)| (*number, used.live()));
        let counted: BTreeMap<_, _> = counted.filter(|(_, live)| *live > 0).collect();
        let recounted = std::mem::take(&mut self.recounted);
        let numbers: BTreeSet<_> = counted.keys().chain(recounted.keys()).collect();
        for number in numbers {
            let said = counted.get(number).copied().unwrap_or_default();
            let found = recounted.get(number).copied().unwrap_or_default();
            if said != found {
                let what = format!(
                    "the manifest counts {said} bytes to which levels point, the levels have {found}"
                );
                self.report(ProblemKind::Reference, COUNTS, (*number, 0), what);
            }
        }
    }

    /// Says of which log segments the pointers cannot be counted again: those to which more pointers count than were
    /// found in what can be read.
    fn note_unknown(&mut self) {
        let found = |number| self.recounted.get(number).copied().unwrap_or_default();
        let counted = self.version.log_uses();
        let unknown = counted
            .iter()
            .filter(|(number, used)| used.live() > found(*number));
        let numbers: Vec<String> = unknown.map(|(number, _)| number.to_string()).collect();
        if numbers.is_empty() {
            return;
        }
        let named = numbers[..numbers.len().min(NAMED_MAX)].join(", ");
        let more = match numbers.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        self.notes.push(format!(
            "{}: not all pointers into {named}{more} could be counted again, since segments with pointers are \
             damaged; what these point to stays",
            self.region
        ));
    }
}
