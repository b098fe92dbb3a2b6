//! `RANDOMKEY`: some key of the store, found by three looks however many keys there are. In steps:
//!
//! 1. The lowest key and the highest one are read. Without a lowest one there is no key, and the reply is null.
//! 2. A key between them is drawn, byte by byte: what both have in common stays, the first byte that differs is one
//!    between theirs, and each further byte is one of the kind that both have there: a digit, a letter, or any.
//! 3. The lowest key from the drawn one on is the reply, and behind the highest the lowest of all.
//!
//! Invariant: no look reads more than one key. So the keys are not equally likely: a key is the likelier the wider
//! the gap in front of it, and one behind a dense group is hardly ever returned.

use std::sync::atomic::{AtomicU64, Ordering};

use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::{Direction, KeyRange};
use argosy_wire::api::{Plan, Scratch};
use argosy_wire::resp::Encoder;

use super::command::{Command, NO_KEYS, Step, Turn};
use super::reply::{After, Gather};
use crate::service::Paging;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "randomkey",
    arity: 1,
    flags: "readonly",
    keys: NO_KEYS,
    group: "generic",
    summary: "Returns some key, or null where there is none. Not all keys are equally likely.",
    usage: "",
    run: randomkey,
}];

fn randomkey(turn: &mut Turn<'_>) -> Step {
    let gather = RandomGather::new(turn.context.front.operators.dice.cast());
    let plan = gather.plan(turn.scratch);
    Step::Call(plan, Gather::Random(Box::new(gather)))
}

/// Where random numbers of all connections come from.
#[derive(Debug)]
pub(super) struct Dice(AtomicU64);

impl Dice {
    /// Those that follow from `seed`.
    pub(super) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number that nobody else is given.
    pub(super) fn cast(&self) -> u64 {
        // Relaxed: the number only has to be another one each time.
        let mut numbers = Numbers(self.0.fetch_add(Numbers::STEP, Ordering::Relaxed));
        numbers.next()
    }
}

/// Numbers that follow from the first one (SplitMix64).
#[derive(Debug)]
struct Numbers(u64);

impl Numbers {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A byte from `low` up to `high`, both included.
    fn between(&mut self, low: u8, high: u8) -> u8 {
        let count = u64::from(high - low) + 1;
        low + u8::try_from(self.next() % count).expect("at most 255 above the lowest")
    }
}

/// Pages without a key, since what they passed was deleted, that one search reads at most.
const EMPTY_PAGES_MAX: usize = 16;

/// How far the search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// For the lowest key.
    Lowest,
    /// For the highest one.
    Highest,
    /// For the one behind the key that was drawn.
    Drawn,
}

/// A search for some key.
#[derive(Debug)]
pub(super) struct RandomGather {
    numbers: Numbers,
    look: Look,
    /// Where the present look looks.
    range: KeyRange,
    /// How many more pages without a key all looks may read.
    pages_left: usize,
    /// What will be replied, if nothing else is found.
    found: Option<Vec<u8>>,
}

impl RandomGather {
    const fn new(seed: u64) -> Self {
        Self {
            numbers: Numbers(seed),
            look: Look::Lowest,
            range: KeyRange {
                from: Vec::new(),
                to: None,
            },
            pages_left: EMPTY_PAGES_MAX,
            found: None,
        }
    }

    /// The call of the present look.
    pub(super) fn plan(&self, scratch: &mut Scratch) -> Plan {
        scratch.range.clone_from(&self.range);
        Plan::Scan(Paging {
            direction: self.direction(),
            pairs_max: 1,
            bytes_max: KEY_BYTES_MAX,
            keys_only: true,
            at: None,
        })
    }

    const fn direction(&self) -> Direction {
        match self.look {
            Look::Highest => Direction::Down,
            Look::Lowest | Look::Drawn => Direction::Up,
        }
    }

    /// Takes the answer to the call of a look.
    pub(super) fn take_page(
        &mut self,
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        next: Option<Vec<u8>>,
    ) -> After {
        let key = pairs.into_iter().next().map(|(key, _)| key);
        match self.take(key, next) {
            true => After::NextPage,
            false => After::Nothing,
        }
    }

    /// Takes the key that a page has, if it has one, and where the next page would begin. Returns whether there is
    /// another call.
    fn take(&mut self, key: Option<Vec<u8>>, next: Option<Vec<u8>>) -> bool {
        if key.is_none()
            && let Some(next) = next
            && self.pages_left > 0
        {
            self.pages_left -= 1;
            self.range.go_on_at(self.direction(), next);
            return true;
        }
        match (self.look, key, &self.found) {
            (Look::Lowest, Some(lowest), _) => {
                self.range.from.clone_from(&lowest);
                self.found = Some(lowest);
                self.look = Look::Highest;
                true
            }
            (Look::Highest, Some(highest), Some(lowest)) if lowest < &highest => {
                self.range.from = draw(lowest, &highest, &mut self.numbers);
                self.range.to = None;
                self.look = Look::Drawn;
                true
            }
            (Look::Drawn, Some(key), _) => {
                self.found = Some(key);
                false
            }
            _ => false,
        }
    }

    /// Writes the reply.
    pub(super) fn write(&self, encoder: &mut Encoder<'_>) {
        encoder.bulk_or_null(self.found.as_deref());
    }
}

/// Bytes in which a drawn key may differ from the lowest one.
const DRAWN_BYTES: usize = 32;

/// A key between `lowest` and `highest`.
fn draw(lowest: &[u8], highest: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let common = lowest.iter().zip(highest).take_while(|(a, b)| a == b);
    let common = common.count();
    let mut drawn = lowest[..common].to_vec();
    let longest = lowest.len().max(highest.len());
    let most = (common + DRAWN_BYTES).min(longest);
    for at in common..most {
        let (low, high) = (lowest.get(at).copied(), highest.get(at).copied());
        let (low, high) = match (low, high) {
            (low, Some(high)) if at == common => (low.unwrap_or(0), high),
            (Some(low), Some(high)) => kind_of(low, high),
            (Some(one), None) | (None, Some(one)) => kind_of(one, one),
            (None, None) => break,
        };
        drawn.push(numbers.between(low, high));
    }
    drawn
}

/// The bytes of the kind that both are of.
fn kind_of(one: u8, other: u8) -> (u8, u8) {
    const KINDS: [(u8, u8); 3] = [(b'0', b'9'), (b'a', b'z'), (b'A', b'Z')];
    let both =
        |(low, high): &(u8, u8)| [one, other].iter().all(|byte| (low..=high).contains(&byte));
    match KINDS.into_iter().find(both) {
        Some(kind) => kind,
        // What stands between the parts of a key is the same in all of them.
        None if one == other => (one, one),
        None => (0, u8::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeSet;

    /// Some key of `keys`, and how many looks that took.
    fn search(keys: &BTreeSet<Vec<u8>>, seed: u64) -> (Option<Vec<u8>>, usize) {
        let mut gather = RandomGather::new(seed);
        let mut scratch = Scratch::default();
        let mut looks = 1;
        loop {
            let Plan::Scan(paging) = gather.plan(&mut scratch) else {
                panic!("a look is a scan");
            };
            assert_eq!(paging.pairs_max, 1);
            let mut inside = keys.range(scratch.range.from.clone()..);
            let key = match paging.direction {
                Direction::Up => inside.next(),
                Direction::Down => inside.next_back(),
            };
            if !gather.take(key.cloned(), None) {
                return (gather.found, looks);
            }
            looks += 1;
        }
    }

    fn byte(n: u32) -> u8 {
        u8::try_from(n).unwrap()
    }

    #[test]
    fn three_looks_find_keys_of_all_parts_of_the_store() {
        let (padded, plain) = (
            |n: u32| format!("user:{n:06}:name").into_bytes(),
            |n: u32| format!("user{n}").into_bytes(),
        );
        for keys in [
            (0..1000).map(padded).collect::<BTreeSet<_>>(),
            (0..1000).map(plain).collect(),
            (0..1000)
                .map(|n| vec![byte(n / 250), byte(n % 250)])
                .collect(),
        ] {
            let mut found = BTreeSet::new();
            for seed in 0..4000 {
                let (key, looks) = search(&keys, seed);
                let key = key.expect("there are keys");
                assert!(keys.contains(&key) && looks == 3, "{looks}");
                found.insert(key);
            }
            assert!(found.len() > 300, "{} of 1000", found.len());
        }
    }

    #[test]
    fn pages_without_a_key_are_read_on_from_for_a_while() {
        let mut gather = RandomGather::new(1);
        let mut pages = 0;
        while gather.take(None, Some(vec![pages])) {
            assert_eq!(gather.range.from, [pages]);
            pages += 1;
        }
        assert_eq!((usize::from(pages), gather.found), (EMPTY_PAGES_MAX, None));
    }

    #[test]
    fn a_store_without_keys_has_none_and_one_with_a_key_has_that() {
        let mut keys = BTreeSet::new();
        assert_eq!(search(&keys, 1), (None, 1));
        keys.insert(b"a".to_vec());
        assert_eq!(search(&keys, 1), (Some(b"a".to_vec()), 2));
        // One that is the beginning of the other.
        keys.insert(b"a\0".to_vec());
        let found: BTreeSet<_> = (0..100).map(|seed| search(&keys, seed).0).collect();
        assert!(found.contains(&Some(b"a\0".to_vec())));
    }
}
