//! `argosy-trial`: holds one trial, and prints how it went.
//!
//! Ends with 0 where every history is possible, with 1 where one is not, where something that was acknowledged is
//! lost or anything else is wrong, with 2 for a wrong command line, and with 3 where the trial could not be held.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use argosy_trial::{TrialError, TrialSettings, TrialVerdict, run};
use clap::Parser;

/// Longest trial: what is recorded of one has to fit memory.
const MINUTES_MAX: f64 = 60.0;

/// Start a cluster, ask much of it while its servers fail, and check all answers
#[derive(Parser, Debug)]
#[command(
    after_help = "Examples:\n  argosy-trial --program target/release/argosy --minutes 2\n\n\
    Exit codes: 0 passed, 1 something is wrong, 2 usage, 3 no trial could be held"
)]
struct Args {
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

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "this is no number".to_owned())?;
    match minutes > 0.0 && minutes <= MINUTES_MAX {
        true => Ok(Duration::from_secs_f64(minutes * 60.0)),
        false => Err(format!("more than 0, and at most {MINUTES_MAX}")),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let held = std::path::absolute(&args.dir)
        .map_err(|source| TrialError::File {
            what: "find",
            path: args.dir.clone(),
            source,
        })
        .and_then(|dir| {
            let settings = TrialSettings {
                program: args.program.clone(),
                dir,
                span: args.minutes,
                failures: !args.no_failures,
                seed: args.seed,
            };
            run(&settings).map(|verdict| (settings, verdict))
        });
    match held {
        Ok((settings, verdict)) => {
            say(&settings, &verdict);
            ExitCode::from(u8::from(!verdict.passed()))
        }
        Err(error) => {
            eprintln!("argosy-trial: {error}");
            ExitCode::from(3)
        }
    }
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
    // Whoever reads no further has read enough.
    let _ = writeln!(std::io::stdout(), "{}", lines.join("\n"));
}
