//! What scans and snapshots saw.

use std::collections::BTreeMap;

use argosy_base::range::Printable;
use argosy_base::{Direction, KeyRange};

use super::{Load, Pairs, Pending, Wrong};
use crate::asks::{Ask, is_counter};
use crate::bulk::is_bulk;
use crate::changes::is_changed;
use crate::check::Bound;
use crate::check::register::Kind;
use crate::long::is_long;
use crate::many::is_of_many;
use crate::objects::Objects;

impl Load {
    pub(super) fn page(
        &mut self,
        objects: &Objects,
        (op, pending): (u32, &Pending),
        (pairs, next): (Pairs, Option<Vec<u8>>),
        ended: u64,
    ) -> Result<(), Wrong> {
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
        self.pairs(
            objects,
            op,
            (&covered, paging.keys_only),
            pairs,
            (pending.began, ended),
        )
    }

    /// `pairs` are all that `range` had at some moment, as it was seen.
    ///
    /// # Errors
    /// What is wrong with them.
    #[expect(clippy::too_many_arguments, reason = "what is known of one answer")]
    fn pairs(
        &mut self,
        objects: &Objects,
        op: u32,
        (range, keys_only): (&KeyRange, bool),
        pairs: Pairs,
        when: (u64, u64),
    ) -> Result<(), Wrong> {
        let mut found: BTreeMap<(usize, usize), Vec<u8>> = BTreeMap::new();
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
        let objects_seen: Vec<(usize, usize)> = objects.within(range).collect();
        for (object, first) in objects_seen {
            let keys = &objects.get(object).keys;
            let mut bounds = Vec::new();
            for at in (first..keys.len()).filter(|at| range.contains(&keys[*at])) {
                bounds.push(match found.get(&(object, at)) {
                    None => Bound::Absent,
                    Some(_) if keys_only => Bound::Empty,
                    Some(value) => self.read(objects, (object, at), value)?,
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
            self.saw(op, object, kind, when);
        }
        Ok(())
    }

    /// The moment of a snapshot that is taken now, and that is read later.
    pub fn snapshot_moment(&mut self) -> (u64, u64) {
        (self.moment(), self.moment())
    }

    /// A snapshot that was taken at `when` has these pairs in `range`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn snapshot(
        &mut self,
        objects: &Objects,
        range: &KeyRange,
        pairs: Pairs,
        when: (u64, u64),
    ) -> Result<(), Wrong> {
        self.pairs(objects, u32::MAX, (range, false), pairs, when)
    }
}
