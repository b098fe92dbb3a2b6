//! What the shell does with a command: asks the cluster, and prints. It reads no input.

use std::io::{self, Write};

use argosy_client::{Kv, Span};
use serde_json::json;

use super::command::{COMMANDS, Command, FORMS, Scan};
use crate::bytes::{Notation, shown};
use crate::failure::CommandFailure;
use crate::transfer::format::{self, Encoding};

/// Pairs that are asked for at once.
const PAGE: usize = 1000;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// It was carried out.
    Yes,
    /// It was, but a key was not there, or a condition did not hold.
    Missing,
    /// The shell is to end.
    Quit,
}

/// A client, and where results are printed.
pub(super) struct Session<'a> {
    pub(super) client: &'a mut dyn Kv,
    pub(super) form: Notation,
    pub(super) out: &'a mut dyn Write,
    /// Where remarks go that are no results.
    pub(super) remarks: &'a mut dyn Write,
}

impl Session<'_> {
    /// Carries `command` out.
    pub(super) fn run(&mut self, command: Command) -> Result<Done, CommandFailure> {
        let done = match command {
            Command::Get(keys) => self.get(&keys),
            Command::Put { key, value, only } => {
                let applied = match only {
                    None => self.client.put(&key, &value).map(|()| true),
                    Some(only) => self.client.put_only(only, &key, &value),
                }?;
                self.applied(applied)
            }
            Command::Delete(keys) => self.delete(&keys),
            Command::Scan(scan) => self.scan(scan),
            Command::Format(form) => {
                self.form = form;
                Ok(Done::Yes)
            }
            Command::Help(name) => self.help(name.as_deref()),
            Command::Quit => Ok(Done::Quit),
        }?;
        self.out.flush().map_err(|error| unprinted(&error))?;
        Ok(done)
    }

    fn print(&mut self, line: &str) -> Result<(), CommandFailure> {
        writeln!(self.out, "{line}").map_err(|error| unprinted(&error))
    }

    fn remark(&mut self, line: &str) {
        // Remarks are for people; where they cannot be read, nothing is lost.
        let _ = writeln!(self.remarks, "{line}");
    }

    fn get(&mut self, keys: &[Vec<u8>]) -> Result<Done, CommandFailure> {
        let words: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = match words.as_slice() {
            [key] => vec![self.client.get(key)?],
            keys => self.client.multi_get(keys)?,
        };
        let mut done = Done::Yes;
        for (key, value) in keys.iter().zip(values) {
            if value.is_none() {
                done = Done::Missing;
            }
            match (self.form, value) {
                (Notation::Json, value) => {
                    let line = format::json_line(key, value.as_deref(), Encoding::Auto);
                    self.print(&line)?;
                }
                (form, Some(value)) if keys.len() == 1 => self.print(&shown(&value, form))?,
                (_, Some(value)) => self.pair(key, &value)?,
                (form, None) => {
                    let text = format!("{} is not bound", shown(key, form));
                    self.remark(&text);
                }
            }
        }
        Ok(done)
    }

    fn pair(&mut self, key: &[u8], value: &[u8]) -> Result<(), CommandFailure> {
        let form = self.form;
        self.print(&format!("{}\t{}", shown(key, form), shown(value, form)))
    }

    fn applied(&mut self, applied: bool) -> Result<Done, CommandFailure> {
        match (self.form, applied) {
            (Notation::Json, applied) => self.print(&json!({ "applied": applied }).to_string())?,
            (_, true) => self.print("ok")?,
            (_, false) => self.print("not applied: the condition does not hold")?,
        }
        Ok(if applied { Done::Yes } else { Done::Missing })
    }

    fn delete(&mut self, keys: &[Vec<u8>]) -> Result<Done, CommandFailure> {
        let mut deleted = 0;
        for key in keys {
            deleted += usize::from(self.client.delete(key)?);
        }
        let count = keys.len();
        match self.form {
            Notation::Json => {
                let line = json!({ "deleted": deleted, "keys": count });
                self.print(&line.to_string())?;
            }
            _ if deleted == count => self.print(&format!("deleted {deleted}"))?,
            _ => self.print(&format!(
                "deleted {deleted} of {count}; the rest was not bound"
            ))?,
        }
        Ok(if deleted == count {
            Done::Yes
        } else {
            Done::Missing
        })
    }

    fn scan(&mut self, scan: Scan) -> Result<Done, CommandFailure> {
        let mut left = scan.limit;
        let mut rest = Some(scan.span).filter(|span| !span.range.is_empty());
        while let Some(span) = rest.take() {
            if left == Some(0) {
                self.more(&span)?;
                break;
            }
            let wanted = left.map_or(PAGE, |left| left.min(PAGE));
            let page = self.client.page(&span, wanted)?;
            left = left.map(|left| left.saturating_sub(page.pairs.len()));
            for (key, value) in &page.pairs {
                match (self.form, scan.keys_only) {
                    (Notation::Json, true) => {
                        let line = format::json_key(key, Encoding::Auto);
                        self.print(&line)?;
                    }
                    (Notation::Json, false) => {
                        let line = format::json_line(key, Some(value), Encoding::Auto);
                        self.print(&line)?;
                    }
                    (form, true) => self.print(&shown(key, form))?,
                    (_, false) => self.pair(key, value)?,
                }
            }
            rest = page.rest;
        }
        Ok(Done::Yes)
    }

    /// Says how to go on where the limit ended a scan, if anything is left.
    fn more(&mut self, rest: &Span) -> Result<(), CommandFailure> {
        let next = self.client.page(rest, 1)?;
        if let Some((key, _)) = next.pairs.first() {
            let key = shown(key, Notation::Text);
            let line = match rest.reverse {
                false => format!("more follows: scan {key}"),
                true => format!("more follows, from {key} down"),
            };
            self.remark(&line);
        }
        Ok(())
    }

    fn help(&mut self, name: Option<&str>) -> Result<Done, CommandFailure> {
        for command in COMMANDS
            .iter()
            .filter(|c| name.is_none_or(|name| name == c.name))
        {
            self.print(&format!("  {:<50} {}", command.usage, command.summary))?;
        }
        if name.is_none() {
            self.print(FORMS)?;
        }
        Ok(Done::Yes)
    }
}

fn unprinted(error: &io::Error) -> CommandFailure {
    CommandFailure::Failed(format!("cannot print: {error}"))
}
