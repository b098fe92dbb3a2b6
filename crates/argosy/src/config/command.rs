//! `argosy config`: whether a configuration is right, what the defaults are, and what counts.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::keys::{KEYS, Key, REQUIRED};
use super::layers::{Complaint, Origin, Resolved, resolve, table_of};
use super::{ServerConfig, environment};
use crate::cli::OutputFormat;
use crate::failure::CommandFailure;

/// The names and versions of what `-o json` prints.
const CHECK_SCHEMA: &str = "argosy.config-check.v1";
const DEFAULT_SCHEMA: &str = "argosy.config-default.v1";
const EFFECTIVE_SCHEMA: &str = "argosy.config-effective.v1";

/// Check a configuration, print the defaults or what is in effect
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  argosy config check ./data/server-0/argosy.toml\n  \
    argosy config default > argosy.toml\n  \
    argosy config effective argosy.toml --set storage.l0-bytes=64MiB -o json\n\n\
    Exit codes: 0 right, 2 usage, 3 no such file, 7 the configuration is wrong"
)]
pub(crate) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Say everything that is wrong with a configuration, and in which line
    #[command(after_help = "Examples:\n  argosy config check argosy.toml\n  \
        argosy config check argosy.toml -o json")]
    Check(Source),
    /// Print a configuration with every key, its default and what it does
    #[command(after_help = "Examples:\n  argosy config default > argosy.toml\n  \
        argosy config default -o json")]
    Default {
        /// How to print
        #[arg(short, long, value_enum, default_value_t)]
        output: OutputFormat,
    },
    /// Print each key, its value, and where that was said
    #[command(after_help = "Examples:\n  argosy config effective argosy.toml\n  \
        ARGOSY_LOG__LEVEL=debug argosy config effective argosy.toml -o json")]
    Effective(Source),
}

#[derive(Args, Debug)]
struct Source {
    /// The configuration
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A value that goes before those of file and environment, as `argosy server` takes it
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
}

#[derive(Serialize)]
struct CheckReport<'a> {
    schema: &'static str,
    file: &'a Path,
    ok: bool,
    problems: Vec<ProblemReport<'a>>,
}

#[derive(Serialize)]
struct ProblemReport<'a> {
    line: Option<usize>,
    origin: &'static str,
    what: &'a str,
}

#[derive(Serialize)]
struct DefaultReport {
    schema: &'static str,
    keys: Vec<DefaultKey>,
}

#[derive(Serialize)]
struct DefaultKey {
    key: String,
    default: Option<toml::Value>,
    about: &'static str,
}

#[derive(Serialize)]
struct EffectiveReport<'a> {
    schema: &'static str,
    file: &'a Path,
    keys: Vec<EffectiveKey>,
}

#[derive(Serialize)]
struct EffectiveKey {
    key: String,
    value: toml::Value,
    origin: &'static str,
    #[serde(rename = "where")]
    place: String,
}

impl Config {
    /// Does what was asked.
    pub(crate) fn run(self) -> Result<(), CommandFailure> {
        match self.command {
            Command::Check(source) => source.check(),
            Command::Default { output } => {
                print_default(output);
                Ok(())
            }
            Command::Effective(source) => source.effective(),
        }
    }
}

impl Source {
    fn resolve(&self) -> Result<Result<Resolved, Vec<Complaint>>, CommandFailure> {
        let file = &self.file;
        let text = std::fs::read_to_string(file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                CommandFailure::NotFound(format!("there is no {}", file.display()))
            }
            _ => CommandFailure::io("read", file, &error),
        })?;
        Ok(resolve(&text, environment(), &self.set))
    }

    fn refused(&self, complaints: &[Complaint]) -> CommandFailure {
        let (file, count) = (self.file.display(), complaints.len());
        CommandFailure::Config(format!("{file}: {count} found wrong"))
    }

    fn print_complaints(&self, complaints: &[Complaint]) {
        for complaint in complaints {
            match &complaint.origin {
                Origin::File(line) => {
                    println!("{}:{line}: {}", self.file.display(), complaint.what);
                }
                _ => println!("{complaint}"),
            }
        }
    }

    fn check(&self) -> Result<(), CommandFailure> {
        let complaints = self.resolve()?.err().unwrap_or_default();
        let report = CheckReport {
            schema: CHECK_SCHEMA,
            file: &self.file,
            ok: complaints.is_empty(),
            problems: complaints
                .iter()
                .map(|complaint| ProblemReport {
                    line: complaint.origin.line(),
                    origin: complaint.origin.name(),
                    what: &complaint.what,
                })
                .collect(),
        };
        match self.output {
            OutputFormat::Json => print_json(&report),
            OutputFormat::Table if report.ok => println!("{} is right", self.file.display()),
            OutputFormat::Table => self.print_complaints(&complaints),
        }
        match complaints.is_empty() {
            true => Ok(()),
            false => Err(self.refused(&complaints)),
        }
    }

    fn effective(&self) -> Result<(), CommandFailure> {
        let resolved = match self.resolve()? {
            Ok(resolved) => resolved,
            Err(complaints) => {
                for complaint in &complaints {
                    eprintln!("{}: {complaint}", self.file.display());
                }
                return Err(self.refused(&complaints));
            }
        };
        let values = table_of(&resolved.config);
        let keys = KEYS
            .iter()
            .map(|key| effective_key(key, &values, &resolved));
        let keys: Vec<_> = keys.collect();
        match self.output {
            OutputFormat::Json => print_json(&EffectiveReport {
                schema: EFFECTIVE_SCHEMA,
                file: &self.file,
                keys,
            }),
            OutputFormat::Table => {
                for key in &keys {
                    println!(
                        "{:<24} {:<28} {}",
                        key.key,
                        key.value.to_string(),
                        key.place
                    );
                }
            }
        }
        Ok(())
    }
}

fn effective_key(key: &Key, values: &toml::Table, resolved: &Resolved) -> EffectiveKey {
    let origin = resolved.origins.get(&(key.section, key.name));
    let origin = origin.unwrap_or(&Origin::Default);
    EffectiveKey {
        key: format!("{}.{}", key.section, key.name),
        value: values[key.section][key.name].clone(),
        origin: origin.name(),
        place: origin.to_string(),
    }
}

fn print_default(output: OutputFormat) {
    let example = ServerConfig::example();
    if output == OutputFormat::Table {
        let head = "# A configuration for `argosy server --config`. Keys marked (required) have no \
                    default: the values are examples.\n";
        print!("{}", example.to_toml_with(head, &|key| is_required(key)));
        return;
    }
    let values = table_of(&example);
    let keys = KEYS.iter().map(|key| DefaultKey {
        key: format!("{}.{}", key.section, key.name),
        default: (!is_required(key)).then(|| values[key.section][key.name].clone()),
        about: key.about,
    });
    print_json(&DefaultReport {
        schema: DEFAULT_SCHEMA,
        keys: keys.collect(),
    });
}

fn is_required(key: &Key) -> bool {
    REQUIRED.contains(&(key.section, key.name))
}

fn print_json(value: &impl Serialize) {
    let line = serde_json::to_string(value).expect("plain data has a JSON form");
    println!("{line}");
}
