//! How large structs are, how open the central ones, and over how many files a type is spread. As in the
//! [ratchets](super::ratchets), each number may fall and never rise, and is lowered where there is less.
//!
//! The tests read the source of each crate, without its tests.

use std::collections::{BTreeMap, BTreeSet};

use super::signatures::{code_of, inside, is_of_name, outside, split};
use super::{demand, sources};

/// Most fields of a struct. More than these are parts that have no name yet.
const FIELDS_MAX: usize = 12;

/// Structs of more than [`FIELDS_MAX`] fields, by crate; none in a crate that is not listed.
const LARGE_STRUCTS: [(&str, usize); 0] = [];

/// Fields that code outside of the module sees, of types that many files work on: by crate and type.
const OPEN_FIELDS: [(&str, &str, usize); 4] = [
    ("lsm", "Lsm", 0),
    ("server", "Node", 0),
    ("server", "Region", 0),
    ("server", "Session", 0),
];

/// In how many files the inherent `impl` blocks of a type may lie.
const IMPL_FILES_MAX: usize = 3;

/// Types whose `impl` blocks lie in more than [`IMPL_FILES_MAX`] files, by crate; none in a crate that is not
/// listed. Two types of one name in a crate are taken for one.
const SPREAD_TYPES: [(&str, usize); 0] = [];

/// A struct with named fields.
#[derive(Debug, PartialEq)]
struct Struct<'a> {
    name: &'a str,
    fields: Vec<Field<'a>>,
}

#[derive(Debug, PartialEq)]
struct Field<'a> {
    name: &'a str,
    /// Other modules see it.
    is_open: bool,
}

/// The structs with named fields in `code`, which is free of comments and strings.
fn structs(code: &str) -> Vec<Struct<'_>> {
    let mut found = Vec::new();
    for rest in after_keyword(code, "struct") {
        let (name, rest) = rest.split_at(rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()));
        let rest = behind_generics(rest);
        let Some(begin) = rest.find(['{', ';', '(']) else {
            continue;
        };
        // A bound of a closure's type has brackets, too; a struct whose fields have no names has them at once.
        let bounded = rest.starts_with("where");
        let begin = match bounded {
            true => rest.find(['{', ';']).unwrap_or(begin),
            false => begin,
        };
        if let Some(list) = inside(&rest[begin..], '{') {
            let fields = split(list).into_iter().filter_map(field).collect();
            found.push(Struct { name, fields });
        }
    }
    found
}

/// One field of a struct's list.
fn field(mut text: &str) -> Option<Field<'_>> {
    text = text.trim_start();
    while let Some(rest) = text.strip_prefix('#') {
        let attribute = inside(rest, '[')?;
        text = rest[attribute.len() + 2..].trim_start();
    }
    let behind = text
        .strip_prefix("pub")
        .filter(|rest| !rest.starts_with(is_of_name));
    let is_open = behind.is_some();
    let mut rest = behind.unwrap_or(text).trim_start();
    if let Some(scope) = inside(rest, '(') {
        rest = rest[scope.len() + 2..].trim_start();
    }
    let name = rest[..outside(rest, ':')?].trim();
    Some(Field { name, is_open })
}

/// The types that have inherent `impl` blocks in `code`.
fn implemented(code: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for rest in after_keyword(code, "impl") {
        let rest = behind_generics(rest);
        let Some(end) = rest.find('{') else {
            continue;
        };
        let head = rest[..end].split(" where ").next().unwrap_or_default();
        // `for<'a>` belongs to a bound.
        let is_of_trait = head.split_whitespace().any(|word| word == "for");
        let path = head.split(['<', ' ', '\n']).next().unwrap_or_default();
        let name = path.rsplit("::").next().unwrap_or_default();
        if !is_of_trait && !name.is_empty() && name.chars().all(is_of_name) {
            found.insert(name);
        }
    }
    found
}

/// What stands behind each `keyword` that begins an item.
fn after_keyword<'a>(code: &'a str, keyword: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(keyword).filter_map(move |(at, _)| {
        let line = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        let rest = &code[at + keyword.len()..];
        let begins =
            line.is_empty() || line == "pub" || line.starts_with("pub(") && line.ends_with(')');
        (begins && !rest.starts_with(is_of_name)).then(|| rest.trim_start())
    })
}

fn behind_generics(text: &str) -> &str {
    match inside(text, '<') {
        Some(generics) => text[generics.len() + 2..].trim_start(),
        None => text.trim_start(),
    }
}

/// A file of a crate's source, without tests and without what is no code.
struct Code {
    crate_name: String,
    path: String,
    code: String,
}

fn codes() -> Vec<Code> {
    let mut codes = Vec::new();
    for source in sources() {
        let parts = source
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once('/'));
        let Some((name, below)) = parts else {
            continue;
        };
        if source.is_rust() && below.starts_with("src/") && !source.is_test() {
            let end = source
                .text
                .find("\nmod tests {")
                .unwrap_or(source.text.len());
            codes.push(Code {
                crate_name: name.to_owned(),
                path: source.path.clone(),
                code: code_of(&source.text[..end]),
            });
        }
    }
    assert!(codes.len() > 200, "all crates are looked at");
    codes
}

/// What is wrong with `found`, of which `allowed` are allowed.
fn compare(name: &str, allowed: usize, found: Vec<String>) -> Vec<String> {
    let count = found.len();
    if count == allowed {
        return Vec::new();
    }
    let advice = match count < allowed {
        true => format!("{name} has {count}: lower {allowed} to that"),
        false => format!("{name} has {count}, and may have {allowed}"),
    };
    [vec![advice], found].concat()
}

/// [`compare`], for each crate.
fn compare_crates(
    allowed: &[(&str, usize)],
    mut found: BTreeMap<String, Vec<String>>,
) -> Vec<String> {
    for (name, _) in allowed {
        found.entry((*name).to_owned()).or_default();
    }
    let allowed: BTreeMap<_, _> = allowed.iter().copied().collect();
    let each = found.into_iter().flat_map(|(name, found)| {
        let allowed = allowed.get(&*name).copied().unwrap_or(0);
        compare(&name, allowed, found)
    });
    each.collect()
}

/// Structs of more than [`FIELDS_MAX`] fields.
fn large(code: &str) -> Vec<String> {
    let all = structs(code).into_iter();
    let large = all.filter(|found| found.fields.len() > FIELDS_MAX);
    large
        .map(|found| format!("{}: {} fields", found.name, found.fields.len()))
        .collect()
}

/// Fields of `name` that other modules see.
fn open(code: &str, name: &str) -> Vec<String> {
    let all = structs(code).into_iter().filter(|found| found.name == name);
    let fields = all.flat_map(|found| found.fields);
    let open = fields.filter(|field| field.is_open);
    open.map(|field| format!("{name}::{}", field.name))
        .collect()
}

/// Types whose `impl` blocks lie in more than [`IMPL_FILES_MAX`] of `files`, which are paths and their code.
fn spread<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, code) in files {
        for name in implemented(code) {
            places.entry(name).or_default().push(path);
        }
    }
    places.retain(|_, files| files.len() > IMPL_FILES_MAX);
    let spread = places.iter();
    spread
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect()
}

#[test]
fn structs_are_small() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Code {
        crate_name,
        path,
        code,
    } in codes()
    {
        let large = large(&code).into_iter();
        found
            .entry(crate_name)
            .or_default()
            .extend(large.map(|large| format!("{path}: {large}")));
    }
    let offences = compare_crates(&LARGE_STRUCTS, found);
    let rule =
        format!("a struct has at most {FIELDS_MAX} fields: group those that change together");
    demand(&rule, &offences);
}

#[test]
fn central_types_keep_their_fields() {
    let codes = codes();
    let mut offences = Vec::new();
    for (crate_name, name, allowed) in OPEN_FIELDS {
        let of_crate = || codes.iter().filter(|code| code.crate_name == crate_name);
        let exists = of_crate().any(|of| structs(&of.code).iter().any(|found| found.name == name));
        assert!(exists, "{crate_name} has a struct {name}");
        let fields = of_crate().flat_map(|of| open(&of.code, name)).collect();
        offences.extend(compare(&format!("{crate_name}::{name}"), allowed, fields));
    }
    demand(
        "a method says what is meant, and a field stays in its module",
        &offences,
    );
}

#[test]
fn types_are_not_spread_over_files() {
    let codes = codes();
    let mut found = BTreeMap::new();
    for Code { crate_name, .. } in &codes {
        let of_crate = codes.iter().filter(|code| code.crate_name == *crate_name);
        let files = of_crate.map(|of| (of.path.as_str(), of.code.as_str()));
        if !found.contains_key(crate_name) {
            found.insert(crate_name.clone(), spread(files));
        }
    }
    let offences = compare_crates(&SPREAD_TYPES, found);
    let rule = format!(
        "a type's methods lie in at most {IMPL_FILES_MAX} files: give its parts types of their own"
    );
    demand(&rule, &offences);
}

#[test]
fn structs_and_their_fields_are_seen() {
    let code = code_of(
        "
        /// Not a struct Quoted { pub a: u8 }.
        pub struct Plain {
            /// With, a comma: and a colon.
            a: Map<u8, (u8, u8)>,
            #[cfg(any(test, unix))]
            pub b: fn(u8, u8) -> u8,
            pub(super) c: [u8; 2],
            published: &'static str,
        }
        pub(crate) struct Bounded<F: Fn(u8) -> u8> where F: Fn(u8) -> u8 { pub(crate) f: F }
        struct Unnamed(pub u8, u8);
        struct Empty;
        fn structure() {}
        ",
    );
    let field = |name, is_open| Field { name, is_open };
    let plain = [("a", false), ("b", true), ("c", true), ("published", false)];
    let plain = Struct {
        name: "Plain",
        fields: plain.map(|(name, is_open)| field(name, is_open)).into(),
    };
    let bounded = Struct {
        name: "Bounded",
        fields: vec![field("f", true)],
    };
    assert_eq!(structs(&code), [plain, bounded]);
    assert_eq!(open(&code, "Plain"), ["Plain::b", "Plain::c"]);
    assert!(open(&code, "Unnamed").is_empty());
}

#[test]
fn large_structs_are_found() {
    let of = |fields: usize| {
        let fields: String = (0..fields).map(|n| format!("f{n}: u8,")).collect();
        large(&format!("struct S {{ {fields} }}"))
    };
    assert!(of(FIELDS_MAX).is_empty());
    assert_eq!(of(FIELDS_MAX + 1), ["S: 13 fields"]);
}

#[test]
fn spread_types_are_found() {
    let code = "
        impl<T: Fn(u8) -> u8> a::Spread<T> where T: for<'a> Fn(&'a u8) {}
        impl Clone for Other {}
        impl<'a> Few<'a> {}
        fn of() -> impl Iterator<Item = u8> {}
    ";
    assert_eq!(implemented(code), BTreeSet::from(["Few", "Spread"]));
    let three = [("a.rs", code), ("b.rs", code), ("c.rs", code)];
    assert!(spread(three.into_iter()).is_empty());
    let fourth = ("d.rs", "impl Spread<u8> {}");
    let four = three.into_iter().chain([fourth]);
    assert_eq!(spread(four), ["Spread: a.rs, b.rs, c.rs, d.rs"]);
}

#[test]
fn numbers_are_compared() {
    let found = || BTreeMap::from([("a".to_owned(), vec!["x".to_owned()])]);
    assert!(compare_crates(&[("a", 1)], found()).is_empty());
    let more = compare_crates(&[], found());
    assert_eq!(more, ["a has 1, and may have 0", "x"]);
    let fewer = compare_crates(&[("a", 2), ("b", 1)], found());
    assert_eq!(
        fewer,
        ["a has 1: lower 2 to that", "x", "b has 0: lower 1 to that"]
    );
}
