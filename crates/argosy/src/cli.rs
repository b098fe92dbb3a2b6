//! The command line: what there is, and how it ends.
//!
//! What a user asked for goes to stdout, everything else to stderr. Exit codes are in
//! `failure`.

use std::process::ExitCode;

use argosy_base::{AddressMode, DurabilityMode};
use clap::{Parser, Subcommand, ValueEnum};

use crate::cluster::layout::Replication;
use crate::config::LogFormat;
use crate::transfer::{export, import};
use crate::{bench, config, ctl, frugal, inspect, playground, server, shell};

/// A replicated, persistent, ordered key-value store
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "Examples:\n  argosy playground\n  \
        argosy bench --workload load-a,run-a --mix sd --records 100000\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 no answer (try again), \
        6 not healthy, 7 configuration, 8 data damaged"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Server(server::ServerArgs),
    Playground(playground::Playground),
    Shell(shell::Shell),
    Import(import::Import),
    Export(export::Export),
    Bench(Box<bench::Bench>),
    Inspect(inspect::Inspect),
    Ctl(ctl::Ctl),
    Config(config::command::Config),
}

impl Command {
    /// Whether it has a budget of memory, or starts others that have: they decide on huge pages themselves.
    const fn keeps_much(&self) -> bool {
        match self {
            Self::Server(_) | Self::Bench(_) => true,
            Self::Playground(playground) => !playground.is_command(),
            _ => false,
        }
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// What the program's allocator can be told.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// To give back soon what is freed: called where there is little memory, before other threads begin.
    pub give_back_soon: fn(),
    /// To give back what the calling thread has allocated and others have freed: called once a second by
    /// threads that build leaves or read, where there is little memory.
    pub trim: fn(),
    /// To have huge pages again, where the process began without: called where there is much memory.
    pub have_huge_pages: fn(),
}

/// Does what the command line says, with the program's `allocator`.
#[must_use]
pub fn main(allocator: Allocator) -> ExitCode {
    frugal::set_up(allocator);
    let command = Cli::parse().command;
    if !command.keeps_much() {
        frugal::be();
    }
    let result = match command {
        Command::Server(server) => server.run(),
        Command::Playground(playground) => {
            log_to_stderr("warn", LogFormat::Text);
            playground.run()
        }
        Command::Bench(bench) => {
            log_to_stderr("warn", LogFormat::Text);
            bench.run()
        }
        Command::Shell(shell) => shell.run(),
        Command::Import(import) => import.run(),
        Command::Export(export) => export.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Ctl(ctl) => ctl.run(),
        Command::Config(config) => config.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("argosy: {failure}");
            failure.code()
        }
    }
}

/// Sends what is logged to stderr: messages of `level` and above, unless `ARGOSY_LOG` says
/// otherwise.
pub fn log_to_stderr(level: &str, format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ARGOSY_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// A durability mode on the command line.
pub fn parse_durability(name: &str) -> Result<DurabilityMode, String> {
    DurabilityMode::from_name(name).ok_or_else(|| {
        format!("no durability mode is called '{name}'; there are last-write, last-flush and sync")
    })
}

/// An address mode on the command line.
pub fn parse_address(name: &str) -> Result<AddressMode, String> {
    AddressMode::from_name(name)
        .ok_or_else(|| format!("no address mode is called '{name}'; there are logical and rewrite"))
}

/// A replication mode on the command line.
pub fn parse_replication(name: &str) -> Result<Replication, String> {
    Replication::from_name(name).ok_or_else(|| {
        format!("no mode is called '{name}'; there are none, build-index and send-index")
    })
}
