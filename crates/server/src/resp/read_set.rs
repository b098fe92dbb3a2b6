//! What was read for a transaction, and how it is read: keys by name, and stretches of elements in order.
//!
//! 1. The keys that its commands name are examined: values, expiries and versions.
//! 2. What a command lacks when it is carried out ([`Wants`]) is read next, and the commands are carried out anew:
//!    elements of a [composite](argosy_engine::composite) are known by the version that its head names, and so only
//!    when the head is.
//!
//! Elements that a scan brought have no versions. They need none: whoever changes an element writes the head.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use argosy_base::{Direction, KeyRange, Moment};
use argosy_engine::Wanted;
use argosy_engine::long::is_reserved;
use argosy_wire::api::{Examined, Plan, Scratch};

use crate::service::{KeyList, Paging, Response};

/// Most elements of one page.
const PAGE_ELEMENTS: usize = 4096;
/// Bytes of keys and values from which on an answer ends.
pub(super) const PAGE_BYTES: usize = 256 << 10;

/// What was read for a transaction.
#[derive(Debug)]
pub(super) struct ReadSet {
    /// The region's time, once something was read.
    pub(super) now: Moment,
    pub(super) keys: BTreeMap<Vec<u8>, Examined>,
    /// Elements that were read in order.
    elements: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Where these are all that there are.
    covered: Vec<KeyRange>,
    passed: Vec<Passed>,
    /// Bytes of keys and values.
    pub(super) bytes: usize,
    /// How many answers it is from.
    pub(super) answers: u32,
    /// Any element was there.
    pub(super) any_element: bool,
    /// All of it is from one answer, and so of one moment; as it is where nothing was read.
    pub(super) at_once: bool,
}

impl Default for ReadSet {
    fn default() -> Self {
        Self {
            now: Moment(0),
            keys: BTreeMap::new(),
            elements: BTreeMap::new(),
            covered: Vec::new(),
            passed: Vec::new(),
            bytes: 0,
            answers: 0,
            any_element: false,
            at_once: true,
        }
    }
}

impl ReadSet {
    /// Takes what was found for `keys`, the first of those that were asked for. Returns how many.
    pub(super) fn take<'k>(
        &mut self,
        now: Moment,
        keys: impl Iterator<Item = &'k [u8]>,
        found: Vec<Examined>,
    ) -> usize {
        if self.keys.is_empty() {
            self.now = now;
        }
        self.answers += 1;
        let told = found.len();
        for (key, found) in keys.zip(found) {
            self.bytes += key.len() + found.value.as_ref().map_or(0, Vec::len);
            self.any_element |= found.value.is_some() && is_reserved(key);
            self.keys.insert(key.to_vec(), found);
        }
        told
    }

    /// Takes the first pairs of a stretch, up to `next` or to its end.
    fn take_page(&mut self, of: &Stretch, pairs: Vec<(Vec<u8>, Vec<u8>)>, next: Option<&Vec<u8>>) {
        self.answers += 1;
        self.any_element |= !pairs.is_empty();
        for (key, value) in pairs {
            self.bytes += key.len() + value.len();
            self.elements.insert(key, value);
        }
        let mut range = of.range.clone();
        match (of.direction, next) {
            (_, None) => {}
            (Direction::Up, Some(next)) => range.to = Some(next.clone()),
            (Direction::Down, Some(next)) => range.from.clone_from(next),
        }
        self.bytes += range.from.len();
        // Pages follow each other.
        for known in &mut self.covered {
            if known.to.as_ref() == Some(&range.from) {
                known.to = range.to;
                return;
            }
            if range.to.as_ref() == Some(&known.from) {
                known.from = range.from;
                return;
            }
        }
        self.covered.push(range);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What an element is bound to; `None`: that was not read.
    pub(super) fn element(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if let Some(found) = self.keys.get(key) {
            return Some(found.value.as_deref());
        }
        let covered = self.covered.iter().any(|range| range.contains(key));
        covered.then(|| self.elements.get(key).map(Vec::as_slice))
    }

    /// What is told of elements that are not kept, if that was asked for.
    pub(super) fn passed(&self, asked: &Stretch) -> Option<&Passed> {
        self.passed.iter().find(|passed| passed.asked == *asked)
    }

    /// Whether elements were read in their order.
    pub(super) const fn is_by_name(&self) -> bool {
        self.covered.is_empty() && self.passed.is_empty()
    }

    /// The part of `range`, from where it begins in this direction on, of which all elements are known.
    pub(super) fn known_of(&self, range: &KeyRange, direction: Direction) -> KeyRange {
        let mut rest = range.clone();
        let goes_on = |rest: &KeyRange| {
            let begins = |known: &&KeyRange| match direction {
                Direction::Up => known.contains(&rest.from),
                Direction::Down => match (&known.to, &rest.to) {
                    (None, _) => true,
                    (Some(_), None) => false,
                    (Some(known_to), Some(to)) => known.from < *to && to <= known_to,
                },
            };
            self.covered.iter().find(begins).cloned()
        };
        while !rest.is_empty()
            && let Some(known) = goes_on(&rest)
        {
            match (direction, known.to) {
                (Direction::Up, Some(to)) => rest.from = to,
                (Direction::Up, None) => return range.clone(),
                (Direction::Down, _) => rest.to = Some(known.from.max(range.from.clone())),
            }
        }
        match direction {
            _ if rest.is_empty() => range.clone(),
            Direction::Up => KeyRange::new(range.from.clone(), Some(rest.from)),
            Direction::Down => match rest.to {
                Some(to) => KeyRange::new(to, range.to.clone()),
                None => KeyRange::new(range.from.clone(), Some(range.from.clone())),
            },
        }
    }

    /// The elements in `range` that were read in order.
    pub(super) fn elements_in(
        &self,
        range: &KeyRange,
    ) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.elements.range::<[u8], _>(bounds(range))
    }
}

/// `range`, which is not upside down, as bounds of a map.
pub(super) fn bounds(range: &KeyRange) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let to = match &range.to {
        Some(to) if *to <= range.from => Bound::Excluded(range.from.as_slice()),
        Some(to) => Bound::Excluded(to.as_slice()),
        None => Bound::Unbounded,
    };
    (Bound::Included(&range.from), to)
}

/// Elements that are to be read in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Between which keys.
    pub(super) range: KeyRange,
    /// From which end.
    pub(super) direction: Direction,
    /// At most so many.
    pub(super) most: usize,
    pub(super) keeps: Keeps,
}

/// What is kept of elements that are read in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Nothing: they are counted, and it is told where the next one is.
    Nothing,
    /// Their keys, where nobody asks for their values.
    Keys,
    /// All.
    Pairs,
}

/// What is told of elements that are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passed {
    /// What was asked for.
    asked: Stretch,
    /// How many there were.
    pub(super) number: u64,
    /// What lies behind them.
    pub(super) rest: KeyRange,
}

/// What commands lack.
#[derive(Debug, Default)]
pub(super) struct Wants {
    keys: BTreeSet<Vec<u8>>,
    stretches: Vec<Stretch>,
}

impl Wants {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.stretches.is_empty()
    }

    pub(super) fn key(&mut self, key: Vec<u8>) {
        self.keys.insert(key);
    }

    /// Has `keys` read again, with the others, if these are read by name.
    pub(super) fn again<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.stretches.is_empty() {
            self.keys.extend(keys.map(<[u8]>::to_vec));
        }
    }

    pub(super) fn stretch(&mut self, stretch: Stretch) {
        if !self.stretches.contains(&stretch) {
            self.stretches.push(stretch);
        }
    }
}

/// What is being read. Its answers come one behind the other.
#[derive(Debug)]
pub(super) struct Reading {
    keys: KeyList,
    wanted: Wanted,
    /// How many keys are known.
    told: usize,
    stretches: VecDeque<Stretch>,
    /// How far the first of them is, if it is not kept.
    passed: Option<Passed>,
}

impl Reading {
    /// Of these keys.
    pub(super) const fn of_keys(keys: KeyList, wanted: Wanted) -> Self {
        let stretches = VecDeque::new();
        Self {
            keys,
            wanted,
            told: 0,
            stretches,
            passed: None,
        }
    }

    /// Of what is wanted.
    pub(super) fn of(wants: Wants) -> Self {
        Self {
            keys: KeyList::of(wants.keys.iter().map(Vec::as_slice)),
            wanted: Wanted::Values(PAGE_BYTES),
            told: 0,
            stretches: wants.stretches.into(),
            passed: None,
        }
    }

    /// The next call; `None`: all is known.
    pub(super) fn plan(&self, scratch: &mut Scratch) -> Option<Plan> {
        if self.told < self.keys.len() {
            let page = &mut scratch.keys;
            page.clear();
            let next = self.told..self.told + self.keys.page(self.told);
            next.for_each(|at| page.push(self.keys.at(at)));
            return Some(Plan::Examine(self.wanted));
        }
        let next = self.stretches.front()?;
        scratch.range.clone_from(&next.range);
        Some(Plan::Scan(Paging {
            direction: next.direction,
            pairs_max: next.most.min(PAGE_ELEMENTS),
            bytes_max: PAGE_BYTES,
            keys_only: next.keeps != Keeps::Pairs,
            at: None,
        }))
    }

    /// Takes the answer to that. `false`: it is none.
    pub(super) fn take(&mut self, response: Response, read: &mut ReadSet) -> bool {
        match response {
            Response::Examined { now, found } if !found.is_empty() => {
                let all = self.told == 0 && found.len() == self.keys.len();
                self.told += read.take(now, self.keys.iter().skip(self.told), found);
                read.at_once = all && read.keys.len() == self.keys.len() && read.is_by_name();
                true
            }
            Response::Page { pairs, next } => {
                let Some(stretch) = self.stretches.front_mut() else {
                    return false;
                };
                let told = pairs.len();
                read.at_once = false;
                if stretch.keeps != Keeps::Nothing {
                    read.take_page(stretch, pairs, next.as_ref());
                } else {
                    let begun = self.passed.get_or_insert_with(|| Passed {
                        asked: stretch.clone(),
                        number: 0,
                        rest: stretch.range.clone(),
                    });
                    begun.number += told as u64;
                    match &next {
                        Some(next) => begun.rest.go_on_at(stretch.direction, next.clone()),
                        None => begun.rest.to = Some(begun.rest.from.clone()),
                    }
                    read.answers += 1;
                    read.any_element |= told > 0;
                }
                stretch.most = stretch.most.saturating_sub(told);
                match next.filter(|_| stretch.most > 0) {
                    Some(next) => stretch.range.go_on_at(stretch.direction, next),
                    None => {
                        read.passed.extend(self.passed.take());
                        self.stretches.pop_front();
                    }
                }
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "read_set_tests.rs"]
mod tests;
