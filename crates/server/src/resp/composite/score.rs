//! Scores: how they are read and shown, and the ranges that commands name.

use std::ops::Bound;

use argosy_base::KeyRange;
use argosy_base::limits::KEY_BYTES_MAX;
use argosy_engine::change::float_or_infinity;
use argosy_engine::composite::{Composite, Element, Name};

/// A score that is an argument: a decimal fraction, or infinity.
pub(super) fn parse(text: &[u8]) -> Option<f64> {
    // Both zeros are one.
    float_or_infinity(text).map(|score| score + 0.0)
}

/// What is said of a score that is none.
pub(super) const NO_SCORE: &str = "ERR value is not a valid float";

/// The value of the element of a member: its score.
pub(super) const fn to_value(score: f64) -> [u8; 8] {
    score.to_bits().to_le_bytes()
}

/// The score that is the value of an element.
pub(super) fn of_value(value: &[u8]) -> f64 {
    let bytes = value.try_into().unwrap_or_default();
    f64::from_bits(u64::from_le_bytes(bytes))
}

/// `score` as Redis shows it: whole numbers in full, others with as many digits as tell them apart.
pub(super) fn text_of(score: f64) -> String {
    /// Whole numbers up to here have all their digits.
    const WHOLE_MAX: f64 = 1e17;
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if score.fract() == 0.0 && score.abs() < WHOLE_MAX {
        return format!("{score}");
    }
    let scientific = format!("{score:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match exponent {
        -5..17 => format!("{score}"),
        17.. => format!("{digits}e+{exponent}"),
        _ => format!("{digits}e{exponent}"),
    }
}

/// Scores between two ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scores {
    from: Bound<f64>,
    to: Bound<f64>,
}

impl Scores {
    /// Between two ends as they are written: a score, which belongs, or one behind a `(`, which does not.
    ///
    /// # Errors
    /// In words for the client.
    pub(super) fn between(from: &[u8], to: &[u8]) -> Result<Self, String> {
        let end = |text: &[u8]| match text.strip_prefix(b"(") {
            Some(score) => parse(score).map(Bound::Excluded),
            None => parse(text).map(Bound::Included),
        };
        let both = end(from).zip(end(to));
        let (from, to) = both.ok_or("ERR min or max is not a float")?;
        Ok(Self { from, to })
    }

    /// The keys of the elements of these scores.
    pub(super) fn keys(self, of: &Composite) -> KeyRange {
        let behind = |score| KeyRange::prefix(&of.score_from(score)).to;
        let all = of.scores();
        let from = match self.from {
            Bound::Included(score) => Some(of.score_from(score)),
            Bound::Excluded(score) => behind(score),
            Bound::Unbounded => None,
        };
        let to = match self.to {
            Bound::Included(score) => behind(score),
            Bound::Excluded(score) => Some(of.score_from(score)),
            Bound::Unbounded => None,
        };
        KeyRange {
            from: from.unwrap_or(all.from),
            to: to.or(all.to),
        }
    }
}

/// Members between two ends, of a set whose scores are all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Members {
    from: End,
    to: End,
}

/// An end of a range of members.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// Below all.
    Lowest,
    /// Above all.
    Highest,
    Included(Vec<u8>),
    Excluded(Vec<u8>),
}

impl Members {
    /// Between two ends as they are written: `-`, `+`, a member behind `[`, which belongs, or behind `(`, which does
    /// not.
    ///
    /// # Errors
    /// In words for the client.
    pub(super) fn between(from: &[u8], to: &[u8]) -> Result<Self, String> {
        let end = |text: &[u8]| match text.split_first() {
            Some((b'-', b"")) => Some(End::Lowest),
            Some((b'+', b"")) => Some(End::Highest),
            Some((b'[', member)) => Some(End::Included(member.to_vec())),
            Some((b'(', member)) => Some(End::Excluded(member.to_vec())),
            _ => None,
        };
        let both = end(from).zip(end(to));
        let (from, to) = both.ok_or("ERR min or max not valid string range item")?;
        Ok(Self { from, to })
    }

    /// The keys of the elements of these members.
    pub(super) fn keys(&self, of: &Composite) -> KeyRange {
        let all = of.fields();
        let key = |member: &[u8], behind: bool| {
            let mut key = of.element(Name::Field(member)).to_key();
            if behind {
                key.push(0);
            }
            // No key is longer, so none lies between.
            key.truncate(KEY_BYTES_MAX + 1);
            key
        };
        let end = |end: &End, belongs_behind: bool| match end {
            End::Lowest => all.from.clone(),
            End::Highest => all.to.clone().unwrap_or_default(),
            End::Included(member) => key(member, belongs_behind),
            End::Excluded(member) => key(member, !belongs_behind),
        };
        KeyRange::new(end(&self.from, false), Some(end(&self.to, true)))
    }
}

/// The member and score that an element tells of.
pub(super) fn of_element(key: &[u8], value: &[u8]) -> Option<(Vec<u8>, f64)> {
    match Element::parse(key)?.name {
        Name::Field(member) => Some((member.to_vec(), of_value(value))),
        Name::Score(score, member) => Some((member.to_vec(), score)),
    }
}

#[cfg(test)]
mod tests {
    use argosy_engine::composite::CompositeType;

    use super::*;

    #[test]
    fn scores_are_shown_as_by_redis() {
        for (score, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (-3.25, "-3.25"),
            (0.1, "0.1"),
            (1e16, "10000000000000000"),
            (1e300, "1e+300"),
            (1.5e-7, "1.5e-7"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text_of(score), text);
        }
    }

    #[test]
    fn scores_are_read_as_by_redis() {
        for (text, score) in [
            ("1", Some(1.0)),
            ("-0", Some(0.0)),
            ("+inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e3", Some(1000.0)),
            ("nan", None),
            ("", None),
            ("x", None),
            ("1 ", None),
        ] {
            assert_eq!(parse(text.as_bytes()), score, "{text}");
        }
        assert!(parse(b"-0").unwrap().is_sign_positive());
    }

    #[test]
    fn ranges_have_the_elements_between_their_ends() {
        let set = Composite {
            kind: CompositeType::SortedSet,
            version: u128::MAX,
            number: 3,
            key: b"k".to_vec(),
        };
        let has = |from: &str, to: &str| {
            let scores = Scores::between(from.as_bytes(), to.as_bytes()).unwrap();
            let keys = scores.keys(&set);
            let inside =
                |score: &f64| keys.contains(&set.element(Name::Score(*score, b"m")).to_key());
            [-1.0, 0.0, 1.0, f64::INFINITY]
                .iter()
                .filter(|score| inside(score))
                .count()
        };
        assert_eq!(has("-inf", "+inf"), 4);
        assert_eq!(has("0", "1"), 2);
        assert_eq!(has("(0", "1"), 1);
        assert_eq!(has("(0", "(1"), 0);
        assert_eq!(has("-inf", "(inf"), 3);
        assert_eq!(has("1", "0"), 0);
        let has = |from: &str, to: &str| {
            let members = Members::between(from.as_bytes(), to.as_bytes()).unwrap();
            let keys = members.keys(&set);
            let inside = |member: &&str| {
                keys.contains(&set.element(Name::Field(member.as_bytes())).to_key())
            };
            ["", "a", "ab", "b"]
                .iter()
                .filter(|member| inside(member))
                .count()
        };
        assert_eq!(has("-", "+"), 4);
        assert_eq!(has("+", "-"), 0);
        assert_eq!(has("[a", "[b"), 3);
        assert_eq!(has("(a", "(b"), 1);
        assert_eq!(has("-", "(a"), 1);
    }
}
