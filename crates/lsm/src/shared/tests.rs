//! Against a model: the same changes to a map and a `BTreeMap`, to a list and a `Vec`, and old states stay as they
//! were.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;

use super::*;

type Numbers = Map<u32, u32>;

/// Checks what the module documentation says of nodes. Returns the depth.
fn check<T: Entry>(node: &Node<T>, is_root: bool, at_edge: bool) -> usize
where
    T::Key: PartialEq + fmt::Debug,
{
    let slots = node.slots();
    assert!(slots >= 1, "an empty node");
    assert!(is_root || at_edge || !node.is_small(), "{slots} slots");
    let Node::Upper(upper) = node else {
        assert!(slots <= LEAF_MAX, "{slots} entries");
        return 0;
    };
    assert!(slots <= UPPER_MAX, "{slots} slots");
    assert!(!is_root || slots > 1, "a root that is not needed");
    let depths = upper.slots.iter().enumerate().map(|(index, child)| {
        assert_eq!(child.len, child.node.len());
        assert_eq!(child.first, *child.node.first());
        check(&child.node, false, at_edge && index + 1 == slots)
    });
    let depths: Vec<_> = depths.collect();
    assert!(depths.iter().all(|depth| *depth == depths[0]));
    depths[0] + 1
}

fn check_list<T: Entry>(list: &List<T>)
where
    T::Key: PartialEq + fmt::Debug,
{
    let len = list.root.as_ref().map_or(0, |root| {
        check(root, true, true);
        root.len()
    });
    assert_eq!(len, list.len());
}

fn pairs(map: &Numbers) -> Vec<(u32, u32)> {
    map.iter().map(|(key, value)| (*key, *value)).collect()
}

/// Applies `changes`, of which each is a key and whether it comes or goes, and keeps old states.
fn run(changes: &[(u32, bool)]) {
    let (mut map, mut model) = (Numbers::default(), BTreeMap::new());
    let mut kept = Vec::new();
    for (step, (key, comes)) in (0..).zip(changes) {
        if step % 97 == 0 {
            kept.push((map.clone(), model.clone()));
        }
        match comes {
            true => assert_eq!(map.insert(*key, step), model.insert(*key, step)),
            false => assert_eq!(map.remove(key), model.remove(key)),
        }
        assert_eq!(map.get(key), model.get(key));
    }
    kept.push((map, model));
    for (map, model) in kept {
        check_list(&map.0);
        assert_eq!(map.len(), model.len());
        assert!(map.iter().eq(&model));
        assert!(map.iter().rev().eq(model.iter().rev()));
        for key in changes.iter().map(|(key, _)| *key).take(50) {
            assert_eq!(map.get(&key), model.get(&key));
            for from in [Bound::Included(key), Bound::Excluded(key)] {
                assert!(map.range(from).eq(model.range((from, Bound::Unbounded))));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_map_is_what_a_tree_map_is(
        changes in prop::collection::vec((0..600_u32, any::<bool>()), 0..1500),
    ) {
        run(&changes);
    }

    #[test]
    fn a_list_is_what_a_vector_is(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..5_u8), 0..1200),
        places in prop::collection::vec(any::<prop::sample::Index>(), 8),
    ) {
        let (mut list, mut model) = (List::new(), Vec::new());
        for (number, (place, what)) in (0_u32..).zip(&changes) {
            let here = place.index(model.len() + 1);
            match what {
                0 if !model.is_empty() => {
                    let here = place.index(model.len());
                    prop_assert_eq!(list.remove(here), model.remove(here));
                }
                1 if !model.is_empty() => {
                    let here = place.index(model.len());
                    let before = std::mem::replace(&mut model[here], Plain(number));
                    prop_assert_eq!(list.replace(here, Plain(number)), before);
                }
                _ => {
                    list.insert(here, Plain(number));
                    model.insert(here, Plain(number));
                }
            }
        }
        check_list(&list);
        prop_assert!(list.iter().eq(&model));
        prop_assert_eq!((list.first(), list.last()), (model.first(), model.last()));
        for pair in places.windows(2) {
            let (a, b) = (pair[0].index(model.len() + 1), pair[1].index(model.len() + 1));
            let range = a.min(b)..a.max(b);
            prop_assert_eq!(list.get(a), model.get(a));
            prop_assert!(list.range(range.clone()).eq(&model[range.clone()]));
            let mut both = list.range(range.clone());
            let mut wanted = model[range].iter();
            while let Some(entry) = wanted.next() {
                prop_assert_eq!(both.next(), Some(entry));
                prop_assert_eq!(both.next_back(), wanted.next_back());
            }
            prop_assert_eq!(both.next(), None);
        }
    }
}

/// A number without an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plain(u32);

impl Entry for Plain {
    type Key = u32;
    type Aid = ();

    fn key(&self) -> &u32 {
        &self.0
    }

    fn aid<'k>(_: impl Iterator<Item = &'k u32> + Clone) {}
}

/// What comes in order and goes in order, from each end.
#[test]
fn what_comes_and_goes_in_order_is_there() {
    let up = 0..5000_u32;
    let all = |comes: bool| up.clone().map(move |key| (key, comes));
    let changes: Vec<_> = all(true).chain(all(false)).collect();
    run(&changes);
    let changes: Vec<_> = all(true).rev().chain(all(false).rev()).collect();
    run(&changes);
    let changes: Vec<_> = all(true).rev().chain(all(false)).collect();
    run(&changes);
}

/// Entries that are added at the end fill nodes, and a change copies few of them.
#[test]
fn a_change_copies_few_nodes_however_many_there_are() {
    let of = |count: u32| {
        let map: Numbers = (0..count).map(|key| (2 * key, key)).collect();
        let mut changed = map.clone();
        let ((), work) = work::of(|| {
            changed.insert(count + 1, 0);
        });
        assert_eq!(
            (map.len(), changed.len()),
            (count as usize, count as usize + 1)
        );
        assert_eq!(pairs(&map).len(), count as usize);
        work
    };
    // One level more, and no more than that.
    let (few, many) = (of(2000), of(60_000));
    assert!(3 * many.steps <= 5 * few.steps, "{few:?} and {many:?}");
    assert!(3 * many.bytes <= 5 * few.bytes, "{few:?} and {many:?}");
    assert!(many.steps <= 200 && many.bytes <= 4000, "{many:?}");
}
