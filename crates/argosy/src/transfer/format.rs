//! Pairs as lines of text: JSON lines and TSV. Every key and value has a line, of whatever bytes.
//!
//! ```text
//! jsonl  := object NL           object := {"key": field, "value": field | null [, "expires_at_ms": number]}
//! field  := "text"  |  {"utf8": "text"}  |  {"base64": "..."}  |  {"hex": "..."}
//!
//! tsv    := text TAB text [TAB number] NL
//! text   := (byte | escape)*    escape := "\" ("t" | "n" | "r" | "0" | "\" | "x" digit digit)
//! ```
//!
//! In JSON a string is the bytes of its UTF-8; what is no UTF-8 says how it is encoded. A value of
//! `null` deletes the key. In TSV, bytes stand for themselves, but for those that have an escape, and
//! nothing is quoted. [`write_line`] escapes what is not UTF-8, so that its lines are text in both. The number is
//! when the pair expires, in milliseconds after the beginning of 1970; a pair without one does not.
//!
//! A value of over 1 MiB is a line, too; [`write_line`] makes it base64 in JSON, which bounds its length.
//!
//! Lines of hashes, sorted sets and sets are described in [`parts`](super::parts). TSV has none.

use std::fmt::Write as _;

use argosy_base::limits::{KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX, VALUE_BYTES_MAX};
use clap::ValueEnum;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::parts::{CompositePart, LineElements, kind_of, part_line};
use crate::bytes::{from_base64, from_hex, to_base64, to_hex};

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A JSON object in each line.
    Jsonl,
    /// Key, tab, value.
    Tsv,
}

impl Format {
    /// The name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Tsv => "tsv",
        }
    }

    /// That of a file, by the end of its name: JSON lines unless it ends in `.tsv`.
    pub fn of_name(name: &str) -> Self {
        match name.to_ascii_lowercase().ends_with(".tsv") {
            true => Self::Tsv,
            false => Self::Jsonl,
        }
    }
}

/// How JSON shows keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// Text as text, and in base64 what is none.
    #[default]
    Auto,
    /// All in base64.
    Base64,
    /// All in hexadecimal.
    Hex,
}

/// A line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedLine {
    /// The key.
    pub key: Vec<u8>,
    /// What becomes of it.
    pub content: LineContent,
    /// When the key expires, in milliseconds after the beginning of 1970; `None`: it does not.
    pub expires: Option<u64>,
}

/// What a line does with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineContent {
    /// It deletes it.
    Delete,
    /// It binds it to a string.
    Value(Vec<u8>),
    /// It begins a hash, a sorted set or a set, or adds to it.
    Part(CompositePart),
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineWay {
    /// By one command with many pairs.
    Together,
    /// By a command of its own.
    Alone,
    /// By commands on hashes, sorted sets or sets.
    InParts,
}

impl ParsedLine {
    /// The string that it binds the key to, if it does.
    pub fn value(&self) -> Option<&[u8]> {
        match &self.content {
            LineContent::Value(value) => Some(value),
            LineContent::Delete | LineContent::Part(_) => None,
        }
    }

    /// The part that it has, if it has one.
    pub const fn part(&self) -> Option<&CompositePart> {
        match &self.content {
            LineContent::Part(part) => Some(part),
            LineContent::Delete | LineContent::Value(_) => None,
        }
    }

    /// Whether it is the last line of its key.
    pub fn ends_its_key(&self) -> bool {
        self.part().is_none_or(|part| !part.more)
    }

    /// How it is written.
    pub fn way(&self) -> LineWay {
        match &self.content {
            LineContent::Part(_) => LineWay::InParts,
            LineContent::Value(value) if value.len() > VALUE_BYTES_MAX => LineWay::Alone,
            LineContent::Value(_) if self.expires.is_some() => LineWay::Alone,
            LineContent::Value(_) | LineContent::Delete => LineWay::Together,
        }
    }
}

/// A pair, and when it expires.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What it is bound to.
    pub value: &'a [u8],
    /// When it expires, in milliseconds after the beginning of 1970.
    pub expires: Option<u64>,
}

/// Appends the line of a pair to `out`, with its end.
pub fn write_line(format: Format, encoding: Encoding, pair: Pair<'_>, out: &mut Vec<u8>) {
    let Pair {
        key,
        value,
        expires,
    } = pair;
    let mut line = match format {
        Format::Jsonl => {
            let of_value = match encoding {
                Encoding::Auto if value.len() > VALUE_BYTES_MAX => Encoding::Base64,
                encoding => encoding,
            };
            let (key, value) = (field(key, encoding), field(value, of_value));
            format!("{{\"key\":{key},\"value\":{value}")
        }
        Format::Tsv => {
            let mut line = String::with_capacity(key.len() + value.len() + 1);
            escape(key, &mut line);
            line.push('\t');
            escape(value, &mut line);
            line
        }
    };
    // A string takes what is written.
    let _ = match (format, expires) {
        (Format::Jsonl, Some(at)) => write!(line, ",\"expires_at_ms\":{at}}}"),
        (Format::Jsonl, None) => write!(line, "}}"),
        (Format::Tsv, Some(at)) => write!(line, "\t{at}"),
        (Format::Tsv, None) => Ok(()),
    };
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
}

/// Appends the line of what is no pair to `out`, in JSON, with its end. Of a pair it is that of [`write_line`].
pub fn write_record(encoding: Encoding, record: &ParsedLine, out: &mut Vec<u8>) {
    let line = match &record.content {
        LineContent::Delete => json_line(&record.key, None, encoding),
        LineContent::Part(part) => part_line(&record.key, part, record.expires, encoding),
        LineContent::Value(value) => {
            let pair = Pair {
                key: &record.key,
                value,
                expires: record.expires,
            };
            return write_line(Format::Jsonl, encoding, pair, out);
        }
    };
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
}

/// The line of a pair in JSON, without its end; `None` is a key that is not bound.
pub fn json_line(key: &[u8], value: Option<&[u8]>, encoding: Encoding) -> String {
    let value = value.map_or(Value::Null, |value| field(value, encoding));
    let key = field(key, encoding);
    format!("{{\"key\":{key},\"value\":{value}}}")
}

/// A key alone, in JSON.
pub fn json_key(key: &[u8], encoding: Encoding) -> String {
    format!("{{\"key\":{}}}", field(key, encoding))
}

/// Bytes in JSON.
pub(super) fn field(bytes: &[u8], encoding: Encoding) -> Value {
    match (encoding, std::str::from_utf8(bytes)) {
        (Encoding::Hex, _) => json!({ "hex": to_hex(bytes) }),
        (Encoding::Auto, Ok(text)) => Value::String(text.to_owned()),
        (Encoding::Auto | Encoding::Base64, _) => json!({ "base64": to_base64(bytes) }),
    }
}

fn escape(bytes: &[u8], out: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\0' => out.push_str("\\0"),
                '\\' => out.push_str("\\\\"),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            // A string takes what is written.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

/// What a line without its end says.
///
/// # Errors
/// What is wrong with it, or which limit it is over.
pub fn parse(format: Format, line: &[u8]) -> Result<ParsedLine, String> {
    let record = match format {
        Format::Jsonl => parse_json(line)?,
        Format::Tsv => parse_tsv(line)?,
    };
    let (key, value) = (record.key.len(), record.value().map_or(0, <[u8]>::len));
    if key == 0 {
        return Err("the key is empty".to_owned());
    }
    if key > KEY_BYTES_MAX {
        return Err(format!(
            "the key has {key} bytes, over the limit of {KEY_BYTES_MAX}"
        ));
    }
    if value > LONG_VALUE_BYTES_MAX {
        return Err(format!(
            "the value has {value} bytes, over the limit of {LONG_VALUE_BYTES_MAX}"
        ));
    }
    match &record.content {
        LineContent::Delete if record.expires.is_some() => {
            return Err("a key that is deleted does not expire".to_owned());
        }
        LineContent::Part(part) => part.check(&record.key)?,
        LineContent::Delete | LineContent::Value(_) => {}
    }
    Ok(record)
}

/// A line of JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Field,
    #[serde(default, deserialize_with = "given")]
    value: GivenValue,
    expires_at_ms: Option<u64>,
    #[serde(rename = "type")]
    kind: Option<String>,
    elements: Option<LineElements>,
    part: Option<u64>,
    more: Option<bool>,
}

/// A line without a value is an error or a part, and not a delete.
#[derive(Default)]
enum GivenValue {
    #[default]
    Missing,
    Null,
    Is(Field),
}

fn given<'de, D: Deserializer<'de>>(value: D) -> Result<GivenValue, D::Error> {
    let value = Option::deserialize(value)?;
    Ok(value.map_or(GivenValue::Null, GivenValue::Is))
}

impl Line {
    fn content(self) -> Result<LineContent, String> {
        let of_a_part = self.elements.is_some() || self.part.is_some() || self.more.is_some();
        match (self.kind, self.value) {
            (Some(_), GivenValue::Null | GivenValue::Is(_)) => {
                Err("a line has a value or a type, and not both".to_owned())
            }
            (None, _) if of_a_part => Err("missing field `type`".to_owned()),
            (None, GivenValue::Missing) => Err("missing field `value`".to_owned()),
            (None, GivenValue::Null) => Ok(LineContent::Delete),
            (None, GivenValue::Is(value)) => {
                let value = value.bytes().map_err(|error| format!("value: {error}"))?;
                Ok(LineContent::Value(value))
            }
            (Some(kind), GivenValue::Missing) => {
                let kind = kind_of(&kind)?;
                let elements = self.elements.ok_or("missing field `elements`")?;
                Ok(LineContent::Part(CompositePart {
                    kind,
                    elements: elements.of(kind)?,
                    number: self.part.unwrap_or(1),
                    more: self.more.unwrap_or(false),
                }))
            }
        }
    }
}

/// Bytes, as they stand in a line.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a text, or an object with one of utf8, base64, hex"
)]
pub(super) enum Field {
    Text(String),
    Coded(Coded),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Coded {
    Utf8(String),
    Base64(String),
    Hex(String),
}

impl Field {
    pub(super) fn bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) | Self::Coded(Coded::Utf8(text)) => Ok(text.into_bytes()),
            Self::Coded(Coded::Base64(text)) => from_base64(&text),
            Self::Coded(Coded::Hex(text)) => from_hex(&text),
        }
    }
}

fn parse_json(line: &[u8]) -> Result<ParsedLine, String> {
    let mut line: Line = serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        // There is only one line.
        text.replace(" at line 1 column", " at column")
    })?;
    let expires = line.expires_at_ms;
    let key = std::mem::replace(&mut line.key, Field::Text(String::new()));
    Ok(ParsedLine {
        key: key.bytes().map_err(|error| format!("key: {error}"))?,
        content: line.content()?,
        expires,
    })
}

fn parse_tsv(line: &[u8]) -> Result<ParsedLine, String> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut fields = line.split(|&byte| byte == b'\t');
    let (key, value) = (fields.next(), fields.next());
    let (Some(key), Some(value), expires, None) = (key, value, fields.next(), fields.next()) else {
        let tabs = line.iter().filter(|&&byte| byte == b'\t').count();
        return Err(format!(
            "a line has one tab, between key and value, or a second one, in front of when the pair \
             expires; here are {tabs}"
        ));
    };
    Ok(ParsedLine {
        key: unescape(key)?,
        content: LineContent::Value(unescape(value)?),
        expires: expires.map(millis).transpose()?,
    })
}

fn millis(text: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(text);
    let parsed = text.parse();
    parsed.map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        format!(
            "'{}' is no time in milliseconds; a tab within a value is \\t",
            shown.escape_default()
        )
    })
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next() {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'0') => 0,
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digits = [bytes.next(), bytes.next()].map(|d| char::from(d.unwrap_or(b' ')));
                let byte = from_hex(&String::from_iter(digits))?;
                byte.first().copied().unwrap_or(0)
            }
            other => {
                let shown =
                    other.map_or_else(String::new, |b| char::from(b).escape_default().to_string());
                return Err(format!(
                    "\\{shown} is no escape; there are \\t \\n \\r \\0 \\\\ and \\xNN"
                ));
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_back_from_every_format() {
        let all: Vec<u8> = (0..=255).collect();
        let keys = [
            &b"apple"[..],
            b"\t\n\\\r\0",
            "é\u{2028}".as_bytes(),
            b"\xff",
            &all,
        ];
        for key in keys {
            for value in [&b""[..], b"null", b"a\tb", &all] {
                for encoding in [Encoding::Auto, Encoding::Base64, Encoding::Hex] {
                    for format in [Format::Jsonl, Format::Tsv] {
                        for expires in [None, Some(1_900_000_000_123)] {
                            let mut line = Vec::new();
                            let pair = Pair {
                                key,
                                value,
                                expires,
                            };
                            write_line(format, encoding, pair, &mut line);
                            assert_eq!(line.pop(), Some(b'\n'));
                            assert!(!line.contains(&b'\n') && std::str::from_utf8(&line).is_ok());
                            let record = ParsedLine {
                                key: key.to_vec(),
                                content: LineContent::Value(value.to_vec()),
                                expires,
                            };
                            assert_eq!(parse(format, &line), Ok(record));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn json_says_how_bytes_are_encoded() {
        let line = |key: &[u8], value, encoding| json_line(key, value, encoding);
        let auto = line(b"a", Some(b"\xff"), Encoding::Auto);
        assert_eq!(auto, r#"{"key":"a","value":{"base64":"/w=="}}"#);
        let hex = line(b"a", None, Encoding::Hex);
        assert_eq!(hex, r#"{"key":{"hex":"61"},"value":null}"#);
        assert_eq!(json_key(b"a", Encoding::Auto), r#"{"key":"a"}"#);
        let delete = parse(Format::Jsonl, br#" {"value": null, "key": {"utf8": "k"}} "#);
        assert_eq!(
            delete,
            Ok(ParsedLine {
                key: b"k".to_vec(),
                content: LineContent::Delete,
                expires: None,
            })
        );
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        let long = format!("{}\tv", "k".repeat(KEY_BYTES_MAX + 1));
        let large = format!("k\t{}", "v".repeat(LONG_VALUE_BYTES_MAX + 1));
        for (format, line, said) in [
            (Format::Jsonl, "", "EOF"),
            (Format::Jsonl, r#"{"key":"a"}"#, "missing field `value`"),
            (
                Format::Jsonl,
                r#"{"key":"a","value":1}"#,
                "one of utf8, base64, hex",
            ),
            (
                Format::Jsonl,
                r#"{"key":"a","value":"b","ttl":1}"#,
                "unknown field `ttl`",
            ),
            (
                Format::Jsonl,
                r#"{"key":"a","value":"b"} x"#,
                "trailing characters",
            ),
            (
                Format::Jsonl,
                r#"{"key":"a","value":{"hex":"6"}}"#,
                "value: '6' is not hexa",
            ),
            (
                Format::Jsonl,
                r#"{"key":{"base64":"?"},"value":""}"#,
                "key: '?' is not base64",
            ),
            (
                Format::Jsonl,
                r#"{"key":"","value":"b"}"#,
                "the key is empty",
            ),
            (Format::Tsv, "only", "here are 0"),
            (Format::Tsv, "a\tb\tc", "'c' is no time"),
            (Format::Tsv, "a\tb\t1\td", "here are 3"),
            (
                Format::Jsonl,
                r#"{"key":"a","value":null,"expires_at_ms":1}"#,
                "does not expire",
            ),
            (Format::Tsv, "a\t\\q", "\\q is no escape"),
            (Format::Tsv, "a\t\\x1", "not hexadecimal"),
            (Format::Tsv, "a\t\\", "is no escape"),
            (Format::Tsv, "\tb", "the key is empty"),
            (Format::Tsv, &long, "over the limit of 4096"),
            (Format::Tsv, &large, "over the limit of 67108864"),
        ] {
            let error = parse(format, line.as_bytes()).unwrap_err();
            assert!(error.contains(said), "{said}: {error}");
        }
    }

    #[test]
    fn random_lines_never_panic() {
        const BYTES: &[u8] = b"{}\"key:value,base64hx\\u01\t\xff\x00 ";
        let mut state = 7_u64;
        for _ in 0..50_000 {
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                usize::try_from(state >> 40).unwrap()
            };
            let line: Vec<u8> = (0..next() % 40)
                .map(|_| BYTES[next() % BYTES.len()])
                .collect();
            let _ = parse(Format::Jsonl, &line);
            let _ = parse(Format::Tsv, &line);
        }
    }
}
