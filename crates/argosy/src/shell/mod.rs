//! `argosy shell`: keys and values by hand, or from a script.
//!
//! At a terminal it edits lines, keeps a history and completes ([`editor`](self)). Otherwise, and
//! with `-c`, it reads commands from its input and stops at the first that fails. Results go to
//! stdout, remarks and errors to stderr. A key that is not bound is no failure: the commands behind
//! it are carried out, and the shell ends with 3.

mod command;
mod editor;
mod session;

use std::cell::RefCell;
use std::io::{BufRead, BufWriter, IsTerminal};
use std::rc::Rc;

use argosy_client::Kv;
use clap::Args;

use self::command::Command;
use self::editor::{Lines, Shared, Typed};
use self::session::{Done, Session};
use crate::bytes::{Notation, words};
use crate::connect::Endpoints;
use crate::failure::CommandFailure;

/// Longest line of a script, in bytes.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// Read and write keys by hand
///
/// Commands: get, put, delete, scan, prefix, format, help, quit; `argosy shell -c help` explains
/// them. Keys and values are plain words, 'quoted with \x00 escapes', hex:…, 0x… or base64:….
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  argosy shell\n  \
    argosy shell -c 'put apple 1; get apple'\n  \
    argosy shell -o json <commands.txt >results.jsonl")]
pub(crate) struct Shell {
    #[command(flatten)]
    endpoints: Endpoints,
    /// Carry these commands out, ; between them, and end
    #[arg(short, long, value_name = "COMMANDS")]
    command: Vec<String>,
    /// How keys and values are printed
    #[arg(short, long, value_enum, default_value_t, visible_alias = "format")]
    output: Notation,
    /// Of a script: go on behind commands that fail
    #[arg(long)]
    keep_going: bool,
}

/// How a script went so far.
#[derive(Default)]
struct Course {
    missing: bool,
    /// The first failure that was passed over.
    failed: Option<CommandFailure>,
}

impl Shell {
    /// Runs until the input ends.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        let client = self.endpoints.connect()?;
        if !self.command.is_empty() {
            let lines = self.command.iter().map(|line| Ok(line.clone()));
            return self.script(client, lines, "-c");
        }
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            return self.interactive(client);
        }
        let mut input = stdin.lock();
        let lines = std::iter::from_fn(move || next_line(&mut input).transpose());
        self.script(client, lines, "line")
    }

    fn script(
        &self,
        mut client: Box<dyn Kv>,
        lines: impl Iterator<Item = Result<String, CommandFailure>>,
        what: &str,
    ) -> Result<(), CommandFailure> {
        let (stdout, mut stderr) = (std::io::stdout(), std::io::stderr());
        let mut out = BufWriter::new(stdout.lock());
        let mut session = Session {
            client: &mut *client,
            form: self.output,
            out: &mut out,
            remarks: &mut stderr,
        };
        let mut course = Course::default();
        for (number, line) in (1..).zip(lines) {
            match run_line(&mut session, &line?, &mut course, self.keep_going) {
                Ok(false) => {}
                Ok(true) => break,
                Err(failure) => return Err(at_line(what, number, failure)),
            }
        }
        match course {
            Course {
                failed: Some(failure),
                ..
            } => Err(failure),
            Course { missing: true, .. } => Err(CommandFailure::NotFound(
                "a key was not bound, or a condition did not hold".to_owned(),
            )),
            Course { .. } => Ok(()),
        }
    }

    fn interactive(&self, client: Box<dyn Kv>) -> Result<(), CommandFailure> {
        let client: Shared = Rc::new(RefCell::new(client));
        let unread = |error| CommandFailure::Failed(format!("cannot read the terminal: {error}"));
        let mut lines = Lines::open(Rc::clone(&client)).map_err(unread)?;
        eprintln!(
            "argosy {}; help explains the commands, Ctrl-D ends",
            env!("CARGO_PKG_VERSION")
        );
        let mut form = self.output;
        loop {
            let line = match lines.next("argosy> ").map_err(unread)? {
                Typed::Line(line) => line,
                Typed::Nothing => continue,
                Typed::End => return Ok(()),
            };
            let mut client = client.borrow_mut();
            let (mut stdout, mut stderr) = (std::io::stdout(), std::io::stderr());
            let mut session = Session {
                client: &mut **client,
                form,
                out: &mut stdout,
                remarks: &mut stderr,
            };
            match run_line(&mut session, &line, &mut Course::default(), false) {
                Ok(false) => form = session.form,
                Ok(true) => return Ok(()),
                Err(failure) => eprintln!("{failure}"),
            }
        }
    }
}

/// Carries the commands of a line out. Returns whether the shell is to end.
fn run_line(
    session: &mut Session<'_>,
    line: &str,
    course: &mut Course,
    keep_going: bool,
) -> Result<bool, CommandFailure> {
    let mut rest = line;
    while !rest.is_empty() {
        let (command, behind) = words(rest).map_err(CommandFailure::Usage)?;
        rest = behind;
        if command.is_empty() {
            continue;
        }
        let done = Command::parse(&command)
            .map_err(CommandFailure::Usage)
            .and_then(|command| session.run(command));
        match done {
            Ok(Done::Yes) => {}
            Ok(Done::Missing) => course.missing = true,
            Ok(Done::Quit) => return Ok(true),
            Err(failure) if keep_going => {
                let _ = writeln!(session.remarks, "{failure}");
                course.failed.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(false)
}

/// The next line of a script, or `None` at its end.
fn next_line(input: &mut dyn BufRead) -> Result<Option<String>, CommandFailure> {
    let mut line = Vec::new();
    let read = std::io::Read::take(input, LINE_BYTES_MAX).read_until(b'\n', &mut line);
    let read =
        read.map_err(|error| CommandFailure::Failed(format!("cannot read commands: {error}")))?;
    if read as u64 == LINE_BYTES_MAX {
        let what = format!("a line of commands has over {LINE_BYTES_MAX} bytes");
        return Err(CommandFailure::Usage(what));
    }
    let text = String::from_utf8(line).map_err(|_| {
        CommandFailure::Usage(
            "commands are UTF-8: write other bytes as hex:… or '\\xff'".to_owned(),
        )
    })?;
    Ok((read > 0).then(|| text.trim_end_matches(['\n', '\r']).to_owned()))
}

/// `failure`, and in which command it was.
fn at_line(what: &str, number: u64, failure: CommandFailure) -> CommandFailure {
    let with = |text: String| format!("{what} {number}: {text}");
    match failure {
        CommandFailure::Failed(text) => CommandFailure::Failed(with(text)),
        CommandFailure::Usage(text) => CommandFailure::Usage(with(text)),
        CommandFailure::NotFound(text) => CommandFailure::NotFound(with(text)),
        CommandFailure::Unreachable(text) => CommandFailure::Unreachable(with(text)),
        CommandFailure::Unhealthy(text) => CommandFailure::Unhealthy(with(text)),
        CommandFailure::Config(text) => CommandFailure::Config(with(text)),
        CommandFailure::Corrupt(text) => CommandFailure::Corrupt(with(text)),
    }
}
