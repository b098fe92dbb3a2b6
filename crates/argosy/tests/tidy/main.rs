//! House rules that a compiler does not check: headers, lengths, who may use whom, where `unsafe`
//! may stand, links, licences. Each test names all offenders at once, with what to do.

mod pages;
mod ratchets;
mod signatures;
mod structs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Most lines of a source file; tests are excluded.
const FILE_LINES_MAX: usize = 600;

/// Most lines of an inline `mod tests { ... }`.
const INLINE_TEST_LINES_MAX: usize = 160;

/// Longest line. Code is kept to 100 by rustfmt; this is for comments, diagrams and prose.
const COLUMNS_MAX: usize = 120;

/// Longest ARCHITECTURE.md.
const ARCHITECTURE_LINES_MAX: usize = 400;

/// Which crates of ours each crate may depend on: the architecture. A crate that is not listed may
/// not exist.
const EDGES: [(&str, &[&str]); 20] = [
    ("base", &[]),
    ("wire", &["base"]),
    ("memory", &["base"]),
    ("device", &["base"]),
    ("engine", &["base", "memory", "device"]),
    ("log", &["base", "memory", "device", "engine"]),
    ("lsm", &["base", "memory", "device", "engine", "log"]),
    ("embedded", &["base", "memory", "device", "engine", "lsm"]),
    ("fabric", &["base", "memory"]),
    ("replication", &["base"]),
    ("coordinator", &["base"]),
    ("master", &["base", "coordinator"]),
    (
        "server",
        &[
            "base",
            "wire",
            "memory",
            "device",
            "engine",
            "fabric",
            "replication",
            "coordinator",
        ],
    ),
    (
        "sim",
        &[
            "base",
            "wire",
            "memory",
            "device",
            "engine",
            "log",
            "lsm",
            "fabric",
            "history",
            "replication",
            "coordinator",
            "master",
            "server",
        ],
    ),
    ("history", &[]),
    ("client", &["base", "wire", "memory"]),
    ("peers", &[]),
    (
        "bench",
        &["base", "wire", "device", "embedded", "client", "peers"],
    ),
    (
        "trial",
        &[
            "base",
            "device",
            "coordinator",
            "client",
            "bench",
            "history",
        ],
    ),
    (
        "argosy",
        &[
            "base",
            "wire",
            "memory",
            "device",
            "engine",
            "log",
            "lsm",
            "embedded",
            "fabric",
            "coordinator",
            "master",
            "server",
            "client",
            "bench",
            "peers",
        ],
    ),
];

/// Crates that must build without an operating system.
const NO_STD: [&str; 3] = ["base", "wire", "replication"];

/// Crates, or single files, that may hold `unsafe`.
const UNSAFE: [&str; 6] = [
    "crates/argosy/src/allocator.rs",
    "crates/device/examples/",
    "crates/device/src/",
    "crates/lsm/src/memtable/",
    "crates/memory/src/",
    "crates/peers/src/",
];

/// Licences under which we take other people's code.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// A file of the repository.
struct Source {
    /// From the repository's root.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("_tests.rs")
    }
}

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = crates.and_then(Path::parent);
    root.expect("this crate lies in crates/").to_path_buf()
}

/// All text files that are the project's: what is neither generated nor hidden.
fn sources() -> Vec<Source> {
    fn walk(root: &Path, dir: &Path, found: &mut Vec<Source>) {
        let entries = std::fs::read_dir(dir).expect("a folder of the repository is readable");
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let hidden = name.starts_with('.') && name != ".ci" && name != ".gitignore";
            if hidden || name == "target" || (name == "shared" && dir == root) {
                continue;
            }
            if path.is_dir() {
                walk(root, &path, found);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let path = path.strip_prefix(root).expect("walked from the root");
                let path = path.to_string_lossy().into_owned();
                found.push(Source { path, text });
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &root(), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 50, "the whole repository is looked at");
    found
}

/// Fails with all of `offences`, if there are any.
fn demand(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

#[test]
fn every_source_file_opens_with_what_it_is() {
    let offences: Vec<_> = sources()
        .into_iter()
        .filter(|source| source.is_rust() && !source.text.starts_with("//! "))
        .map(|source| source.path)
        .collect();
    demand(
        "a source file opens with `//!`: what it is, how it works, what must hold",
        &offences,
    );
}

#[test]
fn source_files_are_short() {
    let mut offences = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| source.is_rust() && !source.is_test())
    {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            offences.push(format!("{}: {lines} lines", source.path));
        }
        if let Some(at) = source.text.find("\nmod tests {") {
            let lines = source.text[at..].lines().count();
            if lines > INLINE_TEST_LINES_MAX {
                offences.push(format!("{}: {lines} lines of inline tests", source.path));
            }
        }
    }
    let rule = format!(
        "a file has at most {FILE_LINES_MAX} lines (split it by concept), its inline tests at most \
         {INLINE_TEST_LINES_MAX} (move them beside it)"
    );
    demand(&rule, &offences);
}

#[test]
fn lines_are_short() {
    let mut offences = Vec::new();
    for source in sources() {
        let prose = source.path.ends_with(".md");
        if !prose && !source.is_rust() {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            // A table's row or a link cannot be broken.
            let unbreakable = prose && (line.starts_with('|') || line.contains("]("));
            if line.chars().count() > COLUMNS_MAX && !unbreakable {
                offences.push(format!("{}:{}", source.path, number + 1));
            }
        }
    }
    demand("a line is too long", &offences);
}

/// Words that only mean something on the machine where they were written, and stubs.
#[test]
fn nothing_is_left_over() {
    // Put together here, so that this file does not hold them.
    let paths = ["work", "farm", "root"].map(|dir| format!("/{dir}/"));
    let hosts = ["pypi", "crates", "static.crates", "deb"].map(|host| format!("//{host}."));
    let stubs = ["todo", "unimplemented"].map(|stub| format!("{stub}!("));
    let marks =
        ["FIX", "XX"].map(|mark| format!("{mark}{}", if mark == "FIX" { "ME" } else { "X" }));
    let ignored = format!("#[{}]", "ignore");
    let mut banned: Vec<String> = [paths.as_slice(), &hosts, &stubs, &marks].concat();
    banned.push(ignored);
    banned.push(format!("..{}", "/shared"));
    let mut offences = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| source.path != "Cargo.lock")
    {
        for (number, line) in source.text.lines().enumerate() {
            for word in banned.iter().filter(|word| stands_alone(line, word)) {
                offences.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    demand(
        "a machine's paths and hosts, stubs, and tests that do not run",
        &offences,
    );
}

/// Whether `line` has `word` other than inside a longer path.
fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !word.starts_with('/')
            || !before.is_some_and(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    })
}

#[test]
fn unsafe_code_stands_where_it_may() {
    let mut offences = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        let allowed = UNSAFE.iter().any(|place| source.path.starts_with(place));
        for (number, line) in source.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            // What is quoted is text; the even parts lie outside of quotation marks.
            let code: String = code.split('"').step_by(2).collect();
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            if !allowed && words.any(|word| word == "unsafe") {
                offences.push(format!("{}:{}", source.path, number + 1));
            }
        }
    }
    for (name, _) in EDGES {
        let lib = root().join("crates").join(name).join("src/lib.rs");
        let Ok(text) = std::fs::read_to_string(&lib) else {
            continue;
        };
        let may = name == "lsm" || UNSAFE.contains(&format!("crates/{name}/src/").as_str());
        let guarded =
            text.contains("#![forbid(unsafe_code)]") || text.contains("#![deny(unsafe_code)]");
        if !may && !text.contains("#![forbid(unsafe_code)]") || name == "lsm" && !guarded {
            offences.push(format!(
                "crates/{name}/src/lib.rs does not forbid unsafe code"
            ));
        }
    }
    demand(
        "`unsafe` stands only in memory, device, the memtable, peers and the allocator's set-up",
        &offences,
    );
}

#[test]
fn crates_depend_only_on_whom_they_may_know() {
    let metadata = metadata();
    let edges: BTreeMap<_, _> = EDGES.into_iter().collect();
    let mut offences = Vec::new();
    let mut seen = BTreeSet::new();
    for package in array(&metadata["packages"]) {
        let name = text(&package["name"]);
        if !package["source"].is_null() {
            continue;
        }
        let name = name.strip_prefix("argosy-").unwrap_or(name);
        seen.insert(name.to_owned());
        let Some(allowed) = edges.get(name) else {
            offences.push(format!(
                "{name}: a new crate needs a place in EDGES, and a reason"
            ));
            continue;
        };
        for dependency in array(&package["dependencies"]) {
            let normal = dependency["kind"].is_null();
            let Some(other) = text(&dependency["name"]).strip_prefix("argosy-") else {
                continue;
            };
            if normal && !allowed.contains(&other) {
                offences.push(format!("{name} may not know {other}"));
            }
        }
    }
    assert!(seen.len() >= 12, "all crates are looked at: {seen:?}");
    demand("the graph of crates is the architecture", &offences);
}

/// Nobody needs another store's library to build and test ours.
#[test]
fn peers_are_built_only_where_they_are_asked_for() {
    let metadata = metadata();
    let names = |list: &str| -> BTreeSet<String> {
        let ids = array(&metadata[list]).iter().map(text);
        ids.map(|id| id.rsplit(['/', '#']).next().unwrap_or(id).to_owned())
            .collect()
    };
    let (all, default) = (
        names("workspace_members"),
        names("workspace_default_members"),
    );
    let mut offences = Vec::new();
    for left_out in all.difference(&default) {
        if !left_out.starts_with("argosy-peers@") {
            offences.push(format!("{left_out} is not among the default members"));
        }
    }
    assert_eq!(all.len(), default.len() + 1 + offences.len());
    for package in array(&metadata["packages"]) {
        let name = text(&package["name"]);
        for dependency in array(&package["dependencies"]) {
            if text(&dependency["name"]) == "argosy-peers" && dependency["optional"] != true {
                offences.push(format!("{name} needs peers without being asked"));
            }
        }
    }
    demand("peers stay outside", &offences);
}

/// Programs hold no planted mistakes: beside tests, only the simulator asks for them.
#[test]
fn planted_mistakes_are_asked_for_by_the_simulator_alone() {
    let metadata = metadata();
    let mut offences = Vec::new();
    let mut asked = 0;
    for package in array(&metadata["packages"]) {
        let name = text(&package["name"]);
        for dependency in array(&package["dependencies"]) {
            let features = array(&dependency["features"]).iter().map(text);
            let plants = features.clone().any(|feature| feature == "mutants");
            if !plants || dependency["kind"] == "dev" {
                continue;
            }
            match name {
                "argosy-sim" => asked += 1,
                _ => offences.push(format!("{name} asks {}", text(&dependency["name"]))),
            }
        }
    }
    assert_eq!(asked, 5, "the simulator plants them in five crates");
    demand("no program has planted mistakes", &offences);
}

#[test]
fn pure_crates_need_no_operating_system() {
    let lacking = NO_STD.into_iter().filter(|name| {
        let lib = root().join("crates").join(name).join("src/lib.rs");
        !std::fs::read_to_string(lib).is_ok_and(|text| text.contains("\n#![no_std]\n"))
    });
    let offences: Vec<_> = lacking.map(str::to_owned).collect();
    demand(
        "these crates are `#![no_std]`, so that they cannot do I/O or read a clock",
        &offences,
    );
}

/// A test that CI must not skip may be renamed only together with its line there.
#[test]
fn tests_that_must_run_exist() {
    let required = std::fs::read_to_string(root().join(".ci/must-run")).expect("a list");
    let sources = sources();
    let rust = sources.iter().filter(|source| source.is_rust());
    let functions: BTreeSet<_> = rust
        .flat_map(|source| source.text.lines())
        .filter_map(|line| line.trim_start().strip_prefix("fn ")?.split_once('('))
        .map(|(name, _)| name)
        .collect();
    let names = required.lines().map(str::trim);
    let offences: Vec<_> = names
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .filter(|name| !functions.contains(name))
        .map(str::to_owned)
        .collect();
    demand("each line of .ci/must-run names a test", &offences);
}

/// Where cargo does not look for tests itself, a file that nobody names would never be built.
#[test]
fn every_file_of_tests_is_built() {
    let all = sources();
    let is_manifest = |of: &&Source| of.path.ends_with("/Cargo.toml");
    let manifests = all.iter().filter(is_manifest);
    let manifests = manifests.filter(|of| of.text.contains("\nautotests = false"));
    let mut found = 0;
    for manifest in manifests {
        let tests = manifest.path.replace("Cargo.toml", "tests/");
        let main = all.iter().find(|of| of.path == format!("{tests}all.rs"));
        let main = &main.expect("all.rs names the tests").text;
        let files = all.iter().filter_map(|of| of.path.strip_prefix(&tests));
        let names = files.filter_map(|file| file.strip_suffix(".rs"));
        let names = names.filter(|name| !name.contains('/'));
        let own = |name: &str| manifest.text.contains(&format!("\"tests/{name}.rs\""));
        let missing = names.filter(|name| !main.contains(&format!("\nmod {name};")) && !own(name));
        let missing: Vec<_> = missing.map(str::to_owned).collect();
        demand("all.rs or the manifest names every file of tests", &missing);
        found += 1;
    }
    assert_ne!(found, 0, "the engine's tests are one binary");
}

/// A registry takes no crate whose dependencies are paths alone.
#[test]
fn crates_of_the_embedded_store_can_be_published() {
    let metadata = metadata();
    let packages: BTreeMap<&str, &Value> = array(&metadata["packages"])
        .iter()
        .map(|package| (text(&package["name"]), package))
        .collect();
    let mut offences = Vec::new();
    let mut open = vec!["argosy-embedded"];
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        if !seen.insert(name) {
            continue;
        }
        let package = packages[name];
        if package["publish"].as_array().is_some_and(Vec::is_empty) {
            offences.push(format!("{name} is not published"));
        }
        for dependency in array(&package["dependencies"]) {
            if dependency["path"].is_null() || !dependency["kind"].is_null() {
                continue;
            }
            if text(&dependency["req"]) == "*" {
                offences.push(format!("{name}: {} has no version", dependency["name"]));
            }
            open.push(text(&dependency["name"]));
        }
    }
    assert!(seen.len() > 4, "it has dependencies: {seen:?}");
    demand(
        "publish = true, and a version of each dependency",
        &offences,
    );
}

#[test]
fn links_between_documents_lead_somewhere() {
    let all = sources();
    let mut offences = Vec::new();
    for source in all.iter().filter(|source| source.path.ends_with(".md")) {
        let dir = root().join(&source.path);
        let dir = dir.parent().expect("a file lies in a folder");
        for target in links(&source.text) {
            if target.contains("://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() {
                root().join(&source.path)
            } else {
                dir.join(path)
            };
            if !file.exists() {
                offences.push(format!("{}: {target}", source.path));
            } else if !anchor.is_empty() && !headings(&file).contains(anchor) {
                offences.push(format!("{}: {target}: no such heading", source.path));
            }
        }
    }
    demand("a link leads nowhere", &offences);
}

#[test]
fn architecture_fits_an_evening() {
    let lines = std::fs::read_to_string(root().join("ARCHITECTURE.md"))
        .expect("there is an ARCHITECTURE.md")
        .lines()
        .count();
    assert!(
        lines <= ARCHITECTURE_LINES_MAX,
        "ARCHITECTURE.md has {lines} lines"
    );
}

#[test]
fn licences_of_others_permit_our_use() {
    let metadata = metadata();
    let mut offences = Vec::new();
    for package in array(&metadata["packages"]) {
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        match package["license"].as_str() {
            None => offences.push(format!("{name} {version}: states no licence")),
            Some(licence) if !permitted(licence) => {
                offences.push(format!("{name} {version}: {licence}"));
            }
            Some(_) => {}
        }
    }
    demand("these licences are not among those that we take", &offences);
}

#[test]
fn licence_expressions_are_understood() {
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT OR GPL-3.0", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(GPL-2.0 OR GPL-3.0) AND MIT", false),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
    ] {
        assert_eq!(permitted(expression), expected, "{expression}");
    }
}

/// Whether a licence expression can be met with [`LICENCES`].
fn permitted(expression: &str) -> bool {
    fn split<'a>(expression: &'a str, word: &str) -> Vec<&'a str> {
        let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
        for (at, c) in expression.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ if depth == 0 && at >= start && expression[at..].starts_with(word) => {
                    parts.push(&expression[start..at]);
                    start = at + word.len();
                }
                _ => {}
            }
        }
        parts.push(&expression[start..]);
        parts
    }
    let expression = expression.trim();
    for word in ["/", " OR "] {
        let parts = split(expression, word);
        if parts.len() > 1 {
            return parts.into_iter().any(permitted);
        }
    }
    let parts = split(expression, " AND ");
    if parts.len() > 1 {
        return parts.into_iter().all(permitted);
    }
    match expression
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
    {
        Some(inner) => permitted(inner),
        None => LICENCES.contains(&expression),
    }
}

/// The targets of all Markdown links in `text`, except in code.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                found.push(&rest[..end]);
                rest = &rest[end..];
            }
        }
    }
    found
}

/// The anchors of a Markdown file's headings.
fn headings(file: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect()
}

/// What cargo knows of all packages, ours and others', that a build for Linux takes: those for other
/// systems are named by the lock file, too, but nobody has downloaded them.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {error}");
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array of cargo's metadata")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text of cargo's metadata")
}
