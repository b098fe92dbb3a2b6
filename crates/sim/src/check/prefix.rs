//! What a single copy may hold after it lost power: what its first so many writes left, and at
//! least those that had long been durable.

use std::collections::BTreeMap;

use super::register::{Bound, When};

/// A write, in the order in which the copy took it.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// What is bound to what; all of it or nothing.
    pub to: Vec<(usize, Bound)>,
    /// When only: asked of every object.
    pub condition: When,
}

/// Finds out how many of `writes` are in `held`, which has the objects that are bound. `first` is
/// what was bound before the writes.
///
/// # Errors
/// What is wrong, in words, where no number of writes from `at_least` on leaves this.
pub(crate) fn check(
    first: &BTreeMap<usize, Bound>,
    writes: &[Write],
    held: &BTreeMap<usize, Bound>,
    at_least: usize,
) -> Result<usize, String> {
    let mut state = first.clone();
    let mut nearest = (usize::MAX, 0);
    let mut found = None;
    for count in 0..=writes.len() {
        if let Some(write) = count.checked_sub(1).map(|last| &writes[last]) {
            take(write, &mut state);
        }
        let differ = differences(&state, held);
        nearest = nearest.min((differ.len(), count));
        if differ.is_empty() {
            found = Some(count);
        }
    }
    match found {
        Some(count) if count >= at_least => Ok(count),
        Some(count) => Err(format!(
            "only the first {count} of {} writes survived, though {at_least} had long been durable",
            writes.len()
        )),
        None => Err(format!(
            "no prefix of {} writes leaves this; nearest are the first {}, but {}",
            writes.len(),
            nearest.1,
            explain(first, &writes[..nearest.1], held)
        )),
    }
}

fn take(write: &Write, state: &mut BTreeMap<usize, Bound>) {
    let holds = write.to.iter().all(|(object, _)| match write.condition {
        When::Always => true,
        When::Absent => !state.contains_key(object),
        When::Present => state.contains_key(object),
        When::Is(bound) => state.get(object) == Some(&bound),
    });
    for (object, bound) in write.to.iter().filter(|_| holds) {
        if *bound == Bound::Absent {
            state.remove(object);
        } else {
            state.insert(*object, *bound);
        }
    }
}

fn differences(a: &BTreeMap<usize, Bound>, b: &BTreeMap<usize, Bound>) -> Vec<usize> {
    let in_a = a
        .iter()
        .filter(|(object, bound)| b.get(object) != Some(bound));
    let only_b = b.keys().filter(|object| !a.contains_key(object));
    in_a.map(|(object, _)| *object)
        .chain(only_b.copied())
        .collect()
}

fn explain(
    first: &BTreeMap<usize, Bound>,
    writes: &[Write],
    held: &BTreeMap<usize, Bound>,
) -> String {
    let mut state = first.clone();
    writes.iter().for_each(|write| take(write, &mut state));
    let mut texts = Vec::new();
    for object in differences(&state, held).into_iter().take(4) {
        let of = |map: &BTreeMap<usize, Bound>| map.get(&object).copied().unwrap_or(Bound::Absent);
        texts.push(format!(
            "object {object} has {} instead of {}",
            of(held),
            of(&state)
        ));
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(op: u32, object: usize) -> Write {
        Write {
            to: vec![(object, Bound::To(op))],
            condition: When::Always,
        }
    }

    fn held(pairs: &[(usize, u32)]) -> BTreeMap<usize, Bound> {
        pairs
            .iter()
            .map(|(object, op)| (*object, Bound::To(*op)))
            .collect()
    }

    fn ask(pairs: &[(usize, u32)], at_least: usize) -> Result<usize, String> {
        let writes = [write(1, 0), write(2, 1), write(3, 0)];
        check(&BTreeMap::new(), &writes, &held(pairs), at_least)
    }

    #[test]
    fn every_prefix_is_found() {
        assert_eq!(ask(&[], 0), Ok(0));
        assert_eq!(ask(&[(0, 1)], 0), Ok(1));
        assert_eq!(ask(&[(0, 1), (1, 2)], 2), Ok(2));
        assert_eq!(ask(&[(0, 3), (1, 2)], 3), Ok(3));
    }

    #[test]
    fn a_hole_is_no_prefix() {
        assert!(ask(&[(0, 3)], 0).is_err(), "the second write is missing");
        assert!(ask(&[(1, 2)], 0).is_err(), "the first is");
    }

    #[test]
    fn what_was_durable_must_be_there() {
        assert!(
            ask(&[(0, 1)], 2)
                .unwrap_err()
                .contains("only the first 1 of 3")
        );
    }

    #[test]
    fn conditions_are_followed() {
        let mut second = write(2, 0);
        second.condition = When::Absent;
        let writes = [write(1, 0), second];
        assert_eq!(check(&BTreeMap::new(), &writes, &held(&[(0, 1)]), 2), Ok(2));
        assert!(check(&BTreeMap::new(), &writes, &held(&[(0, 2)]), 0).is_err());
    }
}
