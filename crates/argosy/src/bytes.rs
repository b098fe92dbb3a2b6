//! Keys and values as people write and read them. Bytes of any value have a form that is text.
//!
//! ```text
//! word    := plain | quoted | "hex:" digits | "0x" digits | "base64:" text | "b64:" text
//! plain   := characters other than blanks, quotes and backslashes: the bytes of the text
//! quoted  := "'" (char | escape)* "'"  |  '"' (char | escape)* '"'
//! escape  := "\" ( "n" | "r" | "t" | "0" | "\" | "'" | '"' | "x" digit digit )
//! ```
//!
//! What is quoted is never taken for another form: `'0x41'` is four bytes. [`shown`] writes bytes in
//! the form that was asked for, and every form that it writes can be read again.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;

/// How bytes are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Notation {
    /// As text; quoted, with escapes, where it is not plain.
    #[default]
    Text,
    /// hex:…
    Hex,
    /// base64:…
    Base64,
    /// Lines of JSON for programs.
    Json,
}

/// A word of a line, and whether any of it was quoted: then it is no option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// What stands in the line, without quotes and escapes.
    pub bytes: Vec<u8>,
    /// It is nothing but itself.
    pub quoted: bool,
}

impl Word {
    /// The word as an option or a number: its text, where it was not quoted.
    pub fn bare(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.bytes).ok()?;
        (!self.quoted).then_some(text)
    }

    /// The bytes that the word stands for.
    ///
    /// # Errors
    /// What is wrong with its digits.
    pub fn value(&self) -> Result<Vec<u8>, String> {
        match self.bare() {
            Some(text) => parse(text),
            None => Ok(self.bytes.clone()),
        }
    }
}

/// The bytes that `text` stands for: those of the text itself, unless it begins with `hex:`, `0x`,
/// `base64:` or `b64:`.
///
/// # Errors
/// What is wrong with the digits.
pub fn parse(text: &str) -> Result<Vec<u8>, String> {
    let after = |prefixes: [&str; 2]| prefixes.iter().find_map(|p| text.strip_prefix(p));
    if let Some(digits) = after(["hex:", "0x"]) {
        return from_hex(digits);
    }
    if let Some(digits) = after(["base64:", "b64:"]) {
        return from_base64(digits);
    }
    Ok(text.as_bytes().to_vec())
}

/// Bytes of hexadecimal digits, two each.
pub(crate) fn from_hex(digits: &str) -> Result<Vec<u8>, String> {
    hex::decode(digits).map_err(|_| format!("'{digits}' is not hexadecimal: two digits a byte"))
}

/// Bytes of the standard base64 with padding.
pub(crate) fn from_base64(digits: &str) -> Result<Vec<u8>, String> {
    STANDARD
        .decode(digits)
        .map_err(|error| format!("'{digits}' is not base64: {error}"))
}

/// Two digits for each byte.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

/// The standard base64 with padding.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// `bytes` in `form`, as a word that can be read again; JSON shows them as text.
pub fn shown(bytes: &[u8], form: Notation) -> String {
    match form {
        Notation::Hex => format!("hex:{}", to_hex(bytes)),
        Notation::Base64 => format!("base64:{}", to_base64(bytes)),
        Notation::Text | Notation::Json => match std::str::from_utf8(bytes) {
            Ok(text) if is_plain(text) => text.to_owned(),
            _ => quoted(bytes),
        },
    }
}

/// Whether `text` may stand without quotes.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !"'\"\\#;".contains(c);
    let prefixed = ["hex:", "0x", "base64:", "b64:"]
        .iter()
        .any(|prefix| text.starts_with(prefix));
    !text.is_empty() && !prefixed && text.chars().all(plain)
}

fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("'");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\0' => out.push_str("\\0"),
                '\\' | '\'' => out.extend(['\\', c]),
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    for byte in c.encode_utf8(&mut bytes).bytes() {
                        out.push_str(&format!("\\x{byte:02x}"));
                    }
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.push('\'');
    out
}

/// Takes a line apart. What follows an unquoted `#` at the start of a word is a comment; an unquoted
/// `;` ends a command, and its words end there: the rest of the line is returned with them.
///
/// # Errors
/// A quote that is not closed, or an escape that is none.
pub fn words(line: &str) -> Result<(Vec<Word>, &str), String> {
    let mut words = Vec::new();
    let mut chars = line.char_indices().peekable();
    loop {
        while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        match chars.peek() {
            None | Some((_, '#')) => return Ok((words, "")),
            Some(&(at, ';')) => return Ok((words, &line[at + 1..])),
            Some(_) => words.push(word(&mut chars)?),
        }
    }
}

type Chars<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

fn word(chars: &mut Chars<'_>) -> Result<Word, String> {
    let mut word = Word {
        bytes: Vec::new(),
        quoted: false,
    };
    let mut utf8 = [0; 4];
    while let Some((_, c)) = chars.next_if(|(_, c)| !c.is_whitespace() && *c != ';') {
        match c {
            '\'' | '"' => {
                word.quoted = true;
                quote(c, chars, &mut word.bytes)?;
            }
            '\\' => {
                return Err("a backslash stands only in quotes: write '\\x00'".to_owned());
            }
            c => word
                .bytes
                .extend_from_slice(c.encode_utf8(&mut utf8).as_bytes()),
        }
    }
    Ok(word)
}

/// What stands up to the next `end`.
fn quote(end: char, chars: &mut Chars<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let mut utf8 = [0; 4];
    loop {
        match chars.next() {
            None => return Err(format!("the quote {end} is not closed")),
            Some((_, c)) if c == end => return Ok(()),
            Some((_, '\\')) => out.push(escape(chars)?),
            Some((_, c)) => out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes()),
        }
    }
}

fn escape(chars: &mut Chars<'_>) -> Result<u8, String> {
    let mut next = || chars.next().map_or(' ', |(_, c)| c);
    Ok(match next() {
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        '0' => 0,
        '\\' => b'\\',
        '\'' => b'\'',
        '"' => b'"',
        'x' => {
            let digits: String = [next(), next()].into_iter().collect();
            let bytes = from_hex(&digits)?;
            bytes.first().copied().unwrap_or(0)
        }
        c => {
            return Err(format!(
                "\\{c} is no escape; there are \\n \\r \\t \\0 \\\\ \\' \\\" and \\xNN"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_can_be_written_in_every_form() {
        let all: Vec<u8> = (0..=255).collect();
        let texts = [
            "plain",
            "",
            "two words",
            "0x41",
            "hex:",
            "b64:QQ==",
            "#",
            "it's",
            "é\u{85}",
        ];
        let texts = texts.iter().map(|text| text.as_bytes().to_vec());
        for bytes in texts.chain([all]) {
            for form in [Notation::Text, Notation::Hex, Notation::Base64] {
                let line = shown(&bytes, form);
                let (words, rest) = words(&line).unwrap();
                assert_eq!((words.len(), rest), (1, ""), "{line}");
                assert_eq!(words[0].value().unwrap(), bytes, "{line}");
            }
        }
        assert_eq!(shown(b"apple", Notation::Text), "apple");
        assert_eq!(shown(b"a b\xff", Notation::Text), "'a b\\xff'");
        assert_eq!(shown(b"\xff\0", Notation::Hex), "hex:ff00");
    }

    #[test]
    fn lines_are_taken_apart() {
        let (words, rest) = words("put 'a b' \"it's\"x 0x6a # why").unwrap();
        assert_eq!(rest, "");
        let values: Vec<_> = words.iter().map(|word| word.value().unwrap()).collect();
        assert_eq!(values, [&b"put"[..], b"a b", b"it'sx", b"j"]);
        assert_eq!(words[0].bare(), Some("put"));
        assert_eq!(words[1].bare(), None);
        let (first, rest) = super::words("get a;get ';' ; ").unwrap();
        assert_eq!((first.len(), rest), (2, "get ';' ; "));
        let (second, rest) = super::words(rest).unwrap();
        assert_eq!((second[1].bytes.as_slice(), rest), (&b";"[..], " "));
        assert!(super::words("  # nothing").unwrap().0.is_empty());
    }

    #[test]
    fn what_is_no_word_is_refused() {
        for line in ["'open", "\"open", "'\\q'", "'\\x1'", "'\\xgg'", "a\\nb"] {
            assert!(words(line).is_err(), "{line}");
        }
        for text in ["0x1", "hex:zz", "hex:+1", "0xé", "base64:***", "b64:QQ"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
