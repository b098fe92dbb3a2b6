//! What a client makes of answers, and that a register behind it that forgets or is late is found.

use std::collections::BTreeMap;

use argosy_client::ClientError;
use argosy_history::register::Bound;

use super::*;
use crate::judge::judge;
use crate::keys::{KEYS, REGISTERS};
use crate::record::Parts;

/// A store in memory. After so many requests it does one thing wrong.
struct Store {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    asked: u32,
    mistake: Mistake,
    before: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// Each fiftieth set is acknowledged and lost.
    Lose,
    /// Each fiftieth get is of the value before.
    Stale,
    /// Each fifth request has an error of unknown outcome, and half of these are applied.
    Unknown,
}

impl Asker for Store {
    fn ask(&mut self, key: &[u8], ask: &Ask) -> Result<Answer, ClientError> {
        self.asked += 1;
        if self.mistake == Mistake::Unknown && self.asked.is_multiple_of(5) {
            if self.asked.is_multiple_of(2) {
                self.apply(key, ask);
            }
            return Err(ClientError::Lost {
                what: "gone".to_owned(),
                outcome: Outcome::Unknown,
            });
        }
        let wrong = self.asked.is_multiple_of(50);
        match (self.mistake, ask.op) {
            (Mistake::Lose, Op::Set) if wrong => Ok(Answer::Written(true)),
            (Mistake::Stale, Op::Get) if wrong => Ok(Answer::Value(self.before.get(key).cloned())),
            _ => Ok(self.apply(key, ask)),
        }
    }
}

impl Store {
    fn apply(&mut self, key: &[u8], ask: &Ask) -> Answer {
        let there = self.values.get(key).cloned();
        let mut bind = |only: bool| {
            if only {
                match &there {
                    Some(there) => self.before.insert(key.to_vec(), there.clone()),
                    None => self.before.remove(key),
                };
                self.values.insert(key.to_vec(), ask.value.clone());
            }
            Answer::Written(only)
        };
        match ask.op {
            Op::Get => Answer::Value(there),
            Op::Exists => Answer::Existed(there.is_some()),
            Op::Set => bind(true),
            Op::Swap => {
                bind(true);
                Answer::Swapped(there)
            }
            Op::SetAbsent => bind(there.is_none()),
            Op::SetPresent => bind(there.is_some()),
            Op::SetEqual => bind(there.as_ref() == Some(&ask.expected)),
            Op::Delete => Answer::Existed(self.values.remove(key).is_some()),
            Op::Increment => {
                let sum: i64 = there.map_or(0, |there| {
                    String::from_utf8(there).unwrap().parse().unwrap()
                });
                let sum = sum + 1;
                self.values
                    .insert(key.to_vec(), sum.to_string().into_bytes());
                Answer::Sum(sum)
            }
            _ => panic!("{ask:?} is of an element"),
        }
    }
}

/// What one client records that asks so often.
fn recorded(mistake: Mistake, requests: usize) -> Parts {
    let names: Vec<_> = (0..KEYS)
        .map(|key| vec![u8::try_from(key).unwrap()])
        .collect();
    let record = Record::of(KEYS);
    let mut client = Client {
        door: Door::Native,
        asker: Box::new(Store {
            values: BTreeMap::new(),
            asked: 0,
            mistake,
            before: BTreeMap::new(),
        }),
        region: 0,
        names: &names,
        record: &record,
        rng: Rng::new(7, 0),
        seen: vec![None; KEYS],
    };
    for _ in 0..requests {
        let key = keys::choose(0, false, &mut client.rng);
        client.ask(key);
    }
    for key in (0..KEYS).filter(|key| !keys::use_of(*key).is_element()) {
        let op = if key < REGISTERS {
            Op::Get
        } else {
            Op::Increment
        };
        client.ask_for(key, op);
    }
    record.into_parts()
}

#[test]
fn a_store_that_is_right_is_found_to_be_so() {
    for mistake in [Mistake::None, Mistake::Unknown] {
        let parts = recorded(mistake, 4000);
        assert_eq!(judge(&parts.histories), []);
        assert!(parts.wrong.is_empty(), "{:?}", parts.wrong);
    }
}

#[test]
fn a_store_that_loses_writes_is_found() {
    assert!(!judge(&recorded(Mistake::Lose, 4000).histories).is_empty());
}

#[test]
fn a_store_that_shows_old_values_is_found() {
    let parts = recorded(Mistake::Stale, 4000);
    assert!(!judge(&parts.histories).is_empty());
}

#[test]
fn values_tell_who_wrote_them() {
    for number in [0, 7, 8, 1_000_000, u32::MAX - 1] {
        let mut value = value_of(number);
        assert_eq!(bound_of(Some(&value)), Some(Bound::To(number)));
        value.push(b'.');
        assert_eq!(bound_of(Some(&value)), None, "a byte too many");
    }
    assert_eq!(bound_of(None), Some(Bound::Absent));
    assert_eq!(bound_of(Some(b"")), None);
    assert_eq!(bound_of(Some(b"x:")), None);
    assert!((0..100).any(|number| value_of(number).len() > 1500));
}
