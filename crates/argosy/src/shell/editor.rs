//! Line editing for people at a terminal: history, and completion of commands, options and keys.

use std::cell::RefCell;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use argosy_client::{Kv, Span};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::command::COMMANDS;
use crate::bytes::{Notation, shown, words};

/// Lines of history that are kept.
const HISTORY_LINES: usize = 1000;
/// Keys that are offered, at most.
const KEYS_MAX: usize = 50;

/// A client that the shell and its completion use in turn.
pub(super) type Shared = Rc<RefCell<Box<dyn Kv>>>;

/// What a person types.
pub(super) struct Lines {
    editor: Editor<Completion, FileHistory>,
    history: Option<PathBuf>,
}

/// What was typed.
pub(super) enum Typed {
    /// A line.
    Line(String),
    /// Ctrl-C: the line is thrown away.
    Nothing,
    /// Ctrl-D.
    End,
}

impl Lines {
    /// Lines from the terminal. Where the history cannot be kept, it lasts as long as the shell.
    pub(super) fn open(client: Shared) -> Result<Self, ReadlineError> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)?
            .completion_type(CompletionType::List)
            .auto_add_history(true)
            .build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Completion { client }));
        let history = history_file(|name| std::env::var_os(name).map(PathBuf::from));
        let history = history.filter(|path| prepare(path).is_ok());
        if let Some(path) = &history {
            // An unreadable history is as good as none.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }

    /// The next line.
    pub(super) fn next(&mut self, prompt: &str) -> Result<Typed, ReadlineError> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Nothing),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if let Some(path) = &self.history {
            // Nothing that a person waits for depends on it.
            let _ = self.editor.append_history(path);
        }
    }
}

/// Where the history lies: `argosy/shell_history` in the directory for state.
fn history_file(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| state.join("argosy/shell_history"))
}

/// Makes directory and file where they are missing, for this user alone: keys and values stand in it.
fn prepare(path: &Path) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    let mut open = OpenOptions::new();
    open.create(true).append(true).mode(0o600).open(path)?;
    Ok(())
}

/// Completes the last word of a line.
struct Completion {
    client: Shared,
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> Result<(usize, Vec<String>), ReadlineError> {
        let line = line.get(..pos).unwrap_or(line);
        let keys = |prefix: &[u8]| {
            let page = self
                .client
                .borrow_mut()
                .page(&Span::prefix(prefix), KEYS_MAX);
            let pairs = page.map_or_else(|_| Vec::new(), |page| page.pairs);
            pairs.into_iter().map(|(key, _)| key).collect()
        };
        Ok(candidates(line, keys))
    }
}

/// Where the word that is typed begins, and what it may become; `keys` are those with a prefix.
fn candidates(line: &str, keys: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> (usize, Vec<String>) {
    let begin = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let (before, typed) = line.split_at(begin);
    let Ok((done, rest)) = words(before) else {
        // Inside a quote with a blank in it.
        return (begin, Vec::new());
    };
    if !rest.is_empty() {
        let (at, found) = candidates(&line[before.len() - rest.len()..], keys);
        return (before.len() - rest.len() + at, found);
    }
    let starts = |name: &&&str| name.starts_with(typed);
    let Some(name) = done.first() else {
        let names = COMMANDS.iter().map(|command| command.name);
        let found = names.filter(|name| name.starts_with(typed));
        return (begin, found.map(|name| format!("{name} ")).collect());
    };
    let command = COMMANDS
        .iter()
        .find(|command| name.bare() == Some(command.name));
    let Some(command) = command else {
        return (begin, Vec::new());
    };
    let mut found: Vec<String> = Vec::new();
    if command.keys
        && let Some(prefix) = begun(typed)
    {
        found.extend(keys(&prefix).iter().map(|key| shown(key, Notation::Text)));
    }
    let options = command.options.iter().filter(starts);
    found.extend(options.map(|option| format!("{option} ")));
    (begin, found)
}

/// The bytes of a word that is perhaps not complete: a quote may be open.
fn begun(typed: &str) -> Option<Vec<u8>> {
    if typed.is_empty() {
        return Some(Vec::new());
    }
    let closed = [typed.to_owned(), format!("{typed}'"), format!("{typed}\"")];
    let read = closed.iter().find_map(|text| words(text).ok());
    read.and_then(|(words, _)| words.first()?.value().ok())
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}

impl Validator for Completion {}

impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(line: &str) -> (usize, Vec<String>) {
        candidates(line, |prefix| {
            let keys = [&b"apple"[..], b"apricot", b"a b", b"zoo\0"];
            let found = keys.iter().filter(|key| key.starts_with(prefix));
            found.map(|key| key.to_vec()).collect()
        })
    }

    #[test]
    fn names_options_and_keys_are_completed() {
        assert_eq!(complete("pr"), (0, vec!["prefix ".to_owned()]));
        assert_eq!(
            complete("get ap"),
            (4, vec!["apple".into(), "apricot".into()])
        );
        assert_eq!(complete("get x; get z"), (11, vec!["'zoo\\0'".into()]));
        assert_eq!(
            complete("get 'a"),
            (4, vec!["apple".into(), "apricot".into(), "'a b'".into()])
        );
        assert_eq!(complete("scan zz r"), (8, vec!["reverse ".to_owned()]));
        assert_eq!(complete("format h"), (7, vec!["hex ".to_owned()]));
        assert_eq!(complete("fly a").1, Vec::<String>::new());
        assert_eq!(complete("get 'a b").1, Vec::<String>::new());
    }

    #[test]
    fn history_lies_in_the_directory_for_state() {
        let of = |pairs: &'static [(&str, &str)]| {
            history_file(move |name| {
                let found = pairs.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| PathBuf::from(value))
            })
        };
        assert_eq!(
            of(&[("XDG_STATE_HOME", "/s"), ("HOME", "/home/x")]),
            Some("/s/argosy/shell_history".into())
        );
        assert_eq!(
            of(&[("XDG_STATE_HOME", "relative"), ("HOME", "/home/x")]),
            Some("/home/x/.local/state/argosy/shell_history".into())
        );
        assert_eq!(of(&[]), None);
    }
}
