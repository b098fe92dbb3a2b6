//! What a single copy may hold after it lost power: what its first so many writes left, and at
//! least those that had long been durable.
//!
//! Of some writes it is not known whether the copy took them or refused them: parts of writes over several regions
//! whose outcome stayed unknown. Each of them may be left out. So an object may be bound to one of several things
//! after so many writes. Objects are looked at one by one: that such a part is whole is not judged.

use std::collections::{BTreeMap, BTreeSet};

use super::register::{Bound, When};

/// A write, in the order in which the copy took it.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// What is bound to what; all of it or nothing.
    pub to: Vec<(usize, Bound)>,
    /// When only: asked of every object.
    pub condition: When,
    /// Whether the copy took it.
    pub taken: Taken,
}

/// Whether a copy that has a later write has this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It does.
    Certainly,
    /// It does, or has refused it.
    Perhaps,
}

/// What each object may be bound to; one that is not there is bound to nothing.
type State = BTreeMap<usize, BTreeSet<Bound>>;

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
    let mut state = beginning(first);
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

fn beginning(first: &BTreeMap<usize, Bound>) -> State {
    let one = |(object, bound): (&usize, &Bound)| (*object, BTreeSet::from([*bound]));
    first.iter().map(one).collect()
}

/// What `object` may be bound to.
fn may_be(state: &State, object: usize) -> BTreeSet<Bound> {
    let absent = || BTreeSet::from([Bound::Absent]);
    state.get(&object).cloned().unwrap_or_else(absent)
}

fn take(write: &Write, state: &mut State) {
    let holds = |bound: &Bound| match write.condition {
        When::Always => true,
        When::Absent => *bound == Bound::Absent,
        When::Present => *bound != Bound::Absent,
        When::Is(value) => *bound == value,
    };
    let before = write.to.iter().map(|(object, _)| may_be(state, *object));
    let before: Vec<BTreeSet<Bound>> = before.collect();
    for (at, (object, to)) in write.to.iter().enumerate() {
        let others = before[..at].iter().chain(&before[at + 1..]);
        let may_hold = others.clone().all(|bounds| bounds.iter().any(holds));
        let may_fail = others.clone().any(|bounds| !bounds.iter().all(holds));
        let may_stay = may_fail || write.taken == Taken::Perhaps;
        let mut after = BTreeSet::new();
        for bound in &before[at] {
            let fits = holds(bound);
            after.extend((may_hold && fits).then_some(*to));
            after.extend((may_stay || !fits).then_some(*bound));
        }
        state.insert(*object, after);
    }
}

fn differences(state: &State, held: &BTreeMap<usize, Bound>) -> Vec<usize> {
    let objects: BTreeSet<usize> = state.keys().chain(held.keys()).copied().collect();
    let differs = |object: &usize| {
        let bound = held.get(object).unwrap_or(&Bound::Absent);
        match state.get(object) {
            Some(bounds) => !bounds.contains(bound),
            None => *bound != Bound::Absent,
        }
    };
    objects.into_iter().filter(differs).collect()
}

fn explain(
    first: &BTreeMap<usize, Bound>,
    writes: &[Write],
    held: &BTreeMap<usize, Bound>,
) -> String {
    let mut state = beginning(first);
    writes.iter().for_each(|write| take(write, &mut state));
    let mut texts = Vec::new();
    for object in differences(&state, held).into_iter().take(4) {
        let has = held.get(&object).copied().unwrap_or(Bound::Absent);
        let expected: Vec<String> = may_be(&state, object)
            .iter()
            .map(Bound::to_string)
            .collect();
        texts.push(format!(
            "object {object} has {has} instead of {}",
            expected.join(" or ")
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
            taken: Taken::Certainly,
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

    /// What is held after these writes, of which the one in place `perhaps` may have been refused.
    fn ask_perhaps(
        writes: &[Write],
        perhaps: usize,
        pairs: &[(usize, u32)],
    ) -> Result<usize, String> {
        let mut writes = writes.to_vec();
        writes[perhaps].taken = Taken::Perhaps;
        check(&BTreeMap::new(), &writes, &held(pairs), 0)
    }

    #[test]
    fn what_may_have_been_refused_may_be_missing() {
        let mut both = write(2, 1);
        both.to.push((0, Bound::To(2)));
        let writes = [write(1, 0), both, write(3, 2)];
        assert_eq!(ask_perhaps(&writes, 1, &[(0, 2), (1, 2), (2, 3)]), Ok(3));
        assert_eq!(ask_perhaps(&writes, 1, &[(0, 1), (2, 3)]), Ok(3));
        let wrong = check(&BTreeMap::new(), &writes, &held(&[(0, 1), (2, 3)]), 0).unwrap_err();
        assert!(
            wrong.contains("nearest are the first 1, but object 2 has"),
            "{wrong}"
        );
        // What was there before stays, and nothing else.
        let writes = [&writes[..], &[write(4, 3)]].concat();
        let wrong = ask_perhaps(&writes, 1, &[(2, 3), (3, 4)]).unwrap_err();
        let texts = "object 0 has nothing instead of the value of op 1 or the value of op 2";
        assert!(wrong.contains(texts), "{wrong}");
        assert!(ask_perhaps(&writes, 0, &[(0, 1), (2, 3), (3, 4)]).is_err());
    }

    #[test]
    fn conditions_are_followed_behind_what_may_have_been_refused() {
        let when = |condition| Write {
            condition,
            ..write(2, 0)
        };
        for (condition, refused, taken) in [
            (When::Absent, 2, 1),
            (When::Is(Bound::To(1)), 0, 2),
            (When::Present, 0, 2),
        ] {
            let writes = [write(1, 0), when(condition), write(3, 1)];
            for op in 0..3 {
                let mut pairs = vec![(0, op), (1, 3)];
                pairs.retain(|(_, op)| *op > 0);
                let is_possible = ask_perhaps(&writes, 0, &pairs).is_ok();
                assert_eq!(
                    is_possible,
                    op == refused || op == taken,
                    "{condition:?}, {op}"
                );
            }
        }
    }

    #[test]
    fn a_condition_on_several_objects_holds_for_all_or_none() {
        let mut both = write(2, 0);
        both.to.push((1, Bound::To(2)));
        both.condition = When::Present;
        let writes = [write(1, 0), write(3, 1), both, write(4, 2)];
        assert_eq!(ask_perhaps(&writes, 1, &[(0, 2), (1, 2), (2, 4)]), Ok(4));
        assert_eq!(ask_perhaps(&writes, 1, &[(0, 1), (2, 4)]), Ok(4));
        assert!(
            check(
                &BTreeMap::new(),
                &writes,
                &held(&[(0, 1), (1, 3), (2, 4)]),
                0
            )
            .is_err()
        );
    }
}
