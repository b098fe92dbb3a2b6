//! What the pages for users tell to type is typed, against one playground, and what they say is printed is printed.
//!
//! Of the pages below every block of `sh`, `console`, `python`, `go`, `java`, `js`, and `rust redis` is carried out,
//! in the order in which it stands there. A program prints what the `text output` block behind it says, or, where
//! none stands there, the last such block in front of it.
//!
//! Not carried out are blocks marked `no-run` (they build, install, or stop what the test needs), those of the
//! README's first ten minutes, which have a test of their own, and programs in languages whose client library is not
//! in `TARGET/clients` (`scripts/setup.sh clients` puts it there). The test tells how many there are of each.
//!
//! The pages find what they name: the playground's directory as `data`, a closed store of a program as `store`, and a
//! redis-server at port 6379.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use argosy_embedded::Db;

use crate::differential::Redis;
use crate::first_minutes::SECTION;
use crate::page::{Block, Stranger, blocks, console};
use crate::support::{Playground, empty_dir, python, text};

/// The pages, in the order in which they are read.
const PAGES: [&str; 6] = [
    "README.md",
    "docs/getting-started.md",
    "docs/from-redis.md",
    "docs/from-rocksdb.md",
    "docs/troubleshooting.md",
    "docs/admin.md",
];

/// The languages of blocks that are carried out, beside `rust redis`.
const LANGUAGES: [&str; 6] = ["sh", "console", "python", "go", "java", "js"];

/// How many blocks were carried out, and why others were not.
#[derive(Debug, Default)]
struct Tally {
    ran: usize,
    left_out: BTreeMap<String, usize>,
}

impl Tally {
    fn leave_out(&mut self, why: impl Into<String>) {
        *self.left_out.entry(why.into()).or_default() += 1;
    }
}

/// Where the client libraries of other languages are.
fn clients() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_argosy"));
    let target = binary.ancestors().nth(2).expect("TARGET/debug/argosy");
    target.join("clients")
}

/// Where the libraries for programs in this language are, where they and the tool are; else what is not here.
fn library(language: &str, tool: &str) -> Result<PathBuf, String> {
    let there = clients().join(language);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_tool = std::env::split_paths(&path).any(|dir| dir.join(tool).exists());
    match there.is_dir() && has_tool {
        true => Ok(there),
        false => Err(format!("{language}: no client library in TARGET/clients")),
    }
}

/// The command that runs the program of this block, which is written to where it looks for it.
fn program(block: &Block, stranger: &Stranger) -> Result<Command, String> {
    let dir = &stranger.dir;
    let (file, run) = match block.language.as_str() {
        "python" => {
            let mut run = stranger.program(python());
            run.arg("quick.py");
            (dir.join("quick.py"), run)
        }
        "go" => {
            let module = library("go", "go")?;
            for file in ["go.mod", "go.sum"] {
                std::fs::copy(module.join(file), dir.join(file)).unwrap();
            }
            let mut run = stranger.program("go");
            run.args(["run", "."]).env("GOPROXY", "off");
            (dir.join("quick.go"), run)
        }
        "java" => {
            let mut run = stranger.program("java");
            run.arg("-cp").arg(library("java", "java")?.join("*"));
            run.arg("Quick.java");
            (dir.join("Quick.java"), run)
        }
        "js" => {
            let modules = library("node", "node")?.join("node_modules");
            std::os::unix::fs::symlink(modules, dir.join("node_modules")).unwrap();
            let mut run = stranger.program("node");
            run.arg("quick.mjs");
            (dir.join("quick.mjs"), run)
        }
        _ => {
            let package = library("rust", "cargo")?;
            let mut run = stranger.program("cargo");
            run.args(["run", "--quiet", "--offline", "--manifest-path"])
                .arg(package.join("Cargo.toml"))
                .env("CARGO_TARGET_DIR", package.join("target"));
            (package.join("src/main.rs"), run)
        }
    };
    std::fs::write(file, stranger.here(&block.text)).unwrap();
    Ok(run)
}

/// What the program of block `at` prints.
fn output(blocks: &[Block], at: usize) -> &str {
    let is_output = |block: &&Block| block.language == "text" && block.has("output");
    let behind = blocks.get(at + 1).filter(is_output);
    let told = behind.or_else(|| blocks[..at].iter().rev().find(is_output));
    &told.expect("what it prints is said").text
}

/// Why a block is not carried out, if it is known beforehand.
fn passed_over(block: &Block, first_minutes: &Range<usize>) -> Option<&'static str> {
    if block.has("no-run") {
        return Some("marked no-run");
    }
    let is_theirs = first_minutes.contains(&block.line);
    is_theirs.then_some("the first ten minutes, which another test runs")
}

/// The lines of the section that another test runs.
fn lines_of_first_minutes(document: &str) -> Range<usize> {
    let Some((before, section)) = document.split_once(SECTION) else {
        return 0..0;
    };
    let from = before.lines().count();
    let section = section.split("\n## ").next().unwrap_or(section);
    from..from + section.lines().count() + 2
}

fn carry_out(page: &str, document: &str, stranger: &Stranger, tally: &mut Tally) {
    let first_minutes = lines_of_first_minutes(document);
    let blocks = blocks(document);
    for (at, block) in blocks.iter().enumerate() {
        let language = block.language.as_str();
        let is_known = LANGUAGES.contains(&language) || language == "rust" && block.has("redis");
        if !is_known {
            continue;
        }
        if let Some(why) = passed_over(block, &first_minutes) {
            tally.leave_out(why);
            continue;
        }
        let place = format!("{page}, line {}", block.line);
        match language {
            "sh" => drop(stranger.script(&place, &block.text)),
            "console" => console(block)
                .iter()
                .for_each(|told| stranger.run(&place, told)),
            _ => match program(block, stranger) {
                Ok(mut run) => {
                    let ended = run.output().unwrap();
                    let (out, said) = (text(&ended.stdout), text(&ended.stderr));
                    assert!(ended.status.success(), "{place}: {out}{said}");
                    assert_eq!(out, output(&blocks, at), "{place}: {said}");
                }
                Err(why) => {
                    tally.leave_out(why);
                    continue;
                }
            },
        }
        tally.ran += 1;
    }
}

/// A store that no process has open.
fn make_store(place: &Path) {
    let db = Db::open(place).unwrap();
    for user in 0..100 {
        db.put(format!("user:{user}"), "Ada").unwrap();
    }
    db.close().unwrap();
}

#[test]
fn what_the_pages_tell_to_type_does_what_they_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = empty_dir("pages");
    make_store(&dir.join("store"));
    let data = dir.join("data");
    let playground = Playground::start(&["--data-dir", data.to_str().unwrap()]);
    let redis = Redis::start("pages-redis");
    drop(redis.connect());

    let mut tally = Tally::default();
    for page in PAGES {
        let stranger = Stranger::new(&dir, &playground, Some(redis.addr));
        let document = std::fs::read_to_string(root.join(page)).unwrap();
        carry_out(page, &document, &stranger, &mut tally);
    }
    // Not by a macro, whose output is kept from whoever does not ask for it.
    let told = format!(
        "pages: {} blocks carried out; left out: {:?}\n",
        tally.ran, tally.left_out
    );
    std::io::stderr().write_all(told.as_bytes()).unwrap();
    assert!(tally.ran > 0);
    assert!(playground.interrupt().success());
    std::fs::remove_dir_all(&dir).unwrap();
}
