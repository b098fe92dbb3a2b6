//! Patterns as in Redis: which keys `SCAN … MATCH`, `KEYS` and `CONFIG GET` select.
//!
//! ```text
//! pattern := item*
//! item    := "*"  any bytes      | "?"  any one byte
//!          | "[" "^"? (byte | byte "-" byte)* "]"   one byte of (or, with ^, not of) a class
//!          | "\" byte   that byte | byte   itself
//! ```
//!
//! Matching goes back to the last `*` only, so it takes at most (bytes of the pattern) × (bytes of
//! the text) steps, whatever the pattern; hence the bound [`PATTERN_BYTES_MAX`].

/// Longest pattern that a command accepts, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1 << 10;

/// Whether `pattern` matches the whole of `text`.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Behind the last star, and the first byte that it did not swallow yet.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&byte) = text.get(read) {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, read));
        } else if let Some(next) = item(pattern, at, byte) {
            at = next;
            read += 1;
        } else if let Some((behind, swallowed)) = star {
            at = behind;
            read = swallowed + 1;
            star = Some((behind, read));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&rest| rest == b'*')
}

/// The bytes with which every text that `pattern` matches begins.
#[must_use]
pub fn literal_prefix(pattern: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut rest = pattern;
    loop {
        rest = match rest {
            [b'*' | b'?' | b'[', ..] | [] => return prefix,
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
                prefix.push(*byte);
                rest
            }
        };
    }
}

/// Where the pattern goes on if its item at `at`, which is no star, takes `byte`.
fn item(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => {
            let (found, next) = class(pattern, at + 1, byte);
            found.then_some(next)
        }
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        literal => (*literal == byte).then_some(at + 1),
    }
}

/// Whether the class that begins at `at`, behind its bracket, has `byte`, and where it ends. A class
/// that is not closed ends with the pattern.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> (bool, usize) {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match pattern.get(at..).unwrap_or_default() {
            [] => return (found != negated, pattern.len()),
            [b']', ..] => return (found != negated, at + 1),
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*ab", "aab", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("[\\]]", "]", true),
            ("[a", "a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("[]", "a", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} on {text}"
            );
        }
    }

    /// What would take exponential time if every star were tried again.
    #[test]
    fn many_stars_stay_cheap() {
        let pattern = "a*".repeat(30) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 4096]));
    }

    #[test]
    fn the_literal_prefix_ends_at_the_first_wildcard() {
        for (pattern, prefix) in [
            ("user:*", "user:"),
            ("user", "user"),
            ("a\\*b?", "a*b"),
            ("[ab]c", ""),
            ("a\\", "a\\"),
        ] {
            assert_eq!(literal_prefix(pattern.as_bytes()), prefix.as_bytes());
        }
    }
}
