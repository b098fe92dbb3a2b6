//! `argosy ctl`: what a cluster agrees on, and what its master does; and orders to the master.
//!
//! It reads the coordinator's directory, so it needs no server to answer ([`reading`]). What it changes is the redo log
//! alone, by compare-and-set: the master carries an order out. Each command prints a table or, with `-o json`, one line
//! of JSON that says its schema.

mod jobs;
mod nodes;
mod reading;
mod recover;
mod regions;
mod status;

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::OutputFormat;
use crate::failure::CommandFailure;

/// Look at a cluster, and give its master orders
///
/// Reads the coordinator's directory: no server has to answer. A server counts as there until others have noticed that
/// it is not.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  argosy ctl status\n  \
    argosy ctl node list --data-dir ./data\n  \
    argosy ctl region show 1 -o json\n  \
    argosy ctl region recover 1 --dry-run\n  \
    argosy ctl job list\n\n\
    Exit codes: 0 done, 1 failed, 2 usage, 3 no such cluster, server, region or job, or it cannot be done now, \
    4 too many jobs (try again), 6 not healthy (status --check), 8 data damaged")]
pub(crate) struct Ctl {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Status(status::Status),
    /// Servers
    #[command(subcommand)]
    Node(nodes::Node),
    /// Regions
    #[command(subcommand)]
    Region(regions::RegionCommand),
    /// What the master does in several steps
    #[command(subcommand)]
    Job(jobs::JobCommand),
}

/// What all of them take.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Data directory of the playground [default: that of the one that runs without --data-dir]
    #[arg(long, value_name = "DIR", conflicts_with = "coordinator")]
    data_dir: Option<PathBuf>,
    /// The coordinator's directory, as `coordinator.dir` of a configuration says it
    #[arg(long, value_name = "DIR")]
    coordinator: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

impl Ctl {
    /// Does it.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        match self.command {
            Command::Status(status) => status.run(),
            Command::Node(node) => node.run(),
            Command::Region(region) => region.run(),
            Command::Job(job) => job.run(),
        }
    }
}

/// Something to print, in both ways.
trait Printed: Serialize {
    /// The lines for people.
    fn lines(&self) -> Vec<String>;

    /// Prints it.
    fn print(&self, how: OutputFormat) -> Result<(), CommandFailure> {
        let text = match how {
            OutputFormat::Json => serde_json::to_string(self).expect("plain data has a JSON form"),
            OutputFormat::Table => self.lines().join("\n"),
        };
        let mut stdout = std::io::stdout().lock();
        let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
        written.map_err(|error| CommandFailure::Failed(format!("cannot print: {error}")))
    }
}

/// Rows under a head, in columns as wide as they need to be; the last column is as long as it is.
fn table(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| {
        let cells = all.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

/// Numbers in a row; `-` where there is none.
fn list<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    match all.is_empty() {
        true => "-".to_owned(),
        false => all.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let rows = [
            vec!["1".to_owned(), "long".to_owned()],
            vec!["22".to_owned(), "-".to_owned()],
        ];
        assert_eq!(
            table(&["n", "what"], &rows),
            ["n   what", "1   long", "22  -"]
        );
        assert_eq!(
            (list([1, 2]), list::<u32>([])),
            ("1 2".to_owned(), "-".to_owned())
        );
    }
}
