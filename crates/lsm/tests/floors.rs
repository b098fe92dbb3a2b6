//! The modules of this crate lie on floors: one knows those below it, and none above. So the crate can be read from
//! the ground up, and a part of it can be moved elsewhere with what lies beneath.
//!
//! Only what is compiled into the crate is looked at: tests may know everybody.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// From the ground up.
const FLOORS: [&str; 33] = [
    "names",
    "hashing",
    "shared",
    "filter",
    "merge",
    "memtable",
    "duplicates",
    "edit",
    "manifest",
    "level",
    "cache",
    "segments",
    "settings",
    "addresses",
    "version",
    "damage",
    "shape",
    "cut_segments",
    "set_aside",
    "pins",
    "storage",
    "read",
    "compaction",
    "work",
    "recount",
    "problem",
    "scrub",
    "repair",
    "stored",
    "replica",
    "db",
    "inspect",
    "contract",
];

/// The files of a folder and of those in it.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// The code of a file without comments and without its tests at the end.
fn code(text: &str) -> String {
    let code = text.split("\nmod tests {").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// The modules that `code` names behind `crate::`, alone or in braces.
fn named(code: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        let is_part = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        text.trim_start().chars().take_while(is_part).collect()
    };
    let mut named = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            None => drop(named.insert(word(rest))),
            Some(list) => named.extend(list.split('}').next().unwrap().split(',').map(word)),
        }
    }
    named
}

/// Who knows whom.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&source, &mut found);
    let mut edges = BTreeMap::<String, BTreeSet<String>>::new();
    for path in found {
        let inside = path.strip_prefix(&source).unwrap();
        let name = inside.to_string_lossy();
        let is_test = name.ends_with("tests.rs") || name.ends_with("testing.rs");
        if !name.ends_with(".rs") || is_test || name.contains("tests/") || name == "lib.rs" {
            continue;
        }
        let first = inside.components().next().unwrap().as_os_str();
        let module = first.to_string_lossy().trim_end_matches(".rs").to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut known = named(&code(&text));
        known.remove(&module);
        edges.entry(module).or_default().extend(known);
    }
    edges
}

#[test]
fn modules_know_nobody_above_them() {
    let edges = edges();
    let floor = |name: &str| FLOORS.iter().position(|floor| *floor == name);
    let without: Vec<_> = edges.keys().filter(|name| floor(name).is_none()).collect();
    assert!(without.is_empty(), "these need a floor: {without:?}");
    let gone: Vec<_> = FLOORS
        .iter()
        .filter(|name| !edges.contains_key(**name))
        .collect();
    assert!(gone.is_empty(), "these are gone: {gone:?}");
    let mut upward = BTreeSet::new();
    for (module, known) in &edges {
        let above = known.iter().filter(|known| floor(known) > floor(module));
        upward.extend(above.map(|known| (module.as_str(), known.as_str())));
    }
    assert!(
        upward.is_empty(),
        "these know somebody above them: {upward:?}"
    );
}

/// Words that belong to one mode of the papers, and the files that may name them.
struct Fence {
    words: &'static [&'static str],
    files: &'static [&'static str],
}

/// A ratchet: a list may become shorter, and no longer. Other files ask the module of the mode.
const FENCES: [Fence; 3] = [
    // The mode in which pointers hold places.
    Fence {
        words: &["AddressMode"],
        files: &[
            "addresses.rs",
            "contract.rs",
            "db/passive.rs",
            "replica/places.rs",
            "settings/groups.rs",
            "shape.rs",
            "version/mod.rs",
            "version/trees.rs",
        ],
    },
    Fence {
        words: &[
            "hold_places",
            "Pointers::Numbers",
            "Pointers::ToPlaces",
            "Pointers::Places",
        ],
        files: &[
            "addresses.rs",
            "compaction/build.rs",
            "compaction/target.rs",
            "read/mod.rs",
            "replica/places.rs",
            "version/outgoing.rs",
            "work/site.rs",
        ],
    },
    // Levels that are merged whole, into a tree.
    Fence {
        words: &["WholeLevel", "RunShape::Tree"],
        files: &["compaction/target.rs", "compaction/whole.rs", "settings.rs"],
    },
];

#[test]
fn modes_are_told_apart_in_few_files() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&source, &mut all);
    for Fence { words, files } in FENCES {
        let mut found = BTreeSet::new();
        for path in &all {
            let name = path.strip_prefix(&source).unwrap().to_string_lossy();
            if !name.ends_with(".rs") || name.ends_with("tests.rs") || name.contains("tests/") {
                continue;
            }
            let code = code(&std::fs::read_to_string(path).unwrap());
            if words.iter().any(|word| code.contains(word)) {
                found.insert(name.into_owned());
            }
        }
        let listed = files.iter().map(|file| (*file).to_owned()).collect();
        assert_eq!(found, listed, "the files that name {words:?}");
    }
}

#[test]
fn what_a_file_names_is_found() {
    let text = "use crate::level::Leaf; // crate::db\nuse crate::{edit, names::Form};\nfn f() { crate::log::g() }\n\
                #[cfg(test)]\nmod tests {\n use crate::storage::Storage;\n}\n";
    let expected = ["edit", "level", "log", "names"].map(str::to_owned);
    assert_eq!(named(&code(text)), BTreeSet::from(expected));
}
