//! Ranges of keys: from an inclusive lower bound to an exclusive upper bound, or without an upper
//! bound. Keys are compared as bytes.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

/// In which order keys are gone through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the lowest key up.
    #[default]
    Up,
    /// From the highest key down.
    Down,
}

/// The keys `k` with `from <= k`, and `k < to` where there is a `to`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// The lowest key that belongs. Empty: from the very first.
    pub from: Vec<u8>,
    /// The lowest key above `from` that no longer belongs. `None`: to the very last.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            from: Vec::new(),
            to: None,
        }
    }

    /// The keys from `from` up to, and without, `to`.
    #[must_use]
    pub fn new(from: impl Into<Vec<u8>>, to: Option<Vec<u8>>) -> Self {
        Self {
            from: from.into(),
            to,
        }
    }

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        // Above all of them is what has the last byte that can be raised raised, and nothing behind it.
        let raisable = prefix.iter().rposition(|byte| *byte != 0xff);
        let to = raisable.map(|at| {
            let mut to = prefix[..=at].to_vec();
            to[at] += 1;
            to
        });
        Self::new(prefix, to)
    }

    /// Whether no key can belong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// Whether `key` belongs.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        !is_below(key, &self.from) && self.to.as_ref().is_none_or(|to| is_below(key, to))
    }

    /// Leaves what a scan in `direction` that goes on at `next` has not come to: up, the keys from
    /// `next` on; down, those below it.
    pub fn go_on_at(&mut self, direction: Direction, next: Vec<u8>) {
        match direction {
            Direction::Up => self.from = next,
            Direction::Down => self.to = Some(next),
        }
    }

    /// Whether some key could belong to both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// The keys that belong to both; an empty range where there are none.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let from = self.from.clone().max(other.from.clone());
        let to = match (&self.to, &other.to) {
            (None, to) | (to, None) => to.clone(),
            (Some(a), Some(b)) => Some(a.min(b).clone()),
        };
        Self { from, to }
    }
}

/// The first 8 bytes of `key` as a number, zero-padded: the order of keys is that of their heads, unless
/// these are equal.
#[inline]
#[must_use]
pub fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    match key.first_chunk() {
        Some(first) => bytes = *first,
        None => bytes[..key.len()].copy_from_slice(key),
    }
    // The first byte counts most, as it does when keys are compared.
    u64::from_le_bytes(bytes).swap_bytes()
}

/// Whether `a` sorts below `b`. Most keys differ in their first 8 bytes, which are compared as numbers: that takes
/// fewer instructions than a call that compares bytes.
#[inline]
#[must_use]
pub fn is_below(a: &[u8], b: &[u8]) -> bool {
    match (a.first_chunk(), b.first_chunk()) {
        (Some(first), Some(other)) if first != other => {
            u64::from_le_bytes(*first).swap_bytes() < u64::from_le_bytes(*other).swap_bytes()
        }
        _ => a < b,
    }
}

/// As [`head`], of 16 bytes.
#[inline]
#[must_use]
pub fn wide_head(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    match key.first_chunk() {
        Some(first) => bytes = *first,
        None => bytes[..key.len()].copy_from_slice(key),
    }
    u128::from_le_bytes(bytes).swap_bytes()
}

/// Where ranges of keys begin, in their order, to find a key's range by few bytes: those in which the keys
/// at which they begin differ first. Of the first range nothing is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// Bytes that all keys at which ranges begin have in common, but for the first.
    shared: usize,
    /// Of each but the first, what is behind these.
    heads: Vec<u64>,
}

impl Starts {
    /// Of ranges that begin at `from`, none below the one before.
    pub fn new<'a>(from: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let from = from.skip(1);
        let mut ends = from.clone();
        let shared = ends.next().map_or(0, |first| {
            let last = ends.last().unwrap_or(first);
            first.iter().zip(last).take_while(|(a, b)| a == b).count()
        });
        Self {
            shared,
            heads: from
                .map(|from| head(from.get(shared..).unwrap_or_default()))
                .collect(),
        }
    }

    /// The last range that begins at or below `key`, or the first. `from` tells where a range begins, as it
    /// did when this was made.
    #[inline]
    #[must_use]
    pub fn index_of<'a>(&self, key: &[u8], from: impl Fn(usize) -> &'a [u8]) -> usize {
        if self.heads.is_empty() {
            return 0;
        }
        let (front, behind) = key.split_at(self.shared.min(key.len()));
        // Nothing is asked of a range's beginning where nothing is shared.
        if self.shared > 0 {
            match front.cmp(&from(1)[..self.shared]) {
                Ordering::Less => return 0,
                Ordering::Greater => return self.heads.len(),
                Ordering::Equal => {}
            }
        }
        let target = head(behind);
        let low = self.heads.partition_point(|head| *head < target);
        let mut high = low;
        // Mostly none or one.
        if self.heads.get(low) == Some(&target) {
            high += self.heads[low..].partition_point(|head| *head == target);
        }
        // The range before the first that begins above the key: `heads[place]` is that of range `place + 1`.
        let (mut first, mut behind) = (low, high);
        while first < behind {
            let middle = usize::midpoint(first, behind);
            if from(middle + 1) <= key {
                first = middle + 1;
            } else {
                behind = middle;
            }
        }
        first
    }

    /// Bytes that it takes, beside itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.heads.capacity() * size_of::<u64>()
    }
}

/// The lowest key that sorts above `key`: `key` with a zero byte behind it.
#[must_use]
pub fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// A key or value as a person reads it: printable ASCII as it is, everything else as `\xNN`.
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            match byte {
                b'\\' => f.write_str("\\\\")?,
                b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
                other => write!(f, "\\x{other:02x}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, ", Printable(&self.from))?;
        match &self.to {
            Some(to) => write!(f, "{})", Printable(to)),
            None => f.write_str("end)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, to: &str) -> KeyRange {
        KeyRange::new(from, (!to.is_empty()).then(|| to.into()))
    }

    #[test]
    fn bounds_are_inclusive_below_and_exclusive_above() {
        assert!(range("b", "d").contains(b"b"));
        assert!(range("b", "d").contains(b"c\xff"));
        assert!(!range("b", "d").contains(b"d"));
        assert!(range("b", "").contains(b"\xff\xff"));
    }

    #[test]
    fn the_range_of_a_prefix_has_what_begins_with_it() {
        let keys: [&[u8]; 7] = [
            b"",
            b"a",
            b"a\xff",
            b"a\xff\0",
            b"b",
            b"\xff",
            b"\xff\xff\x01",
        ];
        let more: [&[u8]; 2] = [b"a\xff\xff", b"\xff\xff"];
        for prefix in keys.iter().chain(&more) {
            let range = KeyRange::prefix(prefix);
            for key in keys {
                assert_eq!(range.contains(key), key.starts_with(prefix), "{range}");
            }
        }
    }

    #[test]
    fn the_range_of_a_key_is_the_last_that_begins_below() {
        let some: [&[u8]; 9] = [
            b"",
            b"a",
            b"a\0",
            b"a\0b",
            b"longer than a head",
            b"longer than a head",
            b"longer than a tail",
            b"z",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        let alike: [&[u8]; 5] = [
            b"key",
            b"key-number-1",
            b"key-number-1 and more",
            b"key-number-2",
            b"key-number-2\0",
        ];
        for starts in [&some[..], &alike, &alike[1..], &alike[..2], &alike[..1]] {
            let found = Starts::new(starts.iter().copied());
            for key in some.iter().chain(&alike).flat_map(|start| {
                let below = start.split_last().map_or(&[][..], |(_, rest)| rest);
                [start.to_vec(), successor(start), below.to_vec()]
            }) {
                let expected = starts.iter().rposition(|start| *start <= &key[..]);
                let index = found.index_of(&key, |at| starts[at]);
                assert_eq!(index, expected.unwrap_or(0), "{}", Printable(&key));
            }
        }
    }

    #[test]
    fn a_key_is_below_another_as_bytes_are() {
        let keys: [&[u8]; 10] = [
            b"",
            b"\0",
            b"a",
            b"a\0",
            b"seven b",
            b"eight by",
            b"eight by\0",
            b"eight bytes",
            b"eight cytes",
            b"\xff\0\0\0\0\0\0\0",
        ];
        for (a, b) in keys.iter().flat_map(|a| keys.map(|b| (a, b))) {
            assert_eq!(is_below(a, b), *a < b, "{} {}", Printable(a), Printable(b));
        }
    }

    #[test]
    fn ranges_that_only_touch_do_not_overlap() {
        assert!(!range("a", "b").overlaps(&range("b", "c")));
        assert!(range("a", "b\0").overlaps(&range("b", "c")));
        assert!(range("", "").overlaps(&range("x", "y")));
    }

    #[test]
    fn a_scan_goes_on_from_either_end() {
        let mut rest = range("b", "x");
        rest.go_on_at(Direction::Up, b"d".to_vec());
        assert_eq!(rest, range("d", "x"));
        rest.go_on_at(Direction::Down, b"f".to_vec());
        assert_eq!(rest, range("d", "f"));
        rest.go_on_at(Direction::Down, b"d".to_vec());
        assert!(rest.is_empty());
    }

    #[test]
    fn the_successor_is_next() {
        assert!(successor(b"a").as_slice() > b"a".as_slice());
        assert!(successor(b"a").as_slice() <= b"a\0".as_slice());
    }
}
