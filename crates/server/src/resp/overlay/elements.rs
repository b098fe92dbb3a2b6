//! The elements of composites within a transaction.
//!
//! What was read of them is known, and what commands have left. Of a version that was drawn here nothing else is there.

use std::collections::BTreeMap;

use argosy_base::range::successor;
use argosy_base::{Direction, KeyRange};
use argosy_engine::composite::{Composite, ElementsOf};
use argosy_engine::long::is_reserved;
use argosy_engine::{Expiry, Guard, Op};

use super::super::read_set::{Keeps, Stretch, bounds};
use super::{Halt, Overlay};

/// Elements in their order: keys and values.
pub(in crate::resp) type Elements = Vec<(Vec<u8>, Vec<u8>)>;

/// Most elements of a write that counts.
const COUNTED_MAX: usize = 64;

/// A head that is not written as it was read: what is left of it is counted where writes are put in order.
pub(super) struct Counts<'o> {
    pub(super) key: &'o Vec<u8>,
    pub(super) guard: Guard,
}

impl Overlay<'_> {
    /// Where all that was changed is elements of one composite that was there, and what was read of it are elements by
    /// their names: how its head counts.
    pub(super) fn counts(&self) -> Option<Counts<'_>> {
        let mut heads = self.read.keys.iter().filter(|(key, _)| !is_reserved(key));
        let (Some((key, found)), None) = (heads.next(), heads.next()) else {
            return None;
        };
        let before = found.value.as_deref().and_then(Composite::parse)?;
        let version = before.version;
        let after = match self.left.get(key)? {
            None => 0,
            Some(pair) => {
                let head = Composite::parse(&pair.value)?;
                let stays = head.version == version && pair.expiry == found.expiry;
                stays.then_some(head.number)?
            }
        };
        let is_own = |key: &Vec<u8>| ElementsOf::parse(key).is_some_and(|of| of.version == version);
        let mut others = self.left.keys().filter(|other| *other != key);
        let may = self.read.is_by_name() && self.left.len() <= COUNTED_MAX && others.all(is_own);
        let change = after.checked_signed_diff(before.number).filter(|_| may)?;
        let guard = Guard::Counts { version, change };
        Some(Counts { key, guard })
    }

    /// A version that no composite has had.
    pub(in crate::resp) fn draw(&mut self) -> u128 {
        let version = self.versions.draw();
        self.fresh.insert(version);
        version
    }

    /// Whether `key` is of an element whose version was drawn here.
    pub(super) fn is_fresh(&self, key: &[u8]) -> bool {
        ElementsOf::parse(key).is_some_and(|of| self.fresh.contains(&of.version))
    }

    /// Whether the head of an element, as commands have left it, names its version.
    pub(super) fn is_named(&self, key: &[u8]) -> bool {
        let of = ElementsOf::parse(key);
        let head = of.and_then(|of| self.value(of.key));
        let head = head.and_then(Composite::parse);
        head.map(|head| head.version) == of.map(|of| of.version)
    }

    /// What an element is bound to; `None`: that was not read.
    fn known_element(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        match self.left.get(key) {
            Some(left) => Some(left.as_ref().map(|pair| pair.value.as_slice())),
            None if self.is_fresh(key) => Some(None),
            None => self.read.element(key),
        }
    }

    /// Looks whether all of these elements were read.
    ///
    /// # Errors
    /// [`Halt::NotRead`].
    pub(in crate::resp) fn know(
        &mut self,
        keys: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<(), Halt> {
        let mut all = true;
        for key in keys {
            if self.known_element(&key).is_none() {
                self.wants.key(key);
                all = false;
            }
        }
        if all { Ok(()) } else { Err(Halt::NotRead) }
    }

    /// What an element is bound to.
    ///
    /// # Errors
    /// [`Halt::NotRead`].
    pub(in crate::resp) fn element(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Halt> {
        self.know([key.to_vec()])?;
        Ok(self.known_element(key).flatten())
    }

    /// The first `most` elements of `range`, all of one version, in this direction.
    ///
    /// # Errors
    /// [`Halt::NotRead`].
    pub(in crate::resp) fn elements(
        &mut self,
        range: &KeyRange,
        direction: Direction,
        most: usize,
    ) -> Result<Elements, Halt> {
        if range.is_empty() || most == 0 {
            return Ok(Vec::new());
        }
        let known = match self.is_fresh(&range.from) {
            true => range.clone(),
            false => self.read.known_of(range, direction),
        };
        let found = self.merged(&known, direction, most);
        if found.len() >= most || known == *range {
            return Ok(found);
        }
        // Some of what is read now may have been removed here.
        let over = self.left.range::<[u8], _>(bounds(range)).count();
        let mut rest = range.clone();
        match direction {
            _ if known.is_empty() => {}
            Direction::Up => rest.from = known.to.unwrap_or_default(),
            Direction::Down => rest.to = Some(known.from),
        }
        self.wants.stretch(Stretch {
            range: rest,
            direction,
            most: (most - found.len()).saturating_add(over),
            keeps: self.keeps,
        });
        Err(Halt::NotRead)
    }

    /// Goes past the first `most` elements of `range`, all of one version, in this direction, and keeps none of them.
    /// Returns how many there were, and what lies behind them.
    ///
    /// # Errors
    /// [`Halt::NotRead`].
    pub(in crate::resp) fn pass(
        &mut self,
        range: &KeyRange,
        direction: Direction,
        most: usize,
    ) -> Result<(u64, KeyRange), Halt> {
        if range.is_empty() || most == 0 {
            return Ok((0, range.clone()));
        }
        let touched = self.left.range::<[u8], _>(bounds(range)).next().is_some();
        if touched || self.is_fresh(&range.from) {
            // They are told apart by name.
            let found = self.elements(range, direction, most)?;
            let mut rest = range.clone();
            match (found.last(), direction) {
                (None, _) => rest.to = Some(rest.from.clone()),
                (Some((last, _)), Direction::Up) => rest.from = successor(last),
                (Some((last, _)), Direction::Down) => rest.to = Some(last.clone()),
            }
            return Ok((found.len() as u64, rest));
        }
        let asked = Stretch {
            range: range.clone(),
            direction,
            most,
            keeps: Keeps::Nothing,
        };
        if let Some(passed) = self.read.passed(&asked) {
            return Ok((passed.number, passed.rest.clone()));
        }
        self.wants.stretch(asked);
        Err(Halt::NotRead)
    }

    /// The first `most` elements of `known`, all of which are known.
    fn merged(&self, known: &KeyRange, direction: Direction, most: usize) -> Elements {
        let mut all: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
        let read = self.read.elements_in(known);
        all.extend(read.map(|(key, value)| (key.as_slice(), Some(value.as_slice()))));
        for (key, pair) in self.left.range::<[u8], _>(bounds(known)) {
            all.insert(key, pair.as_ref().map(|pair| pair.value.as_slice()));
        }
        let bound = all.into_iter();
        let bound = bound.filter_map(|(key, value)| Some((key.to_vec(), value?.to_vec())));
        match direction {
            Direction::Up => bound.take(most).collect(),
            Direction::Down => bound.rev().take(most).collect(),
        }
    }

    /// Binds a key of whatever kind.
    ///
    /// # Errors
    /// [`Halt::Limit`].
    pub(in crate::resp) fn put_any(
        &mut self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<(), Halt> {
        Ok(self.apply(&Op::Put { key, value, expiry })?)
    }

    /// Removes a key of whatever kind.
    ///
    /// # Errors
    /// [`Halt::Limit`].
    pub(in crate::resp) fn delete_any(&mut self, key: &[u8]) -> Result<(), Halt> {
        Ok(self.apply(&Op::Delete { key })?)
    }
}
