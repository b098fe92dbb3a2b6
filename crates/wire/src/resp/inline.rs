//! Inline requests: a line that a person types, split into words as a shell would.
//!
//! ```text
//! line   := blank* (word (blank+ word)*)? blank*
//! word   := byte+ | "\"" (byte | escape)* "\"" | "'" (byte | "\\'")* "'"
//! escape := "\\" ("n" | "r" | "t" | "b" | "a" | "x" hex hex | byte)
//! ```

use alloc::vec::Vec;

use super::parse::ProtocolError;

/// Appends the words of `line` to `words`, without their quotes and back to back. Gives where each
/// begins and ends; behind an error, nothing.
pub(super) fn split<'a>(
    line: &'a [u8],
    words: &'a mut Vec<u8>,
) -> impl Iterator<Item = Result<(usize, usize), ProtocolError>> + 'a {
    let mut rest = line;
    core::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return None;
        }
        let start = words.len();
        let taken = take_word(rest, words);
        rest = taken.unwrap_or_default();
        Some(taken.map(|_| (start, words.len())))
    })
}

/// Appends the first word of `text`, which begins with no blank. Returns what stands behind it.
fn take_word<'a>(text: &'a [u8], words: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let rest = match text {
        [b'"', quoted @ ..] => unquote_double(quoted, words)?,
        [b'\'', quoted @ ..] => unquote_single(quoted, words)?,
        _ => {
            let blank = text.iter().position(u8::is_ascii_whitespace);
            let (word, rest) = text.split_at(blank.unwrap_or(text.len()));
            words.extend_from_slice(word);
            rest
        }
    };
    match rest.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(ProtocolError::InlineQuotes),
        _ => Ok(rest),
    }
}

/// Appends what stands before the closing `"`, escapes resolved. Returns what stands behind it.
fn unquote_double<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut at = 0;
    loop {
        match *text.get(at).ok_or(ProtocolError::InlineQuotes)? {
            b'"' => return Ok(&text[at + 1..]),
            b'\\' => {
                let escaped = *text.get(at + 1).ok_or(ProtocolError::InlineQuotes)?;
                if escaped == b'x'
                    && let Some(byte) = hex(text.get(at + 2..at + 4))
                {
                    word.push(byte);
                    at += 4;
                    continue;
                }
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => other,
                });
                at += 2;
            }
            byte => {
                word.push(byte);
                at += 1;
            }
        }
    }
}

/// Appends what stands before the closing `'`; only `\'` is an escape. Returns what follows.
fn unquote_single<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut at = 0;
    loop {
        match *text.get(at).ok_or(ProtocolError::InlineQuotes)? {
            b'\'' => return Ok(&text[at + 1..]),
            b'\\' if text.get(at + 1) == Some(&b'\'') => {
                word.push(b'\'');
                at += 2;
            }
            byte => {
                word.push(byte);
                at += 1;
            }
        }
    }
}

fn hex(digits: Option<&[u8]>) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    match digits? {
        &[high, low] => u8::try_from(value(high)? * 16 + value(low)?).ok(),
        _ => None,
    }
}
