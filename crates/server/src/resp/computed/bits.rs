//! Bits of a value: bit 0 is the highest of the first byte. Behind its end a value has bits that are 0.

/// What a range counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Byte,
    Bit,
}

/// A part of a value, both ends included, counted from its end where below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BitRange {
    pub(super) first: i64,
    /// `None`: the end of the value.
    pub(super) last: Option<i64>,
    pub(super) unit: Unit,
}

impl BitRange {
    /// The bits of a value of `bytes` bytes that are in it, the last included; `None` where there are none.
    fn within(self, bytes: usize) -> Option<(u64, u64)> {
        let bits_each = match self.unit {
            Unit::Byte => 8,
            Unit::Bit => 1,
        };
        let len = i64::try_from(bytes).ok()? * 8 / bits_each;
        let from_end = |at: i64| match at {
            ..0 => at.saturating_add(len).max(0),
            _ => at,
        };
        let last = self.last.unwrap_or(-1);
        let (first, last) = (from_end(self.first), from_end(last).min(len - 1));
        if first > last {
            return None;
        }
        let (first, last) = (first * bits_each, (last + 1) * bits_each - 1);
        Some((u64::try_from(first).ok()?, u64::try_from(last).ok()?))
    }
}

/// The byte of bit `at`, and the bit in it.
fn place(at: u64) -> (usize, u8) {
    let byte = usize::try_from(at / 8).unwrap_or(usize::MAX);
    (byte, 0x80 >> (at % 8))
}

/// Bit `at`.
pub(super) fn get(value: &[u8], at: u64) -> bool {
    let (byte, mask) = place(at);
    value.get(byte).is_some_and(|byte| byte & mask != 0)
}

/// Sets bit `at`, up to which the value grows. Returns what it was.
pub(super) fn set(value: &mut Vec<u8>, at: u64, bit: bool) -> bool {
    let before = get(value, at);
    let (byte, mask) = place(at);
    if value.len() <= byte {
        value.resize(byte + 1, 0);
    }
    match bit {
        true => value[byte] |= mask,
        false => value[byte] &= !mask,
    }
    before
}

/// The bits of byte `byte` that lie between `first` and `last`.
fn mask(byte: usize, first: u64, last: u64) -> u8 {
    let begin = byte as u64 * 8;
    let above = first.saturating_sub(begin).min(8);
    let below = (begin + 7).saturating_sub(last).min(8);
    let ones = u16::from(u8::MAX);
    let kept = (ones >> above) & (ones << below);
    u8::try_from(kept & ones).unwrap_or_default()
}

/// The bytes in which bits `first` to `last` lie, each with its place.
fn bytes_of(value: &[u8], first: u64, last: u64) -> impl Iterator<Item = (usize, u8)> {
    let (from, to) = (place(first).0, place(last).0);
    (from..).zip(value[from..=to].iter().copied())
}

/// How many bits are set.
pub(super) fn count(value: &[u8], range: Option<BitRange>) -> u64 {
    let Some(range) = range else {
        return value.iter().map(|byte| u64::from(byte.count_ones())).sum();
    };
    // Redis looks at these before it counts them from the end, and finds other bits in such a range by `find`.
    if range.first < 0
        && range
            .last
            .is_some_and(|last| last < 0 && range.first > last)
    {
        return 0;
    }
    let Some((first, last)) = range.within(value.len()) else {
        return 0;
    };
    let bytes = bytes_of(value, first, last);
    bytes
        .map(|(at, byte)| u64::from((byte & mask(at, first, last)).count_ones()))
        .sum()
}

/// Where the first such bit is. A value without an end that is named has zeros behind it.
pub(super) fn find(value: &[u8], bit: bool, range: BitRange) -> Option<u64> {
    let (first, last) = range.within(value.len())?;
    let found = bytes_of(value, first, last).find_map(|(at, byte)| {
        let byte = if bit { byte } else { !byte };
        let kept = byte & mask(at, first, last);
        (kept != 0).then(|| at as u64 * 8 + u64::from(kept.leading_zeros()))
    });
    let behind = (!bit && range.last.is_none()).then_some(last + 1);
    found.or(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(first: i64, last: i64) -> BitRange {
        let (last, unit) = (Some(last), Unit::Byte);
        BitRange { first, last, unit }
    }

    fn bits(first: i64, last: i64) -> BitRange {
        let (last, unit) = (Some(last), Unit::Bit);
        BitRange { first, last, unit }
    }

    #[test]
    fn bits_are_counted_between_the_ends() {
        let value = b"foobar";
        assert_eq!(count(value, None), 26);
        for (range, expected) in [
            (bytes(0, 0), 4),
            (bytes(1, 1), 6),
            (bytes(0, -1), 26),
            (bytes(-2, -1), 7),
            (bytes(5, 2), 0),
            (bytes(-1, -2), 0),
            (bytes(9, 12), 0),
            (bits(5, 30), 17),
            (bits(0, 0), 0),
            (bits(1, 1), 1),
            (bits(-8, -1), 4),
        ] {
            assert_eq!(count(value, Some(range)), expected, "{range:?}");
        }
        assert_eq!(count(b"", Some(bytes(0, -1))), 0);
    }

    #[test]
    fn counting_is_looking_at_every_bit() {
        let value: Vec<u8> = (0..5_u8).map(|n| n.wrapping_mul(91) ^ 0x3c).collect();
        for first in 0..40 {
            for last in first..40 {
                let expected = (first..=last).filter(|at| get(&value, *at as u64)).count();
                let range = bits(first, last);
                assert_eq!(count(&value, Some(range)), expected as u64, "{range:?}");
                for bit in [false, true] {
                    let expected = (first..=last).find(|at| get(&value, *at as u64) == bit);
                    let expected = expected.map(|at| u64::try_from(at).unwrap());
                    assert_eq!(find(&value, bit, range), expected, "{bit} {range:?}");
                }
            }
        }
    }

    #[test]
    fn a_value_without_an_end_has_zeros_behind_it() {
        let open = BitRange {
            first: 0,
            last: None,
            unit: Unit::Byte,
        };
        assert_eq!(find(b"\xff\xf0\x00", false, open), Some(12));
        assert_eq!(find(b"\xff\xff", false, open), Some(16));
        assert_eq!(find(b"\xff\xff", false, bytes(0, -1)), None);
        assert_eq!(find(b"\x00\x00", true, open), None);
        assert_eq!(find(b"", false, open), None);
    }

    #[test]
    fn a_value_grows_up_to_its_bit() {
        let mut value = Vec::new();
        assert!(!set(&mut value, 7, true));
        assert_eq!(value, [1]);
        assert!(!set(&mut value, 17, true));
        assert_eq!(value, [1, 0, 0x40]);
        assert!(set(&mut value, 7, false));
        assert_eq!(value, [0, 0, 0x40]);
        assert!(get(&value, 17) && !get(&value, 99));
    }
}
