//! Random histories: every operation is done to the engine and to a map in memory, and every
//! answer is compared. Snapshots are held over many operations with a copy of the map as it was.

use std::collections::BTreeMap;

use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::range::successor;
use argosy_base::{KeyRange, Moment};

use super::model::Model;
use super::{Choices, FullHost, STEPS_MAX, batch, collect, get, key_of, settle, value_of, write};
use crate::{
    Change, Condition, EngineError, Expiry, Only, Op, Snapshot, Store, Was, WriteBatch,
    WriteOptions,
};

/// Bytes of the longest value that is handed in sorted.
const BULK_LOADED_BYTES_MAX: u64 = 4000;

/// What a random history consists of.
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    /// How many keys there are.
    keys: u64,
    /// Chances in a hundred of a value of 1000 bytes and more, and of 100 to 999 bytes.
    large_percent: u64,
    medium_percent: u64,
    /// Longest value.
    value_bytes_max: u64,
    /// Chance in a hundred that a write is a delete.
    delete_percent: u64,
}

impl Mixture {
    /// Many small pairs.
    pub const SMALL: Self = Self {
        keys: 4000,
        large_percent: 0,
        medium_percent: 1,
        value_bytes_max: 400,
        delete_percent: 10,
    };
    /// Pairs of every size, up to values that need several records.
    pub const MIXED: Self = Self {
        keys: 600,
        large_percent: 20,
        medium_percent: 20,
        value_bytes_max: 30_000,
        delete_percent: 10,
    };
    /// Few keys, written over and over, and deleted often.
    pub const OVERWRITES: Self = Self {
        keys: 40,
        large_percent: 10,
        medium_percent: 20,
        value_bytes_max: 3000,
        delete_percent: 40,
    };

    fn key(&self, choices: &mut Choices) -> Vec<u8> {
        let number = choices.below(self.keys);
        // Keys of many lengths, which share prefixes and are prefixes of each other.
        match number % 4 {
            0 => format!("k{number}").into_bytes(),
            1 => key_of(number),
            2 => format!("a/rather/long/common/prefix/that/says/little/{number:09}").into_bytes(),
            _ => vec![b'x'; usize::try_from(number % 211).expect("below 211") + 1],
        }
    }

    fn value(&self, choices: &mut Choices) -> Vec<u8> {
        let roll = choices.below(100);
        let len = if roll < self.large_percent {
            1000 + choices.below(self.value_bytes_max.max(1001) - 1000)
        } else if roll < self.large_percent + self.medium_percent {
            100 + choices.below(900)
        } else {
            choices.below(100)
        };
        let len = usize::try_from(len.min(self.value_bytes_max)).expect("a test value is short");
        value_of(choices.bits(), len)
    }
}

/// A held snapshot, and the map as it was when it was taken.
struct Held {
    snapshot: Box<dyn Snapshot>,
    model: Model,
}

/// See [`super::random()`].
pub(super) fn history<H: FullHost>(host: &mut H, mixture: Mixture, operations: usize, seed: u64) {
    let mut choices = Choices::new(seed);
    let mut model = Model::default();
    let mut met = Met::default();
    let mut held: Vec<Held> = Vec::new();
    host.set_time(model.now);
    let mut engine = host.open();
    for number in 0..operations {
        match choices.below(1000) {
            0..15 => one_range(host, &engine, &mixture, &mut choices, &mut model),
            15..600 => one_write(host, &engine, &mixture, &mut choices, &mut model),
            600..635 => match one_version(host, &engine, &mixture, &mut choices, &mut model) {
                true => met.versions_kept += 1,
                false => met.versions_lost += 1,
            },
            635..640 => {
                met.bulk_loaded += bulk_load(host, &engine, &mixture, &mut choices, &mut model)
            }
            640..650 => host.set_time(model.pass(choices.below(1500))),
            650..850 => {
                let key = mixture.key(&mut choices);
                met.expired += usize::from(model.has_expired(&key));
                let what = format!("operation {number} of seed {seed}");
                reads(host, &engine, &key, &model, &what);
            }
            850..880 => {
                let range = a_range(&mixture, &mut choices);
                let snapshot = engine.snapshot();
                same(snapshot.as_ref(), &model, &range, number);
            }
            880..885 => held.push(Held {
                snapshot: engine.snapshot(),
                model: model.clone(),
            }),
            885..900 => {
                for Held { snapshot, model } in &held {
                    let range = a_range(&mixture, &mut choices);
                    same(snapshot.as_ref(), model, &range, number);
                }
                if held.len() > 3 {
                    held.remove(0);
                }
            }
            900..990 => {
                host.step(&engine);
            }
            990..996 => settle(host, &engine),
            996 | 997 => {
                held.clear();
                host.close(engine);
                engine = host.open();
            }
            _ => {
                held.clear();
                host.kill(engine);
                engine = host.open();
            }
        }
    }
    settle(host, &engine);
    same(
        engine.snapshot().as_ref(),
        &model,
        &KeyRange::all(),
        operations,
    );
    for pair in model.all_in(&KeyRange::all()) {
        reads(host, &engine, pair.key, &model, "at the end");
    }
    met.judge(operations);
}

/// How often a history met what it is to meet.
#[derive(Debug, Default)]
struct Met {
    /// Gets of pairs that had expired.
    expired: usize,
    /// Writes on condition of a version that nobody had overwritten, and of one that was.
    versions_kept: usize,
    versions_lost: usize,
    /// Pairs that were handed in sorted.
    bulk_loaded: usize,
}

impl Met {
    /// A history of thousands of operations meets everything.
    fn judge(&self, operations: usize) {
        let least = [
            self.expired,
            self.versions_kept,
            self.versions_lost,
            self.bulk_loaded,
        ];
        let all = least.into_iter().all(|count| count > 0);
        assert!(
            operations < 5000 || all,
            "{operations} operations met {self:?}"
        );
    }
}

/// Compares what `key` is bound to. A pair that has expired may be shown until there is room in the log to note the
/// time.
fn reads<H: FullHost>(host: &mut H, engine: &H::Engine, key: &[u8], model: &Model, what: &str) {
    for _ in 0..STEPS_MAX {
        let found = get(engine, key);
        if found.as_ref() == model.get(key) {
            return;
        }
        assert!(
            model.has_expired(key),
            "{what}: get {key:?} found {found:?}"
        );
        host.step(engine);
    }
    panic!("{what}: {key:?} does not expire");
}

/// Writes a key on condition that nobody has since it was read. Returns whether nobody had.
fn one_version<H: FullHost>(
    host: &mut H,
    engine: &H::Engine,
    mixture: &Mixture,
    choices: &mut Choices,
    model: &mut Model,
) -> bool {
    let key = mixture.key(choices);
    let read = |engine: &H::Engine| engine.get(&key).expect("a get").version;
    let mut version = read(engine);
    let overwritten = choices.chance(50);
    if overwritten {
        let value = mixture.value(choices);
        super::put(host, engine, &key, &value);
        model.insert(key.clone(), value, None);
    }
    for _ in 0..choices.below(20) {
        host.step(engine);
    }
    let value = mixture.value(choices);
    let mut batch = WriteBatch::new();
    batch.put(&key, &value).expect("within the limits");
    // A version ends when its key goes to the levels; one that was read after the last step has not.
    let mut is_fresh = false;
    for _ in 0..STEPS_MAX {
        let options = WriteOptions {
            condition: Condition::Version(version),
            return_previous: false,
        };
        let before = engine.last_lsn();
        match engine.write(&batch, options) {
            Err(EngineError::Busy(_)) => {
                assert_eq!(engine.last_lsn(), before, "a busy engine appends nothing");
                host.step(engine);
            }
            Err(error) => panic!("a write failed: {error}"),
            Ok(written) if written.applied => {
                assert!(!overwritten, "{key:?} was written since {version:?}");
                model.insert(key, value, None);
                return true;
            }
            Ok(_) if overwritten => return false,
            Ok(_) => assert!(!is_fresh, "nobody has written {key:?} since {version:?}"),
        }
        if !overwritten {
            version = read(engine);
            is_fresh = true;
        }
    }
    panic!("the engine stays busy");
}

/// Hands in up to 40 sorted pairs; returns how many.
fn bulk_load<H: FullHost>(
    host: &mut H,
    engine: &H::Engine,
    mixture: &Mixture,
    choices: &mut Choices,
    model: &mut Model,
) -> usize {
    let shorter = Mixture {
        value_bytes_max: mixture.value_bytes_max.min(BULK_LOADED_BYTES_MAX),
        ..*mixture
    };
    let count = 1 + choices.below(40);
    let pairs = (0..count).map(|_| (shorter.key(choices), shorter.value(choices)));
    let pairs: BTreeMap<_, _> = pairs.collect();
    host.bulk_load(engine, &pairs);
    let count = pairs.len();
    for (key, value) in pairs {
        model.insert(key, value, None);
    }
    count
}

fn one_write<H: FullHost>(
    host: &mut H,
    engine: &H::Engine,
    mixture: &Mixture,
    choices: &mut Choices,
    model: &mut Model,
) {
    let pairs = if choices.chance(10) {
        1 + choices.below(8)
    } else {
        1
    };
    let expiry = an_expiry(choices, model, pairs);
    let made: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..pairs)
        .map(|_| {
            let key = mixture.key(choices);
            let value = (!choices.chance(mixture.delete_percent)).then(|| mixture.value(choices));
            (key, value)
        })
        .collect();
    let ops: Vec<_> = made
        .iter()
        .map(|(key, value)| match value {
            Some(value) => Op::Put { key, value, expiry },
            None => Op::Delete { key },
        })
        .collect();
    let condition = match choices.below(10) {
        0 => Condition::Absent,
        1 => Condition::Present,
        2 => Condition::Equals,
        3 if pairs == 1 => return one_change(host, engine, made, choices.below(1000), model),
        _ => Condition::Always,
    };
    // What the first key is bound to, or nothing like it.
    let expected = match model.get(&made[0].0) {
        Some(value) if choices.chance(70) => value.clone(),
        _ => value_of(1, 9),
    };
    let options = WriteOptions {
        condition,
        return_previous: choices.chance(20),
    };
    let holds = made.iter().all(|(key, _)| match condition {
        Condition::Always => true,
        Condition::Absent => !model.contains_key(key),
        Condition::Present => model.contains_key(key),
        Condition::Equals | Condition::Version(_) => model.get(key) == Some(&expected),
    });
    let mut batch = batch(&ops);
    batch.expect(&expected).expect("it was a value");
    let written = write(host, engine, &batch, options);
    assert_eq!(written.applied, holds, "{condition:?} of {made:?}");
    if !holds {
        return;
    }
    for (at, (key, value)) in made.into_iter().enumerate() {
        if let Some(existed) = written.existed.get(at) {
            assert_eq!(*existed, model.contains_key(&key));
        }
        if options.return_previous {
            assert!(
                written.previous[at].as_ref() == model.get(&key),
                "previous of {key:?}"
            );
        }
        match value {
            Some(value) => {
                let expiry = expiry.resolve(model.now, model.expiry(&key));
                model.insert(key, value, expiry);
            }
            None => model.remove(&key),
        }
    }
}

/// When what a batch of `pairs` puts is to expire.
fn an_expiry(choices: &mut Choices, model: &Model, pairs: u64) -> Expiry {
    match choices.below(20) {
        0 => Expiry::After(1 + choices.below(6000)),
        // Some of these are over.
        1 => Expiry::At(Moment(model.now.0.saturating_sub(500)).after(choices.below(3000))),
        // A batch may have a key twice, and what it would keep then is not what the model has.
        2 if pairs == 1 => Expiry::Keep,
        _ => Expiry::Never,
    }
}

/// Appends to the first key of `made`, overwrites a part of its value, or has it expire.
fn one_change<H: FullHost>(
    host: &mut H,
    engine: &H::Engine,
    made: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    from: u64,
    model: &mut Model,
) {
    let (key, operand) = made.into_iter().next().expect("there is one");
    let operand = operand.unwrap_or_default();
    let change = match from % 3 {
        0 => Change::Append,
        1 => Change::Expire(
            Expiry::After(1 + 4 * from),
            [Only::Any, Only::Later][usize::from(from > 500)],
        ),
        _ => Change::Overwrite(u32::try_from(from).expect("it is short")),
    };
    let mut batch = WriteBatch::new();
    batch
        .change(&key, change, &operand)
        .expect("within the limits");
    let was = Was {
        value: model.get(&key).map(Vec::as_slice),
        expiry: model.expiry(&key),
        now: model.now,
    };
    let effect = change.of(&operand, was);
    let written = write(host, engine, &batch, WriteOptions::default());
    assert_eq!(written.changed, Some(effect.told), "{change:?} of {key:?}");
    assert_eq!(written.applied, effect.value.is_some());
    if let Some(value) = effect.value {
        model.insert(key, value, effect.expiry);
    }
}

/// Removes a range in which there are some keys, or everything, between puts of keys in it.
fn one_range<H: FullHost>(
    host: &mut H,
    engine: &H::Engine,
    mixture: &Mixture,
    choices: &mut Choices,
    model: &mut Model,
) {
    let from = mixture.key(choices);
    let keys = usize::try_from(choices.below(40)).expect("it is small");
    let behind = model.nth_from(&from, keys).cloned();
    let range = match (choices.below(40), behind) {
        (0, _) => KeyRange::all(),
        (1, _) => KeyRange::prefix(&from[..1]),
        (_, Some(to)) => KeyRange::new(from.clone(), Some(to)),
        (_, None) => KeyRange::new(from.clone(), Some(successor(&from))),
    };
    let before = choices.chance(30).then(|| mixture.value(choices));
    let behind = choices.chance(30).then(|| mixture.value(choices));
    let mut batch = WriteBatch::new();
    let mut expected = Vec::new();
    let within = "within the limits";
    if let Some(value) = &before {
        batch.put(&from, value).expect(within);
        expected.push(model.insert(from.clone(), value.clone(), None));
    }
    batch.delete_range(&range).expect(within);
    if !range.is_empty() {
        expected.push(None);
    }
    model.remove_range(&range);
    if let Some(value) = &behind {
        batch.put(&from, value).expect(within);
        expected.push(model.insert(from.clone(), value.clone(), None));
    }
    let options = WriteOptions {
        condition: Condition::Always,
        return_previous: choices.chance(30),
    };
    let written = write(host, engine, &batch, options);
    assert!(written.applied, "nothing keeps a range from being removed");
    if options.return_previous {
        assert!(
            written.previous == expected,
            "what a batch finds around {range}"
        );
    }
    let (first, last) = (range.from.clone(), range.to.clone());
    for key in [Some(first), last].into_iter().flatten() {
        if (1..=KEY_BYTES_MAX).contains(&key.len()) {
            reads(
                host,
                engine,
                &key,
                model,
                &format!("a bound of {range} that was removed"),
            );
        }
    }
}

fn a_range(mixture: &Mixture, choices: &mut Choices) -> KeyRange {
    let from = if choices.chance(20) {
        vec![]
    } else {
        mixture.key(choices)
    };
    let to = (!choices.chance(20)).then(|| mixture.key(choices));
    KeyRange::new(from, to)
}

/// Compares what `snapshot` shows of `range`. What had expired when it was taken it may show, but says so.
fn same(snapshot: &dyn Snapshot, model: &Model, range: &KeyRange, number: usize) {
    let seen = collect(snapshot, range);
    let mut expected = model.all_in(range).peekable();
    let mut overdue = false;
    for (key, value) in &seen {
        while expected
            .next_if(|pair| pair.expired && pair.key < key)
            .is_some()
        {}
        match expected.next() {
            Some(pair) => {
                assert!(
                    pair.key == key && pair.value == value,
                    "operation {number}: a scan of {range} saw {key:?}, expected {:?}",
                    pair.key
                );
                overdue |= pair.expired;
            }
            None => panic!("operation {number}: a scan of {range} saw {key:?} behind the end"),
        }
    }
    let missed = expected.find(|pair| !pair.expired).map(|pair| pair.key);
    assert!(
        missed.is_none(),
        "operation {number}: a scan of {range} missed {missed:?}"
    );
    assert!(
        !overdue || snapshot.shows_overdue(),
        "operation {number}: a scan of {range} shows what has expired, and does not say so"
    );
}
