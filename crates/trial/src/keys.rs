//! The keys of a trial: in each region so many, of which clients ask for a few far more often than for the others.
//!
//! A key is a *register*, which is written, deleted and read, or a *counter*, which is only ever incremented. An
//! element of a collection counts as a key, too: a *field* of a hash and a *score* in a sorted set are counters, and a
//! *member* of a set is a register of which one can only tell whether it is there. Elements of one kind lie in one
//! collection of the region. Native clients do not ask for them.
//!
//! Keys are numbered region by region, and in a region in the order of [`Use::ALL`].

use argosy_base::KeyRange;
use argosy_bench::rng::{Rng, mix};

use crate::error::TrialError;

/// Registers of each region.
pub(crate) const REGISTERS: usize = 32;

/// Counters of each region.
pub(crate) const COUNTERS: usize = 2;

/// Elements of each kind in each region.
pub(crate) const ELEMENTS: usize = 3;

/// Keys of each region.
pub(crate) const KEYS: usize = REGISTERS + COUNTERS + 3 * ELEMENTS;

/// So many registers of each region get half of the requests.
const HOT: usize = 3;

/// One request in so many is about a counter.
const COUNTER_EVERY: u64 = 12;

/// One request in so many is about an element of a collection.
const ELEMENT_EVERY: u64 = 6;

/// How many names are tried, at most, until each region has its keys.
const TRIES_MAX: u64 = 1_000_000;

/// What a key is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is bound to values, each of which is written once.
    Register,
    /// It is incremented.
    Counter,
    /// It is a field of a hash, which is incremented.
    Field,
    /// It is an element of a sorted set, whose score is incremented.
    Score,
    /// It is an element of a set, which is added and removed.
    Member,
}

impl Use {
    /// All of them.
    const ALL: [Self; 5] = [
        Self::Register,
        Self::Counter,
        Self::Field,
        Self::Score,
        Self::Member,
    ];

    /// How many keys of each region are used so.
    const fn count(self) -> usize {
        match self {
            Self::Register => REGISTERS,
            Self::Counter => COUNTERS,
            Self::Field | Self::Score | Self::Member => ELEMENTS,
        }
    }

    /// Whether the key is an element of a collection.
    pub(crate) const fn is_element(self) -> bool {
        matches!(self, Self::Field | Self::Score | Self::Member)
    }
}

/// The place of a key among those of its region that are used as it is.
struct Place {
    used: Use,
    index: usize,
}

fn place_of(key: usize) -> Place {
    let mut index = key % KEYS;
    for used in Use::ALL {
        if index < used.count() {
            return Place { used, index };
        }
        index -= used.count();
    }
    unreachable!("the uses of a region's keys are all keys")
}

/// What the key of this number is used for.
#[must_use]
pub(crate) fn use_of(key: usize) -> Use {
    place_of(key).used
}

/// What the key of this number is called: its name among `names`, or that of the collection of which it is an element,
/// which is named here, too.
#[must_use]
pub(crate) fn called(names: &[Vec<u8>], key: usize) -> Called<'_> {
    let Place { used, index } = place_of(key);
    match used.is_element() {
        true => Called {
            name: &names[key - index],
            element: format!("e{index}").into_bytes(),
        },
        false => Called {
            name: &names[key],
            element: Vec::new(),
        },
    }
}

/// What a key is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Called<'a> {
    /// The name of the key, or of the collection.
    pub name: &'a [u8],
    /// The name of the element; empty where the key is none.
    pub element: Vec<u8>,
}

/// Names of [`KEYS`] keys in each of `regions`, in the order of their numbers.
///
/// # Errors
/// A region is so narrow that no names are found in it.
pub(crate) fn names_in(regions: &[KeyRange]) -> Result<Vec<Vec<u8>>, TrialError> {
    let mut found = vec![Vec::new(); regions.len()];
    for n in 0..TRIES_MAX {
        let name = name(n);
        let region = regions.iter().position(|range| range.contains(&name));
        if let Some(of_it) = region.map(|region| &mut found[region])
            && of_it.len() < KEYS
        {
            of_it.push(name);
        }
        if found.iter().all(|names| names.len() == KEYS) {
            return Ok(found.concat());
        }
    }
    Err(TrialError::Cluster(
        "a region is too narrow: no keys were found that lie in it".to_owned(),
    ))
}

/// The name that is tried at the `n`th place.
fn name(n: u64) -> Vec<u8> {
    spread("", n)
}

/// The `n`th name of a kind: its first characters may be any, so that all regions have some.
#[must_use]
pub(crate) fn spread(kind: &str, n: u64) -> Vec<u8> {
    let spread = mix(n);
    let digit = |shift: u32| {
        let digit = u32::try_from((spread >> shift) % 36).expect("it is below 36");
        char::from_digit(digit, 36).expect("it is a digit")
    };
    format!("{}{}-{kind}{n}", digit(0), digit(8)).into_bytes()
}

/// The number of a key of `region` that is asked for next, an element or not where `elements` says so.
pub(crate) fn choose(region: usize, elements: bool, rng: &mut Rng) -> usize {
    let below = |rng: &mut Rng, bound: usize| {
        let chosen = rng.below(u64::try_from(bound).expect("few keys"));
        usize::try_from(chosen).expect("few keys")
    };
    let key = if elements && rng.below(ELEMENT_EVERY) == 0 {
        REGISTERS + COUNTERS + below(rng, 3 * ELEMENTS)
    } else if rng.below(COUNTER_EVERY) == 0 {
        REGISTERS + below(rng, COUNTERS)
    } else if rng.below(2) == 0 {
        below(rng, HOT)
    } else {
        below(rng, REGISTERS)
    };
    region * KEYS + key
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_region_has_its_keys() {
        let c = b"c".to_vec();
        let regions = [
            KeyRange::new("", Some(c.clone())),
            KeyRange::new("c", Some(b"o".to_vec())),
            KeyRange::new("o", None),
        ];
        let names = names_in(&regions).unwrap();
        assert_eq!(names.len(), 3 * KEYS);
        for (key, name) in names.iter().enumerate() {
            assert!(regions[key / KEYS].contains(name), "{name:?}");
        }
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names.len());
        assert!(names_in(&[KeyRange::new("c", Some(c))]).is_err());
    }

    #[test]
    fn every_key_of_a_region_is_chosen_and_no_other() {
        for elements in [false, true] {
            let mut rng = Rng::new(1, 0);
            let mut seen = [0_u32; 3 * KEYS];
            for _ in 0..10_000 {
                seen[choose(1, elements, &mut rng)] += 1;
            }
            for (key, times) in seen.iter().enumerate() {
                let may = elements || !use_of(key).is_element();
                assert_eq!(*times > 0, key / KEYS == 1 && may, "key {key}");
            }
            let hot = &seen[KEYS..KEYS + HOT];
            assert!(hot.iter().sum::<u32>() > 3500, "{hot:?}");
        }
    }

    #[test]
    fn elements_of_a_kind_lie_in_one_collection() {
        let names: Vec<_> = (0..2 * KEYS).map(|n| name(n as u64)).collect();
        let mut collections = BTreeMap::new();
        for key in KEYS..2 * KEYS {
            let Called { name, element } = called(&names, key);
            assert_eq!(element.is_empty(), !use_of(key).is_element());
            let own: &mut Vec<_> = collections.entry(name.to_vec()).or_default();
            assert!(!own.contains(&(use_of(key), element.clone())), "{key}");
            own.push((use_of(key), element));
        }
        for own in collections.values() {
            let (used, element) = &own[0];
            assert!(own.iter().all(|(other, _)| other == used));
            let most = if element.is_empty() { 1 } else { ELEMENTS };
            assert_eq!(own.len(), most);
        }
    }
}
