//! A stranger's first ten minutes: the commands of the README's section of that name, as they stand
//! there, and what it says they print. The test reads them from README.md, so the two cannot differ.
//!
//! `make run` starts the program under test with the same arguments. The rest is done as [`page`](crate::page) says.

use std::path::Path;

use crate::page::{Block, Stranger, Told, blocks, console};
use crate::support::{Playground, empty_dir, keep_ports, text};

/// The heading of the section.
pub(crate) const SECTION: &str = "\n## The first ten minutes\n";

/// The console blocks of the section, each a list of commands.
fn section(readme: &str) -> Vec<Vec<Told>> {
    let (_, section) = readme
        .split_once(SECTION)
        .expect("the README has the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let is_console = |block: &Block| block.language == "console";
    let blocks = blocks(section).into_iter().filter(is_console);
    blocks.map(|block| console(&block)).collect()
}

#[test]
fn a_strangers_first_ten_minutes_are_as_the_readme_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let blocks = section(&readme);
    let [load, kill, after] = blocks.as_slice() else {
        panic!("three blocks: load, kill, and after Ctrl-C");
    };
    let dir = empty_dir("first-minutes");
    let place = dir.join("data");

    let make = &load[0].command;
    let make = make.split('#').next().unwrap_or(make).trim();
    assert_eq!(make, "make run ARGS='--data-dir ./data'");
    let playground = Playground::start(&["--data-dir", place.to_str().unwrap()]);
    let _ports = keep_ports();
    let stranger = Stranger::new(&dir, &playground, None);
    load[1..]
        .iter()
        .chain(kill)
        .for_each(|told| stranger.run("README.md", told));
    let commands = after.iter().map(|told| stranger.here(&told.command));
    let commands: Vec<String> = commands.collect();
    assert!(commands[0].starts_with("argosy inspect compare"));
    assert!(playground.interrupt().success(), "Ctrl-C");
    let compare = crate::support::argosy()
        .args(commands[0].split(' ').skip(1))
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(compare.status.success(), "{}", text(&compare.stderr));
    std::fs::remove_dir_all(&dir).unwrap();
}
