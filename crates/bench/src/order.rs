//! What a scan may return: which keys there are, in their order.
//!
//! Places ([`Dataset::place`]) of records that were there before a workload lie in a sorted list;
//! those of records that it inserts come into a tree once they are acknowledged, each with its
//! number. A scan notes how many there are when it begins. It has to return, from its first key to
//! its last, all that were there by then; it may return what was inserted since; and each value
//! must be one that its record may have. Where it returns less than it asked for, nothing may be
//! left behind its last key.
//!
//! A workload that scans updates nothing, so a record's floor is the same from the beginning of a
//! scan to its end.

use std::collections::BTreeMap;

use parking_lot::RwLock;

use crate::data::{Dataset, VALUE_BYTES_MAX};
use crate::driver::{DriverError, wrong};
use crate::truth::{Records, Truth};

/// See the module documentation.
#[derive(Debug)]
pub struct Order {
    old: Vec<u64>,
    /// Places of new records, and how many new ones there were before each.
    new: RwLock<BTreeMap<u64, u64>>,
}

/// What a scan asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// It began at this record's key.
    pub record: u64,
    /// It asked for so many pairs.
    pub pairs: u64,
    /// So many new records were there when it began; see [`Order::mark`].
    pub mark: u64,
}

impl Order {
    /// The order of all records that are surely there now.
    #[must_use]
    pub fn new(data: &Dataset, truth: &Truth) -> Self {
        let there = (0..truth.claimed()).filter(|&record| truth.begin_read(record) > 0);
        let mut old: Vec<_> = there.map(|record| data.place(record)).collect();
        old.sort_unstable();
        Self {
            old,
            new: RwLock::default(),
        }
    }

    /// Bytes of memory that it takes, roughly: nodes of the tree are three quarters full.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.old) as u64 + self.mark() * 22
    }

    /// The insert of the record at `place` was acknowledged.
    pub fn add(&self, place: u64) {
        let mut new = self.new.write();
        let number = new.len() as u64;
        new.insert(place, number);
    }

    /// How many records have been added: a scan that begins now sees all of them.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.new.read().len() as u64
    }

    /// What a scan finds that asks for `pairs` pairs from `record` on, where nothing was inserted.
    pub(crate) fn found(
        &self,
        records: Records<'_>,
        record: u64,
        pairs: u64,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Records { data, truth } = records;
        let first = data.place(record);
        let at = self.old.partition_point(|&place| place < first);
        let most = usize::try_from(pairs).unwrap_or(usize::MAX);
        let mut buffer = vec![0; VALUE_BYTES_MAX];
        let pair = |&place: &u64| {
            let record = data.record_at(place);
            let value = data.value(record, truth.begin_read(record), &mut buffer);
            (data.key(record).to_vec(), value.to_vec())
        };
        self.old[at..].iter().take(most).map(pair).collect()
    }

    /// Checks what a scan returned. Returns the bytes of its keys and values.
    pub fn check<'p>(
        &self,
        records: Records<'_>,
        asked: Asked,
        pairs: impl ExactSizeIterator<Item = (&'p [u8], &'p [u8])>,
    ) -> Result<u64, DriverError> {
        let Records { data, truth } = records;
        let fail = |what: String| Err(wrong(data, asked.record, format!("a scan {what}")));
        let returned = pairs.len() as u64;
        if returned > asked.pairs {
            return fail(format!("for {} pairs returned {returned}", asked.pairs));
        }
        let first = data.place(asked.record);
        let mut expected = self.from(first, asked);
        let mut after = first.checked_sub(1);
        let mut bytes = 0;
        for (key, value) in pairs {
            let known = |record: &u64| *record < truth.claimed();
            let Some(record) = data.record_of(key).filter(known) else {
                let key = String::from_utf8_lossy(key);
                return fail(format!("returned the key {key}, which nobody wrote"));
            };
            let place = data.place(record);
            if after.is_some_and(|after| place <= after) {
                return fail(format!("returned record {record} out of order"));
            }
            if let Some(missing) = expected.next_below(place) {
                return fail(format!("left out the key at {missing:016x}"));
            }
            after = Some(place);
            let floor = truth.begin_read(record);
            let version = data
                .version_of(record, value)
                .filter(|&version| version > 0);
            if !version.is_some_and(|version| truth.allows(record, floor, version)) {
                return fail(format!(
                    "returned {} bytes as record {record}, version {version:?} where {floor} was \
                     acknowledged before",
                    value.len()
                ));
            }
            bytes += (key.len() + value.len()) as u64;
        }
        if returned < asked.pairs
            && let Some(missing) = expected.next_below(u64::MAX)
        {
            return fail(format!(
                "ended after {returned} pairs, before the key at {missing:016x}"
            ));
        }
        Ok(bytes)
    }

    /// The places from `first` on that a scan has to return, as long as it goes on.
    fn from(&self, first: u64, asked: Asked) -> Expected<'_> {
        let at = self.old.partition_point(|&place| place < first);
        let new = self.new.read();
        let seen = new
            .range(first..)
            .filter(|&(_, &number)| number < asked.mark);
        // A scan that returns so many has passed no more than those.
        let most = usize::try_from(asked.pairs).unwrap_or(usize::MAX);
        let new: Vec<_> = seen.take(most).map(|(&place, _)| place).collect();
        Expected {
            old: &self.old[at..],
            new: new.into_iter().peekable(),
        }
    }
}

/// Places that have to be returned, ascending.
struct Expected<'a> {
    old: &'a [u64],
    new: std::iter::Peekable<std::vec::IntoIter<u64>>,
}

impl Expected<'_> {
    /// The next place if it is below `place`; one that equals `place` is passed.
    fn next_below(&mut self, place: u64) -> Option<u64> {
        let old = self.old.first().copied().filter(|&old| old <= place);
        let new = self.new.next_if(|&new| new <= place);
        if old.is_some() {
            self.old = &self.old[1..];
        }
        [old, new].into_iter().flatten().find(|&at| at < place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Mix, PairSizes};

    type Pair = (Vec<u8>, Vec<u8>);

    struct World {
        data: Dataset,
        truth: Truth,
        order: Order,
    }

    /// Forty records that were there, and four that came: 41 was never answered.
    fn world() -> World {
        let data = Dataset::new(4, "sd".parse::<Mix>().unwrap(), PairSizes::default());
        let truth = Truth::new(40, 4);
        for record in 0..40 {
            truth.end_write(record, truth.begin_write(record));
        }
        let order = Order::new(&data, &truth);
        for record in 40..44 {
            assert_eq!(truth.claim(), record);
            let version = truth.begin_write(record);
            if record != 41 {
                truth.end_write(record, version);
                order.add(data.place(record));
            }
        }
        World { data, truth, order }
    }

    impl World {
        fn records(&self) -> Records<'_> {
            Records {
                data: &self.data,
                truth: &self.truth,
            }
        }

        fn pair(&self, record: u64) -> Pair {
            let mut buffer = [0; VALUE_BYTES_MAX];
            let value = self.data.value(record, 1, &mut buffer).to_vec();
            (self.data.key(record).to_vec(), value)
        }

        /// Pairs of all `records`, in order, and the first of them.
        fn scan(&self, records: impl Iterator<Item = u64>) -> (u64, Vec<Pair>) {
            let mut records: Vec<_> = records.collect();
            records.sort_by_key(|&record| self.data.place(record));
            let pairs = records.iter().map(|&record| self.pair(record)).collect();
            (records[0], pairs)
        }

        fn check(&self, asked: Asked, pairs: &[Pair]) -> Result<u64, String> {
            let pairs = pairs.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
            let checked = self.order.check(self.records(), asked, pairs);
            checked.map_err(|error| error.to_string())
        }
    }

    fn asked(record: u64, pairs: u64) -> Asked {
        let mark = 3;
        Asked {
            record,
            pairs,
            mark,
        }
    }

    #[test]
    fn what_a_rehearsal_finds_is_what_was_there() {
        let world = world();
        let (first, old) = world.scan(0..40);
        let found = |pairs| world.order.found(world.records(), first, pairs);
        assert_eq!(found(10), old[..10]);
        assert_eq!(found(100), old);
    }

    #[test]
    fn what_is_there_is_returned_in_order() {
        let world = world();
        let known = (0..44).filter(|&record| record != 41);
        let (first, all) = world.scan(known);
        let bytes: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!(world.check(asked(first, 43), &all), Ok(bytes as u64));
        assert!(world.check(asked(first, 100), &all).is_ok(), "the end");
        assert!(world.check(asked(first, 10), &all[..10]).is_ok());
        assert!(world.check(asked(first, 10), &all[..11]).is_err(), "more");
        assert!(world.check(asked(first, 10), &all[..9]).is_err(), "fewer");
        let (_, with) = world.scan(0..44);
        assert!(world.check(asked(first, 44), &with).is_ok(), "it may be");
    }

    #[test]
    fn nothing_may_be_left_out_but_what_came_later() {
        let world = world();
        let known = (0..44).filter(|&record| record != 41);
        let (first, all) = world.scan(known);
        for out in 0..all.len() {
            let mut pairs = all.clone();
            pairs.remove(out);
            let error = world.check(asked(first, 42), &pairs);
            let last = out == all.len() - 1;
            assert_eq!(error.is_ok(), last, "{out} of 43: {error:?}");
            assert!(world.check(asked(first, 43), &pairs).is_err());
        }
        let (first, old) = world.scan(0..40);
        let before = Asked {
            mark: 0,
            ..asked(first, 40)
        };
        assert!(world.check(before, &old).is_ok(), "none had come yet");
        assert!(world.check(asked(first, 40), &old).is_err());
    }

    #[test]
    fn what_nobody_wrote_is_never_right() {
        let world = world();
        let (first, all) = world.scan((0..44).filter(|&record| record != 41));
        let wrongs: [fn(&mut Vec<Pair>); 5] = [
            |pairs| pairs.swap(3, 4),
            |pairs| pairs[7] = pairs[6].clone(),
            |pairs| pairs[5].1[2] ^= 1,
            |pairs| pairs[5].0[20] ^= 1,
            |pairs| pairs[5].1.clear(),
        ];
        for (n, harm) in wrongs.into_iter().enumerate() {
            let mut pairs = all.clone();
            harm(&mut pairs);
            assert!(world.check(asked(first, 43), &pairs).is_err(), "{n}");
        }
        let unclaimed = world.scan(0..45).1;
        assert!(world.check(asked(first, 45), &unclaimed).is_err());
        let before = asked(world.data.record_of(&all[1].0).unwrap(), 43);
        assert!(world.check(before, &all).is_err(), "before its first key");
    }
}
