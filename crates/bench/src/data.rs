//! The key and the value of a record, and how long they are.
//!
//! ```text
//! key   := 24 lowercase hex digits: 16 of a bijective hash of the record, 8 of a second hash
//! value := version: u32   stream: [u8]     the stream depends on seed, record and version
//! ```
//!
//! Hex digits keep keys printable, spread evenly over the split points `argosy playground` uses,
//! and distinct (the first 16 alone are). A value tells which version it is, and all its other
//! bytes follow from record and version: [`Dataset::version_of`] believes no value that differs
//! in one bit. The class of a record follows from the record, so an update keeps its size.

use std::fmt;
use std::str::FromStr;

use crate::rng::{mix, unmix};

/// Bytes of every key.
pub const KEY_BYTES: usize = 24;

/// Bytes in front of a value's stream.
const VERSION_BYTES: usize = 4;

/// Longest value: that of the largest pair of any [`PairSizes`].
pub const VALUE_BYTES_MAX: usize = 1228 - KEY_BYTES;

/// How many bytes a pair of each class has, key included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairSizes {
    name: &'static str,
    pair_bytes: [usize; 3],
}

/// Every set of sizes, by the name that the command line takes.
const SIZES: [PairSizes; 2] = [
    PairSizes::new("tebis", [33, 148, 1228]),
    PairSizes::new("talos", [33, 123, 1023]),
];

impl PairSizes {
    const fn new(name: &'static str, pair_bytes: [usize; 3]) -> Self {
        Self { name, pair_bytes }
    }

    /// Bytes of small, medium and large pairs.
    #[must_use]
    pub const fn pair_bytes(self) -> [usize; 3] {
        self.pair_bytes
    }
}

impl Default for PairSizes {
    /// The sizes of the Parallax and Tebis papers.
    fn default() -> Self {
        SIZES[0]
    }
}

impl fmt::Display for PairSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for PairSizes {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = SIZES
            .iter()
            .find(|sizes| sizes.name.eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| {
            let names: Vec<_> = SIZES.iter().map(|sizes| sizes.name).collect();
            format!(
                "no sizes are called '{name}'; there are {}",
                names.join(", ")
            )
        })
    }
}

/// How many of a hundred records are small, medium and large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// `None`: it is named after its share of small records.
    name: Option<&'static str>,
    percent: [u64; 3],
}

/// Every mix, by the name that the command line takes.
const MIXES: [Mix; 6] = [
    Mix::new("s", [100, 0, 0]),
    Mix::new("m", [0, 100, 0]),
    Mix::new("l", [0, 0, 100]),
    Mix::new("sd", [60, 20, 20]),
    Mix::new("md", [20, 60, 20]),
    Mix::new("ld", [20, 20, 60]),
];

impl Mix {
    const fn new(name: &'static str, percent: [u64; 3]) -> Self {
        assert!(percent[0] + percent[1] + percent[2] == 100);
        Self {
            name: Some(name),
            percent,
        }
    }

    /// `percent` of a hundred records are small; of the rest half are medium and half large, and
    /// one more large where the rest is odd. `None` where `percent` is above 100.
    #[must_use]
    pub fn of_small(percent: u64) -> Option<Self> {
        let rest = 100_u64.checked_sub(percent)?;
        Some(Self {
            name: None,
            percent: [percent, rest / 2, rest - rest / 2],
        })
    }

    /// Bytes of a pair on average, in whole bytes.
    #[must_use]
    pub fn mean_pair_bytes(self, sizes: PairSizes) -> u64 {
        let pairs = self.percent.iter().zip(sizes.pair_bytes);
        pairs
            .map(|(percent, bytes)| percent * bytes as u64)
            .sum::<u64>()
            / 100
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "s{}", self.percent[0]),
        }
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let called = |mix: &&Self| mix.name.is_some_and(|own| own.eq_ignore_ascii_case(name));
        MIXES.iter().find(called).copied().ok_or_else(|| {
            let names: Vec<_> = MIXES.iter().filter_map(|mix| mix.name).collect();
            format!("no mix is called '{name}'; there are {}", names.join(", "))
        })
    }
}

/// All records of a benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Dataset {
    seed: u64,
    mix: Mix,
    sizes: PairSizes,
}

impl Dataset {
    /// The records of `seed`.
    #[must_use]
    pub fn new(seed: u64, mix: Mix, sizes: PairSizes) -> Self {
        for bytes in sizes.pair_bytes {
            assert!(
                (KEY_BYTES + VERSION_BYTES..=KEY_BYTES + VALUE_BYTES_MAX).contains(&bytes),
                "a pair of {bytes} bytes holds a key and a version"
            );
        }
        Self { seed, mix, sizes }
    }

    /// The key of `record`.
    #[inline]
    #[must_use]
    pub fn key(&self, record: u64) -> [u8; KEY_BYTES] {
        key_at(self.place(record))
    }

    /// Where `record` stands in the order of all keys: keys are ordered as their places are.
    #[inline]
    #[must_use]
    pub const fn place(&self, record: u64) -> u64 {
        mix(record ^ mix(self.seed))
    }

    /// Whose key this is; `None` where it is no key of any record. The record may be one that was
    /// never written.
    #[must_use]
    pub fn record_of(&self, key: &[u8]) -> Option<u64> {
        let place = u64::from_str_radix(std::str::from_utf8(key.get(..16)?).ok()?, 16).ok()?;
        (key == key_at(place)).then(|| self.record_at(place))
    }

    /// Whose place this is.
    pub(crate) const fn record_at(&self, place: u64) -> u64 {
        unmix(place) ^ mix(self.seed)
    }

    /// How many bytes every value of `record` has.
    #[inline]
    #[must_use]
    pub fn value_bytes(&self, record: u64) -> usize {
        let percentile = mix(record.wrapping_add(0x1234_5678_9abc_def1)) % 100;
        let [small, medium, _] = self.mix.percent;
        let class = if percentile < small {
            0
        } else if percentile < small + medium {
            1
        } else {
            2
        };
        self.sizes.pair_bytes[class] - KEY_BYTES
    }

    /// Writes the value of `record` at `version` to the front of `out`, and returns that part.
    #[inline]
    pub fn value<'a>(&self, record: u64, version: u32, out: &'a mut [u8]) -> &'a [u8] {
        let value = &mut out[..self.value_bytes(record)];
        let (head, stream) = value.split_at_mut(VERSION_BYTES);
        head.copy_from_slice(&version.to_le_bytes());
        let mut state = self.stream_start(record, version);
        let (words, rest) = stream.as_chunks_mut::<8>();
        for word in words {
            state = next(state);
            *word = state.to_le_bytes();
        }
        let last = next(state).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
        value
    }

    /// Which version of `record` this value is, or `None` where it is none.
    #[inline]
    #[must_use]
    pub fn version_of(&self, record: u64, value: &[u8]) -> Option<u32> {
        if value.len() != self.value_bytes(record) {
            return None;
        }
        let (head, stream) = value.split_at(VERSION_BYTES);
        let version = u32::from_le_bytes(head.try_into().expect("split at four bytes"));
        let mut state = self.stream_start(record, version);
        let (words, rest) = stream.as_chunks::<8>();
        let mut differ = 0;
        for word in words {
            state = next(state);
            differ |= u64::from_le_bytes(*word) ^ state;
        }
        let last = next(state).to_le_bytes();
        (differ == 0 && rest == &last[..rest.len()]).then_some(version)
    }

    const fn stream_start(&self, record: u64, version: u32) -> u64 {
        mix(mix(self.seed ^ mix(record)) ^ ((version as u64) << 32))
    }
}

/// The key at a place of the order.
#[inline]
fn key_at(place: u64) -> [u8; KEY_BYTES] {
    let second = mix(place ^ 0x5851_f42d_4c95_7f2d);
    let mut key = [0; KEY_BYTES];
    hex(place, &mut key[..16]);
    hex(second, &mut key[16..]);
    key
}

/// The next eight bytes of a value's stream.
#[inline]
const fn next(state: u64) -> u64 {
    mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// The highest digits of `x` in hex, as many as `out` has room for.
fn hex(x: u64, out: &mut [u8]) {
    for (place, digit) in out.iter_mut().enumerate() {
        let nibble = x >> (60 - 4 * place) & 0xf;
        *digit = b"0123456789abcdef"[usize::try_from(nibble).expect("a nibble is small")];
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn dataset(mix: &str) -> Dataset {
        Dataset::new(9, mix.parse().unwrap(), PairSizes::default())
    }

    #[test]
    fn keys_are_distinct_hex_and_spread_evenly() {
        let data = dataset("s");
        let keys: BTreeSet<_> = (0..20_000).map(|record| data.key(record)).collect();
        assert_eq!(keys.len(), 20_000);
        assert!(keys.iter().flatten().all(u8::is_ascii_hexdigit));
        let low = keys.iter().filter(|key| key[0] < b'8').count();
        assert!(
            (9_700..10_300).contains(&low),
            "{low} of 20000 in the lower half"
        );
    }

    #[test]
    fn a_key_tells_its_record_and_keys_are_ordered_as_places() {
        let data = dataset("s");
        let mut places: Vec<_> = (0..2000).map(|record| data.place(record)).collect();
        let mut keys: Vec<_> = (0..2000).map(|record| data.key(record)).collect();
        for (record, key) in (0..).zip(&keys) {
            assert_eq!(data.record_of(key), Some(record));
            assert_eq!(data.record_of(&key[1..]), None);
            let mut other = *key;
            other[20] = if other[20] == b'0' { b'1' } else { b'0' };
            assert_eq!(data.record_of(&other), None);
        }
        places.sort_unstable();
        keys.sort_unstable();
        let sorted: Vec<_> = places.into_iter().map(key_at).collect();
        assert_eq!(keys, sorted);
    }

    #[test]
    fn the_share_of_small_records_makes_a_mix() {
        let mix = Mix::of_small(45).unwrap();
        assert_eq!((mix.percent, mix.to_string()), ([45, 27, 28], "s45".into()));
        assert_eq!(Mix::of_small(100).unwrap().percent, [100, 0, 0]);
        assert_eq!(Mix::of_small(101), None);
    }

    #[test]
    fn the_sizes_of_both_papers_are_known() {
        let talos: PairSizes = "talos".parse().unwrap();
        assert_eq!(talos.pair_bytes(), [33, 123, 1023]);
        assert_eq!(PairSizes::default().pair_bytes(), [33, 148, 1228]);
        assert!("xl".parse::<PairSizes>().unwrap_err().contains("talos"));
    }

    #[test]
    fn pairs_have_the_papers_sizes_in_the_mix_asked_for() {
        let data = dataset("sd");
        let mut counts = [0; 3];
        for record in 0..10_000 {
            let class = [33, 148, 1228]
                .iter()
                .position(|&bytes| bytes == KEY_BYTES + data.value_bytes(record));
            counts[class.expect("one of the three sizes")] += 1;
        }
        assert!((5_800..6_200).contains(&counts[0]), "{counts:?}");
        assert!((1_850..2_150).contains(&counts[1]), "{counts:?}");
        assert!((1_850..2_150).contains(&counts[2]), "{counts:?}");
    }

    #[test]
    fn a_value_is_believed_only_whole() {
        let data = dataset("sd");
        let mut buffer = [0; VALUE_BYTES_MAX];
        for record in 0..200 {
            let value = data.value(record, 77, &mut buffer).to_vec();
            assert_eq!(data.version_of(record, &value), Some(77));
            assert_eq!(data.version_of(record + 1_000_003, &value), None);
            assert_eq!(data.version_of(record, &value[1..]), None);
            for place in [0, 4, value.len() / 2, value.len() - 1] {
                let mut flipped = value.clone();
                flipped[place] ^= 0x10;
                assert_eq!(data.version_of(record, &flipped), None, "byte {place}");
            }
        }
    }

    #[test]
    fn unknown_mixes_are_refused_with_the_known_ones() {
        let error = "xl".parse::<Mix>().unwrap_err();
        assert!(error.contains("sd"), "{error}");
    }
}
