//! Compares what the manifest counts of references with what a pass over the leaves has found.

use std::collections::{BTreeMap, BTreeSet};

use super::verify::Verifier;
use super::{InSegment, ProblemKind};
use crate::names::logs::{LOGS, log_name};

/// What pointers count, as part of a region.
pub(super) const COUNTS: &str = "references";

/// Most log segments that a note names.
const NAMED_MAX: usize = 16;

impl Verifier<'_> {
    /// Whether as many pointers count as there are. Where a leaf cannot be read nobody knows, and a note says so.
    pub(super) fn references(&mut self) {
        let damaged = self
            .problems
            .iter()
            .any(|problem| !LOGS.iter().any(|log| problem.part == log_name(*log)));
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
                self.report(
                    ProblemKind::Reference,
                    COUNTS,
                    InSegment::start(*number),
                    what,
                );
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
