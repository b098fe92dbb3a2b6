//! `argosy-trial`: holds one trial, and prints how it went. `argosy-trial faults`: a short one for each failure there
//! is, and a table of what it costs.
//!
//! Ends with 0 where every history is possible, with 1 where one is not, where something that was acknowledged is
//! lost or anything else is wrong, with 2 for a wrong command line, and with 3 where the trial could not be held.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use argosy_trial::faults::{FaultKind, FaultsSettings, heading, measure};
use argosy_trial::{TrialError, TrialSettings, TrialVerdict, run};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum as _};

/// Longest trial: what is recorded of one has to fit memory.
const MINUTES_MAX: f64 = 60.0;

/// Most lines that are printed of what is wrong with one row of the table.
const WRONG_MAX: usize = 15;

/// Start a cluster, ask much of it while its servers fail, and check all answers
#[derive(Parser, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  argosy-trial --program target/release/argosy --minutes 2\n  \
    argosy-trial faults --program target/release/argosy --only primary-killed\n\n\
    Exit codes: 0 passed, 1 something is wrong, 2 usage, 3 no trial could be held"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<TrialCommand>,
    #[command(flatten)]
    trial: Option<TrialArgs>,
}

#[derive(Subcommand, Debug)]
enum TrialCommand {
    Faults(FaultsArgs),
}

#[derive(Args, Debug)]
struct TrialArgs {
    /// The program that is tried
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// How long there is load
    #[arg(long, default_value = "20", value_parser = minutes)]
    minutes: Duration,
    /// Where data and results go
    #[arg(long, value_name = "DIR", default_value = "target/trial")]
    dir: PathBuf,
    /// What clients choose by
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave the servers alone
    #[arg(long)]
    no_failures: bool,
}

/// Measure what each failure costs, each on a cluster of its own
///
/// Prints a table in Markdown, row by row.
#[derive(Args, Debug)]
struct FaultsArgs {
    /// The program that is tried
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// Where data go, and stay where something is wrong
    #[arg(long, value_name = "DIR", default_value = "target/faults")]
    dir: PathBuf,
    /// What clients choose by
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these, separated by commas [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    only: Vec<FaultKind>,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "this is no number".to_owned())?;
    match minutes > 0.0 && minutes <= MINUTES_MAX {
        true => Ok(Duration::from_secs_f64(minutes * 60.0)),
        false => Err(format!("more than 0, and at most {MINUTES_MAX}")),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let held = match (&cli.command, &cli.trial) {
        (Some(TrialCommand::Faults(args)), _) => faults(args),
        (None, Some(args)) => trial(args),
        (None, None) => Cli::command()
            .error(
                ErrorKind::MissingRequiredArgument,
                "--program FILE is missing",
            )
            .exit(),
    };
    match held {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("argosy-trial: {error}");
            ExitCode::from(3)
        }
    }
}

fn absolute(dir: &Path) -> Result<PathBuf, TrialError> {
    std::path::absolute(dir).map_err(|source| TrialError::File {
        what: "find",
        path: dir.to_owned(),
        source,
    })
}

fn trial(args: &TrialArgs) -> Result<u8, TrialError> {
    let settings = TrialSettings {
        program: args.program.clone(),
        dir: absolute(&args.dir)?,
        span: args.minutes,
        failures: !args.no_failures,
        seed: args.seed,
    };
    let verdict = run(&settings)?;
    say(&settings, &verdict);
    Ok(u8::from(!verdict.passed()))
}

fn faults(args: &FaultsArgs) -> Result<u8, TrialError> {
    let kinds = match args.only.is_empty() {
        true => FaultKind::value_variants().to_vec(),
        false => args.only.clone(),
    };
    let settings = FaultsSettings {
        program: args.program.clone(),
        dir: absolute(&args.dir)?,
        kinds,
        seed: args.seed,
    };
    print(&[machine(&args.program), String::new()]);
    print(&heading());
    let verdict = measure(&settings, |row| print(&[row.line()]))?;
    let mut lines = vec![String::new()];
    for row in verdict.rows.iter().filter(|row| !row.passed()) {
        let name = row.kind.name();
        let wrong = row.wrong.iter().take(WRONG_MAX);
        lines.extend(wrong.map(|wrong| format!("WRONG: {name}: {wrong}")));
        lines.push(format!(
            "{} has all",
            settings.dir.join(&name).join("wrong").display()
        ));
    }
    lines.push(match verdict.exit_code() {
        0 => "passed: every history is possible, and nothing acknowledged is lost".to_owned(),
        _ => format!("FAILED: {} has the data", settings.dir.display()),
    });
    print(&lines);
    Ok(verdict.exit_code())
}

/// What is measured, and on which machine, in a line.
fn machine(program: &Path) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let behind = |text: &str, word: &str| {
        let line = text.lines().find(|line| line.starts_with(word));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or("unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let said = Command::new(program).arg("--version").output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    let version = said.unwrap_or_default();
    let cpu = behind(&read("/proc/cpuinfo"), "model name");
    let memory = behind(&read("/proc/meminfo"), "MemTotal");
    let kernel = read("/proc/sys/kernel/osrelease");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = kernel.trim();
    format!("{version}; {cores} cores of {cpu}, memory {memory}, Linux {kernel}")
}

fn print(lines: &[String]) {
    // Whoever reads no further has read enough.
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{}", lines.join("\n"));
    let _ = stdout.flush();
}

fn say(settings: &TrialSettings, verdict: &TrialVerdict) {
    let mut lines = verdict.summary.lines();
    let dir = settings.dir.display();
    lines.push(String::new());
    lines.push(format!(
        "{dir}/trial.json has the numbers, {dir}/latency.svg the course"
    ));
    for wrong in &verdict.summary.wrong {
        lines.push(format!("WRONG: {wrong}"));
    }
    for fault in &verdict.faults {
        lines.push(format!("key {}:", fault.key));
        lines.extend(fault.around.iter().map(|line| format!("  {line}")));
    }
    lines.push(match verdict.passed() {
        true => "passed: every history is possible, and nothing acknowledged is lost".to_owned(),
        false => format!("FAILED: {dir}/data has the cluster's data"),
    });
    print(&lines);
}
