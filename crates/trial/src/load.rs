//! Clients that ask for the keys of one region each, at a pace, and record what they asked and were answered.
//!
//! 1. Time is cut into ticks of [`TICK`]. At the beginning of each a client sends [`BURST`] requests, one after the
//!    other: all clients at the same time, so that requests for one key meet. A client that is behind goes on with
//!    the next tick; so none sends more than `BURST / TICK`.
//! 2. A value is made of the number of the request that writes it ([`value_of`]), so a read tells which it saw. What
//!    is neither nothing nor such a value is wrong at once.
//! 3. Clients over the Redis protocol ask for elements of collections, too ([`keys`]).
//! 4. A client stays with one region: where that has no primary, the clients of others do not wait for it. An error
//!    ends a client's burst.

use std::time::Duration;

use argosy_base::{Clock as _, Instant, Outcome};
use argosy_bench::rng::{Rng, mix};
use argosy_client::ClientError;
use argosy_device::SystemClock;
use argosy_history::counter::Increment;
use argosy_history::register::{Access, AccessKind, Before, Bound, Saw, When};

use crate::doors::{Answer, Ask, Asker, Door};
use crate::keys::{self, Called, Use};
use crate::record::{Came, Op, Record, Sample};
use crate::time::End;

/// How often a client sends a burst.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// How many requests that is.
pub(crate) const BURST: usize = 4;

/// How often, of 100 requests for registers, each is sent.
const WEIGHTS: [(Op, u64); 8] = [
    (Op::Get, 40),
    (Op::Exists, 4),
    (Op::Set, 20),
    (Op::Swap, 6),
    (Op::SetAbsent, 8),
    (Op::SetPresent, 4),
    (Op::SetEqual, 10),
    (Op::Delete, 8),
];

/// Longest value but for its number: some lie in leaves, some in the large log.
const PADDING_MAX: u64 = 3000;

/// One client.
pub(crate) struct Client<'a> {
    /// How it asks.
    pub door: Door,
    /// Who asks.
    pub asker: Box<dyn Asker>,
    /// The region whose keys it asks for.
    pub region: usize,
    /// The names of all keys.
    pub names: &'a [Vec<u8>],
    /// Where it records.
    pub record: &'a Record,
    /// What it chooses by.
    pub rng: Rng,
    /// The value that it saw or wrote last of each key.
    pub seen: Vec<Option<u32>>,
}

/// A request and what came of it.
struct Asked {
    number: u32,
    key: usize,
    began: Instant,
    ended: Instant,
    answer: Result<Answer, ClientError>,
}

/// The value that the request of this number writes: the number, a sign, and some bytes more.
#[must_use]
pub(crate) fn value_of(number: u32) -> Vec<u8> {
    let spread = mix(u64::from(number));
    // One in eight is long.
    let most = if spread.is_multiple_of(8) {
        PADDING_MAX
    } else {
        120
    };
    let padding = usize::try_from((spread >> 8) % most).expect("it is small");
    let mut value = format!("{number}:").into_bytes();
    value.resize(value.len() + padding, b'.');
    value
}

/// What a key is bound to whose value is this; `None` where no request wrote that.
#[must_use]
pub(crate) fn bound_of(value: Option<&[u8]>) -> Option<Bound> {
    let Some(value) = value else {
        return Some(Bound::Absent);
    };
    let digits = value.split(|byte| *byte == b':').next()?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (value_of(number) == value).then_some(Bound::To(number))
}

impl Client<'_> {
    /// Sends requests until the end comes. Returns what is known of their times.
    pub(crate) fn run(mut self, end: &End) -> Vec<Sample> {
        let mut samples = Vec::new();
        while end.wait_for_tick(TICK) {
            for _ in 0..BURST {
                let elements = matches!(self.door, Door::Resp(_));
                let key = keys::choose(self.region, elements, &mut self.rng);
                let sample = self.ask(key);
                samples.push(sample);
                if !sample.came.is_answer() {
                    break;
                }
            }
        }
        samples
    }

    /// Asks for what is chosen of this key.
    fn ask(&mut self, key: usize) -> Sample {
        let op = match keys::use_of(key) {
            Use::Register => self.choose(key),
            Use::Counter => Op::Increment,
            Use::Field => Op::AddToField,
            Use::Score => Op::AddToScore,
            Use::Member => match self.rng.below(4) {
                0 | 1 => Op::AddMember,
                2 => Op::RemoveMember,
                _ => Op::HasMember,
            },
        };
        self.ask_for(key, op)
    }

    /// Asks for this of this key, and records it.
    pub(crate) fn ask_for(&mut self, key: usize, op: Op) -> Sample {
        let number = self.record.number();
        let expected = self.seen[key];
        let Called { name, element } = keys::called(self.names, key);
        let ask = Ask {
            op,
            value: value_of(number),
            expected: expected.map(value_of).unwrap_or_default(),
            element,
        };
        let began = SystemClock.now();
        let answer = self.asker.ask(name, &ask);
        let ended = SystemClock.now();
        let asked = Asked {
            number,
            key,
            began,
            ended,
            answer,
        };
        let came = match op {
            op if op.is_increment() => self.record_increment(&asked),
            op => self.record_access(&asked, op, expected),
        };
        Sample {
            began: began.as_nanos(),
            ended: ended.as_nanos(),
            region: u8::try_from(self.region).expect("few regions"),
            door: self.door,
            op,
            came,
        }
    }

    fn choose(&mut self, key: usize) -> Op {
        let mut left = self
            .rng
            .below(WEIGHTS.iter().map(|(_, weight)| weight).sum());
        for (op, weight) in WEIGHTS {
            if left < weight {
                let without = op == Op::SetEqual && self.seen[key].is_none();
                return if without { Op::SetAbsent } else { op };
            }
            left -= weight;
        }
        Op::Get
    }

    fn record_access(&mut self, asked: &Asked, op: Op, expected: Option<u32>) -> Came {
        let to = Bound::To(asked.number);
        let (kind, came) = match &asked.answer {
            Ok(answer) => match self.kind_of(op, to, expected, answer) {
                Some(kind) => (kind, came_of(&kind)),
                None => return Came::Unknown,
            },
            Err(error) => {
                let outcome = self.outcome_of(error);
                let Some(write) = write_of(op, to, expected, None) else {
                    return Came::NotApplied;
                };
                match outcome {
                    Outcome::NotApplied => (AccessKind::Void, Came::NotApplied),
                    Outcome::Applied | Outcome::Unknown => (write, Came::Unknown),
                }
            }
        };
        let known = match &asked.answer {
            Ok(_) => true,
            // It has taken effect, though what it saw was not told.
            Err(error) => error.outcome() == Outcome::Applied,
        };
        let access = Access {
            op: asked.number,
            kind,
            began: asked.began.as_nanos(),
            ended: known.then_some(asked.ended.as_nanos()),
        };
        self.see(asked.key, &kind);
        self.record.access(asked.key, access);
        came
    }

    fn record_increment(&mut self, asked: &Asked) -> Came {
        let (told, came) = match &asked.answer {
            Ok(Answer::Sum(sum)) => (Some((asked.ended.as_nanos(), *sum)), Came::Answered),
            Ok(other) => {
                self.record
                    .wrong(format!("an increment was answered by {other:?}"));
                (None, Came::Unknown)
            }
            Err(error) => match self.outcome_of(error) {
                Outcome::NotApplied => return Came::NotApplied,
                Outcome::Applied | Outcome::Unknown => (None, Came::Unknown),
            },
        };
        let increment = Increment {
            op: asked.number,
            began: asked.began.as_nanos(),
            told,
        };
        self.record.increment(asked.key, increment);
        came
    }

    /// What an answer says of the register. `None` where that is wrong, which is recorded.
    fn kind_of(
        &self,
        op: Op,
        to: Bound,
        expected: Option<u32>,
        answer: &Answer,
    ) -> Option<AccessKind> {
        let bound = |value: &Option<Vec<u8>>| {
            let bound = bound_of(value.as_deref());
            if bound.is_none() {
                let value = value.as_deref().unwrap_or_default();
                let shown = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
                self.record
                    .wrong(format!("{} told of what nobody wrote: {shown}", op.name()));
            }
            bound
        };
        let saw = |applied, before| Some(Saw { applied, before });
        match answer {
            Answer::Value(value) => Some(AccessKind::Read(bound(value)?)),
            Answer::Existed(existed) if op.is_read() => Some(AccessKind::Exists(*existed)),
            Answer::Existed(existed) => {
                write_of(op, to, expected, saw(true, Before::Existed(*existed)))
            }
            Answer::Written(applied) => write_of(op, to, expected, saw(*applied, Before::Untold)),
            Answer::Swapped(before) => {
                write_of(op, to, expected, saw(true, Before::Was(bound(before)?)))
            }
            Answer::Sum(sum) => {
                self.record
                    .wrong(format!("{} told a sum: {sum}", op.name()));
                None
            }
        }
    }

    /// What became of a request that met this error. Where the error is none to expect of a cluster, whatever fails
    /// in it, nothing is believed that it says.
    fn outcome_of(&self, error: &ClientError) -> Outcome {
        match error {
            ClientError::Unavailable { outcome, .. } | ClientError::Lost { outcome, .. } => {
                *outcome
            }
            unexpected => {
                let words = format!("{:?}: {unexpected}", self.door);
                self.record.odd(words, SystemClock.now());
                Outcome::Unknown
            }
        }
    }

    /// Keeps the value that the key was last known to have.
    fn see(&mut self, key: usize, kind: &AccessKind) {
        let bound = match kind {
            AccessKind::Read(bound) => *bound,
            AccessKind::Write {
                to,
                saw: Some(Saw { applied: true, .. }),
                ..
            } => *to,
            _ => return,
        };
        self.seen[key] = match bound {
            Bound::To(number) => Some(number),
            Bound::Absent | Bound::Empty => None,
        };
    }
}

/// What a write wants, and saw. `None` for what writes nothing.
fn write_of(op: Op, to: Bound, expected: Option<u32>, saw: Option<Saw>) -> Option<AccessKind> {
    let (to, condition) = match op {
        Op::Get
        | Op::Exists
        | Op::HasMember
        | Op::Increment
        | Op::AddToField
        | Op::AddToScore
        | Op::Transact => return None,
        Op::Set | Op::Swap | Op::AddMember => (to, When::Always),
        Op::SetAbsent => (to, When::Absent),
        Op::SetPresent => (to, When::Present),
        Op::SetEqual => (to, When::Is(expected.map_or(Bound::Empty, Bound::To))),
        Op::Delete | Op::RemoveMember => (Bound::Absent, When::Always),
    };
    Some(AccessKind::Write { to, condition, saw })
}

const fn came_of(kind: &AccessKind) -> Came {
    match kind {
        AccessKind::Write {
            saw: Some(Saw { applied: false, .. }),
            ..
        } => Came::Unmet,
        _ => Came::Answered,
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
