//! The elements of composites within a transaction.
//!
//! What was read of them is known, and what commands have left. Of a version that was drawn here nothing else is there.

use std::collections::BTreeMap;

use argosy_base::{Direction, KeyRange};
use argosy_engine::composite::{Composite, ElementsOf};
use argosy_engine::{Expiry, Op};

use super::super::read_set::{Stretch, bounds};
use super::{Halt, Overlay};

/// Elements in their order: keys and values.
pub(in crate::resp) type Elements = Vec<(Vec<u8>, Vec<u8>)>;

impl Overlay<'_> {
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
        });
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
