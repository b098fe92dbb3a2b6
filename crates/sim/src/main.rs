//! Runs seeds: one with a log in words, or many with counters at the end.
//!
//! Ends with 1 when a seed fails, or when a counter that must not be zero is, and with 2 for a
//! wrong command line. With `--mutant` it is the other way round: it ends with 1 unless a checker
//! finds the planted mistake; with `--recorded`, unless each is found by its seed or by one of the first
//! of its profile.

mod mutants;
mod workers;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use argosy_sim::coverage::{self, Coverage};
use argosy_sim::{Mutants, Profile, RunOptions, RunReport, run};
use clap::Parser;

use workers::{Outcome, Workers};

/// A run allocates much and keeps little: a tenth of the time goes to the system's allocator otherwise.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// From so many seeds on everything has to have happened that is counted.
const SEEDS_ALL: u64 = 300;
/// The same of seeds in which groups change.
const SEEDS_OF_GROUPS: u64 = 60;

/// Run whole clusters from seeds, and judge what they did
#[derive(Parser, Debug)]
#[command(after_help = "Examples:\n  argosy-sim --seed 7 --log\n  \
    argosy-sim --first 1 --seeds 300\n  argosy-sim --seeds 1000 --mutant acknowledge-early\n  \
    argosy-sim --profile many-segments")]
struct Args {
    /// Run this one seed
    #[arg(long, conflicts_with_all = ["first", "seeds"])]
    seed: Option<u64>,
    /// The first of many seeds
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How many seeds to run; unless it is said, one, or all of a profile
    #[arg(long)]
    seeds: Option<u64>,
    /// What seeds stand for: usual, many-segments, when-due, damaged-windows, toy, synced, last-flush, failover or
    /// partitions
    #[arg(long, default_value = "usual", value_parser = profile)]
    profile: Profile,
    /// Processes that run seeds at a time; 0: one for each CPU
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Say in words what happens
    #[arg(long)]
    log: bool,
    /// Say what the servers say to their operators
    #[arg(long)]
    trace: bool,
    /// Plant a mistake, and stop at the seed that finds it
    #[arg(long)]
    mutant: Option<String>,
    /// Check that each planted mistake is found by the seed that this file has for it, or by one of the first
    #[arg(long, value_name = "FILE")]
    recorded: Option<PathBuf>,
    /// Find a seed for each planted mistake, and write this file
    #[arg(long, value_name = "FILE", conflicts_with = "recorded")]
    record: Option<PathBuf>,
    /// Run many seeds in this process, and tell another one how they went
    #[arg(long, hide = true)]
    worker: bool,
}

impl Args {
    /// How many seeds are run.
    fn seeds(&self) -> u64 {
        self.seeds.unwrap_or_else(|| self.profile.seeds())
    }
}

/// The profile called `name`, or what there is.
fn profile(name: &str) -> Result<Profile, String> {
    let names = Profile::ALL.map(Profile::name).join(", ");
    Profile::named(name).ok_or_else(|| format!("there are {names}"))
}

/// The planted mistake called `name`, or what there is.
fn mutant(name: &str) -> Result<Mutants, String> {
    let known = || {
        format!(
            "there are {}",
            Mutants::names().collect::<Vec<_>>().join(", ")
        )
    };
    Mutants::named(name).ok_or_else(known)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mutants = match args
        .mutant
        .as_deref()
        .map_or_else(|| Ok(Mutants::default()), mutant)
    {
        Ok(mutants) => mutants,
        Err(known) => {
            say(&format!("no such mistake: {known}\n"));
            return ExitCode::from(2);
        }
    };
    if args.trace {
        let level = tracing::Level::DEBUG;
        tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_max_level(level)
            .init();
    }
    if let Some(path) = args.recorded.as_ref().or(args.record.as_ref()) {
        return recorded(path, &args);
    }
    let options = RunOptions {
        mutants,
        profile: args.profile,
        print: args.log,
    };
    match args.seed {
        Some(seed) => one(seed, &options),
        None if args.worker => {
            for seed in args.first..args.first.saturating_add(args.seeds()) {
                workers::begin(seed);
                workers::tell(&run(seed, &options));
            }
            ExitCode::SUCCESS
        }
        None => many(&args),
    }
}

/// Checks the table at `path`, or makes it.
fn recorded(path: &Path, args: &Args) -> ExitCode {
    let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let mut table = match read.and_then(|text| mutants::Table::parse(&text)) {
        Ok(table) => table,
        Err(why) => {
            say(&format!("{}: {why}\n", path.display()));
            return ExitCode::from(2);
        }
    };
    let jobs = match args.jobs {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        jobs => jobs,
    };
    let all = if args.record.is_some() {
        let all = table.search(args.seeds(), jobs);
        if let Err(why) = table.write(path) {
            say(&format!("{}: {why}\n", path.display()));
            return ExitCode::from(2);
        }
        all
    } else {
        table.check(jobs)
    };
    match all {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs one seed here.
fn one(seed: u64, options: &RunOptions) -> ExitCode {
    let report = run(seed, options);
    if !options.print {
        say(&format!("{}\n", report.recent.join("\n")));
    }
    say(&report.coverage.to_string());
    let RunReport {
        wrong, hash, time, ..
    } = report;
    match wrong {
        None => {
            say(&format!(
                "seed {seed} passed: {time:?} of simulated time, hash {hash:016x}\n"
            ));
            ExitCode::SUCCESS
        }
        Some(wrong) => {
            say(&format!(
                "seed {seed} failed after {time:?}, hash {hash:016x}: {wrong}\n"
            ));
            ExitCode::FAILURE
        }
    }
}

/// Runs many seeds in processes of their own, and sums up.
fn many(args: &Args) -> ExitCode {
    let workers = Workers {
        first: args.first,
        seeds: args.seeds(),
        profile: args.profile,
        jobs: args.jobs,
        mutant: args.mutant.clone(),
    };
    let mut coverage = Coverage::default();
    let (mut passed, mut failed, mut found) = (0, 0, None);
    workers.run(|seed, outcome| {
        match outcome {
            Outcome::Passed(counts) => {
                passed += 1;
                coverage.merge(&counts);
            }
            Outcome::Wrong(wrong) => {
                failed += 1;
                say(&format!("seed {seed} failed: {wrong}\n"));
                found = Some(found.map_or(seed, |first: u64| first.min(seed)));
            }
            // With a planted mistake, an assertion may be faster; that does not count.
            Outcome::Died => {
                failed += 1;
                say(&format!("seed {seed} died\n"));
            }
        }
        args.mutant.is_none() || found.is_none()
    });
    if let Some(name) = &args.mutant {
        let (text, code) = match found {
            Some(seed) => (
                format!("{name} was found by seed {seed}"),
                ExitCode::SUCCESS,
            ),
            None => (format!("{name} was not found"), ExitCode::FAILURE),
        };
        say(&format!(
            "{text}; {} seeds from {} passed\n",
            passed, args.first
        ));
        return code;
    }
    say(&coverage.to_string());
    let (seeds, kind) = (args.seeds(), args.profile);
    let kind = match kind {
        Profile::Usual => String::new(),
        kind => format!("{} ", kind.name()),
    };
    say(&format!(
        "{kind}seeds {seeds} from {}: {passed} passed, {failed} failed\n",
        args.first
    ));
    match failed == 0 && suffices(args, &coverage) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Whether enough has happened, and not too much of what may happen seldom.
fn suffices(args: &Args, coverage: &Coverage) -> bool {
    let seeds = args.seeds();
    let missing: Vec<_> = coverage.missing().collect();
    // A few seeds cannot have met everything, least of all in each mode.
    let all = args.profile == Profile::Usual && seeds >= SEEDS_ALL;
    let uncovered = all && !missing.is_empty();
    if uncovered {
        say(&format!(
            "coverage is incomplete: too little of {}\n",
            missing.join(", of ")
        ));
    }
    // One seed in 50 with small devices, at most.
    let stuck = coverage.get(coverage::NO_ROOM_TO_RETURN);
    let many_stuck = stuck > 1 + seeds / 200;
    if many_stuck {
        say(&format!("too many runs without room to return: {stuck}\n"));
    }
    !uncovered && !many_stuck && !spares_windows(args, coverage) && !leaves_groups(args, coverage)
}

/// Whether too little has happened to groups where that is what seeds are for.
fn leaves_groups(args: &Args, coverage: &Coverage) -> bool {
    let missing: Vec<_> = coverage.missing_where_groups_change().collect();
    let of_groups = args.profile == Profile::Failover && args.seeds() >= SEEDS_OF_GROUPS;
    let leaves = of_groups && !missing.is_empty();
    if leaves {
        let missing = missing.join(", of ");
        say(&format!("coverage is incomplete: nothing of {missing}\n"));
    }
    leaves
}

/// Whether too few windows were damaged where that is what seeds are for.
fn spares_windows(args: &Args, coverage: &Coverage) -> bool {
    let damaged = coverage.get(coverage::WINDOWS_DAMAGED);
    let spared = args.profile == Profile::DamagedWindows && damaged < args.seeds();
    if spared {
        say(&format!("too few windows were damaged: {damaged}\n"));
    }
    spared
}

fn say(text: &str) {
    // A reader that has gone away wants no more.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
