//! Reads signatures of functions and names of types in Rust's source text: enough of the language for the
//! [ratchets](super::ratchets) and for what is asked of [structs](super::structs), and no more.
//!
//! First comments, strings and characters become blanks, so that what they quote is not taken for code.
//! Lists are then split at commas that stand in no brackets of their own; a `>` is a bracket unless it
//! ends an arrow.

/// Parameters of functions in `text` whose type is a tuple or a reference to one: `function: parameter`.
/// Types of function pointers and bounds of closures are no parameters.
pub(crate) fn tuple_parameters(text: &str) -> Vec<String> {
    let code = code_of(text);
    let mut found = Vec::new();
    for (at, keyword) in code.match_indices("fn") {
        let rest = &code[at + keyword.len()..];
        if code[..at].ends_with(is_of_name) || rest.starts_with(is_of_name) {
            continue;
        }
        let rest = rest.trim_start();
        let (name, rest) = rest.split_at(rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()));
        let rest = rest.trim_start();
        let rest = match inside(rest, '<') {
            Some(generics) => rest[generics.len() + 2..].trim_start(),
            None => rest,
        };
        for parameter in inside(rest, '(').map(split).unwrap_or_default() {
            if !name.is_empty() && type_of(parameter).is_some_and(is_tuple) {
                let words: Vec<_> = parameter.split_whitespace().collect();
                found.push(format!("{name}: {}", words.join(" ")));
            }
        }
    }
    found
}

/// Names of types in `text` that are public outside of their crate: what stands at the edge of the page.
pub(crate) fn public_types(text: &str) -> Vec<&str> {
    let kinds = ["struct", "enum", "trait", "type", "union"];
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((kind, rest)) = line.strip_prefix("pub ").and_then(|l| l.split_once(' ')) else {
            continue;
        };
        let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        if kinds.contains(&kind) {
            found.push(&rest[..end]);
        }
    }
    found
}

pub(crate) fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `text` with blanks for comments, strings and characters.
pub(crate) fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let blank = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if code.ends_with(is_of_name) {
            // What follows a name is no prefix of a string.
            0
        } else {
            literal(rest)
        };
        match blank {
            0 => code.push(first),
            _ => code.push(' '),
        }
        rest = &rest[blank.max(first.len_utf8())..];
    }
    code
}

/// Bytes of the string or character that `text` begins with; 0 where it is none.
fn literal(text: &str) -> usize {
    let bare = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - bare.len();
    let hashes = bare.strip_prefix('r').map(|bare| {
        let text = bare.trim_start_matches('#');
        (bare.len() - text.len(), text)
    });
    if let Some((hashes, text)) = hashes {
        let Some(quoted) = text.strip_prefix('"') else {
            return 0;
        };
        let end = format!("\"{}", "#".repeat(hashes));
        let len = quoted.find(&end).unwrap_or(quoted.len()) + end.len();
        return prefix + 1 + hashes + 1 + len;
    }
    let Some(quote @ ('"' | '\'')) = bare.chars().next() else {
        return 0;
    };
    let mut escaped = false;
    for (at, c) in bare.char_indices().skip(1) {
        if c == quote && !escaped {
            return prefix + at + 1;
        }
        // One character, or a lifetime.
        if quote == '\'' && at > 1 && !bare.starts_with("'\\") {
            return 0;
        }
        escaped = c == '\\' && !escaped;
    }
    0
}

/// What stands in the brackets that `text` begins with, if the first is `open`.
pub(crate) fn inside(text: &str, open: char) -> Option<&str> {
    let rest = text.strip_prefix(open)?;
    let mut depth = 1_usize;
    for (at, step) in brackets(rest) {
        match step {
            true => depth += 1,
            false => depth -= 1,
        }
        if depth == 0 {
            return Some(&rest[..at]);
        }
    }
    None
}

/// Where brackets open (`true`) and close in `code`.
fn brackets(code: &str) -> impl Iterator<Item = (usize, bool)> + '_ {
    code.char_indices().filter_map(|(at, c)| match c {
        '(' | '[' | '{' | '<' => Some((at, true)),
        '>' if code[..at].ends_with(['-', '=']) => None,
        ')' | ']' | '}' | '>' => Some((at, false)),
        _ => None,
    })
}

/// The parts of a list.
pub(crate) fn split(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = list;
    while let Some(at) = outside(rest, ',') {
        parts.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    if !rest.trim().is_empty() {
        parts.push(rest);
    }
    parts
}

/// Where `wanted` stands first in `code` outside of brackets; a colon that is one of two is not meant.
pub(crate) fn outside(code: &str, wanted: char) -> Option<usize> {
    let is_pair = |at: usize| code[..at].ends_with(wanted) || code[at + 1..].starts_with(wanted);
    let candidates = code.match_indices(wanted).map(|(at, _)| at);
    let mut candidates = candidates.filter(|&at| wanted != ':' || !is_pair(at));
    candidates.find(|&at| {
        let before = brackets(&code[..at]);
        let opened = before.fold(0_usize, |depth, (_, opens)| match opens {
            true => depth + 1,
            false => depth.saturating_sub(1),
        });
        opened == 0
    })
}

/// The type of a parameter; `None` for `self`.
fn type_of(parameter: &str) -> Option<&str> {
    outside(parameter, ':').map(|at| parameter[at + 1..].trim())
}

fn is_tuple(mut of: &str) -> bool {
    while let Some(rest) = of.strip_prefix('&') {
        let rest = rest.trim_start();
        let lifetime = rest.strip_prefix('\'').map_or(0, |name| {
            1 + name.find(|c| !is_of_name(c)).unwrap_or(name.len())
        });
        let rest = rest[lifetime..].trim_start();
        of = rest.strip_prefix("mut ").unwrap_or(rest).trim_start();
    }
    inside(of, '(').is_some_and(|list| outside(list, ',').is_some())
}

#[test]
fn tuple_parameters_are_seen() {
    let text = r##"
        fn plain(a: u32, b: &[(u8, u8)], c: Option<(u8, u8)>) -> (u8, u8) {}
        fn pattern((a, b): (u32, &'static str)) {}
        pub(crate) const fn behind<'a, F: Fn(u8, (u8, u8)) -> u8>(f: F, of: &'a mut (u8, u8)) {}
        fn generic<T>(&self, map: Map<u8, Vec<T>>, Parts { a, b }: Parts, at: (u8, [u8; 2]),) {}
        fn nested(f: &(impl Fn(u64) -> Result<u8, u8> + Sync), unit: (), p: fn((u8, u8))) {}
        // fn comment(a: (u8, u8)) {}
        /* fn comment(a: (u8, u8)) {} */
        const QUOTED: [&str; 3] = ["fn quoted(a: (u8, u8)) \" {}", r#"fn raw(a: (u8, u8))"#, "\\"];
        fn chars<'a>(c: &'a str, at: (u8, u8)) { let _ = ['"', '\'', '\\', 'é']; }
        fn
        lines(
            first: a::Name,
            (b, c): (
                u64,
                impl Fn() -> u8,
            ),
        ) {}
    "##;
    let expected = [
        "pattern: (a, b): (u32, &'static str)",
        "behind: of: &'a mut (u8, u8)",
        "generic: at: (u8, [u8; 2])",
        "chars: at: (u8, u8)",
        "lines: (b, c): ( u64, impl Fn() -> u8, )",
    ];
    assert_eq!(tuple_parameters(text), expected);
}

#[test]
fn public_types_are_seen() {
    let text = "pub struct A;\npub(crate) struct B;\n    pub struct C;\npub enum D<T> {\npub fn e() {}\n\
                pub type F = u8;\npub trait G: H {\n";
    assert_eq!(public_types(text), ["A", "D", "F", "G"]);
}
