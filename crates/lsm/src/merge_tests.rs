//! Merging, against a sorted map in which newer sources overwrite older ones.

#![allow(clippy::cast_possible_truncation, reason = "tests cut random numbers")]

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::level::stand::DOWN;
use crate::level::testing::{Dice, KeyShape, Model, NAME, model};
use crate::names::OwnedEntry;

/// A source in memory that counts how often its key is asked for.
struct Pairs {
    pairs: Vec<(Vec<u8>, OwnedEntry)>,
    at: usize,
    asked: Rc<Cell<usize>>,
    fails_at: Option<usize>,
}

impl Pairs {
    fn new(model: Model) -> Self {
        Self {
            pairs: model.into_iter().collect(),
            at: 0,
            asked: Rc::default(),
            fails_at: None,
        }
    }
}

impl Source for Pairs {
    fn key(&self) -> Option<&[u8]> {
        self.asked.set(self.asked.get() + 1);
        self.pairs.get(self.at).map(|(key, _)| key.as_slice())
    }

    fn entry(&self) -> Entry<'_> {
        self.pairs[self.at].1.as_entry()
    }

    fn advance(&mut self) -> Result<(), LevelError> {
        self.at += 1;
        if self.fails_at == Some(self.at) {
            return Err(NAME.corrupt(0, "planted"));
        }
        Ok(())
    }
}

/// Which source, counted from the newest, the present pair is from.
fn winner<const DOWN: bool>(merge: &Merge<Pairs, DOWN>) -> Option<usize> {
    merge.order.first().map(|place| place.source)
}

fn collect<const DOWN: bool>(mut merge: Merge<Pairs, DOWN>) -> Model {
    let mut all = Model::new();
    while let Some(key) = merge.key() {
        let in_order = if DOWN {
            all.first_key_value()
                .is_none_or(|(last, _)| last.as_slice() > key)
        } else {
            all.last_key_value()
                .is_none_or(|(last, _)| last.as_slice() < key)
        };
        assert!(in_order, "keys rise strictly, or fall");
        let winner = winner(&merge).expect("a pair comes from a source");
        assert_eq!(merge.sources[winner].entry(), merge.entry());
        all.insert(key.to_vec(), merge.entry().to_owned());
        merge.advance().unwrap();
    }
    assert_eq!(winner(&merge), None);
    merge.advance().unwrap();
    assert_eq!(merge.key(), None, "an ended merge stays at its end");
    all
}

#[test]
fn the_newest_source_is_believed() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let count = dice.below(9);
        let shape = [KeyShape::Nested, KeyShape::Numbered, KeyShape::Hashed][dice.below(3)];
        let sources: Vec<Model> = (0..count)
            .map(|_| {
                let pairs = [0, 1, 20, 400][dice.below(4)];
                model(shape, pairs, &mut dice)
            })
            .collect();
        let mut expected = Model::new();
        for older in sources.iter().rev() {
            expected.extend(older.clone());
        }
        let falling = |model: &Model| {
            let mut pairs = Pairs::new(model.clone());
            pairs.pairs.reverse();
            pairs
        };
        let down = Merge::<_, DOWN>::either_way(sources.iter().map(falling).collect());
        assert_eq!(collect(down), expected, "seed {seed}, downwards");
        let merge = Merge::new(sources.into_iter().map(Pairs::new).collect());
        assert_eq!(collect(merge), expected, "seed {seed}");
    }
}

#[test]
fn equal_sources_are_passed_together() {
    let mut dice = Dice::new(1);
    let same = model(KeyShape::Numbered, 100, &mut dice);
    let sources = (0..5)
        .map(|age| {
            let value = OwnedEntry::Inline(vec![age]);
            Pairs::new(
                same.keys()
                    .map(|key| (key.clone(), value.clone()))
                    .collect(),
            )
        })
        .collect();
    let merged = collect(Merge::new(sources));
    assert_eq!(merged.len(), same.len());
    assert!(
        merged
            .values()
            .all(|entry| *entry == OwnedEntry::Inline(vec![0]))
    );
}

/// The price of a step among two sources, one of them far longer: two keys to compare.
#[test]
fn a_long_source_is_passed_with_one_comparison_a_step() {
    let long: Model = (0..10_000)
        .map(|number| (format!("{number:08}").into_bytes(), OwnedEntry::Tombstone))
        .collect();
    let short: Model = (0..10)
        .map(|number| (format!("{number:05}x").into_bytes(), OwnedEntry::Tombstone))
        .collect();
    let (long, short) = (Pairs::new(long), Pairs::new(short));
    let asked = [long.asked.clone(), short.asked.clone()];
    let mut merge = Merge::new(vec![short, long]);
    let mut steps = 0;
    while winner(&merge).is_some() {
        steps += 1;
        merge.advance().unwrap();
    }
    assert_eq!(steps, 10_010);
    let asked: usize = asked.iter().map(|asked| asked.get()).sum();
    assert!(asked <= 2 * steps + 50, "{asked} keys for {steps} steps");
}

#[test]
fn an_error_of_a_source_is_an_error_of_the_merge() {
    let mut dice = Dice::new(2);
    let mut broken = Pairs::new(model(KeyShape::Hashed, 50, &mut dice));
    broken.fails_at = Some(20);
    let whole = Pairs::new(model(KeyShape::Hashed, 50, &mut dice));
    let mut merge = Merge::new(vec![whole, broken]);
    let result = (0..100).try_for_each(|_| merge.advance());
    assert!(matches!(result, Err(LevelError::Corrupt { .. })));
}
