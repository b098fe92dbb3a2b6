//! Which of the level segments that an edit adds are held here, in the version or as arrivals.
//!
//! Where pointers hold numbers, a segment of the same bytes is held, whatever keys it stands for. Where they hold
//! places, its pointers have to count as well. A level segment of the version may stand here for fewer keys than in
//! a checkpoint: a copy that builds its own levels was filled with it, and has merged a part of it. What its other
//! pointers lead to may be gone, or lie elsewhere when it comes back. The same holds of an index segment of a tree
//! whose children come back. Such a segment is fetched again.

use std::collections::{BTreeMap, BTreeSet};

use argosy_base::{KeyRange, SegmentNumber};

use super::Replica;
use super::places::Arrival;
use crate::addresses::Addressing;
use crate::edit::{Edit, LevelSegment, RunId};
use crate::names::Form;

/// By number.
type Named<'e> = BTreeMap<SegmentNumber, &'e LevelSegment>;

/// A copy, as far as it is looked at for what it holds.
#[derive(Clone, Copy)]
pub(super) struct Held<'r>(&'r Replica);

impl<'r> Held<'r> {
    /// What `replica` holds.
    pub(super) const fn by(replica: &'r Replica) -> Self {
        Self(replica)
    }

    /// The level segments that `edit`, which was [noted](super::places::Incoming::note_counted), adds and that are
    /// neither in the version nor have arrived. What leaves and nodes of a tree lead to comes before them.
    pub(super) fn missing<'e>(&self, edit: &'e Edit) -> Vec<&'e LevelSegment> {
        if self.0.storage.settings().mutants.commit_before_arrival() {
            return Vec::new();
        }
        let named = edit.added.iter();
        let named = named.map(|(_, _, segment)| (segment.number, segment));
        let mut named: Named<'_> = named.collect();
        let added: BTreeSet<_> = named.keys().copied().collect();
        named.retain(|_, segment| !self.is_here(segment, edit.checkpoint));
        self.add_parents(edit, &mut named);
        named.retain(|_, segment| !self.has_arrived(segment, &added));
        let mut missing: Vec<_> = named.into_values().collect();
        missing.sort_by_key(|segment| (segment.form != Form::Medium, segment.form.to_raw()));
        missing
    }

    /// Whether the version has `segment`. Where pointers hold places, all of those have to count here that do in the
    /// checkpoint.
    fn is_here(&self, segment: &LevelSegment, checkpoint: bool) -> bool {
        let head = self.0.storage.head();
        let here = head.finished_segment(segment.number);
        if !here.is_some_and(|here| same(segment, &here.segment)) {
            return false;
        }
        let rewrites = head.addresses().rewrites(segment) && !segment.form.is_index();
        if !checkpoint || !rewrites || self.0.settings().mutants.keep_trimmed() {
            return true;
        }
        let counted = head.counted_ranges(segment.number);
        self.0.incoming.counts(segment.number, &counted)
    }

    /// Adds the index segments of trees of which `named` has a segment: their nodes hold the places of others.
    fn add_parents<'e>(&self, edit: &'e Edit, named: &mut Named<'e>) {
        if !edit.checkpoint {
            return;
        }
        let all = || edit.added.iter().filter(|(_, _, s)| is_of_tree(s.form));
        let missing = all().filter(|(_, _, segment)| named.contains_key(&segment.number));
        let runs: BTreeSet<(u8, RunId)> = missing.map(|(level, run, _)| (*level, *run)).collect();
        let index = all().filter(|(level, run, _)| runs.contains(&(*level, *run)));
        let addresses = self.0.storage.head().addresses();
        let index = index.filter(|(_, _, s)| s.form.is_index() && addresses.rewrites(s));
        named.extend(index.map(|(_, _, segment)| (segment.number, segment)));
    }

    /// Whether `segment` has arrived, one of those that the edit has `added`.
    fn has_arrived(&self, segment: &LevelSegment, added: &BTreeSet<SegmentNumber>) -> bool {
        // In place of a leaf segment that was lost on its way here the primary may have had another one, which no
        // edit will name, and an index segment that was shipped leads to that.
        let belongs = |number: &SegmentNumber| {
            added.contains(number) || !self.0.incoming.arrivals.contains_key(number)
        };
        let arrival = self.0.incoming.arrivals.get(&segment.number);
        arrival.is_some_and(|arrival| {
            let leads_right = || arrival.fetched || arrival.leads_to().all(belongs);
            let counted: Option<Vec<&KeyRange>> =
                arrival.counted.as_ref().map(|of| of.iter().collect());
            arrival.is_of(segment)
                && self.is_placed(arrival)
                && counted.is_none_or(|of| self.0.incoming.counts(segment.number, &of))
                && (!segment.form.is_index() || leads_right())
        })
    }

    /// Whether the bytes of `arrival` hold the places that its segments have now.
    pub(super) fn is_placed(&self, arrival: &Arrival) -> bool {
        arrival.is_placed(|number| {
            let stored = self.0.storage.segment(number);
            stored.map(|stored| stored.place()).unwrap_or_default()
        })
    }
}

/// Whether both are the same segment, whatever keys they stand for.
fn same(a: &LevelSegment, b: &LevelSegment) -> bool {
    (a.number, a.epoch, a.len, a.checksum) == (b.number, b.epoch, b.len, b.checksum)
}

/// Whether a segment of this form belongs to a tree.
fn is_of_tree(form: Form) -> bool {
    form == Form::Leaves || form.is_index()
}

/// Whether every key of `range` is in one of `parts`.
pub(super) fn covers(parts: &[&KeyRange], range: &KeyRange) -> bool {
    let mut parts = parts.to_vec();
    parts.sort_unstable();
    let mut left = range.clone();
    for part in parts {
        if left.is_empty() || part.from > left.from {
            break;
        }
        match &part.to {
            None => return true,
            Some(to) => left.from = left.from.max(to.clone()),
        }
    }
    left.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, to: &str) -> KeyRange {
        KeyRange::new(from, (!to.is_empty()).then(|| to.as_bytes().to_vec()))
    }

    #[test]
    fn a_range_is_covered_by_parts_without_a_gap() {
        let covered = |parts: &[(&str, &str)], whole: (&str, &str)| {
            let parts: Vec<_> = parts.iter().map(|(from, to)| range(from, to)).collect();
            covers(&parts.iter().collect::<Vec<_>>(), &range(whole.0, whole.1))
        };
        assert!(covered(&[("a", "m")], ("a", "m")));
        assert!(covered(&[("m", "z"), ("a", "m")], ("b", "y")));
        assert!(covered(&[("a", "n"), ("m", "")], ("b", "")));
        assert!(covered(&[("a", "c"), ("a", "z"), ("b", "d")], ("b", "y")));
        assert!(!covered(&[("a", "m"), ("n", "z")], ("b", "y")));
        assert!(!covered(&[("b", "z")], ("a", "c")));
        assert!(!covered(&[("a", "m")], ("b", "")));
        assert!(!covered(&[], ("b", "c")));
    }
}
