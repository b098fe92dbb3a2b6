//! Sizes and durations as people write them: `64MiB`, `4kB`, `500ms`, `2s`.
//!
//! ```text
//! size     := digits [ "B" | "KiB" | "MiB" | "GiB" | "TiB" | "kB" | "MB" | "GB" | "TB" ]
//! duration := digits ( "us" | "ms" | "s" | "m" | "h" )
//! ```
//!
//! `KiB` and its like are powers of 1024, `kB` and its like of 1000; a size without a unit is in
//! bytes. Units are spelled exactly so: `64M` is refused, since nobody knows which it would be.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const SPAN_UNITS: [(&str, u64); 5] = [
    ("us", 1),
    ("ms", 1000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// So many mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// The bytes as a `usize`, for what is kept in memory.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).expect("Argosy runs on 64-bit machines")
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let unit = if unit.is_empty() { "B" } else { unit };
        scale(number, unit, &SIZE_UNITS).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = SIZE_UNITS[..5]
            .iter()
            .rev()
            .find(|(_, bytes)| self.0.is_multiple_of(*bytes) && self.0 >= *bytes);
        match unit {
            Some((name, bytes)) if *bytes > 1 => write!(f, "{}{name}", self.0 / bytes),
            _ => write!(f, "{}", self.0),
        }
    }
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let micros = scale(number, unit, &SPAN_UNITS)?;
        Ok(Self(Duration::from_micros(micros)))
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_micros() {
            micros if micros.is_multiple_of(1_000_000) => write!(f, "{}s", micros / 1_000_000),
            micros if micros.is_multiple_of(1000) => write!(f, "{}ms", micros / 1000),
            micros => write!(f, "{micros}us"),
        }
    }
}

/// The digits in front, as a number, and what follows them.
fn split(text: &str) -> Result<(u64, &str), String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number = digits
        .parse()
        .map_err(|_| format!("'{text}' does not begin with a whole number"))?;
    Ok((number, unit.trim_start()))
}

fn scale(number: u64, unit: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let found = units.iter().find(|(name, _)| *name == unit);
    let (_, factor) = found.ok_or_else(|| {
        let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
        format!("'{unit}' is no unit; there are {}", names.join(", "))
    })?;
    number
        .checked_mul(*factor)
        .ok_or_else(|| format!("{number}{unit} is too much"))
}

/// Takes a number of bytes, or text.
struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or text such as \"64MiB\"")
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        let bytes = u64::try_from(bytes).map_err(|_| E::custom("a size is not negative"))?;
        Ok(Size(bytes))
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A factor of 1 to 100, in hundredths: `1.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Factor(pub u32);

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let padded = format!("{part}0");
        let hundredths = match (digits(whole), digits(part) && part.len() <= 2) {
            (true, true) => whole
                .parse::<u32>()
                .ok()
                .zip(padded[..2].parse::<u32>().ok()),
            _ => None,
        };
        let factor = hundredths.and_then(|(whole, part)| Some(whole.checked_mul(100)? + part));
        match factor {
            Some(factor @ 100..=10_000) => Ok(Self(factor)),
            _ => Err(format!(
                "'{text}' is no factor from 1 to 100 with at most two decimal places"
            )),
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 100, self.0 % 100);
        match (part, part % 10) {
            (0, _) => write!(f, "{whole}"),
            (_, 0) => write!(f, "{whole}.{}", part / 10),
            _ => write!(f, "{whole}.{part:02}"),
        }
    }
}

struct FactorVisitor;

impl Visitor<'_> for FactorVisitor {
    type Value = Factor;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a factor such as 1.5")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Factor, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Factor, E> {
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Factor, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FactorVisitor)
    }
}

impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [("0", 0), ("12", 12), ("64MiB", 64 << 20), ("4 kB", 4000)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bytes in [0, 1, 1023, 1024, 3 << 20, 5 << 30, (1 << 30) + 1] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
        assert_eq!(Size(64 << 20).to_string(), "64MiB");
    }

    #[test]
    fn factors_are_read_and_written() {
        for (text, hundredths) in [("1", 100), ("1.5", 150), ("1.05", 105), (" 2.25", 225)] {
            assert_eq!(text.parse(), Ok(Factor(hundredths)), "{text}");
            assert_eq!(Factor(hundredths).to_string(), text.trim());
        }
        for text in ["", "0.9", "-1.5", "1.555", "1,5", "101", "1.", "NaN"] {
            assert!(text.parse::<Factor>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "whole number"),
            ("-1", "whole number"),
            ("64M", "KiB"),
            ("1mib", "MiB"),
            ("99999999TiB", "too much"),
        ] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn spans_are_read_and_written() {
        for (text, millis) in [
            ("500ms", 500),
            ("2s", 2000),
            ("1m", 60_000),
            ("1h", 3_600_000),
        ] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(millis));
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        assert!("5".parse::<TimeSpan>().is_err(), "a span has a unit");
    }
}
