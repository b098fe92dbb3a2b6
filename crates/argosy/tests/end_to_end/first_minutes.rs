//! A stranger's first ten minutes: the commands of the README's section of that name, as they stand
//! there, and what it says they print. The test reads them from README.md, so the two cannot differ.
//!
//! Three things are put in place of what a stranger has: the program under test comes first on the
//! PATH, `make run` starts it with the same arguments, and the ports are those that were free.

use std::path::Path;
use std::process::Command;

use crate::support::{Playground, empty_dir, keep_ports, text};

/// The heading of the section.
const SECTION: &str = "\n## The first ten minutes\n";

/// A command, and the lines that it prints.
#[derive(Debug)]
struct Told {
    command: String,
    lines: Vec<String>,
}

/// The console blocks of the section, each a list of commands.
fn blocks(readme: &str) -> Vec<Vec<Told>> {
    let (_, section) = readme
        .split_once(SECTION)
        .expect("the README has the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let mut blocks = Vec::new();
    for block in section.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").expect("a block ends");
        let mut told: Vec<Told> = Vec::new();
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => told.push(Told {
                    command: command.to_owned(),
                    lines: Vec::new(),
                }),
                None => told
                    .last_mut()
                    .expect("a command")
                    .lines
                    .push(line.to_owned()),
            }
        }
        blocks.push(told);
    }
    blocks
}

/// Whether `printed` is what `told` says: `...` at the end of a line is anything, and as a whole line
/// any number of lines.
fn agrees(told: &[String], printed: &[&str]) -> bool {
    match (told, printed) {
        ([], []) => true,
        ([any, rest @ ..], _) if any == "..." => {
            (0..=printed.len()).any(|skipped| agrees(rest, &printed[skipped..]))
        }
        ([line, told @ ..], [first, printed @ ..]) => {
            let same = match line.strip_suffix("...") {
                Some(start) => first.starts_with(start),
                None => first == line,
            };
            same && agrees(told, printed)
        }
        _ => false,
    }
}

/// A shell in the stranger's directory.
struct Stranger<'a> {
    dir: &'a Path,
    playground: &'a Playground,
}

impl Stranger<'_> {
    /// Ports as the README has them become those of the playground, which may be others of the README's.
    fn command(&self, told: &str) -> String {
        let servers = || self.playground.servers.iter();
        let actual = servers().map(|server| server.resp.port());
        let actual = actual.chain(servers().map(|server| server.admin.port()));
        let told_ports = ["7379", "7389", "7399", "7480", "7490", "7500"];
        let mut command = told.to_owned();
        for port in told_ports {
            command = command.replace(port, &format!("<{port}>"));
        }
        for (port, actual) in told_ports.iter().zip(actual) {
            command = command.replace(&format!("<{port}>"), &actual.to_string());
        }
        command
    }

    fn run(&self, told: &Told) {
        let program = Path::new(env!("CARGO_BIN_EXE_argosy"));
        let bin = program.parent().expect("it lies in a directory").display();
        let path = std::env::var("PATH").unwrap();
        let command = self.command(&told.command);
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &command])
            .current_dir(self.dir)
            .env("PATH", format!("{bin}:{path}"))
            .env(
                "ARGOSY_ENDPOINTS",
                self.playground.servers[0].resp.to_string(),
            )
            // redis-cli prints as it does at a terminal.
            .env("FAKETTY", "1")
            .output()
            .unwrap();
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{command}: {out}{said}");
        let printed: Vec<&str> = out.lines().chain(said.lines()).collect();
        assert!(
            agrees(&told.lines, &printed),
            "{command}\n{printed:#?}\n{:#?}",
            told.lines
        );
    }
}

#[test]
fn a_strangers_first_ten_minutes_are_as_the_readme_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let blocks = blocks(&readme);
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
    let stranger = Stranger {
        dir: &dir,
        playground: &playground,
    };
    load[1..]
        .iter()
        .chain(kill)
        .for_each(|told| stranger.run(told));
    let commands = after.iter().map(|told| stranger.command(&told.command));
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
