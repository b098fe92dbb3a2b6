//! Lines of hashes, sorted sets and sets: of each, a line or several, each with a *part* of its elements.
//!
//! ```text
//! line     := {"key": field, "type": "hash" | "zset" | "set", "elements": [element, ...]
//!              [, "part": number] [, "more": true] [, "expires_at_ms": number]} NL
//! element  := [field, field]      of a hash: a field and its value; of a sorted set: a member and its score
//!           | field               of a set: a member
//! field    := as in the lines of pairs (see the module `format`)
//! ```
//!
//! - Parts are numbered from 1, which is left out. The first one begins the key anew: whatever was bound to it goes.
//!   The others add to it.
//! - `more` says that another part follows. So a file that ends behind such a line does not have all of the key, and
//!   who goes on in it begins the key anew.
//! - Each part says when the key expires, since each may be the last that is applied.
//! - A score is the text of a float, as clients of Redis know it: `1`, `-0.5`, `inf`.
//! - A line has at most 8,192 elements ([`LINE_ELEMENTS_MAX`]), so that it is bounded what it becomes in memory. Who
//!   writes lines makes them shorter: see `pieces`.

use std::fmt::{self, Write as _};

use argosy_base::composite::{CompositeType, KEY_AND_NAME_BYTES_MAX};
use argosy_base::limits::VALUE_BYTES_MAX;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::format::{Encoding, Field, field};

/// Most elements of a line.
pub const LINE_ELEMENTS_MAX: usize = 8192;

/// Elements that are written together, and bytes that a server writes for them: half a batch. One longer element is
/// written alone.
const PIECE_ELEMENTS: usize = 1000;
const PIECE_BYTES: usize = 512 << 10;
/// Bytes beside key, name and value that a server writes for an element, at most.
const FRAME_BYTES: usize = 64;

/// Bytes of a score in the key of an element.
const SCORE_BYTES: usize = 8;

/// A part of a hash, a sorted set or a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositePart {
    /// What the key is bound to.
    pub kind: CompositeType,
    /// Some of its elements.
    pub elements: Vec<PartElement>,
    /// Which part it is, from 1.
    pub number: u64,
    /// Whether another part follows.
    pub more: bool,
}

/// A field or a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartElement {
    /// The field, or the member.
    pub name: Vec<u8>,
    /// The field's value, or the member's score as text; nothing for a member of a set.
    pub value: Vec<u8>,
}

impl CompositePart {
    /// Whether it begins the key anew.
    pub const fn is_first(&self) -> bool {
        self.number == 1
    }

    /// Checks what a server would refuse.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn check(&self, key: &[u8]) -> Result<(), String> {
        if self.number == 0 {
            return Err("parts are numbered from 1".to_owned());
        }
        let most = match self.kind {
            CompositeType::SortedSet => KEY_AND_NAME_BYTES_MAX - SCORE_BYTES,
            CompositeType::Hash | CompositeType::Set => KEY_AND_NAME_BYTES_MAX,
        };
        for element in &self.elements {
            let together = key.len() + element.name.len();
            if together > most {
                return Err(format!(
                    "the key and the name of an element have {together} bytes, over the limit of {most}"
                ));
            }
            let value = element.value.len();
            if value > VALUE_BYTES_MAX {
                return Err(format!(
                    "a field's value has {value} bytes, over the limit of {VALUE_BYTES_MAX}"
                ));
            }
            if self.kind == CompositeType::SortedSet && !is_score(&element.value) {
                let shown: String = String::from_utf8_lossy(&element.value)
                    .chars()
                    .take(40)
                    .collect();
                return Err(format!("'{}' is no score", shown.escape_default()));
            }
        }
        Ok(())
    }
}

fn is_score(text: &[u8]) -> bool {
    let score: Option<f64> = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    score.is_some_and(|score| !score.is_nan())
}

/// Cuts elements of `key` into what is written together. The key is in each element's, of which a member of a sorted
/// set has two.
pub(super) fn pieces<'a>(key: &[u8], mut elements: &'a [PartElement]) -> Vec<&'a [PartElement]> {
    let mut pieces = Vec::new();
    while !elements.is_empty() {
        let mut bytes = 0;
        let fits = |element: &&PartElement| {
            bytes += 2 * (FRAME_BYTES + key.len() + element.name.len()) + element.value.len();
            bytes <= PIECE_BYTES
        };
        let some = elements.iter().take(PIECE_ELEMENTS).take_while(fits);
        let (piece, behind) = elements.split_at(some.count().max(1));
        pieces.push(piece);
        elements = behind;
    }
    pieces
}

/// The line of a part, without its end.
pub(super) fn part_line(
    key: &[u8],
    part: &CompositePart,
    expires: Option<u64>,
    encoding: Encoding,
) -> String {
    let key = field(key, encoding);
    let mut line = format!(
        "{{\"key\":{key},\"type\":\"{}\",\"elements\":[",
        part.kind.name()
    );
    for (at, element) in part.elements.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let name = field(&element.name, encoding);
        // A string takes what is written.
        let _ = match part.kind {
            CompositeType::Set => write!(line, "{comma}{name}"),
            CompositeType::Hash | CompositeType::SortedSet => {
                write!(line, "{comma}[{name},{}]", field(&element.value, encoding))
            }
        };
    }
    line.push(']');
    if !part.is_first() {
        let _ = write!(line, ",\"part\":{}", part.number);
    }
    if part.more {
        line.push_str(",\"more\":true");
    }
    if let Some(at) = expires {
        let _ = write!(line, ",\"expires_at_ms\":{at}");
    }
    line.push('}');
    line
}

/// What `type` says.
///
/// # Errors
/// It says something else.
pub(super) fn kind_of(name: &str) -> Result<CompositeType, String> {
    let kinds = [
        CompositeType::Hash,
        CompositeType::SortedSet,
        CompositeType::Set,
    ];
    kinds
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| {
            let shown: String = name.chars().take(40).collect();
            format!(
                "type: '{}' is not hash, zset or set; a string has a value and no type",
                shown.escape_default()
            )
        })
}

/// Elements as they stand in a line.
#[derive(Debug, Default)]
pub(super) struct LineElements(Vec<LineElement>);

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a member, or two in brackets: a field and its value, or a member and its score"
)]
enum LineElement {
    Two([Field; 2]),
    One(Field),
}

impl LineElements {
    /// Those of a `kind`.
    ///
    /// # Errors
    /// Which of them is not, or is not encoded as it says.
    pub(super) fn of(self, kind: CompositeType) -> Result<Vec<PartElement>, String> {
        let element = |(at, element): (usize, LineElement)| {
            let (name, value) = match (kind, element) {
                (CompositeType::Set, LineElement::One(name)) => (name.bytes(), Ok(Vec::new())),
                (
                    CompositeType::Hash | CompositeType::SortedSet,
                    LineElement::Two([name, value]),
                ) => (name.bytes(), value.bytes()),
                (CompositeType::Set, LineElement::Two(_)) => {
                    return Err("an element of a set is a member alone".to_owned());
                }
                (_, LineElement::One(_)) => {
                    return Err(format!(
                        "an element of a {} is two in brackets",
                        kind.name()
                    ));
                }
            };
            let named = |error: String| format!("element {}: {error}", at + 1);
            Ok(PartElement {
                name: name.map_err(named)?,
                value: value.map_err(named)?,
            })
        };
        self.0.into_iter().enumerate().map(element).collect()
    }
}

impl<'de> Deserialize<'de> for LineElements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Bounded)
    }
}

/// Reads elements, up to as many as a line may have.
struct Bounded;

impl<'de> Visitor<'de> for Bounded {
    type Value = LineElements;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("elements in brackets")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LineElements, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            if elements.len() == LINE_ELEMENTS_MAX {
                return Err(A::Error::custom(format!(
                    "a line has at most {LINE_ELEMENTS_MAX} elements: give the key several lines, of parts"
                )));
            }
            elements.push(element);
        }
        Ok(LineElements(elements))
    }
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
