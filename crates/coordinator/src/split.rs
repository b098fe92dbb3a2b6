//! How the keys of a new cluster are cut into regions, before anything is known of the keys.

use argosy_base::KeyRange;

/// All keys, cut before each of `boundaries`, which rise strictly and are not empty.
///
/// # Panics
/// When they do not, or one is empty.
#[must_use]
pub fn split_at(boundaries: &[Vec<u8>]) -> Vec<KeyRange> {
    let starts = std::iter::once(Vec::new()).chain(boundaries.iter().cloned());
    let ends = boundaries.iter().cloned().map(Some).chain([None]);
    let ranges: Vec<KeyRange> = starts
        .zip(ends)
        .map(|(from, to)| KeyRange::new(from, to))
        .collect();
    assert!(
        ranges.iter().all(|range| !range.is_empty()),
        "boundaries rise and are not empty"
    );
    ranges
}

/// `count` ranges, cut so that keys which begin with two random lower-case letters or digits
/// spread evenly over them. The first and the last also hold whatever sorts before and behind.
///
/// # Panics
/// When `count` is 0 or over [`SPLIT_MAX`].
#[must_use]
pub fn split_text(count: usize) -> Vec<KeyRange> {
    split_over(b"0123456789abcdefghijklmnopqrstuvwxyz", count)
}

/// `count` ranges, cut so that keys which begin with random hexadecimal digits (lower-case) spread
/// evenly over them.
///
/// # Panics
/// When `count` is 0 or over [`SPLIT_MAX`].
#[must_use]
pub fn split_hex(count: usize) -> Vec<KeyRange> {
    split_over(b"0123456789abcdef", count)
}

/// `count` ranges, cut so that keys which begin with random bytes spread evenly over them.
///
/// # Panics
/// When `count` is 0 or over [`SPLIT_MAX`].
#[must_use]
pub fn split_bytes(count: usize) -> Vec<KeyRange> {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    split_over(&all, count)
}

/// Most ranges that keys are cut into at first: with three characters of the smallest alphabet
/// (16 characters) each boundary is another one.
pub const SPLIT_MAX: usize = 4096;

/// Cuts the strings of three characters of `alphabet` (which rises) into `count` equal parts.
/// Characters that a boundary does not need to differ from its neighbours are left away.
fn split_over(alphabet: &[u8], count: usize) -> Vec<KeyRange> {
    assert!(
        (1..=SPLIT_MAX).contains(&count),
        "between 1 and {SPLIT_MAX} ranges"
    );
    let base = alphabet.len();
    let boundary = |part: usize| {
        let place = part * base.pow(3) / count;
        let mut key = vec![
            alphabet[place / base / base],
            alphabet[place / base % base],
            alphabet[place % base],
        ];
        while key.len() > 1 && key.last() == alphabet.first() {
            key.pop();
        }
        key
    };
    let boundaries: Vec<_> = (1..count).map(boundary).collect();
    split_at(&boundaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(ranges: &[KeyRange]) -> Vec<String> {
        ranges
            .iter()
            .map(|range| argosy_base::range::Printable(&range.from).to_string())
            .collect()
    }

    #[test]
    fn boundaries_are_short_and_even() {
        assert_eq!(starts(&split_text(1)), [""]);
        assert_eq!(starts(&split_text(4)), ["", "9", "i", "r"]);
        assert_eq!(starts(&split_hex(3)), ["", "555", "aaa"]);
        assert_eq!(starts(&split_bytes(2)), ["", "\\x80"]);
    }

    #[test]
    fn any_count_of_ranges_covers_all_keys_and_none_is_empty() {
        for split in [split_text, split_hex, split_bytes] {
            for count in [1, 2, 3, 5, 7, 16, 100, 255, 1000, SPLIT_MAX] {
                let ranges = split(count);
                assert_eq!(ranges.len(), count);
                assert!(ranges[0].from.is_empty());
                assert!(ranges[count - 1].to.is_none());
                for pair in ranges.windows(2) {
                    assert_eq!(pair[0].to.as_deref(), Some(pair[1].from.as_slice()));
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "boundaries rise")]
    fn boundaries_that_do_not_rise_are_refused() {
        let _ = split_at(&[b"b".to_vec(), b"a".to_vec()]);
    }
}
