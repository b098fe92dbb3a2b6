//! The fenced blocks of a document, and how a stranger carries them out.
//!
//! A block begins with three backticks, its language and perhaps marks, such as `sh no-run`. Those in `console` are
//! commands behind `$ `, each with the lines that it prints; those in `sh` are a script. Three things are put in
//! place of what a stranger has: the program under test comes first on the PATH, the ports are those that were free,
//! and the directory is one of the test's own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Playground, text};

/// A fenced block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// The line of the document that it begins in.
    pub(crate) line: usize,
    /// `sh`, `console`, `python` and the like; nothing where none is said.
    pub(crate) language: String,
    /// What stands behind the language.
    pub(crate) marks: Vec<String>,
    pub(crate) text: String,
}

impl Block {
    pub(crate) fn has(&self, mark: &str) -> bool {
        self.marks.iter().any(|given| given == mark)
    }
}

/// A command, and the lines that it prints.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) command: String,
    pub(crate) lines: Vec<String>,
}

/// All blocks of a document.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in document.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => found.push(block),
            (Some(info), None) => {
                let mut words = info.split([' ', ',']).map(str::to_owned);
                open = Some(Block {
                    line: number + 1,
                    language: words.next().unwrap_or_default(),
                    marks: words.collect(),
                    text: String::new(),
                });
            }
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block does not end: {open:?}");
    found
}

/// The commands of a `console` block.
pub(crate) fn console(block: &Block) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    for line in block.text.lines() {
        match (line.strip_prefix("$ "), told.last_mut()) {
            (Some(command), _) => told.push(Told {
                command: command.to_owned(),
                lines: Vec::new(),
            }),
            (None, Some(last)) => last.lines.push(line.to_owned()),
            (None, None) => panic!("line {}: it begins with a command", block.line),
        }
    }
    told
}

/// Whether `printed` is what `told` says: `...` at the end of a line is anything, and as a whole line
/// any number of lines.
pub(crate) fn agrees(told: &[String], printed: &[&str]) -> bool {
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
pub(crate) struct Stranger {
    pub(crate) dir: PathBuf,
    /// A port as the documents have it, and where it is here.
    ports: Vec<(&'static str, SocketAddr)>,
}

impl Stranger {
    /// One who has `playground`, and perhaps a Redis.
    pub(crate) fn new(dir: &Path, playground: &Playground, redis: Option<SocketAddr>) -> Self {
        let servers = || playground.servers.iter();
        let actual = servers().map(|server| server.resp);
        let actual = actual.chain(servers().map(|server| server.admin));
        let told = ["7379", "7389", "7399", "7480", "7490", "7500"];
        let mut ports: Vec<_> = told.into_iter().zip(actual).collect();
        ports.extend(redis.map(|addr| ("6379", addr)));
        let dir = dir.to_owned();
        Self { dir, ports }
    }

    /// Ports as the document has them become those that are here, which may be others of the document's.
    pub(crate) fn here(&self, told: &str) -> String {
        let mut text = told.to_owned();
        for (port, _) in &self.ports {
            text = text.replace(port, &format!("<{port}>"));
        }
        for (port, addr) in &self.ports {
            text = text.replace(&format!("<{port}>"), &addr.port().to_string());
        }
        text
    }

    /// A program of the stranger's, which finds the one under test first.
    pub(crate) fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let under_test = Path::new(env!("CARGO_BIN_EXE_argosy"));
        let bin = under_test
            .parent()
            .expect("it lies in a directory")
            .display();
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(program);
        command
            .current_dir(&self.dir)
            .env("PATH", format!("{bin}:{path}"))
            .env("ARGOSY_ENDPOINTS", self.ports[0].1.to_string())
            // redis-cli prints as it does at a terminal.
            .env("FAKETTY", "1");
        command
    }

    /// Runs a script of a shell; `where_` says in which document it stands.
    pub(crate) fn script(&self, where_: &str, told: &str) -> String {
        let script = self.here(told);
        let output = self
            .program("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .output()
            .unwrap();
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{where_}: {script}: {out}{said}");
        out + &said
    }

    pub(crate) fn run(&self, where_: &str, told: &Told) {
        let printed = self.script(where_, &told.command);
        let printed: Vec<&str> = printed.lines().collect();
        assert!(
            agrees(&told.lines, &printed),
            "{where_}: {}\n{printed:#?}\n{:#?}",
            told.command,
            told.lines
        );
    }
}
