//! What scans and snapshots saw.

use std::collections::BTreeMap;
use std::ops::Range;

use argosy_base::range::Printable;
use argosy_base::{Direction, KeyRange};

use super::{Answered, Load, Pairs, Wrong};
use crate::asks::{Ask, is_counter};
use crate::bulk::is_bulk;
use crate::changes::is_changed;
use crate::check::Bound;
use crate::check::register::Kind;
use crate::long::is_long;
use crate::many::is_of_many;
use crate::objects::{ObjectKey, Objects};

/// All pairs that a range had at some moment.
struct Seen<'a> {
    range: &'a KeyRange,
    /// Values were not asked for.
    keys_only: bool,
    pairs: Pairs,
    /// The moment lies in this range.
    when: Range<u64>,
}

impl Load {
    pub(super) fn page(
        &mut self,
        objects: &Objects,
        answered: Answered<'_>,
        pairs: Pairs,
        next: Option<Vec<u8>>,
    ) -> Result<(), Wrong> {
        let Answered { op, pending, .. } = answered;
        let Ask::Scan { range, paging } = &pending.ask else {
            panic!("the caller has looked");
        };
        let up = paging.direction == Direction::Up;
        let rises = |a: &[u8], b: &[u8]| if up { a < b } else { a > b };
        let in_order = pairs.windows(2).all(|two| rises(&two[0].0, &two[1].0));
        let inside = pairs.iter().all(|(key, _)| range.contains(key));
        // Upwards the next page begins with `next`, downwards below it.
        let goes_on = next.as_ref().is_none_or(|next| {
            let last = pairs.last().map(|(last, _)| last);
            if up {
                *next > range.from && last.is_none_or(|last| last < next)
            } else {
                range.to.as_ref().is_none_or(|to| next < to) && last.is_none_or(|last| last >= next)
            }
        });
        if !in_order || !inside || !goes_on || pairs.len() > paging.pairs_max {
            let count = pairs.len();
            return Err(format!(
                "op {op}: a page of {count} pairs is not one of {range}"
            ));
        }
        let mut covered = range.clone();
        if let Some(next) = next {
            // What is left for a scan the other way that begins where this one ended.
            let back = match paging.direction {
                Direction::Up => Direction::Down,
                Direction::Down => Direction::Up,
            };
            covered.go_on_at(back, next);
        }
        let seen = Seen {
            range: &covered,
            keys_only: paging.keys_only,
            pairs,
            when: pending.began..answered.ended,
        };
        self.pairs(objects, op, seen)
    }

    /// Operation `op` has seen this.
    ///
    /// # Errors
    /// What is wrong with it.
    fn pairs(&mut self, objects: &Objects, op: u32, seen: Seen<'_>) -> Result<(), Wrong> {
        let Seen {
            range,
            keys_only,
            pairs,
            when,
        } = seen;
        let mut found: BTreeMap<ObjectKey, Vec<u8>> = BTreeMap::new();
        for (key, value) in pairs {
            let of_clients = is_bulk(&key) || is_changed(&key) || is_of_many(&key);
            if is_counter(&key) || is_long(&key) || of_clients {
                continue;
            }
            let Some(at) = objects.find(&key) else {
                return Err(format!(
                    "op {op} found key {}, which nobody wrote",
                    Printable(&key)
                ));
            };
            found.insert(at, value);
        }
        for ObjectKey { object, index } in objects.within(range) {
            let keys = &objects.get(object).keys;
            let mut bounds = Vec::new();
            for index in (index..keys.len()).filter(|index| range.contains(&keys[*index])) {
                let at = ObjectKey { object, index };
                bounds.push(match found.get(&at) {
                    None => Bound::Absent,
                    Some(_) if keys_only => Bound::Empty,
                    Some(value) => self.read(objects, at, value)?,
                });
            }
            if bounds.iter().any(|bound| *bound != bounds[0]) {
                return Err(format!(
                    "op {op} saw object {object}, a group, not whole: {bounds:?}"
                ));
            }
            let kind = if keys_only {
                Kind::Exists(bounds[0] != Bound::Absent)
            } else {
                Kind::Read(bounds[0])
            };
            self.saw(op, object, kind, when.clone());
        }
        Ok(())
    }

    /// The moment of a snapshot that is taken now, and that is read later.
    pub(crate) fn snapshot_moment(&mut self) -> Range<u64> {
        self.moment()..self.moment()
    }

    /// A snapshot that was taken at `when` has these pairs in `range`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn snapshot(
        &mut self,
        objects: &Objects,
        range: &KeyRange,
        pairs: Pairs,
        when: Range<u64>,
    ) -> Result<(), Wrong> {
        let seen = Seen {
            range,
            keys_only: false,
            pairs,
            when,
        };
        self.pairs(objects, u32::MAX, seen)
    }
}
