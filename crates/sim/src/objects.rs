//! The keys of a run, and the values that are bound to them.
//!
//! An object is a key, or a group of neighbouring keys of one region that are only ever written
//! together. A value says which operation wrote it, to which key, and the rest of it follows from
//! that, so that a value that was torn, mixed or misplaced is noticed:
//!
//! ```text
//! value := op: u32  object: u16  key of the object: u16  pattern
//! ```

use std::collections::BTreeMap;

use argosy_base::KeyRange;
use argosy_base::range::Printable;

use crate::check::Bound;
use crate::random::Random;

/// Shortest value that is not empty.
pub(crate) const VALUE_BYTES_MIN: usize = 8;

/// What takes effect as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Its keys, rising; one, or those of a group.
    pub keys: Vec<Vec<u8>>,
    /// The index of its region.
    pub region: usize,
}

/// A key of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    /// The object.
    pub object: usize,
    /// Which of its keys.
    pub index: usize,
}

impl ObjectKey {
    /// The first key of `object`.
    #[must_use]
    pub(crate) const fn first(object: usize) -> Self {
        Self { object, index: 0 }
    }
}

/// All objects of a run, in the order of their keys.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    all: Vec<Object>,
    by_key: BTreeMap<Vec<u8>, ObjectKey>,
    /// The lowest key of each region.
    begins: Vec<Vec<u8>>,
}

impl Objects {
    /// `count` objects over `regions` regions, of which every sixth is a group.
    pub(crate) fn new(count: usize, regions: usize, random: &mut Random) -> Self {
        assert!(
            count >= regions * 4 && count <= usize::from(u16::MAX),
            "a few for each region"
        );
        let long_keys = random.chance(20);
        let mut starts: Vec<usize> = (1..count - 1).collect();
        random.shuffle(&mut starts);
        starts.truncate(regions - 1);
        starts.push(0);
        starts.sort_unstable();
        let mut objects = Self {
            all: Vec::new(),
            by_key: BTreeMap::new(),
            begins: vec![Vec::new(); regions],
        };
        for index in 0..count {
            let region = starts.partition_point(|start| *start <= index) - 1;
            let keys = if random.chance(16) {
                random.between(2, 5)
            } else {
                1
            };
            let mut stem = format!("k{index:04}").into_bytes();
            if long_keys && random.chance(30) {
                stem.extend(std::iter::repeat_n(b'~', random.between(1, 200)));
            }
            if region > 0 && starts[region] == index {
                objects.begins[region].clone_from(&stem);
            }
            objects.add(stem, keys, region);
        }
        objects
    }

    fn add(&mut self, stem: Vec<u8>, keys: usize, region: usize) {
        let name = |at: u8| {
            let mut key = stem.clone();
            // Bytes that text does not have, and that sort where they should.
            key.extend_from_slice(&[0, at, 0xff]);
            key
        };
        let keys: Vec<Vec<u8>> = if keys == 1 {
            vec![stem]
        } else {
            (0..).map(name).take(keys).collect()
        };
        let object = self.all.len();
        for (index, key) in keys.iter().enumerate() {
            let before = self.by_key.insert(key.clone(), ObjectKey { object, index });
            assert_eq!(before, None, "keys are different");
        }
        self.all.push(Object { keys, region });
    }

    /// How many there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The object of that index.
    #[must_use]
    pub(crate) fn get(&self, object: usize) -> &Object {
        &self.all[object]
    }

    /// The range of each region, in order.
    #[must_use]
    pub(crate) fn region_ranges(&self) -> Vec<KeyRange> {
        let ends = self.begins.iter().skip(1).cloned().map(Some).chain([None]);
        self.begins
            .iter()
            .cloned()
            .zip(ends)
            .map(|(from, to)| KeyRange { from, to })
            .collect()
    }

    /// Whether the range from `object` up to the first key of the next object has keys of the next region: where that
    /// begins with a group, whose first key is not the lowest key of the region.
    #[must_use]
    pub(crate) fn reaches_next_region(&self, object: usize) -> bool {
        let next = self.all.get(object + 1);
        next.is_some_and(|next| {
            next.region != self.all[object].region && next.keys[0] > self.begins[next.region]
        })
    }

    /// The objects that have keys in `range`, in order, each with the first of these keys.
    pub(crate) fn within(&self, range: &KeyRange) -> impl Iterator<Item = ObjectKey> + '_ {
        let to = range.to.clone();
        let from = self.by_key.range(range.from.clone()..);
        let inside = from.take_while(move |(key, _)| to.as_ref().is_none_or(|to| *key < to));
        let mut last = None;
        inside
            .map(|(_, at)| *at)
            .filter(move |at| last.replace(at.object) != Some(at.object))
    }

    /// The key at `at`.
    #[must_use]
    pub(crate) fn key(&self, at: ObjectKey) -> &[u8] {
        &self.all[at.object].keys[at.index]
    }

    /// Which key of which object this is.
    #[must_use]
    pub(crate) fn find(&self, key: &[u8]) -> Option<ObjectKey> {
        self.by_key.get(key).copied()
    }

    /// What the value found under a key tells.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn read(&self, at: ObjectKey, value: &[u8]) -> Result<Bound, String> {
        if value.is_empty() {
            return Ok(Bound::Empty);
        }
        let key = Printable(self.key(at)).to_string();
        let (head, _) = value.split_at_checked(4).ok_or_else(|| {
            format!(
                "key {key} has a value of {} bytes that nobody wrote",
                value.len()
            )
        })?;
        let op = u32::from_le_bytes(head.try_into().expect("four bytes"));
        let whole = self.value(op, at, value.len());
        match whole.iter().zip(value).position(|(a, b)| a != b) {
            None if whole.len() == value.len() => Ok(Bound::To(op)),
            differs => Err(format!(
                "key {key} has a value of {} bytes that nobody wrote: it names op {op}, but differs \
                 from byte {} on",
                value.len(),
                differs.unwrap_or(whole.len())
            )),
        }
    }

    /// The value of `len` bytes that operation `op` binds a key to.
    #[must_use]
    pub(crate) fn value(&self, op: u32, key: ObjectKey, len: usize) -> Vec<u8> {
        let ObjectKey { object, index } = key;
        let mut value = Vec::with_capacity(len.max(VALUE_BYTES_MIN));
        value.extend_from_slice(&op.to_le_bytes());
        value.extend_from_slice(&u16::try_from(object).expect("few objects").to_le_bytes());
        value.extend_from_slice(&u16::try_from(index).expect("few keys").to_le_bytes());
        let mut pattern = Random::new(u64::from(op) << 20 | (object as u64) << 4 | index as u64, 9);
        while value.len() < len {
            value.extend_from_slice(&pattern.next().to_le_bytes());
        }
        value.truncate(len.max(VALUE_BYTES_MIN));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Objects {
        Objects::new(60, 3, &mut Random::new(3, 0))
    }

    #[test]
    fn regions_cover_all_keys_and_split_no_group() {
        let objects = objects();
        let ranges = objects.region_ranges();
        assert_eq!(
            (ranges.len(), &ranges[0].from[..], &ranges[2].to),
            (3, &b""[..], &None)
        );
        for object in 0..objects.len() {
            let object = objects.get(object);
            for key in &object.keys {
                let regions: Vec<_> = ranges.iter().map(|range| range.contains(key)).collect();
                assert_eq!(regions.iter().filter(|inside| **inside).count(), 1);
                assert!(regions[object.region]);
            }
        }
    }

    #[test]
    fn a_value_is_known_again_and_a_damaged_one_is_not() {
        let objects = objects();
        for len in [8, 9, 100, 5000] {
            let mut value = objects.value(77, ObjectKey::first(3), len);
            assert_eq!(
                (objects.read(ObjectKey::first(3), &value), value.len()),
                (Ok(Bound::To(77)), len)
            );
            assert!(
                objects.read(ObjectKey::first(4), &value).is_err(),
                "of another key"
            );
            value[len - 1] ^= 1;
            assert!(
                objects.read(ObjectKey::first(3), &value).is_err(),
                "a flipped bit"
            );
        }
        assert_eq!(objects.read(ObjectKey::first(0), b""), Ok(Bound::Empty));
        assert!(objects.read(ObjectKey::first(0), b"abc").is_err());
    }

    #[test]
    fn within_names_each_object_once() {
        let objects = objects();
        let all: Vec<usize> = objects
            .within(&KeyRange::all())
            .map(|at| at.object)
            .collect();
        assert_eq!(all, (0..objects.len()).collect::<Vec<_>>());
    }
}
