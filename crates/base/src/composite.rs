//! Composites: hashes, sorted sets and sets, as a head under the visible key and elements under keys that nobody sees.
//!
//! ```text
//! head        := magic: 7 bytes  format: u8 = 1  type: u8  zero: 7 bytes  version: u128 LE  number: u64 LE  key
//! element key := 0xff x 10  len: u16 LE  key  version: u128 LE  tag: u8  name
//!
//! type := 1 hash | 2 sorted set | 3 set
//!
//! of a            element                                     value
//! hash            tag 1, name: a field                        the field's value
//! sorted set      tag 1, name: a member                       its score: the bits of an f64, LE
//!                 tag 2, name: score: 8 bytes  member         empty
//! set             tag 1, name: a member                       empty
//! ```
//!
//! - A *version* is drawn when a composite comes into being, and never twice, so no element is ever taken for one of
//!   another composite of the key.
//! - Whatever changes an element writes the head in the same batch, so the version of the head's pair tells that an
//!   element has changed. The number is that of fields or members; a composite has at least one.
//! - Scores are ordered as bytes: the bits of the float, the highest byte first, with the sign turned over, and where
//!   it was set all others too.
//! - Keys of elements are reserved ([`long`](crate::long)), and those of parts are below all of them: no part's key has
//!   a length of 0xffff. What looks like a head is not a value that a user writes.

use alloc::vec::Vec;

use crate::KeyRange;
use crate::limits::KEY_BYTES_MAX;
use crate::long::{LONG_KEY_BYTES_MAX, RESERVED};

/// What keys of elements begin with. All keys from this on begin with it.
const ELEMENTS: [u8; 10] = [0xff; 10];

/// Bytes of an element's key that are neither the visible key's nor the name's.
const FRAME_BYTES: usize = ELEMENTS.len() + 2 + 16 + 1;

/// Most bytes of a composite's key and of the name of an element together.
pub const KEY_AND_NAME_BYTES_MAX: usize = KEY_BYTES_MAX - FRAME_BYTES;

/// What a head begins with. Behind it stands the format.
const MAGIC: [u8; 7] = *b"\xffCOMP\x00\xf5";
/// The format that is known.
const FORMAT: u8 = 1;
/// Bytes behind the type.
const ZERO: [u8; 7] = [0; 7];

/// Bytes of a head in front of its key.
pub const HEAD_BYTES: usize = MAGIC.len() + 1 + 1 + ZERO.len() + 16 + 8;

/// Bytes of a score in the name of an element.
const SCORE_BYTES: usize = 8;

/// What a composite is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompositeType {
    /// Fields with values.
    Hash,
    /// Members with scores.
    SortedSet,
    /// Members.
    Set,
}

impl CompositeType {
    /// As it is kept. DO NOT CHANGE THE VALUES.
    const fn to_byte(self) -> u8 {
        match self {
            Self::Hash => 1,
            Self::SortedSet => 2,
            Self::Set => 3,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Hash),
            2 => Some(Self::SortedSet),
            3 => Some(Self::Set),
            _ => None,
        }
    }

    /// As clients name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::SortedSet => "zset",
            Self::Set => "set",
        }
    }
}

/// What stands under the key of a composite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composite {
    /// What it is.
    pub kind: CompositeType,
    /// The version of its elements.
    pub version: u128,
    /// How many fields or members it has.
    pub number: u64,
    /// Its key.
    pub key: Vec<u8>,
}

/// Whether a value is the head of a composite, of whatever format. Nothing else looks like one.
#[inline]
#[must_use]
pub fn is_composite(value: &[u8]) -> bool {
    value.starts_with(&MAGIC) && value.len() > HEAD_BYTES
}

/// Whether a value is a head: of a long value, or of a composite.
#[inline]
#[must_use]
pub fn is_any_head(value: &[u8]) -> bool {
    crate::long::is_head(value) || is_composite(value)
}

impl Composite {
    /// Reads a value; `None`: it is none, or of a format that is not known.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let rest = value.strip_prefix(&MAGIC)?;
        let (&[format, kind], rest) = rest.split_first_chunk()?;
        let (zero, rest) = rest.split_first_chunk::<7>()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (number, key) = rest.split_first_chunk()?;
        let kind = CompositeType::from_byte(kind)?;
        let fits = format == FORMAT && *zero == ZERO && !key.is_empty();
        fits.then(|| Self {
            kind,
            version: u128::from_le_bytes(*version),
            number: u64::from_le_bytes(*number),
            key: key.to_vec(),
        })
    }

    /// What stands under the key.
    #[must_use]
    pub fn to_value(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.key.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[FORMAT, self.kind.to_byte()]);
        bytes.extend_from_slice(&ZERO);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.key);
        bytes
    }

    /// The element of this name.
    #[must_use]
    pub const fn element<'a>(&'a self, name: Name<'a>) -> Element<'a> {
        Element {
            key: self.key.as_slice(),
            version: self.version,
            name,
        }
    }

    /// The keys of all its fields or members.
    #[must_use]
    pub fn fields(&self) -> KeyRange {
        KeyRange::prefix(&prefix_of(&self.key, self.version, Some(FIELD)))
    }

    /// The keys of all its scores, in their order.
    #[must_use]
    pub fn scores(&self) -> KeyRange {
        KeyRange::prefix(&prefix_of(&self.key, self.version, Some(SCORE)))
    }

    /// The lowest key that the element of a score, whatever its member, can have.
    #[must_use]
    pub fn score_from(&self, score: f64) -> Vec<u8> {
        let mut bytes = prefix_of(&self.key, self.version, Some(SCORE));
        bytes.extend_from_slice(&ordered(score));
        bytes
    }
}

/// Whether a composite can have this key.
#[must_use]
pub const fn may_be_composites(key: &[u8]) -> bool {
    key.len() <= LONG_KEY_BYTES_MAX
}

/// What an element is called in its composite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Name<'a> {
    /// A field or a member.
    Field(&'a [u8]),
    /// A score and its member.
    Score(f64, &'a [u8]),
}

/// Tags of elements. DO NOT CHANGE THE VALUES.
const FIELD: u8 = 1;
const SCORE: u8 = 2;

/// What the key of an element says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element<'a> {
    /// The key of the composite.
    pub key: &'a [u8],
    /// The version of the composite.
    pub version: u128,
    /// Which of its elements it is.
    pub name: Name<'a>,
}

/// What the keys of elements begin with: of a version of a key, and with a tag.
fn prefix_of(key: &[u8], version: u128, tag: Option<u8>) -> Vec<u8> {
    let len = u16::try_from(key.len()).expect("keys are short");
    let mut bytes = Vec::with_capacity(FRAME_BYTES + key.len());
    bytes.extend_from_slice(&ELEMENTS);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend(tag);
    bytes
}

/// Takes the key of an element apart: the visible key, the version, and what stands behind it.
fn split(bytes: &[u8]) -> Option<(&[u8], u128, &[u8])> {
    let (len, rest) = bytes.strip_prefix(&ELEMENTS)?.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    let (version, rest) = rest.split_first_chunk()?;
    Some((key, u128::from_le_bytes(*version), rest))
}

impl<'a> Element<'a> {
    /// Reads a key; `None`: it is no element's.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (key, version, rest) = split(bytes)?;
        let name = match rest.split_first()? {
            (&FIELD, field) => Name::Field(field),
            (&SCORE, rest) => {
                let (score, member) = rest.split_first_chunk::<SCORE_BYTES>()?;
                Name::Score(score_of(*score), member)
            }
            _ => return None,
        };
        Some(Self { key, version, name })
    }

    /// Its key, which may be longer than a key may be.
    #[must_use]
    pub fn to_key(self) -> Vec<u8> {
        let tag = match self.name {
            Name::Field(_) => FIELD,
            Name::Score(..) => SCORE,
        };
        let mut bytes = prefix_of(self.key, self.version, Some(tag));
        match self.name {
            Name::Field(field) => bytes.extend_from_slice(field),
            Name::Score(score, member) => {
                bytes.extend_from_slice(&ordered(score));
                bytes.extend_from_slice(member);
            }
        }
        bytes
    }
}

/// The version of a composite to which the key of an element belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementsOf<'a> {
    /// The key of the composite.
    pub key: &'a [u8],
    /// Its version.
    pub version: u128,
}

impl<'a> ElementsOf<'a> {
    /// Reads the key of an element, or the lowest of some; `None`: it is none.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (key, version, _) = split(bytes)?;
        Some(Self { key, version })
    }

    /// The keys of all of its elements.
    #[must_use]
    pub fn all(self) -> KeyRange {
        KeyRange::prefix(&prefix_of(self.key, self.version, None))
    }

    /// The keys of all elements of all versions of a key.
    #[must_use]
    pub fn of_key(key: &[u8]) -> KeyRange {
        let mut prefix = prefix_of(key, 0, None);
        prefix.truncate(ELEMENTS.len() + 2 + key.len());
        KeyRange::prefix(&prefix)
    }

    /// The composite in which all of `range` lies, if it is one.
    #[must_use]
    pub fn containing(range: &'a KeyRange) -> Option<Self> {
        let of = Self::parse(&range.from)?;
        let end = of.all().to;
        let within = match (&range.to, &end) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(to), Some(end)) => to <= end,
        };
        within.then_some(of)
    }
}

/// The key to which that of an element belongs; `None`: it is no element's.
#[inline]
#[must_use]
pub fn key_of(bytes: &[u8]) -> Option<&[u8]> {
    ElementsOf::parse(bytes).map(|of| of.key)
}

/// The sign of a float.
const SIGN: u64 = 1 << 63;

/// The bytes of a score, ordered as scores are.
#[must_use]
pub fn ordered(score: f64) -> [u8; SCORE_BYTES] {
    // Both zeros are one.
    let bits = (score + 0.0).to_bits();
    let bits = match bits & SIGN {
        0 => bits | SIGN,
        _ => !bits,
    };
    // The highest byte first.
    bits.swap_bytes().to_le_bytes()
}

/// The score that has these bytes.
fn score_of(bytes: [u8; SCORE_BYTES]) -> f64 {
    let bits = u64::from_le_bytes(bytes).swap_bytes();
    f64::from_bits(match bits & SIGN {
        0 => !bits,
        _ => bits & !SIGN,
    })
}

const _: () = assert!(ELEMENTS.len() > RESERVED.len() && KEY_BYTES_MAX < 0xffff);

#[cfg(test)]
#[path = "composite_tests.rs"]
mod tests;
