//! The keys of a trial: in each region so many, of which clients ask for a few far more often than for the others.
//!
//! A key is a *register*, which is written, deleted and read, or a *counter*, which is only ever incremented. Keys
//! are numbered region by region, the counters of a region behind its registers.

use argosy_base::KeyRange;
use argosy_bench::rng::{Rng, mix};

use crate::error::TrialError;

/// Registers of each region.
pub(crate) const REGISTERS: usize = 32;

/// Counters of each region.
pub(crate) const COUNTERS: usize = 2;

/// Keys of each region.
pub(crate) const KEYS: usize = REGISTERS + COUNTERS;

/// So many registers of each region get half of the requests.
const HOT: usize = 3;

/// One request in so many is about a counter.
const COUNTER_EVERY: u64 = 12;

/// How many names are tried, at most, until each region has its keys.
const TRIES_MAX: u64 = 1_000_000;

/// What a key is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is bound to values, each of which is written once.
    Register,
    /// It is incremented.
    Counter,
}

/// What the key of this number is used for.
#[must_use]
pub(crate) const fn use_of(key: usize) -> Use {
    if key % KEYS < REGISTERS {
        Use::Register
    } else {
        Use::Counter
    }
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

/// The number of a key of `region` that is asked for next.
pub(crate) fn choose(region: usize, rng: &mut Rng) -> usize {
    let below = |rng: &mut Rng, bound: usize| {
        let chosen = rng.below(u64::try_from(bound).expect("few keys"));
        usize::try_from(chosen).expect("few keys")
    };
    let key = if rng.below(COUNTER_EVERY) == 0 {
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
        let mut rng = Rng::new(1, 0);
        let mut seen = [0_u32; 3 * KEYS];
        for _ in 0..10_000 {
            seen[choose(1, &mut rng)] += 1;
        }
        for (key, times) in seen.iter().enumerate() {
            assert_eq!(*times > 0, key / KEYS == 1, "key {key}");
        }
        let hot = &seen[KEYS..KEYS + HOT];
        assert!(hot.iter().sum::<u32>() > 4000, "{hot:?}");
    }
}
